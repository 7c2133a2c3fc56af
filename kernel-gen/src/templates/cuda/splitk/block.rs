//! The place of a thread.

use super::plan::Plan;
use crate::ir::{Expr, VarId};
use crate::workload::Workload;
use crate::workload::operands::Operands;

/// What a thread knows of its place.
pub(super) struct Block<'a> {
    pub(super) plan: &'a Plan,
    pub(super) w: &'a Workload,
    pub(super) params: Operands,
    pub(super) image: VarId,
    pub(super) channels: VarId,
    pub(super) tile: VarId,
    pub(super) rank: Expr,
    pub(super) warp: VarId,
    pub(super) lane: VarId,
}
