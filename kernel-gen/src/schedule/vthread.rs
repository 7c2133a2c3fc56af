//! `vthread`: a loop's iterations are interleaved within one thread, to spread its work over strided places.
//!
//! ```text
//! vthread(i)
//! for i in 0..2 { s }   ->   for i in 0..2 vthread { s }
//! ```
//! Refuses when the iterations depend on each other, the loop carries a reduction or has a kind already, or a shared
//! buffer that lives inside was sized for one iteration.

use super::bind::set_kind;
use super::error::ScheduleError;
use crate::ir::{Kernel, LoopKind, VarId};

/// Makes the loop [`LoopKind::VThread`].
pub fn vthread(k: &Kernel, var: VarId) -> Result<Kernel, ScheduleError> {
    set_kind(k, "vthread", var, LoopKind::VThread)
}
