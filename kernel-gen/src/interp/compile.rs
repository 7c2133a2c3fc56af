//! From the tree to the flat program: statements.

use super::layout::{check_ids, extents, has_barrier, has_gpu, used};
use super::program::{Access, Dim, Launch, Linear, Memory, Op, Place, Program, Slot, Term};
use super::{At, Cause, InterpError, Mode};
use crate::analysis::range::{Ranges, bounds};
use crate::ir::{Axis, BufferId, DType, Expr, For, Kernel, LoopKind, Scope, Stmt, Tile, VarId, print};
use std::collections::{BTreeMap, BTreeSet};

/// Blocks of a grid, and threads of a block, that have numbers.
const MOST_ACTORS: i64 = i32::MAX as i64;

/// Elements of a transposed tile, which is compiled element by element.
const MOST_TRANSPOSED: i64 = 1 << 16;

/// What compiling keeps track of.
pub(super) struct Compiler<'k> {
    pub(super) p: Program<'k>,
    /// Bounds of the integer variables.
    pub(super) ranges: Ranges,
    /// First slot and lanes of each variable that is bound.
    pub(super) vars: Vec<Option<Bound>>,
    pub(super) int_consts: BTreeMap<i64, Slot>,
    pub(super) float_consts: BTreeMap<u64, Slot>,
    /// First slot behind the variables and constants.
    pub(super) temps: [u32; 2],
    /// Next free slot of each register file, and the most that were in use.
    pub(super) next: [u32; 2],
    pub(super) most: [u32; 2],
    /// Values of this statement that are the same for all lanes, by the address of their expression.
    pub(super) shared_values: BTreeMap<usize, super::expr::Value>,
    /// Whether the code being made may be skipped at run time.
    pub(super) lazy: u32,
    place: Option<u32>,
    pub(super) in_launch: bool,
    pub(super) in_lanes: bool,
    /// Whether the threads of a warp are told apart here, or one of them runs what a warp does as a whole.
    in_threads: bool,
    live: BTreeSet<BufferId>,
}

/// Where a variable's value is.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    pub(super) slot: Slot,
    pub(super) lanes: u16,
    pub(super) dtype: DType,
    /// Whether it is in scope.
    pub(super) open: bool,
}

/// Whether a loop visits the elements of a fragment, each in the thread that holds it.
fn is_fragment(kind: LoopKind) -> bool {
    matches!(kind, LoopKind::FragmentRow | LoopKind::FragmentCol)
}

/// See [`Program::compile`].
pub(super) fn compile(kernel: &Kernel, mode: Mode) -> Result<Program<'_>, InterpError> {
    check_ids(kernel)?;
    let mut c = Compiler {
        p: Program {
            kernel,
            mode,
            ops: vec![],
            accesses: vec![],
            terms: vec![],
            dims: vec![],
            overs: vec![],
            launches: vec![],
            gpu: vec![],
            privates: vec![],
            buffers: vec![],
            pool: 0,
            races_tracked: false,
            lanes_tracked: false,
            ints: vec![],
            floats: vec![],
            slots: vec![],
            place_of: vec![],
            places: vec![],
        },
        ranges: Ranges::new(),
        vars: vec![None; kernel.vars.len()],
        int_consts: BTreeMap::new(),
        float_consts: BTreeMap::new(),
        temps: [0; 2],
        next: [0; 2],
        most: [0; 2],
        shared_values: BTreeMap::new(),
        lazy: 0,
        place: None,
        in_launch: false,
        in_lanes: false,
        in_threads: false,
        live: kernel.params.iter().copied().collect(),
    };
    c.lay_out_memory()?;
    c.lay_out_slots()?;
    if let Err(mut e) = c.block(&kernel.body) {
        let place = c.place.map(|p| c.p.places[p as usize]);
        e.at = place.map(|p| Box::new(At { statement: print::first_line(kernel, p.stmt), loops: vec![] }));
        return Err(e);
    }
    c.emit(Op::Halt);
    let [ints, floats] = c.most;
    c.p.ints = vec![0; ints as usize];
    c.p.floats = vec![0.0; floats as usize];
    c.p.slots = c.vars.iter().map(|b| b.map_or(0, |b| b.slot)).collect();
    for (v, s) in &c.int_consts {
        c.p.ints[*s as usize] = *v;
    }
    for (bits, s) in &c.float_consts {
        c.p.floats[*s as usize] = f64::from_bits(*bits);
    }
    Ok(c.p)
}

