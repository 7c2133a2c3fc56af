//! Where a cache lives, and which loops its footprint must cover.
//!
//! A cache inside a loop holds what one iteration of the loop needs. Who shares it decides which of the loops *around*
//! it count as varying too:
//!
//! * `local` and `register` memory belongs to one thread: the loops around are all fixed.
//! * A fragment belongs to a warp: loops over its threads (`thread.x`) and vthreads vary, those over warps (`thread.y`,
//!   `thread.z`) are fixed.
//! * `shared` memory is filled and used by all threads of a block together: thread and vthread loops around vary, so
//!   that the box covers what any of them needs; grid loops are fixed. It is allocated outside of the thread loops,
//!   because there is one for all of them.
//! * `global` memory is seen by everybody, so concurrent iterations around it would write it at the same time: this is
//!   refused. Under serial loops alone nothing else varies.

use super::error::Reason;
use super::nest::{loops_on, replace_loop};
use crate::analysis::footprint::Span;
use crate::analysis::range::{Ranges, bounds};
use crate::analysis::simplify::{prove, simplify};
use crate::ir::{Axis, BufferId, Expr, For, Kernel, LoopKind, Scope, Stmt, VarId};

/// What a scope is called in the names of caches.
pub(super) fn suffix(scope: Scope) -> &'static str {
    match scope {
        Scope::Register => "reg",
        Scope::Fragment(_) => "frag",
        other => other.name(),
    }
}

fn is_thread(l: &For) -> bool {
    matches!(l.kind, LoopKind::Thread(_) | LoopKind::VThread)
}

/// The loops around a cache at the end of `path` (whose last statement is the loop that holds it) that its footprint
/// must cover.
pub(super) fn varying(k: &Kernel, path: &[&Stmt], scope: Scope) -> Result<Ranges, Reason> {
    let around = loops_on(path);
    if let Some(l) = around.iter().find(|l| l.kind == LoopKind::Vectorized) {
        let name = &k.var(l.var).name;
        return Err(Reason::Scope(format!("the lanes of vectorized loop `{name}` cannot hold it; attach further out")));
    }
    let mut out = Ranges::new();
    match scope {
        Scope::Local | Scope::Register => {}
        Scope::Shared | Scope::Mbarrier => around.iter().filter(|l| is_thread(l)).for_each(|l| out.insert_loop(l)),
        // The threads of a warp are neighbours along x; the other axes count warps.
        Scope::Fragment(_) => around
            .iter()
            .filter(|l| matches!(l.kind, LoopKind::Thread(Axis::X) | LoopKind::VThread))
            .for_each(|l| out.insert_loop(l)),
        Scope::Global => {
            if let Some(l) = around.iter().find(|l| l.kind.is_concurrent() || l.kind == LoopKind::VThread) {
                return Err(Reason::Scope(format!(
                    "its scope is global, which all iterations of the {} loop `{}` around the new place would write at \
                     the same time; give it scope local or shared (set_scope) first",
                    l.kind.name(),
                    k.var(l.var).name
                )));
            }
        }
    }
    Ok(out)
}

/// Private memory cannot carry values into or out of the iterations of a parallel or grid loop: refuses a private
/// cache in a body where such a loop stands between the body and the uses of `buffer`.
pub(super) fn reachable(k: &Kernel, body: &[Stmt], buffer: BufferId, scope: Scope) -> Result<(), Reason> {
    if !scope.is_private() && !matches!(scope, Scope::Fragment(_)) {
        return Ok(());
    }
    let uses = super::nest::paths(body, &|s| s.written() == Some(buffer) || super::nest::loads(s, buffer));
    let between =
        uses.iter().flat_map(|p| loops_on(p)).find(|l| matches!(l.kind, LoopKind::Parallel | LoopKind::Grid(_)));
    match between {
        Some(l) => Err(Reason::Scope(format!(
            "{scope} memory cannot be shared by the iterations of the {} loop `{}` inside; choose a place inside of that \
             loop",
            l.kind.name(),
            k.var(l.var).name
        ))),
        None => Ok(()),
    }
}

