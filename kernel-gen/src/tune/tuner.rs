//! Tuners: which configs to try next.

use crate::records::Trial;
use crate::space::Config;

/// A way to search a task's space.
pub trait Tuner: Send {
    /// Its name on the command line and in logs.
    fn name(&self) -> &'static str;

    /// The configs to try next, at most `most`, with their indices: valid ones that it never proposed before. Fewer than
    /// `most` end its batch: it wants to see their outcomes first. None when it has nothing left to propose.
    fn propose(&mut self, most: usize) -> Vec<(u64, Config)>;

    /// Takes outcomes of proposals, in the order of the proposals. Also called before the first proposal with trials of an
    /// earlier run, which it then does not propose again.
    fn observe(&mut self, trials: &[Trial]);

    /// By how much it expects its next batch to lower the best time, as a share of that time; none if it cannot say.
    /// A session may stop where this is less than the noise of a measurement.
    fn expected_gain(&self) -> Option<f64> {
        None
    }
}
