//! `pragma`: advice for lowering is attached to a loop.
//!
//! ```text
//! pragma(i, AutoUnrollMaxStep(512))
//! for i in 0..4 { s }   ->   for i in 0..4 auto_unroll_max_step(512) { s }
//! ```
//! A pragma of the same sort is replaced. Refuses when there is no such loop.

use super::error::ScheduleError;
use super::nest::{replace_loop, the_loop};
use crate::ir::{Kernel, Pragma, Stmt, VarId};

/// Attaches advice to a loop.
pub fn pragma(k: &Kernel, var: VarId, pragma: Pragma) -> Result<Kernel, ScheduleError> {
    the_loop(k, "pragma", var)?;
    let mut out = k.clone();
    replace_loop(&mut out, var, |mut l| {
        l.pragmas.retain(|p| std::mem::discriminant(p) != std::mem::discriminant(&pragma));
        l.pragmas.push(pragma);
        vec![Stmt::For(l)]
    });
    Ok(out)
}
