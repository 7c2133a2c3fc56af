//! When two accesses touch the same element, which variables must have had the same values?
//!
//! The two sides run independently: each variable has a value on the left and one on the right, except for fixed ones.
//! Equality of the indices, dimension by dimension, is taken apart like a number with digits: in
//! `c * x + low = c * x' + low'` with `|low - low'| < c` both `x = x'` and `low = low'`. From `x / c` and `x % c` follows
//! `x`. Where that does not decide, the same is tried with whole numbers in the place of variables that count them together
//! ([`digits`]), and at the end all values are, up to a budget.

use super::access::Site;
use super::enumerate::{self, Space};
use super::facts::Facts;
use super::mixed_radix::{self, Step};
use crate::analysis::range::{Ranges, bounds};
use crate::analysis::simplify::{Sum, simplify};
use crate::integer::gcd;
use crate::ir::{BinOp, Expr, VarId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// One access of a pair.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Side {
    pub(super) index: Vec<Expr>,
    pub(super) facts: Facts,
}

impl Side {
    /// An access as it stands.
    pub(super) fn of(site: &Site) -> Side {
        Side { index: site.index.clone(), facts: site.facts.clone() }
    }
}

/// What the same element implies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Same {
    /// There is no element that both touch.
    Never,
    /// Then all variables asked about are equal.
    Equal,
    /// This variable may differ.
    Differs(VarId),
}

/// Whether every one of `asked` is equal on both sides when `p` and `q` touch the same element. `fixed` variables have
/// one value for both sides. Variables from `fresh` on are free for use.
pub(super) fn same_element(p: &Side, q: &Side, asked: &[VarId], fixed: &BTreeSet<VarId>, fresh: u32) -> Same {
    if let Ok(same) = solve(p, q, asked, fixed) {
        return same;
    }
    if kept_out(p, q) || kept_out(q, p) {
        return Same::Never;
    }
    let (mut left, mut right) = (p.clone(), q.clone());
    let mut parts = [(&mut left.index, &mut left.facts), (&mut right.index, &mut right.facts)];
    let steps = mixed_radix::number_form(&mut parts, fresh, &BTreeSet::new());
    let (mut digits, mut all_fixed) = (asked.to_vec(), fixed.clone());
    let mut origin: BTreeMap<VarId, VarId> = BTreeMap::new();
    for step in &steps {
        match step {
            // A number is equal when all its digits are, and only then.
            Step::Apart(d) => {
                if all_fixed.contains(&d.whole) {
                    all_fixed.extend([d.quotient, d.remainder]);
                }
                if let Some(i) = digits.iter().position(|v| *v == d.whole) {
                    digits.splice(i..=i, [d.quotient, d.remainder]);
                }
                let whole = origin.get(&d.whole).copied().unwrap_or(d.whole);
                origin.extend([(d.quotient, whole), (d.remainder, whole)]);
            }
            Step::Together { whole, parts } => {
                if parts.iter().all(|v| all_fixed.contains(v)) {
                    all_fixed.insert(*whole);
                }
                if let Some(i) = digits.iter().position(|v| parts.contains(v)) {
                    let first = digits[i];
                    digits.retain(|v| !parts.contains(v));
                    digits.push(*whole);
                    origin.insert(*whole, origin.get(&first).copied().unwrap_or(first));
                }
            }
        }
    }
    let unknown = match solve(&left, &right, &digits, &all_fixed) {
        Ok(same) => return same,
        Err(v) => origin.get(&v).copied().unwrap_or(v),
    };
    // Values are tried where all variables are as they were, or only taken apart: what was put together may differ although
    // what is asked about does not.
    let (mut left, mut right) = (p.clone(), q.clone());
    let mut parts = [(&mut left.index, &mut left.facts), (&mut right.index, &mut right.facts)];
    let apart = mixed_radix::take_apart(&mut parts, fresh);
    let (mut digits, mut fixed) = (asked.to_vec(), fixed.clone());
    for d in &apart {
        if fixed.contains(&d.whole) {
            fixed.extend([d.quotient, d.remainder]);
        }
        if let Some(i) = digits.iter().position(|v| *v == d.whole) {
            digits.splice(i..=i, [d.quotient, d.remainder]);
        }
    }
    let found = match solve(&left, &right, &digits, &fixed) {
        Ok(same) => same,
        Err(v) => search(&left, &right, &digits, &fixed).unwrap_or(Same::Differs(v)),
    };
    match found {
        Same::Differs(v) => {
            let whole =
                apart.iter().rev().fold(v, |v, d| if [d.quotient, d.remainder].contains(&v) { d.whole } else { v });
            Same::Differs(if asked.contains(&whole) { whole } else { unknown })
        }
        same => same,
    }
}

