//! Elements of memory: their addresses, and what is checked about each touch.

use super::data::unravel;
use super::machine::{Machine, Thread, Trap};
use super::program::{Access, Linear, Memory};
use super::round::round_to;
use super::shadow::{Conflict, describe};
use super::{Cause, Mode};
use crate::ir::{BufferId, DType};

impl Machine<'_> {
    /// A new generation for a buffer: its contents are undefined.
    pub(super) fn generation(&mut self) -> u32 {
        let g = self.next_generation;
        // Some 4 billion allocations take longer than anyone waits; wrapping would only miss a report.
        self.next_generation = g.wrapping_add(1).max(2);
        g
    }

    pub(super) fn alloc(&mut self, t: &mut Thread, buffer: usize) {
        let memory = &self.p.buffers[buffer];
        if memory.is_private {
            t.generations[buffer] = self.generation();
            if memory.check_lanes {
                let first = memory.base + t.copy[memory.copies as usize].min(memory.instances - 1) * memory.size;
                self.shadow.forget_lanes(first..first + memory.size);
            }
            return;
        }
        t.allocations[buffer] += 1;
        if memory.counted {
            return;
        }
        // The first thread that comes to an allocation makes it; the others find it made.
        let first = t.allocations[buffer] > self.allocations[buffer];
        if first && (memory.is_shared || self.who.region == 0) {
            self.allocations[buffer] = t.allocations[buffer];
            self.generations[buffer] = self.generation();
        }
    }

    pub(super) fn fresh_privates(&mut self, t: &mut Thread, list: u32) {
        let p = self.p;
        for b in &p.privates[list as usize] {
            t.generations[b.0 as usize] = self.generation();
        }
    }

    #[inline]
    pub(super) fn linear(&self, ints: &[i64], form: Linear) -> i64 {
        let terms = &self.p.terms[form.first as usize..(form.first + form.count) as usize];
        let mut sum = form.constant;
        for t in terms {
            sum = sum.wrapping_add(t.factor.wrapping_mul(ints[t.slot as usize]));
        }
        sum
    }

    /// The element of the pool that an access addresses.
    #[inline]
    pub(super) fn address(&self, t: &Thread, access: &Access, memory: &Memory, write: bool) -> Result<usize, Trap> {
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
        let copy = if memory.instances > 1 { t.copy[memory.copies as usize] } else { 0 };
        Ok(memory.base + copy * memory.size + at as usize)
    }

    /// The report needs the index of every dimension, which the folded address no longer has.
    #[cold]
    pub(super) fn out_of_bounds(&self, t: &Thread, access: &Access, write: bool) -> Trap {
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
    pub(super) fn element(&self, buffer: u32, at: usize) -> (String, Vec<i64>) {
        let (b, memory) = (self.p.kernel.buffer(BufferId(buffer)), &self.p.buffers[buffer as usize]);
        (b.name.clone(), unravel((at - memory.base) % memory.size, &b.shape))
    }

    #[cold]
    pub(super) fn race(&self, buffer: u32, at: usize, conflict: &Conflict, wrote: bool) -> Trap {
        let (buffer, index) = self.element(buffer, at);
        let first = describe(conflict.earlier, conflict.earlier_wrote, self.launch);
        let second = describe(self.who, wrote, self.launch);
        Box::new(Cause::Race { buffer, index, first, second })
    }

    #[inline]
    pub(super) fn before_read(&mut self, t: &Thread, buffer: u32, memory: &Memory, at: usize) -> Result<(), Trap> {
        if memory.check_races && self.who.region != 0 {
            if self.cluster.is_some() {
                self.ordered_read(t, buffer, at)?;
            } else if let Err(c) = self.shadow.read(at, self.who, memory.is_shared) {
                return Err(self.race(buffer, at, &c, false));
            }
        }
        if memory.unit.is_some() {
            self.fragment_touch(t, buffer, memory, at, false)?;
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
    pub(super) fn before_write(&mut self, t: &Thread, buffer: u32, memory: &Memory, at: usize) -> Result<(), Trap> {
        if memory.check_races && self.who.region != 0 {
            if self.cluster.is_some() {
                self.ordered_write(t, buffer, at)?;
            } else if let Err(c) = self.shadow.write(at, self.who, memory.is_shared) {
                return Err(self.race(buffer, at, &c, true));
            }
        }
        if memory.unit.is_some() {
            self.fragment_touch(t, buffer, memory, at, true)?;
        }
        if memory.check_lanes && self.lane != 0 && self.shadow.lane_write(at, self.lane).is_err() {
            let (buffer, index) = self.element(buffer, at);
            return Err(Box::new(Cause::LaneConflict { buffer, index }));
        }
        self.written[at] = self.current(t, buffer, memory);
        Ok(())
    }

    #[inline]
    pub(super) fn current(&self, t: &Thread, buffer: u32, memory: &Memory) -> u32 {
        if memory.is_private {
            t.generations[buffer as usize]
        } else if memory.counted {
            1 + t.allocations[buffer as usize]
        } else {
            self.generations[buffer as usize]
        }
    }

    #[inline]
    pub(super) fn load(&mut self, t: &Thread, access: u32) -> Result<u64, Trap> {
        let p = self.p;
        let a = &p.accesses[access as usize];
        let memory = &p.buffers[a.buffer as usize];
        let at = self.address(t, a, memory, false)?;
        self.before_read(t, a.buffer, memory, at)?;
        Ok(self.memory[at])
    }

    #[inline]
    pub(super) fn float_store(&mut self, t: &Thread, access: u32, v: f64) -> Result<(), Trap> {
        let p = self.p;
        let a = &p.accesses[access as usize];
        let memory = &p.buffers[a.buffer as usize];
        let at = self.address(t, a, memory, true)?;
        self.before_write(t, a.buffer, memory, at)?;
        self.memory[at] = self.rounded(v, memory.dtype).to_bits();
        Ok(())
    }

    #[inline]
    pub(super) fn rounded(&self, v: f64, dtype: DType) -> f64 {
        if self.p.mode == Mode::F64 { v } else { round_to(v, dtype) }
    }

    /// The bits that a reduction starts from at `at`: what is there, or `init` in the first iteration.
    #[inline]
    pub(super) fn reduce_from(&mut self, t: &Thread, access: u32, over: u32, init: u64) -> Result<(usize, u64), Trap> {
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
}
