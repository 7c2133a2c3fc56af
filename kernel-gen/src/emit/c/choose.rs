//! Vectors of which a condition decides what each lane is.

use super::body::Body;
use super::chunk::Chunk;
use super::prelude::Helper;
use super::types::Vector;
use super::vector::{NoVector, Value};
use crate::analysis::range::bounds;
use crate::analysis::simplify::simplify;
use crate::emit::EmitError;
use crate::emit::clike::expr::select;
use crate::emit::clike::lanes::unbroadcast;
use crate::emit::clike::text::strength::*;
use crate::emit::clike::text::{Text, infix};
use crate::emit::clike::walk::has;
use crate::ir::{BinOp, BufferId, DType, Expr, Kernel, UnOp};

impl Body<'_> {
    /// The lanes of `select(cond, a, b)` that the chunk names.
    pub(super) fn vector_select(&mut self, cond: &Expr, a: &Expr, b: &Expr, c: Chunk) -> Result<Value, NoVector> {
        let dtype = a.ty(self.kernel).dtype;
        let v = Vector::holding(dtype.compute(), usize::from(c.len));
        if cond.ty(self.kernel).lanes == 1 {
            let cond = self.scalar(cond)?;
            let a = self.given(cond.at(AND), |p| p.vector(a, c))?;
            let b = self.given(format!("!({})", cond.text), |p| p.vector(b, c))?;
            let (a, b) = (self.splat(a, v), self.splat(b, v));
            return Ok(Value::Vector(select(&cond, &a, &b), v));
        }
        if is_larger(cond, a, b) && dtype.is_float() {
            let [a, b] = self.vectors([a, b], v, c)?;
            let larger = self.prelude.call(Helper::VectorLarger(v));
            return Ok(Value::Vector(Text::new(format!("{larger}({}, {})", a.text, b.text), PRIMARY), v));
        }
        // What is computed in all lanes is computed where the condition does not hold, too.
        if [cond, a, b].iter().any(|e| self.may_divide_by_zero(e)) {
            return Err(NoVector::Lanes);
        }
        let of_one_run = match a {
            Expr::Load(buffer, idx) if is_zero(b) && self.own.lanes_read.is_none() => {
                self.masked_load(*buffer, idx, cond, c)
            }
            _ => self.blend(cond, a, b, c),
        };
        match of_one_run {
            Err(NoVector::Lanes) => self.choose(cond, a, b, c),
            known => known,
        }
    }

    /// What `f` gives where a condition holds: memory that is read there need not be there otherwise, so nothing may be moved out.
    fn given<T>(&mut self, cond: String, f: impl FnOnce(&mut Self) -> T) -> T {
        let all = match &self.own.given {
            Some(outer) => format!("{outer} && {cond}"),
            None => cond,
        };
        let outer = self.own.given.replace(all);
        let value = f(self);
        self.own.given = outer;
        value
    }

    /// `select(cond, a, b)` where each lane has a condition of its own: all is computed in all lanes.
    fn choose(&mut self, cond: &Expr, a: &Expr, b: &Expr, c: Chunk) -> Result<Value, NoVector> {
        let v = Vector::holding(a.ty(self.kernel).dtype.compute(), usize::from(c.len));
        if !self.may_choose([cond, a, b], v) {
            return Err(NoVector::Lanes);
        }
        let mask = self.mask(cond, v.mask(), c)?;
        let [a, b] = self.vectors([a, b], v, c)?;
        let choose = self.prelude.call(Helper::Choose(v));
        Ok(Value::Vector(Text::new(format!("{choose}({}, {}, {})", mask.text, a.text, b.text), PRIMARY), v))
    }

    /// Whether these may be computed in all lanes, for a result of a type that vectors have.
    fn may_choose<const N: usize>(&self, of: [&Expr; N], v: Vector) -> bool {
        matches!(v.dtype, DType::F32 | DType::F64 | DType::I32)
            && self.own.lanes_read.is_none()
            && of.iter().all(|e| self.reads_nothing_outside(e))
    }

    /// Whether integers are divided by what only a condition keeps from 0.
    fn may_divide_by_zero(&self, e: &Expr) -> bool {
        has(e, |e| match e {
            Expr::Binary(BinOp::Div | BinOp::Mod, _, by) if !e.ty(self.kernel).dtype.is_float() => {
                bounds(by, &self.ranges).is_none_or(|(low, _)| low < 1)
            }
            _ => false,
        })
    }

    /// 1 in the lanes where a condition holds, 0 in the others.
    pub(super) fn vector_truth(&mut self, dtype: DType, cond: &Expr, c: Chunk) -> Result<Value, NoVector> {
        let v = Vector::holding(dtype.compute(), usize::from(c.len));
        if !self.may_choose([cond], v) || self.may_divide_by_zero(cond) {
            return Err(NoVector::Lanes);
        }
        let mask = self.mask(cond, v.mask(), c)?;
        let one = match v.dtype {
            DType::I32 => "1".to_string(),
            _ => format!("({}){}(1)", v.mask(), self.prelude.call(Helper::Splat(v))),
        };
        let ty = self.prelude.call(Helper::Type(v));
        Ok(Value::Vector(Text::new(format!("({ty})({} & {one})", mask.at(PRIMARY)), UNARY), v))
    }

    /// Lanes of which all bits are set where a condition holds, and none where it does not.
    fn mask(&mut self, cond: &Expr, m: Vector, c: Chunk) -> Result<Text, NoVector> {
        if cond.ty(self.kernel).lanes == 1 {
            let text = self.scalar(cond)?;
            // What is read as a truth value may be any byte.
            let is_one = matches!(cond, Expr::Binary(..) | Expr::Unary(UnOp::Not, _));
            let text = if is_one { text.text } else { format!("{} != 0", text.at(EQUAL)) };
            return Ok(Text::new(format!("{}(-({text}))", self.prelude.call(Helper::Splat(m))), PRIMARY));
        }
        match cond {
            Expr::Broadcast(cond, _) => self.mask(cond, m, c),
            Expr::Unary(UnOp::Not, cond) => Ok(Text::new(format!("~{}", self.mask(cond, m, c)?.at(PRIMARY)), UNARY)),
            Expr::Binary(op @ (BinOp::And | BinOp::Or), a, b) => {
                let sign = if *op == BinOp::And { '&' } else { '|' };
                let [a, b] = [self.mask(a, m, c)?, self.mask(b, m, c)?].map(|mask| mask.at(PRIMARY));
                Ok(Text::new(format!("({a} {sign} {b})"), PRIMARY))
            }
            Expr::Binary(op, a, b) if op.is_predicate() => {
                let dtype = a.ty(self.kernel).dtype;
                let v = Vector::holding(dtype.compute(), usize::from(c.len));
                if v.mask() != m || !(dtype.is_float() || dtype == DType::I32) {
                    return Err(NoVector::Lanes);
                }
                let [a, b] = self.vectors([a, b], v, c)?;
                let holds = infix(*op, &a, &b).ok_or(NoVector::Lanes)?;
                let m = self.prelude.call(Helper::Type(m));
                Ok(Text::new(format!("({m})({})", holds.text), UNARY))
            }
            _ => Err(NoVector::Lanes),
        }
    }

    /// `select(cond, a, b)` where the condition holds for one run of lanes: both are computed in all lanes, but memory that the lanes
    /// of the other stand for is not read.
    fn blend(&mut self, cond: &Expr, a: &Expr, b: &Expr, c: Chunk) -> Result<Value, NoVector> {
        let dtype = a.ty(self.kernel).dtype;
        let mut lanes = LaneRange::all(c);
        if !dtype.is_float() || !lanes.narrow(self.kernel, cond, i64::from(c.start)) {
            return Err(NoVector::Lanes);
        }
        let v = Vector::holding(dtype.compute(), usize::from(c.len));
        let (low, high) = lanes.ends();
        let outer = self.own.lanes_read.clone();
        let merge = |op, a: &Expr, b: &Expr| simplify(&Expr::bin(op, a.clone(), b.clone()), &self.ranges);
        let within = |low: &Expr, high: &Expr| match &outer {
            Some((first, last)) => (merge(BinOp::Max, low, first), merge(BinOp::Min, high, last)),
            None => (low.clone(), high.clone()),
        };
        let chosen = within(&low, &high);
        // The others are one run where the chosen ones are first or last.
        let end = i64::from(c.len);
        let others = match (low.as_int(), high.as_int()) {
            (Some(..=0), _) => Some(within(&high, &Expr::Int(end))),
            (_, Some(n)) if n >= end => Some(within(&Expr::Int(0), &low)),
            _ => None,
        };
        let always = lanes.uniform.is_empty();
        let a = self.vector_of_lanes(a, c, Some(chosen), always)?;
        // Beside the chosen lanes, and where none is chosen.
        let beside = match (self.reads_nothing_outside(b), others) {
            (true, _) => None,
            (false, Some(others)) => Some(self.vector_of_lanes(b, c, Some(others), true)?),
            (false, None) => return Err(NoVector::Lanes),
        };
        let alone = match (&beside, Expr::all(lanes.uniform.clone())) {
            (Some(beside), None) => beside.clone(),
            (None, None) => self.vector_of_lanes(b, c, outer, true)?,
            (_, Some(cond)) => {
                let not = format!("!({})", self.scalar(&cond)?.text);
                self.given(not, |p| p.vector_of_lanes(b, c, outer, true))?
            }
        };
        let beside = beside.unwrap_or_else(|| alone.clone());
        if [&a, &beside, &alone].iter().any(|value| matches!(value, Value::Vector(_, w) if *w != v)) {
            return Err(NoVector::Lanes);
        }
        let [a, beside, alone] = [a, beside, alone].map(|value| self.splat(value, v));
        let pick = self.prelude.call(Helper::PickBetween(v));
        let (low, high) = (self.scalar(&low)?, self.scalar(&high)?);
        let text = Text::new(format!("{pick}({}, {}, {}, {})", a.text, beside.text, low.text, high.text), PRIMARY);
        Ok(Value::Vector(self.where_uniform(lanes.uniform, text, alone)?, v))
    }

    /// [`Self::vector`], of which only the lanes from one on and before another read memory; all of them if there is no such run.
    /// Memory that all lanes share is there if one of them reads it `always`.
    fn vector_of_lanes(
        &mut self,
        e: &Expr,
        c: Chunk,
        lanes: Option<(Expr, Expr)>,
        always: bool,
    ) -> Result<Value, NoVector> {
        if let Some((low, high)) = &lanes {
            let one = matches!((low.as_int(), high.as_int()), (Some(low), Some(high)) if low < high);
            let shared = |e: &Expr| match e {
                Expr::Load(b, idx) => {
                    !self.own.registers.contains_key(b) && !idx.iter().any(|i| i.ty(self.kernel).lanes > 1)
                }
                _ => false,
            };
            if !(one && always) && has(e, shared) {
                return Err(NoVector::Lanes);
            }
        }
        let outer = std::mem::replace(&mut self.own.lanes_read, lanes);
        let value = self.vector(e, c);
        self.own.lanes_read = outer;
        value
    }

    /// Whether all that is read in any lane lies in its buffer, whatever conditions say.
    fn reads_nothing_outside(&self, e: &Expr) -> bool {
        let inside = |b: &BufferId, idx: &[Expr]| {
            let shape = &self.kernel.buffer(*b).shape;
            let within =
                |(i, n): (&Expr, &i64)| bounds(i, &self.ranges).is_some_and(|(low, high)| low >= 0 && high < *n);
            self.own.registers.contains_key(b) || idx.iter().zip(shape).all(within)
        };
        !has(e, |e| matches!(e, Expr::Load(b, idx) if !inside(b, idx)))
    }

    /// A text if all conditions hold, otherwise another one.
    fn where_uniform(&mut self, conditions: Vec<Expr>, text: Text, otherwise: Text) -> Result<Text, EmitError> {
        match Expr::all(conditions) {
            None => Ok(text),
            Some(cond) => {
                let cond = self.scalar(&cond)?;
                Ok(select(&cond, &text, &otherwise))
            }
        }
    }

    /// `select(cond, buffer[idx], 0)` where the condition holds for one run of lanes: those are loaded, and memory that
    /// the others stand for is not touched. This is what padding comes down to.
    fn masked_load(&mut self, b: BufferId, idx: &[Expr], cond: &Expr, c: Chunk) -> Result<Value, NoVector> {
        let dtype = self.kernel.buffer(b).dtype;
        let v = Vector::holding(dtype.compute(), usize::from(c.len));
        if dtype != v.dtype || !dtype.is_float() || self.own.registers.contains_key(&b) {
            return Err(NoVector::Lanes);
        }
        let mut lanes = LaneRange::all(c);
        if !lanes.narrow(self.kernel, cond, i64::from(c.start)) {
            return Err(NoVector::Lanes);
        }
        let mut run = self.run(b, idx, c)?;
        let (low, high) = lanes.ends();
        if let (Some(low), Some(high), true) = (low.as_int(), high.as_int(), lanes.uniform.is_empty())
            && let Some(text) = self.shared(b, &run, v, (low, high), c)?
        {
            return Ok(Value::Vector(text, v));
        }
        let load = match (run.stride, low.as_int(), high.as_int()) {
            (1, ..) => Helper::LoadBetween(v),
            (2, ..) => Helper::LoadEvenBetween(v),
            // One lane only, so its index needs no lane.
            (0, Some(low), Some(high)) if high == low + 1 => {
                run.pointer = format!("{} - {low}", run.pointer);
                Helper::LoadBetween(v)
            }
            _ => return Err(NoVector::Lanes),
        };
        let load = self.prelude.call(load);
        let (low, high) = (self.scalar(&low)?, self.scalar(&high)?);
        let text = format!("{load}({}, {}, {})", run.pointer, low.text, high.text);
        let text = match Expr::all(lanes.uniform) {
            None => Text::new(text, PRIMARY),
            Some(cond) => {
                let zero = self.prelude.call(Helper::Splat(v));
                Text::new(format!("{} ? {text} : {zero}(0)", self.scalar(&cond)?.at(OR)), TERNARY)
            }
        };
        Ok(Value::Vector(text, v))
    }
}

