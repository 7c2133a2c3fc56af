//! Clusters of blocks whose threads wait for each other in more ways than one.
//!
//! The threads run one after the other, each to where it has to wait; then whatever they wait for together happens.
//! When no thread can run and nothing can happen, the reason is reported.

use super::Cause;
use super::between::Cluster;
use super::gpu::misuse;
use super::machine::{Failure, Machine, Stop, Thread, Trap};
use super::program::{Copies, GpuOp, Launch, MbarrierAct, On, Op, Slot};
use super::shadow::Actor;
use crate::ir::{Group, LoopKind, Unit};
use std::collections::BTreeMap;

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Ready,
    At(Stop),
}

/// Positions that the report of a deadlock lists.
const MOST_POSITIONS: usize = 8;

impl Machine<'_> {
    /// Runs every cluster of a launch, one after the other.
    pub(super) fn clusters(&mut self, host: &Thread, launch: &Launch, start: u32, region: u32) -> Result<(), Failure> {
        let cluster = Cluster::new(self.p, launch, region);
        let (count, size) = (cluster.threads * cluster.blocks, cluster.threads);
        self.cluster = Some(cluster);
        let mut threads: Vec<Thread> = vec![host.clone(); count];
        let mut number = 0;
        for z in 0..launch.grid[2] {
            for y in 0..launch.grid[1] {
                for x in 0..launch.grid[0] {
                    self.hardware[..3].copy_from_slice(&[x, y, z]);
                    self.who = Actor { region, block: number, ..Actor::default() };
                    self.spend(count as u64).map_err(|trap| (trap, None))?;
                    self.cluster().start(number);
                    for b in &launch.shared {
                        let memory = &self.p.buffers[b.0 as usize];
                        let elements = memory.base..memory.base + memory.size * memory.instances;
                        self.written[elements.clone()].fill(0);
                        self.cluster().order.forget(elements);
                    }
                    for (i, t) in threads.iter_mut().enumerate() {
                        self.reset(t, launch, start, i);
                        (t.actor, t.index) = (i, i % size);
                        t.copy[Copies::Block as usize] = i / size;
                        t.copy[Copies::Warp as usize] = i / 32;
                        t.copy[Copies::Warpgroup as usize] = self.cluster().warpgroup(t.actor, t.index);
                    }
                    self.run_cluster(&mut threads, launch)?;
                    number += 1;
                }
            }
        }
        self.cluster = None;
        Ok(())
    }

    /// Makes thread `i` of the cluster the one that runs.
    fn enter_cluster(&mut self, launch: &Launch, i: usize) {
        let [x, y, z] = launch.block;
        let (t, rank) = (i as i64 % (x * y * z), i as i64 / (x * y * z));
        self.hardware[3..6].copy_from_slice(&[t % x, t / x % y, t / (x * y)]);
        let [x, y, _] = launch.cluster;
        self.hardware[6..].copy_from_slice(&[rank % x, rank / x % y, rank / (x * y)]);
        self.who.thread = i as u32;
    }

    fn run_cluster(&mut self, threads: &mut [Thread], launch: &Launch) -> Result<(), Failure> {
        let mut states = vec![State::Ready; threads.len()];
        loop {
            let mut moved = false;
            for (i, t) in threads.iter_mut().enumerate() {
                let runs = match states[i] {
                    State::Ready => true,
                    State::At(Stop::Mbarrier) => match self.waits_at(t) {
                        Some((on, parity)) => self.has_ended(t, on, parity),
                        None => false,
                    },
                    State::At(_) => false,
                };
                if !runs {
                    continue;
                }
                moved = true;
                self.enter_cluster(launch, i);
                let stop = self.advance(t)?;
                if stop == Stop::Halt {
                    self.check_stores(t).map_err(|trap| (trap, self.place(t, t.pc)))?;
                    self.check_reached(t).map_err(|trap| (trap, self.place(t, t.pc)))?;
                }
                states[i] = State::At(stop);
            }
            moved |= self.release_units(threads, &mut states)?;
            moved |= self.release_barriers(threads, &mut states)?;
            if !moved {
                if states.iter().all(|s| *s == State::At(Stop::Halt)) {
                    return Ok(());
                }
                return Err(self.stuck(threads, &states));
            }
        }
    }

    /// The statement that a thread stands at.
    fn at<'a>(&self, t: &Thread) -> Option<&'a GpuOp>
    where
        Self: 'a,
    {
        match self.p.ops.get(t.pc as usize) {
            Some(Op::Gpu { gpu }) => Some(&self.p.gpu[*gpu as usize]),
            _ => None,
        }
    }

    /// The mbarrier that a thread waits at, and for which parity.
    fn waits_at(&self, t: &Thread) -> Option<(On, Slot)> {
        match self.at(t) {
            Some(GpuOp::Mbarrier { on, act: MbarrierAct::Wait(parity) }) => Some((*on, *parity)),
            _ => None,
        }
    }

    /// A block must not end while its memory is being read.
    fn check_stores(&mut self, t: &Thread) -> Result<(), Trap> {
        let groups = *self.cluster().order.groups(Group::Store, t.actor);
        if groups.open || groups.done < groups.committed {
            let thread = self.cluster().thread_name(t.actor);
            return Err(Box::new(Cause::UnfinishedStore { thread }));
        }
        Ok(())
    }

    /// What whole warps and warpgroups do together, where all their threads have come to it.
    fn release_units(&mut self, threads: &mut [Thread], states: &mut [State]) -> Result<bool, Failure> {
        let mut released = false;
        let size = self.cluster().threads;
        for unit in [Unit::Warp, Unit::Warpgroup] {
            let n = unit.threads() as usize;
            for first in (0..threads.len()).step_by(size).flat_map(|b| (b..b + size).step_by(n)) {
                // An incomplete unit at the end of a block does nothing together, but its threads may wait for each other.
                let end = first / size * size + size;
                let (whole, range) = (first + n <= end, first..(first + n).min(end));
                let (threads, states) = (&mut threads[range.clone()], &mut states[range]);
                let pc = threads[0].pc;
                let together =
                    |stop: Stop| states.iter().zip(threads.iter()).all(|(s, t)| *s == State::At(stop) && t.pc == pc);
                if whole && together(Stop::Collective(unit)) {
                    let Some(op) = self.at(&threads[0]) else { continue };
                    if let Err(trap) = self.collective(threads, op) {
                        return Err((trap, self.place(&threads[0], pc)));
                    }
                    threads.iter_mut().for_each(|t| t.pc += 1);
                } else if unit == Unit::Warp && together(Stop::Barrier { warp: true }) {
                    let actors: Vec<usize> = threads.iter().map(|t| t.actor).collect();
                    self.cluster().order.join(&actors);
                } else {
                    continue;
                }
                states.fill(State::Ready);
                released = true;
            }
        }
        Ok(released)
    }

    /// Barriers of blocks, of the cluster and of some of a block's threads.
    fn release_barriers(&mut self, threads: &mut [Thread], states: &mut [State]) -> Result<bool, Failure> {
        let mut released = false;
        let size = self.cluster().threads;
        for (threads, states) in threads.chunks_mut(size).zip(states.chunks_mut(size)) {
            let pc = threads[0].pc;
            let at_block = State::At(Stop::Barrier { warp: false });
            if states.iter().zip(threads.iter()).all(|(s, t)| *s == at_block && t.pc == pc) {
                let actors: Vec<usize> = threads.iter().map(|t| t.actor).collect();
                self.cluster().order.join(&actors);
                states.fill(State::Ready);
                released = true;
            }
            released |= self.release_named(threads, states)?;
        }
        let pc = threads[0].pc;
        if states.iter().zip(threads.iter()).all(|(s, t)| *s == State::At(Stop::Cluster) && t.pc == pc) {
            let actors: Vec<usize> = (0..threads.len()).collect();
            self.cluster().order.join(&actors);
            threads.iter_mut().for_each(|t| t.pc += 1);
            states.fill(State::Ready);
            released = true;
        }
        Ok(released)
    }

    fn release_named(&mut self, threads: &mut [Thread], states: &mut [State]) -> Result<bool, Failure> {
        let mut waiting: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut counts: BTreeMap<u32, i64> = BTreeMap::new();
        for (i, t) in threads.iter().enumerate() {
            if states[i] != State::At(Stop::Named) {
                continue;
            }
            let Some(GpuOp::Named { id, threads: n }) = self.at(t) else { continue };
            let expected = *counts.entry(*id).or_insert(*n);
            if expected != *n {
                let trap =
                    misuse(format!("barrier {id} is for {expected} threads in one place and for {n} in another"));
                return Err((trap, self.place(t, t.pc)));
            }
            waiting.entry(*id).or_default().push(i);
        }
        let mut released = false;
        for (id, who) in waiting {
            let n = counts[&id];
            if (who.len() as i64) < n {
                continue;
            }
            if who.len() as i64 > n {
                let trap = misuse(format!("{} threads come to barrier {id}, which is for {n}", who.len()));
                return Err((trap, self.place(&threads[who[0]], threads[who[0]].pc)));
            }
            let actors: Vec<usize> = who.iter().map(|i| threads[*i].actor).collect();
            self.cluster().order.join(&actors);
            for i in who {
                threads[i].pc += 1;
                states[i] = State::Ready;
            }
            released = true;
        }
        Ok(released)
    }

    /// Why nothing can go on: threads of a unit that are apart, or a circle of waiting.
    fn stuck(&mut self, threads: &[Thread], states: &[State]) -> Failure {
        let size = self.cluster().threads;
        let stop = |i: usize| match states[i] {
            State::At(stop) => stop,
            State::Ready => Stop::Halt,
        };
        for i in 0..threads.len() {
            let n = match stop(i) {
                Stop::Collective(unit) => unit.threads() as usize,
                Stop::Barrier { warp: true } => Unit::Warp.threads() as usize,
                _ => continue,
            };
            let first = i / size * size + i % size / n * n;
            let apart =
                |j: &usize| stop(*j) != Stop::Mbarrier && (stop(*j) != stop(i) || threads[*j].pc != threads[i].pc);
            if let Some(other) = (first..(first + n).min(i / size * size + size)).find(apart) {
                return self.apart(threads, stop(other), i, other, self.pc_of(&threads[i], stop(i)));
            }
        }
        if (0..threads.len()).any(|i| stop(i) == Stop::Mbarrier) {
            return self.deadlock(threads, states);
        }
        let i = (0..threads.len()).find(|i| stop(*i) != Stop::Halt).unwrap_or(0);
        let block = i / size * size..i / size * size + size;
        let range = if stop(i) == Stop::Cluster { 0..threads.len() } else { block };
        let other = range.clone().find(|j| stop(*j) != stop(i) || threads[*j].pc != threads[i].pc);
        if stop(i) == Stop::Named || other.is_none() {
            return self.deadlock(threads, states);
        }
        let other = other.unwrap_or(i);
        self.apart(threads, stop(other), i, other, self.pc_of(&threads[i], stop(i)))
    }

    /// The operation that a thread stands at.
    fn pc_of(&self, t: &Thread, stop: Stop) -> u32 {
        if matches!(stop, Stop::Barrier { .. }) { t.pc - 1 } else { t.pc }
    }

    fn apart(&mut self, threads: &[Thread], stop: Stop, waiting: usize, other: usize, pc: u32) -> Failure {
        let place = self.place(&threads[waiting], pc);
        let (t, o) = (&threads[waiting], &threads[other]);
        let elsewhere = match stop {
            Stop::Halt => "has ended".to_string(),
            _ => match self.place(o, self.pc_of(o, stop)) {
                Some(at) => format!("waits at another one ({})", super::error::position(&at)),
                None => "waits at another one".to_string(),
            },
        };
        let cluster = self.cluster();
        let (waiting, other) = (cluster.thread_name(t.actor), cluster.thread_name(o.actor));
        (Box::new(Cause::DivergentBarrier { waiting, other: format!("{other} {elsewhere}") }), place)
    }

    /// Whether a loop gives a thread its index, which tells threads apart that wait for the same.
    fn is_thread_loop(&self, name: &str) -> bool {
        let loops = crate::ir::visit::loops(&self.p.kernel.body);
        loops.iter().any(|l| matches!(l.kind, LoopKind::Thread(_)) && self.p.kernel.var(l.var).name == name)
    }

    fn deadlock(&mut self, threads: &[Thread], states: &[State]) -> Failure {
        // Threads at one place that wait for the same make one line; the first of them is named.
        let mut lines: Vec<(String, String, usize)> = vec![];
        let mut first = None;
        for (t, s) in threads.iter().zip(states) {
            let State::At(stop) = *s else { continue };
            if stop == Stop::Halt {
                continue;
            }
            let pc = self.pc_of(t, stop);
            let mut line = self.place(t, pc).map_or(String::new(), |mut at| {
                at.loops.retain(|(name, _)| !self.is_thread_loop(name));
                super::error::position(&at)
            });
            if let Some((on, parity)) = self.waits_at(t) {
                line = format!("{line} {}", self.lacking(t, on, parity));
                first = first.or(Some((t, pc)));
            }
            match lines.iter_mut().find(|(_, l, _)| *l == line) {
                Some((_, _, n)) => *n += 1,
                None => lines.push((self.cluster().thread_name(t.actor), line, 1)),
            }
        }
        let more = lines.len().saturating_sub(MOST_POSITIONS);
        let mut waiting: Vec<String> = lines
            .into_iter()
            .take(MOST_POSITIONS)
            .map(|(thread, line, n)| match n {
                1 => format!("{thread} at {line}"),
                n => format!("{thread} and {} more at {line}", n - 1),
            })
            .collect();
        if more > 0 {
            waiting.push(format!("{more} other positions"));
        }
        let place = first.and_then(|(t, pc)| self.place(t, pc));
        (Box::new(Cause::Deadlock { waiting }), place)
    }
}
