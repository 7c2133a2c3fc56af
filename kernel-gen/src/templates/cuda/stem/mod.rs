//! First layers: convolutions of 16-bit images with few channels, on the tensor cores of a warp (`mma.sync`).
//!
//! Three channels are no rows of 16 bytes, which is what the copy engine and `ldmatrix` take. So a block first brings the
//! pixels that its tile of outputs needs into *cells* of eight elements in shared memory: two pixels of four channels, or one
//! of eight, the missing channels zero. The reduction then runs over cells: of each row of the kernel as many as hold its
//! taps, and what a cell has beyond them meets weights that are zero. Sixteen neighbouring outputs read cells a fixed
//! distance apart, so that the matrix of their inputs (`im2col`) is never made: its rows are read where they overlap, eight
//! elements at a time, aligned because a pixel's width times the stride is a multiple of eight.
//!
//! ```text
//! 7 x 7, stride 2, 3 channels:  four channels a pixel, 4 cells a row of the kernel, 28 cells  = 14 steps of 16
//! 3 x 3, stride 2, 3 channels:  four channels a pixel, 2 cells a row,                6 cells  =  3 steps
//! 3 x 3, stride 1, 3 channels:  eight channels a pixel, 3 cells a row,               9 cells  =  5 steps
//! ```
//!
//! Where a stride of several cells parts the outputs' cells, they lie in so many *phases*, each dense, and no bank is asked
//! twice. Weights are packed once, as the block's image in shared memory, and come by `cp.async` while the pixels are
//! gathered; channels that are whole cells already (8, 16, 24, 32 in NHWC) come that way, too.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `tile_h` | 1 to 16 | output rows of a block |
//! | `tile_w` | 1 to 4 | output columns of a block, in sixteens |
//! | `rows` | 1, 2, 4 | tiles of sixteen outputs of a warp |
//! | `columns` | 1, 2, 4 | output channels of a warp, in sixteens |
//! | `across` | 1, 2, 4 | warps along the output channels |
//! | `store` | `direct`, `rows` | pairs from registers, or rows by way of shared memory, 16 bytes at a time where they divide |
//!
//! A weight of zero times a pixel that is infinite or NaN is NaN. Where a cell has room for pixels beside the taps, outputs become NaN
//! that do not read such a pixel, and where the number of cells is odd, outputs that should be infinite. The classes `strict`
//! and `local` have only convolutions whose cells hold taps alone.

mod kernel;
mod model;
mod plan;

use crate::space::Config;
use crate::target::Target;
use crate::templates::cuda::family::{Case, Family, Plan as _, Search, Store, built};
use crate::templates::cuda::requires::{convolution, device, needs_16_bits, needs_cp_async};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::special::Reach;
use crate::workload::{Conv2d, ConvLayout, Op, Workload};
use plan::{MOST_BESIDE, MOST_CHANNELS, NOT_LOCAL, Plan, Sizes};

/// See the module's text.
pub struct Conv2dStem;

impl Family for Conv2dStem {
    const NAME: &'static str = "conv2d_stem";
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        let gpu = device(t)?;
        let c = convolution(w)?;
        if c.groups != 1 || !matches!(c.layout, ConvLayout::Nchw | ConvLayout::Nhwc) {
            return Err("for NCHW and NHWC with one group".into());
        }
        needs_16_bits(w)?;
        if c.ci > MOST_CHANNELS {
            return Err(format!("for at most {MOST_CHANNELS} input channels"));
        }
        needs_cp_async(gpu)?;
        if c.n > gpu.grid_dim[2] {
            return Err(format!("{} images", c.n));
        }
        // How cells are made up does not depend on the config.
        if w.math.is_local() && !Plan::new(w, c, Sizes::SMALLEST).has_taps_alone() {
            return Err(NOT_LOCAL.into());
        }
        Ok(c)
    }

    fn check(case: &Case<'_, Conv2d>) -> Result<(), String> {
        let c = case.problem;
        let fits = Store::ALL.iter().any(|store| smallest(case, *store).fits(case.gpu));
        fits.then_some(()).ok_or_else(|| format!("a {} x {} kernel does not fit in shared memory", c.kh, c.kw))
    }

    fn plan(case: &Case<'_, Conv2d>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(Plan::new(case.w, case.problem, sizes))
    }

    fn search(case: &Case<'_, Conv2d>) -> Search<Sizes> {
        // Either is outside of the space for some outputs.
        let direct = smallest(case, Store::Direct).fits(case.gpu);
        Search::from(Sizes { store: if direct { Store::Direct } else { Store::Rows }, ..Sizes::SMALLEST })
    }

    fn beside(w: &Workload, _: &Config) -> Reach {
        match w.op {
            Op::Conv2d(c) if !Plan::new(w, c, Sizes::SMALLEST).has_taps_alone() => Reach::Beside(MOST_BESIDE),
            _ => Reach::Own,
        }
    }

    fn kernel(case: &Case<'_, Conv2d>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        built(kernel::kernel(plan, case.w), [kernel::pack(plan)])
    }
}

