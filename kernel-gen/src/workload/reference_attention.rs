//! Attention in `f64`, and what rounding may do to it.

use super::attention::{Attention, HeadOrder, Mask};
use super::products::{Sums, for_each_part};
use super::{Math, Workload};
use crate::ir::{DType, float_max};
use std::sync::Mutex;

/// The unit roundoff of `f32`.
const U: f64 = 1.0 / (1u64 << 24) as f64;

/// What an exponential may be off by, as a share of it.
const EXP: f64 = 8.0 * U;

/// A row of the output, and its errors in units of those that `f32` makes in a sum of as many terms as there are keys.
struct Row {
    values: Vec<f64>,
    magnitudes: Vec<f64>,
    /// The columns that may be NaN as well.
    or_nan: Vec<usize>,
}

/// Attention of each query. The magnitudes are the errors that their derivation gives, as shares of that of a sum of as many terms as
/// there are keys:
///
/// * A score's error is that of its sum, of its scale and mask, and of the difference from the largest one. The exponential makes a
///   relative error of it, to which its own is added.
/// * Sums of weights, and of weighted values, have an error of a unit a term. So has what an implementation multiplies them by where it
///   finds a larger score later *(Milakov and Gimelshein, arXiv:1805.02867)*.
/// * Weights may be rounded to 16 bits where the operands are.
///
/// A weight that is no number but zero makes NaN of a value that is not finite, and so may a weight that is zero in `f32` alone.
pub(super) fn attend(op: &Attention, workload: &Workload, inputs: &[&[f64]]) -> Sums {
    let [m, dv, heads] = [op.m, op.dv, op.heads].map(|size| size as usize);
    let rows = (op.b * op.heads) as usize * m;
    let zeros = || vec![0.0; rows * dv];
    let all = Mutex::new(Sums { values: zeros(), magnitudes: zeros(), or_nan: vec![] });
    for_each_part(rows, (op.n * (op.d + 2 * op.dv)) as usize, |row| {
        let Row { values, magnitudes, or_nan } = of_query(op, workload, inputs, row);
        let (query, head) = (row % m, row / m);
        let to = Rows::of(op.order, head / heads, [head % heads, heads], [m, dv]).row(query);
        let mut all = all.lock().expect("a row panics only where the whole would");
        all.values[to..][..dv].copy_from_slice(&values);
        all.magnitudes[to..][..dv].copy_from_slice(&magnitudes);
        all.or_nan.extend(or_nan.into_iter().map(|column| to + column));
    });
    all.into_inner().expect("a row panics only where the whole would")
}

/// Where rows of a head lie in a tensor: the first one's first element, and how far from each other they are.
struct Rows {
    first: usize,
    pitch: usize,
}

impl Rows {
    /// Those of `head` among the `all` heads that a tensor has of an image, of `rows` rows of `width` elements each.
    fn of(order: HeadOrder, image: usize, [head, all]: [usize; 2], [rows, width]: [usize; 2]) -> Rows {
        match order {
            HeadOrder::HeadsFirst => Rows { first: (image * all + head) * rows * width, pitch: width },
            _ => Rows { first: (image * rows * all + head) * width, pitch: all * width },
        }
    }

    /// The first element of a row.
    fn row(&self, i: usize) -> usize {
        self.first + i * self.pitch
    }
}

