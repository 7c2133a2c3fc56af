//! Allocates shared buffers, and barriers in shared memory, at the top of their launch.
//!
//! ```text
//! for b grid.x { for k { alloc s: f32[64] shared ... } }  ->  for b grid.x { alloc s: f32[64] shared  for k { ... } }
//! ```
//! A shared buffer is one piece of memory for the whole block, wherever it is allocated. Said once at the top, it stays
//! one where later passes copy the body of a loop.

use super::pass::{LowerError, LowerOptions};
use crate::ir::{BufferId, For, Kernel, LoopKind, Scope, Stmt, visit};

/// The pass.
pub fn run(mut kernel: Kernel, _: &LowerOptions) -> Result<Kernel, LowerError> {
    if (0..kernel.buffers.len()).all(|b| !of_block(&kernel, BufferId(b as u32))) {
        return Ok(kernel);
    }
    let body = std::mem::take(&mut kernel.body);
    kernel.body = launches(&kernel, body);
    Ok(kernel)
}

/// Whether the whole block has one of it.
fn of_block(kernel: &Kernel, b: BufferId) -> bool {
    matches!(kernel.buffer(b).scope, Scope::Shared | Scope::Mbarrier)
}

fn launches(kernel: &Kernel, block: Vec<Stmt>) -> Vec<Stmt> {
    block
        .into_iter()
        .map(|s| match s {
            Stmt::For(l) if matches!(l.kind, LoopKind::Grid(_) | LoopKind::Cluster(_) | LoopKind::Thread(_)) => {
                Stmt::For(launch(kernel, l))
            }
            Stmt::For(l) => Stmt::For(For { body: launches(kernel, l.body), ..l }),
            Stmt::If { cond, then, otherwise } => {
                Stmt::If { cond, then: launches(kernel, then), otherwise: launches(kernel, otherwise) }
            }
            other => other,
        })
        .collect()
}

fn launch(kernel: &Kernel, l: For) -> For {
    let mut shared: Vec<BufferId> = vec![];
    let rest = visit::rewrite(l.body, &mut |s| match s {
        Stmt::Alloc(b) if of_block(kernel, b) => {
            shared.push(b);
            vec![]
        }
        other => vec![other],
    });
    For { body: shared.into_iter().map(Stmt::Alloc).chain(rest).collect(), ..l }
}
