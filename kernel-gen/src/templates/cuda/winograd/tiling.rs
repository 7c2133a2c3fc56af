//! How outputs are cut into tiles, and where a tile is.

use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, Expr, VarId};
use crate::templates::cuda::guards::or_zero;
use crate::templates::cuda::model::ceil_div;
use crate::workload::Conv2d;

/// Rows and columns of the filter.
pub(super) const TAPS: i64 = 3;

/// A convolution whose outputs are cut into tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiling {
    pub(super) c: Conv2d,
    /// Outputs of a tile along each dimension.
    pub(super) m: i64,
}

impl Tiling {
    /// Inputs of a tile along each dimension, and as many products.
    pub(super) fn t(&self) -> i64 {
        self.m + TAPS - 1
    }

    /// Tiles of an image along rows (0) or columns (1).
    pub(super) fn tiles(&self, dim: usize) -> i64 {
        ceil_div(if dim == 0 { self.c.oh() } else { self.c.ow() }, self.m)
    }

    /// Tiles of an image.
    pub(super) fn image_tiles(&self) -> i64 {
        self.tiles(0) * self.tiles(1)
    }

    /// The input at a row and a column of a tile: image and channel in `x`, zero in the padding and where `exists` fails.
    pub(super) fn pixel(
        &self,
        x: BufferId,
        [image, ci]: [Expr; 2],
        place: &Place,
        within: [i64; 2],
        exists: Option<Expr>,
    ) -> Expr {
        let c = &self.c;
        let along = |dim: usize| {
            let (size, shift) = ([c.h, c.w][dim], within[dim] - c.padding[dim]);
            let at = place.corner[dim] + shift;
            // From the first tile's place to the last one's.
            let all = shift..(self.tiles(dim) - 1) * self.m + shift + 1;
            let meets = all.start < 0 || all.end > size;
            (at.clone(), meets.then(|| KernelBuilder::between(&at, 0, size)))
        };
        let ((row, in_rows), (column, in_columns)) = (along(0), along(1));
        let value = Expr::load(x, vec![image, ci, row, column]);
        or_zero(Expr::all([exists, in_rows, in_columns].into_iter().flatten()), value)
    }
}

/// Where a tile is.
pub(super) struct Place {
    /// Its number, counted through all images.
    pub(super) tile: VarId,
    /// Its image.
    pub(super) image: VarId,
    /// Its first output row and column.
    pub(super) corner: [VarId; 2],
}

impl Place {
    /// Names what is known of the tile of a number.
    pub(super) fn of(b: &mut KernelBuilder, tiling: &Tiling, number: Expr) -> Place {
        let [down, across] = [0, 1].map(|dim| tiling.tiles(dim));
        let tile = b.let_("tile", number);
        let image = b.let_("image", Expr::from(tile).floor_div(down * across));
        let row = b.let_("first_row", Expr::from(tile).floor_div(across).floor_mod(down) * tiling.m);
        let column = b.let_("first_column", Expr::from(tile).floor_mod(across) * tiling.m);
        Place { tile, image, corner: [row, column] }
    }
}
