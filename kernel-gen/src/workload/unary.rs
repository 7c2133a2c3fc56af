//! Functions of each element of a tensor.

use super::dims::{Dims, MAX_RANK, RANKS, lists};
use super::operator::{FLOATS, Kind, OfBytes, OfI32, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, Stage, input};
use super::{Op, Role, Workload, WorkloadError, reference_elements};
use crate::ir::{BinOp, DType, Expr, UnOp};
use std::f64::consts::LN_2;

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
            outputs: FLOATS,
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
    /// The tangent of an angle in radians.
    Tan TAN "tan",
    /// The arc sine in radians; NaN outside of -1 to 1.
    Asin ASIN "asin",
    /// The arc cosine; NaN outside of -1 to 1.
    Acos ACOS "acos",
    /// The arc tangent.
    Atan ATAN "atan",
    /// The hyperbolic sine.
    Sinh SINH "sinh",
    /// The hyperbolic cosine.
    Cosh COSH "cosh",
    /// The inverse of the hyperbolic sine.
    Asinh ASINH "asinh",
    /// The inverse of the hyperbolic cosine; NaN below 1.
    Acosh ACOSH "acosh",
    /// The inverse of the hyperbolic tangent; NaN outside of -1 to 1, infinite at both.
    Atanh ATANH "atanh",
    /// 1 where the element is 0, else 0, also of NaN.
    LogicalNot LOGICAL_NOT "logical_not",
    /// 1 where the element is NaN, else 0.
    IsNan IS_NAN "is_nan",
    /// 1 where the element is an infinity, else 0.
    IsInf IS_INF "is_inf",
}

/// Arguments from here on are so large that 1 is lost beside their squares.
const LARGE: f64 = 1e10;

/// `log(1 + x)` of what is at least 0, as exact near 0 as anywhere. The sum `u = 1 + x` is rounded; `log(u) / (u - 1)` hardly depends
/// on how (W. Kahan; in Goldberg, *What every computer scientist should know about floating-point arithmetic*, theorem 4).
fn log_of_1_and(x: Expr, f: impl Fn(f64) -> Expr) -> Expr {
    let sum = f(1.0) + x.clone();
    let log = Expr::un(UnOp::Log, sum.clone());
    let small = log.clone() * Expr::bin(BinOp::Div, x.clone(), sum.clone() - f(1.0));
    x.clone().lt(f(1.0)).select(sum.eq(f(1.0)).select(x, small), log)
}

/// The functions of trigonometry and their inverses, by those that the IR has.
fn of_angles(function: Function, x: Expr, f: &dyn Fn(f64) -> Expr) -> Expr {
    let un = |op| Expr::un(op, x.clone());
    let quotient = |a: Expr, b: Expr| Expr::bin(BinOp::Div, a, b);
    let (less, more) = (f(1.0) - x.clone(), f(1.0) + x.clone());
    match function {
        Function::Tan => quotient(un(UnOp::Sin), un(UnOp::Cos)),
        Function::Asin => {
            let adjacent = Expr::un(UnOp::Sqrt, less * more);
            Expr::un(UnOp::Atan, quotient(x.clone(), adjacent))
        }
        Function::Acos => f(2.0) * Expr::un(UnOp::Atan, Expr::un(UnOp::Sqrt, quotient(less, more))),
        _ => un(UnOp::Atan),
    }
}

/// The hyperbolic functions and their inverses. Odd functions are those of the absolute value, with the sign.
fn hyperbolic(function: Function, x: Expr, f: &dyn Fn(f64) -> Expr) -> Expr {
    let quotient = |a: Expr, b: Expr| Expr::bin(BinOp::Div, a, b);
    let size = Expr::un(UnOp::Abs, x.clone());
    let odd = |of_size: Expr| x.clone().lt(f(0.0)).select(Expr::un(UnOp::Neg, of_size.clone()), of_size);
    let [growing, falling] = [x.clone(), Expr::un(UnOp::Neg, x.clone())].map(|x| f(0.5) * Expr::un(UnOp::Exp, x));
    let unless_large = |of: Expr, near: Expr| {
        let log = Expr::un(UnOp::Log, of.clone()) + f(LN_2);
        of.lt(f(LARGE)).select(near, log)
    };
    match function {
        // Where the exponentials are near each other, by the tangent of half.
        Function::Sinh => {
            let half = Expr::un(UnOp::Tanh, f(0.5) * x.clone());
            let near = quotient(f(2.0) * half.clone(), f(1.0) - half.clone() * half);
            size.lt(f(1.0)).select(near, growing - falling)
        }
        Function::Cosh => growing + falling,
        Function::Asinh => {
            let square = size.clone() * size.clone();
            let root = Expr::un(UnOp::Sqrt, square.clone() + f(1.0));
            let near = log_of_1_and(size.clone() + quotient(square, f(1.0) + root), f);
            odd(unless_large(size, near))
        }
        Function::Acosh => {
            let above = x.clone() - f(1.0);
            let root = Expr::un(UnOp::Sqrt, above.clone()) * Expr::un(UnOp::Sqrt, above.clone() + f(2.0));
            unless_large(x, log_of_1_and(above + root, f))
        }
        _ => odd(f(0.5) * log_of_1_and(quotient(f(2.0) * size.clone(), f(1.0) - size.clone()), f)),
    }
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
        let role = if self.function == Function::LogicalNot { Role::Mask } else { Role::Input };
        vec![Operand::new("x", role, self.input.to_vec())]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", self.input.axes())
    }

    fn of_bytes(&self) -> OfBytes {
        if self.function == Function::Identity { OfBytes::Sums } else { OfBytes::Nothing }
    }

    fn of_i32(&self) -> OfI32 {
        match self.function {
            Function::Identity => OfI32::Converts,
            Function::Abs | Function::Negate | Function::Sign | Function::LogicalNot => OfI32::Numbers,
            _ => OfI32::Nothing,
        }
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
                function @ (Function::Tan | Function::Asin | Function::Acos | Function::Atan) => {
                    of_angles(function, x, &f)
                }
                function @ (Function::Sinh | Function::Cosh | Function::Asinh | Function::Acosh | Function::Atanh) => {
                    hyperbolic(function, x, &f)
                }
                Function::LogicalNot => x.eq(f(0.0)).select(f(1.0), f(0.0)),
                Function::IsNan => Expr::bin(BinOp::Ne, x.clone(), x).select(f(1.0), f(0.0)),
                Function::IsInf => un(UnOp::Abs).eq(f(f64::INFINITY)).select(f(1.0), f(0.0)),
            }
        };
        vec![self.input.stage(sums, value)]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_elements::of_elements(self.function, inputs[0])
    }
}
