//! Mbarriers: counters of arrivals and bytes, whose phases order what is before against what is behind.

use super::order::{ActorId, Order, Role};

/// An mbarrier of a block. See [`crate::ir::gpu`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Mbarrier {
    /// In which step of which actor it was made.
    pub(crate) made: Option<(ActorId, u32)>,
    /// What is loaded in its phases.
    loads: ActorId,
    /// Arrivals of a phase.
    pub(crate) count: i64,
    arrivals: i64,
    bytes: i64,
    /// Phases that have ended.
    pub(crate) phase: u32,
    /// What those who arrived knew, and what they knew when the last phase ended.
    clock: Vec<u32>,
    released: Vec<u32>,
}

impl Mbarrier {
    /// A thread makes the barrier with this number.
    pub(crate) fn new(count: i64, order: &Order, thread: usize, number: usize) -> Mbarrier {
        let agent = order.thread(thread);
        Mbarrier {
            made: Some((agent.actor, agent.step)),
            loads: order.actor(Role::Loads(number)),
            count,
            arrivals: count,
            bytes: 0,
            phase: 0,
            clock: order.empty_clock(),
            released: order.empty_clock(),
        }
    }

    /// One arrival that announces bytes; `false` when the phase has had all of its arrivals.
    pub(crate) fn arrive(&mut self, order: &mut Order, thread: usize, bytes: i64) -> bool {
        order.release(thread, &mut self.clock);
        self.bytes = self.bytes.saturating_add(bytes);
        self.arrivals -= 1;
        self.settle();
        self.arrivals >= 0
    }

    /// Bytes come that the thread asked for.
    pub(crate) fn load(&mut self, order: &mut Order, thread: usize, bytes: i64) {
        order.release(thread, &mut self.clock);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.settle();
    }

    /// Whether the phase of this parity has ended.
    pub(crate) fn has_ended(&self, parity: i64) -> bool {
        i64::from(self.phase % 2) != parity
    }

    /// A thread that waited goes on.
    pub(crate) fn acquire(&self, order: &mut Order, thread: usize) {
        order.acquire(thread, &self.released);
    }

    /// What the phase lacks, in words.
    pub(crate) fn lacks(&self) -> String {
        let bytes = match self.bytes {
            0 => String::new(),
            n if n > 0 => format!(" and {n} bytes"),
            n => format!(", and has {} bytes more than were announced", n.unsigned_abs()),
        };
        format!("lacks {} of {} arrivals{bytes}", self.arrivals, self.count)
    }

    /// Ends the phase if nothing is missing.
    fn settle(&mut self) {
        if self.arrivals == 0 && self.bytes == 0 {
            self.phase += 1;
            self.arrivals = self.count;
            self.clock[self.loads as usize] = self.phase;
            self.released.clone_from(&self.clock);
        }
    }
}
