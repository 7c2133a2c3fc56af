//! What statements do to the order of things.

use super::machine::{Halt, Run, Stop};
use super::pieces::Piece;
use super::plan::{Access, Node, Reads};
use crate::analysis::mbarrier::Mbarrier;
use crate::analysis::order::{ActorId, Agent, Clash, Role};
use crate::analysis::verify::fault::FaultKind;
use crate::ir::{
    BinOp, BufferId, Expr, Gpu, Group, MbarrierOp, Scope, Slot, Stmt, Tile, Unit, holds_column, holds_row,
};

impl<'k> Run<'_, 'k> {
    /// A touch that was not ordered.
    fn clash(&self, i: usize, buffer: BufferId, piece: Piece, clash: Clash, actor: ActorId, wrote: bool) -> Halt {
        let element = self.units.name(self.kernel, buffer, piece);
        let now = self.actor_name(actor);
        let earlier = clash.earlier.map_or("another block".to_string(), |a| self.actor_name(a));
        if clash.fence {
            let cause = format!("{element} is read by {now}, but {earlier} wrote it with no fence behind");
            let help = "put `fence async` behind the writes and before the barrier";
            return self.fault(i, FaultKind::MissingFence, cause, help);
        }
        let role = clash.earlier.map(|a| self.order.role(a));
        let unfinished = role.is_some_and(|r| !matches!(r, Role::Thread(_) | Role::Warp(_)));
        if unfinished && clash.earlier_wrote && !wrote {
            let cause = format!("{element} is read by {now}, which has not waited for {earlier}");
            return self.fault(i, FaultKind::UnwrittenRead, cause, "wait for it before");
        }
        let verb = |wrote: bool| if wrote { "written" } else { "read" };
        let (first, second) = (verb(clash.earlier_wrote), verb(wrote));
        let cause = format!("{element} is {first} by {earlier} and {second} by {now} with no wait in between");
        self.fault(i, FaultKind::MissingBarrier, cause, "put a barrier or a wait between the two")
    }

    fn read(&mut self, i: usize, buffer: BufferId, pieces: &[Piece], agent: &Agent) -> Result<(), Halt> {
        let scope = self.kernel.buffer(buffer).scope;
        self.steps += pieces.len() as u64 / 4;
        for p in pieces {
            self.order.grow(p.number + 1);
            let read = match scope {
                Scope::Fragment(_) => self.order.knows_writer(agent, p.number),
                _ => self.order.read(p.number, agent),
            };
            read.map_err(|c| self.clash(i, buffer, *p, c, agent.actor, false))?;
            if scope != Scope::Global && !self.order.is_written(p.number) {
                let cause = format!("{} is read before anything wrote it", self.units.name(self.kernel, buffer, *p));
                return Err(self.fault(i, FaultKind::UnwrittenRead, cause, "write it, and wait for that, before"));
            }
        }
        Ok(())
    }

    fn write(&mut self, i: usize, buffer: BufferId, pieces: &[Piece], agent: &Agent) -> Result<(), Halt> {
        let scope = self.kernel.buffer(buffer).scope;
        self.steps += pieces.len() as u64 / 4;
        self.writes += 1;
        for p in pieces {
            self.order.grow(p.number + 1);
            let write = match scope {
                Scope::Fragment(_) => {
                    let known = self.order.knows_writer(agent, p.number);
                    // An element that a thread writes for itself is nobody else's, but a piece has many: who wrote it all
                    // stays its writer.
                    if agent.threads != 1 || !self.order.is_written(p.number) {
                        self.order.set_writer(p.number, agent);
                    }
                    known
                }
                _ => self.order.write(p.number, agent),
            };
            write.map_err(|c| self.clash(i, buffer, *p, c, agent.actor, true))?;
        }
        Ok(())
    }

    /// The pieces of a tile, of the copy that the thread sees.
    fn tile(&mut self, i: usize, t: &Tile) -> Vec<Piece> {
        let copy = self.copy(i, self.kernel.buffer(t.buffer).scope);
        self.pieces_of(i, t, copy)
    }

    fn pieces_of(&mut self, i: usize, t: &Tile, copy: usize) -> Vec<Piece> {
        if !self.launch.tracked.contains(&t.buffer) {
            return vec![];
        }
        let origin: Option<Vec<i64>> = t.origin.iter().map(|e| self.value(i, e, 0)).collect();
        let mut pieces = vec![];
        // What memory decides about has none.
        if let Some(origin) = origin {
            let memory = (t.buffer, self.kernel.buffer(t.buffer).scope);
            self.units.pieces(memory, copy, &origin, Some(&t.extents), &mut pieces);
        }
        pieces
    }

    /// The pieces of an access whose indices were taken apart; what memory decides about has none.
    fn pieces_at(&mut self, i: usize, a: &Access<'_>, lane: i64, out: &mut Vec<Piece>) {
        self.origin.clear();
        for p in &a.places {
            match self.threads[i].place(self.kernel, p, lane) {
                Some(at) => self.origin.push(at),
                None => return out.clear(),
            }
        }
        let copy = self.copy(i, a.scope);
        self.units.pieces((a.buffer, a.scope), copy, &self.origin, a.extents, out);
    }

    /// A thread touches an element, or all of a tile, of an access that was taken apart.
    fn touch(&mut self, i: usize, a: &Access<'_>, lane: i64, agent: &Agent, write: bool) -> Result<(), Halt> {
        let mut pieces = std::mem::take(&mut self.pieces);
        self.pieces_at(i, a, lane, &mut pieces);
        let done = if write { self.write(i, a.buffer, &pieces, agent) } else { self.read(i, a.buffer, &pieces, agent) };
        self.pieces = pieces;
        done
    }

    /// A thread touches one element of an access that was taken apart.
    fn access(&mut self, i: usize, a: &Access<'_>, lane: i64, write: bool) -> Result<(), Halt> {
        if matches!(a.scope, Scope::Fragment(_)) {
            return self.element(i, a.buffer, a.indices, lane, write);
        }
        let agent = self.order.thread(self.threads[i].warp);
        self.touch(i, a, lane, &agent, write)
    }

    /// What the values of a statement read.
    pub(super) fn reads(&mut self, i: usize, node: &Node<'_>, lane: i64) -> Result<(), Halt> {
        match &node.reads {
            Reads::Nothing => Ok(()),
            Reads::Each(list) => list.iter().try_for_each(|a| self.access(i, a, lane, false)),
            Reads::Walk => match node.stmt {
                Stmt::If { cond: e, .. }
                | Stmt::Let { value: e, .. }
                | Stmt::Store { value: e, .. }
                | Stmt::Reduce { value: e, .. } => self.loads(i, e, lane),
                Stmt::Gpu(g) => {
                    let mut exprs = vec![];
                    g.exprs(&mut |e| exprs.push(e));
                    exprs.into_iter().try_for_each(|e| self.loads(i, e, lane))
                }
                _ => Ok(()),
            },
        }
    }

    /// The number of a thread's warpgroup in the cluster.
    fn warpgroup(&self, i: usize) -> usize {
        self.threads[i].rank * self.launch.warpgroups + self.threads[i].index / 128
    }

    /// The number of a thread's copy of a buffer in this scope.
    fn copy(&self, i: usize, scope: Scope) -> usize {
        match scope {
            Scope::Fragment(Unit::Warp) => self.threads[i].warp,
            Scope::Fragment(Unit::Warpgroup) => self.warpgroup(i),
            Scope::Shared | Scope::Mbarrier => self.threads[i].rank,
            Scope::Global | Scope::Local | Scope::Register => 0,
        }
    }

    /// What an expression reads; of a select the side that is taken.
    pub(super) fn loads(&mut self, i: usize, e: &Expr, lane: i64) -> Result<(), Halt> {
        match e {
            Expr::Int(_) | Expr::Float(..) | Expr::Var(_) => Ok(()),
            Expr::Unary(_, a) | Expr::Cast(_, a) | Expr::Broadcast(a, _) => self.loads(i, a, lane),
            Expr::Ramp { base, .. } => self.loads(i, base, lane),
            Expr::Binary(op @ (BinOp::And | BinOp::Or), a, b) => {
                self.loads(i, a, lane)?;
                let decided = self.value(i, a, lane) == Some(i64::from(*op == BinOp::Or));
                if decided { Ok(()) } else { self.loads(i, b, lane) }
            }
            Expr::Binary(_, a, b) => {
                self.loads(i, a, lane)?;
                self.loads(i, b, lane)
            }
            Expr::Select(c, a, b) => {
                self.loads(i, c, lane)?;
                let taken = self.value(i, c, lane);
                if taken != Some(0) {
                    self.loads(i, a, lane)?;
                }
                if taken.is_none_or(|v| v == 0) {
                    self.loads(i, b, lane)?;
                }
                Ok(())
            }
            Expr::Load(b, indices) => {
                for e in indices {
                    self.loads(i, e, lane)?;
                }
                self.element(i, *b, indices, lane, false)
            }
        }
    }

    /// A thread touches one element.
    fn element(&mut self, i: usize, buffer: BufferId, indices: &[Expr], lane: i64, write: bool) -> Result<(), Halt> {
        if !self.launch.tracked.contains(&buffer) {
            return Ok(());
        }
        let index: Vec<Option<i64>> = indices.iter().map(|e| self.value(i, e, lane)).collect();
        if let (Scope::Fragment(unit), [.., row, column]) = (self.kernel.buffer(buffer).scope, &index[..]) {
            let thread = self.threads[i].index as i64;
            let own = row.is_some_and(|r| holds_row(thread, r, unit.threads() / 32))
                && column.is_some_and(|c| holds_column(thread, c));
            if !own {
                let name = &self.kernel.buffer(buffer).name;
                let show = |v: &Option<i64>| v.map_or("?".to_string(), |v| v.to_string());
                let cause = format!("{name}[.., {}, {}] is held by another thread", show(row), show(column));
                let help = "index it with the variables of a fragment.row loop and, inside, a fragment.col loop";
                return Err(self.fault(i, FaultKind::ForeignElement, cause, help));
            }
        }
        let scope = self.kernel.buffer(buffer).scope;
        let copy = self.copy(i, scope);
        let mut pieces = vec![];
        if let Some(index) = index.into_iter().collect::<Option<Vec<i64>>>() {
            self.units.pieces((buffer, scope), copy, &index, None, &mut pieces);
        }
        let agent = self.order.thread(self.threads[i].warp);
        if write { self.write(i, buffer, &pieces, &agent) } else { self.read(i, buffer, &pieces, &agent) }
    }

    /// A statement of one thread that every kernel may have.
    pub(super) fn ordinary(&mut self, i: usize, node: &Node<'k>) -> Result<(), Halt> {
        let target = |run: &mut Self, lane: i64, write: bool| match &node.target {
            Some(a) => run.access(i, a, lane, write),
            None => Ok(()),
        };
        match node.stmt {
            Stmt::Store { buffer, indices, value } => {
                for lane in 0..node.lanes {
                    if node.counts {
                        self.count(i, *buffer, indices, lane, self.value(i, value, lane));
                    }
                    self.reads(i, node, lane)?;
                    target(self, lane, true)?;
                }
            }
            Stmt::Reduce { buffer, indices, over, .. } => {
                for lane in 0..node.lanes {
                    self.reads(i, node, lane)?;
                    let starts = !over.is_empty() && over.iter().all(|v| self.threads[i].vars[v.0 as usize] == Some(0));
                    if !starts {
                        target(self, lane, false)?;
                    }
                    if node.counts {
                        self.count(i, *buffer, indices, lane, None);
                    }
                    target(self, lane, true)?;
                }
            }
            Stmt::Transpose { dst, src } => {
                let agent = self.order.thread(self.threads[i].warp);
                self.transfer(i, dst, src, &agent, &agent)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A thread sets a private integer to what is known of it.
    fn count(&mut self, i: usize, buffer: BufferId, indices: &[Expr], lane: i64, value: Option<i64>) {
        let cell = self.threads[i].cell(self.kernel, buffer, indices, lane);
        let cells = &mut self.threads[i].cells;
        match (cell, value) {
            (Some(cell), Some(value)) => drop(cells.insert((buffer, cell), value)),
            (Some(cell), None) => drop(cells.remove(&(buffer, cell))),
            (None, _) => cells.retain(|(b, _), _| *b != buffer),
        }
    }

    /// What one thread does, or what it waits for.
    pub(super) fn gpu(&mut self, i: usize, g: &'k Gpu, node: &Node<'k>) -> Result<Option<Stop>, Halt> {
        self.reads(i, node, 0)?;
        let fragment = |b: BufferId| match self.kernel.buffer(b).scope {
            Scope::Fragment(unit) => Some(unit),
            _ => None,
        };
        if let Some(unit) = g.unit(fragment) {
            return Ok(Some(Stop::Collective(unit)));
        }
        match g {
            Gpu::NamedBarrier { .. } => return Ok(Some(Stop::Named)),
            Gpu::ClusterBarrier => return Ok(Some(Stop::Cluster)),
            Gpu::Commit(group) => {
                let groups = self.groups(i, *group);
                groups.committed += 1;
                groups.open = false;
            }
            Gpu::Wait(group, pending) => {
                let groups = self.groups(i, *group);
                groups.done = groups.done.max(groups.committed.saturating_sub(*pending));
                let (done, warp) = (groups.done, self.threads[i].warp);
                let role = if *group == Group::Copy { Role::Copies(warp) } else { Role::Stores(warp) };
                self.order.learn(warp, self.order.actor(role), done);
            }
            Gpu::CopyAsync { src, .. } => {
                let agent = self.issue(i, Group::Copy);
                let from = self.tile(i, src);
                self.read(i, src.buffer, &from, &agent)?;
                if let Some(a) = &node.target {
                    self.touch(i, a, 0, &agent, true)?;
                }
            }
            Gpu::TensorStore { dst, src } => {
                let reader = self.issue(i, Group::Store);
                // That the source was read tells nobody that the destination is written.
                let writer = Agent { step: u32::MAX, ..reader };
                self.transfer(i, dst, src, &reader, &writer)?;
            }
            Gpu::TensorLoad { dst, src, on, multicast, .. } => self.tensor_load(i, dst, src, on, multicast.as_ref())?,
            Gpu::StoreAt { dst, rank, on, .. } => self.store_at(i, dst, rank, on)?,
            Gpu::Mbarrier(on, op) => return Ok((!self.mbarrier(i, on, op)?).then_some(Stop::Mbarrier)),
            Gpu::FenceAsync => self.order.fence(self.threads[i].warp),
            // Those that are collective were met above.
            _ => {}
        }
        Ok(None)
    }

    fn groups(&mut self, i: usize, group: Group) -> &mut crate::analysis::order::Groups {
        let t = &mut self.threads[i];
        if group == Group::Copy { &mut t.copies } else { &mut t.stores }
    }

    /// The step that an asynchronous operation of a thread belongs to.
    fn issue(&mut self, i: usize, group: Group) -> Agent {
        let groups = self.groups(i, group);
        groups.open = true;
        let (step, warp) = (groups.committed + 1, self.threads[i].warp);
        let role = if group == Group::Copy { Role::Copies(warp) } else { Role::Stores(warp) };
        let engine = group == Group::Store;
        Agent { first: warp, threads: 1, actor: self.order.actor(role), step, engine }
    }

    fn transfer(&mut self, i: usize, dst: &Tile, src: &Tile, reader: &Agent, writer: &Agent) -> Result<(), Halt> {
        let (from, to) = (self.tile(i, src), self.tile(i, dst));
        self.read(i, src.buffer, &from, reader)?;
        self.write(i, dst.buffer, &to, writer)
    }

    fn tensor_load(
        &mut self,
        i: usize,
        dst: &Tile,
        src: &Tile,
        on: &Slot,
        multicast: Option<&'k Expr>,
    ) -> Result<(), Halt> {
        let own = self.threads[i].rank;
        let ranks = match multicast.map(|m| self.value(i, m, 0)) {
            None => vec![own],
            Some(mask) => {
                let mask = mask.unwrap_or((1 << self.launch.blocks) - 1);
                if mask < 1 || mask >> self.launch.blocks != 0 {
                    let cause = format!("the mask {mask:#b} names blocks that the cluster lacks");
                    return Err(self.fault(i, FaultKind::BarrierMisuse, cause, "set one bit for each rank"));
                }
                (0..self.launch.blocks).filter(|r| mask >> r & 1 == 1).collect()
            }
        };
        let bytes = dst.extents.iter().product::<i64>() * self.kernel.buffer(dst.buffer).dtype.bytes() as i64;
        let from = self.tile(i, src);
        for rank in ranks {
            let slot = self.made_slot(i, on, rank)?;
            let (actor, step) = (self.order.actor(Role::Loads(slot)), self.mbarriers[slot].phase + 1);
            let warp = self.threads[i].warp;
            let agent = Agent { first: warp, threads: 1, actor, step, engine: false };
            self.reach(i, rank, actor, step)?;
            self.read(i, src.buffer, &from, &agent)?;
            let to = self.pieces_of(i, dst, rank);
            self.write(i, dst.buffer, &to, &agent)?;
            self.mbarriers[slot].load(&mut self.order, warp, bytes);
        }
        Ok(())
    }

    /// The rank that an expression names.
    fn rank(&self, i: usize, rank: &Expr) -> Result<usize, Halt> {
        match self.value(i, rank, 0) {
            Some(r) if (0..self.launch.blocks as i64).contains(&r) => Ok(r as usize),
            r => {
                let r = r.map_or("that memory decides about".to_string(), |r| r.to_string());
                let cause = format!("the cluster of {} blocks has no rank {r}", self.launch.blocks);
                Err(self.fault(i, FaultKind::BarrierMisuse, cause, "name a block of the cluster"))
            }
        }
    }

    /// Elements go to the memory of another block, whose barrier counts their bytes.
    fn store_at(&mut self, i: usize, dst: &Tile, rank: &Expr, on: &Slot) -> Result<(), Halt> {
        let rank = self.rank(i, rank)?;
        let slot = self.made_slot(i, on, rank)?;
        let (actor, step) = (self.order.actor(Role::Loads(slot)), self.mbarriers[slot].phase + 1);
        let warp = self.threads[i].warp;
        let agent = Agent { first: warp, threads: 1, actor, step, engine: false };
        self.reach(i, rank, actor, step)?;
        let to = self.pieces_of(i, dst, rank);
        self.write(i, dst.buffer, &to, &agent)?;
        let bytes = dst.extents.iter().product::<i64>() * self.kernel.buffer(dst.buffer).dtype.bytes() as i64;
        self.mbarriers[slot].load(&mut self.order, warp, bytes);
        Ok(())
    }

    /// The number of an mbarrier in the block with this rank, if it is known and in bounds.
    pub(super) fn slot(&self, i: usize, on: &Slot, rank: usize) -> Option<usize> {
        let index = self.value(i, &on.index, 0)?;
        let size = self.kernel.buffer(on.buffer).shape.iter().product::<i64>();
        let first = self.launch.mbarriers[on.buffer.0 as usize];
        (0..size).contains(&index).then(|| rank * self.launch.mbarriers_per_block + first + index as usize)
    }

    /// Likewise; it must have been made, and the thread must know.
    fn made_slot(&self, i: usize, on: &Slot, rank: usize) -> Result<usize, Halt> {
        let slot = self.any_slot(i, on, rank)?;
        let name = self.mbarrier_name(slot);
        match self.mbarriers[slot].made {
            None => {
                let cause = format!("{name} is used before anything made it");
                Err(self.fault(i, FaultKind::UnwrittenRead, cause, "make it in one thread, with a barrier behind"))
            }
            Some((actor, step)) if self.order.clock(self.threads[i].warp)[actor as usize] < step => {
                let cause = format!("{name} is used, but {} made it with no barrier behind", self.actor_name(actor));
                Err(self.fault(i, FaultKind::UnwrittenRead, cause, "put a barrier of the block behind the init"))
            }
            Some(_) => Ok(slot),
        }
    }

    fn any_slot(&self, i: usize, on: &Slot, rank: usize) -> Result<usize, Halt> {
        self.slot(i, on, rank).ok_or_else(|| {
            let name = &self.kernel.buffer(on.buffer).name;
            let cause = format!("the index of {name} is outside of it or depends on memory");
            self.fault(i, FaultKind::BarrierMisuse, cause, "index mbarriers with loop variables, modulo their number")
        })
    }

    /// Operates on an mbarrier; `false` if the thread has to wait.
    fn mbarrier(&mut self, i: usize, on: &Slot, op: &'k MbarrierOp) -> Result<bool, Halt> {
        let (own, warp) = (self.threads[i].rank, self.threads[i].warp);
        let misuse = |run: &Self, cause: String, help: &str| run.fault(i, FaultKind::BarrierMisuse, cause, help);
        let rank = match op {
            MbarrierOp::Arrive(Some(rank)) => self.rank(i, rank)?,
            _ => own,
        };
        if let MbarrierOp::Init(count) = op {
            let slot = self.any_slot(i, on, rank)?;
            let name = self.mbarrier_name(slot);
            if *count < 1 {
                return Err(misuse(self, format!("{name} is to count {count} arrivals"), "count one at least"));
            }
            if self.mbarriers[slot].made.is_some() {
                return Err(misuse(self, format!("{name} is made twice"), "make it in one thread, once"));
            }
            self.mbarriers[slot] = Mbarrier::new(*count, &self.order, warp, slot);
            return Ok(true);
        }
        let slot = self.made_slot(i, on, rank)?;
        let bytes = match op {
            MbarrierOp::Wait(parity) => {
                let parity = self.value(i, parity, 0);
                let Some(parity @ (0 | 1)) = parity else {
                    let parity = parity.map_or("what memory decides about".to_string(), |p| p.to_string());
                    let cause = format!("{parity} is not the parity of a phase");
                    return Err(misuse(self, cause, "compute it from loop variables, modulo 2"));
                };
                let ended = self.mbarriers[slot].has_ended(parity);
                if ended {
                    self.mbarriers[slot].acquire(&mut self.order, warp);
                }
                return Ok(ended);
            }
            MbarrierOp::Expect(bytes) => *bytes,
            MbarrierOp::Arrive(_) | MbarrierOp::Init(_) => 0,
        };
        let own_step = self.order.thread(warp);
        self.reach(i, rank, own_step.actor, own_step.step)?;
        if !self.mbarriers[slot].arrive(&mut self.order, warp, bytes) {
            let (name, count) = (self.mbarrier_name(slot), self.mbarriers[slot].count);
            let cause = format!("{name} counts {count} arrivals, and one more comes before the phase's bytes");
            return Err(misuse(self, cause, "count all who arrive in a phase"));
        }
        Ok(true)
    }

    /// Whether a thread that waits at an mbarrier can go on.
    pub(super) fn has_ended(&self, i: usize) -> bool {
        let Some(Stmt::Gpu(Gpu::Mbarrier(on, MbarrierOp::Wait(parity)))) = self.threads[i].at() else { return false };
        match (self.slot(i, on, self.threads[i].rank), self.value(i, parity, 0)) {
            (Some(slot), Some(parity)) => self.mbarriers[slot].has_ended(parity),
            _ => false,
        }
    }

    /// What the threads of a unit do together.
    pub(super) fn collective(&mut self, range: std::ops::Range<usize>) -> Result<(), Halt> {
        let i = range.start;
        let Some(Stmt::Gpu(g)) = self.threads[i].at() else { return Ok(()) };
        for e in g.all_tiles().iter().flat_map(|t| &t.origin) {
            let first = self.value(i, e, 0);
            if let Some(other) = range.clone().find(|j| self.value(*j, e, 0) != first) {
                let cause = format!("{} comes to it with another tile", self.thread_name(other));
                let help = "name the same tile in all threads that run it together";
                return Err(self.fault(i, FaultKind::DivergentBarrier, cause, help));
            }
        }
        let warp = self.threads[i].warp;
        let warps = range.len().div_ceil(32);
        match g {
            Gpu::Mma { unit: Unit::Warpgroup, acc, a, b } => {
                let warpgroup = self.warpgroup(i);
                let groups = self.order.groups(Group::Mma, warpgroup);
                groups.open = true;
                let step = groups.committed + 1;
                let actor = self.order.actor(Role::Products(warpgroup));
                let agent = Agent { first: warp, threads: warps, actor, step, engine: true };
                let fragment = |t: &Tile| matches!(self.kernel.buffer(t.buffer).scope, Scope::Fragment(_));
                for t in [&a.tile, &b.tile] {
                    for p in self.tile(i, t) {
                        if fragment(t) {
                            // It is in use until the wait: who writes it before then clashes with the product.
                            let shared = self.order.is_writer(&agent, p.number);
                            let reader = if shared { Agent { threads: 0, ..agent } } else { agent };
                            self.read(i, t.buffer, &[p], &reader)?;
                            self.order.set_writer(p.number, &agent);
                        } else {
                            self.read(i, t.buffer, &[p], &agent)?;
                        }
                    }
                }
                for p in self.tile(i, acc) {
                    // Products of one warpgroup onto one accumulator follow each other without a wait.
                    let chained = self.order.is_writer(&agent, p.number);
                    let agent = if chained { Agent { threads: 0, ..agent } } else { agent };
                    self.read(i, acc.buffer, &[p], &agent)?;
                    self.write(i, acc.buffer, &[p], &agent)?;
                }
            }
            // From register to register.
            Gpu::Lanes { .. } => {}
            Gpu::Commit(_) => {
                let warpgroup = self.warpgroup(i);
                let groups = self.order.groups(Group::Mma, warpgroup);
                groups.committed += 1;
                groups.open = false;
            }
            Gpu::Wait(_, pending) => {
                let warpgroup = self.warpgroup(i);
                let actor = self.order.actor(Role::Products(warpgroup));
                let done = self.order.groups(Group::Mma, warpgroup).committed.saturating_sub(*pending);
                (warp..warp + warps).for_each(|w| self.order.learn(w, actor, done));
            }
            Gpu::Split { dst, src } => {
                let agent = self.order.together(warp, warps);
                // The warps of a warpgroup read without waiting for each other: none knows that the others have.
                for w in warp..warp + warps {
                    let reader = self.order.together(w, 1);
                    let pieces = self.tile(i, &src.tile);
                    self.read(i, src.tile.buffer, &pieces, &reader)?;
                    self.order.done(reader);
                }
                let pieces = self.tile(i, dst);
                self.write(i, dst.buffer, &pieces, &agent)?;
                self.order.done(agent);
            }
            _ => {
                let agent = self.order.together(warp, warps);
                for t in g.tiles().read {
                    let pieces = self.tile(i, t);
                    self.read(i, t.buffer, &pieces, &agent)?;
                }
                if let Some(t) = g.tiles().written {
                    let pieces = self.tile(i, t);
                    self.write(i, t.buffer, &pieces, &agent)?;
                }
                self.order.done(agent);
            }
        }
        Ok(())
    }
}
