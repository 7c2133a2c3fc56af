//! Whether one write reaches whatever one read reads, or each element that there is.
//!
//! The loops of the write are unknowns, those that both accesses are in are the same on both sides, and the read's index is
//! given. An index is a sum of unknowns, or of digits of unknowns, with factors that nest (`8 * i + j` with `j` in `0..8`),
//! so each is solved by divisions and remainders. What remains to be shown is that the solution is an iteration of the
//! write's loops, and that the write's conditions hold there. Where several loops count one number, of which the indices are
//! digits, that number is the unknown ([`mixed_radix::number_form`]).

use super::equal::Side;
use super::facts::Facts;
use super::{enumerate, mixed_radix};
use crate::analysis::range::{Ranges, bounds};
use crate::analysis::simplify::{Sum, simplify, truth};
use crate::ir::{BinOp, Expr, UnOp, VarId};
use std::collections::{BTreeMap, BTreeSet};

/// Whether the write has written, in every iteration of the loops in `fixed`, each element that the read reads. The first
/// `held` of its conditions hold where the read is. New variables are numbered from `fresh`.
pub(super) fn reaches(write: &Side, read: &Side, fixed: &BTreeSet<VarId>, held: usize, fresh: u32) -> bool {
    // Most pairs of unrolled statements have other constants.
    if write.index.iter().zip(&read.index).any(|(w, r)| w.as_int().is_some() && r.as_int().is_some() && w != r) {
        return false;
    }
    let guards = &write.facts.guards[held..];
    let Some(vars) = enumerate::variables(write.index.iter().chain(guards.iter().map(|(g, _)| g))) else {
        return false;
    };
    // The unknowns have other values than the read's variables of these names.
    let names: Vec<(VarId, VarId)> =
        vars.into_iter().filter(|v| !fixed.contains(v)).zip((fresh..).map(VarId)).collect();
    let renamed = |e: &Expr| names.iter().fold(e.clone(), |e, (v, new)| e.subst(*v, &Expr::Var(*new)));
    let mut ranges = read.facts.ranges.clone();
    for (v, new) in &names {
        let Some((lo, hi)) = write.facts.ranges.get(*v) else { return false };
        ranges.insert(*new, lo, hi);
    }
    let mut index: Vec<Expr> = write.index.iter().map(renamed).collect();
    let guards = guards.iter().map(|(g, t)| (renamed(g), *t)).collect();
    let mut facts = Facts::of(ranges, guards);
    let unknown = |v: &VarId| v.0 >= fresh;
    if Solver::new(&read.facts, &facts.ranges, &unknown).reaches(&index, &read.index, &facts.guards) {
        return true;
    }
    // Elements that are counted by several loops together are those of one number.
    let kept: BTreeSet<VarId> = facts.ranges.iter().map(|(v, _)| v).filter(|v| !unknown(v)).collect();
    let steps = mixed_radix::number_form(&mut [(&mut index, &mut facts)], fresh + names.len() as u32, &kept);
    // What the conditions say of the read's variables must be so where the read is.
    let narrowed = kept.iter().any(|v| facts.ranges.get(*v) != read.facts.ranges.get(*v));
    !steps.is_empty()
        && !narrowed
        && Solver::new(&read.facts, &facts.ranges, &unknown).reaches(&index, &read.index, &facts.guards)
}

/// Whether the write has written each element of a buffer of this shape when its loops have ended. New variables are numbered
/// from `fresh`.
pub(super) fn covers(write: &Side, shape: &[i64], fresh: u32) -> bool {
    let mut all = Facts::default();
    let mut index = vec![];
    for (var, extent) in (fresh..).map(VarId).zip(shape) {
        all.ranges.insert(var, 0, extent - 1);
        index.push(Expr::Var(var));
    }
    let any = Side { index, facts: all };
    reaches(write, &any, &BTreeSet::new(), 0, fresh + shape.len() as u32)
}

/// A digit of an expression: `value` of it is divided by `unit`, and of that the remainder by `modulus`, if there is one.
struct Digit {
    unit: i64,
    modulus: Option<i64>,
    value: Expr,
}

impl Digit {
    /// This digit of an expression.
    fn of(&self, whole: Expr) -> Expr {
        let quotient = whole.floor_div(self.unit);
        self.modulus.map_or(quotient.clone(), |m| quotient.floor_mod(m))
    }
}

struct Solver<'r> {
    read: &'r Facts,
    /// Of the read's variables and of the unknowns.
    ranges: Ranges,
    unknown: BTreeMap<VarId, (i64, i64)>,
    found: BTreeMap<VarId, Expr>,
    /// Digits that were found of expressions of unknowns.
    digits: Vec<(Expr, Vec<Digit>)>,
    /// What was found of remainders, with what each is below.
    remainders: Vec<(Expr, i64)>,
}

