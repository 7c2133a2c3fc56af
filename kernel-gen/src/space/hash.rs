//! A small stable hash and a small stable random number generator.
//!
//! Names of configs, fingerprints of spaces and names of record files are hashes of text, and they are checked in:
//! the standard library's hashers promise nothing between versions, so this file fixes the function. Likewise a
//! seeded search must propose the same configs after an upgrade of any dependency, so the generator is our own.

/// 64-bit FNV-1a over the bytes, followed by the finaliser of SplitMix64, which spreads short inputs over all bits.
pub fn stable_hash(text: &str) -> u64 {
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        h ^= u64::from(byte);
        h = h.wrapping_mul(0x0000_0100_0000_01b3);
    }
    finalise(h)
}

/// The output function of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
fn finalise(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// SplitMix64: one word of state, the same sequence for a seed on every platform and in every version.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        finalise(self.state)
    }

    /// A uniform number in `0..n`, without bias (rejects the incomplete last interval). `n` must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "no number is below 0");
        let zone = u64::MAX - u64::MAX % n;
        loop {
            let x = self.next_u64();
            if x < zone {
                return x % n;
            }
        }
    }

    /// A uniform number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

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
    fn hash_and_generator_never_change() {
        // These values are in checked-in records and logs; a change here invalidates all of them.
        assert_eq!(stable_hash(""), 0xf52a_15e9_a9b5_e89b);
        assert_eq!(stable_hash("tile=4"), 0x4135_beaa_ef49_0c3a);
        // Reference output of SplitMix64 with seed 1234567.
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_permutation_visits_every_point_once() {
        for n in [1, 2, 3, 7, 64, 1000] {
            let p = Permutation::new(n, 42);
            let mut seen: Vec<u64> = (0..n).map(|i| p.apply(i)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..n).collect::<Vec<_>>(), "n = {n}");
        }
    }

    #[test]
    fn below_stays_below() {
        let mut rng = Rng::new(1);
        assert!((0..1000).all(|_| rng.below(7) < 7));
        assert!((0..1000).all(|_| (0.0..1.0).contains(&rng.unit())));
    }
}
