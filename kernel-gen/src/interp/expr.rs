//! From the tree to the flat program: expressions. Each lane of a vector is computed on its own.

use super::InterpError;
use super::arithmetic::{CompareOp, FloatOp, IntOp};
use super::compile::Compiler;
use super::program::{Op, Slot};
use crate::analysis::range::bounds;
use crate::ir::{BinOp, DType, Expr, UnOp};

/// A value in a slot; its type says in which register file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) slot: Slot,
    pub(super) dtype: DType,
}

/// A linear form of integer slots.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    pub(super) terms: Vec<(Slot, i64)>,
    pub(super) constant: i64,
    /// What it is known to lie between.
    pub(super) bounds: Option<(i64, i64)>,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum { terms: vec![], constant: 0, bounds: Some((0, 0)) }
    }
}

impl Sum {
    /// `self += factor * other`. The address of an element in bounds fits, and others are caught by their bounds, so
    /// wrapping is harmless.
    pub(super) fn add(&mut self, other: &Sum, factor: i64) {
        for (slot, f) in &other.terms {
            let f = f.wrapping_mul(factor);
            match self.terms.iter_mut().find(|t| t.0 == *slot) {
                Some(t) => t.1 = t.1.wrapping_add(f),
                None => self.terms.push((*slot, f)),
            }
        }
        self.terms.retain(|t| t.1 != 0);
        self.constant = self.constant.wrapping_add(other.constant.wrapping_mul(factor));
    }

    pub(super) fn add_constant(&mut self, by: i64) {
        self.constant = self.constant.wrapping_add(by);
        self.bounds = self.bounds.and_then(|(lo, hi)| Some((lo.checked_add(by)?, hi.checked_add(by)?)));
    }
}

