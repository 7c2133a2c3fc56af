//! Vector statements lane by lane.

use super::walk::has;
use crate::analysis::range::Ranges;
use crate::analysis::simplify::simplify;
use crate::ir::{BinOp, BufferId, Expr, Kernel, ReduceOp, Stmt};

/// `buffer[indices] op= value` as a store.
pub(crate) fn as_store(buffer: BufferId, indices: &[Expr], op: ReduceOp, value: &Expr) -> Stmt {
    let old = Expr::Load(buffer, indices.to_vec());
    let op = match op {
        ReduceOp::Add => BinOp::Add,
        ReduceOp::Max => BinOp::Max,
        ReduceOp::Min => BinOp::Min,
    };
    Stmt::store(buffer, indices.to_vec(), Expr::Binary(op, Box::new(old), Box::new(value.clone())))
}

/// Whether a vector statement reads elements of its destination that other lanes write.
pub(crate) fn reads_other_lanes(s: &Stmt, buffer: BufferId, indices: &[Expr]) -> bool {
    let (Stmt::Store { value, .. } | Stmt::Reduce { value, .. }) = s else { return false };
    has(value, |e| matches!(e, Expr::Load(b, idx) if *b == buffer && idx != indices))
}

/// One lane of a vector expression.
pub(crate) fn lane_of_expr(e: &Expr, lane: &Expr) -> Expr {
    e.clone().map(&mut |e| match e {
        Expr::Ramp { base, stride, .. } => *base + lane.clone() * stride,
        Expr::Broadcast(a, _) => *a,
        Expr::Binary(op, a, b) => Expr::bin(op, *a, *b),
        other => other,
    })
}

/// One lane of a vector statement.
pub(crate) fn lane_of(s: &Stmt, lane: &Expr, ranges: &Ranges) -> Stmt {
    s.clone().map_exprs(&mut |e| simplify(&lane_of_expr(&e, lane), ranges))
}

/// The indices of one lane of an access, and how many elements the lanes lie apart; nothing if the lanes of an index do not
/// rise evenly.
pub(crate) fn lane_run(kernel: &Kernel, b: BufferId, indices: &[Expr], lane: i64) -> Option<(Vec<Expr>, i64)> {
    let mut step = 0;
    let scalar = indices.iter().zip(&kernel.buffer(b).strides).map(|(i, s)| match i {
        Expr::Ramp { base, stride, .. } => {
            step += stride * s;
            Some((**base).clone() + stride * lane)
        }
        other => (other.ty(kernel).lanes == 1).then(|| other.clone()),
    });
    let scalar = scalar.collect::<Option<_>>()?;
    Some((scalar, step))
}

/// The lanes of a statement: the widest of its expressions.
pub(crate) fn lanes(kernel: &Kernel, s: &Stmt) -> u16 {
    let mut widest = 1;
    s.own_exprs(&mut |e| widest = widest.max(e.ty(kernel).lanes));
    widest
}
