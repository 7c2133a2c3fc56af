//! The matrices of Winograd's minimal filtering, in one dimension.
//!
//! `F(m, r)` computes `m` neighbouring outputs of a filter of `r` taps from `t = m + r - 1` inputs with `t` products:
//! `y = A^T [(G g) * (B^T d)]`; in two dimensions each matrix is applied from both sides (Lavin and Gray, "Fast Algorithms
//! for Convolutional Neural Networks", CVPR 2016). The matrices follow from t - 1 points and infinity.
//!
//! With stride `s` the inputs and taps whose places are equal modulo `s` make a filter with stride 1 of their own: the taps
//! of 3 with stride 2 fall into two and one. Outputs are the sums of `s` such filters, so the matrices stand beside each
//! other, and a tile has `t = (m - 1) s + r` inputs and products.
//!
//! # Precision
//! Each method of [`METHODS`] says its error: the root mean square of a long sum in `f32`, over that of the sequential sum
//! of the same products, with filters of one row, from simulations. In two dimensions the factors multiply.
//!
//! The simulations draw operands of one magnitude. In general the error is relative to the largest operand of a tile, and an
//! infinity makes NaN of the whole tile, so that no class that is [local](Math::is_local) has such a method.

use crate::workload::special::Reach;
use crate::workload::{Math, Workload};

/// Why a workload of a class that is local has no such method.
pub(in crate::templates) const NOT_LOCAL: &str =
    "an output's error depends on operands of its neighbours, which the classes `strict` and `local` rule out";

/// What the outputs of a convolution depend on, with tiles of `m` outputs in each dimension that has taps.
pub(in crate::templates) fn reach(w: &Workload, m: i64) -> Reach {
    let taps = w.conv2d().map_or([1, 1], |c| [c.kh, c.kw]);
    Reach::Tile(taps.map(|taps| if taps == 1 { 1 } else { m }))
}

/// Rows of a matrix.
pub(in crate::templates) type Matrix = Vec<Vec<f64>>;
type Table = &'static [&'static [f64]];

/// How one dimension is filtered.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::templates) struct Filter {
    /// `B^T`, t x t: what is done to inputs.
    pub(in crate::templates) input: Matrix,
    /// `G`, t x r: what is done to weights.
    pub(in crate::templates) weight: Matrix,
    /// `A^T`, m x t: what is done to products.
    pub(in crate::templates) output: Matrix,
}

/// A way to make several outputs of a filter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::templates) struct Method {
    taps: i64,
    stride: i64,
    /// Outputs of a tile.
    pub(in crate::templates) m: i64,
    /// The points beside infinity, those of equal size behind each other; none where the matrices stand here.
    points: &'static [f64],
    /// Its error; see the module's text.
    error: f64,
}

const fn method(taps: i64, stride: i64, m: i64, points: &'static [f64], error: f64) -> Method {
    Method { taps, stride, m, points, error }
}

/// All there are. The points are the best of a search over multiples of 1/8 and 1/4 up to 3: they are exact, and lie closer
/// to 1 than whole numbers do.
const METHODS: &[Method] = &[
    method(3, 1, 2, &[], 0.75),
    method(3, 1, 4, &[], 1.6),
    method(3, 1, 6, &[], 2.7),
    method(3, 2, 2, &[0.0, 1.0], 0.8),
    method(3, 2, 4, &[0.5, -0.5, 1.25, -1.25], 0.85),
    method(5, 1, 2, &[0.0, 0.625, -0.625, 1.5, -1.5], 1.1),
    method(5, 1, 3, &[0.25, -0.25, 0.75, -0.75, 2.0, -2.0], 1.85),
    method(7, 1, 2, &[0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0], 2.1),
    method(7, 1, 3, &[0.25, -0.25, 0.625, -0.625, 1.0, -1.0, 3.0, -3.0], 3.5),
    method(7, 1, 4, &[0.0, 0.375, -0.375, 0.75, -0.75, 1.25, -1.25, 1.75, -1.75], 4.8),
];

