//! `parallel`: a loop's iterations are shared out over the threads of a CPU.
//!
//! ```text
//! parallel(i)
//! for i in 0..8 { s }   ->   for i in 0..8 parallel { s }
//! ```
//! Refuses when the iterations depend on each other, the loop carries a reduction, the loop has a kind already, another
//! loop of the nest is concurrent, or a global buffer lives inside.

use super::bind::set_kind;
use super::error::ScheduleError;
use crate::ir::{Kernel, LoopKind, VarId};

/// Makes the loop [`LoopKind::Parallel`].
pub fn parallel(k: &Kernel, var: VarId) -> Result<Kernel, ScheduleError> {
    set_kind(k, "parallel", var, LoopKind::Parallel)
}