/// Whether `select(cond, a, b)` is `a` where that is larger than `b`.
fn is_larger(cond: &Expr, a: &Expr, b: &Expr) -> bool {
    matches!(cond, Expr::Binary(BinOp::Lt, low, high) if **low == *b && **high == *a)
}

/// Whether every lane is zero, without a sign.
fn is_zero(e: &Expr) -> bool {
    matches!(unbroadcast(e), Expr::Float(v, _) if v.to_bits() == 0)
}

/// The lanes for which a condition holds: `low.. < high..`, each the extreme of several bounds, if `uniform` holds.
struct LaneRange {
    uniform: Vec<Expr>,
    low: Vec<Expr>,
    high: Vec<Expr>,
}

impl LaneRange {
    /// All lanes of a chunk.
    fn all(c: Chunk) -> LaneRange {
        LaneRange { uniform: vec![], low: vec![Expr::Int(0)], high: vec![Expr::Int(c.len.into())] }
    }

    /// The first lane, and the one behind the last.
    fn ends(&self) -> (Expr, Expr) {
        let merge = |bounds: &[Expr], op: BinOp| {
            bounds.iter().cloned().reduce(|a, b| Expr::bin(op, a, b)).unwrap_or(Expr::Int(0))
        };
        (merge(&self.low, BinOp::Max), merge(&self.high, BinOp::Min))
    }

