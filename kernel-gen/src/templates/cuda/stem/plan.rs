//! The knobs of stems, and the cells of taps and pixels that a block has by them.

use crate::ir::DType;
use crate::target::Cuda;
use crate::templates::cuda::family::{Store, knobs};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::product::widest;
use crate::workload::{Conv2d, ConvLayout, Workload};

/// Most input channels: with more, `wgmma_conv2d` has rows of its own.
pub(super) const MOST_CHANNELS: i64 = 32;
/// Elements of a cell: 16 bytes.
pub(super) const CELL: i64 = 8;
/// Most pixels of a cell beside the taps that it has, on either side: a pixel has at least two of its elements.
pub(super) const MOST_BESIDE: i64 = 3;
/// Rows, columns and depth of a product of a warp, as this template takes them.
pub(super) const TILE: i64 = 16;
/// Why a workload of a class that is local has no kernel with such cells.
pub(super) const NOT_LOCAL: &str = "cells have room for pixels beside the taps, whose infinities and NaN reach outputs that do not read them, \
                         which the classes `strict` and `local` rule out";
/// Most products of a warp that are written out.
pub(super) const MOST_PRODUCTS: i64 = 1024;
/// Registers of a thread beside sums, operands and pixels under way.
const OTHER_REGISTERS: i64 = 40;
/// Elements that a thread has under way when it gathers pixels.
const UNDER_WAY: i64 = 32;

knobs! {
    /// A config with a type.
    struct Sizes {
        pub(super) tile_h: i64 = "tile_h" in [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16];
        pub(super) tile_w: i64 = "tile_w" in [1, 2, 3, 4];
        pub(super) rows: i64 = "rows" in [1, 2, 4];
        pub(super) columns: i64 = "columns" in [1, 2, 4];
        pub(super) across: i64 = "across" in [1, 2, 4];
        pub(super) store: Store = "store" in Store::ALL;
    }
}

impl Sizes {
    pub(super) const SMALLEST: Sizes =
        Sizes { tile_h: 1, tile_w: 1, rows: 1, columns: 1, across: 1, store: Store::Direct };

    /// Warps along the outputs' pixels; they share the tiles evenly.
    fn warps_down(&self) -> i64 {
        self.tile_h * self.tile_w / self.rows
    }

    pub(super) fn warps(&self) -> i64 {
        self.warps_down() * self.across
    }

    pub(super) fn threads(&self) -> i64 {
        self.warps() * Cuda::WARP
    }

    /// Output channels of a warp.
    pub(super) fn warp_channels(&self) -> i64 {
        self.columns * TILE
    }

    /// Output channels of a block.
    pub(super) fn channels(&self) -> i64 {
        self.warp_channels() * self.across
    }
}

/// Where a cell of the reduction is, from the first cell that an output reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CellAt {
    /// Rows down.
    pub(super) row: i64,
    /// Which phase.
    pub(super) phase: i64,
    /// Cells along, in that phase.
    pub(super) along: i64,
}

/// A convolution cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub(super) c: Conv2d,
    pub(super) dtype: DType,
    pub(super) out_bytes: i64,
    pub(super) sizes: Sizes,
}

impl Plan {
    pub(super) fn new(w: &Workload, c: Conv2d, sizes: Sizes) -> Plan {
        Plan { c, dtype: w.dtype, out_bytes: w.out_dtype.bytes() as i64, sizes }
    }

    /// Elements of a pixel in shared memory: its channels, and zeros until outputs begin at whole cells. Taps that are
    /// not neighbours get cells of their own.
    pub(super) fn pixel(&self) -> i64 {
        let aligned = |p: &i64| *p >= self.c.ci && p * self.c.stride[1] % CELL == 0;
        let narrow = if self.c.dilation[1] == 1 { [2, 4].into_iter().find(aligned) } else { None };
        narrow.unwrap_or(ceil_div(self.c.ci, CELL) * CELL)
    }

    /// Cells between the first of an output and of its right neighbour; as many phases there are.
    pub(super) fn phases(&self) -> i64 {
        self.c.stride[1] * self.pixel() / CELL
    }

    /// Whether a cell's pixels are one run of memory that begins at a whole word, and exist all or not at all: then a
    /// thread reads words of two elements.
    pub(super) fn paired(&self) -> bool {
        let c = &self.c;
        c.layout == ConvLayout::Nhwc && self.cell_pixels() > 1 && c.w % self.cell_pixels() == 0 && c.w * c.ci % 2 == 0
    }

    /// Pixels of a cell; 1 where a pixel has one cell or several.
    pub(super) fn cell_pixels(&self) -> i64 {
        (CELL / self.pixel()).max(1)
    }

    /// Pixels before the first that an output reads: for words, cells begin where a row's do.
    pub(super) fn shift(&self) -> i64 {
        if self.paired() { (-self.c.padding[1]).rem_euclid(self.cell_pixels()) } else { 0 }
    }

    /// Cells of a row of the kernel.
    pub(super) fn row_cells(&self) -> i64 {
        ceil_div((self.shift() + self.c.kw) * self.pixel(), CELL)
    }

