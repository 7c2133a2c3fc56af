//! How long it takes: what ranks sizes that were not measured.
//!
//! The constants that no manual says are fitted to 452 configs of MobileNet's layers at 64 images on an H100, in f32 NCHW and
//! f16 NHWC.

use super::plan::{ACCESS_BYTES, MOST_PRODUCTS, Plan, Sizes};
use crate::target::Cuda;
use crate::templates::cuda::conv2d_cost::norm;
use crate::templates::cuda::family::{self, Needs};
use crate::templates::cuda::model::ceil_div;
use crate::workload::Workload;
use std::collections::BTreeSet;

/// Microseconds to launch and to end.
const LAUNCH_US: f64 = 1.5;
/// Clocks from an access to memory until its bytes have come, and from the L2 cache.
const MEMORY_LATENCY: f64 = 700.0;
const L2_LATENCY: f64 = 600.0;
/// Share of the memory's nominal rate that a copy reaches, and how many times that what stays in the L2 cache does.
const COPY_RATE: f64 = 0.83;
const CACHED: f64 = 1.2;
/// Bytes of a line of the first-level cache, and clocks of a multiprocessor for one that it reads and one that it writes.
const LINE: i64 = 128;
const READ_CLOCKS: f64 = 0.35;
const WRITE_CLOCKS: f64 = 4.5;
/// Registers of input rows that the compiler lets wait: it asks for what is beyond them only when it is multiplied.
const WAITING_REGISTERS: i64 = 24;
/// Share of the time of the blocks that run together that their first accesses and last stores take, when nothing else runs.
const FILL: f64 = 0.08;
/// Share of the cycles in which a scheduler issues, when there are enough warps.
const ISSUE_RATE: f64 = 0.7;
/// Instructions of a thread beside accesses and products: its place, and the conditions of its rows.
const OTHER_INSTRUCTIONS: f64 = 12.0;
/// Instructions of an access, with its condition and zeros, and of a result with its epilogue.
const ACCESS_INSTRUCTIONS: f64 = 3.0;
const RESULT_INSTRUCTIONS: f64 = 6.0;
/// How sharply the slowest of several rates bounds the whole.
const SHARPNESS: f64 = 5.0;

/// Lines that an access of a warp touches, of `bytes` a lane; `stride` is what patches are apart in the tensor: one image
/// or plane, a row of patches, a patch, and neighbouring vectors of channels.
fn lines(plan: &Plan, [whole, down, along, vector]: [i64; 4], bytes: i64) -> f64 {
    let [rows, columns] = [0, 1].map(|dim| plan.patches(dim));
    let vectors = if plan.channels_last() { plan.c.co / plan.sizes.vector } else { 1 };
    let touched = |lane: i64| {
        let (patch, channels) = (lane / vectors, lane % vectors);
        let at = patch / columns / rows * whole + patch / columns % rows * down + patch % columns * along;
        let first = at + channels * vector;
        first / LINE..=(first + bytes - 1) / LINE
    };
    (0..Cuda::WARP).flat_map(touched).collect::<BTreeSet<i64>>().len() as f64
}

/// Lines of an access to the input and to the output, of so many pixels.
fn access_lines(plan: &Plan, output: bool, pixels: i64) -> f64 {
    let (c, Sizes { patch, vector, .. }) = (&plan.c, plan.sizes);
    let (size, step, bytes) = match output {
        true => ([c.oh(), c.ow()], patch, plan.out_bytes),
        false => ([c.h, c.w], [patch[0] * c.stride[0], patch[1] * c.stride[1]], plan.bytes),
    };
    let pixel = if plan.channels_last() { c.co } else { 1 } * bytes;
    let apart = [size[0] * size[1] * pixel, step[0] * size[1] * pixel, step[1] * pixel, vector * bytes];
    lines(plan, apart, pixels * vector * bytes)
}

/// Microseconds.
pub(super) fn us(plan: &Plan, w: &Workload, gpu: &Cuda) -> f64 {
    let Sizes { patch: [rows, columns], vector, threads, .. } = plan.sizes;
    let row = plan.row_registers();
    let waiting = (plan.ahead() * row).min(row.max(WAITING_REGISTERS));
    let resident = gpu.blocks_resident(threads, plan.registers(waiting), 0);
    if resident == 0 {
        return f64::INFINITY;
    }
    let per_sm = ceil_div(plan.c.n * plan.blocks(), gpu.sm_count);
    let waves = per_sm as f64 / per_sm.min(resident) as f64;
    let pieces = plan.pieces();
    let in_rows = (0..plan.reach(0)).filter(|row| !plan.meeting(0, *row).is_empty()).count() as f64;
    let taps = (plan.c.kh * plan.c.kw) as f64;
    let read = in_rows * (pieces.iter().map(|p| p.width).sum::<i64>() * vector) as f64;
    let results = (rows * columns * vector) as f64;
    // Pixels and weights of sixteen bits are widened.
    let conversions = if plan.bytes < 4 { read + taps * vector as f64 } else { 0.0 };
    let instructions = plan.products() as f64
        + ACCESS_INSTRUCTIONS * (in_rows * pieces.len() as f64 + taps)
        + conversions
        + RESULT_INSTRUCTIONS * results
        + OTHER_INSTRUCTIONS;
    let warps = (per_sm * threads) as f64 / Cuda::WARP as f64;
    let schedulers = gpu.f32_flops_per_sm_clock as f64 / 2.0 / Cuda::WARP as f64;
    let issue = warps * instructions / schedulers / ISSUE_RATE;
    // A piece is as wide as it is aligned in NCHW, and one pixel in NHWC, as is what is stored at a time.
    let width = if plan.channels_last() { 1 } else { plan.store_width() };
    let loads: f64 = pieces.iter().map(|p| in_rows * access_lines(plan, false, p.width)).sum();
    let stores = (rows * columns / width) as f64 * access_lines(plan, true, width);
    let cache = warps * (READ_CLOCKS * loads + WRITE_CLOCKS * stores + taps);
    // What is not under way at first is waited for again.
    let cached = w.bytes() < gpu.l2_bytes;
    let latency = if cached { L2_LATENCY } else { MEMORY_LATENCY };
    let rounds = (plan.reach(0) * row) as f64 / waiting as f64;
    let copy_us =
        w.bytes() as f64 / (gpu.bandwidth_gb_s.max(1.0) * 1e3 * COPY_RATE * if cached { CACHED } else { 1.0 });
    let us = |clocks: f64| clocks / gpu.clock_mhz.max(1) as f64;
    let busy = norm(&[us(issue), us(cache), us(waves * latency * rounds), copy_us], SHARPNESS);
    LAUNCH_US + us(latency) + busy * (1.0 + FILL / waves)
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs {
            threads: self.sizes.threads,
            registers: self.registers(self.ahead() * self.row_registers()),
            shared_bytes: 0,
        }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { patch, vector, ahead, .. } = self.sizes;
        let useful = (0..2).all(|dim| patch[dim] == 1 || patch[dim] / 2 < self.output(dim))
            && (ahead == 1 || ahead / 2 < self.reach(0))
            && self.c.co % vector == 0
            && (vector == 1 || self.channels_last() && vector * self.bytes <= ACCESS_BYTES);
        useful
            && self.products() <= MOST_PRODUCTS.max(self.c.kh * self.c.kw)
            && self.blocks() <= gpu.grid_dim[0]
            && self.c.n <= gpu.grid_dim[1]
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        us(self, w, gpu)
    }
}
