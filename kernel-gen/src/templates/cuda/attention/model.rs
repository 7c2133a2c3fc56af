//! How long attention takes: what ranks configs that were not measured.

use super::plan::{Plan, Sizes, TILE, fits_grid};
use crate::target::Cuda;
use crate::templates::cuda::family::{self, Needs};
use crate::templates::cuda::model::{Waves, memory_us};
use crate::workload::{Attention, Workload};

/// Microseconds to launch and to end.
const LAUNCH_US: f64 = 1.5;
/// Clocks of a step that hide below nothing: copies, the barrier, and what lanes of a row exchange.
const STEP_CLOCKS: f64 = 400.0;
/// Clocks until the first keys have come, and after the last step until the last output is stored.
const FILL_CLOCKS: f64 = 1500.0;
/// Instructions of a thread for each of its scores beside the products: maximum, exponent, exponential, sum, rounding.
const SCORE_INSTRUCTIONS: f64 = 9.0;

/// Bytes a clock that one multiprocessor gets from the L2 cache when all ask.
const L2_BYTES_PER_CLOCK: f64 = 48.0;
/// Clocks in which a scheduler issues the instructions of 16 bytes that each lane of a warp copies.
const COPY_CLOCKS: f64 = 20.0;

/// What a device has to do.
pub(super) struct Work {
    pub(super) blocks: i64,
    /// Blocks that a multiprocessor holds.
    pub(super) resident: i64,
    /// Steps of a block.
    pub(super) steps: i64,
    /// Queries of a block and keys of a step.
    pub(super) rows: f64,
    pub(super) keys: f64,
    /// Elements of a key and of a value.
    pub(super) width: f64,
    /// The share of the tensor cores' rate that products reach.
    pub(super) rate: f64,
    /// Warps that multiply.
    pub(super) warps: f64,
    /// Rows that an operand in shared memory is read for at a time.
    pub(super) operand_rows: f64,
    /// Whether threads copy keys and values, and not the copy engine.
    pub(super) copies: bool,
}

impl Work {
    /// Microseconds.
    pub(super) fn us(&self, of: &Attention, w: &Workload, gpu: &Cuda) -> f64 {
        if self.resident == 0 {
            return f64::INFINITY;
        }
        let Waves { count, together, .. } = Waves::of(self.blocks, self.resident, gpu);
        // Of a block in one step, if it has all schedulers to itself.
        let products =
            2.0 * self.rows * self.keys * self.width / (gpu.f16_flops_per_sm_clock.max(1) as f64 * self.rate);
        let issue = (self.rows * self.keys * SCORE_INSTRUCTIONS + self.rows * self.width / 2.0) / 128.0;
        let shared = self.rows / self.operand_rows * 2.0 * self.keys * self.width / 128.0;
        let bytes = 2.0 * self.keys * self.width;
        let fetch = bytes / L2_BYTES_PER_CLOCK;
        let issue = issue + if self.copies { bytes / 16.0 / Cuda::WARP as f64 * COPY_CLOCKS / 4.0 } else { 0.0 };
        // Warps of a block are spread over four schedulers; each waits for its own products.
        let busy = [products, issue, shared, fetch].into_iter().fold(0.0, f64::max) * together;
        let alone = (products + issue) / (self.warps / 4.0).min(1.0);
        let steps = self.steps as f64 * if of.causal { 0.6 } else { 1.0 };
        let clocks = count * (FILL_CLOCKS + steps * (busy.max(alone) + STEP_CLOCKS));
        LAUNCH_US + (clocks / gpu.clock_mhz.max(1) as f64).max(memory_us(w.bytes() as f64, gpu))
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: self.threads(), registers: self.registers(), shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { warps, rows, keys, stages } = self.sizes;
        let Attention { m, n, .. } = self.of;
        (warps * rows == 1 || self.block_rows() < 2 * m.max(TILE))
            && (keys == TILE || keys < 2 * n)
            && stages <= self.steps().max(2)
            && self.arrays() <= gpu.registers_per_thread
            && fits_grid(&self.of, self.tiles(), gpu)
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        let Sizes { warps, rows, keys, .. } = self.sizes;
        let work = Work {
            blocks: self.of.b * self.of.heads * self.tiles(),
            resident: self.needs().resident(gpu),
            steps: self.steps(),
            rows: self.block_rows() as f64,
            keys: keys as f64,
            width: self.widths().iter().sum::<i64>() as f64,
            rate: 0.5,
            warps: warps as f64,
            operand_rows: (TILE * rows) as f64,
            copies: true,
        };
        work.us(&self.of, w, gpu)
    }
}
