//! `tensorize`: a small matrix product becomes one tile intrinsic.
//!
//! ```text
//! tensorize(i, [16, 16, 8])
//! for i in 0..16 { for j in 0..16 { for k in 0..8 { c[i0 + i, j0 + j] += a[i0 + i, k0 + k] * b[k0 + k, j0 + j] } } }
//!   ->
//! if k0 == 0 { for i_z in 0..16 { for j_z in 0..16 { c[i0 + i_z, j0 + j_z] = 0 } } }
//! mma c[i0: 16, j0: 16] += a[i0: 16, k0: 8] * b[k0: 8, j0: 16]
//! ```
//! The three loops may stand in any order, and each must walk one dimension of each of its operands with step 1. The
//! start of the sum is separated, because the intrinsic only adds; where reduce loops around it begin the sum, under the
//! condition that all of them are in their first iteration.
//!
//! Refuses nests that compute anything else, extents other than the intrinsic's (split first), guards, and operands whose
//! dimensions stand the other way round (use `transform_layout` on them).

use super::error::{Reason, ScheduleError, refuse_loop};
use super::nest::{all_ranges, nest, perfect_nest, replace_loop, the_loop, tidy};
use crate::analysis::affine::Affine;
use crate::analysis::simplify::simplify;
use crate::ir::{BinOp, BufferId, Expr, For, Kernel, LoopKind, ReduceOp, Stmt, Tile, VarId};

/// Replaces the nest of loop `var` by a tile product of `m x n x k` = `size`.
pub fn tensorize(k: &Kernel, var: VarId, size: [i64; 3]) -> Result<Kernel, ScheduleError> {
    const NAME: &str = "tensorize";
    the_loop(k, NAME, var)?;
    let refuse = |why: String| refuse_loop(k, NAME, var, Reason::NotAMatmul(why));
    let mut out = k.clone();
    let mut made = Err(String::new());
    let (mut fresh, names) = (k.clone(), ["m", "n"]);
    let init_vars: Vec<VarId> = names.iter().map(|n| fresh.fresh_var(&format!("{n}_z"))).collect();
    out.vars = fresh.vars;
    replace_loop(&mut out, var, |l| {
        let s = Stmt::For(l);
        made = tile_product(k, &s, size, &init_vars);
        match &made {
            Ok(block) => block.clone(),
            Err(_) => vec![s],
        }
    });
    made.map_err(refuse)?;
    tidy(&mut out);
    Ok(out)
}

