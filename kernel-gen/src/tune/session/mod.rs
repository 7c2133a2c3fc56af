//! A session: many tasks tuned at once, each by its own tuner, on one measurer.
//!
//! The measurer is kept as full as it wants to be, from whichever tasks the scheduler thinks worth
//! it, while each tuner sees a sequence of calls that does not depend on timing. Every outcome is told to the caller the
//! moment it is known, who writes it to a log; a session that was ended is continued by giving it the log's trials as
//! history. At the end the fastest configs of each workload run once more against the record that there is, and the
//! [`Verdict`] says whether there is a better one.

mod board;
mod feed;
mod finish;
mod stop;
#[cfg(test)]
mod tests;

pub use board::{Board, Group, MIN_GAIN, Standing};
pub use feed::{AHEAD, MOST};
pub use finish::{Candidate, Source, Verdict, beats};
pub use stop::Stop;

use super::measure::{JobId, Measurer};
use super::tuner::Tuner;
use super::{Task, scheduler};
use crate::records::{FailureKind, Outcome, Trial};
use crate::space::Config;
use feed::{Feed, Slot};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

/// One task of a session. Entries of the same workload and target compete.
pub struct Entry<'t> {
    /// What people call the workload.
    pub name: String,
    /// The task.
    pub task: &'t Task<'t>,
    /// Threads that its kernels run on; 1 on a GPU.
    pub threads: u32,
    /// How often the workload occurs in the network.
    pub weight: f64,
    /// Who proposes configs.
    pub tuner: Box<dyn Tuner + 't>,
    /// The template's default, as its space writes it.
    pub default: Config,
    /// Configs that are tried right after the default: those that were fast elsewhere.
    pub hints: Vec<Config>,
    /// Trials of an earlier run of this task: they are not repeated.
    pub history: Vec<Trial>,
}

impl Entry<'_> {
    /// The time in microseconds that the template's model expects of the default.
    pub fn predicted_us(&self) -> f64 {
        self.task.predicted_us(&self.default)
    }
}

/// The config of a record that there is for a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Incumbent {
    /// The entry whose template it is of.
    pub entry: usize,
    /// The config, as the space writes it.
    pub config: Config,
    /// The time in the record, in microseconds.
    pub recorded_us: f64,
    /// What it took then where nothing disturbed it, see [`Record::floor_us`](crate::records::Record::floor_us).
    pub floor_us: Option<f64>,
}

/// When a session ends, and what it does then.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// The most trials, of all tasks together and with those of earlier runs. With 0 nothing is searched: each workload's
    /// record, its default and the best of earlier runs are compared, which times the records again.
    pub trials: u64,
    /// The most time, in seconds, comparisons at the end included: the search ends early enough for them, as far as half of
    /// the time suffices. A comparison or trial that was begun is finished.
    pub seconds: Option<f64>,
    /// A task is done after this many trials in a row without a gain of more than [`MIN_GAIN`], if its tuner expects none.
    /// Trials that could not be measured do not count. No more are begun than may follow the last gain, so none is made
    /// beyond this number.
    pub patience: u64,
    /// How many of the fastest configs of a workload are timed once more.
    pub finalists: usize,
    /// How often all workloads' finalists are timed, one workload after the other; what counts is the round that was
    /// disturbed least, see [`Comparison::calmer`](super::measure::Comparison::calmer).
    pub rounds: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { trials: 128, seconds: None, patience: 64, finalists: 4, rounds: 1 }
    }
}

/// What happens in a session.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// It begins; trials of earlier runs are on the board.
    Started,
    /// The outcome of a trial is known.
    Trial {
        /// The task.
        entry: usize,
        /// The trial.
        trial: &'a Trial,
        /// Whether it is the fastest of its workload so far.
        best: bool,
        /// How long it took to build, check and time it, if that is known.
        cost: Option<Duration>,
    },
    /// Nothing new; time has passed.
    Waiting,
    /// The fastest configs of a workload are timed once more.
    Comparing {
        /// The workload, as a place in [`Board::groups`].
        group: usize,
        /// How many.
        candidates: usize,
    },
    /// What became of a workload.
    Decided {
        /// The workload, as a place in [`Board::groups`].
        group: usize,
        /// The verdict.
        verdict: &'a Verdict,
    },
}

