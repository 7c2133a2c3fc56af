//! `branch`: a stage that selects what it stores stores it under a condition.
//!
//! ```text
//! branch(x_shared)
//! x_shared[i] = select(inside, x[i], 0)   ->   if inside { x_shared[i] = x[i] } else { x_shared[i] = 0 }
//! ```
//! Where the condition is the same for all threads of a warp, both sides are plain copies without conversions, and
//! lowering can take loops apart where it begins and ends to hold. Two statements write the stage then, so this goes behind
//! the steps that follow a stage's single statement. Refuses stages that store no select, and conditions that differ among
//! the lanes of a vectorized loop.

use super::error::{Reason, ScheduleError, refuse_stage};
use super::nest::{loops_on, the_writer};
use crate::ir::visit::rewrite;
use crate::ir::{BufferId, Expr, Kernel, LoopKind, Stmt};

const NAME: &str = "branch";

/// Makes the select that `stage` stores a conditional around two stores.
pub fn branch(k: &Kernel, stage: BufferId) -> Result<Kernel, ScheduleError> {
    let path = the_writer(k, NAME, stage)?;
    let plain = |why: String| refuse_stage(k, NAME, stage, Reason::NotPlain(why));
    let Some(Stmt::Store { value: Expr::Select(cond, ..), .. }) = path.last() else {
        return Err(plain("its statement does not store a select".to_string()));
    };
    let lanes = loops_on(&path).into_iter().find(|l| l.kind == LoopKind::Vectorized && cond.mentions(l.var));
    if let Some(l) = lanes {
        return Err(plain(format!("the condition differs among the lanes of loop `{}`", k.var(l.var).name)));
    }
    let mut out = k.clone();
    out.body = rewrite(std::mem::take(&mut out.body), &mut |s| {
        vec![match s {
            Stmt::Store { buffer, indices, value: Expr::Select(cond, yes, no) } if buffer == stage => Stmt::If {
                cond: *cond,
                then: vec![Stmt::store(buffer, indices.clone(), *yes)],
                otherwise: vec![Stmt::store(buffer, indices, *no)],
            },
            other => other,
        }]
    });
    Ok(out)
}
