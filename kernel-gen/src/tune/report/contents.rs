//! What a report says.

use crate::model::roofline::Roofline;
use crate::records::FailureKind;
use crate::records::log::RunId;
use crate::space::Config;
use std::collections::BTreeMap;

/// What a page says.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The headline.
    pub title: String,
    /// A part for each machine.
    pub benches: Vec<Bench>,
    /// The runs behind it.
    pub runs: Vec<RunLine>,
    /// Lines of the logs that say nothing, and what else is odd.
    pub notes: Vec<String>,
}

/// A run of a tuner.
#[derive(Clone, PartialEq, Debug)]
pub struct RunLine {
    /// Its name in the log.
    pub id: RunId,
    /// Version of the generator.
    pub generator: String,
    /// The device and its threads.
    pub device: String,
    /// The machine, in words.
    pub machine: String,
    /// The tuner and its seed.
    pub tuner: String,
    /// When it began, as a date and a time of day (UTC); empty where the log has lost it.
    pub started: String,
    /// Its trials.
    pub trials: usize,
    /// Seconds until its last trial.
    pub seconds: f64,
}

/// All that was tuned for one target on one device with one number of threads.
#[derive(Clone, PartialEq, Debug)]
pub struct Bench {
    /// The target's name.
    pub target: String,
    /// The device.
    pub device: String,
    /// Threads that kernels ran on.
    pub threads: u32,
    /// The workloads, the one that takes most of the network's time first.
    pub layers: Vec<Layer>,
    /// The workers of a fleet that made trials, by their names.
    pub workers: Vec<WorkerLine>,
}

/// A worker of a fleet.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkerLine {
    /// Its name.
    pub name: String,
    /// Its machine, in words, and the unit of its device where that has a number of its own.
    pub machine: String,
    /// Its trials.
    pub trials: usize,
    /// How many of them failed.
    pub failed: usize,
    /// Seconds of its trials, waiting excluded.
    pub seconds: f64,
}

impl Bench {
    /// The time of the whole network in microseconds, as far as its layers ran.
    pub fn network_us(&self) -> f64 {
        self.layers.iter().filter_map(|l| Some(l.used_us()? * l.weight)).sum()
    }
}

/// One workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Layer {
    /// What people call it.
    pub name: String,
    /// Its key.
    pub key: String,
    /// How often it occurs.
    pub weight: f64,
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes that must move at least.
    pub bytes: f64,
    /// The target's limits for its arithmetic; none where this library does not know the target or the workload.
    pub roofline: Option<Roofline>,
    /// The templates that were tried, the fastest first.
    pub tasks: Vec<TaskLine>,
    /// The record that builds use, if records were given and there is one.
    pub record: Option<RecordLine>,
    /// What the default and what builds use took side by side, in microseconds: in the last comparison that had both. Times of
    /// the search and of other comparisons are not divided by each other.
    pub beside_default_us: Option<(f64, f64)>,
}

impl Layer {
    /// The fastest time of any template, in microseconds.
    pub fn best_us(&self) -> Option<f64> {
        self.tasks.iter().filter_map(|t| Some(t.best.as_ref()?.us)).min_by(f64::total_cmp)
    }

    /// The time in a build: that of the record, or the fastest trial without one.
    pub fn used_us(&self) -> Option<f64> {
        self.record.as_ref().map(|r| r.us).or_else(|| self.best_us())
    }

    /// What a time is in billions of operations a second.
    pub fn gflops(&self, us: f64) -> f64 {
        self.flops / us / 1e3
    }

    /// How much of the roofline a time is.
    pub fn share_of_roof(&self, us: f64) -> Option<f64> {
        let roofline = self.roofline?;
        Some((self.flops / roofline.peak_gflops).max(self.bytes / roofline.bandwidth_gb_s) / 1e3 / us)
    }

    /// Trials of all templates, and how many failed.
    pub fn trials(&self) -> (usize, usize) {
        let failed = |t: &TaskLine| t.failures.values().map(|(n, _)| n).sum::<usize>();
        (self.tasks.iter().map(|t| t.trials).sum(), self.tasks.iter().map(failed).sum())
    }
}

/// The trials of one template for a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskLine {
    /// The template and its version.
    pub template: String,
    /// Its trials.
    pub trials: usize,
    /// The failures by kind, and what the first of each said.
    pub failures: BTreeMap<FailureKind, (usize, String)>,
    /// Each improvement: after how many trials, to which time in microseconds.
    pub curve: Vec<(usize, f64)>,
    /// The fastest config.
    pub best: Option<Best>,
}

/// The fastest trial of a task.
#[derive(Clone, PartialEq, Debug)]
pub struct Best {
    /// Its time in microseconds.
    pub us: f64,
    /// Half the distance between the quartiles of its samples, in microseconds.
    pub spread_us: f64,
    /// Its config.
    pub config: Config,
    /// Its run.
    pub run: RunId,
    /// The tuner and its seed.
    pub tuner: String,
    /// The log and the line in it.
    pub place: String,
}

/// A record in the folder of records.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordLine {
    /// Its file, below the folder.
    pub file: String,
    /// Its template and version.
    pub template: String,
    /// Its config.
    pub config: String,
    /// Its time in microseconds.
    pub us: f64,
    /// How far apart machines of one kind are at it.
    pub spread: Option<f64>,
}
