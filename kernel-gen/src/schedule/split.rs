//! `split`: one loop becomes two nested ones.
//!
//! ```text
//! split(i, 4, Perfect)
//! for i in 0..8 { s(i) }   ->   for i_o in 0..2 { for i_i in 0..4 { s(i_o * 4 + i_i) } }
//! ```
//! Refuses when the factor is not positive, the loop has a kind already, the factor does not divide and the policy is
//! [`Tail::Perfect`], [`Tail::Cut`] would leave no whole iteration, or [`Tail::Shift`] would repeat work that may not be
//! repeated.

use super::depend::{Carried, carried};
use super::error::{Reason, ScheduleError, refuse_loop};
use super::nest::{reduced_by, replace_loop, replace_over, subst, the_loop, tidy};
use super::{pad, peel};
use crate::ir::visit::find_loop;
use crate::ir::{BufferId, For, Gpu, Kernel, LoopKind, Stmt, VarId};

/// What happens to the iterations that do not fill a whole inner loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tail {
    /// There are none: the factor must divide.
    Perfect,
    /// The last inner loop runs in full, and a conditional around each statement skips what is too much.
    Guard,
    /// A separate nest after the main one does the rest, with loops (and private buffers) of its own.
    Cut,
    /// The last inner loop is moved back to end at the end, and does some iterations a second time.
    Shift,
}

/// Splits `var` so that the inner loop has `factor` iterations; returns the outer and the inner loop. The outer one
/// keeps the pragmas. With [`Tail::Cut`] these are the loops of the main nest.
pub fn split(k: &Kernel, var: VarId, factor: i64, tail: Tail) -> Result<(Kernel, [VarId; 2]), ScheduleError> {
    const NAME: &str = "split";
    let l = the_loop(k, NAME, var)?;
    if factor < 1 {
        let (given, allowed) = (format!("factor {factor}"), "1 or more".to_string());
        return Err(refuse_loop(k, NAME, var, Reason::BadArgument { given, allowed }));
    }
    if !matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled) {
        return Err(refuse_loop(k, NAME, var, Reason::BoundLoop(l.kind)));
    }
    let extent = l.extent;
    if extent % factor == 0 {
        return Ok(divide(k, var, factor, extent / factor, None));
    }
    match tail {
        Tail::Perfect => Err(refuse_loop(k, NAME, var, Reason::NotDividing { extent, factor })),
        Tail::Guard => {
            let padded = pad::pad_to(k, var, (extent + factor - 1) / factor * factor);
            Ok(divide(&padded, var, factor, (extent + factor - 1) / factor, None))
        }
        Tail::Cut if factor > extent => {
            let (given, allowed) = (format!("factor {factor}"), format!("at most {extent} with Tail::Cut"));
            Err(refuse_loop(k, NAME, var, Reason::BadArgument { given, allowed }))
        }
        Tail::Cut => {
            let (peeled, _) = peel::peel(k, var, extent % factor).map_err(|e| ScheduleError {
                primitive: NAME,
                subject: e.subject,
                reason: e.reason,
            })?;
            Ok(divide(&peeled, var, factor, extent / factor, None))
        }
        Tail::Shift => {
            if factor > extent {
                let (given, allowed) = (format!("factor {factor}"), format!("at most {extent} with Tail::Shift"));
                return Err(refuse_loop(k, NAME, var, Reason::BadArgument { given, allowed }));
            }
            if let Some(buffer) = reduced_by(l) {
                let buffer = k.buffer(buffer).name.clone();
                return Err(refuse_loop(k, NAME, var, Reason::ReduceLoop { buffer }));
            }
            if let Some(buffer) = changed_by_repeating(k, l) {
                let buffer = k.buffer(buffer).name.clone();
                return Err(refuse_loop(k, NAME, var, Reason::Dependence { buffer }));
            }
            Ok(divide(k, var, factor, (extent + factor - 1) / factor, Some(extent - factor)))
        }
    }
}

/// Splits `var` so that the outer loop has `nparts` iterations; the inner one has as many as that needs, and a guard
/// skips what is too much. Returns the outer and the inner loop.
pub fn split_nparts(k: &Kernel, var: VarId, nparts: i64) -> Result<(Kernel, [VarId; 2]), ScheduleError> {
    const NAME: &str = "split_nparts";
    let l = the_loop(k, NAME, var)?;
    if nparts < 1 {
        let (given, allowed) = (format!("nparts {nparts}"), "1 or more".to_string());
        return Err(refuse_loop(k, NAME, var, Reason::BadArgument { given, allowed }));
    }
    if !matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled) {
        return Err(refuse_loop(k, NAME, var, Reason::BoundLoop(l.kind)));
    }
    let factor = (l.extent + nparts - 1) / nparts;
    let padded = pad::pad_to(k, var, factor * nparts);
    Ok(divide(&padded, var, factor, nparts, None))
}

/// The rewrite itself; `last` is where the last inner loop starts at the latest.
fn divide(k: &Kernel, var: VarId, factor: i64, count: i64, last: Option<i64>) -> (Kernel, [VarId; 2]) {
    let mut k = k.clone();
    let name = k.var(var).name.clone();
    let (outer, inner) = (k.fresh_var(&format!("{name}_o")), k.fresh_var(&format!("{name}_i")));
    let start = match last {
        Some(last) => (outer * factor).min(last),
        None => outer * factor,
    };
    replace_loop(&mut k, var, |l| {
        let body = replace_over(subst(l.body, var, &(start + inner)), var, &[outer, inner]);
        let inner_loop = For { var: inner, extent: factor, kind: l.kind, pragmas: vec![], body };
        vec![Stmt::For(For {
            var: outer,
            extent: count,
            kind: l.kind,
            pragmas: l.pragmas,
            body: vec![Stmt::For(inner_loop)],
        })]
    });
    tidy(&mut k);
    (k, [outer, inner])
}

/// A buffer that would end up different if some iterations of the loop ran twice.
fn changed_by_repeating(k: &Kernel, l: &For) -> Option<BufferId> {
    if let Carried::Order(b) | Carried::Reduction(b) = carried(k, l, &[]) {
        return Some(b);
    }
    let mut found = None;
    for s in &l.body {
        s.walk(&mut |s| match s {
            // A reduction that starts afresh in each iteration may be repeated; one that continues may not.
            Stmt::Reduce { buffer, over, .. }
                if over.is_empty() || over.iter().any(|v| find_loop(&l.body, *v).is_none()) =>
            {
                found = Some(*buffer);
            }
            // Repeating a transposition is harmless.
            Stmt::Gpu(Gpu::Mma { acc, .. }) => found = Some(acc.buffer),
            // What is read must not be what this loop writes, or the second time would read the first's result.
            Stmt::Store { buffer, .. } if !allocated_in(l, *buffer) && l.body.iter().any(|s| s.reads(*buffer)) => {
                found = Some(*buffer);
            }
            _ => {}
        });
    }
    found
}

fn allocated_in(l: &For, b: BufferId) -> bool {
    let mut found = false;
    l.body.iter().for_each(|s| s.walk(&mut |s| found |= *s == Stmt::Alloc(b)));
    found
}
