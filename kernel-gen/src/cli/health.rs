//! Whether trial logs are sound, and what of them may still be used.

use super::output::Failure;
use crate::records::log::Log;
use crate::records::validate::{Validator, summarised};
use crate::records::{Outcome, Purpose};
use crate::templates::Registry;
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// What is in some logs.
pub(super) struct Health {
    /// Trials that were timed, and may become records.
    usable: usize,
    /// Trials that were timed.
    timed: usize,
    /// Trials that failed.
    failed: usize,
    /// Configs of others.
    seeds: usize,
    /// Runs of a tuner.
    runs: usize,
    /// Lines that cannot be read, and trials that may not be used.
    pub(super) errors: Vec<String>,
    /// What is only odd.
    warnings: Vec<String>,
}

impl Health {
    /// Reads the logs and validates every trial of them.
    pub(super) fn of(registry: &Registry, logs: &[PathBuf]) -> Result<Health, Failure> {
        let log = Log::read(logs).map_err(|e| Failure::Lines(vec![e.to_string()]))?;
        let mut validator = Validator::new(registry, Purpose::Prune);
        let (mut errors, mut warnings) = (log.skipped, log.warnings);
        let (mut usable, mut timed) = (0, 0);
        for entry in log.entries.iter().filter(|e| matches!(e.trial.outcome, Outcome::Timed(_))) {
            let validation = validator.entry(entry);
            timed += 1;
            usable += usize::from(validation.counts);
            if validation.config.is_some() { &mut warnings } else { &mut errors }.extend(validation.told);
        }
        let text = |all| summarised(all).iter().map(|d| d.to_string()).collect();
        Ok(Health {
            usable,
            timed,
            failed: log.entries.len() - timed,
            seeds: log.seeds.len(),
            runs: log.runs.len(),
            errors: text(errors),
            warnings: text(warnings),
        })
    }

    /// For a program.
    pub(super) fn json(&self) -> Json {
        json!({
            "usable": self.usable, "timed": self.timed, "failed": self.failed, "seeds": self.seeds, "runs": self.runs,
            "errors": self.errors, "warnings": self.warnings,
        })
    }

    /// For a person.
    pub(super) fn text(&self) -> String {
        let warnings: String = self.warnings.iter().map(|w| format!("  {w}\n")).collect();
        let Health { usable, timed, failed, seeds, runs, .. } = self;
        format!(
            "logs: {timed} timed trials of {runs} runs, {usable} of use; {failed} failed, {seeds} seeds\n{warnings}"
        )
    }
}
