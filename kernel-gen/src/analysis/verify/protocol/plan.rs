//! Statements with what can be known of them before any thread runs.
//!
//! Hundreds of threads go through the same statements thousands of times. What does not depend on the thread is therefore
//! found out once: which statements matter, what of an expression touches memory that threads share, and how an index
//! is a sum of variables. A statement is *quiet* if all that it does is to read such memory at indices that follow from
//! variables. What one thread of a warp has read that way, another thread of the warp need not read again at the same
//! places, as long as nothing was written in between: to the order of things, a warp is one actor.

use super::layout::{fragment_warps, is_counter, lanes};
use crate::analysis::simplify::Sum;
use crate::analysis::verify::access::is_hardware;
use crate::ir::{Axis, BinOp, BufferId, Expr, For, Gpu, Kernel, LoopKind, Scope, Stmt, VarId};
use std::collections::BTreeSet;

/// Most numbers that tell the executions of a quiet statement apart.
pub(super) const KEYS: usize = 4;

/// Statements of a quiet loop below which it is as fast to read again.
const WORTH: u64 = 6;

/// How much is found out beforehand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Detail {
    /// All of it.
    Full,
    /// Nothing but which statements matter: every thread evaluates every expression. For tests to compare with.
    #[cfg(test)]
    Plain,
}

/// Statements, without those that do not matter.
#[derive(Debug, Default)]
pub(super) struct Block<'k> {
    pub(super) nodes: Vec<Node<'k>>,
    /// Statements behind the last that are passed by.
    pub(super) rest: u64,
}

/// A statement.
#[derive(Debug)]
pub(super) struct Node<'k> {
    pub(super) stmt: &'k Stmt,
    /// Statements before it that are passed by.
    pub(super) passed: u64,
    /// The body of a loop, or the branches of a condition.
    pub(super) inner: [Block<'k>; 2],
    /// What its values read.
    pub(super) reads: Reads<'k>,
    /// What it stores to, if threads share that.
    pub(super) target: Option<Access<'k>>,
    /// Whether it changes a private integer.
    pub(super) counts: bool,
    pub(super) lanes: i64,
    /// Warps of the fragments in a loop over rows.
    pub(super) warps: i64,
    pub(super) quiet: Option<Quiet>,
}

/// What is read where expressions are evaluated.
#[derive(Debug)]
pub(super) enum Reads<'k> {
    /// Nothing that threads share.
    Nothing,
    /// These, whatever the values are.
    Each(Vec<Access<'k>>),
    /// What conditions decide about.
    Walk,
}

/// An access of a buffer that threads share.
#[derive(Debug)]
pub(super) struct Access<'k> {
    pub(super) buffer: BufferId,
    pub(super) indices: &'k [Expr],
    /// Elements along each dimension; none for one element.
    pub(super) extents: Option<&'k [i64]>,
    pub(super) scope: Scope,
    pub(super) places: Vec<Place>,
}

/// An index as a sum.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) vars: Vec<(usize, i64)>,
    pub(super) others: Vec<(Expr, i64)>,
    pub(super) constant: i64,
}

/// A statement that only reads.
#[derive(Debug)]
pub(super) struct Quiet {
    /// What is remembered of its executions: the number among those of the launch, and what tells them apart. None
    /// where hardly any two are alike, or it is not worth it.
    pub(super) memo: Option<(usize, Vec<Expr>)>,
}

/// What a quiet statement depends on.
#[derive(Default)]
struct Cause {
    /// Parts of its indices.
    atoms: BTreeSet<String>,
    exprs: Vec<Expr>,
    /// Statements of one execution.
    steps: u64,
}

impl Cause {
    fn add(&mut self, e: &Expr) {
        if self.atoms.insert(format!("{e:?}")) {
            self.exprs.push(e.clone());
        }
    }
}

/// Builds the plan of a launch.
pub(super) struct Planner<'p> {
    pub(super) kernel: &'p Kernel,
    pub(super) tracked: &'p BTreeSet<BufferId>,
    /// Statements that matter, by address.
    pub(super) interesting: &'p BTreeSet<usize>,
    pub(super) detail: Detail,
    /// The indices that are another number in each thread of a warp.
    pub(super) threads: BTreeSet<VarId>,
    /// Statements that something is remembered of, so far.
    pub(super) memos: usize,
}

