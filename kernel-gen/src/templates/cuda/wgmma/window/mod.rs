//! Convolutions in NHWC whose weights stay in shared memory, and whose input comes once for all taps.
//!
//! [`conv2d`](super::conv2d) fetches a tile's pixels again for each tap, and with few channels that is what it waits for: the copy
//! engine takes two to three clocks for a row of 128 bytes, so nine taps of 128 pixels take longer than 64 output channels need
//! tensor cores. Here a tile is a box of output pixels of one image, and a slot of the ring holds the **window** of the
//! input that all its taps see, 64 channels deep: 18 x 10 pixels for 16 x 8 outputs of a 3 x 3. `wgmma` takes its left operand
//! as groups of eight rows, any distance apart, that begin at any row: eight neighbours along a row of the window make a group,
//! eight rows of it the 64 rows of a product, and each tap is the same window from another pixel on. Padding is what the copy
//! engine reads outside of the image.
//!
//! All weights of a block's output channels are brought once, before its first tile; a block keeps its channels for the whole
//! kernel. So this is for kernels of up to some 150 KB: 64 x 3 x 3 -> 64, 64 -> 96, 32 -> 64, 48 x 5 x 5 -> 64.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `consumers`, `row_blocks`, `bn` | 1 to 3; 1, 2; 16 to 256 | the tile, as in `wgmma_conv2d` |
//! | `stages` | 2 to 6 | windows in shared memory |
//! | `schedule` | `cooperative`, `pingpong` | consumers share a tile, or each has its own |
//! | `store` | `registers`, `tma` | how sums get to the output |
//! | `tile_w` | 8, 16, 24, 32 | columns of output pixels in a tile; its other factor is rows |

mod feed;
mod model;

use super::kernel::{Block, Box, Element, Feed, Product, kernel};
use super::ring::block_of;
use super::store::BUFFERS;
use super::{COLUMNS, MOST_BOX, ROW_BYTES, Schedule, Sizes, Store, ceil_div, columns, device, multiplied, whole_units};
use crate::ir::builder::KernelBuilder;
use crate::ir::{DType, Expr, GROUP_ROWS, VarId};
use crate::space::Value;
use crate::target::{Cuda, Target};
use crate::templates::cuda::family::{Case, Family, Needs, Plan, Search, built, knobs, numbers};
use crate::templates::cuda::requires;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Workload};

/// Convolutions in NHWC with one group and stride 1, of f16 and bf16, whose weights fit in shared memory. See the module's text.
pub struct WgmmaWindow;

/// Rows of a product.
const ROWS: i64 = 64;
/// What `tile_w` may be.
const WIDTHS: [i64; 4] = [8, 16, 24, 32];

/// What a window of the input and the weights of a block take of shared memory. The workload and the config say it together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Room {
    /// Bytes of a slot.
    slot: i64,
    /// Bytes of the weights.
    weights: i64,
}

impl Room {
    /// Bytes of so many slots, of the weights, and of the barriers of both.
    pub(super) fn bytes(&self, stages: i64) -> i64 {
        stages * (self.slot + 16) + self.weights + 16
    }
}

/// A convolution in tiles.
pub struct Convolution<'w> {
    workload: &'w Workload,
    c: Conv2d,
    sizes: Sizes,
    /// Output pixels of a tile.
    rows: i64,
    columns: i64,
}

/// Most taps: each is a product of its own in the program.
const MOST_TAPS: i64 = 49;

/// Channels in a row of a window: 64, or fewer where there are no more.
fn row_channels(w: &Workload, c: &Conv2d) -> i64 {
    let most = ROW_BYTES / w.dtype.bytes() as i64;
    [most / 4, most / 2].into_iter().find(|n| multiplied(w, c.ci) <= *n).unwrap_or(most)
}

