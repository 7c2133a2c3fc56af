//! The schedule that runs everything on a CUDA device: one thread an output element, with its sum in a register.
//!
//! Neighbouring threads write neighbouring elements; operands come through the caches. Padding is a condition of the
//! loads, and threads beyond the last element are idle.

use super::family::{Case, Family, Needs, Plan, Search, knobs};
use super::model::{LAUNCH_US, Straight, ceil_div, memory_us};
use super::requires::device;
use super::schedules::{BLOCK, THREAD, inline_padding, pieces};
use crate::ir::{Axis, BufferId, DType, Scope};
use crate::schedule::{Schedule, ScheduleError};
use crate::target::{Cuda, Target};
use crate::templates::rows::{at_rows, row_loops, row_stages};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Op, Workload, naive};

/// See the module's text. Knob: `threads` of a block.
pub struct PlainCuda;

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Threads of a block.
        threads: i64 = "threads" in [32, 64, 128, 256, 512, 1024];
    }
}

impl Plan for Sizes {
    fn needs(&self) -> Needs {
        Needs { threads: self.threads, registers: 0, shared_bytes: 0 }
    }

    fn suits(&self, _: &Cuda) -> bool {
        true
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        let outputs: i64 = w.output_shape().iter().product();
        if let [one] = &w.op.get().stages(w.dtype, DType::F32)[..]
            && one.reduce == 0
        {
            // A thread computes one element, and moves less at a time than fills the way to memory. Fitted to sums of 51 million
            // elements on an H100, as `elements_cuda`'s constants are.
            let warps = ceil_div(ceil_div(outputs, self.threads), gpu.sm_count) * ceil_div(self.threads, Cuda::WARP);
            let own = warps as f64 * 24.0 / gpu.clock_mhz.max(1) as f64;
            return LAUNCH_US + (1.1 * memory_us(w.bytes() as f64, gpu)).max(own) + own / 10.0;
        }
        // A thread alone: blocks of one warp may have all registers, with which the compiler loads many terms ahead; the
        // taps of a kernel are unrolled in any case. Lanes that are not neighbours in memory take more sectors.
        let (alone, spread) = match &w.op {
            Op::Conv2d(c) if c.kh * c.kw == 1 => {
                (if self.threads > 32 { 160.0 } else { 35.0 }, if c.stride[1] > 1 { 1.6 } else { 1.0 })
            }
            // Its first half is a launch of its own, small beside the second.
            Op::DepthwisePointwise(_) => (35.0, 1.0),
            Op::Matmul(m) => (140.0, if m.trans_b { 4.0 } else { 1.0 }),
            // Windows.
            _ => (45.0, 1.0),
        };
        let blocks = ceil_div(outputs, self.threads);
        if blocks > gpu.grid_dim[0] {
            return f64::INFINITY;
        }
        Straight { blocks, threads: self.threads, terms: w.reduction_length(), alone, spread }.microseconds(w, gpu)
    }
}

impl Family for PlainCuda {
    const NAME: &'static str = "plain_cuda";
    const LIMITS: &'static str = "";
    const TAKES_INTEGERS: bool = true;
    const TAKES_F8: bool = true;
    type Problem = ();
    type Knobs = Sizes;
    type Plan<'a> = Sizes;

    fn problem(_: &Workload, t: &Target) -> Result<(), String> {
        device(t).map(drop)
    }

    fn plan(_: &Case<'_, ()>, sizes: Sizes) -> Result<Sizes, TemplateError> {
        Ok(sizes)
    }

    fn search(_: &Case<'_, ()>) -> Search<Sizes> {
        Search::Near(Sizes { threads: 256 })
    }

    fn kernel(case: &Case<'_, ()>, plan: &Sizes) -> Result<Scheduled, TemplateError> {
        let w = case.w;
        let mut s = Schedule::new(naive(w));
        let out = *s.kernel.params.last().expect("every workload has an output");
        if s.stage("pad").is_ok() {
            inline_padding(&mut s)?;
        }
        if let Some(rows) = row_stages(w) {
            // A thread a row: what its elements share is found once, in registers.
            let [row, column] = row_loops(&mut s, w, out)?;
            let [block, thread] = pieces(&mut s, row, plan.threads)?;
            s.bind(block, BLOCK(Axis::X))?;
            s.bind(thread, THREAD(Axis::X))?;
            at_rows(&mut s, &rows, thread, column)?;
            return Ok(Scheduled { schedule: s, packs: vec![] });
        }
        for Launch { result, reduce, inner } in launches(&s, w, out)? {
            let loops = s.loops_of(result);
            let all = s.fuse_all(&loops[..loops.len() - reduce])?;
            let [block, thread] = pieces(&mut s, all, plan.threads)?;
            s.bind(block, BLOCK(Axis::X))?;
            s.bind(thread, THREAD(Axis::X))?;
            for stage in inner {
                s.set_scope(stage, Scope::Register)?;
                s.compute_at(stage, thread)?;
            }
        }
        Ok(Scheduled { schedule: s, packs: vec![] })
    }
}

/// Stages that one launch computes, a thread an element of the last of them.
struct Launch {
    result: BufferId,
    /// How many of its loops reduce.
    reduce: usize,
    /// Those before it, which stay in registers, the last one first.
    inner: Vec<BufferId>,
}

/// The launches of a kernel, the last one first. A stage whose elements the next one finishes goes into its launch, unless that combines
/// terms already.
fn launches(s: &Schedule, w: &Workload, out: BufferId) -> Result<Vec<Launch>, ScheduleError> {
    let mut all = vec![Launch { result: out, reduce: 0, inner: vec![] }];
    let (mut shape, mut combines) = (w.output_shape(), false);
    let stages = w.op.get().stages(w.dtype, DType::F32);
    // Padding is inlined.
    for stage in stages.into_iter().rev().filter(|stage| stage.name != "pad") {
        let own = s.stage(stage.name)?;
        match all.last_mut() {
            Some(launch) if !combines && shape == stage.shape => launch.inner.push(own),
            _ => all.push(Launch { result: own, reduce: stage.reduce, inner: vec![] }),
        }
        (shape, combines) = (stage.shape, stage.reduce > 0);
    }
    Ok(all)
}
