//! What the rules look at: the stages of a kernel, their loops, and how each load walks through memory.

use crate::analysis::affine::Affine;
use crate::ir::visit::find_loop;
use crate::ir::{BinOp, BufferId, Expr, Kernel, LoopKind, Scope, Stmt, VarId};
use crate::schedule::Schedule;
use std::collections::BTreeMap;

/// A loop of a stage.
#[derive(Clone, Debug)]
pub(super) struct Loop {
    pub(super) var: VarId,
    pub(super) name: String,
    pub(super) extent: i64,
}

/// A load of a stage's value.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) buffer: BufferId,
    pub(super) name: String,
    /// The index of each dimension, `None` where it is not linear.
    pub(super) indices: Vec<Option<Affine>>,
    /// Elements between neighbours along each dimension.
    strides: Vec<i64>,
    /// Elements of the buffer along each dimension.
    shape: Vec<i64>,
    /// Bytes of an element.
    pub(super) bytes: i64,
}

impl Load {
    /// Elements that one step of a loop moves the load by; `None` where that is not known.
    pub(super) fn stride(&self, v: VarId) -> Option<i64> {
        self.indices.iter().zip(&self.strides).try_fold(0, |sum, (index, stride)| {
            let index = index.as_ref()?;
            Some(sum + index.coefficient(v) * stride)
        })
    }

    /// The dimension that a loop alone walks, one element at a time.
    pub(super) fn dimension_of(&self, v: VarId) -> Option<usize> {
        let mut walked =
            (0..self.indices.len()).filter(|d| self.indices[*d].as_ref().is_none_or(|i| i.coefficient(v) != 0));
        let (dim, None) = (walked.next()?, walked.next()) else { return None };
        self.indices[dim].as_ref().is_some_and(|i| i.coefficient(v) == 1).then_some(dim)
    }

    /// Whether another element is loaded where the loop goes on. What is not known depends on everything.
    pub(super) fn depends_on(&self, v: VarId) -> bool {
        self.indices.iter().any(|i| i.as_ref().is_none_or(|i| i.coefficient(v) != 0))
    }

    /// Whether a dimension is walked by several loops, which then meet the same elements again, as windows do.
    fn overlaps(&self) -> bool {
        self.indices.iter().flatten().any(|i| i.terms.len() > 1)
    }

    /// The extents of the box that is read while each loop runs over `extent(loop)` iterations, edges included.
    pub(super) fn reaches(&self, extent: &dyn Fn(VarId) -> i64) -> Vec<i64> {
        let along = |(index, whole): (&Option<Affine>, &i64)| match index {
            Some(affine) => 1 + affine.terms.iter().map(|(v, c)| c.abs() * (extent(*v) - 1)).sum::<i64>(),
            None => *whole,
        };
        self.indices.iter().zip(&self.shape).map(along).collect()
    }

    /// Elements that are read while each loop runs over `extent(loop)` iterations: what several of them read counts once.
    pub(super) fn distinct(&self, extent: &dyn Fn(VarId) -> i64) -> f64 {
        let along = |(index, reach): (&Option<Affine>, i64)| match index {
            Some(affine) => affine.terms.keys().map(|v| extent(*v)).product::<i64>().min(reach) as f64,
            None => reach as f64,
        };
        self.indices.iter().zip(self.reaches(extent)).map(along).product()
    }

    /// Cache lines of that box.
    pub(super) fn lines(&self, extent: &dyn Fn(VarId) -> i64, line_bytes: i64) -> f64 {
        // Dimensions that lie in memory without a gap are one row.
        let (mut row, mut rows, mut whole) = (1, 1.0, true);
        for (n, size) in self.reaches(extent).iter().zip(&self.shape).rev() {
            let n = n.min(size);
            if whole {
                row *= n;
            } else {
                rows *= *n as f64;
            }
            whole &= n == size;
        }
        rows * ((row * self.bytes) as f64 / line_bytes as f64).max(1.0)
    }
}

