//! Loops that were fused, seen as the numbers they were fused from.
//!
//! After `fuse`, indices hold `v / 8` and `v % 8`. Written with one fresh variable a digit, `v = d1 * 8 + d0`, they are
//! linear again, and two iterations of `v` differ exactly if their highest differing digit does.

use crate::analysis::range::Ranges;
use crate::ir::{BinOp, Expr, VarId};
use std::collections::{BTreeMap, BTreeSet};

/// The digits of loops, each with the number that one step of it stands for, lowest first.
#[derive(Default)]
pub(super) struct Digits(BTreeMap<VarId, Vec<(i64, VarId)>>);

/// `(v / divisor) % modulus` for a variable, in any of its forms.
fn digit_of(e: &Expr) -> Option<(VarId, i64, Option<i64>)> {
    match e {
        Expr::Binary(BinOp::Mod, a, m) => match (digit_of(a), &**a, m.as_int()) {
            (Some((v, c, None)), _, Some(m)) if m > 0 => Some((v, c, Some(m))),
            (None, Expr::Var(v), Some(m)) if m > 0 => Some((*v, 1, Some(m))),
            _ => None,
        },
        Expr::Binary(BinOp::Div, a, c) => match (&**a, c.as_int()) {
            (Expr::Var(v), Some(c)) if c > 0 => Some((*v, c, None)),
            _ => None,
        },
        _ => None,
    }
}

impl Digits {
    /// Finds the loops that the expressions take apart, and gives each of their digits a variable from `next` on.
    /// `ranges` learns the new variables. Loops whose digits do not nest in each other are left alone.
    pub(super) fn of<'a>(exprs: impl Iterator<Item = &'a Expr>, ranges: &mut Ranges, mut next: u32) -> Digits {
        let mut weights: BTreeMap<VarId, BTreeSet<i64>> = BTreeMap::new();
        for e in exprs {
            e.walk(&mut |e| {
                if let Some((v, c, m)) = digit_of(e) {
                    let of_v = weights.entry(v).or_default();
                    of_v.extend([1, c]);
                    of_v.extend(m.and_then(|m| m.checked_mul(c)));
                }
            });
        }
        let mut out = Digits::default();
        for (v, weights) in weights {
            let Some((0, last)) = ranges.get(v) else { continue };
            let weights: Vec<i64> = weights.into_iter().filter(|w| *w <= last).collect();
            if weights.windows(2).any(|w| w[1] % w[0] != 0) {
                continue;
            }
            let mut digits = vec![];
            for (i, w) in weights.iter().enumerate() {
                let most = weights.get(i + 1).map_or(last / w, |above| above / w - 1);
                ranges.insert(VarId(next), 0, most);
                digits.push((*w, VarId(next)));
                next += 1;
            }
            out.0.insert(v, digits);
        }
        out
    }

    /// The digit variables of a loop, highest first; the loop itself if it was not taken apart.
    pub(super) fn of_var(&self, v: VarId) -> Vec<VarId> {
        match self.0.get(&v) {
            Some(digits) => digits.iter().rev().map(|(_, d)| *d).collect(),
            None => vec![v],
        }
    }

    /// The expression in terms of digits.
    pub(super) fn rewrite(&self, e: Expr) -> Expr {
        if let Some((v, c, m)) = digit_of(&e)
            && let Some(digits) = self.0.get(&v)
        {
            let below = m.and_then(|m| m.checked_mul(c));
            return digits
                .iter()
                .filter(|(w, _)| *w >= c && below.is_none_or(|b| *w < b))
                .fold(Expr::Int(0), |sum, (w, d)| sum + *d * (w / c));
        }
        match e {
            Expr::Var(v) => match self.0.get(&v) {
                Some(digits) => digits.iter().fold(Expr::Int(0), |sum, (w, d)| sum + *d * *w),
                None => e,
            },
            Expr::Binary(op, a, b) => Expr::bin(op, self.rewrite(*a), self.rewrite(*b)),
            Expr::Ramp { base, stride, lanes } => Expr::Ramp { base: Box::new(self.rewrite(*base)), stride, lanes },
            other => other,
        }
    }
}
