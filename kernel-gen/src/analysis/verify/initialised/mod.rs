//! Nothing is read before it is written: for each read of a buffer that nobody gives, every element that it can touch has
//! been written before, whatever the loop values are.
//!
//! Three ways to show it. **By a write** ([`reach`]): a write that stands before the read, in the same iteration of the loops
//! that both are in, reaches the element that is read, because its own loops can be solved for the index that the read has,
//! and its conditions follow from those of the read. Most buffers are read as they are written, so this says nearly all, at
//! any size. **By all writes**: a workspace of which the statements before have written every element. **By walking**
//! ([`walk`]): what is left (rings, peeled loops, conditions that only some iterations pass) is
//! run, with loops and conditions but without data, on one bit an element. What can be shown in no way is a fault; of a walk
//! that is longer than is run, [`Depth`] says how far it went.
//!
//! Threads of a block go through each statement together, which is one of the orders that barriers allow: the rule on races
//! says that all of them are alike. Shared memory and fragments of launches that meet in more ways than at barriers are the
//! affair of [`super::protocol`].

mod walk;

use super::access::{Pseudo, Site, Touch, is_hardware};
use super::equal::Side;
use super::facts::Facts;
use super::fault::{Fault, FaultKind};
use super::{Depth, MOST_FAULTS, ReadDepth, coverage, protocol, reach};
use crate::ir::{Access, Axis, BufferId, Expr, For, Kernel, LoopKind, Scope, Stmt, VarId};
use std::collections::{BTreeMap, BTreeSet};

/// Checks the rule on reads under "Values".
pub(super) fn check(kernel: &Kernel, sites: &[Site], depth: &mut Depth, faults: &mut Vec<Fault>) {
    let launches = Launches::of(kernel);
    for (i, b) in kernel.buffers.iter().enumerate() {
        let id = BufferId(i as u32);
        let given = kernel.is_param(id) && b.access != Access::Write;
        if given || b.scope == Scope::Mbarrier || faults.len() > MOST_FAULTS {
            continue;
        }
        let own: Vec<&Site> = sites.iter().filter(|s| s.buffer == id).collect();
        if own.iter().any(|s| reads(s)) && !launches.run_apart(b.scope, &own) {
            let own: Vec<Touching> = own.into_iter().map(|s| launches.touching(kernel, s)).collect();
            faults.extend(buffer(kernel, id, &own, &launches, depth));
        }
    }
}

/// Whether an access may read what it does not write first.
fn reads(site: &Site) -> bool {
    site.touch.reads() || starts_late(site)
}

/// Whether a reduction may run where its first iteration, which starts it, did not: its conditions mention its reduce loops,
/// and do not hold in that iteration wherever they hold in another. A guarded tail, such as `8 * k_o + k_i < 1001`, does.
fn starts_late(site: &Site) -> bool {
    let Stmt::Reduce { over, .. } = site.stmt else { return false };
    let of_loops = |g: &Expr| over.iter().any(|v| g.mentions(*v));
    let at_first = |g: &Expr| over.iter().fold(g.clone(), |g, v| g.subst(*v, &Expr::Int(0)));
    site.touch == Touch::Start
        && site.facts.guards.iter().any(|(g, t)| of_loops(g) && !reach::holds(&site.facts, &at_first(g), *t))
}

/// An access, in which one variable stands for each hardware index of its launch.
struct Touching<'s, 'k> {
    site: &'s Site<'k>,
    side: Side,
    /// The loops around that are not over hardware indices.
    loops: Vec<&'k For>,
}

/// A hardware index of a launch.
#[derive(Clone, Copy)]
struct Hardware {
    var: VarId,
    extent: i64,
    kind: LoopKind,
}

/// The launches of a kernel.
struct Launches {
    /// By the variable of the outermost loop: the indices, those of the grid first, and whether it is run by `protocol`.
    indices: BTreeMap<VarId, (Vec<Hardware>, bool)>,
    /// The variable that stands for the index that a loop is over.
    stands_for: BTreeMap<VarId, VarId>,
}

