//! Concurrent iterations do not meet on an element that one of them writes.

use super::access::{self, Pseudo, Site, Touch, is_hardware};
use super::equal::{Same, Side, same_element};
use super::fault::{Fault, FaultKind, MOST_FAULTS};
use super::partition;
use crate::analysis::simplify::{Sum, simplify};
use crate::ir::{Barrier, BufferId, Expr, For, Kernel, LoopKind, Scope, Stmt, VarId};
use std::collections::{BTreeMap, BTreeSet};

/// Checks the race rules under "Threads".
pub(super) fn check(kernel: &Kernel, sites: &[Site], faults: &mut Vec<Fault>) {
    for s in &kernel.body {
        walk(kernel, s, sites, &[], faults);
    }
}

/// Finds the concurrent loops and launches, outermost first.
fn walk<'k>(kernel: &Kernel, s: &'k Stmt, sites: &[Site], around: &[&'k For], faults: &mut Vec<Fault>) {
    if faults.len() > MOST_FAULTS {
        return;
    }
    match s {
        Stmt::For(l) => {
            let in_launch = around.iter().any(|l| is_hardware(l.kind));
            match l.kind {
                LoopKind::Parallel | LoopKind::Vectorized if l.extent > 1 => {
                    iterations(kernel, l, sites, around, faults)
                }
                k if is_hardware(k) && !in_launch => launch(kernel, s, sites, around, faults),
                _ => {}
            }
            let inner = [around, &[l]].concat();
            l.body.iter().for_each(|s| walk(kernel, s, sites, &inner, faults));
        }
        Stmt::If { then, otherwise, .. } => {
            then.iter().chain(otherwise).for_each(|s| walk(kernel, s, sites, around, faults));
        }
        _ => {}
    }
}

/// The buffers that statements below allocate.
fn allocated(block: &[Stmt]) -> BTreeSet<BufferId> {
    let mut out = BTreeSet::new();
    for s in block {
        s.walk(&mut |s| {
            if let Stmt::Alloc(b) = s {
                out.insert(*b);
            }
        });
    }
    out
}

/// The iterations of a parallel loop, or the lanes of a vectorised one.
fn iterations(kernel: &Kernel, l: &For, sites: &[Site], around: &[&For], faults: &mut Vec<Fault>) {
    let own = allocated(&l.body);
    let vector = l.kind == LoopKind::Vectorized;
    let inside: Vec<&Site> = sites
        .iter()
        .filter(|s| s.loops.iter().any(|m| m.var == l.var))
        // Private memory from outside of a parallel loop is the scope rule's affair.
        .filter(|s| !own.contains(&s.buffer) && (vector || !kernel.buffer(s.buffer).scope.is_private()))
        .collect();
    let fixed: BTreeSet<VarId> = around.iter().map(|l| l.var).collect();
    for (a, b, _) in conflicts(kernel, &inside, &[l.var], &fixed, &Side::of) {
        let (name, buffer) = (&kernel.var(l.var).name, &kernel.buffer(a.buffer).name);
        let (what, kind) = match vector {
            true => ("lanes of the vectorised loop", FaultKind::LaneConflict),
            false => ("iterations of the parallel loop", FaultKind::WriteRace),
        };
        faults.push(race(kernel, kind, a, b, &format!("different {what} {name}"), buffer));
    }
}

/// Whether no two iterations of a loop touch the same element of `buffer`, one of them writing it, while the loops inside
/// of it and those in `free` take all values on both sides. `false` also where that cannot be shown.
pub(crate) fn never_meet(kernel: &Kernel, l: &For, free: &[VarId], buffer: BufferId) -> bool {
    // Faults of the kernel are reported when it is verified.
    let sites = access::collect(kernel, &mut vec![]);
    let inside: Vec<&Site> =
        sites.iter().filter(|s| s.buffer == buffer && s.loops.iter().any(|m| m.var == l.var)).collect();
    let around = inside.first().into_iter().flat_map(|s| s.loops.iter().take_while(|m| m.var != l.var));
    let fixed = around.map(|m| m.var).filter(|v| !free.contains(v)).collect();
    conflicts(kernel, &inside, &[l.var], &fixed, &Side::of).is_empty()
}

