//! Measurers: what becomes of a config on a device.

use super::Task;
use crate::records::Outcome;
use crate::space::Config;
use std::time::Duration;

/// The number by which a caller knows a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId(pub u64);

/// Compiles, checks and times configs, many at the same time as far as the device allows.
pub trait Measurer<'r> {
    /// How many jobs should be under way so that neither compilers nor device wait.
    fn capacity(&self) -> usize;

    /// Takes a config of a task. Its outcome comes from [`Measurer::next`].
    fn submit(&mut self, id: JobId, task: &Task<'r>, config: &Config);

    /// The next outcome, of any job; none after `wait`, or when nothing is under way.
    fn next(&mut self, wait: Duration) -> Option<(JobId, Outcome)>;

    /// Times candidates of one workload, of one template or of several, against each other. Their samples are interleaved
    /// so that drift of clocks cancels: sample `i` of each was taken at about the same time. Outcomes in the order of the
    /// candidates. Nothing else is under way meanwhile.
    fn compare(&mut self, candidates: &[(&Task<'r>, &Config)]) -> Vec<Outcome>;
}
