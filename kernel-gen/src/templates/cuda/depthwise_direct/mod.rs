//! Depthwise convolutions of many images, at the rate of memory: a thread computes a patch of outputs from registers.
//!
//! A depthwise convolution reads and writes every element once and multiplies it a few times, so what counts is how many
//! bytes are under way. A thread loads the input of `rows x columns` outputs of one channel (or, in NHWC, of `vector`
//! neighbouring ones) straight into registers, in accesses as wide as they are aligned and without waiting for one before
//! it asks for the next; padding is a condition of the accesses at the edge, and zeros otherwise. Rows of the input are
//! multiplied as they come, and a row of outputs is stored when its last one has. There is no shared memory and no barrier:
//! what neighbouring patches have in common comes from the caches.
//!
//! ```text
//! NCHW, 3 x 3, stride 1, rows=4 columns=4: six rows of input, each one vector of four and one element on either side
//! NHWC, 3 x 3, stride 1, rows=8 columns=2 vector=8: ten rows of four pixels, each one vector of eight channels in f16
//! ```
//!
//! Threads of an image are numbered along the output's memory, the innermost dimension first, so that neighbouring ones
//! access neighbouring addresses, and blocks are pieces of that numbering: planes of any size fill them.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `rows` | 1 to 16 | output rows of a thread |
//! | `columns` | 1, 2, 4, 7, 8 | output columns of a thread |
//! | `vector` | 1, 2, 4, 8 | channels of a thread; 1 in NCHW |
//! | `ahead` | 1 to 16 | input rows that are asked for before the first is multiplied |
//! | `threads` | 64 to 512 | threads of a block |

mod kernel;
mod model;

use crate::target::{Cuda, Target};
use crate::templates::cuda::family::{self, Case, Family, Needs, built, knobs};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::requires::{convolution, device};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Workload};

/// See the module's text.
pub struct DepthwiseDirect;

/// Most multiply-adds of a thread, all of which are written out.
const MOST_PRODUCTS: i64 = 2048;
/// Registers of a thread beside inputs, weights and sums.
const OTHER_REGISTERS: i64 = 24;
/// What one access moves at most.
const ACCESS_BYTES: i64 = 16;

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Output rows and columns of a thread.
        patch: [i64; 2] = "rows" in [1, 2, 4, 7, 8, 14, 16], "columns" in [1, 2, 4, 7, 8];
        /// Channels of a thread.
        vector: i64 = "vector" in [1, 2, 4, 8];
        /// Input rows under way before the first is used.
        ahead: i64 = "ahead" in [1, 2, 4, 8, 16];
        /// Threads of a block.
        threads: i64 = "threads" in [64, 128, 256, 512];
    }
}

/// What every workload that the template applies to can run with.
const SMALLEST: Sizes = Sizes { patch: [1, 1], vector: 1, ahead: 1, threads: 64 };

/// Neighbouring elements of an input row that one access brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    /// The first, counted from the first that the patch reads.
    first: i64,
    /// How many.
    width: i64,
}

/// A convolution cut up as a config says. Dimension 0 is rows, 1 is columns.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    c: Conv2d,
    bytes: i64,
    out_bytes: i64,
    sizes: Sizes,
}

impl Plan {
    fn new(w: &Workload, c: Conv2d, sizes: Sizes) -> Plan {
        Plan { c, bytes: w.dtype.bytes() as i64, out_bytes: w.out_dtype.bytes() as i64, sizes }
    }

    fn channels_last(&self) -> bool {
        self.c.layout == ConvLayout::Nhwc
    }

    /// Height and width of the input, of the output, and taps.
    fn input(&self, dim: usize) -> i64 {
        [self.c.h, self.c.w][dim]
    }

    fn output(&self, dim: usize) -> i64 {
        [self.c.oh(), self.c.ow()][dim]
    }

    fn taps(&self, dim: usize) -> i64 {
        [self.c.kh, self.c.kw][dim]
    }

