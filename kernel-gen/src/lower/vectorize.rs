//! Turns vectorised loops into vector expressions.
//!
//! ```text
//! for j in 0..16 vectorized { y[i, j] = x[i, j] * s[i] }  ->  y[i, ramp(0, 1, 16)] = x[i, ramp(0, 1, 16)] * s[i]
//! ```
//! The loop's iterations run in lockstep, so each statement of its body is turned on its own: loops inside stay loops
//! around vector statements, conditions that are the same in all lanes stay conditions, a `let` that differs from lane to
//! lane is substituted, and a buffer allocated inside gets a dimension for the lanes. A statement that has no vector form
//! (a condition that differs between lanes, a destination that does not, more than one index that does) is run lane by
//! lane in a serial loop: slower, never wrong.

use super::copy::fresh_copy;
use super::pass::{LowerError, LowerOptions};
use crate::ir::{BinOp, BufferId, Expr, For, Kernel, LoopKind, Stmt, Tile, UnOp, VarId, row_major};

/// The pass.
pub fn run(mut kernel: Kernel, options: &LowerOptions) -> Result<Kernel, LowerError> {
    let body = std::mem::take(&mut kernel.body);
    kernel.body = block(&mut kernel, body, options);
    Ok(kernel)
}

fn block(kernel: &mut Kernel, stmts: Vec<Stmt>, options: &LowerOptions) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(stmts.len());
    for s in stmts {
        match s {
            Stmt::For(mut l) => {
                l.body = block(kernel, l.body, options);
                if l.kind == LoopKind::Vectorized {
                    vectorize_loop(kernel, l, options, &mut out);
                } else {
                    out.push(Stmt::For(l));
                }
            }
            Stmt::If { cond, then, otherwise } => {
                let then = block(kernel, then, options);
                let otherwise = block(kernel, otherwise, options);
                out.push(Stmt::If { cond, then, otherwise });
            }
            other => out.push(other),
        }
    }
    out
}

fn vectorize_loop(kernel: &mut Kernel, l: For, options: &LowerOptions, out: &mut Vec<Stmt>) {
    let lanes = options.max_lanes.clamp(1, i64::from(u16::MAX));
    if l.extent <= lanes {
        let mut lanes = Lanes { var: l.var, base: Expr::Int(0), lanes: l.extent as u16 };
        lanes.block(kernel, l.body, out);
        return;
    }
    // A buffer that the body allocates would have to hold all lanes; it is as private to a vector of them.
    let (whole, rest) = (l.extent / lanes, l.extent % lanes);
    let mut last = vec![];
    if rest > 0 {
        let copy = fresh_copy(kernel, &l.body);
        Lanes { var: l.var, base: Expr::Int(whole * lanes), lanes: rest as u16 }.block(kernel, copy, &mut last);
    }
    let name = format!("{}_vec", kernel.var(l.var).name);
    let outer = kernel.fresh_var(&name);
    let mut body = vec![];
    Lanes { var: l.var, base: outer * lanes, lanes: lanes as u16 }.block(kernel, l.body, &mut body);
    out.push(Stmt::for_(outer, whole, body));
    out.extend(last);
}

/// The lanes of one vector: `var` runs over `base .. base + lanes`.
struct Lanes {
    var: VarId,
    base: Expr,
    lanes: u16,
}

