//! `kernel-gen report`: logs as one HTML page.

use super::output::{Failure, Output};
use super::project::{Files, Project, label};
use crate::records::log::Log;
use crate::tune::report::{Names, Report};
use clap::Args;
use std::path::PathBuf;

/// Makes one HTML page of trial logs: curves, roofline, share of time, failures, configs
///
/// The page needs nothing else, no network and no server. Names and counts of workloads come from the spec, and what builds
/// use from the records, where there are any.
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// Logs of `kernel-gen tune`
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// The page to write
    #[arg(long, short, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// The headline
    #[arg(long, value_name = "TEXT", default_value = "Tuning report")]
    title: String,
    #[command(flatten)]
    files: Files,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, Failure> {
    let project = Project::load(&arguments.files)?;
    let log = Log::read(&arguments.logs).map_err(|e| e.to_string())?;
    if log.entries.is_empty() {
        let why = log.skipped.first().map(|d| format!(" ({d})")).unwrap_or_default();
        return Err(format!("the logs hold no trials{why}").into());
    }
    let mut names = Names::new();
    for (_, w) in project.spec.iter().flat_map(|spec| spec.workloads()) {
        let named = || (label(w.name.as_deref(), &w.workload), 0.0);
        names.entry(w.workload.key()).or_insert_with(named).1 += f64::from(w.count);
    }
    let report = Report::new(&arguments.title, &log, &names, Some(&project.records));
    let shown = arguments.output.display().to_string().replace('\\', "/");
    std::fs::write(&arguments.output, report.to_html()).map_err(|e| format!("{shown}: cannot be written: {e}"))?;
    let (trials, layers) = (log.entries.len(), report.benches.iter().map(|b| b.layers.len()).sum::<usize>());
    let text = format!("wrote {shown}: {trials} trials of {layers} workload{}\n", if layers == 1 { "" } else { "s" });
    let errors = report.notes;
    Ok(Output { text, errors, success: true })
}
