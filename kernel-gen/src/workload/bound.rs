//! How far a correct implementation may be from the exact result.
//!
//! # Derivation
//! Write `u` for half the distance between 1 and the next `f32`, 2^-24, and let the inputs be exact (they are what
//! is stored). An operation in `f32` gives `(a op b)(1 + d)` with `|d| <= u`; a fused multiply-add rounds once
//! instead of twice.
//!
//! **The sum.** Whatever the order and the grouping in which `K` products are added, each product passes through at
//! most `K` roundings: its own and at most `K - 1` additions (adding to the initial 0 is exact, and so is adding the
//! zeros of the padding). Hence (Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1)
//!
//! ```text
//! |fl(sum) - sum| <= g(K) * sum |x||w|,      g(K) = K u / (1 - K u)
//! ```
//!
//! and `K` products that underflow add at most 2^-126 each, even if subnormals are flushed to zero.
//!
//! **local, fp32.** [`Math::Local`] allows products in parts, and [`Math::Fp32`] also methods that are not sums of products, such as
//! Winograd's convolution, for operands that are finite and of one magnitude, with up
//! to [`FP32_CLASS_FACTOR`] times the error that a sum *typically* has. That grows with the square root of `K`, the bound
//! above with `K`: from [`FP32_SHORTEST_SUM`] terms on it leaves room for both and holds for the whole class, so a wrong
//! product is found as surely as in class `strict`. Shorter sums get the bound of that many terms, but no more than
//! the factor.
//!
//! That is for methods whose error is one of an output's own products. Winograd's depends on all that its tile reads, which is more
//! where an output beside the padding has few products, and few channels. [`Reach`](super::special::Reach) has the bounds that
//! results of such methods are held to.
//!
//! **tf32.** Both operands lose what is beyond 10 fraction bits, truncated at worst: a relative error `t <= 2^-10`
//! each, `2t + t^2` for the product. Tensor cores may truncate where an `f32` unit rounds, so `u` is doubled.
//!
//! **Floats of eight bits** (`e4m3`, `e5m2`), but in the classes `strict` and `local`: tensor cores add the products of an instruction,
//! 32 of them, and the sum that is there as numbers of 13 fraction bits, those of the largest, and cut off what is below *(seen on H100s:
//! DeepSeek-AI, arXiv:2412.19437, section 3.3.2)*. So each of 33 summands loses up to `2^-13` of the largest, which is at most
//! `sum |x||w|`. Kernels add what [`F8_TERMS`] terms have become in `f32`, so this happens four times to each product.
//!
//! **A pair of convolutions.** The second one's operands `x'` have errors `|x' - x| <= d` of their own. Its sum moves by
//! `sum d |w|` at most, and rounds as a sum of products of size `(|x| + d) |w|` does.
//!
//! **The epilogue.** Let `v` be exact and `v'` computed with `|v' - v| <= e`. Then
//! * a sum `v + b` has the error `e (1 + u) + u |v + b|`; so have a residual and a bias of an image's channel;
//! * `v s + t` has `(e |s| (1 + u) + u |v s|)(1 + u) + u |v s + t|`;
//! * a product `v f` with a factor or a gate has `e |f| (1 + u) + u |v f|`, and 2^-126 where it underflows;
//! * `relu`, `relu6` and `clip` have slope at most 1 and round nothing: `e`;
//! * GELU has a slope of at most 1.13 (its derivative's maximum is 1.1290 at `sqrt(2)`). Computing it adds `0.5 |v'|`
//!   times the error of `1 + erf(z)`, and a rounding of the product. `z = v' / sqrt(2)` carries two roundings, which
//!   move `erf` by at most `2u max |z erf'(z)| < u`; `erf` itself may be wrong by [`ERF_ERROR`]; the addition rounds a
//!   number below 2 and adds `2u`;
//! * the other activations have the error `s e`, `s` being their largest slope (0.25 of the logistic function, 1.0998 of SiLU, 1.5
//!   of hard-swish at 3, 1.129 of the approximate GELU, and 1 or `alpha`), and that of their formula. The logistic function is
//!   `1 / (1 + exp(-v))`: [`EXP_ERROR`] and three roundings, relative to the result; SiLU has one more. Hard-sigmoid rounds
//!   numbers below 1.5 three times, hard-swish the sum `v + 3`, which is at most 6, and three products. The hyperbolic tangent in
//!   the approximate GELU has an argument `z` with seven roundings, which move it by at most `7u max |z tanh'(z)| < 4u`; 1 more is a
//!   number below 2. ELU rounds `exp(v)`, at most 1, and what is left of it without 1; SELU and CELU have one product more. A
//!   thresholded ReLU and shrinkage have steps, beside which either side is right.
//!
//! **The output type.** Storing in 16 bits rounds once more: `h (|v| + e)` with `h` = 2^-11 (f16) or 2^-8 (bf16), and
//! at most 2^-25 where an f16 is subnormal; 2^-4 and 2^-10 of an `e4m3`, 2^-3 and 2^-17 of an `e5m2`. Beyond the largest finite value every result is right: the bound is
//! infinite.
//!
//! # Numbers that are not finite
//! An output that reads a NaN, or infinities that cancel, is NaN; one that reads an infinity is the infinity that the exact sum
//! is, and what the epilogue makes of it. These are held to exactly that, with a bound of 0, but for two cases, in which NaN is right
//! as well ([`Reference::or_nan`]):
//! * All classes but [`Math::Strict`] have methods that multiply an `f32` in parts, and the second part of an infinity is
//!   NaN.
//! * A weight that is no finite number stands over the padding: a tap there is skipped by some methods and multiplied by zero by
//!   others.
//!
//! Where a sum of finite numbers, or a step of the epilogue, may exceed the largest `f32`, every result is right.
//!
//! The bounds are themselves computed in `f64`; the `K` roundings of 2^-53 of the reference's own sum are added.

