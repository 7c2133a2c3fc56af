//! What single threads do with statements that only a GPU has. What they do together is in `collective`.

use super::Cause;
use super::between::Cluster;
use super::machine::{Machine, Stop, Thread, Trap};
use super::program::{Block, GpuOp, MbarrierAct, Memory, On, Slot};
use crate::analysis::mbarrier::Mbarrier;
use crate::analysis::order::{ActorId, Agent, Clash, Role};
use crate::ir::{BufferId, DType, Group, Unit, holds_column, holds_row, row_major};

impl Machine<'_> {
    pub(super) fn cluster(&mut self) -> &mut Cluster {
        self.cluster.as_mut().expect("statements of a GPU run in clusters only")
    }

    fn clash(&self, buffer: u32, at: usize, clash: Clash, actor: ActorId, wrote: bool) -> Trap {
        let cluster = self.cluster.as_ref().expect("clashes are found in clusters");
        let (buffer, index) = self.element(buffer, at);
        let now = cluster.actor_name(self.p, actor);
        let earlier = clash.earlier.map_or("another block".to_string(), |a| cluster.actor_name(self.p, a));
        if clash.fence {
            return Box::new(Cause::Unfenced { buffer, index, writer: earlier, reader: now });
        }
        let unfinished =
            clash.earlier.is_some_and(|a| !matches!(cluster.order.role(a), Role::Thread(_) | Role::Warp(_)));
        if unfinished && clash.earlier_wrote && !wrote {
            return Box::new(Cause::Unfinished { buffer, index, writer: earlier, reader: now });
        }
        let verb = |wrote: bool| if wrote { "written" } else { "read" };
        let first = format!("{} by {earlier}", verb(clash.earlier_wrote));
        Box::new(Cause::Race { buffer, index, first, second: format!("{} by {now}", verb(wrote)) })
    }

    /// A thread reads an element of memory that others may write.
    pub(super) fn ordered_read(&mut self, t: &Thread, buffer: u32, at: usize) -> Result<(), Trap> {
        let order = &mut self.cluster().order;
        let agent = order.thread(t.actor);
        order.read(at, &agent).map_err(|c| self.clash(buffer, at, c, agent.actor, false))
    }

    /// A thread writes an element of memory that others may touch.
    pub(super) fn ordered_write(&mut self, t: &Thread, buffer: u32, at: usize) -> Result<(), Trap> {
        let order = &mut self.cluster().order;
        let agent = order.thread(t.actor);
        order.write(at, &agent).map_err(|c| self.clash(buffer, at, c, agent.actor, true))
    }

    /// A thread touches an element of a fragment: it must be the one that holds it, and no product may be at it.
    pub(super) fn fragment_touch(
        &mut self,
        t: &Thread,
        buffer: u32,
        memory: &Memory,
        at: usize,
        write: bool,
    ) -> Result<(), Trap> {
        // Before there is a block, and where a unit runs scalar loops as one, a fragment is memory like any other. A unit's
        // statements before such loops are done when its first thread comes to them, and those behind wait for it.
        if self.for_unit || self.cluster.is_none() {
            return Ok(());
        }
        let warps = memory.unit.map_or(1, Unit::warps);
        let (name, index) = self.element(buffer, at);
        let [.., i, j] = index[..] else { unreachable!("fragments have two dimensions at least") };
        if !holds_row(t.index as i64, i, warps) || !holds_column(t.index as i64, j) {
            let thread = self.cluster().thread_name(t.actor);
            return Err(Box::new(Cause::ForeignElement { buffer: name, index, thread }));
        }
        let order = &mut self.cluster().order;
        let agent = order.thread(t.actor);
        let known = order.knows_writer(&agent, at);
        known.map_err(|c| self.clash(buffer, at, c, agent.actor, write))
    }

    /// An agent reads an element: a number, or an integer that an `f64` holds exactly.
    pub(super) fn read_by(&mut self, t: &Thread, agent: &Agent, buffer: u32, at: usize) -> Result<f64, Trap> {
        let bits = self.take_by(t, agent, buffer, at)?;
        let is_float = self.p.buffers[buffer as usize].dtype.is_float();
        Ok(if is_float { f64::from_bits(bits) } else { bits as i64 as f64 })
    }

    /// The bits of an element, of whatever type.
    fn take_by(&mut self, t: &Thread, agent: &Agent, buffer: u32, at: usize) -> Result<u64, Trap> {
        let memory = &self.p.buffers[buffer as usize];
        if memory.check_races {
            let read = self.cluster().order.read(at, agent);
            read.map_err(|c| self.clash(buffer, at, c, agent.actor, false))?;
        } else if memory.unit.is_some() {
            let known = self.cluster().order.knows_writer(agent, at);
            known.map_err(|c| self.clash(buffer, at, c, agent.actor, false))?;
        }
        if memory.check_written && self.written[at] != self.current(t, buffer, memory) {
            let (buffer, index) = self.element(buffer, at);
            return Err(Box::new(Cause::Unwritten { buffer, index }));
        }
        Ok(self.memory[at])
    }

    /// An agent writes an element.
    pub(super) fn write_by(&mut self, t: &Thread, agent: &Agent, buffer: u32, at: usize, v: f64) -> Result<(), Trap> {
        let dtype = self.p.buffers[buffer as usize].dtype;
        let bits = match dtype {
            dtype if dtype.is_float() => self.rounded(v, dtype).to_bits(),
            // Sums wrap around, as they do on devices.
            DType::I32 => i64::from(v as i64 as i32) as u64,
            _ => v as i64 as u64,
        };
        self.put_by(t, agent, buffer, at, bits)
    }

    /// An agent writes the bits of an element, of whatever type.
    fn put_by(&mut self, t: &Thread, agent: &Agent, buffer: u32, at: usize, bits: u64) -> Result<(), Trap> {
        let memory = &self.p.buffers[buffer as usize];
        if memory.check_races {
            let write = self.cluster().order.write(at, agent);
            write.map_err(|c| self.clash(buffer, at, c, agent.actor, true))?;
        } else if memory.unit.is_some() {
            let order = &mut self.cluster().order;
            let known = order.knows_writer(agent, at);
            order.set_writer(at, agent);
            known.map_err(|c| self.clash(buffer, at, c, agent.actor, true))?;
        }
        self.written[at] = self.current(t, buffer, memory);
        self.memory[at] = bits;
        Ok(())
    }

    /// Index of a tile's first element.
    pub(super) fn origin(&self, t: &Thread, tile: &Block) -> Vec<i64> {
        tile.origin.iter().map(|l| self.linear(&t.ints, *l)).collect()
    }

    /// The first element of a tile that must be in bounds.
    pub(super) fn locate(&self, t: &Thread, tile: &Block, write: bool) -> Result<usize, Trap> {
        let buffer = self.p.kernel.buffer(BufferId(tile.buffer));
        let first = self.origin(t, tile);
        let last: Vec<i64> = first.iter().zip(&tile.extents).map(|(o, n)| o.saturating_add(n - 1)).collect();
        for corner in [&first, &last] {
            if corner.iter().zip(&buffer.shape).any(|(i, n)| *i < 0 || i >= n) {
                let (index, shape) = (corner.clone(), buffer.shape.clone());
                return Err(Box::new(Cause::OutOfBounds { write, buffer: buffer.name.clone(), index, shape }));
            }
        }
        let offset: i64 = first.iter().zip(row_major(&buffer.shape)).map(|(i, s)| i * s).sum();
        Ok(self.instance(t, tile.buffer) + offset as usize)
    }

    /// The first element of the thread's copy of a buffer.
    fn instance(&self, t: &Thread, buffer: u32) -> usize {
        let memory = &self.p.buffers[buffer as usize];
        let copy = if memory.instances > 1 { t.copy[memory.copies as usize] } else { 0 };
        memory.base + copy * memory.size
    }

    /// Runs a statement, or says what the thread waits for.
    pub(super) fn gpu(&mut self, t: &mut Thread, op: &GpuOp) -> Result<Option<Stop>, Trap> {
        match op {
            GpuOp::Fill { unit, .. }
            | GpuOp::Move { unit, .. }
            | GpuOp::Split { unit, .. }
            | GpuOp::Mma { unit, .. } => {
                return Ok(Some(Stop::Collective(*unit)));
            }
            GpuOp::MoveRows { .. } | GpuOp::Lanes { .. } => return Ok(Some(Stop::Collective(Unit::Warp))),
            GpuOp::Commit(Group::Mma) | GpuOp::Wait(Group::Mma, _) => {
                return Ok(Some(Stop::Collective(Unit::Warpgroup)));
            }
            GpuOp::Named { .. } => return Ok(Some(Stop::Named)),
            GpuOp::Cluster => return Ok(Some(Stop::Cluster)),
            GpuOp::Commit(group) => {
                let groups = self.cluster().order.groups(*group, t.actor);
                groups.committed += 1;
                groups.open = false;
            }
            GpuOp::Wait(group, pending) => {
                let role = if *group == Group::Copy { Role::Copies(t.actor) } else { Role::Stores(t.actor) };
                let order = &mut self.cluster().order;
                let groups = order.groups(*group, t.actor);
                groups.done = groups.done.max(groups.committed.saturating_sub(*pending));
                let done = groups.done;
                order.learn(t.actor, order.actor(role), done);
            }
            GpuOp::CopyAsync { dst, src, guard } => self.copy_async(t, dst, src, *guard)?,
            GpuOp::TensorLoad { dst, src, steps, on, multicast } => {
                self.tensor_load(t, dst, src, steps, *on, *multicast)?
            }
            GpuOp::TensorStore { dst, src } => self.tensor_store(t, dst, src)?,
            GpuOp::StoreAt { dst, values, rank, on } => self.store_at(t, dst, values, *rank, *on)?,
            GpuOp::Mbarrier { on, act } => {
                if !self.mbarrier(t, *on, *act)? {
                    return Ok(Some(Stop::Mbarrier));
                }
            }
            GpuOp::Fence => self.cluster().order.fence(t.actor),
            GpuOp::Nothing => {}
        }
        Ok(None)
    }

    fn copy_async(&mut self, t: &Thread, dst: &Block, src: &Block, guard: Option<Slot>) -> Result<(), Trap> {
        let reads = guard.is_none_or(|g| t.ints[g as usize] != 0);
        let to = self.locate(t, dst, true)?;
        let from = if reads { self.locate(t, src, false)? } else { 0 };
        let order = &mut self.cluster().order;
        let groups = order.groups(Group::Copy, t.actor);
        groups.open = true;
        let step = groups.committed + 1;
        let actor = order.actor(Role::Copies(t.actor));
        let agent = Agent { first: t.actor, threads: 1, actor, step, engine: false };
        for (d, s) in dst.offsets.iter().zip(&src.offsets) {
            // The bits of zero are zeros, of numbers and of integers.
            let bits = if reads { self.take_by(t, &agent, src.buffer, from + s)? } else { 0 };
            self.put_by(t, &agent, dst.buffer, to + d, bits)?;
        }
        Ok(())
    }

    fn tensor_load(
        &mut self,
        t: &Thread,
        dst: &Block,
        src: &Block,
        steps: &[i64],
        on: On,
        multicast: Option<Slot>,
    ) -> Result<(), Trap> {
        let own = t.actor / self.cluster().threads;
        let blocks = self.cluster().blocks;
        let ranks: Vec<usize> = match multicast {
            None => vec![own],
            Some(mask) => {
                let mask = t.ints[mask as usize];
                if mask < 1 || mask >> blocks != 0 {
                    return Err(misuse(format!("a mask of {mask:#b} names blocks that the cluster of {blocks} lacks")));
                }
                (0..blocks).filter(|r| mask >> r & 1 == 1).collect()
            }
        };
        let bytes = dst.offsets.len() as i64 * self.p.buffers[dst.buffer as usize].dtype.bytes() as i64;
        let to = self.locate(t, dst, true)?;
        let values: Vec<Option<usize>> = self.loaded(t, src, steps);
        for rank in ranks {
            let slot = self.slot(t, on, rank)?;
            self.check_made(t, on, slot)?;
            let size = self.p.buffers[dst.buffer as usize].size;
            let to = to + size * rank - size * own;
            let cluster = self.cluster();
            let (actor, step) = (cluster.order.actor(Role::Loads(slot)), cluster.mbarriers[slot].phase + 1);
            let agent = Agent { first: t.actor, threads: 1, actor, step, engine: false };
            self.reach(t, rank, actor, step)?;
            for (d, from) in dst.offsets.iter().zip(&values) {
                let v = match from {
                    Some(at) => self.read_by(t, &agent, src.buffer, *at)?,
                    None => 0.0,
                };
                self.write_by(t, &agent, dst.buffer, to + d, v)?;
            }
            let cluster = self.cluster();
            cluster.mbarriers[slot].load(&mut cluster.order, t.actor, bytes);
        }
        Ok(())
    }

    /// Something of a thread's reaches the memory of a block.
    fn reach(&mut self, t: &Thread, rank: usize, actor: ActorId, step: u32) -> Result<(), Trap> {
        let cluster = self.cluster();
        if rank == t.actor / cluster.threads || cluster.remote.reach(rank, actor, step) {
            return Ok(());
        }
        let other = format!("reaches the memory of {}, which may have ended", cluster.block_name(rank));
        Err(Box::new(Cause::EndedBlock { thread: cluster.thread_name(t.actor), other }))
    }

    /// A thread ends: the last of a block must know of what was done to the block's memory, or another one that ended.
    pub(super) fn check_reached(&mut self, t: &Thread) -> Result<(), Trap> {
        let cluster = self.cluster();
        let clock = cluster.order.clock(t.actor);
        let Some(actor) = cluster.remote.end(t.actor / cluster.threads, clock) else { return Ok(()) };
        let cluster = self.cluster.as_ref().expect("set above");
        let by = cluster.actor_name(self.p, actor);
        let other = format!("ends, the last of its block, but nobody there has waited for {by}");
        Err(Box::new(Cause::EndedBlock { thread: cluster.thread_name(t.actor), other }))
    }

    /// The rank that a register holds.
    fn rank(&mut self, t: &Thread, rank: Slot) -> Result<usize, Trap> {
        let (rank, blocks) = (t.ints[rank as usize], self.cluster().blocks);
        match usize::try_from(rank) {
            Ok(rank) if rank < blocks => Ok(rank),
            _ => Err(misuse(format!("rank {rank} is not in the cluster of {blocks} blocks"))),
        }
    }

    /// Elements go to the memory of another block, whose barrier counts their bytes.
    fn store_at(&mut self, t: &Thread, dst: &Block, values: &[Slot], rank: Slot, on: On) -> Result<(), Trap> {
        let own = t.actor / self.cluster().threads;
        let rank = self.rank(t, rank)?;
        let slot = self.slot(t, on, rank)?;
        self.check_made(t, on, slot)?;
        let memory = &self.p.buffers[dst.buffer as usize];
        let (size, bytes) = (memory.size, (values.len() * memory.dtype.bytes()) as i64);
        let to = self.locate(t, dst, true)? + size * rank - size * own;
        let cluster = self.cluster();
        let (actor, step) = (cluster.order.actor(Role::Loads(slot)), cluster.mbarriers[slot].phase + 1);
        let agent = Agent { first: t.actor, threads: 1, actor, step, engine: false };
        self.reach(t, rank, actor, step)?;
        for (offset, value) in dst.offsets.iter().zip(values) {
            self.write_by(t, &agent, dst.buffer, to + offset, t.floats[*value as usize])?;
        }
        let cluster = self.cluster();
        cluster.mbarriers[slot].load(&mut cluster.order, t.actor, bytes);
        Ok(())
    }

    /// The elements of a box that may reach out of the tensor: there is nothing to read there.
    pub(super) fn loaded(&self, t: &Thread, src: &Block, steps: &[i64]) -> Vec<Option<usize>> {
        let shape = &self.p.kernel.buffer(BufferId(src.buffer)).shape;
        let strides = row_major(shape);
        let inside = row_major(&src.extents);
        let origin = self.origin(t, src);
        let base = self.instance(t, src.buffer);
        let element = |i: i64| {
            let mut at = base as i64;
            for d in 0..shape.len() {
                let step = steps.get(d).copied().unwrap_or(1);
                let index = origin[d].saturating_add(i / inside[d] % src.extents[d] * step);
                if index < 0 || index >= shape[d] {
                    return None;
                }
                at += index * strides[d];
            }
            Some(at as usize)
        };
        (0..src.offsets.len() as i64).map(element).collect()
    }

    fn tensor_store(&mut self, t: &Thread, dst: &Block, src: &Block) -> Result<(), Trap> {
        let from = self.locate(t, src, false)?;
        let to = self.loaded(t, dst, &[]);
        let order = &mut self.cluster().order;
        let groups = order.groups(Group::Store, t.actor);
        groups.open = true;
        let step = groups.committed + 1;
        let actor = order.actor(Role::Stores(t.actor));
        let reader = Agent { first: t.actor, threads: 1, actor, step, engine: true };
        // That the source was read tells nobody that the destination is written; only the end of the kernel does.
        let writer = Agent { step: u32::MAX, ..reader };
        for (s, at) in src.offsets.iter().zip(to) {
            let v = self.read_by(t, &reader, src.buffer, from + s)?;
            if let Some(at) = at {
                self.write_by(t, &writer, dst.buffer, at, v)?;
            }
        }
        Ok(())
    }

    /// The number of an mbarrier in the block with this rank.
    fn slot(&mut self, t: &Thread, on: On, rank: usize) -> Result<usize, Trap> {
        let index = self.linear(&t.ints, on.index);
        let size = self.p.buffers[on.buffer as usize].size as i64;
        if index < 0 || index >= size {
            let buffer = self.p.kernel.buffer(BufferId(on.buffer)).name.clone();
            return Err(Box::new(Cause::OutOfBounds { write: true, buffer, index: vec![index], shape: vec![size] }));
        }
        let cluster = self.cluster();
        Ok(rank * cluster.per_block + cluster.first[on.buffer as usize] + index as usize)
    }

    /// The mbarrier must have been made, and the thread must know.
    fn check_made(&mut self, t: &Thread, on: On, slot: usize) -> Result<(), Trap> {
        let cluster = self.cluster();
        let (buffer, index) = (on.buffer, slot % cluster.per_block - cluster.first[on.buffer as usize]);
        let buffer = || self.p.kernel.buffer(BufferId(buffer)).name.clone();
        let index = vec![index as i64];
        let cluster = self.cluster.as_ref().expect("set above");
        match cluster.mbarriers[slot].made {
            None => Err(Box::new(Cause::Unwritten { buffer: buffer(), index })),
            Some((actor, step)) if cluster.order.clock(t.actor)[actor as usize] < step => {
                let writer = format!("the mbarrier init of {}", cluster.actor_name(self.p, actor));
                let reader = cluster.thread_name(t.actor);
                Err(Box::new(Cause::Unfinished { buffer: buffer(), index, writer, reader }))
            }
            Some(_) => Ok(()),
        }
    }

    /// Operates on an mbarrier; `false` if the thread has to wait.
    fn mbarrier(&mut self, t: &Thread, on: On, act: MbarrierAct) -> Result<bool, Trap> {
        let own = t.actor / self.cluster().threads;
        let rank = match act {
            MbarrierAct::Arrive(Some(rank)) => self.rank(t, rank)?,
            _ => own,
        };
        let slot = self.slot(t, on, rank)?;
        if let MbarrierAct::Init(count) = act {
            let name = self.cluster.as_ref().map_or(String::new(), |c| c.mbarrier_name(self.p, slot));
            let cluster = self.cluster();
            if count < 1 {
                return Err(misuse(format!("{name} is to count {count} arrivals")));
            }
            if let Some((actor, _)) = cluster.mbarriers[slot].made {
                let by = self.cluster.as_ref().map_or(String::new(), |c| c.actor_name(self.p, actor));
                return Err(misuse(format!("{name} is made twice, by {by} before")));
            }
            cluster.mbarriers[slot] = Mbarrier::new(count, &cluster.order, t.actor, slot);
            return Ok(true);
        }
        self.check_made(t, on, slot)?;
        if matches!(act, MbarrierAct::Arrive(Some(_))) {
            let own = self.cluster().order.thread(t.actor);
            self.reach(t, rank, own.actor, own.step)?;
        }
        let cluster = self.cluster();
        let barrier = &mut cluster.mbarriers[slot];
        let bytes = match act {
            MbarrierAct::Wait(parity) => {
                let parity = t.ints[parity as usize];
                if parity != 0 && parity != 1 {
                    return Err(misuse(format!("{parity} is not the parity of a phase, which is 0 or 1")));
                }
                let ended = barrier.has_ended(parity);
                if ended {
                    barrier.acquire(&mut cluster.order, t.actor);
                }
                return Ok(ended);
            }
            MbarrierAct::Expect(bytes) => bytes,
            MbarrierAct::Arrive(_) | MbarrierAct::Init(_) => 0,
        };
        if !barrier.arrive(&mut cluster.order, t.actor, bytes) {
            let count = barrier.count;
            let name = self.cluster.as_ref().map_or(String::new(), |c| c.mbarrier_name(self.p, slot));
            return Err(misuse(format!(
                "{name} counts {count} arrivals a phase, and one more comes before the bytes of the phase"
            )));
        }
        Ok(true)
    }

    /// Whether a thread that waits at an mbarrier can go on.
    pub(super) fn has_ended(&mut self, t: &Thread, on: On, parity: Slot) -> bool {
        let rank = t.actor / self.cluster().threads;
        let parity = t.ints[parity as usize];
        self.slot(t, on, rank).is_ok_and(|slot| self.cluster().mbarriers[slot].has_ended(parity))
    }

    /// What a thread that waits at an mbarrier waits for.
    pub(super) fn lacking(&mut self, t: &Thread, on: On, parity: Slot) -> String {
        let rank = t.actor / self.cluster().threads;
        let Ok(slot) = self.slot(t, on, rank) else { return String::new() };
        let cluster = self.cluster.as_ref().expect("set above");
        let b = &cluster.mbarriers[slot];
        format!(
            "waits for parity {} of {}, whose phase {} {}",
            t.ints[parity as usize],
            cluster.mbarrier_name(self.p, slot),
            b.phase,
            b.lacks()
        )
    }
}

/// A report that something is used in a way that it is not made for.
pub(super) fn misuse(detail: String) -> Trap {
    Box::new(Cause::Misuse(detail))
}
