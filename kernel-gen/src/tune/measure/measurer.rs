//! What measures configs: the trait, and one that is ready.

use super::{Comparison, Peer, Provenance};
use crate::records::Outcome;
use crate::space::Config;
use crate::tune::Task;
use std::sync::Arc;
use std::time::Duration;

/// A process elsewhere that measures.
#[derive(Clone, PartialEq, Debug)]
pub struct Worker {
    /// Its name, which no other has.
    pub name: String,
    /// What it measures on.
    pub provenance: Provenance,
}

/// A comparison that is asked for.
#[derive(Clone, Debug)]
pub struct Contest<'c, 'r> {
    /// The candidates, all of one workload.
    pub candidates: Vec<(&'c Task<'r>, &'c Config)>,
    /// The workers that are not to do it.
    pub not_by: Vec<String>,
}

/// What came of a [`Contest`].
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// The outcomes.
    pub comparison: Comparison,
    /// Who compared; none for this process.
    pub worker: Option<Arc<Worker>>,
}

/// How far the time of a config that one worker measured is from that of another.
#[derive(Clone, PartialEq, Debug)]
pub struct Repeated {
    /// The worker.
    pub worker: String,
    /// The other one.
    pub other: String,
    /// The time of the first divided by that of the second.
    pub ratio: f64,
}

/// The number by which a caller knows a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId(pub u64);

/// Compiles, checks and times configs, many at the same time as far as the device allows.
pub trait Measurer<'r> {
    /// How many jobs should be under way so that neither compilers nor device wait.
    fn capacity(&self) -> usize;

    /// How many devices measure.
    fn workers(&self) -> usize {
        1
    }

    /// Takes a config of a task. Its outcome comes from [`Measurer::next`].
    fn submit(&mut self, id: JobId, task: &Task<'r>, config: &Config);

    /// The next outcome, of any job; none after `wait`, or when nothing is under way.
    fn next(&mut self, wait: Duration) -> Option<(JobId, Outcome)>;

    /// How long it took to build, check and time the job whose outcome was given last, waiting excluded; none where that is not
    /// known.
    fn last_cost(&self) -> Option<Duration> {
        None
    }

    /// Who measured the job whose outcome was given last; none for this process.
    fn last_worker(&self) -> Option<Arc<Worker>> {
        None
    }

    /// Configs that two workers measured, since it was asked last.
    fn repeated(&mut self) -> Vec<Repeated> {
        vec![]
    }

    /// How the fleet does, in a line; none without one.
    fn standing(&self) -> Option<String> {
        None
    }

    /// As [`Measurer::compare`], for several workloads; a fleet does many at the same time. `goes_on` is asked now and then: where
    /// it says no, what was not done is left. None for what was left, and where nobody is there that may do it.
    fn compare_all(&mut self, all: &[Contest<'_, 'r>], goes_on: &mut dyn FnMut() -> bool) -> Vec<Option<Judged>> {
        let one = |contest: &Contest<'_, 'r>| {
            if !contest.not_by.is_empty() || !goes_on() {
                return None;
            }
            let comparison = Comparison { outcomes: self.compare(&contest.candidates), peers: vec![] };
            Some(Judged { comparison, worker: None })
        };
        all.iter().map(one).collect()
    }

    /// Times candidates of one workload, of one template or of several, against each other. Their samples are interleaved
    /// so that drift of clocks cancels: sample `i` of each was taken at about the same time. Outcomes in the order of the
    /// candidates. Nothing else is under way meanwhile.
    fn compare(&mut self, candidates: &[(&Task<'r>, &Config)]) -> Vec<Outcome>;

    /// As [`Measurer::compare`], with libraries of the device's vendor in the same turns, on the same operands. A measurer
    /// that has no device has none of them.
    fn compare_with(&mut self, candidates: &[(&Task<'r>, &Config)], peers: &[Peer]) -> Comparison {
        let none = || Err("there is no device that it runs on".to_string());
        Comparison { outcomes: self.compare(candidates), peers: peers.iter().map(|_| none()).collect() }
    }
}

/// A device of this machine, ready to measure.
pub struct Attached<'m, 'r> {
    /// What measures.
    pub measurer: Box<dyn Measurer<'r> + 'm>,
    /// What it measures on.
    pub provenance: Provenance,
}
