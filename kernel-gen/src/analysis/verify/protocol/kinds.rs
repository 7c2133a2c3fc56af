//! Clusters of a grid that do the same, as far as a protocol is concerned.
//!
//! A cluster's place in the grid matters to the protocol where an expression that decides something mentions it: the
//! condition of a branch, an index of shared memory, of a fragment or of an mbarrier, a parity, a rank. Two places along an
//! axis are of one kind if all of these expressions, with the place put in, are the same function of what is left. Where in
//! global memory a cluster works is no such thing: clusters meet there, which the rule on races of blocks covers.
//!
//! A branch that only reads memory of the block and writes what is not read again, as the guard of a tail does around what
//! is stored, can hide no fault where it is not taken. It tells no kinds apart, but the cluster that is run for a kind is
//! one that takes the most of these.

use super::launch::Launch;
use super::layout::is_counter;
use super::pieces::{inlined, integer_lets};
use crate::analysis::range::Ranges;
use crate::analysis::simplify::{prove, simplify};
use crate::analysis::verify::enumerate;
use crate::ir::{BinOp, BufferId, Expr, Gpu, Kernel, LoopKind, MbarrierOp, Scope, Stmt, Tile, VarId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Places along an axis that are compared.
const MOST_PLACES: i64 = 1 << 12;

/// Values of an expression's other variables that are compared; of more its text is.
const MOST_VALUES: i64 = 1 << 12;

/// Values of expressions that are compared in all.
const MOST_COMPARED: i64 = 1 << 21;

/// Clusters that are offered to be run.
const MOST_CLUSTERS: usize = 256;

/// The kinds of a launch.
pub(super) struct Kinds {
    /// How many there are, if they were told apart.
    pub(super) count: Option<u64>,
    /// A cluster of each, the first cluster and the last one in front.
    pub(super) clusters: Vec<[i64; 3]>,
}

/// Tells the clusters of a launch apart.
pub(super) fn of(kernel: &Kernel, launch: &Launch<'_>) -> Kinds {
    let mut collector = Collector {
        kernel,
        tracked: &launch.tracked,
        lets: integer_lets(kernel, launch.stmt),
        axes: BTreeMap::new(),
        deciding: vec![],
        guarding: vec![],
    };
    collector.stmt(launch.stmt);
    let Collector { axes, deciding, guarding, .. } = collector;
    let ranges = Ranges::of_block(std::slice::from_ref(launch.stmt));
    let mut along: [Option<Vec<i64>>; 3] = [const { None }; 3];
    let mut left = MOST_COMPARED;
    for (axis, places) in along.iter_mut().enumerate() {
        let vars: Vec<VarId> = axes.iter().filter(|(_, a)| **a == axis).map(|(v, _)| *v).collect();
        let mentions = |e: &&Expr| vars.iter().any(|v| e.mentions(*v));
        let deciding: Vec<&Expr> = deciding.iter().filter(mentions).collect();
        let guarding: Vec<&Expr> = guarding.iter().filter(mentions).collect();
        *places = along_axis(launch.grid[axis], &vars, &deciding, &guarding, &ranges, &mut left);
    }
    let last = launch.grid.map(|n| n - 1);
    let [Some(x), Some(y), Some(z)] = along else {
        let mut clusters = vec![[0; 3], last, launch.grid.map(|n| n / 2)];
        clusters.dedup();
        return Kinds { count: None, clusters };
    };
    let count = x.len() as u64 * y.len() as u64 * z.len() as u64;
    let all =
        z.iter().flat_map(|z| y.iter().map(move |y| (*y, *z))).flat_map(|(y, z)| x.iter().map(move |x| [*x, y, z]));
    let mut clusters: Vec<[i64; 3]> = all.take(MOST_CLUSTERS).collect();
    // At the edges there is most to go wrong, if not all can be run.
    clusters.sort_by_key(|c| (*c != [0; 3], *c != last));
    Kinds { count: Some(count), clusters }
}

/// One place of each kind along an axis.
fn along_axis(
    extent: i64,
    vars: &[VarId],
    deciding: &[&Expr],
    guarding: &[&Expr],
    ranges: &Ranges,
    left: &mut i64,
) -> Option<Vec<i64>> {
    if deciding.is_empty() && guarding.is_empty() {
        return Some(vec![0]);
    }
    // How many of the guards of tails hold.
    let mut ranges = ranges.clone();
    let at = |place: i64, ranges: &mut Ranges| vars.iter().for_each(|v| ranges.insert(*v, place, place));
    if deciding.is_empty() {
        // Most of them hold in front.
        at(0, &mut ranges);
        let sure = guarding.iter().all(|g| prove(g, &ranges) == Some(true));
        return Some(if sure || extent == 1 { vec![0] } else { vec![0, extent / 2, extent - 1] }).map(|mut places| {
            places.dedup();
            places
        });
    }
    if extent > MOST_PLACES {
        return None;
    }
    let mut kinds: BTreeMap<Vec<Left>, (usize, i64)> = BTreeMap::new();
    for place in 0..extent {
        at(place, &mut ranges);
        let kind = deciding.iter().map(|e| Left::of(e, vars, place, &ranges, left)).collect();
        let held = guarding.iter().filter(|g| prove(g, &ranges) == Some(true)).count();
        let best = kinds.entry(kind).or_insert((held, place));
        if held > best.0 {
            *best = (held, place);
        }
    }
    let mut places: Vec<i64> = kinds.into_values().map(|(_, place)| place).collect();
    places.sort_unstable();
    Some(places)
}

/// What is left of an expression at one place.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    Values(Vec<Option<i64>>),
    Text(String),
}