use super::integers;
use super::products::Sums;
use super::quant;
use super::reference::{activation, channel_of_element, check_lengths, image_of_element, sums};
use super::{Epilogue, Math, Workload};
use crate::ir::DType;
use std::fmt;

/// Unit roundoff of `f32`.
const U: f64 = 1.0 / (1u64 << 24) as f64;

/// Unit roundoff of `f64`.
const U64: f64 = 1.0 / (1u64 << 53) as f64;

/// The absolute error that an implementation of `erf` may have: eight units of roundoff. C's `erff` has at most two
/// in every library that we know.
pub const ERF_ERROR: f64 = 8.0 * U;

/// The relative error that an implementation of `exp` may have. C's `expf` has at most one unit in the last place, CUDA's two.
pub const EXP_ERROR: f64 = 8.0 * U;

/// The relative error that an implementation of `tanh` may have, likewise.
pub const TANH_ERROR: f64 = 8.0 * U;

/// More than `x / (1 + exp(x))` is from where `exp(x)` exceeds the largest `f32` on.
const EXP_OVERFLOWS: f64 = 1e-36;

/// How much farther than a plain sum a method of the class [`Math::Fp32`] may be. A kernel that just multiplies and adds
/// keeps the bound of [`Math::Strict`], whatever its class.
pub const FP32_CLASS_FACTOR: f64 = 8.0;

/// In the class [`Math::Fp32`], sums of fewer terms are held to the bound of so many: a plain 3x3 filter's, times the
/// class's factor.
pub const FP32_SHORTEST_SUM: f64 = 9.0 * FP32_CLASS_FACTOR;

/// How many products of floats of eight bits tensor cores add before the sum becomes one in `f32`.
pub const F8_TERMS: i64 = 128;

/// The exact output of a workload on given inputs, and how far each element may be from it.
#[derive(Clone, PartialEq, Debug)]
pub struct Reference {
    /// The output in `f64`, row-major as stored.
    pub values: Vec<f64>,
    /// For each element the largest error of a correct implementation. NaN and infinities have 0: they must be just that.
    pub bounds: Vec<f64>,
    /// The elements that may be NaN as well, in ascending order: see the module's text. None where all operands are finite.
    pub or_nan: Vec<usize>,
}

/// The element that is the farthest outside of its bound.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mismatch {
    /// Its place in the output.
    pub index: usize,
    /// What was computed.
    pub got: f64,
    /// What is right.
    pub expected: f64,
    /// How far it may be from that.
    pub bound: f64,
    /// How many elements are outside of their bounds.
    pub wrong: usize,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { index, got, expected, bound, wrong } = self;
        write!(f, "element {index} is {got:e}, should be {expected:e} within {bound:e}; {wrong} elements are wrong")
    }
}

impl std::error::Error for Mismatch {}

/// How far an output is from the exact one, as people compare two implementations: nothing here depends on what is allowed.
/// Elements beyond the largest value of their type are left out.
#[derive(Clone, Copy, PartialEq, Debug)]
#[cfg_attr(feature = "tune", derive(serde::Serialize, serde::Deserialize))]
pub struct Accuracy {
    /// The largest error, as a share of the largest exact value.
    pub max: f64,
    /// The root mean square of the errors, as a share of that of the exact values.
    pub rms: f64,
}

impl fmt::Display for Accuracy {
    /// Both, the largest first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1e} / {:.1e}", self.max, self.rms)
    }
}

impl Reference {
    /// Holds an output against the bounds. What comes back is the largest share of its bound that an element's error
    /// takes, so at most 1.
    ///
    /// # Panics
    /// If the output has another number of elements.
    pub fn check(&self, output: impl IntoIterator<Item = f64>) -> Result<f64, Mismatch> {
        let mut checked = Checked::default();
        let count = self.check_from(0, output, &mut checked);
        assert_eq!(count, self.values.len(), "number of elements of the output");
        checked.result()
    }

    /// [`Reference::check`] of an output that is read part by part, on all processors: `part` gives the elements of a range.
    #[cfg(any(feature = "tune", test))]
    pub(crate) fn check_parts<I: IntoIterator<Item = f64>>(
        &self,
        part: impl Fn(std::ops::Range<usize>) -> I + Sync,
    ) -> Result<(f64, Accuracy), Mismatch> {
        let checked = self.checked_parts(part);
        Ok((checked.result()?, checked.accuracy()))
    }

