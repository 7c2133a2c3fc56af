//! Products with few columns in 16 bits, 1x1 convolutions in NHWC above all: rows go straight to the registers.
//!
//! With up to a hundred outputs for each pixel there is little to multiply and nothing to share: what counts is how fast
//! pixels come from the L2 cache or from memory. A ring in shared memory brings them there first and reads them again. Here
//! a warp loads sixteen rows with 16 bytes a lane and multiplies what each lane holds as it is (`mma.sync`): the order of the
//! terms of a sum is free, so weights are packed in the order that loads give ([`lane_order`](crate::ir::lane_order)). The
//! weights of a block's columns are in shared memory, whole.
//!
//! Blocks stay: each of their warps goes through every so many-th tile of sixteen rows. With `ahead`, the next tile's rows
//! are asked for as soon as those in the same registers have been multiplied.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `bn` | 16 to 96 | output columns of a block |
//! | `warps` | 1 to 16 | warps of a block |
//! | `resident` | 1 to 16 | blocks of a multiprocessor |
//! | `ahead` | 0, 1 | tiles whose rows are under way while one is multiplied |
//! | `store` | `direct`, `rows` | pairs from registers, or rows by way of shared memory, 16 bytes at a time where they divide |

mod kernel;
mod model;
mod plan;

use crate::target::Target;
use crate::templates::cuda::family::{Case, Family, built};
use crate::templates::cuda::requires::{device, needs_16_bits, needs_cp_async, weights};
use crate::templates::cuda::source::Source;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{ConvLayout, Workload};
use plan::{MOST_COLUMNS, MOST_DEPTH, Plan, Sizes, VECTOR};

/// See the module's text.
pub struct PointwiseRows;

impl Family for PointwiseRows {
    const NAME: &'static str = "pointwise_rows";
    const LIMITS: &'static str = "registers and shared memory suffice, and all have something to do";
    type Problem = Source;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Source, String> {
        let gpu = device(t)?;
        needs_cp_async(gpu)?;
        needs_16_bits(w)?;
        let source = Source::of(w)?;
        match source {
            Source::Conv(c) => {
                let pointwise = (c.kh, c.kw, c.stride, c.padding) == (1, 1, [1, 1], [0; 4]);
                if !pointwise || c.layout != ConvLayout::Nhwc {
                    return Err("for 1x1 convolutions in NHWC, without stride and padding".into());
                }
            }
            Source::Matmul(m) if m.trans_a => return Err("for products with rows along the reduction".into()),
            Source::Matmul(_) => {}
        }
        let (columns, depth) = (source.columns(), source.depth());
        if depth % VECTOR != 0 || depth > MOST_DEPTH {
            return Err(format!(
                "rows of {depth} elements are no whole pieces of 16 bytes, at most {MOST_DEPTH} elements"
            ));
        }
        if columns > MOST_COLUMNS {
            return Err(format!("for at most {MOST_COLUMNS} columns"));
        }
        Ok(source)
    }

    fn plan(case: &Case<'_, Source>, sizes: Sizes) -> Result<Plan, TemplateError> {
        let out_bytes = case.w.out_dtype.bytes() as i64;
        Ok(Plan { source: case.problem, out_bytes, units: case.gpu.sm_count, sizes })
    }

    fn kernel(case: &Case<'_, Source>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let pack = kernel::pack(plan, case.w, &weights(case.w)?);
        built(kernel::kernel(plan, case.w), [pack])
    }
}
