//! The default tuner.
//!
//! 1. All configs of the space, or a large sample and what lies around the best of it, are ranked by the template's
//!    prediction, corrected by earlier tasks (draft with a formula, verify by measuring: Pruner, Qiao et al., 2024).
//! 2. The first batch is the template's default, the best of that ranking, none too like another, and a third of it as
//!    different as can be: if the prediction is bad, these show it.
//! 3. After every batch two models are fitted to all that was measured; both take the prediction for one number among
//!    others, so that it counts as far as it is true. A Gaussian process is the better one while trials are few, and most
//!    of a batch is what it believes may be the fastest (the lower confidence bound of Cox and John, 1992; Bayesian
//!    optimisation suits tuning: Willemsen et al., 2021), and none too like another. From 64 trials on every eighth place
//!    is for boosted trees, each time for another of their members (Thompson sampling, 1933).
//! 4. One place of four looks only around the best configs: one knob away from those that are not significantly
//!    slower than the fastest. That is coordinate descent, ordered by a model and not by the knobs.
//!
//! Batches are small while every outcome changes much, and grow with what is known. How long a config is measured is the
//! measurer's choice: it takes samples until the interval is narrow, so what is slow costs little, which is what
//! successive halving is for.

use super::anneal::{Schedule, anneal};
use super::driver::{Known, Method};
use super::pool::{Pool, Scope, estimate};
use crate::model::learned::{Objective, Surrogate};
use crate::space::Rng;
use std::cell::OnceCell;
use std::collections::BTreeSet;

pub(super) struct Auto<'t> {
    scope: Scope<'t>,
    pool: Option<Pool>,
    rng: Rng,
    gain: Option<f64>,
    /// Batches with a model.
    rounds: usize,
}

/// Configs of the first batch.
const FIRST: usize = 8;

/// Configs of a batch, until so many were tried that the next fit can wait for more.
const BATCH: usize = 4;

/// One config more in a batch for so many trials.
const GROWTH: usize = 16;

/// How much slower a config may be predicted to be that is unlike the others of the first batch, as a logarithm.
const DIVERSITY: f64 = 0.5;

/// Likewise within a later batch.
const APART: f64 = 0.1;

/// Deviations that are hoped for in each of four places, of which the first looks only around the best.
const HOPE: [f64; 4] = [0.3, 1.0, 0.3, 1.0];

/// Trials from which on trees have a say: with fewer they know less than the process.
const TREES_FROM: usize = 64;

/// One place in so many is for trees.
const TREES: usize = 8;

/// Configs around which is looked.
const CENTRES: usize = 3;

/// Configs of which it is worked out how sure the process is.
const SURE: usize = 512;

