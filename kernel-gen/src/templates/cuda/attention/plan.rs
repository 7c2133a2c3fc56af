//! The knobs of attention with `mma.sync`, and the rows and keys that a block has by them.

use super::rows;
use crate::target::Cuda;
use crate::templates::cuda::family::knobs;
use crate::templates::cuda::model::ceil_div;
use crate::workload::Attention;

/// Rows, columns and depth of a product of a warp.
pub(super) const TILE: i64 = 16;
/// Elements of 16 bytes, by which rows in shared memory are longer than they need be, so that neighbours lie in different banks.
pub(super) const PAD: i64 = 8;
/// Parts of a product whose right operands are in registers at the same time.
pub(super) const PAIR: i64 = 2;
/// Registers of a thread beside operands and sums.
pub(super) const OTHER_REGISTERS: i64 = 40;
/// Most elements of a key or of a value: sums of a warp's rows have to fit its registers.
pub(super) const WIDEST: i64 = 256;

/// Why no config fits, as half a sentence.
pub(super) fn too_large(of: &Attention) -> String {
    format!("{} heads of {} queries are too many for a grid", of.b * of.heads, of.m)
}

/// Whether a grid holds `tiles` blocks of each head.
pub(super) fn fits_grid(of: &Attention, tiles: i64, gpu: &Cuda) -> bool {
    of.b * of.heads <= gpu.grid_dim[1] && tiles <= gpu.grid_dim[0]
}

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Warps of a block.
        pub(super) warps: i64 = "warps" in [1, 2, 4, 8];
        /// Times 16 queries of a warp.
        pub(super) rows: i64 = "rows" in [1, 2];
        /// Keys of a step.
        pub(super) keys: i64 = "keys" in [16, 32, 64, 128];
        /// Slots of the ring.
        pub(super) stages: i64 = "stages" in [1, 2, 3, 4];
    }
}

/// Attention cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub(super) of: Attention,
    pub(super) sizes: Sizes,
}

impl Plan {
    /// Elements of a key and of a value in shared memory, with the zeros that fill up a product.
    pub(super) fn widths(&self) -> [i64; 2] {
        [self.of.d, self.of.dv].map(|n| ceil_div(n, TILE) * TILE)
    }

    /// Queries of a block.
    pub(super) fn block_rows(&self) -> i64 {
        TILE * self.sizes.rows * self.sizes.warps
    }

    /// Blocks of a head.
    pub(super) fn tiles(&self) -> i64 {
        ceil_div(self.of.m, self.block_rows())
    }

    /// Steps through all keys.
    pub(super) fn steps(&self) -> i64 {
        ceil_div(self.of.n, self.sizes.keys)
    }

    pub(super) fn threads(&self) -> i64 {
        self.sizes.warps * Cuda::WARP
    }

    pub(super) fn registers(&self) -> i64 {
        let Sizes { rows, keys, .. } = self.sizes;
        let [d, dv] = self.widths();
        let queries = rows * d / 4;
        let (scores, weights, sums) = (rows * keys / 2, rows * keys / 4, rows * dv / 2);
        queries + scores.max(weights + PAIR * dv / 4) + weights + sums + PAIR * keys / 4 + OTHER_REGISTERS
    }

    /// Registers that all arrays of a thread take, the most that it may have of them.
    pub(super) fn arrays(&self) -> i64 {
        let Sizes { rows, keys, .. } = self.sizes;
        let [d, dv] = self.widths();
        let operands = rows * d / 4 + PAIR * keys / 4 + rows * keys / 4 + PAIR * dv / 4;
        operands + rows * (keys + dv) / 2 + rows::State::registers(2 * rows)
    }

    pub(super) fn shared_bytes(&self) -> i64 {
        let Sizes { keys, stages, .. } = self.sizes;
        let [d, dv] = self.widths().map(|n| n + PAD);
        2 * (self.block_rows() * d + stages * keys * (d + dv))
    }
}
