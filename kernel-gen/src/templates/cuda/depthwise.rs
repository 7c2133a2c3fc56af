//! Depthwise convolutions in NCHW: the schedule of "Optimizing Depthwise Convolution on GPU with TVM" (Yuwei Hu,
//! TVM blog, 2017).
//!
//! A block computes a piece of `block_h x block_w` pixels of one channel of one image. It fetches the input of that piece
//! and the channel's filter into shared memory; its threads, some of them virtual, share out the pixels, so that
//! neighbouring threads read neighbouring banks. The article's piece is 32 x 32, with 8 x 8 threads and 2 x 2 virtual
//! ones: config [`article`].
//!
//! Where this differs: pieces at the lower and right edge are guarded, one channel of input may have several of output
//! (they are channels of the grid), and the epilogue is computed where the sums are written.

use super::conv2d_cost::{distinct, norm, worst_bank};
use super::family::{self, Case, Family, Knobs, Needs, knobs};
use super::model::{Waves, ceil_div, memory_us, whole_sectors};
use super::requires::{convolution, device};
use super::schedules::{BLOCK, THREAD, inline_padding, strided_fetch};
use crate::ir::{Axis, Scope};
use crate::schedule::{Schedule, Tail};
use crate::space::Config;
use crate::target::{Cuda, Target};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Workload, naive};

/// See the module's text. Knobs: `block_h`, `block_w`, `threads_h`, `threads_w`, `vthread_h`, `vthread_w`.
pub struct DepthwiseCuda;

/// The config that is the article's schedule.
pub fn article() -> Config {
    Sizes { block: [32, 32], threads: [8, 8], vthreads: [2, 2] }.config()
}

knobs! {
    /// A config with a type. Pairs are rows, then columns.
    struct Sizes {
        /// Pixels of a block.
        block: [i64; 2] = "block_h" in [4, 8, 16, 32, 64], "block_w" in [4, 8, 16, 32, 64];
        threads: [i64; 2] = "threads_h" in [1, 2, 4, 8, 16, 32], "threads_w" in [1, 2, 4, 8, 16, 32];
        /// Virtual threads.
        vthreads: [i64; 2] = "vthread_h" in [1, 2, 4], "vthread_w" in [1, 2, 4];
    }
}

/// The smallest pieces.
const SMALLEST: Sizes = Sizes { block: [4, 4], threads: [1, 1], vthreads: [1, 1] };

impl Sizes {
    /// Sums of a thread.
    fn sums(&self) -> i64 {
        self.block.iter().product::<i64>() / self.thread_count().max(1)
    }

    fn thread_count(&self) -> i64 {
        self.threads.iter().product()
    }

    /// Rows and columns of the input that a block needs.
    fn reach(&self, c: &Conv2d) -> [i64; 2] {
        [(0, c.kh), (1, c.kw)].map(|(i, taps)| (self.block[i] - 1) * c.stride[i] + (taps - 1) * c.dilation[i] + 1)
    }

    fn shared_bytes(&self, c: &Conv2d, element_bytes: i64) -> i64 {
        (self.reach(c).iter().product::<i64>() + c.kh * c.kw) * element_bytes
    }
}

/// A convolution cut up as a config says.
pub struct Plan {
    c: Conv2d,
    bytes: i64,
    sizes: Sizes,
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs {
            threads: self.sizes.thread_count(),
            registers: 0,
            shared_bytes: self.sizes.shared_bytes(&self.c, self.bytes),
        }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let (c, sizes, size) = (&self.c, &self.sizes, [self.c.oh(), self.c.ow()]);
        let divides = (0..2).all(|i| {
            let parts = sizes.threads[i] * sizes.vthreads[i];
            // No block is mostly empty, and no virtual thread has nothing to do.
            let used = sizes.block[i] < 2 * size[i] || sizes.block[i] == SMALLEST.block[i];
            let place = sizes.block[i] / sizes.vthreads[i];
            sizes.block[i] % parts == 0 && used && (sizes.vthreads[i] - 1) * place < size[i]
        });
        divides && sizes.sums() <= 64 && sizes.shared_bytes(c, self.bytes) <= gpu.shared_per_block
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        estimate(w, &self.c, gpu, &self.sizes)
    }
}

