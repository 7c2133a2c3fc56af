//! How long a layer takes: what ranks sizes that were not measured.
//!
//! The constants are fitted to 5811 timings of 116 layers of the networks of `specs/` with one image, in f32 and NCHW, on an
//! H100, taken while these were tuned, with more weight on the fast ones: 1.8 to 100 us, of which the prediction is 11 % off (root
//! of the mean square of the logarithm). Of the sizes measured for a layer those that it ranks first are 1.08 times as slow as the
//! fastest (geometric mean). What layouts with channels side by side and types of 16 bits add was fitted before that to 480 timings
//! of one image in NHWC, HWCN and NCHW: 12 to 15 % off.

use super::plan::{MOST_UNROLLED, Plan, Sizes, WARP, Work, ahead, filter_turns};
use crate::target::{Cuda, CudaFeature};
use crate::templates::cuda::conv2d_cost::norm;
use crate::templates::cuda::family;
use crate::templates::cuda::family::Needs;
use crate::templates::cuda::model::ceil_div;
use crate::workload::{ConvLayout, DepthwisePointwise, Workload};

/// Microseconds to launch and to end; an empty kernel takes 1.1.
const LAUNCH_US: f64 = 1.25;
/// Microseconds that a cluster adds: its blocks start together and wait for each other's sums.
const CLUSTER_US: f64 = 0.19;
/// Clocks from a copy until its bytes have come, as far as nothing else covers them.
const LATENCY: f64 = 181.0;
/// Share of the time that the bytes of later steps take for which those of the first wait.
const AHEAD: f64 = 0.46;
/// Bytes a clock that one multiprocessor gets from the L2 cache.
const L2_BYTES_PER_CLOCK: f64 = 51.0;
/// Bytes of shared memory that a multiprocessor reads in a clock.
const SHARED_BYTES_PER_CLOCK: f64 = 128.0;
/// Clocks of shared memory for a warp's access.
const SHARED_ACCESS: f64 = 1.66;
/// Share of a scheduler's slots that straight code of this kind fills.
const ISSUE: f64 = 0.65;
/// Slots of a multiply-add (those of a warp's turn pair up), and of a load of four pixels.
const MULTIPLY_ADD: f64 = 0.69;
const PIXELS_LOAD: f64 = 2.02;
/// Instructions that copy pixels to shared memory, addresses and padding included, and where they are one run; that copy weights;
/// and of a step's rest.
const COPY_PIXELS: f64 = 11.1;
const COPY_RUN: f64 = 4.4;
const COPY_WEIGHTS: f64 = 2.03;
const STEP_REST: f64 = 4.3;
/// More of them where pixels come by way of registers, conversion and store, and the clocks that a step waits for them: nothing
/// is fetched further ahead.
const KEEP_PIXELS: f64 = 10.0;
const LOAD_CLOCKS: f64 = 400.0;
/// Bytes that the L2 cache brings at least, and of a line of the cache above it, which takes so many clocks of shared memory's
/// for each line that a copy's lanes want something of.
const SECTOR_BYTES: i64 = 32;
const LINE_BYTES: i64 = 128;
const LINE_CLOCKS: f64 = 0.7;
/// How many times as long blocks of several images take where channels are neighbours: 1.00 and 1.13 of two layers of 64.
const SIDE_BY_SIDE_IMAGES: f64 = 1.08;
/// Clocks of a warp's step that none of its own instructions cover: waiting for the copies, the other lanes, the first loads.
const STEP_ALONE: f64 = 67.0;
/// Clocks in which an instruction of the step comes from memory once, and how much slower code is that the cache for it
/// (32 KiB, 16 bytes an instruction) does not hold.
const CODE_CLOCKS: f64 = 0.40;
const CODE_HELD: f64 = 2000.0;
const CODE_MISSED: f64 = 0.54;
/// Clocks of a step that wait for depthwise results.
const DEPTHWISE_ALONE: f64 = 100.0;
/// How round the corner is between what may bound a step.
const NORM: f64 = 6.6;
/// Clocks of adding up what warps have, and of each turn of the block's threads at that.
const REDUCE_CLOCKS: f64 = 246.0;
const TURN_CLOCKS: f64 = 4.5;
/// Share of the multiprocessors that clusters of more than two blocks can use: an H100's are in groups, which are no
/// multiples of four, and take 30 clusters of four or 15 of eight at a time.
const IN_CLUSTERS: f64 = 120.0 / 132.0;

/// What the first half of a pair adds to the second for one input channel of each group.
#[derive(Default)]
struct Depthwise {
    /// Instructions of a warp.
    slots: f64,
    /// Of these, accesses of shared memory.
    accesses: f64,
    /// Clocks of a step that no other instruction of the warp covers.
    alone: f64,
}

impl Depthwise {
    fn of(plan: &Plan, pair: &DepthwisePointwise) -> Depthwise {
        let (step, work) = (plan.sizes.step as f64, Work::of(plan, pair));
        let copies = (filter_turns(plan, pair) + i64::from(pair.bias)) as f64 / step;
        let slots = (work.turns * work.instructions) as f64 / step + copies * COPY_PIXELS;
        let accesses = (work.turns * (work.loads + work.run)) as f64 / step + copies;
        // A step ahead products cover what results wait for, and the first step's are computed beside none.
        let alone = if ahead(plan) { 0.0 } else { DEPTHWISE_ALONE };
        Depthwise { slots, accesses, alone }
    }
}

