//! Grids of blocks of threads.

use super::machine::{Failure, Machine, Stop, Thread};
use super::program::{Copies, Launch};
use super::shadow::{Actor, WARP};
use super::{At, Cause};

/// Where a thread of a block is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Waiting { warp: bool },
    Ended,
}

impl Machine<'_> {
    /// Runs every block of the launch, one after the other; `start` is the launch's first operation and `host` the
    /// thread that starts it, whose variables the new threads see.
    pub(super) fn launch(&mut self, host: &Thread, launch: &Launch, start: u32) -> Result<(), Failure> {
        let outer = (self.who, self.launch);
        let region = self.new_region();
        self.launch = Some(launch.block);
        if launch.has_gpu {
            self.clusters(host, launch, start, region)?;
            (self.who, self.launch) = outer;
            return Ok(());
        }
        let count = launch.block.iter().product::<i64>() as usize;
        let mut threads: Vec<Thread> = vec![host.clone(); if launch.has_barrier { count } else { 1 }];
        let mut block = 0;
        for z in 0..launch.grid[2] {
            for y in 0..launch.grid[1] {
                for x in 0..launch.grid[0] {
                    self.hardware[..3].copy_from_slice(&[x, y, z]);
                    self.who = Actor { region, block, ..Actor::default() };
                    self.new_epoch();
                    self.spend(count as u64).map_err(|trap| (trap, None))?;
                    for b in &launch.shared {
                        self.generations[b.0 as usize] = self.generation();
                        self.allocations[b.0 as usize] = 0;
                    }
                    if launch.has_barrier {
                        self.run_block(&mut threads, launch, start)?;
                    } else {
                        for i in 0..count {
                            self.reset(&mut threads[0], launch, start, 0);
                            self.enter(launch, i);
                            self.advance(&mut threads[0])?;
                        }
                    }
                    block += 1;
                }
            }
        }
        (self.who, self.launch) = outer;
        Ok(())
    }

    /// Puts a thread at the start of the launch with fresh private memory.
    pub(super) fn reset(&mut self, t: &mut Thread, launch: &Launch, start: u32, instance: usize) {
        let p = self.p;
        t.pc = start;
        t.copy[Copies::Thread as usize] = instance;
        t.allocations.fill(0);
        for b in &p.privates[launch.privates as usize] {
            t.generations[b.0 as usize] = self.generation();
        }
    }

    /// Makes thread `i` of the block the one that runs.
    fn enter(&mut self, launch: &Launch, i: usize) {
        let [x, y, _] = launch.block;
        let linear = i as i64;
        self.hardware[3..6].copy_from_slice(&[linear % x, linear / x % y, linear / (x * y)]);
        self.who.thread = i as u32;
    }

    /// Runs the threads of a block, each to its next barrier, until all have ended.
    fn run_block(&mut self, threads: &mut [Thread], launch: &Launch, start: u32) -> Result<(), Failure> {
        for (i, t) in threads.iter_mut().enumerate() {
            self.reset(t, launch, start, i);
        }
        let mut states = vec![State::Ready; threads.len()];
        let mut warp_epochs = vec![0u32; threads.len().div_ceil(WARP as usize)];
        loop {
            for (i, t) in threads.iter_mut().enumerate() {
                if states[i] == State::Ready {
                    self.enter(launch, i);
                    self.who.warp_epoch = warp_epochs[i / WARP as usize];
                    states[i] = match self.advance(t)? {
                        Stop::Barrier { warp } => State::Waiting { warp },
                        // The other stops are those of launches that run as clusters.
                        _ => State::Ended,
                    };
                }
            }
            let mut released = false;
            for (w, states) in states.chunks_mut(WARP as usize).enumerate() {
                let first = w * WARP as usize;
                let together = |s: &State, i: usize| {
                    *s == State::Waiting { warp: true } && threads[first + i].pc == threads[first].pc
                };
                if states.iter().enumerate().all(|(i, s)| together(s, i)) {
                    states.fill(State::Ready);
                    warp_epochs[w] += 1;
                    released = true;
                }
            }
            if released {
                continue;
            }
            if states.iter().all(|s| *s == State::Ended) {
                return Ok(());
            }
            let at_block_barrier =
                |i: usize| states[i] == State::Waiting { warp: false } && threads[i].pc == threads[0].pc;
            if !(0..threads.len()).all(at_block_barrier) {
                return Err(self.divergence(threads, &states, launch));
            }
            states.fill(State::Ready);
            self.new_epoch();
        }
    }

    /// Names a thread that waits and one that is somewhere else.
    fn divergence(&self, threads: &[Thread], states: &[State], launch: &Launch) -> Failure {
        let [x, y, _] = launch.block;
        let name = |i: usize| {
            let t = i as i64;
            format!("thread ({}, {}, {}) of block {}", t % x, t / x % y, t / (x * y), self.who.block)
        };
        let waiting = states.iter().position(|s| matches!(s, State::Waiting { .. })).unwrap_or(0);
        let other = (0..threads.len())
            .find(|i| states[*i] != states[waiting] || threads[*i].pc != threads[waiting].pc)
            .unwrap_or(waiting);
        let place = |i: usize| -> Option<Box<At>> { self.place(&threads[i], threads[i].pc - 1) };
        let other_text = match states[other] {
            State::Ended => format!("{} has ended", name(other)),
            _ => {
                let at = place(other).map_or(String::new(), |at| {
                    let loops: Vec<String> = at.loops.iter().map(|(n, v)| format!("{n} = {v}")).collect();
                    format!(" (`{}` with {})", at.statement, loops.join(", "))
                });
                format!("{} waits at another one{at}", name(other))
            }
        };
        let cause = Cause::DivergentBarrier { waiting: name(waiting), other: other_text };
        (Box::new(cause), place(waiting))
    }
}
