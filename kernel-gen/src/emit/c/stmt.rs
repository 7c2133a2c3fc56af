//! Statements.

use super::chunk::{Chunk, chunks};
use super::phases::Place;
use super::prelude::{Helper, Vector, c_type};
use super::registers::{Group, RegisterFile, register_access};
use super::vector::{NoVector, Value};
use super::{Body, EmitError};
use crate::analysis::range::bounds;
use crate::emit::lanes::{as_store, lane_of, lane_of_expr, lanes, reads_other_lanes};
use crate::emit::text::Text;
use crate::emit::text::strength::*;
use crate::ir::{BufferId, DType, Expr, For, LoopKind, Pragma, ReduceOp, Stmt};
use crate::lower::transpose_copies::whole_rows;

/// Bytes of an array up to which compilers take it apart into variables.
const MOST_ZEROED_BYTES: i64 = 4096;

/// Whether statements both write a buffer and read it under conditions.
fn guarded(b: BufferId, stmts: &[Stmt]) -> bool {
    fn note(b: BufferId, stmts: &[Stmt], under: bool, found: &mut [bool; 2]) {
        for s in stmts {
            match s {
                Stmt::For(l) => note(b, &l.body, under, found),
                Stmt::If { then, otherwise, .. } => {
                    note(b, then, true, found);
                    note(b, otherwise, true, found);
                }
                s if under => {
                    found[0] |= s.writes(b);
                    found[1] |= s.reads(b);
                }
                _ => {}
            }
        }
    }
    let mut found = [false; 2];
    note(b, stmts, false, &mut found);
    found == [true; 2]
}

