//! Functions of two tensors, element by element.

use super::dims::{Dims, RANKS, lists};
use super::operator::{FLOATS, Kind, OfI32, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, Stage, input};
use super::{Op, Role, Workload, WorkloadError, reference_elements};
use crate::ir::{BinOp, DType, Expr};

/// `y = f(a, b)` element by element. Shapes are aligned at their last dimensions; where one has an extent of 1, or no dimension, its
/// elements are repeated, as in NumPy and in ONNX.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Binary {
    /// The shape of the first operand.
    pub a: Dims,
    /// The shape of the second.
    pub b: Dims,
    /// The function.
    pub function: Function2,
}

/// Makes the functions and their kinds.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident $kind:ident $text:literal,)*) => {
        /// A function of two numbers.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Function2 {
            $($(#[$doc])* $name,)*
        }

        $(pub(crate) static $kind: Kind = Kind {
            name: $text,
            pattern: "a{x}-b{x}",
            sizes: &lists::<12>(&[Size::new("a", "a", SizeRole::Dimension), Size::new("b", "b", SizeRole::Broadcast)]),
            layouts: &[],
            flags: &[],
            between: &[],
            outputs: FLOATS,
            keys: |_| ["a", "b"].map(|key| SpecKey::required(key, RANKS, "[the shape]")).to_vec(),
            read: |_, values| {
                let shape = |key| values.get(key).and_then(Dims::new).expect("its length was checked");
                Ok(Op::Binary(Binary { a: shape("a"), b: shape("b"), function: Function2::$name }))
            },
            of_sizes: |_, sizes| {
                let [a, b] = Dims::of_sizes(sizes)?;
                Some(Op::Binary(Binary { a, b, function: Function2::$name }))
            },
            guilty: |error| match error {
                WorkloadError::NotPositive { size: "a", .. } => "a",
                _ => "b",
            },
        };)*

        impl Function2 {
            fn kind(self) -> &'static Kind {
                match self {
                    $(Function2::$name => &$kind,)*
                }
            }
        }
    };
}

functions! {
    /// `a + b`.
    Add ADD "add",
    /// `a - b`.
    Subtract SUBTRACT "subtract",
    /// `a * b`.
    Multiply MULTIPLY "multiply",
    /// `a / b`.
    Divide DIVIDE "divide",
    /// The smaller; NaN if either is.
    Minimum MINIMUM "minimum",
    /// The larger; NaN if either is.
    Maximum MAXIMUM "maximum",
    /// `a`, and `a * b` where `a` is below 0.
    Prelu PRELU "prelu",
    /// `a` to the power of `b`, as C's `pow` has it.
    Pow POW "pow",
    /// What is left of `a` after `b` was taken from it a whole number of times, with the sign of `a`, as C's `fmod`.
    Fmod FMOD "fmod",
    /// The same with the sign of `b`, also of a zero, as Python's `%`.
    Mod MOD "mod",
    /// 1 where they are equal, else 0, also where one is NaN.
    Equal EQUAL "equal",
    /// 1 where `a < b`, else 0.
    Less LESS "less",
    /// 1 where `a <= b`, else 0.
    LessOrEqual LESS_OR_EQUAL "less_or_equal",
    /// 1 where `a > b`, else 0.
    Greater GREATER "greater",
    /// 1 where `a >= b`, else 0.
    GreaterOrEqual GREATER_OR_EQUAL "greater_or_equal",
    /// 1 where neither is 0, else 0.
    LogicalAnd LOGICAL_AND "logical_and",
    /// 1 where one of them is not 0, else 0.
    LogicalOr LOGICAL_OR "logical_or",
    /// 1 where just one of them is not 0, else 0.
    LogicalXor LOGICAL_XOR "logical_xor",
}

impl Binary {
    /// The shape of the output of valid operands.
    pub fn output_shape(&self) -> Dims {
        Dims::new(&broadcast(&self.a, &self.b)).expect("no more dimensions than an operand")
    }
}

/// The shape that two have together, aligned at their last dimensions: an extent of 1 gives way to the other.
pub(crate) fn broadcast(a: &[i64], b: &[i64]) -> Vec<i64> {
    let rank = a.len().max(b.len());
    let extent = |shape: &[i64], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    let along = |i: usize| match extent(a, i) {
        1 => extent(b, i),
        extent => extent,
    };
    (0..rank).map(along).collect()
}

