//! Whether the iterations of a loop depend on each other.
//!
//! Two accesses of a buffer in different iterations of a loop `v` cannot meet if some dimension, or some run of
//! neighbouring dimensions read as one number, is `g * x + c * v + r` in both, the difference of the two `r` is always
//! smaller than `c`, and with the difference of the two `c * v` it is smaller than `g`: digits of a number in a mixed
//! radix. Where that does not do, the conditions around the accesses are taken into account, as the gate before lowering does
//! ([`never_meet`]); what it cannot show either is a dependence.

use super::radix::Digits;
use crate::analysis::affine::Affine;
use crate::analysis::range::{Ranges, bounds};
use crate::analysis::simplify::simplify;
use crate::analysis::verify::never_meet;
use crate::integer::gcd;
use crate::ir::{BinOp, BufferId, Expr, For, Kernel, ReduceOp, Stmt, Tile, VarId};
use std::collections::BTreeMap;

/// How the iterations of a loop meet in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Carried {
    /// They do not.
    Nothing,
    /// Only as steps of one reduction, which may happen in any order but not at once.
    Reduction(BufferId),
    /// One may use, or overwrite, what another wrote.
    Order(BufferId),
}

struct Access {
    buffer: BufferId,
    /// Index of each dimension and how many further elements it covers.
    indices: Vec<(Expr, i64)>,
    writes: bool,
    /// Set for both sides of a reduction's update of its destination.
    reduction: Option<ReduceOp>,
}

/// What the iterations of `l` have in common, while the loops inside of it and those in `free` run independently of
/// each other on both sides. Buffers that are allocated inside the loop are private to an iteration.
pub(super) fn carried(k: &Kernel, l: &For, free: &[VarId]) -> Carried {
    if l.extent <= 1 {
        return Carried::Nothing;
    }
    let mut ranges = super::nest::all_ranges(k);
    let mut accesses = accesses(l);
    for (index, _) in accesses.iter_mut().flat_map(|a| &mut a.indices) {
        *index = simplify(index, &ranges);
    }
    let indices = accesses.iter().flat_map(|a| a.indices.iter().map(|(e, _)| e));
    let digits = Digits::of(indices, &mut ranges, k.vars.len() as u32);
    for (index, _) in accesses.iter_mut().flat_map(|a| &mut a.indices) {
        *index = digits.rewrite(std::mem::replace(index, Expr::Int(0)));
    }
    let mut vary = Ranges::new();
    let inside = Ranges::of_block(&l.body);
    for v in inside.iter().map(|(v, _)| v).chain(free.iter().copied()).filter(|v| *v != l.var) {
        for d in digits.of_var(v) {
            if let Some((lo, hi)) = ranges.get(d) {
                vary.insert(d, lo, hi);
            }
        }
    }
    // Two iterations differ in some digit first; what is above it is equal, what is below it is arbitrary.
    let own = digits.of_var(l.var);
    let mut result = Carried::Nothing;
    let mut tried: BTreeMap<BufferId, bool> = BTreeMap::new();
    let mut apart =
        |b: BufferId| *tried.entry(b).or_insert_with(|| in_one_iteration(k, l, b) || never_meet(k, l, free, b));
    for (i, digit) in own.iter().enumerate() {
        let mut vary = vary.clone();
        for below in &own[i + 1..] {
            if let Some((lo, hi)) = ranges.get(*below) {
                vary.insert(*below, lo, hi);
            }
        }
        match carried_by(k, &accesses, *digit, &vary, &ranges, &mut apart) {
            Carried::Nothing => {}
            Carried::Reduction(b) => result = Carried::Reduction(b),
            order @ Carried::Order(_) => return order,
        }
    }
    result
}

/// Whether conditions leave the buffer to a single iteration of the loop: the others are idle.
fn in_one_iteration(k: &Kernel, l: &For, b: BufferId) -> bool {
    fn widen(block: &[Stmt], ranges: &Ranges, v: VarId, b: BufferId, found: &mut Option<(i64, i64)>) -> Option<()> {
        for s in block {
            match s {
                Stmt::For(inner) => widen(&inner.body, ranges, v, b, found)?,
                Stmt::If { cond, then, otherwise } if !cond.reads(b) => {
                    widen(then, &ranges.assuming(cond), v, b, found)?;
                    let mut not = ranges.clone();
                    not.assume(cond, false);
                    widen(otherwise, &not, v, b, found)?;
                }
                s if s.reads(b) || s.writes(b) => {
                    let (lo, hi) = ranges.get(v)?;
                    *found = Some(found.map_or((lo, hi), |(a, z)| (a.min(lo), z.max(hi))));
                }
                _ => {}
            }
        }
        Some(())
    }
    let mut found = None;
    widen(&l.body, &super::nest::all_ranges(k), l.var, b, &mut found).is_some()
        && found.is_some_and(|(lo, hi)| lo >= hi)
}

/// [`carried`] for one digit of the loop. `apart` decides about a buffer where the indices alone do not.
fn carried_by(
    k: &Kernel,
    accesses: &[Access],
    v: VarId,
    vary: &Ranges,
    ranges: &Ranges,
    apart: &mut dyn FnMut(BufferId) -> bool,
) -> Carried {
    let mut result = Carried::Nothing;
    for (i, a) in accesses.iter().enumerate() {
        // Each pair once, an access against itself in another iteration included.
        for b in &accesses[i..] {
            if a.buffer != b.buffer || !(a.writes || b.writes) || disjoint(k, a, b, v, vary, ranges) {
                continue;
            }
            if a.reduction.is_some() && a.reduction == b.reduction {
                result = Carried::Reduction(a.buffer);
            } else if !apart(a.buffer) {
                return Carried::Order(a.buffer);
            }
        }
    }
    result
}

