//! Matrix products.

use super::kernel::kernel;
use super::{Plan, SMALLEST, Sizes, device, narrow};
use crate::space::Value;
use crate::target::Target;
use crate::templates::cuda::family::{self, Family, Plan as _, Search, built};
use crate::templates::cuda::product::Gemm;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Matmul, Workload};

/// Matrix products of f16 and bf16, batched or not, in all four orders of storage. See the module's text for the form
/// and for the knobs.
pub struct MmaGemm;

/// Elements that are copied at a time, 16 bytes at most: of rows of so many elements.
fn unit(row: i64) -> Option<i64> {
    [8, 4, 2].into_iter().find(|n| row % n == 0)
}

type Case<'a> = family::Case<'a, Matmul>;

fn plan(case: &Case<'_>, sizes: Sizes) -> Plan {
    let m = &case.problem;
    Plan {
        batch: m.batch,
        m: m.m,
        n: m.n,
        k: m.k,
        layouts: Gemm::layouts_of(m),
        taps: 1,
        unit: unit(Gemm::rows_of(m)[0]).unwrap_or(1),
        out_bytes: case.w.out_dtype.bytes() as i64,
        sizes,
    }
}

impl Family for MmaGemm {
    const NAME: &'static str = "mma_gemm";
    type Problem = Matmul;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Matmul, String> {
        device(w, t)?;
        let m = *w.matmul().ok_or("for matrix products")?;
        match Gemm::rows_of(&m).into_iter().find(|n| unit(*n).is_none()) {
            Some(n) => Err(format!("copies whole words, and rows have {n} elements in memory")),
            None => Ok(m),
        }
    }

    fn check(case: &Case<'_>) -> Result<(), String> {
        let fits = plan(case, SMALLEST).fits(case.gpu);
        fits.then_some(()).ok_or_else(|| format!("a batch of {} is too large", case.problem.batch))
    }

    fn narrow(case: &Case<'_>, knob: &str, values: &mut Vec<Value>) {
        narrow(&plan(case, SMALLEST), case.gpu, knob, values);
    }

    fn plan(case: &Case<'_>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(plan(case, sizes))
    }

    fn search(_: &Case<'_>) -> Search<Sizes> {
        Search::from(SMALLEST)
    }

    fn kernel(case: &Case<'_>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let m = case.problem;
        let units = Gemm::rows_of(&m).map(|n| unit(n).unwrap_or(1));
        let product = Gemm { workload: case.w, m, tile: plan.sizes.tile, units, padded_k: plan.padded_k() };
        built(kernel(&product, plan), [])
    }
}
