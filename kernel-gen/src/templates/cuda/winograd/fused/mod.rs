//! 3x3 convolutions of many images by `F(2x2)` in one launch: neither transformed inputs nor products go through memory.
//!
//! A block has `block_channels x block_tiles` outputs of all 16 places of a tile. In each step, of so many input channels that a
//! thread transforms one tile of one of them:
//!
//! ```text
//! data[k, ci, tile]     = B^T d B          each thread a tile of a channel: loads one step ahead, then shared memory
//! weights[k, ci, co]                       transformed beforehand, by cp.async into one of two slots
//! sum[k, co, tile]     += weights * data   each of eight warps two places; in registers
//! y                     = epilogue(A^T sum A)   places meet in shared memory, half of the block's channels at a time
//! ```
//! The sums limit a block to 64 channels by 32 tiles, or the other way round: then each of 256 threads has 128.
//! (Lavin and Gray, arXiv:1509.09308; Yan, Wang and Chu, "Optimizing batched Winograd convolution on GPUs", PPoPP 2020.)
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `block_channels`, `block_tiles` | 32, 64 | output channels and tiles of a block |
//! | `together` | 2, 4 | input channels whose products are one piece of straight code |
//!
//! `F(2x2)` errs less than a sequential `f32` sum where operands are of one magnitude: it is of the class `fp32`.

mod kernel;
mod model;
mod plan;

use crate::ir::Expr;
use crate::space::Config;
use crate::target::Target;
use crate::templates::cuda::family::{Case, Family, built};
use crate::templates::cuda::winograd::plan::{filter, problem};
use crate::templates::cuda::winograd::transforms;
use crate::templates::cuda::winograd::transforms::Packed;
use crate::templates::winograd::filter::reach;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::special::Reach;
use crate::workload::{Conv2d, Workload};
use plan::{OUTPUTS, Plan, Sizes};

/// See the module's text.
pub struct WinogradFused;

impl Family for WinogradFused {
    const NAME: &'static str = "winograd_fused";
    const LIMITS: &'static str = "each warp of a scheduler has a part of a step; registers and shared memory suffice";
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        problem(w, t)
    }

    fn plan(case: &Case<'_, Conv2d>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(Plan { c: case.problem, sizes })
    }

    fn beside(w: &Workload, _: &Config) -> Reach {
        reach(w, OUTPUTS)
    }

    fn kernel(case: &Case<'_, Conv2d>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let filter = filter(case.w, OUTPUTS)?;
        let [blocks, steps, _, channels] = plan.weight_shape();
        let step = plan.sizes.step();
        let packed = Packed { shape: plan.weight_shape().to_vec(), padded: [steps * step, blocks * channels] };
        let index = |k: i64, ci: Expr, place: Expr| {
            let row = ci.clone().floor_mod(step) + k * step;
            vec![place.clone().floor_div(channels), ci.floor_div(step), row, place.floor_mod(channels)]
        };
        let pack = transforms::pack(&plan.tiling(), &filter, packed, |place| plan.channel_at(place), index);
        built(kernel::kernel(plan, case.w, &filter), [pack])
    }
}
