//! Turns products of tiles into loops, for targets that have no instruction for them. Transpositions stay where the
//! emitter does them with shuffles.
//!
//! ```text
//! mma acc[i0: m, j0: n] += a[i0: m, k0: k] * b[k0: k, j0: n]
//!   -> for k { for i unrolled { for j vectorized { acc[i0 + i, j0 + j] += a[i0 + i, k0 + k] * b[k0 + k, j0 + j] } } }
//! ```
//! The row loop is unrolled and the column loop vectorised, so that an accumulator in registers stays there.

use super::{LowerError, LowerOptions};
use crate::ir::{Expr, For, Kernel, LoopKind, ReduceOp, Stmt, Tile, VarId, visit};

/// The pass.
pub fn run(mut kernel: Kernel, options: &LowerOptions) -> Result<Kernel, LowerError> {
    let body = std::mem::take(&mut kernel.body);
    kernel.body = visit::rewrite(body, &mut |s| match s {
        Stmt::Mma { acc, a, b } if options.expand_tiles => vec![mma(&mut kernel, &acc, &a, &b)],
        Stmt::Transpose { dst, src } if !options.shuffles => vec![transpose(&mut kernel, &dst, &src)],
        other => vec![other],
    });
    Ok(kernel)
}

/// The two dimensions that a tile spans: those longer than 1 if there are two, the last two otherwise.
pub(super) fn spanned(t: &Tile) -> [usize; 2] {
    let long: Vec<usize> = (0..t.extents.len()).filter(|d| t.extents[*d] > 1).collect();
    match long[..] {
        [a, b] => [a, b],
        _ => [t.extents.len().saturating_sub(2), t.extents.len().saturating_sub(1)],
    }
}

/// The element at `row`, `column` of a tile.
fn at(t: &Tile, row: impl Into<Expr>, column: impl Into<Expr>) -> Vec<Expr> {
    let [r, c] = spanned(t);
    let mut idx = t.origin.clone();
    idx[r] = idx[r].clone() + row.into();
    idx[c] = idx[c].clone() + column.into();
    idx
}

fn loop_of(var: VarId, extent: i64, kind: LoopKind, body: Stmt) -> Stmt {
    Stmt::For(For { var, extent, kind, pragmas: vec![], body: vec![body] })
}

fn mma(kernel: &mut Kernel, acc: &Tile, a: &Tile, b: &Tile) -> Stmt {
    let ([_, a_k], [_, b_n], [acc_m, _]) = (spanned(a), spanned(b), spanned(acc));
    let (m, n, k) = (acc.extents[acc_m], b.extents[b_n], a.extents[a_k]);
    let (vi, vj, vk) = (kernel.fresh_var("mi"), kernel.fresh_var("mj"), kernel.fresh_var("mk"));
    let load = |t: &Tile, r, c| {
        let value = Expr::load(t.buffer, at(t, r, c));
        Expr::Cast(kernel.buffer(acc.buffer).dtype.compute(), Box::new(value))
    };
    let value = load(a, vi, vk) * load(b, vk, vj);
    let update = Stmt::Reduce {
        buffer: acc.buffer,
        indices: at(acc, vi, vj),
        op: ReduceOp::Add,
        init: Expr::Float(0.0, kernel.buffer(acc.buffer).dtype.compute()),
        value,
        over: vec![],
    };
    let columns = loop_of(vj, n, LoopKind::Vectorized, update);
    let rows = loop_of(vi, m, LoopKind::Unrolled, columns);
    loop_of(vk, k, LoopKind::Serial, rows)
}

fn transpose(kernel: &mut Kernel, dst: &Tile, src: &Tile) -> Stmt {
    let rank = src.extents.len();
    let [m, n] = [rank.saturating_sub(2), rank.saturating_sub(1)].map(|d| src.extents.get(d).copied().unwrap_or(1));
    let (vi, vj) = (kernel.fresh_var("ti"), kernel.fresh_var("tj"));
    // Transposition means the last two dimensions, whatever their extents.
    let at = |t: &Tile, row: VarId, column: VarId| {
        let mut idx = t.origin.clone();
        let rank = idx.len();
        for (d, v) in [(rank.wrapping_sub(2), row), (rank.wrapping_sub(1), column)] {
            if let Some(i) = idx.get_mut(d) {
                *i = i.clone() + Expr::Var(v);
            }
        }
        idx
    };
    let copy = Stmt::store(dst.buffer, at(dst, vj, vi), Expr::load(src.buffer, at(src, vi, vj)));
    loop_of(vi, m, LoopKind::Unrolled, loop_of(vj, n, LoopKind::Unrolled, copy))
}
