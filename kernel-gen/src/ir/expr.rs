//! Expressions: trees without side effects.

use super::{BufferId, DType, VarId};

/// The larger of two floats as IEEE 754-2019 has `maximum`: NaN if either is NaN. `f64::max`, C's `fmax` and CUDA's
/// `fmaxf` give the other one instead, so none of them stands for [`BinOp::Max`].
pub fn float_max(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

/// The smaller of two floats: NaN if either is NaN, as in [`float_max`].
pub fn float_min(a: f64, b: f64) -> f64 {
    if b < a || b.is_nan() { b } else { a }
}

/// A binary operator. Arithmetic on integers is exact; `Div` and `Mod` on integers are floor division and its remainder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BinOp {
    /// Sum; of words of two integers of both, each of which wraps around.
    Add,
    /// Difference; of words of two integers as the sum.
    Sub,
    /// Product.
    Mul,
    /// Quotient; floor division on integers.
    Div,
    /// Remainder of floor division; integers only.
    Mod,
    /// The smaller; of floats NaN if either is, see [`float_min`].
    Min,
    /// The larger; of floats NaN if either is, see [`float_max`].
    Max,
    /// The left side to the power of the right one, as C's `pow`; floats only.
    Pow,
    /// The remainder of a division that is rounded towards zero, exactly, as C's `fmod`; floats only.
    Fmod,
    /// The sum of the products of the integers of one [word](DType::is_word) and those of another with as many, as an `i32`, which
    /// wraps around.
    Dot,
    /// A [word](DType::is_word) whose first integer is the lowest bits of the right side, and whose others are those of the left side
    /// without its last.
    Push,
    /// Less than.
    Lt,
    /// Less than or equal.
    Le,
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Both; the right side is not evaluated when the left is false.
    And,
    /// Either; the right side is not evaluated when the left is true.
    Or,
}

impl BinOp {
    /// Whether the result is a truth value.
    pub fn is_predicate(self) -> bool {
        matches!(self, BinOp::Lt | BinOp::Le | BinOp::Eq | BinOp::Ne | BinOp::And | BinOp::Or)
    }
}

/// A unary operator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UnOp {
    /// Negation.
    Neg,
    /// Logical not.
    Not,
    /// Absolute value.
    Abs,
    /// Square root.
    Sqrt,
    /// e to the power.
    Exp,
    /// 2 to the power. CUDA devices have an instruction for it, of a relative error of at most 2^-22; subnormal results are zeros there.
    Exp2,
    /// Natural logarithm.
    Log,
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// The largest integer that is not larger.
    Floor,
    /// The smallest integer that is not smaller.
    Ceil,
    /// The nearest integer, the even one of two.
    Round,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// Arc tangent, in radians.
    Atan,
    /// An `f32` rounded to the nearest that has 10 fraction bits, ties away from zero: what tensor cores call tf32.
    Tf32,
    /// A word of `i8` as one of `u8`, each byte of which is 128 more, or the other way round, 128 less.
    Flip,
    /// The first and the third of four bytes as a word of two integers.
    Even,
    /// The second and the fourth of four bytes as a word of two integers.
    Odd,
    /// The number itself, rounded to its type: nothing that follows goes on from what it was before, as a contraction does.
    Rounded,
}

impl UnOp {
    /// All of them.
    pub const ALL: [UnOp; 20] = [
        UnOp::Neg,
        UnOp::Not,
        UnOp::Abs,
        UnOp::Sqrt,
        UnOp::Exp,
        UnOp::Exp2,
        UnOp::Log,
        UnOp::Sin,
        UnOp::Cos,
        UnOp::Floor,
        UnOp::Ceil,
        UnOp::Round,
        UnOp::Tanh,
        UnOp::Erf,
        UnOp::Atan,
        UnOp::Tf32,
        UnOp::Flip,
        UnOp::Even,
        UnOp::Odd,
        UnOp::Rounded,
    ];

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            UnOp::Neg => "-",
            UnOp::Not => "!",
            UnOp::Abs => "abs",
            UnOp::Sqrt => "sqrt",
            UnOp::Exp => "exp",
            UnOp::Exp2 => "exp2",
            UnOp::Log => "log",
            UnOp::Sin => "sin",
            UnOp::Cos => "cos",
            UnOp::Floor => "floor",
            UnOp::Ceil => "ceil",
            UnOp::Round => "round",
            UnOp::Tanh => "tanh",
            UnOp::Erf => "erf",
            UnOp::Atan => "atan",
            UnOp::Tf32 => "tf32",
            UnOp::Flip => "flip",
            UnOp::Even => "even",
            UnOp::Odd => "odd",
            UnOp::Rounded => "rounded",
        }
    }
}

