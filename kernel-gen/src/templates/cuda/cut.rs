//! How a product is cut into tiles of the output and steps of the reduction.

use super::model::ceil_div;
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Scope};
use crate::target::Cuda;

/// How an operand's tile lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Rows along the reduction: `tile x step` elements.
    ReductionFast,
    /// Rows along the output: `step x tile` elements.
    ReductionSlow,
}

/// A product as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// Products of the batch.
    pub batch: i64,
    /// Rows and columns.
    pub size: [i64; 2],
    /// The reduction's length.
    pub k: i64,
    /// How the left and the right operand lie.
    pub layouts: [Layout; 2],
}

/// The side of the smallest tiles.
const SMALLEST: i64 = 32;

/// Bytes of the narrowest copy of `cp.async`.
const NARROWEST: i64 = 4;

/// Whether pieces of `bytes` bytes are smaller than what `cp.async` copies. They then go through registers: loaded when the other
/// operand's copies are issued, and stored to the ring behind the step's products.
pub(super) fn is_narrow(bytes: i64) -> bool {
    bytes < NARROWEST
}

/// A product cut into tiles of the output and steps of the reduction.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// What is cut.
    pub whole: Whole,
    /// Rows and columns of a tile.
    pub tile: [i64; 2],
    /// Terms of a step.
    pub tile_k: i64,
    /// Slots of the ring.
    pub stages: i64,
    /// Blocks that share a reduction, and whether they are a cluster.
    pub(super) split: i64,
    pub(super) clustered: bool,
    /// Rows of tiles that are worked on at the same time.
    pub(super) group: i64,
    /// Warps of a block.
    pub(super) warps: i64,
    /// Neighbours of a row that a thread gives to a second launch at a time, and that this stores at a time.
    pub(super) given: i64,
    pub(super) stored: i64,
}

impl Cut {
    /// Tiles down and across.
    pub fn tiles(&self) -> [i64; 2] {
        [0, 1].map(|side| ceil_div(self.whole.size[side], self.tile[side]))
    }

    /// Threads of a block.
    pub fn threads(&self) -> i64 {
        self.warps * Cuda::WARP
    }

    /// Steps of a block.
    pub fn steps(&self) -> i64 {
        ceil_div(self.whole.k, self.tile_k * self.split)
    }

    /// The reduction's length with what the last steps have beyond it.
    pub fn padded_k(&self) -> i64 {
        self.steps() * self.split * self.tile_k
    }

    /// Tiles of all products of the batch.
    pub fn all_tiles(&self) -> i64 {
        self.whole.batch * self.tiles().iter().product::<i64>()
    }

    /// Blocks of the grid.
    pub fn blocks(&self) -> i64 {
        self.all_tiles() * self.split
    }

    /// Time in microseconds that the sums of all parts take through the L2 cache, once; `bytes_per_clock` is what one multiprocessor
    /// gets of it.
    pub(super) fn parts_us(&self, gpu: &Cuda, bytes_per_clock: f64) -> f64 {
        let Whole { batch, size: [rows, columns], .. } = self.whole;
        let bytes = 4.0 * (batch * rows * columns * self.split) as f64;
        bytes / (gpu.sm_count as f64 * bytes_per_clock * gpu.clock_mhz.max(1) as f64)
    }

    /// Elements between rows of the sums that another launch adds up.
    pub(super) fn partial_pitch(&self) -> i64 {
        ceil_div(self.whole.size[1], self.given) * self.given
    }

    /// Whether no part of it is for nothing, and a grid holds it.
    pub(super) fn suits(&self, gpu: &Cuda) -> bool {
        let Cut { whole: Whole { batch, size, k, .. }, tile, tile_k, split, .. } = *self;
        (0..2).all(|side| tile[side] == SMALLEST || tile[side] < 2 * size[side])
            && tile_k * split < k + tile_k
            && (split - 1) * self.steps() * tile_k < k
            && self.stages <= self.steps().max(2)
            && (self.group == 1 || self.group <= self.tiles()[0])
            && self.tiles().iter().product::<i64>() * split <= gpu.grid_dim[0]
            && batch <= gpu.grid_dim[1]
    }

    /// Allocates the ring: for each operand `stages` slots of `[lines, elements of a line]`.
    pub(super) fn ring(&self, b: &mut KernelBuilder, types: [DType; 2], lines: [[i64; 2]; 2]) -> [BufferId; 2] {
        let names = ["left_tile", "right_tile"];
        [0, 1].map(|side| {
            let [count, pitch] = lines[side];
            b.alloc(names[side], types[side], &[self.stages, count, pitch], Scope::Shared)
        })
    }
}
