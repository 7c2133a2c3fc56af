//! A template whose default is one given config: the one that a tutorial ends with.

use kernel_gen::schedule::{Schedule, ScheduleError};
use kernel_gen::space::{Config, Space};
use kernel_gen::target::Target;
use kernel_gen::templates::{Scheduled, Template, TemplateError};
use kernel_gen::workload::Workload;

/// What makes a schedule of a workload by hand.
pub(crate) type ByHand = fn(&Workload) -> Result<Schedule, ScheduleError>;

/// `template`, with `config` for a default.
pub(crate) struct AsWritten<T> {
    /// The family of schedules.
    pub(crate) template: T,
    /// The tutorial's choice.
    pub(crate) config: Config,
    /// The tutorial's schedule, where the template makes its kernel in another way.
    pub(crate) schedule: Option<ByHand>,
}

impl<T: Template> Template for AsWritten<T> {
    fn name(&self) -> &str {
        self.template.name()
    }

    fn version(&self) -> u32 {
        self.template.version()
    }

    fn applies(&self, workload: &Workload, target: &Target) -> Result<(), String> {
        self.template.applies(workload, target)
    }

    fn space(&self, workload: &Workload, target: &Target) -> Result<Space, TemplateError> {
        self.template.space(workload, target)
    }

    fn default_config(&self, _: &Workload, _: &Target) -> Result<Config, TemplateError> {
        Ok(self.config.clone())
    }

    fn cost(&self, workload: &Workload, target: &Target, config: &Config) -> f64 {
        self.template.cost(workload, target, config)
    }

    fn schedule(&self, workload: &Workload, target: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        match self.schedule {
            Some(schedule) if *config == self.config => Ok(Scheduled { schedule: schedule(workload)?, packs: vec![] }),
            _ => self.template.schedule(workload, target, config),
        }
    }
}
