//! The knobs of products on tensor cores, and a product as they cut it up.

use crate::ir::{DType, Kernel};
use crate::target::{Cuda, Target};
use crate::templates::cuda::cut::{Cut, Layout, Whole, is_narrow};
use crate::templates::cuda::family::{Store, knobs, words};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::pipeline;
use crate::templates::cuda::product::{Product, widest};
use crate::templates::cuda::requires;
use crate::workload::{WeightZero, Workload};

/// Rows of a product of a warp, and its depth in units of 16 bits.
pub(super) const TILE: i64 = 16;
/// Bytes by which rows of a slot are longer than they need be.
const PAD_BYTES: i64 = 16;
/// Parts of a step whose operands are in registers at the same time.
pub(super) const PAIR: i64 = 2;
/// Registers of a thread beside sums and operands.
const OTHER_REGISTERS: i64 = 26;
/// Registers of a thread for each row that it copies.
const ROW_REGISTERS: i64 = 5;
/// Most rows of the left operand that a thread copies in a step.
pub(super) const MOST_ROWS: i64 = 16;
/// Most pieces of the right operand that a thread copies in a step, where each has names.
pub(super) const MOST_NAMED: i64 = 32;

/// The device's data, or why it cannot run these kernels.
pub fn device<'t>(w: &Workload, t: &'t Target) -> Result<&'t Cuda, String> {
    let gpu = requires::device(t)?;
    if !matches!(w.dtype, DType::F16 | DType::Bf16) {
        return Err(format!("multiplies f16 and bf16, not {}", w.dtype));
    }
    requires::needs_cp_async(gpu)?;
    Ok(gpu)
}

/// The device's data, or why it cannot run these kernels, which also multiply `i8` and `u8` with weights that have no zero points.
pub(super) fn device_of_integers<'t>(w: &Workload, t: &'t Target) -> Result<&'t Cuda, String> {
    if !w.is_quantised() {
        return device(w, t);
    }
    let gpu = requires::device(t)?;
    requires::needs_cp_async(gpu)?;
    match w.quant.weight_zero {
        WeightZero::None => Ok(gpu),
        _ => Err("for weights without zero points".into()),
    }
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
        /// The reduction's length in one step, in units of 16 bits: of `i8` and `u8` a step has twice as many terms.
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

    /// The product as these knobs cut it up; operands have elements of `bytes` bytes, the output of `out_bytes`.
    pub(super) fn cut(&self, whole: Whole, bytes: i64, out_bytes: i64) -> Cut {
        let tile_k = self.tile_k * 2 / bytes;
        let Sizes { tile, warps, stages, split, reduce, group, .. } = *self;
        let clustered = split > 1 && reduce == Reduce::Cluster;
        let stored = widest(whole.size[1], out_bytes).min(4);
        let warps = warps[0] * warps[1];
        Cut { whole, tile, tile_k, stages, split, clustered, group, warps, given: 8, stored }
    }

    /// Rows and columns of a warp.
    pub(super) fn warp_tile(&self) -> [i64; 2] {
        [0, 1].map(|side| self.tile[side] / self.warps[side])
    }
}

/// How the right operand is copied.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Right {
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
    pub(super) cut: Cut,
    /// Times that the left operand has each element of the input: the taps of a convolution.
    pub(super) taps: i64,
    /// Elements of the left operand that are copied at a time.
    pub(super) unit: i64,
    /// How the right operand is copied.
    pub(super) right: Right,
    /// Outputs that are neighbours in a row.
    pub(super) neighbours: i64,
    /// The share of steps that blocks leave out, on average.
    pub(super) skipped: f64,
    /// Bytes of an operand's element, and of the output's.
    pub(super) bytes: i64,
    pub(super) out_bytes: i64,
    /// Whether the input has a zero point.
    pub(super) zero: bool,
    pub(super) sizes: Sizes,
}

