//! Separates the initialisation of a reduction from its updates.
//!
//! ```text
//! for k { for i { for j vectorized {               for i { for j vectorized { acc[i, j] = 0 } }
//!   acc[i, j] += v init 0 over (k) } } }      ->   for k { for i { for j vectorized { acc[i, j] += v over () } } }
//! ```
//! The initialisation runs just before the outermost of the reduction's own reduce loops, in copies of those spatial
//! loops inside it that the destination mentions (of the same kind, so a register tile is initialised unrolled and in
//! vectors). Guards around the reduction that do not depend on reduce loops guard the initialisation too; the others
//! hold in the first iteration, which is when the reduction would have been initialised, and are dropped.

use super::copy::fresh_copy;
use super::pass::{LowerError, LowerOptions};
use crate::ir::{BinOp, BufferId, Expr, For, Kernel, Stmt, UnOp, VarId};

/// The pass.
pub fn run(mut kernel: Kernel, _: &LowerOptions) -> Result<Kernel, LowerError> {
    let body = std::mem::take(&mut kernel.body);
    let (body, pending) = block(&mut kernel, body)?;
    if let Some(init) = pending.first() {
        return Err(LowerError::ReduceLoopMissing {
            buffer: kernel.buffer(init.buffer).name.clone(),
            missing: init.over.iter().map(|v| kernel.var(*v).name.clone()).collect(),
        });
    }
    kernel.body = body;
    Ok(kernel)
}

/// An initialisation on its way out of the loops.
struct Init {
    buffer: BufferId,
    indices: Vec<Expr>,
    value: Expr,
    /// All reduce loops of the reduction, which the initialisation must not mention.
    all: Vec<VarId>,
    /// Those not passed yet.
    over: Vec<VarId>,
    /// What was passed, innermost first.
    wraps: Vec<Wrap>,
}

enum Wrap {
    /// A spatial loop, without its body.
    Loop(For),
    Guard(Expr),
}

impl Init {
    fn substitute(&mut self, var: VarId, by: &Expr) {
        let replace = |e: &mut Expr| *e = std::mem::replace(e, Expr::Int(0)).subst(var, by);
        self.indices.iter_mut().for_each(replace);
        replace(&mut self.value);
        for w in &mut self.wraps {
            if let Wrap::Guard(c) = w {
                replace(c);
            }
        }
    }

    /// The nest that initialises.
    fn build(self, kernel: &mut Kernel) -> Vec<Stmt> {
        let mentions = |v: VarId, nest: &[Stmt]| {
            let mut found = false;
            nest.iter().for_each(|s| s.exprs(&mut |e| found |= e.mentions(v)));
            found
        };
        let mut nest = vec![Stmt::store(self.buffer, self.indices, self.value)];
        for w in self.wraps {
            match w {
                Wrap::Loop(l) if mentions(l.var, &nest) => nest = vec![Stmt::For(For { body: nest, ..l })],
                Wrap::Loop(_) => {}
                Wrap::Guard(cond) => {
                    let kept = conjuncts(cond).into_iter().filter(|c| !self.all.iter().any(|v| c.mentions(*v)));
                    if let Some(cond) = Expr::all(kept) {
                        nest = vec![Stmt::if_(cond, nest)];
                    }
                }
            }
        }
        fresh_copy(kernel, &nest)
    }
}

/// The conditions that a conjunction joins.
pub(super) fn conjuncts(cond: Expr) -> Vec<Expr> {
    match cond {
        Expr::Binary(BinOp::And, a, b) => {
            let mut all = conjuncts(*a);
            all.extend(conjuncts(*b));
            all
        }
        other => vec![other],
    }
}

fn block(kernel: &mut Kernel, stmts: Vec<Stmt>) -> Result<(Vec<Stmt>, Vec<Init>), LowerError> {
    let (mut out, mut pending): (Vec<Stmt>, Vec<Init>) = (vec![], vec![]);
    // `let`s of this block that stand before an initialisation on its way out; it leaves their scope.
    let mut lets: Vec<(VarId, Expr)> = vec![];
    for s in stmts {
        let (rewritten, mut inits) = stmt(kernel, s, &mut out)?;
        for init in &mut inits {
            for (var, value) in lets.iter().rev() {
                init.substitute(*var, value);
            }
        }
        pending.extend(inits);
        if let Stmt::Let { var, value } = &rewritten {
            lets.push((*var, value.clone()));
        }
        out.push(rewritten);
    }
    Ok((out, pending))
}

/// Rewrites one statement. Initialisations whose outermost reduce loop this statement is are appended to `before`.
fn stmt(kernel: &mut Kernel, s: Stmt, before: &mut Vec<Stmt>) -> Result<(Stmt, Vec<Init>), LowerError> {
    match s {
        Stmt::Reduce { buffer, indices, op, init, value, over } if !over.is_empty() => {
            let pending =
                Init { buffer, indices: indices.clone(), value: init.clone(), all: over.clone(), over, wraps: vec![] };
            Ok((Stmt::Reduce { buffer, indices, op, init, value, over: vec![] }, vec![pending]))
        }
        Stmt::For(mut l) => {
            let (body, inits) = block(kernel, std::mem::take(&mut l.body))?;
            let mut still = vec![];
            for mut init in inits {
                if init.over.contains(&l.var) {
                    if l.kind.is_concurrent() && l.extent > 1 {
                        return Err(LowerError::ConcurrentReduceLoop {
                            buffer: kernel.buffer(init.buffer).name.clone(),
                            var: kernel.var(l.var).name.clone(),
                            kind: l.kind.name(),
                        });
                    }
                    init.over.retain(|v| *v != l.var);
                    if init.over.is_empty() {
                        before.extend(init.build(kernel));
                        continue;
                    }
                } else {
                    init.wraps.push(Wrap::Loop(For { body: vec![], ..l.clone() }));
                }
                still.push(init);
            }
            l.body = body;
            Ok((Stmt::For(l), still))
        }
        Stmt::If { cond, then, otherwise } => {
            let (then, mut inits) = block(kernel, then)?;
            inits.iter_mut().for_each(|i| i.wraps.push(Wrap::Guard(cond.clone())));
            let (otherwise, mut negative) = block(kernel, otherwise)?;
            let not = Expr::un(UnOp::Not, cond.clone());
            negative.iter_mut().for_each(|i| i.wraps.push(Wrap::Guard(not.clone())));
            inits.extend(negative);
            Ok((Stmt::If { cond, then, otherwise }, inits))
        }
        other => Ok((other, vec![])),
    }
}