/// A stage: loops around one statement.
#[derive(Clone, Debug)]
pub(super) struct Nest {
    pub(super) stage: BufferId,
    /// The loops that its index is made of, outermost first.
    pub(super) spatial: Vec<Loop>,
    /// The loops that it sums over, outermost first.
    pub(super) reduce: Vec<Loop>,
    /// The index that is written.
    indices: Vec<Option<Affine>>,
    strides: Vec<i64>,
    /// What the value reads.
    pub(super) loads: Vec<Load>,
    /// Arithmetic of one iteration, the addition to a sum included.
    pub(super) operations: i64,
    /// Whether the value chooses between two sides.
    pub(super) selects: bool,
    /// Whether it is a sum (or a maximum, or a minimum).
    pub(super) reduces: bool,
}

impl Nest {
    /// The nest that writes a stage at the root, or why it is none.
    fn of(k: &Kernel, root: &Stmt) -> Result<Nest, String> {
        let mut loops = vec![];
        let mut stmt = root;
        while let Stmt::For(l) = stmt {
            if l.kind != LoopKind::Serial {
                return Err(format!("loop `{}` has been given to something already", k.var(l.var).name));
            }
            loops.push(Loop { var: l.var, name: k.var(l.var).name.clone(), extent: l.extent });
            let [one] = &l.body[..] else {
                return Err(format!("loop `{}` holds several statements", k.var(l.var).name));
            };
            stmt = one;
        }
        let (stage, indices, value, over, reduces) = match stmt {
            Stmt::Store { buffer, indices, value } => (*buffer, indices, value, &[][..], false),
            Stmt::Reduce { buffer, indices, value, over, .. } => (*buffer, indices, value, &over[..], true),
            _ => return Err("a loop holds something else than one stored value".to_string()),
        };
        let name = &k.buffer(stage).name;
        if value.reads(stage) {
            return Err(format!("`{name}` reads itself"));
        }
        let (reduce, spatial): (Vec<Loop>, Vec<Loop>) = loops.into_iter().partition(|l| over.contains(&l.var));
        let affine = |all: &[Expr]| -> Vec<Option<Affine>> { all.iter().map(Affine::of).collect() };
        let indices = affine(indices);
        if spatial.iter().any(|l| l.extent > 1 && !indices.iter().flatten().any(|i| i.coefficient(l.var) != 0)) {
            return Err(format!("a loop of `{name}` writes the same elements again"));
        }
        let (mut loads, mut selects) = (vec![], false);
        let mut seen: Vec<&Expr> = vec![];
        value.walk(&mut |e| match e {
            Expr::Load(b, i) if !seen.contains(&e) => {
                seen.push(e);
                let buffer = k.buffer(*b);
                loads.push(Load {
                    buffer: *b,
                    name: buffer.name.clone(),
                    indices: affine(i),
                    strides: buffer.strides.clone(),
                    shape: buffer.shape.clone(),
                    bytes: buffer.dtype.bytes() as i64,
                });
            }
            Expr::Select(..) => selects = true,
            _ => {}
        });
        let operations = operations(value) + i64::from(reduces);
        let strides = k.buffer(stage).strides.clone();
        Ok(Nest { stage, spatial, reduce, indices, strides, loads, operations, selects, reduces })
    }

    /// Elements that one step of a loop moves what is written by.
    fn stride(&self, v: VarId) -> Option<i64> {
        self.indices.iter().zip(&self.strides).try_fold(0, |sum, (index, stride)| {
            let index = index.as_ref()?;
            Some(sum + index.coefficient(v) * stride)
        })
    }

    /// The loop along which neighbours are written, if there is one.
    pub(super) fn lane(&self) -> Option<usize> {
        self.spatial.iter().position(|l| l.extent > 1 && self.stride(l.var) == Some(1))
    }

    /// Loads of which it is not known how far apart two iterations of a spatial loop read.
    pub(super) fn scattered_along(&self, lane: usize) -> usize {
        self.loads.iter().filter(|load| load.stride(self.spatial[lane].var).is_none()).count()
    }

