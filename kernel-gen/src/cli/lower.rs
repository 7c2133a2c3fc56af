//! `kernel-gen lower`: a kernel's way from its definition to flat code, step by step.

use super::output::{Failure, Output};
use super::project::{Files, Project, target};
use super::space::find_template;
use crate::generate::try_workload;
use crate::ir::Kernel;
use crate::lower::{Lowered, Units, Unlowered, lower_units, with_barriers};
use crate::model::{Options, choose};
use crate::space::Config;
use crate::target::Target;
use crate::templates::{Registry, Scheduled, Template};
use crate::workload::{Range, Workload, naive};
use clap::Args;
use std::fmt::Write;

/// Which kernel is meant: a workload, a target, a template and a config.
#[derive(Args, Clone, Debug)]
pub(super) struct Selection {
    /// A workload's name in the spec, a kernel's name, or a workload's key
    workload: String,
    /// Target [default: the best of this machine's architecture that the spec asks for]
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Template [default: the one that is chosen for the workload]
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// Config, such as "tile=8 order=(0,1)", or the index of one [default: the one that is chosen, or the default]
    #[arg(long, value_name = "CONFIG")]
    config: Option<String>,
    /// As a kernel for 1 to MOST images or rows, where each launch says how many it has
    #[arg(long, value_name = "MOST", value_parser = clap::value_parser!(i64).range(2..=65536))]
    units: Option<i64>,
    #[command(flatten)]
    files: Files,
}

/// A kernel that was selected.
pub(super) struct Selected<'a> {
    pub(super) workload: Workload,
    pub(super) target: &'static Target,
    pub(super) template: &'a dyn Template,
    pub(super) config: Config,
    /// Where the config comes from, for people.
    pub(super) origin: String,
    /// What the kernel is to be made for, if a launch says how many units there are.
    pub(super) units: Option<Units>,
}

impl Selection {
    /// Finds out what is meant.
    pub(super) fn resolve<'a>(&self, registry: &'a Registry) -> Result<Selected<'a>, Failure> {
        let (files, name) = self.files.beside(&self.workload)?;
        let project = Project::load(&files)?;
        let workload = project.workload(&name)?;
        let (workload, units) = match self.units {
            None => (workload, None),
            Some(most) => {
                let (workload, range) = Range::up_to(&workload, most)
                    .ok_or_else(|| format!("{} has no images or rows that might be 1 to {most}", workload.key()))?;
                (workload, Some(Units { most, params: range.params }))
            }
        };
        let target = target(&project, self.target.as_deref())?;
        if let Some(name) = &self.template {
            find_template(registry, name)?;
        }
        let options = Options { template: self.template.clone(), deny_fallback: false, ..project.options() };
        let choice = choose(registry, &workload, target, &project.records, &options)?;
        let template = find_template(registry, &choice.template)?;
        let (config, origin) = match &self.config {
            None => (choice.config, choice.origin.to_string()),
            Some(text) => {
                let space = template.space(&workload, target)?;
                let config = match text.parse::<u64>() {
                    Ok(index) => space.get(index).ok_or_else(|| {
                        format!("there is no config at index {index} of the space of {}", choice.template)
                    })?,
                    Err(_) => space.normalise(&Config::parse(text)?)?,
                };
                (config, "as asked for".to_string())
            }
        };
        Ok(Selected { workload, target, template, config, origin, units })
    }
}

impl Selection {
    /// The same, where a choice that a build cannot carry out gives way to the next, as in a build.
    pub(super) fn resolve_as_built<'a>(&self, registry: &'a Registry) -> Result<Selected<'a>, Failure> {
        let mut selected = self.resolve(registry)?;
        if self.config.is_none() {
            let project = Project::load(&self.files.beside(&self.workload)?.0)?;
            let options = Options { template: self.template.clone(), deny_fallback: false, ..project.options() };
            let Selected { workload, target, .. } = &selected;
            let tried = try_workload((workload, None), target, &project.records, registry, &options)
                .map_err(|e| e.to_string())?;
            selected.template = find_template(registry, &tried.choice.template)?;
            selected.config = tried.choice.config;
            selected.origin = tried.choice.origin.to_string();
            let over = tried.choice.unusable.iter();
            selected.origin.extend(over.map(|over| format!("\nin place of: {}, since {}", over.choice, over.reason)));
        }
        Ok(selected)
    }
}

impl Selected<'_> {
    /// The kernel as the template leaves it.
    pub(super) fn schedule(&self) -> Result<Scheduled, Failure> {
        Ok(self.template.schedule(&self.workload, self.target, &self.config)?)
    }
}

/// Prints the kernel after every step of its schedule and every pass of lowering that changes it
///
/// Lines that begin with `;` are comments of the text form: what stands between two of them parses back.
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    selection: Selection,
}

pub(super) fn run(registry: &Registry, arguments: &Arguments) -> Result<Output, Failure> {
    let selected = arguments.selection.resolve(registry)?;
    let scheduled = selected.schedule()?;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "; workload {}", selected.workload.key());
    let _ = writeln!(text, "; target {}", selected.target.name);
    let _ = writeln!(text, "; template {} v{}", selected.template.name(), selected.template.version());
    let _ = writeln!(text, "; config {} ({})", selected.config, selected.origin);
    section(&mut text, "definition", &naive(&selected.workload));
    for (i, step) in scheduled.schedule.trace.iter().enumerate() {
        section(&mut text, &format!("step {}: {}({})", i + 1, step.name, step.args.join(", ")), &step.kernel);
    }
    let mut errors = passes(&mut text, "", &scheduled.schedule.kernel, selected.target, selected.units);
    for pack in &scheduled.packs {
        let what = format!("pack of {}: ", pack.param);
        section(&mut text, &format!("{what}definition"), &pack.kernel);
        errors.extend(passes(&mut text, &what, &pack.kernel, selected.target, None));
    }
    let success = errors.is_empty();
    Ok(Output { text, errors, success })
}

/// Verifies and lowers a kernel.
pub(super) fn lowered(kernel: &Kernel, target: &Target, units: Option<Units>) -> Result<Lowered, Vec<String>> {
    lower_units(kernel.clone(), target, units).map_err(|error| match error {
        Unlowered::Faults(faults) => faults.iter().map(|f| format!("error: {f}")).collect(),
        Unlowered::Pass(error) => vec![format!("error: {error}")],
    })
}

/// Every pass that changes the kernel, and the names of those that do not. A kernel that is not valid goes through
/// none: its steps are printed all the same, because they are what its author needs to see.
fn passes(text: &mut String, what: &str, kernel: &Kernel, target: &Target, units: Option<Units>) -> Vec<String> {
    let ordered = with_barriers(kernel.clone(), target);
    if ordered != *kernel {
        section(text, &format!("{what}pass insert_barriers"), &ordered);
    }
    let lowered = match lowered(kernel, target, units) {
        Ok(lowered) => lowered,
        Err(errors) => return errors,
    };
    let _ = write!(text, "\n; {what}verified: {}\n", lowered.depth());
    for snapshot in lowered.trace() {
        if snapshot.changed {
            section(text, &format!("{what}pass {}", snapshot.pass), &snapshot.kernel);
        } else {
            let _ = write!(text, "\n; {what}pass {} changes nothing\n", snapshot.pass);
        }
    }
    vec![]
}

fn section(text: &mut String, title: &str, kernel: &Kernel) {
    let _ = write!(text, "\n; {title}\n{kernel}");
}