/// A fault about two accesses of one element.
fn race(kernel: &Kernel, kind: FaultKind, a: &Site, b: &Site, who: &str, buffer: &str) -> Fault {
    let (at, verb) = match (a.touch.writes(), b.touch.writes()) {
        (true, true) => (a, "write"),
        (true, false) => (b, "read and write"),
        _ => (a, "read and write"),
    };
    let help = match kind {
        FaultKind::MissingBarrier => "put a block barrier between the two statements".to_string(),
        FaultKind::LaneConflict => "do not vectorise this loop, or give each lane an element of its own".to_string(),
        _ => format!("make the loop serial, or give each iteration elements of {buffer} of its own"),
    };
    let cause = match kind {
        FaultKind::MissingBarrier => {
            let other = if std::ptr::eq(at, a) { b } else { a };
            format!(
                "{who} {verb} one element of {buffer} with no barrier in between (the other place is `{}`)",
                crate::ir::print::first_line(kernel, other.stmt)
            )
        }
        _ => format!("{who} may {verb} one element of {buffer}"),
    };
    Fault::at(kernel, &at.loops, at.stmt, kind, cause, help)
}

/// The first conflict on each buffer among sites that are all unordered across different values of `asked`.
fn conflicts<'s, 'k>(
    kernel: &Kernel,
    sites: &[&'s Site<'k>],
    asked: &[VarId],
    fixed: &BTreeSet<VarId>,
    side: &dyn Fn(&Site) -> Side,
) -> Vec<(&'s Site<'k>, &'s Site<'k>, VarId)> {
    let mut by_buffer: BTreeMap<BufferId, Vec<&'s Site<'k>>> = BTreeMap::new();
    for s in sites {
        by_buffer.entry(s.buffer).or_default().push(s);
    }
    let mut out = vec![];
    for sites in by_buffer.into_values().filter(|s| s.iter().any(|s| s.touch.writes())) {
        let fresh = Pseudo::new(kernel).free(kernel.buffer(sites[0].buffer).shape.len());
        let groups = merged(kernel, &sites, side);
        let found = pairs(groups.len()).find_map(|(i, j)| {
            let ((a, x), (b, y)) = (&groups[i], &groups[j]);
            if !a[0].touch.writes() && !b[0].touch.writes() {
                return None;
            }
            if !matches!(same_element(x, y, asked, fixed, fresh), Same::Differs(_)) {
                return None;
            }
            // The merged accesses are larger than their members, which decide.
            pairs(a.len().max(b.len())).find_map(|(i, j)| {
                let member = |(i, j): (usize, usize)| {
                    let (p, q) = (*a.get(i)?, *b.get(j)?);
                    match same_element(&side(p), &side(q), asked, fixed, fresh) {
                        Same::Differs(v) => Some((p, q, v)),
                        _ => None,
                    }
                };
                member((i, j)).or_else(|| member((j, i)))
            })
        });
        out.extend(found);
    }
    out
}

/// All `i <= j < n`.
fn pairs(n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).flat_map(move |i| (i..n).map(move |j| (i, j)))
}

