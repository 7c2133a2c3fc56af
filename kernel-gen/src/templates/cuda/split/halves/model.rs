//! How long a product takes: what ranks sizes that were not measured.

use super::plan::{BN, DEPTH, PARTS, Plan, Sizes};
use crate::target::Cuda;
use crate::templates::cuda::family::{self, Needs};
use crate::templates::cuda::warpgroups;
use crate::workload::Workload;

/// Share of the tensor cores' rate that is reached with random data, where the clock drops.
const TENSOR_RATE: f64 = 0.88;
/// Bytes a clock that one multiprocessor gets from the L2 cache when all ask.
const L2_BYTES_PER_CLOCK: f64 = 36.0;
/// Clocks of a step in which a consumer waits and adds up, which other consumers hide.
const APART_CLOCKS: f64 = 400.0;
/// Clocks until the first slot of a ring is filled, and bytes a clock that threads store from registers.
const FILL_CLOCKS: f64 = 1500.0;
const STORE_BYTES_PER_CLOCK: f64 = 8.0;
/// Share of the memory's rate at which pixels are split, and the microseconds that the three launches take beside their work.
const SPLIT_RATE: f64 = 0.75;
const LAUNCHES_US: f64 = 9.0;

/// Microseconds: the pixels are split, then multiplied, in equal rounds of tiles.
pub(super) fn us(plan: &Plan, w: &Workload, cuda: &Cuda) -> f64 {
    let (sizes, cut) = (plan.sizes, plan.cut());
    let (bm, bn, depth) = (sizes.bm() as f64, sizes.bn as f64, DEPTH as f64);
    let all = 3.0 * 2.0 * bm * bn * depth / cuda.f16_flops_per_sm_clock as f64;
    // With two sums it waits twice.
    let apart = if sizes.sums == 2 { APART_CLOCKS } else { 0.5 * APART_CLOCKS };
    let multiply = (all / TENSOR_RATE).max(all / sizes.consumers as f64 + apart);
    let fetch = 2.0 * PARTS as f64 * depth * (plan.rows().fetched() as f64 + bn);
    // With two slots the next step's operands come while this one's are multiplied, and must all have come by then.
    let slots = if sizes.stages == 2 { 1.1 } else { 1.0 };
    let step = slots * multiply.max(fetch / L2_BYTES_PER_CLOCK);
    let steps = cut.chunks() as f64 * plan.source.taps_met(plan.rows().own, plan.rows().tiles());
    let rounds = (cut.tiles() as f64 / cuda.sm_count as f64).ceil();
    // Threads store 32 bytes of a column where that many rows are neighbours.
    let scattered = 1.0 + 1.0 / plan.rows().run() as f64;
    let store = scattered * 4.0 * bm * bn / STORE_BYTES_PER_CLOCK;
    let clocks = FILL_CLOCKS + rounds * (steps * step + store);
    let bytes = plan.pixels() as f64 * (4 * plan.source.depth() + 2 * PARTS * DEPTH * cut.chunks()) as f64;
    let memory = w.bytes() as f64 / (cuda.bandwidth_gb_s * 1e3);
    let split = bytes / (cuda.bandwidth_gb_s * 1e3 * SPLIT_RATE);
    LAUNCHES_US + split + (clocks / cuda.clock_mhz as f64).max(memory)
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: self.cut().threads(), registers: 0, shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, cuda: &Cuda) -> bool {
        let most = warpgroups::registers(self.sizes.consumers)
            .map_or(cuda.registers_per_thread, |[_, consumer]| i64::from(consumer));
        let Sizes { bn, sides: [middle, inner], .. } = self.sizes;
        let bm = self.sizes.bm();
        if middle * inner > bm {
            return false;
        }
        let rows = self.rows();
        // A narrower or a lower tile would do.
        let useful = (bn == BN[0] || bn - 16 < self.source.columns())
            && (2 * rows.count() > bm || bm == 64 && rows.count() >= self.source.rows());
        useful
            && rows.are_one_box()
            && self.registers() <= most
            && self.cut().column_tiles().max(self.cut().chunks()) <= cuda.grid_dim[1]
    }

    fn us(&self, w: &Workload, cuda: &Cuda) -> f64 {
        us(self, w, cuda)
    }
}
