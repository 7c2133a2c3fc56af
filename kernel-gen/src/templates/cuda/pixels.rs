//! Rows of output pixels, for convolutions in NHWC as products (`im2col`, of which nothing is ever stored).
//!
//! A row of the left operand is an output pixel, whichever image it is of, and the reduction goes through the taps and,
//! within a tap, through the input channels of a group, which lie side by side in memory. Each group is a product of the batch. What a thread has to know of a row does
//! not change from step to step; what a tap adds is the same for all rows.

use super::cut::{Cut, Layout, Whole};
use super::guards::inside;
use super::product::{Column, Element, Piece, Product};
use crate::ir::Expr;
use crate::ir::builder::KernelBuilder;
use crate::workload::{Conv2d, Param, Role, Workload};

/// The left operand of a convolution in NHWC, cut into tiles and steps.
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
    /// Those of a convolution that is cut up.
    pub(super) fn of(c: Conv2d, cut: &Cut) -> PixelRows {
        PixelRows { c, tile: cut.tile[0], step: cut.tile_k, padded_depth: cut.padded_k() }
    }

    /// The convolution as products of output pixels, those of all images, and output channels over taps and input channels; `weights`
    /// says how these lie.
    pub(super) fn whole(c: &Conv2d, weights: Layout) -> Whole {
        let layouts = [Layout::ReductionFast, weights];
        let size = [c.n * c.oh() * c.ow(), c.co_per_group()];
        Whole { batch: c.groups, size, k: c.kh * c.kw * c.ci_per_group(), layouts }
    }

    /// Names the image of row `row` and the input row and column that its first tap meets. Rows beyond the last pixel
    /// are copied from that one, and not to be stored.
    pub(super) fn row(&self, b: &mut KernelBuilder, row: Expr) -> Vec<Expr> {
        let c = &self.c;
        let (oh, ow) = (c.oh(), c.ow());
        let count = c.n * oh * ow;
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
    /// [`step`](PixelRows::step) told of, of a group's channels. Taps in the padding, and what is beyond the last tap, do not exist.
    pub(super) fn piece(&self, group: &Expr, row: &[Expr], step: &[Expr], within: Expr) -> Piece {
        let c = &self.c;
        let (tap, k) = match step {
            [down, along, ci, k] => ([down.clone(), along.clone(), ci.clone() + within], k.clone()),
            _ => (self.tap(step[0].clone() + within.clone()), step[0].clone() + within),
        };
        let [down, along, ci] = tap;
        let (h, w) = (row[1].clone() + down, row[2].clone() + along);
        let depth = c.kh * c.kw * c.ci_per_group();
        let ci = if c.groups > 1 { group.clone() * c.ci_per_group() + ci } else { ci };
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
        self.c.ci_per_group() % self.step == 0
    }

    /// What the tap of a term adds to the row and column of a pixel, and the term's channel.
    fn tap(&self, k: Expr) -> [Expr; 3] {
        let c = &self.c;
        let (tap, ci) = (k.clone().floor_div(c.ci_per_group()), k.floor_mod(c.ci_per_group()));
        [tap.clone().floor_div(c.kw) * c.dilation[0], tap.floor_mod(c.kw) * c.dilation[1], ci]
    }
}

/// A convolution in NHWC as products.
pub(super) struct Pixels<'w> {
    workload: &'w Workload,
    cut: Cut,
    rows: PixelRows,
    units: [i64; 2],
    /// Whether weights are packed: for each tile of output channels all terms of the reduction, with what the last step has beyond
    /// them. Otherwise they are taken as they lie.
    packed: bool,
}

impl<'w> Pixels<'w> {
    /// The convolution `c` of a workload as it is cut up, of whose operands `units` elements are copied at a time.
    pub(super) fn new(workload: &'w Workload, c: Conv2d, cut: Cut, units: [i64; 2], packed: bool) -> Pixels<'w> {
        Pixels { workload, cut, rows: PixelRows::of(c, &cut), units, packed }
    }

    /// The shape of packed weights: the tiles of each group one behind the other.
    pub(super) fn packed_shape(cut: &Cut) -> [i64; 3] {
        let tiles = cut.whole.batch * cut.tiles()[1];
        match cut.whole.layouts[1] {
            Layout::ReductionSlow => [tiles, cut.padded_k(), cut.tile[1]],
            Layout::ReductionFast => [tiles, cut.tile[1], cut.padded_k()],
        }
    }

    /// A group's number as an index of what all groups have `count` of.
    fn of_group(&self, group: &Expr, count: i64, index: Expr) -> Expr {
        if self.cut.whole.batch > 1 { group.clone() * count + index } else { index }
    }
}

impl Product for Pixels<'_> {
    fn workload(&self) -> &Workload {
        self.workload
    }

    fn shape(&self, param: &Param) -> Vec<i64> {
        let Whole { size: [rows, columns], k, batch, .. } = self.cut.whole;
        match param.role {
            Role::Weight if self.packed => Pixels::packed_shape(&self.cut).to_vec(),
            // Taps and input channels are the reduction, as they lie.
            Role::Weight => vec![k, batch * columns],
            // Pixels are rows, whichever image they are of.
            Role::Output | Role::Residual if batch == 1 => vec![rows, columns],
            // Groups are a dimension of their own, so that their outputs are seen to be apart.
            Role::Output | Role::Residual => vec![rows, batch, columns],
            _ => param.shape.clone(),
        }
    }

    fn units(&self) -> [i64; 2] {
        self.units
    }

    fn left_row(&self, b: &mut KernelBuilder, row: Expr) -> Vec<Expr> {
        self.rows.row(b, row)
    }

    fn step(&self, b: &mut KernelBuilder, _: &[Expr], k: &Expr) -> Vec<Expr> {
        self.rows.step(b, k)
    }

    fn left(&self, batch: &Expr, row: &[Expr], step: &[Expr], within: Expr) -> Piece {
        self.rows.piece(batch, row, step, within)
    }

    fn right(&self, batch: &Expr, column: &Column<'_>, step: &[Expr], within: Expr) -> Piece {
        let (tile, column) = (column.tile, column.within.clone());
        let (cut, k) = (&self.cut, step[step.len() - 1].clone() + within);
        if self.packed {
            let tile = self.of_group(batch, cut.tiles()[1], tile.clone());
            let index = match cut.whole.layouts[1] {
                Layout::ReductionSlow => vec![tile, k, column],
                Layout::ReductionFast => vec![tile, column, k],
            };
            return Piece { index, exists: None };
        }
        let co = tile.clone() * cut.tile[1] + column;
        let at = [k, co];
        let exists = inside(&at, [cut.whole.k, cut.whole.size[1]], [cut.padded_k(), cut.tile[1]]);
        let [k, co] = at;
        Piece { index: vec![k, self.of_group(batch, cut.whole.size[1], co)], exists }
    }

    fn element(&self, batch: &Expr, row: Expr, column: Expr) -> Element {
        let channel = self.of_group(batch, self.cut.whole.size[1], column.clone());
        match self.cut.whole.batch {
            1 => Element { index: vec![row, column], channel },
            _ => Element { index: vec![row, batch.clone(), column], channel },
        }
    }
}
