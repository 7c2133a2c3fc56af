//! Evaluating integer expressions for many points at a time.
//!
//! A question with a million points asks for the same few expressions a million times. They become one list of
//! operations, in which equal parts stand once, and each operation is done for a row of points before the next: a loop
//! that the compiler makes vectors of. That is the same as [`super::enumerate::eval`] point by point only where no
//! operation can fail, so the values that each can have are worked out from the ranges of the variables first, and an
//! expression that might overflow, or divides by something else than a positive constant, has no program.

use super::enumerate::Space;
use crate::ir::{BinOp, Expr, UnOp};

/// Points of a row.
const ROW: usize = 128;

/// Largest dividend, not included, of a division by multiplication.
const MOST_DIVIDEND: i64 = 1 << 31;

/// One operation on rows, of which the operands come before it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Op {
    Constant(i64),
    /// A variable, by its place in the space.
    Variable(usize),
    Binary(BinOp, usize, usize),
    Divide(usize, i64),
    Remainder(usize, i64),
    /// Division of something in `0..MOST_DIVIDEND` as a product with `factor` of which the low bits are dropped
    /// (Granlund and Montgomery: "Division by invariant integers using multiplication", 1994, theorem 4.2).
    Multiply {
        of: usize,
        factor: u64,
        shift: u32,
    },
    Negate(usize),
    Absolute(usize),
    Not(usize),
    Select(usize, usize, usize),
}

/// Expressions over a space.
#[derive(Debug)]
pub(super) struct Program {
    space: Space,
    ops: Vec<Op>,
    /// Least and largest value of each.
    bounds: Vec<(i64, i64)>,
    roots: Vec<usize>,
}

impl Program {
    /// The program of expressions; `None` where it could not say the same as they do one by one.
    pub(super) fn new<'e>(exprs: impl IntoIterator<Item = &'e Expr>, space: &Space) -> Option<Program> {
        let mut program = Program { space: space.clone(), ops: vec![], bounds: vec![], roots: vec![] };
        for e in exprs {
            let root = program.add(e)?;
            program.roots.push(root);
        }
        Some(program)
    }

    fn push(&mut self, op: Op, bounds: (i64, i64)) -> usize {
        if let Some(known) = self.ops.iter().position(|o| *o == op) {
            return known;
        }
        self.ops.push(op);
        self.bounds.push(bounds);
        self.ops.len() - 1
    }

    fn add(&mut self, e: &Expr) -> Option<usize> {
        const TRUTH: (i64, i64) = (0, 1);
        Some(match e {
            Expr::Int(v) => self.push(Op::Constant(*v), (*v, *v)),
            Expr::Var(v) => {
                let at = self.space.iter().position(|(known, ..)| known == v)?;
                let (_, lo, hi) = self.space[at];
                self.push(Op::Variable(at), (lo, hi))
            }
            Expr::Unary(UnOp::Neg, a) => {
                let a = self.add(a)?;
                let (lo, hi) = self.bounds[a];
                self.push(Op::Negate(a), (hi.checked_neg()?, lo.checked_neg()?))
            }
            Expr::Unary(UnOp::Abs, a) => {
                let a = self.add(a)?;
                let (lo, hi) = self.bounds[a];
                self.push(Op::Absolute(a), (0, lo.checked_abs()?.max(hi.checked_abs()?)))
            }
            Expr::Unary(UnOp::Not, a) => {
                let a = self.add(a)?;
                self.push(Op::Not(a), TRUTH)
            }
            Expr::Select(c, a, b) => {
                let (c, a, b) = (self.add(c)?, self.add(a)?, self.add(b)?);
                let ((alo, ahi), (blo, bhi)) = (self.bounds[a], self.bounds[b]);
                self.push(Op::Select(c, a, b), (alo.min(blo), ahi.max(bhi)))
            }
            Expr::Binary(op @ (BinOp::Div | BinOp::Mod), a, b) => {
                let divisor = b.as_int().filter(|d| *d > 0)?;
                let a = self.add(a)?;
                self.divide(*op, a, divisor)?
            }
            Expr::Binary(BinOp::Pow | BinOp::Fmod | BinOp::Dot | BinOp::Push, ..) => return None,
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.add(a)?, self.add(b)?);
                let ((alo, ahi), (blo, bhi)) = (self.bounds[a], self.bounds[b]);
                let bounds = match op {
                    BinOp::Add => (alo.checked_add(blo)?, ahi.checked_add(bhi)?),
                    BinOp::Sub => (alo.checked_sub(bhi)?, ahi.checked_sub(blo)?),
                    BinOp::Mul => {
                        let corners = [(alo, blo), (alo, bhi), (ahi, blo), (ahi, bhi)];
                        let products = corners.map(|(x, y)| x.checked_mul(y));
                        let [p, q, r, s] = [products[0]?, products[1]?, products[2]?, products[3]?];
                        (p.min(q).min(r).min(s), p.max(q).max(r).max(s))
                    }
                    BinOp::Min => (alo.min(blo), ahi.min(bhi)),
                    BinOp::Max => (alo.max(blo), ahi.max(bhi)),
                    _ => TRUTH,
                };
                self.push(Op::Binary(*op, a, b), bounds)
            }
            _ => return None,
        })
    }

    /// Floor division, or its remainder, by a positive constant.
    fn divide(&mut self, op: BinOp, a: usize, divisor: i64) -> Option<usize> {
        let (lo, hi) = self.bounds[a];
        let quotients = (lo.div_euclid(divisor), hi.div_euclid(divisor));
        let small = lo >= 0 && hi < MOST_DIVIDEND && divisor < MOST_DIVIDEND;
        if !small {
            return Some(match op {
                BinOp::Div => self.push(Op::Divide(a, divisor), quotients),
                _ => self.push(Op::Remainder(a, divisor), (0, divisor - 1)),
            });
        }
        let shift = 31 + (divisor as u64).next_power_of_two().trailing_zeros();
        // Below 2^33, so that its product with a dividend has 64 bits.
        let factor = (1u128 << shift) / divisor as u128 + 1;
        let quotient = self.push(Op::Multiply { of: a, factor: u64::try_from(factor).ok()?, shift }, quotients);
        if op == BinOp::Div {
            return Some(quotient);
        }
        let divisor = self.push(Op::Constant(divisor), (divisor, divisor));
        let whole = self.push(Op::Binary(BinOp::Mul, quotient, divisor), (0, hi));
        Some(self.push(Op::Binary(BinOp::Sub, a, whole), (0, self.bounds[divisor].0 - 1)))
    }

    /// Calls `f` with the values of the expressions for rows of points, in the order of
    /// [`super::enumerate::for_each`]: the number of points, and for each expression its values.
    pub(super) fn rows(&self, mut f: impl FnMut(usize, &[&[i64]]) -> bool) {
        let mut values = vec![[0i64; ROW]; self.ops.len()];
        for (op, row) in self.ops.iter().zip(&mut values) {
            if let Op::Constant(v) = op {
                row.fill(*v);
            }
        }
        let mut point: Vec<i64> = self.space.iter().map(|(_, lo, _)| *lo).collect();
        let mut more = true;
        while more {
            let mut points = vec![[0i64; ROW]; point.len()];
            let mut count = 0;
            while more && count < ROW {
                points.iter_mut().zip(&point).for_each(|(row, v)| row[count] = *v);
                count += 1;
                more = false;
                for (value, (_, lo, hi)) in point.iter_mut().zip(&self.space).rev() {
                    if *value < *hi {
                        *value += 1;
                        more = true;
                        break;
                    }
                    *value = *lo;
                }
            }
            // What stands behind the last point is looked at by nobody, but has to be a point: bounds hold for those only.
            points.iter_mut().for_each(|row| {
                let last = row[count - 1];
                row[count..].fill(last);
            });
            for at in 0..self.ops.len() {
                let (before, rest) = values.split_at_mut(at);
                run(self.ops[at], before, &points, &mut rest[0]);
            }
            let roots: Vec<&[i64]> = self.roots.iter().map(|r| &values[*r][..count]).collect();
            if !f(count, &roots) {
                return;
            }
        }
    }
}

