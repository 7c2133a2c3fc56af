//! Simplification of expressions under known ranges.
//!
//! Integer expressions are brought to a normal form: a sum of atoms with integer coefficients, where an atom is a
//! variable or an expression that is not linear (`x / c`, `x % c`, `min`, a load). Division and remainder by a
//! positive constant are removed where the ranges allow it:
//!
//! * `(c * q + r) / c = q` and `(c * q + r) % c = r` when `0 <= r < c`;
//! * common factors cancel: `(g * x) / (g * c) = x / c`;
//! * digits have one form: `(x % 12) / 4 = (x / 4) % 3`, `(x % 12) % 4 = x % 4`;
//! * `c * (x / c) + x % c = x`.
//!
//! Comparisons whose outcome the ranges decide become truth constants, and selects and conjunctions on them fold.

use super::range::{Ranges, bounds};
use crate::integer::gcd;
use crate::ir::{BinOp, Expr, UnOp};

/// `sum(coefficient * atom) + constant`, atoms in a fixed order.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    pub(super) terms: Vec<(Expr, i64)>,
    pub(super) constant: i64,
}

impl Sum {
    /// The sum of an expression; nothing inside the atoms is simplified.
    pub(super) fn of(e: Expr) -> Sum {
        match e {
            Expr::Int(c) => Sum { terms: vec![], constant: c },
            Expr::Binary(BinOp::Add, a, b) => Sum::of(*a).plus(Sum::of(*b), 1),
            Expr::Binary(BinOp::Sub, a, b) => Sum::of(*a).plus(Sum::of(*b), -1),
            Expr::Unary(UnOp::Neg, a) => Sum::default().plus(Sum::of(*a), -1),
            Expr::Binary(BinOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
                (Some(c), _) => Sum::default().plus(Sum::of(*b), c),
                (_, Some(c)) => Sum::default().plus(Sum::of(*a), c),
                _ => {
                    let (x, y) = (Sum::of(*a), Sum::of(*b));
                    if x.terms.is_empty() {
                        Sum::default().plus(y, x.constant)
                    } else if y.terms.is_empty() {
                        Sum::default().plus(x, y.constant)
                    } else {
                        Sum { terms: vec![(Expr::bin(BinOp::Mul, x.to_expr(), y.to_expr()), 1)], constant: 0 }
                    }
                }
            },
            atom => Sum { terms: vec![(atom, 1)], constant: 0 },
        }
    }

    /// `self + factor * other`; wraps on overflow are impossible for shapes that fit in memory, so arithmetic is
    /// saturating only to stay free of panics.
    fn plus(mut self, other: Sum, factor: i64) -> Sum {
        for (atom, c) in other.terms {
            let c = c.saturating_mul(factor);
            match self.terms.iter_mut().find(|(a, _)| *a == atom) {
                Some((_, old)) => *old = old.saturating_add(c),
                None => self.terms.push((atom, c)),
            }
        }
        self.terms.retain(|(_, c)| *c != 0);
        self.constant = self.constant.saturating_add(other.constant.saturating_mul(factor));
        self
    }

    /// Of a sum that is at most 0: the constant rounded to what the terms, all of them multiples of one number, can
    /// reach. `4 x - 3 <= 0` says `4 x <= 0`.
    pub(super) fn tightened(mut self) -> Sum {
        let step = self.terms.iter().fold(0, |g, (_, k)| gcd(g, *k));
        if step > 1 {
            self.constant = -(self.constant.saturating_neg().div_euclid(step) * step);
        }
        self
    }

    pub(super) fn to_expr(&self) -> Expr {
        let mut out: Option<Expr> = None;
        // Positive terms first, so that sums read `a - b` rather than `-1 * b + a`.
        let ordered = self.terms.iter().filter(|t| t.1 > 0).chain(self.terms.iter().filter(|t| t.1 <= 0));
        for (atom, c) in ordered {
            out = Some(match out {
                None => atom.clone() * *c,
                Some(e) if *c > 0 => e + atom.clone() * *c,
                Some(e) => e - atom.clone() * c.saturating_neg(),
            });
        }
        match out {
            None => Expr::Int(self.constant),
            Some(e) if self.constant < 0 => e - self.constant.saturating_neg(),
            Some(e) => e + self.constant,
        }
    }

