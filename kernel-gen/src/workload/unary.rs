//! Functions of each element of a tensor.

use super::dims::{Dims, MAX_RANK, RANKS, lists};
use super::operator::{Kind, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, Stage, input};
use super::{Op, Role, Workload, WorkloadError, reference};
use crate::ir::{BinOp, DType, Expr, UnOp};

/// A function of each element of a tensor. What networks call activations are steps of the epilogue, also of
/// [`Function::Identity`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Unary {
    /// The shape of input and output.
    pub input: Dims,
    /// The function.
    pub function: Function,
}

/// Makes the functions and their kinds, which have the same names.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident $kind:ident $text:literal,)*) => {
        /// A function of a number.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Function {
            $($(#[$doc])* $name,)*
        }

        $(pub(crate) static $kind: Kind = Kind {
            name: $text,
            pattern: "{x}",
            sizes: &lists::<MAX_RANK>(&[Size::new("input", "input", SizeRole::Dimension)]),
            layouts: &[],
            flags: &[],
            between: &[],
            keys: |_| vec![SpecKey::required("input", RANKS, "[the shape]")],
            read: |_, values| {
                let input = values.get("input").and_then(Dims::new).expect("its length was checked");
                Ok(Op::Unary(Unary { input, function: Function::$name }))
            },
            of_sizes: |_, sizes| {
                let [input] = Dims::of_sizes(sizes)?;
                Some(Op::Unary(Unary { input, function: Function::$name }))
            },
            guilty: |_| "input",
        };)*

        impl Function {
            fn kind(self) -> &'static Kind {
                match self {
                    $(Function::$name => &$kind,)*
                }
            }
        }
    };
}

functions! {
    /// The element itself.
    Identity IDENTITY "identity",
    /// `|x|`.
    Abs ABS "abs",
    /// `-x`.
    Negate NEGATE "negate",
    /// -1, 0 or 1.
    Sign SIGN "sign",
    /// The largest integer that is not larger.
    Floor FLOOR "floor",
    /// The smallest integer that is not smaller.
    Ceil CEIL "ceil",
    /// The nearest integer, the even one of two.
    Round ROUND "round",
    /// `1/x`.
    Reciprocal RECIPROCAL "reciprocal",
    /// The square root; NaN of what is below 0.
    Sqrt SQRT "sqrt",
    /// e to the power.
    Exp EXP "exp",
    /// The natural logarithm; NaN of what is below 0, minus infinity of 0.
    Log LOG "log",
    /// The sine of an angle in radians.
    Sin SIN "sin",
    /// The cosine.
    Cos COS "cos",
    /// The error function.
    Erf ERF "erf",
    /// `log(1 + exp(x))`.
    Softplus SOFTPLUS "softplus",
    /// `x / (1 + |x|)`.
    Softsign SOFTSIGN "softsign",
    /// `x * tanh(log(1 + exp(x)))`.
    Mish MISH "mish",
}

/// `log(1 + exp(x))`, whose exponential does not overflow.
fn softplus(x: &Expr, f: impl Fn(f64) -> Expr) -> Expr {
    let below = Expr::un(UnOp::Neg, Expr::un(UnOp::Abs, x.clone()));
    x.clone().max(f(0.0)) + Expr::un(UnOp::Log, f(1.0) + Expr::un(UnOp::Exp, below))
}

impl Operator for Unary {
    fn kind(&self) -> &'static Kind {
        self.function.kind()
    }

    fn sizes(&self) -> Vec<i64> {
        self.input.sizes().to_vec()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("x", Role::Input, self.input.to_vec())]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", self.input.axes())
    }

    fn terms(&self) -> i64 {
        1
    }

    fn flops_per_term(&self) -> i64 {
        1
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let f = |value: f64| Expr::Float(value, sums.compute());
        let value = |index: &[Expr]| {
            let x = Expr::load(input(0), index.to_vec());
            let un = |op| Expr::un(op, x.clone());
            match self.function {
                Function::Identity => x,
                Function::Abs => un(UnOp::Abs),
                Function::Negate => un(UnOp::Neg),
                // What is neither is a zero or NaN, which stay.
                Function::Sign => {
                    let below = x.clone().lt(f(0.0)).select(f(-1.0), x.clone());
                    f(0.0).lt(x.clone()).select(f(1.0), below)
                }
                Function::Floor => un(UnOp::Floor),
                Function::Ceil => un(UnOp::Ceil),
                Function::Round => un(UnOp::Round),
                Function::Reciprocal => Expr::bin(BinOp::Div, f(1.0), x),
                Function::Sqrt => un(UnOp::Sqrt),
                Function::Exp => un(UnOp::Exp),
                Function::Log => un(UnOp::Log),
                Function::Sin => un(UnOp::Sin),
                Function::Cos => un(UnOp::Cos),
                Function::Erf => un(UnOp::Erf),
                Function::Softplus => softplus(&x, f),
                Function::Softsign => Expr::bin(BinOp::Div, x.clone(), f(1.0) + un(UnOp::Abs)),
                Function::Mish => x.clone() * Expr::un(UnOp::Tanh, softplus(&x, f)),
            }
        };
        vec![self.input.stage(sums, value)]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference::of_elements(self.function, inputs[0])
    }
}
