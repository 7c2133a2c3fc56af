//! `compute_inline`: a stage vanishes; its readers compute its elements themselves.
//!
//! ```text
//! compute_inline(t)
//! for i in 0..8 { t[i] = x[i] * 2 }  for j in 0..7 { y[j] = t[j + 1] }   ->   for j in 0..7 { y[j] = x[j + 1] * 2 }
//! ```
//! Refuses parameters, reductions, stages under a conditional or whose indices are not made of their own loops, stages
//! that a tile intrinsic reads, and those that read something that is written again later.

use super::error::{Reason, ScheduleError, refuse_stage};
use super::inverse::digits;
use super::nest::{all_ranges, loops_on, own_loops, perfect_nest, the_writer, tidy, tile_uses, top_of_nest};
use crate::ir::visit::{map_exprs, rewrite};
use crate::ir::{BufferId, DType, Expr, For, Kernel, Stmt};

/// Inlines the stage into all of its readers.
pub fn compute_inline(k: &Kernel, stage: BufferId) -> Result<Kernel, ScheduleError> {
    const NAME: &str = "compute_inline";
    let refuse = |reason| refuse_stage(k, NAME, stage, reason);
    if k.is_param(stage) {
        return Err(refuse(Reason::Parameter));
    }
    let path = the_writer(k, NAME, stage)?;
    let Some(Stmt::Store { indices, value, .. }) = path.last().copied() else {
        return Err(refuse(Reason::NotPlain("it is a reduction, which has no closed form to inline".to_string())));
    };
    if path.iter().any(|s| matches!(s, Stmt::If { .. })) {
        return Err(refuse(Reason::NotPlain("it stands under a conditional".to_string())));
    }
    if value.reads(stage) {
        return Err(refuse(Reason::NotPlain("it reads itself".to_string())));
    }
    let own = own_loops(k, stage).unwrap_or_default();
    let loops: Vec<&For> = loops_on(&path).into_iter().filter(|l| own.contains(&l.var)).collect();
    let found =
        digits(indices, &k.buffer(stage).shape, &loops, &all_ranges(k)).map_err(|why| refuse(Reason::NotPlain(why)))?;
    let top = path[top_of_nest(&path, &own)];
    if perfect_nest(top).is_none() {
        return Err(refuse(Reason::NotPlain("its nest holds other statements".to_string())));
    }
    if let Some(buffer) = super::compute_at::overwritten_later(k, &path, &own) {
        return Err(refuse(Reason::Overwritten { buffer: k.buffer(buffer).name.clone() }));
    }
    if tile_uses(&k.body, stage) {
        return Err(refuse(Reason::NotPlain("a tile intrinsic reads it".to_string())));
    }
    let value = as_stored(k, stage, value.clone());
    let single: Vec<_> = loops.iter().filter(|l| l.extent == 1).map(|l| l.var).collect();
    let element = |idx: &[Expr]| {
        value.clone().map(&mut |e| match e {
            Expr::Var(v) => match found.iter().flatten().find(|d| d.var == v) {
                Some(d) => d.of(idx[d.dim].clone()),
                None if single.contains(&v) => Expr::Int(0),
                None => Expr::Var(v),
            },
            other => other,
        })
    };
    let nest = top.clone();
    let mut out = k.clone();
    out.body = rewrite(std::mem::take(&mut out.body), &mut |s| {
        if s == nest || s == Stmt::Alloc(stage) { vec![] } else { vec![s] }
    });
    // An index may itself read the stage, so the replacement works from the inside out.
    out.body = map_exprs(std::mem::take(&mut out.body), &mut |e| {
        e.map(&mut |e| match e {
            Expr::Load(b, idx) if b == stage => element(&idx),
            other => other,
        })
    });
    tidy(&mut out);
    Ok(out)
}

/// The value as a reader would find it: a 16-bit buffer rounds what is stored into it.
fn as_stored(k: &Kernel, stage: BufferId, value: Expr) -> Expr {
    fn exact(k: &Kernel, e: &Expr, dtype: DType) -> bool {
        match e {
            Expr::Load(b, _) => k.buffer(*b).dtype == dtype,
            Expr::Float(v, _) => *v == 0.0 || *v == 1.0,
            Expr::Select(_, a, b) => exact(k, a, dtype) && exact(k, b, dtype),
            _ => false,
        }
    }
    let dtype = k.buffer(stage).dtype;
    if dtype == dtype.compute() || exact(k, &value, dtype) {
        return value;
    }
    Expr::Cast(dtype.compute(), Box::new(Expr::Cast(dtype, Box::new(value))))
}
