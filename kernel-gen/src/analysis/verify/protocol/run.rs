//! Runs the threads of a cluster, each to where it has to wait, until all have ended or none can go on.

use super::launch::Launch;
use super::machine::{End, Frame, Halt, MOST_SEEN, Memo, Run, Stop, Thread};
use super::pieces::Units;
use super::plan::{KEYS, Node};
use crate::analysis::mbarrier::Mbarrier;
use crate::analysis::order::{ActorId, Groups, Order, Role, Sizes};
use crate::analysis::remote::Remote;
use crate::analysis::verify::fault::{Fault, FaultKind};
use crate::ir::{Expr, For, Gpu, Kernel, LoopKind, MbarrierOp, Stmt, Unit, holds_column, holds_row};
use std::collections::BTreeMap;

/// Statements of all threads of a cluster that are run.
pub(super) const STEPS: u64 = 3_000_000;

/// Runs a cluster of the grid; adds its statements to `steps`.
pub(super) fn run(kernel: &Kernel, launch: &Launch, grid: [i64; 3], steps: &mut u64) -> End {
    let units = Units::new(kernel, launch.stmt, &launch.tracked, &|s| launch.copies(s));
    let slots = launch.mbarriers_per_block * launch.blocks;
    let sizes = Sizes {
        threads: launch.warps * launch.blocks,
        lanes: 1,
        warpgroups: launch.warpgroups * launch.blocks,
        mbarriers: slots,
    };
    let mut order = Order::new(sizes, units.count(), 1);
    order.start(0);
    let threads = (0..launch.threads * launch.blocks).map(|i| {
        let (rank, index) = (i / launch.threads, i % launch.threads);
        Thread {
            frames: vec![Frame { block: &launch.plan, next: 0, repeat: None }],
            vars: vec![None; kernel.vars.len()],
            cells: BTreeMap::new(),
            index,
            rank,
            warp: rank * launch.warps + index / 32,
            copies: Groups::default(),
            stores: Groups::default(),
            stop: Stop::Ready,
            at: None,
        }
    });
    let threads = threads.collect();
    let mbarriers = vec![Mbarrier::default(); slots];
    let remote = Remote::new(launch.blocks, launch.threads);
    let memos = vec![Memo::default(); launch.memos * launch.warps * launch.blocks];
    let (pieces, origin) = (vec![], vec![]);
    let mut run = Run {
        kernel,
        launch,
        grid,
        threads,
        order,
        mbarriers,
        remote,
        units,
        steps: 0,
        writes: 0,
        memos,
        pieces,
        origin,
    };
    let outcome = run.all();
    *steps += run.steps;
    match outcome {
        Ok(()) => End::All,
        Err(Halt::Budget) => End::Stopped,
        Err(Halt::Fault(fault)) => End::Fault(fault),
    }
}

impl<'r, 'k> Run<'r, 'k> {
    fn all(&mut self) -> Result<(), Halt> {
        loop {
            let mut moved = false;
            for i in 0..self.threads.len() {
                let runs = match self.threads[i].stop {
                    Stop::Ready => true,
                    Stop::Mbarrier => self.has_ended(i),
                    _ => false,
                };
                if runs {
                    moved = true;
                    self.threads[i].stop = Stop::Ready;
                    let stop = self.advance(i)?;
                    if stop == Stop::Ended && (self.threads[i].stores.open || self.stores_pending(i)) {
                        return Err(self.unfinished_store(i));
                    }
                    self.threads[i].stop = stop;
                    if stop == Stop::Ended {
                        let (rank, clock) = (self.threads[i].rank, self.order.clock(self.threads[i].warp));
                        if let Some(actor) = self.remote.end(rank, clock) {
                            return Err(self.ended_early(i, actor));
                        }
                    }
                }
            }
            moved |= self.release_units()?;
            moved |= self.release_barriers()?;
            if !moved {
                if self.threads.iter().all(|t| t.stop == Stop::Ended) {
                    return Ok(());
                }
                return Err(self.stuck());
            }
        }
    }

    fn stores_pending(&self, i: usize) -> bool {
        self.threads[i].stores.done < self.threads[i].stores.committed
    }

    /// The value of an expression in a thread, for one lane of a vector.
    pub(super) fn value(&self, i: usize, e: &Expr, lane: i64) -> Option<i64> {
        self.threads[i].value(self.kernel, e, lane)
    }

