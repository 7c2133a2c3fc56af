//! What products in parts have in common as templates.

use super::kernel;
use super::parts::Parts;
use super::plan::{Plan, Problem, Sizes};
use crate::target::Target;
use crate::templates::cuda::family::{Case, Family, built};
use crate::templates::cuda::requires::{device, needs_f32, needs_wgmma, weights};
use crate::templates::cuda::source::{Fast, Source};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Math, Workload};

/// What templates of products in parts differ in.
pub(crate) trait Split: Send + Sync + 'static {
    /// See [`Family`].
    const NAME: &'static str;
    const VERSION: u32;
    /// The parts in the class `fp32`.
    const FP32: Parts;
}

impl<S: Split> Family for S {
    const NAME: &'static str = S::NAME;
    const VERSION: u32 = S::VERSION;
    const LIMITS: &'static str = "sums fit in registers, the ring in shared memory";
    // Measured on an H100: 0.2 to 1 us of 3 to 7 are lost (`docs/archive/perf-notes.md`).
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
