//! Threads that meet in more ways than at barriers of the block: launches with statements that only a GPU has.
//!
//! No rule proves a protocol of mbarriers, so it is run: the threads of a block go through their statements with all
//! loops, without any data, as the interpreter does, and [`crate::analysis::order`] says what is ordered before what.
//! To stay fast at the sizes that kernels are made for,
//!
//! * a warp is one actor: what one of its threads knows, all know. Races within a warp are left to the interpreter;
//! * memory is looked at in the largest pieces that no tile cuts ([`units`]), and loops that touch nothing that
//!   threads share are passed by; an index that memory decides about is left to the interpreter;
//! * what does not depend on the thread is found out once, and what one thread of a warp has read and nothing has
//!   written since, the others need not read again ([`plan`]);
//! * of the clusters that do the same ([`kinds`]) one is run. Clusters meet on global memory only, which the rule on
//!   races of blocks covers for all of them;
//! * a cluster is stopped after [`STEPS`] statements, by when a ring has turned thousands of times, and no cluster is begun
//!   after [`ALL_STEPS`] of the launch. What was left out is said in [`Depth`](super::Depth).

mod effects;
mod kinds;
mod pieces;
mod plan;
mod run;
#[cfg(test)]
mod tests;

use super::depth::LaunchDepth;

use super::access::is_hardware;
use super::fault::Fault;
use crate::ir::{BufferId, Kernel, LoopKind, Scope, Stmt, Unit};
use plan::{Block, Detail, Planner};
use std::collections::BTreeSet;

/// Statements of all threads of a cluster that are run.
const STEPS: u64 = 3_000_000;

/// Statements of a launch after which no further cluster is run. Two clusters are.
const ALL_STEPS: u64 = 6_000_000;

/// Whether a launch has what only a GPU has.
pub(super) fn applies(launch: &Stmt) -> bool {
    let mut found = false;
    launch.walk(&mut |s| {
        found |= match s {
            Stmt::Gpu(_) => true,
            Stmt::For(l) => {
                matches!(l.kind, LoopKind::Cluster(_) | LoopKind::FragmentRow | LoopKind::FragmentCol)
            }
            _ => false,
        }
    });
    found
}

/// Checks the rules under "Protocols"; says how deep it looked at each launch.
pub(super) fn check(kernel: &Kernel, faults: &mut Vec<Fault>) -> Vec<LaunchDepth> {
    let mut depth = vec![];
    walk(kernel, &kernel.body, faults, &mut depth);
    depth
}

fn walk(kernel: &Kernel, block: &[Stmt], faults: &mut Vec<Fault>, depth: &mut Vec<LaunchDepth>) {
    for s in block {
        match s {
            Stmt::For(l) if is_hardware(l.kind) && applies(s) => {
                let launch = Launch::new(kernel, s, Detail::Full);
                let (fault, of_launch) = of_clusters(kernel, &launch, &mut 0);
                faults.extend(fault);
                depth.push(LaunchDepth { name: kernel.var(l.var).name.clone(), ..of_launch });
            }
            Stmt::For(l) => walk(kernel, &l.body, faults, depth),
            Stmt::If { then, otherwise, .. } => {
                walk(kernel, then, faults, depth);
                walk(kernel, otherwise, faults, depth);
            }
            _ => {}
        }
    }
}

/// The first fault of the clusters that are run, and which those are; adds their statements to `steps`.
fn of_clusters(kernel: &Kernel, launch: &Launch<'_>, steps: &mut u64) -> (Option<Fault>, LaunchDepth) {
    let mut depth = LaunchDepth::default();
    if launch.threads == 0 || launch.grid.contains(&0) {
        return (None, depth);
    }
    let kinds = kinds::of(kernel, launch);
    depth.clusters = launch.grid.iter().fold(1, |n: u64, extent| n.saturating_mul(*extent as u64));
    depth.kinds = kinds.count;
    let before = *steps;
    for cluster in kinds.clusters {
        if depth.run >= 2 && *steps - before > ALL_STEPS {
            break;
        }
        depth.run += 1;
        match run::run(kernel, launch, cluster, steps) {
            run::End::All => {}
            run::End::Stopped => {
                depth.stopped += 1;
                depth.statements = STEPS;
            }
            run::End::Fault(fault) => return (Some(*fault), depth),
        }
    }
    (None, depth)
}

