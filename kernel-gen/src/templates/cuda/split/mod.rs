//! Products of `f32` on Hopper's tensor cores, exact but for about one part in four million: each element is the sum of
//! two numbers in tf32.
//!
//! Tensor cores multiply tf32, of which an `f32` has twice the bits. So `x = x0 + x1` and `w = w0 + w1`, and three of the
//! four products, `x1 w0 + x0 w1 + x0 w0`, are all that an `f32` sum keeps. A step's sum of them is added to the total by the
//! threads: tensor cores cut off what does not fit into a sum where threads round, which over a long reduction is the
//! larger error. In the class `tf32` it is the first product alone. [`SplitBf16`] is the same in three parts of bf16.
//!
//! Rows are output pixels and columns output channels, as in [`wgmma`](super::wgmma); but the left operand comes to the
//! tensor cores from **registers**, where the consumers split it. So the order of the activations is of no importance:
//! producers (the block's last warpgroup) bring elements as they lie to shared memory with `cp.async`, zeros where there is
//! padding, and the consumers pick theirs. Weights are split and laid out as `wgmma` wants them when they are packed: one
//! bulk copy a step.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `consumers`, `row_blocks`, `bn` | 1 to 3; 1, 2; 32 to 256 | the tile: `consumers * row_blocks * 64` rows and `bn` columns; 2 row blocks in the class `tf32` only |
//! | `stages` | 3 to 8 | slots of the ring |
//! | `lag` | 1 to 3 | steps whose pixels are under way while those before them are waited for |
//!
//! Range: elements up to 3.4e38 as in `f32`; infinities become NaN, and NaN stays NaN. Subnormals are numbers as others are.

mod bf16;
mod block;
mod halves;
mod kernel;
mod model;
mod parts;

pub use bf16::SplitBf16;
pub use halves::SplitHalves;

use crate::ir::DType;
use crate::target::{Cuda, Target};
use crate::templates::cuda::family::{self, Case, Family, Needs, built, knobs};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::requires::{device, needs_f32, needs_wgmma, weights};
use crate::templates::cuda::source::{Fast, Source};
use crate::templates::cuda::warpgroups::WARPGROUP;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Math, Workload};
use block::Cut;
use parts::Parts;

/// See the module's text.
pub struct SplitProduct;

/// Terms of the reduction in one step: 128 bytes of `f32`, the widest swizzle.
const DEPTH: i64 = 32;
/// Threads that bring pixels.
const PRODUCERS: i64 = WARPGROUP;
/// Registers of a consumer beside sums and operands.
const OTHER_REGISTERS: i64 = 48;

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Consumer warpgroups.
        consumers: i64 = "consumers" in [1, 2, 3];
        /// Blocks of 64 rows of each.
        row_blocks: i64 = "row_blocks" in [1, 2];
        /// Columns of a tile.
        bn: i64 = "bn" in BN;
        /// Slots of the ring.
        stages: i64 = "stages" in [3, 4, 5, 6, 8];
        /// Steps whose pixels are under way while those before them are waited for.
        lag: i64 = "lag" in [1, 2, 3];
    }
}

impl Sizes {
    /// Rows of a tile.
    fn bm(&self) -> i64 {
        64 * self.row_blocks * self.consumers
    }
}

/// A product cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    source: Source,
    sizes: Sizes,
    /// Parts of each element.
    parts: Parts,
}

impl Plan {
    /// The product in tiles and steps.
    fn cut(&self) -> Cut {
        let (Plan { source, sizes, parts }, registers) = (*self, self.shares());
        let (row_tiles, parts) = (ceil_div(source.rows(), sizes.bm()), parts.count());
        Cut { source, row_tiles, bn: sizes.bn, depth: DEPTH, parts, consumers: sizes.consumers, registers }
    }

    /// Elements in shared memory between the terms of the reduction where rows go faster, and between rows where terms do: no
    /// two threads that load at once meet in a bank.
    fn pitch(&self) -> i64 {
        match (self.source.fast(), self.parts.dtype()) {
            // A warp's loads are four neighbouring terms of eight rows,
            (Fast::Rows, DType::F32) => self.sizes.bm() + 8,
            // or every other one of eight.
            (Fast::Rows, _) => self.sizes.bm() + 4,
            // The swizzle keeps eight rows apart whose threads load 16 bytes of each,
            (Fast::Reduction, DType::F32) => DEPTH,
            // but not four rows whose threads load 32, as half a warp does.
            (Fast::Reduction, _) => DEPTH + 8,
        }
    }

    /// Bytes of shared memory.
    fn shared_bytes(&self) -> i64 {
        let lines = match self.source.fast() {
            Fast::Rows => DEPTH,
            Fast::Reduction => self.sizes.bm(),
        };
        let right = self.parts.count() * self.parts.bytes() * DEPTH * self.sizes.bn;
        let slot = 4 * lines * self.pitch() + right + 16;
        // Up to 1024 bytes before the first slot, which must be aligned to that, and as many before the second buffer.
        self.sizes.stages * slot + 2048
    }