/// An expression.
#[derive(Clone, PartialEq, Debug)]
pub enum Expr {
    /// An `i64` constant.
    Int(i64),
    /// A floating constant of the given type.
    Float(f64, DType),
    /// A loop variable or a `let`.
    Var(VarId),
    /// `a op b`. Both sides have the same type, but one may be a scalar where the other is a vector.
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// `op a`.
    Unary(UnOp, Box<Expr>),
    /// `if cond { a } else { b }`, evaluating one side only.
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Conversion of each lane.
    Cast(DType, Box<Expr>),
    /// `buffer[indices]`; the value has the *compute* type of the buffer (16-bit floats load as `f32`).
    /// At most one index is a vector: the load has its lanes.
    Load(BufferId, Vec<Expr>),
    /// `base, base + stride, ...`: a vector of `lanes` integers.
    Ramp {
        /// First lane.
        base: Box<Expr>,
        /// Difference between neighbouring lanes.
        stride: i64,
        /// Number of lanes.
        lanes: u16,
    },
    /// The same value in each of `lanes` lanes.
    Broadcast(Box<Expr>, u16),
}

impl Expr {
    /// A truth constant, said as `0 == 0` or `0 == 1`.
    pub fn bool(value: bool) -> Expr {
        Expr::Binary(BinOp::Eq, Box::new(Expr::Int(0)), Box::new(Expr::Int(i64::from(!value))))
    }

    /// An `f32` constant.
    pub fn f32(value: f64) -> Expr {
        Expr::Float(value, DType::F32)
    }

    /// Zero, as an expression that can be stored into a buffer of the type.
    pub(crate) fn zero(dtype: DType) -> Expr {
        match dtype.compute() {
            d if d.is_float() => Expr::Float(0.0, d),
            DType::Bool => Expr::bool(false),
            _ => Expr::Int(0),
        }
    }

    /// Zero, of the type that loads of such a buffer have: as the other side of a select.
    pub(crate) fn zero_like_load(dtype: DType) -> Expr {
        match dtype.compute() {
            DType::I32 => Expr::Int(0).cast(DType::I32),
            _ => Expr::zero(dtype),
        }
    }

    /// A load.
    pub fn load(buffer: BufferId, indices: Vec<Expr>) -> Expr {
        Expr::Load(buffer, indices)
    }

    /// A binary expression; integer constants fold, and neutral elements vanish.
    pub fn bin(op: BinOp, a: Expr, b: Expr) -> Expr {
        use BinOp::*;
        match (op, &a, &b) {
            (_, Expr::Int(x), Expr::Int(y)) => {
                let v = match op {
                    Add => x.checked_add(*y),
                    Sub => x.checked_sub(*y),
                    Mul => x.checked_mul(*y),
                    Div if *y > 0 => Some(x.div_euclid(*y)),
                    Mod if *y > 0 => Some(x.rem_euclid(*y)),
                    Min => Some(*x.min(y)),
                    Max => Some(*x.max(y)),
                    _ => None,
                };
                match v {
                    Some(v) => Expr::Int(v),
                    None => Expr::Binary(op, Box::new(a), Box::new(b)),
                }
            }
            (Add, Expr::Int(0), _) | (Mul, Expr::Int(1), _) => b,
            (Add | Sub, _, Expr::Int(0)) | (Mul | Div, _, Expr::Int(1)) => a,
            (Mul, Expr::Int(0), _) | (Mul, _, Expr::Int(0)) | (Mod, _, Expr::Int(1)) => Expr::Int(0),
            _ => Expr::Binary(op, Box::new(a), Box::new(b)),
        }
    }

