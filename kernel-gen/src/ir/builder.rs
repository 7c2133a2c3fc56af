//! Building kernels by hand.
//!
//! ```
//! use kernel_gen::ir::{builder::KernelBuilder, Access, DType, Expr};
//! let mut b = KernelBuilder::new("scale");
//! let x = b.param("x", DType::F32, &[64], Access::Read);
//! let y = b.param("y", DType::F32, &[64], Access::Write);
//! b.for_("i", 64, |b, i| b.store(y, [i.into()], Expr::load(x, vec![i.into()]) * Expr::f32(2.0)));
//! println!("{}", b.finish());
//! ```

use super::{Access, BinOp, Buffer, BufferId, DType, Expr, For, Gpu, Kernel, LoopKind, Pragma, Scope, Stmt, VarId};

/// Collects statements into a kernel. Nested closures make nested blocks.
pub struct KernelBuilder {
    kernel: Kernel,
    blocks: Vec<Vec<Stmt>>,
}

impl KernelBuilder {
    /// Starts an empty kernel.
    pub fn new(name: impl Into<String>) -> Self {
        KernelBuilder { kernel: Kernel::new(name), blocks: vec![vec![]] }
    }

    /// Goes on with a kernel: a builder that has its buffers and variables but none of its statements, and these.
    pub fn reopen(mut kernel: Kernel) -> (Self, Vec<Stmt>) {
        let body = std::mem::take(&mut kernel.body);
        (KernelBuilder { kernel, blocks: vec![vec![]] }, body)
    }

    /// Adds a parameter.
    pub fn param(&mut self, name: &str, dtype: DType, shape: &[i64], access: Access) -> BufferId {
        let id = self.kernel.add_buffer(Buffer { access, ..Buffer::new(name, dtype, shape, Scope::Global) });
        self.kernel.params.push(id);
        id
    }

    /// Allocates a buffer that lives to the end of the current block.
    pub fn alloc(&mut self, name: &str, dtype: DType, shape: &[i64], scope: Scope) -> BufferId {
        let id = self.kernel.add_buffer(Buffer::new(name, dtype, shape, scope));
        self.push(Stmt::Alloc(id));
        id
    }

    /// Adds any statement.
    pub fn push(&mut self, stmt: Stmt) {
        self.blocks.last_mut().expect("a builder always has an open block").push(stmt);
    }

    /// A serial loop; the closure builds its body.
    pub fn for_(&mut self, name: &str, extent: i64, body: impl FnOnce(&mut Self, VarId)) {
        self.loop_(name, extent, LoopKind::Serial, body);
    }

    /// A loop of any kind; the closure builds its body.
    pub fn loop_(&mut self, name: &str, extent: i64, kind: LoopKind, body: impl FnOnce(&mut Self, VarId)) {
        let var = self.open_loop(name);
        body(self, var);
        self.close_loop(var, extent, kind);
    }

    /// A serial loop with advice for lowering.
    pub fn annotated(&mut self, name: &str, extent: i64, pragmas: &[Pragma], body: impl FnOnce(&mut Self, VarId)) {
        let var = self.open_loop(name);
        body(self, var);
        let body = self.close();
        let pragmas = pragmas.to_vec();
        self.push(Stmt::For(For { var, extent, kind: LoopKind::Serial, pragmas, body }));
    }

    /// A serial loop whose iterations ask the caches for what the iteration `ahead` later reads; see [`Pragma::FetchAhead`].
    pub fn for_fetching(&mut self, name: &str, extent: i64, ahead: i64, body: impl FnOnce(&mut Self, VarId)) {
        self.annotated(name, extent, &[Pragma::FetchAhead(ahead)], body);
    }

    /// Names an integer value for the rest of the block.
    pub fn let_(&mut self, name: &str, value: Expr) -> VarId {
        let var = self.kernel.fresh_var(name);
        self.push(Stmt::Let { var, value });
        var
    }

    /// The type of a buffer.
    pub fn dtype(&self, buffer: BufferId) -> DType {
        self.kernel.buffer(buffer).dtype
    }

