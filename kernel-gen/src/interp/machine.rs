//! Runs the flat program.

use super::program::{Access, CompareOp, FloatOp, IntOp, Linear, Memory, Op, Program};
use super::round::{erf, round_to};
use super::shadow::{Actor, Conflict, Shadow, describe};
use super::{At, Cause, InterpError, Mode, Values, compile};
use crate::ir::{Access as ParamAccess, BufferId, DType, ReduceOp, Stmt};

/// Memory and bookkeeping of a run.
pub(super) struct Machine<'p> {
    pub(super) p: &'p Program<'p>,
    /// Bits of `f64` or `i64`.
    memory: Vec<u64>,
    /// The generation of its buffer in which each element was written last.
    written: Vec<u32>,
    shadow: Shadow,
    /// Current generation of each buffer that is not private: elements of older ones are unwritten.
    pub(super) generations: Vec<u32>,
    pub(super) next_generation: u32,
    /// How often each buffer that is not private was allocated in this block.
    pub(super) allocations: Vec<u32>,
    pub(super) who: Actor,
    pub(super) next_region: u32,
    next_epoch: u32,
    parallel_depth: u32,
    lane: u64,
    next_lanes: u64,
    /// Block extents of the launch that runs.
    pub(super) launch: Option<[i64; 3]>,
    pub(super) hardware: [i64; 6],
    steps_left: u64,
}

/// Registers and position of one thread.
#[derive(Clone)]
pub(super) struct Thread {
    pub(super) pc: u32,
    pub(super) ints: Vec<i64>,
    pub(super) floats: Vec<f64>,
    /// Generation of each private buffer.
    pub(super) generations: Vec<u32>,
    /// How often it passed each allocation of memory that is not private.
    pub(super) allocations: Vec<u32>,
    /// Which copy of private buffers is its own.
    pub(super) instance: usize,
}

/// Why a thread stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// At a barrier; `pc` is behind it.
    Barrier { warp: bool },
    /// At its end.
    Halt,
}

/// Something went wrong at the current operation. Boxed to keep the fast path's results small.
pub(super) type Trap = Box<Cause>;

/// See [`Program::run`].
pub(super) fn run(p: &Program, inputs: &Values, step_limit: u64) -> Result<Values, InterpError> {
    let n = p.buffers.len();
    let mut m = Machine {
        p,
        memory: vec![0; p.pool],
        written: vec![0; p.pool],
        shadow: Shadow::new(if p.races_tracked { p.pool } else { 0 }, if p.lanes_tracked { p.pool } else { 0 }),
        generations: vec![1; n],
        next_generation: 2,
        allocations: vec![0; n],
        who: Actor::default(),
        next_region: 1,
        next_epoch: 1,
        parallel_depth: 0,
        lane: 0,
        next_lanes: 1,
        launch: None,
        hardware: [0; 6],
        steps_left: step_limit,
    };
    m.load_inputs(inputs)?;
    let mut t = Thread {
        pc: 0,
        ints: p.ints.clone(),
        floats: p.floats.clone(),
        generations: vec![1; n],
        allocations: vec![0; n],
        instance: 0,
    };
    match m.advance(&mut t) {
        Ok(_) => m.outputs(),
        Err((cause, at)) => Err(InterpError { cause: *cause, at }),
    }
}

/// A trap together with the place where it happened.
pub(super) type Failure = (Trap, Option<Box<At>>);

