//! How long a first layer takes: what ranks sizes that were not measured.
//!
//! The constants together are fitted to 208 timings of 21 layers on an H100, at one and at 64 images: the fastest config of a
//! layer takes 0.97 of what the model says (geometric mean).

use super::plan::{MOST_PRODUCTS, Plan, Sizes, TILE};
use crate::target::Cuda;
use crate::templates::cuda::family::{self, Needs, Plan as _, Store};
use crate::templates::cuda::model::{Waves, ceil_div, memory_us};
use crate::workload::Workload;

/// Microseconds to launch and to end.
const LAUNCH_US: f64 = 1.2;
/// Clocks from a load until its bytes have come, of the barrier behind it, and until the last store is gone.
const LATENCY: f64 = 1150.0;
/// Bytes a clock that one multiprocessor gets from the L2 cache when all ask, and that it stores there in pieces of 16
/// bytes and in pairs.
const L2_BYTES_PER_CLOCK: f64 = 42.0;
const ROWS_PER_CLOCK: f64 = 32.0;
const PAIRS_PER_CLOCK: f64 = 16.0;
/// Clocks that a multiprocessor takes for a warp's load of single elements: lanes are six or more bytes apart.
const GATHER_CLOCKS: f64 = 3.0;
/// Share of the tensor cores' rate that products of a warp reach.
const TENSOR_RATE: f64 = 0.65;
/// Clocks of a step of one warp alone: a load from shared memory and the product behind it.
const STEP_CLOCKS: f64 = 34.0;

/// Microseconds.
pub(super) fn us(plan: &Plan, w: &Workload, gpu: &Cuda) -> f64 {
    let sizes = plan.sizes;
    let resident = plan.needs().resident(gpu);
    if resident == 0 {
        return f64::INFINITY;
    }
    let Waves { count: waves, together, .. } = Waves::of(plan.blocks(), resident, gpu);
    let (steps, warps) = (plan.steps() as f64, sizes.warps() as f64);
    // What one block costs a multiprocessor, part by part.
    let weights = plan.packed_shape()[1..].iter().product::<i64>() as f64 * 2.0 / L2_BYTES_PER_CLOCK;
    let cells = ceil_div(plan.cells(), Cuda::WARP) as f64;
    let gather = if plan.copied() { cells * 12.0 } else { cells * plan.cell_values() as f64 * GATHER_CLOCKS };
    let products = 2.0 * steps * warps * (sizes.rows * sizes.columns * TILE * TILE * TILE) as f64
        / (gpu.f16_flops_per_sm_clock.max(1) as f64 * TENSOR_RATE);
    let operands = steps * warps * 3.0 * (sizes.rows + sizes.columns) as f64;
    let alone = steps * STEP_CLOCKS * (sizes.rows * sizes.columns) as f64 / 4.0;
    let outputs = (sizes.tile_h * sizes.tile_w * TILE * sizes.channels() * plan.out_bytes) as f64;
    let store = outputs / if sizes.store == Store::Rows { ROWS_PER_CLOCK } else { PAIRS_PER_CLOCK };
    let block = weights + gather + products.max(operands) + store;
    let clocks = waves * (LATENCY + (together * block).max(alone + block));
    LAUNCH_US + (clocks / gpu.clock_mhz.max(1) as f64).max(memory_us(w.bytes() as f64, gpu))
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: self.sizes.threads(), registers: self.registers(), shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { tile_h, tile_w, rows, columns, across, store } = self.sizes;
        let useful = tile_h <= self.c.oh()
            && (tile_w == 1 || (tile_w - 1) * TILE < self.c.ow())
            && (columns * across == 1 || self.c.co > self.sizes.channels() / 2);
        useful
            && tile_h * tile_w % rows == 0
            && self.can_store(store)
            && self.steps() * rows * columns * 2 <= MOST_PRODUCTS
            && self.channel_tiles() <= gpu.grid_dim[1]
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        us(self, w, gpu)
    }
}