    /// How far an output is from the exact one, whether or not that is within the bounds.
    #[cfg(any(feature = "tune", test))]
    pub(crate) fn accuracy(&self, output: &[f64]) -> Accuracy {
        self.checked_parts(|range| output[range].iter().copied()).accuracy()
    }

    #[cfg(any(feature = "tune", test))]
    fn checked_parts<I: IntoIterator<Item = f64>>(&self, part: impl Fn(std::ops::Range<usize>) -> I + Sync) -> Checked {
        let count = self.values.len();
        let shares = shares(count);
        let check = |number: usize| {
            let share = count * number / shares..count * (number + 1) / shares;
            let mut checked = Checked::default();
            self.check_from(share.start, part(share), &mut checked);
            checked
        };
        let mut all = Checked::default();
        std::thread::scope(|scope| {
            let check = &check;
            let others: Vec<_> = (1..shares).map(|number| scope.spawn(move || check(number))).collect();
            all.add(check(0));
            others.into_iter().for_each(|t| all.add(t.join().expect("a share panics only where the whole would")));
        });
        all
    }

    /// Holds the elements from one on against their bounds, and counts them.
    fn check_from(&self, first: usize, output: impl IntoIterator<Item = f64>, checked: &mut Checked) -> usize {
        let mut count = 0;
        for got in output {
            let index = first + count;
            count += 1;
            let (expected, bound) = (self.values[index], self.bounds[index]);
            let error = (got - expected).abs();
            let may_be_nan = || expected.is_nan() || self.or_nan.binary_search(&index).is_ok();
            let right = bound.is_infinite() || got == expected || got.is_nan() && may_be_nan();
            if bound.is_finite() && expected.is_finite() && !(right && got.is_nan()) {
                checked.errors.take(if error.is_nan() { f64::INFINITY } else { error });
                checked.values.take(expected.abs());
            }
            let share = match error {
                _ if right => 0.0,
                e if e.is_finite() && expected.is_finite() => e / bound,
                _ => f64::INFINITY,
            };
            if share > 1.0 {
                let worst = Some(Mismatch { index, got, expected, bound, wrong: 1 });
                checked.add(Checked { largest: share, worst, ..Checked::default() });
            } else {
                checked.largest = checked.largest.max(share);
            }
        }
        count
    }
}

/// What is known of elements that were checked.
#[derive(Clone, Copy, Default)]
struct Checked {
    /// The largest share of its bound that an error takes.
    largest: f64,
    /// Whose that is, if it is wrong, and how many are.
    worst: Option<Mismatch>,
    /// The errors.
    errors: Norms,
    /// The exact values.
    values: Norms,
}

/// The largest of some magnitudes, and the sum of their squares.
#[derive(Clone, Copy, Default)]
struct Norms {
    largest: f64,
    squares: f64,
}

impl Norms {
    fn take(&mut self, magnitude: f64) {
        self.add(Norms { largest: magnitude, squares: magnitude * magnitude });
    }

    fn add(&mut self, other: Norms) {
        self.largest = self.largest.max(other.largest);
        self.squares += other.squares;
    }
}

impl Checked {
    /// Adds elements that come after these.
    fn add(&mut self, next: Checked) {
        let wrong = |c: &Checked| c.worst.map_or(0, |w| w.wrong);
        let all = wrong(self) + wrong(&next);
        if next.worst.is_some() && (next.largest > self.largest || self.worst.is_none()) {
            self.worst = next.worst;
        }
        if let Some(worst) = &mut self.worst {
            worst.wrong = all;
        }
        self.largest = self.largest.max(next.largest);
        self.errors.add(next.errors);
        self.values.add(next.values);
    }

    #[cfg(any(feature = "tune", test))]
    fn accuracy(&self) -> Accuracy {
        // Where everything should be zero, zeros are right and all else is infinitely far off.
        let share = |error: f64, of: f64| if error == 0.0 { 0.0 } else { error / of };
        Accuracy {
            max: share(self.errors.largest, self.values.largest),
            rms: share(self.errors.squares, self.values.squares).sqrt(),
        }
    }

    fn result(self) -> Result<f64, Mismatch> {
        self.worst.map_or(Ok(self.largest), Err)
    }
}

/// In how many shares so many elements are worth computing at the same time.
fn shares(count: usize) -> usize {
    const WORTH_A_THREAD: usize = 1 << 18;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.min(count / WORTH_A_THREAD).max(1)
}

