//! Where a session stands: what its scheduler, its progress and its end table are made from.

use super::entry::Entry;
use crate::model::roofline::Roofline;
use crate::records::{FailureKind, Outcome, Trial};
use crate::space::Config;
use std::time::Duration;

/// A time has to be lower than another by this share of it to count as better, however exact the measurement claims to be:
/// the same kernels in another process were seen to differ by up to 3 % where they take a few microseconds.
pub const MIN_GAIN: f64 = 0.02;

/// Trials of this run that make a pace.
const PACE: u64 = 8;

/// The standing of all tasks of a session.
#[derive(Clone, PartialEq, Debug)]
pub struct Board {
    /// The workloads.
    pub groups: Vec<Group>,
    /// The tasks, in the order of the session's entries.
    pub standings: Vec<Standing>,
    /// Time since the session began.
    pub elapsed: Duration,
    /// The time that trials took; what comes after them is not part of it.
    pub searched: Duration,
    /// The most trials that it may spend, those of earlier runs included.
    pub budget: u64,
    /// The most time that it may take.
    pub seconds: Option<f64>,
    /// How the fleet does that measures, in a line; none without one.
    pub fleet: Option<String>,
}

/// A workload; its tasks, one a template, compete.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// The name that people know it by.
    pub name: String,
    /// How often it occurs in the network.
    pub weight: f64,
    /// Floating-point operations of one call.
    pub flops: f64,
    /// The least time that the target allows, in microseconds.
    pub floor_us: f64,
    /// Its tasks.
    pub entries: Vec<usize>,
}

/// The standing of one task.
#[derive(Clone, PartialEq, Debug)]
pub struct Standing {
    /// The workload, as a place in [`Board::groups`].
    pub group: usize,
    /// The template.
    pub template: String,
    /// The time that the template's model expects of its default, in microseconds.
    pub predicted_us: f64,
    /// Trials that were begun, those of earlier runs included.
    pub begun: u64,
    /// Trials whose outcome is known.
    pub trials: u64,
    /// How many of them an earlier run made.
    pub earlier: u64,
    /// How many failed, by kind, in the order of [`FailureKind::ALL`].
    pub failures: [u64; FailureKind::ALL.len()],
    /// The fastest config and its time in microseconds.
    pub best: Option<(Config, f64)>,
    /// Each improvement: after how many trials, to which time in microseconds.
    pub curve: Vec<(u64, f64)>,
    /// Trials that were measured since the last improvement that was more than noise.
    pub since: u64,
    /// The best time when that improvement was made.
    mark_us: f64,
    /// Whether it gets no more trials.
    pub done: bool,
}

