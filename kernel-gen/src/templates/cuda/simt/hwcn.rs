//! Convolutions in HWCN: for each output pixel a product of weights and images, both as they lie in memory.

use super::plan::{MultiplyAdds, Sizes};
use crate::ir::Expr;
use crate::ir::builder::KernelBuilder;
use crate::templates::cuda::cut::{Layout, Whole};
use crate::templates::cuda::guards::below;
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::product::{Column, Element, Piece, Product, widest};
use crate::templates::cuda::taps;
use crate::workload::{Conv2d, Workload};

/// Terms of a tap, with what the last step has beyond them.
fn depth(c: &Conv2d, sizes: &Sizes) -> i64 {
    ceil_div(c.ci, sizes.tile_k) * sizes.tile_k
}

/// The convolution cut up as a config says.
pub(super) fn plan(c: &Conv2d, sizes: Sizes) -> MultiplyAdds {
    let layouts = [Layout::ReductionSlow; 2];
    MultiplyAdds {
        cut: sizes.cut(Whole { batch: c.oh() * c.ow(), size: [c.co, c.n], k: c.kh * c.kw * depth(c, &sizes), layouts }),
        units: [widest(c.co, 4), widest(c.n, 4)],
        row_registers: 0,
        skipped: if sizes.split == 1 { skipped(c) } else { 0.0 },
        // Most are for the tap and for what of it is within the input.
        step_issues: 110.0,
        sizes,
    }
}

/// Most taps along a dimension of which those in the padding are left out: the code compares with each.
const MOST_COMPARED: i64 = 32;

/// The first tap along rows (0) or columns (1) that meets the input for an output there, and the one behind the last.
fn met(c: &Conv2d, dim: usize, o: i64) -> [i64; 2] {
    let [size, taps] = [[c.h, c.kh], [c.w, c.kw]][dim];
    // The first tap that lies at this place of the input or behind it.
    let from = |place: i64| ceil_div(place + c.padding[dim] - o * c.stride[dim], c.dilation[dim]).clamp(0, taps);
    [from(0), from(size)]
}

/// Most outputs along a dimension of which that is worth a look at each: of more, nearly none are beside the padding.
const MOST_OUTPUTS: i64 = 1 << 19;

/// The share of all taps that lie in the padding and are left out.
fn skipped(c: &Conv2d) -> f64 {
    if c.kh.max(c.kw) > MOST_COMPARED || c.oh().max(c.ow()) > MOST_OUTPUTS {
        return 0.0;
    }
    let along = |dim: usize, outputs: i64| -> i64 { (0..outputs).map(|o| met(c, dim, o)).map(|[a, b]| b - a).sum() };
    let done = along(0, c.oh()) * along(1, c.ow());
    1.0 - done as f64 / (c.oh() * c.ow() * c.kh * c.kw) as f64
}

/// The product.
pub(super) struct Images<'w> {
    pub(super) workload: &'w Workload,
    pub(super) c: Conv2d,
    pub(super) plan: MultiplyAdds,
}

impl Images<'_> {
    /// The output row and column of a pixel, by its place in the order of blocks: those in front that meet padding come
    /// last.
    fn pixel(&self, place: &Expr) -> [Expr; 2] {
        let c = &self.c;
        let last = |dim: usize, at: Expr, outputs: i64| {
            let padded = (0..outputs).find(|o| met(c, dim, *o)[0] == 0).unwrap_or(0);
            if padded == 0 { at } else { (at + padded).floor_mod(outputs) }
        };
        let (down, across) = (place.clone().floor_div(c.ow()), place.clone().floor_mod(c.ow()));
        [last(0, down, c.oh()), last(1, across, c.ow())]
    }

    /// The first tap that a pixel has along rows (0) or columns (1), and how many.
    fn taps(&self, dim: usize, o: &Expr) -> [Expr; 2] {
        let c = &self.c;
        let (outputs, taps) = [(c.oh(), c.kh), (c.ow(), c.kw)][dim];
        if self.plan.skipped == 0.0 {
            return [0.into(), taps.into()];
        }
        // Both only grow with the output's place, one by one tap at a time.
        let grows = |of: &dyn Fn(i64) -> i64| {
            let mut sum = Expr::Int(of(0));
            for at in 1..outputs {
                let step = of(at) - of(at - 1);
                if step != 0 {
                    let there = o.clone().lt(at).select(Expr::Int(0), Expr::Int(step));
                    sum = sum + there;
                }
            }
            sum
        };
        [grows(&|o| met(c, dim, o)[0]), grows(&|o| met(c, dim, o)[1] - met(c, dim, o)[0])]
    }
}