    /// Input rows or columns from the first to the last that a patch reads.
    fn reach(&self, dim: usize) -> i64 {
        (self.sizes.patch[dim] - 1) * self.c.stride[dim] + (self.taps(dim) - 1) * self.c.dilation[dim] + 1
    }

    /// Patches along the output.
    fn patches(&self, dim: usize) -> i64 {
        ceil_div(self.output(dim), self.sizes.patch[dim])
    }

    /// Which taps meet input row or column `at` of a patch, and for which of its outputs.
    fn meeting(&self, dim: usize, at: i64) -> Vec<(i64, i64)> {
        let (stride, dilation) = (self.c.stride[dim], self.c.dilation[dim]);
        let output = |tap: i64| {
            let above = at - tap * dilation;
            let output = above.div_euclid(stride);
            (above.rem_euclid(stride) == 0 && (0..self.sizes.patch[dim]).contains(&output)).then_some((tap, output))
        };
        (0..self.taps(dim)).filter_map(output).collect()
    }

    /// The first and the last input row of an output row.
    fn rows_of(&self, output: i64) -> [i64; 2] {
        let first = output * self.c.stride[0];
        [first, first + (self.c.kh - 1) * self.c.dilation[0]]
    }

    /// The input row or column `at` of the first patch, and of the last one.
    fn place(&self, dim: usize, at: i64) -> [i64; 2] {
        let first = at - self.c.padding[dim];
        [first, first + (self.patches(dim) - 1) * self.sizes.patch[dim] * self.c.stride[dim]]
    }

    /// The accesses that bring one row of input: of pixels in NHWC, of vectors as wide as they are aligned in NCHW.
    fn pieces(&self) -> Vec<Piece> {
        let (reach, before) = (self.reach(1), self.c.padding[1]);
        let needed = |at: i64| !self.meeting(1, at).is_empty();
        let step = self.sizes.patch[1] * self.c.stride[1];
        let unit = |at: i64| {
            if self.channels_last() {
                return 1;
            }
            let divides = |n: &i64| [self.c.w, step, at - before].iter().all(|size| size % n == 0);
            let fits = |n: &i64| at + n <= reach && divides(n);
            (0..4).rev().map(|e| 1 << e).filter(|n| n * self.bytes <= ACCESS_BYTES).find(fits).unwrap_or(1)
        };
        let mut pieces = vec![];
        let mut at = 0;
        while at < reach {
            let width = unit(at);
            if (at..at + width).any(needed) {
                pieces.push(Piece { first: at, width });
            }
            at += width;
        }
        pieces
    }

    /// Elements of an output row that one access stores, in NCHW.
    fn store_width(&self) -> i64 {
        let divides =
            |n: &i64| self.sizes.patch[1] % n == 0 && self.c.ow() % n == 0 && n * self.out_bytes <= ACCESS_BYTES;
        (0..4).rev().map(|e| 1 << e).find(divides).unwrap_or(1)
    }

    /// Threads of an image that have something to do.
    fn work(&self) -> i64 {
        self.c.co / self.sizes.vector * self.patches(0) * self.patches(1)
    }

    /// Blocks of an image.
    fn blocks(&self) -> i64 {
        ceil_div(self.work(), self.sizes.threads)
    }

    /// Multiply-adds of a thread.
    fn products(&self) -> i64 {
        self.sizes.patch.iter().product::<i64>() * self.c.kh * self.c.kw * self.sizes.vector
    }

    /// Input rows under way at a time.
    fn ahead(&self) -> i64 {
        self.sizes.ahead.min(self.reach(0))
    }

    /// Output rows whose sums are unfinished at a time.
    fn open(&self) -> i64 {
        ceil_div((self.c.kh - 1) * self.c.dilation[0] + 1, self.c.stride[0]).min(self.sizes.patch[0])
    }

    /// Registers of an input row that waits for its turn.
    fn row_registers(&self) -> i64 {
        ceil_div(self.reach(1) * self.sizes.vector * self.waiting_bytes(), 4)
    }

