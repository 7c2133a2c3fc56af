//! A kernel's accesses of one buffer, run with loops and conditions but without data, on one bit an element.
//!
//! What is written stays written, until the buffer is made anew. So an iteration that does the same as an earlier one, in
//! each of its accesses, can show nothing that the earlier one did not; only the first of such iterations is run. And when
//! every element is written, what is left of the buffer's life need not be run.

use super::launches::{Launches, Touching, is_thread, starts_late, threads_differ};
use crate::analysis::range::Ranges;
use crate::analysis::simplify::simplify;
use crate::analysis::verify::access::Touch;
use crate::analysis::verify::enumerate::{self, eval};
use crate::ir::{BufferId, Expr, Kernel, Stmt, VarId};
use std::collections::BTreeSet;

/// Elements that are looked at, of one buffer. They take some tenths of a second.
const MOST_STEPS: u64 = 1 << 22;

/// Elements of a buffer that there are bits for.
const MOST_ELEMENTS: i64 = 1 << 26;

/// Iterations of a loop that are compared with each other.
const MOST_COMPARED: i64 = 1 << 12;

/// What was found.
pub(super) enum Outcome {
    /// All that is read was written before.
    Written,
    /// The access with this number reads this element, with these loop values.
    Unwritten { at: usize, index: Vec<i64>, with: Vec<String> },
    /// So many reads were of what was written before. There is more than is run.
    Stopped { reads: u64 },
    /// Memory decides about it.
    Unknown,
}

/// A statement, as far as the buffer is concerned.
enum Node {
    Loop {
        var: VarId,
        iterations: Vec<i64>,
        body: Vec<Node>,
        /// Conditions of all accesses below that nothing below decides: where one does not hold, nothing below runs.
        guards: Vec<(Expr, bool)>,
    },
    Leaf(Leaf),
    /// The buffer is made.
    Made,
}

impl Node {
    fn over(var: VarId, extent: i64, body: Vec<Node>) -> Node {
        let guards = match &body[..] {
            [first, rest @ ..] => {
                let mut guards = first.guards().to_vec();
                guards.retain(|g| !g.0.mentions(var) && rest.iter().all(|n| n.guards().contains(g)));
                guards
            }
            [] => vec![],
        };
        Node::Loop { var, iterations: (0..extent).collect(), body, guards }
    }

    /// Conditions without which nothing of this runs. What lanes or threads decide is not among those of a loop.
    fn guards(&self) -> &[(Expr, bool)] {
        match self {
            Node::Loop { guards, .. } => guards,
            Node::Leaf(leaf) => &leaf.outer,
            Node::Made => &[],
        }
    }
}

/// An access.
struct Leaf {
    /// Its number.
    at: usize,
    /// The variables of lanes, of tiles, and of threads that go through it together, with the values that are run.
    own: Vec<(VarId, Vec<i64>)>,
    /// Conditions that are known.
    guards: Vec<(Expr, bool)>,
    /// Those of them that loops decide alone.
    outer: Vec<(Expr, bool)>,
    /// Whether conditions on memory decide about it, too.
    unsure: bool,
    /// Whether its index follows from loops.
    known: bool,
    reads: bool,
    writes: bool,
    /// The loops of a reduction that may not start in their first iteration.
    over: Vec<VarId>,
}

/// Runs the accesses of a buffer; of the reads, those in `open` are in question.
pub(super) fn walk(kernel: &Kernel, id: BufferId, own: &[Touching], open: &[usize], launches: &Launches) -> Outcome {
    let shape = &kernel.buffer(id).shape;
    let Some(size) = shape.iter().try_fold(1i64, |a, n| a.checked_mul(*n)).filter(|n| *n <= MOST_ELEMENTS) else {
        return Outcome::Stopped { reads: 0 };
    };
    let alike = alike(kernel, id, own, launches);
    let planner = Planner { kernel, id, own, open, alike: &alike, launches, in_launch: None };
    let mut body = planner.block(&kernel.body);
    let mut ranges = Ranges::of_block(&kernel.body);
    for t in own {
        for (v, (lo, hi)) in t.side.facts.ranges.iter().filter(|(v, _)| v.0 as usize >= kernel.vars.len()) {
            ranges.insert(v, lo, hi);
        }
    }
    for (indices, _) in launches.indices.values() {
        indices.iter().for_each(|h| ranges.insert(h.var, 0, h.extent - 1));
    }
    thin(&mut body, own, &ranges);
    let slots = own.iter().flat_map(|t| t.side.facts.ranges.iter()).map(|(v, _)| v.0 as usize + 1).max().unwrap_or(0);
    let mut walker = Walker {
        kernel,
        own,
        shape,
        values: vec![0; slots.max(kernel.vars.len())],
        written: vec![false; size as usize],
        missing: size,
        steps: 0,
        reads: 0,
        stack: vec![],
    };
    match walker.block(&body) {
        Ok(()) => Outcome::Written,
        Err(outcome) => outcome,
    }
}