impl Machine<'_> {
    fn load_inputs(&mut self, inputs: &Values) -> Result<(), InterpError> {
        let k = self.p.kernel;
        let unfit =
            |buffer: &str, detail: String| Err(InterpError::whole(Cause::Input { buffer: buffer.to_string(), detail }));
        for id in &k.params {
            let (b, memory) = (k.buffer(*id), &self.p.buffers[id.0 as usize]);
            if b.access == ParamAccess::Write {
                continue;
            }
            let Some(values) = inputs.get(&b.name) else {
                return unfit(&b.name, "no values were given".to_string());
            };
            if values.len() != memory.size {
                return unfit(&b.name, format!("{} values for shape {:?}", values.len(), b.shape));
            }
            for (i, v) in values.iter().enumerate() {
                self.memory[memory.base + i] = match (b.dtype.is_float(), self.p.mode) {
                    (true, Mode::F64) => v.to_bits(),
                    (true, Mode::Declared) => round_to(*v, b.dtype).to_bits(),
                    (false, _) => to_int(*v, b.dtype) as u64,
                };
                self.written[memory.base + i] = 1;
            }
        }
        if let Some(name) = inputs.keys().find(|n| k.find_buffer(n).is_none_or(|b| !k.is_param(b))) {
            return unfit(name, "the kernel has no such parameter".to_string());
        }
        Ok(())
    }

    fn outputs(&self) -> Result<Values, InterpError> {
        let k = self.p.kernel;
        let mut out = Values::new();
        for id in &k.params {
            let (b, memory) = (k.buffer(*id), &self.p.buffers[id.0 as usize]);
            if b.access == ParamAccess::Read {
                continue;
            }
            let mut values = Vec::with_capacity(memory.size);
            for i in 0..memory.size {
                let at = memory.base + i;
                if self.written[at] != self.generations[id.0 as usize] {
                    let index = unravel(i, &b.shape);
                    return Err(InterpError::whole(Cause::UnwrittenOutput { buffer: b.name.clone(), index }));
                }
                let bits = self.memory[at];
                values.push(if b.dtype.is_float() { f64::from_bits(bits) } else { bits as i64 as f64 });
            }
            out.insert(b.name.clone(), values);
        }
        Ok(out)
    }

    /// A new generation for a buffer: its contents are undefined.
    pub(super) fn generation(&mut self) -> u32 {
        let g = self.next_generation;
        // Some 4 billion allocations take longer than anyone waits; wrapping would only miss a report.
        self.next_generation = g.wrapping_add(1).max(2);
        g
    }

    fn alloc(&mut self, t: &mut Thread, buffer: usize) {
        let memory = &self.p.buffers[buffer];
        if memory.is_private {
            t.generations[buffer] = self.generation();
            if memory.check_lanes {
                let first = memory.base + t.instance.min(memory.instances - 1) * memory.size;
                self.shadow.forget_lanes(first..first + memory.size);
            }
            return;
        }
        // The first thread that comes to an allocation makes it; the others find it made.
        t.allocations[buffer] += 1;
        let first = t.allocations[buffer] > self.allocations[buffer];
        if first && (memory.is_shared || self.who.region == 0) {
            self.allocations[buffer] = t.allocations[buffer];
            self.generations[buffer] = self.generation();
        }
    }

    fn fresh_privates(&mut self, t: &mut Thread, list: u32) {
        let p = self.p;
        for b in &p.privates[list as usize] {
            t.generations[b.0 as usize] = self.generation();
        }
    }

    #[inline]
    fn linear(&self, ints: &[i64], form: Linear) -> i64 {
        let terms = &self.p.terms[form.first as usize..(form.first + form.count) as usize];
        let mut sum = form.constant;
        for t in terms {
            sum = sum.wrapping_add(t.factor.wrapping_mul(ints[t.slot as usize]));
        }
        sum
    }

    /// The element of the pool that an access addresses.
    #[inline]
    fn address(&self, t: &Thread, access: &Access, memory: &Memory, write: bool) -> Result<usize, Trap> {
        let mut at = self.linear(&t.ints, access.linear);
        if access.dims > 0 {
            for d in &self.p.dims[access.first_dim as usize..(access.first_dim + access.dims) as usize] {
                let index = self.linear(&t.ints, d.index);
                if index < 0 || index >= d.extent {
                    return Err(self.out_of_bounds(t, access, write));
                }
                at += index * d.stride;
            }
        }
        let base = if memory.is_private && memory.instances > 1 {
            memory.base + t.instance * memory.size
        } else {
            memory.base
        };
        Ok(base + at as usize)
    }

    /// The report needs the index of every dimension, which the folded address no longer has.
    #[cold]
    fn out_of_bounds(&self, t: &Thread, access: &Access, write: bool) -> Trap {
        let buffer = self.p.kernel.buffer(BufferId(access.buffer));
        let mut folded = self.linear(&t.ints, access.linear);
        let mut checked =
            self.p.dims[access.first_dim as usize..(access.first_dim + access.dims) as usize].iter().peekable();
        let strides = crate::ir::row_major(&buffer.shape);
        let mut index = vec![];
        for (n, stride) in buffer.shape.iter().zip(&strides) {
            match checked.next_if(|d| d.stride == *stride && d.extent == *n) {
                Some(d) => index.push(self.linear(&t.ints, d.index)),
                None => {
                    index.push(folded.checked_div(*stride).unwrap_or(0));
                    folded = folded.checked_rem(*stride).unwrap_or(0);
                }
            }
        }
        Box::new(Cause::OutOfBounds { write, buffer: buffer.name.clone(), index, shape: buffer.shape.clone() })
    }

    /// Name and index of an element of the pool.
    #[cold]
    fn element(&self, buffer: u32, at: usize) -> (String, Vec<i64>) {
        let (b, memory) = (self.p.kernel.buffer(BufferId(buffer)), &self.p.buffers[buffer as usize]);
        (b.name.clone(), unravel((at - memory.base) % memory.size, &b.shape))
    }

    #[cold]
    fn race(&self, buffer: u32, at: usize, conflict: &Conflict, wrote: bool) -> Trap {
        let (buffer, index) = self.element(buffer, at);
        let first = describe(conflict.earlier, conflict.earlier_wrote, self.launch);
        let second = describe(self.who, wrote, self.launch);
        Box::new(Cause::Race { buffer, index, first, second })
    }

    #[inline]
    fn before_read(&mut self, t: &Thread, buffer: u32, memory: &Memory, at: usize) -> Result<(), Trap> {
        if memory.check_races
            && self.who.region != 0
            && let Err(c) = self.shadow.read(at, self.who, memory.is_shared)
        {
            return Err(self.race(buffer, at, &c, false));
        }
        if memory.check_lanes && self.lane != 0 && self.shadow.lane_read(at, self.lane).is_err() {
            let (buffer, index) = self.element(buffer, at);
            return Err(Box::new(Cause::LaneConflict { buffer, index }));
        }
        if memory.check_written && self.written[at] != self.current(t, buffer, memory) {
            let (buffer, index) = self.element(buffer, at);
            return Err(Box::new(Cause::Unwritten { buffer, index }));
        }
        Ok(())
    }

    #[inline]
    fn before_write(&mut self, t: &Thread, buffer: u32, memory: &Memory, at: usize) -> Result<(), Trap> {
        if memory.check_races
            && self.who.region != 0
            && let Err(c) = self.shadow.write(at, self.who, memory.is_shared)
        {
            return Err(self.race(buffer, at, &c, true));
        }
        if memory.check_lanes && self.lane != 0 && self.shadow.lane_write(at, self.lane).is_err() {
            let (buffer, index) = self.element(buffer, at);
            return Err(Box::new(Cause::LaneConflict { buffer, index }));
        }
        self.written[at] = self.current(t, buffer, memory);
        Ok(())
    }

    #[inline]
    fn current(&self, t: &Thread, buffer: u32, memory: &Memory) -> u32 {
        if memory.is_private { t.generations[buffer as usize] } else { self.generations[buffer as usize] }
    }

    #[inline]
    fn load(&mut self, t: &Thread, access: u32) -> Result<u64, Trap> {
        let p = self.p;
        let a = &p.accesses[access as usize];
        let memory = &p.buffers[a.buffer as usize];
        let at = self.address(t, a, memory, false)?;
        self.before_read(t, a.buffer, memory, at)?;
        Ok(self.memory[at])
    }

    #[inline]
    fn float_store(&mut self, t: &Thread, access: u32, v: f64) -> Result<(), Trap> {
        let p = self.p;
        let a = &p.accesses[access as usize];
        let memory = &p.buffers[a.buffer as usize];
        let at = self.address(t, a, memory, true)?;
        self.before_write(t, a.buffer, memory, at)?;
        self.memory[at] = self.rounded(v, memory.dtype).to_bits();
        Ok(())
    }

    #[inline]
    fn rounded(&self, v: f64, dtype: DType) -> f64 {
        if self.p.mode == Mode::F64 { v } else { round_to(v, dtype) }
    }

    /// The bits that a reduction starts from at `at`: what is there, or `init` in the first iteration.
    #[inline]
    fn reduce_from(&mut self, t: &Thread, access: u32, over: u32, init: u64) -> Result<(usize, u64), Trap> {
        let p = self.p;
        let a = &p.accesses[access as usize];
        let memory = &p.buffers[a.buffer as usize];
        let at = self.address(t, a, memory, true)?;
        let first = over != u32::MAX && p.overs[over as usize].iter().all(|s| t.ints[*s as usize] == 0);
        let from = if first {
            init
        } else {
            self.before_read(t, a.buffer, memory, at)?;
            self.memory[at]
        };
        self.before_write(t, a.buffer, memory, at)?;
        Ok((at, from))
    }

    fn mma(&mut self, t: &Thread, tiles: u32) -> Result<(), Trap> {
        let p = self.p;
        let [acc, a, b] = &p.tiles[tiles as usize];
        let mut bases = [0; 3];
        for (base, (tile, write)) in bases.iter_mut().zip([(acc, true), (a, false), (b, false)]) {
            let (first, last) = (&p.accesses[tile.first as usize], &p.accesses[tile.last as usize]);
            let memory = &p.buffers[first.buffer as usize];
            *base = self.address(t, first, memory, write)?;
            self.address(t, last, memory, write)?;
        }
        let at = |base: usize, tile: &super::program::TileOp, r: i64, c: i64| {
            base + (r * tile.row_stride + c * tile.col_stride) as usize
        };
        let ids = [acc, a, b].map(|t| p.accesses[t.first as usize].buffer);
        let memories = ids.map(|b| &p.buffers[b as usize]);
        let compute = memories[0].dtype.compute();
        for m in 0..acc.rows {
            for n in 0..acc.cols {
                let out = at(bases[0], acc, m, n);
                self.before_read(t, ids[0], memories[0], out)?;
                let mut sum = f64::from_bits(self.memory[out]);
                for k in 0..a.cols {
                    let (x, y) = (at(bases[1], a, m, k), at(bases[2], b, k, n));
                    self.before_read(t, ids[1], memories[1], x)?;
                    self.before_read(t, ids[2], memories[2], y)?;
                    let product = f64::from_bits(self.memory[x]) * f64::from_bits(self.memory[y]);
                    sum = self.rounded(sum + self.rounded(product, compute), compute);
                }
                self.before_write(t, ids[0], memories[0], out)?;
                self.memory[out] = self.rounded(sum, memories[0].dtype).to_bits();
            }
        }
        Ok(())
    }

    /// Where the operation before `pc` stands in the kernel.
    pub(super) fn place(&self, t: &Thread, pc: u32) -> Option<Box<At>> {
        let mut place = self.p.places.get(*self.p.place_of.get(pc as usize)? as usize)?;
        let statement = compile::first_line(self.p.kernel, place.stmt);
        let mut loops = vec![];
        while let Some(parent) = place.parent {
            place = &self.p.places[parent as usize];
            if let Stmt::For(l) = place.stmt {
                let slot = self.p.slots[l.var.0 as usize];
                loops.push((self.p.kernel.var(l.var).name.clone(), t.ints[slot as usize]));
            }
        }
        loops.reverse();
        Some(Box::new(At { statement, loops }))
    }

    /// Runs a thread to its next barrier or its end.
    pub(super) fn advance(&mut self, t: &mut Thread) -> Result<Stop, Failure> {
        let mut pc = t.pc;
        match self.execute(t, &mut pc) {
            Ok(stop) => {
                t.pc = pc;
                Ok(stop)
            }
            Err(Fault::Trap(cause)) => Err((cause, self.place(t, pc))),
            Err(Fault::Inner(failure)) => Err(failure),
        }
    }

    fn execute(&mut self, t: &mut Thread, pc: &mut u32) -> Result<Stop, Fault> {
        let p = self.p;
        loop {
            let op = &p.ops[*pc as usize];
            let mut next = *pc + 1;
            match *op {
                Op::Int { op, d, a, b } => {
                    let (x, y) = (t.ints[a as usize], t.ints[b as usize]);
                    t.ints[d as usize] = int_op(op, x, y).ok_or_else(|| Box::new(Cause::DivisionByZero))?;
                }
                Op::Linear { d, form } => t.ints[d as usize] = self.linear(&t.ints, form),
                Op::Float { op, single, d, a, b } => {
                    let v = float_op(op, t.floats[a as usize], t.floats[b as usize]);
                    t.floats[d as usize] = if single { f64::from(v as f32) } else { v };
                }
                Op::FloatCompare { op, d, a, b } => {
                    let (x, y) = (t.floats[a as usize], t.floats[b as usize]);
                    t.ints[d as usize] = i64::from(match op {
                        CompareOp::Lt => x < y,
                        CompareOp::Le => x <= y,
                        CompareOp::Eq => x == y,
                        CompareOp::Ne => x != y,
                    });
                }
                Op::IntMove { d, a } => t.ints[d as usize] = t.ints[a as usize],
                Op::FloatMove { d, a } => t.floats[d as usize] = t.floats[a as usize],
                Op::IntToFloat { d, a, dtype } => t.floats[d as usize] = round_to(t.ints[a as usize] as f64, dtype),
                Op::FloatToInt { d, a, dtype } => t.ints[d as usize] = to_int(t.floats[a as usize], dtype),
                Op::FloatToFloat { d, a, dtype } => t.floats[d as usize] = round_to(t.floats[a as usize], dtype),
                Op::IntToInt { d, a, dtype } => t.ints[d as usize] = narrow(t.ints[a as usize], dtype),
                Op::FloatLoad { d, access } => t.floats[d as usize] = f64::from_bits(self.load(t, access)?),
                Op::IntLoad { d, access } => t.ints[d as usize] = self.load(t, access)? as i64,
                Op::FloatStore { a, access } => self.float_store(t, access, t.floats[a as usize])?,
                Op::IntStore { a, access } => {
                    let form = &p.accesses[access as usize];
                    let memory = &p.buffers[form.buffer as usize];
                    let at = self.address(t, form, memory, true)?;
                    self.before_write(t, form.buffer, memory, at)?;
                    self.memory[at] = narrow(t.ints[a as usize], memory.dtype) as u64;
                }
                Op::FloatReduce { op, a, init, access, over } => {
                    let init = t.floats[init as usize].to_bits();
                    let (at, from) = self.reduce_from(t, access, over, init)?;
                    let (x, y) = (f64::from_bits(from), t.floats[a as usize]);
                    let v = match op {
                        ReduceOp::Add => x + y,
                        ReduceOp::Max => x.max(y),
                        ReduceOp::Min => x.min(y),
                    };
                    let dtype = p.buffers[p.accesses[access as usize].buffer as usize].dtype;
                    self.memory[at] = self.rounded(v, dtype).to_bits();
                }
                Op::IntReduce { op, a, init, access, over } => {
                    let init = t.ints[init as usize] as u64;
                    let (at, from) = self.reduce_from(t, access, over, init)?;
                    let (x, y) = (from as i64, t.ints[a as usize]);
                    let v = match op {
                        ReduceOp::Add => x.wrapping_add(y),
                        ReduceOp::Max => x.max(y),
                        ReduceOp::Min => x.min(y),
                    };
                    let dtype = p.buffers[p.accesses[access as usize].buffer as usize].dtype;
                    self.memory[at] = narrow(v, dtype) as u64;
                }
                Op::Mma { tiles } => self.mma(t, tiles)?,
                Op::Jump { to } => next = to,
                Op::JumpIfZero { a, to } => {
                    if t.ints[a as usize] == 0 {
                        next = to;
                    }
                }
                Op::LoopBegin { v, extent, to } => {
                    t.ints[v as usize] = 0;
                    if extent <= 0 {
                        next = to;
                    }
                }
                Op::LoopEnd { v, extent, to } => {
                    if self.steps_left == 0 {
                        return Err(Fault::Trap(Box::new(Cause::StepLimit)));
                    }
                    self.steps_left -= 1;
                    let i = t.ints[v as usize] + 1;
                    if i < extent {
                        t.ints[v as usize] = i;
                        next = to;
                    }
                }
                Op::HardwareIndex { v, axis, extent, to } => {
                    let i = self.hardware[axis as usize];
                    t.ints[v as usize] = i;
                    if i >= extent {
                        next = to;
                    }
                }
                Op::ParallelBegin => {
                    self.parallel_depth += 1;
                    if self.parallel_depth == 1 {
                        self.who = Actor { region: self.new_region(), ..Actor::default() };
                    }
                    self.new_epoch();
                }
                Op::ParallelIteration { v, privates } => {
                    let i = t.ints[v as usize] as u32;
                    match self.parallel_depth {
                        1 => {
                            self.who.block = i;
                            self.who.thread = 0;
                            self.new_epoch();
                        }
                        2 => self.who.thread = i.saturating_add(1),
                        // Deeper levels run as one of their parent's iterations.
                        _ => {}
                    }
                    self.fresh_privates(t, privates);
                }
                Op::ParallelEnd { privates } => {
                    self.parallel_depth -= 1;
                    match self.parallel_depth {
                        0 => self.who = Actor::default(),
                        1 => {
                            self.who.thread = 0;
                            self.new_epoch();
                        }
                        _ => {}
                    }
                    self.fresh_privates(t, privates);
                }
                Op::LanesBegin => self.next_lanes += 1,
                Op::Lane { v } => self.lane = (self.next_lanes << 32) | (t.ints[v as usize] as u64 + 1),
                Op::LanesEnd => self.lane = 0,
                Op::Alloc { buffer } => self.alloc(t, buffer as usize),
                Op::Barrier { warp } => {
                    *pc = next;
                    return Ok(Stop::Barrier { warp });
                }
                Op::Launch { launch } => {
                    let launch = &p.launches[launch as usize];
                    self.launch(t, launch, next).map_err(Fault::Inner)?;
                    next = launch.end;
                }
                Op::Halt => return Ok(Stop::Halt),
            }
            *pc = next;
        }
    }

    pub(super) fn new_region(&mut self) -> u32 {
        let region = self.next_region;
        self.next_region = region.wrapping_add(1).max(1);
        region
    }

    /// Orders everything before against everything after, within the block.
    pub(super) fn new_epoch(&mut self) {
        self.next_epoch = self.next_epoch.wrapping_add(1);
        self.who.epoch = self.next_epoch;
    }
}

