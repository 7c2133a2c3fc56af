//! Products of `f32` on Hopper's tensor cores in parts of `f16`, which they multiply twice as fast as tf32.
//!
//! Each element is the sum of two numbers of 11 bits, `x = x0 + x1 / 2^11`, and three of the four products,
//! `x0 w0 + (x1 w0 + x0 w1) / 2^11`, are all that an `f32` sum keeps. The rest is scaled because `f16` has few exponents. So
//! there are two sums. What a step adds to the large one is added by the threads, which round where tensor cores cut off.
//!
//! Three launches:
//! 1. **parts**: pixels are split and turned into rows of channels, once, and not for each tap and each tile that reads them;
//! 2. **product**: a ring of slots that the copy engine (TMA) fills, as in [`wgmma`](crate::templates::cuda::wgmma): the rows of
//!    a tile are a box of pixels, taps that none of them meets are left out, and both operands go to the tensor cores from
//!    shared memory;
//! 3. **again**: rows that read a pixel out of range are computed once more, in `f32`. Without such pixels it looks at their
//!    flags and ends.
//!
//! # Range
//! Weights are scaled by a power of two for each output channel when they are packed, so that `f16` holds them. Pixels are
//! multiplied by 8. Of 64 channels of a pixel either all are zero, or the largest must lie between 2^-21 and 8188: then what
//! the parts lose of any of them is below 2^-18 of the largest, and most lose 2^-23 of themselves. Otherwise the pixel
//! is *out of range*: its flag is set, and the third launch multiplies it in `f32`. Infinities and NaN are out of range, too.
//!
//! Weights that are smaller than the largest of their channel by a factor of 2^30 or more may be lost. An output whose taps meet
//! the largest beyond the edge, or multiply it by a small pixel, then has an error that none of its own products explains, so the
//! class `local` has no such products.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `consumers`, `bn` | 1 to 3; 32 to 192 | the tile: `consumers * 64` rows and `bn` columns |
//! | `middle`, `inner` | 1 to 256 | the tile's rows are a box: so many along the last two coordinates of the output's pixels, as they lie |
//! | `sums` | 2, 3 | small products are added up with the same registers as a step's large ones, behind them, or have their own |
//! | `stages` | 2 to 6 | slots of the ring |

mod kernel;
mod model;
mod pack;
mod parts;
mod rows;

use super::block::{Cut, product};
use super::parts::SHORTEST_SUM;
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Kernel, Scope};
use crate::space::{Config, Value};
use crate::target::{Cuda, Target};
use crate::templates::cuda::family::{self, Case, Family, Needs, Plan as _, Search, built, knobs, numbers};
use crate::templates::cuda::requires::{device, needs_f32, needs_wgmma, weights};
use crate::templates::cuda::source::{Fast, Source};
use crate::templates::cuda::taps::MOST_STRIDE;
use crate::templates::cuda::warpgroups;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::operands::Operands;
use crate::workload::special::Reach;
use crate::workload::{Math, Role, Workload};
use rows::{Rows, sides};

/// See the module's text.
pub struct SplitHalves;

/// Terms of the reduction in one step: 128 bytes, the widest swizzle.
const DEPTH: i64 = 64;
/// Why a workload of the class `local` has no such products.
const NOT_LOCAL: &str = "weights of an output channel share a scale, so that an output's error depends on weights that it does \
                         not read, which the classes `strict` and `local` rule out";
/// Elements of 16 bytes, and how many of them a row of a step has.
const VECTOR: i64 = 8;
const VECTORS: i64 = DEPTH / VECTOR;
/// Parts of an element.
const PARTS: i64 = 2;
/// What the second part is multiplied by.
const REST: f64 = 2048.0;
/// What pixels are multiplied by.
const SCALE: f64 = 8.0;
/// Between these the largest of a pixel's channels must be once it is scaled.
const LEAST: f64 = 1.0 / (1 << 18) as f64;
const MOST: f64 = 65504.0;
/// Registers of a consumer beside its sums.
const OTHER_REGISTERS: i64 = 30;
/// The widths of tiles.
const BN: [i64; 8] = [32, 48, 64, 80, 96, 112, 128, 192];

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Consumer warpgroups.
        consumers: i64 = "consumers" in [1, 2, 3];
        /// Columns of a tile.
        bn: i64 = "bn" in BN;
        /// Sets of registers for sums: the total, what a step adds, and with 3 the small products.
        sums: i64 = "sums" in [2, 3];
        /// Slots of the ring.
        stages: i64 = "stages" in [2, 3, 4, 5, 6];
        /// Rows of a tile along the last two coordinates, as the pixels that there are allow.
        sides: [i64; 2] = "middle" in [1], "inner" in [1];
    }
}

