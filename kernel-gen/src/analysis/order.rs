//! What is ordered before what in a cluster whose threads and engines run apart.
//!
//! Each *actor* counts its steps, and each thread knows for every actor up to which step what it did is ordered before
//! the thread's present (a vector clock; Lamport 1978, Mattern 1989). Actors are
//!
//! * the threads. A thread's step ends when it releases what it did, by arriving at an mbarrier or a barrier;
//! * each warp as one, for what its threads do together. When it is done, all of them know of it;
//! * the tensor cores of each warpgroup: their steps are the groups of `mma.warpgroup`, known after `wait mma`;
//! * the copies of each thread: the groups of `copy_async`, known to the thread after `wait copy`;
//! * the stores of each thread: the groups of `tensor_store`, of which `wait store` tells that they were *read*;
//! * each mbarrier: its steps are its phases, and what `tensor_load` writes in a phase is known to who waits for it.
//!
//! Asynchronous operations therefore take effect in memory at once, and whoever touches their elements without knowing
//! that they are done is reported: the reports do not depend on the order in which threads are run.
//!
//! The interpreter keeps this for each element of memory, and the verifier for each tile.

use crate::ir::Group;
use std::cell::Cell;

/// An actor's number.
pub(crate) type ActorId = u32;

/// What an actor is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Thread(usize),
    Warp(usize),
    /// Tensor cores of a warpgroup.
    Products(usize),
    /// `copy_async` of a thread.
    Copies(usize),
    /// `tensor_store` of a thread.
    Stores(usize),
    /// The copy engine, as it writes for an mbarrier.
    Loads(usize),
}

/// Threads of a cluster and mbarriers of its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) threads: usize,
    /// Threads of a warp: one where warps are looked at as a whole.
    pub(crate) lanes: usize,
    /// Warpgroups, the last of a block perhaps incomplete.
    pub(crate) warpgroups: usize,
    pub(crate) mbarriers: usize,
}

/// A step of an actor in a cluster of a launch. Those of other launches are ordered before, those of other clusters not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mark {
    region: u32,
    cluster: u32,
    pub(crate) actor: ActorId,
    pub(crate) step: u32,
}

/// Who read an element since it was written: steps that are not ordered with each other.
#[derive(Clone, Debug, Default)]
struct Readers {
    region: u32,
    cluster: u32,
    /// Whether other clusters read it, too.
    several: bool,
    latest: Option<(ActorId, u32)>,
    others: Vec<(ActorId, u32)>,
}

/// Who touches an element: one thread, or threads together; and the step that the touch belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agent {
    /// The first of neighbouring threads that all must know of what came before.
    pub(crate) first: usize,
    pub(crate) threads: usize,
    pub(crate) actor: ActorId,
    pub(crate) step: u32,
    /// Whether it reads memory past the fence of [`crate::ir::Gpu::FenceAsync`].
    pub(crate) engine: bool,
}

/// An earlier touch that a touch conflicts with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clash {
    /// `None` is another cluster.
    pub(crate) earlier: Option<ActorId>,
    pub(crate) earlier_wrote: bool,
    /// Whether they are ordered, and only the fence is missing.
    pub(crate) fence: bool,
}

/// The groups of one kind that an actor committed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Groups {
    pub(crate) committed: u32,
    /// Whether there are operations since.
    pub(crate) open: bool,
    /// Groups that were waited for.
    pub(crate) done: u32,
}

/// See the module's text.
pub(crate) struct Order {
    sizes: Sizes,
    actors: usize,
    /// For each thread, what it knows of each actor.
    clocks: Vec<u32>,
    warp_steps: Vec<u32>,
    /// Groups of the products of each warpgroup, then of the copies of each thread, then of its stores.
    groups: Vec<Groups>,
    /// For each thread, the steps that it fenced, and what it knew then of its copies and of its warp.
    fences: Vec<Vec<(u32, u32, u32)>>,
    region: u32,
    cluster: u32,
    writers: Vec<Mark>,
    readers: Vec<Readers>,
    /// The last step that many threads were found to know, and which threads. What is known is never forgotten.
    known: Cell<(usize, usize, ActorId, u32)>,
}

impl Order {
    /// For the clusters of one launch; `pool` is the number of elements of memory.
    pub(crate) fn new(sizes: Sizes, pool: usize, region: u32) -> Order {
        let t = sizes.threads;
        let (warps, warpgroups) = (t.div_ceil(sizes.lanes), sizes.warpgroups);
        let actors = t + warps + warpgroups + 2 * t + sizes.mbarriers;
        Order {
            sizes,
            actors,
            clocks: vec![0; t * actors],
            warp_steps: vec![0; warps],
            groups: vec![Groups::default(); warpgroups + 2 * t],
            fences: vec![vec![]; t],
            region,
            cluster: 0,
            writers: vec![Mark::default(); pool],
            readers: vec![Readers::default(); pool],
            known: Cell::default(),
        }
    }

