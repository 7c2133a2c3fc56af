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
mod plan;

use crate::ir::builder::KernelBuilder;
use crate::ir::{Expr, GROUP_ROWS, VarId};
use crate::space::Value;
use crate::target::Target;
use crate::templates::cuda::family::{Case, Family, Search, built, numbers};
use crate::templates::cuda::requires;
use crate::templates::cuda::wgmma::block::{Block, Box, Element, Feed, Product};
use crate::templates::cuda::wgmma::kernel::kernel;
use crate::templates::cuda::wgmma::plan::{columns, device, takes_any_order, whole_units};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Workload};
use plan::{Choice, Convolution, MOST_TAPS, convolution, sensible};

/// Convolutions in NHWC with one group and stride 1, of f16 and bf16, whose weights fit in shared memory. See the module's text.
pub struct WgmmaWindow;

impl Family for WgmmaWindow {
    const NAME: &'static str = "wgmma_window";
    const LIMITS: &'static str = "sums fit in registers, weights and windows in shared memory; turns are for two";
    const LONGEST_EARLY_US: f64 = super::plan::LONGEST_EARLY_US;
    type Problem = Conv2d;
    type Knobs = Choice;
    type Plan<'a> = Convolution<'a>;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        let cuda = device(w, t)?;
        let c = requires::convolution(w)?;
        if c.layout != ConvLayout::Nhwc || c.groups != 1 || !takes_any_order(w.dtype) {
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
