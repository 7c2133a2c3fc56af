//! How long a layer takes: what ranks sizes that were not measured.
//!
//! The constants are fitted to 57 timings of the same kernels, written by hand, on an H100: from 4 to 108 us, 9 % off on
//! average (root of the mean square of the logarithm).

use super::{Plan, WARP, ceil_div};
use crate::target::Cuda;
use crate::workload::Workload;

/// Microseconds to launch and to end; an empty kernel takes 1.1.
const LAUNCH_US: f64 = 1.3;
/// Microseconds that a cluster adds: its blocks start together and wait for each other's sums.
const CLUSTER_US: f64 = 0.5;
/// Clocks from a copy until its bytes have come.
const LATENCY: f64 = 700.0;
/// Bytes a clock that one multiprocessor gets from the L2 cache.
const L2_BYTES_PER_CLOCK: f64 = 20.0;
/// Bytes of shared memory that a multiprocessor reads in a clock.
const SHARED_BYTES_PER_CLOCK: f64 = 128.0;
/// Share of a scheduler's slots that straight code of this kind fills.
const ISSUE: f64 = 0.78;
/// Instructions that a copy to shared memory takes, its addresses included.
const COPY_INSTRUCTIONS: f64 = 3.5;
/// What pixels that several groups of a warp read from far apart cost more.
const GROUPS: f64 = 1.12;
/// Clocks of adding up what warps have, and of each turn of the block's threads at that.
const REDUCE_CLOCKS: f64 = 300.0;
const TURN_CLOCKS: f64 = 60.0;
/// Share of the multiprocessors that clusters of more than two blocks can use: an H100's are in groups, which are no
/// multiples of four, and take 30 clusters of four or 15 of eight at a time.
const IN_CLUSTERS: f64 = 120.0 / 132.0;

/// Microseconds.
pub(super) fn us(plan: &Plan, w: &Workload, gpu: &Cuda) -> f64 {
    let sizes = plan.sizes;
    let resident = gpu.blocks_resident(sizes.threads(), plan.registers().min(255), plan.shared_bytes()).max(1);
    let usable = if sizes.cluster > 2 { gpu.sm_count as f64 * IN_CLUSTERS } else { gpu.sm_count as f64 }.max(1.0);
    // Blocks go to multiprocessors in rounds; those that share one share its rates.
    let rounds = (plan.blocks() as f64 / usable).ceil();
    let sharing = rounds.min(resident as f64);
    let waves = (rounds / sharing).ceil();
    let (taps, step) = (plan.taps() as f64, sizes.step as f64);
    let vectors = plan.reach(0) as f64 * (plan.pitch() / 4) as f64;
    // Instructions of a warp for one input channel of each group: products, loads from shared memory, and copies to it.
    let instructions = plan.macs() as f64 + vectors + taps + COPY_INSTRUCTIONS * (plan.rounds() as f64 + taps) + 10.0;
    let warps = sharing * sizes.warps as f64;
    // Warps that take turns at a scheduler, of which a multiprocessor has four.
    let turns = (warps / 4.0).ceil();
    let issue = turns * instructions * step / ISSUE;
    let shared = warps * step * (vectors + taps * sizes.channels as f64 + plan.rounds() as f64);
    let bytes = 4.0 * WARP as f64 * (taps * sizes.channels as f64 + plan.rounds() as f64);
    let fetch = warps * step * bytes / L2_BYTES_PER_CLOCK;
    let steps = plan.steps();
    // What is fetched ahead has to last until more has come.
    let wait = if sizes.stages < steps { (LATENCY + issue) / sizes.stages as f64 } else { 0.0 };
    let groups = if sizes.groups() > 1 { GROUPS } else { 1.0 };
    let period = groups * issue.max(shared).max(fetch).max(wait);
    let sums = warps * (sizes.sums() * WARP) as f64 * 4.0;
    let elements = ceil_div(sizes.block_channels() * sizes.pixels(), sizes.threads()) as f64;
    let reduce = 2.0 * sums / SHARED_BYTES_PER_CLOCK + TURN_CLOCKS * elements * sharing + REDUCE_CLOCKS;
    let clocks = waves * (LATENCY + fetch + steps as f64 * period + reduce);
    let memory = w.bytes() as f64 / (gpu.bandwidth_gb_s * 1e3);
    let cluster = if sizes.cluster > 1 { CLUSTER_US } else { 0.0 };
    LAUNCH_US + cluster + (clocks / gpu.clock_mhz as f64).max(memory)
}