/// [`reference()`](super::reference()) and the bounds that this module derives, for less than both apart. `inputs` are
/// those of [`reference()`](super::reference()).
///
/// # Panics
/// If an input has another number of elements than its parameter.
pub fn reference_with_bounds(workload: &Workload, inputs: &[&[f64]]) -> Reference {
    check_lengths(workload, inputs);
    let (exact, carried) = match workload.parts() {
        None => (sums(workload, inputs), vec![]),
        Some([first, second]) => {
            let weight = workload.operator_params() - 1;
            let mid = reference_with_bounds(&first, &inputs[..weight]);
            let mut exact = sums(&second, &[&mid.values, inputs[weight]]);
            // A product with NaN is NaN, whatever the error of the other factor.
            let weights: Vec<f64> = inputs[weight].iter().map(|w| if w.is_nan() { 0.0 } else { w.abs() }).collect();
            let mut carried = sums(&second, &[&mid.bounds, &weights]).values;
            for (m, c) in exact.magnitudes.iter_mut().zip(&mut carried) {
                // Zero times what may be anything may be anything, and so may an infinity times what may have either sign.
                *c = if c.is_nan() { f64::INFINITY } else { *c };
                *m += *c;
            }
            if !mid.or_nan.is_empty() {
                let mut reads = vec![0.0; mid.values.len()];
                mid.or_nan.iter().for_each(|at| reads[*at] = 1.0);
                let reads = sums(&second, &[&reads, &vec![1.0; weights.len()]]).values;
                exact.or_nan.extend((0..reads.len()).filter(|i| reads[*i] > 0.0));
            }
            (exact, carried)
        }
    };
    with_epilogue(workload, inputs, exact, &carried)
}

/// For each output element the largest error that a correct implementation can have: one that computes each sum as a
/// sum of products in `f32`, in any order, and the epilogue step by step. `inputs` are those of
/// [`reference()`](super::reference()).
///
/// # Panics
/// If an input has another number of elements than its parameter.
pub fn error_bound(workload: &Workload, inputs: &[&[f64]]) -> Vec<f64> {
    reference_with_bounds(workload, inputs).bounds
}

/// The output and its bounds, given the exact sums and what they inherit from errors of their operands, if they have any. Each
/// element takes the place of its sum: large outputs are gigabytes.
pub(super) fn with_epilogue(workload: &Workload, inputs: &[&[f64]], sums: Sums, carried: &[f64]) -> Reference {
    let Sums { mut values, magnitudes: mut bounds, mut or_nan } = sums;
    if workload.dtype == DType::F32 && workload.math != Math::Strict {
        // What is no sum is exact, infinities included.
        or_nan.extend((0..values.len()).filter(|i| values[*i].is_infinite() && bounds[*i] != 0.0));
    }
    or_nan.sort_unstable();
    or_nan.dedup();
    let terms = workload.reduction_length() as f64;
    let roundings = workload.op.get().roundings() as f64;
    let on_tensor_cores = workload.dtype.is_f8() && !workload.math.is_local();
    let factor = sum_factor(workload.math, roundings) + if on_tensor_cores { f8_factor(terms) } else { 0.0 };
    let underflow = terms * f64::from(f32::MIN_POSITIVE);
    let (channel, image, channels) =
        (channel_of_element(workload), image_of_element(workload), workload.channels() as usize);
    let of_share = |first: usize, values: &mut [f64], bounds: &mut [f64]| {
        for (i, (value, bound)) in (first..).zip(values.iter_mut().zip(bounds)) {
            // The bound's place still has `sum |x||w|`.
            let error = match *bound {
                0.0 => 0.0,
                // The sum is no finite number, and exact.
                magnitude if !magnitude.is_finite() => 0.0,
                magnitude => factor * magnitude + underflow,
            };
            let mut error = error + carried.get(i).copied().unwrap_or(0.0);
            if bound.is_finite() && *bound + error > f64::from(f32::MAX) {
                error = f64::INFINITY;
            }
            let (result, error) =
                propagate(workload, inputs, *value, error, [i, channel(i), image(i) * channels + channel(i)]);
            (*value, *bound) = match workload.rounds_to_i32() {
                true => (integers::rounded_reference(result), integers::error_of(result, error)),
                false => (result, stored(workload.out_dtype, result, error)),
            };
        }
    };
    let shares = shares(values.len());
    if shares == 1 {
        of_share(0, &mut values, &mut bounds);
    } else {
        let length = values.len().div_ceil(shares);
        std::thread::scope(|scope| {
            let of_share = &of_share;
            for (number, share) in values.chunks_mut(length).zip(bounds.chunks_mut(length)).enumerate() {
                scope.spawn(move || of_share(number * length, share.0, share.1));
            }
        });
    }
    Reference { values, bounds, or_nan }
}

/// `|fl(sum) - sum| <= sum_factor * sum |x||w|` for a sum of so many products.
fn sum_factor(math: Math, terms: f64) -> f64 {
    let gamma = |u: f64| if terms * u < 1.0 { terms * u / (1.0 - terms * u) } else { f64::INFINITY };
    let f32_sum = match math {
        Math::Strict => gamma(U),
        Math::Local | Math::Fp32 => gamma(U).max((FP32_CLASS_FACTOR * gamma(U)).min(FP32_SHORTEST_SUM * U)),
        Math::Tf32 => {
            let t = 1.0 / 1024.0;
            let operands = 2.0 * t + t * t;
            operands + gamma(2.0 * U) * (1.0 + operands)
        }
    };
    f32_sum + gamma(U64)
}

/// What tensor cores add to that for floats of eight bits.
fn f8_factor(terms: f64) -> f64 {
    const INSTRUCTION: f64 = 32.0;
    let at_once = terms.min(F8_TERMS as f64);
    (at_once / INSTRUCTION).ceil() * (at_once.min(INSTRUCTION) + 1.0) * 2f64.powi(-13)
}

