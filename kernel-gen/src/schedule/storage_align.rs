//! `storage_align`: rows of a buffer are spaced out, so that a stride has a wanted remainder.
//!
//! ```text
//! storage_align(t, 0, 32, 1)
//! alloc t: f32[8, 32] shared   ->   alloc t: f32[8, 32] shared strides [33, 1]
//! ```
//! Threads that walk down a column of shared memory then fall into different banks, and rows can start at vector
//! boundaries. Refuses parameters, the innermost dimension (vector accesses need neighbours), remainders that no number
//! has, and buffers whose outer dimensions were spaced out before.

use super::error::{Reason, ScheduleError, refuse_stage};
use crate::ir::{BufferId, Kernel};

/// Makes the stride of dimension `dim` the next number that leaves `offset` when divided by `factor`.
pub fn storage_align(
    k: &Kernel,
    buffer: BufferId,
    dim: usize,
    factor: i64,
    offset: i64,
) -> Result<Kernel, ScheduleError> {
    const NAME: &str = "storage_align";
    let refuse = |reason| refuse_stage(k, NAME, buffer, reason);
    let Some(b) = k.buffers.get(buffer.0 as usize) else { return Err(refuse(Reason::NotAStage)) };
    if k.is_param(buffer) {
        return Err(refuse(Reason::Parameter));
    }
    let argument = |given: String, allowed: String| Err(refuse(Reason::BadArgument { given, allowed }));
    if dim + 1 >= b.shape.len() {
        let allowed = format!("below {}, all but the innermost", b.shape.len() - 1);
        return argument(format!("dimension {dim}"), allowed);
    }
    if factor < 1 || !(0..factor).contains(&offset) {
        return argument(format!("factor {factor} and offset {offset}"), "0 <= offset < factor".to_string());
    }
    let natural = |d: usize, strides: &[i64]| strides[d + 1] * b.shape[d + 1];
    if let Some(d) = (0..dim).find(|d| b.strides[*d] != natural(*d, &b.strides)) {
        return argument(format!("dimension {dim} after dimension {d}"), "inner dimensions first".to_string());
    }
    let mut strides = b.strides.clone();
    let row = natural(dim, &strides);
    strides[dim] = row + (offset - row).rem_euclid(factor);
    for d in (0..dim).rev() {
        strides[d] = natural(d, &strides);
    }
    let mut out = k.clone();
    out.buffer_mut(buffer).strides = strides;
    Ok(out)
}
