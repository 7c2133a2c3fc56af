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
//!   one digit of the number of a round's tile says which units are in it, only tiles that have some are numbered, so that blocks share
//!   them evenly.
//!
//! Where one of these decides the others, they are left out: an iteration that runs has a unit, and if its tile has rows of one unit only,
//! all of them are there.
//!
//! Launches that write a workspace compute all of it, for all units: what of it the outputs depend on is not known here.

use super::pass::{LowerError, LowerOptions};
use crate::analysis::range::{Ranges, bounds};
use crate::analysis::simplify::simplify;
use crate::analysis::verify::keeps_protocols;
use crate::integer::gcd;
use crate::ir::{
    BinOp, BufferId, Expr, First, For, Gpu, Kernel, LoopKind, MbarrierOp, Scope, Size, Stmt, Tile, VarId, visit,
};
use std::collections::{BTreeMap, BTreeSet};

/// The pass.
pub fn run(mut kernel: Kernel, options: &LowerOptions) -> Result<Kernel, LowerError> {
    let Some(units) = &options.units else { return Ok(kernel) };
    let varying: Vec<BufferId> = units.params.iter().map(|i| kernel.params[*i]).collect();
    for b in &varying {
        let buffer = kernel.buffer(*b);
        if buffer.shape[0] % units.most != 0 {
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

/// The values of all `let`s that read no memory, and in `ranges` what they may be.
fn lets(body: &[Stmt], ranges: &mut Ranges) -> BTreeMap<VarId, Expr> {
    let mut all = BTreeMap::new();
    body.iter().for_each(|s| {
        s.walk(&mut |s| {
            let Stmt::Let { var, value } = s else { return };
            let mut reads = false;
            value.walk(&mut |e| reads |= matches!(e, Expr::Load(..)));
            if let Some((least, most)) = bounds(value, ranges) {
                ranges.insert(*var, least, most);
            }
            if !reads {
                all.insert(*var, value.clone());
            }
        });
    });
    all
}

/// That `row < n * rows` for the number `n` of units.
#[derive(Clone, PartialEq, Debug)]
struct Fact {
    row: Expr,
    rows: i64,
}

impl Fact {
    /// The same without a division: `row / 7 < n * rows` is `row < n * 7 * rows`.
    fn undivided(mut self) -> Fact {
        while let Expr::Binary(BinOp::Div, row, by) = &self.row
            && let Some(by @ 1..) = by.as_int()
        {
            self = Fact { row: (**row).clone(), rows: self.rows.saturating_mul(by) };
        }
        self
    }
}

struct Narrow {
    kernel: Kernel,
    lets: BTreeMap<VarId, Expr>,
    /// Of all loops, and of the number of units.
    ranges: Ranges,
    vectorized: BTreeSet<VarId>,
}

/// A place where a statement writes a tensor that varies.
struct Written {
    row: Expr,
    /// Rows of a unit of the tensor.
    rows: i64,
    /// What the conditions around it say of variables.
    ranges: Ranges,
}

impl Narrow {
    fn refuse<T>(&self, b: BufferId, why: impl Into<String>) -> Result<T, LowerError> {
        Err(LowerError::NotNarrow { buffer: self.kernel.buffer(b).name.clone(), why: why.into() })
    }

    /// The expression in terms of loops, and of what is to be kept.
    fn inline(&self, e: Expr, keep: &BTreeSet<VarId>) -> Expr {
        e.map(&mut |e| match e {
            Expr::Var(v) if !keep.contains(&v) => match self.lets.get(&v) {
                Some(value) => self.inline(value.clone(), keep),
                None => e,
            },
            other => other,
        })
    }

    /// The same in terms of loops only, in normal form.
    fn plain(&self, e: &Expr) -> Expr {
        simplify(&self.inline(e.clone(), &BTreeSet::new()), &self.ranges)
    }

    /// Whether an expression depends on a variable, by way of `let`s or not.
    fn depends(&self, e: &Expr, var: VarId) -> bool {
        self.inline(e.clone(), &BTreeSet::new()).mentions(var)
    }

    fn rows(&self, b: BufferId) -> Option<i64> {
        self.kernel.rows_a_unit(b)
    }

    /// The number of rows that there are.
    fn limit(&self, rows: i64) -> Expr {
        let units = self.kernel.size.as_ref().expect("the pass has made it").var;
        Expr::Var(units) * rows
    }

    /// What a statement at the top writes of tensors that vary; none if it writes other memory that the caller or other launches see,
    /// or nothing.
    fn written(&self, s: &Stmt, keep: &BTreeSet<VarId>) -> Option<Vec<Written>> {
        let (mut all, mut inside) = (vec![], BTreeSet::new());
        s.walk(&mut |s| {
            if let Stmt::Alloc(b) = s {
                inside.insert(*b);
            }
        });
        let is_other = |b: &BufferId| self.kernel.buffer(*b).scope == Scope::Global && !inside.contains(b);
        let only = self.collect_written(s, (&self.ranges, keep), &is_other, &mut all);
        (only && !all.is_empty()).then_some(all)
    }

    /// Adds what a statement writes of tensors that vary; false if it writes other memory.
    fn collect_written(
        &self,
        s: &Stmt,
        (ranges, keep): (&Ranges, &BTreeSet<VarId>),
        is_other: &dyn Fn(&BufferId) -> bool,
        all: &mut Vec<Written>,
    ) -> bool {
        let mut each = |block: &[Stmt], ranges: &Ranges| {
            block.iter().all(|s| self.collect_written(s, (ranges, keep), is_other, all))
        };
        match s {
            Stmt::For(l) => each(&l.body, ranges),
            Stmt::If { cond, then, otherwise } => {
                each(then, &self.assuming(ranges, cond, true)) && each(otherwise, &self.assuming(ranges, cond, false))
            }
            _ => {
                let mut only = true;
                s.accesses(&mut |a| match self.rows(a.buffer) {
                    _ if !a.writes => {}
                    Some(rows) => {
                        let row = simplify(&self.inline(a.index[0].clone(), keep), ranges);
                        all.push(Written { row, rows, ranges: ranges.clone() });
                    }
                    None => only &= !is_other(&a.buffer),
                });
                only
            }
        }
    }

    /// What is known where a condition holds, or does not: of the variables in it, and of what they are made of.
    fn assuming(&self, ranges: &Ranges, cond: &Expr, truth: bool) -> Ranges {
        let mut ranges = ranges.clone();
        ranges.assume(cond, truth);
        ranges.assume(&self.inline(cond.clone(), &BTreeSet::new()), truth);
        ranges
    }

    /// A statement at the top: a launch, a phase.
    fn top(&mut self, s: Stmt) -> Result<Stmt, LowerError> {
        let Some(written) = self.written(&s, &BTreeSet::new()) else { return self.stmt(s, &[]) };
        let is_launch = matches!(&s, Stmt::For(l) if matches!(l.kind, LoopKind::Grid(_) | LoopKind::Thread(_) | LoopKind::Cluster(_)));
        let guards = if is_launch { self.rounds(&s) } else { vec![] };
        let blocks = guards.iter().find_map(|guard| guard.blocks);
        let mut facts = vec![];
        match (blocks, self.first(&s, &written)) {
            (Some((var, first)), _) => self.size_mut().first.push((var, first)),
            (None, Some((var, first, fact))) => {
                self.size_mut().first.push((var, first));
                facts.push(fact);
            }
            (None, None) => {}
        }
        let s = match is_launch {
            true => self.guarded(s, &guards),
            false if facts.is_empty() => self.units_apart(s, &BTreeSet::new()),
            false => s,
        };
        self.stmt(s, &facts)
    }

    fn size_mut(&mut self) -> &mut Size {
        self.kernel.size.as_mut().expect("the pass has made it")
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

    /// What holds of the least row that is written where only what is `outer` is decided, if any row that is written exists; none
    /// if that cannot be said in one.
    fn least_of(&self, written: &[Written], outer: &Outer) -> Option<Fact> {
        let mut facts = written.iter().map(|w| self.least(w, outer));
        let mut least = facts.next()??;
        for other in facts {
            let other = other?;
            let more = simplify(&(other.row.clone() - least.row.clone()), &self.ranges).as_int()?;
            if other.rows != least.rows {
                return None;
            }
            if more < 0 {
                least = other;
            }
        }
        // A condition on less holds as well.
        if let Expr::Binary(BinOp::Add, row, more) = &least.row
            && more.as_int().is_some_and(|more| more > 0)
        {
            least.row = (**row).clone();
        }
        Some(least)
    }

    /// What holds of the least row that is written where only what is `outer` is decided, if anything is written.
    fn least(&self, of: &Written, outer: &Outer) -> Option<Fact> {
        let row = simplify(&least(&of.row, outer, &of.ranges)?, &self.ranges);
        Some(Fact { row, rows: of.rows })
    }

    /// The conditions of what blocks that stay do in a round, each with what is to be added to it. A condition that several roles of
    /// a block have in common, and of whose rounds one role's stores are all behind the last unit, is false in all of them.
    fn rounds(&mut self, launch: &Stmt) -> Vec<Guard> {
        let mut found: Vec<Round> = vec![];
        self.collect(launch, &mut vec![], &self.ranges, &mut found);
        let mut out = vec![];
        for (i, round) in found.iter().enumerate() {
            if found[..i].iter().any(|other| other.key == round.key) {
                continue;
            }
            let same: Vec<&Round> = found.iter().filter(|other| other.key == round.key).collect();
            // Rounds of which only the tile matters may be left out one by one, others from the last on: roles take turns, say.
            let is_alone = same.iter().all(|r| !r.body.iter().any(|s| names(s, r.round)));
            let mut facts = vec![];
            for r in &same {
                let mut written = vec![];
                r.body.iter().for_each(|s| {
                    let _ = self.collect_written(s, (&r.ranges, &BTreeSet::from([r.item])), &|_| false, &mut written);
                });
                let (of, none) = (BTreeSet::from([r.item]), BTreeSet::new());
                let exact = Outer { rising: none.clone(), fixed: of.clone() };
                let fact = self.least_of(&written, &exact);
                let digit = fact.as_ref().and_then(|fact| digit_of(&fact.row, r));
                let outer = if is_alone || digit.is_some() { exact } else { Outer { rising: of, fixed: none } };
                if !written.is_empty() {
                    facts.push(self.least_of(&written, &outer).map(|fact| (fact, *r, digit)));
                }
            }
            let facts = facts.into_iter().collect::<Option<Vec<(Fact, &Round, Option<Digit>)>>>();
            let Some((Some((fact, of, digit)), facts)) = facts.as_ref().map(|facts| (facts.first(), facts)) else {
                continue;
            };
            // The same in the words of another role.
            let to = |fact: &Fact, from: &Round, to: &Round| Fact {
                row: fact.row.clone().subst(from.item, &Expr::from(to.item)),
                ..*fact
            };
            if !fact.row.mentions(of.item) || facts.iter().any(|(other, by, _)| to(other, by, of) != *fact) {
                continue;
            }
            let mut guards = vec![];
            for r in &same {
                let packed = digit.map(|digit| (digit, self.kernel.fresh_var("packed")));
                let blocks = digit.map(|digit| (r.block, digit.first(fact.rows)));
                guards.push(Guard {
                    cond: r.cond.clone(),
                    item: r.item,
                    items: r.items,
                    fact: to(fact, of, r),
                    packed,
                    blocks,
                });
            }
            // What threads wait for is in these rounds or made before them; else the last of them are left out to see.
            let inside: usize = same.iter().map(|r| waits(r.body)).sum();
            if inside == waits(std::slice::from_ref(launch))
                || self.all_waits_end(self.guarded(launch.clone(), &guards))
            {
                out.extend(guards);
            }
        }
        out
    }

    /// Whether nothing in a launch waits for ever, of few units and of many.
    fn all_waits_end(&self, launch: Stmt) -> bool {
        let Some(Size { var, most, .. }) = self.kernel.size else { return false };
        [1, 2, most / 3, most / 2, most - 1].into_iter().filter(|units| (1..=most).contains(units)).all(|units| {
            let body = vec![launch.clone().subst(var, &Expr::Int(units))];
            keeps_protocols(&Kernel { size: None, body, ..self.kernel.clone() })
        })
    }

    /// The rounds of a launch.
    fn collect<'s>(&self, s: &'s Stmt, loops: &mut Vec<&'s For>, ranges: &Ranges, found: &mut Vec<Round<'s>>) {
        match s {
            Stmt::For(l) => {
                loops.push(l);
                l.body.iter().for_each(|s| self.collect(s, loops, ranges, found));
                loops.pop();
            }
            Stmt::If { cond, then, otherwise } => {
                let holds = self.assuming(ranges, cond, true);
                if let Some(round) = self.round(cond, then, loops, &holds).filter(|_| otherwise.is_empty()) {
                    found.push(round);
                    return;
                }
                let not = self.assuming(ranges, cond, false);
                then.iter().for_each(|s| self.collect(s, loops, &holds, found));
                otherwise.iter().for_each(|s| self.collect(s, loops, &not, found));
            }
            _ => {}
        }
    }

    /// A condition on a number that follows from the block and a serial loop as that of a round.
    fn round<'s>(&self, cond: &Expr, body: &'s [Stmt], loops: &[&For], ranges: &Ranges) -> Option<Round<'s>> {
        let Expr::Binary(BinOp::Lt, item, items) = cond else { return None };
        let (Expr::Var(item), Some(items)) = (&**item, items.as_int()) else { return None };
        let inlined = self.inline(self.lets.get(item)?.clone(), &BTreeSet::new());
        let free = variables(&inlined);
        let mentioned: Vec<&&For> = loops.iter().filter(|l| free.contains(&l.var)).collect();
        let (blocks, others): (Vec<&&&For>, Vec<&&&For>) =
            mentioned.iter().partition(|l| matches!(l.kind, LoopKind::Grid(_)));
        let ([block], [serial]) = (&blocks[..], &others[..]) else { return None };
        if serial.kind != LoopKind::Serial || mentioned.len() != free.len() {
            return None;
        }
        // One name for the loop of all roles.
        let key = inlined.lt(items).subst(serial.var, &Expr::Int(-serial.extent));
        let (item, block, round, ranges) = (*item, block.var, serial.var, ranges.clone());
        Some(Round { key, cond: cond.clone(), item, items, block, round, ranges, body })
    }

    /// Adds to conditions of rounds, and numbers their items anew where that is how they are guarded.
    fn guarded(&self, s: Stmt, guards: &[Guard]) -> Stmt {
        let mut all = visit::rewrite(vec![s], &mut |s| match s {
            Stmt::If { cond, then, otherwise } => {
                let Some(guard) = guards.iter().find(|guard| guard.cond == cond) else {
                    return vec![Stmt::If { cond, then, otherwise }];
                };
                let exists = guard.fact.row.clone().lt(self.limit(guard.fact.rows));
                let cond = match guard.packed {
                    Some((digit, packed)) => {
                        let count = self.tiles(digit, guard.fact.rows) * digit.each;
                        Expr::from(packed).lt(count).and(exists)
                    }
                    None => cond.and(exists),
                };
                vec![Stmt::If { cond, then, otherwise }]
            }
            Stmt::Let { var, value } => match guards.iter().find(|guard| guard.item == var) {
                Some(Guard { packed: Some((digit, packed)), items, .. }) => {
                    let item = digit.unpack((*packed).into(), *items);
                    vec![Stmt::Let { var: *packed, value }, Stmt::Let { var, value: item }]
                }
                _ => vec![Stmt::Let { var, value }],
            },
            other => vec![other],
        });
        all.pop().expect("one statement stays one")
    }

    /// How many values of a digit have rows.
    fn tiles(&self, digit: Digit, rows: i64) -> Expr {
        match digit.tile {
            1 => self.limit(rows),
            tile => (self.limit(rows) + (tile - 1)).floor_div(tile),
        }
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
        let (mut inside, mut found) = (BTreeSet::new(), false);
        l.body.iter().for_each(|s| {
            s.walk(&mut |s| {
                if let Stmt::Alloc(b) = s {
                    inside.insert(*b);
                }
                s.accesses(&mut |a| found |= a.writes && !inside.contains(&a.buffer) && self.rows(a.buffer).is_none());
            });
        });
        found
    }

    /// Whether what is known says that the rows `row..row + width` exist.
    fn exists(&self, row: &Expr, width: i64, rows: i64, facts: &[Fact]) -> bool {
        let last = self.plain(&(row.clone() + (width - 1)));
        let wanted = Fact { row: last, rows }.undivided();
        facts.iter().any(|fact| {
            let fact = fact.clone().undivided();
            // Where both count in the same steps, being below means being below by a step.
            let step = gcd(fact.rows, divisor(&fact.row));
            let beyond = bounds(&simplify(&(wanted.row.clone() - fact.row.clone()), &self.ranges), &self.ranges);
            fact.rows == wanted.rows && beyond.is_some_and(|(_, most)| most < step)
        })
    }

    /// The row and the number of rows that an index along the first dimension names.
    fn span(&self, b: BufferId, index: &Expr) -> Result<(Expr, i64), LowerError> {
        match index {
            Expr::Ramp { base, stride: 1, lanes } => Ok(((**base).clone(), i64::from(*lanes))),
            Expr::Ramp { .. } => self.refuse(b, "a vector lies across its units"),
            Expr::Broadcast(row, _) => Ok(((**row).clone(), 1)),
            row => Ok((row.clone(), 1)),
        }
    }

    /// Whether an access must be made sure of: nothing where its rows exist, else whether it may be.
    fn doubtful(&self, b: BufferId, row: &Expr, width: i64, facts: &[Fact]) -> Result<bool, LowerError> {
        let rows = self.rows(b).expect("it varies");
        let lanes = self.vectorized.iter().filter(|v| self.depends(row, **v)).collect::<Vec<_>>();
        let reach: i64 = lanes.iter().map(|v| self.ranges.get(**v).map_or(1, |(_, most)| most + 1)).product();
        if self.exists(row, width, rows, facts) {
            return Ok(false);
        }
        let base = lanes.iter().fold(self.plain(row), |row, v| row.subst(**v, &Expr::Int(0)));
        let whole = width * reach;
        if whole > 1 && (rows % whole != 0 || divisor(&simplify(&base, &self.ranges)) % whole != 0) {
            return self.refuse(b, format!("{whole} of its rows are taken together, of {rows} a unit"));
        }
        Ok(true)
    }

    /// An index that stays within the units that there are.
    fn clamped(&self, b: BufferId, index: &Expr, width: i64, facts: &[Fact]) -> Result<Expr, LowerError> {
        let rows = self.rows(b).expect("it varies");
        let (row, lanes) = self.span(b, index)?;
        if !self.doubtful(b, &row, lanes * width, facts)? {
            return Ok(index.clone());
        }
        let row = row.min(self.limit(rows) - lanes * width);
        Ok(match index {
            Expr::Ramp { stride, lanes, .. } => Expr::Ramp { base: Box::new(row), stride: *stride, lanes: *lanes },
            Expr::Broadcast(_, lanes) => Expr::Broadcast(Box::new(row), *lanes),
            _ => row,
        })
    }

    /// Makes sure of the loads in an expression.
    fn expr(&self, e: Expr, facts: &[Fact]) -> Result<Expr, LowerError> {
        let mut fault = None;
        let e = e.map(&mut |e| match e {
            Expr::Load(b, mut index) if self.rows(b).is_some() => {
                match self.clamped(b, &index[0], 1, facts) {
                    Ok(row) => index[0] = row,
                    Err(error) => fault = Some(error),
                }
                Expr::Load(b, index)
            }
            other => other,
        });
        fault.map_or(Ok(e), Err)
    }

    fn block(&mut self, block: Vec<Stmt>, facts: &[Fact]) -> Result<Vec<Stmt>, LowerError> {
        block.into_iter().map(|s| self.stmt(s, facts)).collect()
    }

    /// Makes sure of all accesses of a statement, under what is known.
    fn stmt(&mut self, s: Stmt, facts: &[Fact]) -> Result<Stmt, LowerError> {
        let mut fault = None;
        let s = match s {
            Stmt::For(l) => return Ok(Stmt::For(For { body: self.block(l.body, facts)?, ..l })),
            Stmt::If { cond, then, otherwise } => {
                let cond = self.expr(cond, facts)?;
                let mut known = facts.to_vec();
                self.assume(&cond, &mut known);
                let then = self.block(then, &known)?;
                return Ok(Stmt::If { cond, then, otherwise: self.block(otherwise, facts)? });
            }
            other => other.map_exprs(&mut |e| match self.expr(e.clone(), facts) {
                Ok(e) => e,
                Err(error) => {
                    fault = Some(error);
                    e
                }
            }),
        };
        if let Some(error) = fault {
            return Err(error);
        }
        match s {
            Stmt::Store { buffer, ref indices, .. } | Stmt::Reduce { buffer, ref indices, .. } => {
                let Some(rows) = self.rows(buffer) else { return Ok(s) };
                let (row, width) = self.span(buffer, &indices[0])?;
                if !self.doubtful(buffer, &row, width, facts)? {
                    return Ok(s);
                }
                // Of rows that are stored together the first exists if all do.
                let lanes = self.vectorized.iter().fold(row, |row, v| row.subst(*v, &Expr::Int(0)));
                Ok(Stmt::if_(lanes.lt(self.limit(rows)), vec![s]))
            }
            Stmt::Transpose { ref dst, ref src } => {
                self.must_exist(dst, facts)?;
                self.must_exist(src, facts)?;
                Ok(s)
            }
            Stmt::Gpu(Gpu::CopyAsync { dst, mut src, guard }) => {
                if self.rows(src.buffer).is_some() {
                    src.origin[0] = self.clamped(src.buffer, &src.origin[0], src.extents[0], facts)?;
                }
                Ok(Stmt::Gpu(Gpu::CopyAsync { dst, src, guard }))
            }
            Stmt::Gpu(Gpu::TensorLoad { .. } | Gpu::TensorStore { .. }) => Ok(s),
            Stmt::Gpu(ref gpu) => {
                gpu.all_tiles().into_iter().try_for_each(|tile| self.must_exist(tile, facts))?;
                Ok(s)
            }
            other => Ok(other),
        }
    }

    /// What a condition says of rows.
    fn assume(&self, cond: &Expr, facts: &mut Vec<Fact>) {
        let units = self.kernel.size.as_ref().map(|size| size.var);
        match cond {
            Expr::Binary(BinOp::And, a, b) => {
                self.assume(a, facts);
                self.assume(b, facts);
            }
            Expr::Binary(BinOp::Lt, row, limit) => {
                let rows = match &**limit {
                    Expr::Var(v) if Some(*v) == units => Some(1),
                    Expr::Binary(BinOp::Mul, v, rows) if units.is_some_and(|u| **v == Expr::Var(u)) => rows.as_int(),
                    _ => None,
                };
                let row = self.plain(row);
                facts.extend(rows.map(|rows| Fact { row, rows }));
            }
            _ => {}
        }
    }

    /// Refuses a tile of a tensor that varies whose rows may not all exist.
    fn must_exist(&self, tile: &Tile, facts: &[Fact]) -> Result<(), LowerError> {
        match self.rows(tile.buffer) {
            Some(rows) if !self.exists(&tile.origin[0], tile.extents[0], rows, facts) => {
                self.refuse(tile.buffer, format!("{} of its rows are taken together", tile.extents[0]))
            }
            _ => Ok(()),
        }
    }
}

/// What a role does in a round.
struct Round<'s> {
    /// The condition, with one name for the loop over rounds in all roles.
    key: Expr,
    cond: Expr,
    /// The number that decides the round's tile, and how many there are.
    item: VarId,
    items: i64,
    /// The loop over blocks.
    block: VarId,
    /// The loop over rounds.
    round: VarId,
    ranges: Ranges,
    body: &'s [Stmt],
}

