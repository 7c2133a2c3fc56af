//! What the threads of a cluster have between them.

use super::program::{Launch, Program};
use crate::analysis::mbarrier::Mbarrier;
use crate::analysis::order::{ActorId, Order, Role, Sizes};
use crate::analysis::remote::Remote;
use crate::ir::Scope;

/// The order of what they do, and their mbarriers.
pub(super) struct Cluster {
    pub(super) order: Order,
    pub(super) mbarriers: Vec<Mbarrier>,
    pub(super) remote: Remote,
    /// First mbarrier of each buffer, in the block with rank 0.
    pub(super) first: Vec<usize>,
    /// Mbarriers and threads of a block.
    pub(super) per_block: usize,
    pub(super) threads: usize,
    pub(super) blocks: usize,
    pub(super) block: [i64; 3],
    pub(super) number: u32,
}

impl Cluster {
    pub(super) fn new(program: &Program, launch: &Launch, region: u32) -> Cluster {
        let buffers = &program.kernel.buffers;
        let mut first = vec![0; buffers.len()];
        let mut per_block = 0;
        for (i, b) in buffers.iter().enumerate() {
            if b.scope == Scope::Mbarrier {
                first[i] = per_block;
                per_block += program.buffers[i].size;
            }
        }
        let threads = launch.block.iter().product::<i64>() as usize;
        let blocks = launch.cluster.iter().product::<i64>() as usize;
        let warpgroups = threads.div_ceil(128) * blocks;
        let sizes = Sizes { threads: threads * blocks, lanes: 32, warpgroups, mbarriers: per_block * blocks };
        let order = Order::new(sizes, program.pool, region);
        Cluster {
            order,
            mbarriers: vec![],
            remote: Remote::default(),
            first,
            per_block,
            threads,
            blocks,
            block: launch.block,
            number: 0,
        }
    }

    /// Starts the next cluster.
    pub(super) fn start(&mut self, number: u32) {
        self.number = number;
        self.order.start(number);
        self.mbarriers = vec![Mbarrier::default(); self.per_block * self.blocks];
        self.remote = Remote::new(self.blocks, self.threads);
    }

    /// The number of a thread's warpgroup.
    pub(super) fn warpgroup(&self, actor: usize, index: usize) -> usize {
        actor / self.threads * self.threads.div_ceil(128) + index / 128
    }

    /// A thread in words.
    pub(super) fn thread_name(&self, actor: usize) -> String {
        let [x, y, _] = self.block;
        let t = (actor % self.threads) as i64;
        format!("thread ({}, {}, {}) of {}", t % x, t / x % y, t / (x * y), self.block_name(actor / self.threads))
    }

    pub(super) fn block_name(&self, rank: usize) -> String {
        format!("block {}", self.number as usize * self.blocks + rank)
    }

    /// An actor in words.
    pub(super) fn actor_name(&self, program: &Program, actor: ActorId) -> String {
        let unit = |i: usize, size: usize| {
            let units = self.threads.div_ceil(size);
            format!("{} of {}", i % units, self.block_name(i / units))
        };
        match self.order.role(actor) {
            Role::Thread(i) => self.thread_name(i),
            Role::Warp(i) => format!("warp {}", unit(i, 32)),
            Role::Products(i) => format!("an mma.warpgroup of warpgroup {}", unit(i, 128)),
            Role::Copies(i) => format!("a copy_async of {}", self.thread_name(i)),
            Role::Stores(i) => format!("a tensor_store of {}", self.thread_name(i)),
            Role::Loads(i) => format!("a tensor_load on {}", self.mbarrier_name(program, i)),
        }
    }

    /// An mbarrier in words.
    pub(super) fn mbarrier_name(&self, program: &Program, slot: usize) -> String {
        let (rank, i) = (slot / self.per_block.max(1), slot % self.per_block.max(1));
        let buffers = program.kernel.buffers.iter().enumerate();
        let found = buffers
            .filter(|(_, b)| b.scope == Scope::Mbarrier)
            .find(|(b, _)| (self.first[*b]..self.first[*b] + program.buffers[*b].size).contains(&i));
        let name = found.map_or(String::new(), |(b, buffer)| format!("{}[{}]", buffer.name, i - self.first[b]));
        if self.blocks > 1 { format!("{name} of {}", self.block_name(rank)) } else { name }
    }
}
