//! What is known at a place in the kernel: ranges of variables and conditions that hold there.

use crate::analysis::range::{Ranges, bounds};
use crate::analysis::simplify::{Sum, prove, simplify};
use crate::ir::{BinOp, Expr, UnOp, VarId};

/// Ranges and inequalities that hold at a place. All expressions are scalar and free of integer `let`s.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Facts {
    pub(super) ranges: Ranges,
    /// Each is at most 0.
    at_most_zero: Vec<Expr>,
    /// The conditions as they stand, with the value they have.
    pub(super) guards: Vec<(Expr, bool)>,
}

impl Facts {
    /// Ranges and conditions that hold with them, as [`substituted`](Facts::substituted) leaves them.
    pub(super) fn of(ranges: Ranges, guards: Vec<(Expr, bool)>) -> Facts {
        Facts { ranges, at_most_zero: vec![], guards }
    }

    /// Adds that `cond` has the value `truth`.
    pub(super) fn assume(&mut self, cond: &Expr, truth: bool) {
        self.guard(cond, truth);
        self.narrow(cond, truth);
        self.note(cond, truth);
        self.settle();
    }

    /// Keeps a condition, its parts one by one where all of them hold: a part about few variables can then be tried out.
    fn guard(&mut self, cond: &Expr, truth: bool) {
        match (cond, truth) {
            (Expr::Binary(BinOp::And, a, b), true) | (Expr::Binary(BinOp::Or, a, b), false) => {
                self.guard(a, truth);
                self.guard(b, truth);
            }
            _ => self.guards.push((cond.clone(), truth)),
        }
    }

    /// Tightens ranges by all conditions until nothing changes.
    pub(super) fn settle(&mut self) {
        // A condition can decide a part of an earlier one, and so the rest of that one.
        for _ in 0..self.guards.len().min(4) {
            let before = self.ranges.clone();
            for (cond, truth) in self.guards.clone() {
                self.narrow(&cond, truth);
            }
            if before == self.ranges {
                break;
            }
        }
    }

    /// Tightens ranges also by inequalities about what is no variable, as a remainder is: of `190 <= 180 x + y % 193 < 192` that `x`
    /// is 0 or 1, and nothing of `y`.
    pub(super) fn settle_beside_atoms(&mut self) {
        for _ in 0..2 {
            for e in self.at_most_zero.clone() {
                let sum = Sum::of(e);
                if sum.terms.iter().any(|(atom, _)| !matches!(atom, Expr::Var(_))) {
                    self.ranges.assume_at_most_zero(&sum.terms, sum.constant.into());
                }
            }
        }
    }

    /// Tightens ranges by a condition. Of `a || b` one side holds when the other cannot.
    fn narrow(&mut self, cond: &Expr, truth: bool) {
        match (cond, truth) {
            (Expr::Binary(BinOp::And, a, b), false) | (Expr::Binary(BinOp::Or, a, b), true) => {
                if prove(a, &self.ranges) == Some(!truth) {
                    self.narrow(b, truth);
                    self.note(b, truth);
                } else if prove(b, &self.ranges) == Some(!truth) {
                    self.narrow(a, truth);
                    self.note(a, truth);
                }
            }
            _ => self.ranges.assume(cond, truth),
        }
    }

    /// The same with another expression for a variable, whose own range is given up. Only ranges and conditions are
    /// kept, which is what comparing two places needs.
    pub(super) fn substituted(&self, var: VarId, by: &Expr) -> Facts {
        let mut ranges = self.ranges.clone();
        ranges.remove(var);
        let guards = self.guards.iter().map(|(g, t)| (g.clone().subst(var, by), *t)).collect();
        Facts::of(ranges, guards)
    }

    /// The same with the inequalities of all conditions, which [`substituted`](Facts::substituted) leaves out.
    pub(super) fn noted(&self) -> Facts {
        let mut out = self.clone();
        self.guards.iter().for_each(|(cond, truth)| out.note(cond, *truth));
        out
    }

    /// Collects the inequalities of a condition.
    fn note(&mut self, cond: &Expr, truth: bool) {
        let mut le = |a: &Expr, b: &Expr, plus: i64| {
            let e = a.clone() - b.clone() + plus;
            if !self.at_most_zero.contains(&e) {
                self.at_most_zero.push(e);
            }
        };
        match (cond, truth) {
            (Expr::Binary(BinOp::And, a, b), true) | (Expr::Binary(BinOp::Or, a, b), false) => {
                self.note(a, truth);
                self.note(b, truth);
            }
            (Expr::Unary(UnOp::Not, a), t) => self.note(a, !t),
            (Expr::Binary(BinOp::Lt, a, b), true) => le(a, b, 1),
            (Expr::Binary(BinOp::Lt, a, b), false) => le(b, a, 0),
            (Expr::Binary(BinOp::Le, a, b), true) => le(a, b, 0),
            (Expr::Binary(BinOp::Le, a, b), false) => le(b, a, 1),
            (Expr::Binary(BinOp::Eq, a, b), true) | (Expr::Binary(BinOp::Ne, a, b), false) => {
                le(a, b, 0);
                le(b, a, 0);
            }
            _ => {}
        }
    }

