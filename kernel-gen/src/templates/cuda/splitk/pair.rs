//! Pairs of a depthwise and a pointwise convolution.

use super::{Plan, SMALLEST, Sizes, device, model};
use crate::ir::DType;
use crate::space::{Config, Space};
use crate::target::{Cuda, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{DepthwisePointwise, Op, Workload};

/// See the module's text.
pub struct SplitkPair;

/// The pair and the device, or why it is none for this template.
fn problem<'t>(w: &Workload, t: &'t Target) -> Result<(DepthwisePointwise, &'t Cuda), String> {
    // What is no CUDA device is refused for that, whatever the workload is.
    crate::templates::cuda::device(t)?;
    let Op::DepthwisePointwise(pair) = w.op else {
        return Err("for pairs of a depthwise and a pointwise convolution".into());
    };
    if w.dtype != DType::F32 || w.out_dtype != DType::F32 {
        return Err(format!("multiplies f32 into f32, not {} into {}", w.dtype, w.out_dtype));
    }
    Ok((pair, device(t, pair.depthwise.n)?))
}

fn plan(pair: DepthwisePointwise, sizes: Sizes) -> Plan {
    Plan { c: pair.pointwise(), pair: Some(pair), dtype: DType::F32, sizes }
}

impl Template for SplitkPair {
    fn name(&self) -> &str {
        "splitk_pair"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        let (pair, gpu) = problem(w, t)?;
        if !plan(pair, SMALLEST).fits(gpu) {
            let [kh, kw] = [pair.depthwise.kh, pair.depthwise.kw];
            return Err(format!("the pixels of a {kh} x {kw} kernel do not fit in shared memory"));
        }
        Ok(())
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (pair, gpu) = problem(w, t).map_err(TemplateError::Limit)?;
        // Wide tiles of channels compute the depthwise results less often.
        super::space(move |sizes| plan(pair, sizes), gpu, &[1, 2, 4, 8])
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        super::default_config(&self.space(w, t)?, &|config| self.cost(w, t, config))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (problem(w, t), Sizes::of(config)) {
            (Ok((pair, gpu)), Ok(sizes)) => model::us(&plan(pair, sizes), w, gpu),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (pair, _) = problem(w, t).map_err(TemplateError::Limit)?;
        super::scheduled(&plan(pair, Sizes::of(config)?), w, t, config)
    }
}
