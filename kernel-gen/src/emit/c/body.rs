//! C as a dialect of the printer, and the body of one function.

use super::Isa;
use super::matrix::Matrix;
use super::phases::{PhaseBody, Place};
use super::prelude::Helper;
use super::registers::{Group, RegisterFile, register_access};
use super::shared::{Pointer, Rows};
use super::types::c_type;
use crate::emit::EmitError;
use crate::emit::clike::dialect::{Dialect, Printer};
use crate::emit::clike::prelude::Common;
use crate::emit::clike::text::strength::PRIMARY;
use crate::emit::clike::text::{Text, float};
use crate::emit::clike::walk::any;
use crate::ir::visit::mention;
use crate::ir::{BufferId, DType, Expr, For, LoopKind, Pragma, Stmt, VarId};
use std::collections::{BTreeMap, BTreeSet};

/// Emits the body of one function.
pub(super) type Body<'a> = Printer<'a, C>;

/// What the C emitter alone keeps while it emits a function.
pub(super) struct C {
    /// The level whose vectors are used.
    pub(super) isa: Isa,
    /// The level, with the instructions that it adds to `isa`.
    pub(super) level: Isa,
    pub(super) places: BTreeMap<BufferId, Place>,
    pub(super) workspace_bytes: i64,
    pub(super) worker_bytes: i64,
    pub(super) registers: BTreeMap<BufferId, RegisterFile>,
    /// Sums that stand in tiles of registers.
    pub(super) matrix: Matrix,
    /// Named addresses that are in scope.
    pub(super) pointers: Vec<Pointer>,
    /// What loads of every other element share.
    pub(super) rows: Rows,
    /// Register buffers whose vectors are loaded once, whatever a compiler makes of it.
    pub(super) held: BTreeSet<BufferId>,
    /// The variable of loops over lanes.
    pub(super) lane: VarId,
    /// The lanes, from one to before another, whose memory may be read, where not all may.
    pub(super) lanes_read: Option<(Expr, Expr)>,
    /// The conditions under which the expression is computed, as a text.
    pub(super) given: Option<String>,
}

impl Dialect for C {
    type Helper = Helper;

    const LANGUAGE: &'static str = "C";
    const NARROW: bool = false;
    const BOOLEAN: &'static str = "int";
    const TRUTHS: [&'static str; 2] = ["0", "1"];
    const PLAIN_ZEROS: bool = false;
    const INCREMENT: [&'static str; 2] = ["", "++"];

    fn element_type(dtype: DType) -> &'static str {
        c_type(dtype)
    }

    fn helper(common: Common) -> Helper {
        match common {
            Common::FloorDiv { .. } => Helper::FloorDiv,
            Common::FloorMod { .. } => Helper::FloorMod,
            Common::Min(d) | Common::Max(d) => Helper::MinMax(d),
            Common::Widen(d) => Helper::Widen(d),
            Common::Narrow(d) => Helper::Narrow(d),
            Common::Dot4(signed) => Helper::Dot4(signed),
            Common::Dot2 => Helper::Dot2,
        }
    }

    fn rounded(p: &mut Body<'_>, value: &Expr) -> Result<Text, EmitError> {
        let (value, hold) = (p.scalar(value)?, p.prelude.call(Helper::HoldFloat));
        Ok(Text::new(format!("{hold}({})", value.text), PRIMARY))
    }

    fn not_finite(value: f64, dtype: DType) -> Text {
        float(value, dtype)
    }

    fn use_math(p: &mut Body<'_>) {
        p.prelude.call(Helper::Math);
    }

    fn round_tf32(_: &mut Body<'_>) -> Result<String, EmitError> {
        Err(EmitError::in_c("rounding to tf32, which only tensor cores take"))
    }

    fn element(p: &mut Body<'_>, b: BufferId, indices: &[Expr]) -> Result<String, EmitError> {
        p.element(b, indices)
    }

    fn is_unread(p: &Body<'_>, b: BufferId, indices: &[Expr]) -> Result<bool, EmitError> {
        Ok(p.is_unread(b, indices, 0))
    }

    fn vector_update(p: &mut Body<'_>, s: &Stmt) -> Result<(), EmitError> {
        p.vector_update(s)
    }

    fn statements(p: &mut Body<'_>, stmts: &[Stmt]) -> Result<(), EmitError> {
        p.statements(stmts)
    }

    fn special(p: &mut Body<'_>, s: &Stmt) -> Result<(), EmitError> {
        match s {
            Stmt::Transpose { dst, src } => p.transpose(dst, src),
            Stmt::Barrier(_) => Err(EmitError::in_c("a barrier: a CPU has no thread loops")),
            Stmt::Gpu(_) => Err(EmitError::in_c("a statement that only a GPU has")),
            other => p.statements(std::slice::from_ref(other)),
        }
    }

    fn hardware_loop(p: &mut Body<'_>, l: &For) -> Result<(), EmitError> {
        Err(EmitError::GpuLoop { var: p.names.var(l.var).to_string(), kind: l.kind.name() })
    }

    fn advice(p: &mut Body<'_>, l: &For) -> Result<Option<String>, EmitError> {
        let times = match l.kind {
            LoopKind::FragmentRow | LoopKind::FragmentCol => return C::hardware_loop(p, l).map(|()| None),
            LoopKind::Unrolled => l.extent.clamp(1, 65534),
            LoopKind::Serial if p.updates_registers(l) => p.copies(l),
            _ => return Ok(None),
        };
        p.prelude.call(Helper::Unroll);
        Ok(Some(format!("KG_UNROLL({times})")))
    }

    fn enter_loop(p: &mut Body<'_>, l: &For) -> Result<(), EmitError> {
        for pragma in &l.pragmas {
            match pragma {
                Pragma::FetchAhead(iterations) => p.fetch_ahead(l, *iterations)?,
                Pragma::HoldVectors(true) => p.hold_vectors(l),
                _ => {}
            }
        }
        if l.pragmas.is_empty() { p.fetch_strides(l) } else { Ok(()) }
    }
}

impl Body<'_> {
    pub(super) fn phase(&mut self, phase: &PhaseBody<'_>) -> Result<(), EmitError> {
        let touched = |b: BufferId| {
            phase.body.iter().any(|s| s.reads(b) || s.writes(b)) || phase.lets.iter().any(|(_, e)| e.reads(b))
        };
        let untouched = self.kernel.params.iter().filter(|p| !touched(**p));
        let mut unused: Vec<&str> = untouched.map(|p| self.names.buffer(*p)).collect();
        let (mut uses_ws, mut uses_worker) = (false, false);
        let mut pointers = vec![];
        for (b, place) in &self.own.places {
            match place {
                Place::Workspace(offset) if touched(*b) => {
                    let constant = if phase.body.iter().any(|s| s.writes(*b)) { "" } else { "const " };
                    let (ty, name) = (c_type(self.kernel.buffer(*b).dtype), self.names.buffer(*b));
                    let to = format!("({constant}{ty} *)(ws + {offset})");
                    pointers.push(format!("{constant}{ty} *restrict const {name} = {to};"));
                    uses_ws = true;
                }
                Place::Worker(_) if any(&phase.body, |s| *s == Stmt::Alloc(*b)) => {
                    (uses_ws, uses_worker) = (true, true)
                }
                _ => {}
            }
        }
        let untold = self.kernel.size.iter().filter(|size| !mention(&phase.body, size.var));
        unused.extend(untold.map(|size| self.names.var(size.var)));
        unused.extend((!uses_ws).then_some("ws"));
        unused.extend((!uses_worker).then_some("worker"));
        if phase.parallel.is_none() {
            unused.extend(["begin", "end"]);
        }
        if !unused.is_empty() {
            let line: Vec<String> = unused.iter().map(|n| format!("(void){n};")).collect();
            self.line(&line.join(" "));
        }
        pointers.iter().for_each(|p| self.line(p));
        self.begin_tiles();
        let head = phase.parallel.map(|var| {
            self.ranges.insert(var, 0, phase.extent - 1);
            Body::for_head(c_type(DType::I64), self.names.var(var), "begin", "end")
        });
        for (var, value) in &phase.lets {
            self.let_(*var, value)?;
        }
        match head {
            Some(head) => self.braces(&head, |p| p.block(&phase.body))?,
            None => self.block(&phase.body)?,
        }
        self.end_tiles();
        Ok(())
    }