    /// Steps of the reduction, each of two cells.
    pub(super) fn steps(&self) -> i64 {
        ceil_div(self.c.kh * self.row_cells(), 2)
    }

    /// The distance of a row's cell from the first: taps wider than a cell are as far apart as the dilation says.
    fn distance(&self, cell: i64) -> i64 {
        match self.pixel() / CELL {
            0 => cell,
            wide => cell / wide * self.c.dilation[1] * wide + cell % wide,
        }
    }

    /// A cell of the reduction. Of an odd number the last step's second one is again the last; its weights are zero.
    pub(super) fn cell(&self, index: i64) -> CellAt {
        let index = index.min(self.c.kh * self.row_cells() - 1);
        let (tap, cell) = (index / self.row_cells(), index % self.row_cells());
        let distance = self.distance(cell);
        CellAt { row: tap * self.c.dilation[0], phase: distance % self.phases(), along: distance / self.phases() }
    }

    /// Whether no pixel meets a weight that is none of the filter's.
    pub(super) fn has_taps_alone(&self) -> bool {
        let row = self.row_cells() * CELL;
        self.shift() == 0 && row == self.c.kw * self.pixel() && self.c.kh * self.row_cells() % 2 == 0
    }

    /// Input rows of a block.
    pub(super) fn in_rows(&self) -> i64 {
        (self.sizes.tile_h - 1) * self.c.stride[0] + (self.c.kh - 1) * self.c.dilation[0] + 1
    }

    /// Cells of a phase of an input row of a block.
    pub(super) fn in_cells(&self) -> i64 {
        self.sizes.tile_w * TILE + self.distance(self.row_cells() - 1) / self.phases()
    }

    /// Cells of a block.
    pub(super) fn cells(&self) -> i64 {
        self.in_rows() * self.in_cells() * self.phases()
    }

    /// Whether cells lie in memory as they are wanted, and can be copied without passing registers.
    pub(super) fn copied(&self) -> bool {
        self.c.layout == ConvLayout::Nhwc && self.c.ci % CELL == 0
    }

    /// Elements that a thread gathers for a cell.
    pub(super) fn cell_values(&self) -> i64 {
        self.cell_pixels() * self.c.ci.min(CELL)
    }

    /// Cells that a thread has under way.
    pub(super) fn batch(&self) -> i64 {
        (UNDER_WAY / self.cell_values()).clamp(1, ceil_div(self.cells(), self.sizes.threads()))
    }

    /// Elements between rows of weights in shared memory: eight more than there are, so that the eight rows that a matrix
    /// of `ldmatrix` has lie in different banks.
    fn weight_pitch(&self) -> i64 {
        self.sizes.channels() + CELL
    }

    /// The shape of the packed weights.
    pub(super) fn packed_shape(&self) -> [i64; 3] {
        [self.channel_tiles(), self.steps() * TILE, self.weight_pitch()]
    }

    pub(super) fn channel_tiles(&self) -> i64 {
        ceil_div(self.c.co, self.sizes.channels())
    }

    /// Tiles along the output's rows and columns.
    pub(super) fn tiles(&self) -> [i64; 2] {
        [ceil_div(self.c.oh(), self.sizes.tile_h), ceil_div(self.c.ow(), self.sizes.tile_w * TILE)]
    }

    pub(super) fn blocks(&self) -> i64 {
        let [y, x] = self.tiles();
        self.c.n * self.channel_tiles() * y * x
    }

    /// Elements of the output that a lane stores at a time when it stores rows: 16 bytes, or as many as divide a pixel.
    pub(super) fn piece(&self) -> i64 {
        widest(self.c.co, self.out_bytes)
    }

    /// Elements between rows of sums in shared memory: 16 bytes more than there are.
    pub(super) fn sum_pitch(&self) -> i64 {
        self.sizes.warp_channels() + 16 / self.out_bytes
    }

    /// Whether an output can be stored so: pairs must lie at whole words, and rows side by side.
    pub(super) fn can_store(&self, store: Store) -> bool {
        match (store, self.c.layout) {
            (Store::Direct, ConvLayout::Nhwc) => self.c.co % 2 == 0,
            (Store::Direct, _) => true,
            (Store::Rows, layout) => layout == ConvLayout::Nhwc,
        }
    }

    pub(super) fn shared_bytes(&self) -> i64 {
        let pixels = self.cells() * CELL * 2;
        let weights = self.steps() * TILE * self.weight_pitch() * 2;
        let rows = match self.sizes.store {
            Store::Direct => 0,
            Store::Rows => self.sizes.warps() * TILE * self.sum_pitch() * self.out_bytes,
        };
        pixels + weights + rows + 64
    }

    pub(super) fn registers(&self) -> i64 {
        let Sizes { rows, columns, .. } = self.sizes;
        let gathered = if self.copied() { 0 } else { self.batch() * CELL };
        OTHER_REGISTERS + gathered.max(8 * rows * columns + 4 * rows + 4 * columns)
    }
}
