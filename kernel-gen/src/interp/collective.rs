//! What the threads of a warp or a warpgroup do together.

use super::machine::{Machine, Thread, Trap};
use super::program::{Block, GpuOp, Matrix};
use super::round::{nearest_tf32, round_to, truncated_tf32};
use super::{Cause, Mode};
use crate::analysis::order::{Agent, Role};
use crate::ir::{DType, Group, Unit, lane_order};

impl Machine<'_> {
    /// Runs a statement once for the threads of a unit, all of which stand at it.
    pub(super) fn collective(&mut self, threads: &[Thread], op: &GpuOp) -> Result<(), Trap> {
        let t = &threads[0];
        if let Some(other) = threads[1..].iter().find(|o| !self.agrees(t, o, op)) {
            let cluster = self.cluster();
            let (first, other) = (cluster.thread_name(t.actor), cluster.thread_name(other.actor));
            let detail = format!("{other} comes to the same statement with other operands");
            return Err(Box::new(Cause::DivergentBarrier { waiting: first, other: detail }));
        }
        match op {
            GpuOp::Fill { dst, value, .. } => {
                let agent = self.unit_agent(threads);
                let to = self.locate(t, dst, true)?;
                for d in &dst.offsets {
                    self.write_by(t, &agent, dst.buffer, to + d, t.floats[*value as usize])?;
                }
                self.cluster().order.done(agent);
            }
            GpuOp::Move { dst, src, .. } => {
                let agent = self.unit_agent(threads);
                let (to, from) = (self.locate(t, dst, true)?, self.locate(t, src, false)?);
                for (d, s) in dst.offsets.iter().zip(&src.offsets) {
                    let v = self.read_by(t, &agent, src.buffer, from + s)?;
                    self.write_by(t, &agent, dst.buffer, to + d, v)?;
                }
                self.cluster().order.done(agent);
            }
            GpuOp::MoveRows { dst, src } => {
                let agent = self.unit_agent(threads);
                let to = self.locate(t, dst, true)?;
                let columns = dst.extents.last().map_or(1, |n| *n as usize);
                for (i, from) in self.loaded(t, src, &[]).into_iter().enumerate() {
                    let v = match from {
                        Some(at) => self.read_by(t, &agent, src.buffer, at)?,
                        None => 0.0,
                    };
                    let place = i / columns * columns + lane_order((i % columns) as i64) as usize;
                    self.write_by(t, &agent, dst.buffer, to + dst.offsets[place], v)?;
                }
                self.cluster().order.done(agent);
            }
            GpuOp::Split { dst, src, .. } => {
                let agent = self.unit_agent(threads);
                // The warps of a warpgroup read their rows without waiting for each other: none knows that the others have.
                let warps: Vec<Agent> =
                    threads.chunks(Unit::Warp.threads() as usize).map(|w| self.unit_agent(w)).collect();
                let (to, from) = (self.locate(t, dst, true)?, self.locate(t, &src.tile, false)?);
                let ((rows, columns), parts) = (src.shape(), dst.extents[0] as usize);
                for (i, (row, column)) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))).enumerate() {
                    let element = from + src.tile.offsets[src.at(row, column)];
                    let mut rest = self.read_by(t, &warps[row * warps.len() / rows], src.tile.buffer, element)?;
                    for part in 0..parts {
                        let value = match (self.p.buffers[dst.buffer as usize].dtype, part) {
                            (DType::Bf16, _) => round_to(rest, DType::Bf16),
                            (_, 0) => nearest_tf32(rest),
                            _ => rest,
                        };
                        self.write_by(t, &agent, dst.buffer, to + dst.offsets[part * rows * columns + i], value)?;
                        rest -= value;
                    }
                }
                [&[agent][..], &warps].concat().into_iter().for_each(|a| self.cluster().order.done(a));
            }
            GpuOp::Lanes { op, dst, value } => {
                let given: [f64; 32] = std::array::from_fn(|lane| threads[lane].floats[*value as usize]);
                for (lane, t) in threads.iter().enumerate() {
                    let agent = self.cluster().order.thread(t.actor);
                    let to = self.locate(t, dst, true)?;
                    self.write_by(t, &agent, dst.buffer, to, (op.meaning)(&given, lane))?;
                }
            }
            GpuOp::Mma { unit, acc, a, b } => self.product(threads, *unit, [acc, a, b])?,
            GpuOp::Commit(_) => {
                let warpgroup = self.cluster().warpgroup(t.actor, t.index);
                let groups = self.cluster().order.groups(Group::Mma, warpgroup);
                groups.committed += 1;
                groups.open = false;
            }
            GpuOp::Wait(_, pending) => {
                let warpgroup = self.cluster().warpgroup(t.actor, t.index);
                let order = &mut self.cluster().order;
                let actor = order.actor(Role::Products(warpgroup));
                let done = order.groups(Group::Mma, warpgroup).committed.saturating_sub(*pending);
                threads.iter().for_each(|t| order.learn(t.actor, actor, done));
            }
            other => unreachable!("not collective: {other:?}"),
        }
        Ok(())
    }

    /// Whether two threads have the same operands.
    fn agrees(&self, a: &Thread, b: &Thread, op: &GpuOp) -> bool {
        let same = |tile: &Block| {
            tile.origin.iter().all(|l| self.linear(&a.ints, *l) == self.linear(&b.ints, *l))
                && a.allocations[tile.buffer as usize] == b.allocations[tile.buffer as usize]
        };
        match op {
            GpuOp::Fill { dst, value, .. } => {
                same(dst) && a.floats[*value as usize].to_bits() == b.floats[*value as usize].to_bits()
            }
            GpuOp::Move { dst, src, .. } => same(dst) && same(src),
            GpuOp::MoveRows { dst, src } => same(dst) && same(src),
            GpuOp::Split { dst, src, .. } => same(dst) && same(&src.tile),
            GpuOp::Mma { acc, a, b, .. } => same(&acc.tile) && same(&a.tile) && same(&b.tile),
            _ => true,
        }
    }

    fn unit_agent(&mut self, threads: &[Thread]) -> Agent {
        self.cluster().order.together(threads[0].actor, threads.len())
    }

    /// `acc += a * b`, in the accumulator's type.
    fn product(&mut self, threads: &[Thread], unit: Unit, [acc, a, b]: [&Matrix; 3]) -> Result<(), Trap> {
        let t = &threads[0];
        let agent = match unit {
            Unit::Warp => self.unit_agent(threads),
            Unit::Warpgroup => {
                let group = self.cluster().warpgroup(t.actor, t.index);
                let order = &mut self.cluster().order;
                let groups = order.groups(Group::Mma, group);
                groups.open = true;
                let step = groups.committed + 1;
                let actor = order.actor(Role::Products(group));
                Agent { first: t.actor, threads: threads.len(), actor, step, engine: true }
            }
        };
        let mut operands: [Vec<f64>; 2] = Default::default();
        for (values, m) in operands.iter_mut().zip([a, b]) {
            let from = self.locate(t, &m.tile, false)?;
            values.reserve(m.tile.offsets.len());
            let memory = &self.p.buffers[m.tile.buffer as usize];
            let (fragment, tf32) = (memory.unit.is_some(), memory.dtype == DType::F32);
            for s in &m.tile.offsets {
                let at = from + s;
                let shared = fragment && self.cluster().order.is_writer(&agent, at);
                let reader = if shared { Agent { threads: 0, ..agent } } else { agent };
                let value = self.read_by(t, &reader, m.tile.buffer, at)?;
                values.push(if tf32 { truncated_tf32(value) } else { value });
                if fragment && unit == Unit::Warpgroup {
                    // It is in use until the wait: who writes it before then clashes with the product.
                    self.cluster().order.set_writer(at, &agent);
                }
            }
        }
        let to = self.locate(t, &acc.tile, true)?;
        let compute = self.p.buffers[acc.tile.buffer as usize].dtype.compute();
        let ((rows, cols), (_, depth)) = (acc.shape(), a.shape());
        let right: Vec<f64> =
            (0..depth).flat_map(|k| (0..cols).map(move |j| (k, j))).map(|(k, j)| operands[1][b.at(k, j)]).collect();
        let (mut places, mut sums) = (vec![], vec![]);
        for i in 0..rows {
            places.clear();
            sums.clear();
            for j in 0..cols {
                let at = to + acc.tile.offsets[acc.at(i, j)];
                // Products of one warpgroup onto one accumulator follow each other without a wait.
                let chained = self.cluster().order.is_writer(&agent, at);
                let reader = if chained { Agent { threads: 0, ..agent } } else { agent };
                places.push((at, reader));
                sums.push(self.read_by(t, &reader, acc.tile.buffer, at)?);
            }
            for (k, row) in right.chunks(cols.max(1)).enumerate() {
                self.add_products(&mut sums, operands[0][a.at(i, k)], row, compute);
            }
            for ((at, reader), sum) in places.iter().zip(&sums) {
                self.write_by(t, reader, acc.tile.buffer, *at, *sum)?;
            }
        }
        if unit == Unit::Warp {
            self.cluster().order.done(agent);
        }
        Ok(())
    }

    /// Adds the products of one factor and a row of others to as many sums, each step rounded as the accumulator's type is.
    fn add_products(&self, sums: &mut [f64], factor: f64, row: &[f64], compute: DType) {
        let pairs = sums.iter_mut().zip(row);
        if self.p.mode != Mode::F64 && compute == DType::F32 {
            // The usual case, in a loop that knows its type: several sums go at once.
            pairs.for_each(|(sum, x)| *sum = f64::from((*sum + f64::from((factor * x) as f32)) as f32));
        } else {
            pairs.for_each(|(sum, x)| *sum = self.rounded(*sum + self.rounded(factor * x, compute), compute));
        }
    }
}
