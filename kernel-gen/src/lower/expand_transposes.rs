//! Turns transpositions of tiles into loops, for targets whose emitter does not do them with shuffles.
//!
//! ```text
//! transpose d[j0: n, i0: m] = s[i0: m, j0: n]
//!   -> for i unrolled { for j unrolled { d[j0 + j, i0 + i] = s[i0 + i, j0 + j] } }
//! ```

use super::pass::{LowerError, LowerOptions};
use crate::ir::{Expr, For, Kernel, LoopKind, Stmt, Tile, VarId, visit};

/// The pass.
pub fn run(mut kernel: Kernel, options: &LowerOptions) -> Result<Kernel, LowerError> {
    let body = std::mem::take(&mut kernel.body);
    kernel.body = visit::rewrite(body, &mut |s| match s {
        Stmt::Transpose { dst, src } if !options.shuffles => vec![transpose(&mut kernel, &dst, &src)],
        other => vec![other],
    });
    Ok(kernel)
}

fn unrolled(var: VarId, extent: i64, body: Stmt) -> Stmt {
    Stmt::For(For { var, extent, kind: LoopKind::Unrolled, pragmas: vec![], body: vec![body] })
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
    unrolled(vi, m, unrolled(vj, n, copy))
}
