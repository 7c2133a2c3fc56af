//! Kernels: tables of variables and buffers, and what runs.

use super::{Buffer, BufferId, DType, Expr, Stmt, Type, VarId};
use std::collections::BTreeSet;

/// What a variable is called and holds. Names are unique within a kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Var {
    /// Name, as printed and as emitted.
    pub name: String,
    /// Its type; loop variables are `i64`.
    pub dtype: DType,
}

/// A function over buffers. See [`crate::ir`] for what it means.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// Name of the function.
    pub name: String,
    /// All variables; indexed by [`VarId`].
    pub vars: Vec<Var>,
    /// All buffers; indexed by [`BufferId`].
    pub buffers: Vec<Buffer>,
    /// The buffers that the caller passes, in order.
    pub params: Vec<BufferId>,
    /// What runs.
    pub body: Vec<Stmt>,
}

impl Kernel {
    /// An empty kernel.
    pub fn new(name: impl Into<String>) -> Self {
        Kernel { name: name.into(), vars: vec![], buffers: vec![], params: vec![], body: vec![] }
    }

    /// The variable behind an id.
    pub fn var(&self, v: VarId) -> &Var {
        &self.vars[v.0 as usize]
    }

    /// The buffer behind an id.
    pub fn buffer(&self, b: BufferId) -> &Buffer {
        &self.buffers[b.0 as usize]
    }

    /// The buffer behind an id, to change it.
    pub fn buffer_mut(&mut self, b: BufferId) -> &mut Buffer {
        &mut self.buffers[b.0 as usize]
    }

    /// The buffer called `name`.
    pub fn find_buffer(&self, name: &str) -> Option<BufferId> {
        self.buffers.iter().position(|b| b.name == name).map(|i| BufferId(i as u32))
    }

    /// The variable called `name`.
    pub fn find_var(&self, name: &str) -> Option<VarId> {
        self.vars.iter().position(|v| v.name == name).map(|i| VarId(i as u32))
    }

    /// A new `i64` variable whose name starts with `hint` and is unique.
    pub fn fresh_var(&mut self, hint: &str) -> VarId {
        self.fresh_typed_var(hint, DType::I64)
    }

    /// A new variable of a given type.
    pub fn fresh_typed_var(&mut self, hint: &str, dtype: DType) -> VarId {
        let name = self.unique(hint);
        self.vars.push(Var { name, dtype });
        VarId(self.vars.len() as u32 - 1)
    }

    /// Adds a buffer, making its name unique.
    pub fn add_buffer(&mut self, mut buffer: Buffer) -> BufferId {
        buffer.name = self.unique(&buffer.name);
        self.buffers.push(buffer);
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// `hint`, or `hint_1`, `hint_2`, ... : the first that is not taken.
    fn unique(&self, hint: &str) -> String {
        let names = || self.vars.iter().map(|v| &v.name).chain(self.buffers.iter().map(|b| &b.name));
        if !names().any(|n| n == hint) {
            return hint.to_string();
        }
        // Unrolled loops make thousands of one name: all are looked at once.
        let number = |name: &String| {
            let digits = name.strip_prefix(hint)?.strip_prefix('_')?;
            // `_01` and `_+1` are other names than `_1`.
            if digits.starts_with(['0', '+']) { None } else { digits.parse::<u64>().ok() }
        };
        let taken: BTreeSet<u64> = names().filter_map(number).collect();
        let free = (1..).zip(&taken).find(|(i, n)| i != *n).map_or(taken.len() as u64 + 1, |(i, _)| i);
        format!("{hint}_{free}")
    }

    /// Whether the buffer is a parameter.
    pub fn is_param(&self, b: BufferId) -> bool {
        self.params.contains(&b)
    }
}

impl Expr {
    /// Its type in `kernel`. A vector operand makes the whole expression a vector.
    pub fn ty(&self, kernel: &Kernel) -> Type {
        let widest = |a: Type, b: Type| Type { dtype: a.dtype, lanes: a.lanes.max(b.lanes) };
        match self {
            Expr::Int(_) => Type::scalar(DType::I64),
            Expr::Float(_, d) => Type::scalar(*d),
            Expr::Var(v) => Type::scalar(kernel.var(*v).dtype),
            Expr::Binary(op, a, b) => {
                let t = widest(a.ty(kernel), b.ty(kernel));
                if op.is_predicate() { Type { dtype: DType::Bool, lanes: t.lanes } } else { t }
            }
            Expr::Unary(_, a) => a.ty(kernel),
            Expr::Select(c, a, b) => {
                let t = widest(a.ty(kernel), b.ty(kernel));
                Type { dtype: t.dtype, lanes: t.lanes.max(c.ty(kernel).lanes) }
            }
            Expr::Cast(d, a) => Type { dtype: *d, lanes: a.ty(kernel).lanes },
            Expr::Load(b, idx) => Type {
                dtype: kernel.buffer(*b).dtype.compute(),
                lanes: idx.iter().map(|i| i.ty(kernel).lanes).max().unwrap_or(1),
            },
            Expr::Ramp { lanes, .. } => Type { dtype: DType::I64, lanes: *lanes },
            Expr::Broadcast(a, lanes) => Type { dtype: a.ty(kernel).dtype, lanes: *lanes },
        }
    }
}
