//! `transpose_copies`: where a private tile is read across its rows by the lanes of a store, the transpose intrinsic turns
//! the tile first.
//!
//! ```text
//! for c in 0..m { for p in 0..n vectorized { y[c, p] = f(acc[p, c]) } }
//!   ->
//! alloc acc_t: f32[m, n] local strides [n rounded up to whole vectors, 1]
//! transpose acc_t[0: m, 0: n] = acc[0: n, 0: m]
//! for c in 0..m { for p in 0..n vectorized { y[c, p] = f(acc_t[c, p]) } }
//! ```
//! Such stores carry tiles from "channels along the lanes" to "pixels along the lanes"; gathered element by element they
//! cost as much as the arithmetic of a short reduction, turned by vector shuffles they all but vanish.

use super::pass::{LowerError, LowerOptions};
use crate::analysis::affine::Affine;
use crate::ir::visit::rewrite;
use crate::ir::{Buffer, DType, Expr, For, Kernel, LoopKind, Scope, Stmt, Tile, VarId};

/// Elements of the longest vector of any target.
const ROW: i64 = 16;

/// The elements that rows of a turned tile are apart, so that whole vectors cover `n` elements of a row.
pub fn whole_rows(n: i64) -> i64 {
    (n + ROW - 1) / ROW * ROW
}

/// Columns from which on a transposition writes vectors as long as those that read a row.
const WHOLE_ROWS: i64 = 8;

/// The pass.
pub fn run(mut kernel: Kernel, options: &LowerOptions) -> Result<Kernel, LowerError> {
    if !options.shuffles {
        return Ok(kernel);
    }
    let body = std::mem::take(&mut kernel.body);
    kernel.body = rewrite(body, &mut |s| recognise(&mut kernel, &s).unwrap_or_else(|| vec![s]));
    Ok(kernel)
}

/// The only statement of a block, if it is a loop whose iterations do not depend on each other's order.
fn only_loop(block: &[Stmt]) -> Option<&For> {
    match block {
        [Stmt::For(l)] if matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled | LoopKind::Vectorized) => Some(l),
        _ => None,
    }
}

/// `for c { for p vectorized { y[.., p] = f(acc[.., p, c]) } }`, taken apart.
fn recognise(kernel: &mut Kernel, s: &Stmt) -> Option<Vec<Stmt>> {
    let outer = only_loop(std::slice::from_ref(s))?;
    let inner = only_loop(&outer.body).filter(|l| l.kind == LoopKind::Vectorized)?;
    let [Stmt::Store { buffer: dst, indices: to, value }] = &inner.body[..] else { return None };
    let f32_and_dense = |b| {
        let b = kernel.buffer(b);
        b.dtype == DType::F32 && b.strides.last() == Some(&1) && b.shape.len() >= 2
    };
    let contiguous = Affine::of(to.last()?)?.coefficient(inner.var) == 1;
    if !contiguous || outer.extent.min(inner.extent) < 2 {
        return None;
    }
    let mut found = None;
    value.walk(&mut |e| {
        if let Expr::Load(b, from) = e
            && found.is_none()
            && b != dst
            && kernel.buffer(*b).scope == Scope::Local
            && f32_and_dense(*b)
            && let Some(tile) = tile(*b, from, inner, outer)
        {
            found = Some((e.clone(), tile));
        }
    });
    let (load, src) = found?;
    let shape = [outer.extent, inner.extent];
    let name = format!("{}_t", kernel.buffer(src.buffer).name);
    let mut tile = Buffer::new(name, DType::F32, &shape, Scope::Local);
    // Rows begin where whole vectors do, so that the emitter writes and reads whole vectors and the C compiler sees that
    // the tile need not be in memory at all.
    if (WHOLE_ROWS..=ROW).contains(&outer.extent) {
        tile.strides = vec![whole_rows(inner.extent), 1];
    }
    let turned = kernel.add_buffer(tile);
    let dst = Tile { buffer: turned, origin: vec![Expr::Int(0), Expr::Int(0)], extents: shape.to_vec() };
    let by = Expr::load(turned, vec![outer.var.into(), inner.var.into()]);
    let nest = s.clone().map_exprs(&mut |e| e.map(&mut |e| if e == load { by.clone() } else { e }));
    Some(vec![Stmt::Alloc(turned), Stmt::Transpose { dst, src }, nest])
}

/// The tile that `indices` run through, if the second last dimension follows `row` and the last one `column`, both step
/// by step, and nothing else follows either.
fn tile(buffer: crate::ir::BufferId, indices: &[Expr], row: &For, column: &For) -> Option<Tile> {
    let n = indices.len();
    let mut origin = Vec::with_capacity(n);
    for (d, index) in indices.iter().enumerate() {
        let a = Affine::of(index)?;
        let follows = |v: VarId, dim: usize| a.coefficient(v) == i64::from(d == dim);
        if !follows(row.var, n - 2) || !follows(column.var, n - 1) {
            return None;
        }
        let mut start = a.clone();
        start.terms.remove(&row.var);
        start.terms.remove(&column.var);
        origin.push(start.to_expr());
    }
    let mut extents = vec![1; n];
    extents[n - 2] = row.extent;
    extents[n - 1] = column.extent;
    Some(Tile { buffer, origin, extents })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::{Mode, run as interpret, seeded_inputs};
    use crate::ir::Access;
    use crate::ir::builder::KernelBuilder;

    #[test]
    fn lanes_across_rows_of_a_private_tile_are_turned_first_and_the_result_stays() {
        let mut b = KernelBuilder::new("turn");
        let x = b.param("x", DType::F32, &[6, 4], Access::Read);
        let y = b.param("y", DType::F32, &[4, 6], Access::Write);
        let t = b.alloc("t", DType::F32, &[6, 4], Scope::Local);
        let index = |a: VarId, b: VarId| vec![a.into(), b.into()];
        b.nest(&[("i", 6), ("j", 4)], |b, v| b.store(t, index(v[0], v[1]), Expr::load(x, index(v[0], v[1]))));
        b.nest(&[("c", 4), ("p", 6)], |b, v| {
            b.store(y, index(v[0], v[1]), Expr::load(t, index(v[1], v[0])).max(Expr::f32(0.0)));
        });
        let mut before = b.finish();
        let p = before.find_var("p").expect("just made");
        crate::ir::visit::find_loop_mut(&mut before.body, p).expect("just made").kind = LoopKind::Vectorized;
        let after = run(before.clone(), &LowerOptions::cpu()).expect("nothing to refuse");
        assert!(after.to_string().contains("transpose t_t[0: 4, 0: 6] = t[0: 6, 0: 4]"), "{after}");
        let inputs = seeded_inputs(&before, 1);
        let results = [&before, &after].map(|k| interpret(k, &inputs, Mode::Declared).expect("a legal kernel"));
        assert_eq!(results[0], results[1]);
    }
}
