//! `cache_write_at`: what a loop's body writes to a stage goes to a small buffer first, and is copied out at the end.
//!
//! ```text
//! cache_write_at(y, k_o, Register)
//! for i in 0..8 { for k_o in 0..4 { for j in 0..6 { for k_i in 0..16 { y[i, j] += x(i, j, k_o, k_i) over (k_o, k_i) } } } }
//!   ->
//! for i in 0..8 {
//!   for k_o in 0..4 {
//!     alloc y_reg: f32[1, 6] register
//!     for j in 0..6 { for k_i in 0..16 { y_reg[0, j] += x(i, j, k_o, k_i) over (k_i) } }
//!     for j_w in 0..6 { y[i, j_w] += y_reg[0, j_w] over (k_o) }
//!   }
//! }
//! ```
//! If all reduce loops are inside, the copy-out is a plain copy. If some are outside, as above, each pass through the body
//! makes a partial sum and the copy-out is a reduction over the loops outside. With none inside, the buffer just takes the
//! value.
//!
//! Conditions on the original statement hold for both parts, with two liberties. A condition on a reduce loop becomes a
//! `select` in the value where it might skip the start of the sum. And a condition that only concerns which elements exist
//! is left away from the computing part if computing the surplus is harmless, which keeps branches out of the micro-kernel.
//!
//! Refuses when the body does not write the stage exactly once, other statements share the conditions, a spatial loop
//! repeats the statement without showing in its index, or the scope does not suit the place.

use super::error::{Reason, ScheduleError, refuse_stage};
use super::nest::{all_ranges, conjuncts, loops_on, path_to_loop, paths, replace_loop, tidy};
use super::place::{insert, reachable, suffix, varying};
use super::safety::{Facts, loads_are_safe};
use crate::analysis::footprint::{Touch, footprint};
use crate::analysis::range::{Ranges, bounds};
use crate::analysis::simplify::{prove, simplify};
use crate::ir::visit::rewrite;
use crate::ir::{Buffer, BufferId, DType, Expr, For, Kernel, ReduceOp, Scope, Stmt, VarId};

const NAME: &str = "cache_write_at";

/// Puts a buffer in `scope` between the body of loop `at` and the stage it writes. Returns the buffer and the copy-out's
/// loops, in the order of the spatial loops below `at`.
pub fn cache_write_at(
    k: &Kernel,
    stage: BufferId,
    at: VarId,
    scope: Scope,
) -> Result<(Kernel, BufferId, Vec<VarId>), ScheduleError> {
    let refuse = |reason| refuse_stage(k, NAME, stage, reason);
    let plain = |why: String| refuse(Reason::NotPlain(why));
    let (path, target) = path_to_loop(k, NAME, at)?;
    let writers = paths(&target.body, &|s| s.written() == Some(stage));
    let writer = match &writers[..] {
        [one] => one,
        [] => {
            let why = format!("nothing inside of loop `{}` writes it", k.var(at).name);
            return Err(refuse(Reason::Misplaced(why)));
        }
        many => return Err(refuse(Reason::SeveralWriters(many.len()))),
    };
    let leaf = *writer.last().expect("a path ends with its statement");
    let update = Update::of(leaf).ok_or_else(|| plain("a tile intrinsic writes it".to_string()))?;
    if update.value.reads(stage) {
        return Err(plain("it reads itself".to_string()));
    }
    let top = target.body.iter().position(|s| std::ptr::eq(s, writer[0])).unwrap_or(0);
    let mut same_nest = false;
    writer[0].walk(&mut |s| same_nest |= !std::ptr::eq(s, leaf) && super::nest::loads(s, stage));
    if same_nest {
        return Err(plain("a statement of the same nest reads it".to_string()));
    }

    // The loops below `at`, by what they do for this statement.
    let inner = loops_on(writer);
    let is_reduce = |l: &For| match &update.over {
        Some(over) if !over.is_empty() => over.contains(&l.var),
        Some(_) => !update.indices.iter().any(|i| i.mentions(l.var)) && l.extent > 1,
        None => false,
    };
    let (reduce, spatial): (Vec<&For>, Vec<&For>) = inner.iter().partition(|l| is_reduce(l));
    if let Some(l) = spatial.iter().find(|l| l.extent > 1 && !update.indices.iter().any(|i| i.mentions(l.var))) {
        return Err(plain(format!("loop `{}` repeats the statement without showing in its index", k.var(l.var).name)));
    }
    let outer_over: Option<Vec<VarId>> = update.over.as_ref().and_then(|over| {
        let outside: Vec<VarId> = over.iter().copied().filter(|v| !inner.iter().any(|l| l.var == *v)).collect();
        // An empty list means that the sum was begun elsewhere: it goes on there.
        (!outside.is_empty() || over.is_empty()).then_some(outside)
    });
    let conditions = Conditions::on(k, writer, &reduce).map_err(plain)?;

    // The buffer.
    let ranges = all_ranges(k);
    reachable(k, &target.body, stage, scope).map_err(refuse)?;
    let around = varying(k, &path, scope).map_err(refuse)?;
    let spans = footprint(k, &target.body, stage, Touch::Writes, &around, &ranges)
        .map_err(|e| refuse(Reason::NoFootprint(e.0)))?
        .ok_or_else(|| refuse(Reason::NoFootprint("nothing writes it there".to_string())))?;
    let local: Vec<Expr> =
        update.indices.iter().zip(&spans).map(|(i, s)| simplify(&(i.clone() - s.base.clone()), &ranges)).collect();
    let mut shape: Vec<i64> = spans.iter().map(|s| s.extent).collect();

    // Conditions that may be left away from the computing part.
    let mut facts = Facts::new(ranges.clone());
    conditions.outer.iter().chain(&conditions.reduce).for_each(|c| facts.assume(c));
    let reach: Option<Vec<(i64, i64)>> = local.iter().map(|i| bounds(i, &ranges)).collect();
    let harmless = scope.is_private()
        && loads_are_safe(k, update.value, &facts)
        && reach.as_ref().is_some_and(|r| r.iter().all(|(lo, _)| *lo >= 0));
    if let (true, Some(reach)) = (harmless, reach) {
        shape.iter_mut().zip(reach).for_each(|(n, (_, hi))| *n = (*n).max(hi + 1));
    }

    let mut out = k.clone();
    let source = k.buffer(stage);
    let dtype = source.dtype.compute();
    let cache = out.add_buffer(Buffer::new(format!("{}_{}", source.name, suffix(scope)), dtype, &shape, scope));

    let parts = Parts { stage, cache, dtype, update, reduce, spatial, outer_over, conditions, local, harmless };
    let compute = parts.computing(&ranges);
    let (copy_out, loops) = parts.copy_out(&mut out);

    let old_leaf = leaf.clone();
    let guard = parts.conditions.direct;
    replace_loop(&mut out, at, |mut l| {
        l.body = rewrite(l.body, &mut |s| match &s {
            // The conditional directly around the statement goes; what remains of it is part of `compute`.
            Stmt::If { then, .. } if guard && then[..] == [old_leaf.clone()] => vec![compute.clone()],
            s if !guard && *s == old_leaf => vec![compute.clone()],
            _ => vec![s],
        });
        l.body.splice(top + 1..top + 1, copy_out);
        vec![Stmt::For(l)]
    });
    insert(&mut out, at, 0, vec![], cache);
    tidy(&mut out);
    Ok((out, cache, loops))
}