/// The statements that replace the nest, or why it is not a product.
fn tile_product(k: &Kernel, s: &Stmt, size: [i64; 3], init_vars: &[VarId]) -> Result<Vec<Stmt>, String> {
    let (frames, conditions, leaf) = perfect_nest(s).ok_or("it holds more than one statement")?;
    if !conditions.is_empty() {
        return Err("a conditional stands in it; use factors that divide, or pad the operands' layout".to_string());
    }
    let Stmt::Reduce { buffer: c, indices, op: ReduceOp::Add, init, value, over } = leaf else {
        return Err("its statement is not a sum".to_string());
    };
    let Expr::Binary(BinOp::Mul, x, y) = value else { return Err("its value is not a product".to_string()) };
    let (Expr::Load(xb, xi), Expr::Load(yb, yi)) = (&**x, &**y) else {
        return Err("the factors are not loads".to_string());
    };
    let long: Vec<&For> = frames.iter().copied().filter(|l| l.extent > 1).collect();
    if let Some(l) = long.iter().find(|l| !matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled)) {
        return Err(format!("loop `{}` is {} already", k.var(l.var).name, l.kind.name()));
    }
    let ranges = all_ranges(k);
    let mentions = |idx: &[Expr], l: &For| idx.iter().any(|e| simplify(e, &ranges).mentions(l.var));
    // The reduce loop is in both factors only, m in the left one and the sum, n in the right one and the sum.
    let mut roles: [Option<&For>; 3] = [None; 3];
    let mut left: Option<bool> = None;
    let mut spatial: Vec<&For> = vec![];
    for l in &long {
        match (mentions(indices, l), mentions(xi, l), mentions(yi, l)) {
            (false, true, true) if roles[2].replace(l).is_some() => {
                return Err("more than one reduce loop is inside; fuse or split until one is left".to_string());
            }
            (false, true, true) => {}
            (true, true, false) | (true, false, true) => spatial.push(l),
            _ => return Err(format!("loop `{}` walks neither m, n nor k", k.var(l.var).name)),
        }
    }
    // The spatial loop that walks the earlier dimension of the sum is m.
    for l in &spatial {
        let dim = indices.iter().position(|e| simplify(e, &ranges).mentions(l.var)).unwrap_or(0);
        let later = spatial.iter().any(|o| {
            o.var != l.var && indices.iter().position(|e| simplify(e, &ranges).mentions(o.var)).unwrap_or(0) < dim
        });
        let in_x = mentions(xi, l);
        let role = usize::from(later || spatial.len() == 1 && size[0] == 1);
        if roles[role].replace(l).is_some() {
            return Err("it has more than two spatial loops; fuse or split until two are left".to_string());
        }
        let x_is_left = if role == 0 { in_x } else { !in_x };
        if left.replace(x_is_left).is_some_and(|was| was != x_is_left) {
            return Err("both spatial loops walk the same factor".to_string());
        }
    }
    for (role, name) in ["m", "n", "k"].iter().enumerate() {
        let extent = roles[role].map_or(1, |l| l.extent);
        if extent != size[role] {
            return Err(format!("its {name} is {extent}, and the intrinsic's {}; split first", size[role]));
        }
    }
    let ((ab, ai), (bb, bi)) = if left == Some(false) { ((yb, yi), (xb, xi)) } else { ((xb, xi), (yb, yi)) };
    let vars: [Option<VarId>; 3] = roles.map(|r| r.map(|l| l.var));
    let inner: Vec<VarId> = frames.iter().map(|l| l.var).collect();
    let tile = |buffer: BufferId, idx: &[Expr], rows: usize, columns: usize| -> Result<Tile, String> {
        let name = &k.buffer(buffer).name;
        let mut found = [None; 2];
        let (mut origin, mut extents) = (vec![], vec![]);
        for (d, e) in idx.iter().enumerate() {
            let e = simplify(e, &ranges);
            let mut extent = 1;
            for (i, role) in [rows, columns].into_iter().enumerate() {
                let Some(v) = vars[role].filter(|v| e.mentions(*v)) else { continue };
                let step = Affine::of(&e).map(|a| a.coefficient(v));
                if step != Some(1) || extent != 1 || found[i].replace(d).is_some() {
                    return Err(format!("`{name}` is not walked with step 1 in one dimension by each loop"));
                }
                extent = size[role];
            }
            extents.push(extent);
            origin.push(inner.iter().fold(e, |e, v| e.subst(*v, &Expr::Int(0))));
        }
        // Two dimensions, the rows first; a tile of one row or column uses the last two as they are.
        match found {
            [Some(r), Some(c)] if r < c => Ok(Tile { buffer, origin, extents }),
            [Some(_), Some(_)] => Err(format!("`{name}` has its dimensions the other way round; use transform_layout")),
            _ if idx.len() >= 2
                && found[0].is_none_or(|d| d + 2 == idx.len())
                && found[1].is_none_or(|d| d + 1 == idx.len()) =>
            {
                Ok(Tile { buffer, origin, extents })
            }
            _ => Err(format!("`{name}` has no two dimensions for a tile")),
        }
    };
    let mma = Stmt::Mma { acc: tile(*c, indices, 0, 1)?, a: tile(*ab, ai, 0, 2)?, b: tile(*bb, bi, 2, 1)? };
    if over.is_empty() {
        return Ok(vec![mma]);
    }
    // The start of the sum.
    let outer: Vec<Expr> = over.iter().filter(|v| !inner.contains(v)).map(|v| Expr::from(*v).eq(0)).collect();
    let mut at = indices.clone();
    let mut loops = vec![];
    for (role, z) in init_vars.iter().enumerate() {
        if let Some(v) = vars[role] {
            at = at.into_iter().map(|e| e.subst(v, &Expr::Var(*z))).collect();
            loops.push((*z, size[role]));
        }
    }
    let at = at.into_iter().map(|e| inner.iter().fold(e, |e, v| e.subst(*v, &Expr::Int(0)))).collect();
    let start = nest(&loops, vec![Stmt::store(*c, at, init.clone())]);
    let start = match Expr::all(outer) {
        Some(first) => vec![Stmt::if_(first, start)],
        None => start,
    };
    Ok(start.into_iter().chain([mma]).collect())
}
