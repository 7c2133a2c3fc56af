//! The dependence test of last resort: trying all iterations.
//!
//! A cooperative copy walks a box with one fused and several times split loop, and a guard keeps the surplus idle; that no
//! two iterations meet follows from the guard, which a symbolic test does not see. Such nests are small, so going through
//! them is a proof.

use super::nest::{all_ranges, loads, loops_on, paths};
use crate::analysis::affine::Affine;
use crate::analysis::range::Ranges;
use crate::analysis::simplify::simplify;
use crate::ir::{BinOp, BufferId, Expr, For, Kernel, Stmt, UnOp, VarId};
use std::collections::BTreeMap;

/// Evaluations after which the test gives up.
const LIMIT: i64 = 1 << 18;

/// Whether no two iterations of `l` touch the same element of `buffer` with one of them writing, while the loops inside
/// of it and those in `free` take all values on both sides. `false` when it is not so, or too much to try.
pub(super) fn never_meet(k: &Kernel, l: &For, free: &[VarId], buffer: BufferId) -> bool {
    let ranges = all_ranges(k);
    let fixed = tangled(l, free, buffer, &ranges);
    let Some(accesses) = accesses(l, free, &fixed, buffer, &ranges) else { return false };
    let total = accesses.iter().try_fold(0i64, |sum, a| sum.checked_add(a.count()?));
    if total.is_none_or(|n| n > LIMIT) {
        return false;
    }
    // Who touched an element: the iteration of `l`, or several of them; and whether one of them wrote.
    let mut touched: BTreeMap<Vec<i64>, (Option<i64>, bool)> = BTreeMap::new();
    accesses.iter().all(|a| {
        a.for_each(&mut |env| {
            // Only iterations with the same values of the loops around can meet.
            let around = fixed.iter().map(|v| env.get(v).copied());
            let at: Option<Vec<i64>> = around.chain(a.indices.iter().map(|i| eval(i, env))).collect();
            let (Some(at), Some(v)) = (at, env.get(&l.var)) else { return false };
            let entry = touched.entry(at).or_insert((Some(*v), a.writes));
            if entry.0 != Some(*v) {
                entry.0 = None;
            }
            entry.1 |= a.writes;
            entry.0.is_some() || !entry.1
        })
    })
}

struct Access {
    indices: Vec<Expr>,
    conditions: Vec<Expr>,
    writes: bool,
    vars: Vec<(VarId, i64)>,
}

impl Access {
    fn count(&self) -> Option<i64> {
        self.vars.iter().try_fold(1i64, |n, (_, extent)| n.checked_mul((*extent).max(1)))
    }

    /// Calls `f` for all iterations in which the conditions hold, until it says `false`.
    fn for_each(&self, f: &mut dyn FnMut(&BTreeMap<VarId, i64>) -> bool) -> bool {
        let mut env: BTreeMap<VarId, i64> = self.vars.iter().map(|(v, _)| (*v, 0)).collect();
        loop {
            // A condition that cannot be evaluated might hold.
            let runs = self.conditions.iter().all(|c| eval(c, &env) != Some(0));
            if runs && !f(&env) {
                return false;
            }
            let next = self.vars.iter().rev().find(|(v, extent)| {
                let value = env.entry(*v).or_insert(0);
                *value += 1;
                if *value < *extent {
                    return true;
                }
                *value = 0;
                false
            });
            if next.is_none() {
                return true;
            }
        }
    }
}

/// Loops around `l` that indices of the buffer mention in another way than as an addend: they have to be tried too.
fn tangled(l: &For, free: &[VarId], buffer: BufferId, ranges: &Ranges) -> Vec<VarId> {
    let inside = Ranges::of_block(&l.body);
    let mut out = vec![];
    for path in paths(&l.body, &|s| s.written() == Some(buffer) || loads(s, buffer)) {
        let Some(leaf) = path.last() else { continue };
        for index in indices_of(leaf, buffer).into_iter().flat_map(|(indices, _)| indices) {
            let index = simplify(&index, ranges);
            if Affine::of(&index).is_none() {
                index.walk(&mut |e| {
                    if let Expr::Var(v) = e
                        && *v != l.var
                        && inside.get(*v).is_none()
                        && !free.contains(v)
                        && !out.contains(v)
                    {
                        out.push(*v);
                    }
                });
            }
        }
    }
    out
}