/// What is the same for all clusters of a launch.
struct Launch<'k> {
    stmt: &'k Stmt,
    grid: [i64; 3],
    block: [i64; 3],
    cluster: [i64; 3],
    /// Threads, warps and warpgroups of a block; the last ones may be incomplete.
    threads: usize,
    warps: usize,
    warpgroups: usize,
    /// Blocks of a cluster.
    blocks: usize,
    /// Buffers that threads meet on.
    tracked: BTreeSet<BufferId>,
    /// The launch, without what neither touches such buffers nor waits nor binds variables.
    plan: Block<'k>,
    /// Statements of the plan that something is remembered of.
    memos: usize,
    /// First mbarrier of each buffer among those of a block.
    mbarriers: Vec<usize>,
    mbarriers_per_block: usize,
}

impl<'k> Launch<'k> {
    fn new(kernel: &Kernel, stmt: &'k Stmt, detail: Detail) -> Launch<'k> {
        let mut extents = [[1i64; 3]; 3];
        stmt.walk(&mut |s| {
            if let Stmt::For(l) = s {
                let of = match l.kind {
                    LoopKind::Grid(a) => Some((0, a)),
                    LoopKind::Thread(a) => Some((1, a)),
                    LoopKind::Cluster(a) => Some((2, a)),
                    _ => None,
                };
                if let Some((kind, axis)) = of {
                    let n = &mut extents[kind][axis as usize];
                    *n = l.extent.max(*n);
                }
            }
        });
        let [grid, block, cluster] = extents;
        let count = |n: [i64; 3]| n.iter().fold(1i64, |a, b| a.saturating_mul(*b)) as usize;
        let threads = count(block);
        let mut mbarriers = vec![0; kernel.buffers.len()];
        let mut mbarriers_per_block = 0;
        for (i, b) in kernel.buffers.iter().enumerate().filter(|(_, b)| b.scope == Scope::Mbarrier) {
            mbarriers[i] = mbarriers_per_block;
            mbarriers_per_block += b.shape.iter().product::<i64>() as usize;
        }
        let tracked = pieces::tracked(kernel, stmt);
        let mut interesting = BTreeSet::new();
        mark(kernel, stmt, &tracked, &mut interesting);
        let mut planner = Planner::new(kernel, stmt, &tracked, &interesting, detail);
        let plan = planner.block(std::slice::from_ref(stmt));
        let memos = planner.memos;
        Launch {
            stmt,
            grid,
            block,
            cluster,
            threads,
            warps: threads.div_ceil(32),
            warpgroups: threads.div_ceil(128),
            blocks: count(cluster),
            tracked,
            plan,
            memos,
            mbarriers,
            mbarriers_per_block,
        }
    }

    /// Copies of a buffer in a cluster.
    fn copies(&self, scope: Scope) -> usize {
        match scope {
            Scope::Fragment(Unit::Warp) => self.warps * self.blocks,
            Scope::Fragment(Unit::Warpgroup) => self.warpgroups * self.blocks,
            Scope::Shared | Scope::Mbarrier => self.blocks,
            Scope::Global | Scope::Local | Scope::Register => 1,
        }
    }
}

/// Whether a buffer is memory of one thread that may say where it stands in a protocol.
fn is_counter(kernel: &Kernel, b: BufferId) -> bool {
    kernel.buffer(b).scope.is_private() && kernel.buffer(b).dtype.is_int()
}

/// Collects the statements that matter; says whether this one does.
fn mark(kernel: &Kernel, s: &Stmt, tracked: &BTreeSet<BufferId>, out: &mut BTreeSet<usize>) -> bool {
    let mut matters = matches!(s, Stmt::Gpu(_) | Stmt::Barrier(_) | Stmt::Let { .. });
    matters |= s.written().is_some_and(|b| is_counter(kernel, b));
    matters |= matches!(s, Stmt::Alloc(b) if is_counter(kernel, *b));
    s.accesses(&mut |a| matters |= tracked.contains(&a.buffer));
    let inner: &[&[Stmt]] = match s {
        Stmt::For(l) => &[&l.body],
        Stmt::If { then, otherwise, .. } => &[then, otherwise],
        _ => &[],
    };
    for s in inner.iter().copied().flatten() {
        // A name alone is no reason to go through a loop.
        matters |= mark(kernel, s, tracked, out) && !matches!(s, Stmt::Let { .. });
    }
    if matters {
        out.insert(std::ptr::from_ref(s) as usize);
    }
    matters
}
