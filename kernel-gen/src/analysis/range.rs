//! Intervals of integer expressions.

use super::affine::Affine;
use crate::ir::{BinOp, Expr, For, Kernel, Stmt, UnOp, VarId};
use std::collections::BTreeMap;

/// Inclusive bounds of variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<VarId, (i64, i64)>);

impl Ranges {
    /// Nothing is known.
    pub fn new() -> Ranges {
        Ranges::default()
    }

    /// What is known of all that a kernel's body may mention: how many units there are, if the caller says.
    pub fn of_kernel(kernel: &Kernel) -> Ranges {
        let mut ranges = Ranges::new();
        if let Some(size) = &kernel.size {
            ranges.insert(size.var, 1, size.most);
        }
        ranges
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
        let (Some(a), Some(b)) = (Affine::of(a), Affine::of(b)) else { return };
        if let Some(d) = a.plus(&b, -1) {
            let terms: Vec<(Expr, i64)> = d.terms.into_iter().map(|(v, c)| (Expr::Var(v), c)).collect();
            self.assume_at_most_zero(&terms, i128::from(d.constant) - i128::from(slack));
        }
    }

    /// Tightens the range of each variable among the terms of a sum that is at most 0.
    pub(crate) fn assume_at_most_zero(&mut self, terms: &[(Expr, i64)], constant: i128) {
        // The least that each term can be.
        let least = |(e, c): &(Expr, i64)| {
            let (lo, hi) = match e {
                Expr::Var(v) => self.get(*v)?,
                _ => bounds(e, self)?,
            };
            Some(i128::from(*c) * i128::from(if *c > 0 { lo } else { hi }))
        };
        let Some(least) = terms.iter().map(least).collect::<Option<Vec<i128>>>() else { return };
        let all = least.iter().sum::<i128>() + constant;
        let within = |n: i128| n.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        for ((e, c), least) in terms.iter().zip(least) {
            let Expr::Var(v) = e else { continue };
            let Some((lo, hi)) = self.get(*v) else { continue };
            // c v <= room; for a negative c, v >= room / c, rounded up.
            let (room, c) = (least - all, i128::from(*c));
            let (lo, hi) = match c > 0 {
                true => (lo, hi.min(within(room.div_euclid(c)))),
                false => (lo.max(within(-room.div_euclid(-c))), hi),
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
    if let Some(a) = Affine::of(e) {
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
