//! Convolutions.

use super::hwcn::{self, Images};
use super::plan::{MultiplyAdds, Sizes, device};
use crate::target::Target;
use crate::templates::cuda::cut::Layout;
use crate::templates::cuda::family::{self, Family, built};
use crate::templates::cuda::pixels::{PixelRows, Pixels};
use crate::templates::cuda::product::widest;
use crate::templates::cuda::requires::convolution;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Workload};

/// Convolutions of `f32` in HWCN, with one group, and in NHWC. See the module's text for the form and for the knobs.
///
/// In HWCN each output pixel is a product of weights and images, both as they lie in memory. Taps that lie in the
/// padding are left out, and pixels that have fewer of them come last, in the gaps that the others leave. In NHWC all
/// is one product of output pixels and output channels; zeros are multiplied where a pixel's tap lies in the padding.
pub struct SimtConv2d;

type Case<'a> = family::Case<'a, Conv2d>;

/// Registers of a thread for each pixel that it copies from.
const ROW_REGISTERS: i64 = 4;
/// Instructions of a step beside terms and copies, and to find a pixel's tap and whether it lies in the padding: as
/// `ptxas` makes them for sm_90a of the first, of pointwise and of 3x3 layers of ResNet-50.
const STEP_ISSUES: f64 = 50.0;
const FIND_ISSUES: f64 = 11.0;

/// The convolution cut up as a config says.
fn plan(c: &Conv2d, sizes: Sizes) -> MultiplyAdds {
    if c.layout == ConvLayout::Hwcn {
        return hwcn::plan(c, sizes);
    }
    let cut = sizes.cut(PixelRows::whole(c, Layout::ReductionSlow));
    let (row_registers, units) = (ROW_REGISTERS, [1, widest(c.co_per_group(), 4)]);
    let plan = MultiplyAdds { cut, units, row_registers, skipped: 0.0, step_issues: STEP_ISSUES, sizes };
    // Taps that change within a step are found for each piece, others for each pixel, unless it always has all.
    let found = match (PixelRows::of(*c, &cut).one_tap(), c.has_padding()) {
        (false, _) => plan.pieces(0),
        (true, true) => plan.copied_rows(),
        (true, false) => 0,
    };
    MultiplyAdds { step_issues: STEP_ISSUES + FIND_ISSUES * found as f64, ..plan }
}

impl Family for SimtConv2d {
    const NAME: &'static str = "simt_conv2d";
    const SMALLEST: Option<Sizes> = Some(Sizes::SMALLEST);
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = MultiplyAdds;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        device(w, t)?;
        let c = convolution(w)?;
        let grouped = c.groups > 1 && (c.layout != ConvLayout::Nhwc || c.ci_per_group() == 1);
        if grouped || !matches!(c.layout, ConvLayout::Hwcn | ConvLayout::Nhwc) {
            return Err("for HWCN with one group, and NHWC with several channels in a group".into());
        }
        Ok(c)
    }

    fn too_large(case: &Case<'_>) -> String {
        let c = &case.problem;
        format!("{} x {} outputs of {} images are too many blocks", c.oh(), c.ow(), c.n)
    }

    fn plan(case: &Case<'_>, sizes: Sizes) -> Result<MultiplyAdds, TemplateError> {
        Ok(plan(&case.problem, sizes))
    }

    fn kernel(case: &Case<'_>, plan: &MultiplyAdds) -> Result<Scheduled, TemplateError> {
        let Case { w, problem: c, .. } = *case;
        let kernel = match c.layout {
            ConvLayout::Nhwc => plan.kernel(&Pixels::new(w, c, plan.cut, plan.units, false)),
            _ => plan.kernel(&Images { workload: w, c, plan: *plan }),
        };
        built(kernel, [])
    }
}
