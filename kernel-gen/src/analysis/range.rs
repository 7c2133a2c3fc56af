//! Intervals of integer expressions.

use crate::ir::{BinOp, Expr, For, Stmt, UnOp, VarId};
use std::collections::BTreeMap;

/// Inclusive bounds of variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<VarId, (i64, i64)>);

impl Ranges {
    /// Nothing is known.
    pub fn new() -> Ranges {
        Ranges::default()
    }

    /// The loops anywhere in a block; a variable names one loop only, so no scoping is needed.
    pub fn of_block(block: &[Stmt]) -> Ranges {
        let mut ranges = Ranges::new();
        for l in crate::ir::visit::loops(block) {
            ranges.insert_loop(l);
        }
        ranges
    }

    /// Records `min <= var <= max`.
    pub fn insert(&mut self, var: VarId, min: i64, max: i64) {
        self.0.insert(var, (min, max));
    }

    /// Records the values of a loop's variable.
    pub fn insert_loop(&mut self, l: &For) {
        // A loop without iterations has no values; its body is dead, and any range is right for it.
        self.insert(l.var, 0, l.extent.max(1) - 1);
    }

    /// The bounds of a variable.
    pub fn get(&self, var: VarId) -> Option<(i64, i64)> {
        self.0.get(&var).copied()
    }

    /// Forgets a variable.
    pub fn remove(&mut self, var: VarId) {
        self.0.remove(&var);
    }

    /// All variables with their bounds, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (VarId, (i64, i64))> + '_ {
        self.0.iter().map(|(v, r)| (*v, *r))
    }

    /// The ranges under the assumption that `cond` holds: bounds of single variables in `a < b`, `a <= b`, `a == b`
    /// and conjunctions of them are tightened.
    pub fn assuming(&self, cond: &Expr) -> Ranges {
        let mut out = self.clone();
        out.assume(cond, true);
        out
    }

    /// Tightens bounds by `cond == truth`. A condition that cannot hold leaves the ranges as they are.
    pub fn assume(&mut self, cond: &Expr, truth: bool) {
        match (cond, truth) {
            (Expr::Binary(BinOp::And, a, b), true) | (Expr::Binary(BinOp::Or, a, b), false) => {
                self.assume(a, truth);
                self.assume(b, truth);
            }
            (Expr::Unary(UnOp::Not, a), t) => self.assume(a, !t),
            (Expr::Binary(BinOp::Lt, a, b), true) => self.assume_le(a, b, -1),
            (Expr::Binary(BinOp::Le, a, b), true) => self.assume_le(a, b, 0),
            (Expr::Binary(BinOp::Lt, a, b), false) => self.assume_le(b, a, 0),
            (Expr::Binary(BinOp::Le, a, b), false) => self.assume_le(b, a, -1),
            (Expr::Binary(BinOp::Eq, a, b), true) => {
                self.assume_le(a, b, 0);
                self.assume_le(b, a, 0);
            }
            _ => {}
        }
    }

    /// `a <= b + slack`, for the variables in their linear difference.
    fn assume_le(&mut self, a: &Expr, b: &Expr, slack: i64) {
        let difference = match (super::affine::Affine::of(a), super::affine::Affine::of(b)) {
            (Some(a), Some(b)) => a.plus(&b, -1),
            _ => None,
        };
        // sum(c_i v_i) + constant <= slack; for each v: c v <= slack - constant - min(rest).
        let Some(d) = difference else { return };
        for (v, c) in &d.terms {
            let Some((lo, hi)) = self.get(*v) else { continue };
            let mut room = slack as i128 - d.constant as i128;
            let mut known = true;
            for (u, k) in &d.terms {
                if u != v {
                    match self.get(*u) {
                        Some((ulo, uhi)) => {
                            room -= if *k > 0 { *k as i128 * ulo as i128 } else { *k as i128 * uhi as i128 }
                        }
                        None => known = false,
                    }
                }
            }
            if !known {
                continue;
            }
            let c = *c as i128;
            let (lo, hi) = if c > 0 {
                (lo, hi.min(room.div_euclid(c).clamp(i64::MIN as i128, i64::MAX as i128) as i64))
            } else {
                // c v <= room with c < 0: v >= room / c, rounded up.
                let bound = -room.div_euclid(-c);
                (lo.max(bound.clamp(i64::MIN as i128, i64::MAX as i128) as i64), hi)
            };
            if lo <= hi {
                self.insert(*v, lo, hi);
            }
        }
    }
}

