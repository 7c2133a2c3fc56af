//! What the kinds of devices have in common.

use super::{Comparison, Peer};
use crate::lower::Units;
use crate::records::{Failure, Outcome};
use crate::space::Config;
use crate::target::Target;
use crate::templates::Template;
use crate::tune::{MadeFor, Task};
use crate::workload::Workload;
use crate::workload::special::Reach;

/// A config of a task, to be measured.
pub(super) struct Job<'r> {
    pub(super) workload: Workload,
    pub(super) target: &'r Target,
    pub(super) template: &'r dyn Template,
    pub(super) config: Config,
    pub(super) made_for: Option<MadeFor>,
}

impl<'r> Job<'r> {
    pub(super) fn new(task: &Task<'r>, config: &Config) -> Job<'r> {
        let (workload, made_for) = (task.workload.clone(), task.made_for.clone());
        Job { workload, target: task.target, template: task.template, config: config.clone(), made_for }
    }

    /// The workload that the kernel is made for.
    pub(super) fn made_for(&self) -> &Workload {
        self.made_for.as_ref().map_or(&self.workload, |of| &of.workload)
    }

    /// What of it varies in number.
    pub(super) fn units(&self) -> Option<Units> {
        self.made_for.as_ref().map(|of| of.units.clone())
    }

    /// What its outputs depend on.
    pub(super) fn reach(&self) -> Reach {
        self.template.reach(&self.workload, &self.config)
    }
}

/// Makes code of configs, on several threads at the same time.
pub(super) trait Builder: Send + Sync {
    /// Compiled code.
    type Code: Send;

    fn build(&self, job: &Job<'_>) -> Result<Self::Code, Failure>;
}

/// Runs code, one after the other.
pub(super) trait Runner: Send {
    /// Compiled code.
    type Code: Send;

    /// Checks and times; `best_us` is the best time of the workload so far.
    fn run(&mut self, workload: &Workload, code: Self::Code, best_us: Option<f64>) -> Outcome;

    /// Checks and times several, interleaved with libraries of the device's vendor.
    fn compare(&mut self, workload: &Workload, codes: Vec<Result<Self::Code, Failure>>, peers: &[Peer]) -> Comparison;
}