/// What stops [`Machine::execute`].
enum Fault {
    Trap(Trap),
    /// Already placed, by the thread of a launch.
    Inner(Failure),
}

impl From<Trap> for Fault {
    fn from(t: Trap) -> Fault {
        Fault::Trap(t)
    }
}

#[inline]
fn int_op(op: IntOp, x: i64, y: i64) -> Option<i64> {
    Some(match op {
        IntOp::Add => x.wrapping_add(y),
        IntOp::Sub => x.wrapping_sub(y),
        IntOp::Mul => x.wrapping_mul(y),
        IntOp::Div => {
            if y == 0 {
                return None;
            }
            let q = x.wrapping_div(y);
            if x.wrapping_rem(y) != 0 && (x < 0) != (y < 0) { q - 1 } else { q }
        }
        IntOp::Mod => {
            if y == 0 {
                return None;
            }
            let r = x.wrapping_rem(y);
            if r != 0 && (r < 0) != (y < 0) { r + y } else { r }
        }
        IntOp::Min => x.min(y),
        IntOp::Max => x.max(y),
        IntOp::Lt => i64::from(x < y),
        IntOp::Le => i64::from(x <= y),
        IntOp::Eq => i64::from(x == y),
        IntOp::Ne => i64::from(x != y),
        IntOp::And => x & y,
        IntOp::Or => x | y,
        IntOp::Neg => x.wrapping_neg(),
        IntOp::Not => i64::from(x == 0),
        IntOp::Abs => x.wrapping_abs(),
    })
}

