//! Normal forms for all expressions, under what the enclosing loops and conditions say about their variables.
//!
//! Conditions that are decided vanish with the branch not taken; loops without iterations vanish; serial, unrolled,
//! vectorised and vthread loops of one iteration become their body; buffers that are written but never read vanish with
//! what writes them. Taps that lie in the padding vanish: their product with zero is zero, infinite weights excepted.

use super::pass::{LowerError, LowerOptions};
use crate::analysis::range::{Ranges, bounds};
use crate::analysis::simplify::{simplify, truth};
use crate::ir::{BinOp, BufferId, Expr, For, Kernel, ReduceOp, Stmt, VarId, visit};

/// The pass.
pub fn run(mut kernel: Kernel, _: &LowerOptions) -> Result<Kernel, LowerError> {
    kernel.body = simplify_block(std::mem::take(&mut kernel.body), &mut Ranges::of_kernel(&kernel));
    Ok(kernel)
}

/// Simplifies a block under the ranges of the variables that are bound outside of it.
pub fn simplify_block(block: Vec<Stmt>, ranges: &mut Ranges) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(block.len());
    for s in block {
        simplify_stmt(s, ranges, &mut out);
    }
    drop_unread(out)
}

/// Removes what the block allocates but never reads, with the statements that write it.
fn drop_unread(mut block: Vec<Stmt>) -> Vec<Stmt> {
    let allocated: Vec<BufferId> =
        block.iter().filter_map(|s| if let Stmt::Alloc(b) = s { Some(*b) } else { None }).collect();
    for b in allocated {
        let mut read = false;
        for s in &block {
            s.exprs(&mut |e| read |= e.reads(b));
            s.walk(&mut |s| match s {
                Stmt::Transpose { src, .. } => read |= src.buffer == b,
                Stmt::Gpu(g) => {
                    read |= g.tiles().read.iter().any(|t| t.buffer == b) || g.slot().is_some_and(|s| s.buffer == b);
                }
                _ => {}
            });
        }
        if !read {
            block = visit::rewrite(block, &mut |s| match s {
                Stmt::Alloc(other) if other == b => vec![],
                Stmt::For(l) if l.body.is_empty() => vec![],
                Stmt::If { then, otherwise, .. } if then.is_empty() && otherwise.is_empty() => vec![],
                s if s.written() == Some(b) => vec![],
                s => vec![s],
            });
        }
    }
    block
}

fn simplify_stmt(s: Stmt, ranges: &mut Ranges, out: &mut Vec<Stmt>) {
    match s {
        Stmt::For(l) => {
            if l.extent <= 0 {
                return;
            }
            if l.extent == 1 && !l.kind.is_concurrent() {
                let zero = Expr::Int(0);
                let body = l.body.into_iter().map(|s| drop_over(s.subst(l.var, &zero), l.var)).collect();
                out.extend(simplify_block(body, ranges));
                return;
            }
            ranges.insert_loop(&l);
            let body = simplify_block(l.body, ranges);
            // A loop of nothing is nothing.
            if !body.is_empty() {
                out.push(Stmt::For(For { body, ..l }));
            }
        }
        Stmt::If { cond, then, otherwise } => {
            let cond = simplify(&cond, ranges);
            match truth(&cond) {
                Some(true) => out.extend(simplify_block(then, ranges)),
                Some(false) => out.extend(simplify_block(otherwise, ranges)),
                None => {
                    let then = simplify_block(then, &mut ranges.assuming(&cond));
                    let mut not = ranges.clone();
                    not.assume(&cond, false);
                    let otherwise = simplify_block(otherwise, &mut not);
                    if !then.is_empty() || !otherwise.is_empty() {
                        out.push(Stmt::If { cond, then, otherwise });
                    }
                }
            }
        }
        Stmt::Let { var, value } => {
            let value = simplify(&value, ranges);
            if let Some((lo, hi)) = bounds(&value, ranges) {
                ranges.insert(var, lo, hi);
            }
            out.push(Stmt::Let { var, value });
        }
        other => match other.map_exprs(&mut |e| simplify(&e, ranges)) {
            Stmt::Reduce { op: ReduceOp::Add, value, over, .. } if over.is_empty() && has_zero_factor(&value) => {}
            other => out.push(other),
        },
    }
}

/// Whether the value is a product with a literal zero: what is left of a tap that lies wholly in the padding. Adding it
/// would change a sum only if the other factor were infinite or not a number; weights are neither.
fn has_zero_factor(value: &Expr) -> bool {
    match value {
        Expr::Float(v, _) => *v == 0.0,
        Expr::Binary(BinOp::Mul, a, b) => has_zero_factor(a) || has_zero_factor(b),
        Expr::Broadcast(a, _) | Expr::Cast(_, a) => has_zero_factor(a),
        _ => false,
    }
}

/// A reduce loop that runs once leaves the lists of the reductions that run over it. One that ran over no other loop has
/// a single term, and becomes a store.
fn drop_over(s: Stmt, var: VarId) -> Stmt {
    match s {
        Stmt::Reduce { buffer, indices, op, init, value, over } if over == [var] => {
            let value = match op {
                ReduceOp::Add if matches!(init, Expr::Float(v, _) if v == 0.0) => value,
                ReduceOp::Add => init + value,
                ReduceOp::Mul if matches!(init, Expr::Float(v, _) if v == 1.0) => value,
                ReduceOp::Mul => init * value,
                ReduceOp::Max => init.max(value),
                ReduceOp::Min => init.min(value),
            };
            Stmt::Store { buffer, indices, value }
        }
        Stmt::Reduce { buffer, indices, op, init, value, mut over } => {
            over.retain(|v| *v != var);
            Stmt::Reduce { buffer, indices, op, init, value, over }
        }
        Stmt::For(l) => Stmt::For(For { body: l.body.into_iter().map(|s| drop_over(s, var)).collect(), ..l }),
        Stmt::If { cond, then, otherwise } => Stmt::If {
            cond,
            then: then.into_iter().map(|s| drop_over(s, var)).collect(),
            otherwise: otherwise.into_iter().map(|s| drop_over(s, var)).collect(),
        },
        other => other,
    }
}
