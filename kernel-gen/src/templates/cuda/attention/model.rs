//! How long attention takes: what ranks configs that were not measured.

use super::{Plan, Sizes};
use crate::target::Cuda;
use crate::templates::cuda::family::Plan as _;
use crate::templates::cuda::model::{Waves, memory_us};
use crate::workload::Workload;

/// Microseconds to launch and to end.
const LAUNCH_US: f64 = 1.5;
/// Clocks of a step that hide below nothing: copies, the barrier, and what lanes of a row exchange.
const STEP_CLOCKS: f64 = 400.0;
/// Clocks until the first keys have come, and after the last step until the last output is stored.
const FILL_CLOCKS: f64 = 1500.0;
/// Instructions of a thread for each of its scores beside the products: scale, maximum, exponential, sum, rounding.
const SCORE_INSTRUCTIONS: f64 = 14.0;
/// The share of the tensor cores' rate that `mma.sync` reaches on devices with `wgmma`.
const TENSOR_RATE: f64 = 0.6;

/// Microseconds.
pub(super) fn us(plan: &Plan, w: &Workload, gpu: &Cuda) -> f64 {
    let resident = plan.needs().resident(gpu);
    if resident == 0 {
        return f64::INFINITY;
    }
    let Sizes { warps, rows, keys, .. } = plan.sizes;
    let [d, dv] = plan.widths().map(|n| n as f64);
    let (rows, keys) = ((rows * super::TILE) as f64, keys as f64);
    let Waves { count, together, .. } = Waves::of(plan.of.b * plan.of.heads * plan.tiles(), resident, gpu);
    let warps = warps as f64;
    // Of one warp in one step: on its scheduler's quarter of the tensor cores, and instructions that it issues.
    let products = 2.0 * rows * keys * (d + dv) / (gpu.f16_flops_per_sm_clock.max(1) as f64 * TENSOR_RATE / 4.0);
    let issue = rows * keys / 32.0 * SCORE_INSTRUCTIONS + rows * dv / 32.0;
    // What all warps read of shared memory.
    let shared = warps * 2.0 * keys * (d + dv) / 128.0;
    let own = products + issue;
    let busy = (own * (warps * together / 4.0).max(1.0)).max(shared * together);
    let steps = plan.steps() as f64 * if plan.of.causal { 0.5 } else { 1.0 };
    let clocks = count * (FILL_CLOCKS + steps * (busy + STEP_CLOCKS / plan.sizes.stages.min(2) as f64));
    LAUNCH_US + (clocks / gpu.clock_mhz.max(1) as f64).max(memory_us(w.bytes() as f64, gpu))
}