    /// Whether `e <= 0` follows: by its range, or because a known inequality, scaled so that a common term cancels,
    /// leaves a difference that is never positive.
    pub(super) fn proves_at_most_zero(&self, e: &Expr) -> bool {
        let never_positive = |e: &Expr| bounds(e, &self.ranges).is_some_and(|(_, hi)| hi <= 0);
        // Most indices are linear, and need no rewriting.
        if never_positive(e) {
            return true;
        }
        let goal = simplify(e, &self.ranges);
        if never_positive(&goal) {
            return true;
        }
        let terms = Sum::of(goal.clone()).terms;
        let less = |goal: &Expr, fact: &Expr, k: i64| simplify(&(goal.clone() - fact.clone() * k), &self.ranges);
        // A vector of four that begins at a multiple of four below a multiple of four ends below it, too.
        let tightened = |fact: &Expr| Sum::of(simplify(fact, &self.ranges)).tightened().to_expr();
        let mut facts: Vec<Expr> = self.at_most_zero.iter().map(tightened).collect();
        facts.extend(facts.iter().filter_map(undivided).collect::<Vec<_>>());
        let few = facts.len() <= 8;
        if few {
            let parts: Vec<Expr> = facts.iter().flat_map(|f| self.without_small_terms(f)).collect();
            facts.extend(parts);
        }
        let scaled = |goal: &Expr, terms: &[(Expr, i64)]| {
            let mut out = vec![];
            for f in &facts {
                let shared = Sum::of(f.clone());
                let mut factors: Vec<i64> = shared
                    .terms
                    .iter()
                    .filter_map(|(atom, c)| {
                        let (_, k) = terms.iter().find(|(a, _)| a == atom)?;
                        (k.checked_rem(*c) == Some(0) && k / c > 0).then_some(k / c)
                    })
                    .collect();
                factors.sort_unstable();
                factors.dedup();
                out.extend(factors.into_iter().map(|k| less(goal, f, k)));
            }
            out
        };
        let once = scaled(&goal, &terms);
        if once.iter().any(never_positive) {
            return true;
        }
        // Two conditions together, where there are few.
        let twice = || once.iter().take(16).any(|g| scaled(g, &Sum::of(g.clone()).terms).iter().any(never_positive));
        let below = |sum: &Expr| self.highest(sum, &facts).is_some_and(|hi| hi <= 0);
        below(&goal) || few && twice() || joined(&goal).iter().any(below)
    }

    /// What an inequality says of its large terms: of `16 x + 4 y + z <= 35` with `z` from 0 on that `4 x + y <= 8`.
    fn without_small_terms(&self, fact: &Expr) -> Vec<Expr> {
        let sum = Sum::of(fact.clone());
        let mut units: Vec<i64> = sum.terms.iter().map(|(_, k)| k.saturating_abs()).filter(|k| *k > 1).collect();
        units.sort_unstable();
        units.dedup();
        let part = |unit: i64| {
            let (large, small): (Vec<_>, Vec<_>) = sum.terms.iter().cloned().partition(|(_, k)| k % unit == 0);
            let least = small.iter().try_fold(sum.constant, |least, (atom, k)| {
                let (lo, hi) = bounds(atom, &self.ranges)?;
                least.checked_add(k.checked_mul(if *k > 0 { lo } else { hi })?)
            })?;
            let most = least.checked_neg()?.div_euclid(unit);
            let terms = large.into_iter().map(|(atom, k)| (atom, k / unit)).collect();
            (!small.is_empty()).then(|| Sum { terms, constant: most.saturating_neg() }.to_expr())
        };
        units.into_iter().filter_map(part).collect()
    }

