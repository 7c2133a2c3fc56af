//! Threads that meet in more ways than at barriers of the block.

use crate::ir::{LoopKind, Stmt};

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