/// Accesses that differ by constants only, as unrolling makes them by the hundred, become one that covers them all.
fn merged<'s, 'k>(
    kernel: &Kernel,
    sites: &[&'s Site<'k>],
    side: &dyn Fn(&Site) -> Side,
) -> Vec<(Vec<&'s Site<'k>>, Side)> {
    struct Group<'s, 'k> {
        members: Vec<&'s Site<'k>>,
        side: Side,
        terms: Vec<Vec<(Expr, i64)>>,
        constants: Vec<(i64, i64)>,
    }
    let pseudo = Pseudo::new(kernel);
    let mut groups: Vec<Group> = vec![];
    for s in sites {
        let side = side(s);
        let sums: Vec<Sum> = side.index.iter().map(|e| Sum::of(simplify(e, &side.facts.ranges))).collect();
        let terms: Vec<Vec<(Expr, i64)>> = sums.iter().map(|s| s.terms.clone()).collect();
        let known = groups.iter_mut().find(|g| {
            g.members[0].touch.writes() == s.touch.writes() && g.terms == terms && g.side.facts == side.facts
        });
        match known {
            Some(g) => {
                g.members.push(s);
                for ((lo, hi), sum) in g.constants.iter_mut().zip(&sums) {
                    (*lo, *hi) = ((*lo).min(sum.constant), (*hi).max(sum.constant));
                }
            }
            None => {
                let constants = sums.iter().map(|s| (s.constant, s.constant)).collect();
                groups.push(Group { members: vec![s], side, terms, constants });
            }
        }
    }
    groups
        .into_iter()
        .map(|g| {
            let mut side = g.side;
            for (d, (lo, hi)) in g.constants.iter().enumerate().filter(|(_, (lo, hi))| lo < hi) {
                let linear = g.terms[d].iter().fold(Expr::Int(*lo), |e, (atom, c)| e + atom.clone() * *c);
                side.index[d] = linear + Expr::Var(pseudo.hull(d));
                side.facts.ranges.insert(pseudo.hull(d), 0, hi - lo);
            }
            (g.members, side)
        })
        .collect()
}

/// One grid of blocks of threads.
struct Launch<'k> {
    /// For each axis of the grid, of the block, then of the cluster: its loops, the first of which stands for all.
    axes: [Vec<&'k For>; 9],
}

fn axis_of(kind: LoopKind) -> Option<usize> {
    match kind {
        LoopKind::Grid(a) => Some(a as usize),
        LoopKind::Thread(a) => Some(a as usize + 3),
        LoopKind::Cluster(a) => Some(a as usize + 6),
        _ => None,
    }
}

