//! Convolutions over planes of pixels: of one or three dimensions, with groups, and transposed.

use super::model::PIECE_CLOCKS;
use super::plan::{Right, Sizes, TensorCores, device};
use crate::target::Target;
use crate::templates::cuda::cut::Cut;
use crate::templates::cuda::family::{Case, Family, built};
use crate::templates::cuda::planes::Columns;
use crate::templates::cuda::product::widest;
use crate::templates::planes::Planes;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::Workload;

/// Convolutions of f16 and bf16 over planes of pixels: of one or three dimensions, with groups, and transposed. See the text of
/// `planes.rs` for the form and this module's for the knobs.
pub struct MmaPlanes;

/// Rows of packed weights that are copied at a time: 16 bytes.
const WEIGHTS: i64 = 8;

/// Clocks in which a scheduler issues the instructions of a single pixel: where all that a thread copies in a step are of one place
/// in the output and one tap, whose place in the input they have in common, and where each has its own.
const COMMON_CLOCKS: f64 = 6.0;
const OWN_CLOCKS: f64 = 20.0;

impl Family for MmaPlanes {
    const NAME: &'static str = "mma_planes";
    const SMALLEST: Option<Sizes> = Some(Sizes::SMALLEST);
    type Problem = Planes;
    type Knobs = Sizes;
    type Plan<'a> = TensorCores;

    fn problem(w: &Workload, t: &Target) -> Result<Planes, String> {
        Planes::of(w, device(w, t)?)
    }

    fn too_large(_: &Case<'_, Planes>) -> String {
        "outputs are too many tiles".into()
    }

    fn plan(case: &Case<'_, Planes>, sizes: Sizes) -> Result<TensorCores, TemplateError> {
        let planes = &case.problem;
        let plan = TensorCores::new(case.w, planes.whole(), planes.taps(), WEIGHTS, sizes);
        let (unit, neighbours) = (planes.unit(case.w.dtype), planes.neighbours());
        let clocks = match (unit, planes.one_tap(sizes.tile_k) && plan.one_column(unit)) {
            (1, true) => COMMON_CLOCKS,
            (1, false) => OWN_CLOCKS,
            _ => PIECE_CLOCKS,
        };
        let right = Right::Named { unit, clocks };
        let cut = Cut { stored: widest(neighbours, plan.out_bytes).min(4), ..plan.cut };
        Ok(TensorCores { cut, right, neighbours, skipped: planes.skipped(), ..plan })
    }

    fn kernel(case: &Case<'_, Planes>, plan: &TensorCores) -> Result<Scheduled, TemplateError> {
        let (w, planes) = (case.w, case.problem);
        let product = Columns { workload: w, planes, cut: plan.cut, units: [WEIGHTS, planes.unit(w.dtype)] };
        built(plan.kernel(&product), planes.pack(w, &plan.cut))
    }
}
