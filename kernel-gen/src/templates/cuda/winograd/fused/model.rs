//! How long a convolution takes: what ranks sizes that were not measured.
//!
//! Fitted to 24 timings of ResNet-18's layers at 64 images on an H100, of which the prediction is 4.7 % off (root of the mean square
//! of the logarithm), 11 % at worst.

use super::plan::{BLOCKS, OWN_PLACES, PLACES, Plan, SCHEDULERS, Sizes, THREADS, WARPS};
use crate::target::Cuda;
use crate::templates::cuda::conv2d_cost::norm;
use crate::templates::cuda::family::{self, Needs, Plan as _};
use crate::templates::cuda::outer::VECTOR;
use crate::workload::Workload;

/// Microseconds of a launch.
const LAUNCH_US: f64 = 2.0;
/// Issue slots of each vector that is loaded from shared memory or copied to it, and of the transformation of a tile.
const LOAD_SLOTS: f64 = 1.0;
const COPY_SLOTS: f64 = 3.0;
const TILE_SLOTS: f64 = 110.0;
/// Issue slots that pass until the first operands of a part have come.
const PART_SLOTS: f64 = 83.0;
/// Share of the issue slots that are filled by one block, and how long two take that hide each other's latencies.
const ISSUE: f64 = 0.888;
const TWO_BLOCKS: f64 = 0.8;
/// Clocks until a block's first step is there and until its places have met, and issue slots of each tile of a channel that a thread has
/// in the end.
const BLOCK_CLOCKS: f64 = 3700.0;
const OUTPUT_SLOTS: f64 = 100.0;
/// How round the corner is between what may bound the kernel.
const NORM: f64 = 3.6;
/// Blocks a multiprocessor of the smallest grid that was timed, and how much longer smaller ones are said to take until they are, too.
const LEAST_TIMED: f64 = 1.9;
const NOT_TIMED: f64 = 1.2;

/// Microseconds.
pub(super) fn us(plan: &Plan, w: &Workload, gpu: &Cuda) -> f64 {
    let sizes = plan.sizes;
    let [channels, tiles] = sizes.own().map(|n| n as f64);
    let (step, threads) = (sizes.step() as f64, THREADS as f64);
    let term = channels * tiles + LOAD_SLOTS * (channels + tiles) / VECTOR as f64;
    let copied = (PLACES * sizes.block[0]) as f64 * step;
    let slots = OWN_PLACES as f64 * step * term
        + COPY_SLOTS * copied / VECTOR as f64 / threads
        + TILE_SLOTS
        + PART_SLOTS * step / sizes.together as f64;
    let outputs = OWN_PLACES as f64 * channels * tiles / PLACES as f64 * OUTPUT_SLOTS;
    let lanes = gpu.f32_flops_per_sm_clock as f64 / 2.0;
    let blocks = plan.grid().iter().product::<i64>() as f64;
    let resident = plan.needs().resident(gpu).max(1) as f64;
    let each = (blocks / gpu.sm_count as f64).ceil();
    let sharing = resident.min(each);
    let hidden = if sharing > 1.0 { TWO_BLOCKS } else { 1.0 };
    let issue = (plan.steps() as f64 * slots + outputs) * threads / lanes / ISSUE * hidden;
    let clocks = each * issue + (each / sharing).ceil() * BLOCK_CLOCKS;
    let memory = w.bytes() as f64 / (gpu.bandwidth_gb_s * 1e3);
    let timed = if blocks < LEAST_TIMED * gpu.sm_count as f64 { NOT_TIMED } else { 1.0 };
    LAUNCH_US + timed * norm(&[clocks / gpu.clock_mhz as f64, memory], NORM)
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: THREADS, registers: self.sizes.registers(), shared_bytes: self.sizes.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { block, together } = self.sizes;
        let useful = [(block[0], self.c.co), (block[1], self.tiles())];
        let useful = useful.into_iter().all(|(size, all)| size == BLOCKS[0] || size / 2 < all);
        useful
            && together * WARPS / SCHEDULERS <= self.sizes.step()
            && self.grid().iter().product::<i64>() <= gpu.grid_dim[0]
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        us(self, w, gpu)
    }
}