/// How many times as many bytes are in the pieces of so many that a warp's pixels lie in as it takes of them, where channels are
/// neighbours; 1 where pixels are.
fn spread(plan: &Plan, bytes: i64) -> f64 {
    let (piece, asked) = (bytes / plan.dtype.bytes() as i64, plan.sizes.step * plan.sizes.groups());
    // Elements from a pixel to the next, and from a channel to the next.
    let (pixel, channel) = match plan.c.layout {
        ConvLayout::Nhwc => (plan.c.ci, 1),
        ConvLayout::Hwcn => (plan.c.ci * plan.c.n, plan.c.n),
        _ => return 1.0,
    };
    let held = pixel.min(piece);
    held as f64 / asked.min(held / channel).max(1) as f64
}

/// Microseconds.
pub(super) fn us(plan: &Plan, w: &Workload, gpu: &Cuda) -> f64 {
    let sizes = plan.sizes;
    let resident = gpu.blocks_resident(sizes.threads(), plan.registers().min(255), plan.shared_bytes()).max(1);
    let usable = if sizes.cluster > 2 { gpu.sm_count as f64 * IN_CLUSTERS } else { gpu.sm_count as f64 }.max(1.0);
    // Blocks go to multiprocessors in rounds; those that share one share its rates.
    let rounds = (plan.blocks() as f64 / usable).ceil();
    let sharing = rounds.min(resident as f64);
    let waves = (rounds / sharing).ceil();
    let (taps, step) = (plan.taps() as f64, sizes.step as f64);
    let window = plan.multiplied();
    let loads = window.loads() as f64;
    let depthwise = plan.pair.map_or(Depthwise::default(), |pair| Depthwise::of(plan, &pair));
    // Instructions of a warp for one input channel of each group: products, loads from shared memory, and copies to it.
    let products = MULTIPLY_ADD * plan.macs() as f64 + PIXELS_LOAD * loads + taps;
    let copies = plan.step_rounds() as f64 / step;
    let by_registers = if plan.by_registers() { KEEP_PIXELS * copies } else { 0.0 };
    let copy = if window.flat() && !plan.side_by_side() { COPY_RUN } else { COPY_PIXELS };
    let slots = products + by_registers + copy * copies + COPY_WEIGHTS * taps + STEP_REST + depthwise.slots;
    let code = step * (plan.macs() as f64 + loads + 2.0 * taps + 8.0 * copies + depthwise.slots);
    // From a fifth over what the cache holds nearly all of it misses.
    let missed = ((code - CODE_HELD) / (0.2 * CODE_HELD)).clamp(0.0, 1.0);
    let instructions = slots * (1.0 + CODE_MISSED * missed);
    let warps = sharing * sizes.warps as f64;
    // Warps that take turns at a scheduler, of which a multiprocessor has four.
    let turns = (warps / 4.0).ceil();
    let one = instructions * step / ISSUE;
    let issue = turns * one;
    let accesses = loads + taps * sizes.channels as f64 + copies + depthwise.accesses;
    let lines = if plan.side_by_side() { copies * spread(plan, LINE_BYTES) } else { 0.0 };
    let shared = warps * step * (SHARED_ACCESS * accesses + LINE_CLOCKS * lines);
    let pixels = plan.slot_elements() as f64 * spread(plan, SECTOR_BYTES);
    let bytes = 4.0 * ((WARP * plan.taps() * sizes.channels) as f64 + pixels);
    let fetch = warps * step * bytes / L2_BYTES_PER_CLOCK;
    let steps = plan.steps();
    // What is fetched ahead has to last until more has come.
    let wait = if sizes.stages < steps { (LATENCY + issue) / sizes.stages as f64 } else { 0.0 };
    let wait = if plan.by_registers() { wait.max(LOAD_CLOCKS) } else { wait };
    let period = norm(&[issue, shared, fetch, wait, STEP_ALONE + depthwise.alone + one], NORM);
    let sums = warps * (sizes.sums() * WARP) as f64 * 4.0;
    let elements = ceil_div(sizes.block_channels() * sizes.pixels(), sizes.threads()) as f64;
    let reduce = 2.0 * sums / SHARED_BYTES_PER_CLOCK + TURN_CLOCKS * elements * sharing + REDUCE_CLOCKS;
    // Loads to registers are waited for before the next are asked for.
    let reduce = if plan.by_registers() { reduce + LOAD_CLOCKS * sizes.stages as f64 } else { reduce };
    let ahead = AHEAD * (sizes.stages - 1) as f64 * fetch;
    let images = if plan.side_by_side() && plan.c.n > 1 { SIDE_BY_SIDE_IMAGES } else { 1.0 };
    let clocks = CODE_CLOCKS * code + images * waves * (LATENCY + fetch + ahead + steps as f64 * period + reduce);
    let memory = w.bytes() as f64 / (gpu.bandwidth_gb_s * 1e3);
    let cluster = if sizes.cluster > 1 { CLUSTER_US } else { 0.0 };
    LAUNCH_US + cluster + (clocks / gpu.clock_mhz as f64).max(memory)
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: self.sizes.threads(), registers: self.registers(), shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { warps, stages, step, cluster, tile, lanes, channels } = self.sizes;
        let useful = (0..2).all(|dim| tile[dim] <= self.outputs(dim))
            && cluster * warps * self.sizes.groups() * step <= self.c.ci
            && stages <= self.steps()
            && (channels == 1 || self.c.co > lanes * (channels - 1))
            // Groups of neighbours and groups of lanes are not in one warp.
            && (channels <= 4 || lanes == WARP);
        useful
            && self.macs() * step <= MOST_UNROLLED
            && self.channel_tiles() <= gpu.grid_dim[1]
            && self.padded_channels() / self.sizes.groups() <= gpu.grid_dim[0]
            && lanes * channels % cluster == 0
            && (cluster == 1 || gpu.has(CudaFeature::Cluster) && cluster <= gpu.cluster_size)
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        us(self, w, gpu)
    }
}
