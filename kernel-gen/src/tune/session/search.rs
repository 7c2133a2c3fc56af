//! The search: trials of all tasks, until it is over.

use super::board::{Board, MIN_GAIN};
use super::entry::Options;
use super::event::{Ended, Event, Listener, SessionError, WORKER_FAILURES};
use super::feed::{Feed, Slot};
use super::stop::Stop;
use super::thinking::Thinkers;
use crate::records::{FailureKind, Outcome, Trial};
use crate::space::Config;
use crate::tune::measure::{JobId, Measurer, Repeated, Worker};
use crate::tune::{Task, scheduler};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait for an outcome before the listener hears that time has passed.
const TICK: Duration = Duration::from_millis(200);

/// How long to wait for an outcome while a tuner may come back.
const GLANCE: Duration = Duration::from_millis(5);

/// How long a session that is told to stop waits for what is under way.
const STOPPING: Duration = Duration::from_secs(30);

/// What remains of an entry when its tuner works.
pub(super) struct Subject<'t> {
    pub(super) task: &'t Task<'t>,
    pub(super) default: Config,
    pub(super) predicted_us: f64,
}

/// A session under way.
pub(super) struct Session<'t, 's, 'l> {
    pub(super) board: Board,
    pub(super) subjects: Vec<Subject<'t>>,
    pub(super) feeds: Vec<Feed<'t>>,
    /// All trials of each entry, in the order in which they became known.
    pub(super) tried: Vec<Vec<Trial>>,
    /// Who made them; none for this process, and for earlier runs.
    pub(super) by: Vec<Vec<Option<Arc<Worker>>>>,
    /// Times that two workers measured.
    pub(super) repeated: Vec<Repeated>,
    /// Proposals that wait for the measurer.
    pub(super) ready: VecDeque<(usize, Slot, Config)>,
    pub(super) under_way: BTreeMap<JobId, (usize, Slot)>,
    /// Where tuners think; none if they do so where the session runs.
    pub(super) thinkers: Option<Thinkers<'t>>,
    pub(super) next_job: u64,
    pub(super) worker_failures: u32,
    /// Whether the search is over, and the best are compared.
    pub(super) decides: bool,
    /// How many devices measure.
    pub(super) workers: usize,
    pub(super) began: Instant,
    pub(super) options: &'s Options,
    pub(super) stop: &'s Stop,
    pub(super) listener: &'s mut Listener<'l>,
}

impl<'t> Session<'t, '_, '_> {
    pub(super) fn tell(&mut self, event: Event<'_>) -> Result<(), SessionError> {
        self.board.elapsed = self.began.elapsed();
        if !self.decides {
            self.board.searched = self.board.elapsed;
        }
        (self.listener)(&self.board, event).map_err(SessionError::Listener)
    }

    /// Why no more trials may be begun, if none may.
    fn is_over(&self) -> Option<Ended> {
        if self.stop.is_asked() {
            Some(Ended::Stopped)
        } else if self.board.begun() >= self.options.trials {
            Some(Ended::Trials)
        } else if self.left_s().is_some_and(|left| left <= self.reserve_s()) {
            Some(Ended::Seconds)
        } else {
            None
        }
    }

    /// Seconds until the time is over, if there is a limit.
    pub(super) fn left_s(&self) -> Option<f64> {
        self.options.seconds.map(|s| s - self.began.elapsed().as_secs_f64())
    }

    /// Seconds that are kept for the comparison of all workloads at the end: a candidate takes about twice as long as a trial
    /// did, because it has more samples and nothing is built meanwhile. At least half of the time is for trials.
    fn reserve_s(&self) -> f64 {
        let Some(seconds) = self.options.seconds else { return 0.0 };
        // Where there are several workers, each comparison is confirmed by a second one.
        let times = self.options.rounds.max(1) + usize::from(self.workers > 1);
        let groups = self.tried_groups().count() * times;
        let all = (groups * self.most_candidates()) as f64 * self.candidate_s();
        all.min(seconds / 2.0)
    }

    /// The most candidates of a comparison: the record, the default, the finalists.
    fn most_candidates(&self) -> usize {
        self.options.finalists + 2
    }

    /// Seconds that a candidate of a comparison may take, before there was one.
    pub(super) fn candidate_s(&self) -> f64 {
        let made = self.board.made();
        if made == 0 { 0.0 } else { 2.0 * self.board.searched.as_secs_f64() / made as f64 }
    }

