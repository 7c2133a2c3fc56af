//! Products of `f32` on Hopper's tensor cores, exact but for about one part in four million: each element is the sum of
//! two numbers in tf32.
//!
//! Tensor cores multiply tf32, of which an `f32` has twice the bits. So `x = x0 + x1` and `w = w0 + w1`, and three of the
//! four products, `x1 w0 + x0 w1 + x0 w0`, are all that an `f32` sum keeps. A step's sum of them is added to the total by the
//! threads: tensor cores cut off what does not fit into a sum where threads round, which over a long reduction is the
//! larger error. In the class `tf32` it is the first product alone.
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

mod halves;
mod kernel;
mod model;
mod source;
mod walk;

pub use halves::SplitHalves;

use crate::ir::DType;
use crate::schedule::Schedule;
use crate::space::{Config, ConfigError, Space};
use crate::target::{Cuda, CudaFeature, Target};
use crate::templates::cuda::{ceil_div, fastest, with_costs};
use crate::templates::{Pack, Scheduled, Template, TemplateError};
use crate::workload::{Math, Role, Workload};
use source::{Fast, Source};

/// See the module's text.
pub struct SplitProduct;

/// Terms of the reduction in one step: 128 bytes, the widest swizzle.
const DEPTH: i64 = 32;
/// Threads of a warpgroup, and those that bring pixels.
const WARPGROUP: i64 = 128;
const PRODUCERS: i64 = WARPGROUP;
/// Registers of a consumer beside sums and operands.
const OTHER_REGISTERS: i64 = 48;

/// A config as numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Sizes {
    /// Consumer warpgroups.
    consumers: i64,
    /// Blocks of 64 rows of each.
    row_blocks: i64,
    /// Columns of a tile.
    bn: i64,
    /// Slots of the ring.
    stages: i64,
    /// Steps whose pixels are under way while those before them are waited for.
    lag: i64,
}

impl Sizes {
    fn of(config: &Config) -> Result<Sizes, ConfigError> {
        Ok(Sizes {
            consumers: config.int("consumers")?,
            row_blocks: config.int("row_blocks")?,
            bn: config.int("bn")?,
            stages: config.int("stages")?,
            lag: config.int("lag")?,
        })
    }

    /// Rows of a tile.
    fn bm(&self) -> i64 {
        64 * self.row_blocks * self.consumers
    }

    /// Threads of a block.
    fn threads(&self) -> i64 {
        PRODUCERS + WARPGROUP * self.consumers
    }

    /// Elements between the terms of the reduction in shared memory, where rows go faster: the four of a load are eight
    /// banks apart.
    fn pitch(&self) -> i64 {
        self.bm() + 8
    }

    /// Registers that a thread of the producers and of the consumers asks for; all have enough from the start in a block of
    /// 256.
    fn registers(&self) -> Option<[u32; 2]> {
        match self.consumers {
            1 => None,
            2 => Some([56, 224]),
            _ => Some([56, 152]),
        }
    }
}

/// A product cut up as a config says.
#[derive(Clone, Copy, Debug)]
struct Plan {
    source: Source,
    sizes: Sizes,
    /// Parts of each element.
    parts: i64,
}

impl Plan {
    /// Steps for one tap.
    fn chunks(&self) -> i64 {
        ceil_div(self.source.depth(), DEPTH)
    }

    /// Steps of a tile.
    fn steps(&self) -> i64 {
        self.source.taps().iter().product::<i64>() * self.chunks()
    }

    fn column_tiles(&self) -> i64 {
        ceil_div(self.source.columns(), self.sizes.bn)
    }

    /// Tiles of the output.
    fn tiles(&self) -> i64 {
        ceil_div(self.source.rows(), self.sizes.bm()) * self.column_tiles()
    }

    /// Bytes of shared memory.
    fn shared_bytes(&self) -> i64 {
        let left = match self.source.fast() {
            Fast::Rows => self.sizes.pitch(),
            Fast::Reduction => self.sizes.bm(),
        };
        let slot = 4 * DEPTH * (left + self.parts * self.sizes.bn) + 16;
        // Up to 1024 bytes before the first slot, which must be aligned to that, and as many before the second buffer.
        self.sizes.stages * slot + 2048
    }

    /// Registers of a consumer, as far as they can be told beforehand.
    fn registers(&self) -> i64 {
        let Sizes { row_blocks, bn, .. } = self.sizes;
        let added = if self.parts > 1 { bn / 2 } else { 0 };
        row_blocks * bn / 2 + added + self.parts * DEPTH / 2 + OTHER_REGISTERS
    }