impl Launches {
    fn of(kernel: &Kernel) -> Launches {
        let mut out = Launches { indices: BTreeMap::new(), stands_for: BTreeMap::new() };
        kernel.body.iter().for_each(|s| out.add(s));
        out
    }

    fn add(&mut self, s: &Stmt) {
        match s {
            Stmt::For(l) if is_hardware(l.kind) => {
                let mut indices: Vec<Hardware> = vec![];
                s.walk(&mut |s| {
                    let Stmt::For(m) = s else { return };
                    if !is_hardware(m.kind) {
                        return;
                    }
                    match indices.iter_mut().find(|h| h.kind == m.kind) {
                        Some(h) => {
                            h.extent = h.extent.max(m.extent);
                            self.stands_for.insert(m.var, h.var);
                        }
                        None => {
                            indices.push(Hardware { var: m.var, extent: m.extent, kind: m.kind });
                            self.stands_for.insert(m.var, m.var);
                        }
                    }
                });
                indices.sort_by_key(|h| is_thread(h.kind));
                self.indices.insert(l.var, (indices, protocol::applies(s)));
            }
            Stmt::For(l) => l.body.iter().for_each(|s| self.add(s)),
            Stmt::If { then, otherwise, .. } => then.iter().chain(otherwise).for_each(|s| self.add(s)),
            _ => {}
        }
    }

    /// Whether what the buffer holds is run by [`protocol`].
    fn run_apart(&self, scope: Scope, own: &[&Site]) -> bool {
        let apart = |s: &&Site| s.loops.iter().any(|l| self.indices.get(&l.var).is_some_and(|(_, apart)| *apart));
        matches!(scope, Scope::Shared | Scope::Fragment(_)) && own.iter().all(apart)
    }

    fn touching<'s, 'k>(&self, kernel: &Kernel, site: &'s Site<'k>) -> Touching<'s, 'k> {
        let mut out = Touching { site, side: Side::of(site), loops: vec![] };
        for l in &site.loops {
            match self.stands_for.get(&l.var) {
                None => out.loops.push(l),
                Some(canonical) if *canonical == l.var => self.shorter(l, &mut out.side.facts),
                Some(canonical) => {
                    let by = Expr::Var(*canonical);
                    let range = out.side.facts.ranges.get(l.var);
                    out.side.index.iter_mut().for_each(|e| *e = e.clone().subst(l.var, &by));
                    let mut facts = out.side.facts.substituted(l.var, &by);
                    let guards = std::mem::take(&mut facts.guards);
                    if let Some((lo, hi)) = range {
                        facts.ranges.insert(*canonical, lo, hi);
                    }
                    guards.iter().for_each(|(g, t)| facts.assume(g, *t));
                    self.shorter(l, &mut facts);
                    out.side.facts = facts;
                }
            }
        }
        if site.clipped && site.touch == Touch::Read {
            // What is outside is not read.
            let shape = &kernel.buffer(site.buffer).shape;
            for (index, n) in out.side.index.iter().zip(shape) {
                out.side.facts.assume(&Expr::Int(-1).lt(index.clone()), true);
                out.side.facts.assume(&index.clone().lt(*n), true);
            }
        }
        out
    }

    /// A loop over a hardware index that has more values elsewhere is a condition.
    fn shorter(&self, l: &For, facts: &mut Facts) {
        let longer = |h: &&Hardware| self.stands_for.get(&l.var) == Some(&h.var) && h.extent > l.extent;
        if let Some(h) = self.indices.values().flat_map(|(indices, _)| indices).find(longer) {
            facts.assume(&Expr::Var(h.var).lt(l.extent), true);
        }
    }

