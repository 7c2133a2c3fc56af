//! What the blocks of a cluster do to each other's memory.
//!
//! Shared memory is there as long as its block is: a block may end only when one of its threads knows of everything that
//! others have done to its memory, and nothing may be done to it afterwards. *(CUDA C++ Programming Guide, "Distributed
//! Shared Memory".)*

use super::order::ActorId;
use std::collections::BTreeMap;

/// The blocks of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remote(Vec<Block>);

#[derive(Clone, Debug)]
struct Block {
    /// Threads that have not ended.
    threads: usize,
    /// The last step of each actor of another block that reached this one and that no thread which has ended knew of.
    open: BTreeMap<ActorId, u32>,
}

impl Remote {
    pub(crate) fn new(blocks: usize, threads: usize) -> Remote {
        Remote(vec![Block { threads, open: BTreeMap::new() }; blocks])
    }

    /// An actor's step reaches the memory of a block; `false` if that has ended.
    pub(crate) fn reach(&mut self, rank: usize, actor: ActorId, step: u32) -> bool {
        let block = &mut self.0[rank];
        let known = block.open.entry(actor).or_insert(step);
        *known = step.max(*known);
        block.threads > 0
    }

    /// A thread of a block ends, with this knowledge; an actor whose step nobody waited for, if it is the last thread.
    pub(crate) fn end(&mut self, rank: usize, clock: &[u32]) -> Option<ActorId> {
        let block = &mut self.0[rank];
        block.threads -= 1;
        block.open.retain(|actor, step| clock[*actor as usize] < *step);
        block.open.keys().next().copied().filter(|_| block.threads == 0)
    }
}
