//! A template of the consumer's own: the naive kernel, with its outermost loop on the workers.

use kernel_gen_build::kernel_gen::ir::LoopKind;
use kernel_gen_build::kernel_gen::schedule::Schedule;
use kernel_gen_build::kernel_gen::space::{Config, Space};
use kernel_gen_build::kernel_gen::target::Target;
use kernel_gen_build::kernel_gen::templates::{Scheduled, Template, TemplateError};
use kernel_gen_build::kernel_gen::workload::{Workload, naive};

pub struct Plain;

impl Template for Plain {
    fn name(&self) -> &str {
        "consumer_plain"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, _: &Workload, target: &Target) -> Result<(), String> {
        target.cpu().map(|_| ()).ok_or_else(|| "it is for CPUs".into())
    }

    fn space(&self, _: &Workload, _: &Target) -> Result<Space, TemplateError> {
        Ok(Space::builder().build()?)
    }

    fn default_config(&self, _: &Workload, _: &Target) -> Result<Config, TemplateError> {
        Ok(Config::new())
    }

    fn cost(&self, _: &Workload, _: &Target, _: &Config) -> f64 {
        1e9
    }

    fn schedule(&self, workload: &Workload, _: &Target, _: &Config) -> Result<Scheduled, TemplateError> {
        let mut s = Schedule::new(naive(workload));
        let acc = s.stage("acc")?;
        // The first loop of an image may be a batch of one; the second is channels then, as rows are of a product.
        let loops = s.loops_of(acc);
        let outer = if workload.conv2d().is_some() { s.fuse(loops[0], loops[1])? } else { loops[0] };
        s.bind(outer, LoopKind::Parallel)?;
        Ok(Scheduled { schedule: s, packs: vec![] })
    }
}
