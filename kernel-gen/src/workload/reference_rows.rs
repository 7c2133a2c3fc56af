//! What norms, softmax and reductions compute, in plain Rust and `f64`. The magnitudes are errors as a share of that of a sum of as many
//! terms.

use super::products::Sums;
use super::reduce::Reduction;
use super::reference::{indices, places, steps};
use super::row_wise::RowFunction;
use super::{ChannelSoftmax, Lrn, Number, Reduce, RowWise};
use crate::ir::{float_max, float_min};

/// What is made of each row. The magnitudes are the error that `f32` may make, as a share of that of a sum of as many terms as a row has;
/// its parts are told one by one.
pub(super) fn of_rows(op: &RowWise, x: &[f64]) -> Sums {
    // The unit roundoff of f32, and what an `exp` may be off by.
    let u = 1.0 / f64::from(1 << 24);
    let exp = 8.0;
    let (mut values, mut magnitudes) = (vec![], vec![]);
    for row in x.chunks(op.columns as usize) {
        let n = row.len() as f64;
        let mean = |of: &dyn Fn(f64) -> f64| row.iter().map(|x| of(*x)).sum::<f64>() / n;
        match op.function {
            RowFunction::Softmax | RowFunction::LogSoftmax => {
                let largest = row.iter().copied().fold(f64::NEG_INFINITY, float_max);
                let term = |x: f64| (x - largest).exp();
                let total = n * mean(&term);
                // The difference is rounded, which the exponential makes a share of its result.
                let weighted = n * mean(&|x| if term(x) > 0.0 { term(x) * (largest - x) } else { 0.0 }) / total;
                if op.function == RowFunction::LogSoftmax {
                    // The relative error of the sum is the absolute one of its logarithm.
                    let of_total = n + 2.0 * exp + 4.0 + weighted + exp * total.ln();
                    for x in row {
                        let y = x - largest - total.ln();
                        values.push(y);
                        magnitudes.push(if y.is_finite() {
                            (of_total + 2.0 * (largest - x) + y.abs()) / n
                        } else {
                            0.0
                        });
                    }
                    continue;
                }
                for x in row {
                    let y = term(*x) / total;
                    let away = if term(*x) > 0.0 { largest - x } else { 0.0 };
                    values.push(y);
                    magnitudes.push(y * (n + 2.0 * exp + 4.0 + away + weighted) / n);
                }
            }
            RowFunction::LayerNorm(epsilon) | RowFunction::RmsNorm(epsilon) => {
                let centred = matches!(op.function, RowFunction::LayerNorm(_));
                let middle = if centred { mean(&|x| x) } else { 0.0 };
                // Errors in units of roundoff: of the mean, of a difference from it, of the mean square, of the factor's relative one.
                let of_mean = if centred { (n + 1.0) * mean(&f64::abs) } else { 0.0 };
                let of_apart = |x: f64| if centred { of_mean + (x - middle).abs() } else { 0.0 };
                let square = mean(&|x| (x - middle) * (x - middle)) + epsilon.get();
                let underflow = f64::from(f32::MIN_POSITIVE) / u;
                let of_square = underflow
                    + mean(&|x| of_apart(x) * (2.0 * (x - middle).abs() + u * of_apart(x)))
                    + (n + 4.0) * square;
                // Sums that exceed the largest f32 make anything of a row.
                let exceeds = n * square.max(mean(&f64::abs)) > f64::from(f32::MAX);
                let share = of_square / (square - u * of_square) / 2.0 + 4.0;
                for x in row {
                    let y = (x - middle) / square.sqrt();
                    let error = of_apart(*x) / square.sqrt() * (1.0 + u * share) + y.abs() * (share + 2.0);
                    values.push(y);
                    magnitudes.push(if exceeds || u * of_square >= square { f64::MAX } else { error / n });
                }
            }
        }
    }
    Sums { values, magnitudes, or_nan: vec![] }
}

/// What is made of the channels of each pixel, as of the rows of the matrix that they are.
pub(super) fn of_channels(op: &ChannelSoftmax, x: &[f64]) -> Sums {
    let [n, c, pixels] = [op.n, op.c, op.pixels].map(|size| size as usize);
    let each = move || (0..n).flat_map(move |n| (0..pixels).map(move |p| (n, p)));
    let places: Vec<usize> = each().flat_map(|(n, p)| (0..c).map(move |k| (n * c + k) * pixels + p)).collect();
    let rows: Vec<f64> = places.iter().map(|at| x[*at]).collect();
    let of = of_rows(&op.rows(), &rows);
    let (mut values, mut magnitudes) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    for (i, at) in places.into_iter().enumerate() {
        (values[at], magnitudes[at]) = (of.values[i], of.magnitudes[i]);
    }
    Sums { values, magnitudes, or_nan: vec![] }
}

