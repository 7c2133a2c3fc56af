//! `rfactor`: a reduce loop is taken out of a reduction, so that its iterations become independent.
//!
//! ```text
//! rfactor(s, k_o)
//! for i in 0..8 { for k_o in 0..4 { for k_i in 0..16 { s[i] += x(i, k_o, k_i) over (k_o, k_i) } } }
//!   ->
//! alloc s_rf: f32[4, 8]
//! for i in 0..8 { for k_o in 0..4 { for k_i in 0..16 { s_rf[k_o, i] += x(i, k_o, k_i) over (k_i) } } }
//! for i_f in 0..8 { for k_f in 0..4 { s[i_f] += s_rf[k_f, i_f] over (k_f) } }
//! ```
//! The partial sums are a stage of their own, with the loop as a spatial one. Refuses stages that are no reductions, loops
//! that are not reduce loops of theirs, nests with concurrent loops or other statements, and indices that are not made of
//! the stage's own loops.

use super::error::{Reason, ScheduleError, refuse_stage};
use super::inverse::digits;
use super::nest::{all_ranges, conjuncts, own_loops, perfect_nest, the_writer, tidy, top_of_nest};
use crate::analysis::simplify::prove;
use crate::ir::visit::rewrite;
use crate::ir::{Buffer, BufferId, Expr, For, Kernel, ReduceOp, Scope, Stmt, VarId};

/// Factors the reduce loop out of the stage; returns the stage of partial results, whose first dimension is the loop.
pub fn rfactor(k: &Kernel, stage: BufferId, reduce_loop: VarId) -> Result<(Kernel, BufferId), ScheduleError> {
    const NAME: &str = "rfactor";
    let refuse = |reason| refuse_stage(k, NAME, stage, reason);
    let plain = |why: String| refuse(Reason::NotPlain(why));
    let path = the_writer(k, NAME, stage)?;
    let own = own_loops(k, stage).unwrap_or_default();
    let top = path[top_of_nest(&path, &own)];
    let (frames, conditions, leaf) =
        perfect_nest(top).ok_or_else(|| plain("its nest holds other statements".to_string()))?;
    let Stmt::Reduce { indices, op, init, value, over, .. } = leaf else {
        return Err(plain("it is not a reduction".to_string()));
    };
    let Some(factored) = frames.iter().find(|l| l.var == reduce_loop && over.contains(&l.var)) else {
        let given = super::error::loop_name(k, reduce_loop);
        let names: Vec<&str> = over.iter().map(|v| k.var(*v).name.as_str()).collect();
        let allowed = format!("a reduce loop of the stage ({})", names.join(", "));
        return Err(refuse(Reason::BadArgument { given, allowed }));
    };
    if let Some(l) = frames.iter().find(|l| l.kind.is_concurrent()) {
        return Err(plain(format!("loop `{}` is {}", k.var(l.var).name, l.kind.name())));
    }
    let ranges = all_ranges(k);
    let spatial: Vec<&For> = frames.iter().copied().filter(|l| !over.contains(&l.var)).collect();
    digits(indices, &k.buffer(stage).shape, &spatial, &ranges).map_err(plain)?;

    let mut out = k.clone();
    let source = k.buffer(stage);
    let scope = if k.is_param(stage) { Scope::Global } else { source.scope };
    let shape: Vec<i64> = std::iter::once(factored.extent).chain(source.shape.iter().copied()).collect();
    let dtype = source.dtype.compute();
    let partial = out.add_buffer(Buffer::new(format!("{}_rf", source.name), dtype, &shape, scope));

    // Partial sums. A condition that might skip the start of one becomes a select of the neutral value.
    let inner: Vec<VarId> = over.iter().copied().filter(|v| *v != reduce_loop).collect();
    let neutral = if *op == ReduceOp::Add { Expr::zero_like_load(dtype) } else { init.clone() };
    let mut parts = vec![];
    conditions.iter().for_each(|c| conjuncts(c, &mut parts));
    let (on_reduce, on_space): (Vec<Expr>, Vec<Expr>) =
        parts.into_iter().partition(|c| over.iter().any(|v| c.mentions(*v)));
    let under_space = on_space.iter().fold(ranges.clone(), |r, c| r.assuming(c));
    let (kept, folded): (Vec<Expr>, Vec<Expr>) = on_reduce.into_iter().partition(|c| {
        let first = inner.iter().fold(c.clone(), |e, v| e.subst(*v, &Expr::Int(0)));
        prove(&first, &under_space) == Some(true)
    });
    let value = match Expr::all(folded) {
        Some(c) => c.select(value.clone(), neutral.clone()),
        None => value.clone(),
    };
    let element: Vec<Expr> = std::iter::once(reduce_loop.into()).chain(indices.iter().cloned()).collect();
    let sum = if inner.is_empty() {
        Stmt::store(partial, element, value)
    } else {
        Stmt::Reduce { buffer: partial, indices: element, op: *op, init: neutral, value, over: inner }
    };
    let sum = match Expr::all(on_space.iter().cloned().chain(kept)) {
        Some(c) => vec![Stmt::if_(c, vec![sum])],
        None => vec![sum],
    };
    let partial_nest = frames.iter().rev().fold(sum, |body, l| vec![Stmt::For(For { body, ..(*l).clone() })]);

    // Their sum.
    let mut loops: Vec<(VarId, VarId, i64)> = vec![];
    for l in spatial.iter().chain([factored]) {
        let hint = format!("{}_f", super::nest::axis_name(&k.var(l.var).name));
        loops.push((l.var, out.fresh_var(&hint), l.extent));
    }
    let renamed = |e: &Expr| loops.iter().fold(e.clone(), |e, (old, new, _)| e.subst(*old, &Expr::Var(*new)));
    let over_new = loops.last().map(|l| l.1).into_iter().collect::<Vec<_>>();
    let element = over_new.iter().map(|v| (*v).into()).chain(indices.iter().map(&renamed)).collect();
    let total = Stmt::Reduce {
        buffer: stage,
        indices: indices.iter().map(&renamed).collect(),
        op: *op,
        init: init.clone(),
        value: Expr::load(partial, element),
        over: over_new,
    };
    let total = match Expr::all(on_space.iter().map(&renamed)) {
        Some(c) => vec![Stmt::if_(c, vec![total])],
        None => vec![total],
    };
    let total_nest = loops.iter().rev().fold(total, |body, (_, v, n)| vec![Stmt::for_(*v, *n, body)]);

    let old = top.clone();
    out.body = rewrite(std::mem::take(&mut out.body), &mut |s| {
        if s == old {
            let new = std::iter::once(Stmt::Alloc(partial)).chain(partial_nest.clone());
            new.chain(total_nest.clone()).collect()
        } else {
            vec![s]
        }
    });
    tidy(&mut out);
    Ok((out, partial))
}