    /// The C lvalue of one element.
    pub(super) fn element(&mut self, b: BufferId, idx: &[Expr]) -> Result<String, EmitError> {
        match self.held(b, idx, 0)? {
            Some((Group { name, vector: None, .. }, _)) => Ok(name.clone()),
            Some((group, element)) => Ok(format!("{}[{element}]", group.name)),
            None => {
                let (base, rest) = self.address(b, &self.offset(b, idx));
                Ok(format!("{base}[{}]", self.index(&rest)?))
            }
        }
    }

    /// The variable that holds a lane of a register access, and which of its elements that is; none of other buffers.
    pub(super) fn held(&self, b: BufferId, idx: &[Expr], lane: u16) -> Result<Option<(&Group, i64)>, EmitError> {
        let Some(file @ RegisterFile::Variables(_)) = self.own.registers.get(&b) else { return Ok(None) };
        let offset = register_access(self.kernel, b, idx)?.offset + i64::from(lane);
        // An error, not a panic, if the scan of accesses and the emitter ever disagree.
        let lost = || EmitError::RegisterIndex {
            buffer: self.kernel.buffer(b).name.clone(),
            index: format!("element {offset}"),
        };
        let group = file.group(offset).ok_or_else(lost)?;
        Ok(Some((group, offset - group.start)))
    }

    /// Whether a buffer is held in variables.
    pub(super) fn in_variables(&self, b: BufferId) -> bool {
        matches!(self.own.registers.get(&b), Some(RegisterFile::Variables(_)))
    }

    /// Whether the destination is a variable that nothing reads: a lane of padding, say.
    pub(super) fn is_unread(&self, b: BufferId, indices: &[Expr], lane: u16) -> bool {
        matches!(self.held(b, indices, lane), Ok(Some((group, _))) if !group.read)
    }

    /// Whether the loop adds to sums that live in registers.
    /// Notes the register buffers that the loop loads vectors into.
    fn hold_vectors(&mut self, l: &For) {
        for s in &l.body {
            s.walk(&mut |s| match s {
                Stmt::Store { buffer, value: Expr::Load(..), .. } if self.own.registers.contains_key(buffer) => {
                    self.own.held.insert(*buffer);
                }
                _ => {}
            });
        }
    }

    pub(super) fn updates_registers(&self, l: &For) -> bool {
        any(&l.body, |s| matches!(s, Stmt::Reduce { buffer, .. } if self.own.registers.contains_key(buffer)))
    }
}
