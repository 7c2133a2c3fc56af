//! Convolutions in NHWC.

use super::plan::{Sizes, TensorCores, device};
use crate::ir::{DType, Expr};
use crate::target::{Cuda, Target};
use crate::templates::cuda::cut::Cut;
use crate::templates::cuda::family::{Case, Family, built};
use crate::templates::cuda::guards::{inside, or_zero};
use crate::templates::cuda::launch::pack_rows;
use crate::templates::cuda::pixels::{PixelRows, Pixels};
use crate::templates::cuda::requires::convolution;
use crate::templates::{Pack, Scheduled, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Workload};

/// Convolutions in NHWC of f16 and bf16, whose groups have an even number of input channels. See the module's text for the form and
/// for the knobs.
pub struct MmaConv2d;

/// Columns of packed weights that are copied at a time: 16 bytes.
const WEIGHTS: i64 = 8;

/// Channels of a pixel that are copied at a time: up to 16 bytes.
fn unit(c: &Conv2d) -> i64 {
    [8, 4].into_iter().find(|n| c.ci_per_group() % n == 0).unwrap_or(2)
}

impl Family for MmaConv2d {
    const NAME: &'static str = "mma_conv2d";
    const SMALLEST: Option<Sizes> = Some(Sizes::SMALLEST);
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = TensorCores;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        let gpu = device(w, t)?;
        let c = convolution(w)?;
        if c.layout != ConvLayout::Nhwc {
            return Err("for NHWC".into());
        }
        match c.ci_per_group() {
            ci if ci % 2 == 0 => {}
            ci if c.groups == 1 => return Err(format!("copies whole words, and pixels have {ci} channels")),
            ci => return Err(format!("copies whole words, and groups have {ci} channels")),
        }
        // Blocks that pack the weights, with those of the last step's zeros.
        if w.reduction_length() > gpu.grid_dim[0] / 2 {
            return Err(format!("for sums of at most {} terms", gpu.grid_dim[0] / 2));
        }
        Ok(c)
    }

    fn too_large(case: &Case<'_, Conv2d>) -> String {
        format!("{} images in {} groups are too many tiles", case.problem.n, case.problem.groups)
    }

    fn plan(case: &Case<'_, Conv2d>, sizes: Sizes) -> Result<TensorCores, TemplateError> {
        let c = &case.problem;
        Ok(TensorCores::new(case.w, PixelRows::whole(c), c.kh * c.kw, unit(c), sizes))
    }

    fn kernel(case: &Case<'_, Conv2d>, plan: &TensorCores) -> Result<Scheduled, TemplateError> {
        let c = case.problem;
        let product = Pixels::new(case.w, c, plan.cut, [plan.unit, WEIGHTS], true);
        built(plan.kernel(&product), [pack(&c, case.w.dtype, &plan.cut)])
    }
}

/// Brings the weights into the order in which blocks copy them; zeros stand beyond the last channel and tap.
fn pack(c: &Conv2d, dtype: DType, cut: &Cut) -> Pack {
    let shape @ [tiles, depth, columns] = Pixels::packed_shape(cut);
    // Terms beyond the last tap are those of a row of taps that is not there.
    let rows = if depth == cut.whole.k { c.kh } else { c.kh + 1 };
    let (loops, thread) = ([("tile", tiles), ("k", depth)], ("thread", Cuda::WARP));
    pack_rows(("w", dtype, &c.weight_shape()), (dtype, &shape), loops, thread, |b, [w, packed], [tile, k], column| {
        let (tap, ci) = (Expr::from(k).floor_div(c.ci_per_group()), Expr::from(k).floor_mod(c.ci_per_group()));
        let (per_group, of_group) = (c.co_per_group(), tiles / c.groups);
        let (group, tile_of_group) = match c.groups {
            1 => (Expr::Int(0), tile.into()),
            _ => (Expr::from(tile).floor_div(of_group), Expr::from(tile).floor_mod(of_group)),
        };
        let co = tile_of_group * columns + column.clone();
        let (kh, kw) = (tap.clone().floor_div(c.kw), tap.floor_mod(c.kw));
        let exists = inside(&[kh.clone(), co.clone()], [c.kh, per_group], [rows, columns]);
        let co = if c.groups > 1 { group * per_group + co } else { co };
        let value = or_zero(exists, Expr::load(w, vec![kh, kw, ci, co]));
        b.store(packed, vec![tile.into(), k.into(), column], value);
    })
}
