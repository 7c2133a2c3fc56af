//! Searches without a device: outcomes that were recorded, a landscape or trial logs, answer in its place.
//!
//! A recording knows the configs that were tried and no others, so a search is held to those: [`Recording::part_of`] is
//! the part of a template's space that it can answer for.

use super::Task;
use super::landscape::Landscape;
use super::measure::{JobId, Measurer};
use crate::records::{Failure, FailureKind, Outcome};
use crate::space::{Config, Rng, Space, Value};
use crate::templates::Registry;
use std::collections::BTreeMap;
use std::time::Duration;

/// Jobs that a replay takes at a time, as many as a machine with 16 cores and a GPU would.
const CAPACITY: usize = 32;

/// What is known of one task: the outcome of each config that was tried, by the config's text.
type Known = BTreeMap<String, Outcome>;

/// Outcomes that were measured before.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Recording {
    /// The device that they were measured on, if it is one.
    pub device: Option<String>,
    /// By workload, target and template.
    tasks: BTreeMap<(String, String, String), Known>,
}

impl Recording {
    /// A recording of nothing.
    pub fn new() -> Recording {
        Recording::default()
    }

    /// Adds an outcome. A later one of the same config replaces an earlier one, unless only the earlier one ran.
    pub fn add(&mut self, workload: &str, target: &str, template: &str, config: &Config, outcome: Outcome) {
        let task = (workload.to_string(), target.to_string(), template.to_string());
        let known = self.tasks.entry(task).or_default();
        let text = config.to_string();
        if outcome.time_us().is_some() || known.get(&text).is_none_or(|old| old.time_us().is_none()) {
            known.insert(text, outcome);
        }
    }

    /// Adds the configs of a landscape, as the template's space writes them today.
    ///
    /// # Errors
    /// See [`Landscape::task`]; also an index that is not in the part that the landscape describes.
    pub fn add_landscape(&mut self, landscape: &Landscape, registry: &Registry) -> Result<(), String> {
        let task = landscape.task(registry)?;
        for (index, outcome) in &landscape.outcomes {
            let Some(config) = task.space.get(*index) else {
                return Err(format!("the template {} has no config at index {index} any more", landscape.template));
            };
            self.add(&landscape.workload, &landscape.target, &landscape.template, &config, outcome.clone());
        }
        self.device.get_or_insert(landscape.device.clone());
        Ok(())
    }

    /// The workloads, targets and templates that there are outcomes of, in order.
    pub fn tasks(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.tasks.keys().map(|(workload, target, template)| (workload.as_str(), target.as_str(), template.as_str()))
    }

    /// Number of configs with an outcome.
    pub fn len(&self) -> usize {
        self.tasks.values().map(BTreeMap::len).sum()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    fn known(&self, task: &Task<'_>) -> Option<&Known> {
        let key = (task.workload.key(), task.target.name.clone(), task.template.name().to_string());
        self.tasks.get(&key)
    }

    /// The configs of a task's space that have an outcome. None where there are none.
    pub fn part_of(&self, task: &Task<'_>) -> Option<Space> {
        let known = self.known(task)?.clone();
        let mut values: BTreeMap<&str, Vec<Value>> = task.space.knobs().map(|(name, _)| (name, vec![])).collect();
        for text in known.keys() {
            let config = Config::parse(text).ok().and_then(|c| task.space.normalise(&c).ok());
            for (knob, value) in config.iter().flat_map(Config::entries) {
                if let Some(values) = values.get_mut(knob).filter(|all| !all.contains(value)) {
                    values.push(value.clone());
                }
            }
        }
        // In the order of the whole space's ranks, whatever order they were tried in.
        let listed: Vec<(&str, Vec<Value>)> = task
            .space
            .knobs()
            .map(|(name, knob)| {
                let mut values = values.remove(name).unwrap_or_default();
                values.sort_by_key(|value| knob.rank_of(value));
                (name, values)
            })
            .collect();
        let part = task.space.part(&listed).ok()?;
        Some(part.filtered("it is in the recording", move |config| known.contains_key(&config.to_string())))
    }

    /// The fastest config of a task, and its time in microseconds.
    pub fn best(&self, task: &Task<'_>) -> Option<(Config, f64)> {
        let known = self.known(task)?.iter();
        let timed = known.filter_map(|(text, outcome)| Some((Config::parse(text).ok()?, outcome.time_us()?)));
        timed.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn outcome(&self, task: &Task<'_>, config: &Config) -> Outcome {
        let known = self.known(task).and_then(|known| known.get(&config.to_string())).cloned();
        known.unwrap_or_else(|| {
            Outcome::Failed(Failure {
                kind: FailureKind::Worker,
                detail: format!("the recording has no outcome for {config} of {}", task.template.name()),
            })
        })
    }
}

/// A measurer that looks outcomes up.
#[derive(Clone, Debug)]
pub struct Replay {
    recording: Recording,
    under_way: Vec<(JobId, Outcome)>,
    order: Option<Rng>,
}

impl Replay {
    /// One that answers in the order of the questions.
    pub fn new(recording: Recording) -> Replay {
        Replay { recording, under_way: vec![], order: None }
    }

    /// One that answers in a random order, as devices do.
    pub fn shuffled(recording: Recording, seed: u64) -> Replay {
        Replay { order: Some(Rng::new(seed)), ..Replay::new(recording) }
    }
}

impl<'r> Measurer<'r> for Replay {
    fn capacity(&self) -> usize {
        CAPACITY
    }

    fn submit(&mut self, id: JobId, task: &Task<'r>, config: &Config) {
        self.under_way.push((id, self.recording.outcome(task, config)));
    }

    fn next(&mut self, _: Duration) -> Option<(JobId, Outcome)> {
        if self.under_way.is_empty() {
            return None;
        }
        let at = self.order.as_mut().map_or(0, |rng| rng.below(self.under_way.len() as u64) as usize);
        Some(self.under_way.remove(at))
    }

    fn compare(&mut self, candidates: &[(&Task<'r>, &Config)]) -> Vec<Outcome> {
        candidates.iter().map(|(task, config)| self.recording.outcome(task, config)).collect()
    }
}
