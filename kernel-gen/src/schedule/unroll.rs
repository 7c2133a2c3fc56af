//! `unroll`: a loop's body is copied out once an iteration.
//!
//! ```text
//! unroll(i)
//! for i in 0..4 { s }   ->   for i in 0..4 unrolled { s }
//! ```
//! The order stays, so nothing about dependences can forbid it. Refuses when the loop has another kind already.

use super::bind::set_kind;
use super::error::ScheduleError;
use crate::ir::{Kernel, LoopKind, VarId};

/// Makes the loop [`LoopKind::Unrolled`].
pub fn unroll(k: &Kernel, var: VarId) -> Result<Kernel, ScheduleError> {
    set_kind(k, "unroll", var, LoopKind::Unrolled)
}
