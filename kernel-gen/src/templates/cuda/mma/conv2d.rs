//! Convolutions in NHWC.

use super::plan::{Sizes, TensorCores, device_of_integers};
use crate::ir::{DType, Expr};
use crate::target::{Cuda, Target};
use crate::templates::cuda::cut::{Cut, Layout};
use crate::templates::cuda::family::{Case, Family, built};
use crate::templates::cuda::guards::{inside, or};
use crate::templates::cuda::launch::pack_rows;
use crate::templates::cuda::pixels::{PixelRows, Pixels};
use crate::templates::cuda::requires::convolution;
use crate::templates::{Pack, Scheduled, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Workload};

/// Bytes of packed weights that are copied at a time.
const WEIGHT_BYTES: i64 = 16;

/// Convolutions in NHWC of f16 and bf16, whose groups have an even number of input channels, and of i8 and u8. See the module's text for
/// the form and for the knobs.
pub struct MmaConv2d;

/// Channels of a pixel that are copied at a time: up to 16 bytes, and single ones of integers where no four are together.
fn unit(w: &Workload, c: &Conv2d) -> i64 {
    let units: &[i64] = if w.is_quantised() { &[16, 8, 4, 1] } else { &[8, 4, 2] };
    units.iter().copied().find(|n| c.ci_per_group() % n == 0).unwrap_or(2)
}

/// How packed weights lie: tensor cores want those of 8 bits along the reduction.
fn packed_layout(w: &Workload) -> Layout {
    if w.is_quantised() { Layout::ReductionFast } else { Layout::ReductionSlow }
}

impl Family for MmaConv2d {
    const NAME: &'static str = "mma_conv2d";
    const TAKES_INTEGERS: bool = true;
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = TensorCores;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        let gpu = device_of_integers(w, t)?;
        let c = convolution(w)?;
        if c.layout != ConvLayout::Nhwc {
            return Err("for NHWC".into());
        }
        match c.ci_per_group() {
            // What `cp.async` finds outside of the image is 0 and not the zero point.
            _ if w.quant.input_zero && c.padding != [0; 4] && unit(w, &c) > 1 => {
                return Err("for inputs with a zero point and padding only where no four channels are together".into());
            }
            _ if w.is_quantised() => {}
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

    /// Single channels are many pieces, so they want many threads.
    fn smallest(case: &Case<'_, Conv2d>) -> Option<Sizes> {
        let narrow = unit(case.w, &case.problem) == 1;
        Some(if narrow { Sizes { warps: [2, 2], ..Sizes::SMALLEST } } else { Sizes::SMALLEST })
    }

    fn too_large(case: &Case<'_, Conv2d>) -> String {
        format!("{} images in {} groups are too many tiles", case.problem.n, case.problem.groups)
    }

    fn plan(case: &Case<'_, Conv2d>, sizes: Sizes) -> Result<TensorCores, TemplateError> {
        let Case { w, problem: c, .. } = case;
        let whole = PixelRows::whole(c, packed_layout(w));
        Ok(TensorCores::new(w, whole, c.kh * c.kw, unit(w, c), sizes))
    }

    fn kernel(case: &Case<'_, Conv2d>, plan: &TensorCores) -> Result<Scheduled, TemplateError> {
        let c = case.problem;
        let product = Pixels::new(case.w, c, plan.cut, [plan.unit, WEIGHT_BYTES / plan.bytes], true);
        built(plan.kernel(&product), [pack(&c, case.w.operand_types()[1], &plan.cut)])
    }
}

/// Brings the weights into the order in which blocks copy them; zeros stand beyond the last channel and tap.
fn pack(c: &Conv2d, dtype: DType, cut: &Cut) -> Pack {
    let shape @ [tiles, outer, _] = Pixels::packed_shape(cut);
    let (depth, columns) = (cut.padded_k(), cut.tile[1]);
    // Terms beyond the last tap are those of a row of taps that is not there.
    let rows = if depth == cut.whole.k { c.kh } else { c.kh + 1 };
    let fast = cut.whole.layouts[1] == Layout::ReductionFast;
    let (loops, thread) = ([("tile", tiles), (if fast { "column" } else { "k" }, outer)], ("thread", Cuda::WARP));
    pack_rows(
        ("w", dtype, &c.weight_shape()),
        (dtype, &shape),
        loops,
        thread,
        |b, [w, packed], [tile, outer], inner| {
            let (k, column) = if fast { (inner.clone(), outer.into()) } else { (outer.into(), inner.clone()) };
            let (tap, ci) = (k.clone().floor_div(c.ci_per_group()), k.floor_mod(c.ci_per_group()));
            let (per_group, of_group) = (c.co_per_group(), tiles / c.groups);
            let (group, tile_of_group) = match c.groups {
                1 => (Expr::Int(0), tile.into()),
                _ => (Expr::from(tile).floor_div(of_group), Expr::from(tile).floor_mod(of_group)),
            };
            let co = tile_of_group * columns + column;
            let (kh, kw) = (tap.clone().floor_div(c.kw), tap.floor_mod(c.kw));
            let exists = inside(&[kh.clone(), co.clone()], [c.kh, per_group], [rows, columns]);
            let co = if c.groups > 1 { group * per_group + co } else { co };
            let zero = Expr::zero_like_load(dtype);
            let value = or(exists, Expr::load(w, vec![kh, kw, ci, co]), zero);
            b.store(packed, vec![tile.into(), outer.into(), inner], value);
        },
    )
}
