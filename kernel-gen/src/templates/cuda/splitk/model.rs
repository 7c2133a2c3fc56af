//! How long a layer takes: what ranks sizes that were not measured.

use super::{Plan, WARP};
use crate::target::Cuda;
use crate::workload::Workload;

/// Microseconds to launch, to have the first bytes come, and to end. An H100 takes 4.1 for a layer of 0.4.
const LAUNCH_US: f64 = 3.0;
/// Microseconds that a cluster adds: its blocks start together and wait for each other's sums.
const CLUSTER_US: f64 = 0.6;
/// Bytes a clock of the L2 cache that one multiprocessor gets when all ask.
const L2_BYTES_PER_CLOCK: f64 = 24.0;
/// Bytes of shared memory that a multiprocessor reads in a clock.
const SHARED_BYTES_PER_CLOCK: f64 = 128.0;
/// Clocks of a step beside its instructions: the wait for its bytes and the barrier.
const STEP_CLOCKS: f64 = 80.0;
/// Share of the schedulers' slots that straight code of this kind fills when two or more warps take turns.
const ISSUE: f64 = 0.8;
/// Share of the multiprocessors that clusters of more than two blocks can use: an H100's are in groups of up to 18, of
/// which some have fewer, and takes 30 clusters of four or 15 of eight at a time.
const IN_CLUSTERS: f64 = 120.0 / 132.0;

/// Microseconds.
pub(super) fn us(plan: &Plan, w: &Workload, gpu: &Cuda) -> f64 {
    let sizes = plan.sizes;
    let resident = gpu.blocks_resident(sizes.threads(), plan.registers().min(255), plan.shared_bytes()).max(1);
    let usable = if sizes.cluster > 2 { gpu.sm_count as f64 * IN_CLUSTERS } else { gpu.sm_count as f64 }.max(1.0);
    // Blocks go to multiprocessors in rounds; those that share one share its rates.
    let rounds = (plan.blocks() as f64 / usable).ceil();
    let sharing = rounds.min(resident as f64);
    let waves = rounds / sharing;
    let (taps, channels) = (plan.taps() as f64, plan.group_channels() as f64);
    let vectors = plan.reach(0) as f64 * (plan.pitch() / 4) as f64;
    // Instructions of a warp for one input channel of each group: products, loads from shared memory, and copies to it
    // with their addresses.
    let copies = 2.5 * (plan.rounds() as f64 + taps);
    let instructions = plan.macs() as f64 + vectors + taps + copies + 8.0;
    let warps = sharing * sizes.warps as f64;
    let per_scheduler = (warps / 4.0).ceil();
    // One warp alone waits for each load from shared memory.
    let filled = if per_scheduler < 2.0 { 0.85 * ISSUE } else { ISSUE };
    let step = STEP_CLOCKS / (sizes.step as f64 * per_scheduler);
    let issue = per_scheduler * channels * (instructions / filled + step);
    let shared = warps * channels * (vectors + taps * sizes.channels as f64 + plan.rounds() as f64);
    let bytes = 4.0 * WARP as f64 * (taps * sizes.channels as f64 + plan.rounds() as f64);
    let fetch = warps * channels * bytes / L2_BYTES_PER_CLOCK;
    // Nothing is multiplied before a step has come.
    let fill = (warps * sizes.step as f64 * bytes / L2_BYTES_PER_CLOCK).min(fetch);
    let sums = warps * (sizes.sums() * WARP) as f64 * 4.0;
    let reduce = 2.0 * sums / SHARED_BYTES_PER_CLOCK + 300.0;
    let clocks = waves * (fill + issue.max(shared).max(fetch) + reduce);
    let memory = w.bytes() as f64 / (gpu.bandwidth_gb_s * 1e3);
    let cluster = if sizes.cluster > 1 { CLUSTER_US } else { 0.0 };
    LAUNCH_US + cluster + (clocks / gpu.clock_mhz as f64).max(memory)
}
