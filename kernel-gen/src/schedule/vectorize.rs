//! `vectorize`: a loop's iterations become the lanes of a vector.
//!
//! ```text
//! vectorize(i)
//! for i in 0..8 { s }   ->   for i in 0..8 vectorized { s }
//! ```
//! Refuses when the iterations depend on each other, the loop carries a reduction, the loop has a kind already, or a
//! loop inside is concurrent or vectorised.

use super::bind::set_kind;
use super::error::ScheduleError;
use crate::ir::{Kernel, LoopKind, VarId};

/// Makes the loop [`LoopKind::Vectorized`].
pub fn vectorize(k: &Kernel, var: VarId) -> Result<Kernel, ScheduleError> {
    set_kind(k, "vectorize", var, LoopKind::Vectorized)
}
