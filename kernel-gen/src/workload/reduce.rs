//! Sums, means, products, extremes and norms over dimensions of a tensor.

use super::dims::{Dims, MAX_RANK, RANKS, lists};
use super::operator::{FLOATS, Fault, Kind, OfI32, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::param::product;
use super::products::Sums;
use super::stage::{Axis, Combine, Stage, axis, input, result};
use super::{Op, Role, Workload, WorkloadError, reference_rows};
use crate::ir::{BinOp, DType, Expr, UnOp};

/// The elements of a tensor combined over some of its dimensions, which the output does not have; where none is left it has one
/// element.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reduce {
    /// The shape of the input.
    pub input: Dims,
    /// For each dimension 1 if it is combined, and 0 if it stays.
    pub combined: Dims,
    /// How elements are combined.
    pub function: Reduction,
}

/// How elements are combined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their sum over their number.
    Mean,
    /// Their product.
    Product,
    /// The largest; NaN if there is one.
    Max,
    /// The smallest; NaN if there is one.
    Min,
    /// The sum of their absolute values.
    L1,
    /// The square root of the sum of their squares.
    L2,
    /// The sum of their squares.
    SumSquare,
    /// The logarithm of their sum.
    LogSum,
    /// The logarithm of the sum of their exponentials.
    LogSumExp,
}

/// A kind of a reduction.
macro_rules! kind {
    ($name:literal, $function:expr) => {
        Kind {
            name: $name,
            pattern: "{x}-r{x}",
            sizes: &lists::<{ 2 * MAX_RANK }>(&[
                Size::new("input", "input", SizeRole::Dimension),
                Size::new("axes", "axes", SizeRole::Mark),
            ]),
            layouts: &[],
            flags: &[],
            between: &[],
            outputs: FLOATS,
            keys: |_| {
                let axes = SpecKey::required("axes", RANKS, "[the dimensions that are combined, from 0]");
                vec![SpecKey::required("input", RANKS, "[the input's shape]"), axes]
            },
            read: |_, values| {
                let input = values.get("input").and_then(Dims::new).expect("its length was checked");
                let mut combined = vec![0; input.len()];
                for axis in values.get("axes").unwrap_or_default() {
                    match usize::try_from(*axis).ok().and_then(|axis| combined.get_mut(axis)) {
                        Some(mark) if *mark == 0 => *mark = 1,
                        found => {
                            let twice = if found.is_some() { "stands twice" } else { "is no dimension of `input`" };
                            let help = format!("each is one from 0 to {}, once", input.len() - 1);
                            return Err(Fault::new("axes", format!("{axis} {twice}"), help));
                        }
                    }
                }
                let combined = Dims::new(&combined).expect("as many as the input has");
                Ok(Op::Reduce(Reduce { input, combined, function: $function }))
            },
            of_sizes: |_, sizes| {
                let [input, combined] = Dims::of_sizes(sizes)?;
                Some(Op::Reduce(Reduce { input, combined, function: $function }))
            },
            guilty: |error| match error {
                WorkloadError::Sizes { .. } => "axes",
                _ => "input",
            },
        }
    };
}

/// `reduce_sum` in specs and keys.
pub(crate) static REDUCE_SUM: Kind = kind!("reduce_sum", Reduction::Sum);

/// `reduce_mean`.
pub(crate) static REDUCE_MEAN: Kind = kind!("reduce_mean", Reduction::Mean);

/// `reduce_prod`.
pub(crate) static REDUCE_PROD: Kind = kind!("reduce_prod", Reduction::Product);

/// `reduce_max`.
pub(crate) static REDUCE_MAX: Kind = kind!("reduce_max", Reduction::Max);

/// `reduce_min`.
pub(crate) static REDUCE_MIN: Kind = kind!("reduce_min", Reduction::Min);

/// `reduce_l1`.
pub(crate) static REDUCE_L1: Kind = kind!("reduce_l1", Reduction::L1);

/// `reduce_l2`.
pub(crate) static REDUCE_L2: Kind = kind!("reduce_l2", Reduction::L2);

/// `reduce_sum_square`.
pub(crate) static REDUCE_SUM_SQUARE: Kind = kind!("reduce_sum_square", Reduction::SumSquare);

/// `reduce_log_sum`.
pub(crate) static REDUCE_LOG_SUM: Kind = kind!("reduce_log_sum", Reduction::LogSum);

/// `reduce_log_sum_exp`.
pub(crate) static REDUCE_LOG_SUM_EXP: Kind = kind!("reduce_log_sum_exp", Reduction::LogSumExp);

impl Reduce {
    /// The dimensions that are combined, or those that stay.
    pub(super) fn dimensions(&self, combined: bool) -> Vec<usize> {
        (0..self.input.len()).filter(|i| (self.combined[*i] == 1) == combined).collect()
    }

    fn output_shape(&self) -> Dims {
        let kept: Vec<i64> = self.dimensions(false).iter().map(|i| self.input[*i]).collect();
        Dims::new(&kept).or(Dims::new(&[1])).expect("no more dimensions than the input")
    }
}

