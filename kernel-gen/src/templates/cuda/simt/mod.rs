//! Products of `f32` by multiply-adds, without tensor cores, from sm_80 on: what the class `strict` is made of.
//!
//! A block has a tile of `tile_m x tile_n` outputs and goes through the reduction in steps of `tile_k`. `cp.async` brings both
//! operands' tiles of a step into a ring of `stages` slots, `stages - 1` steps ahead, with one barrier a step, as in
//! [`mma`](super::mma). In a slot the reduction is the slow dimension, so that what a thread needs of a term lies side by side.
//! An operand that lies so in memory, too, is copied 16 bytes at a time; another one is turned around on its way, element by
//! element: eight lanes take neighbours of the reduction, which are a sector, and rows are four elements longer than they need
//! be, so that the 32 elements of a warp fall into different banks.
//!
//! A convolution in NHWC is the product of all output pixels and output channels: a pixel's channels are neighbours of
//! the reduction, and turned around. One over planes of pixels has output channels as rows and pixels as columns. One in HWCN is a product of channels and images for each output pixel, of which
//! nothing is turned.
//!
//! A thread adds up outer products of `own_m` by `own_n`. Its rows and columns stand in groups of four, a part of the tile apart
//! for each group, and are read 16 bytes at a time, a term ahead of the products that need them. Lanes are numbered so that two
//! neighbours share columns and the next two rows: shared memory then serves half a warp at a time.
//!
//! Where there are fewer tiles than multiprocessors, `split` blocks share a tile's reduction, and another launch adds up what
//! they have. In the shared memory of a cluster, element by element, that took 20 to 160 us for tiles of this size.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `tile_m`, `tile_n` | 32 to 256 | the tile of a block |
//! | `tile_k` | 8, 16, 32 | the reduction's length in one step |
//! | `own_m`, `own_n` | 4, 8, 16; 4, 8 | rows and columns of a thread |
//! | `stages` | 2 to 4 | slots of the ring |
//! | `split` | 1 to 16 | blocks that share a reduction |
//! | `group` | 1, 4, 8, 16 | rows of tiles that are worked on at the same time, for the L2 cache |

mod conv2d;
mod fragments;
mod gemm;
mod hwcn;
mod model;
mod planes;

pub use conv2d::SimtConv2d;
pub use gemm::SimtGemm;
pub use planes::SimtPlanes;

use super::family::{self, Needs, knobs};
use super::model::ceil_div;
use super::outer::{LANES, VECTOR};
use super::pipeline::{self, Cut};
use super::product::{Layout, Product, Whole, widest};
use super::requires;
use crate::ir::Kernel;
use crate::space::Value;
use crate::target::{Cuda, Target};
use crate::workload::Workload;

/// Neighbours of the reduction that lanes copy of a row that is turned around.
const TURNED: i64 = 8;
/// Multiply-adds of a step that a thread has written out: more than 16 kB of instructions do not stay in the first cache for
/// them, which made products of 4096 a tenth slower.
const MOST_UNROLLED: i64 = 1024;
/// Instructions of a step beside its terms and copies.
const STEP_ISSUES: f64 = 40.0;
/// Registers of a thread beside sums and operands, of which compilers hold those of two terms and load those of two more.
const OTHER_REGISTERS: i64 = 24;

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
    /// Warps of a block down (0) and across (1).
    fn warps(&self, side: usize) -> i64 {
        self.tile[side] / (self.own[side] * LANES[side])
    }

    /// The product as it is cut up.
    fn cut(&self, whole: Whole) -> Cut {
        let Sizes { tile, tile_k, stages, split, group, .. } = *self;
        let (warps, stored) = (self.warps(0) * self.warps(1), widest(whole.size[1], 4));
        Cut { whole, tile, tile_k, stages, split, clustered: false, group, warps, given: VECTOR, stored }
    }

    /// Groups of four of a thread's rows (0) or columns (1).
    fn quads(&self, side: usize) -> i64 {
        self.own[side] / VECTOR
    }
}

/// A product cut up as a config says, and the registers of threads that multiply it: `f32` products by multiply-adds.
#[derive(Clone, Copy, Debug)]
pub struct MultiplyAdds {
    cut: Cut,
    /// Elements of each operand that are copied at a time.
    units: [i64; 2],
    /// Registers of a thread for each row of the left operand that it copies from.
    row_registers: i64,
    /// The share of steps that blocks leave out, on average.
    skipped: f64,
    /// Instructions of a step beside its terms and copies.
    step_issues: f64,
    sizes: Sizes,
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
    fn pitch(&self, side: usize) -> i64 {
        self.sizes.tile[side] + if self.cut.whole.layouts[side] == Layout::ReductionFast { VECTOR } else { 0 }
    }

    /// Pieces of an operand that a thread copies in a step.
    fn pieces(&self, side: usize) -> i64 {
        ceil_div(self.sizes.tile[side] * self.sizes.tile_k / self.units[side], self.cut.threads())
    }

    /// Whether all pieces of the right operand that a thread copies are of one column, whose names they have in common.
    fn one_column(&self) -> bool {
        let slow = self.cut.whole.layouts[1] == Layout::ReductionSlow;
        slow && self.cut.threads() % (self.sizes.tile[1] / self.units[1]) == 0
    }

    /// Rows of the left operand that a thread copies from in a step, if it is turned around: further terms of these are
    /// pieces of their own.
    fn copied_rows(&self) -> i64 {
        ceil_div(self.sizes.tile[0] * TURNED.min(self.sizes.tile_k), self.cut.threads())
    }

    fn shared_bytes(&self) -> i64 {
        4 * self.sizes.stages * self.sizes.tile_k * (self.pitch(0) + self.pitch(1))
    }

    fn registers(&self) -> i64 {
        let [m, n] = self.sizes.own;
        m * n + 4 * (m + n) + self.row_registers * self.copied_rows() + OTHER_REGISTERS
    }
}

impl family::Plan for MultiplyAdds {
    fn needs(&self) -> Needs {
        Needs { threads: self.cut.threads(), registers: self.registers(), shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { tile, tile_k, own, .. } = self.sizes;
        (0..2).all(|side| tile[side] % (own[side] * LANES[side]) == 0)
            && own[0] * own[1] * tile_k <= MOST_UNROLLED
            && (64..=MOST_THREADS).contains(&self.cut.threads())
            && (0..2).all(|side| self.pieces(side) <= MOST_PIECES)
            && self.cut.suits(gpu)
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        model::us(self, w, gpu)
    }

    /// Blocks share reductions where tiles leave multiprocessors idle.
    fn narrow(&self, gpu: &Cuda, knob: &str, values: &mut Vec<Value>) {
        if knob == "split" && self.cut.all_tiles() >= 16 * gpu.sm_count {
            values.truncate(1);
        }
    }
}

/// Most threads of a block: more wait for each other without having more operands in common.
const MOST_THREADS: i64 = 512;
/// Most pieces of an operand that a thread copies in a step.
const MOST_PIECES: i64 = 32;

impl Sizes {
    /// What fits everywhere.
    pub const SMALLEST: Sizes = Sizes { tile: [32, 32], tile_k: 8, own: [4, 4], stages: 2, split: 1, group: 1 };
}
