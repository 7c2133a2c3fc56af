//! Counters in registers: private integers of which ranges can be known.
//!
//! Memory has no ranges, so a ring's position, counted up in a register, would be computed with in 64 bits and divided
//! with care for signs. Where every store to such an element is a constant or adds a constant to it, the loops around tell
//! how far it can get; then it is an `int`, and its loads are a variable with a range.

use crate::analysis::range::Ranges;
use crate::emit::clike::names::Names;
use crate::ir::{BinOp, BufferId, Expr, Kernel, LoopKind, Stmt, VarId, visit};
use std::collections::BTreeMap;

/// A private integer that only counts.
#[derive(Clone)]
pub(super) struct Counter {
    /// What its loads have become.
    pub(super) var: VarId,
    /// Its largest value; the least is 0.
    pub(super) most: i64,
}

/// Turns the loads of counters into variables, whose names are the elements that they read.
pub(super) fn extract(mut kernel: Kernel) -> (Kernel, BTreeMap<BufferId, Counter>) {
    let mut candidates: BTreeMap<BufferId, Option<i64>> = BTreeMap::new();
    for (i, b) in kernel.buffers.iter().enumerate() {
        if b.scope.is_private() && b.dtype.is_int() && b.shape.iter().product::<i64>() == 1 {
            candidates.insert(BufferId(i as u32), Some(0));
        }
    }
    see(&kernel.body, 1, &mut candidates);
    let mut counters = BTreeMap::new();
    for (b, most) in candidates {
        if let Some(most) = most.filter(|n| *n < i64::from(i32::MAX)) {
            let hint = kernel.buffer(b).name.clone();
            let var = kernel.fresh_var(&hint);
            counters.insert(b, Counter { var, most });
        }
    }
    let body = std::mem::take(&mut kernel.body);
    kernel.body = visit::map_exprs(body, &mut |e| {
        e.map(&mut |e| match &e {
            Expr::Load(b, _) => counters.get(b).map_or(e, |c| Expr::Var(c.var)),
            _ => e,
        })
    });
    (kernel, counters)
}

/// Names the variables and tells their ranges.
pub(super) fn name(counters: &BTreeMap<BufferId, Counter>, names: &mut Names, ranges: &mut Ranges) {
    for (b, c) in counters {
        let element = format!("{}[0]", names.buffer(*b));
        names.rename(c.var, element);
        ranges.insert(c.var, 0, c.most);
    }
}

/// Adds up what the statements, which run so many times, may add to each candidate; `None` once one does something else.
fn see(block: &[Stmt], times: i64, candidates: &mut BTreeMap<BufferId, Option<i64>>) {
    for s in block {
        match s {
            Stmt::For(l) => {
                // What a thread owns is counted by its own iterations only.
                let own = matches!(l.kind, LoopKind::Grid(_) | LoopKind::Cluster(_) | LoopKind::Thread(_));
                see(&l.body, times.saturating_mul(if own { 1 } else { l.extent.max(0) }), candidates);
            }
            Stmt::If { then, otherwise, .. } => {
                see(then, times, candidates);
                see(otherwise, times, candidates);
            }
            Stmt::Store { buffer, value, .. } => {
                if let Some(most) = candidates.get_mut(buffer) {
                    *most =
                        most.and_then(|most| Some(most.saturating_add(step(*buffer, value)?.saturating_mul(times))));
                }
            }
            other => {
                if let Some(b) = other.written() {
                    candidates.remove(&b);
                }
            }
        }
    }
}

/// What a store adds at most: a constant that is set counts too, which only makes the bound larger.
fn step(b: BufferId, value: &Expr) -> Option<i64> {
    match value {
        Expr::Int(v) if *v >= 0 => Some(*v),
        Expr::Binary(BinOp::Add, a, c) => match (&**a, &**c) {
            (Expr::Load(from, _), Expr::Int(v)) | (Expr::Int(v), Expr::Load(from, _)) if *from == b && *v >= 0 => {
                Some(*v)
            }
            _ => None,
        },
        _ => None,
    }
}
