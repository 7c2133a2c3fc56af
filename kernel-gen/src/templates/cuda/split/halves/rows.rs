//! The rows of a tile: a box of output pixels, so that the copy engine fetches what a step multiplies of them at once.

use crate::ir::builder::KernelBuilder;
use crate::ir::{Expr, VarId};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::source::{Pixel, Source};
use crate::templates::cuda::taps::{self, MOST_BOX};

/// Rows that the address map of a slot begins anew after.
const ALIGNED: i64 = 8;

/// See the module's text. Coordinates are those of [`Source::extents`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    source: Source,
    /// Rows of the tile along each coordinate.
    pub(super) own: [i64; 3],
    /// Rows that are fetched along the first one: with fewer than a tile has room for, the rest are those of the next tile.
    fetched: i64,
}

impl Rows {
    /// Boxes with so many rows along the last two coordinates in tiles of `bm` rows.
    pub(super) fn of(source: Source, bm: i64, [middle, inner]: [i64; 2]) -> Rows {
        let outer = (bm / (middle * inner)).clamp(1, source.extents()[0]);
        Rows { source, own: [outer, middle, inner], fetched: ceil_div(bm, middle * inner) }
    }

    /// Extents of the box that is fetched.
    pub(super) fn extents(&self) -> [i64; 3] {
        let [_, middle, inner] = self.own;
        [self.fetched, middle, inner]
    }

    /// Rows of the tile.
    pub(super) fn count(&self) -> i64 {
        self.own.iter().product()
    }

    /// Rows that are fetched.
    pub(super) fn fetched(&self) -> i64 {
        self.extents().iter().product()
    }

    /// Rows of a slot.
    pub(super) fn room(&self) -> i64 {
        ceil_div(self.fetched(), ALIGNED) * ALIGNED
    }

    /// Tiles along each coordinate.
    pub(super) fn tiles(&self) -> [i64; 3] {
        let extents = self.source.extents();
        std::array::from_fn(|i| ceil_div(extents[i], self.own[i]))
    }

    /// Rows one behind the other in memory, where channels are apart.
    pub(super) fn run(&self) -> i64 {
        let [_, middle, inner] = self.source.extents();
        let [_, between, inside] = self.own;
        if inside < inner { inside } else { inside * between.min(middle) }
    }

    /// Whether the copy engine takes the box.
    pub(super) fn are_one_box(&self) -> bool {
        let strides = self.source.strides();
        taps::is_one_box(self.extents(), strides)
    }

    /// The first row of a tile.
    pub(super) fn first(&self, b: &mut KernelBuilder, tile: VarId) -> [Expr; 3] {
        let [outer, middle, inner] = self.own;
        let [_, tiles_between, tiles_inside] = self.tiles();
        let rest = Expr::from(tile).floor_div(tiles_inside);
        let last = b.let_("inner_tile", Expr::from(tile).floor_mod(tiles_inside));
        let between = b.let_("middle_tile", rest.clone().floor_mod(tiles_between));
        let first = b.let_("outer_tile", rest.floor_div(tiles_between));
        [first * outer, between * middle, last * inner]
    }

    /// Row `number` of the tile that begins at `first`, and the condition that there is one.
    pub(super) fn row(&self, first: &[Expr; 3], number: Expr) -> (Pixel, Option<Expr>) {
        let [_, middle, inner] = self.own;
        let within = [
            number.clone().floor_div(middle * inner),
            number.clone().floor_div(inner).floor_mod(middle),
            number.clone().floor_mod(inner),
        ];
        let at: [Expr; 3] = std::array::from_fn(|i| first[i].clone() + within[i].clone());
        let extents = self.source.extents();
        // The rows of the next tile may lie beyond the last one, wherever this tile ends.
        let more = self.own[0] < self.fetched;
        let beyond = |i: &usize| extents[*i] % self.own[*i] != 0 || *i == 0 && more;
        let mut exists: Vec<Expr> = (0..3).filter(beyond).map(|i| at[i].clone().lt(extents[i])).collect();
        if more {
            exists.push(number.lt(self.count()));
        }
        (self.source.row(at), Expr::all(exists))
    }
}

/// Sides of boxes along a coordinate: powers of two up to the first that covers it, itself and its half.
pub(super) fn sides(extent: i64) -> Vec<i64> {
    let powers = (0..=8).map(|e| 1 << e).filter(|n| *n < 2 * extent);
    let whole = [extent, extent / 2].into_iter().filter(|n| (1..=MOST_BOX).contains(n) && extent % n == 0);
    let mut sides: Vec<i64> = powers.chain(whole).collect();
    sides.sort_unstable();
    sides.dedup();
    sides
}
