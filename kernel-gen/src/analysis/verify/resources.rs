//! The kernel fits the target.

use super::barriers::{axis_name, block_extents};
use super::fault::{Fault, FaultKind};
use super::limits::Limits;
use crate::ir::{Axis, Buffer, For, Kernel, LoopKind, Scope, Stmt};

/// Blocks of a cluster that every target with clusters has (CUDA C++ Programming Guide, "Thread Block Clusters").
const MOST_CLUSTER: i64 = 8;

/// Checks the resource rules under "Target".
pub(super) fn check(kernel: &Kernel, limits: &Limits, faults: &mut Vec<Fault>) {
    launches(kernel, &kernel.body, limits, faults);
}

fn launches(kernel: &Kernel, block: &[Stmt], limits: &Limits, faults: &mut Vec<Fault>) {
    for s in block {
        match s {
            Stmt::For(l) if matches!(l.kind, LoopKind::Grid(_) | LoopKind::Cluster(_) | LoopKind::Thread(_)) => {
                launch(kernel, s, l, limits, faults);
            }
            Stmt::For(l) => launches(kernel, &l.body, limits, faults),
            Stmt::If { then, otherwise, .. } => {
                launches(kernel, then, limits, faults);
                launches(kernel, otherwise, limits, faults);
            }
            _ => {}
        }
    }
}

fn launch(kernel: &Kernel, s: &Stmt, l: &For, limits: &Limits, faults: &mut Vec<Fault>) {
    let mut fault = |kind, cause: String, help: &str| faults.push(Fault::at(kernel, &[], s, kind, cause, help));
    if limits.threads_per_block == 0 {
        let cause = format!("{} is a {} loop, which the target does not have", kernel.var(l.var).name, l.kind.name());
        fault(FaultKind::ResourceLimit, cause, "bind it to parallel");
        return;
    }
    let block = block_extents(s);
    let threads = block.iter().fold(1i64, |a, n| a.saturating_mul(*n));
    if threads > limits.threads_per_block {
        let cause = format!("a block has {threads} threads, the target allows {}", limits.threads_per_block);
        fault(FaultKind::ResourceLimit, cause, "shorten the thread loops");
    }
    let mut grid = [1; 3];
    s.walk(&mut |s| {
        if let Stmt::For(For { kind: LoopKind::Grid(axis), extent, .. }) = s {
            grid[*axis as usize] = grid[*axis as usize].max(*extent);
        }
    });
    for (what, extents, most) in [("block", block, limits.block_dim), ("grid", grid, limits.grid_dim)] {
        for axis in [Axis::X, Axis::Y, Axis::Z] {
            let (n, most) = (extents[axis as usize], most[axis as usize]);
            if n > most {
                let cause = format!("the {what} has extent {n} along {}, the target allows {most}", axis_name(axis));
                fault(FaultKind::ResourceLimit, cause, "use another axis, or a serial loop inside");
            }
        }
    }
    let mut cluster = [1; 3];
    s.walk(&mut |s| {
        if let Stmt::For(For { kind: LoopKind::Cluster(axis), extent, .. }) = s {
            cluster[*axis as usize] = cluster[*axis as usize].max(*extent);
        }
    });
    let blocks = cluster.iter().fold(1i64, |a, n| a.saturating_mul(*n));
    if blocks > MOST_CLUSTER {
        let cause = format!("a cluster has {blocks} blocks, targets allow {MOST_CLUSTER}");
        fault(FaultKind::ResourceLimit, cause, "shorten the cluster loops");
    }
    let shared = most_live(kernel, std::slice::from_ref(s), &|k, b| match k.buffer(b).scope {
        Scope::Shared => aligned_bytes(k.buffer(b)),
        Scope::Mbarrier => k.buffer(b).extent_bytes(),
        _ => 0,
    });
    if shared > limits.shared_bytes {
        let cause = format!("a block uses {shared} bytes of shared memory, the target has {}", limits.shared_bytes);
        fault(FaultKind::SharedMemoryLimit, cause, "use smaller tiles");
    }
    let registers = most_live(kernel, std::slice::from_ref(s), &|k, b| match k.buffer(b).scope {
        // A register holds 32 bits; smaller elements are packed.
        Scope::Register => (k.buffer(b).extent_bytes() + 3) / 4,
        Scope::Fragment(unit) => (k.buffer(b).extent_bytes() + 3) / 4 / unit.threads(),
        _ => 0,
    });
    if let Some(most) = limits.registers_per_thread
        && registers > most
    {
        let cause = format!("register arrays take {registers} registers of a thread, the target has {most}");
        fault(FaultKind::ResourceLimit, cause, "use smaller tiles a thread");
    }
}

/// Bytes of a shared buffer with what its alignment may cost: a swizzle is a map of 8 rows, so its buffer begins with
/// such a piece.
fn aligned_bytes(b: &Buffer) -> i64 {
    let piece = 8 * i64::from(b.swizzle).max(2);
    (b.extent_bytes() + piece - 1) / piece * piece
}

/// The most that is allocated at one time, where `cost` says what a buffer takes.
fn most_live(kernel: &Kernel, block: &[Stmt], cost: &dyn Fn(&Kernel, crate::ir::BufferId) -> i64) -> i64 {
    let (mut live, mut most) = (0i64, 0i64);
    for s in block {
        let inner = match s {
            Stmt::Alloc(b) => {
                live = live.saturating_add(cost(kernel, *b));
                0
            }
            Stmt::For(l) => most_live(kernel, &l.body, cost),
            Stmt::If { then, otherwise, .. } => most_live(kernel, then, cost).max(most_live(kernel, otherwise, cost)),
            _ => 0,
        };
        most = most.max(live.saturating_add(inner));
    }
    most
}
