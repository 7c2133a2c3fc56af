//! Products on the tensor cores of a warp (`mma.sync`), for every device from sm_80 on: the portable fallback of
//! [`wgmma`](super::wgmma), and where little is to be done its rival.
//!
//! A block has a tile of `tile_m x tile_n` outputs and goes through the reduction in steps of `tile_k`. `cp.async` brings
//! both operands' tiles of a step into a ring of `stages` slots, `stages - 1` steps ahead, so that one barrier a step is
//! enough: behind it everybody sees the step's tiles, and nobody still reads the slot that is filled next. Warps, `warps_m`
//! down and `warps_n` across, take their part of a slot to registers with `ldmatrix`, sixteen of the reduction ahead of
//! the products that need it. Rows of a slot are 16 bytes longer than they need be, so that the eight rows of a matrix lie in
//! different banks.
//!
//! A convolution in NHWC is the product of pixels (rows) and output channels (columns) over taps and input channels. The
//! matrix of its left operand (`im2col`) is never made: a thread knows the pixel of each row that it copies, and for a step
//! adds the tap; what meets the padding is read as zeros by `cp.async` itself. Weights are packed once, in the order of
//! steps, and have no tails.
//!
//! Convolutions over planes of pixels have output channels as rows and pixels as columns. Single pixels of 16 bits go through
//! registers to the ring, as do rows of products that no word divides.
//!
//! Where there are fewer tiles than multiprocessors, `split` blocks share a tile's reduction. Their sums are added in a
//! fixed order: in a cluster, each block those of the rows that it owns, which the others store into its shared memory
//! (`reduce = cluster`, from sm_90 on); or by a second launch behind the first (`reduce = launch`).
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `tile_m`, `tile_n` | 32 to 256 | the tile of a block |
//! | `tile_k` | 16, 32, 64 | the reduction's length in one step |
//! | `warps_m`, `warps_n` | 1, 2, 4 | warps of a block |
//! | `stages` | 2 to 6 | slots of the ring |
//! | `split` | 1 to 16 | blocks that share a reduction |
//! | `reduce` | `cluster`, `launch` | how their sums meet |
//! | `group` | 1, 4, 8, 16 | rows of tiles that are worked on at the same time, for the L2 cache |
//! | `store` | `direct`, `rows` | pairs from registers, or rows by way of shared memory, 16 bytes at a time where they divide |

mod conv2d;
mod fragments;
mod gemm;
mod model;
mod planes;

pub use conv2d::MmaConv2d;
pub use gemm::MmaGemm;
pub use planes::MmaPlanes;

use super::family::{self, Needs, Store, knobs, words};
use super::model::ceil_div;
use super::pipeline::{self, Cut, is_narrow};
use super::product::{Layout, Product, Whole, widest};
use super::requires;
use crate::ir::{DType, Kernel};
use crate::space::Value;
use crate::target::{Cuda, CudaFeature, Target};
use crate::workload::Workload;

/// Rows, columns and depth of a product of a warp.
const TILE: i64 = 16;
/// Elements of 16 bytes, by which rows of a slot are longer than they need be.
const PAD: i64 = 8;
/// Parts of a step whose operands are in registers at the same time.
const PAIR: i64 = 2;
/// Registers of a thread beside sums and operands.
const OTHER_REGISTERS: i64 = 26;
/// Registers of a thread for each row that it copies.
const ROW_REGISTERS: i64 = 5;
/// Most rows of the left operand that a thread copies in a step.
const MOST_ROWS: i64 = 16;
/// Most pieces of the right operand that a thread copies in a step, where each has names.
const MOST_NAMED: i64 = 32;

/// The device's data, or why it cannot run these kernels.
pub fn device<'t>(w: &Workload, t: &'t Target) -> Result<&'t Cuda, String> {
    let gpu = requires::device(t)?;
    if !matches!(w.dtype, DType::F16 | DType::Bf16) {
        return Err(format!("multiplies f16 and bf16, not {}", w.dtype));
    }
    requires::needs_cp_async(gpu)?;
    Ok(gpu)
}

words! {
    /// How the sums of blocks that share a reduction meet.
    enum Reduce {
        /// By a second launch, which takes them from global memory.
        Launch = "launch",
        /// In the shared memory of a cluster.
        Cluster = "cluster",
    }
}

