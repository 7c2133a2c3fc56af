//! What normalises the rows of a matrix: softmax, layer norm, RMS norm.

use super::operator::{FLOATS, Kind, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, AxisRole, Combine, Stage, axis, input, result};
use super::{ConvLayout, Op, Role, Workload, WorkloadError, reference_rows};
use crate::ir::{BinOp, DType, Expr, UnOp};

/// An operator on each row of a matrix `[rows, columns]` alone. A tensor of more dimensions is one whose leading ones are rows.
///
/// | function | `y[m, n]` |
/// |---|---|
/// | [`RowFunction::Softmax`] | `exp(x[m, n] - largest) / sum over k of exp(x[m, k] - largest)`, `largest` being the row's largest element |
/// | [`RowFunction::LogSoftmax`] | `x[m, n] - largest - log(sum over k of exp(x[m, k] - largest))` |
/// | [`RowFunction::LayerNorm`] | `(x[m, n] - mean) / sqrt(mean of (x[m, k] - mean)^2 + epsilon)` |
/// | [`RowFunction::RmsNorm`] | `x[m, n] / sqrt(mean of x[m, k]^2 + epsilon)` |
///
/// The factor and the summand of each column that networks have behind a norm are the epilogue's `scale`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowWise {
    /// Rows.
    pub rows: i64,
    /// Columns.
    pub columns: i64,
    /// What is made of a row.
    pub function: RowFunction,
}

/// What is made of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum RowFunction {
    /// Positive numbers that add up to 1.
    Softmax,
    /// Their logarithms.
    LogSoftmax,
    /// Mean 0 and variance 1.
    LayerNorm(Epsilon),
    /// A mean square of 1.
    RmsNorm(Epsilon),
}

/// What is added to a variance before it divides, so that a constant row divides by no zero: a power of ten.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epsilon {
    /// `epsilon` is ten to the power of minus this; 1 to 30.
    pub digits: i64,
}

impl Epsilon {
    /// Its value.
    pub fn get(self) -> f64 {
        10f64.powi(-(self.digits as i32))
    }

    pub(super) fn check(self) -> Result<(), WorkloadError> {
        if (1..=30).contains(&self.digits) {
            return Ok(());
        }
        let cause = format!("`epsilon_digits` is {}", self.digits);
        Err(WorkloadError::Sizes { cause, help: "it must be from 1 to 30: 5 stands for an epsilon of 1e-5" })
    }
}

/// The digits of `epsilon` that PyTorch and ONNX have.
pub(super) const USUAL_DIGITS: i64 = 5;

const ROWS: Size = Size::new("rows", "rows", SizeRole::Images);
const COLUMNS: Size = Size::new("columns", "columns", SizeRole::Channels);
pub(super) const DIGITS: Size = Size::new("epsilon_digits", "epsilon_digits", SizeRole::Digits);

/// A kind of a function that may hold an epsilon.
macro_rules! kind {
    ($name:literal, $pattern:literal, $sizes:expr, $function:expr) => {
        Kind {
            name: $name,
            pattern: $pattern,
            sizes: &$sizes,
            layouts: &[],
            flags: &[],
            between: &[],
            outputs: FLOATS,
            keys: |_| {
                let digits = $sizes.len() == 3;
                let digits = digits.then(|| SpecKey::optional("epsilon_digits", &[]));
                [SpecKey::required("input", &[2], "[rows, columns]")].into_iter().chain(digits).collect()
            },
            read: |_, values| {
                let [rows, columns] = values.shape("input");
                let digits = values.get("epsilon_digits").map_or(USUAL_DIGITS, |digits| digits[0]);
                Ok(Op::RowWise(RowWise { rows, columns, function: $function(digits) }))
            },
            of_sizes: |_: ConvLayout, sizes| {
                let (rows, columns) = (*sizes.first()?, *sizes.get(1)?);
                let digits = sizes.get(2).copied().unwrap_or(USUAL_DIGITS);
                Some(Op::RowWise(RowWise { rows, columns, function: $function(digits) }))
            },
            guilty: |error| match error {
                WorkloadError::Sizes { .. } => "epsilon_digits",
                _ => "input",
            },
        }
    };
}

/// `softmax` in specs and keys.
pub(crate) static SOFTMAX: Kind = kind!("softmax", "m{}n{}", [ROWS, COLUMNS], |_| RowFunction::Softmax);

/// `log_softmax` in specs and keys.
pub(crate) static LOG_SOFTMAX: Kind = kind!("log_softmax", "m{}n{}", [ROWS, COLUMNS], |_| RowFunction::LogSoftmax);

/// `layer_norm` in specs and keys.
pub(crate) static LAYER_NORM: Kind =
    kind!("layer_norm", "m{}n{}-e{}", [ROWS, COLUMNS, DIGITS], |digits| RowFunction::LayerNorm(Epsilon { digits }));

