//! Depthwise convolutions of many images, at the rate of memory: a thread computes a patch of outputs from registers.
//!
//! A depthwise convolution reads and writes every element once and multiplies it a few times, so what counts is how many
//! bytes are under way. A thread loads the input of `rows x columns` outputs of one channel (or, in NHWC, of `vector`
//! neighbouring ones) straight into registers, in accesses as wide as they are aligned and without waiting for one before
//! it asks for the next; padding is a condition of the accesses at the edge, and zeros otherwise. Rows of the input are
//! multiplied as they come, and a row of outputs is stored when its last one has. There is no shared memory and no barrier:
//! what neighbouring patches have in common comes from the caches.
//!
//! ```text
//! NCHW, 3 x 3, stride 1, rows=4 columns=4: six rows of input, each one vector of four and one element on either side
//! NHWC, 3 x 3, stride 1, rows=8 columns=2 vector=8: ten rows of four pixels, each one vector of eight channels in f16
//! ```
//!
//! Threads of an image are numbered along the output's memory, the innermost dimension first, so that neighbouring ones
//! access neighbouring addresses, and blocks are pieces of that numbering: planes of any size fill them.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `rows` | 1 to 16 | output rows of a thread |
//! | `columns` | 1, 2, 4, 7, 8 | output columns of a thread |
//! | `vector` | 1, 2, 4, 8 | channels of a thread; 1 in NCHW |
//! | `ahead` | 1 to 16 | input rows that are asked for before the first is multiplied |
//! | `threads` | 64 to 512 | threads of a block |

mod kernel;
mod model;
mod plan;

use crate::target::Target;
use crate::templates::cuda::family::{Case, Family, built};
use crate::templates::cuda::requires::{convolution, device};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Workload};
use plan::{Plan, SMALLEST, Sizes};

/// See the module's text.
pub struct DepthwiseDirect;

impl Family for DepthwiseDirect {
    const NAME: &'static str = "depthwise_direct";
    const LIMITS: &'static str = "registers suffice, channels divide, and all have something to do";
    const SMALLEST: Option<Sizes> = Some(SMALLEST);
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        device(t)?;
        let c = convolution(w)?;
        match (c.multiplier(), c.layout) {
            (None, _) => Err("for depthwise convolutions".into()),
            (Some(_), ConvLayout::Nchw) | (Some(1), ConvLayout::Nhwc) => Ok(c),
            (Some(_), ConvLayout::Nhwc) => Err("for one output channel an input channel in NHWC".into()),
            _ => Err("for NCHW and NHWC".into()),
        }
    }

    fn too_large(case: &Case<'_, Conv2d>) -> String {
        format!("the taps of a {} x {} kernel do not fit in registers", case.problem.kh, case.problem.kw)
    }

    fn plan(case: &Case<'_, Conv2d>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(Plan::new(case.w, case.problem, sizes))
    }

    fn kernel(case: &Case<'_, Conv2d>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        built(kernel::kernel(plan, case.w), [])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(c: Conv2d, columns: i64) -> Vec<(i64, i64)> {
        let sizes = Sizes { patch: [1, columns], ..SMALLEST };
        let plan = Plan::new(&Workload::f32(c), c, sizes);
        plan.pieces().iter().map(|p| (p.first, p.width)).collect()
    }

    #[test]
    fn a_row_comes_in_accesses_as_wide_as_they_are_aligned() {
        let c = |size, k, stride| Conv2d::nchw(1, 8, size, size, 8, k, stride, k / 2).depthwise(1);
        assert_eq!(pieces(c(112, 3, 1), 4), [(0, 1), (1, 4), (5, 1)]);
        assert_eq!(pieces(c(96, 5, 1), 4), [(0, 2), (2, 4), (6, 2)]);
        assert_eq!(pieces(c(112, 3, 2), 4), [(0, 1), (1, 4), (5, 4)]);
        // Rows of 14 elements are whole words of two.
        assert_eq!(pieces(c(14, 3, 1), 4), [(0, 1), (1, 2), (3, 2), (5, 1)]);
        assert_eq!(pieces(c(7, 3, 1), 2), [(0, 1), (1, 1), (2, 1), (3, 1)]);
        // What no tap meets is not read.
        assert_eq!(pieces(Conv2d { kw: 1, padding: [1, 0, 1, 0], ..c(9, 3, 2) }, 2), [(0, 1), (2, 1)]);
    }
}
