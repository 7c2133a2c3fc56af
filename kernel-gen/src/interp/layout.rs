//! Before any code: where buffers, variables and constants live.

use super::compile::{Bound, Compiler};
use super::program::{Copies, Memory};
use super::{Cause, InterpError};
use crate::analysis::verify::unknown_ids;
use crate::ir::{Access as ParamAccess, BufferId, DType, Expr, Kernel, LoopKind, Scope, Stmt, Unit};
use std::collections::BTreeSet;

/// Elements of memory that a run may take; 2 GiB with the bookkeeping.
const POOL_LIMIT: i64 = 1 << 27;

/// Refuses ids that point nowhere and the wrong number of indices, so that nothing behind this can panic.
pub(super) fn check_ids(kernel: &Kernel) -> Result<(), InterpError> {
    for b in &kernel.buffers {
        if b.shape.len() != b.strides.len() || b.shape.iter().any(|n| *n < 0) {
            let (shape, strides) = (&b.shape, &b.strides);
            return Err(InterpError::malformed(format!(
                "buffer {} has shape {shape:?} and strides {strides:?}",
                b.name
            )));
        }
    }
    if let Some(p) = kernel.params.iter().find(|p| p.0 as usize >= kernel.buffers.len()) {
        return Err(InterpError::malformed(format!("parameter {p:?} is not in the table of buffers")));
    }
    match unknown_ids(kernel).into_iter().next() {
        Some(fault) => Err(InterpError::malformed(fault.cause)),
        None => Ok(()),
    }
}

/// The buffers that a block reads, writes or allocates.
pub(super) fn used(block: &[Stmt]) -> BTreeSet<BufferId> {
    let mut out = BTreeSet::new();
    for s in block {
        s.walk(&mut |s| {
            match s {
                Stmt::Alloc(b) => out.extend([*b]),
                Stmt::Gpu(g) => out.extend(g.slot().map(|s| s.buffer)),
                _ => {}
            }
            s.accesses(&mut |a| out.extend([a.buffer]));
        });
    }
    out
}

/// Outermost loops that start a launch.
fn launches<'k>(block: &'k [Stmt], out: &mut Vec<&'k Stmt>) {
    for s in block {
        match s {
            Stmt::For(l) if matches!(l.kind, LoopKind::Grid(_) | LoopKind::Cluster(_) | LoopKind::Thread(_)) => {
                out.push(s)
            }
            Stmt::For(l) => launches(&l.body, out),
            Stmt::If { then, otherwise, .. } => {
                launches(then, out);
                launches(otherwise, out);
            }
            _ => {}
        }
    }
}

pub(super) fn has_barrier(s: &Stmt) -> bool {
    let mut found = false;
    s.walk(&mut |s| found |= matches!(s, Stmt::Barrier(_)));
    found
}

/// Whether a launch has what only a GPU has.
pub(super) fn has_gpu(kernel: &Kernel, s: &Stmt) -> bool {
    let fragment = |b: &BufferId| matches!(kernel.buffer(*b).scope, Scope::Fragment(_));
    let mut found = used(std::slice::from_ref(s)).iter().any(fragment);
    s.walk(&mut |s| {
        found |= match s {
            Stmt::Gpu(_) => true,
            Stmt::For(l) => {
                matches!(l.kind, LoopKind::Cluster(_) | LoopKind::FragmentRow | LoopKind::FragmentCol)
            }
            _ => false,
        }
    });
    found
}

/// Grid, block and cluster extents of a launch: the largest loop of each axis.
pub(super) fn extents(s: &Stmt) -> [[i64; 3]; 3] {
    let mut out = [[1; 3]; 3];
    s.walk(&mut |s| {
        if let Stmt::For(l) = s {
            match l.kind {
                LoopKind::Grid(a) => out[0][a as usize] = l.extent.max(out[0][a as usize]),
                LoopKind::Thread(a) => out[1][a as usize] = l.extent.max(out[1][a as usize]),
                LoopKind::Cluster(a) => out[2][a as usize] = l.extent.max(out[2][a as usize]),
                _ => {}
            }
        }
    });
    out
}