    /// Counts statements.
    fn step(&mut self, statements: u64) -> Result<(), Halt> {
        self.steps += statements;
        if self.steps > STEPS { Err(Halt::Budget) } else { Ok(()) }
    }

    /// Runs a thread to where it has to wait. At a barrier of the block or the warp it is behind it, else at it.
    fn advance(&mut self, i: usize) -> Result<Stop, Halt> {
        loop {
            let Some(frame) = self.threads[i].frames.last_mut() else {
                self.step(1)?;
                return Ok(Stop::Ended);
            };
            let block = frame.block;
            let Some(node) = block.nodes.get(frame.next) else {
                self.step(1 + block.rest)?;
                self.leave(i);
                continue;
            };
            frame.next += 1;
            self.step(1 + node.passed)?;
            self.threads[i].at = Some(node.stmt);
            if node.quiet.is_some() {
                let before = self.steps;
                match self.quiet(i, node) {
                    // Once more with all that a fault is told with.
                    Err(Halt::Fault(_)) => self.steps = before,
                    other => {
                        other?;
                        continue;
                    }
                }
            }
            match node.stmt {
                Stmt::For(l) => self.enter(i, l, node),
                Stmt::If { cond, .. } => {
                    self.reads(i, node, 0)?;
                    let taken = self.value(i, cond, 0);
                    // What memory decides may go either way.
                    let [then, otherwise] = &node.inner;
                    for (block, truth) in [(otherwise, 0), (then, 1)] {
                        let is_empty = block.nodes.is_empty() && block.rest == 0;
                        if taken.is_none_or(|v| v == truth) && !is_empty {
                            self.threads[i].frames.push(Frame { block, next: 0, repeat: None });
                        }
                    }
                }
                Stmt::Let { var, value } => {
                    self.reads(i, node, 0)?;
                    let value = self.value(i, value, 0);
                    self.threads[i].vars[var.0 as usize] = value;
                }
                Stmt::Barrier(crate::ir::Barrier::Block) => return Ok(Stop::Block),
                Stmt::Barrier(crate::ir::Barrier::Warp) => return Ok(Stop::Warp),
                Stmt::Gpu(g) => {
                    if let Some(stop) = self.gpu(i, g, node)? {
                        if let Some(frame) = self.threads[i].frames.last_mut() {
                            frame.next -= 1;
                        }
                        return Ok(stop);
                    }
                }
                Stmt::Store { .. } | Stmt::Reduce { .. } | Stmt::Transpose { .. } => {
                    self.ordinary(i, node)?;
                }
                Stmt::Alloc(b) => self.threads[i].cells.retain(|(c, _), _| c != b),
            }
        }
    }

    /// Runs a statement that only reads, unless a thread of the warp did so since something was last written.
    fn quiet(&mut self, i: usize, node: &'r Node<'k>) -> Result<(), Halt> {
        let Some((number, exprs)) = node.quiet.as_ref().and_then(|q| q.memo.as_ref()) else {
            return self.read_all(i, node);
        };
        let mut key = [0; KEYS];
        for (k, e) in key.iter_mut().zip(exprs) {
            match self.value(i, e, 0) {
                Some(value) => *k = value,
                None => return self.read_all(i, node),
            }
        }
        let warp = self.threads[i].warp;
        let at = number * self.launch.warps * self.launch.blocks + warp;
        let when = (self.writes, self.order.thread(warp).step);
        let memo = &mut self.memos[at];
        if memo.when != when {
            memo.when = when;
            memo.seen.clear();
        }
        if let Some((_, statements)) = memo.seen.iter().find(|(k, _)| *k == key) {
            let statements = *statements;
            return self.step(statements);
        }
        let before = self.steps;
        self.read_all(i, node)?;
        let statements = self.steps - before;
        let seen = &mut self.memos[at].seen;
        if seen.len() < MOST_SEEN {
            seen.push((key, statements));
        }
        Ok(())
    }

    /// Runs a statement that only reads.
    fn read_all(&mut self, i: usize, node: &'r Node<'k>) -> Result<(), Halt> {
        let Stmt::For(l) = node.stmt else {
            return (0..node.lanes).try_for_each(|lane| self.reads(i, node, lane));
        };
        let body = &node.inner[0];
        for at in 0..l.extent {
            self.threads[i].vars[l.var.0 as usize] = Some(at);
            for inner in &body.nodes {
                self.step(1 + inner.passed)?;
                self.quiet(i, inner)?;
            }
            self.step(1 + body.rest)?;
        }
        Ok(())
    }