knobs! {
    /// A config of a product on tensor cores. Pairs are rows, then columns.
    struct Sizes {
        /// Rows and columns of a block's tile.
        pub tile: [i64; 2] = "tile_m" in [32, 64, 128, 256], "tile_n" in [32, 64, 128, 256];
        /// The reduction's length in one step.
        pub tile_k: i64 = "tile_k" in [16, 32, 64];
        /// Warps of a block along rows and columns.
        pub warps: [i64; 2] = "warps_m" in [1, 2, 4], "warps_n" in [1, 2, 4];
        /// Slots of the ring.
        pub stages: i64 = "stages" in [2, 3, 4, 5, 6];
        /// Blocks that share a reduction.
        pub split: i64 = "split" in [1, 2, 4, 8, 16];
        /// How the sums of blocks that share a reduction meet.
        pub reduce: Reduce = "reduce" in Reduce::ALL;
        /// Rows of tiles that are worked on at the same time, for the L2 cache.
        pub group: i64 = "group" in [1, 4, 8, 16];
        /// How sums get to the output.
        pub store: Store = "store" in Store::ALL;
    }
}

impl Sizes {
    /// The product as these knobs cut it up; `out_bytes` are the bytes of an output element.
    fn cut(&self, whole: Whole, out_bytes: i64) -> Cut {
        let Sizes { tile, tile_k, warps, stages, split, reduce, group, .. } = *self;
        let clustered = split > 1 && reduce == Reduce::Cluster;
        let stored = widest(whole.size[1], out_bytes).min(4);
        let warps = warps[0] * warps[1];
        Cut { whole, tile, tile_k, stages, split, clustered, group, warps, given: 8, stored }
    }

    /// Rows and columns of a warp.
    fn warp_tile(&self) -> [i64; 2] {
        [0, 1].map(|side| self.tile[side] / self.warps[side])
    }
}

/// How the right operand is copied.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Right {
    /// In a loop, 16 bytes at a time as a rule.
    Loop,
    /// As the left one, with names for each column.
    Named {
        /// Elements that are copied at a time.
        unit: i64,
        /// Clocks in which a scheduler issues the instructions of a warp's piece.
        clocks: f64,
    },
}

/// A product cut up as a config says, and the registers of warps that multiply it: 16-bit products on tensor cores.
#[derive(Clone, Copy, Debug)]
pub struct TensorCores {
    cut: Cut,
    /// Times that the left operand has each element of the input: the taps of a convolution.
    taps: i64,
    /// Elements of the left operand that are copied at a time.
    unit: i64,
    /// How the right operand is copied.
    right: Right,
    /// Outputs that are neighbours in a row.
    neighbours: i64,
    /// The share of steps that blocks leave out, on average.
    skipped: f64,
    out_bytes: i64,
    sizes: Sizes,
}

impl TensorCores {
    /// A product cut up, whose left operand has each element `taps` times and is copied `unit` elements at a time.
    pub fn new(w: &Workload, whole: Whole, taps: i64, unit: i64, sizes: Sizes) -> TensorCores {
        let (out_bytes, neighbours) = (w.out_dtype.bytes() as i64, whole.size[1]);
        let cut = sizes.cut(whole, out_bytes);
        TensorCores { cut, taps, unit, right: Right::Loop, neighbours, skipped: 0.0, out_bytes, sizes }
    }

    /// How the product is cut up.
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// The kernel of a product that is cut up like this.
    pub fn kernel(&self, product: &dyn Product) -> Kernel {
        pipeline::kernel(product, self.cut, self)
    }

    /// Rows of an operand's tile in the ring, and elements from one to the next.
    fn slot(&self, side: usize) -> [i64; 2] {
        let Sizes { tile, tile_k, .. } = self.sizes;
        match self.cut.whole.layouts[side] {
            Layout::ReductionFast => [tile[side], tile_k + PAD],
            Layout::ReductionSlow => [tile_k, tile[side] + PAD],
        }
    }

    /// Elements of the output that a lane stores at a time by way of shared memory: 16 bytes, or as many as divide a row.
    fn stored(&self) -> i64 {
        widest(self.neighbours, self.out_bytes)
    }