/// The smallest tiles, whose sums go to the output as `store` says.
fn smallest(case: &Case<'_, Conv2d>, store: Store) -> Plan {
    Plan::new(case.w, case.problem, Sizes { store, ..Sizes::SMALLEST })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::DType;
    use crate::templates::Template;
    use crate::workload::Math;

    fn plan(c: Conv2d) -> Plan {
        let w = Workload::f32(c).with_dtype(DType::F16);
        let sizes = Sizes { tile_h: 4, tile_w: 1, rows: 1, columns: 4, across: 1, store: Store::Direct };
        Plan::new(&w, c, sizes)
    }

    #[test]
    fn pixels_are_as_narrow_as_the_stride_allows() {
        let steps = |ci, k, stride| {
            let p = plan(Conv2d { layout: ConvLayout::Nhwc, ..Conv2d::nchw(1, ci, 32, 32, 64, k, stride, k / 2) });
            [p.pixel(), p.phases(), p.shift(), p.row_cells(), p.steps()]
        };
        // An odd padding is made even by a pixel that meets no tap.
        assert_eq!(steps(3, 7, 2), [4, 1, 1, 4, 14]);
        assert_eq!(steps(3, 3, 2), [4, 1, 1, 2, 3]);
        assert_eq!(steps(3, 3, 1), [8, 1, 0, 3, 5]);
        assert_eq!(steps(1, 5, 4), [2, 1, 2, 2, 5]);
        assert_eq!(steps(12, 3, 1), [16, 2, 0, 6, 9]);
        // Rows of an odd number of elements have no words.
        assert!(!plan(Conv2d { layout: ConvLayout::Nhwc, ..Conv2d::nchw(1, 3, 33, 33, 64, 7, 2, 3) }).paired());
    }

    #[test]
    fn a_class_that_is_local_has_kernels_whose_cells_hold_taps_alone() {
        let target = Target::find("sm_80").expect("a built-in target");
        for math in [Math::Strict, Math::Local, Math::Fp32] {
            let takes = |layout, ci, [kh, kw]: [i64; 2], stride| {
                let c = Conv2d { layout, kh, kw, ..Conv2d::nchw(1, ci, 32, 32, 64, 3, stride, 0) };
                Conv2dStem.applies(&Workload { math, ..Workload::f32(c).with_dtype(DType::F16) }, target)
            };
            // Four channels a pixel: 7 taps leave room for one pixel, 4 taps fill two cells. An odd number of cells has one twice.
            assert_eq!(takes(ConvLayout::Nhwc, 4, [4, 4], 2), Ok(()));
            assert_eq!(takes(ConvLayout::Nchw, 8, [2, 3], 1), Ok(()));
            for refused in [takes(ConvLayout::Nhwc, 3, [7, 7], 2), takes(ConvLayout::Nchw, 8, [3, 3], 1)] {
                assert_eq!(refused, if math.is_local() { Err(NOT_LOCAL.to_string()) } else { Ok(()) });
            }
        }
    }

    #[test]
    fn cells_of_distant_taps_are_as_far_apart_as_the_taps() {
        let c = Conv2d { dilation: [2, 3], ..Conv2d::nchw(1, 3, 32, 32, 64, 3, 1, 1) };
        let p = plan(c);
        let at = [0, 1, 2, 3].map(|i| p.cell(i));
        assert_eq!(at.map(|c| (c.row, c.phase, c.along)), [(0, 0, 0), (0, 0, 3), (0, 0, 6), (2, 0, 0)]);
    }
}
