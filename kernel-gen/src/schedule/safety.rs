//! Whether an expression may be evaluated where it was not evaluated before.
//!
//! A step that computes more than the original did (the rounded-up end of a tile) may do without a conditional if every
//! load stays inside its buffer and finds something there, whatever the value is then worth.

use super::nest::{all_ranges, paths};
use crate::analysis::affine::Affine;
use crate::analysis::range::{Ranges, bounds};
use crate::analysis::simplify::simplify;
use crate::ir::{Access, BinOp, BufferId, Expr, Kernel, Stmt, VarId};

/// What is known at a place: ranges of variables, and linear forms that are not negative.
#[derive(Clone)]
pub(super) struct Facts {
    ranges: Ranges,
    not_negative: Vec<Affine>,
}

impl Facts {
    pub(super) fn new(ranges: Ranges) -> Facts {
        Facts { ranges, not_negative: vec![] }
    }

    pub(super) fn assume(&mut self, cond: &Expr) {
        match cond {
            Expr::Binary(BinOp::And, a, b) => {
                self.assume(a);
                self.assume(b);
            }
            Expr::Binary(BinOp::Lt, a, b) => self.note((**b).clone() - (**a).clone() - 1),
            Expr::Binary(BinOp::Le, a, b) => self.note((**b).clone() - (**a).clone()),
            _ => {}
        }
        self.ranges.assume(cond, true);
    }

    fn note(&mut self, e: Expr) {
        if let Some(a) = Affine::of(&simplify(&e, &self.ranges)) {
            self.not_negative.push(a);
        }
    }

    fn is_not_negative(&self, e: &Expr) -> bool {
        let e = simplify(e, &self.ranges);
        let at_least_zero = |e: &Expr| bounds(e, &self.ranges).is_some_and(|(lo, _)| lo >= 0);
        if at_least_zero(&e) {
            return true;
        }
        let Some(a) = Affine::of(&e) else { return false };
        self.not_negative.iter().any(|f| a.plus(f, -1).is_some_and(|d| at_least_zero(&d.to_expr())))
    }
}

impl Facts {
    /// Whether the condition certainly holds.
    fn implies(&self, cond: &Expr) -> bool {
        match cond {
            Expr::Binary(BinOp::And, a, b) => self.implies(a) && self.implies(b),
            Expr::Binary(BinOp::Lt, a, b) => self.is_not_negative(&((**b).clone() - (**a).clone() - 1)),
            Expr::Binary(BinOp::Le, a, b) => self.is_not_negative(&((**b).clone() - (**a).clone())),
            _ => false,
        }
    }
}

/// Whether evaluating `e` reads only elements that exist and were written.
pub(super) fn loads_are_safe(k: &Kernel, e: &Expr, facts: &Facts) -> bool {
    match e {
        Expr::Int(_) | Expr::Float(..) | Expr::Var(_) => true,
        Expr::Binary(BinOp::And, a, b) => {
            let mut inner = facts.clone();
            inner.assume(a);
            loads_are_safe(k, a, facts) && loads_are_safe(k, b, &inner)
        }
        Expr::Binary(_, a, b) => loads_are_safe(k, a, facts) && loads_are_safe(k, b, facts),
        Expr::Unary(_, a) | Expr::Cast(_, a) | Expr::Broadcast(a, _) => loads_are_safe(k, a, facts),
        Expr::Ramp { base, .. } => loads_are_safe(k, base, facts),
        Expr::Select(c, a, b) => {
            let mut inner = facts.clone();
            inner.assume(c);
            loads_are_safe(k, c, facts) && loads_are_safe(k, a, &inner) && loads_are_safe(k, b, facts)
        }
        Expr::Load(b, idx) => {
            let buffer = k.buffer(*b);
            wholly_written(k, *b)
                && idx.iter().zip(&buffer.shape).all(|(i, n)| {
                    loads_are_safe(k, i, facts)
                        && facts.is_not_negative(i)
                        && facts.is_not_negative(&(Expr::Int(n - 1) - i.clone()))
                })
        }
    }
}

/// Whether every element of the buffer certainly has a value where its stage has run.
pub(super) fn wholly_written(k: &Kernel, b: BufferId) -> bool {
    if k.is_param(b) {
        return k.buffer(b).access != Access::Write;
    }
    let writers = paths(&k.body, &|s| s.written() == Some(b));
    let [path] = &writers[..] else { return false };
    let Some(own) = super::nest::own_loops(k, b) else { return false };
    let (Some(Stmt::Store { indices, .. }) | Some(Stmt::Reduce { indices, .. })) = path.last().copied() else {
        return false;
    };
    let shape = &k.buffer(b).shape;
    let ranges = all_ranges(k);
    // A conditional that only keeps the index inside of the buffer skips no element.
    let mut inside = Facts::new(ranges.clone());
    for (i, n) in indices.iter().zip(shape) {
        inside.note(i.clone());
        inside.note(Expr::Int(n - 1) - i.clone());
    }
    let unconditional = path[super::nest::top_of_nest(path, &own)..].iter().all(|s| match s {
        Stmt::If { cond, otherwise, .. } => otherwise.is_empty() && inside.implies(cond),
        _ => true,
    });
    let mut used = vec![];
    unconditional && indices.iter().zip(shape).all(|(i, n)| covers(i, *n, &own, &ranges, &mut used))
}

/// A part of a loop that serves one dimension: the whole variable, its quotient or its remainder.
type Part = (VarId, &'static str);

/// Whether the index takes every value in `0..n` while the loops in `own` run, each part of a loop serving one
/// dimension only.
fn covers(index: &Expr, n: i64, own: &[VarId], ranges: &Ranges, used: &mut Vec<Part>) -> bool {
    let index = simplify(index, ranges);
    let mut claim = |v: VarId, part: &'static str| {
        let taken = used.iter().any(|(u, p)| *u == v && (*p == part || *p == "whole" || part == "whole"));
        used.push((v, part));
        own.contains(&v) && !taken
    };
    if let Expr::Binary(op @ (BinOp::Div | BinOp::Mod), v, c) = &index {
        let (Expr::Var(v), Some(c)) = (&**v, c.as_int()) else { return false };
        let Some(extent) = ranges.get(*v).map(|r| r.1 + 1) else { return false };
        let (part, reach) = if *op == BinOp::Div { ("quotient", extent / c) } else { ("remainder", c) };
        return extent % c == 0 && reach >= n && claim(*v, part);
    }
    let Some(a) = Affine::of(&index) else { return false };
    if a.constant != 0 || !a.terms.keys().all(|v| claim(*v, "whole")) {
        return false;
    }
    let mut digits: Vec<(i64, i64)> = a.terms.iter().filter_map(|(v, c)| Some((*c, ranges.get(*v)?.1 + 1))).collect();
    digits.sort_unstable();
    // Each step may reach as far as the smaller ones together leave no gap.
    let reach =
        digits.into_iter().try_fold(1, |reach, (c, extent)| (0 < c && c <= reach).then(|| reach + c * (extent - 1)));
    reach.is_some_and(|reach| reach >= n)
}
