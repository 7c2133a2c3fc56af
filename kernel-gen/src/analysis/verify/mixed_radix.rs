//! A fused loop's variable taken apart into the variables it was fused from.
//!
//! Where `f` in `0..e` occurs as `f / c` and `f % c` with `c` a divisor of `e`, it stands for two independent variables
//! `q` in `0..e / c` and `r` in `0..c` with `f = c * q + r`. Said with those, dimensions that share only `f` have nothing
//! in common any more, and each can be looked at on its own.
//!
//! The other way around, variables that are divided together, `k * i + j` with `j` in `0..k`, are first made one: of 32 lanes
//! that share out rows of six pieces, none has a row or a piece of its own. A condition `k * i + j < n` is then one on a single
//! variable, whose quotients and remainders it bounds, whatever divides `n`.

use super::facts::Facts;
use crate::analysis::simplify::{Sum, simplify};
use crate::ir::{BinOp, Expr, VarId};
use std::collections::BTreeSet;

/// An access's indices and what holds there.
pub(super) type Part<'a> = (&'a mut Vec<Expr>, &'a mut Facts);

/// A variable and the two it was taken apart into.
pub(super) struct Digits {
    pub(super) whole: VarId,
    pub(super) quotient: VarId,
    pub(super) remainder: VarId,
}

/// A step on the way to digits.
pub(super) enum Step {
    /// A variable became two.
    Apart(Digits),
    /// Several variables became one.
    Together {
        /// What stands for all of them.
        whole: VarId,
        /// They.
        parts: Vec<VarId>,
    },
}

/// Steps that are taken at most. Each lowers an extent or the number of variables that may still be put together, so this ends by
/// itself; the limit is for extents with many factors.
const MOST_STEPS: usize = 32;

/// Takes variables apart into digits, as [`take_apart`] does, and makes one number of those that are divided together: of
/// `64 * block + 8 * turn + lane < n`, of which the indices are quotients and remainders, no variable has a digit of its own,
/// and the condition bounds none of them. All that is said is true of the new variables exactly when it is of the old ones. New
/// variables are numbered from `fresh`; those in `kept` stay as they are.
pub(super) fn number_form(parts: &mut [Part], fresh: u32, kept: &BTreeSet<VarId>) -> Vec<Step> {
    let mut out = vec![];
    let mut next = fresh;
    // Digits of what was put together stay apart.
    let (mut wholes, mut done): (Vec<VarId>, Vec<VarId>) = (vec![], kept.iter().copied().collect());
    parts.iter_mut().for_each(|(index, facts)| simplify_all(index, facts));
    while out.len() < MOST_STEPS {
        if let Some((whole, c, extent)) = find(parts, kept) {
            let (quotient, remainder) = (VarId(next), VarId(next + 1));
            next += 2;
            for (index, facts) in parts.iter_mut() {
                replace(
                    (index, facts),
                    &[(whole, quotient * c + remainder)],
                    &[(quotient, extent / c), (remainder, c)],
                );
            }
            if wholes.contains(&whole) || done.contains(&whole) {
                done.extend([quotient, remainder]);
            }
            out.push(Step::Apart(Digits { whole, quotient, remainder }));
        } else if let Some(number) = number(parts, &done) {
            let whole = VarId(next);
            next += 1;
            for (index, facts) in parts.iter_mut() {
                number.put_together(whole, (index, facts));
            }
            wholes.push(whole);
            out.push(Step::Together { whole, parts: number.0.iter().map(|d| d.var).collect() });
        } else {
            break;
        }
    }
    out
}

/// A variable with its place in a number.
#[derive(Clone, PartialEq, Debug)]
struct Digit {
    var: VarId,
    /// What it is multiplied by.
    unit: i64,
}

/// Variables that count one number, the last digit first: each fills what lies below the next one's unit.
#[derive(Clone, PartialEq, Debug)]
struct Number(Vec<Digit>);

/// A sum of variables that is divided and that is a number in all accesses.
fn number(parts: &[Part], done: &[VarId]) -> Option<Number> {
    let mut candidates: Vec<Number> = vec![];
    for (index, facts) in parts {
        for e in index.iter().chain(facts.guards.iter().map(|(g, _)| g)) {
            e.walk(&mut |e| {
                if let Expr::Binary(BinOp::Div | BinOp::Mod, dividend, _) = e
                    && let Some(number) = Number::of(dividend)
                    && !candidates.contains(&number)
                {
                    candidates.push(number);
                }
            });
        }
    }
    candidates.into_iter().find(|number| {
        number.0.iter().all(|d| !done.contains(&d.var)) && parts.iter().all(|(_, facts)| number.is_counted(facts))
    })
}

