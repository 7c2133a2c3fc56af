//! Vector accesses are naturally aligned where the target demands it.

use super::access::Site;
use super::fault::{Fault, FaultKind};
use super::limits::Limits;
use crate::analysis::simplify::{Sum, simplify};
use crate::ir::{Expr, Kernel, LoopKind, Scope, VarId};

/// Checks the alignment rule under "Target".
pub(super) fn check(kernel: &Kernel, limits: &Limits, sites: &[Site], faults: &mut Vec<Fault>) {
    if !limits.require_vector_alignment {
        return;
    }
    for site in sites {
        let b = kernel.buffer(site.buffer);
        if b.scope == Scope::Register {
            continue;
        }
        // Lanes of a lowered vector, or the loop that will become them.
        let vector: Option<(VarId, i64)> = site.lanes.or_else(|| {
            site.loops.iter().find(|l| l.kind == LoopKind::Vectorized && l.extent > 1).map(|l| (l.var, l.extent))
        });
        let Some((lane, lanes)) = vector else { continue };
        let sum = Sum::of(simplify(&b.address(&site.index), &site.facts.ranges));
        // Only neighbouring lanes make one access; others are gathered one by one.
        let contiguous =
            sum.terms.iter().all(|(atom, c)| if *atom == Expr::Var(lane) { *c == 1 } else { !atom.mentions(lane) })
                && sum.terms.iter().any(|(atom, _)| *atom == Expr::Var(lane));
        if !contiguous {
            continue;
        }
        let bytes = lanes.saturating_mul(b.dtype.bytes() as i64).min(limits.vector_bytes);
        // A vector of three is moved as a pair and one, so only its power of two needs aligning.
        let unit = (bytes / b.dtype.bytes() as i64).max(1);
        let unit = 1i64 << unit.trailing_zeros();
        let stray = sum.terms.iter().find(|(atom, c)| *atom != Expr::Var(lane) && c % unit != 0);
        if stray.is_none() && sum.constant % unit == 0 {
            continue;
        }
        let offset = match stray {
            Some((atom, c)) => format!("moves by {c} elements with {}", text(kernel, atom)),
            None => format!("starts at element {}", sum.constant.rem_euclid(unit)),
        };
        let cause =
            format!("a vector of {lanes} {} of {} {offset}, so it is not aligned to {bytes} bytes", b.dtype, b.name);
        let help = format!("pad the rows of {} to a multiple of {unit} elements, or use shorter vectors", b.name);
        faults.push(Fault::at(kernel, &site.loops, site.stmt, FaultKind::MisalignedVector, cause, help));
    }
}

fn text(kernel: &Kernel, atom: &Expr) -> String {
    let mut printable = true;
    atom.walk(&mut |e| printable &= !matches!(e, Expr::Var(v) if v.0 as usize >= kernel.vars.len()));
    if printable { crate::ir::print::expr(kernel, atom) } else { "a tile's index".to_string() }
}
