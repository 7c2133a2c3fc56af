//! Makes a kernel of the most units into one of as many as a launch says.
//!
//! ```text
//! param x: f32[64, 49] ..                            size n most 64 of x, y
//! for tile in 0..392 grid.x {                        for tile in 0..392 grid.x first 49 of 8 times 1 {
//!   .. x[(tile * 8 + t) / 49, ..]            ->        .. x[min((tile * 8 + t) / 49, n * 1 - 1), ..]
//!   y[(tile * 8 + t) / 49, ..] = ..                    if (tile * 8 + t) / 49 < n * 1 { y[..] = .. }
//! ```
//! A *unit* is an image, a row: what the first dimension of a tensor holds as many of as the launch says. Units do not depend
//! on each other, so what the kernel computes of the first `n` is right whatever the others hold; they need not even be there.
//! Three things follow, and the kernel is otherwise as it was verified:
//!
//! * A store beyond the last unit does not happen: it gets a condition.
//! * A read beyond it reads something that is there: its index is at most the last one's. What it reads decides about outputs that are not
//!   stored only. The copy engine (TMA) needs neither: its map of the tensor says how large that is.
//! * Blocks, parallel iterations and tiles all of whose stores are beyond the last unit do not run: of a loop at the top the
//!   first iterations run ([`Size::first`]), and the rounds of blocks that stay get a condition, the same for all their threads. Where
//!   one digit of the number of a round's tile says which units are in it, only tiles that have some are numbered, in the order of a
//!   kernel of one size: blocks share them evenly, and rounds behind the last one do not run.
//!
//! Where one of these decides the others, they are left out: an iteration that runs has a unit, and if its tile has rows of one unit only,
//! all of them are there.
//!
//! Launches that write a workspace compute all of it, for all units: what of it the outputs depend on is not known here.

mod access;
mod rounds;
mod rows;

use super::pass::{LowerError, LowerOptions, Units};
use crate::analysis::range::{Ranges, bounds};
use crate::ir::{BufferId, Expr, First, For, Kernel, LoopKind, Size, Stmt, VarId, visit};
use rows::{Fact, Narrow, Outer, Written, first_of};
use std::collections::{BTreeMap, BTreeSet};

/// The pass. Where vectors lie across units, of which some may not be there, their lanes run one by one.
pub fn run(kernel: Kernel, options: &LowerOptions) -> Result<Kernel, LowerError> {
    let Some(units) = &options.units else { return Ok(kernel) };
    match narrowed(kernel.clone(), units) {
        Err(refused @ LowerError::NotNarrow { .. }) => match one_by_one(kernel, units) {
            Some(kernel) => narrowed(kernel, units),
            None => Err(refused),
        },
        done => done,
    }
}

/// The pass, where all vectors can stay.
pub(super) fn narrowed(mut kernel: Kernel, units: &Units) -> Result<Kernel, LowerError> {
    let varying: Vec<BufferId> = units.params.iter().map(|i| kernel.params[*i]).collect();
    for b in &varying {
        let buffer = kernel.buffer(*b);
        if buffer.shape[kernel.units_dim(*b)] % units.most != 0 {
            let why = format!("it has the shape {:?} there, which does not begin with the units", buffer.shape);
            return Err(LowerError::NotNarrow { buffer: buffer.name.clone(), why });
        }
    }
    let var = kernel.fresh_var("units");
    kernel.size = Some(Size { var, most: units.most, varying, first: vec![] });
    let body = std::mem::take(&mut kernel.body);
    let mut ranges = Ranges::of_kernel(&kernel);
    visit::loops(&body).into_iter().for_each(|l| ranges.insert_loop(l));
    let lets = lets(&body, &mut ranges);
    let mut narrow = Narrow { lets, kernel, ranges, vectorized: BTreeSet::new() };
    let vectorized = visit::loops(&body).into_iter().filter(|l| l.kind == LoopKind::Vectorized);
    narrow.vectorized.extend(vectorized.map(|l| l.var));
    let body = body.into_iter().map(|s| narrow.top(s)).collect::<Result<_, _>>()?;
    narrow.kernel.body = body;
    Ok(narrow.kernel)
}

/// The kernel with unrolled loops in the place of vectorized ones over rows of tensors that vary, if there are such. Registers have no
/// addresses, so that their lanes have to be known.
fn one_by_one(mut kernel: Kernel, units: &Units) -> Option<Kernel> {
    let varying: BTreeSet<BufferId> = units.params.iter().map(|i| kernel.params[*i]).collect();
    let lets = lets(&kernel.body, &mut Ranges::of_kernel(&kernel));
    let mut across: BTreeSet<VarId> = BTreeSet::new();
    kernel.body.iter().for_each(|s| {
        s.walk(&mut |s| {
            s.accesses(&mut |a| {
                if varying.contains(&a.buffer) {
                    across.extend(reached(&a.index[kernel.units_dim(a.buffer)], &lets));
                }
            });
        });
    });
    let is_across = |l: &&For| l.kind == LoopKind::Vectorized && across.contains(&l.var);
    let across: BTreeSet<VarId> = visit::loops(&kernel.body).into_iter().filter(is_across).map(|l| l.var).collect();
    let body = std::mem::take(&mut kernel.body);
    kernel.body = visit::rewrite(body, &mut |s| match s {
        Stmt::For(l) if across.contains(&l.var) => vec![Stmt::For(For { kind: LoopKind::Unrolled, ..l })],
        other => vec![other],
    });
    (!across.is_empty()).then_some(kernel)
}