/// Who is told what happens. An error ends the session.
pub type Listener<'a> = dyn FnMut(&Board, Event<'_>) -> Result<(), String> + 'a;

/// Why no more trials were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// All trials are spent.
    Trials,
    /// All time is spent.
    Seconds,
    /// No task expects to get faster.
    Converged,
    /// Every config of every space was tried.
    Exhausted,
    /// The user asked for it.
    Stopped,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ended::Trials => "all trials are spent",
            Ended::Seconds => "the time is over",
            Ended::Converged => "no task expects to get faster",
            Ended::Exhausted => "every config was tried",
            Ended::Stopped => "stopped by the user",
        })
    }
}

/// What a session found.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// The standing of all tasks.
    pub board: Board,
    /// A verdict for each workload, in the order of [`Board::groups`].
    pub verdicts: Vec<Verdict>,
    /// Why it ended.
    pub ended: Ended,
    /// Workloads that were searched and not compared, because no time was left.
    pub uncompared: usize,
}

/// Why a session could not go on.
#[derive(Clone, PartialEq, Debug)]
pub enum SessionError {
    /// The listener could not do its work, such as writing the log.
    Listener(String),
    /// The measurer failed many times in a row for reasons that are not the configs'.
    Measurer(String),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::Listener(cause) => f.write_str(cause),
            SessionError::Measurer(cause) => {
                write!(f, "{WORKER_FAILURES} trials in a row could not be measured; the last one: {cause}")
            }
        }
    }
}

impl std::error::Error for SessionError {}

/// After so many failures of the worker in a row it is not the configs that are at fault.
const WORKER_FAILURES: u32 = 16;

/// How long to wait for an outcome before the listener hears that time has passed.
const TICK: Duration = Duration::from_millis(200);

/// Tunes the entries. `incumbents` are the records that there are, at most one a workload.
pub fn run<'t>(
    entries: Vec<Entry<'t>>,
    incumbents: &[Incumbent],
    measurer: &mut dyn Measurer<'t>,
    options: &Options,
    stop: &Stop,
    listener: &mut Listener<'_>,
) -> Result<Summary, SessionError> {
    let board = Board::new(&entries, options.trials, options.seconds);
    let (mut feeds, mut tried, mut subjects) = (vec![], vec![], vec![]);
    for (at, entry) in entries.into_iter().enumerate() {
        let known = incumbents.iter().filter(|i| i.entry == at).map(|i| &i.config);
        // Where the task is a part of the template's space, neither need be in it.
        let seeds = std::iter::once(&entry.default).chain(known).chain(&entry.hints);
        let seeds = seeds.filter_map(|c| Some((entry.task.space.index_of(c).ok()?, c.clone()))).collect();
        subjects.push(Subject { task: entry.task, predicted_us: entry.predicted_us(), default: entry.default });
        tried.push(entry.history.clone());
        feeds.push(Feed::new(entry.tuner, seeds, entry.history));
    }
    let mut session = Session {
        board,
        subjects,
        feeds,
        tried,
        ready: VecDeque::new(),
        under_way: BTreeMap::new(),
        next_job: 0,
        worker_failures: 0,
        began: Instant::now(),
        options,
        stop,
        listener,
    };
    session.tell(Event::Started)?;
    let ended = session.search(measurer)?;
    let (verdicts, uncompared) = if ended == Ended::Stopped {
        (session.board.groups.iter().map(|_| Verdict::NotDecided).collect(), 0)
    } else {
        session.decide(incumbents, measurer)?
    };
    Ok(Summary { board: session.board, verdicts, ended, uncompared })
}

/// What remains of an entry when its tuner works.
struct Subject<'t> {
    task: &'t Task<'t>,
    default: Config,
    predicted_us: f64,
}

