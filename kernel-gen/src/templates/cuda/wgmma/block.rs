//! What a product says of its tiles, what brings their operands, and the block that multiplies them.

use super::apart::Apart;
use super::plan::Sizes;
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, Expr, VarId};
use crate::templates::cuda::guards::below;
use crate::templates::cuda::ring::Place;
use crate::workload::operands::Operands;
use crate::workload::{Param, Workload};

/// A box of a tensor in global memory.
pub(super) struct Box {
    /// Its first element; outside of the tensor are zeros.
    pub(super) origin: Vec<Expr>,
    /// How many elements are taken along each dimension.
    pub(super) extents: Vec<i64>,
    /// Their distances; empty where all are 1.
    pub(super) steps: Vec<i64>,
}

/// Where an element of a tile belongs.
pub(super) struct Element {
    /// Its index in the output.
    pub(super) index: Vec<Expr>,
    /// Its output channel.
    pub(super) channel: Expr,
    /// The condition that it exists; none where tiles fit exactly.
    pub(super) exists: Option<Expr>,
}

impl Element {
    /// The element at coordinates, the channel last. Each comes with the output's extent and the tile's extent along it.
    pub(super) fn new<const N: usize>(at: [(Expr, i64, i64); N]) -> Element {
        let exists = Expr::all(at.iter().filter_map(|(index, size, tile)| below(index.clone(), *size, *tile)));
        let index: Vec<Expr> = at.into_iter().map(|(index, ..)| index).collect();
        Element { channel: index[N - 1].clone(), index, exists }
    }
}

/// A matrix product as its tiles see it. Coordinates of a tile are whatever the product makes of them.
pub(super) trait Product {
    /// What is computed.
    fn workload(&self) -> &Workload;

    /// The shape in which the kernel takes a parameter.
    fn shape(&self, param: &Param) -> Vec<i64> {
        param.shape.clone()
    }

    /// Number of output tiles.
    fn tiles(&self) -> i64;

    /// The number of blocks is a multiple of this: tiles so far apart have the same columns.
    fn column_period(&self) -> i64 {
        1
    }

    /// Sets up what brings a tile's operands into shared memory.
    fn feed<'f>(&'f self, b: &mut KernelBuilder, block: &Block<'_>) -> std::boxed::Box<dyn Feed + 'f>;

    /// The coordinates of a tile: of the block `rank` of the cluster that works on item `item`. Without clusters an item
    /// is a tile, and the rank is zero.
    fn place(&self, b: &mut KernelBuilder, item: VarId, rank: &Expr) -> Vec<Expr>;

    /// Where an element of the tile belongs.
    fn element(&self, place: &[Expr], row: Expr, column: Expr) -> Element;

    /// Where `rows` rows from `row` on belong, a multiple of their number, of `columns` columns from `column` on.
    fn piece(&self, place: &[Expr], row: Expr, column: Expr, rows: i64, columns: i64) -> Box;
}

/// What is done behind each step of a consumer; it gets how many steps that was.
pub(super) type Behind<'a> = dyn Fn(&mut KernelBuilder, i64) + 'a;

/// A tile's last step, whose products are under way.
pub(super) struct UnderWay {
    /// Steps that there were before the tile.
    pub(super) start: VarId,
    /// Where its sums are, if not with the tile's.
    pub(super) apart: Option<Apart>,
}

/// What brings the operands of tiles into shared memory, slot by slot, and multiplies them from there. Producer and
/// consumers go through the same steps.
pub(super) trait Feed {
    /// Where this thread is.
    fn place(&self) -> Place;

    /// The producer, before its first tile.
    fn begin_producing(&self, _: &mut KernelBuilder, _: &Block<'_>) {}

    /// A consumer, before its first tile.
    fn begin_consuming(&self, _: &mut KernelBuilder) {}

    /// The producer has a tile's operands brought, each into a slot when that is free.
    fn produce(&self, b: &mut KernelBuilder, block: &Block<'_>, tile: &[Expr]);

    /// A consumer multiplies its rows of a tile, from the row `first` on. Returns what [`Feed::finish`] wants.
    fn consume(
        &self,
        b: &mut KernelBuilder,
        acc: BufferId,
        tile: &[Expr],
        first: &Expr,
        behind: &Behind<'_>,
    ) -> Option<UnderWay>;

    /// After a consumer's last step of a tile: its products are done, and all slots are given back.
    fn finish(&self, b: &mut KernelBuilder, acc: BufferId, last: Option<UnderWay>);

    /// The slots of another consumer's tile go by.
    fn pass(&self, b: &mut KernelBuilder, tile: &[Expr]);
}

/// The threads of a block, and what they share.
pub(super) struct Block<'p> {
    pub(super) product: &'p dyn Product,
    pub(super) params: Operands,
    pub(super) sizes: Sizes,
    /// Pieces of output that a consumer has in shared memory.
    pub(super) buffers: i64,
    /// This thread, and its block, or cluster, in the grid.
    pub(super) thread: VarId,
    pub(super) index: VarId,
    /// Its block's rank in the cluster.
    pub(super) rank: Expr,
}

impl Block<'_> {
    /// The shape in which the kernel takes the output.
    pub(super) fn output_shape(&self) -> Vec<i64> {
        let params = self.product.workload().params();
        params.last().map_or(vec![], |output| self.product.shape(output))
    }
}
