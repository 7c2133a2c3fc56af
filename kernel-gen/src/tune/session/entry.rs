//! What a session is given: tasks, records, and when to end.

use crate::records::Trial;
use crate::space::Config;
use crate::tune::Task;
use crate::tune::tuner::Tuner;

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
    /// A task is done after this many trials in a row without a gain of more than [`MIN_GAIN`](super::MIN_GAIN), if its tuner expects none.
    /// Trials that could not be measured do not count. No more are begun than may follow the last gain, so none is made
    /// beyond this number.
    pub patience: u64,
    /// How many of the fastest configs of a workload are timed once more.
    pub finalists: usize,
    /// How often all workloads' finalists are timed, one workload after the other; what counts is the round that was
    /// disturbed least, see [`Comparison::calmer`](crate::tune::measure::Comparison::calmer).
    pub rounds: usize,
    /// Threads on which tuners think while the session serves its measurer; with 0 they think in its own thread, and which task has
    /// the next trial does not depend on time.
    pub thinkers: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { trials: 128, seconds: None, patience: 64, finalists: 4, rounds: 1, thinkers: 0 }
    }
}
