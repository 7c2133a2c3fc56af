//! How long it takes: what ranks sizes that were not measured.

use super::{Plan, Sizes, ceil_div};
use crate::target::Cuda;
use crate::workload::Workload;

/// Microseconds to launch and to end.
const LAUNCH_US: f64 = 1.5;
/// Clocks from an access to memory until its bytes have come, and from the L2 cache.
const MEMORY_LATENCY: f64 = 1100.0;
const L2_LATENCY: f64 = 600.0;
/// Share of the memory's nominal rate that a copy reaches.
const COPY_RATE: f64 = 0.83;
/// Bytes a clock that one multiprocessor gets from the L2 cache and brings there.
const L2_BYTES_PER_CLOCK: f64 = 40.0;
/// Share of the cycles in which a scheduler issues, when there are enough warps.
const ISSUE_RATE: f64 = 0.7;
/// Instructions of a thread beside accesses and products: its place, and the conditions of its rows.
const OTHER_INSTRUCTIONS: f64 = 60.0;
/// Instructions of an access, with its address, and of a result.
const ACCESS_INSTRUCTIONS: f64 = 3.0;
const RESULT_INSTRUCTIONS: f64 = 3.0;

/// Microseconds.
pub(super) fn us(plan: &Plan, w: &Workload, gpu: &Cuda) -> f64 {
    let Sizes { patch: [rows, columns], vector, threads, .. } = plan.sizes;
    let resident = gpu.blocks_resident(threads, plan.registers(), 0);
    if resident == 0 {
        return f64::INFINITY;
    }
    let per_sm = ceil_div(plan.blocks(), gpu.sm_count);
    let together = per_sm.min(resident);
    let waves = ceil_div(per_sm, together) as f64;
    let pieces = plan.pieces();
    let in_rows = (0..plan.reach(0)).filter(|row| !plan.meeting(0, *row).is_empty()).count() as f64;
    let accesses = in_rows * pieces.len() as f64;
    let read = in_rows * (pieces.iter().map(|p| p.width).sum::<i64>() * vector) as f64;
    let results = (rows * columns * vector) as f64;
    // Sixteen bits are converted on the way in and out.
    let conversions = if plan.bytes < 4 { read } else { 0.0 };
    let instructions = plan.products() as f64
        + ACCESS_INSTRUCTIONS * (accesses + (plan.c.kh * plan.c.kw) as f64)
        + conversions
        + RESULT_INSTRUCTIONS * results
        + OTHER_INSTRUCTIONS;
    let warps = (together * threads) as f64 / Cuda::WARP as f64;
    let schedulers = gpu.f32_flops_per_sm_clock as f64 / 2.0 / Cuda::WARP as f64;
    let issue = warps * instructions / schedulers / ISSUE_RATE;
    let cached = w.bytes() < gpu.l2_bytes;
    let latency = if cached { L2_LATENCY } else { MEMORY_LATENCY };
    // What is not under way at first is waited for again.
    let rounds = (plan.reach(0) as f64 / plan.sizes.ahead as f64).max(1.0).sqrt();
    let bytes = (together * threads) as f64 * (read * plan.bytes as f64 + results * plan.out_bytes as f64);
    let clocks = waves * (latency * rounds + issue.max(bytes / L2_BYTES_PER_CLOCK));
    let memory = w.bytes() as f64 / (gpu.bandwidth_gb_s.max(1.0) * 1e3 * if cached { 2.0 } else { COPY_RATE });
    LAUNCH_US + (clocks / gpu.clock_mhz.max(1) as f64).max(memory)
}
