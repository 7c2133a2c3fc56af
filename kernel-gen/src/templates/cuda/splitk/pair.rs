//! Pairs of a depthwise and a pointwise convolution.

use super::kernel::scheduled;
use super::plan::{Plan, SEARCH, SMALLEST, Sizes, device, narrow};
use crate::ir::DType;
use crate::space::Value;
use crate::target::Target;
use crate::templates::cuda::family::{Case, Family, Search};
use crate::templates::cuda::requires;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{DepthwisePointwise, Op, Workload};

/// See the module's text.
pub struct SplitkPair;

impl Family for SplitkPair {
    const NAME: &'static str = "splitk_pair";
    const LIMITS: &'static str = super::plan::LIMITS;
    const SMALLEST: Option<Sizes> = Some(SMALLEST);
    type Problem = DepthwisePointwise;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<DepthwisePointwise, String> {
        // What is no CUDA device is refused for that, whatever the workload is.
        requires::device(t)?;
        let Op::DepthwisePointwise(pair) = w.op else {
            return Err("for pairs of a depthwise and a pointwise convolution".into());
        };
        requires::needs_f32(w)?;
        device(t, pair.depthwise.n)?;
        Ok(pair)
    }

    fn too_large(case: &Case<'_, DepthwisePointwise>) -> String {
        let [kh, kw] = [case.problem.depthwise.kh, case.problem.depthwise.kw];
        format!("the pixels of a {kh} x {kw} kernel do not fit in shared memory")
    }

    fn narrow(case: &Case<'_, DepthwisePointwise>, knob: &str, values: &mut Vec<Value>) {
        // Wide tiles of channels compute the depthwise results less often.
        narrow(&case.problem.pointwise(), 8, case.gpu, knob, values);
    }

    fn plan(case: &Case<'_, DepthwisePointwise>, sizes: Sizes) -> Result<Plan, TemplateError> {
        let pair = case.problem;
        Ok(Plan { c: pair.pointwise(), pair: Some(pair), dtype: DType::F32, sizes })
    }

    fn search(_: &Case<'_, DepthwisePointwise>) -> Search<Sizes> {
        SEARCH
    }

    fn kernel(case: &Case<'_, DepthwisePointwise>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        scheduled(plan, case.w)
    }
}
