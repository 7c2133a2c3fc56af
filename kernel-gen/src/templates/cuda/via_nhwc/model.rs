//! How long turning takes.

use super::turn::Activations;
use crate::target::Cuda;
use crate::workload::{Conv2d, Workload};

/// Microseconds that a launch costs beside its bytes.
const LAUNCH_US: f64 = 1.6;
/// Share of the memory's rate at which tensors are turned that stay in no cache, and as a multiple of it what they reach
/// that fit the L2 cache twice: as they were and as they are.
const MEMORY_RATE: f64 = 0.85;
const CACHE_RATE: f64 = 1.3;
/// Bytes that memory moves at once, wanted or not.
const SECTOR: f64 = 32.0;

/// Microseconds of the turning launches: each tensor with pixels is read and written.
pub(super) fn us(w: &Workload, c: &Conv2d, cuda: &Cuda) -> f64 {
    let each = w.params().into_iter().map(|param| {
        let Some(turned) = Activations::of(c, param.role).filter(|a| !a.are_rows()) else { return 0.0 };
        let run = (turned.neighbours() * param.dtype.bytes() as i64) as f64;
        let bytes = param.bytes() as f64 * (1.0 + (SECTOR / run).max(1.0));
        let rate = if bytes <= cuda.l2_bytes as f64 { CACHE_RATE } else { MEMORY_RATE };
        LAUNCH_US + bytes / (cuda.bandwidth_gb_s * 1e3 * rate)
    });
    each.sum()
}