/// The exact value of an element after the epilogue, as [`reference()`](super::reference()) has it, and its error. Its places are
/// those in operands like the output, with a number a channel, and with a number for each image and channel.
fn propagate(
    workload: &Workload,
    inputs: &[&[f64]],
    mut v: f64,
    mut e: f64,
    [element, channel, of_image]: [usize; 3],
) -> (f64, f64) {
    let mut operands = inputs[workload.operator_params()..].iter();
    let mut next = |at: usize| operands.next().expect("the lengths of all inputs were checked")[at];
    // What is no finite number has no error, unless it may be anything.
    let exact = |v: f64, e: f64| match e {
        e if e == f64::INFINITY => e,
        _ if !v.is_finite() => 0.0,
        e if v.abs() + e > f64::from(f32::MAX) => f64::INFINITY,
        e => e,
    };
    e = exact(v, e);
    for step in &workload.epilogue {
        match step {
            // An integer.
            Epilogue::Bias if workload.is_quantised() => v += next(channel),
            Epilogue::Bias | Epilogue::ResidualAdd | Epilogue::ImageBias => {
                v += next(match step {
                    Epilogue::Bias => channel,
                    Epilogue::ImageBias => of_image,
                    _ => element,
                });
                e = e * (1.0 + U) + U * v.abs();
            }
            Epilogue::Scale => {
                let (scale, shift) = (next(channel), next(channel));
                let product = v * scale;
                // An infinity times what may have either sign has either sign.
                let either = scale.is_infinite() && e > 0.0 && v.abs() <= e || e == f64::INFINITY;
                v = product + shift;
                e = (e * scale.abs() * (1.0 + U) + U * product.abs()) * (1.0 + U) + U * v.abs();
                if either || product.is_finite() && product.abs() > f64::from(f32::MAX) {
                    e = f64::INFINITY;
                }
            }
            Epilogue::Multiply | Epilogue::Gate => {
                let factor = next(if *step == Epilogue::Gate { of_image } else { element });
                let either = factor.is_infinite() && e > 0.0 && v.abs() <= e || e == f64::INFINITY;
                v *= factor;
                e = e * factor.abs() * (1.0 + U) + U * v.abs() + f64::from(f32::MIN_POSITIVE);
                if either {
                    e = f64::INFINITY;
                }
            }
            // The sum becomes an `f32` first.
            Epilogue::Dequantize => {
                v *= next(channel);
                e = 2.0 * U * v.abs() * (1.0 + U) + f64::from(f32::MIN_POSITIVE);
            }
            // Both are `f32`s, and whole numbers are exact.
            Epilogue::Requantize => {
                let (multiplier, zero) = (next(channel), next(0));
                v = quant::saturate(v as f32 * multiplier as f32, zero, workload.out_dtype);
                e = 0.0;
            }
            Epilogue::RequantizeAdd => {
                let (multiplier, residual) = (next(channel), next(element));
                let (residual_zero, factor, zero) = (next(0), next(0), next(0));
                let sum = v as f32 * multiplier as f32;
                v = quant::saturate(sum + (residual - residual_zero) as f32 * factor as f32, zero, workload.out_dtype);
                e = 0.0;
            }
            Epilogue::Quantize => {
                let (scale, zero) = (next(0), next(0));
                let of = |v: f64| quant::saturate(v as f32 / scale as f32, zero, workload.out_dtype);
                let (low, high) = (of(v - e), of(v + e));
                v = of(v);
                e = (high - v).abs().max((v - low).abs());
            }
            // The formula makes of what is no finite number what it says; a product of two of its numbers is rounded.
            step if e == 0.0 && !v.is_finite() => {
                v = activation(*step, v);
                e = if v.is_finite() { U * v.abs() } else { 0.0 };
            }
            step => {
                let argument = v;
                v = activation(*step, v);
                if e != f64::INFINITY {
                    e = of_activation(*step, argument, e, v);
                }
            }
        }
        e = exact(v, e);
    }
    (v, e)
}