/// What the two parts are made from.
struct Parts<'a> {
    stage: BufferId,
    cache: BufferId,
    /// Element type of the cache.
    dtype: DType,
    update: Update<'a>,
    /// The reduce loops inside.
    reduce: Vec<&'a For>,
    /// The other loops inside.
    spatial: Vec<&'a For>,
    /// The reduce loops outside, over which the copy-out sums; `None` if it is a plain copy.
    outer_over: Option<Vec<VarId>>,
    conditions: Conditions,
    /// The statement's indices within the cache.
    local: Vec<Expr>,
    /// Whether the computing part may do without the conditions on space.
    harmless: bool,
}

impl Parts<'_> {
    /// The statement that takes the place of the original one.
    fn computing(&self, ranges: &Ranges) -> Stmt {
        let (update, conditions) = (&self.update, &self.conditions);
        let start: Vec<VarId> = self.reduce.iter().map(|l| l.var).collect();
        let under_others =
            conditions.outer.iter().chain(&conditions.spatial).fold(ranges.clone(), |r, c| r.assuming(c));
        let (kept, folded): (Vec<Expr>, Vec<Expr>) =
            conditions.reduce.iter().cloned().partition(|c| holds_at_start(c, &start, &under_others));
        // Maxima and minima may start from the same value any number of times; partial sums start from zero.
        let neutral = if update.op == ReduceOp::Add { Expr::zero_like_load(self.dtype) } else { update.init.clone() };
        let value = match Expr::all(folded) {
            Some(c) => c.select(update.value.clone(), neutral.clone()),
            None => update.value.clone(),
        };
        let (buffer, indices, op) = (self.cache, self.local.clone(), update.op);
        let partial = self.outer_over.is_some();
        let compute = match (&update.over, start.is_empty()) {
            (Some(_), false) => {
                let init = if partial { neutral } else { update.init.clone() };
                Stmt::Reduce { buffer, indices, op, init, value, over: start }
            }
            (Some(_), true) if !partial => Stmt::store(buffer, indices, combine(op, update.init.clone(), value)),
            _ => Stmt::store(buffer, indices, value),
        };
        let on_space = if self.harmless { vec![] } else { conditions.spatial.clone() };
        match Expr::all(on_space.into_iter().chain(kept)) {
            Some(c) => Stmt::if_(c, vec![compute]),
            None => compute,
        }
    }

    /// The copy-out and its loops: the spatial loops again, under names of their own.
    fn copy_out(&self, k: &mut Kernel) -> (Vec<Stmt>, Vec<VarId>) {
        let (update, conditions) = (&self.update, &self.conditions);
        let mut loops: Vec<VarId> = vec![];
        for l in &self.spatial {
            let hint = format!("{}_w", super::nest::axis_name(&k.var(l.var).name));
            loops.push(k.fresh_var(&hint));
        }
        let renamed = |e: &Expr| {
            self.spatial.iter().zip(&loops).fold(e.clone(), |e, (old, new)| e.subst(old.var, &Expr::Var(*new)))
        };
        let (buffer, op, init) = (self.stage, update.op, update.init.clone());
        let indices: Vec<Expr> = update.indices.iter().map(renamed).collect();
        let value = Expr::load(self.cache, self.local.iter().map(renamed).collect());
        let write = match &self.outer_over {
            Some(over) => Stmt::Reduce { buffer, indices, op, init, value, over: over.clone() },
            None => Stmt::store(buffer, indices, value),
        };
        let write = match Expr::all(conditions.outer.iter().chain(&conditions.spatial).map(renamed)) {
            Some(c) => Stmt::if_(c, vec![write]),
            None => write,
        };
        let nest = self.spatial.iter().zip(&loops).rev().fold(vec![write], |body, (l, new)| {
            vec![Stmt::For(For { var: *new, body, pragmas: vec![], ..(*l).clone() })]
        });
        (nest, loops)
    }
}

