//! What happens in a session as JSON, one object a line, for programs.

use super::plan::Plan;
use crate::cli::project::config_json;
use crate::records::Outcome;
use crate::tune::session::{Board, Event, Source, Summary, Verdict};
use serde_json::{Value as Json, json};
use std::io::Write;
use std::path::PathBuf;

/// Writes events to standard output.
pub(super) struct Events<'p> {
    plan: &'p Plan<'p>,
}

impl<'p> Events<'p> {
    pub(super) fn new(plan: &'p Plan<'p>) -> Events<'p> {
        Events { plan }
    }

    pub(super) fn event(&mut self, board: &Board, event: Event<'_>) -> Result<(), String> {
        let seconds = (board.elapsed.as_secs_f64() * 1e3).round() / 1e3;
        let json = match event {
            Event::Started => json!({
                "event": "started",
                "trials": board.budget,
                "earlier": board.trials(),
                "workloads": board.groups.iter().map(|g| json!({ "name": g.name, "weight": g.weight }))
                    .collect::<Vec<_>>(),
                "tasks": self.plan.items.iter().map(|i| json!({
                    "name": i.name, "workload": i.key.workload, "target": i.key.target, "template": i.key.template,
                })).collect::<Vec<_>>(),
            }),
            Event::Trial { entry, trial, best, cost, worker } => {
                let mut json = json!({
                    "event": "trial", "at": seconds, "name": self.plan.items[entry].name,
                    "template": self.plan.items[entry].key.template, "index": trial.index,
                    "config": trial.config.to_string(), "best": best,
                });
                if let Some(cost) = cost {
                    merge(&mut json, json!({ "cost_s": (cost.as_secs_f64() * 1e3).round() / 1e3 }));
                }
                if let Some(worker) = worker {
                    merge(&mut json, json!({ "worker": worker.name }));
                }
                merge(&mut json, outcome(&trial.outcome));
                json
            }
            Event::Waiting => return Ok(()),
            Event::Comparing { group, candidates } => json!({
                "event": "comparing", "at": seconds, "name": board.groups[group].name, "candidates": candidates,
            }),
            Event::Decided { group, verdict } => {
                let mut json = json!({ "event": "decided", "at": seconds });
                merge(&mut json, self.verdict(&board.groups[group].name, verdict));
                json
            }
        };
        write_line(&json)
    }

    /// The last line.
    pub(super) fn end<'f>(
        &mut self,
        summary: &Summary,
        written: impl IntoIterator<Item = &'f PathBuf>,
    ) -> Result<(), String> {
        let board = &summary.board;
        let verdicts = board.groups.iter().zip(&summary.verdicts);
        write_line(&json!({
            "event": "ended",
            "why": summary.ended.to_string(),
            "uncompared": summary.uncompared,
            "doubts": summary.doubts.iter().map(|d| json!({
                "worker": d.worker, "checks": d.checks, "apart": d.apart, "ratio": d.ratio,
            })).collect::<Vec<_>>(),
            "seconds": board.elapsed.as_secs_f64(),
            "trials": board.trials(),
            "made": board.made(),
            "per_minute": board.trials_per_minute(),
            "failures": board.failures().iter().map(|(kind, n)| (kind.name().to_string(), json!(n)))
                .collect::<serde_json::Map<_, _>>(),
            "workloads": verdicts.map(|(g, v)| self.verdict(&g.name, v)).collect::<Vec<_>>(),
            "written": written.into_iter().map(|f| f.display().to_string().replace('\\', "/")).collect::<Vec<_>>(),
        }))
    }

    fn verdict(&self, name: &str, verdict: &Verdict) -> Json {
        let word = match verdict {
            Verdict::NotDecided => "not_decided",
            Verdict::Nothing { .. } => "nothing",
            Verdict::Kept { .. } => "kept",
            Verdict::Won { .. } => "won",
        };
        let mut json = json!({
            "name": name,
            "verdict": word,
            "default_us": verdict.default().and_then(|c| c.outcome.time_us()),
            "record_us": verdict.incumbent().and_then(|c| c.outcome.time_us()),
        });
        if let Some(choice) = verdict.choice() {
            let source = match choice.source {
                Source::Incumbent => "record",
                Source::Default => "default",
                Source::Search => "search",
            };
            let template = &self.plan.items[choice.entry].key.template;
            let config = config_json(&choice.config);
            let us = choice.outcome.time_us();
            merge(&mut json, json!({ "template": template, "config": config, "us": us, "source": source }));
        }
        json
    }
}

fn outcome(outcome: &Outcome) -> Json {
    match outcome {
        Outcome::Timed(timing) => json!({ "us": timing.median_us() }),
        Outcome::Failed(failure) => json!({ "failure": failure.kind.name(), "detail": failure.detail }),
    }
}

/// Adds the entries of one object to another.
fn merge(into: &mut Json, from: Json) {
    if let (Json::Object(into), Json::Object(from)) = (into, from) {
        into.extend(from);
    }
}

fn write_line(json: &Json) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{json}").and_then(|()| out.flush());
    written.map_err(|e| format!("standard output: the event cannot be written: {e}"))
}