/// One row of the output: that of a query of a head.
fn of_query(op: &Attention, workload: &Workload, inputs: &[&[f64]], row: usize) -> Row {
    let [m, n, d, dv] = [op.m, op.n, op.d, op.dv].map(|size| size as usize);
    let [heads, kv_heads] = [op.heads, op.kv_heads].map(|size| size as usize);
    let (query, head) = (row % m, row / m);
    let (image, head) = (head / heads, head % heads);
    let own = head / (heads / kv_heads);
    let rows = |head, all, rows, width| Rows::of(op.order, image, [head, all], [rows, width]);
    let all = heads + 2 * kv_heads;
    let (of_queries, of_keys, of_values, places) = match op.order {
        HeadOrder::Packed => {
            let [q, k, v] = [head, heads + own, heads + kv_heads + own].map(|head| rows(head, all, m, d));
            (q, k, v, [0, 0, 0, 1])
        }
        _ => {
            let [k, v] = [d, dv].map(|width| rows(own, kv_heads, n, width));
            (rows(head, heads, m, d), k, v, [0, 1, 2, 3])
        }
    };
    let [q, keys, values, mask] = places.map(|at| inputs.get(at).copied().unwrap_or_default());
    let q = &q[of_queries.row(query)..][..d];
    let key = |j: usize| &keys[of_keys.row(j)..][..d];
    let value = |j: usize| &values[of_values.row(j)..][..dv];
    let mask = match op.mask {
        Mask::None => None,
        Mask::Shared => Some(&mask[query * n..][..n]),
        Mask::Heads => Some(&mask[(head * m + query) * n..][..n]),
        Mask::Each => Some(&mask[row * n..][..n]),
    };
    let seen = if op.causal { n.min(query + 1) } else { n };
    // A product in parts has up to eight times the error of a short sum.
    let of_products = (d as f64).max((8.0 * d as f64).min(72.0)) + 3.0;
    let (mut scores, mut errors, mut most) = (vec![], vec![], 0f64);
    for j in 0..seen {
        let (mut sum, mut magnitude) = (0.0, 0.0);
        for (q, k) in q.iter().zip(key(j)) {
            sum += q * k;
            magnitude += (q * k).abs();
        }
        let added = mask.map_or(0.0, |mask| mask[j]);
        let score = sum / (d as f64).sqrt() + added;
        let magnitude = magnitude / (d as f64).sqrt();
        most = most.max(magnitude).max(if added == f64::NEG_INFINITY { 0.0 } else { added.abs() });
        errors.push(U * (of_products * magnitude + 4.0 * score.abs()));
        scores.push(score);
    }
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, float_max);
    if largest == f64::NEG_INFINITY {
        return Row { values: vec![0.0; dv], magnitudes: vec![0.0; dv], or_nan: vec![] };
    }
    let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
    let total: f64 = weights.iter().sum();
    let counts = || (0..seen).filter(|j| weights[*j] > 0.0);
    // The relative errors of the weights: the largest, and their mean.
    let of_largest = counts().filter(|j| scores[*j] == largest).map(|j| errors[j]).fold(0.0, f64::max);
    let relative = |j: usize| (errors[j] + of_largest + 2.0 * U * (largest - scores[j])).exp_m1() + EXP;
    let worst = counts().map(relative).fold(0.0, f64::max);
    let mean = counts().map(|j| weights[j] * relative(j)).sum::<f64>() / total;
    let (rounded, smallest) = match workload.dtype {
        DType::F16 => (2f64.powi(-11), 2f64.powi(-25)),
        DType::Bf16 => (2f64.powi(-8), 0.0),
        _ => (0.0, 0.0),
    };
    let terms = n as f64;
    let (mut sums, mut sizes, mut plain) = (vec![0.0; dv], vec![0.0; dv], vec![0.0; dv]);
    for (j, weight) in weights.iter().enumerate() {
        for (c, value) in value(j).iter().enumerate() {
            sums[c] += weight * value;
            sizes[c] += (weight * value).abs();
            plain[c] += value.abs();
        }
    }
    let exceeds = most * 2.0 > f64::from(f32::MAX);
    let uncertain = (workload.dtype == DType::F32 && workload.math != Math::Strict && !most.is_finite())
        .then_some(0..dv)
        .into_iter()
        .flatten();
    let or_nan = uncertain.chain((0..dv).filter(|c| (0..n).any(|j| !value(j)[*c].is_finite())));
    let magnitude = |c: usize| {
        let size = sizes[c] / total;
        let relative = worst + mean + 2.0 * rounded + (4.0 * terms + 8.0) * U;
        let error = size * relative * (1.0 + relative) + (smallest + f64::from(f32::MIN_POSITIVE)) * plain[c] / total;
        match workload.math {
            _ if exceeds || !error.is_finite() && sums[c].is_finite() && total.is_finite() => f64::MAX,
            // Both operands of both products lose bits, and that of a score is a share of its weight.
            Math::Tf32 => error / (terms * U) + size * (2.0 * most + 2.0),
            _ => error / (terms * U),
        }
    };
    Row {
        values: sums.iter().map(|sum| sum / total).collect(),
        magnitudes: (0..dv).map(magnitude).collect(),
        or_nan: or_nan.collect(),
    }
}
