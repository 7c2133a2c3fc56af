//! `bind`: a loop's iterations go to the blocks of a grid or the threads of a block.
//!
//! ```text
//! bind(i, Thread(X))
//! for i in 0..32 { s }   ->   for i in 0..32 thread.x { s }
//! ```
//! Refuses when the iterations depend on each other, the loop carries a reduction, the loop has a kind already, a loop
//! around or inside has the same hardware index (unless the two share the filling of shared memory), or a shared buffer that lives inside was sized for one thread.

use super::depend::{Carried, carried};
use super::error::{Reason, ScheduleError, refuse_loop};
use super::nest::{loops_on, path_to_loop, reduced_by, replace_loop};
use crate::ir::visit::loops;
use crate::ir::{BufferId, For, Kernel, LoopKind, Scope, Stmt, VarId};

/// Gives the loop a kind: one of [`LoopKind::Grid`], [`LoopKind::Thread`], or any other as the primitive of that name
/// would.
pub fn bind(k: &Kernel, var: VarId, kind: LoopKind) -> Result<Kernel, ScheduleError> {
    set_kind(k, "bind", var, kind)
}

/// The checks and the change that all primitives which give a loop a kind share.
pub(super) fn set_kind(
    k: &Kernel,
    primitive: &'static str,
    var: VarId,
    kind: LoopKind,
) -> Result<Kernel, ScheduleError> {
    let (path, l) = path_to_loop(k, primitive, var)?;
    let refuse = |reason| refuse_loop(k, primitive, var, reason);
    if l.kind != LoopKind::Serial && l.kind != kind {
        return Err(refuse(Reason::BoundLoop(l.kind)));
    }
    if !matches!(kind, LoopKind::Serial | LoopKind::Unrolled) {
        if let Some(buffer) = reduced_by(l)
            && l.extent > 1
        {
            return Err(refuse(Reason::ReduceLoop { buffer: k.buffer(buffer).name.clone() }));
        }
        if let Carried::Order(buffer) | Carried::Reduction(buffer) = carried(k, l, &[]) {
            return Err(refuse(Reason::Dependence { buffer: k.buffer(buffer).name.clone() }));
        }
        let mut around = loops_on(&path);
        around.pop();
        check_place(k, l, &around, kind).map_err(|why| refuse(Reason::Misplaced(why)))?;
    }
    let mut out = k.clone();
    replace_loop(&mut out, var, |l| vec![Stmt::For(For { kind, ..l })]);
    Ok(out)
}

