//! The schedule that runs everything on a CUDA device: one thread an output element, with its sum in a register.
//!
//! Neighbouring threads write neighbouring elements; operands come through the caches. Padding is a condition of the
//! loads, and threads beyond the last element are idle.

use super::model::{Straight, ceil_div};
use super::{BLOCK, THREAD, device, inline_padding, least, pieces};
use crate::ir::{Axis, DType, Scope};
use crate::schedule::Schedule;
use crate::space::{Config, Space};
use crate::target::Target;
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Op, Workload, naive};

/// See the module's text. Knob: `threads` of a block.
pub struct PlainCuda;

impl Template for PlainCuda {
    fn name(&self) -> &str {
        "plain_cuda"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, _: &Workload, t: &Target) -> Result<(), String> {
        device(t).map(drop)
    }

    fn space(&self, _: &Workload, _: &Target) -> Result<Space, TemplateError> {
        Ok(Space::builder().knob("threads", [32, 64, 128, 256, 512, 1024]).build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let start = Config::new().with("threads", 256);
        Ok(least(&self.space(w, t)?, &start, &|config| self.cost(w, t, config))?)
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        let (Ok(gpu), Ok(threads)) = (device(t), config.int("threads")) else { return f64::INFINITY };
        let outputs: i64 = w.output_shape().iter().product();
        // A thread alone: blocks of one warp may have all registers, with which the compiler loads many terms ahead; the
        // taps of a kernel are unrolled in any case. Lanes that are not neighbours in memory take more sectors.
        let (alone, spread) = match &w.op {
            Op::Conv2d(c) if c.kh * c.kw == 1 => {
                (if threads > 32 { 160.0 } else { 35.0 }, if c.stride[1] > 1 { 1.6 } else { 1.0 })
            }
            // Its first half is a launch of its own, small beside the second.
            Op::DepthwisePointwise(_) => (35.0, 1.0),
            Op::Matmul(m) => (140.0, if m.trans_b { 4.0 } else { 1.0 }),
            // Windows.
            _ => (45.0, 1.0),
        };
        let blocks = ceil_div(outputs, threads);
        if blocks > gpu.grid_dim[0] {
            return f64::INFINITY;
        }
        Straight { blocks, threads, terms: w.reduction_length(), alone, spread }.microseconds(w, gpu)
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        device(t).map_err(TemplateError::Limit)?;
        let mut s = Schedule::new(naive(w));
        let out = *s.kernel.params.last().expect("every workload has an output");
        if s.stage("pad").is_ok() {
            inline_padding(&mut s)?;
        }
        // Each stage that combines terms goes into a launch with the stage behind it, which finishes its elements.
        let stages = w.op.get().stages(w.dtype, DType::F32);
        let mut launches = vec![];
        for (i, stage) in stages.iter().enumerate().filter(|(_, stage)| stage.reduce > 0) {
            let result = stages.get(i + 1).map_or(Ok(out), |next| s.stage(next.name))?;
            launches.insert(0, (result, s.stage(stage.name)?));
        }
        for (result, sums) in launches {
            let loops = s.loops_of(result);
            let all = s.fuse_all(&loops)?;
            let [block, thread] = pieces(&mut s, all, config.int("threads")?)?;
            s.bind(block, BLOCK(Axis::X))?;
            s.bind(thread, THREAD(Axis::X))?;
            s.set_scope(sums, Scope::Register)?;
            s.compute_at(sums, thread)?;
        }
        Ok(Scheduled { schedule: s, packs: vec![] })
    }
}
