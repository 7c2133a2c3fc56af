//! `compute_at`: a stage is computed where it is used, as much as is used there.
//!
//! ```text
//! compute_at(t, i)
//! for r in 0..10 { t[r] = f(r) }
//! for i in 0..4 { for j in 0..2 { y[i, j] = t[2 * i + j] + t[2 * i + j + 1] } }
//!   ->
//! for i in 0..4 {
//!   alloc t: f32[3]
//!   for r in 0..3 { t[r] = f(2 * i + r) }
//!   for j in 0..2 { y[i, j] = t[j] + t[j + 1] }
//! }
//! ```
//! The nest moves into the body of the loop, before the first use. Its loops and its buffer shrink to the box that the
//! body needs; where the box may reach past the stage's end, the statement is guarded, unless computing there is
//! harmless. Which loops around count as varying depends on the stage's scope: a `local` stage holds what its own thread
//! needs, a `shared` one what all threads of the block need, and a `global` one may not be moved under concurrent loops.
//!
//! Stages between this one and the loop (a copy that reads it, and that the loop's body reads) move along, so producers
//! can be attached in any order.
//!
//! Refuses parameters, stages that something outside of the loop uses, stages whose indices are not made of their own
//! loops, and moves past a statement that writes what the stage reads.

use super::error::{Reason, ScheduleError, refuse_stage};
use super::inverse::{Digit, digits};
use super::nest::{
    Path, all_ranges, contains_load, loops_on, own_loops, path_to_loop, perfect_nest, readers, redirect_loads,
    the_writer, tidy, top_of_nest,
};
use super::place::{cover_guarded, in_bounds, insert, reachable, varying};
use super::safety::{Facts, loads_are_safe};
use crate::analysis::footprint::{Span, Touch, footprint};
use crate::analysis::simplify::simplify;
use crate::ir::visit::rewrite;
use crate::ir::{BufferId, Expr, For, Kernel, Stmt, VarId, row_major};

const NAME: &str = "compute_at";

/// Attaches the stage at the loop `at` of a consumer.
pub fn compute_at(k: &Kernel, stage: BufferId, at: VarId) -> Result<Kernel, ScheduleError> {
    let refuse = |reason| refuse_stage(k, NAME, stage, reason);
    if k.is_param(stage) {
        return Err(refuse(Reason::Parameter));
    }
    let writer = the_writer(k, NAME, stage)?;
    if loops_on(&writer).iter().any(|l| l.var == at) && own_loops(k, stage).is_some_and(|own| own.contains(&at)) {
        let why = format!("`{}` is a loop of the stage itself; name a loop of a consumer", k.var(at).name);
        return Err(refuse(Reason::Misplaced(why)));
    }
    let (target_path, _) = path_to_loop(k, NAME, at)?;
    let own = own_loops(k, stage).unwrap_or_default();
    let deeper = loops_on(&writer)
        .into_iter()
        .find(|l| !own.contains(&l.var) && !loops_on(&target_path).iter().any(|t| t.var == l.var));
    if let Some(l) = deeper {
        let why = format!(
            "it is attached at loop `{}` already, which is not around loop `{}`; stages move inwards only",
            k.var(l.var).name,
            k.var(at).name
        );
        return Err(refuse(Reason::Misplaced(why)));
    }
    // Readers elsewhere that the loop's body reads in turn come along first.
    let outside = readers(&k.body, stage).into_iter().find(|p| !loops_on(p).iter().any(|l| l.var == at));
    if let Some(path) = outside {
        let of_loop = k.var(at).name.clone();
        let leaf = path.last().copied();
        return match leaf.and_then(Stmt::written) {
            Some(between) if between != stage && !k.is_param(between) => {
                let moved = compute_at(k, between, at).map_err(|e| match e.reason {
                    Reason::UsedOutside { .. } => {
                        let by = k.buffer(between).name.clone();
                        refuse(Reason::UsedOutside { by, of_loop: of_loop.clone() })
                    }
                    _ => e,
                })?;
                compute_at(&moved, stage, at)
            }
            Some(b) => Err(refuse(Reason::UsedOutside { by: k.buffer(b).name.clone(), of_loop })),
            None => Err(refuse(Reason::UsedOutside { by: "a conditional".to_string(), of_loop })),
        };
    }
    attach(k, stage, at)
}

