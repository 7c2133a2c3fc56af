//! `cache_read`: some readers of a buffer read a copy of it instead.
//!
//! ```text
//! cache_read(x, Shared, [y])
//! for i in 0..8 { y[i] = x[i] }
//!   ->
//! alloc x_shared: f32[8] shared
//! for i_x in 0..8 { x_shared[i_x] = x[i_x] }
//! for i in 0..8 { y[i] = x_shared[i] }
//! ```
//! The copy is a stage of its own at the root, with one loop a dimension, right before the first reader; `compute_at` then
//! attaches it where it is used. Refuses when a reader does not read the buffer, or the buffer is written again after
//! the copy.

use super::error::{Reason, ScheduleError, refuse_stage};
use super::nest::{loads, nest, redirect_loads, tidy};
use super::place::{axis_hints, suffix};
use super::safety::wholly_written;
use crate::ir::visit::rewrite;
use crate::ir::{Buffer, BufferId, Expr, Kernel, Scope, Stmt, VarId};

/// Makes the stages `readers` read a copy of `buffer` in `scope`; returns the copy.
pub fn cache_read(
    k: &Kernel,
    buffer: BufferId,
    scope: Scope,
    readers: &[BufferId],
) -> Result<(Kernel, BufferId), ScheduleError> {
    const NAME: &str = "cache_read";
    let Some(source) = k.buffers.get(buffer.0 as usize) else {
        return Err(refuse_stage(k, NAME, buffer, Reason::NotAStage));
    };
    let reads = |s: &Stmt, r: BufferId| {
        let mut found = false;
        s.walk(&mut |s| found |= s.written() == Some(r) && loads(s, buffer));
        found
    };
    for r in readers {
        if !k.body.iter().any(|s| reads(s, *r)) {
            let given = k.buffers.get(r.0 as usize).map_or(format!("#{}", r.0), |b| format!("reader `{}`", b.name));
            let reason = Reason::BadArgument { given, allowed: "stages that read it".to_string() };
            return Err(refuse_stage(k, NAME, buffer, reason));
        }
    }
    let Some(first) = k.body.iter().position(|s| readers.iter().any(|r| reads(s, *r))) else {
        let reason = Reason::BadArgument { given: "no reader".to_string(), allowed: "one or more".to_string() };
        return Err(refuse_stage(k, NAME, buffer, reason));
    };
    let writers = k.body[first..].iter().any(|s| s.writes(buffer));
    if writers {
        return Err(refuse_stage(k, NAME, buffer, Reason::Overwritten { buffer: source.name.clone() }));
    }
    if !wholly_written(k, buffer) {
        return Err(refuse_stage(k, NAME, buffer, Reason::PartlyWritten));
    }
    let hints = axis_hints(k, &k.body[first..], buffer);
    let mut out = k.clone();
    let name = format!("{}_{}", source.name, suffix(scope));
    let cache = out.add_buffer(Buffer::new(name, source.dtype, &source.shape, scope));
    let vars: Vec<VarId> = hints.iter().map(|h| out.fresh_var(h)).collect();
    let element: Vec<Expr> = vars.iter().map(|v| (*v).into()).collect();
    let copy = Stmt::store(cache, element.clone(), Expr::load(buffer, element));
    let loops: Vec<(VarId, i64)> = vars.into_iter().zip(source.shape.clone()).collect();
    let body = rewrite(std::mem::take(&mut out.body), &mut |s| match s.written() {
        Some(r) if readers.contains(&r) => redirect_loads(vec![s], buffer, &|idx| (cache, idx)),
        _ => vec![s],
    });
    out.body = body;
    let at = first;
    out.body.splice(at..at, std::iter::once(Stmt::Alloc(cache)).chain(nest(&loops, vec![copy])));
    tidy(&mut out);
    Ok((out, cache))
}
