//! Matrix products.

use super::plan::{MultiplyAdds, Sizes, device};
use crate::target::Target;
use crate::templates::cuda::broadcast::Products;
use crate::templates::cuda::cut::Layout;
use crate::templates::cuda::family::{Case, Family, built};
use crate::templates::cuda::product::{Gemm, widest};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Matmul, Workload};

/// Matrix products of `f32`, batched or not, in all four orders of storage, and batches whose operands repeat. See the module's text
/// for the form and for the knobs.
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
    type Problem = Products;
    type Knobs = Sizes;
    type Plan<'a> = MultiplyAdds;

    fn problem(w: &Workload, t: &Target) -> Result<Products, String> {
        device(w, t)?;
        Products::of(w)
    }

    fn too_large(case: &Case<'_, Products>) -> String {
        format!("a batch of {} is too large", case.problem.m.batch)
    }

    fn plan(case: &Case<'_, Products>, sizes: Sizes) -> Result<MultiplyAdds, TemplateError> {
        Ok(MultiplyAdds::new(Gemm::whole(&case.problem.m), units(&case.problem.m), sizes))
    }

    fn kernel(case: &Case<'_, Products>, plan: &MultiplyAdds) -> Result<Scheduled, TemplateError> {
        let gemm = Gemm { workload: case.w, m: case.problem.m, cut: plan.cut, units: plan.units, turned: false };
        built(case.problem.with(gemm, |product| plan.kernel(product)), [])
    }
}
