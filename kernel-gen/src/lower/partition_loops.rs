//! Moves the guards of tails out of hot loops.
//!
//! ```text
//! for o in 0..5 { for i in 0..12 { if o * 12 + i < 56 { s } } }
//!   -> for o in 0..4 { for i in 0..12 { s } }   for i in 0..8 { s[o := 4] }
//! ```
//! For each loop, outermost first, the comparisons below it are solved for its variable: they give the range of
//! iterations where they hold whatever the other variables are. The loop is cut there into up to three; in the middle
//! part the comparisons are decided and vanish, and in the others they are smaller problems for the loops further in.
//! A piece in which nothing is left to do vanishes, so a register tile or a vector in a tail ends up with a smaller
//! constant extent. Loops whose iterations are shared (parallel) are not cut: the statements in their body that the cut decides
//! something in get conditionals, with a copy in each branch. Blocks and threads of a GPU keep to one path. Quotients and remainders
//! of a fused loop's variable are named first and then treated like a variable.
//!
//! The comparisons of padding (`select`) are treated the same way with a smaller allowance for growth. What exceeds the
//! allowance keeps its guard.

use super::copy::fresh_copy;
use super::pass::{LowerError, LowerOptions};
use super::simplify::simplify_block;
use crate::analysis::affine::Affine;
use crate::analysis::range::{Ranges, bounds};
use crate::analysis::simplify::prove;
use crate::ir::{BinOp, Expr, For, Kernel, LoopKind, Stmt, VarId, visit};

/// The pass.
pub fn run(mut kernel: Kernel, options: &LowerOptions) -> Result<Kernel, LowerError> {
    let body = std::mem::take(&mut kernel.body);
    let size = size_of(&body);
    let mut p = Partition {
        kernel,
        size,
        guard_limit: options.max_partitioned_steps.max(size),
        // Padding costs a test where a guard costs the vector, so it may cost less code.
        select_limit: (options.max_partitioned_steps / 4).max(size),
        in_block: false,
    };
    let body = p.block(body, &Ranges::new());
    p.kernel.body = body;
    Ok(p.kernel)
}

struct Partition {
    kernel: Kernel,
    /// Statements of the whole kernel, unrolled ones counted as copied.
    size: i64,
    guard_limit: i64,
    select_limit: i64,
    /// Below a loop over blocks or threads, where parts of a fused index are each thread's own.
    in_block: bool,
}

/// Statements of a block, one behind the other.
enum Run {
    /// Those that a cut decides nothing in, with what is known in front of them.
    Same(Vec<Stmt>, Ranges),
    /// A loop, without its body, and the runs of that.
    Loop(For, Vec<Run>),
    /// Those that a cut decides something in: their size, and what becomes of them.
    Cut(i64, Parts),
}

impl Run {
    /// Statements that the cut adds.
    fn growth(&self) -> i64 {
        match self {
            Run::Same(..) => 0,
            Run::Loop(_, runs) => runs.iter().map(Run::growth).sum(),
            Run::Cut(size, parts) => parts.size() - size,
        }
    }
}

/// Whether a statement gives a name to a value or to a buffer.
fn is_name(s: &Stmt) -> bool {
    matches!(s, Stmt::Let { .. } | Stmt::Alloc(_))
}

/// How much of a statement a cut of a variable's values decides something in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    None,
    /// A part of a loop's body, beside another loop: a test in each turn is nothing beside that.
    Inside,
    All,
}

impl Share {
    fn of(s: &Stmt, var: VarId, ranges: &Ranges, source: Source) -> Share {
        // Names stay in front of all that use them.
        if is_name(s) || find_cut(std::slice::from_ref(s), var, ranges, source).is_none() {
            return Share::None;
        }
        let Stmt::For(l) = s else { return Share::All };
        let mut inside = ranges.clone();
        inside.insert_loop(l);
        let is_single = |s: &Stmt| matches!(s, Stmt::For(_)) && Share::of(s, var, &inside, source) == Share::None;
        // A loop that is cut itself is copied as a whole.
        let is_cut = [Source::Guard, Source::Select].iter().any(|by| find_cut(&l.body, l.var, &inside, *by).is_some());
        match l.kind == LoopKind::Serial && !is_cut && l.body.iter().any(is_single) {
            true => Share::Inside,
            false => Share::All,
        }
    }
}

