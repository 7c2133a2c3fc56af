//! Who touched which element last: races between concurrent iterations, conflicts between lanes.
//!
//! Concurrency has two levels. A *region* is a launch or an outermost parallel loop; its *blocks* (or iterations) are
//! never ordered. Within a block, *threads* (or the iterations of a parallel loop inside the parallel loop) are ordered
//! only by barriers: each block barrier begins a new *epoch*, each warp barrier a new warp epoch.

/// Who is running, packed so that the common case is one comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Actor {
    /// 0 outside any region.
    pub(super) region: u32,
    pub(super) block: u32,
    pub(super) epoch: u32,
    pub(super) warp_epoch: u32,
    pub(super) thread: u32,
}

/// Several blocks or several threads; as a reader, whoever.
const MANY: u32 = u32::MAX;

/// Threads of a warp.
pub(super) const WARP: u32 = 32;

type Mark = [u32; 5];

impl Actor {
    fn mark(self) -> Mark {
        [self.region, self.block, self.epoch, self.warp_epoch, self.thread]
    }

    fn of(m: Mark) -> Actor {
        Actor { region: m[0], block: m[1], epoch: m[2], warp_epoch: m[3], thread: m[4] }
    }

    /// Whether what `earlier` did is unordered with what this actor does now. `shared` memory of another block is
    /// other memory.
    fn is_unordered_with(self, earlier: Actor, shared: bool) -> bool {
        if earlier.region != self.region {
            return false;
        }
        if earlier.block != self.block {
            return !shared;
        }
        if earlier.thread == self.thread || earlier.epoch != self.epoch {
            return false;
        }
        let same_warp = earlier.thread != MANY && earlier.thread / WARP == self.thread / WARP;
        !(same_warp && earlier.warp_epoch != self.warp_epoch)
    }
}

/// The last writer and the readers since, for every element of the pool.
pub(super) struct Shadow {
    writers: Vec<Mark>,
    readers: Vec<Mark>,
    lane_writers: Vec<u64>,
    lane_readers: Vec<u64>,
}

/// An earlier access that this one conflicts with.
pub(super) struct Conflict {
    pub(super) earlier: Actor,
    pub(super) earlier_wrote: bool,
}

impl Shadow {
    pub(super) fn new(races: usize, lanes: usize) -> Shadow {
        Shadow {
            writers: vec![[0; 5]; races],
            readers: vec![[0; 5]; races],
            lane_writers: vec![0; lanes],
            lane_readers: vec![0; lanes],
        }
    }

    /// Notes a read in a region.
    #[inline]
    pub(super) fn read(&mut self, at: usize, who: Actor, shared: bool) -> Result<(), Conflict> {
        let writer = Actor::of(self.writers[at]);
        if who.is_unordered_with(writer, shared) {
            return Err(Conflict { earlier: writer, earlier_wrote: true });
        }
        let old = Actor::of(self.readers[at]);
        if old == who {
            return Ok(());
        }
        let mut now = who;
        if old.region == who.region && !(shared && old.block != who.block) {
            if old.block != who.block {
                now.block = MANY;
            } else if old.epoch == who.epoch && old.thread != who.thread {
                now.thread = MANY;
            }
        }
        self.readers[at] = now.mark();
        Ok(())
    }

    /// Notes a write in a region.
    #[inline]
    pub(super) fn write(&mut self, at: usize, who: Actor, shared: bool) -> Result<(), Conflict> {
        for (marks, earlier_wrote) in [(&self.writers, true), (&self.readers, false)] {
            let earlier = Actor::of(marks[at]);
            if who.is_unordered_with(earlier, shared) {
                return Err(Conflict { earlier, earlier_wrote });
            }
        }
        self.writers[at] = who.mark();
        Ok(())
    }

    /// Notes a read by a lane: the vectorised loop's running number above, the lane plus one below.
    #[inline]
    pub(super) fn lane_read(&mut self, at: usize, who: u64) -> Result<(), ()> {
        let w = self.lane_writers[at];
        if w != who && w >> 32 == who >> 32 {
            return Err(());
        }
        let r = self.lane_readers[at];
        self.lane_readers[at] = if r != who && r >> 32 == who >> 32 { r | u64::from(MANY) } else { who };
        Ok(())
    }

    /// Notes a write by a lane.
    #[inline]
    pub(super) fn lane_write(&mut self, at: usize, who: u64) -> Result<(), ()> {
        for old in [self.lane_writers[at], self.lane_readers[at]] {
            if old != who && old >> 32 == who >> 32 {
                return Err(());
            }
        }
        self.lane_writers[at] = who;
        Ok(())
    }

    /// A buffer is made anew: what happened to its elements before happened to other memory.
    pub(super) fn forget_lanes(&mut self, elements: std::ops::Range<usize>) {
        if !self.lane_writers.is_empty() {
            self.lane_writers[elements.clone()].fill(0);
            self.lane_readers[elements].fill(0);
        }
    }
}

/// A party of a race in words.
pub(super) fn describe(who: Actor, wrote: bool, launch: Option<[i64; 3]>) -> String {
    let verb = if wrote { "written" } else { "read" };
    let part = |x: u32| if x == MANY { "several".to_string() } else { x.to_string() };
    match launch {
        Some([x, y, _]) if who.thread != MANY => {
            let t = i64::from(who.thread);
            let (tx, ty, tz) = (t % x, t / x % y, t / (x * y));
            format!("{verb} by thread ({tx}, {ty}, {tz}) of block {}", part(who.block))
        }
        Some(_) => format!("{verb} by several threads of block {}", part(who.block)),
        None if who.thread == 0 => format!("{verb} by parallel iteration {}", part(who.block)),
        None => format!(
            "{verb} by iteration {} of parallel iteration {}",
            part(who.thread.wrapping_sub(1)),
            part(who.block)
        ),
    }
}
