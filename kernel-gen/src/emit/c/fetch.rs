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

use super::body::Body;
use super::chunk::starts;
use super::prelude::Helper;
use crate::analysis::affine::Affine;
use crate::emit::EmitError;
use crate::emit::clike::lanes::lane_run;
use crate::emit::clike::text::strength::SUM;
use crate::ir::{BufferId, DType, Expr, For, Stmt};

/// Bytes of a cache line, the shortest of the processors that code is emitted for.
pub(super) const LINE_BYTES: i64 = 64;

/// A buffer that is smaller stays in the first level of cache.
pub(super) const LEAST_BYTES: i64 = 32 << 10;

/// More iterations than anybody would look ahead. Addresses stay far from the end of the number range.
const MOST_ITERATIONS: i64 = 1 << 20;

/// Elements of a cache line.
pub(super) fn of_a_line(dtype: DType) -> i64 {
    LINE_BYTES / (dtype.bytes() as i64).max(1)
}

impl Body<'_> {
    /// Emits the requests at the start of the body of a loop that is annotated so.
    pub(super) fn fetch_ahead(&mut self, l: &For, iterations: i64) -> Result<(), EmitError> {
        if !(1..=MOST_ITERATIONS).contains(&iterations) {
            return Ok(());
        }
        let mut asked: Vec<(BufferId, Affine)> = vec![];
        for (b, offset) in self.streamed(l) {
            let line = of_a_line(self.kernel.buffer(b).dtype);
            let way = offset.coefficient(l.var).checked_mul(iterations);
            let Some(later) = way.and_then(|way| offset.plus(&Affine::constant(way), 1)) else { continue };
            let near = |at: &Affine| at.terms == later.terms && at.constant.abs_diff(later.constant) < line as u64;
            if asked.iter().any(|(other, at)| *other == b && near(at)) {
                continue;
            }
            self.fetch(b, &later.to_expr())?;
            asked.push((b, later));
        }
        Ok(())
    }

    /// Asks for the line that holds an element.
    pub(super) fn fetch(&mut self, b: BufferId, offset: &Expr) -> Result<(), EmitError> {
        self.prelude.call(Helper::Fetch);
        let text = self.scalar(offset)?.at(SUM);
        self.line(&format!("KG_FETCH({}, {text});", self.names.buffer(b)));
        Ok(())
    }

    /// Offsets of the vector loads in the loop's own statements that move on by at least a line an iteration.
    fn streamed(&self, l: &For) -> Vec<(BufferId, Affine)> {
        let mut found = vec![];
        for s in &l.body {
            let (Stmt::Store { value, .. } | Stmt::Reduce { value, .. }) = s else { continue };
            let starts = starts(self.kernel, self.own.isa, s);
            value.walk(&mut |e| {
                let Some((b, _, offsets)) = self.row_load(e, &starts) else { return };
                if self.in_variables(b) {
                    return;
                }
                let bytes = self.kernel.buffer(b).dtype.bytes() as i64;
                let streams = |o: &Affine| o.coefficient(l.var).saturating_mul(bytes) >= LINE_BYTES;
                found.extend(offsets.iter().filter_map(Affine::of).filter(streams).map(|offset| (b, offset)));
            });
        }
        found
    }

    /// The buffer, the indices and the offsets at `starts` of a load whose lanes are consecutive elements of a row.
    pub(super) fn row_load<'e>(&self, e: &'e Expr, starts: &[i64]) -> Option<(BufferId, &'e [Expr], Vec<Expr>)> {
        let Expr::Load(b, indices) = e else { return None };
        let (Some(Expr::Ramp { stride: 1, .. }), Some(1)) = (indices.last(), self.kernel.buffer(*b).strides.last())
        else {
            return None;
        };
        let offset = |start: &i64| match lane_run(self.kernel, *b, indices, *start)? {
            (scalar, 1) => Some(self.offset(*b, &scalar)),
            _ => None,
        };
        Some((*b, indices, starts.iter().map(offset).collect::<Option<_>>()?))
    }
}