impl<'k> Launch<'k> {
    fn of(s: &'k Stmt) -> Launch<'k> {
        let mut axes: [Vec<&'k For>; 9] = Default::default();
        s.walk(&mut |s| {
            if let Stmt::For(l) = s
                && let Some(axis) = axis_of(l.kind)
            {
                axes[axis].push(l);
            }
        });
        Launch { axes }
    }

    fn extent(&self, axis: usize) -> i64 {
        self.axes[axis].iter().map(|l| l.extent).max().unwrap_or(1)
    }

    /// The variables that stand for the axes in `range` that have more than one index.
    fn indices(&self, range: std::ops::Range<usize>) -> Vec<VarId> {
        range.filter(|a| self.extent(*a) > 1).map(|a| self.axes[a][0].var).collect()
    }

    /// The access with one variable an axis.
    fn side(&self, site: &Site) -> Side {
        let mut side = Side::of(site);
        for axis in 0..9 {
            let Some(canonical) = self.axes[axis].first().map(|l| l.var) else { continue };
            let (mut lo, mut hi) = (0, self.extent(axis) - 1);
            for l in &self.axes[axis] {
                let Some((a, b)) = side.facts.ranges.get(l.var) else { continue };
                (lo, hi) = (lo.max(a), hi.min(b));
                if l.var != canonical {
                    let by = Expr::Var(canonical);
                    side.index = side.index.into_iter().map(|e| e.subst(l.var, &by)).collect();
                    side.facts = side.facts.substituted(l.var, &by);
                }
            }
            side.facts.ranges.insert(canonical, lo, hi);
        }
        side
    }
}

fn launch<'k>(kernel: &Kernel, s: &'k Stmt, sites: &[Site], around: &[&'k For], faults: &mut Vec<Fault>) {
    let Stmt::For(outer) = s else { return };
    let launch = Launch::of(s);
    let own = allocated(std::slice::from_ref(s));
    let inside: Vec<&Site> = sites
        .iter()
        .filter(|s| s.loops.iter().any(|l| l.var == outer.var) && !kernel.buffer(s.buffer).scope.is_private())
        .collect();
    let mut fixed: BTreeSet<VarId> = around.iter().map(|l| l.var).collect();
    let side = |s: &Site| launch.side(s);
    // Blocks meet on global memory only.
    let blocks = [launch.indices(0..3), launch.indices(6..9)].concat();
    let outside: Vec<&Site> = inside.iter().copied().filter(|s| !own.contains(&s.buffer)).collect();
    let mut reported = BTreeSet::new();
    if !blocks.is_empty() {
        let mut apart = BTreeSet::new();
        for (a, b, _) in conflicts(kernel, &outside, &blocks, &fixed, &side) {
            if apart.contains(&a.buffer) {
                continue;
            }
            // What other launches write they write before or after.
            let all: Vec<&Site> = outside.iter().copied().filter(|s| s.buffer == a.buffer).collect();
            let here = all.iter().all(|s| s.touch == Touch::Write);
            if here && partition::writes_each_once(kernel, &all, &kernel.buffer(a.buffer).shape) {
                apart.insert(a.buffer);
                continue;
            }
            reported.insert(a.buffer);
            let buffer = &kernel.buffer(a.buffer).name;
            faults.push(race(kernel, FaultKind::WriteRace, a, b, "different blocks of the grid", buffer));
        }
    }
    // Threads that meet in more ways than at barriers of the block are run: see `protocol`.
    let threads = launch.indices(3..6);
    if threads.is_empty() || super::protocol::applies(s) {
        return;
    }
    fixed.extend(blocks);
    let mut intervals = Intervals::new(kernel, &inside);
    intervals.stmt(s);
    for (i, j, carried) in std::mem::take(&mut intervals.pairs) {
        let (a, b) = (inside[i], inside[j]);
        if reported.contains(&a.buffer) {
            continue;
        }
        if let Some(kind) = threads_meet(kernel, &launch, a, b, carried, &threads, &fixed) {
            reported.insert(a.buffer);
            let buffer = &kernel.buffer(a.buffer).name;
            faults.push(race(kernel, kind, a, b, "different threads of a block", buffer));
        }
    }
}

/// Whether two different threads touch one element in these two places. `carried` is the loop whose next iteration the
/// second place is in.
fn threads_meet(
    kernel: &Kernel,
    launch: &Launch,
    a: &Site,
    b: &Site,
    carried: Option<VarId>,
    threads: &[VarId],
    fixed: &BTreeSet<VarId>,
) -> Option<FaultKind> {
    let (p, mut q) = (launch.side(a), launch.side(b));
    let mut p = p;
    let mut fixed = fixed.clone();
    for (l, m) in a.loops.iter().zip(&b.loops) {
        if l.var != m.var {
            break;
        }
        if axis_of(l.kind).is_some() || !l.body.iter().any(has_block_barrier) {
            continue;
        }
        // Barriers keep threads in one iteration, or at most in neighbouring ones.
        if carried != Some(l.var) {
            fixed.insert(l.var);
            continue;
        }
        if l.body.iter().any(always_has_barrier) {
            fixed.insert(l.var);
            let next = l.var + 1;
            q.index = q.index.into_iter().map(|e| e.subst(l.var, &next)).collect();
            q.facts = q.facts.substituted(l.var, &next);
            for side in [&mut p, &mut q] {
                side.facts.ranges.insert(l.var, 0, l.extent - 2);
            }
        }
        break;
    }
    let fresh = Pseudo::new(kernel).free(p.index.len());
    match same_element(&p, &q, threads, &fixed, fresh) {
        Same::Never | Same::Equal => None,
        // One statement that two threads run at once is no matter of barriers.
        Same::Differs(_) if std::ptr::eq(a, b) && carried.is_none() => Some(FaultKind::WriteRace),
        Same::Differs(_) if kernel.buffer(a.buffer).scope == Scope::Shared => Some(FaultKind::MissingBarrier),
        Same::Differs(_) if std::ptr::eq(a.stmt, b.stmt) => Some(FaultKind::WriteRace),
        Same::Differs(_) => Some(FaultKind::MissingBarrier),
    }
}

fn has_block_barrier(s: &Stmt) -> bool {
    let mut found = false;
    s.walk(&mut |s| found |= matches!(s, Stmt::Barrier(Barrier::Block)));
    found
}

/// Whether a barrier is passed on every path.
fn always_has_barrier(s: &Stmt) -> bool {
    match s {
        Stmt::Barrier(Barrier::Block) => true,
        Stmt::For(l) => l.extent > 0 && l.body.iter().any(always_has_barrier),
        Stmt::If { then, otherwise, .. } => {
            then.iter().any(always_has_barrier) && otherwise.iter().any(always_has_barrier)
        }
        _ => false,
    }
}

/// Finds the pairs of accesses between which there is a way without a barrier.
struct Intervals<'s, 'k> {
    sites: &'s [&'s Site<'k>],
    /// Sites of each statement, by its address.
    of: BTreeMap<*const Stmt, Vec<usize>>,
    /// Buffers that the launch writes.
    written: BTreeSet<BufferId>,
    /// Sites since the last barrier, with the iteration of the loops around them.
    pending: Vec<(usize, Vec<(VarId, u8)>)>,
    /// The loops with barriers around, and whether their first or a later iteration is being looked at.
    iteration: Vec<(VarId, u8)>,
    pairs: BTreeSet<(usize, usize, Option<VarId>)>,
}

impl<'s, 'k> Intervals<'s, 'k> {
    fn new(kernel: &Kernel, sites: &'s [&'s Site<'k>]) -> Intervals<'s, 'k> {
        let mut of: BTreeMap<*const Stmt, Vec<usize>> = BTreeMap::new();
        for (i, s) in sites.iter().enumerate() {
            of.entry(std::ptr::from_ref(s.stmt)).or_default().push(i);
        }
        let written = sites
            .iter()
            .filter(|s| s.touch.writes() && !kernel.buffer(s.buffer).scope.is_private())
            .map(|s| s.buffer)
            .collect();
        Intervals { sites, of, written, pending: vec![], iteration: vec![], pairs: BTreeSet::new() }
    }

    fn stmt(&mut self, s: &Stmt) {
        match s {
            Stmt::For(l) if l.extent < 1 => {}
            Stmt::For(l) if has_block_barrier(s) => {
                // A thread runs the body of a hardware loop once.
                if axis_of(l.kind).is_some() || l.extent == 1 {
                    l.body.iter().for_each(|s| self.stmt(s));
                    return;
                }
                for pass in 0..2 {
                    self.iteration.push((l.var, pass));
                    l.body.iter().for_each(|s| self.stmt(s));
                    self.iteration.pop();
                }
            }
            // Without a barrier all iterations are unordered with each other.
            Stmt::For(l) => {
                let mut all = vec![];
                l.body.iter().for_each(|s| {
                    s.walk(&mut |s| all.extend(self.of.get(&std::ptr::from_ref(s)).into_iter().flatten().copied()));
                });
                self.meet(&all);
            }
            Stmt::If { then, otherwise, .. } => {
                self.own(s);
                let before = self.pending.clone();
                then.iter().for_each(|s| self.stmt(s));
                let after_then = std::mem::replace(&mut self.pending, before);
                otherwise.iter().for_each(|s| self.stmt(s));
                for entry in after_then {
                    if !self.pending.contains(&entry) {
                        self.pending.push(entry);
                    }
                }
            }
            Stmt::Barrier(Barrier::Block) => self.pending.clear(),
            _ => self.own(s),
        }
    }

    fn own(&mut self, s: &Stmt) {
        if let Some(sites) = self.of.get(&std::ptr::from_ref(s)).cloned() {
            self.meet(&sites);
        }
    }

    /// Adds sites to those since the last barrier, and pairs them with all of these.
    fn meet(&mut self, sites: &[usize]) {
        for i in sites.iter().filter(|i| self.written.contains(&self.sites[**i].buffer)) {
            self.pending.push((*i, self.iteration.clone()));
        }
        for j in sites {
            let b = &self.sites[*j];
            for (i, iteration) in &self.pending {
                let a = &self.sites[*i];
                if a.buffer == b.buffer && (a.touch.writes() || b.touch.writes()) {
                    let carried = iteration.iter().zip(&self.iteration).find(|(x, y)| x != y).map(|(x, _)| x.0);
                    self.pairs.insert((*i, *j, carried));
                }
            }
        }
    }
}
