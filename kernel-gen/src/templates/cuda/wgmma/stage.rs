//! The shared memory by way of which sums leave by the copy engine.

use super::block::Block;
use super::plan::{ROW_BYTES, Sizes, Store};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, Expr, Gpu, Group, VarId};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::warpgroups::WARP;

/// Where sums wait for the copy engine: pieces of 64 rows of 128 bytes, or of 64 or 32 where a tile has no more columns; some for
/// each consumer.
pub(super) struct Stage {
    pub(super) buffer: BufferId,
    /// Columns of a piece, and bytes of its rows.
    pub(super) columns: i64,
    pub(super) row_bytes: i64,
    pub(super) thread: VarId,
}

impl Stage {
    /// Its memory, if the copy engine is to store.
    pub(super) fn make(b: &mut KernelBuilder, block: &Block<'_>) -> Option<Stage> {
        let (sizes, w) = (block.sizes, block.product.workload());
        let bytes = w.out_dtype.bytes() as i64;
        let enough = |row_bytes: &i64| sizes.bn * bytes >= *row_bytes;
        let row_bytes = [ROW_BYTES, ROW_BYTES / 2].into_iter().find(enough).unwrap_or(ROW_BYTES / 4);
        let columns = row_bytes / bytes;
        (sizes.store == Store::Tma).then(|| {
            let shape = [sizes.consumers, block.buffers, 64, columns];
            let buffer = b.alloc_swizzled("output_rows", w.out_dtype, &shape, row_bytes as u32);
            Stage { buffer, columns, row_bytes, thread: block.thread }
        })
    }

    /// Pieces of a consumer's rows of a tile.
    pub(super) fn pieces(&self, sizes: Sizes) -> impl Iterator<Item = Piece> + use<> {
        let columns = self.columns;
        (0..sizes.row_blocks).flat_map(move |h| {
            (0..ceil_div(sizes.bn, columns)).map(move |i| {
                let start = i * columns;
                Piece { h, start, columns: columns.min(sizes.bn - start) }
            })
        })
    }

    /// Done by the thread of each warp that talks to the engine.
    pub(super) fn one(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder)) {
        b.if_(Expr::from(self.thread).floor_mod(WARP).eq(0), body);
    }

    /// At the end: shared memory must stay until it has been read.
    pub(super) fn finish(&self, b: &mut KernelBuilder) {
        self.one(b, |b| b.gpu(Gpu::Wait(Group::Store, 0)));
    }
}

/// What is stored at a time of a consumer's rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// The row block.
    pub(super) h: i64,
    /// Its first column of the tile.
    pub(super) start: i64,
    /// How many it has: those of a row of shared memory, or what a tile has left.
    pub(super) columns: i64,
}
