//! Linear forms of integer expressions.

use crate::ir::{BinOp, Expr, VarId};
use std::collections::BTreeMap;

/// `sum(coefficient * variable) + constant`. No coefficient is zero.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Affine {
    /// Coefficient of each variable.
    pub terms: BTreeMap<VarId, i64>,
    /// What remains when all variables are 0.
    pub constant: i64,
}

impl Affine {
    /// A constant.
    pub fn constant(c: i64) -> Affine {
        Affine { terms: BTreeMap::new(), constant: c }
    }

    /// The linear form of an expression; `None` if it is not linear (or overflows).
    pub fn of(e: &Expr) -> Option<Affine> {
        match e {
            Expr::Int(v) => Some(Affine::constant(*v)),
            Expr::Var(v) => Some(Affine { terms: BTreeMap::from([(*v, 1)]), constant: 0 }),
            Expr::Binary(BinOp::Add, a, b) => Affine::of(a)?.plus(&Affine::of(b)?, 1),
            Expr::Binary(BinOp::Sub, a, b) => Affine::of(a)?.plus(&Affine::of(b)?, -1),
            Expr::Binary(BinOp::Mul, a, b) => {
                let (a, b) = (Affine::of(a)?, Affine::of(b)?);
                if b.terms.is_empty() {
                    a.times(b.constant)
                } else if a.terms.is_empty() {
                    b.times(a.constant)
                } else {
                    None
                }
            }
            _ => None,
        }
    }

    /// `self + factor * other`.
    pub fn plus(&self, other: &Affine, factor: i64) -> Option<Affine> {
        let mut out = self.clone();
        for (v, c) in &other.terms {
            let sum = out.terms.get(v).copied().unwrap_or(0).checked_add(c.checked_mul(factor)?)?;
            if sum == 0 {
                out.terms.remove(v);
            } else {
                out.terms.insert(*v, sum);
            }
        }
        out.constant = out.constant.checked_add(other.constant.checked_mul(factor)?)?;
        Some(out)
    }

    /// `factor * self`.
    pub fn times(&self, factor: i64) -> Option<Affine> {
        Affine::default().plus(self, factor)
    }

    /// The coefficient of a variable, 0 if it does not occur.
    pub fn coefficient(&self, v: VarId) -> i64 {
        self.terms.get(&v).copied().unwrap_or(0)
    }

    /// As an expression, variables in the order of their ids.
    pub fn to_expr(&self) -> Expr {
        let mut out: Option<Expr> = None;
        for (v, c) in &self.terms {
            let magnitude = Expr::Var(*v) * c.abs();
            out = Some(match out {
                None if *c > 0 => magnitude,
                None => Expr::Var(*v) * *c,
                Some(e) if *c > 0 => e + magnitude,
                Some(e) => e - magnitude,
            });
        }
        match out {
            None => Expr::Int(self.constant),
            Some(e) if self.constant < 0 => e - self.constant.saturating_abs(),
            Some(e) => e + self.constant,
        }
    }
}