/// Conditions that all accesses have, and that one value holds for as long as the buffer lives: where they do not hold,
/// nothing touches it.
fn alike(kernel: &Kernel, id: BufferId, own: &[Touching], launches: &Launches) -> Vec<(Expr, bool)> {
    fn around(stmts: &[Stmt], id: BufferId, loops: &mut Vec<VarId>) -> bool {
        stmts.iter().any(|s| match s {
            Stmt::Alloc(b) => *b == id,
            Stmt::For(l) => {
                loops.push(l.var);
                let found = around(&l.body, id, loops);
                if !found {
                    loops.pop();
                }
                found
            }
            Stmt::If { then, otherwise, .. } => around(then, id, loops) || around(otherwise, id, loops),
            _ => false,
        })
    }
    let mut loops = vec![];
    if !around(&kernel.body, id, &mut loops) {
        return vec![];
    }
    let private = threads_differ(kernel.buffer(id).scope);
    let threads = || launches.indices.values().flat_map(|(i, _)| i).filter(|h| is_thread(h.kind)).map(|h| h.var);
    let outer: BTreeSet<VarId> = loops
        .iter()
        .map(|v| *launches.stands_for.get(v).unwrap_or(v))
        .filter(|v| private || threads().all(|thread| thread != *v))
        .collect();
    let settled = |g: &Expr| enumerate::variables([g]).is_some_and(|vars| vars.is_subset(&outer));
    let Some((first, rest)) = own.split_first() else { return vec![] };
    let common = first.side.facts.guards.iter().filter(|g| rest.iter().all(|t| t.side.facts.guards.contains(g)));
    common.filter(|(g, _)| settled(g)).cloned().collect()
}

struct Planner<'p, 's, 'k> {
    kernel: &'k Kernel,
    id: BufferId,
    own: &'p [Touching<'s, 'k>],
    open: &'p [usize],
    alike: &'p [(Expr, bool)],
    launches: &'p Launches,
    in_launch: Option<VarId>,
}

