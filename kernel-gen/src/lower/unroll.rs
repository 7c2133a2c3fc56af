//! Copies the bodies of unrolled loops out.
//!
//! Three kinds of loops are unrolled: those of kind `unrolled`; those below a loop with the pragma
//! `auto_unroll_max_step(n)`, from the inside out, as long as the copied body has at most `n` statements (with
//! `unroll_explicit(0)` they become unrolled loops that the compiler is advised to copy); and serial loops whose variable
//! indexes a register buffer, because registers have no run-time index. A loop that would exceed the limit of the options
//! stays a loop with kind `unrolled`, which emitters print as advice.

use super::copy::fresh_copy;
use super::pass::{LowerError, LowerOptions};
use crate::ir::{Expr, For, Kernel, LoopKind, Pragma, Scope, Stmt, VarId};

/// The pass.
pub fn run(mut kernel: Kernel, options: &LowerOptions) -> Result<Kernel, LowerError> {
    let body = std::mem::take(&mut kernel.body);
    let advice = Advice { max_step: 0, explicit: true };
    kernel.body = block(&mut kernel, body, advice, options);
    Ok(kernel)
}

/// What the pragmas of enclosing loops say.
#[derive(Clone, Copy)]
struct Advice {
    max_step: i64,
    explicit: bool,
}

fn block(kernel: &mut Kernel, stmts: Vec<Stmt>, advice: Advice, options: &LowerOptions) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(stmts.len());
    for s in stmts {
        match s {
            Stmt::For(l) => unroll_loop(kernel, l, advice, options, &mut out),
            Stmt::If { cond, then, otherwise } => {
                let then = block(kernel, then, advice, options);
                let otherwise = block(kernel, otherwise, advice, options);
                out.push(Stmt::If { cond, then, otherwise });
            }
            other => out.push(other),
        }
    }
    out
}

fn unroll_loop(kernel: &mut Kernel, mut l: For, advice: Advice, options: &LowerOptions, out: &mut Vec<Stmt>) {
    let mut inner = advice;
    for p in &l.pragmas {
        match p {
            Pragma::AutoUnrollMaxStep(n) => inner.max_step = *n,
            Pragma::UnrollExplicit(explicit) => inner.explicit = *explicit,
            Pragma::FetchAhead(_) | Pragma::HoldVectors(_) => {}
        }
    }
    // What is not about unrolling is for the emitter.
    l.pragmas.retain(|p| matches!(p, Pragma::FetchAhead(_) | Pragma::HoldVectors(_)));
    l.body = block(kernel, l.body, inner, options);
    let steps = l.extent.saturating_mul(count_steps(&l.body));
    let automatic = l.kind == LoopKind::Serial && steps <= advice.max_step;
    if automatic {
        l.kind = LoopKind::Unrolled;
    }
    let needed = l.kind == LoopKind::Serial && indexes_register(kernel, l.var, &l.body);
    let wanted = l.kind == LoopKind::Unrolled && (advice.explicit || !automatic);
    if (needed || wanted) && steps <= options.max_unrolled_steps {
        for i in 0..l.extent {
            let body: Vec<Stmt> = if i == 0 { l.body.clone() } else { fresh_copy(kernel, &l.body) };
            out.extend(body.into_iter().map(|s| set_var(s, l.var, i)));
        }
    } else {
        out.push(Stmt::For(l));
    }
}

/// Replaces the variable by a constant, folding what becomes constant by that.
fn set_var(s: Stmt, var: VarId, value: i64) -> Stmt {
    s.map_exprs(&mut |e| {
        e.map(&mut |e| match e {
            Expr::Var(v) if v == var => Expr::Int(value),
            Expr::Binary(op, a, b) => Expr::bin(op, *a, *b),
            other => other,
        })
    })
}

/// Statements that one execution of the block runs, counting what loops repeat as often as they repeat it.
pub(super) fn count_steps(block: &[Stmt]) -> i64 {
    block.iter().fold(0i64, |n, s| {
        n.saturating_add(match s {
            Stmt::For(l) if l.kind == LoopKind::Vectorized => count_steps(&l.body),
            Stmt::For(l) => l.extent.saturating_mul(count_steps(&l.body)),
            Stmt::If { then, otherwise, .. } => count_steps(then).saturating_add(count_steps(otherwise)),
            Stmt::Alloc(_) => 0,
            _ => 1,
        })
    })
}

/// Whether the variable stands in an index of a register buffer.
fn indexes_register(kernel: &Kernel, var: VarId, block: &[Stmt]) -> bool {
    let register = |b| kernel.buffer(b).scope == Scope::Register;
    let mut found = false;
    for s in block {
        s.walk(&mut |s| {
            s.accesses(&mut |a| {
                found |= a.extents.is_none() && register(a.buffer) && a.index.iter().any(|i| i.mentions(var));
            });
        });
    }
    found
}