    /// An upper bound of a sum, in which `facts`, each at most 0, also bound what is divided: a thread that copies the
    /// `i`-th element of a tile has `i < n` for a guard, and `i / k` as an index.
    fn highest(&self, sum: &Expr, facts: &[Expr]) -> Option<i64> {
        let sum = Sum::of(sum.clone());
        let mut highest = sum.constant;
        for (atom, factor) in &sum.terms {
            let (lo, mut hi) = bounds(atom, &self.ranges)?;
            if let (Expr::Binary(BinOp::Div, dividend, divisor), true) = (atom, *factor > 0)
                && let Some(divisor @ 1..) = divisor.as_int()
            {
                // The dividend is `fact + rest`, and so at most `rest`.
                let rests = facts.iter().map(|fact| simplify(&((**dividend).clone() - fact.clone()), &self.ranges));
                let most = rests.filter_map(|rest| bounds(&rest, &self.ranges)).map(|(_, hi)| hi.div_euclid(divisor));
                // Or a sum in which something is divided itself: `(i / k * 16 + j) / m`.
                let nested = self.highest(dividend, facts).map(|hi| hi.div_euclid(divisor));
                hi = most.chain(nested).fold(hi, i64::min);
            }
            highest = highest.checked_add(factor.checked_mul(if *factor > 0 { hi } else { lo })?)?;
        }
        Some(highest)
    }
}

/// A sum with what stands beside a quotient taken into it: `16 g + x / 5 * 16` as `(5 g + x) / 5 * 16`, of which a condition
/// on `5 g + x` says more than the ranges of its two terms. One form for each quotient that has such company.
fn joined(sum: &Expr) -> Vec<Expr> {
    let sum = Sum::of(sum.clone());
    let mut out = vec![];
    for (i, (atom, factor)) in sum.terms.iter().enumerate() {
        let Expr::Binary(BinOp::Div, dividend, by) = atom else { continue };
        let Some(divisor @ 1..) = by.as_int() else { continue };
        let others = sum.terms.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, term)| term.clone());
        let (inside, outside): (Vec<_>, Vec<_>) = others.partition(|(_, k)| k.checked_rem(*factor) == Some(0));
        let whole = inside.iter().try_fold((**dividend).clone(), |whole, (other, k)| {
            Some(whole + other.clone() * (k / factor).checked_mul(divisor)?)
        });
        if let (Some(whole), false) = (whole, inside.is_empty()) {
            let mut terms = outside;
            terms.push((Expr::bin(BinOp::Div, whole, Expr::Int(divisor)), *factor));
            out.push(Sum { terms, constant: sum.constant }.to_expr());
        }
    }
    out
}

