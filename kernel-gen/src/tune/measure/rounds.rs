//! Comparisons of the same candidates, time after time, on a machine that is shared with others.

use super::Comparison;
use crate::records::Outcome;

/// What is known of candidates that are compared in several rounds.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Rounds {
    calmest: Option<Comparison>,
    floors_us: Vec<Option<f64>>,
}

impl Rounds {
    /// Takes another comparison of the same candidates.
    pub fn add(&mut self, again: Comparison) {
        self.floors_us.resize(again.outcomes.len(), None);
        for (floor, outcome) in self.floors_us.iter_mut().zip(&again.outcomes) {
            let Outcome::Timed(timing) = outcome else { continue };
            *floor = floor.iter().copied().chain(timing.floor_us()).min_by(f64::total_cmp);
        }
        self.calmest = Some(match self.calmest.take() {
            Some(before) => before.calmer(again),
            None => again,
        });
    }

    /// The round that was disturbed least, see [`Comparison::calmer`]; none before the first.
    pub fn calmest(&self) -> Option<&Comparison> {
        self.calmest.as_ref()
    }

    /// What a call of a candidate takes where nothing disturbs it, in microseconds: the least
    /// [`Timing::floor_us`](crate::records::Timing::floor_us) of all rounds. Medians follow what the neighbours do in the very
    /// minutes; the least of several minutes comes back.
    pub fn floor_us(&self, candidate: usize) -> Option<f64> {
        self.floors_us.get(candidate).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Failure, FailureKind, Timing};

    #[test]
    fn the_floor_is_of_all_rounds_and_the_verdict_of_the_calmest() {
        let timed = |samples: &[f64]| Outcome::Timed(Timing { samples_us: samples.to_vec(), ..Timing::default() });
        let of = |outcomes: Vec<Outcome>| Comparison { outcomes, peers: vec![] };
        let lost = || Outcome::Failed(Failure { kind: FailureKind::Worker, detail: "gone".to_string() });
        let mut rounds = Rounds::default();
        assert_eq!((rounds.calmest(), rounds.floor_us(0)), (None, None));
        // The least sample of each is an accident.
        let calm = of(vec![timed(&[11.0, 10.5, 3.0]), timed(&[20.0, 21.0, 22.0])]);
        rounds.add(calm.clone());
        // The second candidate had a calm moment in a round that was disturbed.
        rounds.add(of(vec![timed(&[14.0, 15.0, 16.0]), timed(&[17.0, 18.0, 60.0, 61.0, 62.0])]));
        rounds.add(of(vec![lost(), lost()]));
        assert_eq!(rounds.calmest(), Some(&calm));
        assert_eq!((rounds.floor_us(0), rounds.floor_us(1), rounds.floor_us(2)), (Some(10.5), Some(18.0), None));
    }
}