impl Number {
    /// The number that an expression is by its form, whatever the ranges are.
    fn of(e: &Expr) -> Option<Number> {
        let Sum { terms, constant: 0 } = Sum::of(e.clone()) else { return None };
        let digit = |(e, unit): &(Expr, i64)| match e {
            Expr::Var(var) => Some(Digit { var: *var, unit: *unit }),
            _ => None,
        };
        let mut digits = terms.iter().map(digit).collect::<Option<Vec<Digit>>>()?;
        digits.sort_by_key(|d| d.unit);
        (digits.len() > 1 && digits[0].unit == 1).then_some(Number(digits))
    }

    /// Whether each digit takes all values up to the next one's unit.
    fn is_counted(&self, facts: &Facts) -> bool {
        let full = |[low, high]: &[Digit; 2]| {
            let Some((0, last)) = facts.ranges.get(low.var) else { return false };
            low.unit.checked_mul(last + 1) == Some(high.unit)
        };
        let pairs = self.0.iter().zip(&self.0[1..]).all(|(a, b)| full(&[a.clone(), b.clone()]));
        pairs && self.extent(facts).is_some()
    }

    /// How many values it has.
    fn extent(&self, facts: &Facts) -> Option<i64> {
        let top = self.0.last()?;
        let (0, last) = facts.ranges.get(top.var)? else { return None };
        top.unit.checked_mul(last.checked_add(1)?)
    }

    /// Says an access with `whole` in the place of the digits.
    fn put_together(&self, whole: VarId, (index, facts): Part) {
        let Some(extent) = self.extent(facts) else { return };
        let digits = self.0.iter().enumerate().map(|(i, d)| {
            let quotient = Expr::Var(whole).floor_div(d.unit);
            let above = self.0.get(i + 1).map(|high| high.unit / d.unit);
            (d.var, above.map_or(quotient.clone(), |n| quotient.floor_mod(n)))
        });
        let by: Vec<(VarId, Expr)> = digits.collect();
        let ranges = facts.ranges.clone();
        let say = |e: &Expr| self.said(whole, &simplify(e, &ranges));
        index.iter_mut().for_each(|e| *e = say(e));
        facts.guards.iter_mut().for_each(|(guard, _)| *guard = say(guard));
        replace((index, facts), &by, &[(whole, extent)]);
    }

    /// An expression in which sums that hold all digits, each by the same multiple of its unit, hold `whole` instead.
    fn said(&self, whole: VarId, e: &Expr) -> Expr {
        e.clone().map(&mut |e| {
            if !matches!(e, Expr::Binary(BinOp::Add | BinOp::Sub, ..)) {
                return e;
            }
            let mut sum = Sum::of(e.clone());
            let factor = |d: &Digit| {
                let (_, factor) = sum.terms.iter().find(|(atom, _)| *atom == Expr::Var(d.var))?;
                (factor % d.unit == 0).then_some(factor / d.unit)
            };
            let factors: Option<Vec<i64>> = self.0.iter().map(factor).collect();
            match factors {
                Some(factors) if factors.iter().all(|f| *f == factors[0]) => {
                    sum.terms.retain(|(atom, _)| !self.0.iter().any(|d| *atom == Expr::Var(d.var)));
                    sum.terms.push((Expr::Var(whole), factors[0]));
                    sum.to_expr()
                }
                _ => e,
            }
        })
    }
}

/// Says an access with other expressions for some variables, made of new ones that count up from 0 to an extent.
fn replace((index, facts): Part, by: &[(VarId, Expr)], new: &[(VarId, i64)]) {
    for (var, by) in by {
        *facts = facts.substituted(*var, by);
        index.iter_mut().for_each(|e| *e = e.clone().subst(*var, by));
    }
    for (var, extent) in new {
        facts.ranges.insert(*var, 0, extent - 1);
    }
    simplify_all(index, facts);
    // A condition on a digit narrows that digit's range.
    facts.settle();
}

fn simplify_all(index: &mut [Expr], facts: &mut Facts) {
    index.iter_mut().for_each(|e| *e = merged(&simplify(e, &facts.ranges)));
    facts.guards.iter_mut().for_each(|(guard, _)| *guard = merged(&simplify(guard, &facts.ranges)));
}