/// The element of an operand behind an index of the output, to whose last dimensions the operand's are aligned.
pub(super) fn repeated(number: usize, shape: &Dims, index: &[Expr]) -> Expr {
    let own = index[index.len() - shape.len()..].iter().zip(shape.iter());
    let own = own.map(|(i, extent)| if *extent == 1 { Expr::Int(0) } else { i.clone() });
    Expr::load(input(number), own.collect())
}

/// Refuses shapes that do not broadcast.
pub(super) fn check_broadcast(a: &[i64], b: &[i64]) -> Result<(), WorkloadError> {
    let mut both = a.iter().rev().zip(b.iter().rev());
    if let Some((one, other)) = both.find(|(a, b)| a != b && **a != 1 && **b != 1) {
        let cause = format!("an extent of {one} meets one of {other} in {a:?} and {b:?}");
        let help = "shapes are aligned at their last dimensions: extents must be equal, or one of them 1";
        return Err(WorkloadError::Sizes { cause, help });
    }
    Ok(())
}

impl Operator for Binary {
    fn kind(&self) -> &'static Kind {
        self.function.kind()
    }

    fn sizes(&self) -> Vec<i64> {
        [self.a.sizes(), self.b.sizes()].concat()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        check_broadcast(&self.a, &self.b)
    }

    fn inputs(&self) -> Vec<Operand> {
        let role = match self.function {
            Function2::LogicalAnd | Function2::LogicalOr | Function2::LogicalXor => Role::Mask,
            _ => Role::Input,
        };
        [("a", self.a), ("b", self.b)].map(|(name, shape)| Operand::new(name, role, shape.to_vec())).to_vec()
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", self.output_shape().axes())
    }

    fn of_i32(&self) -> OfI32 {
        // A power is rounded on its way.
        if matches!(self.function, Function2::Prelu | Function2::Pow) { OfI32::Nothing } else { OfI32::Numbers }
    }

    fn terms(&self) -> i64 {
        1
    }

    fn flops_per_term(&self) -> i64 {
        1
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let value = |index: &[Expr]| {
            let (a, b) = (repeated(0, &self.a, index), repeated(1, &self.b, index));
            let f = |value: f64| Expr::Float(value, sums.compute());
            let truth = |condition: Expr| condition.select(f(1.0), f(0.0));
            let holds = |e: Expr| Expr::bin(BinOp::Ne, e, f(0.0));
            match self.function {
                Function2::Add => a + b,
                Function2::Subtract => a - b,
                Function2::Multiply => a * b,
                Function2::Divide => Expr::bin(BinOp::Div, a, b),
                Function2::Minimum => a.min(b),
                Function2::Maximum => a.max(b),
                Function2::Prelu => a.clone().lt(f(0.0)).select(a.clone() * b, a),
                Function2::Pow => a.pow(b),
                Function2::Fmod => a.fmod(b),
                Function2::Mod => {
                    let rest = a.fmod(b.clone());
                    let (below, above) = (rest.clone().lt(f(0.0)), f(0.0).lt(rest.clone()));
                    let is_negative = b.clone().lt(f(0.0));
                    let other_sign = is_negative.clone().select(above, below);
                    let zero = is_negative.select(f(-0.0), f(0.0));
                    let none = rest.clone().eq(f(0.0));
                    none.select(zero, other_sign.select(rest.clone() + b, rest))
                }
                Function2::Equal => truth(a.eq(b)),
                Function2::Less => truth(a.lt(b)),
                Function2::LessOrEqual => truth(a.le(b)),
                Function2::Greater => truth(b.lt(a)),
                Function2::GreaterOrEqual => truth(b.le(a)),
                Function2::LogicalAnd => truth(holds(a).and(holds(b))),
                Function2::LogicalOr => truth(holds(a).or(holds(b))),
                Function2::LogicalXor => holds(a).select(truth(b.clone().eq(f(0.0))), truth(holds(b))),
            }
        };
        vec![self.output_shape().stage(sums, value)]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_elements::of_pairs(self, inputs[0], inputs[1])
    }
}
