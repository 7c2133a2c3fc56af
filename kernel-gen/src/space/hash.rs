//! Random orders that need no memory.

use crate::stable::{Rng, finalise};

/// A pseudo-random permutation of `0..n` that needs no memory: a four-round Feistel network on the next even number
/// of bits, walked along its cycle until it falls inside the range (at most four times as many points, so a step takes
/// less than four rounds on average).
#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    n: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    /// The permutation that belongs to `seed`.
    pub(crate) fn new(n: u64, seed: u64) -> Permutation {
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        let mut rng = Rng::new(seed);
        let keys = [rng.next_u64(), rng.next_u64(), rng.next_u64(), rng.next_u64()];
        Permutation { n, half_bits: bits.div_ceil(2).max(1), keys }
    }

    /// Where `i` goes. `i` must be below `n`.
    pub(crate) fn apply(&self, i: u64) -> u64 {
        assert!(i < self.n, "{i} is outside the permutation of 0..{}", self.n);
        let mask = (1u64 << self.half_bits) - 1;
        let mut x = i;
        loop {
            let (mut left, mut right) = (x >> self.half_bits, x & mask);
            for key in self.keys {
                (left, right) = (right, left ^ (finalise(right.wrapping_add(key)) & mask));
            }
            x = left << self.half_bits | right;
            if x < self.n {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_visits_every_point_once() {
        for n in [1, 2, 3, 7, 64, 1000] {
            let p = Permutation::new(n, 42);
            let mut seen: Vec<u64> = (0..n).map(|i| p.apply(i)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..n).collect::<Vec<_>>(), "n = {n}");
        }
    }
}