/// Whether an expression in a statement names a variable.
fn names(s: &Stmt, var: VarId) -> bool {
    let mut found = false;
    s.exprs(&mut |e| found |= e.mentions(var));
    found
}

/// Statements that may wait for others, or that others may wait for.
fn waits(body: &[Stmt]) -> usize {
    let mut count = 0;
    body.iter().for_each(|s| {
        s.walk(&mut |s| {
            let Stmt::Gpu(gpu) = s else { return };
            let makes = matches!(gpu, Gpu::Mbarrier(_, MbarrierOp::Init(_)));
            count += usize::from(!makes && (gpu.slot().is_some() || matches!(gpu, Gpu::NamedBarrier { .. })));
        });
    });
    count
}

/// What keeps rounds from running that have no unit.
struct Guard {
    /// The condition that they had.
    cond: Expr,
    item: VarId,
    items: i64,
    /// What holds in those that run.
    fact: Fact,
    /// Present if only items that have units are numbered: the digit of an item that says so, and the new number.
    packed: Option<(Digit, VarId)>,
    /// How many blocks have such an item, then.
    blocks: Option<(VarId, First)>,
}

/// What of an item's number decides about its rows, which begin at `tile` times that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Digit {
    tile: i64,
    /// Items of each of its values.
    each: i64,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// A digit: `item / below % extent`.
    Digit { below: i64, extent: i64 },
    /// Strips of so many rows of tiles, which are numbered column by column: `item / (group * each) * group + item % group`.
    Strips { group: i64 },
}