/// Local response normalisation. The magnitudes are the error that `f32` may make, as a share of that of a sum of as many terms as
/// there are channels in a window.
pub(super) fn of_neighbours(op: &Lrn, x: &[f64]) -> Sums {
    let [alpha, beta, bias] = [op.alpha, op.beta, op.bias].map(Number::get);
    let (mut values, mut magnitudes) = (vec![], vec![]);
    for index in indices(&[op.n, op.c, op.pixels]) {
        let [n, c, p] = index[..] else { unreachable!("it has three dimensions") };
        let at = |c: i64| x[((n * op.c + c) * op.pixels + p) as usize];
        let first = c - op.before();
        let window: Vec<f64> = (first..first + op.size).filter(|c| (0..op.c).contains(c)).map(at).collect();
        let squares: f64 = window.iter().map(|x| x * x).sum();
        let norm = (bias + alpha * squares / op.size as f64).powf(beta);
        let y = at(c) / norm;
        // A sum of squares and its factor, to the power of beta; the power and the quotient.
        let share = beta.abs() * (op.size as f64 + 4.0) + 18.0;
        // Where squares exceed the largest f32, or powers leave its normal numbers, anything may come.
        let exceeds = window.iter().all(|x| x.is_finite())
            && (squares * (1.0 + alpha) > f64::from(f32::MAX) || !(1e-37..1e37).contains(&norm));
        values.push(y);
        magnitudes.push(if exceeds { f64::MAX } else { y.abs() * share / op.size as f64 });
    }
    Sums { values, magnitudes, or_nan: vec![] }
}

/// The elements of a tensor combined over dimensions. The magnitudes are errors as a share of that of a sum of as many terms.
pub(super) fn reduced(op: &Reduce, x: &[f64]) -> Sums {
    let kept = op.dimensions(false);
    let shape: Vec<i64> = kept.iter().map(|i| op.input[*i]).collect();
    let mut y_steps = vec![0; op.input.len()];
    kept.iter().zip(steps(&shape)).for_each(|(i, step)| y_steps[*i] = step);
    let mut groups = vec![vec![]; shape.iter().product::<i64>() as usize];
    for (y, x) in places(&op.input, &y_steps).into_iter().zip(x) {
        groups[y].push(*x);
    }
    let (values, magnitudes) = groups.iter().map(|group| combined(op.function, group)).unzip();
    Sums { values, magnitudes, or_nan: vec![] }
}

/// Some numbers combined, and the error.
fn combined(function: Reduction, all: &[f64]) -> (f64, f64) {
    const LIBRARY: f64 = 8.0;
    let (n, u) = (all.len() as f64, 1.0 / f64::from(1 << 24));
    let sum = |of: &dyn Fn(f64) -> f64| all.iter().map(|x| of(*x)).sum::<f64>();
    let (size, squares) = (sum(&f64::abs), sum(&|x| x * x));
    match function {
        Reduction::Max => (all.iter().copied().fold(f64::NEG_INFINITY, float_max), 0.0),
        Reduction::Min => (all.iter().copied().fold(f64::INFINITY, float_min), 0.0),
        Reduction::Sum => (sum(&|x| x), size),
        Reduction::Mean => (sum(&|x| x) / n, size / n),
        Reduction::Product => {
            let product =
                |of: &dyn Fn(f64) -> f64| all.iter().filter(|x| x.is_finite()).map(|x| of(*x)).product::<f64>();
            let (y, smallest) = (all.iter().product::<f64>(), f64::from(f32::MIN_POSITIVE));
            // The largest and the smallest product of some of the numbers.
            let most = product(&|x| x.abs().max(1.0));
            let least = product(&|x| if x == 0.0 { 1.0 } else { x.abs().min(1.0) });
            let has_infinity = all.iter().any(|x| x.is_infinite());
            match () {
                () if all.iter().any(|x| x.is_nan()) => (y, 0.0),
                // A product of some exceeds the largest number, or is lost, before an infinity or a zero comes.
                () if most > f64::from(f32::MAX) || has_infinity && least < smallest => (y, f64::MAX),
                () if y == 0.0 && all.contains(&0.0) || !y.is_finite() => (y, 0.0),
                // What is lost below the smallest number is multiplied by the others.
                () if least < smallest => (y, y.abs() + smallest * most / u),
                () => (y, y.abs()),
            }
        }
        Reduction::L1 => (size, size),
        Reduction::SumSquare => (squares, squares),
        // Half the sum's relative error, and squares that are lost below the smallest number. Beyond the largest anything may come.
        Reduction::L2 if squares > f64::from(f32::MAX) && squares.is_finite() => (squares.sqrt(), f64::MAX),
        Reduction::L2 => {
            let lost = (squares + n * f64::from(f32::MIN_POSITIVE)).sqrt() - squares.sqrt();
            (squares.sqrt(), squares.sqrt() * (0.5 + 1.0 / n) + lost / u / n)
        }
        // The relative error of the sum is the absolute one of its logarithm. A sum that may be 0 has any.
        Reduction::LogSum => {
            let (total, error) = (sum(&|x| x), n * u * size);
            let known = total.abs() - error;
            let relative = error / known / u;
            let magnitude = (relative + LIBRARY * total.ln().abs()) / n;
            (total.ln(), if size > 0.0 && size.is_finite() && known <= 0.0 { f64::MAX } else { magnitude })
        }
        Reduction::LogSumExp => {
            let largest = all.iter().copied().fold(f64::NEG_INFINITY, float_max);
            let top = if largest.is_infinite() { 0.0 } else { largest };
            let total = sum(&|x| (x - top).exp());
            let y = total.ln() + top;
            // The difference is rounded, which the exponential makes a share of its result.
            let weighted = sum(&|x| if (x - top).exp() > 0.0 { (x - top).exp() * (top - x) } else { 0.0 }) / total;
            let error = n + LIBRARY + 4.0 + weighted + LIBRARY * total.ln().abs() + y.abs();
            (y, if y.is_finite() { error / n } else { 0.0 })
        }
    }
}