#[inline]
fn float_op(op: FloatOp, x: f64, y: f64) -> f64 {
    match op {
        FloatOp::Add => x + y,
        FloatOp::Sub => x - y,
        FloatOp::Mul => x * y,
        FloatOp::Div => x / y,
        FloatOp::Min => x.min(y),
        FloatOp::Max => x.max(y),
        FloatOp::Neg => -x,
        FloatOp::Abs => x.abs(),
        FloatOp::Sqrt => x.sqrt(),
        FloatOp::Exp => x.exp(),
        FloatOp::Tanh => x.tanh(),
        FloatOp::Erf => erf(x),
    }
}

/// Toward zero, saturating.
fn to_int(v: f64, dtype: DType) -> i64 {
    match dtype {
        DType::I32 => i64::from(v as i32),
        DType::Bool => i64::from(v != 0.0),
        _ => v as i64,
    }
}

fn narrow(v: i64, dtype: DType) -> i64 {
    match dtype {
        DType::I32 => i64::from(v as i32),
        DType::Bool => i64::from(v != 0),
        _ => v,
    }
}

/// The index of the `i`-th element in row-major order.
fn unravel(i: usize, shape: &[i64]) -> Vec<i64> {
    let mut rest = i as i64;
    crate::ir::row_major(shape)
        .iter()
        .map(|s| {
            let index = rest / (*s).max(1);
            rest %= (*s).max(1);
            index
        })
        .collect()
}