    /// Starts a cluster: nothing in it happened yet.
    pub(crate) fn start(&mut self, cluster: u32) {
        self.cluster = cluster;
        self.known.take();
        self.clocks.fill(0);
        self.warp_steps.fill(0);
        self.groups.fill(Groups::default());
        self.fences.iter_mut().for_each(Vec::clear);
        for t in 0..self.sizes.threads {
            self.clocks[t * self.actors + t] = 1;
        }
    }

    /// What happened to these elements before happened to other memory.
    #[cfg(feature = "interp")]
    pub(crate) fn forget(&mut self, elements: std::ops::Range<usize>) {
        self.writers[elements.clone()].fill(Mark::default());
        self.readers[elements].fill(Readers::default());
    }

    fn base(&self, role: Role) -> (usize, usize) {
        let t = self.sizes.threads;
        let (warps, warpgroups) = (self.warp_steps.len(), self.sizes.warpgroups);
        match role {
            Role::Thread(i) => (0, i),
            Role::Warp(i) => (t, i),
            Role::Products(i) => (t + warps, i),
            Role::Copies(i) => (t + warps + warpgroups, i),
            Role::Stores(i) => (2 * t + warps + warpgroups, i),
            Role::Loads(i) => (3 * t + warps + warpgroups, i),
        }
    }

    pub(crate) fn actor(&self, role: Role) -> ActorId {
        let (base, i) = self.base(role);
        (base + i) as ActorId
    }

    pub(crate) fn role(&self, actor: ActorId) -> Role {
        let kinds: [fn(usize) -> Role; 6] =
            [Role::Thread, Role::Warp, Role::Products, Role::Copies, Role::Stores, Role::Loads];
        let last = kinds.iter().rev().find(|k| self.base(k(0)).0 <= actor as usize);
        let kind = last.unwrap_or(&kinds[0]);
        kind(actor as usize - self.base(kind(0)).0)
    }

    fn knows(&self, thread: usize, actor: ActorId) -> u32 {
        self.clocks[thread * self.actors + actor as usize]
    }

    /// Everything that a thread knows.
    pub(crate) fn clock(&self, thread: usize) -> &[u32] {
        &self.clocks[thread * self.actors..(thread + 1) * self.actors]
    }

    /// A clock that knows nothing.
    pub(crate) fn empty_clock(&self) -> Vec<u32> {
        vec![0; self.actors]
    }

    /// The thread learns what a clock knows.
    pub(crate) fn acquire(&mut self, thread: usize, clock: &[u32]) {
        let own = &mut self.clocks[thread * self.actors..(thread + 1) * self.actors];
        own.iter_mut().zip(clock).for_each(|(a, b)| *a = (*a).max(*b));
    }

    /// The thread learns of an actor's steps.
    pub(crate) fn learn(&mut self, thread: usize, actor: ActorId, step: u32) {
        let known = &mut self.clocks[thread * self.actors + actor as usize];
        *known = (*known).max(step);
    }

    /// A clock learns what the thread knows, and the thread's next step begins.
    pub(crate) fn release(&mut self, thread: usize, into: &mut [u32]) {
        into.iter_mut().zip(self.clock(thread)).for_each(|(a, b)| *a = (*a).max(*b));
        self.clocks[thread * self.actors + thread] += 1;
    }

    /// All of these threads come to know what any of them knows.
    pub(crate) fn join(&mut self, threads: &[usize]) {
        let mut all = self.empty_clock();
        threads.iter().for_each(|t| self.release(*t, &mut all));
        threads.iter().for_each(|t| self.acquire(*t, &all));
    }

    /// What a thread wrote is visible to the engines from here on.
    pub(crate) fn fence(&mut self, thread: usize) {
        let copies = self.knows(thread, self.actor(Role::Copies(thread)));
        let warp = self.knows(thread, self.actor(Role::Warp(thread / self.sizes.lanes)));
        let own = &mut self.clocks[thread * self.actors + thread];
        self.fences[thread].push((*own, copies, warp));
        *own += 1;
    }

    /// The groups that a thread or a warpgroup committed.
    pub(crate) fn groups(&mut self, kind: Group, i: usize) -> &mut Groups {
        let warpgroups = self.sizes.warpgroups;
        match kind {
            Group::Mma => &mut self.groups[i],
            Group::Copy => &mut self.groups[warpgroups + i],
            Group::Store => &mut self.groups[warpgroups + self.sizes.threads + i],
        }
    }

    /// Makes room for so many elements.
    pub(crate) fn grow(&mut self, elements: usize) {
        if elements > self.writers.len() {
            self.writers.resize(elements, Mark::default());
            self.readers.resize(elements, Readers::default());
        }
    }

    /// Whether anybody wrote the element.
    pub(crate) fn is_written(&self, at: usize) -> bool {
        self.writers[at].region == self.region
    }

    /// An ordinary touch by one thread.
    pub(crate) fn thread(&self, thread: usize) -> Agent {
        let actor = thread as ActorId;
        Agent { first: thread, threads: 1, actor, step: self.knows(thread, actor), engine: false }
    }

