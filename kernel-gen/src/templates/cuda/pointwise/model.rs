//! How long a product with few columns takes: what ranks sizes that were not measured.
//!
//! The constants are fitted to 1127 timings of 52 layers of SqueezeNet, Inception-v3, MobileNet and ResNet-50 on an H100,
//! at one and at 64 images: within a tenth on average, and what the model likes best takes 6 % longer than the fastest.

use super::plan::{BN, DEPTH, Plan, ROWS, Sizes, WARPS};
use crate::target::Cuda;
use crate::templates::cuda::family::{self, Needs};
use crate::templates::cuda::model::ceil_div;
use crate::workload::Workload;

/// Microseconds to launch and to end.
const LAUNCH_US: f64 = 1.1;
/// Clocks until the first bytes are there; of a step of one warp alone with 32 columns, a load from shared memory and the
/// products behind it; and of sums that pass shared memory.
const FILL_CLOCKS: f64 = 700.0;
const STEP_CLOCKS: f64 = 24.0;
const STAGE_CLOCKS: f64 = 100.0;
/// Bytes a clock that one multiprocessor gets from the L2 cache when all ask, and clocks that a byte is under way.
const L2_BYTES_PER_CLOCK: f64 = 42.0;
const LATENCY: f64 = 130.0;
/// Bytes under way on a multiprocessor from which on more of them are slower, and by how much.
const ROOM: f64 = 60e3;
const CROWD: f64 = 0.33;
/// Bytes a clock that a multiprocessor reads from shared memory, and that it stores in pieces of 16 bytes and in pairs.
const SHARED_BYTES_PER_CLOCK: f64 = 128.0;
const ROWS_PER_CLOCK: f64 = 28.0;
const PAIRS_PER_CLOCK: f64 = 11.0;
/// Share of what runs below something longer that it still costs.
const HIDDEN: f64 = 0.2;
/// Share of the L2 cache from which data comes in the next call, and share of the memory's rate that is reached.
const CACHED: f64 = 0.77;
const MEMORY_RATE: f64 = 0.88;

/// Microseconds.
pub(super) fn us(plan: &Plan, w: &Workload, gpu: &Cuda) -> f64 {
    let sizes = plan.sizes;
    let (depth, bn) = (plan.source.depth() as f64, sizes.bn as f64);
    // What the multiprocessor has that has most: tiles, and blocks, which come in turn where they do not fit together.
    let tiles = ceil_div(plan.tiles() * plan.column_tiles(), plan.units) as f64;
    let blocks = ceil_div(plan.blocks() * plan.column_tiles(), plan.units).max(1) as f64;
    let waves = (blocks / sizes.resident as f64).max(1.0);
    let together = blocks.min(sizes.resident as f64);
    // A tile: its rows come from the cache, weights from shared memory, and outputs leave.
    let (read, written) = (ROWS as f64 * depth * 2.0, ROWS as f64 * bn * plan.out_bytes as f64);
    let under_way = tiles.min(together * sizes.warps as f64) * read;
    let crowd = 1.0 + CROWD * (under_way / ROOM - 1.0).max(0.0);
    let rate = L2_BYTES_PER_CLOCK.min(under_way / LATENCY) / crowd;
    let (staged, stored) = if sizes.staged() { (2.0 * written, ROWS_PER_CLOCK) } else { (0.0, PAIRS_PER_CLOCK) };
    let shared = (bn * depth * 2.0 + staged) / SHARED_BYTES_PER_CLOCK;
    let busy = tiles * (read / rate + shared + written / stored);
    // A warp goes through its own tiles one after the other.
    let stage = if sizes.staged() { STAGE_CLOCKS } else { 0.0 };
    let alone = plan.turns() as f64 * waves * (stage + depth / DEPTH as f64 * STEP_CLOCKS * bn / 32.0);
    let weights = together * bn * depth * 2.0 / L2_BYTES_PER_CLOCK;
    let clocks = FILL_CLOCKS + weights + busy.max(alone) + HIDDEN * busy.min(alone);
    let block = clocks / gpu.clock_mhz.max(1) as f64;
    // What the cache keeps from call to call need not come from memory.
    let bytes = w.bytes() as f64;
    let missing = if bytes > CACHED * gpu.l2_bytes as f64 { bytes } else { 0.0 };
    let memory = missing / (gpu.bandwidth_gb_s.max(1.0) * 1e3 * MEMORY_RATE);
    LAUNCH_US + block.max(memory) + HIDDEN * block.min(memory)
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: self.sizes.threads(), registers: self.registers(), shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { bn, resident, ahead, .. } = self.sizes;
        let fewer = WARPS.into_iter().rev().find(|n| *n < self.sizes.warps).unwrap_or(0);
        let useful = (bn == BN[0] || bn - BN[0] < self.source.columns())
            && (resident == 1 || self.units * (resident - 1) < self.tiles())
            && self.blocks() * fewer < self.tiles()
            && (!ahead || self.turns() > 1);
        useful
            && (self.sizes.staged() || self.source.columns() % 2 == 0)
            && self.needs().resident(gpu) >= resident
            && self.column_tiles() <= gpu.grid_dim[1]
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        us(self, w, gpu)
    }
}