impl Compiler<'_> {
    /// Lanes of an expression's value. Unlike [`Expr::ty`] this knows the lanes of vector `let`s.
    pub(super) fn lanes(&self, e: &Expr) -> u16 {
        match e {
            Expr::Int(_) | Expr::Float(..) => 1,
            Expr::Var(v) => self.vars[v.0 as usize].map_or(1, |b| b.lanes),
            Expr::Binary(_, a, b) => self.lanes(a).max(self.lanes(b)),
            Expr::Unary(_, a) | Expr::Cast(_, a) => self.lanes(a),
            Expr::Select(c, a, b) => self.lanes(c).max(self.lanes(a)).max(self.lanes(b)),
            Expr::Load(_, idx) => self.index_lanes(idx),
            Expr::Ramp { lanes, .. } | Expr::Broadcast(_, lanes) => *lanes,
        }
    }

    pub(super) fn int_const(&mut self, v: i64) -> Slot {
        if let Some(s) = self.int_consts.get(&v) {
            return *s;
        }
        let s = self.take(true, 1);
        self.int_consts.insert(v, s);
        s
    }

    pub(super) fn float_const(&mut self, v: f64, dtype: DType) -> Slot {
        let bits = super::round::round_to(v, self.rounding(dtype)).to_bits();
        if let Some(s) = self.float_consts.get(&bits) {
            return *s;
        }
        let s = self.take(false, 1);
        self.float_consts.insert(bits, s);
        s
    }

    /// The slot of a value after conversion to the register file of `dtype`.
    pub(super) fn as_kind(&mut self, v: Value, dtype: DType) -> Slot {
        match (v.dtype.is_float(), dtype.is_float()) {
            (true, false) => {
                let d = self.take(true, 1);
                self.emit(Op::FloatToInt { d, a: v.slot, dtype });
                d
            }
            (false, true) => {
                let d = self.take(false, 1);
                self.emit(Op::IntToFloat { d, a: v.slot, dtype: self.rounding(dtype.compute()) });
                d
            }
            _ => v.slot,
        }
    }

    /// A condition as 0 or 1.
    pub(super) fn truth(&mut self, e: &Expr, lane: u16) -> Result<Slot, InterpError> {
        let v = self.value(e, lane)?;
        if v.dtype != DType::Bool {
            return Err(InterpError::malformed(format!("a condition has type {}, not bool", v.dtype)));
        }
        Ok(v.slot)
    }

    /// An integer expression as a linear form; what is not linear is computed into a slot first.
    pub(super) fn sum(&mut self, e: &Expr, lane: u16) -> Result<Sum, InterpError> {
        let mut sum = self.sum_terms(e, lane)?;
        sum.bounds = match e {
            Expr::Ramp { base, stride, lanes } => bounds(base, &self.ranges).and_then(|(lo, hi)| {
                let by = stride.checked_mul(i64::from(lane.min(lanes.saturating_sub(1))))?;
                Some((lo.checked_add(by)?, hi.checked_add(by)?))
            }),
            _ => bounds(e, &self.ranges),
        };
        Ok(sum)
    }

    fn sum_terms(&mut self, e: &Expr, lane: u16) -> Result<Sum, InterpError> {
        let mut out = Sum::default();
        match e {
            Expr::Int(c) => out.constant = *c,
            Expr::Binary(op @ (BinOp::Add | BinOp::Sub), a, b) => {
                out = self.sum_terms(a, lane)?;
                let b = self.sum_terms(b, lane)?;
                out.add(&b, if *op == BinOp::Add { 1 } else { -1 });
            }
            Expr::Binary(BinOp::Mul, a, b) if b.as_int().is_some() || a.as_int().is_some() => {
                let (x, c) = match (a.as_int(), b.as_int()) {
                    (_, Some(c)) => (a, c),
                    (Some(c), _) => (b, c),
                    _ => unreachable!("one of them is a constant"),
                };
                let x = self.sum_terms(x, lane)?;
                out.add(&x, c);
            }
            Expr::Ramp { base, stride, lanes } => {
                out = self.sum_terms(base, 0)?;
                out.constant =
                    out.constant.wrapping_add(stride.wrapping_mul(i64::from(lane.min(lanes.saturating_sub(1)))));
            }
            Expr::Broadcast(a, _) => out = self.sum_terms(a, 0)?,
            _ => {
                let v = self.value(e, lane)?;
                if v.dtype.is_float() {
                    return Err(InterpError::malformed(format!("an index has type {}", v.dtype)));
                }
                out.terms.push((v.slot, 1));
            }
        }
        Ok(out)
    }

    /// Code for one lane of an expression.
    pub(super) fn value(&mut self, e: &Expr, lane: u16) -> Result<Value, InterpError> {
        // Within a vector statement a scalar part is computed once for all lanes. Code that may be skipped for one
        // lane cannot serve the others.
        let key = std::ptr::from_ref(e) as usize;
        let scalar = !matches!(e, Expr::Int(_) | Expr::Float(..) | Expr::Var(_)) && self.lanes(e) == 1;
        if scalar && let Some(v) = self.shared_values.get(&key) {
            return Ok(*v);
        }
        let v = self.fresh_value(e, if scalar { 0 } else { lane })?;
        if scalar && self.lazy == 0 {
            self.shared_values.insert(key, v);
        }
        Ok(v)
    }

    fn fresh_value(&mut self, e: &Expr, lane: u16) -> Result<Value, InterpError> {
        match e {
            Expr::Int(v) => Ok(Value { slot: self.int_const(*v), dtype: DType::I64 }),
            Expr::Float(v, d) if d.is_float() => {
                Ok(Value { slot: self.float_const(*v, d.compute()), dtype: d.compute() })
            }
            Expr::Float(_, d) => Err(InterpError::malformed(format!("a floating constant has type {d}"))),
            Expr::Var(v) => match self.vars[v.0 as usize] {
                Some(b) if b.open => {
                    let lane = if b.lanes == 1 { 0 } else { lane.min(b.lanes - 1) };
                    Ok(Value { slot: b.slot + u32::from(lane), dtype: b.dtype })
                }
                _ => {
                    Err(InterpError::malformed(format!("{} is used where it is not bound", self.p.kernel.var(*v).name)))
                }
            },
            Expr::Broadcast(a, _) => self.value(a, 0),
            Expr::Ramp { lanes: 0, .. } => Err(InterpError::malformed("a ramp has no lanes")),
            Expr::Ramp { .. } => self.linear_value(e, lane),
            Expr::Load(b, idx) => {
                let access = self.access(*b, idx, lane)?;
                let dtype = self.p.buffers[b.0 as usize].dtype;
                let d = self.take(!dtype.is_float(), 1);
                self.emit(if dtype.is_float() { Op::FloatLoad { d, access } } else { Op::IntLoad { d, access } });
                Ok(Value { slot: d, dtype: dtype.compute() })
            }
            Expr::Cast(to, a) => {
                let v = self.value(a, lane)?;
                let (d, a) = (self.take(!to.is_float(), 1), v.slot);
                let dtype = self.rounding(*to);
                self.emit(match (v.dtype.is_float(), to.is_float()) {
                    (true, true) => Op::FloatToFloat { d, a, dtype },
                    (true, false) => Op::FloatToInt { d, a, dtype },
                    (false, true) => Op::IntToFloat { d, a, dtype },
                    (false, false) => Op::IntToInt { d, a, dtype },
                });
                Ok(Value { slot: d, dtype: to.compute() })
            }
            Expr::Select(c, a, b) => {
                let c = self.truth(c, lane)?;
                let skip = self.emit(Op::JumpIfZero { a: c, to: 0 });
                self.lazy += 1;
                let first = self.value(a, lane)?;
                let d = self.take(!first.dtype.is_float(), 1);
                self.move_to(d, first);
                let end = self.emit(Op::Jump { to: 0 });
                self.land(skip);
                let second = self.value(b, lane)?;
                if first.dtype.is_float() != second.dtype.is_float() {
                    return Err(InterpError::malformed(format!("a select of {} and {}", first.dtype, second.dtype)));
                }
                self.move_to(d, second);
                self.land(end);
                self.lazy -= 1;
                Ok(Value { slot: d, dtype: first.dtype })
            }
            Expr::Unary(op, a) => self.unary(*op, a, lane),
            Expr::Binary(op @ (BinOp::And | BinOp::Or), a, b) => {
                let d = self.take(true, 1);
                let a = self.truth(a, lane)?;
                if is_total(b) {
                    let b = self.truth(b, lane)?;
                    self.emit(Op::Int { op: if *op == BinOp::And { IntOp::And } else { IntOp::Or }, d, a, b });
                    return Ok(Value { slot: d, dtype: DType::Bool });
                }
                self.emit(Op::IntMove { d, a });
                let test = if *op == BinOp::And {
                    a
                } else {
                    let not = self.take(true, 1);
                    self.emit(Op::Int { op: IntOp::Not, d: not, a, b: a });
                    not
                };
                let skip = self.emit(Op::JumpIfZero { a: test, to: 0 });
                self.lazy += 1;
                let b = self.truth(b, lane)?;
                self.emit(Op::IntMove { d, a: b });
                self.lazy -= 1;
                self.land(skip);
                Ok(Value { slot: d, dtype: DType::Bool })
            }
            Expr::Binary(op, a, b) => self.binary(e, *op, a, b, lane),
        }
    }

    fn move_to(&mut self, d: Slot, v: Value) {
        self.emit(if v.dtype.is_float() { Op::FloatMove { d, a: v.slot } } else { Op::IntMove { d, a: v.slot } });
    }

    /// A linear form computed into a slot.
    fn linear_value(&mut self, e: &Expr, lane: u16) -> Result<Value, InterpError> {
        let sum = self.sum_terms(e, lane)?;
        if sum.constant == 0
            && let [(slot, 1)] = sum.terms[..]
        {
            return Ok(Value { slot, dtype: DType::I64 });
        }
        let form = self.linear(&sum);
        let d = self.take(true, 1);
        self.emit(Op::Linear { d, form });
        Ok(Value { slot: d, dtype: DType::I64 })
    }

    fn unary(&mut self, op: UnOp, a: &Expr, lane: u16) -> Result<Value, InterpError> {
        let v = self.value(a, lane)?;
        let a = v.slot;
        if v.dtype.is_float() {
            let op = match op {
                UnOp::Neg => FloatOp::Neg,
                UnOp::Abs => FloatOp::Abs,
                UnOp::Sqrt => FloatOp::Sqrt,
                UnOp::Exp => FloatOp::Exp,
                UnOp::Exp2 => FloatOp::Exp2,
                UnOp::Log => FloatOp::Log,
                UnOp::Sin => FloatOp::Sin,
                UnOp::Cos => FloatOp::Cos,
                UnOp::Floor => FloatOp::Floor,
                UnOp::Ceil => FloatOp::Ceil,
                UnOp::Round => FloatOp::Round,
                UnOp::Tanh => FloatOp::Tanh,
                UnOp::Erf => FloatOp::Erf,
                UnOp::Atan => FloatOp::Atan,
                UnOp::Tf32 => FloatOp::Tf32,
                UnOp::Rounded => FloatOp::Rounded,
                UnOp::Not | UnOp::Flip | UnOp::Even | UnOp::Odd => {
                    return Err(InterpError::malformed(format!("`{}` of a {}", op.name(), v.dtype)));
                }
            };
            let d = self.take(false, 1);
            self.emit(Op::Float { op, single: self.rounding(v.dtype) == DType::F32, d, a, b: a });
            return Ok(Value { slot: d, dtype: v.dtype });
        }
        let op = match op {
            UnOp::Neg if v.dtype != DType::Bool => IntOp::Neg,
            UnOp::Abs if v.dtype != DType::Bool => IntOp::Abs,
            UnOp::Not if v.dtype == DType::Bool => IntOp::Not,
            UnOp::Flip => {
                let malformed = || InterpError::malformed(format!("`{}` of a {}", op.name(), v.dtype));
                let dtype = v.dtype.flipped().ok_or_else(malformed)?;
                let d = self.take(true, 1);
                self.emit(Op::Int { op: IntOp::Flip, d, a, b: a });
                return Ok(Value { slot: d, dtype });
            }
            UnOp::Even | UnOp::Odd if v.dtype.word_parts() == Some(4) => {
                let d = self.take(true, 1);
                let first = usize::from(op == UnOp::Odd);
                self.emit(Op::Int { op: IntOp::Halves { of: v.dtype, first }, d, a, b: a });
                return Ok(Value { slot: d, dtype: DType::I16x2 });
            }
            other => return Err(InterpError::malformed(format!("`{}` of a {}", other.name(), v.dtype))),
        };
        let d = self.take(true, 1);
        self.emit(Op::Int { op, d, a, b: a });
        Ok(Value { slot: d, dtype: v.dtype })
    }

    fn binary(&mut self, e: &Expr, op: BinOp, a: &Expr, b: &Expr, lane: u16) -> Result<Value, InterpError> {
        let first = self.value_type(a);
        if first == DType::I64
            && self.value_type(b) == DType::I64
            && matches!(op, BinOp::Add | BinOp::Sub | BinOp::Mul)
            && (op != BinOp::Mul || a.as_int().is_some() || b.as_int().is_some())
        {
            return self.linear_value(e, lane);
        }
        let (x, y) = (self.value(a, lane)?, self.value(b, lane)?);
        let (a, b) = (x.slot, y.slot);
        let mismatch = || Err(InterpError::malformed(format!("{op:?} of {} and {}", x.dtype, y.dtype)));
        if x.dtype.is_float() != y.dtype.is_float() || (x.dtype == DType::Bool) != (y.dtype == DType::Bool) {
            return mismatch();
        }
        if x.dtype.is_float() {
            let compare = match op {
                BinOp::Lt => Some(CompareOp::Lt),
                BinOp::Le => Some(CompareOp::Le),
                BinOp::Eq => Some(CompareOp::Eq),
                BinOp::Ne => Some(CompareOp::Ne),
                _ => None,
            };
            if let Some(op) = compare {
                let d = self.take(true, 1);
                self.emit(Op::FloatCompare { op, d, a, b });
                return Ok(Value { slot: d, dtype: DType::Bool });
            }
            let op = match op {
                BinOp::Add => FloatOp::Add,
                BinOp::Sub => FloatOp::Sub,
                BinOp::Mul => FloatOp::Mul,
                BinOp::Div => FloatOp::Div,
                BinOp::Min => FloatOp::Min,
                BinOp::Max => FloatOp::Max,
                BinOp::Pow => FloatOp::Pow,
                BinOp::Fmod => FloatOp::Fmod,
                _ => return mismatch(),
            };
            let dtype = if x.dtype == DType::F64 { x.dtype } else { y.dtype };
            let d = self.take(false, 1);
            self.emit(Op::Float { op, single: self.rounding(dtype) == DType::F32, d, a, b });
            return Ok(Value { slot: d, dtype });
        }
        let (op, dtype) = match op {
            BinOp::Eq => (IntOp::Eq, DType::Bool),
            BinOp::Ne => (IntOp::Ne, DType::Bool),
            BinOp::Add if x.dtype == DType::I16x2 && y.dtype == x.dtype => (IntOp::AddPairs, x.dtype),
            BinOp::Sub if x.dtype == DType::I16x2 && y.dtype == x.dtype => (IntOp::SubPairs, x.dtype),
            _ if x.dtype == DType::Bool || x.dtype.is_word() && !matches!(op, BinOp::Dot | BinOp::Push) => {
                return mismatch();
            }
            BinOp::Lt => (IntOp::Lt, DType::Bool),
            BinOp::Le => (IntOp::Le, DType::Bool),
            BinOp::Add => (IntOp::Add, x.dtype),
            BinOp::Sub => (IntOp::Sub, x.dtype),
            BinOp::Mul => (IntOp::Mul, x.dtype),
            BinOp::Div => (IntOp::Div, x.dtype),
            BinOp::Mod => (IntOp::Mod, x.dtype),
            BinOp::Min => (IntOp::Min, x.dtype),
            BinOp::Max => (IntOp::Max, x.dtype),
            BinOp::Dot if x.dtype.is_word() && x.dtype.word_parts() == y.dtype.word_parts() => {
                (IntOp::Dot { words: [x.dtype, y.dtype] }, DType::I32)
            }
            BinOp::Push if y.dtype.is_int() => match x.dtype.word_parts() {
                Some(parts) => (IntOp::Push { bits: 32 / parts as u32 }, x.dtype),
                None => return mismatch(),
            },
            BinOp::Pow | BinOp::Fmod | BinOp::Dot | BinOp::Push => return mismatch(),
            BinOp::And | BinOp::Or => unreachable!("lazy operators are compiled apart"),
        };
        let d = self.take(true, 1);
        self.emit(Op::Int { op, d, a, b });
        if dtype == DType::I32 {
            self.emit(Op::IntToInt { d, a: d, dtype });
        }
        Ok(Value { slot: d, dtype })
    }

    /// The element type of an expression's value.
    fn value_type(&self, e: &Expr) -> DType {
        e.ty(self.p.kernel).dtype.compute()
    }
}

/// Whether the expression can be computed anywhere: it reads nothing and divides by non-zero constants only.
fn is_total(e: &Expr) -> bool {
    let mut total = true;
    e.walk(&mut |e| match e {
        Expr::Load(..) => total = false,
        Expr::Binary(BinOp::Div | BinOp::Mod, _, b) => total &= b.as_int().is_some_and(|c| c != 0),
        _ => {}
    });
    total
}