impl Lanes {
    fn block(&mut self, kernel: &mut Kernel, stmts: Vec<Stmt>, out: &mut Vec<Stmt>) {
        let mut stmts = std::collections::VecDeque::from(stmts);
        while let Some(s) = stmts.pop_front() {
            match s {
                Stmt::Let { var, value } if value.mentions(self.var) => {
                    let written = |b: BufferId| stmts.iter().any(|s| s.writes(b));
                    if reads_any(&value, &written) {
                        // Substituting would read what later statements wrote: run the rest of the block lane by lane.
                        let mut rest = vec![Stmt::Let { var, value }];
                        rest.extend(stmts.drain(..));
                        self.serial(kernel, rest, out);
                    } else {
                        stmts = stmts.into_iter().map(|s| s.subst(var, &value)).collect();
                    }
                }
                Stmt::Alloc(b) => {
                    let shared = std::mem::take(&mut stmts);
                    let index = Expr::Var(self.var) - self.base.clone();
                    stmts = privatize(kernel, b, &index, i64::from(self.lanes), false, shared.into()).into();
                    out.push(Stmt::Alloc(b));
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
                other => match self.leaf(kernel, &other) {
                    Some(vector) => out.push(vector),
                    None => self.serial(kernel, vec![other], out),
                },
            }
        }
    }

    /// Runs the statements lane by lane.
    fn serial(&self, kernel: &mut Kernel, stmts: Vec<Stmt>, out: &mut Vec<Stmt>) {
        let var = kernel.fresh_var(&kernel.var(self.var).name.clone());
        let value = Expr::bin(BinOp::Add, self.base.clone(), Expr::Var(var));
        let stmts = fresh_copy(kernel, &stmts);
        let body = stmts.into_iter().map(|s| s.subst(self.var, &value)).collect();
        out.push(Stmt::for_(var, i64::from(self.lanes), body));
    }

    /// The vector form of a store or an update.
    fn leaf(&self, kernel: &Kernel, s: &Stmt) -> Option<Stmt> {
        match s {
            Stmt::Store { buffer, indices, value } => {
                let indices = self.indices(kernel, indices)?;
                let value = self.expr(kernel, value)?;
                let value =
                    if value.ty(kernel).lanes == 1 { Expr::Broadcast(Box::new(value), self.lanes) } else { value };
                Some(Stmt::Store { buffer: *buffer, indices, value })
            }
            Stmt::Reduce { buffer, indices, op, init, value, over } if over.is_empty() => Some(Stmt::Reduce {
                buffer: *buffer,
                indices: self.indices(kernel, indices)?,
                op: *op,
                init: init.clone(),
                value: self.expr(kernel, value)?,
                over: vec![],
            }),
            _ => None,
        }
    }

    /// Indices of a destination: exactly one differs between lanes.
    fn indices(&self, kernel: &Kernel, indices: &[Expr]) -> Option<Vec<Expr>> {
        let out: Vec<Expr> = indices.iter().map(|i| self.expr(kernel, i)).collect::<Option<_>>()?;
        (out.iter().filter(|i| i.ty(kernel).lanes > 1).count() == 1).then_some(out)
    }

    /// The vector form of an expression; a scalar if it is the same in all lanes.
    fn expr(&self, kernel: &Kernel, e: &Expr) -> Option<Expr> {
        if !e.mentions(self.var) {
            // An expression that already is a vector belongs to a vectorised loop inside of this one.
            return (e.ty(kernel).lanes == 1).then(|| e.clone());
        }
        if let Some((rest, stride)) = linear_in(e, self.var) {
            let base = Expr::bin(BinOp::Add, rest, self.base.clone() * stride);
            return Some(match stride {
                0 => base,
                _ => Expr::Ramp { base: Box::new(base), stride, lanes: self.lanes },
            });
        }
        Some(match e {
            Expr::Binary(op, a, b) => Expr::bin(*op, self.expr(kernel, a)?, self.expr(kernel, b)?),
            Expr::Unary(op, a) => Expr::un(*op, self.expr(kernel, a)?),
            Expr::Cast(d, a) => Expr::Cast(*d, Box::new(self.expr(kernel, a)?)),
            Expr::Select(c, a, b) => self.expr(kernel, c)?.select(self.expr(kernel, a)?, self.expr(kernel, b)?),
            Expr::Load(b, idx) => {
                let idx: Vec<Expr> = idx.iter().map(|i| self.expr(kernel, i)).collect::<Option<_>>()?;
                if idx.iter().filter(|i| i.ty(kernel).lanes > 1).count() > 1 {
                    return None;
                }
                Expr::Load(*b, idx)
            }
            _ => return None,
        })
    }
}

/// Writes an integer expression as `rest + coefficient * var` with a `rest` that does not mention the variable.
pub(super) fn linear_in(e: &Expr, var: VarId) -> Option<(Expr, i64)> {
    match e {
        Expr::Var(v) if *v == var => Some((Expr::Int(0), 1)),
        _ if !e.mentions(var) => Some((e.clone(), 0)),
        Expr::Binary(op @ (BinOp::Add | BinOp::Sub), a, b) => {
            let ((ra, ca), (rb, cb)) = (linear_in(a, var)?, linear_in(b, var)?);
            let c = if *op == BinOp::Add { ca.checked_add(cb)? } else { ca.checked_sub(cb)? };
            Some((Expr::bin(*op, ra, rb), c))
        }
        Expr::Binary(BinOp::Mul, a, b) => {
            let (inner, factor) = match (a.as_int(), b.as_int()) {
                (Some(f), _) => (b, f),
                (_, Some(f)) => (a, f),
                _ => return None,
            };
            let (rest, c) = linear_in(inner, var)?;
            Some((rest * factor, c.checked_mul(factor)?))
        }
        Expr::Unary(UnOp::Neg, a) => {
            let (rest, c) = linear_in(a, var)?;
            Some((Expr::Int(0) - rest, c.checked_neg()?))
        }
        _ => None,
    }
}

pub(super) fn reads_any(e: &Expr, which: &dyn Fn(BufferId) -> bool) -> bool {
    let mut found = false;
    e.walk(&mut |e| found |= matches!(e, Expr::Load(b, _) if which(*b)));
    found
}

/// Gives a buffer one more dimension of `copies` elements, the last one or the first one, and indexes it by `index` in the
/// statements.
pub(super) fn privatize(
    kernel: &mut Kernel,
    buffer: BufferId,
    index: &Expr,
    copies: i64,
    first: bool,
    stmts: Vec<Stmt>,
) -> Vec<Stmt> {
    let b = kernel.buffer_mut(buffer);
    let at = if first { 0 } else { b.shape.len() };
    b.shape.insert(at, copies);
    b.strides = row_major(&b.shape);
    let extend = |mut idx: Vec<Expr>| {
        idx.insert(at, index.clone());
        idx
    };
    let extend_tile = |mut t: Tile| {
        if t.buffer == buffer {
            t.origin.insert(at, index.clone());
            t.extents.insert(at, 1);
        }
        t
    };
    let load = |e: Expr| {
        e.map(&mut |e| match e {
            Expr::Load(b, idx) if b == buffer => Expr::Load(b, extend(idx)),
            other => other,
        })
    };
    let stmts = crate::ir::visit::map_exprs(stmts, &mut |e| load(e));
    crate::ir::visit::rewrite(stmts, &mut |s| {
        vec![match s {
            Stmt::Store { buffer: b, indices, value } if b == buffer => {
                Stmt::Store { buffer: b, indices: extend(indices), value }
            }
            Stmt::Reduce { buffer: b, indices, op, init, value, over } if b == buffer => {
                Stmt::Reduce { buffer: b, indices: extend(indices), op, init, value, over }
            }
            Stmt::Transpose { dst, src } => Stmt::Transpose { dst: extend_tile(dst), src: extend_tile(src) },
            Stmt::Gpu(g) => Stmt::Gpu(g.map_tiles(&mut |t, _| extend_tile(t))),
            other => other,
        }]
    })
}