    /// Iterations of all its reduce loops.
    pub(super) fn terms(&self) -> i64 {
        self.reduce.iter().map(|l| l.extent).product()
    }

    /// The longest reduce loop: the one that is cut in passes.
    pub(super) fn longest(&self) -> Option<&Loop> {
        let long = self.reduce.iter().filter(|l| l.extent > 1);
        long.max_by(|a, b| a.extent.cmp(&b.extent).then(b.var.cmp(&a.var)))
    }

    /// Elements that it writes.
    pub(super) fn elements(&self) -> i64 {
        self.spatial.iter().map(|l| l.extent).product()
    }
}

/// The groups of a kernel, in order.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    pub(super) all: Vec<Group>,
}

/// A stage that vanished into what read it.
struct Vanished {
    reads: Vec<BufferId>,
    /// The stage that reads it, with its load.
    readers: Vec<(BufferId, Load)>,
}

/// The loads that a sum has of copies in closer memory, where it has any: of what vanished between a buffer and the sum, if
/// something did, since a box of that is copied, padding included. Passes of a reduce loop make copies; without one there is
/// nothing to share.
fn copied(sum: &Sum, vanished: &[Vanished]) -> Vec<Load> {
    let between = |l: &Load| {
        let of_sum = |v: &&Vanished| v.reads.contains(&l.buffer);
        let readers = vanished.iter().filter(of_sum).flat_map(|v| &v.readers);
        readers.filter(|(reader, _)| *reader == sum.nest.stage).map(|(_, load)| load.clone()).next()
    };
    match sum.nest.longest() {
        Some(_) => sum.reused().map(|l| between(l).unwrap_or_else(|| l.clone())).collect(),
        None => vec![],
    }
}

/// What is scheduled together: a stage, and the sum that it reads element by element.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) out: Nest,
    pub(super) sum: Option<Sum>,
}

/// A sum that is computed beside its only reader.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    /// The name of its buffer.
    pub(super) name: String,
    pub(super) nest: Nest,
    /// For each loop of the reader the loop of the sum that runs along, and what its tiles must divide: a dimension that
    /// several loops of the sum make together is cut within the innermost of them.
    pub(super) along: Vec<(VarId, i64)>,
    /// The dimension of the sum that each loop of the reader runs along, none for a loop of one iteration.
    dims: Vec<Option<usize>>,
    /// The loads that copies in shared memory are made for, of the buffers that are copied.
    pub(super) copied: Vec<Load>,
}

impl Sum {
    /// The loads of buffers that are read in one place only, along known strides, and that other iterations of some loop of
    /// the reader repeat: what a copy in closer memory may be worth for.
    pub(super) fn reused(&self) -> impl Iterator<Item = &Load> {
        let loads = &self.nest.loads;
        loads.iter().filter(move |l| {
            let once = loads.iter().filter(|o| o.buffer == l.buffer).count() == 1;
            let again = self.along.iter().any(|(v, n)| *n > 1 && !l.depends_on(*v)) || l.overlaps();
            once && again && l.indices.iter().all(Option::is_some)
        })
    }

    /// The loop of the reader that a spatial loop of the sum runs along, in the kernel as it stands.
    pub(super) fn reader_of(&self, k: &Kernel, loops: &[VarId], v: VarId) -> Option<usize> {
        let (indices, _) = written(k, self.nest.stage, loops)?;
        self.dims.iter().position(|d| d.is_some_and(|d| indices[d].mentions(v)))
    }
}