impl Sizes {
    /// The sizes that defaults are chosen from: as many slots as fit, up to 4.
    fn sensible(source: Source, cuda: &Cuda) -> impl Iterator<Item = Sizes> {
        let [_, middle, inner] = source.extents();
        let (middle, inner) = (sides(middle), sides(inner));
        let boxes = middle.into_iter().flat_map(move |m| inner.clone().into_iter().map(move |i| [m, i]));
        boxes.flat_map(move |sides| {
            let tiles = [1, 2, 3].into_iter().flat_map(|consumers| BN.map(|bn| (consumers, bn)));
            tiles.flat_map(|tile| [2, 3].map(|sums| (tile, sums))).filter_map(move |((consumers, bn), sums)| {
                let with = |stages: i64| Sizes { consumers, bn, sums, stages, sides };
                (2..=4).rev().map(with).find(|sizes| Plan { source, sizes: *sizes }.fits(cuda))
            })
        })
    }

    /// Rows of a tile.
    fn bm(&self) -> i64 {
        64 * self.consumers
    }
}

/// A product cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    source: Source,
    sizes: Sizes,
}

impl Plan {
    /// The product in tiles and steps.
    fn cut(&self) -> Cut {
        let (Plan { source, sizes }, row_tiles) = (*self, self.rows().tiles().iter().product());
        let (registers, consumers) = (warpgroups::registers(sizes.consumers), sizes.consumers);
        Cut { source, row_tiles, bn: sizes.bn, depth: DEPTH, parts: PARTS, consumers, registers }
    }

    /// The rows of a tile.
    fn rows(&self) -> Rows {
        Rows::of(self.source, self.sizes.bm(), self.sizes.sides)
    }

    /// Pixels of the left operand.
    fn pixels(&self) -> i64 {
        self.source.inputs().iter().product()
    }

    /// The number of a pixel of the left operand in memory.
    fn number(&self, at: &[Expr; 3]) -> Expr {
        let [_, middle, inner] = self.source.inputs();
        let [first, second, third] = at.clone();
        (first * middle + second) * inner + third
    }

    /// Bytes of shared memory.
    fn shared_bytes(&self) -> i64 {
        let slot = 2 * DEPTH * PARTS * (self.rows().room() + self.sizes.bn) + 16;
        // Up to 1024 bytes before each of the two buffers, which must be aligned to that.
        self.sizes.stages * slot + 2048
    }

    /// Registers of a consumer, as far as they can be told beforehand.
    fn registers(&self) -> i64 {
        self.sizes.sums * self.sizes.bn / 2 + OTHER_REGISTERS
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: self.cut().threads(), registers: 0, shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, cuda: &Cuda) -> bool {
        let most = warpgroups::registers(self.sizes.consumers)
            .map_or(cuda.registers_per_thread, |[_, consumer]| i64::from(consumer));
        let Sizes { bn, sides: [middle, inner], .. } = self.sizes;
        let bm = self.sizes.bm();
        if middle * inner > bm {
            return false;
        }
        let rows = self.rows();
        // A narrower or a lower tile would do.
        let useful = (bn == BN[0] || bn - 16 < self.source.columns())
            && (2 * rows.count() > bm || bm == 64 && rows.count() >= self.source.rows());
        useful
            && rows.are_one_box()
            && self.registers() <= most
            && self.cut().column_tiles().max(self.cut().chunks()) <= cuda.grid_dim[1]
    }

    fn us(&self, w: &Workload, cuda: &Cuda) -> f64 {
        model::us(self, w, cuda)
    }
}

