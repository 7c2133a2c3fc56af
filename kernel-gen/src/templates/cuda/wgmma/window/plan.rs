//! The knobs of convolutions by windows, and what of the input and the weights a block has by them.

use crate::ir::{Expr, GROUP_ROWS};
use crate::target::Cuda;
use crate::templates::TemplateError;
use crate::templates::cuda::family::Plan;
use crate::templates::cuda::family::knobs;
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::wgmma::plan::{COLUMNS, ROW_BYTES, Room, Schedule, Sizes, Store, columns, multiplied};
use crate::templates::cuda::wgmma::ring::block_of;
use crate::workload::{Conv2d, Workload};

/// Rows of a product.
pub(super) const ROWS: i64 = 64;
/// What `tile_w` may be.
const WIDTHS: [i64; 4] = [8, 16, 24, 32];
/// Most taps: each is a product of its own in the program.
pub(super) const MOST_TAPS: i64 = 49;

/// A convolution in tiles.
pub struct Convolution<'w> {
    pub(super) workload: &'w Workload,
    pub(super) c: Conv2d,
    pub(super) sizes: Sizes,
    /// Output pixels of a tile.
    pub(super) rows: i64,
    pub(super) columns: i64,
}

/// Channels in a row of a window: 64, or fewer where there are no more.
pub(super) fn row_channels(w: &Workload, c: &Conv2d) -> i64 {
    let most = ROW_BYTES / w.dtype.bytes() as i64;
    [most / 4, most / 2].into_iter().find(|n| multiplied(w, c.ci) <= *n).unwrap_or(most)
}

/// Channels of each slot of a tile's reduction that are multiplied.
pub(super) fn chunks(w: &Workload, c: &Conv2d) -> Vec<i64> {
    let (all, row) = (multiplied(w, c.ci), row_channels(w, c));
    (0..ceil_div(all, row)).map(|i| row.min(all - i * row)).collect()
}

/// Bytes of the weights of `bn` output channels.
pub(super) fn weight_bytes(w: &Workload, c: &Conv2d, bn: i64) -> i64 {
    let held = ceil_div(bn, block_of(bn)) * block_of(bn);
    c.kh * c.kw * multiplied(w, c.ci) * held * w.dtype.bytes() as i64
}

knobs! {
    /// A config with a type.
    struct Choice {
        /// Consumer warpgroups.
        pub(super) consumers: i64 = "consumers" in [1, 2, 3];
        /// Blocks of 64 rows of each.
        pub(super) row_blocks: i64 = "row_blocks" in [1, 2];
        /// Output channels of a tile, as those that there are allow.
        pub(super) bn: i64 = "bn" in COLUMNS;
        /// Windows in shared memory.
        pub(super) stages: i64 = "stages" in 2..=6;
        pub(super) schedule: Schedule = "schedule" in Schedule::ALL;
        pub(super) store: Store = "store" in Store::ALL;
        /// Columns of output pixels in a tile.
        pub(super) columns: i64 = "tile_w" in WIDTHS;
    }
}

/// The convolution as a config cuts it.
pub(super) fn convolution<'w>(w: &'w Workload, c: &Conv2d, choice: Choice) -> Result<Convolution<'w>, TemplateError> {
    let Choice { consumers, row_blocks, bn, stages, schedule, store, columns } = choice;
    let sizes = Sizes { consumers, row_blocks, schedule, store, ..Sizes::alone(bn, stages) };
    if sizes.bm() % (GROUP_ROWS * columns) != 0 {
        let what = format!("{} pixels are no {GROUP_ROWS} rows of {columns}, nor a multiple", sizes.bm());
        return Err(TemplateError::Limit(what));
    }
    let rows = sizes.bm() / columns;
    let mut found = Convolution { workload: w, c: *c, sizes, rows, columns };
    let row_bytes = row_channels(w, c) * w.dtype.bytes() as i64;
    let [high, wide] = found.slot();
    let room = Room { slot: high * wide * row_bytes, weights: weight_bytes(w, c, sizes.bn) };
    found.sizes.window = Some(room);
    Ok(found)
}

/// The tiles that defaults are chosen from, each with as many windows as fit, up to 4.
pub(super) fn sensible(w: &Workload, c: &Conv2d, cuda: &Cuda) -> impl Iterator<Item = Choice> {
    let tall = [
        (1, 1, Schedule::Cooperative),
        (2, 1, Schedule::PingPong),
        (2, 2, Schedule::PingPong),
        (2, 1, Schedule::Cooperative),
        (2, 2, Schedule::Cooperative),
    ];
    let wide: Vec<(i64, i64)> = columns(c.co).into_iter().flat_map(|bn| WIDTHS.map(|width| (bn, width))).collect();
    let all = tall.into_iter().flat_map(move |tall| wide.clone().into_iter().map(move |wide| (tall, wide)));
    all.filter_map(move |((consumers, row_blocks, schedule), (bn, columns))| {
        let with = |stages| Choice { consumers, row_blocks, bn, stages, schedule, store: Store::Tma, columns };
        [4, 3, 2].map(with).into_iter().find(|choice| convolution(w, c, *choice).is_ok_and(|found| found.fits(cuda)))
    })
}

impl Convolution<'_> {
    /// Rows and columns of a window.
    pub(super) fn window(&self) -> [i64; 2] {
        let [vertical, horizontal] = self.c.dilation;
        [self.rows + (self.c.kh - 1) * vertical, self.columns + (self.c.kw - 1) * horizontal]
    }

    /// Rows and columns of a slot, which begins where the address map does: after a multiple of eight of its rows of channels.
    pub(super) fn slot(&self) -> [i64; 2] {
        let [high, wide] = self.window();
        let rows = (high..).find(|rows| rows * wide % GROUP_ROWS == 0).unwrap_or(high);
        [rows, wide]
    }

    /// Tiles along rows and columns.
    pub(super) fn pixel_tiles(&self) -> [i64; 2] {
        [ceil_div(self.c.oh(), self.rows), ceil_div(self.c.ow(), self.columns)]
    }

    pub(super) fn channel_tiles(&self) -> i64 {
        ceil_div(self.c.co, self.sizes.bn)
    }

    /// Where a row of the tile, the first of a group or any, lies in it: its row and column of pixels.
    pub(super) fn pixel(&self, row: &Expr) -> [Expr; 2] {
        let across = self.columns / GROUP_ROWS;
        let (block, within) = (row.clone().floor_div(ROWS), row.clone().floor_mod(ROWS));
        let (down, along) = (block.clone().floor_div(across), block.floor_mod(across));
        [down * GROUP_ROWS + within.clone().floor_div(GROUP_ROWS), along * GROUP_ROWS + within.floor_mod(GROUP_ROWS)]
    }
}
