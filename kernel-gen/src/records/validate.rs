//! Holds trials of logs against the templates of this program, by the rules of [`RULES`](super::RULES).

use super::log::{Entry, Place, Seed, TaskKey};
use super::lookup::fitting;
use super::{Mismatch, Offer, Purpose, Record, Verdict};
use crate::diagnostic::Diagnostic;
use crate::space::{Config, Fingerprint, Space};
use crate::target::Target;
use crate::templates::Registry;
use crate::workload::Workload;
use std::collections::{BTreeMap, BTreeSet};

/// What a trial is worth.
#[derive(Clone, PartialEq, Debug)]
pub struct Validation {
    /// Its config as the template's space writes it now; none where the trial is refused.
    pub config: Option<Config>,
    /// Whether its outcome counts as one of this device. Where it does not, the config is a hint where to start.
    pub counts: bool,
    /// What a person is told: why it is refused, or what is odd.
    pub told: Vec<Diagnostic>,
}

/// The template of a task as it is now, or why there is none.
type Current = Result<(u32, Space), Mismatch>;

/// Validates the trials of logs. Spaces are made once a task.
pub struct Validator<'r> {
    registry: &'r Registry,
    purpose: Purpose,
    here: Option<(String, String)>,
    current: BTreeMap<(String, String, String), Current>,
    told_generators: BTreeSet<(String, String)>,
}

impl<'r> Validator<'r> {
    /// A validator for a purpose. For pruning, a trial of any device is as good as any other.
    pub fn new(registry: &'r Registry, purpose: Purpose) -> Validator<'r> {
        Validator { registry, purpose, here: None, current: BTreeMap::new(), told_generators: BTreeSet::new() }
    }

    /// The target and the device that trials should be of.
    pub fn on(mut self, target: &str, device: &str) -> Validator<'r> {
        self.here = Some((target.to_string(), device.to_string()));
        self
    }

    /// Judges a trial.
    pub fn entry(&mut self, entry: &Entry) -> Validation {
        let mut odd = vec![];
        if let Some((target, device)) = &self.here {
            if entry.task.target != *target {
                odd.push(Mismatch::OtherTarget { recorded: entry.task.target.clone(), current: target.clone() });
            } else if entry.device != *device {
                odd.push(Mismatch::OtherDevice { recorded: entry.device.clone(), current: device.clone() });
            }
        }
        let current = env!("CARGO_PKG_VERSION");
        // One line a file and version is enough: they are all alike.
        if entry.generator != current
            && self.told_generators.insert((entry.place.file.to_string(), entry.generator.clone()))
        {
            odd.push(Mismatch::OtherGenerator { recorded: entry.generator.clone(), current: current.to_string() });
        }
        self.validate(&entry.task, &entry.trial.config, &entry.place, odd)
    }

    /// Judges a seed, which never counts.
    pub fn seed(&mut self, seed: &Seed) -> Validation {
        self.validate(&seed.task, &seed.config, &seed.place, vec![Mismatch::Unverified])
    }

    fn validate(&mut self, task: &TaskKey, config: &Config, place: &Place, mut odd: Vec<Mismatch>) -> Validation {
        let mut fit = self.fit(task, Some(task.space), config);
        if let Err(mismatch @ Mismatch::OtherSpace { .. }) = &fit
            && mismatch.verdict(self.purpose) == Verdict::Warn
        {
            odd.push(mismatch.clone());
            fit = self.fit(task, None, config);
        }
        let config = match fit {
            Ok(config) => Some(config),
            Err(mismatch) => {
                odd.push(mismatch);
                None
            }
        };
        let verdicts: Vec<(Mismatch, Verdict)> = odd
            .into_iter()
            .map(|m| {
                let verdict = m.verdict(self.purpose);
                (m, verdict)
            })
            .collect();
        let refused = verdicts.iter().any(|(_, verdict)| *verdict == Verdict::Refuse);
        let harmless = |m: &Mismatch| matches!(m, Mismatch::OtherGenerator { .. });
        let counts = verdicts.iter().all(|(m, verdict)| *verdict == Verdict::Use || harmless(m));
        // What is odd about something that is not used is no news.
        let worth = if refused { Verdict::Refuse } else { Verdict::Warn };
        let told = verdicts.iter().filter(|(_, verdict)| *verdict == worth);
        let told = told.map(|(m, _)| m.diagnostic(&place.file, place.line, self.purpose)).collect();
        Validation { config: config.filter(|_| !refused), counts: counts && !refused, told }
    }

    /// The config of a record that may still be used.
    pub fn record(&mut self, record: &Record) -> Result<Config, Mismatch> {
        if !record.verified {
            return Err(Mismatch::Unverified);
        }
        self.fit(&TaskKey::from(record), Some(record.space), &record.config)
    }

    /// The config as the task's template writes it now. Without a fingerprint, any space that has it will do.
    pub fn fit(&mut self, task: &TaskKey, space: Option<Fingerprint>, config: &Config) -> Result<Config, Mismatch> {
        let key = (task.workload.clone(), task.target.clone(), task.template.clone());
        let registry = self.registry;
        let current = self.current.entry(key).or_insert_with(|| current(registry, task));
        let (version, now) = current.as_ref().map_err(Clone::clone)?;
        let offer = Offer { template: &task.template, version: *version, space: now };
        fitting(&task.template, task.template_version, space, config, &[offer])
    }
}

fn current(registry: &Registry, task: &TaskKey) -> Current {
    let unknown = |what: String| Mismatch::Unknown { what };
    let workload =
        Workload::from_key(&task.workload).map_err(|_| unknown(format!("the workload `{}`", task.workload)))?;
    let target = Target::find(&task.target).ok_or_else(|| unknown(format!("the target `{}`", task.target)))?;
    let none = || Mismatch::NoTemplate {
        template: task.template.clone(),
        offered: registry.applicable(&workload, target).map(|t| t.name().to_string()).collect(),
    };
    let template = registry.find(&task.template).filter(|t| t.admits(&workload, target).is_ok()).ok_or_else(none)?;
    let space = template.space(&workload, target).map_err(|_| none())?;
    Ok((template.version(), space))
}

/// Diagnostics that differ only in their line become one, with their number.
pub fn summarised(all: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let mut order: Vec<Diagnostic> = vec![];
    let mut place: BTreeMap<(String, String, String), (usize, usize)> = BTreeMap::new();
    for one in all {
        let key = (one.file.clone(), one.cause.clone(), one.help.clone());
        let (_, count) = place.entry(key).or_insert_with(|| {
            order.push(one);
            (order.len() - 1, 0)
        });
        *count += 1;
    }
    for (index, count) in place.into_values() {
        if count > 1 {
            order[index].cause.push_str(&format!(
                " (and {} more line{})",
                count - 1,
                if count == 2 { "" } else { "s" }
            ));
        }
    }
    order
}