impl TensorCores {
    /// A product cut up, whose left operand has each element `taps` times and is copied `unit` elements at a time.
    pub fn new(w: &Workload, whole: Whole, taps: i64, unit: i64, sizes: Sizes) -> TensorCores {
        let (bytes, out_bytes, neighbours) = (w.dtype.bytes() as i64, w.out_dtype.bytes() as i64, whole.size[1]);
        let (cut, right) = (sizes.cut(whole, bytes, out_bytes), Right::Loop);
        let zero = w.quant.input_zero;
        TensorCores { cut, taps, unit, right, neighbours, skipped: 0.0, bytes, out_bytes, zero, sizes }
    }

    /// Elements of the reduction in a product of a warp.
    pub(super) fn deep(&self) -> i64 {
        2 * TILE / self.bytes
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
    pub(super) fn slot(&self, side: usize) -> [i64; 2] {
        let (tile, pad) = (self.sizes.tile, PAD_BYTES / self.bytes);
        match self.cut.whole.layouts[side] {
            Layout::ReductionFast => [tile[side], self.cut.tile_k + pad],
            Layout::ReductionSlow => [self.cut.tile_k, tile[side] + pad],
        }
    }

    /// Elements of the output that a lane stores at a time by way of shared memory: 16 bytes, or as many as divide a row.
    pub(super) fn stored(&self) -> i64 {
        widest(self.neighbours, self.out_bytes)
    }

    /// Elements between rows of sums in shared memory: eight more than there are, so that pairs of four rows lie in
    /// different banks.
    pub(super) fn row_pitch(&self) -> i64 {
        self.sizes.warp_tile()[1] + 8
    }

    pub(super) fn shared_bytes(&self) -> i64 {
        let Sizes { tile: [tile_m, tile_n], stages, split, store, .. } = self.sizes;
        let rows = 4 * self.cut.warps * TILE * self.row_pitch();
        let sums = match self.cut.clustered {
            true => rows + 4 * tile_m * (tile_n + 4) + 16,
            false if store == Store::Rows && split == 1 => rows,
            false => 0,
        };
        let slot: i64 = (0..2).map(|side| self.slot(side).iter().product::<i64>()).sum();
        self.bytes * stages * slot + sums + 64
    }

    /// Pieces of the left operand that a thread copies in a step.
    pub(super) fn copied_rows(&self) -> i64 {
        ceil_div(self.sizes.tile[0] * self.cut.tile_k / self.unit, self.cut.threads())
    }

    pub(super) fn registers(&self) -> i64 {
        let [m, n] = self.sizes.warp_tile();
        let narrow = |unit: i64, pieces: i64| if is_narrow(unit * self.bytes) { pieces } else { 0 };
        let zero = if self.zero { n / 2 } else { 0 };
        let right = match self.right {
            Right::Loop => 0,
            Right::Named { unit, .. } => {
                let pieces = self.right_pieces(unit);
                let columns = if self.one_column(unit) { 1 } else { pieces };
                pieces + narrow(unit, pieces) + ROW_REGISTERS * columns
            }
        };
        let left = ROW_REGISTERS * self.copied_rows() + narrow(self.unit, self.copied_rows());
        m * n / 32 + PAIR * (m + n) / 4 + zero + left + right + OTHER_REGISTERS
    }

    /// Whether an operand goes through registers on its way to the ring.
    pub(super) fn is_held(&self) -> bool {
        let right = matches!(self.right, Right::Named { unit, .. } if is_narrow(unit * self.bytes));
        right || is_narrow(self.unit * self.bytes)
    }

    /// Whether all pieces of the right operand that a thread copies are of one column, whose names they have in common.
    pub(super) fn one_column(&self, unit: i64) -> bool {
        let slow = self.cut.whole.layouts[1] == Layout::ReductionSlow;
        slow && self.cut.threads() % (self.sizes.tile[1] / unit) == 0
    }

    /// Pieces of the right operand that a thread copies in a step, of `unit` elements.
    pub(super) fn right_pieces(&self, unit: i64) -> i64 {
        ceil_div(self.sizes.tile[1] * self.cut.tile_k / unit, self.cut.threads())
    }
}
