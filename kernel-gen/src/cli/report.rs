//! `kernel-gen report`: logs as one HTML page.

use super::output::{Failure, Output};
use super::project::{Files, Project, RecordFiles, SpecFile, label};
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
    /// Logs of `kernel-gen tune`; what ends in .toml is the spec
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// The spec [default: kernels.toml]
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    #[command(flatten)]
    records: RecordFiles,
    /// The page to write
    #[arg(long, short, value_name = "FILE", default_value = "report.html", alias = "output")]
    out: PathBuf,
    /// The headline
    #[arg(long, value_name = "TEXT", default_value = "Tuning report")]
    title: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, Failure> {
    let is_spec = |path: &&PathBuf| path.extension().is_some_and(|e| e == "toml");
    let (specs, logs): (Vec<&PathBuf>, Vec<&PathBuf>) = arguments.logs.iter().partition(is_spec);
    let all: Vec<&PathBuf> = arguments.spec.iter().chain(specs).collect();
    if let [first, second, ..] = all[..] {
        return Err(format!("{} and {}: name one spec", first.display(), second.display()).into());
    }
    if logs.is_empty() {
        return Err("name a log that `kernel-gen tune` wrote, such as tuning.jsonl".to_string().into());
    }
    let spec = SpecFile::of(all.first().copied());
    let project = Project::load(&Files { spec, records: arguments.records.clone() })?;
    let log = Log::read(&logs).map_err(|e| e.to_string())?;
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
    let shown = arguments.out.display().to_string().replace('\\', "/");
    std::fs::write(&arguments.out, report.to_html()).map_err(|e| format!("{shown}: cannot be written: {e}"))?;
    let (trials, layers) = (log.entries.len(), report.benches.iter().map(|b| b.layers.len()).sum::<usize>());
    let text = format!("wrote {shown}: {trials} trials of {layers} workload{}\n", if layers == 1 { "" } else { "s" });
    let errors = report.notes;
    Ok(Output { text, errors, success: true })
}
