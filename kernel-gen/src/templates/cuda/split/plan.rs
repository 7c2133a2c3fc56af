//! The knobs of products in parts, and a product as they cut it up.

use super::block::Cut;
use super::parts::{DEPTH, Parts};
use crate::ir::DType;
use crate::templates::cuda::family::knobs;
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::source::{Fast, Source};
use crate::templates::cuda::warpgroups::WARPGROUP;

/// Threads that bring pixels.
pub(super) const PRODUCERS: i64 = WARPGROUP;
/// Registers of a consumer beside sums and operands.
const OTHER_REGISTERS: i64 = 48;
/// The widths of tiles.
pub(super) const BN: [i64; 9] = [32, 48, 64, 80, 96, 112, 128, 192, 256];

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Consumer warpgroups.
        pub(super) consumers: i64 = "consumers" in [1, 2, 3];
        /// Blocks of 64 rows of each.
        pub(super) row_blocks: i64 = "row_blocks" in [1, 2];
        /// Columns of a tile.
        pub(super) bn: i64 = "bn" in BN;
        /// Slots of the ring.
        pub(super) stages: i64 = "stages" in [3, 4, 5, 6, 8];
        /// Steps whose pixels are under way while those before them are waited for.
        pub(super) lag: i64 = "lag" in [1, 2, 3];
    }
}

impl Sizes {
    /// Rows of a tile.
    pub(super) fn bm(&self) -> i64 {
        64 * self.row_blocks * self.consumers
    }
}

/// A product cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub(super) source: Source,
    pub(super) sizes: Sizes,
    /// Parts of each element.
    pub(super) parts: Parts,
}

impl Plan {
    /// The product in tiles and steps.
    pub(super) fn cut(&self) -> Cut {
        let (Plan { source, sizes, parts }, registers) = (*self, self.shares());
        let (row_tiles, parts) = (ceil_div(source.rows(), sizes.bm()), parts.count());
        Cut { source, row_tiles, bn: sizes.bn, depth: DEPTH, parts, consumers: sizes.consumers, registers }
    }

    /// Elements in shared memory between the terms of the reduction where rows go faster, and between rows where terms do: no
    /// two threads that load at once meet in a bank.
    pub(super) fn pitch(&self) -> i64 {
        match (self.source.fast(), self.parts.dtype()) {
            // A warp's loads are four neighbouring terms of eight rows,
            (Fast::Rows, DType::F32) => self.sizes.bm() + 8,
            // or every other one of eight.
            (Fast::Rows, _) => self.sizes.bm() + 4,
            // The swizzle keeps eight rows apart whose threads load 16 bytes of each,
            (Fast::Reduction, DType::F32) => DEPTH,
            // but not four rows whose threads load 32, as half a warp does.
            (Fast::Reduction, _) => DEPTH + 8,
        }
    }

    /// Bytes of shared memory.
    pub(super) fn shared_bytes(&self) -> i64 {
        let lines = match self.source.fast() {
            Fast::Rows => DEPTH,
            Fast::Reduction => self.sizes.bm(),
        };
        let right = self.parts.count() * self.parts.bytes() * DEPTH * self.sizes.bn;
        let slot = 4 * lines * self.pitch() + right + 16;
        // Up to 1024 bytes before the first slot, which must be aligned to that, and as many before the second buffer.
        self.sizes.stages * slot + 2048
    }

    /// Registers that a thread of the producers and of the consumers asks for; all have enough from the start in a block of
    /// 256.
    pub(super) fn shares(&self) -> Option<[u32; 2]> {
        match (self.sizes.consumers, self.source.fast()) {
            (1, _) => None,
            // Producers that copy terms side by side have many addresses, and spill with fewer.
            (2, Fast::Reduction) => Some([88, 208]),
            // Three parts of 16 bits take less than two of 32.
            (2, Fast::Rows) if self.parts == Parts::ThreeBf16 => Some([88, 208]),
            (2, Fast::Rows) => Some([56, 224]),
            _ => Some([56, 152]),
        }
    }

    /// Registers of a consumer, as far as they can be told beforehand.
    pub(super) fn registers(&self) -> i64 {
        let Sizes { row_blocks, bn, .. } = self.sizes;
        let added = if self.parts.count() > 1 { bn / 2 } else { 0 };
        row_blocks * bn / 2 + added + self.parts.registers() + OTHER_REGISTERS
    }
}

/// A product in the parts that a class asks for.
#[derive(Clone, Copy)]
pub struct Problem {
    pub(super) source: Source,
    pub(super) parts: Parts,
}
