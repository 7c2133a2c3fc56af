//! Vector statements.
//!
//! A GPU has no vector arithmetic, but memory is moved best 16 bytes at a time. A vector statement therefore loads its
//! operands as wide as they are aligned, computes lane by lane, and stores as wide as the destination is aligned.

use super::body::{Body, Loaded};
use super::multiple::multiple;
use super::prelude::{Helper, cuda_type};
use crate::analysis::simplify::simplify;
use crate::emit::EmitError;
use crate::emit::clike::lanes::{lane_of_expr, lane_run, lanes, reads_other_lanes, unbroadcast, updated};
use crate::emit::clike::text::Text;
use crate::emit::clike::text::strength::{OR, PRIMARY, SUM, UNARY};
use crate::integer::gcd;
use crate::ir::{BinOp, BufferId, DType, Expr, Stmt};

/// What one access of a GPU moves at most.
const ACCESS_BYTES: i64 = 16;

/// Neighbouring elements that one access moves.
#[derive(Clone, Debug, PartialEq)]
struct Piece {
    /// The first lane.
    lane: i64,
    /// Number of lanes.
    width: i64,
    /// Distance of the first element from the start of the buffer.
    offset: Expr,
}

impl Body<'_> {
    /// A vector store or update.
    pub(super) fn vector_update(&mut self, s: &Stmt) -> Result<(), EmitError> {
        let (buffer, indices, value) = match s {
            Stmt::Store { buffer, indices, value } => (*buffer, indices, value.clone()),
            Stmt::Reduce { buffer, indices, op, value, .. } if self.is_memory(*buffer) => {
                (*buffer, indices, updated(*buffer, indices, *op, value))
            }
            Stmt::Reduce { buffer, indices, value, .. } => (*buffer, indices, value.clone()),
            _ => return Ok(()),
        };
        if let (Stmt::Store { .. }, Expr::Select(cond, load, other)) = (s, &value)
            && !self.is_memory(buffer)
            && self.load_or_zero(cond, load, other)?
        {
            let done = self.store_lanes(s, buffer, indices, load, i64::from(lanes(self.kernel, s)), None);
            self.own.loads.clear();
            return done;
        }
        // A guard around whole vectors stays outside, so that what it guards can be moved whole.
        if let (Stmt::Store { .. }, Expr::Select(cond, a, b)) = (s, &value)
            && cond.ty(self.kernel).lanes == 1
            && [a, b].iter().any(|e| !self.wide_loads(e, 2).is_empty())
        {
            let cond = self.scalar(cond)?.text;
            let arm = |value: &Expr| Stmt::Store { buffer, indices: indices.clone(), value: value.clone() };
            self.line(&format!("if ({cond}) {{"));
            self.indented(|p| p.vector_update(&arm(a)))?;
            self.line("} else {");
            self.indented(|p| p.vector_update(&arm(b)))?;
            self.line("}");
            return Ok(());
        }
        let count = i64::from(lanes(self.kernel, s));
        let target = if self.is_memory(buffer) { self.pieces(buffer, indices, count) } else { None };
        if let (Some(target), Expr::Load(from, source)) = (&target, &value)
            && self.copy(buffer, target, *from, source, count)?
        {
            return Ok(());
        }
        self.load_wide(&value, count)?;
        let done = self.store_lanes(s, buffer, indices, &value, count, target);
        self.own.loads.clear();
        done
    }

    /// Computes each lane and stores it.
    fn store_lanes(
        &mut self,
        s: &Stmt,
        buffer: BufferId,
        indices: &[Expr],
        value: &Expr,
        count: i64,
        target: Option<Vec<Piece>>,
    ) -> Result<(), EmitError> {
        let held = reads_other_lanes(s, buffer, indices);
        let lane = |e: &Expr, l: i64, body: &Self| simplify(&lane_of_expr(e, &Expr::Int(l)), &body.ranges);
        if target.is_none() && !held {
            for l in 0..count {
                let at: Vec<Expr> = indices.iter().map(|i| lane(i, l, self)).collect();
                let value = lane(value, l, self);
                let one = match s {
                    Stmt::Reduce { op, init, .. } if !self.is_memory(buffer) => {
                        Stmt::Reduce { buffer, indices: at, op: *op, init: init.clone(), value, over: vec![] }
                    }
                    _ => Stmt::Store { buffer, indices: at, value },
                };
                self.scalar_update(&one)?;
            }
            return Ok(());
        }
        let value = match s {
            Stmt::Reduce { op, value, .. } => updated(buffer, indices, *op, value),
            _ => value.clone(),
        };
        if let (Some(target), false) = (&target, held)
            && self.gather(buffer, target, &value)?
        {
            return Ok(());
        }
        let mut texts = vec![];
        for l in 0..count {
            let mut text = self.scalar(&lane(&value, l, self))?;
            if held {
                // All lanes are read before any is written, because later lanes read what earlier ones write.
                let name = self.names.fresh("held");
                let ty = cuda_type(self.kernel.buffer(buffer).dtype.compute());
                self.line(&format!("const {ty} {name} = {};", text.text));
                text = Text::new(name, PRIMARY);
            }
            texts.push(text);
        }
        let single = |l: i64| Piece { lane: l, width: 1, offset: Expr::Int(0) };
        for p in target.unwrap_or_else(|| (0..count).map(single).collect()) {
            let text = &texts[p.lane as usize..(p.lane + p.width) as usize];
            if p.width == 1 {
                let at: Vec<Expr> = indices.iter().map(|i| lane(i, p.lane, self)).collect();
                if self.is_unread(buffer, &at)? {
                    continue;
                }
                let element = self.element(buffer, &at)?;
                let text = self.narrowed(buffer, text[0].clone());
                self.line(&format!("{element} = {text};"));
            } else {
                let address = self.wide_address(buffer, &p, true)?;
                let packed = self.packed(buffer, text);
                self.line(&format!("{address} = {packed};"));
            }
        }
        Ok(())
    }

    /// Stores pairs of 16-bit floats that are single elements elsewhere, as they are; whether that was possible.
    fn gather(&mut self, to: BufferId, target: &[Piece], value: &Expr) -> Result<bool, EmitError> {
        if target.iter().any(|p| p.width == 1) || self.kernel.buffer(to).dtype.bytes() == 1 {
            return Ok(false);
        }
        for p in target {
            let mut elements = vec![];
            for l in p.lane..p.lane + p.width {
                let lane = simplify(&lane_of_expr(value, &Expr::Int(l)), &self.ranges);
                // Either all lanes are such elements or none is: they differ in the index alone.
                let Some(text) = self.verbatim(to, &lane)? else { return Ok(false) };
                elements.push(text);
            }
            let words: Vec<String> = elements
                .chunks(2)
                .map(|pair| format!("{} | (unsigned){} << 16", pair[0], pair[pair.len() - 1]))
                .collect();
            let value = match &words[..] {
                [one] => one.clone(),
                _ => format!("{}{{{}}}", vector_type(self.kernel.buffer(to).dtype, p.width), words.join(", ")),
            };
            let address = self.wide_address(to, p, true)?;
            self.line(&format!("{address} = {value};"));
        }
        Ok(true)
    }

    /// Copies elements of one type as they are; whether that was possible.
    fn copy(
        &mut self,
        to: BufferId,
        target: &[Piece],
        from: BufferId,
        source: &[Expr],
        count: i64,
    ) -> Result<bool, EmitError> {
        if from == to || self.kernel.buffer(from).dtype != self.kernel.buffer(to).dtype || !self.is_memory(from) {
            return Ok(false);
        }
        let Some(source) = self.pieces(from, source, count) else { return Ok(false) };
        if source.len() != target.len() || source.iter().zip(target).any(|(a, b)| a.width != b.width) {
            return Ok(false);
        }
        for (s, t) in source.iter().zip(target) {
            let [s, t] = [(from, s, false), (to, t, true)].map(|(b, p, written)| match p.width {
                1 => self.single(b, &p.offset),
                _ => self.wide_address(b, p, written),
            });
            let line = format!("{} = {};", t?, s?);
            self.line(&line);
        }
        Ok(true)
    }

    /// The lvalue of the element at an offset.
    pub(super) fn single(&mut self, b: BufferId, offset: &Expr) -> Result<String, EmitError> {
        let offset = simplify(offset, &self.ranges);
        let offset = self.index(&offset)?;
        let offset = self.swizzled(b, offset);
        Ok(format!("{}[{offset}]", self.names.buffer(b)))
    }

    /// Loads what the value reads in runs of neighbours, and remembers where each lane is.
    fn load_wide(&mut self, value: &Expr, count: i64) -> Result<(), EmitError> {
        for (b, indices, pieces) in self.wide_loads(value, count) {
            let hint = format!("{}_v", self.kernel.buffer(b).name);
            for p in pieces.iter().filter(|p| p.width > 1) {
                let name = self.names.fresh(&hint);
                let address = self.wide_address(b, p, false)?;
                let ty = vector_type(self.kernel.buffer(b).dtype, p.width);
                self.line(&format!("const {ty} {name} = {address};"));
                self.note_lanes(b, &indices, p, &name);
            }
        }
        Ok(())
    }

    /// Loads one vector if a condition holds, and zeros otherwise; whether the select is of that kind.
    ///
    /// The choice is made of whole words, so that only the load depends on the condition: conversions of its lanes behind
    /// the branch would keep all conditions alive until the loads come, and be waited for in their order.
    fn load_or_zero(&mut self, cond: &Expr, load: &Expr, other: &Expr) -> Result<bool, EmitError> {
        let (Expr::Load(b, indices), Expr::Float(zero, _)) = (load, unbroadcast(other)) else { return Ok(false) };
        // Words of zeros are no negative zeros.
        if zero.to_bits() != 0 {
            return Ok(false);
        }
        let count = i64::from(load.ty(self.kernel).lanes);
        let pieces = if self.is_memory(*b) { self.pieces(*b, indices, count) } else { None };
        let (Some([piece]), 1) = (pieces.as_deref(), cond.ty(self.kernel).lanes) else { return Ok(false) };
        let name = self.names.fresh(&format!("{}_v", self.kernel.buffer(*b).name));
        let ty = vector_type(self.kernel.buffer(*b).dtype, piece.width);
        let (cond, address) = (self.scalar(cond)?, self.wide_address(*b, piece, false)?);
        self.line(&format!("const {ty} {name} = {} ? {address} : {ty}{{}};", cond.at(OR)));
        self.note_lanes(*b, indices, piece, &name);
        Ok(true)
    }

    /// Remembers that the lanes of a run are those of the vector `name`.
    fn note_lanes(&mut self, b: BufferId, indices: &[Expr], p: &Piece, name: &str) {
        for l in 0..p.width {
            let member = self.member(b, name, p.width, l);
            let value = self.widened(b, member.clone());
            let at = indices.iter().map(|i| simplify(&lane_of_expr(i, &Expr::Int(p.lane + l)), &self.ranges)).collect();
            self.own.loads.push(Loaded { buffer: b, indices: at, value, held: member });
        }
    }

    /// The lane, if it has been loaded already.
    pub(super) fn loaded(&self, b: BufferId, indices: &[Expr]) -> Option<&Loaded> {
        self.own.loads.iter().find(|l| l.buffer == b && l.indices == indices)
    }

    /// The loads that certainly happen and can move several lanes at once.
    fn wide_loads(&self, value: &Expr, count: i64) -> Vec<(BufferId, Vec<Expr>, Vec<Piece>)> {
        let mut found: Vec<(BufferId, Vec<Expr>)> = vec![];
        unconditional_loads(value, &mut |b, indices| {
            let load = (b, indices.to_vec());
            if !found.contains(&load) {
                found.push(load);
            }
        });
        found
            .into_iter()
            .filter(|(b, _)| self.is_memory(*b))
            .filter_map(|(b, indices)| self.pieces(b, &indices, count).map(|p| (b, indices, p)))
            .collect()
    }

    /// Cuts the lanes of an access into aligned runs; `None` if no run has more than one.
    fn pieces(&self, b: BufferId, indices: &[Expr], count: i64) -> Option<Vec<Piece>> {
        let buffer = self.kernel.buffer(b);
        let bytes = buffer.dtype.bytes() as i64;
        if buffer.dtype == DType::Bool || bytes > 8 {
            return None;
        }
        let (base, 1) = lane_run(self.kernel, b, indices, 0)? else { return None };
        let offset = self.offset(b, &base);
        let alignment = multiple(&offset);
        let mut pieces = vec![];
        let mut lane = 0;
        while lane < count {
            let mut width = ACCESS_BYTES / bytes;
            while width > 1 && (width > count - lane || gcd(alignment, lane) % width != 0) {
                width /= 2;
            }
            pieces.push(Piece { lane, width, offset: simplify(&(offset.clone() + lane), &self.ranges) });
            lane += width;
        }
        pieces.iter().any(|p| p.width > 1).then_some(pieces)
    }

    /// The lvalue of a run of elements.
    fn wide_address(&mut self, b: BufferId, p: &Piece, written: bool) -> Result<String, EmitError> {
        let offset = self.integer(&p.offset)?.text;
        let constant = if written { "" } else { "const " };
        let ty = vector_type(self.kernel.buffer(b).dtype, p.width);
        // The address map moves 16 bytes at a time, so that it leaves each access whole.
        let swizzled = self.kernel.buffer(b).swizzle != 0;
        let offset = if swizzled { self.swizzled(b, offset.text) } else { offset.at(SUM) };
        let name = self.names.buffer(b);
        Ok(match offset.as_str() {
            "0" => format!("*({constant}{ty} *){name}"),
            _ => format!("*({constant}{ty} *)({name} + {offset})"),
        })
    }

    /// A lane of a loaded vector, as the buffer holds it.
    fn member(&mut self, b: BufferId, vector: &str, width: i64, lane: i64) -> String {
        match self.kernel.buffer(b).dtype {
            DType::F16 | DType::Bf16 => {
                let half = self.prelude.call(if lane % 2 == 0 { Helper::Low } else { Helper::High });
                let word = if width == 2 { vector.to_string() } else { format!("{vector}.{}", letter(lane / 2)) };
                format!("{half}({word})")
            }
            dtype if dtype.bytes() == 1 => {
                let word = if width <= 4 { vector.to_string() } else { format!("{vector}.{}", letter(lane / 4)) };
                let byte = if lane % 4 == 0 { word } else { format!("({word} >> {})", lane % 4 * 8) };
                format!("({}){byte}", cuda_type(dtype))
            }
            _ => format!("{vector}.{}", letter(lane)),
        }
    }

    /// A vector of lanes, as the buffer holds it.
    fn packed(&mut self, b: BufferId, lanes: &[Text]) -> String {
        let dtype = self.kernel.buffer(b).dtype;
        let ty = vector_type(dtype, lanes.len() as i64);
        let members: Vec<String> = match dtype {
            // Zeros are zeros in every type.
            DType::F16 | DType::Bf16 if lanes.iter().all(|l| l.text == "0.0f") => vec!["0".into(); lanes.len() / 2],
            DType::F16 | DType::Bf16 => {
                let pair = self.prelude.call(Helper::NarrowPair(dtype));
                lanes.chunks(2).map(|l| format!("{pair}({}, {})", l[0].text, l[l.len() - 1].text)).collect()
            }
            _ if dtype.is_f8() && lanes.iter().all(|l| l.text == "0.0f") => vec!["0".into(); lanes.len().div_ceil(4)],
            _ if dtype.is_f8() => {
                let pair = self.prelude.call(Helper::NarrowPair(dtype));
                let pair = |l: &[Text]| format!("{pair}({}, {})", l[0].text, l[1].text);
                let word = |four: &[Text]| match four {
                    [_, _] => pair(four),
                    _ => format!("(unsigned){} << 16 | {}", pair(&four[2..]), pair(&four[..2])),
                };
                lanes.chunks(4).map(word).collect()
            }
            dtype if dtype.is_byte() => {
                let byte = |(i, lane): (usize, &Text)| {
                    let shift = if i == 0 { String::new() } else { format!(" << {}", 8 * i) };
                    format!("(unsigned)(unsigned char){}{shift}", lane.at(UNARY))
                };
                let word = |bytes: &[Text]| bytes.iter().enumerate().map(byte).collect::<Vec<_>>().join(" | ");
                lanes.chunks(4).map(word).collect()
            }
            // Braces refuse implicit conversions of integers.
            DType::I32 => lanes.iter().map(|l| format!("(int)({})", l.text)).collect(),
            _ => lanes.iter().map(|l| l.text.clone()).collect(),
        };
        match &members[..] {
            [one] => one.clone(),
            _ => format!("{ty}{{{}}}", members.join(", ")),
        }
    }
}

