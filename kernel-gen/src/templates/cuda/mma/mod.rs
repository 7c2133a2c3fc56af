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
mod gemm;
mod kernel;
mod model;
mod store;

pub use conv2d::MmaConv2d;
pub use gemm::MmaGemm;

use super::ceil_div;
use super::product::{Layout, Outputs, Product, widest};
use crate::ir::DType;
use crate::space::{Config, ConfigError, Space, SpaceBuilder};
use crate::target::{Cuda, CudaFeature, Target};
use crate::workload::Workload;
use crate::workload::operands::Operands;

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

/// The device's data, or why it cannot run these kernels.
fn device<'t>(w: &Workload, t: &'t Target) -> Result<&'t Cuda, String> {
    let gpu = super::device(t)?;
    if !matches!(w.dtype, DType::F16 | DType::Bf16) {
        return Err(format!("multiplies f16 and bf16, not {}", w.dtype));
    }
    if !gpu.has(CudaFeature::CpAsync) {
        return Err("needs cp.async (sm_80)".into());
    }
    Ok(gpu)
}

/// How the sums of blocks that share a reduction meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reduce {
    /// In the shared memory of a cluster.
    Cluster,
    /// In global memory, from where another launch takes them.
    Launch,
}

/// A config as numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Sizes {
    tile_m: i64,
    tile_n: i64,
    tile_k: i64,
    warps_m: i64,
    warps_n: i64,
    stages: i64,
    split: i64,
    reduce: Reduce,
    group: i64,
    /// Whether sums go to the output by way of shared memory.
    staged: bool,
}

impl Sizes {
    fn of(config: &Config) -> Result<Sizes, ConfigError> {
        Ok(Sizes {
            tile_m: config.int("tile_m")?,
            tile_n: config.int("tile_n")?,
            tile_k: config.int("tile_k")?,
            warps_m: config.int("warps_m")?,
            warps_n: config.int("warps_n")?,
            stages: config.int("stages")?,
            split: config.int("split")?,
            reduce: if config.str("reduce")? == "cluster" { Reduce::Cluster } else { Reduce::Launch },
            group: config.int("group")?,
            staged: config.str("store")? == "rows",
        })
    }

    fn config(&self) -> Config {
        Config::new()
            .with("tile_m", self.tile_m)
            .with("tile_n", self.tile_n)
            .with("tile_k", self.tile_k)
            .with("warps_m", self.warps_m)
            .with("warps_n", self.warps_n)
            .with("stages", self.stages)
            .with("split", self.split)
            .with("reduce", if self.reduce == Reduce::Cluster { "cluster" } else { "launch" })
            .with("group", self.group)
            .with("store", if self.staged { "rows" } else { "direct" })
    }

    fn warps(&self) -> i64 {
        self.warps_m * self.warps_n
    }

    fn threads(&self) -> i64 {
        self.warps() * Cuda::WARP
    }

    /// Rows of a warp.
    fn warp_m(&self) -> i64 {
        self.tile_m / self.warps_m
    }

    /// Columns of a warp.
    fn warp_n(&self) -> i64 {
        self.tile_n / self.warps_n
    }
}

/// A product cut up as a config says.
#[derive(Clone, Copy, Debug)]
struct Plan {
    batch: i64,
    m: i64,
    n: i64,
    k: i64,
    layouts: [Layout; 2],
    /// Times that the left operand has each element of the input: the taps of a convolution.
    taps: i64,
    /// Elements of the left operand that are copied at a time.
    unit: i64,
    out_bytes: i64,
    sizes: Sizes,
}

impl Plan {
    /// Tiles down and across.
    fn tiles(&self) -> [i64; 2] {
        [ceil_div(self.m, self.sizes.tile_m), ceil_div(self.n, self.sizes.tile_n)]
    }

    /// Where its sums go.
    fn outputs<'a>(&self, product: &'a dyn Product, params: &'a Operands) -> Outputs<'a> {
        let tile = [self.sizes.tile_m, self.sizes.tile_n];
        Outputs { product, params, batch: self.batch, size: [self.m, self.n], tile }
    }

    /// Steps of a block.
    fn steps(&self) -> i64 {
        ceil_div(self.k, self.sizes.tile_k * self.sizes.split)
    }

    /// The reduction's length with what the last steps have beyond it.
    fn padded_k(&self) -> i64 {
        self.steps() * self.sizes.split * self.sizes.tile_k
    }

    /// Blocks of the grid.
    fn blocks(&self) -> i64 {
        self.batch * self.tiles().iter().product::<i64>() * self.sizes.split
    }

    /// Rows of an operand's tile in the ring, and elements from one to the next.
    fn slot(&self, layout: Layout, length: i64) -> [i64; 2] {
        match layout {
            Layout::ReductionFast => [length, self.sizes.tile_k + PAD],
            Layout::ReductionSlow => [self.sizes.tile_k, length + PAD],
        }
    }

    /// Elements of the output that a lane stores at a time by way of shared memory: 16 bytes, or as many as divide a row.
    fn piece(&self) -> i64 {
        widest(self.n, self.out_bytes)
    }