/// The variables that an expression depends on, by way of `let`s, too.
pub(super) fn reached(e: &Expr, lets: &BTreeMap<VarId, Expr>) -> BTreeSet<VarId> {
    let of = |v: VarId| lets.get(&v).map_or(BTreeSet::from([v]), |value| reached(value, lets));
    e.variables().into_iter().flat_map(of).collect()
}

/// The values of all `let`s that read no memory, and in `ranges` what they may be.
fn lets(body: &[Stmt], ranges: &mut Ranges) -> BTreeMap<VarId, Expr> {
    let mut all = BTreeMap::new();
    body.iter().for_each(|s| {
        s.walk(&mut |s| {
            let Stmt::Let { var, value } = s else { return };
            if let Some((least, most)) = bounds(value, ranges) {
                ranges.insert(*var, least, most);
            }
            if !value.reads_memory() {
                all.insert(*var, value.clone());
            }
        });
    });
    all
}

impl Narrow {
    /// A statement at the top: a launch, a phase.
    fn top(&mut self, s: Stmt) -> Result<Stmt, LowerError> {
        let Some(written) = self.written(&s, &BTreeSet::new()) else { return self.stmt(s, &[]) };
        let is_launch = matches!(&s, Stmt::For(l) if matches!(l.kind, LoopKind::Grid(_) | LoopKind::Thread(_) | LoopKind::Cluster(_)));
        let guards = if is_launch { self.rounds(&s) } else { vec![] };
        let mut facts = vec![];
        let mut of_rounds: Vec<(VarId, First)> = guards.iter().flat_map(|guard| guard.first.iter().copied()).collect();
        // Of several rounds of one block, one may have more than another.
        let all = of_rounds.clone();
        of_rounds.retain(|(var, first)| all.iter().all(|(other, of)| other != var || of == first));
        of_rounds.sort_by_key(|(var, _)| *var);
        of_rounds.dedup();
        if !of_rounds.is_empty() {
            self.size_mut().first.extend(of_rounds);
        } else if let Some((var, first, fact)) = self.first(&s, &written) {
            self.size_mut().first.push((var, first));
            facts.push(fact);
        }
        let s = match is_launch {
            true => self.guarded(s, &guards),
            false if facts.is_empty() => self.units_apart(s, &BTreeSet::new()),
            false => s,
        };
        self.stmt(s, &facts)
    }

    /// Of which loop over blocks or parallel iterations only the first need to run, and what is known in them then.
    fn first(&self, s: &Stmt, written: &[Written]) -> Option<(VarId, First, Fact)> {
        let all = visit::loops(std::slice::from_ref(s)).into_iter();
        let all: Vec<&For> = all.filter(|l| matches!(l.kind, LoopKind::Grid(_) | LoopKind::Parallel)).collect();
        let alone = |l: &&&For| l.kind == LoopKind::Parallel || all.iter().filter(|o| o.kind == l.kind).count() == 1;
        let of = |l: &&For| {
            let fact = self.least_of(written, &Outer { rising: BTreeSet::from([l.var]), fixed: BTreeSet::new() })?;
            let first = first_of(&fact.row, l.var, fact.rows)?;
            (first.iterations(1) < l.extent).then_some((l.var, first, l.extent, fact))
        };
        let best =
            all.iter().filter(alone).filter_map(of).max_by_key(|(_, first, extent, _)| extent / first.iterations(1));
        best.map(|(var, first, _, fact)| (var, first, fact))
    }

    /// Gives the bodies of serial loops over units a condition, where what they leave to later iterations is theirs alone.
    fn units_apart(&self, s: Stmt, outer: &BTreeSet<VarId>) -> Stmt {
        let Stmt::For(l) = s else { return s };
        let guard = || {
            let written = self.written(&Stmt::For(l.clone()), &BTreeSet::new())?;
            let outer = Outer { rising: BTreeSet::from([l.var]), fixed: outer.clone() };
            let fact = self.least_of(&written, &outer)?;
            (fact.row.mentions(l.var) && l.kind == LoopKind::Serial && !self.leaves_something(&l)).then_some(fact)
        };
        match guard() {
            Some(fact) => {
                let cond = fact.row.lt(self.limit(fact.rows));
                Stmt::For(For { body: vec![Stmt::if_(cond, l.body)], ..l })
            }
            None => {
                let mut outer = outer.clone();
                outer.insert(l.var);
                let body = l.body.into_iter().map(|s| self.units_apart(s, &outer)).collect();
                Stmt::For(For { body, ..l })
            }
        }
    }

    /// Whether a loop writes memory, other than tensors that vary, that is there before or behind an iteration.
    fn leaves_something(&self, l: &For) -> bool {
        let (inside, mut found) = (visit::allocated(&l.body), false);
        l.body.iter().for_each(|s| {
            s.walk(&mut |s| {
                s.accesses(&mut |a| found |= a.writes && !inside.contains(&a.buffer) && self.rows(a.buffer).is_none());
            });
        });
        found
    }
}
