//! Where the largest and the smallest elements are.

use super::dims::{Dims, MAX_RANK, RANKS, axis_of, lists_and};
use super::operator::{INDICES, Kind, OfI32, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, Combine, Stage, axis, input, result};
use super::{Op, Role, Workload, WorkloadError, reference_elements};
use crate::ir::{BinOp, DType, Expr};

/// The index of the largest or the smallest element along a dimension, which the output does not have; where none is left it has one
/// element. A NaN counts as the extreme, as in NumPy and in PyTorch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ArgExtreme {
    /// The shape of the input.
    pub input: Dims,
    /// The dimension, counted from 0.
    pub axis: i64,
    /// Of which element the index is.
    pub extreme: Extreme,
    /// Whether it is the last one of equal elements; else it is the first.
    pub last: bool,
}

/// An end of the order of numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Extreme {
    /// The largest.
    Largest,
    /// The smallest.
    Smallest,
}

/// Indices from here on are not exact in `f32`, in which they are found.
const MOST_ELEMENTS: i64 = 1 << 24;

/// A kind of an extreme.
macro_rules! kind {
    ($name:literal, $extreme:expr) => {
        Kind {
            name: $name,
            pattern: "{x}-x{}-{first|last}",
            sizes: &lists_and::<{ MAX_RANK + 2 }>(
                &[Size::new("input", "input", SizeRole::Dimension)],
                &[Size::new("axis", "axis", SizeRole::Choice), Size::new("last", "last", SizeRole::Choice)],
            ),
            layouts: &[],
            flags: &["select_last_index"],
            between: &[],
            outputs: INDICES,
            keys: |_| {
                let axis = SpecKey::required("axis", &[], "1");
                vec![SpecKey::required("input", RANKS, "[the input's shape]"), axis]
            },
            read: |shared, values| {
                let input = values.get("input").and_then(Dims::new).expect("its length was checked");
                let axis = axis_of(values, &input)?;
                Ok(Op::ArgExtreme(ArgExtreme { input, axis, extreme: $extreme, last: shared.flags[0] }))
            },
            of_sizes: |_, sizes| {
                let [lists @ .., axis, last] = sizes else { return None };
                let [input] = Dims::of_sizes(lists)?;
                Some(Op::ArgExtreme(ArgExtreme { input, axis: *axis, extreme: $extreme, last: *last == 1 }))
            },
            guilty: |error| match error {
                WorkloadError::Sizes { .. } => "axis",
                _ => "input",
            },
        }
    };
}

/// `arg_max` in specs and keys.
pub(crate) static ARG_MAX: Kind = kind!("arg_max", Extreme::Largest);

/// `arg_min`.
pub(crate) static ARG_MIN: Kind = kind!("arg_min", Extreme::Smallest);

impl ArgExtreme {
    /// The shape of the output of a valid operator.
    pub fn output_shape(&self) -> Dims {
        let kept: Vec<i64> = (0..).zip(self.input.iter()).filter(|(i, _)| *i != self.axis).map(|(_, n)| *n).collect();
        Dims::new(&kept).or(Dims::new(&[1])).expect("no more dimensions than the input")
    }
}

impl Operator for ArgExtreme {
    fn kind(&self) -> &'static Kind {
        match self.extreme {
            Extreme::Largest => &ARG_MAX,
            Extreme::Smallest => &ARG_MIN,
        }
    }

    fn sizes(&self) -> Vec<i64> {
        [&self.input.sizes()[..], &[self.axis, self.last.into()]].concat()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        let extent = usize::try_from(self.axis).ok().and_then(|axis| self.input.get(axis));
        match extent {
            Some(extent) if *extent <= MOST_ELEMENTS => Ok(()),
            Some(extent) => {
                let cause = format!("there are {extent} elements along dimension {}", self.axis);
                Err(WorkloadError::Sizes { cause, help: "indices are exact among at most 2^24 elements" })
            }
            None => {
                let cause = format!("the axis is {}", self.axis);
                Err(WorkloadError::Sizes { cause, help: "it must be a dimension of `input`, counted from 0" })
            }
        }
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("x", Role::Input, self.input.to_vec())]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", self.output_shape().axes())
    }

    fn of_i32(&self) -> OfI32 {
        OfI32::Numbers
    }

    fn terms(&self) -> i64 {
        self.input[self.axis as usize]
    }

    /// A comparison for the element, and one for its place.
    fn flops_per_term(&self) -> i64 {
        2
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let shape = self.output_shape();
        let rank = shape.len();
        let here: Vec<Expr> = (0..rank).map(|i| axis(i).into()).collect();
        // An input of one dimension has none that is left.
        let mut source = if self.input.len() == 1 { vec![] } else { here.clone() };
        source.insert(self.axis as usize, axis(rank).into());
        let x = || Expr::load(input(0), source.clone());
        let loops: Vec<(&'static str, i64)> = shape.axes().iter().map(|axis| (axis.name, axis.extent)).collect();
        let stage = |name, combine: Combine, value| {
            let reduce = usize::from(combine != Combine::One);
            let loops = loops.iter().copied().chain([("k", self.terms())]).take(rank + reduce).collect();
            Stage { name, dtype: sums, shape: shape.to_vec(), loops, reduce, combine, index: here.clone(), value }
        };
        let f = |value: f64| Expr::Float(value, sums.compute());
        let known = || Expr::load(result(1), here.clone());
        // Where one is NaN, so is the extreme, which then equals none.
        let is_extreme = x().eq(known()).or(Expr::bin(BinOp::Ne, x(), x()));
        let place = Expr::Cast(sums.compute(), Box::new(axis(rank).into()));
        let (nearest, other) = if self.last { (Combine::Max, -1.0) } else { (Combine::Min, self.terms() as f64) };
        let extreme = match self.extreme {
            Extreme::Largest => Combine::Max,
            Extreme::Smallest => Combine::Min,
        };
        vec![
            stage("extreme", extreme, x()),
            stage("known", Combine::One, Expr::load(result(0), here.clone())),
            stage("acc", nearest, is_extreme.select(place, f(other))),
        ]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_elements::extreme(self, inputs[0])
    }
}