/// Statements once for each part of a variable's values, with what is known there.
struct Parts {
    middle: (Vec<Stmt>, Ranges),
    below: Option<(Vec<Stmt>, Ranges)>,
    above: Option<(Vec<Stmt>, Ranges)>,
}

impl Parts {
    fn size(&self) -> i64 {
        let edges = [&self.below, &self.above].into_iter().flatten();
        edges.chain([&self.middle]).map(|(stmts, _)| size_of(stmts)).sum()
    }
}

/// Whether the loop is over blocks or threads, or virtual ones.
fn is_hardware(kind: LoopKind) -> bool {
    matches!(kind, LoopKind::Grid(_) | LoopKind::Thread(_) | LoopKind::VThread)
}

/// Where a comparison comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Guard,
    Select,
}

/// The values `low..high` of a variable for which some comparisons hold; `min..=max` are all its values.
#[derive(Clone, Copy, Debug)]
struct Cut {
    min: i64,
    low: i64,
    high: i64,
    max: i64,
}

/// A cut of a variable's values by which a block is cut, and the variables by which its parts are.
#[derive(Clone, Copy)]
struct By<'a> {
    var: VarId,
    cut: Cut,
    source: Source,
    then: &'a [VarId],
}

impl Partition {
    fn block(&mut self, stmts: Vec<Stmt>, ranges: &Ranges) -> Vec<Stmt> {
        let mut ranges = ranges.clone();
        let mut out = vec![];
        for s in stmts {
            match s {
                Stmt::For(l) => self.for_(l, &ranges, &mut out),
                Stmt::If { cond, then, otherwise } => {
                    let then = self.block(then, &ranges.assuming(&cond));
                    let mut not = ranges.clone();
                    not.assume(&cond, false);
                    let otherwise = self.block(otherwise, &not);
                    out.push(Stmt::If { cond, then, otherwise });
                }
                Stmt::Let { var, value } => {
                    if let Some((lo, hi)) = bounds(&value, &ranges) {
                        ranges.insert(var, lo, hi);
                    }
                    out.push(Stmt::Let { var, value });
                }
                other => out.push(other),
            }
        }
        out
    }

    fn for_(&mut self, l: For, ranges: &Ranges, out: &mut Vec<Stmt>) {
        let mut inside = ranges.clone();
        inside.insert_loop(&l);
        // Copies of a pipeline's steps would be many times the code for a few comparisons a step.
        let steps = holds_gpu_statements(&l);
        for source in [Source::Guard, Source::Select].into_iter().filter(|_| !steps) {
            // The lanes of a vector stay together: emitters load those that padding leaves. On a GPU, a predicate costs less
            // than the instruction cache for a copy of a step for each tap of a kernel.
            if source == Source::Select && (l.kind == LoopKind::Vectorized || self.in_block) {
                continue;
            }
            let Some(cut) = find_cut(&l.body, l.var, &inside, source) else { continue };
            match l.kind {
                LoopKind::Serial | LoopKind::Unrolled | LoopKind::Vectorized => {
                    // How many iterations run is known of the whole.
                    if self.kernel.first_of(l.var).is_none()
                        && let Some(pieces) = self.split(&l, cut, ranges, source)
                    {
                        for s in pieces {
                            match s {
                                Stmt::For(l) => self.for_(l, ranges, out),
                                other => out.extend(self.block(vec![other], ranges)),
                            }
                        }
                        return;
                    }
                }
                LoopKind::Parallel | LoopKind::Grid(_) | LoopKind::Cluster(_) => {
                    if let Some(clipped) = self.clip(&l, cut, &inside) {
                        self.for_(clipped, ranges, out);
                        return;
                    }
                    // Blocks of a grid keep to one path: a second copy of a block's code would have its own shared memory.
                    let by = By { var: l.var, cut, source, then: &[] };
                    if l.kind == LoopKind::Parallel
                        && let Some(body) = self.branch(by, &l.body, &inside, true)
                    {
                        out.push(Stmt::For(For { body, ..l }));
                        return;
                    }
                }
                // Threads must meet at barriers, so they keep to one path.
                LoopKind::Thread(_) | LoopKind::VThread | LoopKind::FragmentRow | LoopKind::FragmentCol => {}
            }
        }
        let (mut l, mut names, mut vars) = (l, vec![], vec![]);
        if !self.in_block && !steps && !is_hardware(l.kind) {
            while let Some((atom, var, cut)) = self.atom_cut(&l, &inside) {
                l.body = replace(l.body, &atom, var);
                inside.insert(var, cut.min, cut.max);
                names.push(Stmt::Let { var, value: atom });
                vars.push(var);
            }
        }
        let around = self.in_block;
        self.in_block |= is_hardware(l.kind);
        names.extend(self.cut_by(&vars, l.body, &inside, true));
        l.body = names;
        self.in_block = around;
        out.push(Stmt::For(l));
    }

