//! The order in which blocks go through tiles, and tiles through their reduction.

use crate::ir::builder::KernelBuilder;
use crate::ir::{Expr, VarId};
use crate::templates::cuda::ceil_div;

/// What there is to go through. Producers and consumers go through the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    /// Tiles of the output, and how many of them stand side by side in a row of tiles.
    pub(super) tiles: i64,
    pub(super) columns: i64,
    /// Taps along rows and columns.
    pub(super) taps: [i64; 2],
    /// Steps of a tap.
    pub(super) chunks: i64,
}

impl Walk {
    /// Visits the tiles of block `first` of `blocks`: the numbers of its row tile and its column tile. Columns go fastest, so
    /// that blocks which run at the same time share pixels.
    pub(super) fn tiles(
        &self,
        b: &mut KernelBuilder,
        first: VarId,
        blocks: i64,
        body: &mut dyn FnMut(&mut KernelBuilder, [VarId; 2]),
    ) {
        let Walk { tiles, columns, .. } = *self;
        b.for_("round", ceil_div(tiles, blocks), |b, round| {
            let item = b.let_("item", round * blocks + first);
            let run = |b: &mut KernelBuilder| {
                // The remainder changes nothing, and says that there are no more tiles than these.
                let row = b.let_("row_tile", Expr::from(item).floor_div(columns).floor_mod(tiles / columns));
                let column = b.let_("column_tile", Expr::from(item).floor_mod(columns));
                body(b, [row, column]);
            };
            b.when((tiles % blocks != 0).then(|| Expr::from(item).lt(tiles)), run);
        });
    }

    /// The steps of a tile: the taps along each dimension of which `meets` holds, and the chunk of the reduction.
    pub(super) fn steps(
        &self,
        b: &mut KernelBuilder,
        meets: &dyn Fn(usize, VarId) -> Option<Expr>,
        body: &mut dyn FnMut(&mut KernelBuilder, [VarId; 2], VarId),
    ) {
        let [kh, kw] = self.taps;
        b.for_("kh", kh, |b, y| {
            b.when(meets(0, y), |b| {
                b.for_("kw", kw, |b, x| {
                    b.when(meets(1, x), |b| {
                        b.for_("chunk", self.chunks, |b, chunk| body(b, [y, x], chunk));
                    });
                });
            });
        });
    }

    /// All steps of all taps.
    pub(super) fn all_steps(&self, b: &mut KernelBuilder, body: &mut dyn FnMut(&mut KernelBuilder, [VarId; 2], VarId)) {
        self.steps(b, &|_, _| None, body);
    }
}
