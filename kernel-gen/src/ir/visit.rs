//! Walking and rewriting the trees.

use super::{BufferId, Expr, For, Stmt, Tile, VarId};
use std::collections::{BTreeMap, BTreeSet};

impl Expr {
    /// Calls `f` on this expression and everything inside it, parents first.
    pub fn walk<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
        f(self);
        match self {
            Expr::Int(_) | Expr::Float(..) | Expr::Var(_) => {}
            Expr::Binary(_, a, b) => {
                a.walk(f);
                b.walk(f);
            }
            Expr::Unary(_, a) | Expr::Cast(_, a) | Expr::Broadcast(a, _) => a.walk(f),
            Expr::Ramp { base, .. } => base.walk(f),
            Expr::Select(c, a, b) => {
                c.walk(f);
                a.walk(f);
                b.walk(f);
            }
            Expr::Load(_, idx) => idx.iter().for_each(|i| i.walk(f)),
        }
    }

    /// Rebuilds the expression from the leaves up; `f` sees each node after its children were rewritten.
    pub fn map(self, f: &mut dyn FnMut(Expr) -> Expr) -> Expr {
        let e = match self {
            Expr::Int(_) | Expr::Float(..) | Expr::Var(_) => self,
            Expr::Binary(op, a, b) => {
                let (a, b) = (a.map(f), b.map(f));
                Expr::Binary(op, Box::new(a), Box::new(b))
            }
            Expr::Unary(op, a) => Expr::Unary(op, Box::new(a.map(f))),
            Expr::Cast(d, a) => Expr::Cast(d, Box::new(a.map(f))),
            Expr::Broadcast(a, n) => Expr::Broadcast(Box::new(a.map(f)), n),
            Expr::Ramp { base, stride, lanes } => Expr::Ramp { base: Box::new(base.map(f)), stride, lanes },
            Expr::Select(c, a, b) => {
                let (c, a, b) = (c.map(f), a.map(f), b.map(f));
                Expr::Select(Box::new(c), Box::new(a), Box::new(b))
            }
            Expr::Load(b, idx) => Expr::Load(b, idx.into_iter().map(|i| i.map(f)).collect()),
        };
        f(e)
    }

    /// Replaces a variable.
    pub fn subst(self, var: VarId, by: &Expr) -> Expr {
        self.map(&mut |e| if e == Expr::Var(var) { by.clone() } else { e })
    }

    /// Whether the variable occurs.
    pub fn mentions(&self, var: VarId) -> bool {
        let mut found = false;
        self.walk(&mut |e| found |= *e == Expr::Var(var));
        found
    }

    /// The variables that occur.
    pub fn variables(&self) -> BTreeSet<VarId> {
        let mut all = BTreeSet::new();
        self.walk(&mut |e| {
            if let Expr::Var(v) = e {
                all.insert(*v);
            }
        });
        all
    }

    /// Whether memory is read.
    pub fn reads_memory(&self) -> bool {
        let mut found = false;
        self.walk(&mut |e| found |= matches!(e, Expr::Load(..)));
        found
    }

    /// Whether the buffer is read.
    pub fn reads(&self, buffer: BufferId) -> bool {
        let mut found = false;
        self.walk(&mut |e| found |= matches!(e, Expr::Load(b, _) if *b == buffer));
        found
    }
}

/// What a statement does to memory at one place.
#[derive(Clone, Copy, Debug)]
pub struct MemoryAccess<'a> {
    /// The buffer.
    pub buffer: BufferId,
    /// The index of the element, or of the first element of the tile.
    pub index: &'a [Expr],
    /// Elements of the tile along each dimension; none for a single element.
    pub extents: Option<&'a [i64]>,
    /// Whether it is written, or read.
    pub writes: bool,
}

