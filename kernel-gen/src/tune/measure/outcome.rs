//! Outcomes on their way between processes and machines.

use crate::records::{Failure, FailureKind, Outcome, Timing};
use serde::{Deserialize, Serialize};

/// An outcome on its way.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum WireOutcome {
    /// It was checked and timed.
    Timed(Timing),
    /// It failed.
    Failed {
        /// [`FailureKind::name`].
        kind: String,
        /// What was said.
        detail: String,
    },
}

/// The most bytes of a failure's detail.
const MOST_DETAIL: usize = 2000;

impl WireOutcome {
    /// The outcome, of somebody who may lie or be mistaken.
    ///
    /// # Errors
    /// If it cannot be true: no samples or more than `most`, times that are not above 0, an error beyond the bound.
    pub fn checked(mut self, most: usize) -> Result<Outcome, String> {
        if let WireOutcome::Failed { detail, .. } = &mut self {
            detail
                .truncate((0..=MOST_DETAIL.min(detail.len())).rev().find(|i| detail.is_char_boundary(*i)).unwrap_or(0));
        }
        if let WireOutcome::Timed(timing) = &self {
            let time = |t: &f64| t.is_finite() && *t > 0.0;
            let times =
                [&timing.samples_us, &timing.cold_us, &timing.apart_us, &timing.apart_cold_us, &timing.core_gflops];
            if let Some(many) = times.iter().find(|times| times.len() > most) {
                return Err(format!("it has {} samples where {most} are the most", many.len()));
            }
            if timing.samples_us.is_empty() || !times.into_iter().flatten().all(time) {
                return Err("a time is not a finite number above 0".into());
            }
            if !(0.0..=1.0).contains(&timing.max_error) {
                return Err(format!("its error is {} of its bound, and yet it was timed", timing.max_error));
            }
        }
        Ok(self.into())
    }
}

impl From<Result<Timing, Failure>> for WireOutcome {
    fn from(outcome: Result<Timing, Failure>) -> Self {
        match outcome {
            Ok(timing) => WireOutcome::Timed(timing),
            Err(Failure { kind, detail }) => WireOutcome::Failed { kind: kind.name().to_string(), detail },
        }
    }
}

impl From<Outcome> for WireOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Timed(timing) => Ok(timing).into(),
            Outcome::Failed(failure) => Err(failure).into(),
        }
    }
}

impl From<WireOutcome> for Outcome {
    fn from(outcome: WireOutcome) -> Self {
        match outcome {
            WireOutcome::Timed(timing) => Outcome::Timed(timing),
            WireOutcome::Failed { kind, detail } => {
                Outcome::Failed(Failure { kind: FailureKind::from_name(&kind).unwrap_or(FailureKind::Worker), detail })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_survive_the_journey() {
        let failure = Failure { kind: FailureKind::WrongAnswer, detail: "element 3".into() };
        let timing = Timing { samples_us: vec![1.25, 0.1], max_error: 0.5, ..Timing::default() };
        for outcome in [Err(failure), Ok(timing)] {
            let text = serde_json::to_string(&WireOutcome::from(outcome.clone())).unwrap();
            let back: WireOutcome = serde_json::from_str(&text).unwrap();
            assert_eq!(Outcome::from(back), outcome.map_or_else(Outcome::Failed, Outcome::Timed));
        }
    }
}
