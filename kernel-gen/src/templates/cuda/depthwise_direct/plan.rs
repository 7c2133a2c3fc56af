//! The knobs of depthwise convolutions, and the patch of a thread.

use crate::templates::cuda::family::knobs;
use crate::templates::cuda::model::ceil_div;
use crate::workload::{Conv2d, ConvLayout, Workload};

/// Most multiply-adds of a thread, all of which are written out.
pub(super) const MOST_PRODUCTS: i64 = 2048;
/// Registers of a thread beside inputs, weights and sums.
const OTHER_REGISTERS: i64 = 24;
/// What one access moves at most.
pub(super) const ACCESS_BYTES: i64 = 16;

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Output rows and columns of a thread.
        pub(super) patch: [i64; 2] = "rows" in [1, 2, 4, 7, 8, 14, 16], "columns" in [1, 2, 4, 7, 8];
        /// Channels of a thread.
        pub(super) vector: i64 = "vector" in [1, 2, 4, 8];
        /// Input rows under way before the first is used.
        pub(super) ahead: i64 = "ahead" in [1, 2, 4, 8, 16];
        /// Threads of a block.
        pub(super) threads: i64 = "threads" in [64, 128, 256, 512];
    }
}

/// What every workload that the template applies to can run with.
pub(super) const SMALLEST: Sizes = Sizes { patch: [1, 1], vector: 1, ahead: 1, threads: 64 };

/// Neighbouring elements of an input row that one access brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// The first, counted from the first that the patch reads.
    pub(super) first: i64,
    /// How many.
    pub(super) width: i64,
}

/// A convolution cut up as a config says. Dimension 0 is rows, 1 is columns.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub(super) c: Conv2d,
    pub(super) bytes: i64,
    pub(super) out_bytes: i64,
    pub(super) sizes: Sizes,
}

impl Plan {
    pub(super) fn new(w: &Workload, c: Conv2d, sizes: Sizes) -> Plan {
        Plan { c, bytes: w.dtype.bytes() as i64, out_bytes: w.out_dtype.bytes() as i64, sizes }
    }

    pub(super) fn channels_last(&self) -> bool {
        self.c.layout == ConvLayout::Nhwc
    }

    /// Height and width of the input, of the output, and taps.
    pub(super) fn input(&self, dim: usize) -> i64 {
        [self.c.h, self.c.w][dim]
    }

    pub(super) fn output(&self, dim: usize) -> i64 {
        [self.c.oh(), self.c.ow()][dim]
    }

    pub(super) fn taps(&self, dim: usize) -> i64 {
        [self.c.kh, self.c.kw][dim]
    }

    /// Input rows or columns from the first to the last that a patch reads.
    pub(super) fn reach(&self, dim: usize) -> i64 {
        (self.sizes.patch[dim] - 1) * self.c.stride[dim] + (self.taps(dim) - 1) * self.c.dilation[dim] + 1
    }

    /// Patches along the output.
    pub(super) fn patches(&self, dim: usize) -> i64 {
        ceil_div(self.output(dim), self.sizes.patch[dim])
    }

    /// Which taps meet input row or column `at` of a patch, and for which of its outputs.
    pub(super) fn meeting(&self, dim: usize, at: i64) -> Vec<(i64, i64)> {
        let (stride, dilation) = (self.c.stride[dim], self.c.dilation[dim]);
        let output = |tap: i64| {
            let above = at - tap * dilation;
            let output = above.div_euclid(stride);
            (above.rem_euclid(stride) == 0 && (0..self.sizes.patch[dim]).contains(&output)).then_some((tap, output))
        };
        (0..self.taps(dim)).filter_map(output).collect()
    }

    /// The first and the last input row of an output row.
    pub(super) fn rows_of(&self, output: i64) -> [i64; 2] {
        let first = output * self.c.stride[0];
        [first, first + (self.c.kh - 1) * self.c.dilation[0]]
    }

    /// The input row or column `at` of the first patch, and of the last one.
    pub(super) fn place(&self, dim: usize, at: i64) -> [i64; 2] {
        let first = at - self.c.padding[dim];
        [first, first + (self.patches(dim) - 1) * self.sizes.patch[dim] * self.c.stride[dim]]
    }

    /// The accesses that bring one row of input: of pixels in NHWC, of vectors as wide as they are aligned in NCHW.
    pub(super) fn pieces(&self) -> Vec<Piece> {
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
    pub(super) fn store_width(&self) -> i64 {
        let divides =
            |n: &i64| self.sizes.patch[1] % n == 0 && self.c.ow() % n == 0 && n * self.out_bytes <= ACCESS_BYTES;
        (0..4).rev().map(|e| 1 << e).find(divides).unwrap_or(1)
    }

    /// Threads of an image that have something to do.
    pub(super) fn work(&self) -> i64 {
        self.c.co / self.sizes.vector * self.patches(0) * self.patches(1)
    }

    /// Blocks of an image.
    pub(super) fn blocks(&self) -> i64 {
        ceil_div(self.work(), self.sizes.threads)
    }

    /// Multiply-adds of a thread.
    pub(super) fn products(&self) -> i64 {
        self.sizes.patch.iter().product::<i64>() * self.c.kh * self.c.kw * self.sizes.vector
    }

    /// Input rows under way at a time.
    pub(super) fn ahead(&self) -> i64 {
        self.sizes.ahead.min(self.reach(0))
    }

    /// Output rows whose sums are unfinished at a time.
    pub(super) fn open(&self) -> i64 {
        ceil_div((self.c.kh - 1) * self.c.dilation[0] + 1, self.c.stride[0]).min(self.sizes.patch[0])
    }

    /// Registers of an input row that waits for its turn.
    pub(super) fn row_registers(&self) -> i64 {
        ceil_div(self.reach(1) * self.sizes.vector * self.waiting_bytes(), 4)
    }

    /// Registers of a thread in which so many are for rows that wait.
    pub(super) fn registers(&self, waiting: i64) -> i64 {
        let Sizes { patch, vector, .. } = self.sizes;
        let widened = if self.waiting_bytes() < 4 { self.reach(1) * vector } else { 0 };
        OTHER_REGISTERS + waiting + widened + (self.open() * patch[1] + self.c.kh * self.c.kw) * vector
    }

    /// Bytes of an input element that waits for its row's turn: vectors stay as they came, single elements are widened.
    pub(super) fn waiting_bytes(&self) -> i64 {
        if self.sizes.vector > 1 { self.bytes } else { 4 }
    }
}
