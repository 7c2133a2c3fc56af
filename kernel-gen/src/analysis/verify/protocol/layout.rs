//! What is one thread's alone: its part of a fragment, its counters, and the lanes of its vectors.

use crate::ir::{BufferId, Expr, For, Kernel, Scope};

/// Warps of the fragments in a loop over rows or columns.
pub(super) fn fragment_warps(kernel: &Kernel, l: &For) -> i64 {
    let mut warps = 1;
    let mut of = |b: BufferId| {
        if let Scope::Fragment(unit) = kernel.buffer(b).scope {
            warps = warps.max(unit.warps());
        }
    };
    l.body.iter().for_each(|s| s.walk(&mut |s| s.accesses(&mut |a| of(a.buffer))));
    warps
}

/// Whether a buffer is memory of one thread that may say where it stands in a protocol.
pub(super) fn is_counter(kernel: &Kernel, b: BufferId) -> bool {
    kernel.buffer(b).scope.is_private() && kernel.buffer(b).dtype.is_int()
}

/// Lanes of an access: those of the index that is a vector.
pub(super) fn lanes(indices: &[Expr]) -> i64 {
    let mut lanes = 1;
    for e in indices {
        e.walk(&mut |e| {
            if let Expr::Ramp { lanes: n, .. } = e {
                lanes = lanes.max(i64::from(*n));
            }
        });
    }
    lanes
}