impl Digit {
    /// The item with the number `packed` where those of the first rows of tiles come first; behind the last of them none, but small all
    /// the same. Numbers that are known divide faster than how many tiles there are.
    fn unpack(self, packed: Expr, items: i64) -> Expr {
        let (value, rest) = (packed.clone().floor_div(self.each), packed.clone().floor_mod(self.each));
        let item = match self.place {
            Place::Digit { below, extent } if below * extent == items => return packed,
            Place::Digit { below, extent } => {
                rest.clone().floor_div(below) * (below * extent) + value * below + rest.floor_mod(below)
            }
            Place::Strips { group } => {
                value.clone().floor_div(group) * (group * self.each) + rest * group + value.floor_mod(group)
            }
        };
        item.min(items - 1)
    }

    /// How many items have rows.
    fn first(self, rows: i64) -> First {
        First { per: rows, of: self.tile, times: self.each }
    }
}

/// What of a round's item a row is a multiple of.
fn digit_of(row: &Expr, round: &Round<'_>) -> Option<Digit> {
    let (item, items) = (Expr::Var(round.item), round.items);
    // `x`, `x * by`.
    let times = |e: &Expr| match e {
        Expr::Binary(BinOp::Mul, x, by) => Some(((**x).clone(), by.as_int()?)),
        x => Some((x.clone(), 1)),
    };
    // `item op by`.
    let of_item = |op: BinOp, e: &Expr| match e {
        Expr::Binary(found, x, by) if *found == op && **x == item => by.as_int().filter(|by| *by > 0),
        _ => None,
    };
    if let Expr::Binary(BinOp::Add, a, b) = row {
        let ((strip, of_strip), (within, tile)) = (times(a)?, times(b)?);
        let (size, group) = (of_item(BinOp::Div, &strip)?, of_item(BinOp::Mod, &within)?);
        let fits = of_strip == group * tile && size % group == 0 && items % size == 0;
        return fits.then_some(Digit { tile, each: size / group, place: Place::Strips { group } });
    }
    let (digit, tile) = times(row)?;
    let (rest, extent) = match &digit {
        Expr::Binary(BinOp::Mod, rest, extent) => ((**rest).clone(), Some(extent.as_int()?)),
        rest => (rest.clone(), None),
    };
    let below = if rest == item { 1 } else { of_item(BinOp::Div, &rest)? };
    let extent = extent.unwrap_or(items / below);
    let whole = tile > 0 && extent > 0 && items % (below * extent) == 0;
    whole.then(|| Digit { tile, each: items / extent, place: Place::Digit { below, extent } })
}

