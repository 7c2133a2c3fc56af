//! `cache_write`: a stage computes into a cache, and what was the stage becomes the copy-out.
//!
//! ```text
//! cache_write(y, Local)
//! for i in 0..8 { for k in 0..4 { y[i] += x[i, k] } }
//!   ->
//! alloc y_local: f32[8] local
//! for i_c in 0..8 { for k in 0..4 { y_local[i_c] += x[i_c, k] } }
//! for i in 0..8 { y[i] = y_local[i] }
//! ```
//! The copy-out keeps the stage's spatial loops, the cache gets new ones and the reduce loops; the name of the stage
//! stays with the copy-out. Refuses when the stage's indices are not its loops, it reads itself, or it does not stand at
//! the root.

use super::error::{Reason, ScheduleError, refuse_stage};
use super::inverse::digits;
use super::nest::{all_ranges, loops_on, own_loops, rename, the_writer, tidy};
use super::place::suffix;
use crate::ir::{Buffer, BufferId, Expr, For, Kernel, LoopKind, Scope, Stmt, VarId};
use std::collections::BTreeMap;

/// Puts a cache in `scope` before the stage's buffer; returns the cache.
pub fn cache_write(k: &Kernel, stage: BufferId, scope: Scope) -> Result<(Kernel, BufferId), ScheduleError> {
    const NAME: &str = "cache_write";
    let refuse = |reason| refuse_stage(k, NAME, stage, reason);
    let plain = |why: &str| refuse(Reason::NotPlain(why.to_string()));
    let path = the_writer(k, NAME, stage)?;
    let own = own_loops(k, stage).unwrap_or_default();
    let loops = loops_on(&path);
    if loops.len() != own.len() {
        return Err(plain("it is attached to a loop of another stage (use cache_write_at)"));
    }
    let (indices, value, over): (&[Expr], &Expr, &[VarId]) = match path.last().copied() {
        Some(Stmt::Store { indices, value, .. }) => (indices, value, &[]),
        Some(Stmt::Reduce { indices, value, over, .. }) => (indices, value, over),
        _ => return Err(plain("a tile intrinsic writes it")),
    };
    if value.reads(stage) {
        return Err(plain("it reads itself"));
    }
    if path.iter().any(|s| matches!(s, Stmt::If { .. })) || loops.iter().any(|l| l.kind != LoopKind::Serial) {
        return Err(plain("its loops have been guarded or bound"));
    }
    let spatial: Vec<&For> = loops.iter().copied().filter(|l| !over.contains(&l.var)).collect();
    digits(indices, &k.buffer(stage).shape, &spatial, &all_ranges(k)).map_err(|why| refuse(Reason::NotPlain(why)))?;

    let mut out = k.clone();
    let buffer = k.buffer(stage);
    let name = format!("{}_{}", buffer.name, suffix(scope));
    let cache = out.add_buffer(Buffer::new(name, buffer.dtype.compute(), &buffer.shape, scope));
    let vars: BTreeMap<VarId, VarId> =
        spatial.iter().map(|l| (l.var, out.fresh_var(&format!("{}_c", k.var(l.var).name)))).collect();
    let nest = path[0].clone();
    let at = out.body.iter().position(|s| *s == nest).unwrap_or(0);
    let computing = rename(vec![nest], &vars, &BTreeMap::new());
    let computing = crate::ir::visit::rewrite(computing, &mut |s| {
        vec![match s {
            Stmt::Store { buffer, indices, value } if buffer == stage => Stmt::Store { buffer: cache, indices, value },
            Stmt::Reduce { buffer, indices, op, init, value, over } if buffer == stage => {
                Stmt::Reduce { buffer: cache, indices, op, init, value, over }
            }
            other => other,
        }]
    });
    let copy = Stmt::store(stage, indices.to_vec(), Expr::load(cache, indices.to_vec()));
    let copy_out = spatial.iter().rev().fold(vec![copy], |body, l| vec![Stmt::For(For { body, ..(*l).clone() })]);
    out.body.splice(at..=at, std::iter::once(Stmt::Alloc(cache)).chain(computing).chain(copy_out));
    tidy(&mut out);
    Ok((out, cache))
}
