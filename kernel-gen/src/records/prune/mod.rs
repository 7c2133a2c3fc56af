//! From trial logs to best records: the fastest config of each workload on each device.
//!
//! What is checked in must not flicker. A record is replaced only where another config is faster by more than the noise
//! of both, and rewritten only where its own time changed by more than that.

use super::log::{Entry, Log, TaskKey};
use super::trial::median;
use super::validate::{Validator, summarised};
use super::{BestRecords, Mismatch, Outcome, Purpose, Record, Slot};
use crate::diagnostic::Diagnostic;
use crate::space::Config;
use crate::templates::Registry;
use crate::workload::Workload;
use std::collections::BTreeMap;
use std::fmt;

/// No difference below this part of the time counts, however close together the samples of one run are: clocks and
/// memory lie differently in the next.
pub const NOISE_FLOOR: f64 = 0.02;

/// The noise, as a part of the time, of a config with so few samples that they do not show it.
const UNKNOWN_NOISE: f64 = 0.05;

/// All samples of one config on one device.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// What it is a config of.
    pub task: TaskKey,
    /// The config, as its space writes it.
    pub config: Config,
    /// How often it was tried.
    pub trials: usize,
    /// The median of all samples, in microseconds.
    pub median_us: f64,
    /// What the samples scatter by: 1.4826 times the median distance from the median, which is the standard deviation
    /// where they are normal, and does not care about single outliers.
    pub spread_us: f64,
    /// The median speed of a core meanwhile, see [`Record::core_gflops`].
    pub core_gflops: Option<f64>,
    /// The largest error of all trials.
    pub max_error: f64,
    /// The newest version of the generator that measured it.
    pub generator: String,
}

/// What became of a record.
#[derive(Clone, PartialEq, Debug)]
pub enum Decision {
    /// There was none.
    New,
    /// The old one may not be used any more.
    Stale(Mismatch),
    /// Another config is faster by more than the noise.
    Faster {
        /// The old config's time: measured again if these logs have it, and otherwise what the record said.
        before_us: f64,
        /// What the difference had to exceed.
        noise_us: f64,
    },
    /// The same config, but its time is another one.
    Remeasured {
        /// The time in the old record.
        before_us: f64,
        /// What the difference had to exceed.
        noise_us: f64,
    },
    /// It stays as it is.
    Kept {
        /// The time of the fastest other config, if there is one, and what it would have had to be faster by.
        challenger: Option<(f64, f64)>,
    },
}

/// A record that these logs have something to say about.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// The record as it is to be.
    pub record: Record,
    /// Why.
    pub decision: Decision,
    /// What the samples scatter by; none where these logs do not have the config.
    pub spread_us: Option<f64>,
    /// Configs that were compared.
    pub configs: usize,
}

