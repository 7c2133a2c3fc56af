//! The launches of a kernel, and its accesses as they are in them.

use crate::analysis::verify::access::{Site, Touch, is_hardware};
use crate::analysis::verify::equal::Side;
use crate::analysis::verify::facts::Facts;
use crate::analysis::verify::protocol::applies;
use crate::analysis::verify::reach::holds;
use crate::ir::{Axis, Expr, For, Kernel, LoopKind, Scope, Stmt, VarId};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a reduction may run where its first iteration, which starts it, did not: its conditions mention its reduce loops,
/// and do not hold in that iteration wherever they hold in another. A guarded tail, such as `8 * k_o + k_i < 1001`, does.
pub(super) fn starts_late(site: &Site) -> bool {
    let Stmt::Reduce { over, .. } = site.stmt else { return false };
    let of_loops = |g: &Expr| over.iter().any(|v| g.mentions(*v));
    let at_first = |g: &Expr| over.iter().fold(g.clone(), |g, v| g.subst(*v, &Expr::Int(0)));
    site.touch == Touch::Start
        && site.facts.guards.iter().any(|(g, t)| of_loops(g) && !holds(&site.facts, &at_first(g), *t))
}

/// An access, in which one variable stands for each hardware index of its launch.
pub(super) struct Touching<'s, 'k> {
    pub(super) site: &'s Site<'k>,
    pub(super) side: Side,
    /// The loops around that are not over hardware indices.
    pub(super) loops: Vec<&'k For>,
}

/// A hardware index of a launch.
#[derive(Clone, Copy)]
pub(super) struct Hardware {
    pub(super) var: VarId,
    pub(super) extent: i64,
    pub(super) kind: LoopKind,
}

/// The launches of a kernel.
pub(super) struct Launches {
    /// By the variable of the outermost loop: the indices, those of the grid first, and whether it is run by `protocol`.
    pub(super) indices: BTreeMap<VarId, (Vec<Hardware>, bool)>,
    /// The variable that stands for the index that a loop is over.
    pub(super) stands_for: BTreeMap<VarId, VarId>,
}

impl Launches {
    pub(super) fn of(kernel: &Kernel) -> Launches {
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
                self.indices.insert(l.var, (indices, applies(s)));
            }
            Stmt::For(l) => l.body.iter().for_each(|s| self.add(s)),
            Stmt::If { then, otherwise, .. } => then.iter().chain(otherwise).for_each(|s| self.add(s)),
            _ => {}
        }
    }

    /// Whether what the buffer holds is run by `protocol`.
    pub(super) fn run_apart(&self, scope: Scope, own: &[&Site]) -> bool {
        let apart = |s: &&Site| s.loops.iter().any(|l| self.indices.get(&l.var).is_some_and(|(_, apart)| *apart));
        matches!(scope, Scope::Shared | Scope::Fragment(_)) && own.iter().all(apart)
    }

    pub(super) fn touching<'s, 'k>(&self, kernel: &Kernel, site: &'s Site<'k>) -> Touching<'s, 'k> {
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
    pub(super) fn fixed(&self, write: &Touching, read: &Touching, scope: Scope) -> (BTreeSet<VarId>, usize) {
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

pub(super) fn is_thread(kind: LoopKind) -> bool {
    matches!(kind, LoopKind::Thread(Axis::X | Axis::Y | Axis::Z))
}

/// Whether each thread has memory of its own, or its part of what a unit holds.
pub(super) fn threads_differ(scope: Scope) -> bool {
    scope.is_private() || matches!(scope, Scope::Fragment(_))
}