impl Product for Images<'_> {
    fn workload(&self) -> &Workload {
        self.workload
    }

    fn operands(&self) -> [usize; 2] {
        [1, 0]
    }

    fn units(&self) -> [i64; 2] {
        self.plan.units
    }

    fn block(&self, b: &mut KernelBuilder, batch: &Expr) -> Vec<Expr> {
        let [oh, ow] = self.pixel(batch);
        let (oh, ow) = (Expr::from(b.let_("oh", oh)), Expr::from(b.let_("ow", ow)));
        let [first_row, rows] = self.taps(0, &oh);
        let [first_column, columns] = self.taps(1, &ow);
        let mut name = |name: &str, value: Expr| Expr::from(b.let_(name, value));
        let first = [name("first_kh", first_row), name("first_kw", first_column)];
        let (rows, columns) = (name("rows_met", rows), name("columns_met", columns));
        let [first_kh, first_kw] = first;
        vec![oh, ow, first_kh, first_kw, rows, columns]
    }

    fn steps(&self, block: &[Expr]) -> Option<Expr> {
        let chunks = depth(&self.c, &self.plan.sizes) / self.plan.sizes.tile_k;
        (self.plan.skipped > 0.0).then(|| block[4].clone() * block[5].clone() * chunks)
    }

    fn left_row(&self, b: &mut KernelBuilder, row: Expr) -> Vec<Expr> {
        vec![b.let_("left_row", row).into()]
    }

    /// The tap, the input row and column that it meets, and the first channel.
    fn step(&self, b: &mut KernelBuilder, block: &[Expr], k: &Expr) -> Vec<Expr> {
        let (c, depth) = (&self.c, depth(&self.c, &self.plan.sizes));
        let number = Expr::from(b.let_("tap", k.clone().floor_div(depth)));
        let columns = &block[5];
        // Of few rows of taps, how many there are before this one.
        let row = match self.plan.skipped > 0.0 {
            true => (1..c.kh).fold(Expr::Int(0), |sum, row| {
                sum + number.clone().lt(columns.clone() * row).select(Expr::Int(0), Expr::Int(1))
            }),
            false => number.clone().floor_div(c.kw),
        };
        let row = Expr::from(b.let_("tap_row", row));
        let kh = Expr::from(b.let_("kh", block[2].clone() + row.clone()));
        let kw = Expr::from(b.let_("kw", block[3].clone() + number - row * columns.clone()));
        let h = b.let_("h", taps::first(c, 0, &block[0], kh.clone())).into();
        let w = b.let_("w", taps::first(c, 1, &block[1], kw.clone())).into();
        vec![kh, kw, h, w, b.let_("first_channel", k.clone().floor_mod(depth)).into()]
    }

    fn left(&self, _: &Expr, row: &[Expr], step: &[Expr], within: Expr) -> Piece {
        let c = &self.c;
        let ci = step[4].clone() + within;
        let mut exists = vec![KernelBuilder::between(&step[0], 0, c.kh), KernelBuilder::between(&step[1], 0, c.kw)];
        exists.extend(below(row[0].clone(), c.co, self.plan.sizes.tile[0]));
        exists.extend(below(ci.clone(), c.ci, self.plan.sizes.tile_k));
        let index = vec![step[0].clone(), step[1].clone(), ci, row[0].clone()];
        Piece { index, exists: Expr::all(exists) }
    }

    fn right(&self, _: &Expr, column: &Column<'_>, step: &[Expr], within: Expr) -> Piece {
        let c = &self.c;
        let image = column.tile.clone() * self.plan.sizes.tile[1] + column.within.clone();
        let ci = step[4].clone() + within;
        let mut exists = vec![KernelBuilder::between(&step[2], 0, c.h), KernelBuilder::between(&step[3], 0, c.w)];
        exists.extend(below(image.clone(), c.n, self.plan.sizes.tile[1]));
        exists.extend(below(ci.clone(), c.ci, self.plan.sizes.tile_k));
        // The last part of a reduction may have steps beyond the last tap. A number of the image that stands there would be
        // multiplied by zero, and an infinity is not zero then.
        if self.plan.cut.padded_k() != self.plan.cut.whole.k {
            exists.push(step[0].clone().lt(c.kh));
        }
        Piece { index: vec![step[2].clone(), step[3].clone(), ci, image], exists: Expr::all(exists) }
    }

    fn element(&self, batch: &Expr, row: Expr, column: Expr) -> Element {
        let [oh, ow] = self.pixel(batch);
        Element { channel: row.clone(), index: vec![oh, ow, row, column] }
    }
}
