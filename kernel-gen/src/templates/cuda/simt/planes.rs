//! Convolutions over planes of pixels: of one or three dimensions, with groups, and transposed.

use super::plan::{MultiplyAdds, Sizes, device};
use crate::target::Target;
use crate::templates::cuda::cut::Cut;
use crate::templates::cuda::family::{Case, Family, built};
use crate::templates::cuda::outer::VECTOR;
use crate::templates::cuda::planes::Columns;
use crate::templates::cuda::product::widest;
use crate::templates::planes::Planes;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::Workload;

/// Convolutions of `f32` over planes of pixels, which neither [`SimtConv2d`](super::SimtConv2d) nor its rivals take: of one or three
/// dimensions, with groups, and transposed. See the text of `planes.rs` for the form and this module's for the knobs.
pub struct SimtPlanes;

/// Registers of a thread for each pixel that it copies.
const PIXEL_REGISTERS: i64 = 5;
/// Instructions of a step beside terms and copies, and those that find a pixel: where all that a thread copies in a step are of one
/// place in the output and one tap, whose place in the input they have in common, and where each has its own.
const STEP_ISSUES: f64 = 60.0;
const COMMON_ISSUES: f64 = 2.0;
const OWN_ISSUES: f64 = 16.0;

impl Family for SimtPlanes {
    const NAME: &'static str = "simt_planes";
    const SMALLEST: Option<Sizes> = Some(Sizes::SMALLEST);
    type Problem = Planes;
    type Knobs = Sizes;
    type Plan<'a> = MultiplyAdds;

    fn problem(w: &Workload, t: &Target) -> Result<Planes, String> {
        Planes::of(w, device(w, t)?)
    }

    fn too_large(_: &Case<'_, Planes>) -> String {
        "outputs are too many tiles".into()
    }

    fn plan(case: &Case<'_, Planes>, sizes: Sizes) -> Result<MultiplyAdds, TemplateError> {
        let planes = &case.problem;
        let cut = Cut { stored: widest(planes.neighbours(), 4), ..sizes.cut(planes.whole()) };
        let units = [VECTOR, planes.unit(case.w.dtype)];
        let row_registers = if units[1] == 1 { PIXEL_REGISTERS } else { 0 };
        let plan = MultiplyAdds { cut, units, row_registers, skipped: planes.skipped(), step_issues: 0.0, sizes };
        let found = match (units[1], planes.one_tap(sizes.tile_k) && plan.one_column()) {
            (1, true) => COMMON_ISSUES,
            (1, false) => OWN_ISSUES,
            _ => 0.0,
        };
        Ok(MultiplyAdds { step_issues: STEP_ISSUES + found * plan.pieces(1) as f64, ..plan })
    }

    fn kernel(case: &Case<'_, Planes>, plan: &MultiplyAdds) -> Result<Scheduled, TemplateError> {
        let (w, planes) = (case.w, case.problem);
        let product = Columns { workload: w, planes, cut: plan.cut, units: plan.units };
        built(plan.kernel(&product), planes.pack(w, &plan.cut))
    }
}