    /// The block with what each variable's guards decide under conditionals, one variable after the other, as far as the
    /// allowance goes.
    fn cut_by(&mut self, vars: &[VarId], block: Vec<Stmt>, ranges: &Ranges, is_whole: bool) -> Vec<Stmt> {
        let Some((var, then)) = vars.split_first() else { return self.block(block, ranges) };
        let source = Source::Guard;
        let cut = find_cut(&block, *var, ranges, source);
        let cut = cut.and_then(|cut| self.branch(By { var: *var, cut, source, then }, &block, ranges, is_whole));
        cut.unwrap_or_else(|| self.cut_by(then, block, ranges, is_whole))
    }

    /// The pieces of a loop, unless they are too much code.
    fn split(&mut self, l: &For, cut: Cut, ranges: &Ranges, source: Source) -> Option<Vec<Stmt>> {
        let before = size_of(std::slice::from_ref(&Stmt::For(l.clone())));
        let mut pieces = vec![];
        for (i, (start, end)) in [(0, cut.low), (cut.low, cut.high), (cut.high, l.extent)].into_iter().enumerate() {
            if start >= end {
                continue;
            }
            // The middle part keeps the loop's identity.
            let whole = For { extent: end - start, ..l.clone() };
            let piece = if i == 1 {
                Stmt::For(whole)
            } else {
                fresh_copy(&mut self.kernel, &[Stmt::For(whole)]).into_iter().next()?
            };
            let Stmt::For(mut piece) = piece else { return None };
            if start > 0 {
                let shifted = piece.var + start;
                piece.body = piece.body.into_iter().map(|s| s.subst(piece.var, &shifted)).collect();
            }
            pieces.extend(simplify_block(vec![Stmt::For(piece)], &mut ranges.clone()));
        }
        self.grow(size_of(&pieces) - before, source).then_some(pieces)
    }

    /// The loop without its last iterations, if there is nothing to do in them.
    fn clip(&mut self, l: &For, cut: Cut, ranges: &Ranges) -> Option<For> {
        let mut within = ranges.clone();
        within.insert(l.var, cut.high, cut.max);
        let rest = simplify_block(l.body.clone(), &mut within);
        (cut.high <= cut.max && rest.is_empty()).then(|| For { extent: cut.high, ..l.clone() })
    }