    /// Elements between rows of the sums that another launch adds up.
    fn partial_pitch(&self) -> i64 {
        ceil_div(self.n, 8) * 8
    }

    /// Elements between rows of sums in shared memory: eight more than there are, so that pairs of four rows lie in
    /// different banks.
    fn row_pitch(&self) -> i64 {
        self.sizes.warp_n() + 8
    }

    /// Whether sums are shared in a cluster.
    fn clustered(&self) -> bool {
        self.sizes.split > 1 && self.sizes.reduce == Reduce::Cluster
    }

    /// Bytes of a slot of the ring.
    fn slot_bytes(&self) -> i64 {
        let sides = [self.sizes.tile_m, self.sizes.tile_n];
        let elements = |side: usize| self.slot(self.layouts[side], sides[side]).iter().product::<i64>();
        2 * (elements(0) + elements(1))
    }

    fn shared_bytes(&self) -> i64 {
        let Sizes { tile_m, tile_n, stages, split, staged, .. } = self.sizes;
        let rows = 4 * self.sizes.warps() * TILE * self.row_pitch();
        let sums = match self.clustered() {
            true => rows + 4 * tile_m * (tile_n + 4) + 16,
            false if staged && split == 1 => rows,
            false => 0,
        };
        stages * self.slot_bytes() + sums + 64
    }

    /// Pieces of the left operand that a thread copies in a step.
    fn copied_rows(&self) -> i64 {
        ceil_div(self.sizes.tile_m * self.sizes.tile_k / self.unit, self.sizes.threads())
    }

    fn registers(&self) -> i64 {
        let (m, n) = (self.sizes.warp_m(), self.sizes.warp_n());
        m * n / 32 + PAIR * (m + n) / 4 + ROW_REGISTERS * self.copied_rows() + OTHER_REGISTERS
    }

    /// Whether a device can run it without spilling, and no part of it is for nothing.
    fn fits(&self, gpu: &Cuda) -> bool {
        let Sizes { tile_m, tile_n, tile_k, warps_m, warps_n, split, reduce, group, staged, stages } = self.sizes;
        let useful = (tile_m == 32 || tile_m < 2 * self.m)
            && (tile_n == 32 || tile_n < 2 * self.n)
            && tile_k * split < self.k + tile_k
            && (split - 1) * self.steps() * tile_k < self.k
            && stages <= self.steps().max(2)
            && (group == 1 || group <= self.tiles()[0])
            // What sums that are shared come by is not chosen twice.
            && (split > 1 || reduce == Reduce::Launch)
            && (split == 1 || !staged);
        let divides = tile_m % (TILE * warps_m) == 0
            && tile_n % (TILE * warps_n) == 0
            && (split == 1 || tile_m % split == 0)
            && (staged || split > 1 || self.n % 2 == 0);
        let cluster = !self.clustered() || gpu.has(CudaFeature::Cluster) && split <= gpu.cluster_size;
        useful
            && divides
            && cluster
            && self.copied_rows() <= MOST_ROWS
            && self.shared_bytes() <= gpu.shared_per_block_optin
            && self.sizes.threads() <= gpu.threads_per_block
            && self.registers() <= gpu.registers_per_thread
            && self.registers() * self.sizes.threads() <= gpu.registers_per_block
            && self.tiles().iter().product::<i64>() * split <= gpu.grid_dim[0]
            && self.batch <= gpu.grid_dim[1]
    }
}

/// The knobs that all these kernels have; `plan` cuts the product up.
fn knobs(plan: impl Fn(Sizes) -> Plan + Send + Sync + 'static, gpu: &Cuda) -> SpaceBuilder {
    let gpu = gpu.clone();
    let whole = plan(SMALLEST);
    let most_split = if whole.batch * whole.tiles().iter().product::<i64>() < 4 * gpu.sm_count { 16 } else { 1 };
    let split: Vec<i64> = [1, 2, 4, 8, 16].into_iter().filter(|s| *s <= most_split).collect();
    let reduce = if gpu.has(CudaFeature::Cluster) { vec!["launch", "cluster"] } else { vec!["launch"] };
    Space::builder()
        .knob("tile_m", [32, 64, 128, 256])
        .knob("tile_n", [32, 64, 128, 256])
        .knob("tile_k", [16, 32, 64])
        .knob("warps_m", [1, 2, 4])
        .knob("warps_n", [1, 2, 4])
        .knob("stages", [2, 3, 4, 5, 6])
        .knob("split", split)
        .knob("reduce", reduce)
        .knob("group", [1, 4, 8, 16])
        .knob("store", ["direct", "rows"])
        .filter("tiles divide; registers and shared memory suffice, and all have something to do", move |config| {
            Sizes::of(config).is_ok_and(|sizes| plan(sizes).fits(&gpu))
        })
}

/// What fits everywhere.
const SMALLEST: Sizes = Sizes {
    tile_m: 32,
    tile_n: 32,
    tile_k: 16,
    warps_m: 1,
    warps_n: 1,
    stages: 2,
    split: 1,
    reduce: Reduce::Launch,
    group: 1,
    staged: true,
};