/// What a kind demands of the loops around and inside.
fn check_place(k: &Kernel, l: &For, around: &[&For], kind: LoopKind) -> Result<(), String> {
    let inside = loops(&l.body);
    let name = |l: &For| k.var(l.var).name.clone();
    match kind {
        LoopKind::Grid(_) | LoopKind::Thread(_) => {
            let nested = around.iter().map(|o| (*o, l)).chain(inside.iter().map(|i| (l, *i)));
            for (outer, inner) in
                nested.filter(|(o, i)| o.var != l.var && o.kind == kind || i.var != l.var && i.kind == kind)
            {
                cooperates(k, outer, inner, kind)?;
            }
            let misplaced = |o: &&&For| matches!((kind, o.kind), (LoopKind::Grid(_), LoopKind::Thread(_)));
            if let Some(o) = around.iter().find(misplaced) {
                return Err(format!("it is inside the thread loop `{}`; reorder grid loops to the outside", name(o)));
            }
        }
        LoopKind::Parallel => {
            if let Some(o) = around.iter().chain(&inside).find(|o| o.kind.is_concurrent()) {
                return Err(format!(
                    "loop `{}` in the same nest is {} already; fuse the two to run both in parallel",
                    name(o),
                    o.kind.name()
                ));
            }
        }
        LoopKind::Vectorized => {
            if l.extent > i64::from(u16::MAX) {
                return Err(format!("{} lanes are too many; split it by the target's vector length first", l.extent));
            }
            if let Some(o) = inside.iter().find(|o| o.kind != LoopKind::Serial && o.kind != LoopKind::Unrolled) {
                return Err(format!("loop `{}` inside is {}; lanes cannot hold it", name(o), o.kind.name()));
            }
        }
        LoopKind::Serial | LoopKind::Unrolled | LoopKind::VThread => {}
        LoopKind::Cluster(_) | LoopKind::FragmentRow | LoopKind::FragmentCol => {
            return Err(format!(
                "{} loops are part of kernels that are written with tensor cores in mind",
                kind.name()
            ));
        }
    }
    if matches!(kind, LoopKind::Parallel | LoopKind::Grid(_))
        && let Some(b) = private_of_another(k, l, around)
    {
        let b = k.buffer(b);
        return Err(format!(
            "`{}`, which it uses, is {} memory allocated outside of it; make the loop that holds it concurrent instead, or \
             move the buffer inwards with compute_at",
            b.name, b.scope
        ));
    }
    let forbidden = |s: Scope| match kind {
        LoopKind::Vectorized => true,
        LoopKind::Parallel | LoopKind::Grid(_) => s == Scope::Global,
        _ => !s.is_private(),
    };
    let mut found = None;
    l.body.iter().for_each(|s| {
        s.walk(&mut |s| {
            if let Stmt::Alloc(b) = s
                && forbidden(k.buffer(*b).scope)
            {
                found = Some(k.buffer(*b));
            }
        });
    });
    match found {
        Some(b) if kind == LoopKind::Vectorized => {
            Err(format!("`{}` lives inside, and lanes cannot hold buffers of their own; vectorize further in", b.name))
        }
        Some(b) => Err(format!(
            "`{}` inside is {} and was sized for one iteration; give the loop its kind before attaching it, or use \
             set_scope",
            b.name, b.scope
        )),
        None => Ok(()),
    }
}

/// A loop inside another with the same hardware index does not repeat its work for each iteration of the outer one: every
/// thread does its own share. That is what a cooperative copy into shared memory wants, and nothing else.
fn cooperates(k: &Kernel, outer: &For, inner: &For, kind: LoopKind) -> Result<(), String> {
    let name = |l: &For| k.var(l.var).name.clone();
    let refuse = |why: String| {
        let (o, i) = (name(outer), name(inner));
        Err(format!("loop `{o}` around loop `{i}` is {} too, and {why}; use another axis", kind.name()))
    };
    if matches!(kind, LoopKind::Grid(_)) {
        return refuse("blocks do not share work".to_string());
    }
    if inner.extent > outer.extent {
        return refuse(format!("has only {} of the {} threads", outer.extent, inner.extent));
    }
    let (mut mentioned, mut private) = (false, None);
    for s in &inner.body {
        s.exprs(&mut |e| mentioned |= e.mentions(outer.var));
        s.walk(&mut |s| {
            if let Some(b) = s.written().filter(|b| k.buffer(*b).scope.is_private()) {
                private = Some(b);
            }
        });
    }
    match private {
        Some(b) => refuse(format!("each of its threads needs all of `{}`", k.buffer(b).name)),
        None if mentioned => refuse(format!("the work depends on `{}`", name(outer))),
        None => Ok(()),
    }
}

/// A private buffer that the loop uses and that is allocated outside. One at the root that the loop only reads may still
/// be waiting to be attached.
fn private_of_another(k: &Kernel, l: &For, around: &[&For]) -> Option<BufferId> {
    let allocated = |block: &[Stmt], b: BufferId| block.contains(&Stmt::Alloc(b));
    let attached = |b: BufferId| around.iter().any(|a| allocated(&a.body, b));
    let written = |b: BufferId| l.body.iter().any(|s| s.writes(b));
    let used = |b: BufferId| written(b) || l.body.iter().any(|s| s.reads(b));
    (0..k.buffers.len() as u32)
        .map(BufferId)
        .filter(|b| k.buffer(*b).scope.is_private())
        .find(|b| attached(*b) && used(*b) || allocated(&k.body, *b) && written(*b))
}
