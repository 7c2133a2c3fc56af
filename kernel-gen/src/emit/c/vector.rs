//! Vector expressions, one register at a time.

use super::Isa;
use super::body::Body;
use super::chunk::Chunk;
use super::phases::Place;
use super::prelude::Helper;
use super::shared::Tap;
use super::types::{MOST_LANES, Vector};
use crate::analysis::simplify::simplify;
use crate::emit::EmitError;
use crate::emit::clike::lanes::{lane_of_expr, lane_run, unbroadcast};
use crate::emit::clike::prelude::math_fn;
use crate::emit::clike::text::strength::*;
use crate::emit::clike::text::{Text, halves, infix, pushed};
use crate::emit::clike::walk::dot;
use crate::ir::{BinOp, BufferId, DType, Expr, UnOp};
use crate::lower::transpose_copies::whole_rows;

/// Why an expression has no text as one vector.
pub(super) enum NoVector {
    /// It has to be computed lane by lane.
    Lanes,
    /// It cannot be said at all.
    Error(EmitError),
}

impl NoVector {
    /// Why that cannot be said, where it is needed as one vector.
    pub(super) fn or(self, what: &str) -> EmitError {
        match self {
            NoVector::Lanes => EmitError::in_c(what),
            NoVector::Error(e) => e,
        }
    }
}

impl From<EmitError> for NoVector {
    fn from(e: EmitError) -> Self {
        NoVector::Error(e)
    }
}

/// The text of an expression in a vector statement.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// The same in all lanes.
    Scalar(Text),
    /// A register of that type; lanes above the chunk's length hold anything.
    Vector(Text, Vector),
}

impl Value {
    /// The text, whichever it is.
    pub(super) fn text(&self) -> &Text {
        match self {
            Value::Scalar(t) | Value::Vector(t, _) => t,
        }
    }
}

/// A run of elements in memory, `stride` apart, that a chunk touches.
pub(super) struct Run {
    /// Address of the first.
    pub(super) pointer: String,
    pub(super) stride: i64,
    /// What the address is counted from, and how many elements lie between, if that is a constant.
    pub(super) place: Option<(String, i64)>,
}

/// Whether an integer in vectors of 32 bits loses upper bits where it becomes one of eight.
pub(super) fn is_cut(from: DType, to: DType) -> bool {
    to.is_byte() && from != to && from.compute() == DType::I32 && !from.is_word()
}