    /// Begins a loop.
    fn enter(&mut self, i: usize, l: &'k For, node: &'r Node<'k>) {
        let (index, rank) = (self.threads[i].index as i64, self.threads[i].rank as i64);
        let along = |linear: i64, n: [i64; 3]| [linear % n[0], linear / n[0] % n[1], linear / (n[0] * n[1])];
        let hardware = match l.kind {
            LoopKind::Grid(a) => Some(self.grid[a as usize]),
            LoopKind::Thread(a) => Some(along(index, self.launch.block)[a as usize]),
            LoopKind::Cluster(a) => Some(along(rank, self.launch.cluster)[a as usize]),
            _ => None,
        };
        let first = match hardware {
            Some(at) => (at < l.extent).then_some(at),
            None => self.iteration(i, l, node.warps, 0),
        };
        if let Some(at) = first {
            self.threads[i].vars[l.var.0 as usize] = Some(at);
            let repeat = hardware.is_none().then_some((l, node.warps, at));
            self.threads[i].frames.push(Frame { block: &node.inner[0], next: 0, repeat });
        }
    }

    /// At the end of a block: the next iteration, or out.
    fn leave(&mut self, i: usize) {
        let repeat = self.threads[i].frames.last().and_then(|f| f.repeat);
        let next = repeat.and_then(|(l, warps, at)| Some((l, warps, self.iteration(i, l, warps, at + 1)?)));
        let thread = &mut self.threads[i];
        match (next, thread.frames.last_mut()) {
            (Some((l, warps, at)), Some(frame)) => {
                frame.next = 0;
                frame.repeat = Some((l, warps, at));
                thread.vars[l.var.0 as usize] = Some(at);
            }
            _ => {
                thread.frames.pop();
            }
        }
    }

    /// The first iteration from `from` on that the thread executes.
    fn iteration(&self, i: usize, l: &For, warps: i64, from: i64) -> Option<i64> {
        let index = self.threads[i].index as i64;
        let own = |at: &i64| match l.kind {
            LoopKind::FragmentRow => holds_row(index, *at, warps),
            LoopKind::FragmentCol => holds_column(index, *at),
            _ => true,
        };
        (from..l.extent).find(own)
    }

    /// What the threads of a warp or a warpgroup do together, where all have come.
    fn release_units(&mut self) -> Result<bool, Halt> {
        let mut released = false;
        let size = self.launch.threads;
        for unit in [Unit::Warp, Unit::Warpgroup] {
            let n = unit.threads() as usize;
            for first in (0..self.threads.len()).step_by(size).flat_map(|b| (b..b + size).step_by(n)) {
                let end = first / size * size + size;
                // An incomplete warp is a warp; an incomplete warpgroup does nothing together.
                if unit == Unit::Warpgroup && first + n > end {
                    continue;
                }
                let range = first..(first + n).min(end);
                let at = self.threads[first].at.map(std::ptr::from_ref);
                let together = |stop: Stop| {
                    self.threads[range.clone()].iter().all(|t| t.stop == stop && t.at.map(std::ptr::from_ref) == at)
                };
                if together(Stop::Collective(unit)) {
                    self.collective(range.clone())?;
                    for t in &mut self.threads[range.clone()] {
                        if let Some(f) = t.frames.last_mut() {
                            f.next += 1;
                        }
                    }
                } else if unit != Unit::Warp || !together(Stop::Warp) {
                    continue;
                }
                self.threads[range].iter_mut().for_each(|t| t.stop = Stop::Ready);
                released = true;
            }
        }
        Ok(released)
    }

