//! What is the same for all clusters of a launch.

use super::layout::is_counter;
use super::pieces;
use super::plan::{Block, Detail, Planner};
use crate::ir::{BufferId, Kernel, LoopKind, Scope, Stmt, Unit};
use std::collections::BTreeSet;

/// A launch, and its shape.
pub(super) struct Launch<'k> {
    pub(super) stmt: &'k Stmt,
    pub(super) grid: [i64; 3],
    pub(super) block: [i64; 3],
    pub(super) cluster: [i64; 3],
    /// Threads, warps and warpgroups of a block; the last ones may be incomplete.
    pub(super) threads: usize,
    pub(super) warps: usize,
    pub(super) warpgroups: usize,
    /// Blocks of a cluster.
    pub(super) blocks: usize,
    /// Buffers that threads meet on.
    pub(super) tracked: BTreeSet<BufferId>,
    /// The launch, without what neither touches such buffers nor waits nor binds variables.
    pub(super) plan: Block<'k>,
    /// Statements of the plan that something is remembered of.
    pub(super) memos: usize,
    /// First mbarrier of each buffer among those of a block.
    pub(super) mbarriers: Vec<usize>,
    pub(super) mbarriers_per_block: usize,
}

impl<'k> Launch<'k> {
    pub(super) fn new(kernel: &Kernel, stmt: &'k Stmt, detail: Detail) -> Launch<'k> {
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
    pub(super) fn copies(&self, scope: Scope) -> usize {
        match scope {
            Scope::Fragment(Unit::Warp) => self.warps * self.blocks,
            Scope::Fragment(Unit::Warpgroup) => self.warpgroups * self.blocks,
            Scope::Shared | Scope::Mbarrier => self.blocks,
            Scope::Global | Scope::Local | Scope::Register => 1,
        }
    }
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