impl Stmt {
    /// Calls `f` on each access that this very statement makes (not those of nested statements): what its expressions load,
    /// then what else it reads, then what it writes. The destination of a reduction and the accumulator of a product are
    /// read and written.
    pub fn accesses<'a>(&'a self, f: &mut dyn FnMut(MemoryAccess<'a>)) {
        self.own_exprs(&mut |e| {
            e.walk(&mut |e| {
                if let Expr::Load(b, index) = e {
                    f(MemoryAccess { buffer: *b, index, extents: None, writes: false });
                }
            });
        });
        let tile = |t: &'a Tile, writes: bool| MemoryAccess {
            buffer: t.buffer,
            index: &t.origin,
            extents: Some(&t.extents),
            writes,
        };
        match self {
            Stmt::Store { buffer, indices, .. } => {
                f(MemoryAccess { buffer: *buffer, index: indices, extents: None, writes: true });
            }
            Stmt::Reduce { buffer, indices, .. } => {
                let access = MemoryAccess { buffer: *buffer, index: indices, extents: None, writes: false };
                f(access);
                f(MemoryAccess { writes: true, ..access });
            }
            Stmt::Transpose { dst, src } => {
                f(tile(src, false));
                f(tile(dst, true));
            }
            Stmt::Gpu(g) => {
                let tiles = g.tiles();
                tiles.read.into_iter().for_each(|t| f(tile(t, false)));
                tiles.written.into_iter().for_each(|t| f(tile(t, true)));
            }
            Stmt::For(_) | Stmt::If { .. } | Stmt::Let { .. } | Stmt::Alloc(_) | Stmt::Barrier(_) => {}
        }
    }

    /// Calls `f` on this statement and everything inside it, parents first.
    pub fn walk<'a>(&'a self, f: &mut dyn FnMut(&'a Stmt)) {
        f(self);
        match self {
            Stmt::For(l) => l.body.iter().for_each(|s| s.walk(f)),
            Stmt::If { then, otherwise, .. } => {
                then.iter().for_each(|s| s.walk(f));
                otherwise.iter().for_each(|s| s.walk(f));
            }
            _ => {}
        }
    }

    /// Calls `f` on the expressions that this statement itself holds (not those of nested statements). The indices of
    /// a destination count: they are evaluated too.
    pub fn own_exprs<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
        match self {
            Stmt::Store { indices, value, .. } => {
                indices.iter().for_each(&mut *f);
                f(value);
            }
            Stmt::Reduce { indices, value, init, .. } => {
                indices.iter().for_each(&mut *f);
                f(init);
                f(value);
            }
            Stmt::If { cond, .. } => f(cond),
            Stmt::Let { value, .. } => f(value),
            Stmt::Transpose { dst, src } => [dst, src].into_iter().flat_map(|t| &t.origin).for_each(f),
            Stmt::Gpu(g) => g.exprs(f),
            Stmt::For(_) | Stmt::Alloc(_) | Stmt::Barrier(_) => {}
        }
    }

    /// Calls `f` on every expression in this statement and below, without descending into the expressions.
    pub fn exprs<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
        self.walk(&mut |s| s.own_exprs(f));
    }

    /// Rewrites every top-level expression in this statement and below.
    pub fn map_exprs(self, f: &mut dyn FnMut(Expr) -> Expr) -> Stmt {
        match self {
            Stmt::For(l) => Stmt::For(For { body: map_exprs(l.body, f), ..l }),
            Stmt::Store { buffer, indices, value } => {
                Stmt::Store { buffer, indices: indices.into_iter().map(&mut *f).collect(), value: f(value) }
            }
            Stmt::Reduce { buffer, indices, op, init, value, over } => Stmt::Reduce {
                buffer,
                indices: indices.into_iter().map(&mut *f).collect(),
                op,
                init: f(init),
                value: f(value),
                over,
            },
            Stmt::If { cond, then, otherwise } => {
                Stmt::If { cond: f(cond), then: map_exprs(then, f), otherwise: map_exprs(otherwise, f) }
            }
            Stmt::Let { var, value } => Stmt::Let { var, value: f(value) },
            Stmt::Transpose { dst, src } => Stmt::Transpose { dst: map_tile(dst, f), src: map_tile(src, f) },
            Stmt::Gpu(g) => Stmt::Gpu(g.map_exprs(f)),
            s @ (Stmt::Alloc(_) | Stmt::Barrier(_)) => s,
        }
    }

    /// Replaces a variable in every expression in this statement and below.
    pub fn subst(self, var: VarId, by: &Expr) -> Stmt {
        self.map_exprs(&mut |e| e.subst(var, by))
    }

    /// Whether the statement or one below writes the buffer.
    pub fn writes(&self, buffer: BufferId) -> bool {
        let mut found = false;
        self.walk(&mut |s| found |= s.written() == Some(buffer));
        found
    }

    /// Whether the statement or one below reads the buffer; a reduction reads its own destination.
    pub fn reads(&self, buffer: BufferId) -> bool {
        let mut found = false;
        self.walk(&mut |s| s.accesses(&mut |a| found |= !a.writes && a.buffer == buffer));
        found
    }

    /// The buffer that this very statement writes.
    pub fn written(&self) -> Option<BufferId> {
        match self {
            Stmt::Store { buffer, .. } | Stmt::Reduce { buffer, .. } => Some(*buffer),
            Stmt::Transpose { dst, .. } => Some(dst.buffer),
            Stmt::Gpu(g) => g.tiles().written.map(|t| t.buffer),
            _ => None,
        }
    }
}