/// Output tiles for filters of so many taps and strides, rows and columns, whose error the class allows; a dimension with
/// one tap has tiles of one.
pub(in crate::templates) fn tile_sizes(taps: [i64; 2], stride: [i64; 2], math: Math) -> Vec<i64> {
    let error = |d: usize, m: i64| match (taps[d], stride[d]) {
        (1, 1) => Some(1.0),
        (taps, stride) => find(taps, stride, m).map(|found| found.error),
    };
    let most = match math {
        Math::Strict | Math::Local => return vec![],
        // The class has 8 for the largest error, which scatters around the mean.
        Math::Fp32 => 6.0,
        Math::Tf32 => 32.0,
    };
    let mut sizes: Vec<i64> = METHODS.iter().map(|found| found.m).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.retain(|m| matches!((error(0, *m), error(1, *m)), (Some(a), Some(b)) if a * b <= most));
    sizes
}

fn find(taps: i64, stride: i64, m: i64) -> Option<&'static Method> {
    METHODS.iter().find(|found| [found.taps, found.stride, found.m] == [taps, stride, m])
}

impl Filter {
    /// `m` outputs of a filter of so many taps with this stride: one of [`METHODS`], or one tap and one output.
    pub(in crate::templates) fn of(taps: i64, stride: i64, m: i64) -> Option<Filter> {
        if taps == 1 && stride == 1 && m == 1 {
            return Some(Filter::copy(1));
        }
        let found = find(taps, stride, m)?;
        let table = |rows: Table| rows.iter().map(|r| r.to_vec()).collect();
        let known =
            |input, weight, output| Some(Filter { input: table(input), weight: table(weight), output: table(output) });
        match (taps, stride, m) {
            (3, 1, 2) => known(INPUT_2, WEIGHT_2, OUTPUT_2),
            (3, 1, 4) => known(INPUT_4, WEIGHT_4, OUTPUT_4),
            (3, 1, 6) => known(INPUT_6, WEIGHT_6, OUTPUT_6),
            _ => Some(Filter::strided(found)),
        }
    }

    /// A filter of one tap: every input is multiplied with the weight.
    fn copy(m: i64) -> Filter {
        let unit = |i: i64| (0..m).map(|j| f64::from(u8::from(i == j))).collect();
        let all: Matrix = (0..m).map(unit).collect();
        Filter { input: all.clone(), weight: vec![vec![1.0]; m as usize], output: all }
    }

    /// The filters of each remainder of a place by the stride, beside each other.
    fn strided(method: &Method) -> Filter {
        let Method { taps, stride, m, points, .. } = *method;
        let t = ((m - 1) * stride + taps) as usize;
        let (stride, taps, outputs) = (stride as usize, taps as usize, m as usize);
        let mut all = Filter { input: vec![], weight: vec![], output: vec![vec![]; outputs] };
        for first in 0..stride {
            let own: Vec<usize> = (first..taps).step_by(stride).collect();
            let part = if own.len() == 1 { Filter::copy(m) } else { Filter::toom_cook(points, own.len(), outputs) };
            for row in &part.input {
                let mut wide = vec![0.0; t];
                for (i, value) in row.iter().enumerate() {
                    wide[first + i * stride] = *value;
                }
                all.input.push(wide);
            }
            for row in &part.weight {
                let mut wide = vec![0.0; taps];
                for (tap, value) in own.iter().zip(row) {
                    wide[*tap] = *value;
                }
                all.weight.push(wide);
            }
            for (wide, row) in all.output.iter_mut().zip(&part.output) {
                wide.extend(row);
            }
        }
        all
    }