/// The move itself; all readers are inside the loop.
fn attach(k: &Kernel, stage: BufferId, at: VarId) -> Result<Kernel, ScheduleError> {
    let refuse = |reason| refuse_stage(k, NAME, stage, reason);
    let plain = |why: &str| refuse(Reason::NotPlain(why.to_string()));
    let (path, target) = path_to_loop(k, NAME, at)?;
    let writer = the_writer(k, NAME, stage)?;
    let own = own_loops(k, stage).unwrap_or_default();
    let top = top_of_nest(&writer, &own);
    let (frames, conditions, leaf) =
        perfect_nest(writer[top]).ok_or_else(|| plain("its nest holds other statements"))?;
    let (indices, value, over): (&[Expr], &Expr, &[VarId]) = match leaf {
        Stmt::Store { indices, value, .. } => (indices, value, &[]),
        Stmt::Reduce { indices, value, over, .. } => (indices, value, over),
        _ => return Err(plain("a tile intrinsic writes it")),
    };
    let nest = Nest { frames, conditions, leaf, indices, value };
    if value.reads(stage) {
        return Err(plain("it reads itself"));
    }
    let Some(first_use) = target.body.iter().position(|s| contains_load(s, stage)) else {
        let why = format!("nothing inside of loop `{}` reads it", k.var(at).name);
        return Err(refuse(Reason::Misplaced(why)));
    };
    if let Some(buffer) = overwritten_later(k, &writer, &own) {
        return Err(refuse(Reason::Overwritten { buffer: k.buffer(buffer).name.clone() }));
    }
    let ranges = all_ranges(k);
    reachable(k, &target.body, stage, k.buffer(stage).scope).map_err(refuse)?;
    let around = varying(k, &path, k.buffer(stage).scope).map_err(refuse)?;
    let spans = footprint(k, &target.body, stage, Touch::Reads, &around, &ranges)
        .map_err(|e| refuse(Reason::NoFootprint(e.0)))?
        .ok_or_else(|| refuse(Reason::NoFootprint("nothing reads it there".to_string())))?;
    let shape = &k.buffer(stage).shape;
    let spatial: Vec<&For> = nest.frames.iter().copied().filter(|l| !over.contains(&l.var)).collect();
    let found = digits(indices, shape, &spatial, &ranges);

    // A plain stage may be computed beyond what is needed, if that spares its consumers a conditional.
    let covered = cover_guarded(&target.body, stage, &spans, &ranges);
    let mut out = k.clone();
    let mut larger = None;
    if let (true, Ok(found), Stmt::Store { .. }) = (covered != spans, &found, leaf) {
        let producer = nest.shrunk(&mut out, shape, &covered, found);
        larger = producer.unconditional.then_some((covered, producer));
    }
    let (spans, producer) = match (larger, found) {
        (Some(larger), _) => larger,
        (None, Ok(found)) => {
            out = k.clone();
            let producer = nest.shrunk(&mut out, shape, &spans, &found);
            (spans, producer)
        }
        // Nothing shrinks, so nothing needs to be understood.
        (None, Err(_)) if spans.iter().zip(shape).all(|(s, n)| is_whole(s, *n)) => {
            let same = Producer { nest: vec![writer[top].clone()], unconditional: true };
            (spans, same)
        }
        (None, Err(why)) => return Err(refuse(Reason::NotPlain(why))),
    };

    let old_nest = writer[top].clone();
    out.body = rewrite(std::mem::take(&mut out.body), &mut |s| {
        if s == old_nest || s == Stmt::Alloc(stage) { vec![] } else { vec![s] }
    });
    let moved_before =
        target.body.iter().take(first_use).filter(|s| **s == old_nest || **s == Stmt::Alloc(stage)).count();
    let rebase = |idx: Vec<Expr>| -> (BufferId, Vec<Expr>) {
        (stage, idx.into_iter().zip(&spans).map(|(i, s)| simplify(&(i - s.base.clone()), &ranges)).collect())
    };
    super::nest::replace_loop(&mut out, at, |mut l| {
        l.body = redirect_loads(l.body, stage, &rebase);
        vec![Stmt::For(l)]
    });
    let buffer = out.buffer_mut(stage);
    buffer.shape = spans.iter().map(|s| s.extent).collect();
    buffer.strides = row_major(&buffer.shape);
    insert(&mut out, at, first_use - moved_before, producer.nest, stage);
    tidy(&mut out);
    Ok(out)
}

