//! How long a product takes: what ranks sizes that were not measured.
//!
//! The constants are fitted to 178 timings of emitted kernels on an H100, from 11 to 3100 us: 41 of square products of 512, 1024
//! and 4096 and of a convolution of 256 images in HWCN, 137 of five layers of ResNet in NHWC. Where fast ones weigh more, they
//! are 6 % off (root of the mean square of the logarithm), and what they rank first among a layer's is 1.03 times as slow as
//! the fastest (geometric mean).

use super::plan::{MOST_PIECES, MOST_THREADS, MOST_UNROLLED, MultiplyAdds, Sizes};
use crate::space::Value;
use crate::target::Cuda;
use crate::templates::cuda::conv2d_cost::norm;
use crate::templates::cuda::cut::Layout;
use crate::templates::cuda::family::{self, Needs, Plan as _};
use crate::templates::cuda::model::{memory_us, rounds};
use crate::templates::cuda::outer::{LANES, VECTOR};
use crate::workload::Workload;

/// Microseconds to launch and to end, and what a launch that adds up parts adds.
const LAUNCH_US: f64 = 2.6;
const SECOND_US: f64 = 0.6;
/// Clocks until the first tiles have come, and after the last product until the last output is stored. Of blocks that come later
/// others, which are in the midst of their work, cover all but their own.
const FILL_CLOCKS: f64 = 1700.0;
/// Bytes a clock that one multiprocessor gets from the L2 cache when all ask, and that it stores.
const L2_BYTES_PER_CLOCK: f64 = 51.0;
const STORE_BYTES_PER_CLOCK: f64 = 40.0;
/// Clocks in which shared memory serves half a warp's vectors, and stores what a warp copies.
const HALF_CLOCKS: f64 = 1.0;
const COPY_CLOCKS: f64 = 0.5;
/// Instructions of a copy.
const COPY_ISSUES: f64 = 4.0;
/// Clocks of a block's step for each copy of a warp that turns elements around, which come from four lines: all of its warps
/// copy at the same time, and nothing of it is multiplied meanwhile.
const TURN_CLOCKS: f64 = 3.1;
/// Clocks of a term for a warp that has its scheduler alone: at least, and for each of its instructions.
const TERM_CLOCKS: f64 = 19.0;
const ALONE_CLOCKS: f64 = 1.3;
/// Clocks from a copy's issue until its bytes can be read.
const COPY_LATENCY: f64 = 310.0;
/// The share of clocks in which a scheduler that has enough warps issues.
const ISSUED: f64 = 0.91;
/// Schedulers of a multiprocessor.
const SCHEDULERS: f64 = 4.0;

/// Microseconds.
pub(super) fn us(plan: &MultiplyAdds, w: &Workload, gpu: &Cuda) -> f64 {
    let sizes = plan.sizes;
    let resident = plan.needs().resident(gpu);
    if resident == 0 {
        return f64::INFINITY;
    }
    let Sizes { tile: [m, n], tile_k, own, stages, split, .. } = sizes;
    let warps = (plan.cut.threads() / Cuda::WARP) as f64;
    let [terms, quads] = [tile_k as f64, ((own[0] + own[1]) / VECTOR) as f64];
    let copies = (plan.pieces(0) + plan.pieces(1)) as f64;
    let turned = [0, 1].into_iter().filter(|side| plan.cut.whole.layouts[*side] == Layout::ReductionFast);
    let turned = turned.map(|side| plan.pieces(side)).sum::<i64>() as f64;
    // With half as many lanes a multiply-add takes a scheduler for two clocks.
    let clocks_of_fma = 2.0 * SCHEDULERS * Cuda::WARP as f64 / gpu.f32_flops_per_sm_clock.max(1) as f64;
    let fma = (own[0] * own[1]) as f64 * clocks_of_fma;
    let issue = warps / SCHEDULERS * (terms * (fma + quads) + copies * COPY_ISSUES + plan.step_issues) / ISSUED;
    let shared = warps * (terms * quads * 2.0 * HALF_CLOCKS + copies * COPY_CLOCKS);
    let bytes = (4 * tile_k * (m + n)) as f64;
    let fetch = bytes / L2_BYTES_PER_CLOCK;
    let busy = norm(&[issue, shared, fetch], 4.0);
    let alone = terms * TERM_CLOCKS.max(ALONE_CLOCKS * (fma + quads));
    let steps = plan.cut.steps() as f64 * (1.0 - plan.skipped);
    let clocks = rounds(plan.cut.blocks(), resident, gpu)
        .map(|[count, b]| {
            // Fewer warps than schedulers leave some of these idle.
            let idle = (warps * b / SCHEDULERS).min(1.0);
            let ahead = (COPY_LATENCY + b * fetch) / (stages - 1) as f64;
            let step = (b * busy / idle).max(alone).max(ahead) + TURN_CLOCKS * warps * turned;
            let store = b * (4 * m * n) as f64 / STORE_BYTES_PER_CLOCK;
            count * (FILL_CLOCKS / b + steps * step + store)
        })
        .sum::<f64>()
        + FILL_CLOCKS;
    let parts = if split > 1 { SECOND_US + plan.cut.parts_us(gpu, L2_BYTES_PER_CLOCK) } else { 0.0 };
    LAUNCH_US + parts + (clocks / gpu.clock_mhz.max(1) as f64).max(memory_us(w.bytes() as f64, gpu))
}

impl family::Plan for MultiplyAdds {
    fn needs(&self) -> Needs {
        Needs { threads: self.cut.threads(), registers: self.registers(), shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { tile, tile_k, own, .. } = self.sizes;
        (0..2).all(|side| tile[side] % (own[side] * LANES[side]) == 0)
            && own[0] * own[1] * tile_k <= MOST_UNROLLED
            && (64..=MOST_THREADS).contains(&self.cut.threads())
            && (0..2).all(|side| self.pieces(side) <= MOST_PIECES)
            && self.cut.suits(gpu)
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        us(self, w, gpu)
    }

    /// Blocks share reductions where tiles leave multiprocessors idle.
    fn narrow(&self, gpu: &Cuda, knob: &str, values: &mut Vec<Value>) {
        if knob == "split" && self.cut.all_tiles() >= 16 * gpu.sm_count {
            values.truncate(1);
        }
    }
}
