//! The matrices of Winograd's minimal filtering, and linear combinations as vector code.
//!
//! `F(m, 3)` computes `m` neighbouring outputs of a filter of three taps from `t = m + 2` inputs with `t` products:
//! `y = A^T [(G g) * (B^T d)]`; in two dimensions each matrix is applied from both sides (Lavin and Gray, "Fast Algorithms
//! for Convolutional Neural Networks", CVPR 2016). The matrices follow from t - 1 points and infinity: 0, 1, -1 for m = 2;
//! 0, 0.625, -0.625, 1.5, -1.5 for m = 4; 0, 1, -1, 2, -2, 1/2, -1/2 for m = 6.

use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, Expr, Scope, VarId};

/// The matrices of one output tile size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrices {
    /// `B^T`, t x t: what is done to inputs.
    pub(super) input: &'static [&'static [f64]],
    /// `G`, t x 3: what is done to weights.
    pub(super) weight: &'static [&'static [f64]],
    /// `A^T`, m x t: what is done to products.
    pub(super) output: &'static [&'static [f64]],
}

impl Matrices {
    /// Those of `F(m x m, 3 x 3)`; there are some for 2, 4 and 6.
    pub(super) fn of(m: i64) -> Option<Matrices> {
        let (input, weight, output) = match m {
            2 => (INPUT_2, WEIGHT_2, OUTPUT_2),
            4 => (INPUT_4, WEIGHT_4, OUTPUT_4),
            6 => (INPUT_6, WEIGHT_6, OUTPUT_6),
            _ => return None,
        };
        Some(Matrices { input, weight, output })
    }
}

type Matrix = &'static [&'static [f64]];

const INPUT_2: Matrix =
    &[&[1.0, 0.0, -1.0, 0.0], &[0.0, 1.0, 1.0, 0.0], &[0.0, -1.0, 1.0, 0.0], &[0.0, 1.0, 0.0, -1.0]];
const WEIGHT_2: Matrix = &[&[1.0, 0.0, 0.0], &[0.5, 0.5, 0.5], &[0.5, -0.5, 0.5], &[0.0, 0.0, 1.0]];
const OUTPUT_2: Matrix = &[&[1.0, 1.0, 1.0, 0.0], &[0.0, 1.0, -1.0, -1.0]];

