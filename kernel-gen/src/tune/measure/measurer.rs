//! What measures configs: the trait, and one that is ready.

use super::{Comparison, Peer, Provenance};
use crate::records::Outcome;
use crate::space::Config;
use crate::tune::Task;
use std::time::Duration;

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