impl Operator for Reduce {
    fn kind(&self) -> &'static Kind {
        match self.function {
            Reduction::Sum => &REDUCE_SUM,
            Reduction::Mean => &REDUCE_MEAN,
            Reduction::Product => &REDUCE_PROD,
            Reduction::Max => &REDUCE_MAX,
            Reduction::Min => &REDUCE_MIN,
            Reduction::L1 => &REDUCE_L1,
            Reduction::L2 => &REDUCE_L2,
            Reduction::SumSquare => &REDUCE_SUM_SQUARE,
            Reduction::LogSum => &REDUCE_LOG_SUM,
            Reduction::LogSumExp => &REDUCE_LOG_SUM_EXP,
        }
    }

    fn sizes(&self) -> Vec<i64> {
        [self.input.sizes(), self.combined.sizes()].concat()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        let marks = self.combined.iter().all(|mark| [0, 1].contains(mark));
        if !marks || self.combined.len() != self.input.len() || !self.combined.contains(&1) {
            let cause = format!("{:?} says which dimensions of {:?} are combined", self.combined, self.input);
            return Err(WorkloadError::Sizes { cause, help: "at least one dimension must be, each once" });
        }
        Ok(())
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("x", Role::Input, self.input.to_vec())]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", self.output_shape().axes())
    }

    fn of_i32(&self) -> OfI32 {
        match self.function {
            Reduction::Sum | Reduction::Product | Reduction::Max | Reduction::Min => OfI32::Numbers,
            _ => OfI32::Nothing,
        }
    }

    fn terms(&self) -> i64 {
        product(&self.dimensions(true).iter().map(|i| self.input[*i]).collect::<Vec<_>>())
    }

    fn flops_per_term(&self) -> i64 {
        match self.function {
            Reduction::Sum | Reduction::Mean | Reduction::Product => 1,
            Reduction::Max | Reduction::Min | Reduction::LogSum => 1,
            Reduction::L1 | Reduction::L2 | Reduction::SumSquare => 2,
            Reduction::LogSumExp => 4,
        }
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        const NAMES: [&str; MAX_RANK] = ["k0", "k1", "k2", "k3", "k4", "k5"];
        let (kept, combined) = (self.dimensions(false), self.dimensions(true));
        let shape = self.output_shape();
        let mut source = vec![Expr::Int(0); self.input.len()];
        kept.iter().enumerate().for_each(|(at, i)| source[*i] = axis(at).into());
        combined.iter().enumerate().for_each(|(at, i)| source[*i] = axis(shape.len() + at).into());
        let here: Vec<Expr> = (0..shape.len()).map(|i| axis(i).into()).collect();
        let stage = |name, combine: Combine, value| {
            let reduce = if combine == Combine::One { 0 } else { combined.len() };
            let over = combined.iter().map(|i| (NAMES[*i], self.input[*i]));
            let loops = shape.axes().into_iter().map(|axis| (axis.name, axis.extent)).chain(over);
            let loops = loops.take(shape.len() + reduce).collect();
            Stage { name, dtype: sums, shape: shape.to_vec(), loops, reduce, combine, index: here.clone(), value }
        };
        let x = || Expr::load(input(0), source.clone());
        let (combine, term) = match self.function {
            Reduction::Product => (Combine::Product, x()),
            Reduction::Max => (Combine::Max, x()),
            Reduction::Min => (Combine::Min, x()),
            Reduction::Sum | Reduction::Mean | Reduction::LogSum => (Combine::Sum, x()),
            Reduction::L1 => (Combine::Sum, Expr::un(UnOp::Abs, x())),
            Reduction::L2 | Reduction::SumSquare => (Combine::Sum, x() * x()),
            Reduction::LogSumExp => {
                let f = |value: f64| Expr::Float(value, sums.compute());
                let of = |stage: usize| Expr::load(result(stage), here.clone());
                // An infinity is taken from nothing: its exponential says what it is.
                let is_infinite = Expr::un(UnOp::Abs, of(0)).eq(f(f64::INFINITY));
                return vec![
                    stage("largest", Combine::Max, x()),
                    stage("top", Combine::One, is_infinite.select(f(0.0), of(0))),
                    stage("total", Combine::Sum, Expr::un(UnOp::Exp, x() - of(1))),
                    stage("acc", Combine::One, Expr::un(UnOp::Log, of(2)) + of(1)),
                ];
            }
        };
        vec![stage("acc", combine, term)]
    }

    fn finish(&self, sum: Expr, _: &[Expr]) -> Expr {
        match self.function {
            Reduction::Mean => Expr::bin(BinOp::Div, sum, Expr::f32(self.terms() as f64)),
            Reduction::L2 => Expr::un(UnOp::Sqrt, sum),
            Reduction::LogSum => Expr::un(UnOp::Log, sum),
            _ => sum,
        }
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_rows::reduced(self, inputs[0])
    }
}