    /// The block with what the cut decides once for each part of the variable's values, under conditionals, unless that is
    /// too much code. What the cut decides nothing in stays single, between the conditionals. Behind a block that is
    /// `is_whole` nothing uses its names.
    fn branch(&mut self, by: By, block: &[Stmt], ranges: &Ranges, is_whole: bool) -> Option<Vec<Stmt>> {
        let share = |s: &Stmt| Share::of(s, by.var, ranges, by.source);
        let runs = match is_whole && block.iter().all(|s| is_name(s) || share(s) == Share::All) {
            // Each part has buffers of its own, which may be smaller.
            true => vec![Run::Cut(size_of(block), self.parts(by, block, ranges))],
            false => self.runs(by, block, ranges),
        };
        self.grow(runs.iter().map(Run::growth).sum(), by.source).then(|| self.join(by, runs))
    }

    /// The block cut up into what a cut decides something in and what it does not.
    fn runs(&mut self, by: By, block: &[Stmt], ranges: &Ranges) -> Vec<Run> {
        let mut inside = ranges.clone();
        let (mut runs, mut rest) = (vec![], block);
        while let Some(first) = rest.first() {
            let share = Share::of(first, by.var, &inside, by.source);
            let alike = rest.iter().take_while(|s| Share::of(s, by.var, &inside, by.source) == share);
            let count = if share == Share::Inside { 1 } else { alike.count() };
            let (stmts, behind) = rest.split_at(count);
            runs.push(match (share, first) {
                (Share::None, _) => Run::Same(stmts.to_vec(), inside.clone()),
                (Share::Inside, Stmt::For(l)) => {
                    let mut around = inside.clone();
                    around.insert_loop(l);
                    Run::Loop(For { body: vec![], ..l.clone() }, self.runs(by, &l.body, &around))
                }
                _ => Run::Cut(size_of(stmts), self.parts(by, stmts, &inside)),
            });
            for s in stmts {
                if let Stmt::Let { var, value } = s
                    && let Some((lo, hi)) = bounds(value, &inside)
                {
                    inside.insert(*var, lo, hi);
                }
            }
            rest = behind;
        }
        runs
    }

    /// The block of which these are the runs.
    fn join(&mut self, by: By, runs: Vec<Run>) -> Vec<Stmt> {
        let mut out = vec![];
        for run in runs {
            match run {
                Run::Same(stmts, ranges) => out.extend(self.cut_by(by.then, stmts, &ranges, false)),
                Run::Loop(l, runs) => out.push(Stmt::For(For { body: self.join(by, runs), ..l })),
                Run::Cut(_, parts) => out.push(self.choose(by, parts)),
            }
        }
        out
    }

    /// Statements once for each part of the variable's values.
    fn parts(&mut self, By { var, cut, .. }: By, stmts: &[Stmt], ranges: &Ranges) -> Parts {
        let mut part = |first: i64, last: i64, copy: bool| {
            let mut within = ranges.clone();
            within.insert(var, first, last);
            let mut stmts = if copy { fresh_copy(&mut self.kernel, stmts) } else { stmts.to_vec() };
            if first == last {
                stmts = stmts.into_iter().map(|s| s.subst(var, &Expr::Int(first))).collect();
            }
            (simplify_block(stmts, &mut within.clone()), within)
        };
        Parts {
            middle: part(cut.low, cut.high - 1, false),
            below: (cut.min < cut.low).then(|| part(cut.min, cut.low - 1, true)),
            above: (cut.high <= cut.max).then(|| part(cut.high, cut.max, true)),
        }
    }

    /// A conditional that runs the part for the variable's value.
    fn choose(&mut self, By { var, cut, then: others, .. }: By, parts: Parts) -> Stmt {
        let Parts { middle, below, above } = parts;
        let mut part = |(stmts, ranges): (_, Ranges)| self.cut_by(others, stmts, &ranges, true);
        let then = part(middle);
        let [below, above] = [below, above].map(|edge| edge.map(&mut part));
        let (over_low, under_high) = (Expr::Int(cut.low).le(Expr::Var(var)), Expr::Var(var).lt(cut.high));
        match (below, above) {
            (None, above) => Stmt::If { cond: under_high, then, otherwise: above.unwrap_or_default() },
            (Some(below), None) => Stmt::If { cond: over_low, then, otherwise: below },
            (Some(below), Some(above)) => {
                let other = Stmt::If { cond: Expr::Var(var).lt(cut.low), then: below, otherwise: above };
                Stmt::If { cond: over_low.and(under_high), then, otherwise: vec![other] }
            }
        }
    }