// Points P and Q, both signs. The usual 1 and 2 would save multiplications after the products and cost two to three times
// the error: the powers of these are closer to 1, and those of the input matrix are exact.
const P: f64 = 0.625;
const Q: f64 = 1.5;
const INPUT_4: Matrix = &[
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
const WEIGHT_4: Matrix = &[
    &[1.0 / (P * P * Q * Q), 0.0, 0.0],
    &[1.0 / AT_P, P / AT_P, P * P / AT_P],
    &[1.0 / AT_P, -P / AT_P, P * P / AT_P],
    &[1.0 / AT_Q, Q / AT_Q, Q * Q / AT_Q],
    &[1.0 / AT_Q, -Q / AT_Q, Q * Q / AT_Q],
    &[0.0, 0.0, 1.0],
];
const OUTPUT_4: Matrix = &[
    &[1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
    &[0.0, P, -P, Q, -Q, 0.0],
    &[0.0, P * P, P * P, Q * Q, Q * Q, 0.0],
    &[0.0, P * P * P, -P * P * P, Q * Q * Q, -Q * Q * Q, 1.0],
];

const INPUT_6: Matrix = &[
    &[1.0, 0.0, -5.25, 0.0, 5.25, 0.0, -1.0, 0.0],
    &[0.0, 1.0, 1.0, -4.25, -4.25, 1.0, 1.0, 0.0],
    &[0.0, -1.0, 1.0, 4.25, -4.25, -1.0, 1.0, 0.0],
    &[0.0, 0.5, 0.25, -2.5, -1.25, 2.0, 1.0, 0.0],
    &[0.0, -0.5, 0.25, 2.5, -1.25, -2.0, 1.0, 0.0],
    &[0.0, 2.0, 4.0, -2.5, -5.0, 0.5, 1.0, 0.0],
    &[0.0, -2.0, 4.0, 2.5, -5.0, -0.5, 1.0, 0.0],
    &[0.0, -1.0, 0.0, 5.25, 0.0, -5.25, 0.0, 1.0],
];
const WEIGHT_6: Matrix = &[
    &[1.0, 0.0, 0.0],
    &[-2.0 / 9.0, -2.0 / 9.0, -2.0 / 9.0],
    &[-2.0 / 9.0, 2.0 / 9.0, -2.0 / 9.0],
    &[1.0 / 90.0, 1.0 / 45.0, 2.0 / 45.0],
    &[1.0 / 90.0, -1.0 / 45.0, 2.0 / 45.0],
    &[32.0 / 45.0, 16.0 / 45.0, 8.0 / 45.0],
    &[32.0 / 45.0, -16.0 / 45.0, 8.0 / 45.0],
    &[0.0, 0.0, 1.0],
];
const OUTPUT_6: Matrix = &[
    &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
    &[0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 0.0],
    &[0.0, 1.0, 1.0, 4.0, 4.0, 0.25, 0.25, 0.0],
    &[0.0, 1.0, -1.0, 8.0, -8.0, 0.125, -0.125, 0.0],
    &[0.0, 1.0, 1.0, 16.0, 16.0, 0.0625, 0.0625, 0.0],
    &[0.0, 1.0, -1.0, 32.0, -32.0, 0.03125, -0.03125, 1.0],
];

/// `sum c_i x_i`, in the order in which it takes the fewest instructions: a term without a factor first, so that every
/// other one is a multiply-add.
fn combination(terms: &[(f64, Expr)]) -> Expr {
    let mut terms: Vec<&(f64, Expr)> = terms.iter().filter(|t| t.0 != 0.0).collect();
    terms.sort_by_key(|(c, _)| match *c {
        1.0 => 0,
        c if c > 0.0 => 1,
        _ => 2,
    });
    let mut sum: Option<Expr> = None;
    for (c, x) in terms {
        let scaled = |by: f64| if by == 1.0 { x.clone() } else { x.clone() * Expr::f32(by) };
        sum = Some(match sum {
            None => scaled(*c),
            Some(s) if *c < 0.0 => s - scaled(-c),
            Some(s) => s + scaled(*c),
        });
    }
    sum.unwrap_or(Expr::f32(0.0))
}

/// A row of terms divided by the coefficient of its last one, and that coefficient.
fn normalised(terms: Vec<(f64, Expr)>) -> (Vec<(f64, Expr)>, f64) {
    let by = terms.last().map_or(1.0, |t| t.0);
    (terms.into_iter().map(|(c, x)| (c / by, x)).collect(), by)
}

/// Values of vector code between its statements: rows of one vector each, for one lane of a vectorised loop.
pub(super) struct Temporaries {
    buffer: BufferId,
    lane: VarId,
    used: i64,
}

impl Temporaries {
    /// Most values that one application of a matrix of `t` columns keeps.
    pub(super) fn wanted(t: i64) -> i64 {
        2 * t
    }

    /// Temporaries in `buffer`, rows of one element a lane.
    pub(super) fn new(buffer: BufferId, lane: VarId) -> Temporaries {
        Temporaries { buffer, lane, used: 0 }
    }

    /// Forgets all values.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// Computes a value now, and gives the expression that reads it.
    pub(super) fn keep(&mut self, b: &mut KernelBuilder, value: Expr) -> Expr {
        let at = vec![Expr::Int(self.used), self.lane.into()];
        self.used += 1;
        b.store(self.buffer, at.clone(), value);
        Expr::load(self.buffer, at)
    }
}

/// Rows of vectors in registers, one element a lane.
pub(super) fn registers(b: &mut KernelBuilder, name: &str, rows: i64, lanes: i64) -> BufferId {
    b.alloc(name, crate::ir::DType::F32, &[rows, lanes], Scope::Register)
}

/// `matrix * x`. Rows that belong to the points p and -p differ in the sign of every second term, so both come from the
/// same two partial sums; columns likewise come from one sum and one difference.
pub(super) fn apply(b: &mut KernelBuilder, temp: &mut Temporaries, matrix: Matrix, x: &[Expr]) -> Vec<Expr> {
    let square = matrix.len() == x.len();
    if square { by_rows(b, temp, matrix, x) } else { by_columns(b, temp, matrix, x) }
}

/// Two rows as a common part and an opposite part, if each column is the one or the other.
type Parts = (Vec<(f64, Expr)>, Vec<(f64, Expr)>);

fn parts(r: &[f64], s: &[f64], x: &[Expr]) -> Option<Parts> {
    let (mut same, mut opposite) = (vec![], vec![]);
    for ((a, c), x) in r.iter().zip(s).zip(x) {
        match (*a, *c) {
            (0.0, 0.0) => {}
            (a, c) if a == c => same.push((a, x.clone())),
            (a, c) if a == -c => opposite.push((a, x.clone())),
            _ => return None,
        }
    }
    (!same.is_empty() && !opposite.is_empty()).then_some((same, opposite))
}

fn by_rows(b: &mut KernelBuilder, temp: &mut Temporaries, matrix: Matrix, x: &[Expr]) -> Vec<Expr> {
    let mut out = vec![];
    let mut i = 0;
    while i < matrix.len() {
        let pair = matrix.get(i + 1).and_then(|next| parts(matrix[i], next, x));
        match pair {
            Some((same, opposite)) => {
                let same = temp.keep(b, combination(&same));
                let (opposite, by) = normalised(opposite);
                let opposite = temp.keep(b, combination(&opposite));
                for sign in [by, -by] {
                    out.push(combination(&[(1.0, same.clone()), (sign, opposite.clone())]));
                }
                i += 2;
            }
            None => {
                let terms: Vec<(f64, Expr)> = matrix[i].iter().copied().zip(x.iter().cloned()).collect();
                out.push(combination(&terms));
                i += 1;
            }
        }
    }
    out
}

fn by_columns(b: &mut KernelBuilder, temp: &mut Temporaries, matrix: Matrix, x: &[Expr]) -> Vec<Expr> {
    let column = |j: usize| -> Vec<f64> { matrix.iter().map(|r| r[j]).collect() };
    let mut rows: Vec<Vec<(f64, Expr)>> = vec![vec![]; matrix.len()];
    let mut j = 0;
    while j < x.len() {
        let here = column(j);
        let paired = j + 1 < x.len() && {
            let next = column(j + 1);
            here != next && here.iter().zip(&next).all(|(a, c)| a.abs() == c.abs())
        };
        if paired {
            let next = column(j + 1);
            let sum = temp.keep(b, x[j].clone() + x[j + 1].clone());
            let difference = temp.keep(b, x[j].clone() - x[j + 1].clone());
            for ((row, a), c) in rows.iter_mut().zip(&here).zip(&next) {
                row.push((*a, if a == c { sum.clone() } else { difference.clone() }));
            }
            j += 2;
        } else {
            for (row, a) in rows.iter_mut().zip(&here) {
                row.push((*a, x[j].clone()));
            }
            j += 1;
        }
    }
    rows.iter().map(|terms| combination(terms)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrices_filter_exactly() {
        for m in [2, 4, 6] {
            let matrices = Matrices::of(m).unwrap();
            let t = m as usize + 2;
            // Bilinear in inputs and weights, so the basis vectors are enough.
            for d in 0..t {
                for g in 0..3 {
                    for (y, row) in matrices.output.iter().enumerate() {
                        let sum: f64 = (0..t).map(|k| row[k] * matrices.weight[k][g] * matrices.input[k][d]).sum();
                        let right = f64::from(u8::from(y + g == d));
                        assert!((sum - right).abs() < 1e-12, "F({m}): y{y} g{g} d{d} is {sum}");
                    }
                }
            }
        }
        assert!(Matrices::of(3).is_none());
    }
}
