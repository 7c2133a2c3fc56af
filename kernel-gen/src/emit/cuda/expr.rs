//! Scalar expressions.
//!
//! Integers are `int` where ranges prove that they and everything they are computed from fit, and `long long` from there
//! on where they do not: a GPU computes with 32 bits, and an index of 64 costs several instructions an operation.

use super::prelude::{Helper, cuda_type, math_fn};
use super::ptx::Ptx;
use super::{Body, EmitError};
use crate::analysis::range::bounds;
use crate::analysis::simplify::{simplify, truth};
use crate::emit::text::strength::*;
use crate::emit::text::{Text, float, infix};
use crate::ir::{BinOp, BufferId, DType, Expr, Scope, UnOp};

/// An integer expression as text, and whether its type is `long long`.
pub(super) struct Integer {
    pub(super) text: Text,
    pub(super) wide: bool,
}

impl Integer {
    /// The same value as `long long`.
    fn widened(self) -> Text {
        if self.wide { self.text } else { Text::new(format!("(long long){}", self.text.at(UNARY)), UNARY) }
    }
}

/// Whether the interval fits into an `int`.
fn fits((lo, hi): (i64, i64)) -> bool {
    lo > i64::from(i32::MIN) && hi <= i64::from(i32::MAX)
}

impl Body<'_> {
    /// A scalar expression as CUDA C++.
    pub(super) fn scalar(&mut self, e: &Expr) -> Result<Text, EmitError> {
        if e.ty(self.kernel).dtype.is_int() {
            return Ok(self.integer(e)?.text);
        }
        Ok(match e {
            Expr::Float(v, d) => number(*v, *d),
            Expr::Var(v) => Text::new(self.names.var(*v), PRIMARY),
            Expr::Binary(op, a, b) => self.scalar_binary(*op, a, b, e)?,
            Expr::Unary(op, a) => {
                let dtype = a.ty(self.kernel).dtype;
                let a = self.scalar(a)?;
                match (op, math_fn(*op, dtype)) {
                    (_, Some(function)) => Text::new(format!("{function}({})", a.text), PRIMARY),
                    (UnOp::Tf32, None) => Text::new(format!("{}({})", self.ptx(Ptx::RoundTf32), a.text), PRIMARY),
                    (UnOp::Not, None) => Text::new(format!("!{}", a.at(PRIMARY)), UNARY),
                    (_, None) => Text::new(format!("-{}", a.at(PRIMARY)), UNARY),
                }
            }
            Expr::Select(c, a, b) => {
                let (c, a, b) = (self.scalar(c)?, self.scalar(a)?, self.scalar(b)?);
                select(&c, &a, &b)
            }
            Expr::Cast(d, a) => {
                let from = a.ty(self.kernel).dtype;
                let a = self.scalar(a)?;
                match d {
                    _ if *d == from => a,
                    DType::F16 | DType::Bf16 => {
                        let (narrow, widen) =
                            (self.prelude.call(Helper::Narrow(*d)), self.prelude.call(Helper::Widen(*d)));
                        Text::new(format!("{widen}({narrow}({}))", a.text), PRIMARY)
                    }
                    DType::Bool => Text::new(format!("{} != 0", a.at(EQUAL + 1)), EQUAL),
                    _ => Text::new(format!("({}){}", cuda_type(*d), a.at(UNARY)), UNARY),
                }
            }
            Expr::Load(b, idx) => self.load(*b, idx)?,
            Expr::Broadcast(a, 1) => self.scalar(a)?,
            Expr::Ramp { .. } | Expr::Broadcast(..) | Expr::Int(_) => return Err(vector_in_scalar()),
        })
    }

    /// An integer expression.
    pub(super) fn integer(&mut self, e: &Expr) -> Result<Integer, EmitError> {
        let narrow = |text| Integer { text, wide: false };
        Ok(match e {
            Expr::Int(v) => {
                let strength = if *v < 0 { UNARY } else { PRIMARY };
                let wide = !fits((*v, *v));
                // The least `long long` has no literal of its own.
                let text = match (wide, *v == i64::MIN) {
                    (false, _) => v.to_string(),
                    (true, false) => format!("{v}LL"),
                    (true, true) => format!("({}LL - 1)", v + 1),
                };
                Integer { text: Text::new(text, if *v == i64::MIN { PRIMARY } else { strength }), wide }
            }
            Expr::Var(v) => Integer { text: Text::new(self.names.var(*v), PRIMARY), wide: self.wide.contains(v) },
            Expr::Binary(op, a, b) => self.integer_binary(*op, a, b, e)?,
            Expr::Unary(op, a) => {
                let fits = bounds(e, &self.ranges).is_some_and(fits);
                let a = self.integer(a)?;
                let wide = a.wide || !fits;
                let a = if wide { a.widened() } else { a.text };
                let text = match op {
                    UnOp::Neg => Text::new(format!("-{}", a.at(PRIMARY)), UNARY),
                    UnOp::Abs => Text::new(format!("{0} < 0 ? -{0} : {0}", a.at(PRIMARY)), TERNARY),
                    other => {
                        return Err(EmitError::Unsupported { what: format!("{} of an integer", other.name()) });
                    }
                };
                Integer { text, wide }
            }
            Expr::Select(c, a, b) => {
                let (c, a, b) = (self.scalar(c)?, self.integer(a)?, self.integer(b)?);
                Integer { text: select(&c, &a.text, &b.text), wide: a.wide || b.wide }
            }
            Expr::Cast(d, a) if a.ty(self.kernel).dtype.is_int() => {
                let a = self.integer(a)?;
                match (d, a.wide) {
                    (DType::I32, true) => narrow(Text::new(format!("(int){}", a.text.at(UNARY)), UNARY)),
                    _ => a,
                }
            }
            Expr::Cast(d, a) => {
                let a = self.scalar(a)?;
                let text = Text::new(format!("({}){}", cuda_type(*d), a.at(UNARY)), UNARY);
                Integer { text, wide: *d == DType::I64 }
            }
            Expr::Load(b, idx) => {
                let wide = self.kernel.buffer(*b).dtype == DType::I64;
                Integer { text: self.load(*b, idx)?, wide }
            }
            Expr::Broadcast(a, 1) => self.integer(a)?,
            Expr::Ramp { base, lanes: 1, .. } => self.integer(base)?,
            Expr::Ramp { .. } | Expr::Broadcast(..) | Expr::Float(..) => return Err(vector_in_scalar()),
        })
    }

    fn integer_binary(&mut self, op: BinOp, a: &Expr, b: &Expr, whole: &Expr) -> Result<Integer, EmitError> {
        let fits = bounds(whole, &self.ranges).is_some_and(fits);
        let natural = |e: &Expr, least: i64| bounds(e, &self.ranges).is_some_and(|(lo, _)| lo >= least);
        // C++ truncates; the same as floor where neither side is negative.
        let floors = matches!(op, BinOp::Div | BinOp::Mod) && !(natural(a, 0) && natural(b, 1));
        let (mut a, mut b) = (self.integer(a)?, self.integer(b)?);
        let wide = a.wide || b.wide || !fits;
        let helper = match op {
            BinOp::Div if floors => Some(Helper::FloorDiv { wide }),
            BinOp::Mod if floors => Some(Helper::FloorMod { wide }),
            BinOp::Min => Some(Helper::Min { wide }),
            BinOp::Max => Some(Helper::Max { wide }),
            _ => None,
        };
        if let Some(helper) = helper {
            let f = self.prelude.call(helper);
            return Ok(Integer { text: Text::new(format!("{f}({}, {})", a.text.text, b.text.text), PRIMARY), wide });
        }
        if wide && !a.wide && !b.wide {
            // One wide side makes the operation wide; a constant reads better without a conversion.
            if a.text.text.bytes().all(|c| c.is_ascii_digit()) {
                b = Integer { text: b.widened(), wide: true };
            } else {
                a = Integer { text: a.widened(), wide: true };
            }
        }
        match infix(op, &a.text, &b.text) {
            Some(text) => Ok(Integer { text, wide }),
            None => Err(EmitError::Unsupported { what: format!("the integer operator {op:?}") }),
        }
    }

    fn scalar_binary(&mut self, op: BinOp, a: &Expr, b: &Expr, whole: &Expr) -> Result<Text, EmitError> {
        if let Some(t) = truth(whole) {
            return Ok(Text::new(if t { "true" } else { "false" }, PRIMARY));
        }
        let dtype = a.ty(self.kernel).dtype;
        if op == BinOp::Mod {
            return Err(EmitError::Unsupported { what: format!("the remainder of {dtype} values") });
        }
        let (a, b) = (self.scalar(a)?, self.scalar(b)?);
        Ok(match infix(op, &a, &b) {
            Some(text) => text,
            None => {
                let dtype = dtype.compute();
                let helper = if op == BinOp::Min { Helper::FloatMin(dtype) } else { Helper::FloatMax(dtype) };
                Text::new(format!("{}({}, {})", self.prelude.call(helper), a.text, b.text), PRIMARY)
            }
        })
    }

    fn load(&mut self, b: BufferId, idx: &[Expr]) -> Result<Text, EmitError> {
        if let Some(lane) = self.loaded(b, idx) {
            return Ok(lane);
        }
        let element = self.element(b, idx)?;
        Ok(self.widened(b, element))
    }

    /// An element as its buffer holds it, as the value that is computed with.
    pub(super) fn widened(&mut self, b: BufferId, element: String) -> Text {
        match self.kernel.buffer(b).dtype {
            d @ (DType::F16 | DType::Bf16) => {
                Text::new(format!("{}({element})", self.prelude.call(Helper::Widen(d))), PRIMARY)
            }
            _ => Text::new(element, PRIMARY),
        }
    }

    /// The lvalue of one element.
    pub(super) fn element(&mut self, b: BufferId, idx: &[Expr]) -> Result<String, EmitError> {
        if self.scalars.contains_key(&b) {
            return self.scalar_element(b, idx)?.ok_or_else(|| {
                let what = format!("a read of an element of `{}` that nothing reads", self.kernel.buffer(b).name);
                EmitError::Unsupported { what }
            });
        }
        if matches!(self.kernel.buffer(b).scope, Scope::Fragment(_)) {
            return self.sums_element(b, idx);
        }
        let offset = self.offset(b, idx);
        let offset = self.integer(&offset)?.text.text;
        let offset = self.swizzled(b, offset);
        Ok(format!("{}[{offset}]", self.names.buffer(b)))
    }

    /// The variable that is an element of a private array; none where nothing reads it, so that nobody needs to store it.
    pub(super) fn scalar_element(&self, b: BufferId, idx: &[Expr]) -> Result<Option<String>, EmitError> {
        let elements = self.scalars.get(&b).map_or(&[][..], |e| e);
        let at = self.offset(b, idx).as_int().and_then(|at| elements.get(usize::try_from(at).ok()?));
        let constant = || EmitError::Unsupported {
            what: format!("an index of `{}` that is not a constant here", self.kernel.buffer(b).name),
        };
        Ok(at.ok_or_else(constant)?.clone())
    }

    /// Whether an element is one that nothing reads.
    pub(super) fn is_unread(&self, b: BufferId, idx: &[Expr]) -> Result<bool, EmitError> {
        Ok(self.scalars.contains_key(&b) && self.scalar_element(b, idx)?.is_none())
    }

    /// The place of an element under the address map of its buffer.
    pub(super) fn swizzled(&mut self, b: BufferId, offset: String) -> String {
        let buffer = self.kernel.buffer(b);
        match buffer.swizzle {
            0 => offset,
            row => {
                let helper = Helper::Swizzle { row, element: buffer.dtype.bytes() as u32 };
                format!("{}({offset})", self.prelude.call(helper))
            }
        }
    }

    /// Notes an instruction and gives its name.
    pub(super) fn ptx(&mut self, p: Ptx) -> String {
        self.prelude.call(Helper::Ptx(p))
    }

    /// The distance of an element from the start of the buffer, in elements.
    pub(super) fn offset(&self, b: BufferId, idx: &[Expr]) -> Expr {
        let sum = idx
            .iter()
            .zip(&self.kernel.buffer(b).strides)
            .map(|(i, s)| i.clone() * *s)
            .reduce(|a, b| a + b)
            .unwrap_or(Expr::Int(0));
        simplify(&sum, &self.ranges)
    }
}

fn select(c: &Text, a: &Text, b: &Text) -> Text {
    Text::new(format!("{} ? {} : {}", c.at(OR), a.at(TERNARY + 1), b.at(TERNARY + 1)), TERNARY)
}

/// A floating literal; without headers there are no words for what is not finite.
fn number(v: f64, dtype: DType) -> Text {
    if v.is_finite() {
        return float(v, dtype);
    }
    let text = match dtype {
        DType::F64 => format!("__longlong_as_double({:#x}ULL)", v.to_bits()),
        _ => format!("__int_as_float({:#x})", (v as f32).to_bits()),
    };
    Text::new(text, PRIMARY)
}

fn vector_in_scalar() -> EmitError {
    EmitError::Unsupported { what: "a vector where a scalar is needed".into() }
}