    /// Whether a device can run it without spilling, and no part of it is for nothing.
    fn fits(&self, cuda: &Cuda) -> bool {
        let most = self.sizes.registers().map_or(cuda.registers_per_thread, |[_, consumer]| i64::from(consumer));
        let Sizes { bn, stages, lag, .. } = self.sizes;
        // A narrower tile would do; and of slots that are all under way none is multiplied.
        let useful = (bn == BN[0] || bn - 16 < self.source.columns()) && lag + 2 <= stages;
        // Producers share out the rows evenly.
        let groups = self.sizes.bm() / self.source.width();
        let even = self.source.fast() == Fast::Reduction || groups % PRODUCERS == 0 || PRODUCERS % groups == 0;
        // Blocks of rows one after the other are slower than one, and in several rounds their writes are not seen to be apart.
        let alone = self.sizes.row_blocks == 1 || self.parts == 1 && self.tiles() <= cuda.sm_count;
        // What the verifier counts: tiles in whole rounds, and 64 rows for each warpgroup.
        let blocks = self.tiles().min(cuda.sm_count);
        let rows = ceil_div(self.tiles(), blocks) * blocks * (self.sizes.consumers + 1) * 64;
        useful
            && even
            && alone
            && rows <= MOST_ROWS
            && self.registers() <= most
            && self.shared_bytes() <= cuda.shared_per_block_optin
            && self.column_tiles() <= cuda.grid_dim[1]
    }
}

/// Most rows of all tiles, counted with those that the threads of the producers would have: the verifier looks at each of
/// them to see that blocks write apart.
const MOST_ROWS: i64 = 1 << 21;

/// Terms that a sum in two parts has at least: what a product leaves out is up to eight roundings of `f32`, which is all
/// that the class allows for one term.
const SHORTEST_SUM: i64 = 4;

/// The widths of tiles.
const BN: [i64; 9] = [32, 48, 64, 80, 96, 112, 128, 192, 256];

/// The product and the device, or why it is none for this template.
fn problem<'t>(w: &Workload, t: &'t Target) -> Result<(Source, i64, &'t Cuda), String> {
    let cuda = t.cuda().ok_or("for CUDA devices")?;
    if !cuda.has(CudaFeature::Wgmma) {
        return Err("needs wgmma (sm_90a)".into());
    }
    if w.dtype != DType::F32 || w.out_dtype != DType::F32 {
        return Err(format!("multiplies f32 into f32, not {} into {}", w.dtype, w.out_dtype));
    }
    let parts = match w.math {
        Math::Strict => return Err("products of parts are no f32 multiply-adds, which `strict` asks for".into()),
        Math::Fp32 => 2,
        Math::Tf32 => 1,
    };
    if parts > 1 && w.reduction_length() < SHORTEST_SUM {
        return Err(format!("a sum of {} terms has less room for error than two parts take", w.reduction_length()));
    }
    let source = Source::of(w)?;
    if source.fast() == Fast::Reduction && source.width() == 1 {
        return Err(format!("{} terms side by side: their number must divide by 4", source.depth()));
    }
    // Large tiles, which there are fewest of.
    let sizes = Sizes { consumers: 2, row_blocks: 1, bn: 128, stages: 3, lag: 1 };
    let tiles = Plan { source, sizes, parts }.tiles();
    if (tiles + cuda.sm_count) * 3 * 64 > MOST_ROWS {
        return Err(format!("{tiles} tiles are more than the verifier goes through"));
    }
    Ok((source, parts, cuda))
}

impl Template for SplitProduct {
    fn name(&self) -> &str {
        "split_product"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (source, parts, cuda) = problem(w, t).map_err(TemplateError::Limit)?;
        let cuda = cuda.clone();
        Ok(Space::builder()
            .knob("consumers", [1, 2, 3])
            .knob("row_blocks", [1, 2])
            .knob("bn", BN)
            .knob("stages", [3, 4, 5, 6, 8])
            .knob("lag", [1, 2, 3])
            .filter("sums fit in registers, the ring in shared memory", move |config| {
                Sizes::of(config).is_ok_and(|sizes| Plan { source, sizes, parts }.fits(&cuda))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        fastest(with_costs(&self.space(w, t)?, |config| self.cost(w, t, config)))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (problem(w, t), Sizes::of(config)) {
            (Ok((source, parts, cuda)), Ok(sizes)) => model::us(&Plan { source, sizes, parts }, w, cuda),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (source, parts, cuda) = problem(w, t).map_err(TemplateError::Limit)?;
        let plan = Plan { source, sizes: Sizes::of(config)?, parts };
        if !plan.fits(cuda) {
            return Err(TemplateError::Limit(format!("{config} does not fit {}", t.name)));
        }
        let weight = w.params().into_iter().find(|p| p.role == Role::Weight);
        let weight = weight.ok_or_else(|| TemplateError::Limit("a product without weights".into()))?;
        let pack = Pack { param: weight.name.into(), kernel: kernel::pack(&plan, weight.name, &weight.shape) };
        Ok(Scheduled { schedule: Schedule::new(kernel::kernel(&plan, w, cuda.sm_count)), packs: vec![pack] })
    }
}
