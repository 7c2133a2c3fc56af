//! Ways to move about in a space: sampling without replacement, neighbours, random steps, the next config.
//!
//! All of them honour the joint constraints, and all that is random comes from the seed.

use super::config::Config;
use super::hash::Permutation;
use super::product::Space;
use crate::stable::Rng;

/// The configs of a space in a pseudo-random order, each exactly once, with their indices.
///
/// No memory is used for what was proposed already. Where constraints refuse nearly everything, a step skips as many
/// indices as it must.
pub struct Sample<'a> {
    space: &'a Space,
    order: Permutation,
    next: u64,
    end: u64,
}

impl Sample<'_> {
    /// Ends after so many indices, valid or not: where constraints refuse nearly everything, or all of it, the next config of
    /// a large space may be minutes away.
    pub fn within(mut self, indices: u64) -> Self {
        self.end = self.next.saturating_add(indices).min(self.space.range_len());
        self
    }
}

impl Iterator for Sample<'_> {
    type Item = (u64, Config);

    fn next(&mut self) -> Option<(u64, Config)> {
        while self.next < self.end {
            let index = self.order.apply(self.next);
            self.next += 1;
            if let Some(config) = self.space.get(index) {
                return Some((index, config));
            }
        }
        None
    }
}

impl Space {
    /// All indices in the order of [`sample`](Space::sample), whatever the constraints say.
    pub(crate) fn shuffled(&self, seed: u64) -> impl Iterator<Item = u64> {
        let order = Permutation::new(self.range_len(), seed);
        (0..self.range_len()).map(move |at| order.apply(at))
    }

    /// All configs in the pseudo-random order that belongs to `seed`, none twice.
    pub fn sample(&self, seed: u64) -> Sample<'_> {
        Sample { space: self, order: Permutation::new(self.range_len(), seed), next: 0, end: self.range_len() }
    }

    /// The `steps`-th config after `index`, or before it where `steps` is negative. `None` past either end.
    pub fn next_valid(&self, index: u64, steps: i64) -> Option<u64> {
        let mut at = index;
        for _ in 0..steps.unsigned_abs() {
            loop {
                at = if steps > 0 { at.checked_add(1)? } else { at.checked_sub(1)? };
                if at >= self.range_len() {
                    return None;
                }
                if self.is_valid(at) {
                    break;
                }
            }
        }
        Some(at)
    }

    /// All configs that differ from the one at `index` in the value of exactly one knob, in order of knobs and ranks.
    pub fn neighbours(&self, index: u64) -> impl Iterator<Item = u64> + '_ {
        let mut stride = 1;
        let mut strides = vec![];
        for dim in self.dims() {
            strides.push((stride, dim));
            stride *= dim;
        }
        strides.into_iter().flat_map(move |(stride, dim)| {
            let rank = index / stride % dim;
            let without = index - rank * stride;
            (0..dim)
                .filter(move |other| *other != rank)
                .map(move |other| without + other * stride)
                .filter(|neighbour| self.is_valid(*neighbour))
        })
    }

    /// A random neighbour of the config at `index`, or `None` where it has none.
    pub fn random_step(&self, index: u64, rng: &mut Rng) -> Option<u64> {
        let point = self.point_of(index);
        let dims = self.dims();
        let movable: Vec<usize> = (0..dims.len()).filter(|i| dims[*i] > 1).collect();
        if movable.is_empty() {
            return None;
        }
        // A bounded number of cheap tries first; the exact list only where nearly every neighbour is refused.
        for _ in 0..32 {
            let knob = movable[rng.below(movable.len() as u64) as usize];
            let mut step = point.clone();
            step[knob] = (point[knob] + 1 + rng.below(dims[knob] - 1)) % dims[knob];
            let neighbour = self.index_of_point(&step);
            if self.is_valid(neighbour) {
                return Some(neighbour);
            }
        }
        let all: Vec<u64> = self.neighbours(index).collect();
        if all.is_empty() { None } else { Some(all[rng.below(all.len() as u64) as usize]) }
    }
}