fn accesses(l: &For) -> Vec<Access> {
    let mut private = vec![];
    let mut out = vec![];
    for s in &l.body {
        s.walk(&mut |s| {
            let elements = |indices: &[Expr]| indices.iter().map(|e| (e.clone(), 0)).collect::<Vec<_>>();
            let tile = |t: &Tile, writes: bool| Access {
                buffer: t.buffer,
                indices: t.origin.iter().cloned().zip(t.extents.iter().map(|n| n - 1)).collect(),
                writes,
                reduction: None,
            };
            match s {
                Stmt::Alloc(b) => private.push(*b),
                Stmt::Store { buffer, indices, .. } => {
                    out.push(Access { buffer: *buffer, indices: elements(indices), writes: true, reduction: None });
                }
                Stmt::Reduce { buffer, indices, op, over, .. } => {
                    // Another loop than its own would begin the sum anew: then its iterations have an order.
                    let goes_on = over.is_empty() || over.contains(&l.var);
                    let reduction = goes_on.then_some(*op);
                    out.push(Access { buffer: *buffer, indices: elements(indices), writes: true, reduction });
                }
                Stmt::Transpose { dst, src } => {
                    out.push(tile(dst, true));
                    out.push(tile(src, false));
                }
                Stmt::Gpu(g) => {
                    let tiles = g.tiles();
                    out.extend(tiles.written.map(|t| tile(t, true)));
                    out.extend(tiles.read.iter().map(|t| tile(t, false)));
                }
                _ => {}
            }
            s.own_exprs(&mut |e| {
                e.walk(&mut |e| {
                    if let Expr::Load(b, idx) = e {
                        out.push(Access { buffer: *b, indices: elements(idx), writes: false, reduction: None });
                    }
                });
            });
        });
    }
    let written: Vec<BufferId> = out.iter().filter(|a| a.writes).map(|a| a.buffer).collect();
    out.retain(|a| written.contains(&a.buffer) && !private.contains(&a.buffer));
    out
}

fn disjoint(k: &Kernel, a: &Access, b: &Access, v: VarId, vary: &Ranges, ranges: &Ranges) -> bool {
    let shape = &k.buffer(a.buffer).shape;
    (0..shape.len()).any(|first| {
        (first..shape.len()).any(|last| {
            let flat = |x: &Access| -> Option<(Affine, i64)> {
                let mut weight = 1;
                let (mut sum, mut slack) = (Expr::Int(0), 0);
                for d in (first..=last).rev() {
                    sum = sum + x.indices[d].0.clone() * weight;
                    slack += x.indices[d].1 * weight;
                    weight *= shape[d];
                }
                Some((Affine::of(&simplify(&without_remainders(sum, ranges), ranges))?, slack))
            };
            match (flat(a), flat(b)) {
                (Some(x), Some(y)) => apart(&x, &y, v, vary, ranges),
                _ => false,
            }
        })
    })
}

/// `x % c` as `x - c * (x / c)`: in a run of dimensions that one loop walks, the quotients then cancel.
fn without_remainders(e: Expr, ranges: &Ranges) -> Expr {
    e.map(&mut |e| match e {
        Expr::Binary(BinOp::Mod, x, c) if c.as_int().is_some_and(|c| c > 0) => {
            let quotient = simplify(&(*x).clone().floor_div((*c).clone()), ranges);
            *x - quotient * *c
        }
        other => other,
    })
}

/// Whether the intervals `x .. x + slack` of two different iterations of `v` never meet.
fn apart((x, x_slack): &(Affine, i64), (y, y_slack): &(Affine, i64), v: VarId, vary: &Ranges, ranges: &Ranges) -> bool {
    let c = x.coefficient(v);
    if c == 0 || c != y.coefficient(v) {
        return false;
    }
    let Some((first, last)) = ranges.get(v) else { return false };
    let step = c.saturating_abs();
    // What varies runs independently on both sides; everything else must cancel. Multiples of numbers above `c` are
    // higher digits: only their common divisor matters.
    let part = |a: &Affine| -> (Option<(i64, i64)>, i64, Affine) {
        let (mut low, mut fixed, mut divisor) = (Affine::default(), Affine::constant(a.constant), 0);
        for (u, n) in a.terms.iter().filter(|(u, _)| **u != v) {
            match vary.get(*u) {
                None => drop(fixed.terms.insert(*u, *n)),
                Some(_) if n.saturating_abs() > step => divisor = gcd(divisor, *n),
                Some(_) => drop(low.terms.insert(*u, *n)),
            }
        }
        (bounds(&low.to_expr(), vary), divisor, fixed)
    };
    let ((x_low, x_divisor, x_fixed), (y_low, y_divisor, y_fixed)) = (part(x), part(y));
    let (Some((xlo, xhi)), Some((ylo, yhi))) = (x_low, y_low) else { return false };
    match x_fixed.plus(&y_fixed, -1) {
        Some(d) if d.terms.is_empty() => {
            let (lo, hi) = (d.constant + xlo - yhi - y_slack, d.constant + xhi + x_slack - ylo);
            let reach = step.saturating_mul(last - first);
            let divisor = gcd(x_divisor, y_divisor);
            lo > -step && hi < step && (divisor == 0 || (lo - reach > -divisor && hi + reach < divisor))
        }
        _ => false,
    }
}