/// The variables of an expression.
fn variables(e: &Expr) -> BTreeSet<VarId> {
    let mut all = BTreeSet::new();
    e.walk(&mut |e| {
        if let Expr::Var(v) = e {
            all.insert(*v);
        }
    });
    all
}

/// Variables that are decided where others may be anything.
struct Outer {
    /// Where they are larger, what is asked of them must not be less.
    rising: BTreeSet<VarId>,
    fixed: BTreeSet<VarId>,
}

/// The least value of an expression where variables that are not decided may have any value of theirs, or something less; none if it
/// is not known.
fn least(e: &Expr, outer: &Outer, ranges: &Ranges) -> Option<Expr> {
    let constant = || bounds(e, ranges).map(|(lo, _)| Expr::Int(lo));
    if variables(e).iter().all(|v| outer.fixed.contains(v)) {
        let mut reads = false;
        e.walk(&mut |e| reads |= matches!(e, Expr::Load(..)));
        return (!reads).then(|| e.clone());
    }
    match e {
        Expr::Var(v) if outer.rising.contains(v) => Some(e.clone()),
        Expr::Binary(op @ (BinOp::Add | BinOp::Min | BinOp::Max), a, b) => {
            Some(Expr::bin(*op, least(a, outer, ranges)?, least(b, outer, ranges)?))
        }
        Expr::Binary(BinOp::Sub, a, b) => {
            let (_, most) = bounds(b, ranges)?;
            Some(least(a, outer, ranges)? - most)
        }
        Expr::Binary(op @ (BinOp::Mul | BinOp::Div), a, b) if b.as_int().is_some_and(|n| n > 0) => {
            Some(Expr::bin(*op, least(a, outer, ranges)?, (**b).clone()))
        }
        Expr::Ramp { base, stride: 0.., .. } | Expr::Broadcast(base, _) => least(base, outer, ranges),
        _ => constant(),
    }
}