impl Left {
    fn of(e: &Expr, vars: &[VarId], place: i64, ranges: &Ranges, left: &mut i64) -> Left {
        let e = vars.iter().fold(e.clone(), |e, v| e.subst(*v, &Expr::Int(place)));
        let space = enumerate::variables([&e]).and_then(|vars| enumerate::space(&vars, ranges, MOST_VALUES.min(*left)));
        match space {
            Some(space) => {
                let mut values = vec![];
                let _ = enumerate::for_each(&space, |at| {
                    values.push(enumerate::eval(&e, at));
                    ControlFlow::<()>::Continue(())
                });
                *left -= values.len() as i64;
                Left::Values(values)
            }
            None => Left::Text(format!("{:?}", simplify(&e, ranges))),
        }
    }
}

/// Collects what mentions a place in the grid.
struct Collector<'c> {
    kernel: &'c Kernel,
    tracked: &'c BTreeSet<BufferId>,
    lets: BTreeMap<VarId, Expr>,
    /// The variables of the grid, and their axes.
    axes: BTreeMap<VarId, usize>,
    /// Expressions that decide what a cluster does.
    deciding: Vec<Expr>,
    /// Conditions of branches that only read and store.
    guarding: Vec<Expr>,
}

impl Collector<'_> {
    fn stmt(&mut self, s: &Stmt) {
        match s {
            Stmt::For(l) => {
                if let LoopKind::Grid(axis) = l.kind {
                    self.axes.insert(l.var, axis as usize);
                }
                l.body.iter().for_each(|s| self.stmt(s));
            }
            Stmt::If { cond, then, otherwise } => {
                self.reads(cond);
                let only_guards = otherwise.is_empty() && then.iter().all(|s| self.only_stores(s));
                let touches = then.iter().chain(otherwise).any(|s| self.touches(s));
                if touches {
                    self.note(cond, only_guards);
                }
                then.iter().chain(otherwise).for_each(|s| self.stmt(s));
            }
            Stmt::Store { buffer, indices, value } | Stmt::Reduce { buffer, indices, value, .. } => {
                self.reads(value);
                if self.in_block(*buffer) || is_counter(self.kernel, *buffer) {
                    indices.iter().for_each(|e| self.note(e, false));
                }
                if is_counter(self.kernel, *buffer) {
                    self.note(value, false);
                }
            }
            Stmt::Let { value, .. } => self.reads(value),
            Stmt::Gpu(g) => {
                let tiles = g.tiles();
                tiles.read.into_iter().chain(tiles.written).for_each(|t| self.tile(t));
                if let Some(slot) = g.slot() {
                    self.note(&slot.index, false);
                }
                match g {
                    Gpu::Mbarrier(_, MbarrierOp::Wait(e)) => self.note(e, false),
                    Gpu::Mbarrier(_, MbarrierOp::Arrive(rank)) => rank.iter().for_each(|e| self.note(e, false)),
                    Gpu::TensorLoad { multicast, .. } => multicast.iter().for_each(|e| self.note(e, false)),
                    Gpu::StoreAt { rank, values, .. } => {
                        self.note(rank, false);
                        values.iter().for_each(|e| self.reads(e));
                    }
                    _ => {}
                }
            }
            Stmt::Transpose { dst, src } => [dst, src].into_iter().for_each(|t| self.tile(t)),
            Stmt::Alloc(_) | Stmt::Barrier(_) => {}
        }
    }

    fn tile(&mut self, t: &Tile) {
        if self.in_block(t.buffer) {
            t.origin.iter().for_each(|e| self.note(e, false));
        }
    }

    /// Memory that a cluster has for itself.
    fn in_block(&self, b: BufferId) -> bool {
        matches!(self.kernel.buffer(b).scope, Scope::Shared | Scope::Fragment(_) | Scope::Mbarrier)
    }

    fn note(&mut self, e: &Expr, guards: bool) {
        let e = inlined(e, &self.lets);
        if self.axes.keys().any(|v| e.mentions(*v)) {
            let list = if guards { &mut self.guarding } else { &mut self.deciding };
            if !list.contains(&e) {
                list.push(e);
            }
        }
    }

    /// Where an expression reads memory of the block, and under which of its conditions.
    fn reads(&mut self, e: &Expr) {
        let mut found = vec![];
        e.walk(&mut |e| match e {
            Expr::Load(b, indices) if self.in_block(*b) => found.extend(indices.iter().cloned()),
            Expr::Select(c, a, b) if self.loads(a) || self.loads(b) => found.push((**c).clone()),
            Expr::Binary(BinOp::And | BinOp::Or, a, b) if self.loads(b) => found.push((**a).clone()),
            _ => {}
        });
        found.iter().for_each(|e| self.note(e, false));
    }

    fn loads(&self, e: &Expr) -> bool {
        let mut found = false;
        e.walk(&mut |e| found |= matches!(e, Expr::Load(b, _) if self.in_block(*b)));
        found
    }

    /// Whether a branch does something that a protocol is about.
    fn touches(&self, s: &Stmt) -> bool {
        let mut found = false;
        s.walk(&mut |s| {
            found |= matches!(s, Stmt::Gpu(_) | Stmt::Barrier(_));
            s.accesses(&mut |a| {
                let notable = self.tracked.contains(&a.buffer) || is_counter(self.kernel, a.buffer);
                found |= self.in_block(a.buffer) || a.writes && notable;
            });
        });
        found
    }

    /// Whether a branch reads memory of the block and writes what is neither that nor read by anyone.
    fn only_stores(&self, s: &Stmt) -> bool {
        let mut only = true;
        s.walk(&mut |s| {
            only &= !matches!(s, Stmt::Gpu(_) | Stmt::Barrier(_) | Stmt::Transpose { .. });
            only &= s.written().is_none_or(|b| !self.in_block(b) && !is_counter(self.kernel, b));
        });
        only
    }
}
