//! What a session tells: what happens, how it ended, and what it found.

use super::board::Board;
use super::doubt::Doubt;
use super::verdict::Verdict;
use crate::records::Trial;
use crate::tune::measure::Worker;
use std::fmt;
use std::time::Duration;

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
        /// Who made it; none for this process.
        worker: Option<&'a Worker>,
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
    /// Workers of a fleet whose times others could not repeat.
    pub doubts: Vec<Doubt>,
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
pub(super) const WORKER_FAILURES: u32 = 16;