fn is_whole(s: &Span, size: i64) -> bool {
    s.base == Expr::Int(0) && s.extent == size
}

/// A stage's own nest.
struct Nest<'a> {
    frames: Vec<&'a For>,
    conditions: Vec<&'a Expr>,
    leaf: &'a Stmt,
    indices: &'a [Expr],
    value: &'a Expr,
}

/// The nest over a box.
struct Producer {
    nest: Vec<Stmt>,
    /// Whether no condition had to be added to keep it inside of the stage.
    unconditional: bool,
}

impl Nest<'_> {
    /// The nest over the box `spans`: each dimension that shrinks (or grows) gets one loop over its part of it.
    fn shrunk(&self, k: &mut Kernel, shape: &[i64], spans: &[Span], found: &[Vec<Digit>]) -> Producer {
        let mut ranges = all_ranges(k);
        let mut loops: Vec<For> = self.frames.iter().map(|l| For { body: vec![], ..(*l).clone() }).collect();
        let mut indices = self.indices.to_vec();
        let mut renamed: Vec<(VarId, Expr)> = vec![];
        let mut conditions: Vec<Expr> = vec![];
        for (d, span) in spans.iter().enumerate().filter(|(d, s)| !is_whole(s, shape[*d])) {
            let Some(first) = found[d].first().map(|digit| digit.var) else { continue };
            let alone = found[d].len() == 1;
            let name = k.var(first).name.clone();
            let var = if alone { first } else { k.fresh_var(&name) };
            let at = loops.iter().position(|l| l.var == first).unwrap_or(0);
            loops[at].var = var;
            loops[at].extent = span.extent;
            loops.retain(|l| alone || !found[d][1..].iter().any(|digit| digit.var == l.var));
            ranges.insert(var, 0, span.extent - 1);
            let element = span.base.clone() + var;
            conditions.extend(in_bounds(&element, shape[d], &ranges));
            renamed.extend(found[d].iter().map(|digit| (digit.var, digit.of(element.clone()))));
            indices[d] = var.into();
        }
        let replace = |e: &Expr| {
            e.clone().map(&mut |e| match e {
                Expr::Var(v) => renamed.iter().find(|(u, _)| *u == v).map_or(Expr::Var(v), |(_, by)| by.clone()),
                other => other,
            })
        };
        let value = simplify(&replace(self.value), &ranges);
        let kept: Vec<Expr> = self.conditions.iter().map(|c| replace(c)).collect();
        let mut facts = Facts::new(ranges);
        kept.iter().for_each(|c| facts.assume(c));
        if loads_are_safe(k, &value, &facts) {
            conditions.clear();
        }
        let unconditional = conditions.is_empty() && kept.is_empty();
        let leaf = match self.leaf.clone() {
            Stmt::Reduce { buffer, op, init, over, .. } => Stmt::Reduce { buffer, indices, op, init, value, over },
            Stmt::Store { buffer, .. } => Stmt::Store { buffer, indices, value },
            other => other,
        };
        let body = match Expr::all(kept.into_iter().chain(conditions)) {
            Some(cond) => vec![Stmt::if_(cond, vec![leaf])],
            None => vec![leaf],
        };
        let nest = loops.into_iter().rev().fold(body, |body, l| vec![Stmt::For(For { body, ..l })]);
        Producer { nest, unconditional }
    }
}

/// A buffer that the stage's nest reads and that a later statement of the same block writes: moving the stage past it
/// would change what it reads.
pub(super) fn overwritten_later(k: &Kernel, writer: &Path, own: &[VarId]) -> Option<BufferId> {
    let top = top_of_nest(writer, own);
    let block = match top.checked_sub(1).map(|i| writer[i]) {
        Some(Stmt::For(l)) => &l.body,
        Some(_) => return None,
        None => &k.body,
    };
    let at = block.iter().position(|s| std::ptr::eq(s, writer[top]))?;
    let mut read: Vec<BufferId> = vec![];
    let stage = writer.last()?.written();
    writer[top].walk(&mut |s| s.accesses(&mut |a| read.extend((!a.writes).then_some(a.buffer))));
    read.into_iter().find(|b| Some(*b) != stage && block[at + 1..].iter().any(|s| s.writes(*b)))
}
