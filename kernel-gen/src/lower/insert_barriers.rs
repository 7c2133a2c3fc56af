//! Lets the threads of a block wait for each other where shared memory changes hands.
//!
//! ```text
//! for ko { s[tx] = x[ko, tx]                       for ko { s[tx] = x[ko, tx]
//!          for ki { acc += s[ki] } }        ->              barrier block
//!                                                           for ki { acc += s[ki] }
//!                                                           barrier block }
//! ```
//! A statement that reads a shared buffer after another wrote it, or writes it after another read or wrote it, gets a
//! barrier before it; a loop whose next iteration would meet the accesses of this one gets one at the end of its body.
//! The barrier stands as far out as the conflict is visible, and never where only some threads would reach it (below a
//! condition on a thread's index). Buffers count as a whole: a barrier may be more than is needed, never less, apart from
//! conflicts within a single statement, which the verifier reports.
//!
//! Two writes are taken to be of different elements, as those of a cooperative copy are: a barrier after each element of a
//! copy would cost more than the copy. Where the verifier sees that they are not, writes get barriers among themselves too.
//!
//! A buffer whose first dimension is the number of the warp, said as the index of the `thread.y` loop over warps of 32
//! `thread.x`, is memory of one warp. Kernels that place `barrier warp` themselves keep such buffers in order with it, so no
//! barrier of the block is put there; the verifier and the interpreter still look at them.
//!
//! What `copy_async` brings is there behind a `wait copy`, so a barrier right behind the copy would be of no use. Kernels that
//! place a `barrier block` directly behind a `wait copy` keep what only `copy_async` fills in order with it: slots of a ring are
//! filled while others are read, and no barrier is put between. What they store directly in front of a `commit copy` is a part of
//! the same step, and fills a ring, too. Where the verifier sees that they do not, they get barriers like all others.
//!
//! Schedules leave barriers out, so a kernel with shared memory goes through this before it is verified: call
//! [`insert_barriers`]. As a pass of lowering it finds nothing left to do.

use super::pass::{LowerError, LowerOptions};
use crate::analysis::verify::{Fault, FaultKind, Limits, Verified, check, verify};
use crate::ir::{Axis, Barrier, BufferId, Expr, For, Gpu, Group, Kernel, LoopKind, Scope, Stmt, VarId};
use std::collections::BTreeSet;

/// The pass.
pub fn run(kernel: Kernel, _: &LowerOptions) -> Result<Kernel, LowerError> {
    // What threads may not write at the same time is already apart: the kernel passed the verifier.
    Ok(insert(kernel, Writes::Apart))
}

/// See the module's text.
pub fn insert_barriers(kernel: Kernel) -> Kernel {
    if kernel.buffers.iter().all(|b| b.scope != Scope::Shared) {
        return kernel;
    }
    let unlimited = Limits {
        shared_bytes: i64::MAX,
        threads_per_block: i64::MAX,
        block_dim: [i64::MAX; 3],
        grid_dim: [i64::MAX; 3],
        registers_per_thread: None,
        require_vector_alignment: false,
        ..Limits::cuda()
    };
    let few = insert(kernel.clone(), Writes::Apart);
    if check(&few, &unlimited).iter().any(is_race) { insert(kernel, Writes::Together) } else { few }
}

/// [`insert_barriers`] and the verifier in one, for half the time: whether writes need barriers among themselves is what
/// the verifier says, and where they do not, it has said everything.
///
/// # Errors
/// What the verifier found.
pub fn insert_and_verify(kernel: Kernel, limits: &Limits) -> Result<Verified, Vec<Fault>> {
    match verify(insert(kernel.clone(), Writes::Apart), limits) {
        Err(faults) if faults.iter().any(is_race) => verify(insert(kernel, Writes::Together), limits),
        verified => verified,
    }
}

/// Whether a barrier is what is missing.
fn is_race(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::MissingBarrier | FaultKind::WriteRace)
}

/// Whether two writes to a buffer may be to one element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    Apart,
    Together,
}

fn insert(mut kernel: Kernel, writes: Writes) -> Kernel {
    if kernel.buffers.iter().all(|b| b.scope != Scope::Shared) {
        return kernel;
    }
    let body = std::mem::take(&mut kernel.body);
    let mut out = vec![];
    for s in body {
        // Each statement at the top is a launch of its own, and shared memory does not outlive it.
        let mut threads = [1; 3];
        s.walk(&mut |s| {
            if let Stmt::For(l) = s
                && let Some(axis) = axis(l)
            {
                threads[axis] = threads[axis].max(l.extent);
            }
        });
        let mut own = of_warps(&kernel, &s);
        if writes == Writes::Apart {
            own.extend(rings(&kernel, &s));
        }
        let mut inserter = Inserter { kernel: &kernel, own, threads, varying: BTreeSet::new(), writes };
        out.extend(inserter.block(vec![s], &mut Accesses::default(), true));
    }
    kernel.body = out;
    kernel
}