impl Body<'_> {
    /// Appends a line at the current depth.
    pub(super) fn line(&mut self, text: &str) {
        self.out.push_str(&"  ".repeat(self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// The statements of a block.
    pub(super) fn block(&mut self, stmts: &[Stmt]) -> Result<(), EmitError> {
        let outer = self.ranges.clone();
        let pointers = self.pointers.len();
        let mut run_end = 0;
        let mut order: Vec<usize> = (0..stmts.len()).collect();
        for i in 0..stmts.len() {
            if i >= run_end && is_update(&stmts[i]) {
                run_end = i + stmts[i..].iter().take_while(|s| is_update(s)).count();
                self.drop_pointers(pointers);
                self.share_pointers(&stmts[i..run_end])?;
                for (place, statement) in self.plan_rows(&stmts[i..run_end]).into_iter().enumerate() {
                    order[i + place] = i + statement;
                }
            }
            match &stmts[order[i]] {
                Stmt::Let { var, value } => {
                    // A value that nobody uses would only be a warning.
                    let mut used = false;
                    stmts[i + 1..].iter().for_each(|s| s.exprs(&mut |e| used |= e.mentions(*var)));
                    if used {
                        self.let_line(*var, value)?;
                    }
                }
                Stmt::Alloc(b) => self.alloc(*b, &stmts[i + 1..])?,
                Stmt::For(l) => {
                    self.fetch_ending(&stmts[..i], l, &stmts[i + 1..])?;
                    self.for_(l)?;
                }
                other => self.stmt(other)?,
            }
        }
        self.drop_pointers(pointers);
        self.ranges = outer;
        Ok(())
    }

    pub(super) fn let_line(&mut self, var: crate::ir::VarId, value: &Expr) -> Result<(), EmitError> {
        let text = self.scalar(value)?;
        let ty = match self.kernel.var(var).dtype {
            DType::Bool => "int",
            d => c_type(d.compute()),
        };
        let line = format!("const {ty} {} = {};", self.names.var(var), text.text);
        self.line(&line);
        if let Some((lo, hi)) = bounds(value, &self.ranges) {
            self.ranges.insert(var, lo, hi);
        }
        Ok(())
    }

    fn stmt(&mut self, s: &Stmt) -> Result<(), EmitError> {
        match s {
            Stmt::For(l) => self.for_(l),
            Stmt::If { cond, then, otherwise } => {
                let text = self.scalar(cond)?.text;
                self.line(&format!("if ({text}) {{"));
                self.nested(then, cond, true)?;
                if !otherwise.is_empty() {
                    self.line("} else {");
                    self.nested(otherwise, cond, false)?;
                }
                self.line("}");
                Ok(())
            }
            Stmt::Store { .. } | Stmt::Reduce { .. } => self.update(s),
            Stmt::Let { .. } | Stmt::Alloc(_) => self.block(std::slice::from_ref(s)),
            Stmt::Barrier(_) => Err(EmitError::Unsupported { what: "a barrier: a CPU has no thread loops".into() }),
            Stmt::Transpose { dst, src } => self.transpose(dst, src),
            Stmt::Gpu(_) => Err(EmitError::Unsupported { what: "a statement that only a GPU has".into() }),
        }
    }

    fn nested(&mut self, stmts: &[Stmt], cond: &Expr, truth: bool) -> Result<(), EmitError> {
        let outer = self.ranges.clone();
        self.ranges.assume(cond, truth);
        self.depth += 1;
        self.block(stmts)?;
        self.depth -= 1;
        self.ranges = outer;
        Ok(())
    }

    /// Whether the loop adds to sums that live in registers.
    fn updates_registers(&self, l: &For) -> bool {
        let mut found = false;
        for s in &l.body {
            s.walk(&mut |s| {
                found |= matches!(s, Stmt::Reduce { buffer, .. } if self.registers.contains_key(buffer));
            });
        }
        found
    }

    fn for_(&mut self, l: &For) -> Result<(), EmitError> {
        let var = self.names.var(l.var).to_string();
        match l.kind {
            // Only the outermost parallel loop is shared between workers.
            LoopKind::Serial if self.updates_registers(l) => {
                // Copied out, a short loop over taps shares what neighbouring taps load, and the registers for that are
                // taken from the sums.
                self.prelude.use_unroll();
                self.line("KG_UNROLL(1)");
            }
            LoopKind::Serial | LoopKind::Parallel => {}
            LoopKind::Unrolled => {
                self.prelude.use_unroll();
                self.line(&format!("KG_UNROLL({})", l.extent.clamp(1, 65534)));
            }
            LoopKind::Vectorized => {
                return Err(EmitError::NotLowered { what: format!("vectorised loop `{var}`"), pass: "vectorize" });
            }
            LoopKind::VThread => {
                return Err(EmitError::NotLowered { what: format!("vthread loop `{var}`"), pass: "inject_vthread" });
            }
            kind @ (LoopKind::Grid(_)
            | LoopKind::Cluster(_)
            | LoopKind::Thread(_)
            | LoopKind::FragmentRow
            | LoopKind::FragmentCol) => {
                return Err(EmitError::GpuLoop { var, kind: kind.name() });
            }
        }
        self.line(&format!("for (int64_t {var} = 0; {var} < {}; {var}++) {{", l.extent));
        self.ranges.insert_loop(l);
        self.depth += 1;
        for p in &l.pragmas {
            if let Pragma::FetchAhead(iterations) = p {
                self.fetch_ahead(l, *iterations)?;
            }
        }
        self.block(&l.body)?;
        self.depth -= 1;
        self.line("}");
        Ok(())
    }

    /// Declares a buffer; `rest` is what follows in its block.
    fn alloc(&mut self, b: BufferId, rest: &[Stmt]) -> Result<(), EmitError> {
        let buffer = self.kernel.buffer(b);
        let name = self.names.buffer(b).to_string();
        let ty = c_type(buffer.dtype);
        match (self.places.get(&b), self.registers.get(&b)) {
            (Some(Place::Registers), Some(RegisterFile::Variables(groups))) => {
                let assigned = self.assigned_first(b, groups, rest);
                // One line a type keeps a tile of accumulators on a few lines.
                let mut lines: Vec<(Option<Vector>, Vec<String>)> = vec![];
                for (g, assigned) in groups.iter().zip(assigned).filter(|(g, _)| g.read) {
                    // What is written in branches or lane by lane starts from something, or compilers warn.
                    let text = match (assigned, g.vector) {
                        (true, _) => g.name.clone(),
                        (false, Some(_)) => format!("{} = {{0}}", g.name),
                        (false, None) => format!("{} = 0", g.name),
                    };
                    match lines.iter_mut().find(|(v, _)| *v == g.vector) {
                        Some((_, names)) => names.push(text),
                        None => lines.push((g.vector, vec![text])),
                    }
                }
                for (v, names) in lines {
                    let ty = v.map_or(ty.to_string(), |v| self.prelude.call(Helper::Type(v)));
                    for some in names.chunks(8) {
                        self.line(&format!("{ty} {};", some.join(", ")));
                    }
                }
            }
            // A register buffer that nothing touches.
            (Some(Place::Registers), None) => {}
            (Some(Place::Registers | Place::Stack), _) => {
                let n = buffer.extent_elements().max(1);
                // The last row, too, is as long as the others.
                let n = if buffer.is_row_major() { n } else { whole_rows(n) };
                // What is written and read under one condition is no read of what nobody wrote, but compilers that take
                // an array apart do not see that the conditions are one, and warn.
                let small = n * buffer.dtype.bytes() as i64 <= MOST_ZEROED_BYTES;
                let first = if small && guarded(b, rest) { " = {0}" } else { "" };
                self.line(&format!("{ty} {name}[{n}] __attribute__((aligned(64))){first};"));
            }
            (Some(Place::Worker(offset)), _) => {
                let base = self.workspace_bytes + offset;
                let worker = self.worker_bytes;
                self.line(&format!("{ty} *restrict const {name} = ({ty} *)(ws + worker * {worker} + {base});"));
            }
            (Some(Place::Workspace(_) | Place::Param), _) => {}
            (None, _) => {
                return Err(EmitError::Unsupported { what: format!("the allocation of `{}`", buffer.name) });
            }
        }
        Ok(())
    }

    /// For each variable of a register buffer, whether the statements that follow its declaration assign it as a whole
    /// before they do anything else with it.
    fn assigned_first(&self, b: BufferId, groups: &[Group], rest: &[Stmt]) -> Vec<bool> {
        let mut assigned = vec![false; groups.len()];
        for s in rest {
            match s {
                Stmt::Store { buffer, indices, value } if *buffer == b && at_once(value) && !value.reads(b) => {
                    let Ok(at) = register_access(self.kernel, b, indices) else { return assigned };
                    for c in chunks(self.kernel, self.isa, s) {
                        let (start, len) = (at.offset + i64::from(c.start), i64::from(c.len));
                        let whole =
                            |g: &Group| g.start == start && g.len == len && g.vector.is_some() == (at.lanes > 1);
                        match groups.iter().position(whole) {
                            Some(i) => assigned[i] = true,
                            None => return assigned,
                        }
                    }
                }
                other if other.reads(b) || other.writes(b) => return assigned,
                _ => {}
            }
        }
        assigned
    }

    /// A store or an update.
    pub(super) fn update(&mut self, s: &Stmt) -> Result<(), EmitError> {
        let (buffer, indices) = match s {
            Stmt::Store { buffer, indices, .. } => (*buffer, indices),
            Stmt::Reduce { buffer, over, .. } if !over.is_empty() => {
                return Err(EmitError::NotLowered {
                    what: format!("the initialisation of the reduction into `{}`", self.kernel.buffer(*buffer).name),
                    pass: "decompose_reduction",
                });
            }
            Stmt::Reduce { buffer, indices, .. } => (*buffer, indices),
            _ => return Ok(()),
        };
        let pieces = chunks(self.kernel, self.isa, s);
        if lanes(self.kernel, s) == 1 {
            return if self.is_unread(buffer, indices, 0) { Ok(()) } else { self.scalar_update(s) };
        }
        if reads_other_lanes(s, buffer, indices) {
            return self.update_at_once(s);
        }
        for c in pieces {
            if self.is_unread(buffer, indices, c.start) {
                continue;
            }
            match self.vector_update(s, c) {
                Ok(()) => {}
                Err(NoVector::Error(e)) => return Err(e),
                Err(NoVector::Lanes) => self.lane_update(s, c)?,
            }
        }
        Ok(())
    }

    /// Whether the destination is a variable that nothing reads: a lane of padding, say.
    fn is_unread(&self, b: BufferId, indices: &[Expr], lane: u16) -> bool {
        let Some(file) = self.registers.get(&b) else { return false };
        let Ok(at) = register_access(self.kernel, b, indices) else { return false };
        file.group(at.offset + i64::from(lane)).is_some_and(|g| !g.read)
    }

    fn scalar_update(&mut self, s: &Stmt) -> Result<(), EmitError> {
        match s {
            Stmt::Store { buffer, indices, value } => {
                let text = self.scalar(value)?;
                let text = self.narrowed(*buffer, text);
                let target = self.element(*buffer, indices)?;
                self.line(&format!("{target} = {text};"));
            }
            Stmt::Reduce { buffer, indices, op, value, .. } => {
                let dtype = self.kernel.buffer(*buffer).dtype;
                if *op == ReduceOp::Add && dtype == dtype.compute() {
                    let text = self.scalar(value)?.text;
                    let target = self.element(*buffer, indices)?;
                    self.line(&format!("{target} += {text};"));
                } else {
                    self.scalar_update(&as_store(*buffer, indices, *op, value))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A value as it is stored: 16-bit floats are rounded.
    fn narrowed(&mut self, b: BufferId, value: Text) -> String {
        match self.kernel.buffer(b).dtype {
            d @ (DType::F16 | DType::Bf16) => format!("{}({})", self.prelude.call(Helper::Narrow(d)), value.text),
            _ => value.text,
        }
    }

    fn vector_update(&mut self, s: &Stmt, c: Chunk) -> Result<(), NoVector> {
        match s {
            Stmt::Reduce { buffer, indices, op: ReduceOp::Add, value, .. } => {
                // Accumulators read best as `acc += a * b`.
                if let Some(name) = self.whole_register(*buffer, indices, c)? {
                    let text = match self.vector(value, c)? {
                        Value::Scalar(t) | Value::Vector(t, _) => t.text,
                    };
                    self.line(&format!("{name} += {text};"));
                    return Ok(());
                }
                self.vector_update(&as_store(*buffer, indices, ReduceOp::Add, value), c)
            }
            Stmt::Reduce { buffer, indices, op, value, .. } => {
                self.vector_update(&as_store(*buffer, indices, *op, value), c)
            }
            Stmt::Store { buffer, indices, value } => self.vector_store(*buffer, indices, value, c),
            _ => Ok(()),
        }
    }

    /// The variable that holds exactly the chunk of a register access.
    fn whole_register(&self, b: BufferId, indices: &[Expr], c: Chunk) -> Result<Option<String>, NoVector> {
        let Some(file @ RegisterFile::Variables(_)) = self.registers.get(&b) else { return Ok(None) };
        let at = register_access(self.kernel, b, indices)?;
        let start = at.offset + i64::from(c.start);
        let v = Vector::holding(self.kernel.buffer(b).dtype.compute(), usize::from(c.len));
        Ok(file
            .group(start)
            .filter(|g| g.start == start && g.len == i64::from(c.len) && g.vector == Some(v))
            .map(|g| g.name.clone()))
    }

    fn vector_store(&mut self, b: BufferId, indices: &[Expr], value: &Expr, c: Chunk) -> Result<(), NoVector> {
        let dtype = self.kernel.buffer(b).dtype;
        if !matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::Bf16 | DType::I32) {
            return Err(NoVector::Lanes);
        }
        let v = Vector::holding(dtype.compute(), usize::from(c.len));
        let value = self.vector(value, c)?;
        if matches!(&value, Value::Vector(_, w) if *w != v) {
            return Err(NoVector::Lanes);
        }
        let text = self.splat(value, v).text;
        if let Some(name) = self.whole_register(b, indices, c)? {
            self.line(&format!("{name} = {text};"));
            return Ok(());
        }
        if let Some(file @ RegisterFile::Variables(_)) = self.registers.get(&b) {
            // Some lanes of a wider variable.
            let at = register_access(self.kernel, b, indices)?;
            let start = at.offset + i64::from(c.start);
            let group = file.group(start).ok_or_else(|| self.lost_register(b, start))?.clone();
            let ty = self.prelude.call(Helper::Type(v));
            let part = self.names.fresh("part");
            self.line(&format!("const {ty} {part} = {text};"));
            let lanes: Vec<String> = (0..i64::from(c.len))
                .map(|l| format!("{}[{}] = {part}[{l}];", group.name, start - group.start + l))
                .collect();
            self.line(&lanes.join(" "));
            return Ok(());
        }
        let run = self.run(b, indices, c)?;
        let whole = usize::from(c.len) == v.width;
        let line = match run.stride {
            1 if whole => format!("{}({}, {text});", self.prelude.call(Helper::Store(v, dtype)), run.pointer),
            1 => format!("{}({}, {text}, {});", self.prelude.call(Helper::StorePart(v, dtype)), run.pointer, c.len),
            s => format!("{}({}, {s}, {text}, {});", self.prelude.call(Helper::Scatter(v, dtype)), run.pointer, c.len),
        };
        self.line(&line);
        Ok(())
    }

    /// The chunk lane by lane: a loop where memory is touched only, copies where registers are.
    fn lane_update(&mut self, s: &Stmt, c: Chunk) -> Result<(), EmitError> {
        if self.touches_registers(s) {
            for l in c.start..c.start + c.len {
                let scalar = lane_of(s, &Expr::Int(i64::from(l)), &self.ranges);
                self.scalar_update(&scalar)?;
            }
            return Ok(());
        }
        let lane = self.lane;
        let name = self.names.var(lane).to_string();
        self.line(&format!("for (int64_t {name} = {}; {name} < {}; {name}++) {{", c.start, c.start + c.len));
        self.ranges.insert(lane, i64::from(c.start), i64::from(c.start + c.len) - 1);
        let scalar = lane_of(s, &Expr::Var(lane), &self.ranges);
        self.depth += 1;
        self.scalar_update(&scalar)?;
        self.depth -= 1;
        self.ranges.remove(lane);
        self.line("}");
        Ok(())
    }

    /// All lanes are read before any is written, because later lanes read what earlier ones write.
    fn update_at_once(&mut self, s: &Stmt) -> Result<(), EmitError> {
        let s = match s {
            Stmt::Reduce { buffer, indices, op, value, .. } => as_store(*buffer, indices, *op, value),
            other => other.clone(),
        };
        let Stmt::Store { buffer, indices, value } = &s else { return Ok(()) };
        let count = lanes(self.kernel, &s);
        let held = self.names.fresh("held");
        let ty = c_type(self.kernel.buffer(*buffer).dtype.compute());
        self.line("{");
        self.depth += 1;
        self.line(&format!("{ty} {held}[{count}];"));
        for l in 0..count {
            let lane = Expr::Int(i64::from(l));
            let value = self.scalar(&lane_of_expr(value, &lane))?.text;
            self.line(&format!("{held}[{l}] = {value};"));
        }
        for l in 0..count {
            let lane = Expr::Int(i64::from(l));
            let indices: Vec<Expr> = indices.iter().map(|i| lane_of_expr(i, &lane)).collect();
            let target = self.element(*buffer, &indices)?;
            let text = self.narrowed(*buffer, Text::new(format!("{held}[{l}]"), PRIMARY));
            self.line(&format!("{target} = {text};"));
        }
        self.depth -= 1;
        self.line("}");
        Ok(())
    }

    fn touches_registers(&self, s: &Stmt) -> bool {
        let register = |b: &BufferId| matches!(self.registers.get(b), Some(RegisterFile::Variables(_)));
        let mut found = s.written().is_some_and(|b| register(&b));
        s.own_exprs(&mut |e| e.walk(&mut |e| found |= matches!(e, Expr::Load(b, _) if register(b))));
        found
    }
}

/// Whether the value certainly has a form that fills all lanes at once.
fn at_once(value: &Expr) -> bool {
    match value {
        Expr::Broadcast(..) | Expr::Float(..) | Expr::Int(_) => true,
        Expr::Load(_, idx) => !idx.iter().any(|i| {
            let mut mixed = false;
            i.walk(&mut |e| mixed |= matches!(e, Expr::Binary(_, a, b) if is_ramp(a) || is_ramp(b)));
            mixed
        }),
        _ => false,
    }
}

fn is_ramp(e: &Expr) -> bool {
    matches!(e, Expr::Ramp { .. })
}

/// Whether the statement is straight-line code that accesses memory.
fn is_update(s: &Stmt) -> bool {
    matches!(s, Stmt::Store { .. } | Stmt::Reduce { .. })
}
