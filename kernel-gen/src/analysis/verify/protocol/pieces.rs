//! Buffers in the largest pieces that no tile cuts.

use crate::analysis::range::Ranges;
use crate::analysis::simplify::{Sum, simplify};
use crate::integer::gcd;
use crate::ir::{BufferId, DType, Expr, Gpu, Kernel, Scope, Stmt, VarId};
use std::collections::{BTreeMap, BTreeSet};

/// How a buffer is divided.
#[derive(Clone, Debug)]
struct Division {
    /// Elements of a piece along each dimension.
    grain: Vec<i64>,
    /// Pieces along each dimension.
    counts: Vec<i64>,
    /// Pieces of the buffer.
    pieces: usize,
    /// The first piece's number.
    base: usize,
}

/// A piece of a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Its number among all pieces.
    pub(super) number: usize,
    /// Its number within the buffer.
    within: i64,
}

/// The buffers of a launch that its threads meet on, in pieces.
pub(super) struct Units {
    /// By the buffer's number.
    divisions: Vec<Option<Division>>,
    /// Numbers of the pieces of global memory, as they come.
    touched: BTreeMap<(BufferId, i64), usize>,
    next: usize,
}

/// The buffers that are looked at: memory of the block and what the launch writes.
pub(super) fn tracked(kernel: &Kernel, launch: &Stmt) -> BTreeSet<BufferId> {
    let mut out = BTreeSet::new();
    launch.walk(&mut |s| {
        s.accesses(&mut |a| match kernel.buffer(a.buffer).scope {
            Scope::Shared | Scope::Fragment(_) => drop(out.insert(a.buffer)),
            Scope::Global if a.writes => drop(out.insert(a.buffer)),
            _ => {}
        });
    });
    out
}

impl Units {
    /// Divides the tracked buffers; `copies` says how many there are of each.
    pub(super) fn new(
        kernel: &Kernel,
        launch: &Stmt,
        tracked: &BTreeSet<BufferId>,
        copies: &dyn Fn(Scope) -> usize,
    ) -> Units {
        let ranges = Ranges::of_block(std::slice::from_ref(launch));
        let lets = integer_lets(kernel, launch);
        let mut grains: BTreeMap<BufferId, Vec<i64>> = BTreeMap::new();
        let mut cut = |buffer: BufferId, origin: &[Expr], extents: &[i64]| {
            if !tracked.contains(&buffer) {
                return;
            }
            let grain = grains.entry(buffer).or_insert_with(|| kernel.buffer(buffer).shape.clone());
            for ((g, e), n) in grain.iter_mut().zip(origin).zip(extents) {
                let sum = Sum::of(simplify(&inlined(e, &lets), &ranges));
                let parts = sum.terms.iter().map(|(_, c)| *c).chain([sum.constant, *n]);
                *g = parts.fold(*g, gcd).max(1);
            }
        };
        launch.walk(&mut |s| {
            s.accesses(&mut |a| match a.extents {
                Some(extents) => cut(a.buffer, a.index, extents),
                // Elements of a fragment that are touched one by one are looked at together with their neighbours: a product
                // that is under way is at all of them.
                None if matches!(kernel.buffer(a.buffer).scope, Scope::Fragment(_)) => {}
                None => cut(a.buffer, a.index, &vec![1; a.index.len()]),
            });
            if let Stmt::Gpu(Gpu::TensorLoad { src, steps, .. }) = s
                && !steps.is_empty()
            {
                // A box with distances between its elements is looked at element by element.
                cut(src.buffer, &src.origin, &vec![1; src.extents.len()]);
            }
        });
        let mut units = Units { divisions: vec![None; kernel.buffers.len()], touched: BTreeMap::new(), next: 0 };
        for (buffer, grain) in grains {
            let b = kernel.buffer(buffer);
            let counts: Vec<i64> = b.shape.iter().zip(&grain).map(|(n, g)| (n + g - 1) / g).collect();
            let pieces = counts.iter().product::<i64>() as usize;
            units.divisions[buffer.0 as usize] = Some(Division { grain, counts, pieces, base: units.next });
            if b.scope != Scope::Global {
                units.next += pieces * copies(b.scope);
            }
        }
        units
    }

    /// One past the last number.
    pub(super) fn count(&self) -> usize {
        self.next
    }

    /// The pieces of a tile of a buffer's copy; of one element without `extents`. What is out of bounds has none.
    pub(super) fn pieces(
        &mut self,
        (buffer, scope): (BufferId, Scope),
        copy: usize,
        origin: &[i64],
        extents: Option<&[i64]>,
        out: &mut Vec<Piece>,
    ) {
        out.clear();
        let Some(Some(d)) = self.divisions.get(buffer.0 as usize) else { return };
        // One piece is by far the most frequent case, and consumers' builds run this without optimisation: plain loops.
        let mut first = 0;
        for i in 0..origin.len() {
            let (grain, count, o) = (d.grain[i], d.counts[i], origin[i]);
            let end = match extents {
                Some(e) => o + e[i] - 1,
                None => o,
            };
            let (mut lo, mut hi) = if grain == 1 { (o, end) } else { (o.div_euclid(grain), end.div_euclid(grain)) };
            lo = lo.max(0);
            hi = hi.min(count - 1);
            if lo > hi {
                return out.clear();
            }
            first = first * count + lo;
            if out.is_empty() && lo == hi {
                continue;
            }
            if out.is_empty() {
                out.push(Piece { number: 0, within: (first - lo) / count });
            }
            let before = std::mem::take(out);
            let along = |p: &Piece| {
                let within = p.within * count;
                (lo..=hi).map(move |at| Piece { number: 0, within: within + at })
            };
            out.extend(before.iter().flat_map(along));
        }
        if out.is_empty() {
            out.push(Piece { number: 0, within: first });
        }
        let base = d.base + copy * d.pieces;
        for p in out {
            p.number = match scope {
                Scope::Global => {
                    let next = &mut self.next;
                    *self.touched.entry((buffer, p.within)).or_insert_with(|| {
                        *next += 1;
                        *next - 1
                    })
                }
                _ => base + p.within as usize,
            };
        }
    }

    /// A piece's first element in words.
    pub(super) fn name(&self, kernel: &Kernel, buffer: BufferId, piece: Piece) -> String {
        let mut index = vec![];
        if let Some(Some(d)) = self.divisions.get(buffer.0 as usize) {
            let mut rest = piece.within;
            for (count, grain) in d.counts.iter().zip(&d.grain).rev() {
                index.insert(0, rest % count * grain);
                rest /= count;
            }
        }
        format!("{}{index:?}", kernel.buffer(buffer).name)
    }
}

/// The integer `let`s that are computed from loop variables.
pub(super) fn integer_lets(kernel: &Kernel, launch: &Stmt) -> BTreeMap<VarId, Expr> {
    let mut out = BTreeMap::new();
    launch.walk(&mut |s| {
        if let Stmt::Let { var, value } = s
            && kernel.var(*var).dtype == DType::I64
        {
            let value = inlined(value, &out);
            out.insert(*var, value);
        }
    });
    out
}

/// The expression with those in place of their names.
pub(super) fn inlined(e: &Expr, lets: &BTreeMap<VarId, Expr>) -> Expr {
    e.clone().map(&mut |e| match e {
        Expr::Var(v) => lets.get(&v).cloned().unwrap_or(e),
        other => other,
    })
}
