//! First layers: convolutions of 16-bit images with few channels, on the tensor cores of a warp (`mma.sync`).
//!
//! Three channels are no rows of 16 bytes, which is what the copy engine and `ldmatrix` take. So a block first brings the
//! pixels that its tile of outputs needs into *cells* of eight elements in shared memory: two pixels of four channels, or one
//! of eight, the missing channels zero. The reduction then runs over cells: of each row of the kernel as many as hold its
//! taps, and what a cell has beyond them meets weights that are zero. Sixteen neighbouring outputs read cells a fixed
//! distance apart, so that the matrix of their inputs (`im2col`) is never made: its rows are read where they overlap, eight
//! elements at a time, aligned because a pixel's width times the stride is a multiple of eight.
//!
//! ```text
//! 7 x 7, stride 2, 3 channels:  four channels a pixel, 4 cells a row of the kernel, 28 cells  = 14 steps of 16
//! 3 x 3, stride 2, 3 channels:  four channels a pixel, 2 cells a row,                6 cells  =  3 steps
//! 3 x 3, stride 1, 3 channels:  eight channels a pixel, 3 cells a row,               9 cells  =  5 steps
//! ```
//!
//! Where a stride of several cells parts the outputs' cells, they lie in so many *phases*, each dense, and no bank is asked
//! twice. Weights are packed once, as the block's image in shared memory, and come by `cp.async` while the pixels are
//! gathered; channels that are whole cells already (8, 16, 24, 32 in NHWC) come that way, too.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `tile_h` | 1 to 16 | output rows of a block |
//! | `tile_w` | 1 to 4 | output columns of a block, in sixteens |
//! | `rows` | 1, 2, 4 | tiles of sixteen outputs of a warp |
//! | `columns` | 1, 2, 4 | output channels of a warp, in sixteens |
//! | `across` | 1, 2, 4 | warps along the output channels |
//! | `store` | `direct`, `rows` | pairs from registers, or rows by way of shared memory, 16 bytes at a time where they divide |
//!
//! A weight of zero times a pixel that is infinite or NaN is NaN. Where a cell has room for pixels beside the taps, outputs become NaN
//! that do not read such a pixel, and where the number of cells is odd, outputs that should be infinite. The classes `strict`
//! and `local` have only convolutions whose cells hold taps alone.

mod kernel;
mod model;

use super::family::{self, Case, Family, Needs, Plan as _, Search, Store, built, knobs};
use super::model::ceil_div;
use super::product::widest;
use super::requires::{convolution, device, needs_16_bits, needs_cp_async};
use crate::ir::DType;
use crate::space::Config;
use crate::target::{Cuda, Target};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::special::Reach;
use crate::workload::{Conv2d, ConvLayout, Op, Workload};

/// See the module's text.
pub struct Conv2dStem;

/// Most input channels: with more, `wgmma_conv2d` has rows of its own.
const MOST_CHANNELS: i64 = 32;
/// Elements of a cell: 16 bytes.
const CELL: i64 = 8;
/// Most pixels of a cell beside the taps that it has, on either side: a pixel has at least two of its elements.
const MOST_BESIDE: i64 = 3;
/// Rows, columns and depth of a product of a warp, as this template takes them.
const TILE: i64 = 16;
/// Why a workload of a class that is local has no kernel with such cells.
const NOT_LOCAL: &str = "cells have room for pixels beside the taps, whose infinities and NaN reach outputs that do not read them, \
                         which the classes `strict` and `local` rule out";
/// Most products of a warp that are written out.
const MOST_PRODUCTS: i64 = 1024;
/// Registers of a thread beside sums, operands and pixels under way.
const OTHER_REGISTERS: i64 = 40;
/// Elements that a thread has under way when it gathers pixels.
const UNDER_WAY: i64 = 32;

knobs! {
    /// A config with a type.
    struct Sizes {
        tile_h: i64 = "tile_h" in [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16];
        tile_w: i64 = "tile_w" in [1, 2, 3, 4];
        rows: i64 = "rows" in [1, 2, 4];
        columns: i64 = "columns" in [1, 2, 4];
        across: i64 = "across" in [1, 2, 4];
        store: Store = "store" in Store::ALL;
    }
}

impl Sizes {
    const SMALLEST: Sizes = Sizes { tile_h: 1, tile_w: 1, rows: 1, columns: 1, across: 1, store: Store::Direct };

