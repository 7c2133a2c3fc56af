//! Convolutions.

use super::kernel::scheduled;
use super::plan::{Plan, SEARCH, SMALLEST, Sizes, device, narrow};
use crate::ir::DType;
use crate::space::Value;
use crate::target::Target;
use crate::templates::cuda::family::{Case, Family, Search};
use crate::templates::cuda::requires;
use crate::templates::cuda::source::Source;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Conv2d, Workload};

/// See the module's text.
pub struct SplitkDirect;

impl Family for SplitkDirect {
    const NAME: &'static str = "splitk_direct";
    const LIMITS: &'static str = super::plan::LIMITS;
    const SMALLEST: Option<Sizes> = Some(SMALLEST);
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        // What is no CUDA device is refused for that, whatever the workload is.
        requires::device(t)?;
        let c = requires::convolution(w)?;
        Source::of(w)?;
        if [w.dtype, w.out_dtype].iter().any(|dtype| dtype.compute() != DType::F32) {
            return Err(format!("multiplies floating point, not {} into {}", w.dtype, w.out_dtype));
        }
        device(t, c.n)?;
        Ok(c)
    }

    fn too_large(case: &Case<'_, Conv2d>) -> String {
        format!("a {} x {} kernel is too large for the registers of a thread", case.problem.kh, case.problem.kw)
    }

    fn narrow(case: &Case<'_, Conv2d>, knob: &str, values: &mut Vec<Value>) {
        narrow(&case.problem, 4, case.gpu, knob, values);
    }

    fn plan(case: &Case<'_, Conv2d>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(Plan { c: case.problem, pair: None, dtype: case.w.dtype, sizes })
    }

    fn search(_: &Case<'_, Conv2d>) -> Search<Sizes> {
        SEARCH
    }

    fn kernel(case: &Case<'_, Conv2d>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        scheduled(plan, case.w)
    }
}