struct Session<'t, 's, 'l> {
    board: Board,
    subjects: Vec<Subject<'t>>,
    feeds: Vec<Feed<'t>>,
    /// All trials of each entry, in the order in which they became known.
    tried: Vec<Vec<Trial>>,
    /// Proposals that wait for the measurer.
    ready: VecDeque<(usize, Slot, Config)>,
    under_way: BTreeMap<JobId, (usize, Slot)>,
    next_job: u64,
    worker_failures: u32,
    began: Instant,
    options: &'s Options,
    stop: &'s Stop,
    listener: &'s mut Listener<'l>,
}

impl<'t> Session<'t, '_, '_> {
    fn tell(&mut self, event: Event<'_>) -> Result<(), SessionError> {
        self.board.elapsed = self.began.elapsed();
        if !matches!(event, Event::Comparing { .. } | Event::Decided { .. }) {
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
    fn left_s(&self) -> Option<f64> {
        self.options.seconds.map(|s| s - self.began.elapsed().as_secs_f64())
    }

    /// Seconds that are kept for the comparison of all workloads at the end: a candidate takes about twice as long as a trial
    /// did, because it has more samples and nothing is built meanwhile. At least half of the time is for trials.
    fn reserve_s(&self) -> f64 {
        let Some(seconds) = self.options.seconds else { return 0.0 };
        let groups = self.tried_groups().count() * self.options.rounds.max(1);
        let all = (groups * self.most_candidates()) as f64 * self.candidate_s();
        all.min(seconds / 2.0)
    }

    /// The most candidates of a comparison: the record, the default, the finalists.
    fn most_candidates(&self) -> usize {
        self.options.finalists + 2
    }

    /// Seconds that a candidate of a comparison may take, before there was one.
    fn candidate_s(&self) -> f64 {
        let made = self.board.made();
        if made == 0 { 0.0 } else { 2.0 * self.board.searched.as_secs_f64() / made as f64 }
    }

    /// Workloads that have trials.
    fn tried_groups(&self) -> impl Iterator<Item = usize> + '_ {
        let tried = |group: &usize| self.board.groups[*group].entries.iter().any(|e| !self.tried[*e].is_empty());
        (0..self.board.groups.len()).filter(tried)
    }

    /// Makes trials until it is over and all that are under way are known.
    fn search(&mut self, measurer: &mut dyn Measurer<'t>) -> Result<Ended, SessionError> {
        loop {
            let mut ended = self.is_over();
            while ended.is_none() && self.under_way.len() < measurer.capacity().max(1) {
                let Some((entry, slot, config)) = self.next_proposal() else { break };
                let id = JobId(self.next_job);
                self.next_job += 1;
                self.board.standings[entry].begun += 1;
                self.under_way.insert(id, (entry, slot));
                measurer.submit(id, self.subjects[entry].task, &config);
                ended = self.is_over();
            }
            if self.under_way.is_empty() {
                // Nothing could be begun, and nothing will change that.
                let all = self.feeds.iter().all(Feed::is_exhausted);
                return Ok(ended.unwrap_or(if all { Ended::Exhausted } else { Ended::Converged }));
            }
            let Some((id, outcome)) = measurer.next(TICK) else {
                self.tell(Event::Waiting)?;
                continue;
            };
            let cost = measurer.last_cost();
            self.take(id, outcome, cost)?;
        }
    }

    /// The next config to measure: of the batches that were granted, or of a new one.
    fn next_proposal(&mut self) -> Option<(usize, Slot, Config)> {
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
            let entry = scheduler::next(&self.board, &able)?;
            // An empty batch means that the tuner waits or has nothing left: it is no longer able.
            let batch = self.feeds[entry].propose();
            self.ready.extend(batch.into_iter().map(|(slot, config)| (entry, slot, config)));
        }
    }

    fn take(&mut self, id: JobId, outcome: Outcome, cost: Option<Duration>) -> Result<(), SessionError> {
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
        self.tell(Event::Trial { entry, trial: &trial, best, cost })?;
        self.tried[entry].push(trial);
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