/// What an inequality of a quotient alone says of what is divided: of `x / 8 < 3` that `x < 24`.
fn undivided(fact: &Expr) -> Option<Expr> {
    let sum = Sum::of(fact.clone());
    let [(Expr::Binary(BinOp::Div, dividend, divisor), factor @ 1..)] = &sum.terms[..] else { return None };
    let divisor = divisor.as_int().filter(|d| *d > 0)?;
    let most = sum.constant.checked_neg()?.div_euclid(*factor);
    let most = most.checked_mul(divisor)?.checked_add(divisor - 1)?;
    Some((**dividend).clone() - most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 16 times 8 threads copy 360 elements, 3 each, of 64 channels in pairs of 18 rows of 10.
    #[test]
    fn a_guard_of_the_dividend_bounds_the_quotient() {
        let [outer, z, x, i] = [0, 1, 2, 3].map(VarId);
        let mut facts = Facts::default();
        for (var, last) in [(outer, 31), (z, 15), (x, 7), (i, 2)] {
            facts.ranges.insert(var, 0, last);
        }
        let element = Expr::Var(z) * 23 + Expr::Var(x) * 3 + Expr::Var(i);
        let channel = Expr::Var(outer) * 2 + Expr::bin(BinOp::Div, element.clone(), Expr::Int(180));
        let over = |extent: i64| channel.clone() - (extent - 1);
        assert!(!facts.proves_at_most_zero(&over(64)), "there are 369 elements without the guard");
        facts.assume(&element.lt(Expr::Int(360)), true);
        assert!(facts.proves_at_most_zero(&over(64)));
        assert!(!facts.proves_at_most_zero(&over(63)));
    }

    /// Elements of 14 blocks of 16 channels, of which 56 are a group.
    #[test]
    fn a_guard_bounds_what_is_divided_twice() {
        let [block, thread] = [0, 1].map(VarId);
        let mut facts = Facts::default();
        facts.ranges.insert(block, 0, 2798);
        facts.ranges.insert(thread, 0, 127);
        let element = Expr::Var(block) * 128 + Expr::Var(thread);
        let div = |a: Expr, by: i64| Expr::bin(BinOp::Div, a, Expr::Int(by));
        let channel = div(element.clone(), 25584) * 16 + Expr::Var(thread).floor_mod(16);
        let over = |groups: i64| div(channel.clone(), 56) - (groups - 1);
        assert!(!facts.proves_at_most_zero(&over(4)), "channel 224 is there without the guard");
        for (guarded, end) in [(element.clone(), 14 * 25584), (div(element, 25584), 14)] {
            let mut facts = facts.clone();
            facts.assume(&guarded.lt(Expr::Int(end)), true);
            assert!(facts.proves_at_most_zero(&over(4)));
            assert!(!facts.proves_at_most_zero(&over(3)));
        }
    }

    /// Of 24 channels, 8 are a group.
    #[test]
    fn a_guard_of_a_quotient_bounds_another_quotient() {
        let [block, thread] = [0, 1].map(VarId);
        let mut facts = Facts::default();
        facts.ranges.insert(block, 0, 73);
        facts.ranges.insert(thread, 0, 255);
        let element = Expr::Var(block) * 256 + Expr::Var(thread);
        let div = |by: i64| Expr::bin(BinOp::Div, element.clone(), Expr::Int(by));
        facts.assume(&div(784).lt(Expr::Int(24)), true);
        assert!(facts.proves_at_most_zero(&(div(784 * 8) - 2)));
        assert!(!facts.proves_at_most_zero(&(div(784 * 8) - 1)));
    }

    /// Two groups of 40 channels in 8 tiles of 8, of which the last three of a group are the next group's, or nobody's.
    #[test]
    fn a_guard_bounds_a_quotient_with_what_stands_beside_it() {
        let [task, tile, lane] = [0, 1, 2].map(VarId);
        let mut facts = Facts::default();
        for (var, last) in [(task, 855), (tile, 3), (lane, 7)] {
            facts.ranges.insert(var, 0, last);
        }
        let task = |by: i64| Expr::bin(BinOp::Div, Expr::Var(task), Expr::Int(by));
        let (group, part) = (task(428), task(214).floor_mod(2));
        let beyond = Expr::bin(BinOp::Div, part.clone() * 4 + Expr::Var(tile), Expr::Int(5));
        let over = |channels: i64| group.clone() * 16 + beyond.clone() * 16 - (channels - 16);
        assert!(!facts.proves_at_most_zero(&over(32)), "tiles of the second group are beyond it without the guard");
        let channel = group.clone() * 40 + part * 32 + Expr::Var(tile) * 8 + Expr::Var(lane);
        facts.assume(&channel.lt(Expr::Int(80)), true);
        assert!(facts.proves_at_most_zero(&over(32)));
        assert!(!facts.proves_at_most_zero(&over(31)));
    }

    #[test]
    fn a_guard_bounds_a_variable_beside_a_remainder() {
        let [x, y] = [VarId(0), VarId(1)];
        let mut facts = Facts::default();
        facts.ranges.insert(x, 0, 1276);
        facts.ranges.insert(y, 0, 5000);
        let place = || Expr::Var(x) * 180 + Expr::Var(y).floor_mod(193);
        facts.assume(&Expr::Int(229_636).le(place()), true);
        facts.assume(&place().lt(229_638), true);
        let index = || Expr::Var(y).floor_mod(193) - 136;
        let inside = |facts: &Facts| {
            let facts = facts.noted();
            facts.proves_at_most_zero(&(Expr::Int(0) - index())) && facts.proves_at_most_zero(&(index() - 1))
        };
        facts.settle_beside_atoms();
        assert_eq!(facts.ranges.get(x), Some((1275, 1275)));
        assert!(inside(&facts));
        assert_eq!(facts.ranges.get(y), Some((0, 5000)));
    }

    /// Blocks of 64 columns of 4000, of which a thread copies four at a time: too many to try them all.
    #[test]
    fn a_guard_of_the_first_of_four_holds_for_all() {
        let [block, thread, i] = [0, 1, 2].map(VarId);
        let first = Expr::Var(block) * 64 + Expr::Var(thread) * 4;
        let guarded = |end: i64| {
            let mut facts = Facts::default();
            for (var, last) in [(block, 1 << 20), (thread, 15), (i, 3)] {
                facts.ranges.insert(var, 0, last);
            }
            facts.assume(&first.clone().lt(Expr::Int(end)), true);
            facts
        };
        let over = |extent: i64| first.clone() + Expr::Var(i) - (extent - 1);
        assert!(guarded(4000).proves_at_most_zero(&over(4000)));
        assert!(!guarded(4000).proves_at_most_zero(&over(3999)));
        assert!(!guarded(3998).proves_at_most_zero(&over(3998)), "3996 is in front of it, and 3999 is not");
    }
}
