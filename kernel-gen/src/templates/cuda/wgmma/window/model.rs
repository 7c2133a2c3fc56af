//! How long a convolution by windows takes: what ranks configs that were not measured.

use super::plan::{Convolution, chunks};
use crate::target::Cuda;
use crate::templates::cuda::family::{Needs, Plan};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::wgmma::block::Product;
use crate::templates::cuda::wgmma::plan::{BUFFERS, MOST_BOX, Schedule, Store, multiplied};
use crate::workload::Workload;

/// What the tensor cores reach of their rate; bytes a clock of the L2 cache for windows, and for the weights, which all blocks bring
/// at the beginning; of the output that leaves by the copy engine, and from registers; the columns that a product takes as
/// long as; clocks until the first window; the share of an output's time that nothing else covers; the share of what runs
/// below something longer that it still costs; microseconds of a launch; the share of the memory's rate that is reached; and the share of
/// the L2 cache up to which data may still be there in the next call, and what of memory's time is left then. Fitted to 2671
/// timings of 59 layers on an H100, at one and at 64 images: 7 % off on average for configs near the best, and what the model
/// likes best takes 2 % longer than the best that was tried (geometric mean).
const TENSOR_RATE: f64 = 0.8;
const L2_BYTES_PER_CLOCK: f64 = 44.0;
const WEIGHT_BYTES_PER_CLOCK: f64 = 64.0;
const ENGINE_BYTES_PER_CLOCK: f64 = 25.0;
const REGISTER_BYTES_PER_CLOCK: f64 = 12.5;
const LEAST_COLUMNS: f64 = 43.0;
const FILL_CLOCKS: f64 = 810.0;
const EXPOSED: f64 = 0.5;
const HIDDEN: f64 = 0.165;
const LAUNCH_US: f64 = 1.14;
const MEMORY_RATE: f64 = 0.81;
const CACHED: f64 = 0.85;
const CACHED_TIME: f64 = 0.9;

impl Convolution<'_> {
    /// Microseconds that it takes: a tile costs the longest of its products, its window and its output where consumers take
    /// turns; else what its output takes, of which half runs below another consumer's products, comes on top.
    pub(super) fn time(&self, cuda: &Cuda) -> f64 {
        let (c, sizes, w) = (&self.c, &self.sizes, self.workload);
        let channels = self.channel_tiles();
        let blocks = (cuda.sm_count / channels).max(1) * channels;
        let rounds = ceil_div(self.tiles(), blocks) as f64;
        let terms = (c.kh * c.kw * multiplied(w, c.ci)) as f64;
        // A product of few columns waits for its left operand, 64 rows from shared memory.
        let columns = (sizes.bn as f64).max(LEAST_COLUMNS);
        let multiply = 2.0 * sizes.bm() as f64 * columns * terms / (cuda.f16_flops_per_sm_clock as f64 * TENSOR_RATE);
        let room = sizes.window.map_or([0, 0], |room| [room.slot, room.weights]);
        let load = (room[0] * chunks(w, c).len() as i64) as f64 / L2_BYTES_PER_CLOCK;
        let rate = if sizes.store == Store::Tma { ENGINE_BYTES_PER_CLOCK } else { REGISTER_BYTES_PER_CLOCK };
        let store = (sizes.bm() * sizes.bn * w.out_dtype.bytes() as i64) as f64 / rate;
        let tiles = match (sizes.schedule, sizes.consumers) {
            (Schedule::PingPong, _) => rounds * multiply.max(load).max(store) + EXPOSED * store,
            (Schedule::Cooperative, 1) => rounds * (multiply.max(load) + store),
            (Schedule::Cooperative, _) => rounds * (multiply.max(load) + EXPOSED * store),
        };
        let fill = FILL_CLOCKS + room[1] as f64 / WEIGHT_BYTES_PER_CLOCK;
        let block = (fill + tiles) / cuda.clock_mhz as f64;
        let cached = w.bytes() as f64 <= CACHED * cuda.l2_bytes as f64;
        let cached_time = if cached { CACHED_TIME } else { 1.0 };
        let memory = w.bytes() as f64 / (cuda.bandwidth_gb_s * 1e3 * MEMORY_RATE) * cached_time;
        LAUNCH_US + block.max(memory) + HIDDEN * block.min(memory)
    }
}

impl Plan for Convolution<'_> {
    fn needs(&self) -> Needs {
        Needs { threads: self.sizes.threads(), registers: 0, shared_bytes: self.sizes.shared_bytes(BUFFERS) }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        self.window().iter().all(|n| *n <= MOST_BOX) && self.sizes.fits(gpu)
    }

    fn us(&self, _: &Workload, gpu: &Cuda) -> f64 {
        self.time(gpu)
    }
}
