//! Rows of output pixels, for convolutions in NHWC as products (`im2col`, of which nothing is ever stored).
//!
//! A row of the left operand is an output pixel, whichever image it is of, and the reduction goes through the taps and,
//! within a tap, through the input channels, which lie side by side in memory. What a thread has to know of a row does
//! not change from step to step; what a tap adds is the same for all rows.

use super::product::Piece;
use crate::ir::Expr;
use crate::ir::builder::KernelBuilder;
use crate::workload::Conv2d;

/// The left operand of a convolution in NHWC with one group, cut into tiles and steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct PixelRows {
    pub(super) c: Conv2d,
    /// Rows of a tile.
    pub(super) tile: i64,
    /// Terms of the reduction in a step.
    pub(super) step: i64,
    /// The reduction's length with what the last steps have beyond it.
    pub(super) padded_depth: i64,
}

impl PixelRows {
    /// Output pixels of a convolution, those of all images: the rows of the product.
    pub(super) fn count(c: &Conv2d) -> i64 {
        c.n * c.oh() * c.ow()
    }

    /// Taps times input channels: the length of the reduction.
    pub(super) fn depth(c: &Conv2d) -> i64 {
        c.kh * c.kw * c.ci
    }

    /// Names the image of row `row` and the input row and column that its first tap meets. Rows beyond the last pixel
    /// are copied from that one, and not to be stored.
    pub(super) fn row(&self, b: &mut KernelBuilder, row: Expr) -> Vec<Expr> {
        let c = &self.c;
        let (oh, ow, count) = (c.oh(), c.ow(), PixelRows::count(c));
        let row = if count % self.tile == 0 { row } else { row.min(count - 1) };
        let pixel = b.let_("pixel", row);
        let within = Expr::from(pixel).floor_mod(oh * ow);
        vec![
            b.let_("image", Expr::from(pixel).floor_div(oh * ow)).into(),
            b.let_("top", within.clone().floor_div(ow) * c.stride[0] - c.padding[0]).into(),
            b.let_("left_edge", within.floor_mod(ow) * c.stride[1] - c.padding[1]).into(),
        ]
    }

    /// Names what all threads have to know of the step whose reduction begins at `k`, which comes last: of one that
    /// lies within a tap, what this adds to a pixel's row and column, and the first channel.
    pub(super) fn step(&self, b: &mut KernelBuilder, k: &Expr) -> Vec<Expr> {
        if !self.one_tap() {
            return vec![k.clone()];
        }
        let [down, along, ci] = self.tap(k.clone());
        vec![b.let_("down", down).into(), b.let_("along", along).into(), b.let_("first_channel", ci).into(), k.clone()]
    }

    /// The piece of a row of which [`row`](PixelRows::row) told, `within` terms behind the first of the step that
    /// [`step`](PixelRows::step) told of. Taps in the padding, and what is beyond the last tap, do not exist.
    pub(super) fn piece(&self, row: &[Expr], step: &[Expr], within: Expr) -> Piece {
        let c = &self.c;
        let (tap, k) = match step {
            [down, along, ci, k] => ([down.clone(), along.clone(), ci.clone() + within], k.clone()),
            _ => (self.tap(step[0].clone() + within.clone()), step[0].clone() + within),
        };
        let [down, along, ci] = tap;
        let (h, w) = (row[1].clone() + down, row[2].clone() + along);
        let depth = PixelRows::depth(c);
        let beyond = self.padded_depth != depth;
        let mut exists = vec![];
        if beyond {
            exists.push(k.lt(depth));
        }
        if beyond || c.padding[0] > 0 || c.padding[2] > 0 {
            exists.push(KernelBuilder::between(&h, 0, c.h));
        }
        if beyond || c.padding[1] > 0 || c.padding[3] > 0 {
            exists.push(KernelBuilder::between(&w, 0, c.w));
        }
        Piece { index: vec![row[0].clone(), h, w, ci], exists: Expr::all(exists) }
    }

    /// Whether all terms of a step are of the same tap.
    pub(super) fn one_tap(&self) -> bool {
        self.c.ci % self.step == 0
    }

    /// What the tap of a term adds to the row and column of a pixel, and the term's channel.
    fn tap(&self, k: Expr) -> [Expr; 3] {
        let c = &self.c;
        let (tap, ci) = (k.clone().floor_div(c.ci), k.floor_mod(c.ci));
        [tap.clone().floor_div(c.kw) * c.dilation[0], tap.floor_mod(c.kw) * c.dilation[1], ci]
    }
}