/// The axis of a thread loop.
fn axis(l: &For) -> Option<usize> {
    match l.kind {
        LoopKind::Thread(Axis::X) => Some(0),
        LoopKind::Thread(Axis::Y) => Some(1),
        LoopKind::Thread(Axis::Z) => Some(2),
        _ => None,
    }
}

/// Whether all threads of the block wait for each other here.
fn is_barrier(s: &Stmt) -> bool {
    matches!(s, Stmt::Barrier(Barrier::Block) | Stmt::Gpu(Gpu::ClusterBarrier))
}

/// The buffers of a launch that belong to one warp each; none where it has no barriers of warps. See the module's text.
fn of_warps(kernel: &Kernel, launch: &Stmt) -> BTreeSet<BufferId> {
    let (mut lanes, mut warps, mut ordered) = (0, vec![], false);
    launch.walk(&mut |s| match s {
        Stmt::For(l) if l.kind == LoopKind::Thread(Axis::X) => lanes = lanes.max(l.extent),
        Stmt::For(l) if l.kind == LoopKind::Thread(Axis::Y) => warps.push(l.var),
        Stmt::Barrier(Barrier::Warp) => ordered = true,
        _ => {}
    });
    // A second loop over warps would be another name for the same index.
    let &[warp] = &warps[..] else { return BTreeSet::new() };
    if !ordered || lanes != 32 {
        return BTreeSet::new();
    }
    let (mut own, mut shared) = (BTreeSet::new(), BTreeSet::new());
    launch.walk(&mut |s| {
        s.accesses(&mut |a| {
            let one = a.extents.is_none_or(|extents| extents.first() == Some(&1));
            let is_own = one && a.index.len() > 1 && a.index[0] == Expr::Var(warp);
            if is_own { &mut own } else { &mut shared }.extend([a.buffer]);
        });
    });
    own.retain(|b| kernel.buffer(*b).scope == Scope::Shared && !shared.contains(b));
    own
}

/// The buffers of a launch that only `copy_async` fills, or stores directly in front of a `commit copy`, if a barrier stands
/// directly behind a wait for copies; none otherwise. See the module's text.
fn rings(kernel: &Kernel, launch: &Stmt) -> BTreeSet<BufferId> {
    let mut found = Rings::default();
    found.visit(std::slice::from_ref(launch));
    let Rings { mut filled, written, ordered } = found;
    filled.retain(|b| ordered && kernel.buffer(*b).scope == Scope::Shared && !written.contains(b));
    filled
}

/// What [`rings`] looks for.
#[derive(Default)]
struct Rings {
    filled: BTreeSet<BufferId>,
    /// What is written in other ways.
    written: BTreeSet<BufferId>,
    /// Whether a barrier stands directly behind a wait for copies.
    ordered: bool,
}

impl Rings {
    fn visit(&mut self, block: &[Stmt]) {
        self.ordered |= block
            .windows(2)
            .any(|pair| matches!(pair[0], Stmt::Gpu(Gpu::Wait(Group::Copy, _))) && is_barrier(&pair[1]));
        for (i, s) in block.iter().enumerate() {
            let behind = block[i..].iter().find(|s| store(s).is_none());
            let committed = matches!(behind, Some(Stmt::Gpu(Gpu::Commit(Group::Copy))));
            match s {
                Stmt::Gpu(Gpu::CopyAsync { dst, .. }) => drop(self.filled.insert(dst.buffer)),
                s if committed && store(s).is_some() => self.filled.extend(store(s)),
                Stmt::For(l) => self.visit(&l.body),
                Stmt::If { then, otherwise, .. } => [then, otherwise].into_iter().for_each(|s| self.visit(s)),
                other => self.written.extend(other.written()),
            }
        }
    }
}

/// The buffer that a statement stores to, if it is a store, which may have a condition.
fn store(s: &Stmt) -> Option<BufferId> {
    match s {
        Stmt::Store { buffer, .. } => Some(*buffer),
        Stmt::If { then, otherwise, .. } if otherwise.is_empty() => match &then[..] {
            [then] => store(then),
            _ => None,
        },
        _ => None,
    }
}

/// Shared buffers that were touched since the last barrier.
#[derive(Clone, Default, Debug)]
struct Accesses {
    reads: BTreeSet<BufferId>,
    writes: BTreeSet<BufferId>,
}

