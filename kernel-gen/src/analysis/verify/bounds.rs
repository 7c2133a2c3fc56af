//! Every index is inside its dimension.

use super::access::{Pseudo, Site};
use super::enumerate::{self, BUDGET};
use super::facts::Facts;
use super::fault::{Fault, FaultKind, MOST_FAULTS};
use super::mixed_radix;
use crate::analysis::range::bounds;
use crate::analysis::simplify::{Sum, simplify};
use crate::ir::{BinOp, Expr, Kernel, VarId, print};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Checks the rule "Bounds".
pub(super) fn check(kernel: &Kernel, sites: &[Site], faults: &mut Vec<Fault>) {
    for site in sites.iter().filter(|s| !s.clipped) {
        if faults.len() > MOST_FAULTS {
            return;
        }
        let shape = &kernel.buffer(site.buffer).shape;
        for (d, (index, extent)) in site.index.iter().zip(shape).enumerate() {
            if let Some(fault) = dimension(kernel, site, d, index, *extent) {
                faults.push(fault);
            }
        }
    }
}

/// What an index was found to be.
enum Outcome {
    InBounds,
    /// With these variables it has this value.
    Outside(i64, Vec<(VarId, i64)>),
    Unknown,
}

/// Whether an index is at least 0: one side of a maximum says so, of a minimum both.
fn at_least_zero(facts: &Facts, index: &Expr) -> bool {
    let of = |e: &Expr| at_least_zero(facts, e);
    facts.proves_at_most_zero(&(Expr::Int(0) - index.clone()))
        || match index {
            Expr::Binary(BinOp::Max, a, b) => of(a) || of(b),
            Expr::Binary(BinOp::Min, a, b) => of(a) && of(b),
            _ => false,
        }
}

/// Whether an index is at most so much, likewise.
fn at_most(facts: &Facts, index: &Expr, most: i64) -> bool {
    let of = |e: &Expr| at_most(facts, e, most);
    facts.proves_at_most_zero(&(index.clone() - most))
        || match index {
            Expr::Binary(BinOp::Max, a, b) => of(a) && of(b),
            Expr::Binary(BinOp::Min, a, b) => of(a) || of(b),
            _ => false,
        }
}

fn dimension(kernel: &Kernel, site: &Site, d: usize, index: &Expr, extent: i64) -> Option<Fault> {
    let facts = &site.facts;
    if index.as_int().is_some_and(|i| (0..extent).contains(&i)) {
        return None;
    }
    if at_least_zero(facts, index) && at_most(facts, index, extent - 1) {
        return None;
    }
    if as_number(kernel, site, index, extent) {
        return None;
    }
    let outcome = search(facts, index, extent);
    if matches!(outcome, Outcome::InBounds) {
        return None;
    }
    let name = &kernel.buffer(site.buffer).name;
    let text = index_text(kernel, site, d, index);
    let tail = is_tail(facts, index, extent);
    let kind = match (tail, site.touch.writes()) {
        (true, _) => FaultKind::UnguardedTail,
        (false, false) => FaultKind::OutOfBoundsRead,
        (false, true) => FaultKind::OutOfBoundsWrite,
    };
    let (cause, help) = match outcome {
        Outcome::Outside(value, at) => {
            let at: Vec<String> = at
                .iter()
                .filter_map(|(v, n)| kernel.vars.get(v.0 as usize).map(|var| format!("{} = {n}", var.name)))
                .collect();
            let at = if at.is_empty() { String::new() } else { format!(" with {}", at.join(", ")) };
            let cause = format!("index {d} of {name} is {text}, which is {value}{at}, outside 0..{extent}");
            let help = if tail {
                format!("guard the access with `if {text} < {extent}`, or split by a factor that divides the extent")
            } else {
                "shrink the loops, or guard the access with an if or a select".to_string()
            };
            (cause, help)
        }
        _ => (
            format!("index {d} of {name} is {text}, which cannot be shown to be inside 0..{extent}"),
            format!("guard the access with `if 0 <= {text} && {text} < {extent}`"),
        ),
    };
    Some(Fault::at(kernel, &site.loops, site.stmt, kind, cause, help))
}

