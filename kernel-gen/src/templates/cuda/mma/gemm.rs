//! Matrix products.

use super::plan::{Right, Sizes, TensorCores, device};
use crate::target::Target;
use crate::templates::cuda::broadcast::Products;
use crate::templates::cuda::cut::is_narrow;
use crate::templates::cuda::family::{Case, Family, built};
use crate::templates::cuda::product::{Gemm, widest};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Matmul, Workload};

/// Matrix products of f16 and bf16, batched or not, in all four orders of storage, and batches whose operands repeat. See the
/// module's text for the form and for the knobs.
pub struct MmaGemm;

/// Clocks in which a scheduler issues the instructions of an element that goes through registers.
const ELEMENT_CLOCKS: f64 = 10.0;

/// Elements of each operand that are copied at a time: of 16 bytes at most.
fn units(m: &Matmul) -> [i64; 2] {
    Gemm::rows_of(m).map(|row| widest(row, 2))
}

impl Family for MmaGemm {
    const NAME: &'static str = "mma_gemm";
    const SMALLEST: Option<Sizes> = Some(Sizes::SMALLEST);
    type Problem = Products;
    type Knobs = Sizes;
    type Plan<'a> = TensorCores;

    fn problem(w: &Workload, t: &Target) -> Result<Products, String> {
        device(w, t)?;
        Products::of(w)
    }

    fn too_large(case: &Case<'_, Products>) -> String {
        format!("a batch of {} is too large", case.problem.m.batch)
    }

    fn plan(case: &Case<'_, Products>, sizes: Sizes) -> Result<TensorCores, TemplateError> {
        let m = &case.problem.m;
        let [left, unit] = units(m);
        let plan = TensorCores::new(case.w, Gemm::whole(m), 1, left, sizes);
        let right = match is_narrow(unit, case.w.dtype) {
            true => Right::Named { unit, clocks: ELEMENT_CLOCKS },
            false => Right::Loop,
        };
        Ok(TensorCores { right, ..plan })
    }

    fn kernel(case: &Case<'_, Products>, plan: &TensorCores) -> Result<Scheduled, TemplateError> {
        let m = case.problem.m;
        let gemm = Gemm { workload: case.w, m, cut: plan.cut, units: units(&m) };
        built(case.problem.with(gemm, |product| plan.kernel(product)), [])
    }
}