impl Family for DepthwiseCuda {
    const NAME: &'static str = "depthwise_cuda";
    const LIMITS: &'static str = "pieces divide; threads and shared memory within the device's limits";
    const SMALLEST: Option<Sizes> = Some(SMALLEST);
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        let gpu = device(t)?;
        let c = convolution(w)?;
        if !c.is_depthwise() {
            return Err("for depthwise convolutions".into());
        }
        if c.layout != ConvLayout::Nchw {
            return Err("for NCHW".into());
        }
        // One channel of an image each along the grid's second axis.
        if c.n * c.co > gpu.grid_dim[1] {
            return Err(format!("for at most {} channels of all images together", gpu.grid_dim[1]));
        }
        Ok(c)
    }

    fn too_large(_: &Case<'_, Conv2d>) -> String {
        "the kernel reaches too far for shared memory".into()
    }

    fn plan(case: &Case<'_, Conv2d>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(Plan { c: case.problem, bytes: case.w.dtype.bytes() as i64, sizes })
    }

    #[allow(non_snake_case, reason = "the article's names")]
    fn kernel(case: &Case<'_, Conv2d>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let (w, sizes) = (case.w, plan.sizes);
        let mut s = Schedule::new(naive(w));
        let [Filter, DepthwiseConv2d, Output] = [s.stage("w")?, s.stage("acc")?, s.stage("y")?];

        // The padding is inlined; the input and the filter are shared.
        let PaddedInput = inline_padding(&mut s)?;
        let IS = s.cache_read(PaddedInput, Scope::Shared, &[DepthwiseConv2d])?;
        let FS = s.cache_read(Filter, Scope::Shared, &[DepthwiseConv2d])?;
        s.set_scope(DepthwiseConv2d, Scope::Register)?;

        // One piece of one channel to each block.
        let [n, c, h, w] = s.axes(Output)?;
        let [by1, h] = s.split(h, sizes.block[0], Tail::Guard)?;
        let [bx2, w] = s.split(w, sizes.block[1], Tail::Guard)?;
        let [tvy, vyi] = s.split_nparts(h, sizes.vthreads[0])?;
        let [ty, yi] = s.split_nparts(vyi, sizes.threads[0])?;
        let [tvx, vxi] = s.split_nparts(w, sizes.vthreads[1])?;
        let [tx, xi] = s.split_nparts(vxi, sizes.threads[1])?;
        s.reorder(&[n, c, by1, bx2, tvy, tvx, ty, tx, yi, xi])?;
        let by = s.fuse(n, c)?;
        let bx = s.fuse(by1, bx2)?;
        s.bind(by, BLOCK(Axis::Y))?;
        s.bind(bx, BLOCK(Axis::X))?;

        // Threads and virtual threads.
        s.vthread(tvy)?;
        s.vthread(tvx)?;
        s.bind(ty, THREAD(Axis::Y))?;
        s.bind(tx, THREAD(Axis::X))?;
        s.compute_at(DepthwiseConv2d, tx)?;
        s.compute_at(IS, tx)?;
        s.compute_at(FS, tx)?;
        for shared in [IS, FS] {
            let loops = s.loops_of(shared);
            strided_fetch(&mut s, &loops, &[(Axis::Y, sizes.threads[0]), (Axis::X, sizes.threads[1])])?;
        }

        // A thread's pixels: straight code, outside of which the taps go.
        let loops = s.loops_of(DepthwiseConv2d);
        let (pixels, taps) = loops.split_at(loops.len() - 2);
        let order: Vec<_> = taps.iter().chain(pixels).copied().collect();
        s.reorder(&order)?;
        for v in pixels.iter().chain(&[yi, xi]) {
            s.unroll(*v)?;
        }
        Ok(Scheduled { schedule: s, packs: vec![] })
    }
}

/// Predicted microseconds: a thread's own time, most of it the copy of its share, against what the blocks on a
/// multiprocessor do in instructions and bytes from L2. The constants are clocks and instructions fitted to 370 verified
/// timings of MobileNet's layers on an H100; between configs of one layer they are off by 20 %.
fn estimate(w: &Workload, c: &Conv2d, gpu: &Cuda, s: &Sizes) -> f64 {
    const ALONE: f64 = 920.0;
    const COPY_ALONE: f64 = 228.0;
    const COPY: f64 = 20.0;
    const TAP_ALONE: f64 = 6.8;
    const COLLISION_ALONE: f64 = 6.3;
    const RESULT: f64 = 2.0;
    const L2_BYTES: f64 = 18.0;
    const LAUNCH_US: f64 = 1.5;
    let bytes = w.dtype.bytes() as i64;
    let [rows, columns] = s.reach(c);
    let threads = s.thread_count();
    let warps = ceil_div(threads, Cuda::WARP) as f64;
    let registers = (s.sums() + 32).min(gpu.registers_per_thread);
    let resident = gpu.blocks_resident(threads, registers, s.shared_bytes(c, bytes));
    if resident == 0 {
        return f64::INFINITY;
    }
    let blocks = c.n * c.co * ceil_div(c.oh(), s.block[0]) * ceil_div(c.ow(), s.block[1]);
    let Waves { count: waves, average: active, .. } = Waves::of(blocks, resident, gpu);
    // Where the first warp's lanes read and write.
    let own = [0, 1].map(|i| s.block[i] / (s.threads[i] * s.vthreads[i]).max(1));
    let lanes = (0..threads.min(Cuda::WARP)).map(|l| (l / s.threads[1] * own[0], l % s.threads[1] * own[1]));
    let words: Vec<i64> =
        lanes.clone().map(|(y, x)| (y * c.stride[0] * columns + x * c.stride[1]) * bytes / 4).collect();
    let sectors: Vec<i64> = lanes.map(|(y, x)| (y * c.ow() + x) * bytes / 32).collect();
    let rounds = ceil_div(rows * columns, threads) as f64;
    let taps = (s.sums() * c.kh * c.kw) as f64;
    let alone = ALONE + COPY_ALONE * rounds + taps * (TAP_ALONE + COLLISION_ALONE * worst_bank(&words));
    let schedulers = gpu.f32_flops_per_sm_clock as f64 / 2.0 / Cuda::WARP as f64;
    let rates =
        [warps * rounds * COPY / schedulers, rows as f64 * whole_sectors(columns * bytes) / L2_BYTES, alone / active];
    let results = RESULT * s.sums() as f64 * distinct(&sectors).count() as f64 * warps;
    let compute_us = waves * active * (norm(&rates, 2.6) + results) / gpu.clock_mhz.max(1) as f64;
    LAUNCH_US + compute_us.max(memory_us(w.bytes() as f64, gpu))
}