impl Verdict {
    /// Whether the record is to be written.
    pub fn changes(&self) -> bool {
        !matches!(self.decision, Decision::Kept { .. })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = self.record.time_us;
        write!(f, "{}: ", self.record.slot())?;
        let spread = self.spread_us.map_or(String::new(), |s| format!(" +- {s:.2}"));
        let best = format!("{now:.2}{spread} us, the best of {} config{}", self.configs, plural(self.configs));
        match &self.decision {
            Decision::New => write!(f, "new, {best}"),
            Decision::Stale(why) => write!(f, "replaced: {why}; now {best}"),
            Decision::Faster { before_us, noise_us } => {
                write!(
                    f,
                    "replaced: {best}, before {before_us:.2} us, which is more than the noise of {noise_us:.2} us"
                )
            }
            Decision::Remeasured { before_us, noise_us } => {
                write!(
                    f,
                    "the same config measured again: {now:.2}{spread} us, before {before_us:.2} us (noise {noise_us:.2} us)"
                )
            }
            Decision::Kept { challenger: None } => write!(f, "kept, {now:.2} us"),
            Decision::Kept { challenger: Some((time_us, noise_us)) } if *time_us < now => write!(
                f,
                "kept, {now:.2} us: the fastest other config has {time_us:.2} us, and the noise is {noise_us:.2} us"
            ),
            Decision::Kept { challenger: Some((time_us, _)) } => {
                write!(f, "kept, {now:.2} us: the fastest other config has {time_us:.2} us")
            }
        }
    }
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// The answer of [`prune`].
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Pruned {
    /// Every record that the logs have a usable trial for, in the order of their files.
    pub verdicts: Vec<Verdict>,
    /// Lines that were skipped, trials that were refused, and what is odd, each with its place.
    pub told: Vec<Diagnostic>,
}

impl Pruned {
    /// The records that are to be written.
    pub fn changed(&self) -> impl Iterator<Item = &Record> {
        self.verdicts.iter().filter(|v| v.changes()).map(|v| &v.record)
    }
}

/// Picks the best config of each workload, target, device and number of threads, and holds it against the record there
/// is. Within the noise, the config that was tried most often wins, then the faster one: finalists are measured again and
/// again, and the luck of one sample is no reason to prefer another.
pub fn prune(log: &Log, incumbents: &BestRecords, registry: &Registry) -> Pruned {
    let mut validator = Validator::new(registry, Purpose::Prune);
    let mut told: Vec<Diagnostic> = log.skipped.iter().chain(&log.warnings).cloned().collect();
    let mut slots: BTreeMap<Slot, Vec<Measured>> = BTreeMap::new();
    for (slot, all) in samples(log, &mut validator, &mut told) {
        slots.entry(slot).or_default().push(all);
    }
    let verdicts = slots
        .iter()
        .filter_map(|(slot, measured)| verdict(slot, measured, incumbents.get(slot), &mut validator))
        .collect();
    Pruned { verdicts, told: summarised(told) }
}

/// The usable trials, put together by config.
fn samples(log: &Log, validator: &mut Validator<'_>, told: &mut Vec<Diagnostic>) -> Vec<(Slot, Measured)> {
    /// A config with its times, and how fast a core was beside each.
    type Sampled = (Measured, Vec<f64>, Vec<f64>);
    let mut all: BTreeMap<(Slot, String, String), Sampled> = BTreeMap::new();
    for entry in &log.entries {
        let Outcome::Timed(timing) = &entry.trial.outcome else { continue };
        let validation = validator.entry(entry);
        told.extend(validation.told);
        let Some(config) = validation.config else { continue };
        let Entry { task, device, threads, generator, .. } = entry;
        let TaskKey { workload, target, .. } = task.clone();
        let slot = Slot { target, device: device.clone(), workload, threads: *threads };
        let key = (slot, task.template.clone(), config.to_string());
        let (measured, samples, cores) = all.entry(key).or_insert_with(|| {
            let (task, generator) = (task.clone(), generator.clone());
            let none = Measured {
                task,
                config,
                trials: 0,
                median_us: 0.0,
                spread_us: 0.0,
                core_gflops: None,
                max_error: 0.0,
                generator,
            };
            (none, vec![], vec![])
        });
        samples.extend(&timing.samples_us);
        cores.extend(&timing.core_gflops);
        measured.trials += 1;
        measured.max_error = measured.max_error.max(timing.max_error);
        measured.generator = measured.generator.clone().max(generator.clone());
    }
    let finished = all.into_iter().map(|((slot, ..), (mut measured, samples, cores))| {
        measured.median_us = median(&samples);
        measured.core_gflops = Some(median(&cores)).filter(|g| g.is_finite());
        measured.spread_us = if samples.len() < 3 {
            UNKNOWN_NOISE * measured.median_us
        } else {
            1.4826 * median(&samples.iter().map(|s| (s - measured.median_us).abs()).collect::<Vec<_>>())
        };
        (slot, measured)
    });
    finished.collect()
}

/// What the difference of two times must exceed.
fn noise(a_us: f64, a_spread_us: f64, b_us: f64, b_spread_us: f64) -> f64 {
    (NOISE_FLOOR * a_us.max(b_us)).max(a_spread_us).max(b_spread_us)
}

/// The best of some configs.
fn best(measured: &[Measured]) -> Option<&Measured> {
    let fastest = measured.iter().min_by(|a, b| a.median_us.total_cmp(&b.median_us))?;
    let tied = |m: &&Measured| {
        m.median_us - fastest.median_us <= noise(m.median_us, m.spread_us, fastest.median_us, fastest.spread_us)
    };
    // `measured` is in the order of templates and configs, and the first of equals is taken.
    measured.iter().filter(tied).min_by(|a, b| b.trials.cmp(&a.trials).then(a.median_us.total_cmp(&b.median_us)))
}

fn verdict(
    slot: &Slot,
    measured: &[Measured],
    incumbent: Option<&Record>,
    validator: &mut Validator<'_>,
) -> Option<Verdict> {
    let best = best(measured)?;
    let new = |m: &Measured| Verdict {
        record: record(slot, m),
        decision: Decision::New,
        spread_us: Some(m.spread_us),
        configs: measured.len(),
    };
    let Some(old) = incumbent else { return Some(new(best)) };
    let config = match validator.record(old) {
        Ok(config) => config,
        Err(why) => return Some(Verdict { decision: Decision::Stale(why), ..new(best) }),
    };
    let again = measured.iter().find(|m| m.task.template == old.template && m.config == config);
    let (old_us, old_spread) = again.map_or((old.time_us, 0.0), |m| (m.median_us, m.spread_us));
    let needed = noise(best.median_us, best.spread_us, old_us, old_spread);
    if again.is_none_or(|m| m.config != best.config || m.task != best.task) && best.median_us + needed < old_us {
        let decision = Decision::Faster { before_us: old_us, noise_us: needed };
        return Some(Verdict { decision, ..new(best) });
    }
    if let Some(again) = again {
        let noise_us = noise(again.median_us, again.spread_us, old.time_us, 0.0);
        if (again.median_us - old.time_us).abs() > noise_us {
            let decision = Decision::Remeasured { before_us: old.time_us, noise_us };
            return Some(Verdict { decision, ..new(again) });
        }
    }
    let others = || measured.iter().filter(|m| m.task.template != old.template || m.config != config);
    let challenger = others().min_by(|a, b| a.median_us.total_cmp(&b.median_us));
    let challenger = challenger.map(|m| (m.median_us, noise(m.median_us, m.spread_us, old_us, old_spread)));
    Some(Verdict {
        record: old.clone(),
        decision: Decision::Kept { challenger },
        spread_us: again.map(|m| m.spread_us),
        configs: measured.len(),
    })
}

fn record(slot: &Slot, best: &Measured) -> Record {
    let Slot { target, device, workload, threads } = slot;
    let flops = Workload::from_key(workload).map_or(0, |w| w.flops());
    Record {
        workload: workload.clone(),
        target: target.clone(),
        device: device.clone(),
        threads: *threads,
        template: best.task.template.clone(),
        template_version: best.task.template_version,
        space: best.task.space,
        config: best.config.clone(),
        time_us: best.median_us,
        // A thousand operations in a microsecond are a billion in a second.
        gflops: flops as f64 / best.median_us / 1e3,
        core_gflops: best.core_gflops,
        // Trials of a log are a few samples of one moment.
        floor_us: None,
        spread: None,
        max_error: best.max_error,
        verified: true,
        generator: best.generator.clone(),
    }
}

#[cfg(test)]
mod tests;