    /// Splits into a part whose coefficients (and constant) `c` divides, already divided, and the rest.
    fn split_multiple(&self, c: i64) -> (Sum, Sum) {
        let (mut quotient, mut rest) = (Sum::default(), Sum::default());
        for (atom, k) in &self.terms {
            if k % c == 0 {
                quotient.terms.push((atom.clone(), k / c));
            } else {
                rest.terms.push((atom.clone(), *k));
            }
        }
        quotient.constant = self.constant.div_euclid(c);
        rest.constant = self.constant.rem_euclid(c);
        (quotient, rest)
    }

    /// Writes the sum as `g * scaled + small` with `0 <= small < g`, for the largest such `g` that divides `c`
    /// properly, if there is one.
    fn scaled_part(&self, c: i64, ranges: &Ranges) -> Option<(i64, Sum, Sum)> {
        let mut candidates: Vec<i64> =
            self.terms.iter().map(|(_, k)| gcd(c, *k)).filter(|g| *g > 1 && *g < c).collect();
        candidates.sort_unstable_by(|a, b| b.cmp(a));
        candidates.dedup();
        candidates.into_iter().find_map(|g| {
            let (scaled, small) = self.split_multiple(g);
            let (lo, hi) = bounds(&small.to_expr(), ranges)?;
            let q = lo.div_euclid(g);
            (q == hi.div_euclid(g) && !scaled.terms.is_empty()).then(|| {
                let shift = |s: Sum, by: i64| s.plus(Sum { terms: vec![], constant: by }, 1);
                (g, shift(scaled, q), shift(small, -q * g))
            })
        })
    }

    fn gcd(&self, c: i64) -> i64 {
        self.terms.iter().fold(gcd(c, self.constant), |g, (_, k)| gcd(g, *k))
    }

    fn divided(&self, g: i64) -> Sum {
        Sum { terms: self.terms.iter().map(|(a, k)| (a.clone(), k / g)).collect(), constant: self.constant / g }
    }

    /// Merges `c * (x / c) + x % c` into `x`.
    fn merge_div_mod(mut self) -> Sum {
        loop {
            let hit = self.terms.iter().enumerate().find_map(|(i, (atom, k))| {
                let Expr::Binary(BinOp::Mod, x, c) = atom else { return None };
                let c = c.as_int()?;
                let j = self.terms.iter().position(|(other, kk)| {
                    matches!(other, Expr::Binary(BinOp::Div, y, d) if y == x && d.as_int() == Some(c))
                        && Some(*kk) == k.checked_mul(c)
                })?;
                Some((i, j, (**x).clone(), *k))
            });
            let Some((i, j, x, k)) = hit else { return self };
            self.terms.remove(i.max(j));
            self.terms.remove(i.min(j));
            self = self.plus(Sum::of(x), k);
        }
    }
}

