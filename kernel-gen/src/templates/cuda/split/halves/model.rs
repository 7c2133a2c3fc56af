//! How long a product takes: what ranks sizes that were not measured.

use super::{DEPTH, PARTS, Plan};
use crate::target::Cuda;
use crate::workload::Workload;

/// Share of the tensor cores' rate that is reached with random data, where the clock drops.
const TENSOR_RATE: f64 = 0.88;
/// Clocks of a step for each of its rows that no product hides, and how much more of it there is with two slots. Fitted, with the other figures
/// below, to 40 timings of the hand-written form on an H100; what they are spent on is not known.
const ROW_CLOCKS: f64 = 10.0;
const TWO_SLOTS: f64 = 1.06;
/// Clocks of a step in which a consumer waits and adds up, which other consumers hide.
const APART_CLOCKS: f64 = 500.0;
/// Clocks until the first slot of a ring is filled, and bytes a clock that threads store from registers.
const FILL_CLOCKS: f64 = 1500.0;
const STORE_BYTES_PER_CLOCK: f64 = 8.0;
/// Share of the memory's rate at which pixels are split, and the microseconds that the three launches take beside their work.
const SPLIT_RATE: f64 = 0.75;
const LAUNCHES_US: f64 = 9.0;

/// Microseconds: the pixels are split, then multiplied, in equal rounds of tiles.
pub(super) fn us(plan: &Plan, w: &Workload, cuda: &Cuda) -> f64 {
    let sizes = plan.sizes;
    let (bm, bn, depth) = (sizes.bm() as f64, sizes.bn as f64, DEPTH as f64);
    let all = 3.0 * 2.0 * bm * bn * depth / cuda.f16_flops_per_sm_clock as f64;
    // With two sums it waits twice.
    let apart = if sizes.sums == 2 { APART_CLOCKS } else { 0.5 * APART_CLOCKS };
    let multiply = (all / TENSOR_RATE).max(all / sizes.consumers as f64 + apart);
    let slots = if sizes.stages == 2 { TWO_SLOTS } else { 1.0 };
    // Alone a consumer leaves the tensor cores idle while it adds up; taken from the rings in f16, not measured here.
    let alone = if sizes.consumers == 1 { 1.3 } else { 1.0 };
    let step = alone * multiply + slots * ROW_CLOCKS * bm;
    let rounds = (plan.tiles() as f64 / cuda.sm_count as f64).ceil();
    let clocks = FILL_CLOCKS + rounds * (plan.steps() as f64 * step + 4.0 * bm * bn / STORE_BYTES_PER_CLOCK);
    let bytes = plan.pixels() as f64 * (4 * plan.source.depth() + 2 * PARTS * DEPTH * plan.chunks()) as f64;
    let memory = w.bytes() as f64 / (cuda.bandwidth_gb_s * 1e3);
    let split = bytes / (cuda.bandwidth_gb_s * 1e3 * SPLIT_RATE);
    LAUNCHES_US + split + (clocks / cuda.clock_mhz as f64).max(memory)
}