/// Whether a condition keeps the indices of `p` off the one place that `q` has along a dimension, as behind the last of rows.
fn kept_out(p: &Side, q: &Side) -> bool {
    let mut facts = None;
    p.index.iter().zip(&q.index).any(|(x, y)| {
        let Some((y, _)) = bounds(y, &q.facts.ranges).filter(|(lo, hi)| lo == hi) else { return false };
        let Some((lo, hi)) = bounds(x, &p.facts.ranges) else { return false };
        if lo == hi || p.facts.guards.is_empty() {
            return false;
        }
        let facts = facts.get_or_insert_with(|| p.facts.noted());
        facts.proves_at_most_zero(&(x.clone() - y + 1)) || facts.proves_at_most_zero(&(Expr::Int(y) - x.clone() + 1))
    })
}

/// What follows without trying values; otherwise a variable of those asked about that may differ.
fn solve(p: &Side, q: &Side, asked: &[VarId], fixed: &BTreeSet<VarId>) -> Result<Same, VarId> {
    let mut s = Solver { p, q, fixed, equal: BTreeSet::new(), atoms: vec![] };
    if s.solve() {
        return Ok(Same::Never);
    }
    let single = |r: &Ranges, v: VarId| r.get(v).and_then(|(lo, hi)| (lo == hi).then_some(lo));
    let known = |v: &VarId| {
        s.equal.contains(v)
            || single(&p.facts.ranges, *v).is_some_and(|x| single(&q.facts.ranges, *v) == Some(x))
            || fixed.contains(v)
    };
    asked.iter().find(|v| !known(v)).map_or(Ok(Same::Equal), |v| Err(*v))
}

struct Solver<'a> {
    p: &'a Side,
    q: &'a Side,
    fixed: &'a BTreeSet<VarId>,
    equal: BTreeSet<VarId>,
    /// Expressions known to be equal that are not variables.
    atoms: Vec<Expr>,
}