/// The type that holds so many elements.
fn vector_type(dtype: DType, width: i64) -> &'static str {
    match (dtype, width) {
        (DType::F32, 2) => "float2",
        (DType::F32, _) => "float4",
        (DType::F64, _) => "double2",
        (DType::I32, 2) => "int2",
        (DType::I32, _) => "int4",
        (DType::I8x4 | DType::U8x4 | DType::I16x2, 2) => "uint2",
        (DType::I8x4 | DType::U8x4 | DType::I16x2, _) => "uint4",
        (DType::I64, _) => "longlong2",
        (dtype, 2) if dtype.bytes() == 1 => "unsigned short",
        (dtype, 4) if dtype.bytes() == 1 => "unsigned",
        (dtype, 8) if dtype.bytes() == 1 => "uint2",
        (_, 2) => "unsigned",
        (_, 4) => "uint2",
        (_, _) => "uint4",
    }
}

fn letter(member: i64) -> char {
    [b'x', b'y', b'z', b'w'].get(member as usize).map_or('x', |c| char::from(*c))
}

/// Calls `f` on the loads that happen whatever conditions say.
fn unconditional_loads(e: &Expr, f: &mut dyn FnMut(BufferId, &[Expr])) {
    match e {
        Expr::Load(b, indices) => f(*b, indices),
        Expr::Binary(BinOp::And | BinOp::Or, a, _) => unconditional_loads(a, f),
        Expr::Binary(_, a, b) => {
            unconditional_loads(a, f);
            unconditional_loads(b, f);
        }
        Expr::Unary(_, a) | Expr::Cast(_, a) | Expr::Broadcast(a, _) => unconditional_loads(a, f),
        Expr::Select(c, ..) => unconditional_loads(c, f),
        Expr::Int(_) | Expr::Float(..) | Expr::Var(_) | Expr::Ramp { .. } => {}
    }
}