    /// Warps along the outputs' pixels; they share the tiles evenly.
    fn warps_down(&self) -> i64 {
        self.tile_h * self.tile_w / self.rows
    }

    fn warps(&self) -> i64 {
        self.warps_down() * self.across
    }

    fn threads(&self) -> i64 {
        self.warps() * Cuda::WARP
    }

    /// Output channels of a warp.
    fn warp_channels(&self) -> i64 {
        self.columns * TILE
    }

    /// Output channels of a block.
    fn channels(&self) -> i64 {
        self.warp_channels() * self.across
    }
}

/// Where a cell of the reduction is, from the first cell that an output reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CellAt {
    /// Rows down.
    row: i64,
    /// Which phase.
    phase: i64,
    /// Cells along, in that phase.
    along: i64,
}

/// A convolution cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    c: Conv2d,
    dtype: DType,
    out_bytes: i64,
    sizes: Sizes,
}

impl Plan {
    fn new(w: &Workload, c: Conv2d, sizes: Sizes) -> Plan {
        Plan { c, dtype: w.dtype, out_bytes: w.out_dtype.bytes() as i64, sizes }
    }

    /// Elements of a pixel in shared memory: its channels, and zeros until outputs begin at whole cells. Taps that are
    /// not neighbours get cells of their own.
    fn pixel(&self) -> i64 {
        let aligned = |p: &i64| *p >= self.c.ci && p * self.c.stride[1] % CELL == 0;
        let narrow = if self.c.dilation[1] == 1 { [2, 4].into_iter().find(aligned) } else { None };
        narrow.unwrap_or(ceil_div(self.c.ci, CELL) * CELL)
    }

    /// Cells between the first of an output and of its right neighbour; as many phases there are.
    fn phases(&self) -> i64 {
        self.c.stride[1] * self.pixel() / CELL
    }

    /// Whether a cell's pixels are one run of memory that begins at a whole word, and exist all or not at all: then a
    /// thread reads words of two elements.
    fn paired(&self) -> bool {
        let c = &self.c;
        c.layout == ConvLayout::Nhwc && self.cell_pixels() > 1 && c.w % self.cell_pixels() == 0 && c.w * c.ci % 2 == 0
    }

    /// Pixels of a cell; 1 where a pixel has one cell or several.
    fn cell_pixels(&self) -> i64 {
        (CELL / self.pixel()).max(1)
    }

    /// Pixels before the first that an output reads: for words, cells begin where a row's do.
    fn shift(&self) -> i64 {
        if self.paired() { (-self.c.padding[1]).rem_euclid(self.cell_pixels()) } else { 0 }
    }

    /// Cells of a row of the kernel.
    fn row_cells(&self) -> i64 {
        ceil_div((self.shift() + self.c.kw) * self.pixel(), CELL)
    }