impl Planner<'_, '_, '_> {
    fn block(&self, stmts: &[Stmt]) -> Vec<Node> {
        stmts.iter().flat_map(|s| self.stmt(s)).collect()
    }

    fn stmt(&self, s: &Stmt) -> Vec<Node> {
        match s {
            Stmt::For(l) if l.extent < 1 => vec![],
            Stmt::For(l) if self.launches.stands_for.contains_key(&l.var) => {
                let (Some((indices, _)), None) = (self.launches.indices.get(&l.var), self.in_launch) else {
                    return self.block(&l.body);
                };
                // The loops over hardware indices are moved out; those over threads of a block that meet on the buffer
                // are part of each access.
                let inside = Planner { in_launch: Some(l.var), ..*self };
                let mut body = inside.block(&l.body);
                let apart = threads_differ(self.kernel.buffer(self.id).scope);
                for h in indices.iter().rev().filter(|h| apart || !is_thread(h.kind)) {
                    body = vec![Node::over(h.var, h.extent, body)];
                }
                body
            }
            Stmt::For(l) => match self.block(&l.body) {
                body if body.is_empty() => body,
                body => vec![Node::over(l.var, l.extent, body)],
            },
            Stmt::Alloc(b) if *b == self.id => vec![Node::Made],
            Stmt::If { then, otherwise, .. } => {
                let mut out = self.leaves(s);
                out.extend(self.block(then));
                out.extend(self.block(otherwise));
                out
            }
            _ => self.leaves(s),
        }
    }

    fn leaves(&self, s: &Stmt) -> Vec<Node> {
        let here = self.own.iter().enumerate().filter(|(_, t)| std::ptr::eq(t.site.stmt, s));
        here.map(|(at, t)| Node::Leaf(self.leaf(at, t))).collect()
    }

    fn leaf(&self, at: usize, t: &Touching) -> Leaf {
        let known = |e: &Expr| {
            // A `let` that is too large to be put in its place is no loop.
            enumerate::variables([e]).is_some_and(|vars| {
                vars.iter().all(|v| {
                    v.0 as usize >= self.kernel.vars.len()
                        || self.launches.stands_for.contains_key(v)
                        || t.loops.iter().any(|l| l.var == *v)
                })
            })
        };
        let guards = t.side.facts.guards.iter().filter(|g| !self.alike.contains(g)).cloned();
        let (guards, unsure): (Vec<_>, Vec<_>) = guards.partition(|(g, _)| known(g));
        let mut own = vec![];
        let mentions = |v: VarId| t.side.index.iter().chain(guards.iter().map(|(g, _)| g)).any(|e| e.mentions(v));
        if let (Some(launch), false) = (self.in_launch, threads_differ(self.kernel.buffer(self.id).scope)) {
            let threads = self.launches.indices[&launch].0.iter().filter(|h| is_thread(h.kind) && mentions(h.var));
            own.extend(threads.map(|h| (h.var, (0..h.extent).collect())));
        }
        let pseudo = t.side.facts.ranges.iter().filter(|(v, _)| v.0 as usize >= self.kernel.vars.len() && mentions(*v));
        own.extend(pseudo.map(|(v, (lo, hi))| (v, (lo..=hi).collect())));
        let outer = guards.iter().filter(|(g, _)| own.iter().all(|(v, _)| !g.mentions(*v))).cloned().collect();
        let late = starts_late(t.site);
        let over = match t.site.stmt {
            Stmt::Reduce { over, .. } if late => over.clone(),
            _ => vec![],
        };
        Leaf {
            at,
            own,
            guards,
            outer,
            unsure: !unsure.is_empty(),
            known: t.side.index.iter().all(known),
            reads: self.open.contains(&at),
            writes: matches!(t.site.touch, Touch::Write | Touch::Start),
            over,
        }
    }
}

/// Leaves of each loop the first of the iterations that do the same. An index is what it is with the iteration in its
/// place, and so is a condition: what is left of them says what the iteration does.
fn thin(nodes: &mut [Node], own: &[Touching], ranges: &Ranges) {
    for node in nodes {
        match node {
            Node::Loop { var, iterations, body, .. } => {
                let mut exprs: Vec<Expr> = vec![];
                gather(body, own, *var, &mut exprs);
                same(*var, iterations, &exprs, ranges);
                thin(body, own, ranges);
            }
            Node::Leaf(leaf) => {
                let exprs: Vec<Expr> =
                    (own[leaf.at].side.index.iter()).chain(leaf.guards.iter().map(|(g, _)| g)).cloned().collect();
                for (var, iterations) in &mut leaf.own {
                    let exprs: Vec<Expr> = exprs.iter().filter(|e| e.mentions(*var)).cloned().collect();
                    same(*var, iterations, &exprs, ranges);
                }
            }
            Node::Made => {}
        }
    }
}

/// The expressions below that mention a variable.
fn gather(nodes: &[Node], own: &[Touching], var: VarId, out: &mut Vec<Expr>) {
    for node in nodes {
        match node {
            Node::Loop { body, .. } => gather(body, own, var, out),
            Node::Leaf(leaf) => {
                let over = leaf.over.iter().filter(|v| **v == var).map(|v| Expr::Var(*v));
                let guards = leaf.guards.iter().map(|(g, _)| g.clone());
                for e in own[leaf.at].side.index.iter().cloned().chain(guards).chain(over).filter(|e| e.mentions(var)) {
                    if !out.contains(&e) {
                        out.push(e);
                    }
                }
            }
            Node::Made => {}
        }
    }
}

