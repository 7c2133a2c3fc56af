//! The genetic algorithm: AutoTVM's GATuner (population 100, elite 3, mutation 0.1), without its two faults.
//!
//! AutoTVM proposes a child again that it proposed before (4 in 10 of 1,024 on the tutorial's space), and its children
//! break the joint constraints. Here a child that the space refuses takes its knobs from its fitter parent, one after the
//! other, until it is accepted, and a child that was tried before walks on at random until it is new.
//!
//! A population of 100 has hardly evolved when 128 configs were tried. Here it is 8 at first and grows with the number of
//! trials, to 100 at 800. The elite is all that was ever tried: parents are the best so far, the better the likelier. Half
//! of the first generation is what the template predicts to be fast, and of eight children only the one is tried that a
//! Gaussian process, fitted to all that was, believes in most (surrogate-assisted evolution: Jin, 2011).

use super::driver::{Known, Method};
use super::pool::{Pool, Scope};
use crate::space::{Rng, Space};

pub(super) struct Ga<'t> {
    scope: Scope<'t>,
    pool: Option<Pool>,
    rng: Rng,
}

/// Fewest and most configs of a generation.
const POPULATION: (usize, usize) = (8, 100);

/// Children that are born for each that is tried.
const LITTER: usize = 8;

/// How much slower a config of the first generation may be predicted to be that is unlike the others, as a logarithm.
const APART: f64 = 0.5;

/// One knob in so many mutates.
const MUTATION: u64 = 10;

/// Random steps from a child that was tried before, until it is given up.
const STEPS: usize = 32;

impl<'t> Ga<'t> {
    pub(super) fn new(scope: Scope<'t>) -> Ga<'t> {
        let rng = Rng::new(scope.seed ^ 0x6761);
        Ga { scope, pool: None, rng }
    }

    /// A knob from either parent, cut at one place, and mutated.
    fn child(&mut self, space: &Space, fitter: &[u64], other: &[u64]) -> u64 {
        let dims = space.dims();
        let cut = self.rng.below(dims.len() as u64 + 1) as usize;
        let mut point: Vec<u64> = (0..dims.len()).map(|k| if k < cut { fitter[k] } else { other[k] }).collect();
        for (k, dim) in dims.iter().enumerate() {
            if self.rng.one_in(MUTATION) {
                point[k] = self.rng.below(*dim);
            }
        }
        // The fitter parent is in the space, so this ends in it.
        let from = self.rng.below(dims.len().max(1) as u64) as usize;
        for step in 0..dims.len() {
            if space.is_valid(space.index_of_point(&point)) {
                break;
            }
            let k = (from + step) % dims.len();
            point[k] = fitter[k];
        }
        space.index_of_point(&point)
    }
}

impl Ga<'_> {
    /// The children that a process fitted to all ancestors believes may be the fastest.
    fn fittest(&mut self, known: &Known<'_>, mut children: Vec<u64>, count: usize) -> Vec<u64> {
        let mut pool = self.pool.take().unwrap_or_else(|| Pool::new(&self.scope));
        pool.add(&self.scope, known.tried.iter().map(|t| t.index).chain(children.iter().copied()));
        if let Some(beliefs) = self.scope.believe(&pool, known, 0, &children.iter().copied().collect()) {
            let hope = |child: &u64| {
                let at = pool.place_of(*child);
                at.map_or(f64::INFINITY, |at| beliefs.means[at] - beliefs.deviations[at].unwrap_or(0.0))
            };
            children.sort_by(|a, b| hope(a).total_cmp(&hope(b)));
        }
        self.pool = Some(pool);
        children.truncate(count);
        children
    }
}

impl Method for Ga<'_> {
    fn name(&self) -> &'static str {
        "ga"
    }

    fn plan(&mut self, known: &mut Known<'_>) -> Vec<u64> {
        let count = (known.tried.len() / 8).clamp(POPULATION.0, POPULATION.1);
        let space = known.space;
        let ranked = known.by_speed();
        if ranked.len() < 2 {
            let mut batch = vec![];
            if known.tried.is_empty() {
                let pool = Pool::new(&self.scope);
                batch = pool.best_apart(count / 2, APART, &pool.priors, |_| true);
                self.pool = Some(pool);
            }
            batch.extend(known.fresh(count - batch.len()));
            return batch;
        }
        let parents: Vec<Vec<u64>> = ranked.iter().take(count).map(|t| space.point_of(t.index)).collect();
        let mut batch: Vec<u64> = vec![];
        for _ in 0..count * LITTER {
            // The smaller of two random ranks: the best is the likeliest.
            let mut pick = || {
                let n = parents.len() as u64;
                self.rng.below(n).min(self.rng.below(n)) as usize
            };
            let (a, b) = (pick(), pick());
            let mut index = self.child(space, &parents[a.min(b)], &parents[a.max(b)]);
            for _ in 0..STEPS {
                if !known.is_seen(index) && !batch.contains(&index) {
                    batch.push(index);
                    break;
                }
                match space.random_step(index, &mut self.rng) {
                    Some(next) => index = next,
                    None => break,
                }
            }
        }
        self.fittest(known, batch, count)
    }
}