/// An equal expression that is no larger: see the module's text. Floating arithmetic is left alone, apart from what
/// stands in indices.
pub fn simplify(e: &Expr, ranges: &Ranges) -> Expr {
    match e {
        Expr::Int(_) | Expr::Float(..) => e.clone(),
        Expr::Var(v) => match ranges.get(*v) {
            Some((lo, hi)) if lo == hi => Expr::Int(lo),
            _ => e.clone(),
        },
        Expr::Binary(op @ (BinOp::Add | BinOp::Sub | BinOp::Mul), a, b) => {
            let (a, b) = (simplify(a, ranges), simplify(b, ranges));
            if is_integer(&a, ranges) && is_integer(&b, ranges) {
                Sum::of(Expr::Binary(*op, Box::new(a), Box::new(b))).merge_div_mod().to_expr()
            } else {
                vector_index(*op, &a, &b, ranges).unwrap_or_else(|| Expr::Binary(*op, Box::new(a), Box::new(b)))
            }
        }
        Expr::Binary(BinOp::Div, a, b) => {
            let (a, b) = (simplify(a, ranges), simplify(b, ranges));
            match b.as_int() {
                Some(c) if c > 0 && is_integer(&a, ranges) => divide(a, c, ranges),
                _ => Expr::Binary(BinOp::Div, Box::new(a), Box::new(b)),
            }
        }
        Expr::Binary(BinOp::Mod, a, b) => {
            let (a, b) = (simplify(a, ranges), simplify(b, ranges));
            match b.as_int() {
                Some(c) if c > 0 && is_integer(&a, ranges) => remainder(a, c, ranges),
                _ => Expr::Binary(BinOp::Mod, Box::new(a), Box::new(b)),
            }
        }
        Expr::Binary(op @ (BinOp::Min | BinOp::Max), a, b) => {
            let (a, b) = (simplify(a, ranges), simplify(b, ranges));
            if is_integer(&a, ranges) && is_integer(&b, ranges) {
                let difference = Sum::of(a.clone()).plus(Sum::of(b.clone()), -1).to_expr();
                if let Some((lo, hi)) = bounds(&difference, ranges) {
                    let a_is_smaller = hi <= 0;
                    if a_is_smaller || lo >= 0 {
                        return if a_is_smaller == (*op == BinOp::Min) { a } else { b };
                    }
                }
            }
            Expr::bin(*op, a, b)
        }
        Expr::Binary(op @ (BinOp::Pow | BinOp::Fmod | BinOp::Dot | BinOp::Push), a, b) => {
            Expr::bin(*op, simplify(a, ranges), simplify(b, ranges))
        }
        Expr::Binary(op @ (BinOp::Lt | BinOp::Le | BinOp::Eq | BinOp::Ne), a, b) => {
            let (a, b) = (simplify(a, ranges), simplify(b, ranges));
            compare(*op, a, b, ranges)
        }
        Expr::Binary(BinOp::And, a, b) => {
            let a = simplify(a, ranges);
            match truth(&a) {
                Some(false) => return a,
                Some(true) => return simplify(b, ranges),
                None => {}
            }
            let b = simplify(b, &ranges.assuming(&a));
            match truth(&b) {
                Some(true) => a,
                Some(false) => b,
                None if a == b => a,
                None => a.and(b),
            }
        }
        Expr::Binary(BinOp::Or, a, b) => {
            let a = simplify(a, ranges);
            match truth(&a) {
                Some(true) => return a,
                Some(false) => return simplify(b, ranges),
                None => {}
            }
            let mut otherwise = ranges.clone();
            otherwise.assume(&a, false);
            let b = simplify(b, &otherwise);
            match truth(&b) {
                Some(false) => a,
                Some(true) => b,
                None if a == b => a,
                None => a.or(b),
            }
        }
        Expr::Unary(UnOp::Not, a) => {
            let a = simplify(a, ranges);
            match truth(&a) {
                Some(t) => Expr::bool(!t),
                None => Expr::un(UnOp::Not, a),
            }
        }
        Expr::Unary(UnOp::Neg, a) => {
            let a = simplify(a, ranges);
            if is_integer(&a, ranges) { Sum::default().plus(Sum::of(a), -1).to_expr() } else { Expr::un(UnOp::Neg, a) }
        }
        Expr::Unary(op, a) => Expr::un(*op, simplify(a, ranges)),
        Expr::Cast(d, a) => Expr::Cast(*d, Box::new(simplify(a, ranges))),
        Expr::Select(c, a, b) => {
            let c = simplify(c, ranges);
            match truth(&c) {
                Some(true) => simplify(a, ranges),
                Some(false) => simplify(b, ranges),
                None => {
                    let mut otherwise = ranges.clone();
                    otherwise.assume(&c, false);
                    let (a, b) = (simplify(a, &ranges.assuming(&c)), simplify(b, &otherwise));
                    if a == b { a } else { Expr::Select(Box::new(c), Box::new(a), Box::new(b)) }
                }
            }
        }
        Expr::Load(b, idx) => Expr::Load(*b, idx.iter().map(|i| simplify(i, ranges)).collect()),
        Expr::Ramp { base, stride, lanes } => {
            Expr::Ramp { base: Box::new(simplify(base, ranges)), stride: *stride, lanes: *lanes }
        }
        Expr::Broadcast(a, lanes) => Expr::Broadcast(Box::new(simplify(a, ranges)), *lanes),
    }
}

/// Whether the condition always holds (`Some(true)`), never (`Some(false)`), or neither is known.
pub fn prove(cond: &Expr, ranges: &Ranges) -> Option<bool> {
    truth(&simplify(cond, ranges))
}

