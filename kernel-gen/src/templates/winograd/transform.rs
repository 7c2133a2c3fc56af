//! Linear combinations as straight code, of vectors or of single elements: the matrices of `filter.rs`, applied to rows and columns of a tile.

use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, Expr, Scope, VarId};

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

/// Values of straight code between its statements: rows of one vector each, for one lane of a vectorised loop, or single
/// elements.
pub(in crate::templates) struct Temporaries {
    buffer: BufferId,
    lane: Option<VarId>,
    used: i64,
}

impl Temporaries {
    /// Most values that one application of a matrix of `t` columns keeps.
    pub(in crate::templates) fn wanted(t: i64) -> i64 {
        2 * t
    }

    /// Temporaries in `buffer`, rows of one element a lane.
    pub(in crate::templates) fn new(buffer: BufferId, lane: VarId) -> Temporaries {
        Temporaries { buffer, lane: Some(lane), used: 0 }
    }

    /// Temporaries in `buffer`, whose rows are single elements.
    pub(in crate::templates) fn scalars(buffer: BufferId) -> Temporaries {
        Temporaries { buffer, lane: None, used: 0 }
    }

    /// Forgets all values.
    pub(in crate::templates) fn clear(&mut self) {
        self.used = 0;
    }

    /// Computes a value now, and gives the expression that reads it.
    pub(in crate::templates) fn keep(&mut self, b: &mut KernelBuilder, value: Expr) -> Expr {
        let at: Vec<Expr> = [Expr::Int(self.used)].into_iter().chain(self.lane.map(Expr::from)).collect();
        self.used += 1;
        b.store(self.buffer, at.clone(), value);
        Expr::load(self.buffer, at)
    }
}

/// Rows of vectors in registers, one element a lane.
pub(in crate::templates) fn registers(b: &mut KernelBuilder, name: &str, rows: i64, lanes: i64) -> BufferId {
    b.alloc(name, crate::ir::DType::F32, &[rows, lanes], Scope::Register)
}

/// `matrix * x`. Rows that belong to the points p and -p differ in the sign of every second term, so both come from the
/// same two partial sums; columns likewise come from one sum and one difference.
pub(in crate::templates) fn apply(
    b: &mut KernelBuilder,
    temp: &mut Temporaries,
    matrix: &[Vec<f64>],
    x: &[Expr],
) -> Vec<Expr> {
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

fn by_rows(b: &mut KernelBuilder, temp: &mut Temporaries, matrix: &[Vec<f64>], x: &[Expr]) -> Vec<Expr> {
    let mut out = vec![];
    let mut i = 0;
    while i < matrix.len() {
        let pair = matrix.get(i + 1).and_then(|next| parts(&matrix[i], next, x));
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

fn by_columns(b: &mut KernelBuilder, temp: &mut Temporaries, matrix: &[Vec<f64>], x: &[Expr]) -> Vec<Expr> {
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