    /// `op self`.
    pub fn un(op: UnOp, a: Expr) -> Expr {
        Expr::Unary(op, Box::new(a))
    }

    /// Floor division by a positive constant or expression.
    pub fn floor_div(self, b: impl Into<Expr>) -> Expr {
        Expr::bin(BinOp::Div, self, b.into())
    }

    /// Remainder of floor division.
    pub fn floor_mod(self, b: impl Into<Expr>) -> Expr {
        Expr::bin(BinOp::Mod, self, b.into())
    }

    /// The smaller of two; of floats NaN if either is.
    pub fn min(self, b: impl Into<Expr>) -> Expr {
        Expr::bin(BinOp::Min, self, b.into())
    }

    /// The larger of two; of floats NaN if either is.
    pub fn max(self, b: impl Into<Expr>) -> Expr {
        Expr::bin(BinOp::Max, self, b.into())
    }

    /// `self` to the power of `b`, both floats.
    pub fn pow(self, b: impl Into<Expr>) -> Expr {
        Expr::bin(BinOp::Pow, self, b.into())
    }

    /// What is left of `self` after `b` was taken from it a whole number of times; it has the sign of `self`. Both are floats.
    pub fn fmod(self, b: impl Into<Expr>) -> Expr {
        Expr::bin(BinOp::Fmod, self, b.into())
    }

    /// The sum of the products of the integers of two words.
    pub fn dot(self, b: impl Into<Expr>) -> Expr {
        Expr::bin(BinOp::Dot, self, b.into())
    }

    /// `self` as a number of another type.
    pub fn cast(self, dtype: DType) -> Expr {
        Expr::Cast(dtype, Box::new(self))
    }

    /// `self < b`.
    pub fn lt(self, b: impl Into<Expr>) -> Expr {
        Expr::bin(BinOp::Lt, self, b.into())
    }

    /// `self <= b`.
    pub fn le(self, b: impl Into<Expr>) -> Expr {
        Expr::bin(BinOp::Le, self, b.into())
    }

    /// `self == b`.
    pub fn eq(self, b: impl Into<Expr>) -> Expr {
        Expr::bin(BinOp::Eq, self, b.into())
    }

    /// `self && b`.
    pub fn and(self, b: impl Into<Expr>) -> Expr {
        Expr::bin(BinOp::And, self, b.into())
    }

    /// `self || b`.
    pub fn or(self, b: impl Into<Expr>) -> Expr {
        Expr::bin(BinOp::Or, self, b.into())
    }

    /// `if self { a } else { b }`.
    pub fn select(self, a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
        Expr::Select(Box::new(self), Box::new(a.into()), Box::new(b.into()))
    }

    /// All conditions together; none is true.
    pub fn all(conditions: impl IntoIterator<Item = Expr>) -> Option<Expr> {
        conditions.into_iter().reduce(Expr::and)
    }

    /// The constant, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        if let Expr::Int(v) = self { Some(*v) } else { None }
    }
}

impl From<i64> for Expr {
    fn from(v: i64) -> Expr {
        Expr::Int(v)
    }
}

impl From<VarId> for Expr {
    fn from(v: VarId) -> Expr {
        Expr::Var(v)
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $op:ident) => {
        impl<T: Into<Expr>> std::ops::$trait<T> for Expr {
            type Output = Expr;
            fn $method(self, rhs: T) -> Expr {
                Expr::bin(BinOp::$op, self, rhs.into())
            }
        }
        impl<T: Into<Expr>> std::ops::$trait<T> for VarId {
            type Output = Expr;
            fn $method(self, rhs: T) -> Expr {
                Expr::bin(BinOp::$op, Expr::Var(self), rhs.into())
            }
        }
    };
}
operator!(Add, add, Add);
operator!(Sub, sub, Sub);
operator!(Mul, mul, Mul);
