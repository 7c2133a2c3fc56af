//! Names the addresses that a run of statements shares.
//!
//! ```c
//! const float *w_p = w + co * 294912 + ci * 576 + kh * 192 + kw * 64;
//! acc_0_0 += x_p[0] * load_f32x16(w_p);
//! acc_0_16 += x_p[0] * load_f32x16(w_p + 16);
//! ```
//! Compilers find such bases by themselves; readers are glad of them. A base is the address of an element that the run
//! accesses, so it never points outside of the buffer.

use super::body::Body;
use super::chunk::starts;
use super::shared::Pointer;
use super::types::c_type;
use crate::emit::EmitError;
use crate::emit::clike::lanes::lane_run;
use crate::emit::clike::text::has_word;
use crate::emit::clike::text::strength::SUM;
use crate::ir::{BinOp, BufferId, Expr, Stmt};

/// Accesses that differ by constants only.
pub(super) struct Shared {
    pub(super) buffer: BufferId,
    /// What they have in common.
    pub(super) offset: Expr,
    /// The constant of each, in the order of the statements.
    pub(super) constants: Vec<i64>,
}

/// Splits off the constant of a sum in normal form.
pub(super) fn split(offset: &Expr) -> (Expr, i64) {
    match offset {
        Expr::Int(c) => (Expr::Int(0), *c),
        Expr::Binary(BinOp::Add, a, b) if b.as_int().is_some() => ((**a).clone(), b.as_int().unwrap_or(0)),
        Expr::Binary(BinOp::Sub, a, b) if b.as_int().is_some() => ((**a).clone(), -b.as_int().unwrap_or(0)),
        other => (other.clone(), 0),
    }
}

impl Body<'_> {
    /// Declares pointers for what the statements share.
    pub(super) fn share_pointers(&mut self, run: &[Stmt]) -> Result<(), EmitError> {
        let mut shared: Vec<Shared> = vec![];
        for s in run {
            let starts = starts(self.kernel, self.own.isa, s);
            if let Stmt::Store { buffer, indices, .. } | Stmt::Reduce { buffer, indices, .. } = s {
                self.note(*buffer, indices, &starts, &mut shared);
            }
            if let Stmt::Store { value, .. } | Stmt::Reduce { value, .. } = s {
                self.note_loads(value, &starts, &mut shared);
            }
        }
        for s in shared {
            // A variable or a constant is short enough.
            let (Some(least), Expr::Binary(..), 2..) =
                (s.constants.iter().min().copied(), &s.offset, s.constants.len())
            else {
                continue;
            };
            let b = self.kernel.buffer(s.buffer);
            let constant = if run.iter().any(|stmt| stmt.written() == Some(s.buffer)) { "" } else { "const " };
            let hint = format!("{}_p", b.name);
            let name = self.names.fresh(&hint);
            let base = self.scalar(&(s.offset.clone() + least))?.at(SUM);
            let buffer = self.names.buffer(s.buffer).to_string();
            let start = self.out.len();
            self.line(&format!("{constant}{} *const {name} = {buffer} + {base};", c_type(b.dtype)));
            let declared = (start, self.out.len());
            self.own.pointers.push(Pointer { buffer: s.buffer, offset: s.offset, constant: least, name, declared });
        }
        Ok(())
    }

    /// Forgets pointers down to a number of them, and takes back the declarations of those that were not used after
    /// all: a statement that goes lane by lane spells its addresses out.
    pub(super) fn drop_pointers(&mut self, keep: usize) {
        while self.own.pointers.len() > keep
            && let Some(p) = self.own.pointers.pop()
        {
            let (start, end) = p.declared;
            if !has_word(&self.out[end..], &p.name) {
                self.out.replace_range(start..end, "");
            }
        }
    }

    /// Notes what a value reads from memory.
    pub(super) fn note_loads(&self, e: &Expr, starts: &[i64], shared: &mut Vec<Shared>) {
        match e {
            // What is read under a condition may not exist, nor may a pointer to it.
            Expr::Select(..) => {}
            Expr::Load(b, idx) => self.note(*b, idx, starts, shared),
            Expr::Binary(_, a, b) => {
                self.note_loads(a, starts, shared);
                self.note_loads(b, starts, shared);
            }
            Expr::Unary(_, a) | Expr::Cast(_, a) | Expr::Broadcast(a, _) => self.note_loads(a, starts, shared),
            _ => {}
        }
    }

    fn note(&self, b: BufferId, indices: &[Expr], starts: &[i64], shared: &mut Vec<Shared>) {
        if self.in_variables(b) {
            return;
        }
        for start in starts {
            let Some((scalar, _)) = lane_run(self.kernel, b, indices, *start) else { return };
            let (offset, constant) = split(&self.offset(b, &scalar));
            match shared.iter_mut().find(|s| s.buffer == b && s.offset == offset) {
                Some(s) => s.constants.push(constant),
                None => shared.push(Shared { buffer: b, offset, constants: vec![constant] }),
            }
        }
    }

    /// The base and the rest of an address: a named pointer and a constant, or the buffer and the offset.
    pub(super) fn address(&self, b: BufferId, offset: &Expr) -> (String, Expr) {
        let (rest, constant) = split(offset);
        match self.own.pointers.iter().rev().find(|p| p.buffer == b && p.offset == rest) {
            Some(p) => (p.name.clone(), Expr::Int(constant - p.constant)),
            None => (self.names.buffer(b).to_string(), offset.clone()),
        }
    }
}