impl<'k> Compiler<'k> {
    /// Takes neighbouring slots of the integer or the floating file.
    pub(super) fn take(&mut self, int: bool, count: u32) -> Slot {
        let file = usize::from(!int);
        let slot = self.next[file];
        self.next[file] += count;
        self.most[file] = self.most[file].max(self.next[file]);
        slot
    }

    pub(super) fn emit(&mut self, op: Op) -> usize {
        self.p.ops.push(op);
        self.p.place_of.push(self.place.unwrap_or(u32::MAX));
        self.p.ops.len() - 1
    }

    pub(super) fn here(&self) -> u32 {
        self.p.ops.len() as u32
    }

    /// Makes a jump emitted earlier go on here.
    pub(super) fn land(&mut self, at: usize) {
        let here = self.here();
        match &mut self.p.ops[at] {
            Op::Jump { to }
            | Op::JumpIfZero { to, .. }
            | Op::LoopBegin { to, .. }
            | Op::HardwareIndex { to, .. }
            | Op::UnitBegin { to, .. }
            | Op::FragmentIndex { to, .. } => *to = here,
            other => unreachable!("not a jump: {other:?}"),
        }
    }

    fn block(&mut self, stmts: &'k [Stmt]) -> Result<(), InterpError> {
        let (mut lets, mut allocs) = (vec![], vec![]);
        for s in stmts {
            let outer = self.place;
            self.p.places.push(Place { stmt: s, parent: outer });
            self.place = Some(self.p.places.len() as u32 - 1);
            self.next = self.temps;
            self.shared_values.clear();
            match self.whole_unit(s) {
                Some(warps) => self.once(s, warps)?,
                None => self.stmt(s)?,
            }
            match s {
                Stmt::Let { var, .. } => lets.push(*var),
                Stmt::Alloc(b) => allocs.push(*b),
                _ => {}
            }
            self.place = outer;
        }
        for v in lets {
            self.close(v);
        }
        for b in allocs {
            self.live.remove(&b);
        }
        Ok(())
    }

    /// Warps of the unit that runs a statement as one: scalar loops over fragments, before `tensorize`.
    fn whole_unit(&self, s: &Stmt) -> Option<u8> {
        if !self.in_launch || self.in_threads || matches!(s, Stmt::Alloc(_) | Stmt::Let { .. }) {
            return None;
        }
        let mut single = true;
        s.walk(&mut |s| {
            single &= match s {
                Stmt::Gpu(_) | Stmt::Barrier(_) => false,
                Stmt::For(l) => !l.kind.is_concurrent() && !is_fragment(l.kind),
                _ => true,
            }
        });
        let units = used(std::slice::from_ref(s)).into_iter().filter_map(|b| match self.p.kernel.buffer(b).scope {
            Scope::Fragment(unit) => Some(unit),
            _ => None,
        });
        units.max().filter(|_| single).map(|unit| unit.warps() as u8)
    }

    /// A statement that one thread of each unit runs.
    fn once(&mut self, s: &'k Stmt, warps: u8) -> Result<(), InterpError> {
        let skip = self.emit(Op::UnitBegin { warps, to: 0 });
        self.in_threads = true;
        self.stmt(s)?;
        self.in_threads = false;
        self.emit(Op::UnitEnd);
        self.land(skip);
        Ok(())
    }

    fn open(&mut self, v: VarId) -> Slot {
        let bound = self.vars[v.0 as usize].as_mut().expect("every bound variable was given a slot");
        bound.open = true;
        bound.slot
    }

    fn close(&mut self, v: VarId) {
        self.ranges.remove(v);
        if let Some(b) = &mut self.vars[v.0 as usize] {
            b.open = false;
        }
    }

