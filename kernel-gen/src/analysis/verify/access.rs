//! Every access of a kernel with what is known where it happens.

use super::facts::Facts;
use super::fault::{Fault, FaultKind};
use crate::analysis::range::bounds;
use crate::analysis::simplify::prove;
use crate::ir::{BinOp, BufferId, Expr, For, Gpu, Kernel, LoopKind, Stmt, VarId, print};
use std::collections::BTreeMap;

/// How an access touches its elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Touch {
    /// A load.
    Read,
    /// A store.
    Write,
    /// A reduction that starts its own elements.
    Start,
    /// A reduction, or a tile product, onto what is there.
    Update,
}

impl Touch {
    pub(super) fn writes(self) -> bool {
        self != Touch::Read
    }

    pub(super) fn reads(self) -> bool {
        matches!(self, Touch::Read | Touch::Update)
    }
}

/// One access. Vectors and tiles are said with pseudo variables: the index of a vector access mentions the variable
/// of the lane, that of a tile one variable a dimension, so that everything is scalar. Integer `let`s are inlined.
#[derive(Clone, Debug)]
pub(super) struct Site<'k> {
    pub(super) buffer: BufferId,
    pub(super) touch: Touch,
    pub(super) index: Vec<Expr>,
    /// Whether the part out of bounds does not take place: the copy engine and `move_rows` leave it out.
    pub(super) clipped: bool,
    /// The pseudo variable of the lanes and their number, if the access is a vector.
    pub(super) lanes: Option<(VarId, i64)>,
    pub(super) stmt: &'k Stmt,
    pub(super) loops: Vec<&'k For>,
    pub(super) branches: Vec<Branch<'k>>,
    pub(super) facts: Facts,
}

/// A branch of an `if` around an access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branch<'k> {
    pub(super) stmt: &'k Stmt,
    pub(super) truth: bool,
    /// How many of the facts' conditions are those of this branch and of what is around it.
    pub(super) guards: usize,
}

/// Pseudo variables: behind those of the kernel, the lane, then for each dimension one of tiles and one of merged
/// accesses, then those that fused loops are taken apart into.
pub(super) struct Pseudo(u32);

impl Pseudo {
    pub(super) fn new(kernel: &Kernel) -> Pseudo {
        Pseudo(kernel.vars.len() as u32)
    }

    fn lane(&self) -> VarId {
        VarId(self.0)
    }

    fn tile(&self, dim: usize) -> VarId {
        VarId(self.0 + 1 + 2 * dim as u32)
    }

    /// The first that is free for an access of so many dimensions.
    pub(super) fn free(&self, rank: usize) -> u32 {
        self.0 + 1 + 2 * rank as u32
    }

    pub(super) fn hull(&self, dim: usize) -> VarId {
        VarId(self.0 + 2 + 2 * dim as u32)
    }
}

/// Whether a loop is over the blocks of a grid or a cluster or the threads of a block.
pub(super) fn is_hardware(kind: LoopKind) -> bool {
    matches!(kind, LoopKind::Grid(_) | LoopKind::Cluster(_) | LoopKind::Thread(_))
}

/// All accesses, in the order of the text; within a statement reads come first. Branches that are never taken and
/// loops without iterations have none. Integer divisions that may be by zero are reported on the way.
pub(super) fn collect<'k>(kernel: &'k Kernel, faults: &mut Vec<Fault>) -> Vec<Site<'k>> {
    let mut c = Collector {
        pseudo: Pseudo::new(kernel),
        inlined: BTreeMap::new(),
        vectors: BTreeMap::new(),
        loops: vec![],
        branches: vec![],
        facts: Facts::default(),
        sites: vec![],
        kernel,
        faults,
    };
    c.block(&kernel.body);
    c.sites
}

/// Nodes of an expression that is still inlined; beyond that a `let` stays opaque.
const INLINE_NODES: usize = 64;

struct Collector<'k, 'f> {
    kernel: &'k Kernel,
    faults: &'f mut Vec<Fault>,
    pseudo: Pseudo,
    inlined: BTreeMap<VarId, Expr>,
    /// Lanes of vector `let`s.
    vectors: BTreeMap<VarId, u16>,
    loops: Vec<&'k For>,
    branches: Vec<Branch<'k>>,
    facts: Facts,
    sites: Vec<Site<'k>>,
}

