//! Scalar expressions.

use super::prelude::{Helper, MathFn, c_type};
use super::registers::{RegisterFile, register_access};
use super::{Body, EmitError};
use crate::analysis::range::bounds;
use crate::analysis::simplify::{simplify, truth};
use crate::emit::text::strength::*;
use crate::emit::text::{Text, float, infix};
use crate::ir::{BinOp, BufferId, DType, Expr, UnOp};

impl Body<'_> {
    /// A scalar expression as C.
    pub(super) fn scalar(&mut self, e: &Expr) -> Result<Text, EmitError> {
        Ok(match e {
            Expr::Int(v) => Text::new(v.to_string(), if *v < 0 { UNARY } else { PRIMARY }),
            Expr::Float(v, d) => {
                if !v.is_finite() {
                    self.prelude.use_math();
                }
                float(*v, *d)
            }
            Expr::Var(v) => Text::new(self.names.var(*v), PRIMARY),
            Expr::Binary(op, a, b) => self.scalar_binary(*op, a, b, e)?,
            Expr::Unary(op, a) => self.scalar_unary(*op, a)?,
            Expr::Select(c, a, b) => {
                let (c, a, b) = (self.scalar(c)?, self.scalar(a)?, self.scalar(b)?);
                Text::new(format!("{} ? {} : {}", c.at(OR), a.at(TERNARY + 1), b.at(TERNARY + 1)), TERNARY)
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
                    _ => Text::new(format!("({}){}", c_type(*d), a.at(UNARY)), UNARY),
                }
            }
            Expr::Load(b, idx) => self.scalar_load(*b, idx)?,
            Expr::Broadcast(a, 1) => self.scalar(a)?,
            Expr::Ramp { base, lanes: 1, .. } => self.scalar(base)?,
            Expr::Ramp { .. } | Expr::Broadcast(..) => {
                return Err(EmitError::Unsupported { what: "a vector where a scalar is needed".into() });
            }
        })
    }

    fn scalar_binary(&mut self, op: BinOp, a: &Expr, b: &Expr, whole: &Expr) -> Result<Text, EmitError> {
        if let Some(t) = truth(whole) {
            return Ok(Text::new(if t { "1" } else { "0" }, PRIMARY));
        }
        let dtype = a.ty(self.kernel).dtype;
        let integer = dtype.is_int();
        if integer && matches!(op, BinOp::Div | BinOp::Mod) {
            // C truncates; the same as floor where neither side is negative.
            let natural = |e: &Expr, least: i64| bounds(e, &self.ranges).is_some_and(|(lo, _)| lo >= least);
            if !(natural(a, 0) && natural(b, 1)) {
                let f = self.prelude.call(if op == BinOp::Div { Helper::FloorDiv } else { Helper::FloorMod });
                let (a, b) = (self.scalar(a)?, self.scalar(b)?);
                return Ok(Text::new(format!("{f}({}, {})", a.text, b.text), PRIMARY));
            }
        }
        if !integer && op == BinOp::Mod {
            return Err(EmitError::Unsupported { what: format!("the remainder of {dtype} values") });
        }
        let (a, b) = (self.scalar(a)?, self.scalar(b)?);
        Ok(match infix(op, &a, &b) {
            Some(text) => text,
            None => {
                self.prelude.call(Helper::MinMax(dtype.compute()));
                let word = if op == BinOp::Min { "min" } else { "max" };
                Text::new(format!("{word}_{}({}, {})", dtype.compute(), a.text, b.text), PRIMARY)
            }
        })
    }

    fn scalar_unary(&mut self, op: UnOp, a: &Expr) -> Result<Text, EmitError> {
        let dtype = a.ty(self.kernel).dtype;
        let a = self.scalar(a)?;
        let math = match op {
            UnOp::Neg => return Ok(Text::new(format!("-{}", a.at(PRIMARY)), UNARY)),
            UnOp::Not => return Ok(Text::new(format!("!{}", a.at(PRIMARY)), UNARY)),
            UnOp::Abs if dtype.is_int() => {
                return Ok(Text::new(format!("{0} < 0 ? -{0} : {0}", a.at(PRIMARY)), TERNARY));
            }
            UnOp::Abs => MathFn::Abs,
            UnOp::Sqrt => MathFn::Sqrt,
            UnOp::Exp => MathFn::Exp,
            UnOp::Tanh => MathFn::Tanh,
            UnOp::Erf => MathFn::Erf,
            UnOp::Tf32 => {
                return Err(EmitError::Unsupported { what: "rounding to tf32, which only tensor cores take".into() });
            }
        };
        self.prelude.use_math();
        Ok(Text::new(format!("{}({})", math.c_name(dtype), a.text), PRIMARY))
    }

    fn scalar_load(&mut self, b: BufferId, idx: &[Expr]) -> Result<Text, EmitError> {
        let element = self.element(b, idx)?;
        Ok(match self.kernel.buffer(b).dtype {
            d @ (DType::F16 | DType::Bf16) => {
                Text::new(format!("{}({element})", self.prelude.call(Helper::Widen(d))), PRIMARY)
            }
            _ => Text::new(element, PRIMARY),
        })
    }

    /// The C lvalue of one element.
    pub(super) fn element(&mut self, b: BufferId, idx: &[Expr]) -> Result<String, EmitError> {
        if let Some(file @ RegisterFile::Variables(_)) = self.registers.get(&b) {
            let at = register_access(self.kernel, b, idx)?;
            let group = file.group(at.offset).ok_or_else(|| self.lost_register(b, at.offset))?;
            return Ok(match group.vector {
                None => group.name.clone(),
                Some(_) => format!("{}[{}]", group.name, at.offset - group.start),
            });
        }
        let (base, rest) = self.address(b, &self.offset(b, idx));
        Ok(format!("{base}[{}]", self.scalar(&rest)?.text))
    }

    /// Should the scan of accesses and the emitter ever disagree, this is what is said instead of a panic.
    pub(super) fn lost_register(&self, b: BufferId, offset: i64) -> EmitError {
        EmitError::RegisterIndex { buffer: self.kernel.buffer(b).name.clone(), index: format!("element {offset}") }
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