impl Solver<'_> {
    /// Collects what must be equal; true when the sides never meet.
    fn solve(&mut self) -> bool {
        let sums: Vec<(Sum, Sum)> = self
            .p
            .index
            .iter()
            .zip(&self.q.index)
            .map(|(x, y)| (Sum::of(simplify(x, &self.p.facts.ranges)), Sum::of(simplify(y, &self.q.facts.ranges))))
            .collect();
        // What one dimension tells may help another.
        loop {
            let known = (self.equal.len(), self.atoms.len());
            for (x, y) in &sums {
                if self.take_apart(x, y) {
                    return true;
                }
            }
            self.combine();
            if known == (self.equal.len(), self.atoms.len()) {
                return false;
            }
        }
    }

    /// Whether an expression has one value on both sides.
    fn is_common(&self, e: &Expr) -> bool {
        if self.atoms.contains(e) {
            return true;
        }
        let mut common = true;
        e.walk(&mut |e| match e {
            Expr::Var(v) => common &= self.fixed.contains(v) || self.equal.contains(v),
            Expr::Load(..) => common = false,
            _ => {}
        });
        common
    }

    /// The range of `low(p) - low(q)`, where common terms cancel.
    fn difference(&self, x: &[(Expr, i64)], y: &[(Expr, i64)], constant: i64) -> Option<(i64, i64)> {
        let (mut lo, mut hi) = (constant, constant);
        let mut add = |range: (i64, i64), c: i64| -> Option<()> {
            let (a, b) = (range.0.checked_mul(c)?, range.1.checked_mul(c)?);
            lo = lo.checked_add(a.min(b))?;
            hi = hi.checked_add(a.max(b))?;
            Some(())
        };
        let coefficient = |terms: &[(Expr, i64)], e: &Expr| terms.iter().find(|(a, _)| a == e).map_or(0, |(_, c)| *c);
        for (atom, c) in x {
            let c = if self.is_common(atom) { c.checked_sub(coefficient(y, atom))? } else { *c };
            if c != 0 {
                add(bounds(atom, &self.p.facts.ranges)?, c)?;
            }
        }
        for (atom, c) in y {
            // A common atom that both have was dealt with on the left.
            let c = if self.is_common(atom) && coefficient(x, atom) != 0 { 0 } else { c.checked_neg()? };
            if c != 0 {
                add(bounds(atom, &self.q.facts.ranges)?, c)?;
            }
        }
        Some((lo, hi))
    }

    /// Notes what follows from `x = y`; true when that is impossible.
    fn take_apart(&mut self, x: &Sum, y: &Sum) -> bool {
        let Some(constant) = x.constant.checked_sub(y.constant) else { return false };
        let (mut x, mut y) = (x.terms.clone(), y.terms.clone());
        loop {
            match self.difference(&x, &y, constant) {
                Some((lo, hi)) if lo > 0 || hi < 0 => return true,
                _ => {}
            }
            // Terms that both sides have with one coefficient and that may differ, largest first.
            let mut digits: Vec<(Expr, i64)> =
                x.iter().filter(|t| y.contains(t) && !self.is_common(&t.0)).cloned().collect();
            digits.sort_by_key(|(_, c)| std::cmp::Reverse(c.unsigned_abs()));
            let split = (1..=digits.len()).find(|n| {
                let high = &digits[..*n];
                let low = |terms: &[(Expr, i64)]| -> Vec<(Expr, i64)> {
                    terms.iter().filter(|t| !high.contains(t)).cloned().collect()
                };
                let unit = high.iter().fold(0, |g, (_, c)| gcd(g, *c));
                self.difference(&low(&x), &low(&y), constant).is_some_and(|(lo, hi)| lo > -unit && hi < unit)
            });
            let Some(n) = split else { return false };
            let high = &digits[..n];
            if let [(atom, _)] = high {
                self.learn(atom);
            }
            // The digits are equal, so what remains must be equal too.
            x.retain(|t| !high.contains(t));
            y.retain(|t| !high.contains(t));
            if x.is_empty() && y.is_empty() {
                return false;
            }
        }
    }

    fn learn(&mut self, atom: &Expr) {
        match atom {
            Expr::Var(v) => {
                self.equal.insert(*v);
            }
            other => {
                if !self.atoms.contains(other) {
                    self.atoms.push(other.clone());
                }
            }
        }
    }

    /// From `x / c` and `x % c` follows `x`.
    fn combine(&mut self) {
        let remainders: Vec<(Expr, i64)> = self
            .atoms
            .iter()
            .filter_map(|a| match a {
                Expr::Binary(BinOp::Mod, x, c) => Some(((**x).clone(), c.as_int()?)),
                _ => None,
            })
            .collect();
        for (x, c) in remainders {
            // The quotient must mean the same under the ranges of both sides.
            let [quotient, other] = [self.p, self.q].map(|s| simplify(&x.clone().floor_div(c), &s.facts.ranges));
            let whole = quotient == other && Sum::of(quotient).terms.iter().all(|(a, _)| self.is_common(a));
            if whole && !self.is_common(&x) {
                self.learn(&x);
                let [left, right] = [self.p, self.q].map(|s| Sum::of(simplify(&x, &s.facts.ranges)));
                self.take_apart(&left, &right);
            }
        }
    }
}

/// Decides by trying all values, one group of dimensions with common variables at a time. `None` over the budget.
fn search(p: &Side, q: &Side, asked: &[VarId], fixed: &BTreeSet<VarId>) -> Option<Same> {
    let mut undecided: Vec<VarId> = asked.to_vec();
    for dims in groups(p, q) {
        // An element of the group's dimensions, with the fixed variables, to the values of those asked about.
        let mut left: BTreeMap<Vec<i64>, Owner> = BTreeMap::new();
        let wanted: Vec<VarId> = undecided.clone();
        let mut failed = vec![false; wanted.len()];
        let mut meets = false;
        let fixed_here = fixed_variables(p, q, &dims, fixed)?;
        visit(p, &dims, &wanted, &fixed_here, |key, owner| {
            left.entry(key).and_modify(|o| o.merge(&owner)).or_insert(owner);
        })?;
        visit(q, &dims, &wanted, &fixed_here, |key, owner| {
            if let Some(other) = left.get(&key) {
                meets = true;
                for (i, f) in failed.iter_mut().enumerate() {
                    *f |= match (other.0[i], owner.0[i]) {
                        (Some(a), Some(b)) => a != b,
                        _ => true,
                    };
                }
            }
        })?;
        if !meets {
            return Some(Same::Never);
        }
        undecided = wanted.iter().zip(&failed).filter(|(_, f)| **f).map(|(v, _)| *v).collect();
    }
    let single = |v: &VarId| matches!((p.facts.ranges.get(*v), q.facts.ranges.get(*v)), (Some((a, b)), Some((c, d))) if a == b && c == d && a == c);
    match undecided.iter().find(|v| !single(v)) {
        None => Some(Same::Equal),
        Some(v) => Some(Same::Differs(*v)),
    }
}

