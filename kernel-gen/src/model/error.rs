//! Why nothing could be chosen.

use crate::records::Refusal;
use crate::templates::{Template, TemplateError};
use crate::workload::Workload;
use std::fmt;

/// Why nothing could be chosen.
#[derive(Clone, PartialEq, Debug)]
pub enum ModelError {
    /// No template can run the workload on the target.
    NoTemplate {
        /// The workload's key.
        workload: String,
        /// The target's name.
        target: String,
        /// Each template and why it does not apply.
        reasons: Vec<(String, String)>,
    },
    /// There is no usable record, and fallback is denied.
    NoRecord {
        /// The workload's key.
        workload: String,
        /// The target's name.
        target: String,
        /// The records that could not be used.
        refusals: Vec<Refusal>,
    },
    /// A template failed on a workload that it says it applies to: a defect of the template.
    Template {
        /// The template.
        template: String,
        /// The workload's key.
        workload: String,
        /// What it said.
        error: Box<TemplateError>,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelError::NoTemplate { workload, target, reasons } if reasons.is_empty() => {
                write!(f, "no template is registered that could run {workload} on {target}")
            }
            ModelError::NoTemplate { workload, target, reasons } => {
                let reasons: Vec<String> = reasons.iter().map(|(t, why)| format!("{t}: {why}")).collect();
                write!(f, "no template can run {workload} on {target} ({})", reasons.join("; "))
            }
            ModelError::NoRecord { workload, target, refusals } => {
                write!(f, "there is no record of {workload} on {target}, and fallback is denied")?;
                match refusals.len() {
                    0 => write!(f, "; tune it, or allow the fallback"),
                    _ => {
                        let all: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
                        write!(f, " ({})", all.join("; "))
                    }
                }
            }
            ModelError::Template { template, workload, error } => {
                write!(f, "the template {template} failed on {workload}: {error}")
            }
        }
    }
}

impl std::error::Error for ModelError {}

/// The error of a template that failed on a workload.
pub(super) fn failed(template: &dyn Template, workload: &Workload, error: impl Into<TemplateError>) -> ModelError {
    let (template, workload) = (template.name().to_string(), workload.key());
    ModelError::Template { template, workload, error: Box::new(error.into()) }
}