    /// Registers that a thread of the producers and of the consumers asks for; all have enough from the start in a block of
    /// 256.
    fn shares(&self) -> Option<[u32; 2]> {
        match (self.sizes.consumers, self.source.fast()) {
            (1, _) => None,
            // Producers that copy terms side by side have many addresses, and spill with fewer.
            (2, Fast::Reduction) => Some([88, 208]),
            // Three parts of 16 bits take less than two of 32.
            (2, Fast::Rows) if self.parts == Parts::ThreeBf16 => Some([88, 208]),
            (2, Fast::Rows) => Some([56, 224]),
            _ => Some([56, 152]),
        }
    }

    /// Registers of a consumer, as far as they can be told beforehand.
    fn registers(&self) -> i64 {
        let Sizes { row_blocks, bn, .. } = self.sizes;
        let added = if self.parts.count() > 1 { bn / 2 } else { 0 };
        row_blocks * bn / 2 + added + self.parts.registers() + OTHER_REGISTERS
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: self.cut().threads(), registers: 0, shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, cuda: &Cuda) -> bool {
        let most = self.shares().map_or(cuda.registers_per_thread, |[_, consumer]| i64::from(consumer));
        let Sizes { bn, stages, lag, .. } = self.sizes;
        // A narrower tile would do; and of slots that are all under way none is multiplied.
        let useful = (bn == BN[0] || bn - 16 < self.source.columns()) && lag + 2 <= stages;
        // Producers share out the rows evenly.
        let groups = self.sizes.bm() / self.source.width();
        let even = self.source.fast() == Fast::Reduction || groups % PRODUCERS == 0 || PRODUCERS % groups == 0;
        // Blocks of rows one after the other are slower than one, and in several rounds their writes are not seen to be apart.
        let alone = self.sizes.row_blocks == 1 || self.parts.count() == 1 && self.cut().tiles() <= cuda.sm_count;
        useful && even && alone && self.registers() <= most && self.cut().column_tiles() <= cuda.grid_dim[1]
    }

    fn us(&self, w: &Workload, cuda: &Cuda) -> f64 {
        model::us(self, w, cuda)
    }
}

/// The widths of tiles.
const BN: [i64; 9] = [32, 48, 64, 80, 96, 112, 128, 192, 256];

/// A product in the parts that a class asks for.
#[derive(Clone, Copy)]
pub struct Problem {
    source: Source,
    parts: Parts,
}

/// What templates of products in parts differ in.
pub(crate) trait Split: Send + Sync + 'static {
    /// See [`Family`].
    const NAME: &'static str;
    const VERSION: u32;
    /// The parts in the class `fp32`.
    const FP32: Parts;
}

impl Split for SplitProduct {
    const NAME: &'static str = "split_product";
    const VERSION: u32 = 2;
    const FP32: Parts = Parts::TwoTf32;
}

impl<S: Split> Family for S {
    const NAME: &'static str = S::NAME;
    const VERSION: u32 = S::VERSION;
    const LIMITS: &'static str = "sums fit in registers, the ring in shared memory";
    // Measured on an H100: 0.2 to 1 us of 3 to 7 are lost (`docs/perf-notes.md`).
    const LONGEST_EARLY_US: f64 = 0.0;
    type Problem = Problem;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Problem, String> {
        needs_wgmma(device(t)?)?;
        needs_f32(w)?;
        let parts = match (w.math, S::FP32) {
            (Math::Strict, _) => {
                return Err("products of parts are no f32 multiply-adds, which `strict` asks for".into());
            }
            (Math::Local | Math::Fp32, parts) => parts,
            (Math::Tf32, Parts::ThreeBf16) => {
                return Err("three parts are for the class fp32: `tf32` is content with one".into());
            }
            (Math::Tf32, _) => Parts::Tf32,
        };
        if w.reduction_length() < parts.shortest_sum() {
            return Err(format!("a sum of {} terms has less room for error than two parts take", w.reduction_length()));
        }
        let source = Source::of(w)?;
        if source.fast() == Fast::Reduction && source.width() == 1 {
            return Err(format!("{} terms side by side: their number must divide by 4", source.depth()));
        }
        Ok(Problem { source, parts })
    }

    fn plan(case: &Case<'_, Problem>, sizes: Sizes) -> Result<Plan, TemplateError> {
        let Problem { source, parts } = case.problem;
        Ok(Plan { source, sizes, parts })
    }

    fn kernel(case: &Case<'_, Problem>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let pack = kernel::pack(plan, &weights(case.w)?);
        built(kernel::kernel(plan, case.w, case.gpu.sm_count), [pack])
    }
}
