//! Inputs to run a kernel on, and comparison of what comes out.

use super::round::round_to;
use crate::ir::{Access, Kernel};
use std::collections::BTreeMap;

/// The precision that floating point is computed in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Everything in `f64`, nothing rounded: the reference.
    F64,
    /// Each operation and each store rounds to its declared type; inputs are rounded to the parameter's type first.
    Declared,
}

/// Values of parameters by name, row-major.
pub type Values = BTreeMap<String, Vec<f64>>;

/// Deterministic values for all parameters that are read: multiples of 1/64 in -1..1, exact in every float type, so
/// that short sums of products are exact in `f32` too and any order of summation gives the same.
pub fn seeded_inputs(kernel: &Kernel, seed: u64) -> Values {
    let mut state = seed;
    let mut values = Values::new();
    for p in &kernel.params {
        let b = kernel.buffer(*p);
        if b.access == Access::Write {
            continue;
        }
        let n = b.shape.iter().product::<i64>().max(0);
        let draw = |_| {
            // SplitMix64 (Steele, Lea and Flood 2014).
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let step = ((z ^ (z >> 31)) % 129) as f64 - 64.0;
            round_to(if b.dtype.is_float() { step / 64.0 } else { step }, b.dtype)
        };
        values.insert(b.name.clone(), (0..n).map(draw).collect());
    }
    values
}

/// The largest absolute difference between two sets of values; `None` when names or lengths differ or a
/// value is not a number on one side only.
pub fn max_difference(a: &Values, b: &Values) -> Option<f64> {
    if !a.keys().eq(b.keys()) {
        return None;
    }
    let mut worst = 0f64;
    for (x, y) in a.values().zip(b.values()) {
        if x.len() != y.len() {
            return None;
        }
        for (x, y) in x.iter().zip(y) {
            if x == y || x.is_nan() && y.is_nan() {
                continue;
            }
            let d = (x - y).abs();
            if d.is_nan() {
                return None;
            }
            worst = worst.max(d);
        }
    }
    Some(worst)
}

/// The index of the `i`-th element in row-major order.
pub(super) fn unravel(i: usize, shape: &[i64]) -> Vec<i64> {
    let mut rest = i as i64;
    crate::ir::row_major(shape)
        .iter()
        .map(|s| {
            let index = rest / (*s).max(1);
            rest %= (*s).max(1);
            index
        })
        .collect()
}