/// The loops of the sum that run along those of its reader, if the reader reads each element at its own place.
fn fused(k: &Kernel, sum: &Nest, out: &Nest) -> Option<Sum> {
    let mut reads = out.loads.iter().filter(|l| l.buffer == sum.stage);
    let (read, None) = (reads.next()?, reads.next()) else { return None };
    let (mut along, mut dims): (Vec<(VarId, i64)>, Vec<Option<usize>>) = (vec![], vec![]);
    for l in &out.spatial {
        if l.extent == 1 {
            // An index that is always 0 may stand as a number.
            along.push((l.var, 1));
            dims.push(None);
            continue;
        }
        let dim = read.indices.iter().position(|i| i.as_ref().is_some_and(|i| i.coefficient(l.var) != 0))?;
        let index = read.indices[dim].as_ref()?;
        if index.terms.len() != 1 || index.coefficient(l.var) != 1 || index.constant != 0 || read.shape[dim] != l.extent
        {
            return None;
        }
        let written = sum.indices[dim].as_ref()?;
        let inner = sum.spatial.iter().find(|s| written.coefficient(s.var) == 1)?;
        along.push((inner.var, inner.extent));
        dims.push(Some(dim));
    }
    let long = read.shape.iter().filter(|n| **n > 1).count();
    if dims.iter().flatten().count() < long || sum.lane().map(|i| sum.spatial[i].var) != out.lane().map(|i| along[i].0)
    {
        return None;
    }
    Some(Sum { name: k.buffer(sum.stage).name.clone(), nest: sum.clone(), along, dims, copied: vec![] })
}

/// The stages of a kernel, or why the rules say nothing of it.
fn nests(k: &Kernel) -> Result<Vec<Nest>, String> {
    let stages = k.body.iter().filter(|s| !matches!(s, Stmt::Alloc(_)));
    let all: Vec<Nest> = stages.map(|s| Nest::of(k, s)).collect::<Result<_, _>>()?;
    let mut writers = BTreeMap::new();
    for n in &all {
        if writers.insert(n.stage, ()).is_some() {
            return Err(format!("two statements write `{}`", k.buffer(n.stage).name));
        }
    }
    Ok(all)
}

/// The stages that read a buffer.
fn readers(all: &[Nest], buffer: BufferId) -> Vec<&Nest> {
    all.iter().filter(|n| n.loads.iter().any(|l| l.buffer == buffer)).collect()
}

/// Brings a kernel into the form that is tiled, and finds its groups in order: what is computed element by element vanishes
/// into readers that are too (or, where `copies_vanish`, into any reader, if it only reads parameters), and a sum that no
/// stage reads element by element gets a cache that is copied out.
pub(super) fn groups(s: &mut Schedule, copies_vanish: bool) -> Result<Groups, String> {
    let (mut kept, mut vanished): (Vec<BufferId>, Vec<Vanished>) = (vec![], vec![]);
    loop {
        let all = nests(&s.kernel)?;
        let plain = |n: &Nest| !n.reduces;
        let vanishes = |n: &&Nest| {
            let readers = readers(&all, n.stage);
            let copy = copies_vanish && n.loads.iter().all(|l| s.kernel.is_param(l.buffer));
            plain(n)
                && !s.kernel.is_param(n.stage)
                && !kept.contains(&n.stage)
                && !readers.is_empty()
                && (copy || readers.iter().all(|r| plain(r)) && !reads_sum_alone(n, &all))
        };
        let Some(nest) = all.iter().find(vanishes) else { break };
        match s.compute_inline(nest.stage) {
            Ok(()) => {
                let load = |n: &&Nest| Some((n.stage, n.loads.iter().find(|l| l.buffer == nest.stage)?.clone()));
                vanished.push(Vanished {
                    reads: nest.loads.iter().map(|l| l.buffer).collect(),
                    readers: readers(&all, nest.stage).iter().filter_map(load).collect(),
                });
            }
            Err(_) => kept.push(nest.stage),
        }
    }
    // Sums without such a reader.
    let all = nests(&s.kernel)?;
    for sum in all.iter().filter(|n| n.reduces) {
        if fused_reader(sum, &all, s).is_none() {
            s.cache_write(sum.stage, Scope::Global).map_err(|e| e.to_string())?;
        }
    }
    let all = nests(&s.kernel)?;
    let sums: BTreeMap<BufferId, Sum> =
        all.iter().filter(|n| n.reduces).filter_map(|n| fused_reader(n, &all, s)).collect();
    let beside: Vec<BufferId> = sums.values().map(|s| s.nest.stage).collect();
    if let Some(n) = all.iter().find(|n| n.reduces && !beside.contains(&n.stage)) {
        return Err(format!("two sums are read where `{}` is", s.kernel.buffer(n.stage).name));
    }
    let outs = all.iter().filter(|n| !n.reduces);
    let with_copies = |sum: &Sum| Sum { copied: copied(sum, &vanished), ..sum.clone() };
    let all = outs.map(|n| Group { out: n.clone(), sum: sums.get(&n.stage).map(with_copies) }).collect();
    Ok(Groups { all })
}