    fn stmt(&mut self, s: &'k Stmt) -> Result<(), InterpError> {
        match s {
            Stmt::For(l) => self.for_loop(s, l),
            Stmt::Store { buffer, indices, value } => {
                let lanes = self.index_lanes(indices);
                self.check_lanes_of(value, lanes)?;
                let values = (0..lanes).map(|l| self.value(value, l)).collect::<Result<Vec<_>, _>>()?;
                let dtype = self.p.buffers[buffer.0 as usize].dtype;
                for (l, v) in (0..lanes).zip(values) {
                    let access = self.access(*buffer, indices, l)?;
                    let mut a = self.as_kind(v, dtype);
                    if dtype.is_byte() {
                        let d = self.take(true, 1);
                        self.emit(Op::IntToInt { d, a, dtype });
                        a = d;
                    }
                    self.emit(if dtype.is_float() { Op::FloatStore { a, access } } else { Op::IntStore { a, access } });
                }
                Ok(())
            }
            Stmt::Reduce { buffer, indices, op, init, value, over } => {
                let lanes = self.index_lanes(indices);
                self.check_lanes_of(value, lanes)?;
                self.check_lanes_of(init, lanes)?;
                let dtype = self.p.buffers[buffer.0 as usize].dtype;
                let mut slots = vec![];
                for v in over {
                    match self.vars[v.0 as usize] {
                        Some(b) if b.open => slots.push(b.slot),
                        _ => {
                            let name = &self.p.kernel.var(*v).name;
                            return Err(InterpError::malformed(format!(
                                "a reduction over {name} is not inside its loop"
                            )));
                        }
                    }
                }
                let mut values = vec![];
                for l in 0..lanes {
                    let (v, i) =
                        (self.value(value, l)?, if over.is_empty() { None } else { Some(self.value(init, l)?) });
                    values.push((self.as_kind(v, dtype), i.map_or(0, |i| self.as_kind(i, dtype))));
                }
                let over = if over.is_empty() {
                    u32::MAX
                } else {
                    self.p.overs.push(slots);
                    self.p.overs.len() as u32 - 1
                };
                for (l, (a, init)) in (0..lanes).zip(values) {
                    let (op, access) = (*op, self.access(*buffer, indices, l)?);
                    self.emit(if dtype.is_float() {
                        Op::FloatReduce { op, a, init, access, over }
                    } else {
                        Op::IntReduce { op, a, init, access, over }
                    });
                }
                Ok(())
            }
            Stmt::If { cond, then, otherwise } => {
                self.check_lanes_of(cond, 1)?;
                let c = self.truth(cond, 0)?;
                let skip = self.emit(Op::JumpIfZero { a: c, to: 0 });
                self.block(then)?;
                if otherwise.is_empty() {
                    self.land(skip);
                } else {
                    let end = self.emit(Op::Jump { to: 0 });
                    self.land(skip);
                    self.block(otherwise)?;
                    self.land(end);
                }
                Ok(())
            }
            Stmt::Let { var, value } => {
                let lanes = self.lanes(value);
                let dtype = self.p.kernel.var(*var).dtype;
                let values = (0..lanes).map(|l| self.value(value, l)).collect::<Result<Vec<_>, _>>()?;
                let slot = self.open(*var);
                for (l, v) in (0u32..).zip(values) {
                    let a = self.as_kind(v, dtype);
                    let d = slot + l;
                    if dtype.is_float() {
                        self.emit(Op::FloatToFloat { d, a, dtype: self.rounding(dtype) });
                    } else {
                        self.emit(Op::IntToInt { d, a, dtype });
                    }
                }
                if lanes == 1
                    && dtype == DType::I64
                    && let Some((lo, hi)) = bounds(value, &self.ranges)
                {
                    self.ranges.insert(*var, lo, hi);
                }
                Ok(())
            }
            Stmt::Alloc(b) => {
                self.live.insert(*b);
                self.emit(Op::Alloc { buffer: b.0 });
                Ok(())
            }
            Stmt::Barrier(b) => {
                if !self.in_launch {
                    return Err(InterpError::whole(Cause::BarrierOutsideBlock));
                }
                self.emit(Op::Barrier { warp: *b == crate::ir::Barrier::Warp });
                Ok(())
            }
            Stmt::Transpose { dst, src } => self.transpose(dst, src),
            Stmt::Gpu(g) => self.gpu(g),
        }
    }

