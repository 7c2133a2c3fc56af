//! One tuner and its proposals that are under way.
//!
//! What a tuner is asked and told must not depend on timing. It is asked for [`MOST`] proposals at a time, and may be
//! asked again before it was told what became of them, up to [`AHEAD`] batches: that keeps the device busy behind a
//! tuner that does not mind, such as random search. One that answers with fewer wants to see outcomes first, and gets
//! all of them before it is asked again. Batches are told whole and in order, and only when it may not be asked, so the
//! calls that it sees are always the same ones, on whichever thread it thinks.

use crate::records::{Outcome, Trial};
use crate::space::Config;
use crate::tune::tuner::Tuner;
use std::collections::{BTreeSet, VecDeque};

/// Proposals that a tuner is asked for at a time.
pub const MOST: usize = 16;

/// Batches that a tuner may be ahead of the outcomes that it was told.
pub const AHEAD: usize = 4;

/// Where an outcome belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    batch: u64,
    place: usize,
}

struct Batch {
    proposals: Vec<(u64, Config)>,
    outcomes: Vec<Option<Outcome>>,
}

/// A tuner that thinks about its next proposals, apart from its feed.
pub(super) struct Thought<'t> {
    tuner: Box<dyn Tuner + 't>,
    proposals: Vec<(u64, Config)>,
}

impl Thought<'_> {
    /// Asks the tuner. That is where its models are fitted, so it may take a while.
    pub(super) fn think(&mut self) {
        self.proposals = self.tuner.propose(MOST);
    }
}

/// A tuner with its open batches.
pub(super) struct Feed<'t> {
    /// None while it thinks.
    tuner: Option<Box<dyn Tuner + 't>>,
    /// What it expected when it was here last.
    gain: Option<f64>,
    /// Starting points, asked for before the tuner is; told to it with the history.
    seeds: Option<Vec<(u64, Config)>>,
    history: Vec<Trial>,
    open: VecDeque<Batch>,
    /// The number of the first open batch.
    first: u64,
    /// Whether the tuner wants to see outcomes before it is asked again.
    waits: bool,
    exhausted: bool,
    /// Indices that were proposed or are in the history.
    seen: BTreeSet<u64>,
}

impl<'t> Feed<'t> {
    pub(super) fn new(tuner: Box<dyn Tuner + 't>, seeds: Vec<(u64, Config)>, history: Vec<Trial>) -> Feed<'t> {
        let mut seen: BTreeSet<u64> = history.iter().map(|t| t.index).collect();
        let seeds: Vec<(u64, Config)> = seeds.into_iter().filter(|(index, _)| seen.insert(*index)).collect();
        let mut feed = Feed {
            tuner: Some(tuner),
            gain: None,
            seeds: Some(seeds),
            history,
            open: VecDeque::new(),
            first: 0,
            waits: false,
            exhausted: false,
            seen,
        };
        if feed.seeds.as_ref().is_some_and(Vec::is_empty) {
            feed.begin(vec![]);
        }
        feed
    }

    /// Tells the tuner the history and the starting points.
    fn begin(&mut self, seeds: Vec<Trial>) {
        let mut known = std::mem::take(&mut self.history);
        known.extend(seeds);
        if let Some(tuner) = self.tuner.as_mut().filter(|_| !known.is_empty()) {
            tuner.observe(&known);
        }
        self.seeds = None;
    }

    /// Whether there may be something to propose now.
    pub(super) fn can_propose(&self) -> bool {
        match &self.seeds {
            Some(_) => self.open.is_empty(),
            None => !self.thinks() && !self.exhausted && !self.waits && self.open.len() < AHEAD,
        }
    }

    /// Whether the tuner is away, thinking.
    pub(super) fn thinks(&self) -> bool {
        self.tuner.is_none()
    }

    /// Whether nothing will ever come again.
    pub(super) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// By how much the tuner expects to lower the best time yet, if it can say.
    pub(super) fn expected_gain(&self) -> Option<f64> {
        self.tuner.as_ref().map_or(self.gain, |tuner| tuner.expected_gain())
    }

    /// The starting points, as a batch of their own, if it is their turn.
    pub(super) fn start(&mut self) -> Option<Vec<(Slot, Config)>> {
        let seeds = self.seeds.clone().filter(|_| self.can_propose())?;
        Some(self.opened(seeds))
    }

    /// The tuner, to think about the next batch; it comes back by [`Feed::settle`]. None where it may not be asked.
    pub(super) fn lend(&mut self) -> Option<Thought<'t>> {
        if self.seeds.is_some() || !self.can_propose() {
            return None;
        }
        let tuner = self.tuner.take()?;
        self.gain = tuner.expected_gain();
        Some(Thought { tuner, proposals: vec![] })
    }

    /// The next batch: what the tuner thought of. Empty where it wants to see outcomes first, or has nothing left.
    pub(super) fn settle(&mut self, thought: Thought<'t>) -> Vec<(Slot, Config)> {
        let Thought { tuner, mut proposals } = thought;
        self.tuner = Some(tuner);
        self.waits = proposals.len() < MOST;
        // A tuner that repeats itself would make the device do the same work twice.
        proposals.retain(|(index, _)| self.seen.insert(*index));
        self.exhausted = proposals.is_empty() && self.open.is_empty();
        self.opened(proposals)
    }

