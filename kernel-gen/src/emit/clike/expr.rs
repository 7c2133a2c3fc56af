//! Scalar expressions.
//!
//! A GPU computes with 32 bits, and an index of 64 costs several instructions an operation. Where the dialect asks for it,
//! integers are therefore `int` where ranges prove that they and everything they are computed from fit, and have 64 bits
//! from there on where they do not.

use super::dialect::{Dialect, Printer};
use super::prelude::{Common, math_fn};
use super::text::strength::*;
use super::text::{Text, float, halves, infix, of_pairs, pushed};
use crate::analysis::range::bounds;
use crate::analysis::simplify::{simplify, truth};
use crate::emit::EmitError;
use crate::ir::{BinOp, BufferId, DType, Expr, UnOp};

/// An integer expression as text, and whether it has 64 bits.
pub(crate) struct Integer {
    pub(crate) text: Text,
    pub(crate) wide: bool,
}

/// Numbers below it have room beside 2^23 in an `f32`.
const SMALL: i64 = 1 << 22;

/// Whether the interval fits into an `int`.
fn fits((lo, hi): (i64, i64)) -> bool {
    lo > i64::from(i32::MIN) && hi <= i64::from(i32::MAX)
}

/// `condition ? a : b`.
pub(crate) fn select(condition: &Text, a: &Text, b: &Text) -> Text {
    Text::new(format!("{} ? {} : {}", condition.at(OR), a.at(TERNARY + 1), b.at(TERNARY + 1)), TERNARY)
}

