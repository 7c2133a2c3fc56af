//! `pad`: a loop gets a rounder number of iterations, and a guard that keeps the additional ones idle.
//!
//! ```text
//! pad(i, 4)
//! for i in 0..7 { s(i) }   ->   for i in 0..8 { if i < 7 { s(i) } }
//! ```
//! The guard stands around each computing statement, below further loops, so that the loops stay perfectly nested.
//! Refuses when the multiple is not positive or the loop has a kind already.

use super::error::{Reason, ScheduleError, refuse_loop};
use super::nest::{guard_leaves, replace_loop, the_loop, tidy};
use crate::ir::{Expr, For, Kernel, LoopKind, Stmt, VarId};

/// Rounds the iterations of `var` up to a multiple of `multiple`.
pub fn pad(k: &Kernel, var: VarId, multiple: i64) -> Result<Kernel, ScheduleError> {
    const NAME: &str = "pad";
    let l = the_loop(k, NAME, var)?;
    if multiple < 1 {
        let (given, allowed) = (format!("multiple {multiple}"), "1 or more".to_string());
        return Err(refuse_loop(k, NAME, var, Reason::BadArgument { given, allowed }));
    }
    if !matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled) {
        return Err(refuse_loop(k, NAME, var, Reason::BoundLoop(l.kind)));
    }
    Ok(pad_to(k, var, (l.extent + multiple - 1) / multiple * multiple))
}

/// Gives the loop `extent` iterations, of which those beyond its present number are idle.
pub(super) fn pad_to(k: &Kernel, var: VarId, extent: i64) -> Kernel {
    let mut k = k.clone();
    replace_loop(&mut k, var, |l| {
        let body = if extent > l.extent { guard_leaves(l.body, &Expr::from(var).lt(l.extent)) } else { l.body };
        vec![Stmt::For(For { extent, body, ..l })]
    });
    tidy(&mut k);
    k
}
