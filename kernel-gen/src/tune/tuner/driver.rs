//! What all tuners have in common: how they are asked, and the books.

use super::significance;
use crate::records::{FailureKind, Outcome, Trial};
use crate::space::{Config, Sample, Space};
use crate::tune::Task;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

/// A way to search a task's space.
pub trait Tuner: Send {
    /// Its name on the command line and in logs.
    fn name(&self) -> &'static str;

    /// The configs to try next, at most `most`, with their indices: valid ones that it never proposed before. Fewer than
    /// `most` end its batch: it wants to see their outcomes first. None while outcomes are outstanding means the same;
    /// none when all were observed means that the space is exhausted.
    fn propose(&mut self, most: usize) -> Vec<(u64, Config)>;

    /// Takes outcomes of proposals, in the order of the proposals. Also called before the first proposal with trials of an
    /// earlier run, which it then does not propose again. A newer outcome of the same config replaces the older.
    fn observe(&mut self, trials: &[Trial]);

    /// By how much it expects its next batch to lower the best time, as a share of that time; none if it cannot say, as
    /// tuners without a model never can. A session may stop where this is less than the noise of a measurement.
    fn expected_gain(&self) -> Option<f64> {
        None
    }
}

/// A method: from what is known to what to try next.
pub(super) trait Method: Send {
    /// Its name.
    fn name(&self) -> &'static str;

    /// The next batch, in order. What was proposed before and what is not in the space is left out by the driver; where
    /// nothing remains it goes on with [`Known::fresh`].
    fn plan(&mut self, known: &mut Known<'_>) -> Vec<u64>;

    /// Whether it learns from outcomes, and so wants those of a batch before it plans another.
    fn learns(&self) -> bool {
        true
    }

    /// See [`Tuner::expected_gain`].
    fn expected_gain(&self) -> Option<f64> {
        None
    }
}

/// A config that was tried.
pub(super) struct Tried {
    /// Its index.
    pub(super) index: u64,
    /// Logarithm of its time in microseconds; none if it failed.
    pub(super) log_us: Option<f64>,
    /// The samples of its time.
    samples: Vec<f64>,
}

/// What is known of a task's configs.
pub(super) struct Known<'t> {
    /// The space.
    pub(super) space: &'t Space,
    /// What was tried and says something, in the order of its first outcome.
    pub(super) tried: Vec<Tried>,
    place: HashMap<u64, usize>,
    /// Everything that was proposed or observed. Asked for members only, so its order reaches nothing.
    seen: HashSet<u64>,
    order: Sample<'t>,
    put_back: Vec<u64>,
}