    /// Books the growth, if the allowance covers it.
    fn grow(&mut self, by: i64, source: Source) -> bool {
        let limit = match source {
            Source::Guard => self.guard_limit,
            Source::Select => self.select_limit,
        };
        // What does not grow is always welcome: a tail that vanishes, a loop that is clipped.
        let fits = by <= 0 || self.size + by <= limit;
        if fits {
            self.size += by;
        }
        fits
    }

    /// A quotient or remainder of the loop's variable in a guard that a cut would decide, with a variable for it.
    fn atom_cut(&mut self, l: &For, inside: &Ranges) -> Option<(Expr, VarId, Cut)> {
        let mut atoms: Vec<Expr> = vec![];
        let inner: Vec<VarId> = bound_in(&l.body);
        comparisons(&l.body, Source::Guard, &mut |c| {
            c.walk(&mut |e| {
                if matches!(e, Expr::Binary(BinOp::Mod | BinOp::Div, _, d) if d.as_int().is_some())
                    && e.mentions(l.var)
                    && !inner.iter().any(|v| e.mentions(*v))
                    && !atoms.contains(e)
                {
                    atoms.push(e.clone());
                }
            })
        });
        atoms.into_iter().find_map(|atom| {
            let (min, max) = bounds(&atom, inside)?;
            // A trial with a variable that is not in the kernel yet.
            let var = VarId(self.kernel.vars.len() as u32);
            let mut named = inside.clone();
            named.insert(var, min, max);
            let body = replace(l.body.clone(), &atom, var);
            let cut = find_cut(&body, var, &named, Source::Guard)?;
            let name = format!("{}_part", self.kernel.var(l.var).name);
            Some((atom, self.kernel.fresh_var(&name), cut))
        })
    }
}

/// The variables that loops and lets in the block bind.
fn bound_in(block: &[Stmt]) -> Vec<VarId> {
    let mut out = vec![];
    for s in block {
        s.walk(&mut |s| match s {
            Stmt::For(l) => out.push(l.var),
            Stmt::Let { var, .. } => out.push(*var),
            _ => {}
        });
    }
    out
}

/// Puts a variable in the place of an expression.
fn replace(block: Vec<Stmt>, what: &Expr, by: VarId) -> Vec<Stmt> {
    visit::map_exprs(block, &mut |e| e.map(&mut |e| if e == *what { Expr::Var(by) } else { e }))
}

/// Statements in the emitted text: unrolled loops count as often as they are copied, others once.
fn size_of(block: &[Stmt]) -> i64 {
    block.iter().fold(0i64, |n, s| {
        n.saturating_add(match s {
            Stmt::For(l) if l.kind == LoopKind::Unrolled => l.extent.saturating_mul(size_of(&l.body)),
            Stmt::For(l) => size_of(&l.body).saturating_add(1),
            Stmt::If { then, otherwise, .. } => size_of(then).saturating_add(size_of(otherwise)),
            Stmt::Alloc(_) => 0,
            _ => 1,
        })
    })
}

/// Calls `f` on the comparisons in the conditions of the block.
fn comparisons(block: &[Stmt], source: Source, f: &mut dyn FnMut(&Expr)) {
    fn leaves(e: &Expr, f: &mut dyn FnMut(&Expr)) {
        match e {
            Expr::Binary(BinOp::And | BinOp::Or, a, b) => {
                leaves(a, f);
                leaves(b, f);
            }
            Expr::Unary(crate::ir::UnOp::Not, a) => leaves(a, f),
            Expr::Binary(BinOp::Lt | BinOp::Le, ..) => f(e),
            _ => {}
        }
    }
    for s in block {
        s.walk(&mut |s| {
            if source == Source::Guard
                && let Stmt::If { cond, .. } = s
            {
                leaves(cond, f);
            }
            if source == Source::Select {
                s.own_exprs(&mut |e| {
                    e.walk(&mut |e| {
                        if let Expr::Select(c, ..) = e {
                            leaves(c, f);
                        }
                    })
                });
            }
        });
    }
}