/// The values of the variables asked about, `None` where there are several or the group does not mention it.
struct Owner(Vec<Option<i64>>);

impl Owner {
    fn merge(&mut self, other: &Owner) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            if *a != *b {
                *a = None;
            }
        }
    }
}

/// Groups of dimensions that share a variable on either side.
fn groups(p: &Side, q: &Side) -> Vec<Vec<usize>> {
    let mut groups: Vec<(BTreeSet<VarId>, Vec<usize>)> = vec![];
    for d in 0..p.index.len() {
        let mut vars = BTreeSet::new();
        for e in [&p.index[d], &q.index[d]] {
            e.walk(&mut |e| {
                if let Expr::Var(v) = e {
                    vars.insert(*v);
                }
            });
        }
        let mut dims = vec![d];
        let (joined, apart) = groups.into_iter().partition(|(v, _): &(BTreeSet<VarId>, _)| !v.is_disjoint(&vars));
        groups = apart;
        let joined: Vec<(BTreeSet<VarId>, Vec<usize>)> = joined;
        for (v, d) in joined {
            vars.extend(v);
            dims.extend(d);
        }
        dims.sort_unstable();
        groups.push((vars, dims));
    }
    groups.into_iter().map(|(_, dims)| dims).collect()
}

/// The fixed variables that either side mentions in these dimensions.
fn fixed_variables(p: &Side, q: &Side, dims: &[usize], fixed: &BTreeSet<VarId>) -> Option<Vec<VarId>> {
    let vars = enumerate::variables(dims.iter().flat_map(|d| [&p.index[*d], &q.index[*d]]))?;
    Some(vars.into_iter().filter(|v| fixed.contains(v)).collect())
}

/// Calls `f` with every element that a side touches in these dimensions. Conditions on its variables alone count.
fn visit(
    side: &Side,
    dims: &[usize],
    wanted: &[VarId],
    fixed: &[VarId],
    mut f: impl FnMut(Vec<i64>, Owner),
) -> Option<()> {
    let exprs: Vec<&Expr> = dims.iter().map(|d| &side.index[*d]).collect();
    let mut vars = enumerate::variables(exprs.iter().copied())?;
    vars.extend(fixed);
    // A condition that mentions more than the indices do is tried with that, where it does not take too long.
    for (guard, _) in &side.facts.guards {
        let Some(more) = enumerate::variables([guard]) else { continue };
        let with: BTreeSet<VarId> = vars.union(&more).copied().collect();
        let small = || enumerate::space(&with, &side.facts.ranges, enumerate::BUDGET / 16).is_some();
        if !more.is_disjoint(&vars) && !more.is_subset(&vars) && small() {
            vars = with;
        }
    }
    let space: Space = enumerate::space(&vars, &side.facts.ranges, enumerate::BUDGET / 4)?;
    let guards: Vec<&(Expr, bool)> = side
        .facts
        .guards
        .iter()
        .filter(|(g, _)| enumerate::variables([g]).is_some_and(|v| v.is_subset(&vars)))
        .collect();
    let outcome = enumerate::for_each(&space, |values| {
        if guards.iter().any(|(g, truth)| enumerate::eval(g, values) != Some(i64::from(*truth))) {
            return ControlFlow::Continue(());
        }
        let mut key: Vec<i64> = fixed.iter().map(|v| values[v.0 as usize]).collect();
        for e in &exprs {
            match enumerate::eval(e, values) {
                Some(i) => key.push(i),
                None => return ControlFlow::Break(()),
            }
        }
        let owner = wanted.iter().map(|v| match side.facts.ranges.get(*v) {
            Some((lo, hi)) if lo == hi => Some(lo),
            _ => vars.contains(v).then(|| values[v.0 as usize]),
        });
        f(key, Owner(owner.collect()));
        ControlFlow::Continue(())
    });
    matches!(outcome, ControlFlow::Continue(())).then_some(())
}