/// Inserts statements into a loop's body, before statement number `at`, and allocates `buffer` where its scope demands:
/// at the start of the body, or, for shared memory under thread loops, before the outermost of them.
pub(super) fn insert(k: &mut Kernel, var: VarId, at: usize, stmts: Vec<Stmt>, buffer: BufferId) {
    let outermost = outermost_thread(k, var).filter(|_| k.buffer(buffer).scope == Scope::Shared);
    replace_loop(k, var, |mut l| {
        l.body.splice(at..at, stmts);
        if outermost.is_none() {
            l.body.insert(0, Stmt::Alloc(buffer));
        }
        vec![Stmt::For(l)]
    });
    if let Some(outermost) = outermost {
        replace_loop(k, outermost, |l| vec![Stmt::Alloc(buffer), Stmt::For(l)]);
    }
}

/// The outermost thread or vthread loop around `var`, or `var` itself if it is one.
fn outermost_thread(k: &Kernel, var: VarId) -> Option<VarId> {
    let path = super::nest::paths(&k.body, &|s| matches!(s, Stmt::For(l) if l.var == var)).into_iter().next()?;
    loops_on(&path).into_iter().find(|l| is_thread(l)).map(|l| l.var)
}

/// Makes a box large enough for every access to `buffer` in `block`, those under a conditional that never runs included:
/// the rounded-up end of a guarded loop then stays inside of the box, and needs no guard.
pub(super) fn cover_guarded(block: &[Stmt], buffer: BufferId, spans: &[Span], ranges: &Ranges) -> Vec<Span> {
    let mut out = spans.to_vec();
    let mut cover = |idx: &[Expr]| {
        for (i, span) in idx.iter().zip(&mut out) {
            if let Some((0.., hi)) = bounds(&simplify(&(i.clone() - span.base.clone()), ranges), ranges) {
                span.extent = span.extent.max(hi + 1);
            }
        }
    };
    for s in block {
        s.exprs(&mut |e| {
            e.walk(&mut |e| {
                if let Expr::Load(b, idx) = e
                    && *b == buffer
                {
                    cover(idx);
                }
            });
        });
    }
    out
}

/// The conditions that `index` lies in `0..size`, without those that the ranges prove.
pub(super) fn in_bounds(index: &Expr, size: i64, ranges: &Ranges) -> Vec<Expr> {
    [Expr::Int(0).le(index.clone()), index.clone().lt(size)]
        .into_iter()
        .map(|c| simplify(&c, ranges))
        .filter(|c| prove(c, ranges) != Some(true))
        .collect()
}

/// Names for loops over the dimensions of a buffer, after the axes that its accesses are made of: `ci_x` for the second
/// dimension of `x[n, ci, oh + kh]`.
pub(super) fn axis_hints(k: &Kernel, block: &[Stmt], buffer: BufferId) -> Vec<String> {
    let mut found: Option<Vec<Expr>> = None;
    for s in block {
        s.walk(&mut |s| {
            s.accesses(&mut |a| {
                if a.buffer == buffer && a.extents.is_none() {
                    found.get_or_insert_with(|| a.index.to_vec());
                }
            });
        });
    }
    let of = super::nest::axis_name(&k.buffer(buffer).name);
    (0..k.buffer(buffer).shape.len())
        .map(|d| {
            let mut var = None;
            if let Some(idx) = &found {
                idx[d].walk(&mut |e| {
                    if let Expr::Var(v) = e {
                        var.get_or_insert(*v);
                    }
                });
            }
            match var {
                Some(v) => format!("{}_{of}", super::nest::axis_name(&k.var(v).name)),
                None => format!("d{d}_{of}"),
            }
        })
        .collect()
}