    /// Opens a batch.
    fn opened(&mut self, proposals: Vec<(u64, Config)>) -> Vec<(Slot, Config)> {
        let batch = self.first + self.open.len() as u64;
        let jobs = proposals.iter().enumerate().map(|(place, (_, config))| (Slot { batch, place }, config.clone()));
        let jobs: Vec<(Slot, Config)> = jobs.collect();
        if !jobs.is_empty() {
            self.open.push_back(Batch { outcomes: vec![None; proposals.len()], proposals });
        }
        // Outcomes that came while the tuner could still be asked are told now that it may not be.
        self.tell();
        jobs
    }

    /// Takes the outcome of a proposal and gives the trial that it makes. The tuner is told when it is its turn.
    pub(super) fn deliver(&mut self, slot: Slot, outcome: Outcome) -> Option<Trial> {
        let at = usize::try_from(slot.batch.checked_sub(self.first)?).ok()?;
        let batch = self.open.get_mut(at)?;
        let (index, config) = batch.proposals.get(slot.place)?.clone();
        batch.outcomes[slot.place] = Some(outcome.clone());
        self.tell();
        Some(Trial { index, config, outcome })
    }

    /// Tells the tuner of the batches that are complete, as far as it is time to.
    fn tell(&mut self) {
        while !self.thinks()
            && !self.can_propose()
            && self.open.front().is_some_and(|b| b.outcomes.iter().all(Option::is_some))
        {
            let Some(batch) = self.open.pop_front() else { return };
            self.first += 1;
            let known = batch.proposals.into_iter().zip(batch.outcomes);
            let trials: Vec<Trial> = known
                .filter_map(|((index, config), outcome)| Some(Trial { index, config, outcome: outcome? }))
                .collect();
            match self.seeds {
                Some(_) => self.begin(trials),
                None => self.tuner.iter_mut().for_each(|tuner| tuner.observe(&trials)),
            }
            if self.open.is_empty() {
                self.waits = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Timing;
    use std::sync::{Arc, Mutex};

    /// Proposes in batches of its own size and writes down what it sees.
    struct Scribe {
        batch: usize,
        left: usize,
        pending: usize,
        next: u64,
        seen: Arc<Mutex<Vec<String>>>,
    }

    impl Tuner for Scribe {
        fn name(&self) -> &'static str {
            "scribe"
        }

        fn propose(&mut self, most: usize) -> Vec<(u64, Config)> {
            let count = most.min(self.batch - self.pending).min(self.left);
            self.pending += count;
            self.left -= count;
            let all: Vec<(u64, Config)> = (self.next..self.next + count as u64).map(|i| (i, config(i))).collect();
            self.next += count as u64;
            self.seen.lock().unwrap().push(format!("propose {count}"));
            all
        }

        fn observe(&mut self, trials: &[Trial]) {
            self.pending = self.pending.saturating_sub(trials.len());
            let all: Vec<String> = trials.iter().map(|t| t.index.to_string()).collect();
            self.seen.lock().unwrap().push(format!("observe {}", all.join(",")));
        }
    }

    fn config(index: u64) -> Config {
        Config::new().with("knob", index as i64)
    }

    fn timed(us: f64) -> Outcome {
        Outcome::Timed(Timing { samples_us: vec![us], ..Timing::default() })
    }

    /// What the tuner sees where outcomes come back in an order that `pick` chooses.
    fn calls(batch: usize, left: usize, pick: impl Fn(usize) -> usize) -> Vec<String> {
        let seen = Arc::new(Mutex::new(vec![]));
        let tuner = Scribe { batch, left, pending: 0, next: 10, seen: seen.clone() };
        let history = vec![Trial { index: 3, config: config(3), outcome: timed(3.0) }];
        let mut feed = Feed::new(Box::new(tuner), vec![(3, config(3)), (5, config(5))], history);
        let mut under_way = vec![];
        loop {
            while feed.can_propose() {
                let jobs = feed.start().unwrap_or_else(|| {
                    let mut thought = feed.lend().unwrap();
                    thought.think();
                    feed.settle(thought)
                });
                if jobs.is_empty() {
                    break;
                }
                under_way.extend(jobs);
            }
            if under_way.is_empty() {
                break;
            }
            let (slot, config) = under_way.remove(pick(under_way.len()));
            let trial = feed.deliver(slot, timed(1.0)).unwrap();
            assert_eq!(trial.config, config);
        }
        assert!(feed.is_exhausted());
        seen.lock().unwrap().clone()
    }

    #[test]
    fn a_tuner_sees_the_same_calls_whatever_comes_back_first() {
        for (batch, left) in [(5, 30), (16, 40), (64, 200), (1000, 100)] {
            let first = calls(batch, left, |_| 0);
            assert_eq!(first, calls(batch, left, |n| n - 1), "batches of {batch}");
            assert_eq!(first, calls(batch, left, |n| n / 2), "batches of {batch}");
        }
    }

    #[test]
    fn history_and_starting_points_come_first_and_are_not_measured_twice() {
        let calls = calls(20, 25, |_| 0);
        assert_eq!(calls[0], "observe 3,5");
        assert_eq!(calls[1..4], ["propose 16", "propose 4", "observe 10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25"]);
        assert_eq!(calls.last().map(String::as_str), Some("propose 0"));
    }

    #[test]
    fn a_tuner_that_does_not_wait_is_asked_ahead() {
        let calls = calls(1000, 100, |_| 0);
        assert_eq!(calls[1..=AHEAD], vec!["propose 16"; AHEAD]);
        assert!(calls[AHEAD + 1].starts_with("observe 10,"));
    }
}
