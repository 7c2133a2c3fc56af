//! Runs the flat program.

use super::arithmetic::{CompareOp, float_op, int_op, narrow, to_int};
use super::between::Cluster;
use super::data::unravel;
use super::program::{Op, Program};
use super::round::round_to;
use super::shadow::{Actor, Shadow};
use super::{At, Cause, InterpError, Mode, Values};
use crate::ir::{Access as ParamAccess, ReduceOp, Stmt, Unit, float_max, float_min, holds_column, holds_row};

/// Memory and bookkeeping of a run.
pub(super) struct Machine<'p> {
    pub(super) p: &'p Program<'p>,
    /// Bits of `f64` or `i64`.
    pub(super) memory: Vec<u64>,
    /// The generation of its buffer in which each element was written last.
    pub(super) written: Vec<u32>,
    pub(super) shadow: Shadow,
    /// Current generation of each buffer that is not private: elements of older ones are unwritten.
    pub(super) generations: Vec<u32>,
    pub(super) next_generation: u32,
    /// How often each buffer that is not private was allocated in this block.
    pub(super) allocations: Vec<u32>,
    pub(super) who: Actor,
    pub(super) next_region: u32,
    next_epoch: u32,
    parallel_depth: u32,
    pub(super) lane: u64,
    next_lanes: u64,
    /// Block extents of the launch that runs.
    pub(super) launch: Option<[i64; 3]>,
    pub(super) hardware: [i64; 9],
    /// The cluster that runs, in launches with statements that only a GPU has.
    pub(super) cluster: Option<Cluster>,
    /// Whether the thread that runs does what its unit does as a whole.
    pub(super) for_unit: bool,
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
    /// Which copy is its own, of buffers of each kind of [`Copies`](super::program::Copies).
    pub(super) copy: [usize; 5],
    /// Its number in its cluster, and in its block.
    pub(super) actor: usize,
    pub(super) index: usize,
}

/// Why a thread stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// At a barrier; `pc` is behind it.
    Barrier { warp: bool },
    /// At a statement that its unit runs together; `pc` is at it, as for those below.
    Collective(Unit),
    /// At an mbarrier whose phase has not ended.
    Mbarrier,
    /// At a named barrier.
    Named,
    /// At a barrier of the cluster.
    Cluster,
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
        hardware: [0; 9],
        cluster: None,
        for_unit: false,
        steps_left: step_limit,
    };
    m.load_inputs(inputs)?;
    let mut t = Thread {
        pc: 0,
        ints: p.ints.clone(),
        floats: p.floats.clone(),
        generations: vec![1; n],
        allocations: vec![0; n],
        copy: [0; 5],
        actor: 0,
        index: 0,
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

    /// Where the operation before `pc` stands in the kernel.
    pub(super) fn place(&self, t: &Thread, pc: u32) -> Option<Box<At>> {
        let mut place = self.p.places.get(*self.p.place_of.get(pc as usize)? as usize)?;
        let statement = crate::ir::print::first_line(self.p.kernel, place.stmt);
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
                        ReduceOp::Mul => x * y,
                        ReduceOp::Max => float_max(x, y),
                        ReduceOp::Min => float_min(x, y),
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
                        ReduceOp::Mul => x.wrapping_mul(y),
                        ReduceOp::Max => x.max(y),
                        ReduceOp::Min => x.min(y),
                    };
                    let dtype = p.buffers[p.accesses[access as usize].buffer as usize].dtype;
                    self.memory[at] = narrow(v, dtype) as u64;
                }
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
                    self.spend(1)?;
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
                Op::Gpu { gpu } => {
                    if let Some(stop) = self.gpu(t, &p.gpu[gpu as usize])? {
                        return Ok(stop);
                    }
                }
                Op::FragmentIndex { v, column, warps, to } => {
                    let (thread, i) = (t.index as i64, t.ints[v as usize]);
                    let held = if column { holds_column(thread, i) } else { holds_row(thread, i, i64::from(warps)) };
                    if !held {
                        next = to;
                    }
                }
                Op::UnitBegin { warps, to } => {
                    self.for_unit = t.index.is_multiple_of(32 * usize::from(warps));
                    if !self.for_unit {
                        next = to;
                    }
                }
                Op::UnitEnd => self.for_unit = false,
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

    /// Counts iterations and threads against the limit.
    #[inline]
    pub(super) fn spend(&mut self, steps: u64) -> Result<(), Trap> {
        match self.steps_left.checked_sub(steps) {
            Some(left) => {
                self.steps_left = left;
                Ok(())
            }
            None => Err(Box::new(Cause::StepLimit)),
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
