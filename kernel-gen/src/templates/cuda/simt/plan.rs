//! The knobs of products on multiply-adds, and a product as they cut it up.

use crate::ir::Kernel;
use crate::target::{Cuda, Target};
use crate::templates::cuda::cut::{Cut, Layout, Whole};
use crate::templates::cuda::family::knobs;
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::outer::{LANES, VECTOR};
use crate::templates::cuda::pipeline;
use crate::templates::cuda::product::{Product, widest};
use crate::templates::cuda::requires;
use crate::workload::Workload;

/// Neighbours of the reduction that lanes copy of a row that is turned around.
pub(super) const TURNED: i64 = 8;
/// Multiply-adds of a step that a thread has written out: more than 16 kB of instructions do not stay in the first cache for
/// them, which made products of 4096 a tenth slower.
pub(super) const MOST_UNROLLED: i64 = 1024;
/// Instructions of a step beside its terms and copies.
pub(super) const STEP_ISSUES: f64 = 40.0;
/// Registers of a thread beside sums and operands, of which compilers hold those of two terms and load those of two more.
const OTHER_REGISTERS: i64 = 24;
/// Most threads of a block: more wait for each other without having more operands in common.
pub(super) const MOST_THREADS: i64 = 512;
/// Most pieces of an operand that a thread copies in a step.
pub(super) const MOST_PIECES: i64 = 32;

/// The device's data, or why it cannot run these kernels.
pub fn device<'t>(w: &Workload, t: &'t Target) -> Result<&'t Cuda, String> {
    let gpu = requires::device(t)?;
    requires::needs_f32(w)?;
    requires::needs_cp_async(gpu)?;
    Ok(gpu)
}

knobs! {
    /// A config of a product by multiply-adds. Pairs are rows, then columns.
    struct Sizes {
        /// The tile of a block.
        pub tile: [i64; 2] = "tile_m" in [32, 64, 128, 256], "tile_n" in [32, 64, 128, 256];
        /// The reduction's length in one step.
        pub tile_k: i64 = "tile_k" in [8, 16, 32];
        /// Rows and columns of a thread.
        pub own: [i64; 2] = "own_m" in [4, 8, 16], "own_n" in [4, 8];
        /// Slots of the ring.
        pub stages: i64 = "stages" in [2, 3, 4];
        /// Blocks that share a reduction.
        pub split: i64 = "split" in [1, 2, 4, 8, 16];
        /// Rows of tiles that are worked on at the same time, for the L2 cache.
        pub group: i64 = "group" in [1, 4, 8, 16];
    }
}

impl Sizes {
    /// What fits everywhere.
    pub const SMALLEST: Sizes = Sizes { tile: [32, 32], tile_k: 8, own: [4, 4], stages: 2, split: 1, group: 1 };

    /// Warps of a block down (0) and across (1).
    pub(super) fn warps(&self, side: usize) -> i64 {
        self.tile[side] / (self.own[side] * LANES[side])
    }

    /// The product as it is cut up.
    pub(super) fn cut(&self, whole: Whole) -> Cut {
        let Sizes { tile, tile_k, stages, split, group, .. } = *self;
        let (warps, stored) = (self.warps(0) * self.warps(1), widest(whole.size[1], 4));
        Cut { whole, tile, tile_k, stages, split, clustered: false, group, warps, given: VECTOR, stored }
    }

    /// Groups of four of a thread's rows (0) or columns (1).
    pub(super) fn quads(&self, side: usize) -> i64 {
        self.own[side] / VECTOR
    }
}

/// A product cut up as a config says, and the registers of threads that multiply it: `f32` products by multiply-adds.
#[derive(Clone, Copy, Debug)]
pub struct MultiplyAdds {
    pub(super) cut: Cut,
    /// Elements of each operand that are copied at a time.
    pub(super) units: [i64; 2],
    /// Registers of a thread for each row of the left operand that it copies from.
    pub(super) row_registers: i64,
    /// The share of steps that blocks leave out, on average.
    pub(super) skipped: f64,
    /// Instructions of a step beside its terms and copies.
    pub(super) step_issues: f64,
    pub(super) sizes: Sizes,
}

impl MultiplyAdds {
    /// A product cut up, of whose operands so many elements are copied at a time: single ones in
    /// [`Layout::ReductionFast`], where they are turned around.
    pub fn new(whole: Whole, units: [i64; 2], sizes: Sizes) -> MultiplyAdds {
        let cut = sizes.cut(whole);
        MultiplyAdds { cut, units, row_registers: 0, skipped: 0.0, step_issues: STEP_ISSUES, sizes }
    }

    /// How the product is cut up.
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// The kernel of a product that is cut up like this.
    pub fn kernel(&self, product: &dyn Product) -> Kernel {
        pipeline::kernel(product, self.cut, self)
    }

    /// Elements from one term of the reduction to the next in a slot of the ring.
    pub(super) fn pitch(&self, side: usize) -> i64 {
        self.sizes.tile[side] + if self.cut.whole.layouts[side] == Layout::ReductionFast { VECTOR } else { 0 }
    }

    /// Pieces of an operand that a thread copies in a step.
    pub(super) fn pieces(&self, side: usize) -> i64 {
        ceil_div(self.sizes.tile[side] * self.sizes.tile_k / self.units[side], self.cut.threads())
    }

    /// Whether all pieces of the right operand that a thread copies are of one column, whose names they have in common.
    pub(super) fn one_column(&self) -> bool {
        let slow = self.cut.whole.layouts[1] == Layout::ReductionSlow;
        slow && self.cut.threads() % (self.sizes.tile[1] / self.units[1]) == 0
    }

    /// Rows of the left operand that a thread copies from in a step, if it is turned around: further terms of these are
    /// pieces of their own.
    pub(super) fn copied_rows(&self) -> i64 {
        ceil_div(self.sizes.tile[0] * TURNED.min(self.sizes.tile_k), self.cut.threads())
    }

    pub(super) fn shared_bytes(&self) -> i64 {
        4 * self.sizes.stages * self.sizes.tile_k * (self.pitch(0) + self.pitch(1))
    }

    pub(super) fn registers(&self) -> i64 {
        let [m, n] = self.sizes.own;
        m * n + 4 * (m + n) + self.row_registers * self.copied_rows() + OTHER_REGISTERS
    }
}
