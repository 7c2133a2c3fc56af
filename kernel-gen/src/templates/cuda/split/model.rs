//! How long a product takes: what ranks sizes that were not measured.

use super::parts::{DEPTH, Parts};
use super::plan::{BN, PRODUCERS, Plan, Sizes};
use crate::target::Cuda;
use crate::templates::cuda::family;
use crate::templates::cuda::family::Needs;
use crate::templates::cuda::source::Fast;
use crate::workload::Workload;

/// Share of the tensor cores' rate that is reached with random data, where the clock drops.
const TENSOR_RATE: f64 = 0.88;
/// Bytes a clock that one multiprocessor gets from the L2 cache when all ask.
const L2_BYTES_PER_CLOCK: f64 = 36.0;
/// Clocks of a multiprocessor for a copy by each of the producers.
const COPY_CLOCKS: f64 = 20.0;
/// Clocks of a row block's step in which its consumer does not multiply: it waits, splits its rows and adds up sums. The
/// second is for each consumer, since they take turns at the schedulers. Fitted, with the rates, to 17 timings of layers in
/// NCHW on an H100, from 28 to 303 us: 16 are met within 18 %.
const BLOCK_CLOCKS: f64 = 320.0;
const TURN_CLOCKS: f64 = 280.0;
/// What a turn takes more to make three parts in bf16 where rows go faster: 43 instructions in addition to 160 (with 64
/// columns). From these alone; measured, it is 0 to 18 % slower than two parts of tf32, and where terms lie side by side as fast.
const MORE_TURN_CLOCKS: f64 = 75.0;
/// What three consumers, which have 152 registers a thread, were seen to take more.
const CROWDED: f64 = 1.6;
/// Clocks until the first slot of a ring is filled, and bytes a clock that threads store from registers.
const FILL_CLOCKS: f64 = 1500.0;
const STORE_BYTES_PER_CLOCK: f64 = 6.0;
/// Microseconds to launch a kernel and set up its barriers.
const LAUNCH_US: f64 = 2.0;

/// Microseconds.
///
/// A step takes as long as its multiplications, its loads or its copy instructions, whichever is longest. Blocks go through
/// their tiles in equal rounds.
pub(super) fn us(plan: &Plan, w: &Workload, cuda: &Cuda) -> f64 {
    let (sizes, cut) = (plan.sizes, plan.cut());
    let (bm, bn, depth) = (sizes.bm() as f64, sizes.bn as f64, DEPTH as f64);
    let all = plan.parts.products_of_tf32() * 2.0 * bm * bn * depth / cuda.tf32_flops_per_sm_clock as f64;
    let turn = match (plan.parts, plan.source.fast()) {
        (Parts::ThreeBf16, Fast::Rows) => TURN_CLOCKS + MORE_TURN_CLOCKS,
        _ => TURN_CLOCKS,
    };
    // A consumer does not split its rows while its products are under way.
    let crowded = if sizes.consumers > 2 { CROWDED } else { 1.0 };
    let apart = crowded * sizes.row_blocks as f64 * (BLOCK_CLOCKS + turn * sizes.consumers as f64);
    let multiply = (all / TENSOR_RATE).max(all / sizes.consumers as f64 + apart);
    let bytes = depth * (4.0 * bm + (plan.parts.count() * plan.parts.bytes()) as f64 * bn);
    let copies = bm * depth / plan.source.width() as f64 / PRODUCERS as f64;
    let copy = COPY_CLOCKS * copies;
    // What is fetched ahead has to last until more has come.
    let wait = (1200.0 + multiply) / (sizes.stages - 1) as f64;
    let step = multiply.max(bytes / L2_BYTES_PER_CLOCK).max(copy).max(wait);
    let rounds = (cut.tiles() as f64 / cuda.sm_count as f64).ceil();
    let store = 4.0 * bm * bn / STORE_BYTES_PER_CLOCK;
    let clocks = FILL_CLOCKS + rounds * (cut.steps() as f64 * step + store);
    let memory = w.bytes() as f64 / (cuda.bandwidth_gb_s * 1e3);
    LAUNCH_US + (clocks / cuda.clock_mhz as f64).max(memory)
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: self.cut().threads(), registers: 0, shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, cuda: &Cuda) -> bool {
        let most = self.shares().map_or(cuda.registers_per_thread, |[_, consumer]| i64::from(consumer));
        let Sizes { bn, stages, lag, .. } = self.sizes;
        // A narrower tile would do; and of slots that are all under way none is multiplied.
        let useful = (bn == BN[0] || bn - 16 < self.source.columns()) && lag + 2 <= stages;
        // Producers share out the rows evenly.
        let groups = self.sizes.bm() / self.source.width();
        let even = self.source.fast() == Fast::Reduction || groups % PRODUCERS == 0 || PRODUCERS % groups == 0;
        // Blocks of rows one after the other are slower than one, and in several rounds their writes are not seen to be apart.
        let alone = self.sizes.row_blocks == 1 || self.parts.count() == 1 && self.cut().tiles() <= cuda.sm_count;
        useful && even && alone && self.registers() <= most && self.cut().column_tiles() <= cuda.grid_dim[1]
    }

    fn us(&self, w: &Workload, cuda: &Cuda) -> f64 {
        us(self, w, cuda)
    }
}
