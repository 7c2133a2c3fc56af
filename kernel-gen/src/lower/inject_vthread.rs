//! Interleaves virtual threads within the thread that runs them.
//!
//! ```text
//! for v in 0..2 vthread {                    alloc acc: f32[2, 4]
//!   alloc acc: f32[4]                        for v unrolled { acc[v, ...] = 0 }
//!   acc[...] = 0                        ->   for k {
//!   for k { s(v, k); acc[...] += t(v, k) }     for v unrolled { s(v, k) }  for v unrolled { acc[v, ...] += t(v, k) } }
//! }
//! ```
//! Iterations of a vthread loop do not depend on each other, so the loop moves inwards to the statements that differ
//! between them. A statement that is the same for all runs once: the load of a shared operand is shared, and all virtual
//! threads meet at one barrier. What the body allocates gets a dimension for the virtual threads, unless all of them would
//! fill it alike.

use super::copy::fresh_copy;
use super::pass::{LowerError, LowerOptions};
use super::vectorize::{privatize, reads_any};
use crate::ir::{BufferId, Expr, For, Kernel, LoopKind, Stmt, VarId, visit};
use std::collections::VecDeque;

/// The pass.
pub fn run(mut kernel: Kernel, _: &LowerOptions) -> Result<Kernel, LowerError> {
    let body = std::mem::take(&mut kernel.body);
    kernel.body = visit::rewrite(body, &mut |s| match s {
        Stmt::For(l) if l.kind == LoopKind::VThread => {
            let mut out = vec![];
            let v = VThread { var: l.var, extent: l.extent };
            v.block(&mut kernel, l.body, &mut out);
            out
        }
        other => vec![other],
    });
    Ok(kernel)
}

struct VThread {
    var: VarId,
    extent: i64,
}

impl VThread {
    fn block(&self, kernel: &mut Kernel, stmts: Vec<Stmt>, out: &mut Vec<Stmt>) {
        let mut stmts = VecDeque::from(stmts);
        while let Some(s) = stmts.pop_front() {
            match s {
                Stmt::Alloc(b) if self.is_filled_alike(kernel, b, stmts.make_contiguous()) => out.push(s),
                Stmt::Alloc(b) => {
                    let rest = std::mem::take(&mut stmts).into();
                    stmts = privatize(kernel, b, &Expr::Var(self.var), self.extent, true, rest).into();
                    out.push(Stmt::Alloc(b));
                }
                Stmt::Let { var, value } if value.mentions(self.var) => {
                    let written = |b: BufferId| stmts.iter().any(|s| s.writes(b));
                    if reads_any(&value, &written) {
                        // Substituting would read what later statements wrote; the rest stays together.
                        let mut rest = vec![Stmt::Let { var, value }];
                        rest.extend(stmts.drain(..));
                        self.repeat(kernel, rest, out);
                    } else {
                        stmts = stmts.into_iter().map(|s| s.subst(var, &value)).collect();
                    }
                }
                Stmt::For(l) => {
                    let mut body = vec![];
                    self.block(kernel, l.body, &mut body);
                    out.push(Stmt::For(For { body, ..l }));
                }
                Stmt::If { cond, then, otherwise } if !cond.mentions(self.var) => {
                    let (mut new_then, mut new_otherwise) = (vec![], vec![]);
                    self.block(kernel, then, &mut new_then);
                    self.block(kernel, otherwise, &mut new_otherwise);
                    out.push(Stmt::If { cond, then: new_then, otherwise: new_otherwise });
                }
                Stmt::Barrier(_) | Stmt::Let { .. } => out.push(s),
                other if self.is_same_for_all(&other) => out.push(other),
                other => self.repeat(kernel, vec![other], out),
            }
        }
    }

    /// Whether all that is written to a private buffer is the same for all virtual threads, so that one will do for them.
    fn is_filled_alike(&self, kernel: &Kernel, buffer: BufferId, stmts: &[Stmt]) -> bool {
        stmts.iter().all(|s| match s {
            Stmt::For(l) => self.is_filled_alike(kernel, buffer, &l.body),
            Stmt::If { cond, then, otherwise } => {
                let inside = [then, otherwise].map(|b| self.is_filled_alike(kernel, buffer, b));
                inside == [true; 2] && (!cond.mentions(self.var) || !s.writes(buffer))
            }
            Stmt::Store { value, .. } if s.written() == Some(buffer) => {
                // Private memory may get a copy for each virtual thread yet.
                let mut common = true;
                value.walk(&mut |e| {
                    if let Expr::Load(b, _) = e {
                        common &= !kernel.buffer(*b).scope.is_private();
                    }
                });
                common && self.is_same_for_all(s)
            }
            Stmt::Let { value, .. } => !value.mentions(self.var),
            other => !other.writes(buffer),
        })
    }

    /// Whether running the statement once is as good as running it for each virtual thread.
    fn is_same_for_all(&self, s: &Stmt) -> bool {
        let mut mentions = false;
        s.exprs(&mut |e| mentions |= e.mentions(self.var));
        match s {
            Stmt::Store { buffer, value, .. } => !mentions && !value.reads(*buffer),
            _ => false,
        }
    }

    fn repeat(&self, kernel: &mut Kernel, stmts: Vec<Stmt>, out: &mut Vec<Stmt>) {
        let whole = Stmt::For(For {
            var: self.var,
            extent: self.extent,
            kind: LoopKind::Unrolled,
            pragmas: vec![],
            body: stmts,
        });
        // Each repetition needs a variable of its own.
        out.extend(fresh_copy(kernel, &[whole]));
    }
}
