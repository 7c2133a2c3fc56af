//! How long a convolution takes: what ranks sizes that were not measured.
//!
//! The constants are fitted to 36 timings of ResNet-18's layers with 128 to 512 channels at batch 64 on an H100, and one with
//! 64: 147 to 417 us, of which the prediction is 4 % off (root of the mean square of the logarithm), 10 % at worst.

use super::plan::{BLOCK_CHANNELS, BLOCK_TILES, Plan, STAGES, STEPS, Sizes};
use crate::target::Cuda;
use crate::templates::cuda::conv2d_cost::norm;
use crate::templates::cuda::family::{self, Needs, Plan as _};
use crate::templates::cuda::outer::{LANES, VECTOR};
use crate::workload::Workload;

/// Microseconds of the first launch, and of one that follows another of the same program and waits for its last block.
const LAUNCH_US: f64 = 2.0;
const NEXT_LAUNCH_US: f64 = 2.7;
/// Share of the memory's bandwidth that the transforms reach.
const MEMORY_RATE: f64 = 0.65;
/// How much longer the transforms of the larger tile take than their bytes.
const LARGE_TILES: f64 = 2.1;
/// Bytes a clock that one multiprocessor gets from the L2 cache when all ask.
const L2_BYTES_PER_CLOCK: f64 = 46.0;
/// Share of the L2 cache in which what one launch writes and the next one reads stays.
const L2_HELD: f64 = 0.93;
/// Issue slots of each vector that is loaded from shared memory, of each term beside, of each vector that is copied to shared
/// memory, and of a step's rest.
const LOAD_SLOTS: f64 = 1.0;
const TERM_SLOTS: f64 = 0.75;
const COPY_SLOTS: f64 = 4.2;
const STEP_SLOTS: f64 = 15.5;
/// Share of the issue slots that are filled.
const ISSUE: f64 = 0.81;
/// Warps of a multiprocessor that hide each other's latencies.
const ENOUGH_WARPS: f64 = 4.8;
/// Clocks until a block's first step is there, and until its sums are stored.
const BLOCK_CLOCKS: f64 = 1400.0;
/// How round the corners are between what may bound a block, and between what may bound the products.
const BLOCK_NORM: f64 = 3.6;
const NORM: f64 = 3.0;

/// Microseconds.
pub(super) fn us(plan: &Plan, w: &Workload, gpu: &Cuda) -> f64 {
    let (sizes, rounds) = (plan.sizes, plan.sizes.rounds as f64);
    let bytes = |shape: [i64; 3]| 4.0 * shape.iter().product::<i64>() as f64;
    let (data, products) = (bytes(plan.data_shape()), bytes(plan.product_shape()));
    // The transforms: the input and the output from and to memory, the workspace too where it does not stay in the cache.
    let clock = gpu.clock_mhz as f64;
    let memory = gpu.bandwidth_gb_s * 1e3 * MEMORY_RATE;
    let cache = L2_BYTES_PER_CLOCK * gpu.sm_count as f64 * clock;
    let moved = |bytes: f64| {
        let held = (L2_HELD * gpu.l2_bytes as f64 / bytes).min(1.0);
        bytes * (held / cache + (1.0 - held) / memory)
    };
    let slower = if sizes.m > 2 { LARGE_TILES } else { 1.0 };
    let transforms = slower * (w.bytes() as f64 / memory + rounds * (moved(data) + moved(products)));
    // The products: blocks go to multiprocessors in turn; those that share one share its rate.
    let [channels, tiles] = sizes.own.map(|n| n as f64);
    let term = channels * tiles + LOAD_SLOTS * (channels + tiles) / 4.0 + TERM_SLOTS;
    let sides = (sizes.block[0] + sizes.block[1]) as f64;
    let copies = sides * sizes.step as f64 / 4.0 / sizes.threads() as f64;
    let step = sizes.step as f64 * term + COPY_SLOTS * copies + STEP_SLOTS;
    let lanes = gpu.f32_flops_per_sm_clock as f64 / 2.0;
    let warps = (sizes.threads() / Cuda::WARP) as f64;
    let resident = plan.needs().resident(gpu).max(1) as f64;
    let each = (plan.blocks() as f64 / gpu.sm_count as f64).ceil();
    let sharing = resident.min(each);
    let hidden = (sharing * warps / ENOUGH_WARPS).min(1.0);
    let steps = plan.steps() as f64;
    let issue = steps * step * warps * Cuda::WARP as f64 / lanes / ISSUE / hidden;
    let operands = steps * sizes.step as f64 * 4.0 * sides / L2_BYTES_PER_CLOCK;
    let clocks = each * norm(&[issue, operands], BLOCK_NORM) + (each / sharing).ceil() * BLOCK_CLOCKS;
    let multiply = rounds * norm(&[clocks / clock, moved(data) + moved(products)], NORM);
    LAUNCH_US + (3.0 * rounds - 1.0) * NEXT_LAUNCH_US + transforms + multiply
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs {
            threads: self.sizes.threads(),
            registers: self.sizes.registers(),
            shared_bytes: self.sizes.shared_bytes(),
        }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { rounds, block, own, step, stages, .. } = self.sizes;
        let cut = (0..2).all(|dim| block[dim] % (own[dim] * LANES[dim]) == 0);
        if !cut || self.c.n % rounds != 0 {
            return false;
        }
        let threads = self.sizes.threads();
        // Each thread copies equally many vectors of both operands.
        let even = block.iter().all(|size| size * step / VECTOR % threads == 0);
        // A block half as large would do, and steps that do not exist need no slots.
        let sizes = [self.c.co, self.images() * self.image_tiles()];
        let useful = block.iter().zip(sizes).zip([BLOCK_CHANNELS[0], BLOCK_TILES[0]]);
        let useful = useful.into_iter().all(|((size, all), least)| *size == least || size / 2 < all);
        let useful =
            useful && (stages == STAGES[0] || stages <= self.steps()) && (step == STEPS[0] || step / 2 < self.c.ci);
        let limits = [gpu.grid_dim[1], gpu.grid_dim[2]];
        even && useful && self.c.ci.max(self.c.co) <= limits[0] && self.sizes.places() <= limits[1]
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        us(self, w, gpu)
    }
}
