//! Matrix products.

use super::{MultiplyAdds, Sizes, device};
use crate::target::Target;
use crate::templates::cuda::family::{Case, Family, built};
use crate::templates::cuda::product::{Gemm, Layout, widest};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Matmul, Workload};

/// Matrix products of `f32`, batched or not, in all four orders of storage. See the module's text for the form and for the
/// knobs.
pub struct SimtGemm;

/// Elements of each operand that are copied at a time: single ones, where they are turned around.
fn units(m: &Matmul) -> [i64; 2] {
    let rows = Gemm::rows_of(m);
    let layouts = Gemm::layouts_of(m);
    [0, 1].map(|side| match layouts[side] {
        Layout::ReductionFast => 1,
        Layout::ReductionSlow => widest(rows[side], 4),
    })
}

impl Family for SimtGemm {
    const NAME: &'static str = "simt_gemm";
    const SMALLEST: Option<Sizes> = Some(Sizes::SMALLEST);
    type Problem = Matmul;
    type Knobs = Sizes;
    type Plan<'a> = MultiplyAdds;

    fn problem(w: &Workload, t: &Target) -> Result<Matmul, String> {
        device(w, t)?;
        Ok(*w.matmul().ok_or("for matrix products")?)
    }

    fn too_large(case: &Case<'_, Matmul>) -> String {
        format!("a batch of {} is too large", case.problem.batch)
    }

    fn plan(case: &Case<'_, Matmul>, sizes: Sizes) -> Result<MultiplyAdds, TemplateError> {
        Ok(MultiplyAdds::new(Gemm::whole(&case.problem), units(&case.problem), sizes))
    }

    fn kernel(case: &Case<'_, Matmul>, plan: &MultiplyAdds) -> Result<Scheduled, TemplateError> {
        let product = Gemm { workload: case.w, m: case.problem, cut: plan.cut, units: plan.units };
        built(plan.kernel(&product), [])
    }
}
