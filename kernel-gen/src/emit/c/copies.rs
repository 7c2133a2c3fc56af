//! How often the body of a loop that adds to registers is copied out.
//!
//! ```c
//! KG_UNROLL(4)
//! for (int64_t ci = 0; ci < 512; ci++) {
//!   acc_0_0 += load_f32x8(x_p + ci * 24) * w_p[ci * 4];
//!   ...
//! ```
//! Copied out, a short loop over taps shares what neighbouring taps load, and the registers for that are taken from the sums: such a
//! loop stays as it is. Where each iteration reads what no other one does, nothing is shared, and what is saved is counting and
//! branching. That is hidden below the sums while a thread has a core alone; beside a second thread of the same core it is not.

use super::Isa;
use super::body::Body;
use crate::analysis::affine::Affine;
use crate::ir::{BufferId, Expr, For, Stmt};
use std::collections::BTreeMap;

/// Measured on a Zen 3 whose cores run other threads too, 1x1 layers of MobileNet: 2, 4 and 8 copies take 0.86, 0.86 and 0.83 of the
/// time of one; on an idle core all take the same.
const COPIES: i64 = 4;

impl Body<'_> {
    /// How many iterations of a loop that adds to registers stand behind one another.
    pub(super) fn copies(&self, l: &For) -> i64 {
        // Measured for 16 registers of 8 lanes only.
        match self.own.isa == Isa::X86_64V3 && self.reads_apart(l) {
            true => l.extent.clamp(1, COPIES),
            false => 1,
        }
    }

    /// Whether a loop only adds to registers, from memory of which each iteration reads its own.
    fn reads_apart(&self, l: &For) -> bool {
        // Of each buffer, what an iteration reads: elements that differ by constants, from one to before another.
        let mut read = BTreeMap::<BufferId, (Affine, i64, i64)>::new();
        let mut apart = l.body.iter().all(|s| match s {
            Stmt::Reduce { buffer, value, .. } if self.own.registers.contains_key(buffer) => {
                let mut known = true;
                value.walk(&mut |e| {
                    if let Expr::Load(b, indices) = e
                        && !self.own.registers.contains_key(b)
                    {
                        known &= self.note_read(e, *b, indices, &mut read);
                    }
                });
                known
            }
            _ => false,
        });
        apart &= read.values().all(|(at, from, to)| at.coefficient(l.var).saturating_abs() >= to - from);
        apart && !read.is_empty()
    }

    /// Adds a load to what is read; false if its place is not known.
    fn note_read(
        &self,
        e: &Expr,
        b: BufferId,
        indices: &[Expr],
        read: &mut BTreeMap<BufferId, (Affine, i64, i64)>,
    ) -> bool {
        let lanes = i64::from(e.ty(self.kernel).lanes);
        let offset = match lanes {
            1 => Some(self.offset(b, indices)),
            _ => self.row_load(e, &[0]).and_then(|(.., offsets)| offsets.into_iter().next()),
        };
        let Some(at) = offset.as_ref().and_then(Affine::of) else { return false };
        let (from, to) = (at.constant, at.constant + lanes);
        let (first, low, high) = read.entry(b).or_insert_with(|| (at.clone(), from, to));
        (*low, *high) = ((*low).min(from), (*high).max(to));
        first.terms == at.terms
    }
}
