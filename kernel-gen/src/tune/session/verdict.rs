//! What follows from a comparison: whether a workload has a better config than its record.

use super::board::MIN_GAIN;
use crate::records::{FailureKind, Outcome, Timing, median};
use crate::space::Config;

/// Where a candidate comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The record that there is.
    Incumbent,
    /// The config that is used without any record.
    Default,
    /// The search.
    Search,
}

/// A config that ran in the final comparison.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// The entry whose template it is of.
    pub entry: usize,
    /// The config.
    pub config: Config,
    /// Where it comes from. A config that is several things is the first of [`Source`]'s that holds.
    pub source: Source,
    /// Whether it is the config that is used without any record, wherever else it comes from.
    pub is_default: bool,
    /// What became of it in the comparison.
    pub outcome: Outcome,
    /// What it takes where nothing disturbs it, in microseconds, if it ran, see [`Rounds::floor_us`](crate::tune::measure::Rounds::floor_us).
    pub floor_us: Option<f64>,
    /// How far apart two machines of a fleet are at it: the longer of their times divided by the shorter, if two timed it.
    pub spread: Option<f64>,
}

/// What became of a workload.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// The session was ended before its end, or before the workload had its turn.
    NotDecided,
    /// No config ran.
    Nothing {
        /// All candidates: of earlier trials that were valid then, if there are any.
        candidates: Vec<Candidate>,
    },
    /// The record stays: nothing was faster by more than the noise.
    Kept {
        /// All candidates.
        candidates: Vec<Candidate>,
        /// The place of the record among them.
        incumbent: usize,
    },
    /// There is a new record.
    Won {
        /// All candidates.
        candidates: Vec<Candidate>,
        /// The place of the winner among them.
        winner: usize,
        /// The place of the record that it beat, if there was one that ran.
        incumbent: Option<usize>,
    },
}

impl Verdict {
    /// All candidates of the comparison.
    pub fn candidates(&self) -> &[Candidate] {
        match self {
            Verdict::NotDecided => &[],
            Verdict::Nothing { candidates } | Verdict::Kept { candidates, .. } | Verdict::Won { candidates, .. } => {
                candidates
            }
        }
    }

    /// The config to use from now on, if there is one.
    pub fn choice(&self) -> Option<&Candidate> {
        match self {
            Verdict::NotDecided | Verdict::Nothing { .. } => None,
            Verdict::Kept { candidates, incumbent } => candidates.get(*incumbent),
            Verdict::Won { candidates, winner, .. } => candidates.get(*winner),
        }
    }

    /// The config that is used without any record, if it was compared.
    pub fn default(&self) -> Option<&Candidate> {
        self.candidates().iter().find(|c| c.is_default)
    }

    /// The record that there was, if it was compared.
    pub fn incumbent(&self) -> Option<&Candidate> {
        self.candidates().iter().find(|c| c.source == Source::Incumbent)
    }

    /// How many times as long as the choice another candidate took, by what they are compared by, if both ran.
    pub fn times_choice(&self, other: Option<&Candidate>) -> Option<f64> {
        Some(other?.compared_us()? / self.choice()?.compared_us()?)
    }
}

impl Candidate {
    /// The median of what it is compared by, in microseconds, if it ran, see [`Timing::compared_us`].
    pub fn compared_us(&self) -> Option<f64> {
        self.timing().map(|t| median(&t.compared_us()))
    }

    /// How long it took, if it ran.
    fn timing(&self) -> Option<&Timing> {
        match &self.outcome {
            Outcome::Timed(timing) => Some(timing),
            Outcome::Failed(_) => None,
        }
    }
}

/// Whether one timing is better than another by more than the noise of both.
///
/// Both by [`Timing::compared_us`]. Samples that were taken alternately are compared in pairs, so that what slowed both down does not count: the median of
/// the ratios must be below 1 by two standard errors of that median, and by [`MIN_GAIN`] in any case. The standard error
/// comes from the median absolute deviation, which a few disturbed samples do not move.
pub fn beats(challenger: &Timing, incumbent: &Timing) -> bool {
    let (a, b) = (&challenger.compared_us(), &incumbent.compared_us());
    let (ratio, error) = if a.len() == b.len() && a.len() >= 3 {
        let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
        middle_and_error(&ratios)
    } else {
        let (a, b) = (middle_and_error(a), middle_and_error(b));
        let relative = (a.1 / a.0).hypot(b.1 / b.0);
        (a.0 / b.0, a.0 / b.0 * relative)
    };
    // A comparison with what is no number is never won.
    ratio < 1.0 - MIN_GAIN.max(2.0 * error)
}

/// The median and its standard error.
fn middle_and_error(samples: &[f64]) -> (f64, f64) {
    let middle = median(samples);
    let deviations: Vec<f64> = samples.iter().map(|s| (s - middle).abs()).collect();
    // 1.4826 makes the deviation that of a normal distribution; its median scatters 1.2533 times as much as its mean.
    (middle, 1.2533 * 1.4826 * median(&deviations) / (samples.len() as f64).sqrt())
}

/// What follows from the outcomes of a comparison.
pub(super) fn verdict(candidates: Vec<Candidate>) -> Verdict {
    let fastest = candidates
        .iter()
        .enumerate()
        .filter_map(|(at, c)| Some((at, median(&c.timing()?.compared_us()))))
        .filter(|(_, us)| us.is_finite())
        .min_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(at, _)| at);
    let incumbent = candidates.iter().position(|c| c.source == Source::Incumbent);
    // A record that could not be asked for reasons that are not its own is not beaten.
    let unasked = |at: usize| match &candidates[at].outcome {
        Outcome::Failed(failure) => failure.kind == FailureKind::Worker,
        Outcome::Timed(_) => false,
    };
    let stays = incumbent.filter(|at| {
        unasked(*at)
            || match (candidates[*at].timing(), fastest.and_then(|at| candidates[at].timing())) {
                (Some(old), Some(new)) => !beats(new, old),
                _ => false,
            }
    });
    match (stays, fastest) {
        (Some(incumbent), _) => Verdict::Kept { candidates, incumbent },
        (None, Some(winner)) => {
            let incumbent = incumbent.filter(|at| candidates[*at].timing().is_some());
            Verdict::Won { candidates, winner, incumbent }
        }
        (None, None) => Verdict::Nothing { candidates },
    }
}
