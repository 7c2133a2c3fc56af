//! What to time and for how long.

use crate::model;
use crate::tune::measure::Peer;
use std::time::Duration;

/// What to time and for how long.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Options {
    /// How templates are chosen. Records of as many threads as are measured with are preferred, and, where no device is
    /// named, those of the one that measures.
    pub model: model::Options,
    /// Whether the choice by records of other shapes is timed as well.
    pub others: bool,
    /// Libraries of the GPU's vendor that are timed as well, each on the operators that it has.
    pub peers: Vec<Peer>,
    /// No workload is begun after this time.
    pub limit: Option<Duration>,
    /// How often the whole list is timed; each row is of the round that was disturbed least, see [`Comparison::calmer`](crate::tune::measure::Comparison::calmer).
    /// 0 counts as 1.
    pub rounds: usize,
}
