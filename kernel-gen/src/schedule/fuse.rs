//! `fuse`: two nested loops become one.
//!
//! ```text
//! fuse(i, j)
//! for i in 0..4 { for j in 0..8 { s(i, j) } }   ->   for i_j in 0..32 { s(i_j / 8, i_j % 8) }
//! ```
//! Refuses when the loops are not perfectly nested, one of them has a kind that the other has not, or only one of them
//! carries a reduction.

use super::error::{Reason, ScheduleError, refuse_loop};
use super::nest::{reduced_by, replace_loop, replace_over, subst, the_loop, tidy};
use crate::ir::{Expr, For, Kernel, LoopKind, Stmt, VarId};

/// Fuses `outer` and the loop `inner` directly inside; returns the fused loop. It keeps the pragmas of the outer one.
pub fn fuse(k: &Kernel, outer: VarId, inner: VarId) -> Result<(Kernel, VarId), ScheduleError> {
    const NAME: &str = "fuse";
    let (o, i) = (the_loop(k, NAME, outer)?, the_loop(k, NAME, inner)?);
    let not_nested = |because: String| {
        let inner = k.var(inner).name.clone();
        refuse_loop(k, NAME, outer, Reason::NotNested { inner, because })
    };
    match &o.body[..] {
        [Stmt::For(only)] if only.var == inner => {}
        [Stmt::For(other)] => return Err(not_nested(format!("the loop inside is `{}`", k.var(other.var).name))),
        [Stmt::If { .. }] => return Err(not_nested("a conditional stands between them".to_string())),
        body => return Err(not_nested(format!("its body has {} statements", body.len()))),
    }
    for l in [o, i] {
        if !matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled | LoopKind::Parallel) || l.kind != o.kind {
            return Err(refuse_loop(k, NAME, l.var, Reason::BoundLoop(l.kind)));
        }
    }
    if let (Some(buffer), None) | (None, Some(buffer)) = (reduced_by(o), reduced_by(i)) {
        // A loop without effect on the reduction may take part in it: it has one iteration.
        let idle = if reduced_by(o).is_none() { o.extent } else { i.extent };
        if idle != 1 {
            let buffer = k.buffer(buffer).name.clone();
            return Err(refuse_loop(k, NAME, outer, Reason::ReduceLoop { buffer }));
        }
    }
    let width = i.extent;
    let reduces = reduced_by(o).is_some() || reduced_by(i).is_some();
    let mut out = k.clone();
    // A loop of one iteration adds nothing, to the name neither.
    let (outer_name, inner_name) = (&k.var(outer).name, &k.var(inner).name);
    let fused = out.fresh_var(&match (o.extent, i.extent) {
        (1, _) => inner_name.clone(),
        (_, 1) => outer_name.clone(),
        _ => format!("{outer_name}_{}", super::nest::axis_name(inner_name)),
    });
    replace_loop(&mut out, outer, |o| {
        let extent = o.extent * width;
        let body = o.body.into_iter().flat_map(|s| if let Stmt::For(l) = s { l.body } else { vec![s] }).collect();
        let body = subst(body, outer, &Expr::from(fused).floor_div(width));
        let mut body = subst(body, inner, &Expr::from(fused).floor_mod(width));
        if reduces {
            // Both lists named at least one of the two; the fused loop stands where the first stood.
            body = replace_over(body, outer, &[fused]);
            body = replace_over(body, inner, &[fused]);
            body = crate::ir::visit::rewrite(body, &mut |s| vec![once_in_over(s, fused)]);
        }
        vec![Stmt::For(For { var: fused, extent, kind: o.kind, pragmas: o.pragmas, body })]
    });
    tidy(&mut out);
    Ok((out, fused))
}

/// Removes the second mention of the fused loop from a reduce list.
fn once_in_over(s: Stmt, fused: VarId) -> Stmt {
    match s {
        Stmt::Reduce { buffer, indices, op, init, value, mut over } => {
            let first = over.iter().position(|v| *v == fused);
            let mut at = 0..;
            over.retain(|v| {
                let i = at.next();
                *v != fused || i == first
            });
            Stmt::Reduce { buffer, indices, op, init, value, over }
        }
        other => other,
    }
}

/// Fuses a chain of perfectly nested loops, outermost first; returns the fused loop.
pub fn fuse_all(k: &Kernel, loops: &[VarId]) -> Result<(Kernel, VarId), ScheduleError> {
    let Some((first, rest)) = loops.split_first() else {
        let reason = Reason::BadArgument { given: "no loop".to_string(), allowed: "one or more".to_string() };
        return Err(ScheduleError { primitive: "fuse", subject: "an empty list".to_string(), reason });
    };
    let mut out = (k.clone(), *first);
    for inner in rest {
        out = fuse(&out.0, out.1, *inner)?;
    }
    Ok(out)
}