impl<'t> Auto<'t> {
    pub(super) fn new(scope: Scope<'t>) -> Auto<'t> {
        let rng = Rng::new(scope.seed ^ 0x6175_746f);
        Auto { scope, pool: None, rng, gain: None, rounds: 0 }
    }

    /// What to try while nothing is known but the prediction.
    fn first(&mut self, pool: &Pool, known: &Known<'_>) -> Vec<u64> {
        let mut batch: Vec<u64> = self.scope.default_index().into_iter().collect();
        let may = |i: u64| !known.is_seen(i) && !batch.contains(&i);
        let ranked = pool.best_apart(FIRST * 2 / 3 - batch.len(), DIVERSITY, &pool.priors, may);
        batch.extend(ranked);
        let may = |i: u64| !known.is_seen(i);
        let different = pool.apart(FIRST - batch.len(), &batch, &mut self.rng, may);
        batch.extend(different);
        batch
    }

    /// What lies around the best, and what trees like elsewhere, comes into a pool that does not hold the space.
    fn widen(&mut self, pool: &mut Pool, around: &BTreeSet<u64>, trees: &Surrogate) {
        let scope = &self.scope;
        pool.add(scope, around.iter().copied());
        let means: Vec<f64> = pool.opinions(scope, trees).iter().map(|o| estimate(o).mean).collect();
        let starts = pool.best_apart(16, APART, &means, |_| true);
        let with = Schedule { steps: 40, heat: 0.1, keep: 128 };
        let found = anneal(scope.space(), &starts, with, &mut self.rng, |indices| scope.means(trees, indices));
        pool.add(scope, found);
    }

    /// The next batch of what models like.
    fn next(&mut self, pool: &Pool, known: &Known<'_>, around: &BTreeSet<u64>, trees: &Surrogate) -> Vec<u64> {
        let beliefs = self.scope.believe(pool, known, SURE, around);
        // Scoring all of a pool by trees takes longer than all else, and most batches have no place for them.
        let opinions = OnceCell::new();
        let places = |may: &dyn Fn(u64) -> bool| -> Vec<usize> {
            (0..pool.indices.len()).filter(|i| !known.is_seen(pool.indices[*i]) && may(pool.indices[*i])).collect()
        };
        let (all, near) = (places(&|_| true), places(&|i| around.contains(&i)));
        let mut taken: Vec<usize> = vec![];
        for place in 0..BATCH.max(known.tried.len() / GROWTH) {
            let turn = self.rounds * BATCH + place;
            let best = match &beliefs {
                Some(beliefs) if known.tried.len() < TREES_FROM || turn % TREES != TREES - 1 => {
                    let among = if place % HOPE.len() == 0 && !near.is_empty() { &near } else { &all };
                    let score = |i: usize| {
                        let alike = taken.iter().map(|t| pool.likeness(*t, i)).fold(0.0, f64::max);
                        Some(beliefs.means[i] - HOPE[place % HOPE.len()] * beliefs.deviations[i]? + APART * alike)
                    };
                    least(among.iter().filter(|i| !taken.contains(i)).filter_map(|i| Some((score(*i)?, *i))))
                }
                _ => {
                    let member = turn / TREES;
                    let opinions = opinions.get_or_init(|| pool.opinions(&self.scope, trees));
                    let score = |i: usize| opinions[i][member % opinions[i].len()];
                    least(all.iter().filter(|i| !taken.contains(i)).map(|i| (score(*i), *i)))
                }
            };
            taken.extend(best);
        }
        self.rounds += 1;
        self.gain = beliefs.map(|beliefs| {
            // The most that one config is expected to be faster than the best (Mockus, 1978).
            let expected = |i: &usize| Some(improvement(-beliefs.means[*i], beliefs.deviations[*i]?));
            1.0 - (-all.iter().filter_map(expected).fold(0.0, f64::max)).exp()
        });
        taken.into_iter().map(|i| pool.indices[i]).collect()
    }
}

/// The second of the pair with the least first, the earliest of equals.
fn least(scored: impl Iterator<Item = (f64, usize)>) -> Option<usize> {
    scored.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map(|(_, i)| i)
}

/// The mean of what is positive of a normal variable.
fn improvement(mean: f64, deviation: f64) -> f64 {
    if deviation <= 0.0 {
        return mean.max(0.0);
    }
    let z = mean / deviation;
    // The normal distribution by its logistic approximation (Bowling et al., 2009): right to four decimals.
    let below = 1.0 / (1.0 + (-0.07056 * z.powi(3) - 1.5976 * z).exp());
    let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    (mean * below + deviation * density).max(0.0)
}

/// The fastest configs, as far as the fastest of them is not faster beyond doubt, and at most so many.
fn centres(known: &Known<'_>) -> Vec<u64> {
    let ranked = known.by_speed();
    let Some(best) = ranked.first().map(|t| t.index) else { return vec![] };
    let tied = ranked.iter().take(CENTRES).filter(|t| !known.beats(best, t.index)).count();
    ranked.iter().take(tied.max(1)).map(|t| t.index).collect()
}

impl Method for Auto<'_> {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn plan(&mut self, known: &mut Known<'_>) -> Vec<u64> {
        let mut pool = self.pool.take().unwrap_or_else(|| Pool::new(&self.scope));
        let fitted = self.scope.fit(&mut pool, known, Objective::Time);
        let batch = match fitted.filter(|_| known.tried.len() >= FIRST / 2) {
            Some(trees) => {
                let around: BTreeSet<u64> = centres(known).iter().flat_map(|c| known.space.neighbours(*c)).collect();
                if !pool.whole {
                    self.widen(&mut pool, &around, &trees);
                }
                self.next(&pool, known, &around, &trees)
            }
            None => self.first(&pool, known),
        };
        self.pool = Some(pool);
        batch
    }

    fn expected_gain(&self) -> Option<f64> {
        self.gain
    }
}