/// Channels of each slot of a tile's reduction that are multiplied.
fn chunks(w: &Workload, c: &Conv2d) -> Vec<i64> {
    let (all, row) = (multiplied(w, c.ci), row_channels(w, c));
    (0..ceil_div(all, row)).map(|i| row.min(all - i * row)).collect()
}

/// Bytes of the weights of so many output channels.
fn weight_bytes(w: &Workload, c: &Conv2d, bn: i64) -> i64 {
    let held = ceil_div(bn, block_of(bn)) * block_of(bn);
    c.kh * c.kw * multiplied(w, c.ci) * held * w.dtype.bytes() as i64
}

knobs! {
    /// A config with a type.
    struct Choice {
        /// Consumer warpgroups.
        consumers: i64 = "consumers" in [1, 2, 3];
        /// Blocks of 64 rows of each.
        row_blocks: i64 = "row_blocks" in [1, 2];
        /// Output channels of a tile, as those that there are allow.
        bn: i64 = "bn" in COLUMNS;
        /// Windows in shared memory.
        stages: i64 = "stages" in 2..=6;
        schedule: Schedule = "schedule" in Schedule::ALL;
        store: Store = "store" in Store::ALL;
        /// Columns of output pixels in a tile.
        columns: i64 = "tile_w" in WIDTHS;
    }
}

/// The convolution as a config cuts it.
fn convolution<'w>(w: &'w Workload, c: &Conv2d, choice: Choice) -> Result<Convolution<'w>, TemplateError> {
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
fn sensible(w: &Workload, c: &Conv2d, cuda: &Cuda) -> impl Iterator<Item = Choice> {
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

impl Plan for Convolution<'_> {
    fn needs(&self) -> Needs {
        Needs { threads: self.sizes.threads(), registers: 0, shared_bytes: self.sizes.shared_bytes(BUFFERS) }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        self.window().iter().all(|n| *n <= MOST_BOX) && self.sizes.fits(gpu)
    }

    fn us(&self, _: &Workload, gpu: &Cuda) -> f64 {
        self.time(gpu)
    }
}

impl Convolution<'_> {
    /// Rows and columns of a window.
    fn window(&self) -> [i64; 2] {
        let [vertical, horizontal] = self.c.dilation;
        [self.rows + (self.c.kh - 1) * vertical, self.columns + (self.c.kw - 1) * horizontal]
    }

    /// Rows and columns of a slot, which begins where the address map does: after a multiple of eight of its rows of channels.
    fn slot(&self) -> [i64; 2] {
        let [high, wide] = self.window();
        let rows = (high..).find(|rows| rows * wide % GROUP_ROWS == 0).unwrap_or(high);
        [rows, wide]
    }

    /// Tiles along rows and columns.
    fn pixel_tiles(&self) -> [i64; 2] {
        [ceil_div(self.c.oh(), self.rows), ceil_div(self.c.ow(), self.columns)]
    }

    fn channel_tiles(&self) -> i64 {
        ceil_div(self.c.co, self.sizes.bn)
    }

    /// Where a row of the tile, the first of a group or any, lies in it: its row and column of pixels.
    fn pixel(&self, row: &Expr) -> [Expr; 2] {
        let across = self.columns / GROUP_ROWS;
        let (block, within) = (row.clone().floor_div(ROWS), row.clone().floor_mod(ROWS));
        let (down, along) = (block.clone().floor_div(across), block.floor_mod(across));
        [down * GROUP_ROWS + within.clone().floor_div(GROUP_ROWS), along * GROUP_ROWS + within.floor_mod(GROUP_ROWS)]
    }
}

