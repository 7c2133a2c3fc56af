//! `pipeline`: the copies of a loop's next iterations are made while the present one computes.
//!
//! ```text
//! pipeline(k, 2)
//! for k in 0..8 { alloc t: f32[4]  for i in 0..4 { t[i] = x(k, i) }  use(t) }
//!   ->
//! alloc t: f32[2, 4]
//! for k_p in 0..1 { for i_1 in 0..4 { t[k_p, i_1] = x(k_p, i_1) } }
//! for k in 0..8 {
//!   if k < 7 { for i in 0..4 { t[(k + 1) % 2, i] = x(k + 1, i) } }
//!   use(t[k % 2])
//! }
//! ```
//! Every stage that stands directly in the loop's body, fills a buffer that only this body uses, and reads nothing that
//! the body writes is such a copy. Its buffer gets a leading dimension of versions. Threads that share a buffer need a
//! barrier between an iteration's use of a version and the copy into it `stages - 1` iterations later.
//!
//! Refuses fewer than two stages, more than the loop can fill, loops that are not serial, and bodies without such a copy.

use super::error::{Reason, ScheduleError, refuse_loop};
use super::nest::{contains_load, fresh_copy, map_tiles, redirect_loads, replace_loop, subst, the_loop, tidy};
use crate::ir::visit::rewrite;
use crate::ir::{BufferId, Expr, For, Kernel, LoopKind, Scope, Stmt, Tile, VarId};

/// Overlaps the copies of `var` with its computation, `stages` versions deep.
pub fn pipeline(k: &Kernel, var: VarId, stages: i64) -> Result<Kernel, ScheduleError> {
    const NAME: &str = "pipeline";
    let l = the_loop(k, NAME, var)?;
    let refuse = |reason| refuse_loop(k, NAME, var, reason);
    if !matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled) {
        return Err(refuse(Reason::BoundLoop(l.kind)));
    }
    if stages < 2 || stages - 1 > l.extent {
        let given = format!("{stages} stages");
        return Err(refuse(Reason::BadArgument { given, allowed: format!("2 to {}", l.extent + 1) }));
    }
    let copies = copies_of(k, l);
    if copies.is_empty() {
        let why = "no stage directly in its body fills a buffer from data that the body leaves alone; attach a cache_read \
                   here with compute_at first";
        return Err(refuse(Reason::Misplaced(why.to_string())));
    }

    let mut out = k.clone();
    for (b, _) in &copies {
        let buffer = out.buffer_mut(*b);
        buffer.strides.insert(0, buffer.shape[0] * buffer.strides[0]);
        buffer.shape.insert(0, stages);
    }
    let first = out.fresh_var(&format!("{}_p", k.var(var).name));
    let ahead = stages - 1;
    let mut prologue = vec![];
    for (b, s) in &copies {
        let filled = into_version(vec![(*s).clone()], *b, &Expr::from(var).floor_mod(stages));
        prologue.extend(fresh_copy(&mut out, &subst(filled, var, &first.into())).0);
    }
    let prologue = Stmt::for_(first, ahead, prologue);

    let mut moved_allocs = vec![];
    let mut body = vec![];
    for s in &l.body {
        if let Stmt::Alloc(b) = s
            && copies.iter().any(|(c, _)| c == b)
        {
            moved_allocs.push(s.clone());
            continue;
        }
        match copies.iter().find(|(_, c)| *c == s) {
            Some((b, _)) => {
                let filled = into_version(vec![s.clone()], *b, &Expr::from(var).floor_mod(stages));
                let next = subst(filled, var, &(var + ahead));
                body.push(Stmt::if_(Expr::from(var).lt(l.extent - ahead), next));
            }
            None => {
                let used = copies.iter().fold(vec![s.clone()], |block, (b, _)| {
                    redirect_loads(block, *b, &|idx| (*b, versioned(&Expr::from(var).floor_mod(stages), idx)))
                });
                body.extend(used.into_iter().flat_map(|s| widen_tiles(s, &copies)));
            }
        }
    }
    replace_loop(&mut out, var, |l| moved_allocs.into_iter().chain([prologue, Stmt::For(For { body, ..l })]).collect());
    tidy(&mut out);
    Ok(out)
}

/// The copy stages of the loop's body, with the buffers that they fill.
fn copies_of<'a>(k: &Kernel, l: &'a For) -> Vec<(BufferId, &'a Stmt)> {
    let written: Vec<BufferId> =
        (0..k.buffers.len() as u32).map(BufferId).filter(|b| l.body.iter().any(|s| s.writes(*b))).collect();
    let mut out = vec![];
    for (i, s) in l.body.iter().enumerate() {
        let mine: Vec<BufferId> = written.iter().copied().filter(|b| s.writes(*b)).collect();
        let [b] = mine[..] else { continue };
        let mut plain = true;
        s.walk(&mut |s| plain &= matches!(s, Stmt::For(_) | Stmt::If { .. } | Stmt::Let { .. } | Stmt::Store { .. }));
        let reads_written = written.iter().any(|w| contains_load(s, *w));
        let elsewhere = l.body.iter().enumerate().any(|(j, o)| j != i && o.writes(b) || j < i && contains_load(o, b));
        let private = !k.is_param(b) && k.buffer(b).scope != Scope::Global && used_only_in(k, l, b);
        if plain && !reads_written && !elsewhere && private {
            out.push((b, s));
        }
    }
    out
}

fn used_only_in(k: &Kernel, l: &For, b: BufferId) -> bool {
    let uses = |block: &[Stmt]| {
        let mut n = 0;
        block
            .iter()
            .for_each(|s| s.walk(&mut |s| n += usize::from(s.written() == Some(b) || super::nest::loads(s, b))));
        n
    };
    uses(&k.body) == uses(&l.body)
}

fn versioned(version: &Expr, idx: Vec<Expr>) -> Vec<Expr> {
    std::iter::once(version.clone()).chain(idx).collect()
}

/// Stores into a version of the buffer.
fn into_version(block: Vec<Stmt>, buffer: BufferId, version: &Expr) -> Vec<Stmt> {
    rewrite(block, &mut |s| {
        vec![match s {
            Stmt::Store { buffer: b, indices, value } if b == buffer => {
                Stmt::Store { buffer: b, indices: versioned(version, indices), value }
            }
            other => other,
        }]
    })
}

/// Tile operands whose origin got a version have one more extent.
fn widen_tiles(s: Stmt, copies: &[(BufferId, &Stmt)]) -> Vec<Stmt> {
    let widen = |mut t: Tile, written: bool| {
        if !written && copies.iter().any(|(c, _)| *c == t.buffer) && t.extents.len() < t.origin.len() {
            t.extents.insert(0, 1);
        }
        t
    };
    rewrite(vec![s], &mut |s| vec![map_tiles(s, &mut |t, written| widen(t, written))])
}