fn same(var: VarId, iterations: &mut Vec<i64>, exprs: &[Expr], ranges: &Ranges) {
    if exprs.is_empty() {
        iterations.truncate(1);
        return;
    }
    // Each iteration of a sum has another one.
    let alone = |e: &Expr| crate::analysis::affine::Affine::of(e).is_some_and(|a| a.coefficient(var) != 0);
    if iterations.len() < 2 || iterations.len() as i64 > MOST_COMPARED || exprs.iter().any(alone) {
        return;
    }
    let mut ranges = ranges.clone();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    iterations.retain(|at| {
        ranges.insert(var, *at, *at);
        let left: Vec<Expr> = exprs.iter().map(|e| simplify(e, &ranges)).collect();
        seen.insert(format!("{left:?}"))
    });
}

struct Walker<'w, 's, 'k> {
    kernel: &'k Kernel,
    own: &'w [Touching<'s, 'k>],
    shape: &'w [i64],
    values: Vec<i64>,
    written: Vec<bool>,
    /// Elements that are not written.
    missing: i64,
    steps: u64,
    /// Reads among them.
    reads: u64,
    /// The loops that are being run.
    stack: Vec<VarId>,
}

impl Walker<'_, '_, '_> {
    fn block(&mut self, nodes: &[Node]) -> Result<(), Outcome> {
        for node in nodes {
            match node {
                Node::Made => {
                    self.written.fill(false);
                    self.missing = self.written.len() as i64;
                }
                Node::Leaf(leaf) if self.missing > 0 => self.leaf(leaf)?,
                Node::Leaf(_) => {}
                Node::Loop { body, .. } if self.missing == 0 && !makes(body) => {}
                Node::Loop { guards, .. }
                    if guards.iter().any(|(g, t)| eval(g, &self.values) == Some(i64::from(!t))) => {}
                Node::Loop { var, iterations, body, .. } => {
                    self.stack.push(*var);
                    for at in iterations {
                        self.values[var.0 as usize] = *at;
                        self.block(body)?;
                    }
                    self.stack.pop();
                }
            }
        }
        Ok(())
    }

    fn leaf(&mut self, leaf: &Leaf) -> Result<(), Outcome> {
        let starts = !leaf.over.is_empty() && leaf.over.iter().all(|v| self.values[v.0 as usize] == 0);
        let reads = leaf.reads && !starts;
        let writes = leaf.writes && leaf.known && !leaf.unsure;
        if !reads && !writes {
            return Ok(());
        }
        self.points(leaf, 0, reads, writes)
    }

    fn points(&mut self, leaf: &Leaf, depth: usize, reads: bool, writes: bool) -> Result<(), Outcome> {
        if let Some((var, iterations)) = leaf.own.get(depth) {
            for at in iterations {
                self.values[var.0 as usize] = *at;
                self.points(leaf, depth + 1, reads, writes)?;
            }
            return Ok(());
        }
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Err(Outcome::Stopped { reads: self.reads });
        }
        if leaf.guards.iter().any(|(g, t)| eval(g, &self.values) != Some(i64::from(*t))) {
            return Ok(());
        }
        let t = &self.own[leaf.at];
        if !leaf.known {
            return Err(Outcome::Unknown);
        }
        let mut at = 0;
        for (e, n) in t.side.index.iter().zip(self.shape) {
            match eval(e, &self.values) {
                Some(i) if (0..*n).contains(&i) => at = at * n + i,
                // What is outside is left out, or has been reported.
                _ => return Ok(()),
            }
        }
        if reads && !self.written[at as usize] {
            let index = t.side.index.iter().filter_map(|e| eval(e, &self.values)).collect();
            let named = self.stack.iter().chain(leaf.own.iter().map(|(v, _)| v)).filter_map(|v| {
                let name = &self.kernel.vars.get(v.0 as usize)?.name;
                Some(format!("{name} = {}", self.values[v.0 as usize]))
            });
            return Err(match leaf.unsure {
                true => Outcome::Unknown,
                false => Outcome::Unwritten { at: leaf.at, index, with: named.collect() },
            });
        }
        self.reads += u64::from(reads);
        if writes && !std::mem::replace(&mut self.written[at as usize], true) {
            self.missing -= 1;
        }
        Ok(())
    }
}

/// Whether the buffer is made anew below.
fn makes(nodes: &[Node]) -> bool {
    nodes.iter().any(|n| match n {
        Node::Made => true,
        Node::Loop { body, .. } => makes(body),
        Node::Leaf(_) => false,
    })
}