    /// Registers of a thread in which so many are for rows that wait.
    fn registers(&self, waiting: i64) -> i64 {
        let Sizes { patch, vector, .. } = self.sizes;
        let widened = if self.waiting_bytes() < 4 { self.reach(1) * vector } else { 0 };
        OTHER_REGISTERS + waiting + widened + (self.open() * patch[1] + self.c.kh * self.c.kw) * vector
    }

    /// Bytes of an input element that waits for its row's turn: vectors stay as they came, single elements are widened.
    fn waiting_bytes(&self) -> i64 {
        if self.sizes.vector > 1 { self.bytes } else { 4 }
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs {
            threads: self.sizes.threads,
            registers: self.registers(self.ahead() * self.row_registers()),
            shared_bytes: 0,
        }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { patch, vector, ahead, .. } = self.sizes;
        let useful = (0..2).all(|dim| patch[dim] == 1 || patch[dim] / 2 < self.output(dim))
            && (ahead == 1 || ahead / 2 < self.reach(0))
            && self.c.co % vector == 0
            && (vector == 1 || self.channels_last() && vector * self.bytes <= ACCESS_BYTES);
        useful
            && self.products() <= MOST_PRODUCTS.max(self.c.kh * self.c.kw)
            && self.blocks() <= gpu.grid_dim[0]
            && self.c.n <= gpu.grid_dim[1]
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        model::us(self, w, gpu)
    }
}

impl Family for DepthwiseDirect {
    const NAME: &'static str = "depthwise_direct";
    const LIMITS: &'static str = "registers suffice, channels divide, and all have something to do";
    const SMALLEST: Option<Sizes> = Some(SMALLEST);
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        device(t)?;
        let c = convolution(w)?;
        match (c.multiplier(), c.layout) {
            (None, _) => Err("for depthwise convolutions".into()),
            (Some(_), ConvLayout::Nchw) | (Some(1), ConvLayout::Nhwc) => Ok(c),
            (Some(_), ConvLayout::Nhwc) => Err("for one output channel an input channel in NHWC".into()),
            _ => Err("for NCHW and NHWC".into()),
        }
    }

    fn too_large(case: &Case<'_, Conv2d>) -> String {
        format!("the taps of a {} x {} kernel do not fit in registers", case.problem.kh, case.problem.kw)
    }

    fn plan(case: &Case<'_, Conv2d>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(Plan::new(case.w, case.problem, sizes))
    }

    fn kernel(case: &Case<'_, Conv2d>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        built(kernel::kernel(plan, case.w), [])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(c: Conv2d, columns: i64) -> Vec<(i64, i64)> {
        let sizes = Sizes { patch: [1, columns], ..SMALLEST };
        let plan = Plan::new(&Workload::f32(c), c, sizes);
        plan.pieces().iter().map(|p| (p.first, p.width)).collect()
    }

    #[test]
    fn a_row_comes_in_accesses_as_wide_as_they_are_aligned() {
        let c = |size, k, stride| Conv2d::nchw(1, 8, size, size, 8, k, stride, k / 2).depthwise(1);
        assert_eq!(pieces(c(112, 3, 1), 4), [(0, 1), (1, 4), (5, 1)]);
        assert_eq!(pieces(c(96, 5, 1), 4), [(0, 2), (2, 4), (6, 2)]);
        assert_eq!(pieces(c(112, 3, 2), 4), [(0, 1), (1, 4), (5, 4)]);
        // Rows of 14 elements are whole words of two.
        assert_eq!(pieces(c(14, 3, 1), 4), [(0, 1), (1, 2), (3, 2), (5, 1)]);
        assert_eq!(pieces(c(7, 3, 1), 2), [(0, 1), (1, 1), (2, 1), (3, 1)]);
        // What no tap meets is not read.
        assert_eq!(pieces(Conv2d { kw: 1, padding: [1, 0, 1, 0], ..c(9, 3, 2) }, 2), [(0, 1), (2, 1)]);
    }
}
