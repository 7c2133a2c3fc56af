//! How long a product with few columns takes: what ranks sizes that were not measured.

use super::{DEPTH, Plan, ROWS, ceil_div};
use crate::target::Cuda;
use crate::workload::Workload;

/// Microseconds to launch and to end.
const LAUNCH_US: f64 = 1.2;
/// Clocks until the first bytes are there, and of a step of one warp alone: a load from shared memory and the product behind
/// it.
const FILL_CLOCKS: f64 = 700.0;
const STEP_CLOCKS: f64 = 40.0;
/// Bytes a clock that one multiprocessor moves from and to the L2 cache when all ask, and how many of them must be under way
/// for each of these clocks.
const L2_BYTES_PER_CLOCK: f64 = 40.0;
const LATENCY: f64 = 900.0;
/// Share of the time in which a warp has loads under way when it multiplies what it waited for.
const WITHOUT_AHEAD: f64 = 0.7;
/// Bytes a clock that a multiprocessor reads from shared memory.
const SHARED_BYTES_PER_CLOCK: f64 = 128.0;
/// Share of the tensor cores' rate that products of a warp reach.
const TENSOR_RATE: f64 = 0.5;
/// What pairs cost in comparison with 16 bytes at a time.
const PAIRS: f64 = 1.5;
/// Share of the L2 cache from which data comes in the next call, and share of the memory's rate that is reached.
const CACHED: f64 = 0.75;
const MEMORY_RATE: f64 = 0.85;

/// Microseconds.
pub(super) fn us(plan: &Plan, w: &Workload, gpu: &Cuda) -> f64 {
    let sizes = plan.sizes;
    let (depth, bn) = (plan.depth() as f64, sizes.bn as f64);
    let turns = plan.turns() as f64;
    // Tiles of the multiprocessor that has most, of all tiles of columns: blocks come in turn.
    let tiles = ceil_div(plan.tiles() * plan.column_tiles(), plan.units) as f64;
    let resident = ceil_div(plan.blocks() * plan.column_tiles(), plan.units).max(1) as f64;
    let waves = (resident / sizes.resident as f64).max(1.0);
    let steps = depth / DEPTH as f64;
    let read = ROWS as f64 * depth * 2.0;
    let written = ROWS as f64 * bn * plan.out_bytes as f64 * if sizes.staged { 1.0 } else { PAIRS };
    let under_way = sizes.resident.min(resident as i64) as f64 * sizes.warps as f64 * read;
    let under_way = if sizes.ahead { under_way } else { under_way * WITHOUT_AHEAD };
    let rate = L2_BYTES_PER_CLOCK.min(under_way / LATENCY);
    let staged = if sizes.staged { 2.0 * ROWS as f64 * bn * plan.out_bytes as f64 } else { 0.0 };
    let shared = (bn * depth * 2.0 + staged) / SHARED_BYTES_PER_CLOCK;
    let products = 2.0 * ROWS as f64 * bn * depth / (gpu.f16_flops_per_sm_clock.max(1) as f64 * TENSOR_RATE);
    let busy = tiles * ((read + written) / rate + shared.max(products));
    let alone =
        turns * waves * (steps * STEP_CLOCKS * (bn / 32.0).max(1.0) + if sizes.ahead { 0.0 } else { FILL_CLOCKS });
    let weights = resident * bn * depth * 2.0 / L2_BYTES_PER_CLOCK;
    let clocks = FILL_CLOCKS + weights + busy.max(alone);
    // What the cache keeps from call to call need not come from memory.
    let missing = (w.bytes() as f64 - CACHED * gpu.l2_bytes as f64).max(0.0);
    let missing = if missing > 0.0 { w.bytes() as f64 } else { 0.0 };
    let memory = missing / (gpu.bandwidth_gb_s.max(1.0) * 1e3 * MEMORY_RATE);
    LAUNCH_US + (clocks / gpu.clock_mhz.max(1) as f64).max(memory)
}
