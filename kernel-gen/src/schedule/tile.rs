//! `tile`: two nested loops become four, so that the inner two walk a rectangle.
//!
//! ```text
//! tile(i, j, 4, 8)
//! for i in 0..16 { for j in 0..16 { s } }
//!   ->   for i_o in 0..4 { for j_o in 0..2 { for i_i in 0..4 { for j_i in 0..8 { s } } } }
//! ```
//! Refuses when `split` or `reorder` would.

use super::error::ScheduleError;
use super::{Tail, reorder::reorder, split::split};
use crate::ir::{Kernel, VarId};

/// Tiles the loops `x` (outer) and `y` (perfectly nested in it) by `factors`; returns `[x_o, y_o, x_i, y_i]`.
pub fn tile(
    k: &Kernel,
    [x, y]: [VarId; 2],
    factors: [i64; 2],
    tail: Tail,
) -> Result<(Kernel, [VarId; 4]), ScheduleError> {
    let (k, [xo, xi]) = split(k, x, factors[0], tail)?;
    let (k, [yo, yi]) = split(&k, y, factors[1], tail)?;
    let k = reorder(&k, &[xo, yo, xi, yi])?;
    Ok((k, [xo, yo, xi, yi]))
}