    fn release_barriers(&mut self) -> Result<bool, Halt> {
        let mut released = false;
        let size = self.launch.threads;
        for rank in 0..self.launch.blocks {
            let range = rank * size..(rank + 1) * size;
            let at = self.threads[range.start].at.map(std::ptr::from_ref);
            let at_it = |t: &Thread<'_, '_>| t.stop == Stop::Block && t.at.map(std::ptr::from_ref) == at;
            if self.threads[range.clone()].iter().all(at_it) {
                self.go_on(&range.clone().collect::<Vec<_>>(), false);
                released = true;
            }
            let mut named: BTreeMap<u32, (i64, Vec<usize>)> = BTreeMap::new();
            for i in range {
                if let (Stop::Named, Some(Stmt::Gpu(Gpu::NamedBarrier { id, threads }))) =
                    (self.threads[i].stop, self.threads[i].at)
                {
                    let (n, who) = named.entry(*id).or_insert((*threads, vec![]));
                    if n != threads {
                        let cause = format!("barrier {id} is for {n} threads in one place and for {threads} here");
                        return Err(self.fault(i, FaultKind::BarrierMisuse, cause, "use one number of threads"));
                    }
                    who.push(i);
                }
            }
            for (id, (n, who)) in named {
                if who.len() as i64 > n {
                    let cause = format!("{} threads come to barrier {id}, which is for {n}", who.len());
                    return Err(self.fault(who[0], FaultKind::BarrierMisuse, cause, "name the threads that come"));
                }
                if who.len() as i64 == n {
                    self.go_on(&who, true);
                    released = true;
                }
            }
        }
        let at = self.threads[0].at.map(std::ptr::from_ref);
        let at_it = |t: &Thread<'_, '_>| t.stop == Stop::Cluster && t.at.map(std::ptr::from_ref) == at;
        if self.threads.iter().all(at_it) {
            self.go_on(&(0..self.threads.len()).collect::<Vec<_>>(), true);
            released = true;
        }
        Ok(released)
    }

    /// Threads that waited for each other know of each other, and go on; past the statement that they are at.
    fn go_on(&mut self, who: &[usize], past: bool) {
        let mut warps: Vec<usize> = who.iter().map(|i| self.threads[*i].warp).collect();
        warps.dedup();
        self.order.join(&warps);
        for i in who {
            let t = &mut self.threads[*i];
            t.stop = Stop::Ready;
            if let (true, Some(f)) = (past, t.frames.last_mut()) {
                f.next += 1;
            }
        }
    }

    /// The fault at the statement that a thread is at.
    pub(super) fn fault(&self, i: usize, kind: FaultKind, cause: impl Into<String>, help: &str) -> Halt {
        let t = &self.threads[i];
        let loops: Vec<&For> = t.frames.iter().filter_map(|f| f.repeat.map(|(l, ..)| l)).collect();
        let values: Vec<String> = t
            .frames
            .iter()
            .filter_map(|f| f.repeat)
            .map(|(l, _, v)| format!("{} = {v}", self.kernel.var(l.var).name))
            .collect();
        let with = if values.is_empty() { String::new() } else { format!(" with {}", values.join(", ")) };
        let cause = format!("{} (in {}{with})", cause.into(), self.thread_name(i));
        let stmt = t.at.unwrap_or(self.launch.stmt);
        Halt::Fault(Box::new(Fault::at(self.kernel, &loops, stmt, kind, cause, help)))
    }

    pub(super) fn thread_name(&self, i: usize) -> String {
        let t = &self.threads[i];
        format!("thread {} of {}", t.index, self.block_name(t.rank))
    }

    fn block_name(&self, rank: usize) -> String {
        let block = format!("block {:?}", self.grid);
        if self.launch.blocks > 1 { format!("{block}, rank {rank}") } else { block }
    }

    /// An actor in words.
    pub(super) fn actor_name(&self, actor: ActorId) -> String {
        let warp = |w: usize| format!("warp {}", w % self.launch.warps);
        match self.order.role(actor) {
            Role::Thread(w) | Role::Warp(w) => warp(w),
            Role::Products(w) => format!("an mma.warpgroup of warpgroup {}", w % self.launch.warpgroups),
            Role::Copies(w) => format!("a copy_async of {}", warp(w)),
            Role::Stores(w) => format!("a tensor_store of {}", warp(w)),
            Role::Loads(slot) => format!("a tensor_load on {}", self.mbarrier_name(slot)),
        }
    }

    pub(super) fn mbarrier_name(&self, slot: usize) -> String {
        let i = slot % self.launch.mbarriers_per_block.max(1);
        let buffers = self.kernel.buffers.iter().zip(&self.launch.mbarriers);
        let found = buffers
            .filter(|(b, _)| b.scope == crate::ir::Scope::Mbarrier)
            .find(|(b, first)| (**first..**first + b.shape.iter().product::<i64>() as usize).contains(&i));
        found.map_or(String::new(), |(b, first)| format!("{}[{}]", b.name, i - first))
    }

    fn unfinished_store(&self, i: usize) -> Halt {
        self.fault(
            i,
            FaultKind::UnfinishedStore,
            "a thread ends while its tensor_store may still read shared memory",
            "commit it, and put `wait store 0` at the end",
        )
    }

