//! Evaluating integer expressions for all values of a few variables.

use crate::analysis::range::Ranges;
use crate::ir::{BinOp, DType, Expr, UnOp, VarId};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Points that one question may cost. Such a question takes some tens of milliseconds.
pub(super) const BUDGET: i64 = 1 << 20;

/// Variables with their inclusive ranges.
pub(super) type Space = Vec<(VarId, i64, i64)>;

/// The variables of expressions. `None` when one reads memory, whose contents are not known here.
pub(super) fn variables<'e>(exprs: impl IntoIterator<Item = &'e Expr>) -> Option<BTreeSet<VarId>> {
    let (mut vars, mut known) = (BTreeSet::new(), true);
    for e in exprs {
        e.walk(&mut |e| match e {
            Expr::Var(v) => {
                vars.insert(*v);
            }
            Expr::Load(..) | Expr::Float(..) | Expr::Ramp { .. } | Expr::Cast(..) => known = false,
            _ => {}
        });
    }
    known.then_some(vars)
}

/// The space of these variables; `None` when one has no known range or there are more than `budget` points.
pub(super) fn space(vars: &BTreeSet<VarId>, ranges: &Ranges, budget: i64) -> Option<Space> {
    let mut points = 1i64;
    let mut out = vec![];
    for v in vars {
        let (lo, hi) = ranges.get(*v)?;
        points = points.checked_mul(hi.checked_sub(lo)?.checked_add(1)?)?;
        if points > budget {
            return None;
        }
        out.push((*v, lo, hi));
    }
    Some(out)
}

/// Calls `f` with the values of all variables (indexed by id) for every point, the last variable fastest.
pub(super) fn for_each<B>(space: &Space, mut f: impl FnMut(&[i64]) -> ControlFlow<B>) -> ControlFlow<B> {
    let size = space.iter().map(|(v, ..)| v.0 as usize + 1).max().unwrap_or(0);
    let mut values = vec![0; size];
    for (v, lo, _) in space {
        values[v.0 as usize] = *lo;
    }
    loop {
        f(&values)?;
        let mut done = true;
        for (v, lo, hi) in space.iter().rev() {
            let value = &mut values[v.0 as usize];
            if *value < *hi {
                *value += 1;
                done = false;
                break;
            }
            *value = *lo;
        }
        if done {
            return ControlFlow::Continue(());
        }
    }
}

/// The value of an expression whose [`variables`] are in the space; `None` on overflow and division by zero.
pub(super) fn eval(e: &Expr, values: &[i64]) -> Option<i64> {
    match e {
        Expr::Ramp { .. } | Expr::Cast(..) => None,
        _ => eval_by(e, 0, &|e| match e {
            Expr::Var(v) => values.get(v.0 as usize).copied(),
            _ => None,
        }),
    }
}

/// The value of one lane of an expression, in which `leaf` knows variables and loads.
pub(crate) fn eval_by(e: &Expr, lane: i64, leaf: &impl Fn(&Expr) -> Option<i64>) -> Option<i64> {
    let value = |e: &Expr| eval_by(e, lane, leaf);
    match e {
        Expr::Int(v) => Some(*v),
        Expr::Var(_) | Expr::Load(..) => leaf(e),
        Expr::Broadcast(a, _) => value(a),
        Expr::Ramp { base, stride, .. } => value(base)?.checked_add(stride.checked_mul(lane)?),
        Expr::Cast(DType::I64 | DType::I32, a) => value(a),
        Expr::Unary(UnOp::Neg, a) => value(a)?.checked_neg(),
        Expr::Unary(UnOp::Abs, a) => value(a)?.checked_abs(),
        Expr::Unary(UnOp::Not, a) => Some(i64::from(value(a)? == 0)),
        Expr::Select(c, a, b) => value(if value(c)? != 0 { a } else { b }),
        Expr::Binary(BinOp::And, a, b) => Some(i64::from(value(a)? != 0 && value(b)? != 0)),
        Expr::Binary(BinOp::Or, a, b) => Some(i64::from(value(a)? != 0 || value(b)? != 0)),
        Expr::Binary(op, a, b) => {
            let (a, b) = (value(a)?, value(b)?);
            match op {
                BinOp::Add => a.checked_add(b),
                BinOp::Sub => a.checked_sub(b),
                BinOp::Mul => a.checked_mul(b),
                // Floor division; divisors that are not positive do not occur in indices worth enumerating.
                BinOp::Div if b > 0 => Some(a.div_euclid(b)),
                BinOp::Mod if b > 0 => Some(a.rem_euclid(b)),
                BinOp::Div | BinOp::Mod => None,
                BinOp::Min => Some(a.min(b)),
                BinOp::Max => Some(a.max(b)),
                BinOp::Lt => Some(i64::from(a < b)),
                BinOp::Le => Some(i64::from(a <= b)),
                BinOp::Eq => Some(i64::from(a == b)),
                BinOp::Ne => Some(i64::from(a != b)),
                BinOp::And | BinOp::Or | BinOp::Pow | BinOp::Fmod | BinOp::Dot | BinOp::Push => None,
            }
        }
        _ => None,
    }
}
