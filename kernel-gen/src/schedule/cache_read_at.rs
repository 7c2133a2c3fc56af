//! `cache_read_at`: the part of a buffer that a loop's body reads is copied into a tile first.
//!
//! ```text
//! cache_read_at(x, i, Local)
//! for i in 0..4 { for j in 0..8 { y[i, j] = x[i, j] + x[i, j + 1] } }
//!   ->
//! for i in 0..4 {
//!   alloc x_local: f32[1, 9] local
//!   for i_x in 0..1 { for j_x in 0..9 { x_local[i_x, j_x] = x[i + i_x, j_x] } }
//!   for j in 0..8 { y[i, j] = x_local[0, j] + x_local[0, j + 1] }
//! }
//! ```
//! The copy stands right before the first statement of the body that reads the buffer. Where the tile may reach past the
//! buffer it is filled with zeros, so all of it has a value. The tile of a `shared` cache covers what all threads of the
//! block need. Refuses when nothing in the body reads the buffer, the body writes it, or the scope does not suit the
//! place.

use super::error::{Reason, ScheduleError, refuse_stage};
use super::nest::{all_ranges, nest, path_to_loop, redirect_loads, replace_loop, tidy};
use super::place::{axis_hints, cover_guarded, in_bounds, insert, reachable, suffix, varying};
use super::safety::wholly_written;
use crate::analysis::footprint::{Touch, footprint};
use crate::analysis::simplify::simplify;
use crate::ir::{Buffer, BufferId, Expr, Kernel, Scope, Stmt, VarId};

/// Makes the body of loop `at` read a tile in `scope`; returns the tile.
pub fn cache_read_at(
    k: &Kernel,
    buffer: BufferId,
    at: VarId,
    scope: Scope,
) -> Result<(Kernel, BufferId), ScheduleError> {
    const NAME: &str = "cache_read_at";
    let refuse = |reason| refuse_stage(k, NAME, buffer, reason);
    let (path, l) = path_to_loop(k, NAME, at)?;
    let Some(first) = l.body.iter().position(|s| super::nest::contains_load(s, buffer)) else {
        let why = format!("nothing inside of loop `{}` reads it", k.var(at).name);
        return Err(refuse(Reason::Misplaced(why)));
    };
    let source = k.buffer(buffer);
    if l.body[first..].iter().any(|s| s.writes(buffer)) {
        return Err(refuse(Reason::Overwritten { buffer: source.name.clone() }));
    }
    if !wholly_written(k, buffer) {
        return Err(refuse(Reason::PartlyWritten));
    }
    let ranges = all_ranges(k);
    reachable(k, &l.body, buffer, scope).map_err(refuse)?;
    let around = varying(k, &path, scope).map_err(refuse)?;
    let spans = footprint(k, &l.body, buffer, Touch::Reads, &around, &ranges)
        .map_err(|e| refuse(Reason::NoFootprint(e.0)))?
        .ok_or_else(|| refuse(Reason::NoFootprint("nothing reads it there".to_string())))?;
    let spans = cover_guarded(&l.body, buffer, &spans, &ranges);

    let mut out = k.clone();
    let shape: Vec<i64> = spans.iter().map(|s| s.extent).collect();
    let tile = out.add_buffer(Buffer::new(format!("{}_{}", source.name, suffix(scope)), source.dtype, &shape, scope));
    let vars: Vec<VarId> = axis_hints(k, &l.body, buffer).iter().map(|h| out.fresh_var(h)).collect();
    let mut inner = ranges.clone();
    vars.iter().zip(&shape).for_each(|(v, n)| inner.insert(*v, 0, n - 1));
    let element: Vec<Expr> = vars.iter().map(|v| (*v).into()).collect();
    let from: Vec<Expr> = spans.iter().zip(&vars).map(|(s, v)| simplify(&(s.base.clone() + *v), &inner)).collect();
    let outside: Vec<Expr> = from.iter().zip(&source.shape).flat_map(|(i, n)| in_bounds(i, *n, &inner)).collect();
    let value = Expr::load(buffer, from);
    let value = match Expr::all(outside) {
        Some(inside) => inside.select(value, Expr::zero_like_load(source.dtype)),
        None => value,
    };
    let loops: Vec<(VarId, i64)> = vars.into_iter().zip(shape).collect();
    let copy = nest(&loops, vec![Stmt::store(tile, element, value)]);
    let rebase = |idx: Vec<Expr>| -> (BufferId, Vec<Expr>) {
        (tile, idx.into_iter().zip(&spans).map(|(i, s)| simplify(&(i - s.base.clone()), &ranges)).collect())
    };
    replace_loop(&mut out, at, |mut l| {
        l.body = redirect_loads(l.body, buffer, &rebase);
        vec![Stmt::For(l)]
    });
    insert(&mut out, at, first, copy, tile);
    tidy(&mut out);
    Ok((out, tile))
}
