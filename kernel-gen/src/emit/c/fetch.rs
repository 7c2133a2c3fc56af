//! Asks the caches ahead for what a loop streams.
//!
//! ```c
//! for (int64_t k = 0; k < 1024; k++) {
//!   KG_FETCH(b, j * 131072 + k * 128 + 1024);
//!   KG_FETCH(b, j * 131072 + k * 128 + 1040);
//!   ...
//! ```
//! What is asked for is one address for each cache line that the iteration so much later reads in vectors, where the
//! iterations' lines lie one behind the other. An address may lie behind the end of its buffer: asking for it does nothing.

use super::chunk::chunks;
use super::registers::RegisterFile;
use super::{Body, EmitError};
use crate::analysis::affine::Affine;
use crate::emit::text::strength::SUM;
use crate::ir::{BufferId, Expr, For, Stmt};

/// Bytes of a cache line, the shortest of the processors that code is emitted for.
const LINE_BYTES: i64 = 64;
/// More iterations than anybody would look ahead. Addresses stay far from the end of the number range.
const MOST_ITERATIONS: i64 = 1 << 20;

impl Body<'_> {
    /// Emits the requests at the start of the body of a loop that is annotated so.
    pub(super) fn fetch_ahead(&mut self, l: &For, iterations: i64) -> Result<(), EmitError> {
        if !(1..=MOST_ITERATIONS).contains(&iterations) {
            return Ok(());
        }
        let mut asked: Vec<(BufferId, Affine)> = vec![];
        for (b, offset) in self.streamed(l) {
            let line = LINE_BYTES / (self.kernel.buffer(b).dtype.bytes() as i64).max(1);
            let way = offset.coefficient(l.var).checked_mul(iterations);
            let Some(later) = way.and_then(|way| offset.plus(&Affine::constant(way), 1)) else { continue };
            let near = |at: &Affine| at.terms == later.terms && at.constant.abs_diff(later.constant) < line as u64;
            if asked.iter().any(|(other, at)| *other == b && near(at)) {
                continue;
            }
            self.prelude.use_fetch();
            let text = self.scalar(&later.to_expr())?.at(SUM);
            self.line(&format!("KG_FETCH({}, {text});", self.names.buffer(b)));
            asked.push((b, later));
        }
        Ok(())
    }

    /// Offsets of the vector loads in the loop's own statements that move on by at least a line an iteration.
    fn streamed(&self, l: &For) -> Vec<(BufferId, Affine)> {
        let mut found = vec![];
        for s in &l.body {
            let (Stmt::Store { value, .. } | Stmt::Reduce { value, .. }) = s else { continue };
            let starts: Vec<i64> = chunks(self.kernel, self.isa, s).iter().map(|c| i64::from(c.start)).collect();
            value.walk(&mut |e| {
                let Expr::Load(b, indices) = e else { return };
                let buffer = self.kernel.buffer(*b);
                let in_registers = matches!(self.registers.get(b), Some(RegisterFile::Variables(_)));
                let (Some(Expr::Ramp { base, stride: 1, .. }), Some(1)) = (indices.last(), buffer.strides.last())
                else {
                    return;
                };
                if in_registers || indices[..indices.len() - 1].iter().any(|i| i.ty(self.kernel).lanes > 1) {
                    return;
                }
                for start in &starts {
                    let mut scalar = indices.clone();
                    scalar[indices.len() - 1] = (**base).clone() + *start;
                    let Some(offset) = Affine::of(&self.offset(*b, &scalar)) else { continue };
                    if offset.coefficient(l.var).saturating_mul(buffer.dtype.bytes() as i64) >= LINE_BYTES {
                        found.push((*b, offset));
                    }
                }
            });
        }
        found
    }
}