/// Neighbouring digits of one number as one: `m * (x / (d * m)) + x / d % m` is `x / d`.
pub(super) fn merged(e: &Expr) -> Expr {
    e.clone().map(&mut |e| {
        if !matches!(e, Expr::Binary(BinOp::Add | BinOp::Sub, ..)) {
            return e;
        }
        let mut sum = Sum::of(e.clone());
        let mut changed = false;
        loop {
            let hit = sum.terms.iter().enumerate().find_map(|(i, (atom, k))| {
                let Expr::Binary(BinOp::Mod, low, m) = atom else { return None };
                let m = m.as_int().filter(|m| *m > 0)?;
                let (x, d) = quotient(low);
                let above = (x, d.checked_mul(m)?);
                let j = sum
                    .terms
                    .iter()
                    .position(|(other, factor)| quotient(other) == above && Some(*factor) == k.checked_mul(m))?;
                Some((i, j, (**low).clone(), *k))
            });
            let Some((i, j, low, k)) = hit else { break };
            sum.terms.remove(i.max(j));
            sum.terms.remove(i.min(j));
            match sum.terms.iter_mut().find(|(atom, _)| *atom == low) {
                Some((_, factor)) => *factor += k,
                None => sum.terms.push((low, k)),
            }
            sum.terms.retain(|(_, factor)| *factor != 0);
            changed = true;
        }
        if changed { sum.to_expr() } else { e }
    })
}

/// What is divided, and by what: anything is divided by 1.
fn quotient(e: &Expr) -> (&Expr, i64) {
    match e {
        Expr::Binary(BinOp::Div, x, d) => match d.as_int() {
            Some(d) if d > 0 => (x, d),
            _ => (e, 1),
        },
        _ => (e, 1),
    }
}

/// Takes apart what can be, the same way in all accesses; new variables are numbered from `fresh`.
pub(super) fn take_apart(parts: &mut [Part], fresh: u32) -> Vec<Digits> {
    let mut out: Vec<Digits> = vec![];
    while out.len() < MOST_STEPS {
        let Some((whole, c, extent)) = find(parts, &BTreeSet::new()) else { break };
        let at = fresh + 2 * out.len() as u32;
        let (quotient, remainder) = (VarId(at), VarId(at + 1));
        for (index, facts) in parts.iter_mut() {
            replace((index, facts), &[(whole, quotient * c + remainder)], &[(quotient, extent / c), (remainder, c)]);
        }
        out.push(Digits { whole, quotient, remainder });
    }
    out
}

/// A variable that is divided by a proper divisor of its extent, has its whole range in all accesses, and is not kept.
fn find(parts: &[Part], kept: &BTreeSet<VarId>) -> Option<(VarId, i64, i64)> {
    let mut candidates: Vec<(VarId, i64)> = vec![];
    for (index, facts) in parts {
        for e in index.iter().chain(facts.guards.iter().map(|(g, _)| g)) {
            e.walk(&mut |e| {
                if let Expr::Binary(BinOp::Div | BinOp::Mod, a, c) = e
                    && let (Expr::Var(v), Some(c)) = (&**a, c.as_int())
                    && !kept.contains(v)
                {
                    candidates.push((*v, c));
                }
            });
        }
    }
    candidates.into_iter().find_map(|(v, c)| {
        let (_, first) = parts.first()?;
        let range = first.ranges.get(v)?;
        let extent = range.1.checked_add(1)?;
        let same = parts.iter().all(|(_, facts)| facts.ranges.get(v) == Some(range));
        (same && range.0 == 0 && c > 1 && c < extent && extent % c == 0).then_some((v, c, extent))
    })
}

#[cfg(test)]
mod tests {
    use crate::analysis::verify::{Fault, Limits, check};
    use crate::ir::parse::parse;
    use crate::stable::Rng;
    use std::collections::BTreeMap;

    /// A kernel whose threads count elements of a tensor in one number, of which the indices are digits.
    #[derive(Clone, Debug)]
    struct Counted {
        shape: [i64; 3],
        blocks: i64,
        turns: i64,
        threads: i64,
        /// Threads that work on one element after the other, as lanes of a vector do.
        lanes: i64,
        /// The number's end.
        end: i64,
        /// What the number is divided by for each dimension, and its remainder taken of: 0 for none.
        digits: [(i64, i64); 3],
        /// Rows of a patch, one store each, and the end of the rows.
        rows: i64,
        rows_end: i64,
    }

    impl Counted {
        /// One that is right: it writes each element once.
        fn right(rng: &mut Rng, most: i64) -> Counted {
            let shape = [rng.between(1, most), rng.between(1, most), rng.between(1, most)];
            let (rows, lanes) = (rng.between(1, 2), *rng.pick(&[1, 2, 4]));
            let (threads, turns) = (*rng.pick(&[4, 8, 12]), rng.between(1, 3));
            let patches = (shape[0] + rows - 1) / rows;
            let end = patches * shape[1] * shape[2];
            let in_block = turns * threads / lanes.min(threads);
            let digits = [(shape[1] * shape[2], 0), (shape[2], shape[1]), (1, shape[2])];
            let blocks = (end + in_block - 1) / in_block;
            Counted { shape, blocks, turns, threads, lanes, end, digits, rows, rows_end: shape[0] }
        }