    /// Takes a condition in; false if it is not of that form. Lanes are counted from `start`.
    fn narrow(&mut self, kernel: &Kernel, cond: &Expr, start: i64) -> bool {
        if cond.ty(kernel).lanes == 1 {
            self.uniform.push(cond.clone());
            return true;
        }
        match cond {
            Expr::Binary(BinOp::And, a, b) => self.narrow(kernel, a, start) && self.narrow(kernel, b, start),
            Expr::Binary(op @ (BinOp::Lt | BinOp::Le), a, b) => {
                let strict = *op == BinOp::Lt;
                match (steps(a), steps(b)) {
                    // s <= base + stride * lane, from the least such lane on.
                    (None, Some((base, stride))) if a.ty(kernel).lanes == 1 => {
                        let room = (**a).clone() - base + if strict { stride } else { stride - 1 };
                        self.low.push(room.floor_div(stride) - start);
                        true
                    }
                    // base + stride * lane < s, before the least lane for which it fails.
                    (Some((base, stride)), None) if b.ty(kernel).lanes == 1 => {
                        let room = (**b).clone() - base + if strict { stride - 1 } else { stride };
                        self.high.push(room.floor_div(stride) - start);
                        true
                    }
                    _ => false,
                }
            }
            _ => false,
        }
    }
}

/// The first lane of a vector whose lanes are numbers that rise evenly, and by how much they rise.
fn steps(e: &Expr) -> Option<(Expr, i64)> {
    match e {
        Expr::Ramp { base, stride, .. } if *stride > 0 => Some(((**base).clone(), *stride)),
        _ => None,
    }
}
