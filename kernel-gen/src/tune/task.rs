//! What is tuned.

use crate::lower::Units;
use crate::records::log::TaskKey;
use crate::space::{Config, Space};
use crate::target::Target;
use crate::templates::{Template, TemplateError};
use crate::workload::{Range, Workload};
use std::fmt;

/// One workload on one target with one template.
pub struct Task<'r> {
    /// The workload.
    pub workload: Workload,
    /// The target that it is compiled for.
    pub target: &'r Target,
    /// The template.
    pub template: &'r dyn Template,
    /// Its configs: the template's space, or a part of it whose knobs have the same names.
    pub space: Space,
    /// Present if the kernels are those of a range: made for more units, and run for those of the workload.
    pub made_for: Option<MadeFor>,
}

/// What the kernels of a range are made for.
#[derive(Clone, PartialEq, Debug)]
pub struct MadeFor {
    /// The workload of the most units.
    pub workload: Workload,
    /// What varies.
    pub units: Units,
    /// The fewest units that the kernels are for.
    pub least: i64,
    /// The range, and its workload of the most units.
    pub range: (Workload, Range),
    /// How many units the kernels are run for.
    pub count: i64,
}

impl<'r> Task<'r> {
    /// The task of all configs that the template has for the workload.
    pub fn new(workload: Workload, target: &'r Target, template: &'r dyn Template) -> Result<Task<'r>, TemplateError> {
        let space = template.space(&workload, target)?;
        Ok(Task { workload, target, template, space, made_for: None })
    }

    /// The task of all configs for the most units of a range, run for fewer, which the workload has.
    pub fn of_range(
        workload: Workload,
        made_for: MadeFor,
        target: &'r Target,
        template: &'r dyn Template,
    ) -> Result<Task<'r>, TemplateError> {
        let space = template.space(&made_for.workload, target)?;
        Ok(Task { workload, target, template, space, made_for: Some(made_for) })
    }

    /// The task's name in logs. The fingerprint is that of the template's whole space, so that trials of a part of it are
    /// trials of the whole.
    pub fn key(&self) -> Result<TaskKey, TemplateError> {
        let space = self.template.space(&self.workload, self.target)?.fingerprint();
        Ok(TaskKey {
            workload: self.workload.key(),
            target: self.target.name.clone(),
            template: self.template.name().to_string(),
            template_version: self.template.version(),
            space,
        })
    }

    /// The time in microseconds that the template's own model expects of a config.
    pub fn predicted_us(&self, config: &Config) -> f64 {
        self.template.cost(&self.workload, self.target, config)
    }
}

impl fmt::Debug for Task<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} on {}", self.template.name(), self.workload.key(), self.target.name)
    }
}
