//! Statements.

use super::expr::Integer;
use super::launch::is_hardware;
use super::prelude::{Helper, cuda_type};
use super::{Body, EmitError};
use crate::analysis::range::bounds;
use crate::emit::lanes::{as_store, lanes};
use crate::emit::text::{Text, has_word};
use crate::ir::{Axis, Barrier, BufferId, DType, Expr, For, Gpu, LoopKind, ReduceOp, Scope, Stmt, Unit, VarId};

/// A serial loop over elements of a private array is advised to be copied out as long as it runs at most this many
/// statements: an array that is indexed at run time cannot live in registers.
const MAX_PRIVATE_STEPS: i64 = 2048;

impl Body<'_> {
    /// Appends a line at the current depth.
    pub(super) fn line(&mut self, text: &str) {
        self.out.push_str(&"  ".repeat(self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// The statements of a block.
    pub(super) fn block(&mut self, stmts: &[Stmt]) -> Result<(), EmitError> {
        let (outer, sums) = (self.ranges.clone(), self.live_sums.clone());
        let mut lets: Vec<(String, usize, usize)> = vec![];
        for (i, s) in stmts.iter().enumerate() {
            if is_product(s) && !(i > 0 && is_product(&stmts[i - 1])) {
                self.begin_products(&stmts[i..])?;
            }
            let start = self.out.len();
            self.stmt(s)?;
            if let Stmt::Let { var, .. } = s {
                lets.push((self.names.var(*var).to_string(), start, self.out.len()));
            }
        }
        // Values that ranges have removed from all expressions would only be warnings.
        for (name, start, end) in lets.into_iter().rev() {
            self.drop_unused(&name, start, end);
        }
        (self.ranges, self.live_sums) = (outer, sums);
        Ok(())
    }

    fn stmt(&mut self, s: &Stmt) -> Result<(), EmitError> {
        match s {
            Stmt::For(l) if is_hardware(l.kind) => self.hardware(l),
            Stmt::For(l) => self.for_(l),
            Stmt::If { cond, then, otherwise } => {
                let text = self.scalar(cond)?.text;
                self.line(&format!("if ({text}) {{"));
                self.nested(then, cond, true)?;
                if !otherwise.is_empty() {
                    self.line("} else {");
                    self.nested(otherwise, cond, false)?;
                }
                self.line("}");
                Ok(())
            }
            Stmt::Store { .. } => self.update(s),
            Stmt::Reduce { buffer, over, .. } => {
                if !over.is_empty() {
                    return Err(EmitError::NotLowered {
                        what: format!(
                            "the initialisation of the reduction into `{}`",
                            self.kernel.buffer(*buffer).name
                        ),
                        pass: "decompose_reduction",
                    });
                }
                self.update(s)
            }
            Stmt::Let { var, value } => self.let_(*var, value),
            Stmt::Alloc(b) => self.alloc(*b),
            Stmt::Barrier(Barrier::Block) => {
                self.line("__syncthreads();");
                Ok(())
            }
            Stmt::Barrier(Barrier::Warp) => {
                self.line("__syncwarp();");
                Ok(())
            }
            Stmt::Transpose { .. } => {
                Err(EmitError::NotLowered { what: "a transpose statement".into(), pass: "expand_transposes" })
            }
            Stmt::Gpu(g) => self.gpu(g),
        }
    }

    fn nested(&mut self, stmts: &[Stmt], cond: &Expr, truth: bool) -> Result<(), EmitError> {
        let outer = self.ranges.clone();
        self.ranges.assume(cond, truth);
        // What a counter was when the condition was tested it is not for long.
        self.counters.values().for_each(|c| self.ranges.insert(c.var, 0, c.most));
        self.depth += 1;
        self.block(stmts)?;
        self.depth -= 1;
        self.ranges = outer;
        Ok(())
    }

    /// Names a value.
    pub(super) fn let_(&mut self, var: VarId, value: &Expr) -> Result<(), EmitError> {
        let (ty, text) = match self.kernel.var(var).dtype {
            DType::Bool => ("bool", self.scalar(value)?),
            d if d.is_int() => {
                let Integer { text, wide } = self.integer(value)?;
                if wide {
                    self.wide.insert(var);
                }
                (if wide { "long long" } else { "int" }, text)
            }
            d => (cuda_type(d.compute()), self.scalar(value)?),
        };
        let line = format!("const {ty} {} = {};", self.names.var(var), text.text);
        self.line(&line);
        if let Some((lo, hi)) = bounds(value, &self.ranges) {
            self.ranges.insert(var, lo, hi);
        }
        Ok(())
    }

    /// A loop over a hardware index: each thread runs the iteration that is its own.
    fn hardware(&mut self, l: &For) -> Result<(), EmitError> {
        let (source, launched) = match l.kind {
            LoopKind::Grid(a) => match self.cluster[a as usize] {
                1 => (format!("(int)blockIdx.{}", letter(a)), self.grid[a as usize]),
                // Blocks of a cluster are neighbours in the grid.
                n => (format!("(int)blockIdx.{} / {n}", letter(a)), self.grid[a as usize] / n),
            },
            LoopKind::Cluster(a) => {
                let n = self.cluster[a as usize];
                (format!("(int)blockIdx.{} % {n}", letter(a)), n)
            }
            LoopKind::Thread(a) => (format!("(int)threadIdx.{}", letter(a)), self.block[a as usize]),
            _ => return Ok(()),
        };
        let guarded = l.extent < i64::from(launched);
        if guarded {
            self.line(&format!("if ({source} < {}) {{", l.extent));
            self.depth += 1;
        }
        let name = self.names.var(l.var).to_string();
        let start = self.out.len();
        self.line(&format!("const int {name} = {source};"));
        let end = self.out.len();
        self.ranges.insert_loop(l);
        self.block(&l.body)?;
        self.drop_unused(&name, start, end);
        if guarded {
            self.depth -= 1;
            self.line("}");
        }
        Ok(())
    }

    /// Takes a declaration back that nothing behind it mentions.
    fn drop_unused(&mut self, name: &str, start: usize, end: usize) {
        if !has_word(&self.out[end..], name) {
            self.out.replace_range(start..end, "");
        }
    }

    fn for_(&mut self, l: &For) -> Result<(), EmitError> {
        let var = self.names.var(l.var).to_string();
        match l.kind {
            LoopKind::Unrolled => self.line("#pragma unroll"),
            LoopKind::Serial if self.indexes_private(l) => self.line("#pragma unroll"),
            LoopKind::Serial => {}
            LoopKind::Parallel => return Err(EmitError::CpuLoop { var }),
            LoopKind::Vectorized => {
                return Err(EmitError::NotLowered { what: format!("vectorised loop `{var}`"), pass: "vectorize" });
            }
            LoopKind::VThread => {
                return Err(EmitError::NotLowered { what: format!("vthread loop `{var}`"), pass: "inject_vthread" });
            }
            LoopKind::Grid(_) | LoopKind::Cluster(_) | LoopKind::Thread(_) => return Ok(()),
            LoopKind::FragmentRow | LoopKind::FragmentCol => {
                return Err(EmitError::Unsupported { what: format!("fragment loop `{var}`") });
            }
        }
        let ty = if l.extent > i64::from(i32::MAX) {
            self.wide.insert(l.var);
            "long long"
        } else {
            "int"
        };
        self.line(&format!("for ({ty} {var} = 0; {var} < {}; ++{var}) {{", l.extent));
        self.ranges.insert_loop(l);
        self.depth += 1;
        self.block(&l.body)?;
        self.depth -= 1;
        self.line("}");
        Ok(())
    }

    /// Whether the loop runs over elements of a private array, and is short enough to be copied out.
    fn indexes_private(&self, l: &For) -> bool {
        let private = |b: BufferId| {
            let scope = self.kernel.buffer(b).scope;
            scope.is_private() || matches!(scope, Scope::Fragment(_))
        };
        let mut found = false;
        for s in &l.body {
            s.walk(&mut |s| {
                s.accesses(&mut |a| found |= private(a.buffer) && a.index.iter().any(|i| i.mentions(l.var)));
            });
        }
        found && l.extent.saturating_mul(steps(&l.body)) <= MAX_PRIVATE_STEPS
    }

    /// Declares a buffer; shared ones stand at the top of the function.
    fn alloc(&mut self, b: BufferId) -> Result<(), EmitError> {
        let buffer = self.kernel.buffer(b);
        if matches!(buffer.scope, Scope::Fragment(_)) {
            return self.fragment_alloc(b);
        }
        if let Some(elements) = self.scalars.get(&b) {
            let names: Vec<&str> = elements.iter().flatten().map(String::as_str).collect();
            let ty = cuda_type(buffer.dtype);
            let lines: Vec<String> = names.chunks(12).map(|row| format!("{ty} {};", row.join(", "))).collect();
            lines.iter().for_each(|line| self.line(line));
            return Ok(());
        }
        if buffer.scope.is_private() {
            let n = buffer.extent_elements().max(1);
            let ty = if self.counters.contains_key(&b) { "int" } else { cuda_type(buffer.dtype) };
            self.line(&format!("{ty} {}[{n}];", self.names.buffer(b)));
        }
        Ok(())
    }

    /// A store or an update.
    fn update(&mut self, s: &Stmt) -> Result<(), EmitError> {
        if lanes(self.kernel, s) == 1 { self.scalar_update(s) } else { self.vector_update(s) }
    }

    /// One lane of a store or an update.
    pub(super) fn scalar_update(&mut self, s: &Stmt) -> Result<(), EmitError> {
        match s {
            Stmt::Store { buffer, indices, .. } if self.is_unread(*buffer, indices)? => {}
            Stmt::Store { buffer, indices, value } => {
                let text = match self.verbatim(*buffer, value)? {
                    Some(text) => text,
                    None => {
                        let text = self.scalar(value)?;
                        self.narrowed(*buffer, text)
                    }
                };
                let target = self.element(*buffer, indices)?;
                self.line(&format!("{target} = {text};"));
            }
            Stmt::Reduce { buffer, indices, op, value, .. } => {
                let dtype = self.kernel.buffer(*buffer).dtype;
                if *op == ReduceOp::Add && dtype == dtype.compute() {
                    let text = self.scalar(value)?.text;
                    let target = self.element(*buffer, indices)?;
                    self.line(&format!("{target} += {text};"));
                } else {
                    self.scalar_update(&as_store(*buffer, indices, *op, value))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The element that a store copies as it is: 16-bit floats need not become `float`s on their way, and compilers cannot
    /// know that the two conversions cancel out.
    pub(super) fn verbatim(&mut self, to: BufferId, value: &Expr) -> Result<Option<String>, EmitError> {
        let dtype = |b: BufferId| self.kernel.buffer(b).dtype;
        match value {
            Expr::Load(from, at) if matches!(dtype(to), DType::F16 | DType::Bf16) && dtype(*from) == dtype(to) => {
                match self.loaded_as_held(*from, at) {
                    Some(held) => Ok(Some(held)),
                    None => Ok(Some(self.element(*from, at)?)),
                }
            }
            _ => Ok(None),
        }
    }

    /// A value as it is stored: 16-bit floats are rounded.
    pub(super) fn narrowed(&mut self, b: BufferId, value: Text) -> String {
        match self.kernel.buffer(b).dtype {
            // Zeros are zeros in every type.
            DType::F16 | DType::Bf16 if value.text == "0.0f" => "0".into(),
            d @ (DType::F16 | DType::Bf16) => format!("{}({})", self.prelude.call(Helper::Narrow(d)), value.text),
            _ => value.text,
        }
    }

    /// Whether the buffer is memory that one access can move several elements of.
    pub(super) fn is_memory(&self, b: BufferId) -> bool {
        matches!(self.kernel.buffer(b).scope, Scope::Global | Scope::Shared)
    }
}

/// Whether the statement is an asynchronous product.
fn is_product(s: &Stmt) -> bool {
    matches!(s, Stmt::Gpu(Gpu::Mma { unit: Unit::Warpgroup, .. }))
}

/// The axis as a member of `threadIdx`.
fn letter(axis: Axis) -> char {
    match axis {
        Axis::X => 'x',
        Axis::Y => 'y',
        Axis::Z => 'z',
    }
}

/// Statements that one execution of the block runs.
fn steps(block: &[Stmt]) -> i64 {
    block.iter().fold(0i64, |n, s| {
        n.saturating_add(match s {
            Stmt::For(l) if is_hardware(l.kind) => steps(&l.body),
            Stmt::For(l) => l.extent.saturating_mul(steps(&l.body)),
            Stmt::If { then, otherwise, .. } => steps(then).saturating_add(steps(otherwise)),
            Stmt::Alloc(_) => 0,
            _ => 1,
        })
    })
}
