//! Convolutions.

use super::{Plan, SMALLEST, Sizes, device, model};
use crate::ir::DType;
use crate::space::{Config, Space};
use crate::target::{Cuda, Target};
use crate::templates::cuda::source::Source;
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Conv2d, Op, Workload};

/// See the module's text.
pub struct SplitkDirect;

/// The convolution and the device, or why it is none for this template.
fn problem<'t>(w: &Workload, t: &'t Target) -> Result<(Conv2d, &'t Cuda), String> {
    // What is no CUDA device is refused for that, whatever the workload is.
    crate::templates::cuda::device(t)?;
    let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
    Source::of(w)?;
    if [w.dtype, w.out_dtype].iter().any(|dtype| dtype.compute() != DType::F32) {
        return Err(format!("multiplies floating point, not {} into {}", w.dtype, w.out_dtype));
    }
    Ok((c, device(t, c.n)?))
}

fn plan(c: Conv2d, dtype: DType, sizes: Sizes) -> Plan {
    Plan { c, pair: None, dtype, sizes }
}

impl Template for SplitkDirect {
    fn name(&self) -> &str {
        "splitk_direct"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        let (c, gpu) = problem(w, t)?;
        if !plan(c, w.dtype, SMALLEST).fits(gpu) {
            return Err(format!("a {} x {} kernel is too large for the registers of a thread", c.kh, c.kw));
        }
        Ok(())
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (c, gpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let dtype = w.dtype;
        super::space(move |sizes| plan(c, dtype, sizes), gpu, &[1, 2, 4])
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        super::default_config(&self.space(w, t)?, &|config| self.cost(w, t, config))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (problem(w, t), Sizes::of(config)) {
            (Ok((c, gpu)), Ok(sizes)) => model::us(&plan(c, w.dtype, sizes), w, gpu),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (c, _) = problem(w, t).map_err(TemplateError::Limit)?;
        super::scheduled(&plan(c, w.dtype, Sizes::of(config)?), w, t, config)
    }
}