    /// A transposed copy of the last two dimensions, element by element: tiles are a few vectors large.
    fn transpose(&mut self, dst: &'k Tile, src: &'k Tile) -> Result<(), InterpError> {
        let last_two = |t: &Tile| match t.extents[..] {
            [ref outer @ .., rows, cols] if outer.iter().all(|e| *e == 1) => Some((rows, cols)),
            _ => None,
        };
        let (Some((m, n)), Some(flipped)) = (last_two(src), last_two(dst)) else {
            return Err(InterpError::malformed(format!("transpose of extents {:?} = {:?}", dst.extents, src.extents)));
        };
        if flipped != (n, m) || m < 1 || n < 1 || m.saturating_mul(n) > MOST_TRANSPOSED {
            return Err(InterpError::malformed(format!("transpose of {}x{} = {m}x{n}", flipped.0, flipped.1)));
        }
        let dtype_of = |t: &Tile| self.p.buffers[t.buffer.0 as usize].dtype;
        if dst.buffer == src.buffer || !dtype_of(dst).is_float() || !dtype_of(src).is_float() {
            return Err(InterpError::malformed("transpose needs two buffers of a floating type"));
        }
        let at = |t: &Tile, row: i64, col: i64| {
            let mut offsets = vec![0; t.extents.len()];
            let last = offsets.len() - 1;
            (offsets[last - 1], offsets[last]) = (row, col);
            offsets
        };
        for i in 0..m {
            for j in 0..n {
                let access = self.access_at(src.buffer, &src.origin, 0, &at(src, i, j))?;
                let d = self.take(false, 1);
                self.emit(Op::FloatLoad { d, access });
                let access = self.access_at(dst.buffer, &dst.origin, 0, &at(dst, j, i))?;
                self.emit(Op::FloatStore { a: d, access });
            }
        }
        Ok(())
    }

    fn for_loop(&mut self, s: &'k Stmt, l: &'k For) -> Result<(), InterpError> {
        let outer = self.in_threads;
        self.in_threads |= is_fragment(l.kind) || l.kind == LoopKind::Thread(Axis::X) && l.extent > 1;
        let done = self.loop_of(s, l);
        self.in_threads = outer;
        done
    }

    fn loop_of(&mut self, s: &'k Stmt, l: &'k For) -> Result<(), InterpError> {
        let hardware = matches!(l.kind, LoopKind::Grid(_) | LoopKind::Cluster(_) | LoopKind::Thread(_));
        if hardware && !self.in_launch {
            let [grid, block, cluster] = extents(s);
            let count = |n: &[i64]| n.iter().try_fold(1i64, |a, b| a.checked_mul(*b)).filter(|n| *n <= MOST_ACTORS);
            if count(&[grid, cluster].concat()).is_none() || count(&[block, cluster].concat()).is_none() {
                return Err(InterpError::malformed(format!("a grid of {grid:?} blocks of {block:?} threads")));
            }
            let buffers = used(std::slice::from_ref(s));
            let of = |f: &dyn Fn(&Memory) -> bool| -> Vec<BufferId> {
                buffers.iter().copied().filter(|b| f(&self.p.buffers[b.0 as usize])).collect()
            };
            let (privates, shared) = (of(&|m| m.is_private), of(&|m| m.is_shared || m.counted));
            self.p.privates.push(privates);
            let privates = self.p.privates.len() as u32 - 1;
            let id = self.p.launches.len();
            let (has_barrier, has_gpu) = (has_barrier(s), has_gpu(self.p.kernel, s));
            if has_gpu {
                self.check_launch(s, block, cluster)?;
            }
            self.p.launches.push(Launch { grid, block, cluster, has_barrier, has_gpu, privates, shared, end: 0 });
            self.emit(Op::Launch { launch: id as u32 });
            self.in_launch = true;
            self.for_loop(s, l)?;
            self.in_launch = false;
            self.emit(Op::Halt);
            self.p.launches[id].end = self.here();
            return Ok(());
        }
        let v = self.open(l.var);
        self.ranges.insert_loop(l);
        let extent = l.extent;
        let axis = match l.kind {
            LoopKind::Grid(a) => Some(a as u8),
            LoopKind::Thread(a) => Some(a as u8 + 3),
            LoopKind::Cluster(a) => Some(a as u8 + 6),
            _ => None,
        };
        if let Some(axis) = axis {
            let skip = self.emit(Op::HardwareIndex { v, axis, extent, to: 0 });
            self.block(&l.body)?;
            self.land(skip);
        } else {
            let parallel = l.kind == LoopKind::Parallel && !self.in_launch;
            let lanes = l.kind == LoopKind::Vectorized && !self.in_lanes;
            let mut privates = u32::MAX;
            if parallel {
                // Private memory from outside is fresh in every iteration: each may run in another thread.
                let inside = used(&l.body);
                let outside =
                    self.live.iter().filter(|b| self.p.buffers[b.0 as usize].is_private && inside.contains(b)).copied();
                self.p.privates.push(outside.collect());
                privates = self.p.privates.len() as u32 - 1;
                self.emit(Op::ParallelBegin);
            }
            if lanes {
                self.in_lanes = true;
                self.emit(Op::LanesBegin);
            }
            let skip = self.emit(Op::LoopBegin { v, extent, to: 0 });
            let to = self.here();
            if parallel {
                self.emit(Op::ParallelIteration { v, privates });
            }
            if lanes {
                self.emit(Op::Lane { v });
            }
            let foreign = match l.kind {
                LoopKind::FragmentRow | LoopKind::FragmentCol => Some(self.fragment_index(l, v)?),
                _ => None,
            };
            self.block(&l.body)?;
            if let Some(at) = foreign {
                self.land(at);
            }
            self.emit(Op::LoopEnd { v, extent, to });
            self.land(skip);
            if lanes {
                self.in_lanes = false;
                self.emit(Op::LanesEnd);
            }
            if parallel {
                self.emit(Op::ParallelEnd { privates });
            }
        }
        self.close(l.var);
        Ok(())
    }

