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

use super::model::{Launch, Unit, ceil_div, whole_sectors};
use super::{BLOCK, THREAD, descend, device, inline_padding, strided_fetch};
use crate::ir::{Axis, Scope};
use crate::schedule::{Schedule, Tail};
use crate::space::{Config, ConfigError, Space};
use crate::target::{Cuda, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Op, Workload, naive};

/// See the module's text. Knobs: `block_h`, `block_w`, `threads_h`, `threads_w`, `vthread_h`, `vthread_w`.
pub struct DepthwiseCuda;

/// The config that is the article's schedule.
pub fn article() -> Config {
    Sizes { block: [32, 32], threads: [8, 8], vthreads: [2, 2] }.config()
}

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Conv2d, &'a Cuda), String> {
    let gpu = device(t)?;
    let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
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
    Ok((c, gpu))
}

/// A config as numbers: rows, columns.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Sizes {
    block: [i64; 2],
    threads: [i64; 2],
    vthreads: [i64; 2],
}

impl Sizes {
    fn of(config: &Config) -> Result<Sizes, ConfigError> {
        Ok(Sizes {
            block: [config.int("block_h")?, config.int("block_w")?],
            threads: [config.int("threads_h")?, config.int("threads_w")?],
            vthreads: [config.int("vthread_h")?, config.int("vthread_w")?],
        })
    }

    fn config(&self) -> Config {
        Config::new()
            .with("block_h", self.block[0])
            .with("block_w", self.block[1])
            .with("threads_h", self.threads[0])
            .with("threads_w", self.threads[1])
            .with("vthread_h", self.vthreads[0])
            .with("vthread_w", self.vthreads[1])
    }

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

    fn fits(&self, c: &Conv2d, element_bytes: i64, gpu: &Cuda) -> bool {
        let size = [c.oh(), c.ow()];
        let divides = (0..2).all(|i| {
            let parts = self.threads[i] * self.vthreads[i];
            // No block is mostly empty, and no virtual thread has nothing to do.
            let used = self.block[i] < 2 * size[i] || self.block[i] == 4;
            let place = self.block[i] / self.vthreads[i];
            self.block[i] % parts == 0 && used && (self.vthreads[i] - 1) * place < size[i]
        });
        divides
            && self.thread_count() <= gpu.threads_per_block
            && self.sums() <= 64
            && self.shared_bytes(c, element_bytes) <= gpu.shared_per_block
    }
}

impl Template for DepthwiseCuda {
    fn name(&self) -> &str {
        "depthwise_cuda"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        let (c, gpu) = problem(w, t)?;
        let least = Sizes { block: [4, 4], threads: [1, 1], vthreads: [1, 1] };
        let fits = least.shared_bytes(&c, w.dtype.bytes() as i64) <= gpu.shared_per_block;
        fits.then_some(()).ok_or_else(|| "the kernel reaches too far for shared memory".into())
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (c, gpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let (gpu, bytes) = (gpu.clone(), w.dtype.bytes() as i64);
        Ok(Space::builder()
            .knob("block_h", [4, 8, 16, 32, 64])
            .knob("block_w", [4, 8, 16, 32, 64])
            .knob("threads_h", [1, 2, 4, 8, 16, 32])
            .knob("threads_w", [1, 2, 4, 8, 16, 32])
            .knob("vthread_h", [1, 2, 4])
            .knob("vthread_w", [1, 2, 4])
            .filter("pieces divide; threads and shared memory within the device's limits", move |config| {
                Sizes::of(config).is_ok_and(|s| s.fits(&c, bytes, &gpu))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let start = Sizes { block: [4, 4], threads: [1, 1], vthreads: [1, 1] };
        Ok(descend(&self.space(w, t)?, &start.config(), |config| self.cost(w, t, config))?)
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        let (Ok((c, gpu)), Ok(s)) = (problem(w, t), Sizes::of(config)) else { return f64::INFINITY };
        let bytes = w.dtype.bytes() as i64;
        let outputs = (s.block[0] * s.block[1]) as f64;
        let taps = (c.kh * c.kw) as f64;
        let [rows, columns] = s.reach(&c);
        let launch = Launch {
            blocks: c.n * c.co * ceil_div(c.oh(), s.block[0]) * ceil_div(c.ow(), s.block[1]),
            threads: s.thread_count(),
            registers: (s.sums() + 32).min(gpu.registers_per_thread),
            shared_bytes: s.shared_bytes(&c, bytes),
            unit: Unit::Fma,
            sums: s.sums(),
            steps: 1.0,
            step_flops: 2.0 * outputs * taps,
            // An element of the input for each product; the filter is the same for all threads.
            step_shared_bytes: outputs * taps * 4.0,
            step_fetched_bytes: rows as f64 * whole_sectors(columns * bytes),
            bytes: w.bytes() as f64,
        };
        // Instructions of a fetch go by rounds of all threads.
        let rounds = ceil_div(rows * columns, s.thread_count()) as f64;
        let work = s.sums() as f64 * taps;
        launch.microseconds(gpu) * (1.0 + 2.0 * rounds / work).min(4.0)
    }

    #[allow(non_snake_case, reason = "the article's names")]
    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        problem(w, t).map_err(TemplateError::Limit)?;
        let sizes = Sizes::of(config)?;
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