impl Compiler<'_> {
    pub(super) fn lay_out_memory(&mut self) -> Result<(), InterpError> {
        let k = self.p.kernel;
        let (mut raced, mut laned) = (BTreeSet::new(), BTreeSet::new());
        for s in &k.body {
            s.walk(&mut |s| {
                if let Stmt::For(l) = s {
                    let written = || {
                        let mut out = BTreeSet::new();
                        l.body.iter().for_each(|s| s.walk(&mut |s| out.extend(s.written())));
                        out
                    };
                    if l.kind.is_concurrent() {
                        raced.extend(written());
                    }
                    if l.kind == LoopKind::Vectorized {
                        laned.extend(written());
                    }
                }
            });
        }
        // Of each buffer, the most threads and blocks that run apart and have copies of it.
        let mut actors = vec![(1i64, 1i64); k.buffers.len()];
        let mut apart = vec![false; k.buffers.len()];
        let mut starts = vec![];
        launches(&k.body, &mut starts);
        for s in starts.into_iter().filter(|s| has_barrier(s) || has_gpu(k, s)) {
            let count = |n: [i64; 3]| n.iter().fold(1i64, |a, b| a.saturating_mul(*b));
            let [_, block, cluster] = extents(s).map(count);
            for b in used(std::slice::from_ref(s)) {
                let (threads, blocks) = &mut actors[b.0 as usize];
                (*threads, *blocks) = (block.saturating_mul(cluster).max(*threads), cluster.max(*blocks));
                apart[b.0 as usize] |= has_gpu(k, s);
            }
        }
        let too_large = |elements: i64| InterpError::whole(Cause::TooLarge { elements });
        let mut base = 0i64;
        for (i, b) in k.buffers.iter().enumerate() {
            let size = b.shape.iter().try_fold(1i64, |a, n| a.checked_mul(*n)).ok_or_else(|| too_large(i64::MAX))?;
            if matches!(b.scope, Scope::Fragment(_)) && (b.shape.len() < 2 || !b.dtype.is_in_tiles()) {
                return Err(InterpError::malformed(format!("fragment {} is no matrix of numbers", b.name)));
            }
            let (threads, blocks) = actors[i];
            let units = |u: Unit| (threads / blocks + u.threads() - 1) / u.threads() * blocks;
            let (copies, instances, unit) = match b.scope {
                Scope::Local | Scope::Register => (Copies::Thread, threads, None),
                Scope::Shared | Scope::Mbarrier if apart[i] => (Copies::Block, blocks, None),
                Scope::Fragment(u @ Unit::Warp) => (Copies::Warp, units(u), Some(u)),
                Scope::Fragment(u @ Unit::Warpgroup) => (Copies::Warpgroup, units(u), Some(u)),
                Scope::Global | Scope::Shared | Scope::Mbarrier => (Copies::One, 1, None),
            };
            let instances = instances.max(1);
            let id = BufferId(i as u32);
            let given = k.is_param(id) && b.access != ParamAccess::Write;
            let memory = Memory {
                base: base as usize,
                size: size as usize,
                instances: instances as usize,
                copies,
                counted: apart[i] && matches!(b.scope, Scope::Shared | Scope::Mbarrier | Scope::Fragment(_)),
                unit,
                dtype: b.dtype,
                is_private: b.scope.is_private(),
                is_shared: b.scope == Scope::Shared,
                check_written: !given,
                check_races: matches!(b.scope, Scope::Global | Scope::Shared) && raced.contains(&id),
                check_lanes: laned.contains(&id),
            };
            self.p.races_tracked |= memory.check_races;
            self.p.lanes_tracked |= memory.check_lanes;
            base = size.checked_mul(instances).and_then(|n| n.checked_add(base)).unwrap_or(i64::MAX);
            if base > POOL_LIMIT {
                return Err(too_large(base));
            }
            self.p.buffers.push(memory);
        }
        self.p.pool = base as usize;
        Ok(())
    }

    /// Gives slots to variables and constants; temporaries come behind them and are reused by each statement.
    pub(super) fn lay_out_slots(&mut self) -> Result<(), InterpError> {
        let k = self.p.kernel;
        for v in [0, 1] {
            self.int_const(v);
        }
        let mut fault = None;
        for s in &k.body {
            s.walk(&mut |s| {
                let (var, lanes, dtype) = match s {
                    Stmt::For(l) => (Some(l.var), 1, DType::I64),
                    Stmt::Let { var, value } => (Some(*var), self.lanes(value), k.var(*var).dtype),
                    _ => (None, 1, DType::I64),
                };
                if let Some(v) = var {
                    if self.vars[v.0 as usize].is_some() {
                        fault = Some(format!("{} is bound twice", k.var(v).name));
                    }
                    let slot = self.take(!dtype.is_float(), u32::from(lanes));
                    self.vars[v.0 as usize] = Some(Bound { slot, lanes, dtype, open: false });
                }
                s.own_exprs(&mut |e| {
                    e.walk(&mut |e| match e {
                        Expr::Int(v) => {
                            self.int_const(*v);
                        }
                        Expr::Float(v, d) => {
                            self.float_const(*v, *d);
                        }
                        _ => {}
                    });
                });
            });
        }
        self.temps = self.next;
        match fault {
            Some(f) => Err(InterpError::malformed(f)),
            None => Ok(()),
        }
    }
}