/// The error of an activation, `result`, whose argument has the error `e`; see the module's text.
fn of_activation(step: Epilogue, argument: f64, e: f64, result: f64) -> f64 {
    let (largest, tiny) = (argument.abs() + e, f64::from(f32::MIN_POSITIVE));
    // The error that the argument's makes, and the largest result that may be computed.
    let along = |slope: f64| (slope * e, result.abs() + slope * e);
    match step {
        Epilogue::Gelu => {
            let e = 1.13 * e + 0.5 * largest * (ERF_ERROR + U + 2.0 * U);
            e + U * (result.abs() + e)
        }
        Epilogue::Sigmoid => {
            let (e, most) = along(0.25);
            e + (EXP_ERROR + 3.0 * U) * most + tiny
        }
        Epilogue::Silu => {
            let (e, most) = along(1.1);
            e + (EXP_ERROR + 4.0 * U) * most + EXP_OVERFLOWS
        }
        Epilogue::HardSigmoid => along(1.0 / 6.0).0 + 4.0 * U,
        // The product with a factor of up to 6 comes before the division.
        Epilogue::HardSwish if 6.0 * largest > f64::from(f32::MAX) => f64::INFINITY,
        Epilogue::HardSwish => along(1.5).0 + 5.0 * U * largest + tiny,
        Epilogue::Tanh => {
            let (e, most) = along(1.0);
            e + TANH_ERROR * most + tiny
        }
        Epilogue::GeluTanh => {
            let (e, most) = along(1.13);
            e + 0.5 * largest * (TANH_ERROR + 6.0 * U) + 2.0 * U * most + tiny
        }
        Epilogue::Elu(alpha) => {
            let (e, most) = along(alpha.get().abs().max(1.0));
            e + alpha.get().abs() * (EXP_ERROR + 3.0 * U) + U * most + tiny
        }
        Epilogue::LeakyRelu(alpha) => {
            let (e, most) = along(alpha.get().abs().max(1.0));
            e + 2.0 * U * most + tiny
        }
        // Where the line is not cut off, the product is at most 1 and the summand away from 0.
        Epilogue::HardSigmoidOf(alpha, beta) => {
            let (alpha, beta) = (alpha.get().abs(), beta.get().abs());
            alpha * e + 4.0 * U * (1.0 + 2.0 * beta) + tiny
        }
        Epilogue::Selu(alpha, gamma) => {
            let (alpha, gamma) = (alpha.get().abs(), gamma.get().abs());
            let (e, most) = along(gamma * alpha.max(1.0));
            e + alpha * gamma * (EXP_ERROR + 4.0 * U) + 2.0 * U * most + tiny
        }
        // The quotient's rounding moves the exponential by at most its share of max |z exp(z)|, below 1/2.
        Epilogue::Celu(alpha) => {
            let (e, most) = along(1.0);
            e + alpha.get() * (EXP_ERROR + 4.0 * U) + U * most + tiny
        }
        // Beside a step either side is right.
        Epilogue::ThresholdedRelu(alpha) if e > 0.0 && (argument - alpha.get()).abs() <= e => largest,
        Epilogue::ThresholdedRelu(_) => e,
        Epilogue::Shrink(lambda, bias) => {
            let step = e > 0.0 && (argument.abs() - lambda.get()).abs() <= e;
            let either = if step { largest + bias.get().abs() } else { e };
            either + U * (result.abs() + either)
        }
        // They choose one of their operands.
        _ => e,
    }
}

