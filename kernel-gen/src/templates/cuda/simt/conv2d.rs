//! Convolutions.

use super::hwcn::{self, Images};
use super::kernel::kernel;
use super::nhwc::{self, Pixels};
use super::{Plan, SMALLEST, Sizes, device, knobs, model};
use crate::schedule::Schedule;
use crate::space::{Config, Space};
use crate::target::{Cuda, Target};
use crate::templates::cuda::descend_from_many;
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Op, Workload};

/// Convolutions of `f32` in HWCN and NHWC, with one group. See the module's text for the form and for the knobs.
///
/// In HWCN each output pixel is a product of weights and images, both as they lie in memory. Taps that lie in the
/// padding are left out, and pixels that have fewer of them come last, in the gaps that the others leave. In NHWC all
/// is one product of output pixels and output channels; zeros are multiplied where a pixel's tap lies in the padding.
pub struct SimtConv2d;

/// The convolution and the device, or why it is none for this template.
fn problem<'t>(w: &Workload, t: &'t Target) -> Result<(Conv2d, &'t Cuda), String> {
    let gpu = device(w, t)?;
    let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
    if c.groups != 1 || !matches!(c.layout, ConvLayout::Hwcn | ConvLayout::Nhwc) {
        return Err("for HWCN and NHWC with one group".into());
    }
    Ok((c, gpu))
}

/// The convolution cut up as a config says.
fn plan(c: &Conv2d, sizes: Sizes) -> Plan {
    match c.layout {
        ConvLayout::Nhwc => nhwc::plan(c, sizes),
        _ => hwcn::plan(c, sizes),
    }
}

impl Template for SimtConv2d {
    fn name(&self) -> &str {
        "simt_conv2d"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        let (c, gpu) = problem(w, t)?;
        let fits = plan(&c, SMALLEST).fits(gpu);
        fits.then_some(())
            .ok_or_else(|| format!("{} x {} outputs of {} images are too many blocks", c.oh(), c.ow(), c.n))
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (c, gpu) = problem(w, t).map_err(TemplateError::Limit)?;
        Ok(knobs(move |sizes| plan(&c, sizes), gpu).build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        Ok(descend_from_many(&self.space(w, t)?, &SMALLEST.config(), &|config| self.cost(w, t, config))?)
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (problem(w, t), Sizes::of(config)) {
            (Ok((c, gpu)), Ok(sizes)) => model::us(&plan(&c, sizes), w, gpu),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (c, gpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let plan = plan(&c, Sizes::of(config)?);
        if !plan.fits(gpu) {
            return Err(TemplateError::Limit(format!("{config} does not fit {}", t.name)));
        }
        let kernel = match c.layout {
            ConvLayout::Nhwc => kernel(&Pixels::new(w, c, plan), &plan),
            _ => kernel(&Images { workload: w, c, plan }, &plan),
        };
        Ok(Scheduled { schedule: Schedule::new(kernel), packs: vec![] })
    }
}
