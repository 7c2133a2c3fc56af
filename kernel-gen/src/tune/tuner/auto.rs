//! The default tuner.
//!
//! 1. All configs of the space, or a large sample and what lies around the best of it, are ranked by the template's
//!    prediction, corrected by earlier tasks (draft with a formula, verify by measuring: Pruner, Qiao et al., 2024).
//! 2. The first batch is the template's default, the best of that ranking, none too like another, and a third of it as
//!    different as can be: if the prediction is bad, these show it.
//! 3. Boosted trees on top of the prediction learn from what was measured, after every batch. Their members disagree where
//!    they cannot know. Each place of the next batch believes another member and takes what that one ranks first (Thompson
//!    sampling, 1933): so a batch tries what is likely to be fast and what may be.
//! 4. Half of the places look only around the best configs: one knob away from those that are not significantly slower
//!    than the fastest. That is the descent, ordered by the model and not by the knobs.
//!
//! Batches are small while every outcome changes much, and grow later. How long a config is measured is the measurer's:
//! it takes samples until the interval is narrow, so what is slow costs little, which is what successive halving is for.

use super::anneal::{Schedule, anneal};
use super::driver::{Known, Method};
use super::pool::{Pool, Scope, estimate};
use crate::model::learned::Objective;
use crate::space::Rng;
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
const FIRST: usize = 16;

/// Configs of a batch, until so many were tried that the next fit can wait for more.
const BATCH: usize = 8;

/// How much slower a config may be predicted to be that is unlike the others of the first batch, as a logarithm.
const DIVERSITY: f64 = 0.5;

/// Configs around which is looked.
const CENTRES: usize = 3;

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
}

/// The fastest configs of which none is faster than the others beyond doubt, and the next ones.
fn centres(known: &Known<'_>) -> Vec<u64> {
    let ranked = known.by_speed();
    let Some(best) = ranked.first().map(|t| t.index) else { return vec![] };
    let tied = ranked.iter().filter(|t| !known.beats(best, t.index)).count();
    ranked.iter().take(tied.clamp(1, CENTRES)).map(|t| t.index).collect()
}

impl Method for Auto<'_> {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn plan(&mut self, known: &mut Known<'_>) -> Vec<u64> {
        let mut pool = self.pool.take().unwrap_or_else(|| Pool::new(&self.scope));
        let fitted = self.scope.fit(&mut pool, known, Objective::Time);
        let Some(model) = fitted.filter(|_| known.tried.len() >= BATCH) else {
            let batch = self.first(&pool, known);
            self.pool = Some(pool);
            return batch;
        };
        let scope = &self.scope;
        let around: BTreeSet<u64> = centres(known).iter().flat_map(|c| known.space.neighbours(*c)).collect();
        if !pool.whole {
            pool.add(scope, around.iter().copied());
            let means: Vec<f64> = pool.opinions(scope, &model).iter().map(|o| estimate(o).mean).collect();
            let starts = pool.best_apart(16, 0.1, &means, |_| true);
            let with = Schedule { steps: 40, heat: 0.1, keep: 128 };
            let found = anneal(scope.space(), &starts, with, &mut self.rng, |indices| scope.means(&model, indices));
            pool.add(scope, found);
        }
        let opinions = pool.opinions(scope, &model);
        let count = BATCH.max(known.tried.len() / 8);
        let mut batch: Vec<u64> = vec![];
        for place in 0..count {
            let member = (self.rounds * count + place) / 2;
            let near = place % 2 == 0;
            let score = |i: usize| opinions[i][member % opinions[i].len()];
            let may = |i: &usize| {
                let index = pool.indices[*i];
                !known.is_seen(index) && !batch.contains(&index) && (!near || around.contains(&index))
            };
            let best = (0..pool.indices.len()).filter(may).min_by(|a, b| score(*a).total_cmp(&score(*b)));
            batch.extend(best.map(|i| pool.indices[i]));
        }
        self.rounds += 1;
        let best = known.fastest().and_then(|t| t.log_us);
        self.gain = best.map(|best| {
            let unseen = (0..pool.indices.len()).filter(|i| !known.is_seen(pool.indices[*i]));
            let hoped =
                |i: usize| opinions[i].iter().map(|o| (best - o).max(0.0)).sum::<f64>() / opinions[i].len() as f64;
            1.0 - (-unseen.map(hoped).fold(0.0, f64::max)).exp()
        });
        self.pool = Some(pool);
        batch
    }

    fn expected_gain(&self) -> Option<f64> {
        self.gain
    }
}