/// The error after the value is stored in `dtype`.
fn stored(dtype: DType, v: f64, e: f64) -> f64 {
    let (roundoff, subnormal, largest) = match (dtype, dtype.format()) {
        (_, Some(of)) => (2f64.powi(-1 - of.fraction_bits as i32), of.smallest() / 2.0, of.largest),
        (DType::Bf16, _) => (1.0 / 256.0, f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)),
        _ => (0.0, 0.0, f64::from(f32::MAX)),
    };
    if !v.is_finite() {
        // An infinity becomes the largest finite number of eight bits.
        return if dtype.is_f8() && !v.is_nan() { f64::INFINITY } else { e };
    }
    if v.abs() + e > largest { f64::INFINITY } else { e + roundoff * (v.abs() + e) + subnormal }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{self, Rng};
    use super::super::{Conv2d, Matmul};
    use super::*;

    #[test]
    fn a_sequential_f32_product_keeps_the_bound_and_a_wrong_one_does_not() {
        let workload = Workload::f32(Matmul::new(3, 5, 1000));
        let inputs = sample::inputs(&workload, &mut Rng::new(1));
        let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let mut c = vec![0.0_f64; 15];
        for i in 0..3 {
            for j in 0..5 {
                let mut sum = 0.0_f32;
                for k in 0..1000 {
                    sum += inputs[0][i * 1000 + k] as f32 * inputs[1][k * 5 + j] as f32;
                }
                c[i * 5 + j] = f64::from(sum);
            }
        }
        let expected = reference_with_bounds(&workload, &views);
        let share = expected.check(c.iter().copied()).unwrap();
        assert!(share > 0.0 && share < 0.5, "{share}");
        // One product left out.
        c[7] -= inputs[0][1000] * inputs[1][2];
        let mismatch = expected.check(c.iter().copied()).unwrap_err();
        assert_eq!((mismatch.index, mismatch.wrong), (7, 1));
        c[3] = f64::NAN;
        assert_eq!(expected.check(c).unwrap_err().index, 3);
    }

    #[test]
    fn a_large_output_is_checked_in_parts_as_it_is_in_one() {
        let elements = 1 << 20;
        let reference = Reference { values: vec![1.0; elements], bounds: vec![0.5; elements], or_nan: vec![] };
        let mut output = vec![1.25; elements];
        let in_parts = |output: &[f64]| reference.check_parts(|range| output[range].to_vec());
        let accuracy = Accuracy { max: 0.25, rms: 0.25 };
        assert_eq!((in_parts(&output), reference.check(output.clone())), (Ok((0.5, accuracy)), Ok(0.5)));
        for (index, got) in [(3, 2.0), (elements - 1, 4.0), (elements / 2, 4.0)] {
            output[index] = got;
        }
        let worst = in_parts(&output).unwrap_err();
        assert_eq!((worst.index, worst.wrong), (elements / 2, 3));
        assert_eq!(Err(worst), reference.check(output.iter().copied()));
        // What is outside of its bounds has an accuracy all the same.
        assert_eq!(reference.accuracy(&output).max, 3.0);
    }

    #[test]
    fn an_accuracy_is_relative_to_the_largest_value_and_to_the_mean_square() {
        let of = |values: &[f64], output: &[f64]| {
            let bounds = values.iter().map(|v| if *v < 100.0 { 0.1 } else { f64::INFINITY }).collect();
            Reference { values: values.to_vec(), bounds, or_nan: vec![] }.accuracy(output)
        };
        // Errors 0.5, 0, 0, 0 beside values whose mean square is 4; the last is beyond its type and counts for nothing.
        let accuracy = of(&[0.0, 4.0, 0.0, 0.0, 1e9], &[0.5, 4.0, 0.0, 0.0, f64::INFINITY]);
        assert_eq!(accuracy, Accuracy { max: 0.125, rms: 0.125 });
        assert_eq!(of(&[0.0; 3], &[0.0; 3]), Accuracy { max: 0.0, rms: 0.0 });
        assert_eq!(of(&[1.0, 1.0], &[1.0, f64::NAN]).max, f64::INFINITY);
        assert_eq!(format!("{}", Accuracy { max: 1.26e-7, rms: 3e-8 }), "1.3e-7 / 3.0e-8");
    }

    #[test]
    fn the_values_beside_the_bounds_are_those_of_the_reference() {
        let mut rng = Rng::new(11);
        let mut workloads: Vec<Workload> = (0..60).map(|_| sample::workload(&mut rng)).collect();
        // One that several threads have a share of, if there are several.
        let large = Workload::f32(Matmul::new(701, 1009, 2));
        workloads.push(large.with_epilogue(&[Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu]));
        for workload in workloads {
            let inputs = sample::inputs(&workload, &mut rng);
            let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
            let together = reference_with_bounds(&workload, &views);
            assert!(together.values == super::super::reference(&workload, &views), "{}", workload.key());
            assert_eq!(together.bounds.len(), together.values.len());
        }
    }

    #[test]
    fn an_f32_epilogue_keeps_the_bound() {
        let steps = [Epilogue::Bias, Epilogue::Scale, Epilogue::Gelu, Epilogue::ResidualAdd, Epilogue::Relu6];
        let workload = Workload::f32(Matmul::new(7, 6, 40)).with_epilogue(&steps);
        let inputs = sample::inputs(&workload, &mut Rng::new(2));
        let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let f = |p: usize, i: usize| inputs[p][i] as f32;
        let mut c = vec![];
        for i in 0..7 {
            for j in 0..6 {
                let mut v = (0..40).map(|k| f(0, i * 40 + k) * f(1, k * 6 + j)).sum::<f32>();
                v += f(2, j);
                v = v * f(3, j) + f(4, j);
                // The exact erf, rounded: what matters here is the arithmetic around it.
                let z = f64::from(v * std::f32::consts::FRAC_1_SQRT_2);
                let erf = (2.0
                    * activation(Epilogue::Gelu, z / std::f64::consts::FRAC_1_SQRT_2)
                    * std::f64::consts::FRAC_1_SQRT_2
                    / z
                    - 1.0) as f32;
                v = 0.5 * v * (1.0 + erf);
                v += f(5, i * 6 + j);
                c.push(f64::from(v.clamp(0.0, 6.0)));
            }
        }
        reference_with_bounds(&workload, &views).check(c).unwrap();
    }

    #[test]
    fn the_class_decides_the_bound_of_short_sums_only() {
        let of = |math, terms| sum_factor(math, terms);
        for terms in [1.0, 9.0, 36.0] {
            let (strict, fp32) = (of(Math::Strict, terms), of(Math::Fp32, terms));
            assert!(fp32 > 1.9 * strict && fp32 <= 8.0 * strict, "{terms}: {strict:e} {fp32:e}");
        }
        assert_eq!(of(Math::Strict, 576.0), of(Math::Fp32, 576.0));
        assert!(of(Math::Tf32, 576.0) > of(Math::Fp32, 576.0));
    }

    #[test]
    fn sixteen_bit_outputs_have_the_bound_of_their_rounding() {
        let workload = Workload { out_dtype: DType::Bf16, ..Workload::f32(Matmul::new(1, 1, 1)) };
        let bound = error_bound(&workload, &[&[1.0], &[1.0]]);
        assert!((bound[0] - 1.0 / 256.0).abs() < 1e-6);
        let half = workload.with_dtype(DType::F16);
        assert_eq!(error_bound(&half, &[&[300.0], &[300.0]]), [f64::INFINITY]);
    }

    /// `b` being 1 x 1, the output is the epilogue of `a * b`.
    fn of_one(math: Math, steps: &[Epilogue], a: f64, b: f64) -> Reference {
        let workload = Workload { math, ..Workload::f32(Matmul::new(1, 1, 1)) }.with_epilogue(steps);
        let operands = vec![vec![0.0]; workload.params().len() - 3];
        let (a_matrix, b_matrix) = ([a], [b]);
        let inputs: Vec<&[f64]> =
            [&a_matrix[..], &b_matrix].into_iter().chain(operands.iter().map(Vec::as_slice)).collect();
        let both = reference_with_bounds(&workload, &inputs);
        let same = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
        assert!(same(both.values[0], super::super::reference(&workload, &inputs)[0]), "{steps:?} of {a} * {b}");
        both
    }

    #[test]
    fn activations_keep_nan_and_make_of_infinities_what_the_formula_says() {
        use Epilogue::*;
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        for (step, of, right, wrong) in [
            (Relu, nan, nan, 0.0),
            (Relu6, nan, nan, 0.0),
            (Relu6, nan, nan, 6.0),
            (Gelu, nan, nan, 0.0),
            (Relu, inf, inf, nan),
            (Relu, inf, inf, 3e38),
            (Relu, -inf, 0.0, nan),
            (Relu6, inf, 6.0, nan),
            (Relu6, -inf, 0.0, 6.0),
            (Gelu, inf, inf, nan),
            (Gelu, -inf, nan, 0.0),
            (Sigmoid, inf, 1.0, nan),
            (Sigmoid, -inf, 0.0, nan),
            (Silu, inf, inf, nan),
            (Silu, -inf, nan, 0.0),
            (HardSigmoid, -inf, 0.0, nan),
            (HardSwish, inf, inf, nan),
            (HardSwish, -inf, nan, 0.0),
            (Tanh, -inf, -1.0, nan),
            (GeluTanh, inf, inf, nan),
            (GeluTanh, -inf, nan, 0.0),
        ] {
            let reference = of_one(Math::Strict, &[step], of, 1.0);
            assert_eq!(reference.check([right]), Ok(0.0), "{step:?} of {of}");
            assert!(reference.check([wrong]).is_err(), "{step:?} of {of} is not {wrong}");
        }
    }

    #[test]
    fn what_is_no_finite_number_is_held_to_just_that() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let passes = |math, a, b, got: f64| of_one(math, &[], a, b).check([got]).is_ok();
        assert!(passes(Math::Strict, inf, -2.0, -inf) && !passes(Math::Strict, inf, -2.0, inf));
        assert!(!passes(Math::Strict, inf, -2.0, nan) && !passes(Math::Strict, inf, -2.0, -3e38));
        assert!(passes(Math::Strict, inf, 0.0, nan) && !passes(Math::Strict, inf, 0.0, 0.0));
        // A method in parts may lose an infinity, but not make a number of it.
        assert!(
            passes(Math::Fp32, inf, 2.0, inf)
                && passes(Math::Fp32, inf, 2.0, nan)
                && !passes(Math::Fp32, inf, 2.0, 2.0)
        );
        assert!(!passes(Math::Fp32, 2.0, 2.0, nan) && !passes(Math::Fp32, 2.0, 2.0, inf));
        // Beyond the largest number anything is right; just below it only the number.
        assert!(passes(Math::Strict, 1e30, 1e10, inf) && passes(Math::Strict, 1e30, 1e10, nan));
        assert!(passes(Math::Strict, 1e30, 4.0, 4e30) && !passes(Math::Strict, 1e30, 4.0, inf));
        // An infinite factor of what may be of either sign.
        let scaled = Workload::f32(Matmul::new(1, 1, 2)).with_epilogue(&[Epilogue::Scale]);
        let reference = |scale: f64| reference_with_bounds(&scaled, &[&[1.0, 1.0], &[1.0, -1.0], &[scale], &[0.0]]);
        assert!([inf, -inf, nan].iter().all(|got| reference(inf).check([*got]).is_ok()));
        assert!(reference(nan).check([0.0]).is_err() && reference(nan).check([nan]).is_ok());
    }

    #[test]
    fn a_weight_over_the_padding_that_is_no_number_is_absent_or_nan() {
        let workload = Workload { math: Math::Strict, ..Workload::f32(Conv2d::nchw(1, 1, 2, 2, 2, 3, 1, 1)) };
        let mut weights = [1.0; 18];
        weights[0] = f64::INFINITY;
        let reference = reference_with_bounds(&workload, &[&[1.0, 2.0, 3.0, 4.0], &weights]);
        // The upper left weight of the first channel meets a pixel in the last output alone.
        assert_eq!(reference.values, [10.0, 10.0, 10.0, f64::INFINITY, 10.0, 10.0, 10.0, 10.0]);
        assert_eq!(reference.or_nan, [0, 1, 2]);
        let with = |at: usize, got: f64| {
            let mut output = reference.values.clone();
            output[at] = got;
            reference.check(output).is_ok()
        };
        assert!(with(0, f64::NAN) && !with(0, f64::INFINITY) && !with(0, 11.0));
        assert!(!with(3, f64::NAN) && !with(4, f64::NAN));
    }

    #[test]
    fn sums_of_zeros_are_exact() {
        let workload = Workload::f32(Conv2d::nchw(1, 2, 3, 3, 2, 3, 1, 1));
        assert_eq!(error_bound(&workload, &[&[0.0; 18], &[1.0; 36]]), [0.0; 18]);
    }
}
