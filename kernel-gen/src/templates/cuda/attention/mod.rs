//! Attention as one kernel: scores and weights never leave registers.
//!
//! A block has `16 * rows * warps` queries of one head, and goes through the keys in steps of `keys`. `cp.async` brings the step's keys
//! and values into a ring of `stages` slots. A warp multiplies its queries by the keys on tensor cores (`mma.sync`), makes weights of the
//! scores, rounds these to the inputs' type where they lie, and multiplies them by the values. Each row keeps the largest score so
//! far and the sum of its weights; where a step has a larger score, sums so far are scaled down. *(Milakov and Gimelshein,
//! arXiv:1805.02867; Dao et al., FlashAttention, arXiv:2205.14135.)*
//!
//! Sums of products and of weights are in `f32`. Elements beyond the last query, key or element of a head are zeros in shared memory,
//! and scores of keys that a query may not see are minus infinity.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `warps` | 1, 2, 4, 8 | warps of a block |
//! | `rows` | 1, 2 | times 16 queries of a warp |
//! | `keys` | 16 to 128 | keys of a step |
//! | `stages` | 1 to 4 | slots of the ring |

mod copies;
mod kernel;
mod model;
mod multiply_adds;
mod plan;
mod rows;
mod wgmma;

pub use multiply_adds::AttentionSimt;
pub use wgmma::AttentionWgmma;

use crate::target::Target;
use crate::templates::cuda::family::{Case, Family, Search, built};
use crate::templates::cuda::product::widest;
use crate::templates::cuda::requires;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Attention, Op, Workload};
use plan::{Plan, Sizes, WIDEST, too_large};

/// See the module's text.
pub struct AttentionMma;

impl Family for AttentionMma {
    const NAME: &'static str = "attention_mma";
    const LIMITS: &'static str = "registers and shared memory suffice, and all have something to do";
    const SMALLEST: Option<Sizes> = Some(Sizes { warps: 1, rows: 1, keys: 16, stages: 1 });
    type Problem = Attention;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Attention, String> {
        let gpu = requires::device(t)?;
        let Op::Attention(of) = w.op else { return Err("for attention".into()) };
        requires::needs_16_bits(w)?;
        requires::needs_cp_async(gpu)?;
        for (what, n) in [("key", of.d), ("value", of.dv)] {
            if n % 2 != 0 {
                return Err(format!("copies whole words, and a {what} has {n} elements"));
            }
            if n > WIDEST {
                return Err(format!("registers hold up to {WIDEST} elements of a {what}, not {n}"));
            }
        }
        Ok(of)
    }

    fn too_large(case: &Case<'_, Attention>) -> String {
        too_large(&case.problem)
    }

    fn plan(case: &Case<'_, Attention>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(Plan { of: case.problem, sizes })
    }

    fn search(_: &Case<'_, Attention>) -> Search<Sizes> {
        Search::All
    }

    fn kernel(case: &Case<'_, Attention>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let units = [case.problem.d, case.problem.dv].map(|n| widest(n, 2));
        built(kernel::build(case.w, plan, units), [])
    }
}
