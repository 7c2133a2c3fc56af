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
mod plan;
mod rows;

use crate::ir::builder::KernelBuilder;
use crate::ir::{DType, Kernel};
use crate::space::{Config, Value};
use crate::target::Target;
use crate::templates::cuda::family::{Case, Family, Search, built, numbers};
use crate::templates::cuda::requires::{device, needs_f32, needs_wgmma, weights};
use crate::templates::cuda::source::{Fast, Source};
use crate::templates::cuda::split::block::product;
use crate::templates::cuda::split::parts::SHORTEST_SUM;
use crate::templates::cuda::taps::MOST_STRIDE;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::operands::Operands;
use crate::workload::special::Reach;
use crate::workload::{Math, Role, Workload};
use plan::{Context, NOT_LOCAL, Plan, Sizes, Workspace};
use rows::sides;

/// See the module's text.
pub struct SplitHalves;

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

impl Family for SplitHalves {
    const NAME: &'static str = "split_halves";
    const VERSION: u32 = 2;
    const LIMITS: &'static str = "sums fit in registers, the ring in shared memory";
    // Measured on an H100: 0.2 to 1 us of 3 to 7 are lost (`docs/archive/perf-notes.md`).
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
