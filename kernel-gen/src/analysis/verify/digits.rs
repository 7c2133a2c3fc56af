//! A fused loop's variable taken apart into the variables it was fused from.
//!
//! Where `f` in `0..e` occurs as `f / c` and `f % c` with `c` a divisor of `e`, it stands for two independent variables
//! `q` in `0..e / c` and `r` in `0..c` with `f = c * q + r`. Said with those, dimensions that share only `f` have nothing
//! in common any more, and each can be looked at on its own.
//!
//! The other way around, two variables that are only ever divided together, `k * i + j` with `j` in `0..k`, are first made
//! one: of 32 lanes that share out rows of six pieces, none has a row or a piece of its own.

use super::facts::Facts;
use crate::analysis::simplify::{Sum, simplify};
use crate::ir::{BinOp, Expr, VarId};

/// An access's indices and what holds there.
pub(super) type Part<'a> = (&'a mut Vec<Expr>, &'a mut Facts);

/// A variable and the two it was taken apart into.
pub(super) struct Digits {
    pub(super) whole: VarId,
    pub(super) quotient: VarId,
    pub(super) remainder: VarId,
}

/// Makes one variable of two that are divided as one number, in one access, whose expressions it simplifies. New variables
/// are numbered from `fresh`; the next number that is free comes back. Any value of the two is one of the new one and the
/// other way around, so nothing is lost where they stand alone.
pub(super) fn put_together((index, facts): Part, fresh: u32) -> u32 {
    // `(32 * i + j) / 8` is `4 * i + j / 8`: there is nothing to put together.
    simplify_all(index, facts);
    let mut next = fresh;
    while let Some((high, low, k, extent)) = together(index, facts) {
        let whole = Expr::Var(VarId(next));
        let by = [(high, whole.clone().floor_div(k)), (low, whole.floor_mod(k))];
        replace((index, facts), &by, &[(VarId(next), extent)]);
        next += 1;
        if next == fresh + MOST_PAIRS {
            break;
        }
    }
    next
}

/// Pairs that are looked for in one access.
const MOST_PAIRS: u32 = 4;

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
    index.iter_mut().for_each(|e| *e = simplify(e, &facts.ranges));
    facts.guards.iter_mut().for_each(|(guard, _)| *guard = simplify(guard, &facts.ranges));
}

/// Variables `high` and `low` of which `k * high + low` is divided, with `low` in `0..k`, and how many values that has.
fn together(index: &[Expr], facts: &Facts) -> Option<(VarId, VarId, i64, i64)> {
    let mut found = None;
    for e in index.iter().chain(facts.guards.iter().map(|(g, _)| g)) {
        e.walk(&mut |e| {
            let Expr::Binary(BinOp::Div | BinOp::Mod, dividend, _) = e else { return };
            let Sum { terms, constant: 0 } = Sum::of((**dividend).clone()) else { return };
            let [(Expr::Var(a), x), (Expr::Var(b), y)] = terms[..] else { return };
            let (high, low, k) = if y == 1 { (a, b, x) } else { (b, a, y) };
            let whole = |v: VarId| facts.ranges.get(v).filter(|(first, _)| *first == 0).map(|(_, last)| last + 1);
            if x.min(y) == 1 && k > 1 && whole(low) == Some(k) {
                found = found.or(whole(high).and_then(|n| Some((high, low, k, n.checked_mul(k)?))));
            }
        });
    }
    found
}

/// Takes apart what can be, the same way in all accesses; new variables are numbered from `fresh`.
pub(super) fn take_apart(parts: &mut [Part], fresh: u32) -> Vec<Digits> {
    let mut out: Vec<Digits> = vec![];
    // Each step lowers an extent, so this ends by itself; the limit is for extents with many factors.
    while out.len() < 32 {
        let Some((whole, c, extent)) = find(parts) else { break };
        let at = fresh + 2 * out.len() as u32;
        let (quotient, remainder) = (VarId(at), VarId(at + 1));
        let by = [(whole, quotient * c + remainder)];
        for (index, facts) in parts.iter_mut() {
            replace((index, facts), &by, &[(quotient, extent / c), (remainder, c)]);
        }
        out.push(Digits { whole, quotient, remainder });
    }
    out
}

/// A variable that is divided by a proper divisor of its extent, and has its whole range in all accesses.
fn find(parts: &[Part]) -> Option<(VarId, i64, i64)> {
    let mut candidates: Vec<(VarId, i64)> = vec![];
    for (index, facts) in parts {
        for e in index.iter().chain(facts.guards.iter().map(|(g, _)| g)) {
            e.walk(&mut |e| {
                if let Expr::Binary(BinOp::Div | BinOp::Mod, a, c) = e
                    && let (Expr::Var(v), Some(c)) = (&**a, c.as_int())
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