/// How many values of the variable, from 0 on, have `row < n * rows`, for each `n`; none if that is not of the form.
fn first_of(row: &Expr, var: VarId, rows: i64) -> Option<First> {
    // `row < limit`, with a limit of the same form, is solved from the outside to the inside.
    let (mut row, mut limit) = (row, First { per: rows, of: 1, times: 1 });
    loop {
        let (op, inner, by) = match row {
            Expr::Var(v) if *v == var => return Some(limit),
            Expr::Binary(op @ (BinOp::Mul | BinOp::Div), inner, by) => (op, &**inner, by.as_int().filter(|n| *n > 0)?),
            _ => return None,
        };
        let First { per, of, times } = limit;
        limit = match op {
            // `x / by < limit` where `x < limit * by`.
            BinOp::Div if of == 1 => First { per: per.checked_mul(by)?, ..limit },
            BinOp::Div => First { times: times.checked_mul(by)?, ..limit },
            // `x * by < limit` where `x < ceil(limit / by)`.
            _ if times % by == 0 => First { times: times / by, ..limit },
            _ if by % times == 0 => {
                let by = by / times;
                let common = gcd(per, of.checked_mul(by)?);
                First { per: per / common, of: of * by / common, times: 1 }
            }
            _ => return None,
        };
        row = inner;
    }
}

/// A number that divides an expression whatever its variables are; 0 of zero.
fn divisor(e: &Expr) -> i64 {
    match e {
        Expr::Int(n) => n.saturating_abs(),
        Expr::Binary(BinOp::Add | BinOp::Sub, a, b) => gcd(divisor(a), divisor(b)),
        Expr::Binary(BinOp::Mul, a, b) => divisor(a).saturating_mul(divisor(b)).max(1),
        _ => 1,
    }
}