/// `rms_norm` in specs and keys.
pub(crate) static RMS_NORM: Kind =
    kind!("rms_norm", "m{}n{}-e{}", [ROWS, COLUMNS, DIGITS], |digits| RowFunction::RmsNorm(Epsilon { digits }));

impl RowWise {
    fn epsilon(&self) -> Option<Epsilon> {
        match self.function {
            RowFunction::Softmax | RowFunction::LogSoftmax => None,
            RowFunction::LayerNorm(epsilon) | RowFunction::RmsNorm(epsilon) => Some(epsilon),
        }
    }

    /// A stage with one element a row: the terms of the columns combined, or what is made of such elements.
    fn of_rows(&self, name: &'static str, dtype: DType, combine: Combine, value: Expr) -> Stage {
        let reduce = usize::from(combine != Combine::One);
        let loops = [("m", self.rows), ("k", self.columns)];
        let (shape, index) = (vec![self.rows], vec![axis(0).into()]);
        Stage { name, dtype, shape, loops: loops[..1 + reduce].to_vec(), reduce, combine, index, value }
    }
}

impl Operator for RowWise {
    fn kind(&self) -> &'static Kind {
        match self.function {
            RowFunction::Softmax => &SOFTMAX,
            RowFunction::LogSoftmax => &LOG_SOFTMAX,
            RowFunction::LayerNorm(_) => &LAYER_NORM,
            RowFunction::RmsNorm(_) => &RMS_NORM,
        }
    }

    fn sizes(&self) -> Vec<i64> {
        [self.rows, self.columns].into_iter().chain(self.epsilon().map(|epsilon| epsilon.digits)).collect()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        self.epsilon().map_or(Ok(()), Epsilon::check)
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("x", Role::Input, vec![self.rows, self.columns])]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", vec![Axis::new("m", self.rows, AxisRole::Batch), Axis::new("n", self.columns, AxisRole::Channel)])
    }

    fn terms(&self) -> i64 {
        self.columns
    }

    /// Those of a row are shared by its elements: a subtraction, a function, an addition and a product or a division.
    fn flops(&self) -> Option<i64> {
        Some(self.rows.saturating_mul(self.columns).saturating_mul(6))
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let x = |column: usize| Expr::load(input(0), vec![axis(0).into(), axis(column).into()]);
        let of_row = |stage: usize| Expr::load(result(stage), vec![axis(0).into()]);
        let f = |value: f64| Expr::Float(value, sums.compute());
        let mean = |stage: usize| Expr::bin(BinOp::Div, of_row(stage), f(self.columns as f64));
        let factor = |squares: usize, epsilon: Epsilon| {
            Expr::bin(BinOp::Div, f(1.0), Expr::un(UnOp::Sqrt, mean(squares) + f(epsilon.get())))
        };
        let (mut stages, acc) = match self.function {
            RowFunction::Softmax | RowFunction::LogSoftmax => {
                let term = || Expr::un(UnOp::Exp, x(1) - of_row(0));
                let mut stages = vec![
                    self.of_rows("largest", sums, Combine::Max, x(1)),
                    self.of_rows("total", sums, Combine::Sum, term()),
                ];
                if self.function == RowFunction::Softmax {
                    (stages, Expr::bin(BinOp::Div, term(), of_row(1)))
                } else {
                    stages.push(self.of_rows("log", sums, Combine::One, Expr::un(UnOp::Log, of_row(1))));
                    (stages, x(1) - of_row(0) - of_row(2))
                }
            }
            RowFunction::LayerNorm(epsilon) => {
                let apart = || x(1) - of_row(1);
                let stages = vec![
                    self.of_rows("total", sums, Combine::Sum, x(1)),
                    self.of_rows("mean", sums, Combine::One, mean(0)),
                    self.of_rows("squares", sums, Combine::Sum, apart() * apart()),
                    self.of_rows("inverse", sums, Combine::One, factor(2, epsilon)),
                ];
                (stages, apart() * of_row(3))
            }
            RowFunction::RmsNorm(epsilon) => {
                let stages = vec![
                    self.of_rows("squares", sums, Combine::Sum, x(1) * x(1)),
                    self.of_rows("inverse", sums, Combine::One, factor(0, epsilon)),
                ];
                (stages, x(1) * of_row(1))
            }
        };
        stages.push(Stage {
            name: "acc",
            dtype: sums,
            shape: vec![self.rows, self.columns],
            loops: vec![("m", self.rows), ("n", self.columns)],
            reduce: 0,
            combine: Combine::One,
            index: vec![axis(0).into(), axis(1).into()],
            value: acc,
        });
        stages
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_rows::of_rows(self, inputs[0])
    }
}