    /// A shared buffer with a swizzle; see [`super::gpu`].
    pub fn alloc_swizzled(&mut self, name: &str, dtype: DType, shape: &[i64], swizzle: u32) -> BufferId {
        let id = self.kernel.add_buffer(Buffer { swizzle, ..Buffer::new(name, dtype, shape, Scope::Shared) });
        self.push(Stmt::Alloc(id));
        id
    }

    /// A statement that only a GPU has.
    pub fn gpu(&mut self, statement: Gpu) {
        self.push(Stmt::Gpu(statement));
    }

    /// Nested serial loops, outermost first.
    pub fn nest(&mut self, loops: &[(&str, i64)], body: impl FnOnce(&mut Self, &[VarId])) {
        let vars: Vec<VarId> = loops.iter().map(|(name, _)| self.kernel.fresh_var(name)).collect();
        let mut stmts = self.block(|b| body(b, &vars));
        for (var, (_, extent)) in vars.iter().zip(loops).rev() {
            stmts = vec![Stmt::for_(*var, *extent, stmts)];
        }
        for s in stmts {
            self.push(s);
        }
    }

    /// `if cond { body }`.
    pub fn if_(&mut self, cond: Expr, body: impl FnOnce(&mut Self)) {
        let then = self.block(body);
        self.push(Stmt::if_(cond, then));
    }

    /// Statements under a condition, or without one where there is none.
    pub fn when(&mut self, cond: Option<Expr>, body: impl FnOnce(&mut Self)) {
        match cond {
            Some(cond) => self.if_(cond, body),
            None => body(self),
        }
    }

    /// `if cond { then } else { otherwise }`.
    pub fn if_else(&mut self, cond: Expr, then: impl FnOnce(&mut Self), otherwise: impl FnOnce(&mut Self)) {
        let (then, otherwise) = (self.block(then), self.block(otherwise));
        self.push(Stmt::If { cond, then, otherwise });
    }

    /// `buffer[indices] = value`.
    pub fn store(&mut self, buffer: BufferId, indices: impl Into<Vec<Expr>>, value: Expr) {
        self.push(Stmt::store(buffer, indices.into(), value));
    }

    /// `buffer[indices] += value`, from zero, over the given reduce loops.
    pub fn sum(&mut self, buffer: BufferId, indices: impl Into<Vec<Expr>>, value: Expr, over: &[VarId]) {
        let zero = Expr::zero(self.kernel.buffer(buffer).dtype);
        self.push(Stmt::Reduce {
            buffer,
            indices: indices.into(),
            op: super::ReduceOp::Add,
            init: zero,
            value,
            over: over.to_vec(),
        });
    }

    /// `lo <= e && e < hi`.
    pub fn between(e: &Expr, lo: i64, hi: i64) -> Expr {
        Expr::bin(BinOp::Le, Expr::Int(lo), e.clone()).and(e.clone().lt(hi))
    }

    /// Collects what the closure pushes.
    fn block(&mut self, body: impl FnOnce(&mut Self)) -> Vec<Stmt> {
        self.open();
        body(self);
        self.close()
    }

    // What does not depend on a closure's type is compiled once, not for each of the hundreds of closures of the templates:
    // a crate that uses kernel-gen in its build script compiles them all.

    fn open(&mut self) {
        self.blocks.push(vec![]);
    }

    fn close(&mut self) -> Vec<Stmt> {
        self.blocks.pop().expect("it was opened")
    }

    fn open_loop(&mut self, name: &str) -> VarId {
        self.open();
        self.kernel.fresh_var(name)
    }

    fn close_loop(&mut self, var: VarId, extent: i64, kind: LoopKind) {
        let body = self.close();
        self.push(Stmt::For(For { var, extent, kind, pragmas: vec![], body }));
    }

    /// The kernel.
    pub fn finish(mut self) -> Kernel {
        self.kernel.body = self.blocks.pop().expect("a builder always has an open block");
        self.kernel
    }
}