impl<'k> Collector<'k, '_> {
    fn block(&mut self, stmts: &'k [Stmt]) {
        for s in stmts {
            // All vectors of one statement have the same lanes.
            let mut lanes = None;
            s.own_exprs(&mut |e| lanes = lanes.or(self.lanes(e)));
            if let Some(n) = lanes {
                self.facts.ranges.insert(self.pseudo.lane(), 0, i64::from(n) - 1);
            }
            self.stmt(s);
            self.facts.ranges.remove(self.pseudo.lane());
        }
    }

    fn lanes(&self, e: &Expr) -> Option<u16> {
        let mut found = None;
        e.walk(&mut |e| match e {
            // One lane is a scalar.
            Expr::Ramp { lanes, .. } | Expr::Broadcast(_, lanes) if *lanes > 1 => found = found.or(Some(*lanes)),
            Expr::Var(v) => found = found.or(self.vectors.get(v).copied()),
            _ => {}
        });
        found
    }

    /// Runs `f` where `cond` has the value `truth`, unless it never has.
    fn under(&mut self, cond: &Expr, truth: bool, f: impl FnOnce(&mut Self)) {
        if prove(cond, &self.facts.ranges) == Some(!truth) {
            return;
        }
        let outer = self.facts.clone();
        self.facts.assume(cond, truth);
        f(self);
        self.facts = outer;
    }

    fn stmt(&mut self, s: &'k Stmt) {
        match s {
            Stmt::For(l) if l.extent < 1 => {}
            Stmt::For(l) => {
                let outer = self.loops.iter().find(|o| o.kind == l.kind && is_hardware(l.kind)).map(|o| o.var);
                self.loops.push(l);
                match outer {
                    // Two loops over one hardware index have one value.
                    Some(outer) => {
                        let outer = self.plain(&outer.into());
                        self.inlined.insert(l.var, outer.clone());
                        self.under(&outer.lt(l.extent), true, |c| c.block(&l.body));
                    }
                    None => {
                        self.facts.ranges.insert_loop(l);
                        self.block(&l.body);
                        self.facts.ranges.remove(l.var);
                    }
                }
                self.loops.pop();
            }
            Stmt::If { cond, then, otherwise } => {
                self.expr(s, cond);
                let cond = self.plain(cond);
                for (truth, block) in [(true, then), (false, otherwise)] {
                    self.under(&cond, truth, |c| {
                        c.branches.push(Branch { stmt: s, truth, guards: c.facts.guards.len() });
                        c.block(block);
                        c.branches.pop();
                    });
                }
            }
            Stmt::Let { var, value } => {
                self.expr(s, value);
                if let Some(n) = self.lanes(value) {
                    self.vectors.insert(*var, n);
                }
                let (mut nodes, mut known) = (0, true);
                let plain = self.plain(value);
                plain.walk(&mut |e| {
                    nodes += 1;
                    known &= !matches!(e, Expr::Load(..) | Expr::Float(..) | Expr::Cast(..));
                });
                if known && nodes <= INLINE_NODES {
                    self.inlined.insert(*var, plain);
                } else if let Some((lo, hi)) = bounds(&plain, &self.facts.ranges) {
                    self.facts.ranges.insert(*var, lo, hi);
                }
            }
            Stmt::Store { buffer, indices, .. } => {
                s.own_exprs(&mut |e| self.expr(s, e));
                self.site(s, *buffer, Touch::Write, indices, &[]);
            }
            Stmt::Reduce { buffer, indices, over, .. } => {
                s.own_exprs(&mut |e| self.expr(s, e));
                self.site(s, *buffer, if over.is_empty() { Touch::Update } else { Touch::Start }, indices, &[]);
            }
            Stmt::Transpose { dst, src } => {
                s.own_exprs(&mut |e| self.expr(s, e));
                self.site(s, src.buffer, Touch::Read, &src.origin, &src.extents);
                self.site(s, dst.buffer, Touch::Write, &dst.origin, &dst.extents);
            }
            Stmt::Gpu(g) => {
                s.own_exprs(&mut |e| self.expr(s, e));
                let update = matches!(g, Gpu::Mma { .. });
                let read = |c: &mut Self| {
                    for t in g.tiles().read.into_iter().skip(usize::from(update)) {
                        c.site(s, t.buffer, Touch::Read, &t.origin, &t.extents);
                    }
                };
                match g {
                    // What the guard excludes is not read.
                    Gpu::CopyAsync { guard: Some(guard), .. } => {
                        let guard = self.plain(guard);
                        self.under(&guard, true, read);
                    }
                    _ => read(self),
                }
                if let Some(last) = self.sites.last_mut() {
                    last.clipped |= matches!(g, Gpu::TensorLoad { .. } | Gpu::MoveRows { .. });
                }
                if let Some(t) = g.tiles().written {
                    let touch = if update { Touch::Update } else { Touch::Write };
                    self.site(s, t.buffer, touch, &t.origin, &t.extents);
                    if let Some(last) = self.sites.last_mut() {
                        last.clipped |= matches!(g, Gpu::TensorStore { .. });
                    }
                }
            }
            Stmt::Alloc(_) | Stmt::Barrier(_) => {}
        }
    }

    /// The loads inside an expression, each under the conditions that it is evaluated in.
    fn expr(&mut self, s: &'k Stmt, e: &'k Expr) {
        match e {
            Expr::Int(_) | Expr::Float(..) | Expr::Var(_) => {}
            Expr::Binary(op @ (BinOp::And | BinOp::Or), a, b) => {
                self.expr(s, a);
                let mut partial = false;
                b.walk(&mut |e| partial |= matches!(e, Expr::Load(..) | Expr::Binary(BinOp::Div | BinOp::Mod, ..)));
                if partial {
                    let a = self.plain(a);
                    self.under(&a, *op == BinOp::And, |c| c.expr(s, b));
                }
            }
            Expr::Binary(op, a, b) => {
                self.expr(s, a);
                self.expr(s, b);
                if matches!(op, BinOp::Div | BinOp::Mod) {
                    self.divisor(s, b);
                }
            }
            Expr::Unary(_, a) | Expr::Cast(_, a) | Expr::Broadcast(a, _) => self.expr(s, a),
            Expr::Ramp { base, .. } => self.expr(s, base),
            Expr::Select(c, a, b) => {
                self.expr(s, c);
                let c = self.plain(c);
                self.under(&c, true, |x| x.expr(s, a));
                self.under(&c, false, |x| x.expr(s, b));
            }
            Expr::Load(b, idx) => {
                idx.iter().for_each(|e| self.expr(s, e));
                self.site(s, *b, Touch::Read, idx, &[]);
            }
        }
    }

    /// Integer division is floor division by something positive; a divisor without integer bounds is a float.
    fn divisor(&mut self, s: &Stmt, e: &Expr) {
        let plain = self.plain(e);
        if let Some((lo, _)) = bounds(&plain, &self.facts.ranges)
            && lo < 1
            && !self.facts.proves_at_most_zero(&(Expr::Int(1) - plain))
        {
            let cause = format!("the divisor {} is not always positive", print::expr(self.kernel, e));
            let help = "divide where a condition keeps it positive";
            self.faults.push(Fault::at(self.kernel, &self.loops, s, FaultKind::DivisionByZero, cause, help));
        }
    }

    fn site(&mut self, stmt: &'k Stmt, buffer: BufferId, touch: Touch, indices: &[Expr], extents: &[i64]) {
        let mut facts = self.facts.clone();
        let mut index: Vec<Expr> = indices.iter().map(|e| self.plain(e)).collect();
        for (d, n) in extents.iter().enumerate().filter(|(_, n)| **n > 1) {
            index[d] = index[d].clone() + Expr::Var(self.pseudo.tile(d));
            facts.ranges.insert(self.pseudo.tile(d), 0, n - 1);
        }
        // A vector access is one whose index moves with the lane.
        let lane = self.pseudo.lane();
        let lanes = match facts.ranges.get(lane) {
            Some((_, last)) if index.iter().any(|e| e.mentions(lane)) => Some((lane, last + 1)),
            _ => None,
        };
        let (loops, branches) = (self.loops.clone(), self.branches.clone());
        self.sites.push(Site { buffer, touch, index, clipped: false, lanes, stmt, loops, branches, facts });
    }

    /// The expression with integer `let`s inlined and every vector replaced by its lane.
    fn plain(&self, e: &Expr) -> Expr {
        let lane = Expr::Var(self.pseudo.lane());
        e.clone().map(&mut |e| match e {
            Expr::Var(v) => self.inlined.get(&v).cloned().unwrap_or(e),
            Expr::Ramp { base, lanes: 1, .. } => *base,
            Expr::Ramp { base, stride, .. } => *base + lane.clone() * stride,
            Expr::Broadcast(a, _) => *a,
            other => other,
        })
    }
}