/// Whether a stage is what a sum is copied out by: that stays, beside the sum.
fn reads_sum_alone(n: &Nest, all: &[Nest]) -> bool {
    n.loads.iter().any(|l| all.iter().any(|o| o.stage == l.buffer && o.reduces))
}

/// The stage that alone reads a sum, element by element, with how it does.
fn fused_reader(sum: &Nest, all: &[Nest], s: &Schedule) -> Option<(BufferId, Sum)> {
    let readers = readers(all, sum.stage);
    let [one] = readers[..] else { return None };
    if s.kernel.is_param(sum.stage) || one.reduces {
        return None;
    }
    // Of several sums that one stage reads, the first is computed beside it.
    let mut of_one = all.iter().filter(|n| n.reduces && fused(&s.kernel, n, one).is_some());
    if of_one.next().is_some_and(|first| first.stage != sum.stage) {
        return None;
    }
    Some((one.stage, fused(&s.kernel, sum, one)?))
}

/// The index of the statement inside of the first of `loops` that writes a stage, and the loops it sums over.
fn written(k: &Kernel, stage: BufferId, loops: &[VarId]) -> Option<(Vec<Expr>, Vec<VarId>)> {
    let mut found = None;
    for s in &find_loop(&k.body, *loops.first()?)?.body {
        s.walk(&mut |s| match s {
            Stmt::Store { buffer, indices, .. } if *buffer == stage => found = Some((indices.clone(), vec![])),
            Stmt::Reduce { buffer, indices, over, .. } if *buffer == stage => {
                found = Some((indices.clone(), over.clone()));
            }
            _ => {}
        });
    }
    found
}

/// Which of `loops` writes neighbours of a stage, if one of more than one iteration does, and which it sums over.
pub(super) fn lane_of(k: &Kernel, stage: BufferId, loops: &[VarId]) -> (Option<VarId>, Vec<VarId>) {
    let Some((indices, over)) = written(k, stage, loops) else { return (None, vec![]) };
    let strides = &k.buffer(stage).strides;
    let stride = |v: VarId| -> Option<i64> {
        indices.iter().zip(strides).try_fold(0, |sum, (i, n)| Some(sum + slope(i, v)? * n))
    };
    let long = |v: VarId| find_loop(&k.body, v).is_some_and(|l| l.extent > 1);
    let lane = loops.iter().copied().find(|v| !over.contains(v) && long(*v) && stride(*v) == Some(1));
    (lane, over)
}

/// By how much an expression grows with a loop, whatever it says of others; `None` where that is no constant.
fn slope(e: &Expr, v: VarId) -> Option<i64> {
    match e {
        _ if !e.mentions(v) => Some(0),
        Expr::Var(_) => Some(1),
        Expr::Binary(BinOp::Add, a, b) => Some(slope(a, v)? + slope(b, v)?),
        Expr::Binary(BinOp::Sub, a, b) => Some(slope(a, v)? - slope(b, v)?),
        Expr::Binary(BinOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
            (Some(n), _) => Some(n * slope(b, v)?),
            (_, Some(n)) => Some(n * slope(a, v)?),
            _ => None,
        },
        _ => None,
    }
}

/// The arithmetic of a value, without that of indices and conditions.
fn operations(value: &Expr) -> i64 {
    match value {
        Expr::Binary(_, a, b) => 1 + operations(a) + operations(b),
        Expr::Unary(_, a) => 1 + operations(a),
        Expr::Select(_, a, b) => 1 + operations(a) + operations(b),
        Expr::Cast(_, a) => operations(a),
        _ => 0,
    }
}
