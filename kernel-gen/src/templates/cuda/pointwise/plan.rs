//! The knobs of products of pixels in registers, and a product as they cut it up.

use crate::target::Cuda;
use crate::templates::cuda::family::{Store, knobs};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::product::widest;
use crate::templates::cuda::source::Source;

/// Rows of a tile.
pub(super) const ROWS: i64 = 16;
/// Terms of the reduction that a load of four lanes brings, and of one product.
pub(super) const CHUNK: i64 = crate::ir::LANE_COLUMNS;
pub(super) const DEPTH: i64 = 16;
/// Elements of 16 bytes.
pub(super) const VECTOR: i64 = 8;
/// Most terms of a reduction: a lane holds a quarter of them for each of two rows, two in a register.
pub(super) const MOST_DEPTH: i64 = 512;
/// Most columns: with more, pixels are read too often.
pub(super) const MOST_COLUMNS: i64 = 192;
/// The widths of tiles.
pub(super) const BN: [i64; 6] = [16, 32, 48, 64, 80, 96];
/// Warps of a block.
pub(super) const WARPS: [i64; 7] = [1, 2, 4, 6, 8, 12, 16];
/// Registers of a thread beside sums, rows and weights.
const OTHER_REGISTERS: i64 = 32;

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Output columns of a block.
        pub(super) bn: i64 = "bn" in BN;
        /// Warps of a block.
        pub(super) warps: i64 = "warps" in WARPS;
        /// Blocks of a multiprocessor.
        pub(super) resident: i64 = "resident" in [1, 2, 3, 4, 5, 6, 8, 10, 12, 16];
        /// Whether the next tile's rows come while this one's are multiplied.
        pub(super) ahead: bool = "ahead" in [0, 1];
        pub(super) store: Store = "store" in Store::ALL;
    }
}

impl Sizes {
    /// Whether sums pass shared memory on their way.
    pub(super) fn staged(&self) -> bool {
        self.store == Store::Rows
    }

    pub(super) fn threads(&self) -> i64 {
        self.warps * Cuda::WARP
    }
}

/// A product cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub(super) source: Source,
    pub(super) out_bytes: i64,
    /// Multiprocessors.
    pub(super) units: i64,
    pub(super) sizes: Sizes,
}

impl Plan {
    /// Loads of a row: the last one may reach beyond the row, where it brings zeros.
    pub(super) fn chunks(&self) -> i64 {
        ceil_div(self.source.depth(), CHUNK)
    }

    /// Tiles of sixteen rows.
    pub(super) fn tiles(&self) -> i64 {
        ceil_div(self.source.rows(), ROWS)
    }

    pub(super) fn column_tiles(&self) -> i64 {
        ceil_div(self.source.columns(), self.sizes.bn)
    }

    /// Blocks of a tile of columns.
    pub(super) fn blocks(&self) -> i64 {
        self.tiles().min(self.units * self.sizes.resident)
    }

    /// Tiles that a warp goes through, one after the other.
    pub(super) fn turns(&self) -> i64 {
        ceil_div(self.tiles(), self.blocks() * self.sizes.warps)
    }

    /// Elements between rows of weights in shared memory: eight more than there are, so that the eight rows that a matrix
    /// of `ldmatrix` has lie in different banks.
    pub(super) fn weight_pitch(&self) -> i64 {
        self.chunks() * CHUNK + VECTOR
    }

    /// The shape of the packed weights.
    pub(super) fn packed_shape(&self) -> [i64; 3] {
        [self.column_tiles(), self.sizes.bn, self.weight_pitch()]
    }

    /// Elements of the output that a lane stores at a time by way of shared memory: 16 bytes, or as many as divide a row.
    pub(super) fn piece(&self) -> i64 {
        widest(self.source.columns(), self.out_bytes)
    }

    /// Elements between rows of sums in shared memory: 16 bytes more than there are.
    pub(super) fn sum_pitch(&self) -> i64 {
        self.sizes.bn + 16 / self.out_bytes
    }

    pub(super) fn shared_bytes(&self) -> i64 {
        let Sizes { bn, warps, .. } = self.sizes;
        let sums = if self.sizes.staged() { warps * ROWS * self.sum_pitch() * self.out_bytes } else { 0 };
        2 * bn * self.weight_pitch() + sums + 64
    }

    /// Registers of a thread, as far as they can be told beforehand.
    pub(super) fn registers(&self) -> i64 {
        let Sizes { bn, .. } = self.sizes;
        self.chunks() * CHUNK / 4 + bn / 2 + bn / 4 + OTHER_REGISTERS
    }
}