    /// Steps of the reduction, each of two cells.
    fn steps(&self) -> i64 {
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
    fn cell(&self, index: i64) -> CellAt {
        let index = index.min(self.c.kh * self.row_cells() - 1);
        let (tap, cell) = (index / self.row_cells(), index % self.row_cells());
        let distance = self.distance(cell);
        CellAt { row: tap * self.c.dilation[0], phase: distance % self.phases(), along: distance / self.phases() }
    }

    /// Whether no pixel meets a weight that is none of the filter's.
    fn has_taps_alone(&self) -> bool {
        let row = self.row_cells() * CELL;
        self.shift() == 0 && row == self.c.kw * self.pixel() && self.c.kh * self.row_cells() % 2 == 0
    }

    /// Input rows of a block.
    fn in_rows(&self) -> i64 {
        (self.sizes.tile_h - 1) * self.c.stride[0] + (self.c.kh - 1) * self.c.dilation[0] + 1
    }

    /// Cells of a phase of an input row of a block.
    fn in_cells(&self) -> i64 {
        self.sizes.tile_w * TILE + self.distance(self.row_cells() - 1) / self.phases()
    }

    /// Cells of a block.
    fn cells(&self) -> i64 {
        self.in_rows() * self.in_cells() * self.phases()
    }

    /// Whether cells lie in memory as they are wanted, and can be copied without passing registers.
    fn copied(&self) -> bool {
        self.c.layout == ConvLayout::Nhwc && self.c.ci % CELL == 0
    }

    /// Elements that a thread gathers for a cell.
    fn cell_values(&self) -> i64 {
        self.cell_pixels() * self.c.ci.min(CELL)
    }

    /// Cells that a thread has under way.
    fn batch(&self) -> i64 {
        (UNDER_WAY / self.cell_values()).clamp(1, ceil_div(self.cells(), self.sizes.threads()))
    }

    /// Elements between rows of weights in shared memory: eight more than there are, so that the eight rows that a matrix
    /// of `ldmatrix` has lie in different banks.
    fn weight_pitch(&self) -> i64 {
        self.sizes.channels() + CELL
    }

    /// The shape of the packed weights.
    fn packed_shape(&self) -> [i64; 3] {
        [self.channel_tiles(), self.steps() * TILE, self.weight_pitch()]
    }

    fn channel_tiles(&self) -> i64 {
        ceil_div(self.c.co, self.sizes.channels())
    }

    /// Tiles along the output's rows and columns.
    fn tiles(&self) -> [i64; 2] {
        [ceil_div(self.c.oh(), self.sizes.tile_h), ceil_div(self.c.ow(), self.sizes.tile_w * TILE)]
    }

    fn blocks(&self) -> i64 {
        let [y, x] = self.tiles();
        self.c.n * self.channel_tiles() * y * x
    }

    /// Elements of the output that a lane stores at a time when it stores rows: 16 bytes, or as many as divide a pixel.
    fn piece(&self) -> i64 {
        widest(self.c.co, self.out_bytes)
    }

    /// Elements between rows of sums in shared memory: 16 bytes more than there are.
    fn sum_pitch(&self) -> i64 {
        self.sizes.warp_channels() + 16 / self.out_bytes
    }

    /// Whether an output can be stored so: pairs must lie at whole words, and rows side by side.
    fn can_store(&self, store: Store) -> bool {
        match (store, self.c.layout) {
            (Store::Direct, ConvLayout::Nhwc) => self.c.co % 2 == 0,
            (Store::Direct, _) => true,
            (Store::Rows, layout) => layout == ConvLayout::Nhwc,
        }
    }

    fn shared_bytes(&self) -> i64 {
        let pixels = self.cells() * CELL * 2;
        let weights = self.steps() * TILE * self.weight_pitch() * 2;
        let rows = match self.sizes.store {
            Store::Direct => 0,
            Store::Rows => self.sizes.warps() * TILE * self.sum_pitch() * self.out_bytes,
        };
        pixels + weights + rows + 64
    }

    fn registers(&self) -> i64 {
        let Sizes { rows, columns, .. } = self.sizes;
        let gathered = if self.copied() { 0 } else { self.batch() * CELL };
        OTHER_REGISTERS + gathered.max(8 * rows * columns + 4 * rows + 4 * columns)
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: self.sizes.threads(), registers: self.registers(), shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { tile_h, tile_w, rows, columns, across, store } = self.sizes;
        let useful = tile_h <= self.c.oh()
            && (tile_w == 1 || (tile_w - 1) * TILE < self.c.ow())
            && (columns * across == 1 || self.c.co > self.sizes.channels() / 2);
        useful
            && tile_h * tile_w % rows == 0
            && self.can_store(store)
            && self.steps() * rows * columns * 2 <= MOST_PRODUCTS
            && self.channel_tiles() <= gpu.grid_dim[1]
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        model::us(self, w, gpu)
    }
}

impl Family for Conv2dStem {
    const NAME: &'static str = "conv2d_stem";
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        let gpu = device(t)?;
        let c = convolution(w)?;
        if c.groups != 1 || !matches!(c.layout, ConvLayout::Nchw | ConvLayout::Nhwc) {
            return Err("for NCHW and NHWC with one group".into());
        }
        needs_16_bits(w)?;
        if c.ci > MOST_CHANNELS {
            return Err(format!("for at most {MOST_CHANNELS} input channels"));
        }
        needs_cp_async(gpu)?;
        if c.n > gpu.grid_dim[2] {
            return Err(format!("{} images", c.n));
        }
        // How cells are made up does not depend on the config.
        if w.math.is_local() && !Plan::new(w, c, Sizes::SMALLEST).has_taps_alone() {
            return Err(NOT_LOCAL.into());
        }
        Ok(c)
    }

    fn check(case: &Case<'_, Conv2d>) -> Result<(), String> {
        let c = case.problem;
        let fits = Store::ALL.iter().any(|store| smallest(case, *store).fits(case.gpu));
        fits.then_some(()).ok_or_else(|| format!("a {} x {} kernel does not fit in shared memory", c.kh, c.kw))
    }