impl<D: Dialect> Printer<'_, D> {
    fn unsupported(what: &str) -> EmitError {
        EmitError::unsupported(D::LANGUAGE, what)
    }

    /// A scalar expression.
    pub(crate) fn scalar(&mut self, e: &Expr) -> Result<Text, EmitError> {
        if e.ty(self.kernel).dtype.is_int() {
            return Ok(self.integer(e)?.text);
        }
        Ok(match e {
            Expr::Float(v, d) if v.is_finite() => float(*v, *d),
            Expr::Float(v, d) => {
                D::use_math(self);
                D::not_finite(*v, *d)
            }
            Expr::Var(v) => Text::new(self.names.var(*v), PRIMARY),
            Expr::Binary(op, a, b) => self.binary(*op, a, b, e)?,
            Expr::Unary(UnOp::Rounded, a) => D::rounded(self, a)?,
            Expr::Unary(op, a) => {
                let dtype = a.ty(self.kernel).dtype;
                let a = self.scalar(a)?;
                let function = match op {
                    UnOp::Tf32 => Some(D::round_tf32(self)?),
                    UnOp::Exp2 if dtype == DType::F32 => D::exp2(self).or_else(|| math_fn(*op, dtype)),
                    op => math_fn(*op, dtype),
                };
                match (op, function) {
                    (_, Some(function)) => {
                        D::use_math(self);
                        Text::new(format!("{function}({})", a.text), PRIMARY)
                    }
                    (UnOp::Even | UnOp::Odd, None) => halves(dtype, *op == UnOp::Odd, &a),
                    (UnOp::Flip, None) => Text::new(format!("({} ^ 0x80808080u)", a.at(PRIMARY)), PRIMARY),
                    (UnOp::Not, None) => Text::new(format!("!{}", a.at(PRIMARY)), UNARY),
                    (_, None) => Text::new(format!("-{}", a.at(PRIMARY)), UNARY),
                }
            }
            Expr::Select(c, a, b) => select(&self.scalar(c)?, &self.scalar(a)?, &self.scalar(b)?),
            Expr::Cast(d, a) => {
                let from = a.ty(self.kernel).dtype;
                let a = self.scalar(a)?;
                match d {
                    _ if *d == from => a,
                    _ if d.is_narrow_float() => {
                        let [narrow, widen] = [Common::Narrow(*d), Common::Widen(*d)].map(|c| self.common(c));
                        Text::new(format!("{widen}({narrow}({}))", a.text), PRIMARY)
                    }
                    DType::Bool => Text::new(format!("{} != 0", a.at(EQUAL + 1)), EQUAL),
                    _ => Self::cast(*d, &a),
                }
            }
            Expr::Load(b, idx) => self.load(*b, idx)?,
            Expr::Broadcast(a, 1) => self.scalar(a)?,
            Expr::Ramp { .. } | Expr::Broadcast(..) | Expr::Int(_) => return Err(Self::vector_in_scalar()),
        })
    }

    /// An integer expression.
    pub(crate) fn integer(&mut self, e: &Expr) -> Result<Integer, EmitError> {
        let leaf = |text, wide| Integer { text, wide: wide || !D::NARROW };
        Ok(match e {
            Expr::Int(v) => {
                let sign = if *v < 0 { UNARY } else { PRIMARY };
                let wide = D::NARROW && !fits((*v, *v));
                let text = match (wide, *v) {
                    (false, v) => Text::new(v.to_string(), sign),
                    // The least `long long` has no literal of its own.
                    (true, i64::MIN) => Text::new(format!("({}LL - 1)", i64::MIN + 1), PRIMARY),
                    (true, v) => Text::new(format!("{v}LL"), sign),
                };
                leaf(text, wide)
            }
            Expr::Var(v) => leaf(Text::new(self.names.var(*v), PRIMARY), self.wide.contains(v)),
            Expr::Binary(op, a, b) => self.integer_binary(*op, a, b, e)?,
            Expr::Unary(op, a) => {
                let fits = self.stays_in_32_bits(e);
                let a = self.integer(a)?;
                let wide = a.wide || !fits;
                let a = if wide { Self::widened_integer(a) } else { a.text };
                let text = match op {
                    UnOp::Neg => Text::new(format!("-{}", a.at(PRIMARY)), UNARY),
                    UnOp::Abs => Text::new(format!("{0} < 0 ? -{0} : {0}", a.at(PRIMARY)), TERNARY),
                    other => return Err(Self::unsupported(&format!("{} of an integer", other.name()))),
                };
                Integer { text, wide }
            }
            Expr::Select(c, a, b) => {
                let (c, a, b) = (self.scalar(c)?, self.integer(a)?, self.integer(b)?);
                Integer { text: select(&c, &a.text, &b.text), wide: a.wide || b.wide }
            }
            Expr::Cast(d, a) if a.ty(self.kernel).dtype.is_int() => {
                let from = a.ty(self.kernel).dtype;
                let a = self.integer(a)?;
                match if D::NARROW { *d == DType::I32 && a.wide || d.is_byte() } else { *d != from } {
                    true => leaf(Self::cast(*d, &a.text), false),
                    false => a,
                }
            }
            Expr::Cast(d, a) => leaf(Self::cast(*d, &self.scalar(a)?), *d == DType::I64),
            Expr::Load(b, idx) => leaf(self.load(*b, idx)?, self.kernel.buffer(*b).dtype == DType::I64),
            Expr::Broadcast(a, 1) => self.integer(a)?,
            Expr::Ramp { base, lanes: 1, .. } => self.integer(base)?,
            Expr::Ramp { .. } | Expr::Broadcast(..) | Expr::Float(..) => return Err(Self::vector_in_scalar()),
        })
    }

    /// An integer expression, as text that stands alone.
    pub(crate) fn index(&mut self, e: &Expr) -> Result<String, EmitError> {
        Ok(self.integer(e)?.text.text)
    }

    /// Whether an integer is computed in 32 bits: by its type, so that sums of what memory holds wrap around on every target, or by its
    /// bounds.
    fn stays_in_32_bits(&self, e: &Expr) -> bool {
        e.ty(self.kernel).dtype == DType::I32 || bounds(e, &self.ranges).is_some_and(fits)
    }

    fn integer_binary(&mut self, op: BinOp, a: &Expr, b: &Expr, whole: &Expr) -> Result<Integer, EmitError> {
        if op == BinOp::Dot {
            return self.dot(None, a, b);
        }
        if let (BinOp::Add, Expr::Binary(BinOp::Dot, x, y)) = (op, b) {
            return self.dot(Some(a), x, y);
        }
        let fits = self.stays_in_32_bits(whole);
        let natural = |e: &Expr, least: i64| bounds(e, &self.ranges).is_some_and(|(lo, _)| lo >= least);
        // The languages truncate; the same as floor where neither side is negative.
        let floors = matches!(op, BinOp::Div | BinOp::Mod) && !(natural(a, 0) && natural(b, 1));
        let dtype = a.ty(self.kernel).dtype;
        let (mut a, mut b) = (self.integer(a)?, self.integer(b)?);
        let wide = a.wide || b.wide || !fits;
        if floors {
            let common = if op == BinOp::Div { Common::FloorDiv { wide } } else { Common::FloorMod { wide } };
            let text = format!("{}({}, {})", self.common(common), a.text.text, b.text.text);
            return Ok(Integer { text: Text::new(text, PRIMARY), wide });
        }
        if matches!(op, BinOp::Min | BinOp::Max) {
            return Ok(Integer { text: self.extreme(op, Self::width(dtype, wide), &a.text, &b.text), wide });
        }
        if wide && !a.wide && !b.wide {
            // One wide side makes the operation wide; a constant reads better without a conversion.
            let side = if a.text.text.bytes().all(|c| c.is_ascii_digit()) { &mut b } else { &mut a };
            side.text = Self::cast(DType::I64, &side.text);
        }
        match infix(op, &a.text, &b.text) {
            Some(text) => Ok(Integer { text, wide }),
            None => Err(Self::unsupported(&format!("the integer operator {op:?}"))),
        }
    }

    /// The sum of the products of the integers of two words, and of another number if there is one.
    fn dot(&mut self, sum: Option<&Expr>, a: &Expr, b: &Expr) -> Result<Integer, EmitError> {
        let words = [a, b].map(|e| e.ty(self.kernel).dtype);
        let dot = self.common(match words {
            [DType::I16x2, _] => Common::Dot2,
            _ => Common::Dot4(words.map(|word| word == DType::I8x4)),
        });
        let sum = sum.map_or(Ok("0".to_string()), |sum| self.index(sum))?;
        let (a, b) = (self.scalar(a)?, self.scalar(b)?);
        Ok(Integer { text: Text::new(format!("{dot}({sum}, {}, {})", a.text, b.text), PRIMARY), wide: !D::NARROW })
    }

    /// A condition, or a number that is no integer.
    fn binary(&mut self, op: BinOp, a: &Expr, b: &Expr, whole: &Expr) -> Result<Text, EmitError> {
        if let Some(t) = truth(whole) {
            return Ok(Text::new(D::TRUTHS[usize::from(t)], PRIMARY));
        }
        let dtype = a.ty(self.kernel).dtype;
        if op == BinOp::Push {
            let (word, byte) = (self.scalar(a)?, self.scalar(b)?);
            return Ok(pushed(dtype, &word, &byte));
        }
        if dtype == DType::I16x2 && matches!(op, BinOp::Add | BinOp::Sub) {
            let (a, b) = (self.scalar(a)?, self.scalar(b)?);
            return Ok(of_pairs(op, &a, &b));
        }
        if let (BinOp::Sub, Expr::Cast(DType::F32, natural), Expr::Float(less, _)) = (op, a, b)
            && self.is_small(natural)
            && less.fract() == 0.0
            && less.abs() < SMALL as f64
        {
            let natural = self.integer(natural)?.text;
            if let Some(text) = D::small_less(&natural, *less) {
                return Ok(text);
            }
        }
        if op == BinOp::Mod {
            return Err(Self::unsupported(&format!("the remainder of {dtype} values")));
        }
        let (a, b) = (self.scalar(a)?, self.scalar(b)?);
        if let BinOp::Pow | BinOp::Fmod = op {
            D::use_math(self);
            let function = if op == BinOp::Pow { "pow" } else { "fmod" };
            let single = if dtype == DType::F64 { "" } else { "f" };
            return Ok(Text::new(format!("{function}{single}({}, {})", a.text, b.text), PRIMARY));
        }
        Ok(infix(op, &a, &b).unwrap_or_else(|| self.extreme(op, dtype.compute(), &a, &b)))
    }

    /// Whether an integer of 32 bits is sure to be natural and below [`SMALL`].
    fn is_small(&self, e: &Expr) -> bool {
        let by_small =
            |e: &Expr| matches!(e, Expr::Cast(DType::I32, e) if e.as_int().is_some_and(|n| (1..=SMALL).contains(&n)));
        match e {
            Expr::Cast(DType::I32, a) => self.is_small(a),
            Expr::Load(b, _) => self.kernel.buffer(*b).dtype == DType::U8,
            Expr::Binary(BinOp::Mod, _, by) => by_small(by),
            Expr::Binary(BinOp::Div, a, by) => by_small(by) && self.is_small(a),
            _ => false,
        }
    }

    /// The smaller or the larger of two numbers.
    fn extreme(&mut self, op: BinOp, dtype: DType, a: &Text, b: &Text) -> Text {
        let (word, common) = if op == BinOp::Min { ("min", Common::Min(dtype)) } else { ("max", Common::Max(dtype)) };
        self.common(common);
        Text::new(format!("{word}_{dtype}({}, {})", a.text, b.text), PRIMARY)
    }

    /// Notes a helper that every language has, and gives its name.
    pub(crate) fn common(&mut self, common: Common) -> String {
        self.prelude.call(D::helper(common))
    }

    /// The type that an integer is declared with.
    pub(super) fn width(dtype: DType, wide: bool) -> DType {
        match (D::NARROW, wide) {
            (false, _) => dtype,
            (true, true) => DType::I64,
            (true, false) => DType::I32,
        }
    }

    fn cast(dtype: DType, a: &Text) -> Text {
        Text::new(format!("({}){}", D::element_type(dtype), a.at(UNARY)), UNARY)
    }

    fn widened_integer(a: Integer) -> Text {
        if a.wide { a.text } else { Self::cast(DType::I64, &a.text) }
    }

    fn vector_in_scalar() -> EmitError {
        Self::unsupported("a vector where a scalar is needed")
    }

    fn load(&mut self, b: BufferId, idx: &[Expr]) -> Result<Text, EmitError> {
        if let Some(lane) = D::loaded(self, b, idx) {
            return Ok(lane);
        }
        let element = D::element(self, b, idx)?;
        Ok(self.widened(b, element))
    }

    /// An element as its buffer holds it, as the value that is computed with.
    pub(crate) fn widened(&mut self, b: BufferId, element: String) -> Text {
        match self.kernel.buffer(b).dtype {
            d if d.is_narrow_float() => Text::new(format!("{}({element})", self.common(Common::Widen(d))), PRIMARY),
            _ => Text::new(element, PRIMARY),
        }
    }

    /// A value as it is stored: floats of 16 and 8 bits are rounded.
    pub(crate) fn narrowed(&mut self, b: BufferId, value: Text) -> String {
        match self.kernel.buffer(b).dtype {
            d if d.is_narrow_float() && D::PLAIN_ZEROS && value.text == "0.0f" => "0".into(),
            d if d.is_narrow_float() => format!("{}({})", self.common(Common::Narrow(d)), value.text),
            _ => value.text,
        }
    }

    /// The distance of an element from the start of the buffer, in elements.
    pub(crate) fn offset(&self, b: BufferId, idx: &[Expr]) -> Expr {
        simplify(&self.kernel.buffer(b).address(idx), &self.ranges)
    }
}
