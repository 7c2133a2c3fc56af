//! The knobs of products in parts of `f16`, a product as they cut it up, and what lies between its launches.

use super::rows::{Rows, sides};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Scope};
use crate::target::Cuda;
use crate::templates::cuda::family::{Plan as _, knobs};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::source::Source;
use crate::templates::cuda::split::block::Cut;
use crate::templates::cuda::warpgroups;
use crate::workload::Workload;
use crate::workload::operands::Operands;

/// Terms of the reduction in one step: 128 bytes, the widest swizzle.
pub(super) const DEPTH: i64 = 64;
/// Why a workload of the class `local` has no such products.
pub(super) const NOT_LOCAL: &str = "weights of an output channel share a scale, so that an output's error depends on weights that it does \
                         not read, which the classes `strict` and `local` rule out";
/// Elements of 16 bytes, and how many of them a row of a step has.
pub(super) const VECTOR: i64 = 8;
pub(super) const VECTORS: i64 = DEPTH / VECTOR;
/// Pixels of a block that splits, which has one step's channels of them.
pub(super) const SPLIT_PIXELS: i64 = 64;
/// Parts of an element.
pub(super) const PARTS: i64 = 2;
/// What the second part is multiplied by.
pub(super) const REST: f64 = 2048.0;
/// What pixels are multiplied by.
pub(super) const SCALE: f64 = 8.0;
/// Between these the largest of a pixel's channels must be once it is scaled.
pub(super) const LEAST: f64 = 1.0 / (1 << 18) as f64;
pub(super) const MOST: f64 = 65504.0;
/// Registers of a consumer beside its sums.
const OTHER_REGISTERS: i64 = 30;
/// The widths of tiles.
pub(super) const BN: [i64; 8] = [32, 48, 64, 80, 96, 112, 128, 192];

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Consumer warpgroups.
        pub(super) consumers: i64 = "consumers" in [1, 2, 3];
        /// Columns of a tile.
        pub(super) bn: i64 = "bn" in BN;
        /// Sets of registers for sums: the total, what a step adds, and with 3 the small products.
        pub(super) sums: i64 = "sums" in [2, 3];
        /// Slots of the ring.
        pub(super) stages: i64 = "stages" in [2, 3, 4, 5, 6];
        /// Rows of a tile along the last two coordinates, as the pixels that there are allow.
        pub(super) sides: [i64; 2] = "middle" in [1], "inner" in [1];
    }
}

impl Sizes {
    /// The sizes that defaults are chosen from: as many slots as fit, up to 4.
    pub(super) fn sensible(source: Source, cuda: &Cuda) -> impl Iterator<Item = Sizes> {
        let [_, middle, inner] = source.extents();
        let (middle, inner) = (sides(middle), sides(inner));
        let boxes = middle.into_iter().flat_map(move |m| inner.clone().into_iter().map(move |i| [m, i]));
        boxes.flat_map(move |sides| {
            let tiles = [1, 2, 3].into_iter().flat_map(|consumers| BN.map(|bn| (consumers, bn)));
            tiles.flat_map(|tile| [2, 3].map(|sums| (tile, sums))).filter_map(move |((consumers, bn), sums)| {
                let with = |stages: i64| Sizes { consumers, bn, sums, stages, sides };
                (2..=4).rev().map(with).find(|sizes| Plan { source, sizes: *sizes }.fits(cuda))
            })
        })
    }

    /// Rows of a tile.
    pub(super) fn bm(&self) -> i64 {
        64 * self.consumers
    }
}

/// A product cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub(super) source: Source,
    pub(super) sizes: Sizes,
}

impl Plan {
    /// The product in tiles and steps.
    pub(super) fn cut(&self) -> Cut {
        let (Plan { source, sizes }, row_tiles) = (*self, self.rows().tiles().iter().product());
        let (registers, consumers) = (warpgroups::registers(sizes.consumers), sizes.consumers);
        Cut { source, row_tiles, bn: sizes.bn, depth: DEPTH, parts: PARTS, consumers, registers }
    }

    /// The rows of a tile.
    pub(super) fn rows(&self) -> Rows {
        Rows::of(self.source, self.sizes.bm(), self.sizes.sides)
    }

    /// Pixels of the left operand.
    pub(super) fn pixels(&self) -> i64 {
        self.source.inputs().iter().product()
    }

    /// Blocks that split pixels, for each step's channels.
    pub(super) fn splitting_blocks(&self) -> i64 {
        ceil_div(self.pixels(), SPLIT_PIXELS)
    }

    /// The number of a pixel of the left operand in memory.
    pub(super) fn number(&self, at: &[Expr; 3]) -> Expr {
        let [_, middle, inner] = self.source.inputs();
        let [first, second, third] = at.clone();
        (first * middle + second) * inner + third
    }

    /// Bytes of shared memory.
    pub(super) fn shared_bytes(&self) -> i64 {
        let slot = 2 * DEPTH * PARTS * (self.rows().room() + self.sizes.bn) + 16;
        // Up to 1024 bytes before each of the two buffers, which must be aligned to that.
        self.sizes.stages * slot + 2048
    }

    /// Registers of a consumer, as far as they can be told beforehand.
    pub(super) fn registers(&self) -> i64 {
        self.sizes.sums * self.sizes.bn / 2 + OTHER_REGISTERS
    }
}

/// What lies in global memory between the launches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workspace {
    /// Parts of the pixels: their coordinates, `PARTS`, and the channels in whole steps.
    pub(super) parts: BufferId,
    /// 1 where a pixel is out of range, else 0: `[chunks, pixels]`.
    pub(super) flags: BufferId,
    /// What a column's sums are multiplied by, since its weights are scaled: `[columns]`.
    pub(super) unscale: BufferId,
}

impl Workspace {
    pub(super) fn alloc(b: &mut KernelBuilder, plan: &Plan) -> Workspace {
        let (pixels, chunks) = (plan.splitting_blocks() * SPLIT_PIXELS, plan.cut().chunks());
        let columns = plan.cut().column_tiles() * plan.sizes.bn;
        Workspace {
            parts: b.alloc(
                "parts",
                DType::F16,
                &[plan.source.inputs().to_vec(), vec![PARTS, chunks * DEPTH]].concat(),
                Scope::Global,
            ),
            flags: b.alloc("flags", DType::F32, &[chunks, pixels], Scope::Global),
            unscale: b.alloc("unscale", DType::F32, &[columns], Scope::Global),
        }
    }
}

/// What all launches know.
pub(super) struct Context<'a> {
    pub(super) plan: &'a Plan,
    pub(super) w: &'a Workload,
    pub(super) params: Operands,
    pub(super) space: Workspace,
}

impl Context<'_> {
    /// The left operand, and the packed weights.
    pub(super) fn operands(&self) -> [BufferId; 2] {
        self.plan.source.operands().map(|name| self.params.get(name))
    }
}