/// The indices with which this very statement touches the buffer, and whether it writes there.
fn indices_of(leaf: &Stmt, buffer: BufferId) -> Vec<(Vec<Expr>, bool)> {
    let mut found: Vec<(Vec<Expr>, bool)> = vec![];
    if let Stmt::Store { buffer: b, indices, .. } | Stmt::Reduce { buffer: b, indices, .. } = leaf
        && *b == buffer
    {
        found.push((indices.clone(), true));
    }
    leaf.own_exprs(&mut |e| {
        e.walk(&mut |e| {
            if let Expr::Load(b, idx) = e
                && *b == buffer
            {
                found.push((idx.clone(), false));
            }
        });
    });
    found
}

/// All accesses of `buffer` in `l`. What the loops around contribute is left away; `None` if it is not the same sum in
/// all of them.
fn accesses(l: &For, free: &[VarId], fixed: &[VarId], buffer: BufferId, ranges: &Ranges) -> Option<Vec<Access>> {
    let extent = |v: VarId| ranges.get(v).map(|r| r.1 + 1);
    let mut out = vec![];
    let mut offsets: Option<Vec<Expr>> = None;
    for path in paths(&l.body, &|s| s.written() == Some(buffer) || loads(s, buffer)) {
        let leaf = *path.last()?;
        if !matches!(leaf, Stmt::Store { .. } | Stmt::Reduce { .. }) {
            return None;
        }
        let mut vars = vec![(l.var, l.extent)];
        for v in free.iter().chain(fixed).filter(|v| **v != l.var) {
            vars.push((*v, extent(*v)?));
        }
        for inner in loops_on(&path) {
            if !vars.iter().any(|(v, _)| *v == inner.var) {
                vars.push((inner.var, inner.extent));
            }
        }
        let conditions: Vec<Expr> = path
            .iter()
            .filter_map(|s| match s {
                Stmt::If { cond, otherwise, .. } if otherwise.is_empty() => Some(cond.clone()),
                _ => None,
            })
            .collect();
        for (indices, writes) in indices_of(leaf, buffer) {
            let (mut inner, mut outer) = (vec![], vec![]);
            for index in indices {
                let known = |v: &VarId| vars.iter().any(|(u, _)| u == v);
                let here = simplify(&without(&index, &known), ranges);
                let offset = simplify(&(index - here.clone()), ranges);
                let mut mixed = false;
                offset.walk(&mut |e| mixed |= matches!(e, Expr::Var(v) if known(v)));
                if mixed {
                    return None;
                }
                inner.push(here);
                outer.push(offset);
            }
            if *offsets.get_or_insert_with(|| outer.clone()) != outer {
                return None;
            }
            out.push(Access { indices: inner, conditions: conditions.clone(), writes, vars: vars.clone() });
        }
    }
    Some(out)
}

/// The expression with all variables but the known ones at 0.
fn without(e: &Expr, known: &dyn Fn(&VarId) -> bool) -> Expr {
    e.clone().map(&mut |e| match e {
        Expr::Var(v) if !known(&v) => Expr::Int(0),
        other => other,
    })
}

/// The value of an integer expression; a truth value is 0 or 1.
fn eval(e: &Expr, env: &BTreeMap<VarId, i64>) -> Option<i64> {
    match e {
        Expr::Int(v) => Some(*v),
        Expr::Var(v) => env.get(v).copied(),
        Expr::Unary(UnOp::Neg, a) => eval(a, env)?.checked_neg(),
        Expr::Select(c, a, b) => eval(if eval(c, env)? != 0 { a } else { b }, env),
        Expr::Binary(op, a, b) => {
            let (a, b) = (eval(a, env)?, eval(b, env)?);
            match op {
                BinOp::Add => a.checked_add(b),
                BinOp::Sub => a.checked_sub(b),
                BinOp::Mul => a.checked_mul(b),
                BinOp::Div if b > 0 => Some(a.div_euclid(b)),
                BinOp::Mod if b > 0 => Some(a.rem_euclid(b)),
                BinOp::Div | BinOp::Mod => None,
                BinOp::Min => Some(a.min(b)),
                BinOp::Max => Some(a.max(b)),
                BinOp::Lt => Some(i64::from(a < b)),
                BinOp::Le => Some(i64::from(a <= b)),
                BinOp::Eq => Some(i64::from(a == b)),
                BinOp::Ne => Some(i64::from(a != b)),
                BinOp::And => Some(i64::from(a != 0 && b != 0)),
                BinOp::Or => Some(i64::from(a != 0 || b != 0)),
            }
        }
        _ => None,
    }
}