    /// The next thing that these threads, the first of which begins a warp, do as one.
    pub(crate) fn together(&mut self, first: usize, threads: usize) -> Agent {
        let warp = first / self.sizes.lanes;
        self.warp_steps[warp] += 1;
        Agent { first, threads, actor: self.actor(Role::Warp(warp)), step: self.warp_steps[warp], engine: false }
    }

    /// The threads that act together know that it is done.
    pub(crate) fn done(&mut self, agent: Agent) {
        for t in agent.first..agent.first + agent.threads {
            self.learn(t, agent.actor, agent.step);
        }
    }

    /// Whether the agent knows of a step; what one actor does asynchronously is done in order.
    fn covers(&self, agent: &Agent, actor: ActorId, step: u32) -> bool {
        if agent.threads == 1 {
            return self.knows(agent.first, actor) >= step;
        }
        let question = (agent.first, agent.threads, actor, step);
        if self.known.get() == question {
            return true;
        }
        let known = (agent.first..agent.first + agent.threads).all(|t| self.knows(t, actor) >= step);
        if known {
            self.known.set(question);
        }
        known
    }

    /// Whether the elements that an actor wrote last are known to be so to all of the agent's threads.
    pub(crate) fn knows_writer(&self, agent: &Agent, at: usize) -> Result<(), Clash> {
        let w = self.writers[at];
        if w.region != self.region || self.covers(agent, w.actor, w.step) {
            return Ok(());
        }
        Err(Clash { earlier: Some(w.actor), earlier_wrote: true, fence: false })
    }

    /// Whether the agent is the actor that wrote the element last.
    pub(crate) fn is_writer(&self, agent: &Agent, at: usize) -> bool {
        self.writers[at].region == self.region && self.writers[at].actor == agent.actor
    }

    /// The element's last writer, without any check.
    pub(crate) fn set_writer(&mut self, at: usize, agent: &Agent) {
        self.writers[at] = Mark { region: self.region, cluster: self.cluster, actor: agent.actor, step: agent.step };
    }

    /// Notes a read.
    pub(crate) fn read(&mut self, at: usize, agent: &Agent) -> Result<(), Clash> {
        let w = self.writers[at];
        if w.region == self.region {
            if w.cluster != self.cluster {
                return Err(Clash { earlier: None, earlier_wrote: true, fence: false });
            }
            self.knows_writer(agent, at)?;
            if agent.engine && !self.is_fenced(agent, w) {
                return Err(Clash { earlier: Some(w.actor), earlier_wrote: true, fence: true });
            }
        }
        let r = &self.readers[at];
        let now = (agent.actor, agent.step);
        if r.region == self.region && r.cluster == self.cluster {
            if r.latest == Some(now) {
                return Ok(());
            }
            let mut r = std::mem::take(&mut self.readers[at]);
            r.others.retain(|(a, s)| !self.covers(agent, *a, *s));
            r.others.extend(r.latest.filter(|(a, s)| !self.covers(agent, *a, *s)));
            r.latest = Some(now);
            self.readers[at] = r;
        } else {
            let several = r.region == self.region;
            let (region, cluster) = (self.region, self.cluster);
            self.readers[at] = Readers { region, cluster, several, latest: Some(now), others: vec![] };
        }
        Ok(())
    }

    /// Notes a write.
    pub(crate) fn write(&mut self, at: usize, agent: &Agent) -> Result<(), Clash> {
        let w = self.writers[at];
        if w.region == self.region {
            if w.cluster != self.cluster {
                return Err(Clash { earlier: None, earlier_wrote: true, fence: false });
            }
            self.knows_writer(agent, at)?;
        }
        let r = &self.readers[at];
        if r.region == self.region {
            if r.several || r.cluster != self.cluster {
                return Err(Clash { earlier: None, earlier_wrote: false, fence: false });
            }
            if let Some((a, _)) = r.others.iter().chain(&r.latest).find(|(a, s)| !self.covers(agent, *a, *s)) {
                return Err(Clash { earlier: Some(*a), earlier_wrote: false, fence: false });
            }
            self.readers[at] = Readers::default();
        }
        self.set_writer(at, agent);
        Ok(())
    }

    /// Whether what was written past no engine was fenced by its writer before the agent came to know of it.
    fn is_fenced(&self, agent: &Agent, w: Mark) -> bool {
        let fenced_by = |t: usize, reaches: &dyn Fn(&(u32, u32, u32)) -> bool| {
            let fences = &self.fences[t];
            fences.get(fences.partition_point(|f| !reaches(f))).is_some_and(|f| {
                let threads = agent.first..agent.first + agent.threads;
                threads.into_iter().all(|reader| self.knows(reader, t as ActorId) >= f.0)
            })
        };
        match self.role(w.actor) {
            Role::Thread(t) => fenced_by(t, &|f| f.0 >= w.step),
            Role::Copies(t) => fenced_by(t, &|f| f.1 >= w.step),
            // Each thread of a warp wrote a part.
            Role::Warp(i) => {
                let n = self.sizes.lanes;
                (i * n..i * n + n).all(|t| fenced_by(t, &|f| f.2 >= w.step))
            }
            Role::Products(_) | Role::Stores(_) | Role::Loads(_) => true,
        }
    }
}