/// One operation, for a row.
fn run(op: Op, before: &[[i64; ROW]], points: &[[i64; ROW]], out: &mut [i64; ROW]) {
    let mut one = |a: usize, f: &dyn Fn(i64) -> i64| {
        out.iter_mut().zip(&before[a]).for_each(|(o, x)| *o = f(*x));
    };
    match op {
        Op::Constant(_) => {}
        Op::Variable(at) => *out = points[at],
        Op::Divide(a, d) => one(a, &|x| x.div_euclid(d)),
        Op::Remainder(a, d) => one(a, &|x| x.rem_euclid(d)),
        Op::Multiply { of, factor, shift } => {
            out.iter_mut().zip(&before[of]).for_each(|(o, x)| *o = ((*x as u64 * factor) >> shift) as i64);
        }
        Op::Negate(a) => one(a, &|x| -x),
        Op::Absolute(a) => one(a, &|x| x.abs()),
        Op::Not(a) => one(a, &|x| i64::from(x == 0)),
        Op::Select(c, a, b) => {
            let sides = before[a].iter().zip(&before[b]);
            for ((o, c), (x, y)) in out.iter_mut().zip(&before[c]).zip(sides) {
                *o = if *c != 0 { *x } else { *y };
            }
        }
        Op::Binary(op, a, b) => binary(op, &before[a], &before[b], out),
    }
}

