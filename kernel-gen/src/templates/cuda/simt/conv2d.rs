//! Convolutions.

use super::hwcn::{self, Images};
use super::kernel::kernel;
use super::nhwc::{self, Pixels};
use super::{Plan, SMALLEST, Sizes, device, narrow};
use crate::space::Value;
use crate::target::Target;
use crate::templates::cuda::family::{self, Family, Plan as _, Search, built};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Op, Workload};

/// Convolutions of `f32` in HWCN and NHWC, with one group. See the module's text for the form and for the knobs.
///
/// In HWCN each output pixel is a product of weights and images, both as they lie in memory. Taps that lie in the
/// padding are left out, and pixels that have fewer of them come last, in the gaps that the others leave. In NHWC all
/// is one product of output pixels and output channels; zeros are multiplied where a pixel's tap lies in the padding.
pub struct SimtConv2d;

type Case<'a> = family::Case<'a, Conv2d>;

/// The convolution cut up as a config says.
fn plan(c: &Conv2d, sizes: Sizes) -> Plan {
    match c.layout {
        ConvLayout::Nhwc => nhwc::plan(c, sizes),
        _ => hwcn::plan(c, sizes),
    }
}

impl Family for SimtConv2d {
    const NAME: &'static str = "simt_conv2d";
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        device(w, t)?;
        let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
        if c.groups != 1 || !matches!(c.layout, ConvLayout::Hwcn | ConvLayout::Nhwc) {
            return Err("for HWCN and NHWC with one group".into());
        }
        Ok(c)
    }

    fn check(case: &Case<'_>) -> Result<(), String> {
        let (c, fits) = (&case.problem, plan(&case.problem, SMALLEST).fits(case.gpu));
        fits.then_some(())
            .ok_or_else(|| format!("{} x {} outputs of {} images are too many blocks", c.oh(), c.ow(), c.n))
    }

    fn narrow(case: &Case<'_>, knob: &str, values: &mut Vec<Value>) {
        narrow(&plan(&case.problem, SMALLEST), case.gpu, knob, values);
    }

    fn plan(case: &Case<'_>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(plan(&case.problem, sizes))
    }

    fn search(_: &Case<'_>) -> Search<Sizes> {
        Search::from(SMALLEST)
    }

    fn kernel(case: &Case<'_>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let Case { w, problem: c, .. } = *case;
        let kernel = match c.layout {
            ConvLayout::Nhwc => kernel(&Pixels::new(w, c, *plan), plan),
            _ => kernel(&Images { workload: w, c, plan: *plan }, plan),
        };
        built(kernel, [])
    }
}
