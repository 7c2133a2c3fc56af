//! Copying statements: every loop, `let` and allocation of the copy gets an identity of its own.

use crate::ir::{BufferId, Expr, For, Kernel, Stmt, Tile, VarId};
use std::collections::BTreeMap;

/// A copy of the block in which all variables and buffers that the block itself binds are new ones. Names stay as close
/// to the original as uniqueness allows.
pub fn fresh_copy(kernel: &mut Kernel, block: &[Stmt]) -> Vec<Stmt> {
    let mut renaming = Renaming::default();
    for s in block {
        s.walk(&mut |s| match s {
            Stmt::For(l) => {
                renaming.vars.insert(l.var, l.var);
            }
            Stmt::Let { var, .. } => {
                renaming.vars.insert(*var, *var);
            }
            Stmt::Alloc(b) => {
                renaming.buffers.insert(*b, *b);
            }
            _ => {}
        });
    }
    if !renaming.vars.is_empty() || !renaming.buffers.is_empty() {
        // One pass over the names instead of one search a name: unrolled kernels have thousands.
        for (old, new) in renaming.vars.iter_mut() {
            let var = kernel.var(*old).clone();
            *new = kernel.fresh_typed_var(stem(&var.name), var.dtype);
        }
        for (old, new) in renaming.buffers.iter_mut() {
            let mut buffer = kernel.buffer(*old).clone();
            buffer.name = stem(&buffer.name).to_string();
            *new = kernel.add_buffer(buffer);
        }
    }
    block.iter().map(|s| renaming.stmt(s)).collect()
}

/// The name without the number that made it unique, so that copies of copies do not pile up suffixes.
fn stem(name: &str) -> &str {
    match name.rsplit_once('_') {
        Some((head, tail)) if !head.is_empty() && !tail.is_empty() && tail.bytes().all(|b| b.is_ascii_digit()) => head,
        _ => name,
    }
}

#[derive(Default)]
struct Renaming {
    vars: BTreeMap<VarId, VarId>,
    buffers: BTreeMap<BufferId, BufferId>,
}

impl Renaming {
    fn var(&self, v: VarId) -> VarId {
        self.vars.get(&v).copied().unwrap_or(v)
    }

    fn buffer(&self, b: BufferId) -> BufferId {
        self.buffers.get(&b).copied().unwrap_or(b)
    }

    fn expr(&self, e: &Expr) -> Expr {
        e.clone().map(&mut |e| match e {
            Expr::Var(v) => Expr::Var(self.var(v)),
            Expr::Load(b, idx) => Expr::Load(self.buffer(b), idx),
            other => other,
        })
    }

    fn exprs(&self, es: &[Expr]) -> Vec<Expr> {
        es.iter().map(|e| self.expr(e)).collect()
    }

    fn tile(&self, t: &Tile) -> Tile {
        Tile { buffer: self.buffer(t.buffer), origin: self.exprs(&t.origin), extents: t.extents.clone() }
    }

    fn block(&self, block: &[Stmt]) -> Vec<Stmt> {
        block.iter().map(|s| self.stmt(s)).collect()
    }

    fn stmt(&self, s: &Stmt) -> Stmt {
        match s {
            Stmt::For(l) => Stmt::For(For {
                var: self.var(l.var),
                extent: l.extent,
                kind: l.kind,
                pragmas: l.pragmas.clone(),
                body: self.block(&l.body),
            }),
            Stmt::Store { buffer, indices, value } => {
                Stmt::Store { buffer: self.buffer(*buffer), indices: self.exprs(indices), value: self.expr(value) }
            }
            Stmt::Reduce { buffer, indices, op, init, value, over } => Stmt::Reduce {
                buffer: self.buffer(*buffer),
                indices: self.exprs(indices),
                op: *op,
                init: self.expr(init),
                value: self.expr(value),
                over: over.iter().map(|v| self.var(*v)).collect(),
            },
            Stmt::If { cond, then, otherwise } => {
                Stmt::If { cond: self.expr(cond), then: self.block(then), otherwise: self.block(otherwise) }
            }
            Stmt::Let { var, value } => Stmt::Let { var: self.var(*var), value: self.expr(value) },
            Stmt::Alloc(b) => Stmt::Alloc(self.buffer(*b)),
            Stmt::Barrier(b) => Stmt::Barrier(*b),
            Stmt::Transpose { dst, src } => Stmt::Transpose { dst: self.tile(dst), src: self.tile(src) },
            Stmt::Gpu(g) => Stmt::Gpu(g.clone().map_buffers(&mut |b| self.buffer(b)).map_exprs(&mut |e| self.expr(&e))),
        }
    }
}
