//! Simulated annealing over a space (Kirkpatrick, Gelatt and Vecchi, 1983), as AutoTVM uses it to find what its model
//! likes: many chains at once, steps to random neighbours, a temperature that falls to nothing.

use crate::space::{Rng, Space};
use std::collections::BTreeMap;

/// How to anneal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// Steps of each chain.
    pub(super) steps: usize,
    /// Temperature at the start, in the unit of the scores.
    pub(super) heat: f64,
    /// Configs to return.
    pub(super) keep: usize,
}

/// The configs with the least scores that chains from the given starts came upon, best first. `score` rates many at once.
pub(super) fn anneal(
    space: &Space,
    starts: &[u64],
    with: Schedule,
    rng: &mut Rng,
    score: impl Fn(&[u64]) -> Vec<f64>,
) -> Vec<u64> {
    let mut chains: Vec<u64> = starts.to_vec();
    let mut scores = score(&chains);
    // Every config met, and what it scored: a memory of what was rated already, too.
    let mut met: BTreeMap<u64, f64> = chains.iter().copied().zip(scores.iter().copied()).collect();
    for step in 0..with.steps {
        let heat = with.heat * (1.0 - step as f64 / with.steps as f64);
        let next: Vec<u64> = chains.iter().map(|at| space.random_step(*at, rng).unwrap_or(*at)).collect();
        let mut new: Vec<u64> = next.iter().copied().filter(|i| !met.contains_key(i)).collect();
        new.sort_unstable();
        new.dedup();
        met.extend(new.iter().copied().zip(score(&new)));
        for (chain, next) in next.into_iter().enumerate() {
            let (found, worse) = (met[&next], met[&next] - scores[chain]);
            // The draw is made in any case, so that a chain's luck does not depend on the scores of others.
            let luck = rng.unit();
            if worse <= 0.0 || luck < (-worse / heat.max(1e-12)).exp() {
                (chains[chain], scores[chain]) = (next, found);
            }
        }
    }
    let mut all: Vec<(u64, f64)> = met.into_iter().collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    all.into_iter().take(with.keep).map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_the_bottom_past_a_ridge() {
        let space = Space::builder().knob("a", 0..100).knob("b", 0..100).build().unwrap();
        let score = |indices: &[u64]| -> Vec<f64> {
            let of = |i: &u64| {
                let point = space.point_of(*i);
                let (a, b) = (point[0] as f64 - 70.0, point[1] as f64 - 20.0);
                a.abs() + b.abs() + if (-20.0..-5.0).contains(&a) { 30.0 } else { 0.0 }
            };
            indices.iter().map(of).collect()
        };
        let with = Schedule { steps: 200, heat: 10.0, keep: 3 };
        let run = |seed| anneal(&space, &[0, 1, 2, 3], with, &mut Rng::new(seed), score);
        let found = run(1);
        assert_eq!(found, run(1));
        assert_eq!(found.len(), 3);
        assert!(score(&found)[0] < 5.0, "{:?}", score(&found));
    }
}
