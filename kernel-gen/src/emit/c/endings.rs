//! Asks the caches for what the end of a tile reads, before the tile's sums begin.
//!
//! ```c
//! KG_FETCH(residual, co * 25088 + ow * 32);
//! KG_FETCH(residual, co * 25088 + ow * 32 + 3136);
//! ...
//! for (int64_t ci = 0; ci < 64; ci++) {
//!   acc_0_0 += load_f32x16(x_p) * w_p[0];
//! ...
//! store_f32x16(y_p, acc_0_0 + load_f32x16(residual_p));
//! ```
//! A residual is read in short pieces, one a channel, far apart: the processor sees nothing to follow, and the first
//! multiply-adds of the next tile wait behind the loads. Asked for here, the pieces arrive while the sums are computed.

use super::body::Body;
use super::chunk::starts;
use super::fetch::{LEAST_BYTES, of_a_line};
use super::phases::Place;
use super::pointers::split;
use super::types::c_type;
use crate::emit::EmitError;
use crate::emit::clike::lanes::lanes;
use crate::ir::{BufferId, DType, Expr, For, LoopKind, Stmt, VarId};
use std::collections::BTreeSet;

/// Steps of a reduction that are long enough for a line to arrive from the last level of cache, and many enough that the
/// requests are few beside the multiply-adds.
const LEAST_STEPS: i64 = 32;

/// More requests than this at once would wait for one another.
const MOST_LINES: i64 = 128;

/// What the end of a tile reads.
enum Ending {
    /// The element of a buffer at an offset.
    Line(BufferId, Expr),
    /// What an iteration reads, of a loop of so many.
    Loop(VarId, i64, Vec<Ending>),
}

fn count(endings: &[Ending]) -> i64 {
    let of = |e: &Ending| match e {
        Ending::Line(..) => 1,
        Ending::Loop(_, extent, body) => extent.saturating_mul(count(body)),
    };
    endings.iter().map(of).fold(0, i64::saturating_add)
}

impl Body<'_> {
    /// Emits the requests in front of a loop that computes the sums of a tile: what stands before and behind it in its
    /// block are `before` and `rest`.
    pub(super) fn fetch_ending(&mut self, before: &[Stmt], sums: &For, rest: &[Stmt]) -> Result<(), EmitError> {
        let own = |b: &BufferId| {
            self.own.places.get(b) == Some(&Place::Registers)
                && before.iter().any(|s| matches!(s, Stmt::Alloc(a) if a == b))
        };
        match steps(sums) {
            Some((b, steps)) if own(&b) && steps >= LEAST_STEPS => {}
            _ => return Ok(()),
        }
        // Values that are computed only then.
        let mut lets = BTreeSet::new();
        rest.iter().for_each(|s| {
            s.walk(&mut |s| {
                if let Stmt::Let { var, .. } = s {
                    lets.insert(*var);
                }
            })
        });
        let endings = self.endings(rest, &lets);
        if (1..=MOST_LINES).contains(&count(&endings)) {
            self.fetch_all(&endings)?;
        }
        Ok(())
    }

    fn endings(&mut self, stmts: &[Stmt], lets: &BTreeSet<VarId>) -> Vec<Ending> {
        let mut found = vec![];
        for s in stmts {
            match s {
                Stmt::Store { value, .. } if lanes(self.kernel, s) > 1 => {
                    let starts = starts(self.kernel, self.own.isa, s);
                    value.walk(&mut |e| self.ending(e, &starts, lets, &mut found));
                }
                Stmt::For(l) if matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled) => {
                    let outer = self.ranges.clone();
                    self.ranges.insert_loop(l);
                    let body = self.endings(&l.body, lets);
                    self.ranges = outer;
                    if !body.is_empty() {
                        found.push(Ending::Loop(l.var, l.extent, body));
                    }
                }
                // What is read in branches need not be there.
                _ => {}
            }
        }
        found
    }

    /// Notes the lines of a load of consecutive elements of a large parameter.
    fn ending(&self, e: &Expr, starts: &[i64], lets: &BTreeSet<VarId>, found: &mut Vec<Ending>) {
        let Some((b, indices, offsets)) = self.row_load(e, starts) else { return };
        let buffer = self.kernel.buffer(b);
        let large = buffer.extent_bytes() > LEAST_BYTES && self.own.places.get(&b) == Some(&Place::Param);
        let later = |i: &Expr| lets.iter().any(|var| i.mentions(*var)) || i.reads_memory();
        if !large || indices.iter().any(later) {
            return;
        }
        let line = of_a_line(buffer.dtype);
        for offset in offsets {
            let (rest, constant) = split(&offset);
            let near = |asked: &Ending| match asked {
                Ending::Line(other, at) => {
                    let (other_rest, other_constant) = split(at);
                    *other == b && other_rest == rest && other_constant.abs_diff(constant) < line as u64
                }
                Ending::Loop(..) => false,
            };
            if !found.iter().any(near) {
                found.push(Ending::Line(b, offset));
            }
        }
    }

    fn fetch_all(&mut self, endings: &[Ending]) -> Result<(), EmitError> {
        for ending in endings {
            match ending {
                Ending::Line(b, offset) => self.fetch(*b, offset)?,
                Ending::Loop(var, extent, body) => {
                    let head = Body::for_head(c_type(DType::I64), self.names.var(*var), 0, extent);
                    self.braces(&head, |p| p.fetch_all(body))?;
                }
            }
        }
        Ok(())
    }
}

/// The buffer that a nest of loops, and nothing beside it, adds to in vectors, and how often.
fn steps(l: &For) -> Option<(BufferId, i64)> {
    if l.kind != LoopKind::Serial {
        return None;
    }
    let all_sums = |b: &[Stmt]| b.iter().all(|s| matches!(s, Stmt::Reduce { .. } | Stmt::Let { .. }));
    match &l.body[..] {
        [Stmt::For(inner)] => steps(inner).map(|(b, n)| (b, n.saturating_mul(l.extent))),
        body if all_sums(body) => body.iter().find_map(Stmt::written).map(|b| (b, l.extent)),
        _ => None,
    }
}