/// The value of a truth constant.
pub fn truth(e: &Expr) -> Option<bool> {
    match e {
        Expr::Binary(op, a, b) => {
            let (a, b) = (a.as_int()?, b.as_int()?);
            match op {
                BinOp::Lt => Some(a < b),
                BinOp::Le => Some(a <= b),
                BinOp::Eq => Some(a == b),
                BinOp::Ne => Some(a != b),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether the expression is a scalar integer by its form. A variable is one if its range is known: only integers
/// have ranges, while a `let` may hold a float, whose sums must not be rearranged.
fn is_integer(e: &Expr, ranges: &Ranges) -> bool {
    match e {
        Expr::Int(_) => true,
        Expr::Var(v) => ranges.get(*v).is_some(),
        Expr::Binary(op, a, b) => !op.is_predicate() && is_integer(a, ranges) && is_integer(b, ranges),
        Expr::Unary(UnOp::Neg | UnOp::Abs, a) => is_integer(a, ranges),
        Expr::Select(_, a, b) => is_integer(a, ranges) && is_integer(b, ranges),
        Expr::Cast(d, _) => d.is_int(),
        _ => false,
    }
}

/// Arithmetic of a ramp with scalars stays a ramp.
fn vector_index(op: BinOp, a: &Expr, b: &Expr, ranges: &Ranges) -> Option<Expr> {
    let add = |base: &Expr, other: &Expr, op| {
        simplify(&Expr::Binary(op, Box::new(base.clone()), Box::new(other.clone())), ranges)
    };
    match (op, a, b) {
        (BinOp::Add, Expr::Ramp { base, stride, lanes }, s) | (BinOp::Add, s, Expr::Ramp { base, stride, lanes })
            if is_integer(s, ranges) =>
        {
            Some(Expr::Ramp { base: Box::new(add(base, s, BinOp::Add)), stride: *stride, lanes: *lanes })
        }
        (BinOp::Sub, Expr::Ramp { base, stride, lanes }, s) if is_integer(s, ranges) => {
            Some(Expr::Ramp { base: Box::new(add(base, s, BinOp::Sub)), stride: *stride, lanes: *lanes })
        }
        (BinOp::Mul, Expr::Ramp { base, stride, lanes }, Expr::Int(c))
        | (BinOp::Mul, Expr::Int(c), Expr::Ramp { base, stride, lanes }) => Some(Expr::Ramp {
            base: Box::new(add(base, &Expr::Int(*c), BinOp::Mul)),
            stride: stride.checked_mul(*c)?,
            lanes: *lanes,
        }),
        _ => None,
    }
}

fn divide(a: Expr, c: i64, ranges: &Ranges) -> Expr {
    if c == 1 {
        return a;
    }
    let sum = Sum::of(a);
    let g = sum.gcd(c);
    if g > 1 {
        return divide(sum.divided(g).to_expr(), c / g, ranges);
    }
    if let Some((lo, hi)) = bounds(&sum.to_expr(), ranges)
        && lo.div_euclid(c) == hi.div_euclid(c)
    {
        return Expr::Int(lo.div_euclid(c));
    }
    let (quotient, rest) = sum.split_multiple(c);
    if let Some((lo, hi)) = bounds(&rest.to_expr(), ranges) {
        let q = lo.div_euclid(c);
        if q == hi.div_euclid(c) {
            return quotient.plus(Sum { terms: vec![], constant: q }, 1).to_expr();
        }
    }
    if let Some((g, scaled, _)) = rest.scaled_part(c, ranges) {
        return quotient.plus(Sum::of(divide(scaled.to_expr(), c / g, ranges)), 1).to_expr();
    }
    let rest = rest.to_expr();
    // (x / d) / c = x / (d c) for floor division by positive constants, and (x % m) / c = (x / c) % (m / c) where c
    // divides m: the digits of nested fusions, always written in the same way.
    let inner = match &rest {
        Expr::Binary(BinOp::Mod, x, m) if m.as_int().is_some_and(|m| m % c == 0) => {
            let quotient = divide((**x).clone(), c, ranges);
            remainder(quotient, m.as_int().map_or(1, |m| m / c), ranges)
        }
        Expr::Binary(BinOp::Div, x, d) => match d.as_int().and_then(|d| d.checked_mul(c)) {
            Some(dc) if dc > 0 => divide((**x).clone(), dc, ranges),
            _ => Expr::bin(BinOp::Div, rest.clone(), Expr::Int(c)),
        },
        _ => Expr::bin(BinOp::Div, rest, Expr::Int(c)),
    };
    quotient.plus(Sum::of(inner), 1).to_expr()
}

fn remainder(a: Expr, c: i64, ranges: &Ranges) -> Expr {
    if c == 1 {
        return Expr::Int(0);
    }
    let (_, rest) = Sum::of(a).split_multiple(c);
    let g = rest.gcd(c);
    if g > 1 {
        return Sum::default().plus(Sum::of(remainder(rest.divided(g).to_expr(), c / g, ranges)), g).to_expr();
    }
    let e = rest.to_expr();
    if let Some((lo, hi)) = bounds(&e, ranges) {
        let q = lo.div_euclid(c);
        if q == hi.div_euclid(c) {
            return rest.plus(Sum { terms: vec![], constant: q.saturating_mul(c) }, -1).to_expr();
        }
    }
    if let Expr::Binary(BinOp::Mod, x, m) = &e
        && m.as_int().is_some_and(|m| m % c == 0)
    {
        return remainder((**x).clone(), c, ranges);
    }
    if let Some((g, scaled, small)) = rest.scaled_part(c, ranges) {
        let high = Sum::of(remainder(scaled.to_expr(), c / g, ranges));
        return small.plus(high, g).to_expr();
    }
    Expr::bin(BinOp::Mod, e, Expr::Int(c))
}

fn compare(op: BinOp, a: Expr, b: Expr, ranges: &Ranges) -> Expr {
    if !is_integer(&a, ranges) || !is_integer(&b, ranges) {
        return Expr::Binary(op, Box::new(a), Box::new(b));
    }
    let difference = Sum::of(a).plus(Sum::of(b), -1).merge_div_mod();
    if let Some((lo, hi)) = bounds(&difference.to_expr(), ranges) {
        let decided = match op {
            BinOp::Lt if hi < 0 => Some(true),
            BinOp::Lt if lo >= 0 => Some(false),
            BinOp::Le if hi <= 0 => Some(true),
            BinOp::Le if lo > 0 => Some(false),
            BinOp::Eq if lo == 0 && hi == 0 => Some(true),
            BinOp::Ne if lo == 0 && hi == 0 => Some(false),
            BinOp::Eq if lo > 0 || hi < 0 => Some(false),
            BinOp::Ne if lo > 0 || hi < 0 => Some(true),
            _ => None,
        };
        if let Some(t) = decided {
            return Expr::bool(t);
        }
    }
    // Variables with positive coefficients on the left, the others and the constant on the right; common factors out.
    let mut d = difference;
    let g = d.terms.iter().fold(0, |g, (_, k)| gcd(g, *k)).max(1);
    if g > 1 {
        match op {
            // g x + c < 0  <=>  x < ceil(-c / g);   g x + c <= 0  <=>  x <= floor(-c / g)
            BinOp::Lt => {
                d.constant = d.constant.div_euclid(g);
                d.terms.iter_mut().for_each(|t| t.1 /= g);
            }
            BinOp::Le => {
                d.constant = -(d.constant.saturating_neg()).div_euclid(g);
                d.terms.iter_mut().for_each(|t| t.1 /= g);
            }
            _ if d.constant % g == 0 => d = d.divided(g),
            _ => return Expr::bool(op == BinOp::Ne),
        }
    }
    let (mut left, mut right) = (Sum::default(), Sum::default());
    for (atom, k) in d.terms {
        if k > 0 { left.terms.push((atom, k)) } else { right.terms.push((atom, k.saturating_neg())) }
    }
    // The constant goes where it stays positive, unless one side has nothing else.
    if left.terms.is_empty() || (d.constant > 0 && !right.terms.is_empty()) {
        left.constant = d.constant;
    } else {
        right.constant = d.constant.saturating_neg();
    }
    Expr::Binary(op, Box::new(left.to_expr()), Box::new(right.to_expr()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Kernel, VarId, print};

    /// `i` in 0..8, `j` in 0..32, `k` in 0..14.
    fn setup() -> (Kernel, [VarId; 3], Ranges) {
        let mut kernel = Kernel::new("t");
        let vars = [kernel.fresh_var("i"), kernel.fresh_var("j"), kernel.fresh_var("k")];
        let mut r = Ranges::new();
        r.insert(vars[0], 0, 7);
        r.insert(vars[1], 0, 31);
        r.insert(vars[2], 0, 13);
        (kernel, vars, r)
    }

    #[test]
    fn a_split_index_divides_and_wraps_without_division() {
        let (kernel, [i, j, _], r) = setup();
        let e = i * 32 + j;
        let text = |e: &Expr| print::expr(&kernel, &simplify(e, &r));
        assert_eq!(text(&e.clone().floor_div(32)), "i");
        assert_eq!(text(&e.clone().floor_mod(32)), "j");
        assert_eq!(text(&e.clone().floor_div(16)), "i * 2 + j / 16");
        assert_eq!(text(&e.clone().floor_div(64)), "i / 2");
        assert_eq!(text(&(e.clone().floor_div(24) * 24 + e.floor_mod(24))), "i * 32 + j");
    }

    #[test]
    fn comparisons_are_decided_by_ranges() {
        let (kernel, [i, j, k], r) = setup();
        assert_eq!(prove(&(i * 32 + j).lt(256), &r), Some(true));
        assert_eq!(prove(&(i * 32 + j).lt(255), &r), None);
        assert_eq!(prove(&Expr::from(k).lt(0), &r), Some(false));
        assert_eq!(print::expr(&kernel, &simplify(&(i * 4 + 3).lt(k * 4), &r)), "i < k");
        assert_eq!(print::expr(&kernel, &simplify(&Expr::from(2).le(i + 0), &r)), "2 <= i");
    }

    #[test]
    fn simplified_expressions_have_the_same_value() {
        let (_, vars, r) = setup();
        let mut seed = 1u64;
        let mut next = move |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        fn random(next: &mut dyn FnMut(u64) -> u64, vars: &[VarId; 3], depth: u32) -> Expr {
            if depth == 0 || next(5) == 0 {
                return if next(2) == 0 { Expr::Int(next(40) as i64 - 8) } else { vars[next(3) as usize].into() };
            }
            let a = random(next, vars, depth - 1);
            match next(8) {
                0 => a * (next(12) as i64 - 4),
                1 => a.floor_div(next(16) as i64 + 1),
                2 => a.floor_mod(next(16) as i64 + 1),
                3 => a.min(random(next, vars, depth - 1)),
                4 => a - random(next, vars, depth - 1),
                5 => a.lt(random(next, vars, depth - 1)).select(vars[0] + 1, random(next, vars, depth - 1)),
                _ => a + random(next, vars, depth - 1),
            }
        }
        fn eval(e: &Expr, env: &dyn Fn(VarId) -> i64) -> i64 {
            match e {
                Expr::Int(v) => *v,
                Expr::Var(v) => env(*v),
                Expr::Select(c, a, b) => eval(if eval(c, env) != 0 { a } else { b }, env),
                Expr::Unary(UnOp::Neg, a) => -eval(a, env),
                Expr::Binary(op, a, b) => {
                    let (a, b) = (eval(a, env), eval(b, env));
                    match op {
                        BinOp::Add => a + b,
                        BinOp::Sub => a - b,
                        BinOp::Mul => a * b,
                        BinOp::Div => a.div_euclid(b),
                        BinOp::Mod => a.rem_euclid(b),
                        BinOp::Min => a.min(b),
                        BinOp::Max => a.max(b),
                        BinOp::Lt => i64::from(a < b),
                        BinOp::Le => i64::from(a <= b),
                        BinOp::Eq => i64::from(a == b),
                        BinOp::Ne => i64::from(a != b),
                        BinOp::And => i64::from(a != 0 && b != 0),
                        BinOp::Or => i64::from(a != 0 || b != 0),
                        BinOp::Pow | BinOp::Fmod | BinOp::Dot | BinOp::Push => unreachable!("not generated"),
                    }
                }
                other => panic!("not generated: {other:?}"),
            }
        }
        for _ in 0..4000 {
            let e = random(&mut next, &vars, 4);
            let s = simplify(&e, &r);
            let b = bounds(&s, &r);
            for _ in 0..12 {
                let point = [next(8) as i64, next(32) as i64, next(14) as i64];
                let env = |v: VarId| point[v.0 as usize];
                let value = eval(&e, &env);
                assert_eq!(eval(&s, &env), value, "{e:?}\n=> {s:?} at {point:?}");
                if let Some((lo, hi)) = b {
                    assert!(lo <= value && value <= hi, "{s:?} = {value} outside {lo}..={hi}");
                }
            }
        }
    }
}
