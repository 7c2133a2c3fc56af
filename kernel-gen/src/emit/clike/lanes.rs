//! Vector statements lane by lane.

use super::walk::has;
use crate::analysis::range::Ranges;
use crate::analysis::simplify::simplify;
use crate::ir::{BinOp, BufferId, Expr, Kernel, ReduceOp, Stmt};

/// What `buffer[indices] op= value` stores.
pub(crate) fn updated(buffer: BufferId, indices: &[Expr], op: ReduceOp, value: &Expr) -> Expr {
    let op = match op {
        ReduceOp::Add => BinOp::Add,
        ReduceOp::Mul => BinOp::Mul,
        ReduceOp::Max => BinOp::Max,
        ReduceOp::Min => BinOp::Min,
    };
    Expr::Binary(op, Box::new(Expr::Load(buffer, indices.to_vec())), Box::new(value.clone()))
}

/// `buffer[indices] op= value` as a store.
pub(crate) fn as_store(buffer: BufferId, indices: &[Expr], op: ReduceOp, value: &Expr) -> Stmt {
    Stmt::store(buffer, indices.to_vec(), updated(buffer, indices, op, value))
}

/// Whether a vector statement reads elements of its destination that other lanes write.
pub(crate) fn reads_other_lanes(s: &Stmt, buffer: BufferId, indices: &[Expr]) -> bool {
    let (Stmt::Store { value, .. } | Stmt::Reduce { value, .. }) = s else { return false };
    has(value, |e| matches!(e, Expr::Load(b, idx) if *b == buffer && idx != indices))
}

/// The scalar in all lanes of a vector, or the expression itself.
pub(crate) fn unbroadcast(e: &Expr) -> &Expr {
    match e {
        Expr::Broadcast(a, _) => unbroadcast(a),
        other => other,
    }
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
