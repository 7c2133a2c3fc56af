//! `kernel-gen prune`: from trial logs to best records.

use super::output::{Failure, Output, json_text};
use crate::records::BestRecords;
use crate::records::log::Log;
use crate::records::prune::{Decision, Pruned, Verdict, prune};
use crate::templates::Registry;
use clap::Args;
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::path::PathBuf;

/// Makes best records of trial logs: the fastest checked config of each workload, target, device and threads
///
/// A record that is there already stays unless another config is faster by more than the noise of both. Trials that may
/// not become a record (of another template version or space, damaged, never checked) are named and left out.
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// The logs
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
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
    let log = Log::read(&arguments.logs).map_err(|e| Failure::Lines(vec![e.to_string()]))?;
    let incumbents = BestRecords::load(&arguments.tuned)?;
    let pruned = prune(&log, &incumbents, registry);
    if !arguments.dry_run {
        for record in pruned.changed() {
            record.write(&arguments.tuned).map_err(|error| {
                let folder = arguments.tuned.display().to_string().replace('\\', "/");
                format!("{folder}: the record {} cannot be written: {error}", record.relative_path())
            })?;
        }
    }
    Ok(described(&pruned, log.entries.len(), arguments))
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
        "file": verdict.record.relative_path(),
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
