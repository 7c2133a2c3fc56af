//! Blocks, declarations, and updates of several lanes.

use super::body::Body;
use super::chunk::{Chunk, chunks};
use super::phases::Place;
use super::prelude::Helper;
use super::registers::{Group, RegisterFile, is_unread, register_access};
use super::types::{Vector, c_type};
use super::vector::{NoVector, Value, is_cut};
use crate::emit::EmitError;
use crate::emit::clike::lanes::{as_store, lane_of, lane_of_expr, lanes, reads_other_lanes, updated};
use crate::emit::clike::text::Text;
use crate::emit::clike::text::strength::PRIMARY;
use crate::emit::clike::walk::{dot, has};
use crate::ir::visit::mention;
use crate::ir::{BufferId, DType, Expr, ReduceOp, Stmt};
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
    /// The statements of a block, with addresses that runs of updates share.
    pub(super) fn statements(&mut self, stmts: &[Stmt]) -> Result<(), EmitError> {
        let pointers = self.own.pointers.len();
        let mut run_end = 0;
        let mut order: Vec<usize> = (0..stmts.len()).collect();
        let mut done = 0;
        for i in 0..stmts.len() {
            if i < done {
                continue;
            }
            if let Some(count) = self.tile_act(&stmts[i..])? {
                done = i + count;
                continue;
            }
            if i >= run_end && is_update(&stmts[i]) {
                run_end = i + stmts[i..].iter().take_while(|s| is_update(s)).count();
                self.drop_pointers(pointers);
                self.share_pointers(&stmts[i..run_end])?;
                for (place, statement) in self.plan_rows(&stmts[i..run_end]).into_iter().enumerate() {
                    order[i + place] = i + statement;
                }
            }
            match &stmts[order[i]] {
                // A value that nobody uses would only be a warning.
                Stmt::Let { var, .. } if !mention(&stmts[i + 1..], *var) => {}
                Stmt::Alloc(b) => self.alloc(*b, &stmts[i + 1..])?,
                Stmt::For(l) => {
                    self.fetch_ending(&stmts[..i], l, &stmts[i + 1..])?;
                    self.loop_(l)?;
                }
                other => self.stmt(other)?,
            }
        }
        self.drop_pointers(pointers);
        self.forget_tiles();
        Ok(())
    }

    /// Declares a buffer; `rest` is what follows in its block.
    fn alloc(&mut self, b: BufferId, rest: &[Stmt]) -> Result<(), EmitError> {
        let buffer = self.kernel.buffer(b);
        let name = self.names.buffer(b).to_string();
        let ty = c_type(buffer.dtype);
        match (self.own.places.get(&b), self.own.registers.get(&b)) {
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
            (Some(Place::Registers), None) => self.alloc_tile(b),
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
                let base = self.own.workspace_bytes + offset;
                let worker = self.own.worker_bytes;
                self.line(&format!("{ty} *restrict const {name} = ({ty} *)(ws + worker * {worker} + {base});"));
            }
            (Some(Place::Workspace(_) | Place::Param), _) => {}
            (None, _) => {
                return Err(EmitError::in_c(format!("the allocation of `{}`", buffer.name)));
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
                    for c in chunks(self.kernel, self.own.isa, s) {
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

    /// A store or an update of several lanes.
    pub(super) fn vector_update(&mut self, s: &Stmt) -> Result<(), EmitError> {
        let (Stmt::Store { buffer, indices, .. } | Stmt::Reduce { buffer, indices, .. }) = s else { return Ok(()) };
        let chunks = chunks(self.kernel, self.own.isa, s);
        if is_unread(self.kernel, s, &chunks, &self.own.registers) {
            return Ok(());
        }
        if reads_other_lanes(s, *buffer, indices) {
            return self.update_at_once(s);
        }
        for c in chunks {
            if self.is_unread(*buffer, indices, c.start) {
                continue;
            }
            match self.chunk_update(s, c) {
                Ok(()) => {}
                Err(NoVector::Error(e)) => return Err(e),
                Err(NoVector::Lanes) => self.lane_update(s, c)?,
            }
        }
        Ok(())
    }

    fn chunk_update(&mut self, s: &Stmt, c: Chunk) -> Result<(), NoVector> {
        match s {
            Stmt::Reduce { buffer, indices, op: ReduceOp::Add, value, .. } if dot(value).is_none() => {
                // Accumulators read best as `acc += a * b`.
                if let Some(name) = self.whole_register(*buffer, indices, c)? {
                    let value = self.vector(value, c)?;
                    self.line(&format!("{name} += {};", value.text().text));
                    return Ok(());
                }
                self.chunk_update(&as_store(*buffer, indices, ReduceOp::Add, value), c)
            }
            Stmt::Reduce { buffer, indices, op, value, .. } => {
                self.chunk_update(&as_store(*buffer, indices, *op, value), c)
            }
            Stmt::Store { buffer, indices, value } => self.vector_store(*buffer, indices, value, c),
            _ => Ok(()),
        }
    }

    /// The variable that holds exactly the chunk of a register access.
    fn whole_register(&self, b: BufferId, indices: &[Expr], c: Chunk) -> Result<Option<String>, NoVector> {
        let dtype = self.kernel.buffer(b).dtype;
        let v = Vector::holding(if dtype.is_word() { DType::I32 } else { dtype.compute() }, usize::from(c.len));
        let whole = |(g, first): &(&Group, i64)| *first == 0 && g.len == i64::from(c.len) && g.vector == Some(v);
        Ok(self.held(b, indices, c.start)?.filter(whole).map(|(g, _)| g.name.clone()))
    }

    fn vector_store(&mut self, b: BufferId, indices: &[Expr], value: &Expr, c: Chunk) -> Result<(), NoVector> {
        let dtype = self.kernel.buffer(b).dtype;
        let Some(v) = Vector::of(dtype, usize::from(c.len)) else { return Err(NoVector::Lanes) };
        // What memory keeps as a byte loses its upper bits there.
        let value = match value {
            Expr::Cast(d, whole)
                if dtype.is_byte()
                    && is_cut(whole.ty(self.kernel).dtype, *d)
                    && !self.own.registers.contains_key(&b) =>
            {
                self.vector(whole, c)?
            }
            _ => self.vector(value, c)?,
        };
        if matches!(&value, Value::Vector(_, w) if *w != v) {
            return Err(NoVector::Lanes);
        }
        let text = self.splat(value, v).text;
        if let Some(name) = self.whole_register(b, indices, c)? {
            let text = match self.own.held.contains(&b) {
                true => format!("{}({text})", self.prelude.call(Helper::Hold(v))),
                false => text,
            };
            self.line(&format!("{name} = {text};"));
            return Ok(());
        }
        if let Some((group, first)) = self.held(b, indices, c.start)? {
            // Some lanes of a wider variable.
            let name = group.name.clone();
            let ty = self.prelude.call(Helper::Type(v));
            let part = self.names.fresh("part");
            self.line(&format!("const {ty} {part} = {text};"));
            let lanes = (0..i64::from(c.len)).map(|l| format!("{name}[{}] = {part}[{l}];", first + l));
            let lanes: Vec<String> = lanes.collect();
            self.line(&lanes.join(" "));
            return Ok(());
        }
        let run = self.run(b, indices, c)?;
        let whole = usize::from(c.len) == v.width;
        let line = match run.stride {
            1 if whole => format!("{}({}, {text});", self.prelude.call(Helper::Store(v, dtype)), run.pointer),
            1 => format!("{}({}, {text}, {});", self.prelude.call(Helper::StorePart(v, dtype)), run.pointer, c.len),
            2 if dtype == v.dtype && v.stores_even(self.own.isa) => {
                format!("{}({}, {text}, {});", self.prelude.call(Helper::StoreEven(v)), run.pointer, c.len)
            }
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
        let lane = self.own.lane;
        let name = self.names.var(lane).to_string();
        let head = Body::for_head(c_type(DType::I64), &name, c.start, c.start + c.len);
        self.ranges.insert(lane, i64::from(c.start), i64::from(c.start + c.len) - 1);
        let scalar = lane_of(s, &Expr::Var(lane), &self.ranges);
        self.braces(&head, |p| p.scalar_update(&scalar))?;
        self.ranges.remove(lane);
        Ok(())
    }

    /// All lanes are read before any is written, because later lanes read what earlier ones write.
    fn update_at_once(&mut self, s: &Stmt) -> Result<(), EmitError> {
        let (buffer, indices, value) = match s {
            Stmt::Store { buffer, indices, value } => (*buffer, indices, value.clone()),
            Stmt::Reduce { buffer, indices, op, value, .. } => {
                (*buffer, indices, updated(*buffer, indices, *op, value))
            }
            _ => return Ok(()),
        };
        let count = lanes(self.kernel, s);
        let held = self.names.fresh("held");
        let ty = c_type(self.kernel.buffer(buffer).dtype.compute());
        self.braces("{", |p| {
            p.line(&format!("{ty} {held}[{count}];"));
            for l in 0..count {
                let value = p.scalar(&lane_of_expr(&value, &Expr::Int(l.into())))?.text;
                p.line(&format!("{held}[{l}] = {value};"));
            }
            for l in 0..count {
                let lane = Expr::Int(l.into());
                let indices: Vec<Expr> = indices.iter().map(|i| lane_of_expr(i, &lane)).collect();
                let target = p.element(buffer, &indices)?;
                let text = p.narrowed(buffer, Text::new(format!("{held}[{l}]"), PRIMARY));
                p.line(&format!("{target} = {text};"));
            }
            Ok(())
        })
    }

    fn touches_registers(&self, s: &Stmt) -> bool {
        let mut found = s.written().is_some_and(|b| self.in_variables(b));
        s.own_exprs(&mut |e| found |= has(e, |e| matches!(e, Expr::Load(b, _) if self.in_variables(*b))));
        found
    }
}

/// Whether the value certainly has a form that fills all lanes at once.
fn at_once(value: &Expr) -> bool {
    match value {
        Expr::Broadcast(..) | Expr::Float(..) | Expr::Int(_) => true,
        Expr::Load(_, idx) => {
            let mixed = |e: &Expr| matches!(e, Expr::Binary(_, a, b) if is_ramp(a) || is_ramp(b));
            !idx.iter().any(|i| has(i, mixed))
        }
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