impl<'t> Known<'t> {
    pub(super) fn new(task: &'t Task<'t>, seed: u64) -> Known<'t> {
        let (tried, place, seen) = (vec![], HashMap::new(), HashSet::new());
        Known { space: &task.space, tried, place, seen, order: task.space.sample(seed), put_back: vec![] }
    }

    /// Whether it was proposed or observed.
    pub(super) fn is_seen(&self, index: u64) -> bool {
        self.seen.contains(&index)
    }

    /// At most so many configs that were not seen, in the random order of the seed.
    pub(super) fn fresh(&mut self, most: usize) -> Vec<u64> {
        let mut out = vec![];
        let mut waiting = std::mem::take(&mut self.put_back).into_iter();
        while out.len() < most {
            let Some(index) = waiting.next().or_else(|| self.order.next().map(|(index, _)| index)) else { break };
            if !self.seen.contains(&index) {
                out.push(index);
            }
        }
        // Those that are not proposed now must come again.
        self.put_back = out.iter().copied().chain(waiting).collect();
        out
    }

    /// Logarithm of the time of a config that was tried; none if it was not, or failed.
    pub(super) fn log_us(&self, index: u64) -> Option<f64> {
        self.place.get(&index).and_then(|at| self.tried[*at].log_us)
    }

    /// The config with the least median, the first of equals.
    pub(super) fn fastest(&self) -> Option<&Tried> {
        self.by_speed().into_iter().next()
    }

    /// The configs that were timed, fastest first.
    pub(super) fn by_speed(&self) -> Vec<&Tried> {
        let mut timed: Vec<(f64, &Tried)> = self.tried.iter().filter_map(|t| Some((t.log_us?, t))).collect();
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        timed.into_iter().map(|(_, tried)| tried).collect()
    }

    /// Whether the first is faster than the second beyond doubt. One that failed is slower than any that did not.
    pub(super) fn beats(&self, index: u64, incumbent: u64) -> bool {
        let find = |index| self.place.get(&index).map(|at| &self.tried[*at]).filter(|t| t.log_us.is_some());
        match (find(index), find(incumbent)) {
            (Some(new), Some(old)) => {
                significance::compare(&new.samples, &old.samples) == significance::Verdict::Faster
            }
            (new, old) => new.is_some() && old.is_none(),
        }
    }

    fn observe(&mut self, index: u64, outcome: &Outcome) {
        self.seen.insert(index);
        let (log_us, samples) = match outcome {
            Outcome::Timed(timing) => {
                let median = timing.median_us();
                if !(median.is_finite() && median > 0.0) {
                    return;
                }
                (Some(median.ln()), timing.samples_us.clone())
            }
            // It says nothing of the config.
            Outcome::Failed(failure) if failure.kind == FailureKind::Worker => return,
            Outcome::Failed(_) => (None, vec![]),
        };
        let tried = Tried { index, log_us, samples };
        match self.place.get(&index) {
            Some(at) => self.tried[*at] = tried,
            None => {
                self.place.insert(index, self.tried.len());
                self.tried.push(tried);
            }
        }
    }
}

/// A tuner made of a method.
pub(super) struct Driver<'t, M> {
    known: Known<'t>,
    method: M,
    /// The rest of the batch.
    queue: VecDeque<u64>,
    /// What was proposed and not observed yet.
    outstanding: BTreeSet<u64>,
}

/// Configs that are proposed at once where a method has none.
const FILL: usize = 16;

impl<'t, M: Method> Driver<'t, M> {
    pub(super) fn new(known: Known<'t>, method: M) -> Driver<'t, M> {
        Driver { known, method, queue: VecDeque::new(), outstanding: BTreeSet::new() }
    }

    fn refill(&mut self) {
        let mut batch = self.method.plan(&mut self.known);
        let (known, mut in_batch) = (&self.known, HashSet::new());
        let mut is_new = |i: &u64| !known.is_seen(*i) && in_batch.insert(*i) && known.space.is_valid(*i);
        batch.retain(&mut is_new);
        if batch.is_empty() {
            batch = self.known.fresh(FILL);
        }
        self.queue.extend(batch);
    }
}

impl<M: Method> Tuner for Driver<'_, M> {
    fn name(&self) -> &'static str {
        self.method.name()
    }

    fn propose(&mut self, most: usize) -> Vec<(u64, Config)> {
        let mut out = vec![];
        while out.len() < most {
            if self.queue.is_empty() {
                if self.method.learns() && !self.outstanding.is_empty() {
                    break;
                }
                self.refill();
            }
            // What is observed while it waits, as part of another run's log, is not tried again.
            let Some(index) = self.queue.pop_front() else { break };
            if self.known.is_seen(index) {
                continue;
            }
            if let Some(config) = self.known.space.get(index) {
                self.known.seen.insert(index);
                self.outstanding.insert(index);
                out.push((index, config));
            }
        }
        out
    }

    fn observe(&mut self, trials: &[Trial]) {
        for trial in trials {
            // A log may come from a space that numbers its configs differently; one that is not of this space at all has
            // nothing to say here.
            if let Ok(index) = self.known.space.index_of(&trial.config) {
                self.outstanding.remove(&index);
                self.known.observe(index, &trial.outcome);
            }
        }
    }

    fn expected_gain(&self) -> Option<f64> {
        self.method.expected_gain()
    }
}
