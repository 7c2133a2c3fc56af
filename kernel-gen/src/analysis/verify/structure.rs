//! Ids, names, scoping of variables and buffers, nesting of loops.

use super::access::is_hardware;
use super::fault::{Fault, FaultKind, MOST_FAULTS};
use super::types::Types;
use crate::ir::{Access, BufferId, DType, Expr, For, Gpu, Kernel, LoopKind, Scope, Stmt, VarId, print};
use std::collections::BTreeSet;

/// Iterations of one loop that later arithmetic may multiply freely.
const MOST_ITERATIONS: i64 = 1 << 40;

/// Checks the rules under "Structure".
pub(super) fn check(kernel: &Kernel) -> Vec<Fault> {
    let mut faults = tables(kernel);
    // Text of faults is made from the tables, so they must be sound before a statement is printed.
    if faults.is_empty() {
        faults = ids(kernel);
    }
    if faults.is_empty() {
        let mut c = Checker {
            kernel,
            types: Types::new(kernel),
            bound: BTreeSet::new(),
            open: vec![false; kernel.vars.len()],
            allocated: BTreeSet::new(),
            live: kernel.params.iter().copied().collect(),
            loops: vec![],
            faults: vec![],
        };
        c.block(&kernel.body);
        faults = c.faults;
    }
    faults.truncate(MOST_FAULTS);
    faults
}

fn malformed(cause: String, help: &str) -> Fault {
    Fault::whole(FaultKind::Malformed, cause, help)
}

/// The tables of buffers, variables and parameters.
fn tables(kernel: &Kernel) -> Vec<Fault> {
    let mut faults = vec![];
    let mut names = BTreeSet::new();
    for name in kernel.buffers.iter().map(|b| &b.name).chain(kernel.vars.iter().map(|v| &v.name)) {
        if !names.insert(name.as_str()) {
            faults.push(malformed(
                format!("the name {name} is used twice"),
                "give each variable and buffer its own name",
            ));
        }
    }
    for b in &kernel.buffers {
        let (name, shape, strides) = (&b.name, &b.shape, &b.strides);
        if shape.is_empty() || shape.iter().any(|n| *n < 1) {
            faults.push(malformed(
                format!("{name} has shape {shape:?}"),
                "give it at least one dimension, and positive extents",
            ));
        } else if strides.len() != shape.len() {
            faults.push(malformed(
                format!("{name} has {} strides for {} dimensions", strides.len(), shape.len()),
                "give one stride a dimension",
            ));
        } else if span(shape, strides).is_none() {
            faults.push(malformed(format!("{name} has more elements than can be addressed"), "make it smaller"));
        } else if b.offset < 0 || b.offset > 0 && !kernel.params.iter().any(|p| kernel.buffer(*p).name == *name) {
            faults.push(malformed(
                format!("{name} begins {} elements behind its memory", b.offset),
                "only a parameter may be a part of a larger tensor",
            ));
        } else if overlaps(shape, strides) {
            faults.push(malformed(
                format!("the strides {strides:?} of {name} put two elements of shape {shape:?} in one place"),
                "let each stride span the dimensions of smaller strides",
            ));
        }
    }
    if kernel.size.is_some() {
        faults.push(malformed(
            "the kernel's tensors vary in size".into(),
            "verify the kernel of the most units: the pass `narrow` makes the other of it",
        ));
    }
    let mut seen = BTreeSet::new();
    for p in &kernel.params {
        match kernel.buffers.get(p.0 as usize) {
            None => {
                faults.push(malformed(format!("parameter {} is not in the table of buffers", p.0), "add the buffer"))
            }
            Some(b) if !seen.insert(*p) => {
                faults.push(malformed(format!("{} is a parameter twice", b.name), "list each parameter once"));
            }
            Some(b) if b.scope != Scope::Global => faults.push(Fault::whole(
                FaultKind::WrongScope,
                format!("parameter {} has scope {}", b.name, b.scope),
                "parameters are the caller's memory: give it scope global",
            )),
            Some(_) => {}
        }
    }
    faults
}

/// Elements from the first to one past the last, if they and the product of the shape are few enough for all later
/// arithmetic.
fn span(shape: &[i64], strides: &[i64]) -> Option<i64> {
    let (mut elements, mut span) = (1i64, 1i64);
    for (n, s) in shape.iter().zip(strides) {
        elements = elements.checked_mul(*n)?;
        span = span.checked_add((n - 1).checked_mul(*s)?)?;
    }
    (elements.max(span) < 1 << 56).then_some(span)
}

/// Whether two indices in the shape have the same address. Exact enough: strides sorted by size must each exceed the
/// span of the smaller ones.
fn overlaps(shape: &[i64], strides: &[i64]) -> bool {
    let mut dims: Vec<(i64, i64)> = shape.iter().zip(strides).filter(|(n, _)| **n > 1).map(|(n, s)| (*s, *n)).collect();
    dims.sort_unstable();
    let mut span = 0i64;
    for (stride, n) in dims {
        if stride <= span {
            return true;
        }
        span = span.saturating_add(stride.saturating_mul(n - 1));
    }
    false
}