    /// `F(m, r)` with stride 1 from its points. The products are those of two polynomials at the points, and of their
    /// leading coefficients at infinity; B interpolates, with the factors that it would divide by moved to G.
    fn toom_cook(points: &[f64], taps: usize, m: usize) -> Filter {
        let t = points.len() + 1;
        let without = |skipped: Option<usize>| {
            let mut product = vec![1.0];
            for (_, p) in points.iter().enumerate().filter(|(i, _)| Some(*i) != skipped) {
                let mut next = vec![0.0; product.len() + 1];
                for (i, c) in product.iter().enumerate() {
                    next[i] -= c * p;
                    next[i + 1] += c;
                }
                product = next;
            }
            product.resize(t, 0.0);
            product
        };
        let power = |p: f64, n: usize| (0..n).map(|_| p).product::<f64>();
        let (mut input, mut weight) = (vec![], vec![]);
        let mut output = vec![vec![0.0; t]; m];
        for (i, p) in points.iter().enumerate() {
            input.push(without(Some(i)));
            let others: f64 = points.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, q)| p - q).product();
            weight.push((0..taps).map(|k| power(*p, k) / others).collect());
            for (k, row) in output.iter_mut().enumerate() {
                row[i] = power(*p, k);
            }
        }
        input.push(without(None));
        weight.push((0..taps).map(|k| f64::from(u8::from(k + 1 == taps))).collect());
        output[m - 1][t - 1] = 1.0;
        Filter { input, weight, output }
    }
}

const INPUT_2: Table = &[&[1.0, 0.0, -1.0, 0.0], &[0.0, 1.0, 1.0, 0.0], &[0.0, -1.0, 1.0, 0.0], &[0.0, 1.0, 0.0, -1.0]];
const WEIGHT_2: Table = &[&[1.0, 0.0, 0.0], &[0.5, 0.5, 0.5], &[0.5, -0.5, 0.5], &[0.0, 0.0, 1.0]];
const OUTPUT_2: Table = &[&[1.0, 1.0, 1.0, 0.0], &[0.0, 1.0, -1.0, -1.0]];