    /// The variables that are the same for a write and a read of one buffer wherever the read is: those of the loops that
    /// both are in, of the block, and, of memory of its own, of the thread.
    ///
    /// Both are then in the same branches, too, as far as they are: how many of the write's conditions hold for that reason.
    fn fixed(&self, write: &Touching, read: &Touching, scope: Scope) -> (BTreeSet<VarId>, usize) {
        let mut out: BTreeSet<VarId> =
            write.loops.iter().zip(&read.loops).take_while(|(a, b)| a.var == b.var).map(|(a, _)| a.var).collect();
        let within = |t: &Touching, launch: &VarId| t.site.loops.iter().any(|l| l.var == *launch);
        for (launch, (indices, _)) in &self.indices {
            if !within(write, launch) || !within(read, launch) {
                continue;
            }
            out.extend(indices.iter().filter(|h| threads_differ(scope) || !is_thread(h.kind)).map(|h| h.var));
        }
        let [a, b] = [write, read].map(|t| &t.site.branches);
        let together = a.iter().zip(b).take_while(|(a, b)| std::ptr::eq(a.stmt, b.stmt) && a.truth == b.truth);
        let one_thread = threads_differ(scope) || !write.site.loops.iter().any(|l| is_thread(l.kind));
        (out, together.last().filter(|_| one_thread).map_or(0, |(a, _)| a.guards))
    }
}

fn is_thread(kind: LoopKind) -> bool {
    matches!(kind, LoopKind::Thread(Axis::X | Axis::Y | Axis::Z))
}

/// Whether each thread has memory of its own, or its part of what a unit holds.
fn threads_differ(scope: Scope) -> bool {
    scope.is_private() || matches!(scope, Scope::Fragment(_))
}

fn buffer(kernel: &Kernel, id: BufferId, own: &[Touching], launches: &Launches, depth: &mut Depth) -> Option<Fault> {
    let b = kernel.buffer(id);
    let fresh = Pseudo::new(kernel).free(b.shape.len());
    let usable = |t: &Touching| matches!(t.site.touch, Touch::Write | Touch::Start) && !starts_late(t.site);
    let shown = |(at, read): (usize, &Touching)| {
        own[..at].iter().rev().filter(|t| usable(t)).any(|write| {
            let (fixed, held) = launches.fixed(write, read, b.scope);
            reach::reaches(&write.side, &read.side, &fixed, held, fresh)
        })
    };
    // What statements at the top have written they have written before the next.
    let mut whole: BTreeMap<VarId, bool> = BTreeMap::new();
    let mut written = |(at, read): (usize, &Touching)| {
        let Some(outer) = read.site.loops.first() else { return false };
        let before =
            || own[..at].iter().filter(|t| usable(t) && t.site.loops.first().is_none_or(|l| l.var != outer.var));
        b.scope == Scope::Global
            && *whole
                .entry(outer.var)
                .or_insert_with(|| coverage::is_whole(kernel, &before().map(|t| t.site).collect::<Vec<_>>(), &b.shape))
    };
    let open: Vec<usize> =
        (0..own.len()).filter(|i| reads(own[*i].site) && !shown((*i, &own[*i])) && !written((*i, &own[*i]))).collect();
    let (at, cause) = match open.first() {
        None => return None,
        Some(first) => match walk::walk(kernel, id, own, &open, launches) {
            walk::Outcome::Written => return None,
            walk::Outcome::Unwritten { at, index, with } => {
                let with = if with.is_empty() { String::new() } else { format!(" with {}", with.join(", ")) };
                (at, format!("{}{index:?} is read, but nothing has written it{with}", b.name))
            }
            walk::Outcome::Stopped { reads } if own[..*first].iter().any(usable) => {
                depth.reads.push(ReadDepth { buffer: b.name.clone(), followed: reads });
                return None;
            }
            walk::Outcome::Unknown | walk::Outcome::Stopped { .. } => {
                let known = own[..*first].iter().any(usable) || own.iter().any(usable);
                let cause = match known {
                    true => format!("what is read of {} cannot be shown to be written before", b.name),
                    false => format!("{} is read, but nothing has written it", b.name),
                };
                (*first, cause)
            }
        },
    };
    let site = own[at].site;
    let mend = format!("initialise {} before", b.name);
    Some(Fault::at(kernel, &site.loops, site.stmt, FaultKind::UnwrittenRead, cause, mend))
}
