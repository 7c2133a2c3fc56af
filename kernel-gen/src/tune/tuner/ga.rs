//! The genetic algorithm: AutoTVM's GATuner (population 100, elite 3, mutation 0.1), without its two faults.
//!
//! AutoTVM proposes a child again that it proposed before (4 in 10 of 1,024 on the tutorial's space), and its children
//! break the joint constraints. Here a child that the space refuses takes its knobs from its fitter parent, one after the
//! other, until it is accepted, and a child that was tried before walks on at random until it is new.
//!
//! A population of 100 has hardly evolved when 128 configs were tried. Here it is 16 at first and grows with the number of
//! trials, to 100 at 800. The elite is all that was ever tried: parents are the best so far, the better the likelier.

use super::driver::{Known, Method};
use crate::space::{Rng, Space};

pub(super) struct Ga {
    rng: Rng,
}

/// Fewest and most configs of a generation.
const POPULATION: (usize, usize) = (16, 100);

/// One knob in so many mutates.
const MUTATION: u64 = 10;

/// Random steps from a child that was tried before, until it is given up.
const STEPS: usize = 32;

impl Ga {
    pub(super) fn new(seed: u64) -> Ga {
        Ga { rng: Rng::new(seed ^ 0x6761) }
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

impl Method for Ga {
    fn name(&self) -> &'static str {
        "ga"
    }

    fn plan(&mut self, known: &mut Known<'_>) -> Vec<u64> {
        let count = (known.tried.len() / 8).clamp(POPULATION.0, POPULATION.1);
        let space = known.space;
        let ranked = known.by_speed();
        // The first generation is random, and so is the next as long as nearly everything fails.
        if ranked.len() < 2 {
            return known.fresh(count);
        }
        let parents: Vec<Vec<u64>> = ranked.iter().take(count).map(|t| space.point_of(t.index)).collect();
        let mut batch: Vec<u64> = vec![];
        for _ in 0..count {
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
        batch
    }
}