fn binary(op: BinOp, a: &[i64; ROW], b: &[i64; ROW], out: &mut [i64; ROW]) {
    /// Written once for each operator, so that each is a loop of its own.
    fn each(a: &[i64; ROW], b: &[i64; ROW], out: &mut [i64; ROW], f: impl Fn(i64, i64) -> i64) {
        for ((o, x), y) in out.iter_mut().zip(a).zip(b) {
            *o = f(*x, *y);
        }
    }
    match op {
        BinOp::Add => each(a, b, out, |x, y| x.wrapping_add(y)),
        BinOp::Sub => each(a, b, out, |x, y| x.wrapping_sub(y)),
        BinOp::Mul => each(a, b, out, |x, y| x.wrapping_mul(y)),
        BinOp::Min => each(a, b, out, |x, y| x.min(y)),
        BinOp::Max => each(a, b, out, |x, y| x.max(y)),
        BinOp::Lt => each(a, b, out, |x, y| i64::from(x < y)),
        BinOp::Le => each(a, b, out, |x, y| i64::from(x <= y)),
        BinOp::Eq => each(a, b, out, |x, y| i64::from(x == y)),
        BinOp::Ne => each(a, b, out, |x, y| i64::from(x != y)),
        BinOp::And => each(a, b, out, |x, y| i64::from(x != 0 && y != 0)),
        BinOp::Or => each(a, b, out, |x, y| i64::from(x != 0 || y != 0)),
        // Divisions have operations of their own, and there are no powers of integers.
        BinOp::Div | BinOp::Mod | BinOp::Pow | BinOp::Fmod | BinOp::Dot | BinOp::Push => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::verify::enumerate::{eval, for_each};
    use crate::ir::VarId;
    use std::ops::ControlFlow;

    fn random(next: &mut dyn FnMut(u64) -> u64, depth: u32) -> Expr {
        if depth == 0 || next(5) == 0 {
            return if next(2) == 0 { Expr::Int(next(60) as i64 - 20) } else { VarId(next(3) as u32).into() };
        }
        let a = random(next, depth - 1);
        match next(12) {
            0 => a * (next(12) as i64 - 4),
            1 => a.floor_div(next(50) as i64 + 1),
            2 => a.floor_mod(next(50) as i64 + 1),
            3 => a.min(random(next, depth - 1)),
            4 => a - random(next, depth - 1),
            5 => a.lt(random(next, depth - 1)).select(VarId(0) + 1, random(next, depth - 1)),
            6 => a.le(random(next, depth - 1)).and(Expr::from(VarId(1)).lt(7)),
            7 => a.eq(random(next, depth - 1)).or(Expr::from(VarId(2)).lt(3)),
            8 => Expr::un(UnOp::Neg, a),
            9 => Expr::un(UnOp::Abs, a),
            10 => a * random(next, depth - 1),
            _ => a + random(next, depth - 1),
        }
    }

    #[test]
    fn rows_have_the_values_of_single_points() {
        let mut seed = 7u64;
        let mut next = move |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let space: Space = vec![(VarId(0), -3, 4), (VarId(1), 0, 20), (VarId(2), 5, 11)];
        let mut compiled = 0;
        for _ in 0..600 {
            let exprs = [random(&mut next, 4), random(&mut next, 4)];
            let Some(program) = Program::new(&exprs, &space) else { continue };
            compiled += 1;
            let mut found: Vec<Vec<i64>> = vec![];
            program.rows(|count, rows| {
                found.extend((0..count).map(|i| rows.iter().map(|r| r[i]).collect()));
                true
            });
            let mut wanted: Vec<Vec<i64>> = vec![];
            let _ = for_each(&space, |values| {
                wanted.push(exprs.iter().map(|e| eval(e, values).expect("it cannot fail")).collect());
                ControlFlow::<()>::Continue(())
            });
            assert_eq!(found, wanted, "{exprs:?}");
        }
        assert!(compiled > 500, "{compiled} of 600 have a program");
    }

    #[test]
    fn divisions_by_products_are_exact_to_the_last_dividend() {
        for divisor in (2..2000).chain([4095, 4096, 4097, 65537, (1 << 30) + 1, MOST_DIVIDEND - 1]) {
            for near in [0, divisor, 1000 * divisor, MOST_DIVIDEND / divisor * divisor, MOST_DIVIDEND - 1] {
                let (lo, hi) = ((near - 2).max(0), (near + 2).min(MOST_DIVIDEND - 1));
                if lo > hi {
                    continue;
                }
                let space: Space = vec![(VarId(0), lo, hi)];
                let (quotient, rest) =
                    (Expr::from(VarId(0)).floor_div(divisor), Expr::from(VarId(0)).floor_mod(divisor));
                let program = Program::new([&quotient, &rest], &space).expect("a program");
                assert!(program.ops.iter().any(|o| matches!(o, Op::Multiply { .. })));
                program.rows(|count, rows| {
                    for (i, x) in (lo..=hi).enumerate().take(count) {
                        assert_eq!((rows[0][i], rows[1][i]), (x / divisor, x % divisor), "{x} by {divisor}");
                    }
                    true
                });
            }
        }
    }

    #[test]
    fn what_may_fail_has_no_program() {
        let space: Space = vec![(VarId(0), 0, i64::MAX / 2)];
        let v = || Expr::from(VarId(0));
        assert!(Program::new([&(v() + v())], &space).is_some());
        assert!(Program::new([&(v() * 3)], &space).is_none());
        assert!(Program::new([&v().floor_div(v())], &space).is_none());
        assert!(Program::new([&v().floor_mod(0)], &space).is_none());
        assert!(Program::new([&Expr::from(VarId(1))], &space).is_none());
    }
}