    /// Elements between rows of sums in shared memory: eight more than there are, so that pairs of four rows lie in
    /// different banks.
    fn row_pitch(&self) -> i64 {
        self.sizes.warp_tile()[1] + 8
    }

    fn shared_bytes(&self) -> i64 {
        let Sizes { tile: [tile_m, tile_n], stages, split, store, .. } = self.sizes;
        let rows = 4 * self.cut.warps * TILE * self.row_pitch();
        let sums = match self.cut.clustered {
            true => rows + 4 * tile_m * (tile_n + 4) + 16,
            false if store == Store::Rows && split == 1 => rows,
            false => 0,
        };
        let slot: i64 = (0..2).map(|side| self.slot(side).iter().product::<i64>()).sum();
        2 * stages * slot + sums + 64
    }

    /// Pieces of the left operand that a thread copies in a step.
    fn copied_rows(&self) -> i64 {
        ceil_div(self.sizes.tile[0] * self.sizes.tile_k / self.unit, self.cut.threads())
    }

    fn registers(&self) -> i64 {
        let [m, n] = self.sizes.warp_tile();
        let narrow = |unit: i64, pieces: i64| if is_narrow(unit, DType::F16) { pieces } else { 0 };
        let right = match self.right {
            Right::Loop => 0,
            Right::Named { unit, .. } => {
                let pieces = self.right_pieces(unit);
                let columns = if self.one_column(unit) { 1 } else { pieces };
                pieces + narrow(unit, pieces) + ROW_REGISTERS * columns
            }
        };
        let left = ROW_REGISTERS * self.copied_rows() + narrow(self.unit, self.copied_rows());
        m * n / 32 + PAIR * (m + n) / 4 + left + right + OTHER_REGISTERS
    }

    /// Whether an operand goes through registers on its way to the ring.
    fn is_held(&self) -> bool {
        let right = matches!(self.right, Right::Named { unit, .. } if is_narrow(unit, DType::F16));
        right || is_narrow(self.unit, DType::F16)
    }

    /// Whether all pieces of the right operand that a thread copies are of one column, whose names they have in common.
    fn one_column(&self, unit: i64) -> bool {
        let slow = self.cut.whole.layouts[1] == Layout::ReductionSlow;
        slow && self.cut.threads() % (self.sizes.tile[1] / unit) == 0
    }

    /// Pieces of the right operand that a thread copies in a step, of `unit` elements.
    fn right_pieces(&self, unit: i64) -> i64 {
        ceil_div(self.sizes.tile[1] * self.sizes.tile_k / unit, self.cut.threads())
    }
}

impl family::Plan for TensorCores {
    fn needs(&self) -> Needs {
        Needs { threads: self.cut.threads(), registers: self.registers(), shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { tile, warps, split, reduce, store, .. } = self.sizes;
        let staged = store == Store::Rows;
        // What sums that are shared come by is not chosen twice.
        let useful = (split > 1 || reduce == Reduce::Launch) && (split == 1 || !staged);
        let divides = (0..2).all(|side| tile[side] % (TILE * warps[side]) == 0)
            && (split == 1 || tile[0] % split == 0)
            && (staged || split > 1 || self.neighbours % 2 == 0);
        let cluster = !self.cut.clustered || gpu.has(CudaFeature::Cluster) && split <= gpu.cluster_size;
        let few = match self.right {
            Right::Loop => true,
            Right::Named { unit, .. } => self.right_pieces(unit) <= MOST_NAMED,
        };
        useful && divides && cluster && few && self.copied_rows() <= MOST_ROWS && self.cut.suits(gpu)
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        model::us(self, w, gpu)
    }

    /// Blocks share reductions where there are fewer tiles than multiprocessors.
    fn narrow(&self, gpu: &Cuda, knob: &str, values: &mut Vec<Value>) {
        let many = self.cut.all_tiles() >= 4 * gpu.sm_count;
        if knob == "split" && many || knob == "reduce" && !gpu.has(CudaFeature::Cluster) {
            values.truncate(1);
        }
    }
}

impl Sizes {
    /// What fits everywhere.
    pub const SMALLEST: Sizes = Sizes {
        tile: [32, 32],
        tile_k: 16,
        warps: [1, 1],
        stages: 2,
        split: 1,
        reduce: Reduce::Launch,
        group: 1,
        store: Store::Rows,
    };
}