/// Ids that statements mention and that are not in the tables, and accesses without one index a dimension.
pub(crate) fn ids(kernel: &Kernel) -> Vec<Fault> {
    let mut faults = vec![];
    let var = |v: VarId, faults: &mut Vec<Fault>| {
        if v.0 as usize >= kernel.vars.len() {
            faults.push(malformed(format!("variable {} is not in the table", v.0), "add it with fresh_var"));
        }
    };
    let buffer = |b: BufferId, n: Option<usize>, faults: &mut Vec<Fault>| match kernel.buffers.get(b.0 as usize) {
        None => faults.push(malformed(format!("buffer {} is not in the table", b.0), "add it with add_buffer")),
        Some(b) if n.is_some_and(|n| n != b.shape.len()) => faults.push(malformed(
            format!("{} has {} dimensions, but is accessed with {} indices", b.name, b.shape.len(), n.unwrap_or(0)),
            "give one index a dimension",
        )),
        Some(_) => {}
    };
    for s in &kernel.body {
        s.walk(&mut |s| {
            match s {
                Stmt::For(l) => var(l.var, &mut faults),
                Stmt::Let { var: v, .. } => var(*v, &mut faults),
                Stmt::Alloc(b) => buffer(*b, None, &mut faults),
                Stmt::Store { buffer: b, indices, .. } => buffer(*b, Some(indices.len()), &mut faults),
                Stmt::Reduce { buffer: b, indices, over, .. } => {
                    buffer(*b, Some(indices.len()), &mut faults);
                    over.iter().for_each(|v| var(*v, &mut faults));
                }
                Stmt::If { .. } | Stmt::Barrier(_) => {}
                Stmt::Gpu(g) => {
                    let tiles = g.tiles();
                    for t in tiles.read.into_iter().chain(tiles.written) {
                        buffer(t.buffer, Some(t.origin.len()), &mut faults);
                        buffer(t.buffer, Some(t.extents.len()), &mut faults);
                    }
                    if let Some(slot) = g.slot() {
                        buffer(slot.buffer, Some(1), &mut faults);
                    }
                }
                Stmt::Transpose { dst, src } => {
                    for t in [dst, src] {
                        buffer(t.buffer, Some(t.origin.len()), &mut faults);
                        buffer(t.buffer, Some(t.extents.len()), &mut faults);
                    }
                }
            }
            s.own_exprs(&mut |e| {
                e.walk(&mut |e| match e {
                    Expr::Var(v) => var(*v, &mut faults),
                    Expr::Load(b, idx) => buffer(*b, Some(idx.len()), &mut faults),
                    _ => {}
                });
            });
        });
    }
    faults
}

struct Checker<'k> {
    kernel: &'k Kernel,
    types: Types<'k>,
    bound: BTreeSet<VarId>,
    /// Whether each variable is in scope.
    open: Vec<bool>,
    allocated: BTreeSet<BufferId>,
    live: BTreeSet<BufferId>,
    loops: Vec<&'k For>,
    faults: Vec<Fault>,
}

impl<'k> Checker<'k> {
    fn fault(&mut self, stmt: &Stmt, kind: FaultKind, cause: String, help: &str) {
        self.faults.push(Fault::at(self.kernel, &self.loops, stmt, kind, cause, help));
    }

    fn block(&mut self, stmts: &'k [Stmt]) {
        let (mut lets, mut allocs) = (vec![], vec![]);
        for s in stmts {
            if self.faults.len() > MOST_FAULTS {
                return;
            }
            self.uses(s);
            if let Err(cause) = self.types.statement(s) {
                self.fault(s, FaultKind::TypeMismatch, cause, "convert with a cast, or give both sides the same lanes");
            }
            if let Stmt::Gpu(g) = s {
                self.gpu(s, g);
            }
            match s {
                Stmt::For(l) => self.for_loop(s, l),
                Stmt::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                Stmt::Let { var, .. } => {
                    self.bind(s, *var);
                    lets.push(*var);
                }
                Stmt::Alloc(b) => {
                    let name = &self.kernel.buffer(*b).name;
                    if self.kernel.is_param(*b) {
                        self.fault(
                            s,
                            FaultKind::Malformed,
                            format!("the parameter {name} is allocated"),
                            "drop the alloc",
                        );
                    } else if !self.allocated.insert(*b) {
                        self.fault(s, FaultKind::Malformed, format!("{name} is allocated twice"), "keep one alloc");
                    }
                    self.live.insert(*b);
                    allocs.push(*b);
                }
                _ => {}
            }
        }
        for v in lets {
            self.open[v.0 as usize] = false;
        }
        for b in allocs {
            self.live.remove(&b);
        }
    }