        /// The same with some numbers changed.
        fn changed(&self, rng: &mut Rng) -> Counted {
            let mut out = self.clone();
            let mut step = |n: &mut i64| *n = (*n + rng.between(-2, 2)).max(1);
            match rng_of(&out) % 7 {
                0 => step(&mut out.end),
                1 => step(&mut out.digits[0].0),
                2 => step(&mut out.digits[1].0),
                3 => step(&mut out.digits[1].1),
                4 => step(&mut out.digits[2].1),
                5 => step(&mut out.rows_end),
                _ => step(&mut out.blocks),
            }
            out
        }

        fn text(&self) -> String {
            let Counted { shape: [a, b, c], blocks, turns, threads, lanes, end, digits, rows, rows_end } = self;
            let per_turn = threads / lanes;
            let number = format!("(block * {} + turn * {per_turn} + t / {lanes})", turns * per_turn);
            let digit = |(by, of): (i64, i64)| {
                let quotient = if by == 1 { number.clone() } else { format!("({number} / {by})") };
                if of == 0 { quotient } else { format!("{quotient} % {of}") }
            };
            let stores = (0..*rows).map(|row| {
                let first = format!("{} * {rows} + {row}", digit(digits[0]));
                let (y, x) = (digit(digits[1]), digit(digits[2]));
                format!("if {first} < {rows_end} {{\n y[{first}, {y}, {x}, t % {lanes}] = 1.0f32\n }}\n")
            });
            let stores: String = stores.collect();
            format!(
                "kernel counted {{\n param y: f32[{a}, {b}, {c}, {lanes}] global write\n for block in 0..{blocks} grid.x {{\n \
                 for t in 0..{threads} thread.x {{\n for turn in 0..{turns} {{\n if {number} < {end} {{\n {stores} }}\n }}\n }}\n \
                 }}\n}}\n"
            )
        }

        /// Whether each element is written by one thread of one block, once, and nothing else is.
        fn is_right(&self) -> bool {
            let mut written: BTreeMap<[i64; 4], [i64; 2]> = BTreeMap::new();
            let per_turn = self.threads / self.lanes;
            for block in 0..self.blocks {
                for t in 0..self.threads {
                    for turn in 0..self.turns {
                        let number = block * self.turns * per_turn + turn * per_turn + t / self.lanes;
                        let [first, y, x] =
                            self.digits.map(|(by, of)| if of == 0 { number / by } else { number / by % of });
                        for row in 0..self.rows {
                            let first = first * self.rows + row;
                            if number >= self.end || first >= self.rows_end {
                                continue;
                            }
                            let inside = first < self.shape[0] && y < self.shape[1] && x < self.shape[2];
                            let by = *written.entry([first, y, x, t % self.lanes]).or_insert([block, t]);
                            if !inside || by != [block, t] {
                                return false;
                            }
                        }
                    }
                }
            }
            written.len() as i64 == self.shape.iter().product::<i64>() * self.lanes
        }

        fn faults(&self) -> Vec<Fault> {
            let kernel = parse(&self.text()).unwrap_or_else(|e| panic!("{e}\n{}", self.text()));
            check(&kernel, &Limits::cuda())
        }
    }

    /// A number that follows from the sizes.
    fn rng_of(counted: &Counted) -> u64 {
        crate::stable::fnv1a(format!("{counted:?}").as_bytes()) >> 7
    }

    /// What passes is right by trying everything, and what is right passes.
    #[test]
    fn numbers_taken_apart_pass_exactly_where_they_count_the_output() {
        let mut rng = Rng::new(20);
        let (mut right, mut wrong) = (0, 0);
        for _ in 0..400 {
            let good = Counted::right(&mut rng, 7);
            for counted in [good.clone(), good.changed(&mut rng)] {
                let faults = counted.faults();
                match counted.is_right() {
                    true => right += 1,
                    false => wrong += 1,
                }
                assert_eq!(faults.is_empty(), counted.is_right(), "{:?}\n{}", faults.first(), counted.text());
            }
        }
        assert!(right > 400 && wrong > 200, "{right} right, {wrong} wrong");
    }

    /// As images are: primes, and far too many elements to go through.
    #[test]
    fn numbers_of_any_size_pass() {
        let mut rng = Rng::new(3);
        for _ in 0..40 {
            let mut counted = Counted::right(&mut rng, 1 << 12);
            while counted.blocks > i64::from(i32::MAX) {
                counted = Counted::right(&mut rng, 1 << 12);
            }
            let faults = counted.faults();
            assert!(faults.is_empty(), "{}\n{}", faults[0], counted.text());
        }
    }
}