impl Board {
    pub(super) fn new(entries: &[Entry<'_>], budget: u64, seconds: Option<f64>) -> Board {
        let mut board = Board {
            groups: vec![],
            standings: vec![],
            elapsed: Duration::ZERO,
            searched: Duration::ZERO,
            budget,
            seconds,
            fleet: None,
        };
        let mut keys: Vec<(String, &str)> = vec![];
        for (at, entry) in entries.iter().enumerate() {
            let task = &entry.task;
            let key = (task.workload.key(), task.target.name.as_str());
            let group = keys.iter().position(|k| *k == key).unwrap_or_else(|| {
                keys.push(key);
                board.groups.push(Group {
                    name: entry.name.clone(),
                    weight: entry.weight,
                    flops: task.workload.flops() as f64,
                    floor_us: Roofline::new(&task.workload, task.target, entry.threads).floor_us(&task.workload),
                    entries: vec![],
                });
                board.groups.len() - 1
            });
            board.groups[group].entries.push(at);
            let mut standing = Standing::new(group, task.template.name(), entry.predicted_us());
            standing.begun = entry.history.len() as u64;
            standing.earlier = standing.begun;
            entry.history.iter().for_each(|trial| standing.take(trial));
            board.standings.push(standing);
        }
        board
    }

    /// Trials that were begun in all tasks.
    pub fn begun(&self) -> u64 {
        self.standings.iter().map(|s| s.begun).sum()
    }

    /// Trials whose outcome is known, in all tasks.
    pub fn trials(&self) -> u64 {
        self.standings.iter().map(|s| s.trials).sum()
    }

    /// Trials that this run made.
    pub fn made(&self) -> u64 {
        self.standings.iter().map(|s| s.trials - s.earlier).sum()
    }

    /// Failures in all tasks, by kind, those that occurred only.
    pub fn failures(&self) -> Vec<(FailureKind, u64)> {
        let count = |i: usize| self.standings.iter().map(|s| s.failures[i]).sum::<u64>();
        FailureKind::ALL.iter().enumerate().map(|(i, kind)| (*kind, count(i))).filter(|(_, n)| *n > 0).collect()
    }

    /// Trials whose outcome is known, and how many of them failed, in the tasks of a workload.
    pub fn trials_of(&self, group: usize) -> (u64, u64) {
        let all = self.groups[group].entries.iter().map(|e| &self.standings[*e]);
        all.fold((0, 0), |(n, failed), s| (n + s.trials, failed + s.failures.iter().sum::<u64>()))
    }

    /// The task with the fastest config of a workload, that config, and its time in microseconds.
    pub fn best_of(&self, group: usize) -> Option<(usize, &Config, f64)> {
        let all = self.groups[group].entries.iter();
        let all = all.filter_map(|e| self.standings[*e].best.as_ref().map(|(config, us)| (*e, config, *us)));
        all.min_by(|a, b| a.2.total_cmp(&b.2))
    }

    /// Trials of this run a minute.
    pub fn trials_per_minute(&self) -> f64 {
        let minutes = self.searched.as_secs_f64() / 60.0;
        if minutes > 0.0 { self.made() as f64 / minutes } else { 0.0 }
    }

    /// About how many trials there will be, from the pace so far; the budget before there is a pace.
    pub fn expected_trials(&self) -> u64 {
        let made = self.made();
        match self.seconds.filter(|_| made >= PACE) {
            None => self.budget,
            Some(seconds) => {
                let left = (seconds - self.elapsed.as_secs_f64()).max(0.0);
                let more = left * made as f64 / self.searched.as_secs_f64().max(f64::MIN_POSITIVE);
                self.budget.min(self.trials().saturating_add(more as u64))
            }
        }
    }

    /// About how long it will take until the budget is spent, from the pace so far; none before there is a pace.
    pub fn left(&self) -> Option<Duration> {
        let by_time = self.seconds.map(|s| s - self.elapsed.as_secs_f64());
        let open = self.standings.iter().any(|s| !s.done);
        let rest =
            if open { self.budget.saturating_sub(self.trials()) } else { self.begun().saturating_sub(self.trials()) };
        let made = self.made();
        let by_trials = (made >= PACE).then(|| self.searched.as_secs_f64() / made as f64 * rest as f64);
        let least = match (by_time, by_trials) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        least.map(|s| Duration::from_secs_f64(s.max(0.0)))
    }
}

impl Standing {
    /// A task without trials.
    pub(in crate::tune) fn new(group: usize, template: &str, predicted_us: f64) -> Standing {
        Standing {
            group,
            template: template.to_string(),
            predicted_us,
            begun: 0,
            trials: 0,
            earlier: 0,
            failures: [0; FailureKind::ALL.len()],
            best: None,
            curve: vec![],
            since: 0,
            mark_us: f64::INFINITY,
            done: false,
        }
    }

    /// Takes the outcome of a trial.
    pub(in crate::tune) fn take(&mut self, trial: &Trial) {
        self.trials += 1;
        match &trial.outcome {
            Outcome::Failed(failure) => {
                // One that could not be measured says nothing of what is still to be found.
                self.since += u64::from(failure.kind != FailureKind::Worker);
                let kinds = FailureKind::ALL.iter().position(|k| *k == failure.kind);
                self.failures[kinds.unwrap_or_default()] += 1;
            }
            Outcome::Timed(timing) => {
                self.since += 1;
                let us = timing.median_us();
                // A time that is no number is no improvement.
                if us < self.best_us() {
                    self.best = Some((trial.config.clone(), us));
                    self.curve.push((self.trials, us));
                    // Many small steps add up to a real one.
                    if us < self.mark_us * (1.0 - MIN_GAIN) {
                        self.mark_us = us;
                        self.since = 0;
                    }
                }
            }
        }
    }

    /// The best time in microseconds; infinite before there is one.
    pub fn best_us(&self) -> f64 {
        self.best.as_ref().map_or(f64::INFINITY, |(_, us)| *us)
    }

    /// The best time after a number of trials; infinite where there was none yet.
    pub fn best_after(&self, trials: u64) -> f64 {
        let reached = self.curve.iter().take_while(|(n, _)| *n <= trials).last();
        reached.map_or(f64::INFINITY, |(_, us)| *us)
    }
}
