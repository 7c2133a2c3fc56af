//! Which part of a buffer a piece of code touches.

use super::affine::Affine;
use super::range::{Ranges, bounds};
use super::simplify::simplify;
use crate::ir::visit::MemoryAccess;
use crate::ir::{BufferId, Expr, Kernel, Stmt};

/// Which accesses count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// Loads.
    Reads,
    /// Stores and reductions.
    Writes,
    /// Both.
    Any,
}

/// One dimension of a box: `base .. base + extent`.
#[derive(Clone, PartialEq, Debug)]
pub struct Span {
    /// First index, in the variables that stay fixed.
    pub base: Expr,
    /// Number of indices.
    pub extent: i64,
}

/// A box could not be found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoFootprint(
    /// Why.
    pub String,
);

/// The smallest box that this analysis can prove to hold every access to `buffer` in `block` while the loops inside
/// `block` and the variables of `varying` run through their ranges and all other variables stay fixed. `fixed` gives
/// the ranges of those others, for simplification and clamping. `None` when the buffer is not touched.
///
/// An index that is linear in the varying variables keeps its fixed part as the base. Any other index (`i / 3`) uses
/// the whole dimension.
pub fn footprint(
    kernel: &Kernel,
    block: &[Stmt],
    buffer: BufferId,
    touch: Touch,
    varying: &Ranges,
    fixed: &Ranges,
) -> Result<Option<Vec<Span>>, NoFootprint> {
    let mut varying = varying.clone();
    for (v, (lo, hi)) in Ranges::of_block(block).iter() {
        varying.insert(v, lo, hi);
    }
    let mut all = fixed.clone();
    for (v, (lo, hi)) in varying.iter() {
        all.insert(v, lo, hi);
    }
    let mut accesses: Vec<MemoryAccess<'_>> = vec![];
    let counts = |a: &MemoryAccess<'_>| match touch {
        Touch::Any => true,
        Touch::Writes => a.writes,
        Touch::Reads => !a.writes,
    };
    for s in block {
        s.walk(&mut |s| {
            s.accesses(&mut |a| {
                if a.buffer == buffer && counts(&a) {
                    accesses.push(a);
                }
            });
        });
    }
    let mut result: Option<Vec<Span>> = None;
    for MemoryAccess { index, extents, .. } in accesses {
        let mut spans = vec![];
        for (d, index) in index.iter().enumerate() {
            let size = kernel.buffer(buffer).shape[d];
            let mut s = span(&simplify(index, &all), &varying, &all, size);
            if let Some(extents) = extents {
                s.extent += extents[d] - 1;
            }
            spans.push(s);
        }
        result = Some(match result {
            None => spans,
            Some(old) => old
                .into_iter()
                .zip(spans)
                .enumerate()
                .map(|(d, (a, b))| union(a, b, kernel.buffer(buffer).shape[d], &all))
                .collect(),
        });
    }
    // A box never needs to be larger than the buffer.
    Ok(result.map(|spans| {
        spans
            .into_iter()
            .zip(&kernel.buffer(buffer).shape)
            .map(|(s, size)| if s.extent >= *size { Span { base: Expr::Int(0), extent: *size } } else { s })
            .collect()
    }))
}

/// The interval that one index runs through.
fn span(index: &Expr, varying: &Ranges, all: &Ranges, size: i64) -> Span {
    let whole = Span { base: Expr::Int(0), extent: size };
    let (scalar, reach) = match index {
        Expr::Ramp { base, stride, lanes } => (&**base, stride * (i64::from(*lanes) - 1)),
        other => (other, 0),
    };
    let (fixed_part, moving) = match split(scalar, varying) {
        Some(parts) => parts,
        None => return whole,
    };
    match bounds(&moving, varying) {
        Some((lo, hi)) => {
            let lo = lo + reach.min(0);
            let hi = hi + reach.max(0);
            Span { base: simplify(&(fixed_part + lo), all), extent: hi - lo + 1 }
        }
        None => whole,
    }
}

/// `index = fixed + moving`, where only `moving` mentions varying variables.
fn split(index: &Expr, varying: &Ranges) -> Option<(Expr, Expr)> {
    let mentions_varying = |e: &Expr| {
        let mut found = false;
        e.walk(&mut |e| {
            if let Expr::Var(v) = e {
                found |= varying.get(*v).is_some();
            }
            found |= matches!(e, Expr::Load(..));
        });
        found
    };
    if !mentions_varying(index) {
        return Some((index.clone(), Expr::Int(0)));
    }
    if let Some(a) = Affine::of(index) {
        let (mut fixed, mut moving) = (Affine::constant(a.constant), Affine::default());
        for (v, c) in a.terms {
            if varying.get(v).is_some() {
                moving.terms.insert(v, c);
            } else {
                fixed.terms.insert(v, c);
            }
        }
        return Some((fixed.to_expr(), moving.to_expr()));
    }
    match index {
        Expr::Binary(crate::ir::BinOp::Add, a, b) => {
            let ((fa, ma), (fb, mb)) = (split(a, varying)?, split(b, varying)?);
            Some((fa + fb, ma + mb))
        }
        Expr::Binary(crate::ir::BinOp::Sub, a, b) => {
            let ((fa, ma), (fb, mb)) = (split(a, varying)?, split(b, varying)?);
            Some((fa - fb, ma - mb))
        }
        Expr::Binary(crate::ir::BinOp::Mul, a, b) => {
            let c = b.as_int()?;
            let (f, m) = split(a, varying)?;
            Some((f * c, m * c))
        }
        // All of it moves: bounded only if no fixed variable takes part, which `bounds` finds out.
        other => Some((Expr::Int(0), other.clone())),
    }
}

/// The smallest interval around both.
fn union(a: Span, b: Span, size: i64, ranges: &Ranges) -> Span {
    if a == b {
        return a;
    }
    let difference = simplify(&(b.base.clone() - a.base.clone()), ranges);
    match difference.as_int() {
        Some(d) if d >= 0 => Span { base: a.base, extent: a.extent.max(d + b.extent) },
        Some(d) => Span { base: b.base, extent: b.extent.max(a.extent - d) },
        None => Span { base: Expr::Int(0), extent: size },
    }
}