impl Body<'_> {
    /// The lanes of `e` that the chunk names.
    pub(super) fn vector(&mut self, e: &Expr, c: Chunk) -> Result<Value, NoVector> {
        let ty = e.ty(self.kernel);
        if ty.lanes == 1 {
            return Ok(Value::Scalar(self.scalar(e)?));
        }
        match e {
            Expr::Broadcast(a, _) => self.vector(a, c),
            Expr::Binary(op, a, b) => {
                if let Some((sum, x, y)) = dot(e) {
                    return self.vector_dot(sum, x, y, c);
                }
                if *op == BinOp::Push {
                    return self.push(a, b, c);
                }
                if ty.dtype == DType::I16x2 {
                    return self.of_pairs(*op, a, b, c);
                }
                if !ty.dtype.is_float() && ty.dtype != DType::I32 {
                    return Err(NoVector::Lanes);
                }
                // Division of integers is floor division, which C's is not. A shift is, and keeps the signs of lanes; a mask is its
                // remainder.
                if let (BinOp::Div | BinOp::Mod, DType::I32, Some(bits)) = (op, ty.dtype, power_of_two(b)) {
                    let Value::Vector(a, v) = self.vector(a, c)? else { return Err(NoVector::Lanes) };
                    let a = a.at(PRIMARY);
                    let text = if *op == BinOp::Div {
                        format!("({a} >> {bits})")
                    } else {
                        format!("({a} & {})", (1i64 << bits) - 1)
                    };
                    return Ok(Value::Vector(Text::new(text, PRIMARY), v));
                }
                let number = [a, b].iter().any(|e| self.is_number(e));
                let (a, b) = (self.vector(a, c)?, self.vector(b, c)?);
                self.vector_binary(*op, a, b, ty.dtype, number)
            }
            Expr::Unary(UnOp::Flip, a) => {
                let Value::Vector(a, v) = self.vector(a, c)? else { return Err(NoVector::Lanes) };
                Ok(Value::Vector(Text::new(format!("({} ^ (int32_t)0x80808080)", a.at(PRIMARY)), PRIMARY), v))
            }
            Expr::Unary(op @ (UnOp::Even | UnOp::Odd), word) => {
                let Value::Vector(a, v) = self.vector(word, c)? else { return Err(NoVector::Lanes) };
                Ok(Value::Vector(vector_halves(word.ty(self.kernel).dtype, *op == UnOp::Odd, &a), v))
            }
            Expr::Unary(UnOp::Rounded, a) => {
                let Value::Vector(a, v) = self.vector(a, c)? else { return Err(NoVector::Lanes) };
                let hold = self.prelude.call(Helper::Hold(v));
                Ok(Value::Vector(Text::new(format!("{hold}({})", a.text), PRIMARY), v))
            }
            Expr::Unary(op, a) => {
                let Value::Vector(a, v) = self.vector(a, c)? else { return Err(NoVector::Lanes) };
                Ok(Value::Vector(self.vector_unary(*op, a, v)?, v))
            }
            Expr::Select(cond, a, b) => self.vector_select(cond, a, b, c),
            Expr::Cast(d, cond) if cond.ty(self.kernel).dtype == DType::Bool => self.vector_truth(*d, cond, c),
            Expr::Cast(d @ (DType::I8 | DType::U8), a) if is_cut(a.ty(self.kernel).dtype, *d) => {
                let Value::Vector(a, v) = self.vector(a, c)? else { return Err(NoVector::Lanes) };
                let a = a.at(PRIMARY);
                let text = if *d == DType::U8 { format!("({a} & 255)") } else { format!("(({a} << 24) >> 24)") };
                Ok(Value::Vector(Text::new(text, PRIMARY), v))
            }
            Expr::Cast(d, a) if a.ty(self.kernel).dtype.compute() == d.compute() && !d.is_narrow_float() => {
                self.vector(a, c)
            }
            Expr::Cast(d @ (DType::F32 | DType::F64), a) => {
                let Value::Vector(a, of) = self.vector(a, c)? else { return Err(NoVector::Lanes) };
                let v = Vector::holding(*d, usize::from(c.len));
                // Both sides need the same number of lanes.
                if of.width != v.width || v.width < 4 {
                    return Err(NoVector::Lanes);
                }
                let name = self.prelude.call(Helper::Type(v));
                Ok(Value::Vector(Text::new(format!("__builtin_convertvector({}, {name})", a.text), PRIMARY), v))
            }
            // Words lie in vectors of integers of their size.
            Expr::Cast(DType::I32 | DType::I8x4 | DType::U8x4 | DType::I16x2, a)
                if a.ty(self.kernel).dtype.is_word() || a.ty(self.kernel).dtype == DType::I32 =>
            {
                self.vector(a, c)
            }
            // Both are one instruction.
            Expr::Cast(DType::I32, round) if matches!(&**round, Expr::Unary(UnOp::Round, _)) => {
                let Expr::Unary(_, a) = &**round else { return Err(NoVector::Lanes) };
                let Value::Vector(a, of) = self.vector(a, c)? else { return Err(NoVector::Lanes) };
                let v = Vector::holding(DType::I32, usize::from(c.len));
                if of.width != v.width || of.dtype != DType::F32 {
                    return Err(NoVector::Lanes);
                }
                let rounded = self.prelude.call(Helper::Rounded(of));
                Ok(Value::Vector(Text::new(format!("{rounded}({})", a.text), PRIMARY), v))
            }
            Expr::Cast(d @ (DType::I32 | DType::I8 | DType::U8), a) if a.ty(self.kernel).dtype == DType::F32 => {
                let Value::Vector(a, of) = self.vector(a, c)? else { return Err(NoVector::Lanes) };
                let v = Vector::holding(d.compute(), usize::from(c.len));
                // What is stored as a byte afterwards loses the upper bits there.
                if of.width != v.width {
                    return Err(NoVector::Lanes);
                }
                let name = self.prelude.call(Helper::Type(v));
                Ok(Value::Vector(Text::new(format!("__builtin_convertvector({}, {name})", a.text), PRIMARY), v))
            }
            Expr::Load(b, idx) => self.vector_load(*b, idx, c),
            _ => Err(NoVector::Lanes),
        }
    }

    /// [`BinOp::Dot`] of two vectors of words, added to a vector of sums.
    fn vector_dot(&mut self, sum: Option<&Expr>, x: &Expr, y: &Expr, c: Chunk) -> Result<Value, NoVector> {
        let v = Vector::holding(DType::I32, usize::from(c.len));
        let words = [x, y].map(|e| e.ty(self.kernel).dtype);
        let sum = match sum {
            Some(sum) => self.vectors([sum], v, c)?,
            None => [self.splat(Value::Scalar(Text::new("0", PRIMARY)), v)],
        };
        let ([sum], [x, y]) = (sum, self.vectors([x, y], v, c)?);
        let dot = self.prelude.call(match words {
            [DType::I16x2, _] => Helper::VectorDot2(v),
            _ => {
                let signed = words.map(|word| word == DType::I8x4);
                // The instructions of Arm are for whole registers.
                let whole = self.own.isa != Isa::Aarch64 || v.bytes() == 16;
                Helper::VectorDot4(v, signed, whole && self.own.level.adds_four_products(signed))
            }
        });
        Ok(Value::Vector(Text::new(format!("{dot}({}, {}, {})", sum.text, x.text, y.text), PRIMARY), v))
    }

    /// [`BinOp::Push`] of a vector of words and one of integers.
    fn push(&mut self, word: &Expr, byte: &Expr, c: Chunk) -> Result<Value, NoVector> {
        let v = Vector::holding(DType::I32, usize::from(c.len));
        let dtype = word.ty(self.kernel).dtype;
        let [word, byte] = self.vectors([word, byte], v, c)?;
        Ok(Value::Vector(pushed(dtype, &word, &byte), v))
    }

    /// The sum or the difference of two vectors of words of two integers.
    fn of_pairs(&mut self, op: BinOp, a: &Expr, b: &Expr, c: Chunk) -> Result<Value, NoVector> {
        let v = Vector::holding(DType::I32, usize::from(c.len));
        let [a, b] = self.vectors([a, b], v, c)?;
        let helper = match op {
            BinOp::Add => Helper::AddPairs(v),
            BinOp::Sub => Helper::SubPairs(v),
            _ => return Err(NoVector::Lanes),
        };
        Ok(Value::Vector(Text::new(format!("{}({}, {})", self.prelude.call(helper), a.text, b.text), PRIMARY), v))
    }

    /// The lanes of several expressions as registers of one type.
    pub(super) fn vectors<const N: usize>(
        &mut self,
        of: [&Expr; N],
        v: Vector,
        c: Chunk,
    ) -> Result<[Text; N], NoVector> {
        let values = of.into_iter().map(|e| self.vector(e, c)).collect::<Result<Vec<_>, _>>()?;
        if values.iter().any(|value| matches!(value, Value::Vector(_, w) if *w != v)) {
            return Err(NoVector::Lanes);
        }
        let mut values = values.into_iter();
        Ok(of.map(|_| self.splat(values.next().expect("a value for each"), v)))
    }

    /// The value as a register.
    pub(super) fn splat(&mut self, value: Value, v: Vector) -> Text {
        match value {
            Value::Vector(t, _) => t,
            Value::Scalar(t) => Text::new(format!("{}({})", self.prelude.call(Helper::Splat(v)), t.text), PRIMARY),
        }
    }

    /// Whether an expression is the same in all lanes and made of integers, so that it is never NaN.
    fn is_number(&self, e: &Expr) -> bool {
        matches!(e, Expr::Cast(d, a) if d.is_float() && a.ty(self.kernel).dtype.is_int())
            && e.ty(self.kernel).lanes == 1
    }

    /// `number`: whether an operand that is the same in all lanes is never NaN.
    fn vector_binary(&mut self, op: BinOp, a: Value, b: Value, dtype: DType, number: bool) -> Result<Value, NoVector> {
        let v = match (&a, &b) {
            (Value::Vector(_, v), _) | (_, Value::Vector(_, v)) => *v,
            // Both are broadcasts: compute once.
            (Value::Scalar(a), Value::Scalar(b)) => {
                return infix(op, a, b).map(Value::Scalar).ok_or(NoVector::Lanes);
            }
        };
        if v.dtype != dtype.compute() {
            return Err(NoVector::Lanes);
        }
        let text = match op {
            BinOp::Div if !v.dtype.is_float() => return Err(NoVector::Lanes),
            // A scalar operand is broadcast by the compiler, which folds it into the instruction.
            BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div => {
                infix(op, a.text(), b.text()).ok_or(NoVector::Lanes)?
            }
            BinOp::Min | BinOp::Max => {
                let f = self.prelude.call(match (op, number) {
                    (BinOp::Min, true) => Helper::VectorMinOf(v),
                    (BinOp::Min, false) => Helper::VectorMin(v),
                    (_, true) => Helper::VectorMaxOf(v),
                    (_, false) => Helper::VectorMax(v),
                });
                // The function is at its best where the second operand is the same in all lanes.
                let (a, b) = if matches!(a, Value::Scalar(_)) { (b, a) } else { (a, b) };
                let (a, b) = (self.splat(a, v), self.splat(b, v));
                Text::new(format!("{f}({}, {})", a.text, b.text), PRIMARY)
            }
            _ => return Err(NoVector::Lanes),
        };
        Ok(Value::Vector(text, v))
    }

    fn vector_unary(&mut self, op: UnOp, a: Text, v: Vector) -> Result<Text, NoVector> {
        match op {
            UnOp::Neg => Ok(Text::new(format!("-{}", a.at(PRIMARY)), UNARY)),
            op if v.dtype.is_float() && math_fn(op, v.dtype).is_some() => {
                Ok(Text::new(format!("{}({})", self.prelude.call(Helper::Map(v, op)), a.text), PRIMARY))
            }
            _ => Err(NoVector::Lanes),
        }
    }

    fn vector_load(&mut self, b: BufferId, idx: &[Expr], c: Chunk) -> Result<Value, NoVector> {
        let dtype = self.kernel.buffer(b).dtype;
        let Some(v) = Vector::of(dtype, usize::from(c.len)) else { return Err(NoVector::Lanes) };
        let whole = usize::from(c.len) == v.width;
        if let Some((group, first)) = self.held(b, idx, c.start)? {
            if first == 0 && group.vector == Some(v) {
                return Ok(Value::Vector(Text::new(group.name.clone(), PRIMARY), v));
            }
            if let Some(of) = group.vector
                && of.halves_at_once(self.own.isa)
                && [0, v.width as i64].contains(&first)
                && of.width == 2 * v.width
                && usize::from(c.len) == v.width
            {
                let name = group.name.clone();
                let half = self.prelude.call(Helper::Half(of, first > 0));
                return Ok(Value::Vector(Text::new(format!("{half}({name})"), PRIMARY), v));
            }
            let lanes: Vec<String> = (0..i64::from(c.len)).map(|l| format!("{}[{}]", group.name, first + l)).collect();
            let name = self.prelude.call(Helper::Type(v));
            return Ok(Value::Vector(Text::new(format!("({name}){{{}}}", lanes.join(", ")), UNARY), v));
        }
        if let Some(text) = self.spread(b, idx, v, c)? {
            return Ok(Value::Vector(text, v));
        }
        let run = self.run(b, idx, c)?;
        if let Some((low, high)) = self.own.lanes_read.clone() {
            return Ok(Value::Vector(self.load_between(&run, (&low, &high), v, dtype)?, v));
        }
        let whole = whole || self.has_spare_lanes(b, idx, c, v);
        if let Some(text) = self.shared(b, &run, v, (0, c.len.into()), c)? {
            return Ok(Value::Vector(text, v));
        }
        let text = match run.stride {
            1 if whole => format!("{}({})", self.prelude.call(Helper::Load(v, dtype)), run.pointer),
            1 => format!("{}({}, {})", self.prelude.call(Helper::LoadPart(v, dtype)), run.pointer, c.len),
            2 if whole && dtype == v.dtype => {
                format!("{}({})", self.prelude.call(Helper::LoadEven(v)), run.pointer)
            }
            2 if dtype == v.dtype => {
                format!("{}({}, 0, {})", self.prelude.call(Helper::LoadEvenBetween(v)), run.pointer, c.len)
            }
            s => format!("{}({}, {s}, {})", self.prelude.call(Helper::Gather(v, dtype)), run.pointer, c.len),
        };
        Ok(Value::Vector(Text::new(text, PRIMARY), v))
    }

    /// A load whose lanes are elements at distances that are known but do not rise evenly, as where pixels are repeated: these are picked from
    /// one register of neighbours or from two. None of another load.
    fn spread(&mut self, b: BufferId, idx: &[Expr], v: Vector, c: Chunk) -> Result<Option<Text>, NoVector> {
        let buffer = self.kernel.buffer(b);
        let Some((Expr::Binary(..), others)) = idx.split_last() else { return Ok(None) };
        let alone = others.iter().all(|i| i.ty(self.kernel).lanes == 1) && buffer.strides.last() == Some(&1);
        if !alone || buffer.dtype != v.dtype || self.own.lanes_read.is_some() {
            return Ok(None);
        }
        let index = idx.last().expect("it has a last index");
        let lane = |l: u16| simplify(&lane_of_expr(index, &Expr::Int((c.start + l).into())), &self.ranges);
        let first = lane(0);
        let distance = |l: u16| simplify(&(lane(l) - first.clone()), &self.ranges).as_int();
        let Some(distances) = (0..c.len).map(distance).collect::<Option<Vec<i64>>>() else { return Ok(None) };
        let (least, most) = distances.iter().fold((0, 0), |(a, b), d| (a.min(*d), b.max(*d)));
        let (width, span) = (v.width as i64, most - least + 1);
        if span > 2 * width {
            return Ok(None);
        }
        let mut picks = [0; MOST_LANES];
        distances.iter().zip(&mut picks).for_each(|(distance, pick)| *pick = (distance - least) as u8);
        let at = others.iter().cloned().chain([first + least]).collect::<Vec<_>>();
        let (base, rest) = self.address(b, &self.offset(b, &at));
        let mut registers = vec![];
        for from in (0..span).step_by(v.width) {
            let pointer = self.pointer(&base, rest.clone() + from)?;
            registers.push(match (span - from).min(width) {
                n if n == width => format!("{}({pointer})", self.prelude.call(Helper::Load(v, v.dtype))),
                n => format!("{}({pointer}, {n})", self.prelude.call(Helper::LoadPart(v, v.dtype))),
            });
        }
        let pick = self.prelude.call(Helper::Spread(v, picks, registers.len() == 2));
        Ok(Some(Text::new(format!("{pick}({})", registers.join(", ")), PRIMARY)))
    }

    /// The lanes `low..high` of a load; memory that the others stand for is not touched.
    fn load_between(
        &mut self,
        run: &Run,
        (low, high): (&Expr, &Expr),
        v: Vector,
        dtype: DType,
    ) -> Result<Text, NoVector> {
        let text = match (run.stride, low.as_int(), high.as_int()) {
            (1, Some(0), Some(n)) if dtype != v.dtype => {
                format!("{}({}, {n})", self.prelude.call(Helper::LoadPart(v, dtype)), run.pointer)
            }
            (1 | 2, ..) if dtype == v.dtype => {
                let load = if run.stride == 1 { Helper::LoadBetween(v) } else { Helper::LoadEvenBetween(v) };
                let (low, high) = (self.scalar(low)?, self.scalar(high)?);
                format!("{}({}, {}, {})", self.prelude.call(load), run.pointer, low.text, high.text)
            }
            _ => return Err(NoVector::Lanes),
        };
        Ok(Text::new(text, PRIMARY))
    }

    /// Lanes `low..high` of a load, if they are picked from what it shares with others; see [`super::rows`].
    pub(super) fn shared(
        &mut self,
        buffer: BufferId,
        run: &Run,
        vector: Vector,
        (low, high): (i64, i64),
        c: Chunk,
    ) -> Result<Option<Text>, NoVector> {
        let len = i64::from(c.len);
        let (low, high) = (low.clamp(0, len), high.clamp(0, len));
        match &run.place {
            Some((base, at))
                if matches!(run.stride, 1 | 2) && low < high && self.kernel.buffer(buffer).dtype == vector.dtype =>
            {
                let (base, given) = (base.clone(), self.own.given.clone());
                let tap = Tap { buffer, vector, base, at: *at, stride: run.stride, low, high, len, given };
                Ok(self.shared_row(tap)?.map(|text| Text::new(text, PRIMARY)))
            }
            _ => Ok(None),
        }
    }

    /// Whether a whole vector may be read or written where the chunk's lanes begin: rows of the buffer are private, and
    /// are longer in memory than what is used of them.
    pub(super) fn has_spare_lanes(&self, b: BufferId, idx: &[Expr], c: Chunk, v: Vector) -> bool {
        let buffer = self.kernel.buffer(b);
        let [.., pitch, 1] = buffer.strides[..] else { return false };
        let Some(Expr::Ramp { base, stride: 1, .. }) = idx.last() else { return false };
        let end = base.as_int().map(|first| first + i64::from(c.start) + v.width as i64);
        let padded = buffer.shape.last().is_some_and(|n| pitch > *n && pitch == whole_rows(*n));
        padded && matches!(self.own.places.get(&b), Some(Place::Stack)) && end.is_some_and(|end| end <= pitch)
    }

    /// The address so many elements behind another.
    fn pointer(&mut self, base: &str, rest: Expr) -> Result<String, EmitError> {
        Ok(match rest {
            Expr::Int(0) => base.to_string(),
            Expr::Int(c) if c < 0 => format!("{base} - {}", -c),
            rest => format!("{base} + {}", self.scalar(&rest)?.at(SUM)),
        })
    }

    /// Where the lanes of a vector access lie in memory.
    pub(super) fn run(&mut self, b: BufferId, idx: &[Expr], c: Chunk) -> Result<Run, NoVector> {
        let (scalar, stride) = lane_run(self.kernel, b, idx, c.start.into()).ok_or(NoVector::Lanes)?;
        let (base, rest) = self.address(b, &self.offset(b, &scalar));
        let place = rest.as_int().map(|c| (base.clone(), c));
        let pointer = self.pointer(&base, rest)?;
        Ok(Run { pointer, stride, place })
    }
}

/// The even or the odd bytes of words as words of two integers. The shifts of vectors keep signs.
fn vector_halves(dtype: DType, odd: bool, words: &Text) -> Text {
    let word = words.at(PRIMARY);
    match (dtype, odd) {
        (DType::I8x4, false) => {
            Text::new(format!("(({word} << 24 >> 24 & 0xffff) | {word} << 8 >> 24 << 16)"), PRIMARY)
        }
        (DType::I8x4, true) => Text::new(format!("(({word} << 16 >> 24 & 0xffff) | {word} >> 24 << 16)"), PRIMARY),
        _ => halves(dtype, odd, words),
    }
}

/// Which power of two an expression always is.
fn power_of_two(e: &Expr) -> Option<u32> {
    match unbroadcast(e) {
        Expr::Cast(DType::I32, a) => power_of_two(a),
        e => e
            .as_int()
            .filter(|n| *n <= i64::from(i32::MAX))
            .and_then(|n| u32::try_from(n).ok())
            .filter(|n| n.is_power_of_two())
            .map(u32::ilog2),
    }
}