impl<'p> Planner<'p> {
    pub(super) fn new(
        kernel: &'p Kernel,
        launch: &Stmt,
        tracked: &'p BTreeSet<BufferId>,
        interesting: &'p BTreeSet<usize>,
        detail: Detail,
    ) -> Planner<'p> {
        let mut threads = BTreeSet::new();
        launch.walk(&mut |s| {
            if let Stmt::For(l) = s
                && l.kind == LoopKind::Thread(Axis::X)
                && l.extent >= 32
            {
                threads.insert(l.var);
            }
        });
        Planner { kernel, tracked, interesting, detail, threads, memos: 0 }
    }

    pub(super) fn block<'k>(&mut self, stmts: &'k [Stmt]) -> Block<'k> {
        self.block_and_cause(stmts).0
    }

    /// The block, and what it depends on if all of it is quiet.
    fn block_and_cause<'k>(&mut self, stmts: &'k [Stmt]) -> (Block<'k>, Option<Cause>) {
        let mut out = Block::default();
        let mut cause = Some(Cause::default());
        for s in stmts {
            if !self.interesting.contains(&(std::ptr::from_ref(s) as usize)) {
                out.rest += 1;
                continue;
            }
            let (mut node, of_node) = self.node(s);
            node.passed = std::mem::take(&mut out.rest);
            cause = cause.zip(of_node).map(|(mut all, of_node)| {
                all.steps += of_node.steps + 1 + node.passed;
                of_node.exprs.iter().for_each(|e| all.add(e));
                all
            });
            out.nodes.push(node);
        }
        (out, cause)
    }

    fn node<'k>(&mut self, s: &'k Stmt) -> (Node<'k>, Option<Cause>) {
        let mut node = Node {
            stmt: s,
            passed: 0,
            inner: Default::default(),
            reads: Reads::Nothing,
            target: None,
            counts: false,
            lanes: 1,
            warps: 1,
            quiet: None,
        };
        let mut cause = None;
        match s {
            Stmt::For(l) => {
                let (body, of_body) = self.block_and_cause(&l.body);
                node.inner[0] = body;
                match l.kind {
                    LoopKind::FragmentRow => node.warps = fragment_warps(self.kernel, l),
                    LoopKind::FragmentCol => {}
                    kind if is_hardware(kind) => {}
                    _ => cause = of_body.map(|c| self.around(l, &node.inner[0], c)),
                }
            }
            Stmt::If { cond, then, otherwise } => {
                node.inner = [self.block(then), self.block(otherwise)];
                node.reads = self.reads([cond]);
            }
            Stmt::Let { value, .. } => node.reads = self.reads([value]),
            Stmt::Store { buffer, indices, value } | Stmt::Reduce { buffer, indices, value, .. } => {
                node.lanes = lanes(indices);
                node.counts = is_counter(self.kernel, *buffer);
                node.reads = self.reads([value]);
                node.target = self.access(*buffer, indices, None);
                if node.target.is_none() && !node.counts {
                    cause = of_reads(&node.reads);
                }
            }
            Stmt::Gpu(g) => {
                let mut exprs = vec![];
                g.exprs(&mut |e| exprs.push(e));
                node.reads = self.reads(exprs);
                if let Gpu::CopyAsync { dst, .. } = g {
                    node.target = self.access(dst.buffer, &dst.origin, Some(&dst.extents));
                }
            }
            _ => {}
        }
        if self.detail != Detail::Full {
            cause = None;
        }
        if let Some(cause) = &cause {
            let distinct = |e: &Expr| matches!(e, Expr::Var(v) if self.threads.contains(v));
            let exprs = &cause.exprs;
            let worth = cause.steps >= WORTH && exprs.len() <= KEYS && !exprs.iter().any(distinct);
            let memo = (worth && matches!(s, Stmt::For(_))).then(|| {
                self.memos += 1;
                (self.memos - 1, exprs.clone())
            });
            node.quiet = Some(Quiet { memo });
        }
        (node, cause)
    }

    /// What a loop depends on, of whose body it is known: its own variable is none of it.
    fn around(&self, l: &For, body: &Block<'_>, inner: Cause) -> Cause {
        let mut out =
            Cause { steps: (inner.steps + 1 + body.rest).saturating_mul(l.extent.max(0) as u64), ..Cause::default() };
        for e in inner.exprs {
            if !e.mentions(l.var) {
                out.add(&e);
                continue;
            }
            e.walk(&mut |e| {
                if matches!(e, Expr::Var(v) if *v != l.var) {
                    out.add(e);
                }
            });
        }
        out
    }

    /// What expressions read, in the order in which they are evaluated.
    fn reads<'k>(&self, exprs: impl IntoIterator<Item = &'k Expr>) -> Reads<'k> {
        let mut found = vec![];
        let sure = exprs.into_iter().all(|e| self.collect(e, &mut found));
        match found.is_empty() {
            _ if !sure => Reads::Walk,
            true if self.detail == Detail::Full => Reads::Nothing,
            false if self.detail == Detail::Full => Reads::Each(found),
            _ => Reads::Walk,
        }
    }

    /// Adds what an expression reads; whether that is the same whatever the values are.
    fn collect<'k>(&self, e: &'k Expr, out: &mut Vec<Access<'k>>) -> bool {
        match e {
            Expr::Int(_) | Expr::Float(..) | Expr::Var(_) => true,
            Expr::Unary(_, a) | Expr::Cast(_, a) | Expr::Broadcast(a, _) => self.collect(a, out),
            Expr::Ramp { base, .. } => self.collect(base, out),
            Expr::Binary(BinOp::And | BinOp::Or, a, b) => self.collect(a, out) && !self.touches(b),
            Expr::Binary(_, a, b) => self.collect(a, out) && self.collect(b, out),
            Expr::Select(c, a, b) => self.collect(c, out) && !self.touches(a) && !self.touches(b),
            Expr::Load(b, indices) => {
                let sure = indices.iter().all(|e| self.collect(e, out));
                out.extend(self.access(*b, indices, None));
                sure
            }
        }
    }

    fn touches(&self, e: &Expr) -> bool {
        let mut found = false;
        e.walk(&mut |e| found |= matches!(e, Expr::Load(b, _) if self.tracked.contains(b)));
        found
    }

    fn access<'k>(&self, buffer: BufferId, indices: &'k [Expr], extents: Option<&'k [i64]>) -> Option<Access<'k>> {
        let place = |e: &Expr| {
            if self.detail != Detail::Full {
                return Place { vars: vec![], others: vec![(e.clone(), 1)], constant: 0 };
            }
            let sum = Sum::of(e.clone());
            let (mut vars, mut others) = (vec![], vec![]);
            for (atom, factor) in sum.terms {
                match atom {
                    Expr::Var(v) => vars.push((v.0 as usize, factor)),
                    other => others.push((other, factor)),
                }
            }
            Place { vars, others, constant: sum.constant }
        };
        let scope = self.kernel.buffer(buffer).scope;
        let places = indices.iter().map(place).collect();
        self.tracked.contains(&buffer).then_some(Access { buffer, indices, extents, scope, places })
    }
}

/// What reads depend on, if they are quiet.
fn of_reads(reads: &Reads<'_>) -> Option<Cause> {
    let mut cause = Cause::default();
    let Reads::Each(list) = reads else { return matches!(reads, Reads::Nothing).then_some(cause) };
    for a in list {
        if matches!(a.scope, Scope::Fragment(_)) {
            return None;
        }
        for p in &a.places {
            p.vars.iter().for_each(|(v, _)| cause.add(&Expr::Var(VarId(*v as u32))));
            for (e, _) in &p.others {
                let mut known = true;
                e.walk(&mut |e| known &= !matches!(e, Expr::Load(..) | Expr::Ramp { .. }));
                if !known {
                    return None;
                }
                cause.add(e);
            }
        }
    }
    Some(cause)
}
