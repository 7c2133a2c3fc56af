//! `peel`: the last iterations of a loop become a nest of their own.
//!
//! ```text
//! peel(i, 1)
//! for i in 0..8 { s(i) }   ->   for i in 0..7 { s(i) }  s(7)
//! peel(i, 3)
//! for i in 0..8 { s(i) }   ->   for i in 0..5 { s(i) }  for i_t in 0..3 { s(5 + i_t) }
//! ```
//! Loops and private buffers of the peeled part are copies with names of their own. Where the loop carries a reduction,
//! the peeled part continues the sum that the main part began. Refuses when nothing would be peeled or nothing would
//! remain, when the loop's iterations run at the same time, and where a statement's starting value would be lost.

use super::error::{Reason, ScheduleError, refuse_loop};
use super::nest::{fresh_copy, replace_loop, subst, the_loop, tidy};
use crate::ir::visit::rewrite;
use crate::ir::{Expr, For, Kernel, LoopKind, Stmt, VarId};

/// Separates the last `iterations` iterations of `var`. Returns the loop of the peeled part; `None` if it is a single
/// iteration.
pub fn peel(k: &Kernel, var: VarId, iterations: i64) -> Result<(Kernel, Option<VarId>), ScheduleError> {
    const NAME: &str = "peel";
    let l = the_loop(k, NAME, var)?;
    if !matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled) {
        return Err(refuse_loop(k, NAME, var, Reason::BoundLoop(l.kind)));
    }
    if iterations < 1 || iterations >= l.extent {
        let given = format!("{iterations} iterations");
        let allowed = format!("1 to {} of its {}", l.extent - 1, l.extent);
        return Err(refuse_loop(k, NAME, var, Reason::BadArgument { given, allowed }));
    }
    let main = l.extent - iterations;
    let name = k.var(var).name.clone();
    let mut out = k.clone();
    let tail_var = (iterations > 1).then(|| out.fresh_var(&format!("{name}_t")));
    let index = tail_var.map_or(Expr::Int(main), |t| t + main);
    // A reduction over this loop was begun by the main part, so the peeled part has nothing to initialise.
    let body = rewrite(l.body.clone(), &mut |s| {
        vec![match s {
            Stmt::Reduce { buffer, indices, op, init, value, over } if over.contains(&var) => {
                Stmt::Reduce { buffer, indices, op, init, value, over: vec![] }
            }
            other => other,
        }]
    });
    let (body, _) = fresh_copy(&mut out, &subst(body, var, &index));
    replace_loop(&mut out, var, |l| {
        let main_loop = Stmt::For(For { extent: main, ..l.clone() });
        let tail = match tail_var {
            Some(t) => vec![Stmt::For(For { var: t, extent: iterations, body, ..l })],
            None => body,
        };
        std::iter::once(main_loop).chain(tail).collect()
    });
    tidy(&mut out);
    Ok((out, tail_var))
}
