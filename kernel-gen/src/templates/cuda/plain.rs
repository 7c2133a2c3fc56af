//! The schedule that runs everything on a CUDA device: one thread an output element, with its sum in a register.
//!
//! Neighbouring threads write neighbouring elements; operands come through the caches. Padding is a condition of the
//! loads, and threads beyond the last element are idle.

use super::model::{Launch, Unit, ceil_div};
use super::{BLOCK, THREAD, device, inline_padding, pieces};
use crate::ir::{Axis, Scope};
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
        let gpu = device(t).map_err(TemplateError::Limit)?;
        // Full multiprocessors where there is enough to do, and otherwise something for each of them.
        let outputs: i64 = w.output_shape().iter().product();
        let threads = [256, 128, 64].into_iter().find(|t| outputs / t >= gpu.sm_count).unwrap_or(32);
        Ok(Config::new().with("threads", threads))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        let (Ok(gpu), Ok(threads)) = (device(t), config.int("threads")) else { return f64::INFINITY };
        let outputs: i64 = w.output_shape().iter().product();
        let terms = w.reduction_length() as f64;
        let launch = Launch {
            blocks: ceil_div(outputs, threads),
            threads,
            registers: 32,
            shared_bytes: 0,
            unit: Unit::Fma,
            sums: 1,
            // A few loads are in flight at a time; most of them hit L1, which is as fast as shared memory.
            steps: (terms / 4.0).max(1.0),
            step_flops: threads as f64 * 8.0,
            step_shared_bytes: threads as f64 * 4.0 * 8.0,
            step_fetched_bytes: threads as f64 * 4.0,
            bytes: w.bytes() as f64,
        };
        launch.microseconds(gpu)
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        device(t).map_err(TemplateError::Limit)?;
        let mut s = Schedule::new(naive(w));
        let acc = s.stage("acc")?;
        let out = *s.kernel.params.last().expect("every workload has an output");
        if matches!(w.op, Op::Conv2d(_)) {
            inline_padding(&mut s)?;
        }
        let loops = s.loops_of(out);
        let all = s.fuse_all(&loops)?;
        let [block, thread] = pieces(&mut s, all, config.int("threads")?)?;
        s.bind(block, BLOCK(Axis::X))?;
        s.bind(thread, THREAD(Axis::X))?;
        s.set_scope(acc, Scope::Register)?;
        s.compute_at(acc, thread)?;
        Ok(Scheduled { schedule: s, packs: vec![] })
    }
}