impl Family for WgmmaWindow {
    const NAME: &'static str = "wgmma_window";
    const LIMITS: &'static str = "sums fit in registers, weights and windows in shared memory; turns are for two";
    const LONGEST_EARLY_US: f64 = super::LONGEST_EARLY_US;
    type Problem = Conv2d;
    type Knobs = Choice;
    type Plan<'a> = Convolution<'a>;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        let cuda = device(w, t)?;
        let c = requires::convolution(w)?;
        if c.layout != ConvLayout::Nhwc || c.groups != 1 || w.dtype == DType::F32 {
            return Err("for 16 bits in NHWC with one group".into());
        }
        if c.stride != [1, 1] || c.kh * c.kw == 1 {
            return Err("for stride 1, and kernels of more than one tap".into());
        }
        whole_units(w, [c.ci, c.co])?;
        if c.kh * c.kw > MOST_TAPS || sensible(w, &c, cuda).next().is_none() {
            let what = format!("{} x {} taps of {} channels", c.kh, c.kw, c.ci);
            return Err(format!("windows and weights of {what} do not fit in shared memory"));
        }
        Ok(c)
    }

    fn narrow(case: &Case<'_, Conv2d>, knob: &str, values: &mut Vec<Value>) {
        if knob == "bn" {
            *values = numbers(columns(case.problem.co));
        }
    }

    fn plan<'a>(case: &Case<'a, Conv2d>, choice: Choice) -> Result<Convolution<'a>, TemplateError> {
        convolution(case.w, &case.problem, choice)
    }

    fn search(case: &Case<'_, Conv2d>) -> Search<Choice> {
        Search::Among(sensible(case.w, &case.problem, case.gpu).collect())
    }

    fn kernel<'a>(case: &Case<'a, Conv2d>, plan: &Convolution<'a>) -> Result<Scheduled, TemplateError> {
        built(kernel(plan, plan.sizes, case.gpu), [])
    }
}

impl Product for Convolution<'_> {
    fn workload(&self) -> &Workload {
        self.workload
    }

    fn tiles(&self) -> i64 {
        self.c.n * self.pixel_tiles().iter().product::<i64>() * self.channel_tiles()
    }

    fn column_period(&self) -> i64 {
        self.channel_tiles()
    }

    fn feed<'f>(&'f self, b: &mut KernelBuilder, block: &Block<'_>) -> std::boxed::Box<dyn Feed + 'f> {
        std::boxed::Box::new(feed::Windows::make(b, block, self))
    }

    /// Image, first row, column and channel. Channels go fastest, so that a block keeps its own; then columns and rows, whose
    /// windows overlap.
    fn place(&self, b: &mut KernelBuilder, item: VarId, _: &Expr) -> Vec<Expr> {
        let ([rows, columns], channels) = (self.pixel_tiles(), self.channel_tiles());
        let pixels = Expr::from(item).floor_div(channels);
        let channel = b.let_("channel_tile", Expr::from(item).floor_mod(channels));
        let column = b.let_("column_tile", pixels.clone().floor_mod(columns));
        let pixels = pixels.floor_div(columns);
        let row = b.let_("row_tile", pixels.clone().floor_mod(rows));
        let image = b.let_("image", pixels.floor_div(rows).floor_mod(self.c.n));
        // The factors stay visible: they say how stores are aligned.
        vec![image.into(), row * self.rows, column * self.columns, channel * self.sizes.bn]
    }

    fn element(&self, place: &[Expr], row: Expr, column: Expr) -> Element {
        let [down, along] = self.pixel(&row);
        Element::new([
            (place[0].clone(), 1, 1),
            (place[1].clone() + down, self.c.oh(), self.rows),
            (place[2].clone() + along, self.c.ow(), self.columns),
            (place[3].clone() + column, self.c.co, self.sizes.bn),
        ])
    }

    fn piece(&self, place: &[Expr], row: Expr, column: Expr, rows: i64, columns: i64) -> Box {
        let [down, along] = self.pixel(&row);
        let at = |i: usize, within: Expr| place[i].clone() + within;
        Box {
            origin: vec![place[0].clone(), at(1, down), at(2, along), at(3, column)],
            extents: vec![1, rows / GROUP_ROWS, GROUP_ROWS, columns],
            steps: vec![],
        }
    }
}