/// Inclusive bounds of an integer expression (of all lanes of a vector); `None` if unknown or overflowing. Linear parts
/// are collected first, so `i - i` is `0..=0`.
pub fn bounds(e: &Expr, ranges: &Ranges) -> Option<(i64, i64)> {
    if let Some(a) = super::affine::Affine::of(e) {
        let (mut lo, mut hi) = (a.constant, a.constant);
        for (v, c) in &a.terms {
            let (vlo, vhi) = ranges.get(*v)?;
            let (x, y) = (vlo.checked_mul(*c)?, vhi.checked_mul(*c)?);
            lo = lo.checked_add(x.min(y))?;
            hi = hi.checked_add(x.max(y))?;
        }
        return Some((lo, hi));
    }
    match e {
        // Whatever the dividend is.
        Expr::Binary(BinOp::Mod, a, b) if bounds(a, ranges).is_none() => match bounds(b, ranges)? {
            (lo, hi) if lo > 0 => Some((0, hi - 1)),
            _ => None,
        },
        Expr::Binary(op, a, b) => {
            let ((alo, ahi), (blo, bhi)) = (bounds(a, ranges)?, bounds(b, ranges)?);
            match op {
                BinOp::Add => Some((alo.checked_add(blo)?, ahi.checked_add(bhi)?)),
                BinOp::Sub => Some((alo.checked_sub(bhi)?, ahi.checked_sub(blo)?)),
                BinOp::Mul => {
                    let products =
                        [alo.checked_mul(blo)?, alo.checked_mul(bhi)?, ahi.checked_mul(blo)?, ahi.checked_mul(bhi)?];
                    Some((*products.iter().min()?, *products.iter().max()?))
                }
                BinOp::Div if blo > 0 => {
                    let quotients =
                        [alo.div_euclid(blo), alo.div_euclid(bhi), ahi.div_euclid(blo), ahi.div_euclid(bhi)];
                    Some((*quotients.iter().min()?, *quotients.iter().max()?))
                }
                BinOp::Mod if blo > 0 => {
                    if blo == bhi && alo.div_euclid(blo) == ahi.div_euclid(blo) {
                        Some((alo.rem_euclid(blo), ahi.rem_euclid(blo)))
                    } else {
                        Some((0, if alo >= 0 { ahi.min(bhi - 1) } else { bhi - 1 }))
                    }
                }
                BinOp::Min => Some((alo.min(blo), ahi.min(bhi))),
                BinOp::Max => Some((alo.max(blo), ahi.max(bhi))),
                _ => None,
            }
        }
        Expr::Unary(UnOp::Neg, a) => {
            let (lo, hi) = bounds(a, ranges)?;
            Some((hi.checked_neg()?, lo.checked_neg()?))
        }
        Expr::Select(c, a, b) => {
            let (alo, ahi) = bounds(a, &ranges.assuming(c))?;
            let mut not = ranges.clone();
            not.assume(c, false);
            let (blo, bhi) = bounds(b, &not)?;
            Some((alo.min(blo), ahi.max(bhi)))
        }
        Expr::Ramp { base, stride, lanes } => {
            let (lo, hi) = bounds(base, ranges)?;
            let reach = stride.checked_mul(i64::from(*lanes) - 1)?;
            Some((lo.checked_add(reach.min(0))?, hi.checked_add(reach.max(0))?))
        }
        Expr::Broadcast(a, _) => bounds(a, ranges),
        _ => None,
    }
}