/// What lies in global memory between the launches.
#[derive(Clone, Copy, Debug)]
struct Workspace {
    /// Parts of the pixels: their coordinates, `PARTS`, and the channels in whole steps.
    parts: BufferId,
    /// 1 where a pixel is out of range, else 0: `[chunks, pixels]`.
    flags: BufferId,
    /// What a column's sums are multiplied by, since its weights are scaled: `[columns]`.
    unscale: BufferId,
}

impl Workspace {
    fn alloc(b: &mut KernelBuilder, plan: &Plan) -> Workspace {
        let (pixels, chunks) = (parts::blocks(plan) * parts::PIXELS, plan.cut().chunks());
        let columns = plan.cut().column_tiles() * plan.sizes.bn;
        Workspace {
            parts: b.alloc(
                "parts",
                DType::F16,
                &[plan.source.inputs().to_vec(), vec![PARTS, chunks * DEPTH]].concat(),
                Scope::Global,
            ),
            flags: b.alloc("flags", DType::F32, &[chunks, pixels], Scope::Global),
            unscale: b.alloc("unscale", DType::F32, &[columns], Scope::Global),
        }
    }
}

/// The three launches for a device of so many multiprocessors.
fn launches(plan: &Plan, w: &Workload, multiprocessors: i64) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::typed(&mut b, w, |p| match p.role {
        Role::Weight => (DType::F16, pack::shape(plan)),
        _ => (p.dtype, p.shape.clone()),
    });
    let space = Workspace::alloc(&mut b, plan);
    let context = Context { plan, w, params, space };
    parts::parts(&mut b, &context);
    product(&mut b, multiprocessors, &context);
    parts::again(&mut b, &context);
    b.finish()
}

/// What all launches know.
struct Context<'a> {
    plan: &'a Plan,
    w: &'a Workload,
    params: Operands,
    space: Workspace,
}

impl Context<'_> {
    /// The left operand, and the packed weights.
    fn operands(&self) -> [BufferId; 2] {
        self.plan.source.operands().map(|name| self.params.get(name))
    }
}

impl Family for SplitHalves {
    const NAME: &'static str = "split_halves";
    const VERSION: u32 = 2;
    const LIMITS: &'static str = "sums fit in registers, the ring in shared memory";
    // Measured on an H100: 0.2 to 1 us of 3 to 7 are lost (`docs/perf-notes.md`).
    const LONGEST_EARLY_US: f64 = 0.0;
    type Problem = Source;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Source, String> {
        needs_wgmma(device(t)?)?;
        needs_f32(w)?;
        match w.math {
            Math::Fp32 => {}
            Math::Local => return Err(NOT_LOCAL.into()),
            Math::Strict | Math::Tf32 => {
                return Err(
                    "products of f16 parts are for the class fp32: `strict` asks for multiply-adds, `tf32` for less"
                        .into(),
                );
            }
        }
        if w.reduction_length() < SHORTEST_SUM {
            return Err(format!("a sum of {} terms has less room for error than two parts take", w.reduction_length()));
        }
        let source = Source::of(w)?;
        if source.fast() != Fast::Rows {
            return Err("turns rows into columns: for NCHW, HWCN and transposed left operands".into());
        }
        if let Some(stride) = source.strides().into_iter().find(|s| *s > MOST_STRIDE) {
            return Err(format!("a stride of {stride}: the copy engine takes up to {MOST_STRIDE}"));
        }
        Ok(source)
    }

    fn narrow(case: &Case<'_, Source>, knob: &str, values: &mut Vec<Value>) {
        let [_, middle, inner] = case.problem.extents();
        match knob {
            "middle" => *values = numbers(sides(middle)),
            "inner" => *values = numbers(sides(inner)),
            _ => {}
        }
    }

    fn plan(case: &Case<'_, Source>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(Plan { source: case.problem, sizes })
    }

    fn search(case: &Case<'_, Source>) -> Search<Sizes> {
        Search::Among(Sizes::sensible(case.problem, case.gpu).collect())
    }

    fn beside(_: &Workload, _: &Config) -> Reach {
        Reach::Weights
    }

    fn kernel(case: &Case<'_, Source>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let pack = pack::pack(plan, &weights(case.w)?);
        built(launches(plan, case.w, case.gpu.sm_count), [pack])
    }
}
