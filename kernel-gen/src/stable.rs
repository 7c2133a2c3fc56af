//! A hash and a random number generator that never change.
//!
//! Names of configs, fingerprints of spaces and names of record files are hashes of text, and they are checked in:
//! the standard library's hashers promise nothing between versions, so this file fixes the function. Likewise a
//! seeded search or test must propose the same after an upgrade of any dependency, so the generator is our own.

/// FNV-1a, 64 bits: small, stable and good enough to name files.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// FNV-1a, 128 bits: for contents that are found by their hash alone.
pub fn fnv1a_128(bytes: &[u8]) -> u128 {
    let start = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    bytes.iter().fold(start, |hash: u128, byte| (hash ^ u128::from(*byte)).wrapping_mul((1 << 88) + 0x13b))
}

/// [`fnv1a`] of the text, followed by the finaliser of SplitMix64, which spreads short inputs over all bits.
pub fn stable_hash(text: &str) -> u64 {
    finalise(fnv1a(text.as_bytes()))
}

/// The output function of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
pub(crate) fn finalise(mut z: u64) -> u64 {
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

    /// A uniform integer of `low..=high`, which must not be empty or all of `i64`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }

    /// One of the items, of which there must be at least one.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A uniform number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
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
        // Test vectors of the FNV reference code.
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a_128(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a_128(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(fnv1a_128(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
        // Reference output of SplitMix64 with seed 1234567.
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_stays_below() {
        let mut rng = Rng::new(1);
        assert!((0..1000).all(|_| rng.below(7) < 7));
        assert!((0..1000).all(|_| (0.0..1.0).contains(&rng.unit())));
    }
}
