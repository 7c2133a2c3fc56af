//! Shrinks private buffers to what is touched of them.
//!
//! ```text
//! for o { alloc t: f32[64] local ... t[o * 8 + i] ... }  ->  for o { alloc t: f32[8] local ... t[i] ... }
//! ```
//! A buffer in local or register scope is as large as the box that its accesses stay in while everything bound inside of
//! its block varies; indices become relative to the corner of the box. Buffers whose strides a schedule chose, and boxes
//! that the analysis cannot find, stay as they are.

use super::pass::{LowerError, LowerOptions};
use crate::analysis::footprint::{Span, Touch, footprint};
use crate::analysis::range::{Ranges, bounds};
use crate::analysis::simplify::simplify;
use crate::ir::{BufferId, Expr, For, Kernel, Stmt, Tile, row_major, visit};

/// The pass.
pub fn run(mut kernel: Kernel, _: &LowerOptions) -> Result<Kernel, LowerError> {
    let body = std::mem::take(&mut kernel.body);
    let ranges = Ranges::of_kernel(&kernel);
    kernel.body = block(&mut kernel, body, &ranges);
    Ok(kernel)
}

fn block(kernel: &mut Kernel, stmts: Vec<Stmt>, fixed: &Ranges) -> Vec<Stmt> {
    let mut fixed = fixed.clone();
    let mut out: Vec<Stmt> = vec![];
    let mut rest = stmts.into_iter();
    while let Some(s) = rest.next() {
        match s {
            Stmt::Alloc(b) => {
                let following: Vec<Stmt> = rest.collect();
                let following = fold(kernel, b, following, &fixed);
                out.push(Stmt::Alloc(b));
                rest = following.into_iter();
            }
            Stmt::For(l) => {
                let mut inside = fixed.clone();
                inside.insert_loop(&l);
                let body = block(kernel, l.body, &inside);
                out.push(Stmt::For(For { body, ..l }));
            }
            Stmt::If { cond, then, otherwise } => {
                let then = block(kernel, then, &fixed.assuming(&cond));
                let mut not = fixed.clone();
                not.assume(&cond, false);
                let otherwise = block(kernel, otherwise, &not);
                out.push(Stmt::If { cond, then, otherwise });
            }
            Stmt::Let { var, value } => {
                if let Some((lo, hi)) = bounds(&value, &fixed) {
                    fixed.insert(var, lo, hi);
                }
                out.push(Stmt::Let { var, value });
            }
            other => out.push(other),
        }
    }
    out
}

/// Shrinks one buffer; the statements are those that can touch it.
fn fold(kernel: &mut Kernel, b: BufferId, stmts: Vec<Stmt>, fixed: &Ranges) -> Vec<Stmt> {
    let buffer = kernel.buffer(b);
    if !buffer.scope.is_private() || !buffer.is_row_major() {
        return stmts;
    }
    // A base must be computable wherever the buffer is accessed: what a `let` in between binds is not known here.
    let lets = stmts.iter().any(|s| {
        let mut found = false;
        s.walk(&mut |s| found |= matches!(s, Stmt::Let { .. }));
        found
    });
    let Ok(Some(spans)) = footprint(kernel, &stmts, b, Touch::Any, &Ranges::new(), fixed) else { return stmts };
    let smaller = spans.iter().zip(&buffer.shape).any(|(s, n)| s.extent < *n);
    if lets || !smaller || spans.len() != buffer.shape.len() {
        return stmts;
    }
    let shape: Vec<i64> = spans.iter().map(|s| s.extent.max(1)).collect();
    let buffer = kernel.buffer_mut(b);
    buffer.strides = row_major(&shape);
    buffer.shape = shape;
    let mut ranges = fixed.clone();
    for l in visit::loops(&stmts) {
        ranges.insert_loop(l);
    }
    rebase(stmts, b, &spans, &ranges)
}

fn rebase(stmts: Vec<Stmt>, b: BufferId, spans: &[Span], ranges: &Ranges) -> Vec<Stmt> {
    let shift = |idx: Vec<Expr>| -> Vec<Expr> {
        idx.into_iter().zip(spans).map(|(i, s)| simplify(&(i - s.base.clone()), ranges)).collect()
    };
    let tile = |t: Tile| if t.buffer == b { Tile { origin: shift(t.origin), ..t } } else { t };
    let stmts = visit::map_exprs(stmts, &mut |e| {
        e.map(&mut |e| match e {
            Expr::Load(buffer, idx) if buffer == b => Expr::Load(buffer, shift(idx)),
            other => other,
        })
    });
    visit::rewrite(stmts, &mut |s| {
        vec![match s {
            Stmt::Store { buffer, indices, value } if buffer == b => {
                Stmt::Store { buffer, indices: shift(indices), value }
            }
            Stmt::Reduce { buffer, indices, op, init, value, over } if buffer == b => {
                Stmt::Reduce { buffer, indices: shift(indices), op, init, value, over }
            }
            Stmt::Transpose { dst, src } => Stmt::Transpose { dst: tile(dst), src: tile(src) },
            Stmt::Gpu(g) => Stmt::Gpu(g.map_tiles(&mut |t, _| tile(t))),
            other => other,
        }]
    })
}
