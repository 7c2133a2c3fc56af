//! How long a product takes: what ranks sizes that were not measured.
//!
//! The constants are fitted to 858 timings of 109 convolutions with one image on an H100 (768 trials of tuning, and what it
//! compared at the end), 15 % off on average (root of the mean square of the logarithm). What it ranks first of a layer's
//! trials takes 1.06 times as long as the fastest.

use super::plan::{MOST_NAMED, MOST_ROWS, Reduce, Right, Sizes, TILE, TensorCores};
use crate::space::Value;
use crate::target::{Cuda, CudaFeature};
use crate::templates::cuda::conv2d_cost::norm;
use crate::templates::cuda::family::{self, Needs, Plan as _, Store};
use crate::templates::cuda::model::{ceil_div, memory_us, rounds};
use crate::workload::Workload;

/// Microseconds to launch and to end.
const LAUNCH_US: f64 = 0.94;
/// Microseconds that a cluster adds, and a launch that adds up parts.
const CLUSTER_US: f64 = 0.33;
const SECOND_US: f64 = 1.14;
/// Clocks until the first tiles have come, and after the last product until the last output is stored.
const FILL_CLOCKS: f64 = 550.0;
/// Bytes a clock that one multiprocessor gets from the L2 cache when all ask.
const L2_BYTES_PER_CLOCK: f64 = 40.0;
/// Bytes a clock that a multiprocessor stores in pairs, and in pieces of 16 bytes.
const PAIRS_PER_CLOCK: f64 = 11.4;
const ROWS_PER_CLOCK: f64 = 10.3;
/// Bytes of shared memory that a multiprocessor reads in a clock.
const SHARED_BYTES_PER_CLOCK: f64 = 128.0;
/// Clocks of a step that hide below nothing: the barrier.
const STEP_CLOCKS: f64 = 32.0;
/// Clocks from operands' way to registers to their products, for a block that has a multiprocessor alone.
const ALONE_CLOCKS: f64 = 140.0;
/// Clocks from a copy's issue until its bytes can be read, if nobody else asks; and the part of a step that has gone by when
/// copies are issued and when their bytes are waited for.
const COPY_CLOCKS: f64 = 225.0;
const LATE: f64 = 0.3;
/// Clocks in which a scheduler issues the instructions of a piece of 16 bytes that a warp copies.
pub(super) const PIECE_CLOCKS: f64 = 9.6;

/// Bytes a clock that all blocks together get of one row of the left operand, for which the blocks of all columns ask at the
/// same time, and rows beyond which more are no help.
const ROW_BYTES_PER_CLOCK: f64 = 25.0;
const ROWS_AT_ONCE: i64 = 79;

/// The share of the tensor cores' rate that `mma.sync` reaches: on devices with `wgmma` nearly two thirds (Luo et al.,
/// "Dissecting the NVIDIA Hopper Architecture through Microbenchmarking", 2025), else nearly all.
fn tensor_rate(gpu: &Cuda) -> f64 {
    if gpu.f16_flops_per_sm_clock >= 4096 { 0.62 } else { 0.85 }
}

/// Microseconds.
pub(super) fn us(plan: &TensorCores, w: &Workload, gpu: &Cuda) -> f64 {
    let sizes = plan.sizes;
    let resident = plan.needs().resident(gpu);
    if resident == 0 {
        return f64::INFINITY;
    }
    let Sizes { tile: [tile_m, tile_n], tile_k, stages, split, store, .. } = sizes;
    let (whole, [rows, _]) = (plan.cut.whole, plan.cut.whole.size);
    let blocks = plan.cut.blocks();
    let together = ceil_div(blocks, gpu.sm_count).min(resident);
    let [m, n] = sizes.warp_tile().map(|n| n as f64);
    let warps = plan.cut.warps as f64;
    let parts = (tile_k / TILE) as f64;
    let products =
        2.0 * (tile_m * tile_n * tile_k) as f64 / (gpu.f16_flops_per_sm_clock.max(1) as f64 * tensor_rate(gpu));
    let operands = warps * parts * (m + n) * 2.0 * TILE as f64 / SHARED_BYTES_PER_CLOCK;
    let bytes = (2 * tile_k * (tile_m + tile_n)) as f64;
    let shared = operands + bytes / SHARED_BYTES_PER_CLOCK;
    let copies = copy_clocks(plan) / 4.0;
    let issue = warps * parts * (m * n / 128.0 * 2.0 + (m + n) / 16.0 * 4.0) / 4.0 + copies;
    let fetch = bytes / L2_BYTES_PER_CLOCK;
    // All of it overlaps, the less perfectly the more of it there is.
    let busy = norm(&[products, shared, issue, fetch], 3.0);
    let outputs = (tile_m * tile_n) as f64;
    let steps = plan.cut.steps() as f64 * (1.0 - plan.skipped);
    let clocks: f64 = rounds(blocks, resident, gpu)
        .map(|[count, b]| {
            // Fewer warps than schedulers leave some of these idle.
            let idle = (warps * b / 4.0).min(1.0);
            let alone = products.max(issue) / (warps / 4.0).min(1.0) + ALONE_CLOCKS;
            // What goes through registers is stored behind the products of one step, however many slots there are.
            let early = if plan.is_held() { 1 } else { stages - 1 };
            let ahead = (COPY_CLOCKS + b * fetch) / (early as f64 - LATE);
            let step = (b * busy / idle).max(alone).max(ahead) + STEP_CLOCKS;
            let store = match (split > 1, store == Store::Rows) {
                (true, _) => b * outputs * 4.0 / PAIRS_PER_CLOCK,
                (false, true) => b * outputs * plan.out_bytes as f64 / ROWS_PER_CLOCK,
                (false, false) => b * outputs * plan.out_bytes as f64 / PAIRS_PER_CLOCK,
            };
            count * (FILL_CLOCKS + 2.0 * b * fetch + steps * step + store)
        })
        .sum();
    let memory = memory_us(traffic(plan, w, gpu, together), gpu);
    let shared = match (split > 1, sizes.reduce) {
        (false, _) => 0.0,
        (true, Reduce::Cluster) => CLUSTER_US,
        (true, Reduce::Launch) => SECOND_US + plan.cut.parts_us(gpu, L2_BYTES_PER_CLOCK),
    };
    // Few rows and many columns: small maps with many channels take up to twice as long as all of the above says. Blocks
    // of later rounds find fewer others at the same rows.
    let asked = (plan.cut.tiles()[1] * rows * whole.k * plan.bytes) as f64;
    let at_once = ((gpu.sm_count * together) as f64 / blocks as f64).min(1.0);
    let clocks = clocks + at_once * asked / (ROW_BYTES_PER_CLOCK * rows.min(ROWS_AT_ONCE) as f64);
    let block = clocks / gpu.clock_mhz.max(1) as f64;
    // Rings are deep enough to hide how far the L2 cache is, not how far memory is: of 92 layers with 64 images the ratio of
    // time and prediction was 1.29 with the longer of both and is 1.09 with their sum.
    let waited = if stays(w, gpu) { block.max(memory) } else { block + memory };
    LAUNCH_US + shared + waited
}