// Points P and Q, both signs. The usual 1 and 2 would save multiplications after the products and cost two to three times
// the error: the powers of these are closer to 1, and those of the input matrix are exact.
const P: f64 = 0.625;
const Q: f64 = 1.5;
const INPUT_4: Table = &[
    &[P * P * Q * Q, 0.0, -(P * P + Q * Q), 0.0, 1.0, 0.0],
    &[0.0, -P * Q * Q, -Q * Q, P, 1.0, 0.0],
    &[0.0, P * Q * Q, -Q * Q, -P, 1.0, 0.0],
    &[0.0, -Q * P * P, -P * P, Q, 1.0, 0.0],
    &[0.0, Q * P * P, -P * P, -Q, 1.0, 0.0],
    &[0.0, P * P * Q * Q, 0.0, -(P * P + Q * Q), 0.0, 1.0],
];
/// `product over the other points r of (p - r)`, for the points P and -P, Q and -Q.
const AT_P: f64 = 2.0 * P * P * (P * P - Q * Q);
const AT_Q: f64 = 2.0 * Q * Q * (Q * Q - P * P);
const WEIGHT_4: Table = &[
    &[1.0 / (P * P * Q * Q), 0.0, 0.0],
    &[1.0 / AT_P, P / AT_P, P * P / AT_P],
    &[1.0 / AT_P, -P / AT_P, P * P / AT_P],
    &[1.0 / AT_Q, Q / AT_Q, Q * Q / AT_Q],
    &[1.0 / AT_Q, -Q / AT_Q, Q * Q / AT_Q],
    &[0.0, 0.0, 1.0],
];
const OUTPUT_4: Table = &[
    &[1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
    &[0.0, P, -P, Q, -Q, 0.0],
    &[0.0, P * P, P * P, Q * Q, Q * Q, 0.0],
    &[0.0, P * P * P, -P * P * P, Q * Q * Q, -Q * Q * Q, 1.0],
];

const INPUT_6: Table = &[
    &[1.0, 0.0, -5.25, 0.0, 5.25, 0.0, -1.0, 0.0],
    &[0.0, 1.0, 1.0, -4.25, -4.25, 1.0, 1.0, 0.0],
    &[0.0, -1.0, 1.0, 4.25, -4.25, -1.0, 1.0, 0.0],
    &[0.0, 0.5, 0.25, -2.5, -1.25, 2.0, 1.0, 0.0],
    &[0.0, -0.5, 0.25, 2.5, -1.25, -2.0, 1.0, 0.0],
    &[0.0, 2.0, 4.0, -2.5, -5.0, 0.5, 1.0, 0.0],
    &[0.0, -2.0, 4.0, 2.5, -5.0, -0.5, 1.0, 0.0],
    &[0.0, -1.0, 0.0, 5.25, 0.0, -5.25, 0.0, 1.0],
];
const WEIGHT_6: Table = &[
    &[1.0, 0.0, 0.0],
    &[-2.0 / 9.0, -2.0 / 9.0, -2.0 / 9.0],
    &[-2.0 / 9.0, 2.0 / 9.0, -2.0 / 9.0],
    &[1.0 / 90.0, 1.0 / 45.0, 2.0 / 45.0],
    &[1.0 / 90.0, -1.0 / 45.0, 2.0 / 45.0],
    &[32.0 / 45.0, 16.0 / 45.0, 8.0 / 45.0],
    &[32.0 / 45.0, -16.0 / 45.0, 8.0 / 45.0],
    &[0.0, 0.0, 1.0],
];
const OUTPUT_6: Table = &[
    &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
    &[0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 0.0],
    &[0.0, 1.0, 1.0, 4.0, 4.0, 0.25, 0.25, 0.0],
    &[0.0, 1.0, -1.0, 8.0, -8.0, 0.125, -0.125, 0.0],
    &[0.0, 1.0, 1.0, 16.0, 16.0, 0.0625, 0.0625, 0.0],
    &[0.0, 1.0, -1.0, 32.0, -32.0, 0.03125, -0.03125, 1.0],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrices_filter_exactly() {
        for method in METHODS {
            let Method { taps, stride, m, .. } = *method;
            let filter = Filter::of(taps, stride, m).unwrap();
            let t = ((m - 1) * stride + taps) as usize;
            assert_eq!([filter.input.len(), filter.weight.len(), filter.output[0].len()], [t; 3], "{method:?}");
            // Bilinear in inputs and weights, so the basis vectors are enough.
            for d in 0..t {
                for g in 0..taps as usize {
                    for (y, row) in filter.output.iter().enumerate() {
                        let sum: f64 = (0..t).map(|k| row[k] * filter.weight[k][g] * filter.input[k][d]).sum();
                        let right = f64::from(u8::from(y * stride as usize + g == d));
                        assert!((sum - right).abs() < 1e-12, "{method:?}: y{y} g{g} d{d} is {sum}");
                    }
                }
            }
        }
        assert!(Filter::of(3, 1, 3).is_none());
    }

    #[test]
    fn the_class_decides_which_methods_there_are() {
        use Math::{Fp32, Local, Strict, Tf32};
        let square = |taps, stride, math| tile_sizes([taps; 2], [stride; 2], math);
        assert_eq!([Fp32, Tf32].map(|math| square(3, 1, math)), [vec![2, 4], vec![2, 4, 6]]);
        for local in [Strict, Local] {
            assert!([1, 2].iter().all(|stride| square(3, *stride, local).is_empty()));
        }
        assert_eq!([Fp32, Tf32].map(|math| square(3, 2, math)), [vec![2, 4], vec![2, 4]]);
        assert_eq!(square(5, 1, Fp32), [2, 3]);
        assert_eq!(square(7, 1, Fp32), [2]);
        // A filter of one row errs less than one of several.
        assert_eq!(tile_sizes([1, 7], [1, 1], Fp32), [2, 3, 4]);
        assert_eq!(tile_sizes([3, 1], [1, 1], Fp32), [2, 4, 6]);
        // No method is for one tap with a stride, nor for two taps.
        assert_eq!(tile_sizes([1, 3], [2, 2], Fp32), Vec::<i64>::new());
        assert_eq!(tile_sizes([2, 2], [1, 1], Fp32), Vec::<i64>::new());
    }
}
