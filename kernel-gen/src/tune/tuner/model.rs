//! The learned model and simulated annealing: AutoTVM's XGBTuner, with what it lacked.
//!
//! The first batch is half what the template's prediction ranks first (corrected by earlier tasks), half random. Then
//! trees learn the order of what was tried, on top of the prediction; annealing, from what they rank first, finds what
//! they like best in the whole space. Half of a batch is what they rank first, half what a Gaussian process believes may
//! be the fastest, none too like another, and one config of every second batch is random (epsilon-greedy).
//!
//! Against AutoTVM: batches of 8 and not 64, so that 128 trials are fifteen fits and not one; failures count as slow and
//! not as 0 FLOP/s, so that the model does not spend itself on them; diversity weighs against the score, not instead of
//! it; the space is searched whole where it is small enough.

use super::anneal::{Schedule, anneal};
use super::driver::{Known, Method};
use super::pool::{Pool, Scope, estimate};
use crate::model::learned::{Objective, Surrogate};
use crate::space::Rng;
use std::collections::BTreeSet;

pub(super) struct Model<'t> {
    scope: Scope<'t>,
    pool: Option<Pool>,
    rng: Rng,
    /// Batches with a model.
    rounds: usize,
}

/// Configs of a batch, until so many were tried that the next fit can wait for more.
const BATCH: usize = 8;

/// Configs of which it is worked out how sure the process is.
const SURE: usize = 512;

/// How much worse a config may be that is unlike the others of its batch: orders differ by about 1 between good and bad.
const DIVERSITY: f64 = 0.1;

impl<'t> Model<'t> {
    pub(super) fn new(scope: Scope<'t>) -> Model<'t> {
        let rng = Rng::new(scope.seed);
        Model { scope, pool: None, rng, rounds: 0 }
    }

    /// What the model likes in a space that is too large to look at whole.
    fn search(&mut self, pool: &mut Pool, model: &Surrogate, scores: &[f64]) {
        let starts = pool.best_apart(32, DIVERSITY, scores, |_| true);
        let spread = estimate(scores).spread;
        let with = Schedule { steps: 60, heat: 0.3 * spread, keep: 256 };
        let scope = &self.scope;
        let found = anneal(scope.space(), &starts, with, &mut self.rng, |indices| scope.means(model, indices));
        pool.add(scope, found);
    }
}

impl Method for Model<'_> {
    fn name(&self) -> &'static str {
        "model"
    }

    fn plan(&mut self, known: &mut Known<'_>) -> Vec<u64> {
        let mut pool = self.pool.take().unwrap_or_else(|| Pool::new(&self.scope));
        let count = BATCH.max(known.tried.len() / 16);
        let batch = match self.scope.fit(&mut pool, known, Objective::Order) {
            Some(model) => {
                let means = |scope: &Scope<'_>, pool: &Pool| -> Vec<f64> {
                    pool.opinions(scope, &model).iter().map(|o| estimate(o).mean).collect()
                };
                let mut scores = means(&self.scope, &pool);
                if !pool.whole {
                    self.search(&mut pool, &model, &scores);
                    scores = means(&self.scope, &pool);
                }
                let beliefs = self.scope.believe(&pool, known, SURE, &BTreeSet::new());
                self.rounds += 1;
                let random = usize::from(self.rounds.is_multiple_of(2));
                let mut batch = known.fresh(random);
                batch.extend(pool.best_apart((count - random) / 2, DIVERSITY, &scores, |i| !known.is_seen(i)));
                if let Some(beliefs) = beliefs {
                    let hope = |i: usize| beliefs.deviations[i].map_or(f64::INFINITY, |d| beliefs.means[i] - d);
                    let hopes: Vec<f64> = (0..pool.indices.len()).map(hope).collect();
                    let may = |i: u64| !known.is_seen(i) && !batch.contains(&i);
                    let more = pool.best_apart(count - batch.len(), DIVERSITY, &hopes, may);
                    batch.extend(more);
                }
                batch
            }
            None => {
                let mut batch = pool.best_apart(count / 2, 0.3, &pool.priors, |i| !known.is_seen(i));
                batch.extend(known.fresh(count - batch.len()));
                batch
            }
        };
        self.pool = Some(pool);
        batch
    }
}
