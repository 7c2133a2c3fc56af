//! Asks the caches for rows far apart, some steps before a sum reads them.
//!
//! ```c
//! for (int64_t ci = 0; ci < 512; ci++) {
//!   KG_FETCH(x, ci * 784 + ow * 48 + 6272);
//!   KG_FETCH(x, ci * 784 + ow * 48 + 6288);
//!   ...
//!   acc_0_0 += load_f32x16(x_p) * w_p[0];
//! ```
//! A convolution that sums over channels reads a short piece of each channel's plane. Processors follow strides up to half a
//! page at best, and even from the second level of cache each piece comes late: on a Xeon (family 6, model 207) 1x1 layers
//! of ResNet-50 take 0.6 to 1.0 of the time with these requests.

use super::body::Body;
use super::chunk::starts;
use super::fetch::{LEAST_BYTES, LINE_BYTES, of_a_line};
use super::isa::Isa;
use super::pointers::Shared;
use crate::analysis::simplify::simplify;
use crate::emit::EmitError;
use crate::ir::{BufferId, Expr, For, LoopKind, Stmt};

/// Multiply-adds, two a cycle, in whose time a line arrives from the second level of cache or is at least on its way from the last.
const UPDATES_AHEAD: i64 = 192;

/// Steps to look ahead, at least and at most.
const STEPS: [i64; 2] = [8, 32];

/// A loop of fewer steps, as a multiple of those ahead, asks for little that it reads itself.
const LEAST_PASSES: i64 = 4;

/// Rows that are closer are as good as one piece.
const LEAST_STRIDE: i64 = 2 * LINE_BYTES;

/// There are so many updates for each request: loads are not what a step waits for.
const UPDATES_A_LINE: usize = 4;

impl Body<'_> {
    /// Emits the requests at the start of the body of a loop that sums in registers.
    pub(super) fn fetch_strides(&mut self, l: &For) -> Result<(), EmitError> {
        // Elsewhere nobody has measured it.
        if self.own.isa != Isa::X86_64V4 || l.kind != LoopKind::Serial || !self.updates_registers(l) {
            return Ok(());
        }
        let mut updates = 0;
        let mut shared = vec![];
        for s in &l.body {
            // Anything else in the loop takes longer than the sums.
            let Stmt::Reduce { value, .. } = s else { return Ok(()) };
            let starts = starts(self.kernel, self.own.isa, s);
            updates += starts.len();
            self.note_loads(value, &starts, &mut shared);
        }
        let ahead = (UPDATES_AHEAD / (updates as i64).max(1)).clamp(STEPS[0], STEPS[1]);
        if l.extent < LEAST_PASSES * ahead {
            return Ok(());
        }
        let requests: Vec<_> = shared.into_iter().filter_map(|s| self.requests(l, ahead, s)).collect();
        if requests.iter().map(|(_, later)| later.len()).sum::<usize>() * UPDATES_A_LINE > updates {
            return Ok(());
        }
        for (buffer, later) in requests {
            for offset in later {
                self.fetch(buffer, &offset)?;
            }
        }
        Ok(())
    }

    /// An element of each line that is read so many steps later, if steps are far apart.
    fn requests(&self, l: &For, ahead: i64, read: Shared) -> Option<(BufferId, Vec<Expr>)> {
        let buffer = self.kernel.buffer(read.buffer);
        if buffer.extent_bytes() <= LEAST_BYTES {
            return None;
        }
        let next = read.offset.clone().subst(l.var, &(Expr::Var(l.var) + 1));
        let step = simplify(&(next - read.offset.clone()), &self.ranges).as_int()?;
        let line = of_a_line(buffer.dtype);
        let mut constants = read.constants;
        constants.sort_unstable();
        let last = *constants.last()?;
        let mut lines: Vec<i64> = vec![];
        for constant in constants {
            if lines.last().is_none_or(|asked| constant - asked >= line) {
                lines.push(constant);
            }
        }
        // Scalars that begin anywhere in a line end in the next one more often than not.
        if lines.last().is_some_and(|asked| last - asked >= line / 2) {
            lines.push(last);
        }
        let stride = step.checked_mul(buffer.dtype.bytes() as i64)?;
        if stride < LEAST_STRIDE.max(2 * LINE_BYTES * lines.len() as i64) {
            return None;
        }
        let way = step.checked_mul(ahead)?;
        let later = |constant: &i64| Some(simplify(&(read.offset.clone() + constant.checked_add(way)?), &self.ranges));
        Some((read.buffer, lines.iter().map(later).collect::<Option<_>>()?))
    }
}