impl<'r> Solver<'r> {
    fn new(read: &'r Facts, ranges: &Ranges, unknown: &dyn Fn(&VarId) -> bool) -> Solver<'r> {
        let unknown = ranges.iter().filter(|(v, _)| unknown(v)).collect();
        Solver { read, ranges: ranges.clone(), unknown, found: BTreeMap::new(), digits: vec![], remainders: vec![] }
    }

    /// Whether there is a solution for the read's index, in an iteration in which the conditions hold.
    fn reaches(mut self, index: &[Expr], value: &[Expr], guards: &[(Expr, bool)]) -> bool {
        let equations = index.iter().cloned().zip(value.iter().cloned()).collect();
        self.solve(equations).is_some() && self.allowed(guards)
    }

    fn solve(&mut self, mut equations: Vec<(Expr, Expr)>) -> Option<()> {
        // Each round finds an unknown or leaves an equation of fewer of them.
        for _ in 0..16 {
            equations.sort_by_key(|(e, _)| self.unknowns(e));
            for (index, value) in std::mem::take(&mut equations) {
                self.equation(&index, &value)?;
            }
            for (whole, digits) in std::mem::take(&mut self.digits) {
                match whole {
                    // Another equation has said what it is: these have to hold for that.
                    Expr::Var(v) if self.found.contains_key(&v) => {
                        equations.extend(digits.into_iter().map(|d| (d.of(whole.clone()), d.value)));
                    }
                    Expr::Var(v) => drop(self.found.insert(v, put_together(digits)?)),
                    sum => equations.push((sum, put_together(digits)?)),
                }
            }
            if equations.is_empty() {
                return Some(());
            }
        }
        None
    }

    fn unknowns(&self, e: &Expr) -> usize {
        let mut n = 0;
        e.walk(&mut |e| n += usize::from(matches!(e, Expr::Var(v) if self.unknown.contains_key(v))));
        n
    }

    /// The expression with what has been found. All digits of a number are that number again.
    fn known(&self, e: &Expr) -> Expr {
        let e = self.found.iter().fold(e.clone(), |e, (v, by)| e.subst(*v, by));
        simplify(&mixed_radix::merged(&simplify(&e, &self.ranges)), &self.ranges)
    }

    /// Solves `index = value`.
    fn equation(&mut self, index: &Expr, value: &Expr) -> Option<()> {
        let sum = Sum::of(self.known(index));
        let (mut own, mut rest) = (vec![], Expr::Int(sum.constant));
        for (atom, factor) in sum.terms {
            match self.unknowns(&atom) {
                0 => rest = rest + atom * factor,
                _ => own.push((atom, factor)),
            }
        }
        if own.iter().all(|(_, factor)| *factor < 0) {
            own.iter_mut().for_each(|(_, factor)| *factor = -*factor);
            rest = rest - value.clone();
        } else {
            rest = value.clone() - rest;
        }
        if own.is_empty() {
            return (simplify(&rest, &self.ranges) == Expr::Int(0)).then_some(());
        }
        own.sort_by_key(|(_, factor)| std::cmp::Reverse(*factor));
        // Counted from their least values.
        let mut first = vec![];
        for (atom, factor) in &own {
            let (lo, hi) = bounds(atom, &self.ranges)?;
            if *factor < 1 {
                return None;
            }
            rest = rest - lo.checked_mul(*factor)?;
            first.push((lo, hi.checked_sub(lo)?.checked_add(1)?));
        }
        let rest = simplify(&rest, &self.ranges);
        let smallest = own.last()?.1;
        if smallest > 1 && simplify(&rest.clone().floor_mod(smallest), &self.ranges) != Expr::Int(0) {
            return None;
        }
        let mut above = None;
        for ((atom, factor), (lo, values)) in own.into_iter().zip(first) {
            let digit = match above {
                None => rest.clone(),
                Some(above) if above % factor == 0 && values >= above / factor => rest.clone().floor_mod(above),
                Some(_) => return None,
            };
            above = Some(factor);
            let digit = if factor == 1 { digit } else { digit.floor_div(factor) };
            self.found(atom, simplify(&(digit + lo), &self.ranges))?;
        }
        Some(())
    }

    /// A term has this value.
    fn found(&mut self, atom: Expr, value: Expr) -> Option<()> {
        let (whole, unit, modulus) = match atom {
            Expr::Var(v) => {
                // The same unknown twice in one sum would have been one term.
                self.found.insert(v, value);
                return Some(());
            }
            Expr::Binary(BinOp::Div, e, c) => (*e, c.as_int().filter(|c| *c > 0)?, None),
            Expr::Binary(BinOp::Mod, e, c) => match (*e, c.as_int().filter(|c| *c > 0)?) {
                (Expr::Binary(BinOp::Div, e, d), c) => (*e, d.as_int().filter(|d| *d > 0)?, Some(c)),
                (e, c) => (e, 1, Some(c)),
            },
            _ => return None,
        };
        self.remainders.extend(modulus.map(|m| (value.clone(), m)));
        let digit = Digit { unit, modulus, value };
        match self.digits.iter_mut().find(|(e, _)| *e == whole) {
            Some((_, digits)) => digits.push(digit),
            None => self.digits.push((whole, vec![digit])),
        }
        Some(())
    }

    /// Whether what was found is an iteration of the write, and its conditions hold there.
    fn allowed(&mut self, guards: &[(Expr, bool)]) -> bool {
        for (v, (lo, hi)) in &self.unknown {
            let Some(value) = self.found.get(v) else { continue };
            let value = simplify(value, &self.read.ranges);
            if !self.read.proves_at_most_zero(&(Expr::Int(*lo) - value.clone()))
                || !self.read.proves_at_most_zero(&(value - *hi))
            {
                return false;
            }
        }
        // No iteration has a remainder that is not one.
        for (value, modulus) in &self.remainders {
            let value = self.known(value);
            if !self.read.proves_at_most_zero(&(Expr::Int(0) - value.clone()))
                || !self.read.proves_at_most_zero(&(value - (modulus - 1)))
            {
                return false;
            }
        }
        // What the index leaves open may be any iteration: the first.
        for (v, (lo, _)) in &self.unknown {
            self.found.entry(*v).or_insert(Expr::Int(*lo));
        }
        // Solutions may be in terms of others.
        let known = |e: &Expr| {
            let mut e = e.clone();
            for _ in 0..4 {
                e = self.known(&e);
                if self.unknowns(&e) == 0 {
                    break;
                }
            }
            e
        };
        guards.iter().all(|(g, t)| {
            let g = known(g);
            self.unknowns(&g) == 0 && holds(self.read, &g, *t)
        })
    }
}

/// The number with these digits; those in between are zero.
fn put_together(mut digits: Vec<Digit>) -> Option<Expr> {
    digits.sort_by_key(|d| d.unit);
    for pair in digits.windows(2) {
        let [low, high] = pair else { return None };
        let beyond = low.unit.checked_mul(low.modulus?)?;
        if high.unit % beyond != 0 {
            return None;
        }
    }
    digits.into_iter().map(|d| d.value * d.unit).reduce(|a, b| a + b)
}

/// Whether a condition has this value wherever the facts hold.
pub(super) fn holds(facts: &Facts, cond: &Expr, value: bool) -> bool {
    let cond = simplify(cond, &facts.ranges);
    if truth(&cond) == Some(value) {
        return true;
    }
    let at_most = |a: &Expr, b: &Expr, plus: i64| facts.proves_at_most_zero(&(a.clone() - b.clone() + plus));
    let shown = match (&cond, value) {
        (Expr::Binary(BinOp::And, a, b), true) | (Expr::Binary(BinOp::Or, a, b), false) => {
            holds(facts, a, value) && holds(facts, b, value)
        }
        (Expr::Binary(BinOp::And, a, b), false) | (Expr::Binary(BinOp::Or, a, b), true) => {
            holds(facts, a, value) || holds(facts, b, value)
        }
        (Expr::Unary(UnOp::Not, a), _) => holds(facts, a, !value),
        (Expr::Binary(BinOp::Lt, a, b), true) => at_most(a, b, 1),
        (Expr::Binary(BinOp::Lt, a, b), false) => at_most(b, a, 0),
        (Expr::Binary(BinOp::Le, a, b), true) => at_most(a, b, 0),
        (Expr::Binary(BinOp::Le, a, b), false) => at_most(b, a, 1),
        (Expr::Binary(BinOp::Eq, a, b), true) | (Expr::Binary(BinOp::Ne, a, b), false) => {
            at_most(a, b, 0) && at_most(b, a, 0)
        }
        (Expr::Binary(BinOp::Ne, a, b), true) | (Expr::Binary(BinOp::Eq, a, b), false) => {
            at_most(a, b, 1) || at_most(b, a, 1)
        }
        _ => false,
    };
    shown || facts.guards.iter().any(|(g, t)| *t == value && (*g == cond || simplify(g, &facts.ranges) == cond))
}