impl Accesses {
    fn meets(&self, later: &Accesses, writes: Writes) -> bool {
        self.writes.iter().any(|b| later.reads.contains(b) || writes == Writes::Together && later.writes.contains(b))
            || self.reads.iter().any(|b| later.writes.contains(b))
    }

    fn add(&mut self, other: &Accesses) {
        self.reads.extend(&other.reads);
        self.writes.extend(&other.writes);
    }

    fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
    }
}

struct Inserter<'k> {
    kernel: &'k Kernel,
    /// Buffers that the kernel keeps in order itself: those that belong to one warp each, and rings.
    own: BTreeSet<BufferId>,
    /// Threads of a block along each axis.
    threads: [i64; 3],
    /// Variables that differ between threads.
    varying: BTreeSet<VarId>,
    writes: Writes,
}

impl Inserter<'_> {
    /// `uniform`: all threads get here together, so a barrier may stand here.
    fn block(&mut self, stmts: Vec<Stmt>, pending: &mut Accesses, uniform: bool) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(stmts.len());
        for s in stmts {
            if is_barrier(&s) {
                pending.clear();
                out.push(s);
                continue;
            }
            if uniform && pending.meets(&self.first_accesses(std::slice::from_ref(&s)), self.writes) {
                out.push(Stmt::Barrier(Barrier::Block));
                pending.clear();
            }
            out.push(self.stmt(s, pending, uniform));
        }
        out
    }

    fn stmt(&mut self, s: Stmt, pending: &mut Accesses, uniform: bool) -> Stmt {
        match s {
            Stmt::For(l) => {
                let whole = axis(&l).is_none_or(|a| l.extent == self.threads[a]);
                if axis(&l).is_some() {
                    self.varying.insert(l.var);
                }
                let uniform = uniform && whole;
                let mut body = self.block(l.body, pending, uniform);
                // Only loops that one thread runs through carry accesses from one iteration to the next.
                let repeats =
                    l.extent > 1 && matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled | LoopKind::VThread);
                if repeats && uniform && pending.meets(&self.first_accesses(&body), self.writes) {
                    body.push(Stmt::Barrier(Barrier::Block));
                    pending.clear();
                }
                Stmt::For(For { body, ..l })
            }
            Stmt::If { cond, then, otherwise } => {
                let uniform = uniform && !self.varies(&cond);
                let mut other = pending.clone();
                let then = self.block(then, pending, uniform);
                let otherwise = self.block(otherwise, &mut other, uniform);
                pending.add(&other);
                Stmt::If { cond, then, otherwise }
            }
            Stmt::Let { var, value } => {
                if self.varies(&value) {
                    self.varying.insert(var);
                }
                pending.add(&self.own_accesses(&Stmt::Let { var, value: value.clone() }));
                Stmt::Let { var, value }
            }
            other => {
                pending.add(&self.own_accesses(&other));
                other
            }
        }
    }

    /// What a block touches before its first barrier.
    fn first_accesses(&self, block: &[Stmt]) -> Accesses {
        let mut all = Accesses::default();
        self.until_barrier(block, &mut all);
        all
    }

    /// Adds accesses up to the first barrier; whether there was one on every path.
    fn until_barrier(&self, block: &[Stmt], all: &mut Accesses) -> bool {
        for s in block {
            all.add(&self.own_accesses(s));
            let met = match s {
                s if is_barrier(s) => true,
                Stmt::For(l) => self.until_barrier(&l.body, all) && l.extent > 0,
                Stmt::If { then, otherwise, .. } => {
                    // Both are visited, whatever the first one has.
                    let first = self.until_barrier(then, all);
                    self.until_barrier(otherwise, all) && first
                }
                _ => false,
            };
            if met {
                return true;
            }
        }
        false
    }

    /// Shared buffers that the statement itself touches, without those of nested ones.
    fn own_accesses(&self, s: &Stmt) -> Accesses {
        let shared = |b: BufferId| self.kernel.buffer(b).scope == Scope::Shared && !self.own.contains(&b);
        let mut all = Accesses::default();
        // What comes with the count of an mbarrier is awaited there.
        let awaited = matches!(s, Stmt::Gpu(Gpu::TensorLoad { .. } | Gpu::StoreAt { .. }));
        s.accesses(&mut |a| match shared(a.buffer) {
            true if !a.writes => drop(all.reads.insert(a.buffer)),
            true if !awaited => drop(all.writes.insert(a.buffer)),
            _ => {}
        });
        all
    }

    /// Whether threads may see different values.
    fn varies(&self, e: &Expr) -> bool {
        let mut found = false;
        e.walk(&mut |e| match e {
            Expr::Var(v) => found |= self.varying.contains(v),
            // Memory may hold anything.
            Expr::Load(..) => found = true,
            _ => {}
        });
        found
    }
}
