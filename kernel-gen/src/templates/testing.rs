//! A template for tests of what is built on templates: the naive kernel with its innermost loop split.

use super::{Scheduled, Template, TemplateError};
use crate::schedule::{Schedule, Tail};
use crate::space::{Config, Space, Split};
use crate::target::Target;
use crate::workload::{Workload, naive};

/// A template with one knob for matrix products, whose name, version and cost a test chooses.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) name: &'static str,
    pub(crate) version: u32,
    pub(crate) cost: f64,
}

impl Template for Rows {
    fn name(&self) -> &str {
        self.name
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn applies(&self, workload: &Workload, _: &Target) -> Result<(), String> {
        workload.matmul().map(|_| ()).ok_or_else(|| "it takes only matrix products".to_string())
    }

    fn space(&self, workload: &Workload, _: &Target) -> Result<Space, TemplateError> {
        let rows = workload.matmul().map_or(1, |m| m.m);
        Ok(Space::builder().split("rows", Split::factors(rows, 2)).build()?)
    }

    fn default_config(&self, _: &Workload, _: &Target) -> Result<Config, TemplateError> {
        Ok(Config::new().with_split("rows", &[-1, 1]))
    }

    fn cost(&self, _: &Workload, _: &Target, _: &Config) -> f64 {
        self.cost
    }

    fn schedule(&self, workload: &Workload, _: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let mut s = Schedule::new(naive(workload));
        let acc = s.stage("acc")?;
        let rows = s.loops_of(acc)[0];
        s.split(rows, config.split("rows")?[1], Tail::Perfect)?;
        Ok(Scheduled { schedule: s, packs: vec![] })
    }
}
