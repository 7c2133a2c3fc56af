//! All threads of a block reach a barrier, or none does.

use super::access::is_hardware;
use super::fault::{Fault, FaultKind};
use crate::analysis::range::Ranges;
use crate::analysis::simplify::prove;
use crate::ir::{Access, Axis, Barrier, Expr, For, Kernel, LoopKind, Stmt, VarId, print};
use std::collections::BTreeSet;

/// Checks the barrier rule under "Threads".
pub(super) fn check(kernel: &Kernel, faults: &mut Vec<Fault>) {
    let mut c = Checker {
        kernel,
        ranges: Ranges::of_block(&kernel.body),
        varying: BTreeSet::new(),
        loops: vec![],
        conditions: vec![],
        block: [1; 3],
        apart: false,
        faults,
    };
    c.block(&kernel.body);
}

struct Checker<'k, 'f> {
    kernel: &'k Kernel,
    ranges: Ranges,
    /// Variables whose value may differ between the threads of a block.
    varying: BTreeSet<VarId>,
    loops: Vec<&'k For>,
    /// Conditions around that not all threads decide alike.
    conditions: Vec<&'k Expr>,
    /// Threads of the launch along each axis.
    block: [i64; 3],
    /// Whether the launch has statements that only a GPU has.
    apart: bool,
    faults: &'f mut Vec<Fault>,
}

impl<'k> Checker<'k, '_> {
    fn block(&mut self, stmts: &'k [Stmt]) {
        for s in stmts {
            match s {
                Stmt::For(l) => {
                    if !self.in_launch() && is_hardware(l.kind) {
                        self.block = block_extents(s);
                        self.apart = super::protocol::applies(s);
                    }
                    if matches!(l.kind, LoopKind::Thread(_)) {
                        self.varying.insert(l.var);
                    }
                    self.loops.push(l);
                    if l.extent > 0 {
                        self.block(&l.body);
                    }
                    self.loops.pop();
                }
                Stmt::If { cond, then, otherwise } => {
                    let decided = prove(cond, &self.ranges);
                    let diverges = decided.is_none() && self.varies(cond);
                    if diverges {
                        self.conditions.push(cond);
                    }
                    if decided != Some(false) {
                        self.block(then);
                    }
                    if decided != Some(true) {
                        self.block(otherwise);
                    }
                    if diverges {
                        self.conditions.pop();
                    }
                }
                Stmt::Let { var, value } if self.varies(value) => {
                    self.varying.insert(*var);
                }
                // Where threads run apart, whole warps may come to their barriers: see `protocol`.
                Stmt::Barrier(Barrier::Warp) if self.apart => {}
                Stmt::Barrier(_) => self.barrier(s),
                _ => {}
            }
        }
    }

    fn in_launch(&self) -> bool {
        self.loops.iter().any(|l| is_hardware(l.kind))
    }

    /// Whether threads may disagree about a value: it depends on their index, or on memory that the kernel changes.
    fn varies(&self, e: &Expr) -> bool {
        let mut found = false;
        e.walk(&mut |e| match e {
            Expr::Var(v) => found |= self.varying.contains(v),
            Expr::Load(b, _) => {
                let b = self.kernel.buffer(*b);
                found |= b.access != Access::Read;
            }
            _ => {}
        });
        found
    }

    fn barrier(&mut self, s: &Stmt) {
        if !self.in_launch() {
            self.faults.push(Fault::at(
                self.kernel,
                &self.loops,
                s,
                FaultKind::LoopNesting,
                "a barrier stands where there is no block of threads",
                "drop it; statements outside a launch run one after the other",
            ));
            return;
        }
        if let Some(cond) = self.conditions.last() {
            self.faults.push(Fault::at(
                self.kernel,
                &self.loops,
                s,
                FaultKind::DivergentBarrier,
                format!(
                    "the barrier is under `{}`, which threads of a block decide differently",
                    print::expr(self.kernel, cond)
                ),
                "move the barrier out of the condition, and put the condition around what it guards",
            ));
        }
        for l in &self.loops {
            if let LoopKind::Thread(axis) = l.kind
                && l.extent < self.block[axis as usize]
            {
                self.faults.push(Fault::at(
                    self.kernel,
                    &self.loops,
                    s,
                    FaultKind::DivergentBarrier,
                    format!(
                        "the barrier is inside {}, which {} of the block's {} threads along {} run",
                        self.kernel.var(l.var).name,
                        l.extent,
                        self.block[axis as usize],
                        axis_name(axis)
                    ),
                    "end the thread loop before the barrier, or give it as many iterations as the block has threads",
                ));
            }
        }
    }
}

/// Threads of a launch along x, y and z: the longest loop of each axis.
pub(super) fn block_extents(launch: &Stmt) -> [i64; 3] {
    let mut out = [1; 3];
    launch.walk(&mut |s| {
        if let Stmt::For(For { kind: LoopKind::Thread(axis), extent, .. }) = s {
            out[*axis as usize] = out[*axis as usize].max(*extent);
        }
    });
    out
}

/// The axis in words.
pub(super) fn axis_name(axis: Axis) -> &'static str {
    match axis {
        Axis::X => "x",
        Axis::Y => "y",
        Axis::Z => "z",
    }
}