    /// Workloads that have trials.
    pub(super) fn tried_groups(&self) -> impl Iterator<Item = usize> + '_ {
        let tried = |group: &usize| self.board.groups[*group].entries.iter().any(|e| !self.tried[*e].is_empty());
        (0..self.board.groups.len()).filter(tried)
    }

    /// Makes trials until it is over and all that are under way are known.
    pub(super) fn search(&mut self, measurer: &mut dyn Measurer<'t>) -> Result<Ended, SessionError> {
        let mut stopping: Option<Instant> = None;
        loop {
            self.workers = measurer.workers();
            let mut ended = self.is_over();
            self.settle(Duration::ZERO);
            while ended.is_none() && self.under_way.len() < measurer.capacity().max(1) {
                let Some((entry, slot, config)) = self.next_proposal(measurer) else { break };
                let id = JobId(self.next_job);
                self.next_job += 1;
                self.board.standings[entry].begun += 1;
                self.under_way.insert(id, (entry, slot));
                measurer.submit(id, self.subjects[entry].task, &config);
                ended = self.is_over();
            }
            let thinking = self.thinkers.as_ref().is_some_and(|t| t.away > 0);
            if self.under_way.is_empty() {
                if ended.is_none() && thinking {
                    self.settle(TICK);
                    self.tell(Event::Waiting)?;
                    continue;
                }
                // Nothing could be begun, and nothing will change that.
                let all = self.feeds.iter().all(Feed::is_exhausted);
                return Ok(ended.unwrap_or(if all { Ended::Exhausted } else { Ended::Converged }));
            }
            // Whoever was told to stop waits for what is under way, but not for machines that never answer.
            let asked = *stopping.get_or_insert_with(Instant::now);
            if !self.stop.is_asked() {
                stopping = None;
            } else if asked.elapsed() > STOPPING {
                return Ok(Ended::Stopped);
            }
            let Some((id, outcome)) = measurer.next(if thinking { GLANCE } else { TICK }) else {
                self.board.fleet = measurer.standing();
                self.tell(Event::Waiting)?;
                continue;
            };
            let told = (measurer.last_cost(), measurer.last_worker());
            self.repeated.extend(measurer.repeated());
            self.board.fleet = measurer.standing();
            self.take(id, outcome, told)?;
        }
    }

    /// Takes what tuners have thought of; `wait` is how long the first of them may take.
    fn settle(&mut self, wait: Duration) {
        let Some(thinkers) = &mut self.thinkers else { return };
        let mut wait = wait;
        while let Some((entry, thought)) = thinkers.answer(std::mem::take(&mut wait)) {
            let batch = self.feeds[entry].settle(thought);
            self.ready.extend(batch.into_iter().map(|(slot, config)| (entry, slot, config)));
        }
    }

    /// The next config to measure: of the batches that were granted, or of a new one.
    fn next_proposal(&mut self, measurer: &dyn Measurer<'t>) -> Option<(usize, Slot, Config)> {
        loop {
            let patience = self.options.patience;
            let mut held = vec![];
            for (standing, feed) in self.board.standings.iter_mut().zip(&self.feeds) {
                let hopeless = || feed.expected_gain().is_none_or(|gain| gain < MIN_GAIN);
                standing.done = feed.is_exhausted() || standing.since >= patience && hopeless();
                // Those under way may end its patience; what else it has proposed waits for them.
                let under_way = standing.begun - standing.trials;
                held.push(standing.done || standing.since + under_way >= patience && hopeless());
            }
            if let Some(at) = self.ready.iter().position(|(entry, ..)| !held[*entry]) {
                return self.ready.remove(at);
            }
            let able: Vec<usize> =
                (0..self.feeds.len()).filter(|e| !held[*e] && self.feeds[*e].can_propose()).collect();
            let thinks = |entry: usize| self.feeds[entry].thinks();
            let idle = match measurer.workers() {
                0 | 1 => 0.0,
                _ => 1.0 - self.under_way.len() as f64 / measurer.capacity().max(1) as f64,
            };
            let entry = scheduler::next(&self.board, &able, &thinks, idle)?;
            // An empty batch means that the tuner waits or has nothing left: it is no longer able.
            let batch = match self.feeds[entry].start() {
                Some(batch) => batch,
                None => {
                    let mut thought = self.feeds[entry].lend()?;
                    match &mut self.thinkers {
                        Some(thinkers) => {
                            thinkers.ask(entry, thought);
                            continue;
                        }
                        None => thought.think(),
                    }
                    self.feeds[entry].settle(thought)
                }
            };
            self.ready.extend(batch.into_iter().map(|(slot, config)| (entry, slot, config)));
        }
    }

    fn take(
        &mut self,
        id: JobId,
        outcome: Outcome,
        (cost, by): (Option<Duration>, Option<Arc<Worker>>),
    ) -> Result<(), SessionError> {
        let Some((entry, slot)) = self.under_way.remove(&id) else { return Ok(()) };
        let worker = match &outcome {
            Outcome::Failed(failure) if failure.kind == FailureKind::Worker => Some(failure.detail.clone()),
            _ => None,
        };
        let Some(trial) = self.feeds[entry].deliver(slot, outcome) else { return Ok(()) };
        let group = self.board.standings[entry].group;
        let before = self.board.best_of(group).map_or(f64::INFINITY, |(_, _, us)| us);
        self.board.standings[entry].take(&trial);
        let best = self.board.best_of(group).is_some_and(|(_, _, us)| us < before);
        self.tell(Event::Trial { entry, trial: &trial, best, cost, worker: by.as_deref() })?;
        self.tried[entry].push(trial);
        self.by[entry].push(by);
        match worker {
            None => self.worker_failures = 0,
            Some(detail) => {
                self.worker_failures += 1;
                if self.worker_failures >= WORKER_FAILURES {
                    return Err(SessionError::Measurer(detail));
                }
            }
        }
        Ok(())
    }
}