    /// Lanes of an element's indices: those of the index that is a vector.
    pub(super) fn index_lanes(&self, indices: &[Expr]) -> u16 {
        indices.iter().map(|i| self.lanes(i)).max().unwrap_or(1)
    }

    fn check_lanes_of(&self, e: &Expr, lanes: u16) -> Result<(), InterpError> {
        match self.lanes(e) {
            1 => Ok(()),
            n if n == lanes => Ok(()),
            n => Err(InterpError::malformed(format!("a value of {n} lanes goes where there are {lanes}"))),
        }
    }
    /// The address of one lane of an element.
    pub(super) fn access(&mut self, buffer: BufferId, indices: &[Expr], lane: u16) -> Result<u32, InterpError> {
        self.access_at(buffer, indices, lane, &[])
    }

    /// Likewise, `offsets` further along each dimension.
    pub(super) fn access_at(
        &mut self,
        buffer: BufferId,
        idx: &[Expr],
        lane: u16,
        offsets: &[i64],
    ) -> Result<u32, InterpError> {
        self.check_live(buffer)?;
        let shape = &self.p.kernel.buffer(buffer).shape;
        let strides = crate::ir::row_major(shape);
        let mut linear = super::expr::Sum::default();
        let mut unproven = vec![];
        for (d, index) in idx.iter().enumerate() {
            let mut sum = self.sum(index, lane)?;
            sum.add_constant(offsets.get(d).copied().unwrap_or(0));
            match sum.bounds {
                // Folding a dimension in leaves no trace of it, so it has to be in bounds for certain.
                Some((lo, hi)) if lo >= 0 && hi < shape[d] => linear.add(&sum, strides[d]),
                _ => unproven.push((sum, shape[d], strides[d])),
            }
        }
        let first_dim = self.p.dims.len() as u32;
        for (sum, extent, stride) in unproven {
            let index = self.linear(&sum);
            self.p.dims.push(Dim { index, extent, stride });
        }
        let linear = self.linear(&linear);
        let dims = self.p.dims.len() as u32 - first_dim;
        self.p.accesses.push(Access { buffer: buffer.0, linear, first_dim, dims });
        Ok(self.p.accesses.len() as u32 - 1)
    }

    /// Refuses a buffer that is used where it does not exist.
    pub(super) fn check_live(&self, buffer: BufferId) -> Result<(), InterpError> {
        if self.live.contains(&buffer) {
            return Ok(());
        }
        let name = &self.p.kernel.buffer(buffer).name;
        Err(InterpError::malformed(format!("{name} is used outside the block that allocates it")))
    }

    /// Stores a sum's terms.
    pub(super) fn linear(&mut self, sum: &super::expr::Sum) -> Linear {
        let first = self.p.terms.len() as u32;
        self.p.terms.extend(sum.terms.iter().map(|(slot, factor)| Term { factor: *factor, slot: *slot }));
        Linear { constant: sum.constant, first, count: sum.terms.len() as u32 }
    }

    /// The type that a conversion rounds to in this mode.
    pub(super) fn rounding(&self, dtype: DType) -> DType {
        if self.p.mode == Mode::F64 && dtype.is_float() { DType::F64 } else { dtype }
    }
}
