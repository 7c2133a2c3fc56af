//! Cuts a kernel into phases and places its memory.
//!
//! A phase is a top-level parallel loop, whose iterations workers share, or a run of other statements, which one worker
//! executes. Phases run one after the other with a barrier between. Buffers allocated at the top live in the workspace,
//! which all workers see; buffers allocated inside belong to the worker: small ones stand on its stack, large ones in its
//! part of the workspace.

use crate::emit::EmitError;
use crate::emit::clike::walk::{Let, used};
use crate::integer::round_up;
use crate::ir::{BufferId, First, Kernel, LoopKind, Scope, Stmt, VarId};
use std::collections::BTreeMap;

/// Where a buffer lives in the emitted code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A parameter of the function.
    Param,
    /// At this offset from the start of the workspace.
    Workspace(i64),
    /// At this offset from the start of the worker's part of the workspace.
    Worker(i64),
    /// A local array.
    Stack,
    /// Named variables.
    Registers,
}

/// A run of statements that the caller starts as one.
#[derive(Clone, Debug)]
pub(super) struct PhaseBody<'k> {
    /// `let`s of earlier phases that this one uses.
    pub(super) lets: Vec<Let<'k>>,
    /// The variable of the parallel loop, if it is one.
    pub(super) parallel: Option<VarId>,
    /// Iterations to share; 1 for a run of statements.
    pub(super) extent: i64,
    /// How many of them there are to run, if that depends on the number of units.
    pub(super) first: Option<First>,
    /// What one iteration, or the run, executes.
    pub(super) body: Vec<Stmt>,
}

/// Phases and memory of a kernel.
#[derive(Clone, Debug)]
pub(super) struct Layout<'k> {
    pub(super) phases: Vec<PhaseBody<'k>>,
    pub(super) places: BTreeMap<BufferId, Place>,
    pub(super) workspace_bytes: i64,
    pub(super) worker_bytes: i64,
}

/// Private buffers above this size do not go on the stack, which belongs to the caller's thread.
const MAX_STACK_BYTES: i64 = 4096;

/// Everything in the workspace starts at a multiple of a cache line.
fn align(bytes: i64) -> i64 {
    round_up(bytes, 64)
}

pub(super) fn layout(kernel: &Kernel) -> Result<Layout<'_>, EmitError> {
    let mut out = Layout { phases: vec![], places: BTreeMap::new(), workspace_bytes: 0, worker_bytes: 0 };
    for p in &kernel.params {
        out.places.insert(*p, Place::Param);
    }
    let mut lets: Vec<Let> = vec![];
    let mut run: Vec<Stmt> = vec![];
    let is_parallel = |s: &Stmt| matches!(s, Stmt::For(l) if l.kind == LoopKind::Parallel);
    let several = kernel.body.iter().any(is_parallel);
    for s in &kernel.body {
        match s {
            Stmt::Alloc(b) if kernel.buffer(*b).scope == Scope::Shared => {
                return Err(scope_error(kernel, *b));
            }
            // At the top, all scopes mean the same: one instance, alive through all later phases.
            Stmt::Alloc(b) if several || kernel.buffer(*b).scope != Scope::Register => {
                out.places.insert(*b, Place::Workspace(out.workspace_bytes));
                out.workspace_bytes += align(kernel.buffer(*b).extent_bytes());
            }
            Stmt::For(l) if l.kind == LoopKind::Parallel => {
                flush(&mut out.phases, &mut run, &lets);
                out.phases.push(PhaseBody {
                    lets: used(&lets, &l.body),
                    parallel: Some(l.var),
                    extent: l.extent,
                    first: kernel.first_of(l.var),
                    body: l.body.clone(),
                });
            }
            Stmt::Let { var, value } => {
                if several && value.reads_memory() {
                    return Err(EmitError::LetAcrossPhases { var: kernel.var(*var).name.clone() });
                }
                lets.push((*var, value));
                run.push(s.clone());
            }
            other => run.push(other.clone()),
        }
    }
    flush(&mut out.phases, &mut run, &lets);
    for phase in &out.phases {
        let used = place_private(kernel, &phase.body, 0, &mut out.places)?;
        out.worker_bytes = out.worker_bytes.max(used);
    }
    Ok(out)
}

fn scope_error(kernel: &Kernel, b: BufferId) -> EmitError {
    let b = kernel.buffer(b);
    EmitError::Scope { buffer: b.name.clone(), scope: b.scope.name() }
}

fn flush<'k>(phases: &mut Vec<PhaseBody<'k>>, run: &mut Vec<Stmt>, lets: &[Let<'k>]) {
    // Lets and allocations alone do nothing.
    if run.iter().any(|s| !matches!(s, Stmt::Let { .. } | Stmt::Alloc(_))) {
        let own = |v: VarId| run.iter().any(|s| matches!(s, Stmt::Let { var, .. } if *var == v));
        let earlier: Vec<Let> = lets.iter().filter(|(v, _)| !own(*v)).copied().collect();
        let lets = used(&earlier, run);
        phases.push(PhaseBody { lets, parallel: None, extent: 1, first: None, body: std::mem::take(run) });
    } else {
        run.retain(|s| matches!(s, Stmt::Alloc(_)));
    }
}

/// Places the buffers allocated in a block, from `offset` in the worker's memory; gives the end of what is used.
/// Buffers of blocks that are not alive at the same time share memory.
fn place_private(
    kernel: &Kernel,
    block: &[Stmt],
    mut offset: i64,
    places: &mut BTreeMap<BufferId, Place>,
) -> Result<i64, EmitError> {
    let mut used = offset;
    for s in block {
        match s {
            Stmt::Alloc(b) => {
                let buffer = kernel.buffer(*b);
                match buffer.scope {
                    Scope::Shared | Scope::Fragment(_) | Scope::Mbarrier => return Err(scope_error(kernel, *b)),
                    Scope::Register => {
                        places.insert(*b, Place::Registers);
                    }
                    Scope::Local | Scope::Global if buffer.extent_bytes() <= MAX_STACK_BYTES => {
                        places.insert(*b, Place::Stack);
                    }
                    Scope::Local | Scope::Global => {
                        places.insert(*b, Place::Worker(offset));
                        offset += align(buffer.extent_bytes());
                        used = used.max(offset);
                    }
                }
            }
            Stmt::For(l) => used = used.max(place_private(kernel, &l.body, offset, places)?),
            Stmt::If { then, otherwise, .. } => {
                used = used.max(place_private(kernel, then, offset, places)?);
                used = used.max(place_private(kernel, otherwise, offset, places)?);
            }
            _ => {}
        }
    }
    Ok(used)
}