/// Where to cut the values of a variable so that comparisons below are decided in the middle part.
fn find_cut(body: &[Stmt], var: VarId, outer: &Ranges, source: Source) -> Option<Cut> {
    let (min, max) = outer.get(var)?;
    if min >= max {
        return None;
    }
    let mut ranges = outer.clone();
    for l in visit::loops(body) {
        ranges.insert_loop(l);
    }
    let (mut low, mut high) = (min, max + 1);
    // Lower bounds are dropped where they leave nothing in the middle together with upper ones.
    let mut lows: Vec<i64> = vec![];
    let mut nothing_from = max + 1;
    comparisons(body, source, &mut |c| {
        if !c.mentions(var) || prove(c, &ranges).is_some() {
            return;
        }
        match holds_for_all(c, var, &ranges) {
            Some(Bound::Below(end)) if end > min => high = high.min(end),
            Some(Bound::From(start)) if start <= max => lows.push(start),
            _ => {}
        }
        if let Some(end) = fails_from(c, var, &ranges)
            && end > min
        {
            nothing_from = nothing_from.min(end);
        }
    });
    for start in lows {
        if start < high {
            low = low.max(start);
        }
    }
    if low > min || high <= max {
        return Some(Cut { min, low, high, max });
    }
    // Where a guard holds nowhere for sure, at least the iterations in which it never does can go.
    (source == Source::Guard && nothing_from <= max).then_some(Cut { min, low: min, high: nothing_from, max })
}

/// A side of the values of a variable.
enum Bound {
    /// Those less than this.
    Below(i64),
    /// Those from this on.
    From(i64),
}

/// From which value of `var` on the comparison fails whatever the other variables are.
fn fails_from(c: &Expr, var: VarId, ranges: &Ranges) -> Option<i64> {
    let Expr::Binary(op @ (BinOp::Lt | BinOp::Le), a, b) = c else { return None };
    // a < b fails where b <= a holds.
    let negated = if *op == BinOp::Lt { BinOp::Le } else { BinOp::Lt };
    match holds_for_all(&Expr::Binary(negated, b.clone(), a.clone()), var, ranges) {
        Some(Bound::From(start)) => Some(start),
        _ => None,
    }
}

/// The values of `var` for which the comparison holds whatever the other variables are.
fn holds_for_all(c: &Expr, var: VarId, ranges: &Ranges) -> Option<Bound> {
    let Expr::Binary(op @ (BinOp::Lt | BinOp::Le), a, b) = c else { return None };
    // factor * var + rest <= slack
    let slack = i64::from(*op == BinOp::Le) - 1;
    let difference = (**a).clone() - (**b).clone();
    let (rest, factor) = match Affine::of(&difference) {
        Some(d) => {
            let factor = d.coefficient(var);
            let mut rest = d;
            rest.terms.remove(&var);
            (rest.to_expr(), factor)
        }
        None => super::vectorize::linear_in(&difference, var)?,
    };
    let room = slack.checked_sub(bounds(&rest, ranges)?.1)?;
    match factor {
        1.. => Some(Bound::Below(room.div_euclid(factor).checked_add(1)?)),
        // factor is negative: var >= room / factor, rounded up.
        ..=-1 => Some(Bound::From(-room.div_euclid(factor.checked_neg()?))),
        0 => None,
    }
}

/// Whether the loop holds statements that only a GPU has.
fn holds_gpu_statements(l: &For) -> bool {
    let mut found = false;
    l.body.iter().for_each(|s| s.walk(&mut |s| found |= matches!(s, Stmt::Gpu(_))));
    found
}