    /// A statement that only a GPU has.
    fn gpu(&mut self, s: &Stmt, g: &Gpu) {
        if let Err((kind, cause, help)) = super::gpu::statement(self.kernel, &self.types, g) {
            self.fault(s, kind, cause, help);
        }
        if !self.loops.iter().any(|l| is_hardware(l.kind)) {
            let cause = "it stands where there is no block of threads".to_string();
            self.fault(s, FaultKind::LoopNesting, cause, "put it below a grid or thread loop");
        }
    }

    fn bind(&mut self, s: &Stmt, v: VarId) {
        if !self.bound.insert(v) {
            let cause = format!("{} is bound twice", self.kernel.var(v).name);
            self.fault(s, FaultKind::Malformed, cause, "give each loop and let its own variable");
        }
        self.open[v.0 as usize] = true;
    }

    fn for_loop(&mut self, s: &'k Stmt, l: &'k For) {
        let name = &self.kernel.var(l.var).name;
        self.types.bind_loop(l.var, l.extent);
        if l.extent > MOST_ITERATIONS {
            self.fault(s, FaultKind::Malformed, format!("loop {name} has extent {}", l.extent), "make it smaller");
        }
        if l.extent < 0 {
            self.fault(
                s,
                FaultKind::Malformed,
                format!("loop {name} has extent {}", l.extent),
                "extents are not negative",
            );
        }
        if self.kernel.var(l.var).dtype != DType::I64 {
            self.fault(s, FaultKind::TypeMismatch, format!("loop variable {name} is not an i64"), "make it an i64");
        }
        if let Some(outer) = self.loops.iter().find(|outer| !nests(outer.kind, l.kind)) {
            let cause = format!(
                "the {} loop {name} is inside the {} loop {}",
                l.kind.name(),
                outer.kind.name(),
                self.kernel.var(outer.var).name
            );
            self.fault(s, FaultKind::LoopNesting, cause, "reorder the loops, or bind one of them to another kind");
        }
        if l.kind == LoopKind::FragmentCol && !self.loops.iter().any(|l| l.kind == LoopKind::FragmentRow) {
            let cause = format!("the fragment.col loop {name} is not inside a fragment.row loop");
            self.fault(s, FaultKind::LoopNesting, cause, "put it inside one");
        }
        self.bind(s, l.var);
        self.loops.push(l);
        self.block(&l.body);
        self.loops.pop();
        self.open[l.var.0 as usize] = false;
    }

    /// Variables and buffers that the statement itself mentions are in scope.
    fn uses(&mut self, s: &'k Stmt) {
        let (mut closed, mut dead) = (BTreeSet::new(), BTreeSet::new());
        let mut touch = |b: BufferId| {
            if !self.live.contains(&b) {
                dead.insert(b);
            }
        };
        s.own_exprs(&mut |e| {
            e.walk(&mut |e| match e {
                Expr::Var(v) if !self.open[v.0 as usize] => {
                    closed.insert(*v);
                }
                _ => {}
            });
        });
        s.accesses(&mut |a| touch(a.buffer));
        if let Stmt::Gpu(g) = s {
            g.slot().into_iter().for_each(|slot| touch(slot.buffer));
        }
        for v in closed {
            let cause = format!("{} is used where it is not bound", self.kernel.var(v).name);
            self.fault(s, FaultKind::Malformed, cause, "move the use below the loop or let that binds it");
        }
        for b in dead {
            let cause = format!("{} is used outside the block that allocates it", self.kernel.buffer(b).name);
            self.fault(s, FaultKind::Malformed, cause, "allocate it in a block that encloses all its uses");
        }
        if let Some(b) = s.written()
            && self.kernel.is_param(b)
            && self.kernel.buffer(b).access == Access::Read
        {
            let cause = format!("{} is written, but declared read", self.kernel.buffer(b).name);
            self.fault(s, FaultKind::Malformed, cause, "declare it write or readwrite");
        }
        let in_lanes = self.loops.iter().any(|l| l.kind == LoopKind::Vectorized);
        if matches!(s, Stmt::Barrier(_) | Stmt::Gpu(_)) && in_lanes {
            let cause = format!("`{}` is inside a vectorised loop", print::statement(self.kernel, s).trim());
            self.fault(s, FaultKind::LoopNesting, cause, "move it out of the loop");
        }
    }
}

/// Whether a loop of kind `inner` may stand inside one of kind `outer`.
fn nests(outer: LoopKind, inner: LoopKind) -> bool {
    use LoopKind::{Cluster, FragmentCol, FragmentRow, Grid, Parallel, Thread, Vectorized};
    !matches!(
        (outer, inner),
        (Vectorized, Vectorized | Parallel | Grid(_) | Cluster(_) | Thread(_) | FragmentRow | FragmentCol)
            | (Thread(_), Grid(_) | Cluster(_))
            | (Parallel, Grid(_) | Cluster(_) | Thread(_))
            | (Grid(_) | Cluster(_) | Thread(_), Parallel)
            | (FragmentRow, FragmentRow | Thread(_))
            | (FragmentCol, FragmentRow | FragmentCol | Thread(_))
    )
}
