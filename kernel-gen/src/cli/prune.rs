//! `kernel-gen prune`: from trial logs to best records.

use super::output::{Failure, Output, json_text};
use crate::records::log::Log;
use crate::records::prune::{Decision, Pruned, Verdict, prune};
use crate::records::{BestRecords, Record, write_records};
use crate::templates::Registry;
use clap::Args;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Makes best records of trial logs: the fastest checked config of each workload, target, device and threads
///
/// A record that is there already stays unless another config is faster by more than the noise of both. Trials that may
/// not become a record (of another template version or space, damaged, never checked) are named and left out.
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// The logs
    #[arg(required_unless_present = "rewrite", value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Write the records that there are as this version does, a line each; takes no logs
    #[arg(long, conflicts_with = "logs")]
    rewrite: bool,
    /// The folder of best records
    #[arg(long, value_name = "FOLDER", default_value = "tuned")]
    tuned: PathBuf,
    /// Say what would change, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(registry: &Registry, arguments: &Arguments) -> Result<Output, Failure> {
    if arguments.rewrite {
        return rewrite(arguments);
    }
    let log = Log::read(&arguments.logs).map_err(|e| Failure::Lines(vec![e.to_string()]))?;
    let incumbents = BestRecords::load(&arguments.tuned)?;
    let pruned = prune(&log, &incumbents, registry);
    if !arguments.dry_run {
        write(&arguments.tuned, pruned.changed())?;
    }
    Ok(described(&pruned, log.entries.len(), arguments))
}

/// Writes all records as this version does.
fn rewrite(arguments: &Arguments) -> Result<Output, Failure> {
    let records = BestRecords::load(&arguments.tuned)?;
    let files = match arguments.dry_run {
        true => records.iter().map(|r| arguments.tuned.join(r.slot().relative_path())).collect::<BTreeSet<_>>(),
        false => write(&arguments.tuned, records.iter())?.into_iter().collect(),
    };
    let files: Vec<String> = files.iter().map(|file| file.display().to_string().replace('\\', "/")).collect();
    if arguments.json {
        let json = json!({ "records": records.len(), "files": files, "success": true });
        return Ok(Output::success(json_text(&json)));
    }
    let s = if records.len() == 1 { "" } else { "s" };
    let into = if arguments.dry_run { "would be in" } else { "in" };
    Ok(Output::success(format!("{} record{s} {into} {}\n", records.len(), files.join(", "))))
}

fn write<'r>(folder: &Path, records: impl IntoIterator<Item = &'r Record>) -> Result<Vec<PathBuf>, Failure> {
    write_records(folder, records).map_err(|error| {
        let folder = folder.display().to_string().replace('\\', "/");
        format!("{folder}: the records cannot be written: {error}").into()
    })
}

fn described(pruned: &Pruned, trials: usize, arguments: &Arguments) -> Output {
    let mut errors: Vec<String> = pruned.told.iter().map(|d| d.to_string()).collect();
    // A log of failed trials only is sad, but nothing is wrong with it.
    let success = !pruned.verdicts.is_empty() || errors.is_empty();
    let changed = pruned.changed().count();
    if arguments.json {
        let json = json!({
            "trials": trials,
            "changed": changed,
            "records": pruned.verdicts.iter().map(verdict_json).collect::<Vec<_>>(),
            "told": errors,
            "success": success,
        });
        return Output { text: json_text(&json), errors: vec![], success };
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    for verdict in &pruned.verdicts {
        let _ = writeln!(text, "{verdict}");
    }
    let s = |n: usize| if n == 1 { "" } else { "s" };
    let would = if arguments.dry_run { "would be written" } else { "written" };
    let kept = pruned.verdicts.len() - changed;
    let _ = writeln!(text, "{trials} trial{}: {changed} record{} {would}, {kept} kept", s(trials), s(changed));
    if !success {
        errors.push("error: none of these trials can become a record".to_string());
    }
    Output { text, errors, success }
}

fn verdict_json(verdict: &Verdict) -> Json {
    let (decision, before_us, noise_us) = match &verdict.decision {
        Decision::New => ("new", None, None),
        Decision::Stale(_) => ("stale", None, None),
        Decision::Faster { before_us, noise_us } => ("faster", Some(*before_us), Some(*noise_us)),
        Decision::Remeasured { before_us, noise_us } => ("remeasured", Some(*before_us), Some(*noise_us)),
        Decision::Kept { challenger } => ("kept", None, challenger.map(|(_, noise)| noise)),
    };
    json!({
        "file": verdict.record.slot().relative_path(),
        "workload": verdict.record.workload,
        "decision": decision,
        "text": verdict.to_string(),
        "template": verdict.record.template,
        "config": verdict.record.config.to_string(),
        "time_us": verdict.record.time_us,
        "spread_us": verdict.spread_us,
        "before_us": before_us,
        "noise_us": noise_us,
        "configs": verdict.configs,
    })
}