/// Whether it follows where variables that count one number are that number, and others are digits.
fn as_number(kernel: &Kernel, site: &Site, index: &Expr, extent: i64) -> bool {
    let (mut index, mut facts) = (vec![index.clone()], site.facts.clone());
    mixed_radix::number_form(
        &mut [(&mut index, &mut facts)],
        Pseudo::new(kernel).free(site.index.len()),
        &BTreeSet::new(),
    );
    let mut facts = facts.noted();
    facts.settle_beside_atoms();
    let (negated, over) = (Expr::Int(0) - index[0].clone(), index[0].clone() - (extent - 1));
    facts.proves_at_most_zero(&negated) && facts.proves_at_most_zero(&over)
}

/// The index as the kernel writes it; pseudo variables have no text.
fn index_text(kernel: &Kernel, site: &Site, d: usize, index: &Expr) -> String {
    let mut printable = true;
    index.walk(&mut |e| printable &= !matches!(e, Expr::Var(v) if v.0 as usize >= kernel.vars.len()));
    if printable {
        return print::expr(kernel, index);
    }
    let mut text = None;
    site.stmt.own_exprs(&mut |e| {
        e.walk(&mut |e| {
            if let Expr::Load(b, idx) = e
                && *b == site.buffer
                && !site.touch.writes()
            {
                text.get_or_insert_with(|| print::expr(kernel, &idx[d]));
            }
        });
    });
    if let (crate::ir::Stmt::Store { indices, .. } | crate::ir::Stmt::Reduce { indices, .. }, true) =
        (site.stmt, site.touch.writes())
    {
        text = Some(print::expr(kernel, &indices[d]));
    }
    text.unwrap_or_else(|| "that of a tile".to_string())
}

/// Tries all values of the variables that take part, the conditions included where there is budget for theirs.
fn search(facts: &Facts, index: &Expr, extent: i64) -> Outcome {
    let guards: Vec<&(Expr, bool)> = facts.guards.iter().filter(|(g, _)| enumerate::variables([g]).is_some()).collect();
    for guarded in [true, false] {
        let used = if guarded { &guards[..] } else { &[] };
        let exprs = used.iter().map(|(g, _)| g).chain([index]);
        let Some(space) = enumerate::variables(exprs).and_then(|vars| enumerate::space(&vars, &facts.ranges, BUDGET))
        else {
            continue;
        };
        let found = enumerate::for_each(&space, |values| {
            let holds = |(g, truth): &&(Expr, bool)| enumerate::eval(g, values) == Some(i64::from(*truth));
            if !used.iter().all(holds) {
                return ControlFlow::Continue(());
            }
            match enumerate::eval(index, values) {
                Some(i) if (0..extent).contains(&i) => ControlFlow::Continue(()),
                other => ControlFlow::Break((other, values.to_vec())),
            }
        });
        return match found {
            ControlFlow::Continue(()) => Outcome::InBounds,
            ControlFlow::Break((Some(value), values)) => {
                let at = space.iter().map(|(v, ..)| (*v, values[v.0 as usize])).collect();
                // Without all conditions the point may not occur.
                if used.len() == facts.guards.len() { Outcome::Outside(value, at) } else { Outcome::Unknown }
            }
            ControlFlow::Break((None, _)) => Outcome::Unknown,
        };
    }
    Outcome::Unknown
}

/// Whether only the last iteration of a split loop reaches past the end: the index is `c * outer + inner`, the inner
/// part fills `0..c`, and one outer iteration less is in bounds.
fn is_tail(facts: &Facts, index: &Expr, extent: i64) -> bool {
    let index = simplify(index, &facts.ranges);
    let sum = Sum::of(index.clone());
    if !matches!(bounds(&index, &facts.ranges), Some((lo, hi)) if lo >= 0 && hi >= extent) {
        return false;
    }
    sum.terms.iter().any(|(outer, c)| {
        let Some((lo, hi)) = bounds(outer, &facts.ranges) else { return false };
        if *c < 2 || lo == hi {
            return false;
        }
        let (mut most, mut width) = (sum.constant, 0i64);
        for (atom, k) in sum.terms.iter().filter(|(atom, _)| atom != outer) {
            let Some((lo, hi)) = bounds(atom, &facts.ranges) else { return false };
            most = most.saturating_add(k.saturating_mul(if *k > 0 { hi } else { lo }));
            if k < c {
                width = width.saturating_add(k.saturating_mul(hi - lo));
            }
        }
        let previous = most.saturating_add(c.saturating_mul(hi - 1));
        width == c - 1 && previous < extent
    })
}
