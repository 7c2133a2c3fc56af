//! Matrix products.

use super::{Sizes, TensorCores, device};
use crate::target::Target;
use crate::templates::cuda::family::{Case, Family, built};
use crate::templates::cuda::product::{Gemm, widest};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Matmul, Workload};

/// Matrix products of f16 and bf16, batched or not, in all four orders of storage. See the module's text for the form
/// and for the knobs.
pub struct MmaGemm;

/// Elements of each operand that are copied at a time: of 16 bytes at most.
fn units(m: &Matmul) -> [i64; 2] {
    Gemm::rows_of(m).map(|row| widest(row, 2))
}

impl Family for MmaGemm {
    const NAME: &'static str = "mma_gemm";
    const SMALLEST: Option<Sizes> = Some(Sizes::SMALLEST);
    type Problem = Matmul;
    type Knobs = Sizes;
    type Plan<'a> = TensorCores;

    fn problem(w: &Workload, t: &Target) -> Result<Matmul, String> {
        device(w, t)?;
        let m = *w.matmul().ok_or("for matrix products")?;
        match Gemm::rows_of(&m).into_iter().find(|n| n % 2 != 0) {
            Some(n) => Err(format!("copies whole words, and rows have {n} elements in memory")),
            None => Ok(m),
        }
    }

    fn too_large(case: &Case<'_, Matmul>) -> String {
        format!("a batch of {} is too large", case.problem.batch)
    }

    fn plan(case: &Case<'_, Matmul>, sizes: Sizes) -> Result<TensorCores, TemplateError> {
        let m = &case.problem;
        Ok(TensorCores::new(case.w, Gemm::whole(m), 1, units(m)[0], sizes))
    }

    fn kernel(case: &Case<'_, Matmul>, plan: &TensorCores) -> Result<Scheduled, TemplateError> {
        let m = case.problem;
        let product = Gemm { workload: case.w, m, cut: plan.cut, units: units(&m) };
        built(plan.kernel(&product), [])
    }
}