fn map_tile(t: Tile, f: &mut dyn FnMut(Expr) -> Expr) -> Tile {
    Tile { origin: t.origin.into_iter().map(f).collect(), ..t }
}

/// [`Stmt::map_exprs`] over a block.
pub fn map_exprs(block: Vec<Stmt>, f: &mut dyn FnMut(Expr) -> Expr) -> Vec<Stmt> {
    block.into_iter().map(|s| s.map_exprs(f)).collect()
}

/// Rewrites a block from the innermost statements out: `f` turns each statement, whose own blocks were rewritten
/// already, into any number of statements.
pub fn rewrite(block: Vec<Stmt>, f: &mut dyn FnMut(Stmt) -> Vec<Stmt>) -> Vec<Stmt> {
    block
        .into_iter()
        .flat_map(|s| {
            let s = match s {
                Stmt::For(l) => Stmt::For(For { body: rewrite(l.body, f), ..l }),
                Stmt::If { cond, then, otherwise } => {
                    Stmt::If { cond, then: rewrite(then, f), otherwise: rewrite(otherwise, f) }
                }
                other => other,
            };
            f(s)
        })
        .collect()
}

/// Whether an expression of the statements has the variable.
pub fn mention(stmts: &[Stmt], var: VarId) -> bool {
    let mut found = false;
    stmts.iter().for_each(|s| s.exprs(&mut |e| found = found || e.mentions(var)));
    found
}

/// The values that are named anywhere in a block.
pub fn lets(block: &[Stmt]) -> BTreeMap<VarId, &Expr> {
    let mut all = BTreeMap::new();
    block.iter().for_each(|s| {
        s.walk(&mut |s| {
            if let Stmt::Let { var, value } = s {
                all.insert(*var, value);
            }
        });
    });
    all
}

/// The buffers that are allocated anywhere in a block.
pub fn allocated(block: &[Stmt]) -> BTreeSet<BufferId> {
    let mut all = BTreeSet::new();
    block.iter().for_each(|s| {
        s.walk(&mut |s| {
            if let Stmt::Alloc(b) = s {
                all.insert(*b);
            }
        });
    });
    all
}

/// The loop of a variable, wherever it stands in the block.
pub fn find_loop(block: &[Stmt], var: VarId) -> Option<&For> {
    block.iter().find_map(|s| match s {
        Stmt::For(l) if l.var == var => Some(l),
        Stmt::For(l) => find_loop(&l.body, var),
        Stmt::If { then, otherwise, .. } => find_loop(then, var).or_else(|| find_loop(otherwise, var)),
        _ => None,
    })
}

/// The loop of a variable, to change it.
pub fn find_loop_mut(block: &mut [Stmt], var: VarId) -> Option<&mut For> {
    for s in block {
        match s {
            Stmt::For(l) => {
                if l.var == var {
                    return Some(l);
                }
                if let Some(found) = find_loop_mut(&mut l.body, var) {
                    return Some(found);
                }
            }
            Stmt::If { then, otherwise, .. } => {
                if let Some(found) = find_loop_mut(then, var) {
                    return Some(found);
                }
                if let Some(found) = find_loop_mut(otherwise, var) {
                    return Some(found);
                }
            }
            _ => {}
        }
    }
    None
}

/// All loops in the block, outermost first.
pub fn loops(block: &[Stmt]) -> Vec<&For> {
    let mut out = vec![];
    for s in block {
        s.walk(&mut |s| {
            if let Stmt::For(l) = s {
                out.push(l);
            }
        });
    }
    out
}