/// Clocks in which a scheduler issues the instructions of all pieces that a block copies in a step.
fn copy_clocks(plan: &TensorCores) -> f64 {
    let Sizes { tile: [tile_m, tile_n], tile_k, .. } = plan.sizes;
    let left = tile_m * plan.cut.tile_k / plan.unit;
    match plan.right {
        Right::Loop => (left + tile_n * tile_k / 8) as f64 / Cuda::WARP as f64 * PIECE_CLOCKS,
        Right::Named { unit, clocks } => {
            (left as f64 * PIECE_CLOCKS + (tile_n * plan.cut.tile_k / unit) as f64 * clocks) / Cuda::WARP as f64
        }
    }
}

/// Whether all parameters fit in the L2 cache, beside what else is there.
fn stays(w: &Workload, gpu: &Cuda) -> bool {
    w.bytes() <= gpu.l2_bytes / 2
}

/// Bytes that come from memory: every parameter once and, where the operands do not fit in the L2 cache, again for every
/// round of blocks that run at the same time what these share.
fn traffic(plan: &TensorCores, w: &Workload, gpu: &Cuda, together: i64) -> f64 {
    let once = w.bytes();
    if stays(w, gpu) {
        return once as f64;
    }
    let Sizes { tile: [tile_m, tile_n], group, .. } = plan.sizes;
    let [down, across] = plan.cut.tiles();
    let at_once = (gpu.sm_count * together).min(down * across);
    let rows = group.min(down);
    let columns = ceil_div(at_once, rows).min(across);
    let rows = ceil_div(at_once, columns);
    let round = plan.bytes * plan.cut.whole.k * (rows * tile_m / plan.taps + columns * tile_n);
    (once.max(plan.cut.whole.batch * ceil_div(down * across, at_once) * round)) as f64
}

impl family::Plan for TensorCores {
    fn needs(&self) -> Needs {
        Needs { threads: self.cut.threads(), registers: self.registers(), shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { tile, warps, split, reduce, store, .. } = self.sizes;
        let staged = store == Store::Rows;
        // What sums that are shared come by is not chosen twice.
        let useful = (split > 1 || reduce == Reduce::Launch) && (split == 1 || !staged);
        let divides = (0..2).all(|side| tile[side] % (TILE * warps[side]) == 0)
            && (split == 1 || tile[0] % split == 0)
            && (staged || split > 1 || self.neighbours % 2 == 0);
        let cluster = !self.cut.clustered || gpu.has(CudaFeature::Cluster) && split <= gpu.cluster_size;
        let few = match self.right {
            Right::Loop => true,
            Right::Named { unit, .. } => self.right_pieces(unit) <= MOST_NAMED,
        };
        useful && divides && cluster && few && self.copied_rows() <= MOST_ROWS && self.cut.suits(gpu)
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        us(self, w, gpu)
    }

    /// Blocks share reductions where there are fewer tiles than multiprocessors.
    fn narrow(&self, gpu: &Cuda, knob: &str, values: &mut Vec<Value>) {
        let many = self.cut.all_tiles() >= 4 * gpu.sm_count;
        if knob == "split" && many || knob == "reduce" && !gpu.has(CudaFeature::Cluster) {
            values.truncate(1);
        }
    }
}