/// The parts of the statement that is redirected.
struct Update<'a> {
    indices: &'a [Expr],
    value: &'a Expr,
    op: ReduceOp,
    init: Expr,
    /// The reduce loops; `None` for a store.
    over: Option<Vec<VarId>>,
}

impl Update<'_> {
    fn of(s: &Stmt) -> Option<Update<'_>> {
        match s {
            Stmt::Store { indices, value, .. } => {
                Some(Update { indices, value, op: ReduceOp::Add, init: Expr::Int(0), over: None })
            }
            Stmt::Reduce { indices, op, init, value, over, .. } => {
                Some(Update { indices, value, op: *op, init: init.clone(), over: Some(over.clone()) })
            }
            _ => None,
        }
    }
}

/// `init op value`.
fn combine(op: ReduceOp, init: Expr, value: Expr) -> Expr {
    match (op, &init) {
        (ReduceOp::Add, Expr::Float(z, _)) if *z == 0.0 => value,
        (ReduceOp::Add, _) => init + value,
        (ReduceOp::Mul, Expr::Float(one, _)) if *one == 1.0 => value,
        (ReduceOp::Mul, _) => init * value,
        (ReduceOp::Max, _) => init.max(value),
        (ReduceOp::Min, _) => init.min(value),
    }
}

/// The conditions between the loop and the statement.
struct Conditions {
    /// Of conditionals around other statements too: they stay where they are, and are repeated around the copy-out.
    outer: Vec<Expr>,
    /// Directly around the statement, without a reduce loop of the body.
    spatial: Vec<Expr>,
    /// Directly around the statement, on a reduce loop of the body.
    reduce: Vec<Expr>,
    /// Whether there is a conditional directly around the statement.
    direct: bool,
}

impl Conditions {
    fn on(k: &Kernel, writer: &[&Stmt], reduce: &[&For]) -> Result<Conditions, String> {
        let mut out = Conditions { outer: vec![], spatial: vec![], reduce: vec![], direct: false };
        let on_reduce = |c: &Expr| reduce.iter().find(|l| c.mentions(l.var));
        for (i, s) in writer.iter().enumerate() {
            let Stmt::If { cond, then, otherwise } = s else { continue };
            if !otherwise.is_empty() {
                return Err("a conditional with two branches stands around it".to_string());
            }
            let mut parts = vec![];
            conjuncts(cond, &mut parts);
            if i + 2 == writer.len() && then.len() == 1 {
                out.direct = true;
                for c in parts {
                    if on_reduce(&c).is_some() { out.reduce.push(c) } else { out.spatial.push(c) }
                }
            } else if let Some(l) = on_reduce(cond) {
                let name = &k.var(l.var).name;
                return Err(format!("a conditional on the reduce loop `{name}` holds other statements too"));
            } else {
                out.outer.extend(parts);
            }
        }
        Ok(out)
    }
}

/// Whether a condition holds in the first iteration of the reduce loops, where the sum is begun.
fn holds_at_start(c: &Expr, reduce: &[VarId], ranges: &Ranges) -> bool {
    let first = reduce.iter().fold(c.clone(), |e, v| e.subst(*v, &Expr::Int(0)));
    prove(&first, ranges) == Some(true)
}