    fn plan(case: &Case<'_, Conv2d>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(Plan::new(case.w, case.problem, sizes))
    }

    fn search(case: &Case<'_, Conv2d>) -> Search<Sizes> {
        // Either is outside of the space for some outputs.
        let direct = smallest(case, Store::Direct).fits(case.gpu);
        Search::from(Sizes { store: if direct { Store::Direct } else { Store::Rows }, ..Sizes::SMALLEST })
    }

    fn beside(w: &Workload, _: &Config) -> Reach {
        match w.op {
            Op::Conv2d(c) if !Plan::new(w, c, Sizes::SMALLEST).has_taps_alone() => Reach::Beside(MOST_BESIDE),
            _ => Reach::Own,
        }
    }

    fn kernel(case: &Case<'_, Conv2d>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        built(kernel::kernel(plan, case.w), [kernel::pack(plan)])
    }
}

/// The smallest tiles, whose sums go to the output as `store` says.
fn smallest(case: &Case<'_, Conv2d>, store: Store) -> Plan {
    Plan::new(case.w, case.problem, Sizes { store, ..Sizes::SMALLEST })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::templates::Template;
    use crate::workload::Math;

    fn plan(c: Conv2d) -> Plan {
        let w = Workload::f32(c).with_dtype(DType::F16);
        let sizes = Sizes { tile_h: 4, tile_w: 1, rows: 1, columns: 4, across: 1, store: Store::Direct };
        Plan::new(&w, c, sizes)
    }

    #[test]
    fn pixels_are_as_narrow_as_the_stride_allows() {
        let steps = |ci, k, stride| {
            let p = plan(Conv2d { layout: ConvLayout::Nhwc, ..Conv2d::nchw(1, ci, 32, 32, 64, k, stride, k / 2) });
            [p.pixel(), p.phases(), p.shift(), p.row_cells(), p.steps()]
        };
        // An odd padding is made even by a pixel that meets no tap.
        assert_eq!(steps(3, 7, 2), [4, 1, 1, 4, 14]);
        assert_eq!(steps(3, 3, 2), [4, 1, 1, 2, 3]);
        assert_eq!(steps(3, 3, 1), [8, 1, 0, 3, 5]);
        assert_eq!(steps(1, 5, 4), [2, 1, 2, 2, 5]);
        assert_eq!(steps(12, 3, 1), [16, 2, 0, 6, 9]);
        // Rows of an odd number of elements have no words.
        assert!(!plan(Conv2d { layout: ConvLayout::Nhwc, ..Conv2d::nchw(1, 3, 33, 33, 64, 7, 2, 3) }).paired());
    }

    #[test]
    fn a_class_that_is_local_has_kernels_whose_cells_hold_taps_alone() {
        let target = Target::find("sm_80").expect("a built-in target");
        for math in [Math::Strict, Math::Local, Math::Fp32] {
            let takes = |layout, ci, [kh, kw]: [i64; 2], stride| {
                let c = Conv2d { layout, kh, kw, ..Conv2d::nchw(1, ci, 32, 32, 64, 3, stride, 0) };
                Conv2dStem.applies(&Workload { math, ..Workload::f32(c).with_dtype(DType::F16) }, target)
            };
            // Four channels a pixel: 7 taps leave room for one pixel, 4 taps fill two cells. An odd number of cells has one twice.
            assert_eq!(takes(ConvLayout::Nhwc, 4, [4, 4], 2), Ok(()));
            assert_eq!(takes(ConvLayout::Nchw, 8, [2, 3], 1), Ok(()));
            for refused in [takes(ConvLayout::Nhwc, 3, [7, 7], 2), takes(ConvLayout::Nchw, 8, [3, 3], 1)] {
                assert_eq!(refused, if math.is_local() { Err(NOT_LOCAL.to_string()) } else { Ok(()) });
            }
        }
    }

    #[test]
    fn cells_of_distant_taps_are_as_far_apart_as_the_taps() {
        let c = Conv2d { dilation: [2, 3], ..Conv2d::nchw(1, 3, 32, 32, 64, 3, 1, 1) };
        let p = plan(c);
        let at = [0, 1, 2, 3].map(|i| p.cell(i));
        assert_eq!(at.map(|c| (c.row, c.phase, c.along)), [(0, 0, 0), (0, 0, 3), (0, 0, 6), (2, 0, 0)]);
    }
}