    /// The last thread of a block ends.
    fn ended_early(&self, i: usize, actor: ActorId) -> Halt {
        let cause = format!(
            "{} ends, the last of its block, and nobody there has waited for what {} does to the block's memory",
            self.thread_name(i),
            self.actor_name(actor)
        );
        self.fault(i, FaultKind::EndedBlock, cause, "put `barrier cluster` at the end")
    }

    /// Something of a thread's reaches the memory of another block.
    pub(super) fn reach(&mut self, i: usize, rank: usize, actor: ActorId, step: u32) -> Result<(), Halt> {
        if rank == self.threads[i].rank || self.remote.reach(rank, actor, step) {
            return Ok(());
        }
        let cause = format!("the block of rank {rank}, whose memory it reaches, may have ended");
        Err(self.fault(i, FaultKind::EndedBlock, cause, "put `barrier cluster` at the end"))
    }

    /// Why nothing can go on: threads of a unit that are apart, or a circle of waiting.
    fn stuck(&self) -> Halt {
        let size = self.launch.threads;
        let at = |i: usize| (self.threads[i].stop, self.threads[i].at.map(std::ptr::from_ref));
        let divergence = |i: usize, other: usize| {
            let elsewhere = match self.threads[other].stop {
                Stop::Ended => "has ended".to_string(),
                _ => format!("is at `{}`", self.text(other)),
            };
            let cause = format!("{} waits here, but {} {elsewhere}", self.thread_name(i), self.thread_name(other));
            self.fault(i, FaultKind::DivergentBarrier, cause, "let all threads that run it together come to it")
        };
        for (i, t) in self.threads.iter().enumerate() {
            let n = match t.stop {
                Stop::Collective(unit) => unit.threads() as usize,
                Stop::Warp => Unit::Warp.threads() as usize,
                _ => continue,
            };
            let first = i / size * size + i % size / n * n;
            let apart = |j: &usize| self.threads[*j].stop != Stop::Mbarrier && at(*j) != at(i);
            if let Some(other) = (first..(first + n).min(i / size * size + size)).find(apart) {
                return divergence(i, other);
            }
        }
        let waiting = (0..self.threads.len()).find(|i| self.threads[*i].stop == Stop::Mbarrier);
        let i = (0..self.threads.len()).find(|i| self.threads[*i].stop != Stop::Ended).unwrap_or(0);
        let range = match self.threads[i].stop {
            Stop::Cluster => 0..self.threads.len(),
            _ => i / size * size..i / size * size + size,
        };
        let other = range.into_iter().find(|j| at(*j) != at(i));
        match (waiting, other, self.threads[i].stop) {
            (None, Some(other), Stop::Block | Stop::Cluster) => divergence(i, other),
            _ => self.deadlock(waiting.unwrap_or(i)),
        }
    }

    fn deadlock(&self, first: usize) -> Halt {
        let mut lines: Vec<(usize, String)> = vec![];
        for (i, t) in self.threads.iter().enumerate() {
            if t.stop == Stop::Ended {
                continue;
            }
            let lacks = match t.stop {
                Stop::Mbarrier => self.lacks(i),
                _ => String::new(),
            };
            let line = format!("at `{}`{lacks}", self.text(i));
            if !lines.iter().any(|(_, l)| *l == line) {
                lines.push((i, line));
            }
        }
        let positions: Vec<String> =
            lines.iter().take(6).map(|(i, line)| format!("{} {line}", self.thread_name(*i))).collect();
        let cause = format!("no thread can go on: {}", positions.join("; "));
        let help = "let each wait be answered by as many arrivals and bytes as its barrier counts";
        self.fault(first, FaultKind::Deadlock, cause, help)
    }

    fn lacks(&self, i: usize) -> String {
        let Some(Stmt::Gpu(Gpu::Mbarrier(on, MbarrierOp::Wait(parity)))) = self.threads[i].at else {
            return String::new();
        };
        let (Some(slot), Some(parity)) = (self.slot(i, on, self.threads[i].rank), self.value(i, parity, 0)) else {
            return String::new();
        };
        let b = &self.mbarriers[slot];
        format!(" for parity {parity} of {}, whose phase {} {}", self.mbarrier_name(slot), b.phase, b.lacks())
    }

    /// The text of the statement that a thread is at.
    fn text(&self, i: usize) -> String {
        let text = self.threads[i].at.map(|s| crate::ir::print::statement(self.kernel, s)).unwrap_or_default();
        text.lines().next().unwrap_or_default().trim().to_string()
    }
}
