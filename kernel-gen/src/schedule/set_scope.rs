//! `set_scope`: a buffer moves to another kind of memory.
//!
//! ```text
//! set_scope(acc, Local)
//! alloc acc: f32[8] global   ->   alloc acc: f32[8] local
//! ```
//! Whether the new place suits all uses is checked by `verify` at the end, because a buffer may be given its scope before
//! it is attached. Refuses parameters, and global memory allocated inside a concurrent loop, and
//! private memory that would have to carry values between the iterations of one.

use super::error::{Reason, ScheduleError, refuse_stage};
use super::nest::{loops_on, paths};
use super::place::{reachable, varying};
use crate::ir::{BufferId, Kernel, Scope, Stmt};

/// Gives the buffer a scope.
pub fn set_scope(k: &Kernel, buffer: BufferId, scope: Scope) -> Result<Kernel, ScheduleError> {
    const NAME: &str = "set_scope";
    let allocs = paths(&k.body, &|s| *s == Stmt::Alloc(buffer));
    if k.is_param(buffer) {
        return Err(refuse_stage(k, NAME, buffer, Reason::Parameter));
    }
    let Some(alloc) = allocs.first() else { return Err(refuse_stage(k, NAME, buffer, Reason::NotAStage)) };
    varying(k, alloc, scope).map_err(|reason| refuse_stage(k, NAME, buffer, reason))?;
    // At the root it may still wait to be attached; inside of a loop it has its place.
    if let Some(l) = loops_on(alloc).last() {
        reachable(k, &l.body, buffer, scope).map_err(|reason| refuse_stage(k, NAME, buffer, reason))?;
    }
    let mut out = k.clone();
    out.buffer_mut(buffer).scope = scope;
    Ok(out)
}
