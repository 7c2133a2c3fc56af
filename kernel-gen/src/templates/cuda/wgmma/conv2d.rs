//! Convolutions in NHWC as implicit matrix products: a tile's rows are output pixels, a step is one tap of the kernel
//! and 64 input channels (32 in the class tf32).
//!
//! The rows of a tile are a box of `images x rows x columns` output pixels, so what a step multiplies is a box of the
//! input: the copy engine fetches it as it lies, with the stride as element stride and zeros for the padding. No matrix
//! of patches exists anywhere. Where a tap lies in the padding for all pixels of a tile, the step is left out; with many
//! images and one pixel a tile that happens exactly, which saves 9 % of a 14 x 14 layer and 18 % of a 7 x 7 one.

use super::block::{Block, Box, Element, Feed, Product};
use super::kernel::kernel;
use super::model::Shape;
use super::parts::Reduction;
use super::plan::{BUFFERS, Depth, Sizes, Store, depth, device, each_step, multiplied, whole_units};
use super::ring::{Layout, Part, Ring, Steps};
use super::{model, plan};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Expr, VarId};
use crate::space::Value;
use crate::target::{Cuda, Target};
use crate::templates::cuda::family::{Case, Family, Needs, Plan, Search, built, knobs, up_to};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::requires::convolution;
use crate::templates::cuda::taps;
use crate::templates::cuda::taps::{MOST_STRIDE, taps_met};
use crate::templates::cuda::turned;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Param, Role, Workload};

/// Convolutions in NHWC with one group, of f16 and bf16, of f32 in the class tf32, and of i8 and u8 without zero points. See the
/// module's text; beyond its knobs, `tile_h` and `tile_w` are the rows and columns of output pixels in a tile, whose other rows are
/// images.
pub struct WgmmaConv2d;

/// Most whole steps of a tap beside which its last channels are worth short rows, which all slots have room for.
const MOST_WHOLE_STEPS: i64 = 2;

/// Bytes of the short rows of a tap's last channels; none where they have rows of whole steps.
fn tail(w: &Workload, c: &Conv2d) -> i64 {
    let (channels, depth) = (multiplied(w, c.ci), depth(w));
    let bytes = channels % depth * w.dtype.bytes() as i64;
    let worth = c.kh * c.kw > 1 && (1..=MOST_WHOLE_STEPS).contains(&(channels / depth));
    // Sizes of a swizzle.
    if worth && [32, 64].contains(&bytes) { bytes } else { 0 }
}

/// Steps of the reduction: those of all taps.
fn all_steps(w: &Workload, c: &Conv2d) -> i64 {
    c.kh * c.kw * ceil_div(c.ci, depth(w))
}

/// The reduction as those see it who cut it.
fn reduction(w: &Workload, c: &Conv2d, cuda: &Cuda) -> Reduction {
    Reduction::new(all_steps(w, c), [1, c.n * c.oh() * c.ow(), c.co], cuda)
}

/// What the sides of a tile may be: of them the powers of two up to the first that covers the map.
fn powers() -> impl Iterator<Item = i64> {
    (0..32).map(|exponent| 1 << exponent)
}

knobs! {
    /// Rows and columns of output pixels in a tile.
    struct Sides {
        rows: i64 = "tile_h" in powers();
        columns: i64 = "tile_w" in powers();
    }
}

/// The pixels of a tile.
#[derive(Clone, Copy)]
struct Pixels {
    images: i64,
    rows: i64,
    columns: i64,
}

impl Pixels {
    /// What rows and columns leave of the tile's rows are images.
    fn of(Sides { rows, columns }: Sides, sizes: Sizes) -> Result<Pixels, TemplateError> {
        match sizes.bm() / (rows * columns) {
            images if images * rows * columns == sizes.bm() => Ok(Pixels { images, rows, columns }),
            _ => Err(TemplateError::Limit(format!("{rows} x {columns} pixels do not divide {} rows", sizes.bm()))),
        }
    }

    /// Whether the copy engine fetches them at once: it counts what a stride leaves out.
    fn are_one_box(&self, c: &Conv2d) -> bool {
        taps::is_one_box([self.images, self.rows, self.columns], [1, c.stride[0], c.stride[1]])
    }

    /// `count` pixels from the `first` of the tile on: where they start in it, and their extents. Sides are powers of
    /// two, so those that lie one behind the other are a box.
    fn run(&self, first: &Expr, count: i64) -> ([Expr; 3], [i64; 3]) {
        let columns = self.columns.min(count);
        let rows = self.rows.min(count / columns);
        let pixel = first.clone().floor_mod(self.rows * self.columns);
        let start = [
            first.clone().floor_div(self.rows * self.columns),
            pixel.clone().floor_div(self.columns),
            pixel.floor_mod(self.columns),
        ];
        (start, [count / columns / rows, rows, columns])
    }

    /// Tiles along images, rows and columns.
    fn tiles(&self, c: &Conv2d) -> [i64; 3] {
        [ceil_div(c.n, self.images), ceil_div(c.oh(), self.rows), ceil_div(c.ow(), self.columns)]
    }
}

/// Whether clusters divide the tiles. Blocks of one go through the same steps, so what lies along the rows of the product
/// are images: other pixels may meet other taps.
fn clusters_fit(c: &Conv2d, sizes: Sizes, pixels: Pixels) -> bool {
    let [images, channels] = sizes.cluster.tiles();
    pixels.tiles(c)[0] % images == 0 && ceil_div(c.co, sizes.bn) % channels == 0
}

/// What the model needs to know.
fn shape(w: &Workload, c: &Conv2d, sizes: Sizes, pixels: Pixels) -> Shape {
    let [images, rows, columns] = pixels.tiles(c);
    let taps = taps_met(c, 0, pixels.rows, rows) * taps_met(c, 1, pixels.columns, columns);
    let steps = match sizes.split {
        // A tap's step takes as long with few channels as with a slot full of them.
        1 => taps as f64 / (rows * columns) as f64 * (multiplied(w, c.ci) as f64 / depth(w) as f64).max(1.0),
        split => ceil_div(all_steps(w, c), split) as f64,
    };
    let out_bytes = w.out_dtype.bytes() as i64;
    Shape { tiles: images * rows * columns * ceil_div(c.co, sizes.bn), steps, bytes: w.bytes(), out_bytes }
}

impl Family for WgmmaConv2d {
    const NAME: &'static str = "wgmma_conv2d";
    const TAKES_INTEGERS: bool = true;
    const TAKES_F8: bool = true;
    const VERSION: u32 = 3;
    const LIMITS: &'static str = super::plan::LIMITS;
    const LONGEST_EARLY_US: f64 = super::plan::LONGEST_EARLY_US;
    type Problem = Conv2d;
    type Knobs = (Sizes, Sides);
    type Plan<'a> = Convolution<'a>;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        device(w, t)?;
        let c = convolution(w)?;
        if c.layout != ConvLayout::Nhwc || c.groups != 1 {
            return Err("for NHWC with one group".into());
        }
        whole_units(w, [c.ci, c.co])?;
        if c.stride.iter().any(|s| *s > MOST_STRIDE) {
            return Err(format!("strides above {MOST_STRIDE}"));
        }
        // A kernel without any product has no sums either.
        if (0..2).any(|dim| taps_met(&c, dim, 1, [c.oh(), c.ow()][dim]) == 0) {
            return Err("all taps lie in the padding".into());
        }
        Ok(c)
    }

    fn narrow(case: &Case<'_, Conv2d>, knob: &str, values: &mut Vec<Value>) {
        let Case { w, gpu, problem: c } = *case;
        reduction(w, &c, gpu).narrow(knob, values);
        match knob {
            "consumers" => up_to(values, 2),
            "tile_h" => up_to(values, 2 * c.oh() - 1),
            "tile_w" => up_to(values, 2 * c.ow() - 1),
            _ => {}
        }
    }

    fn plan<'a>(case: &Case<'a, Conv2d>, (sizes, sides): (Sizes, Sides)) -> Result<Convolution<'a>, TemplateError> {
        let (workload, c) = (case.w, case.problem);
        let sizes = sizes.with_tail(tail(workload, &c)).with_levels(workload);
        Ok(Convolution { workload, c, sizes, pixels: Pixels::of(sides, sizes)? })
    }

    fn search(case: &Case<'_, Conv2d>) -> Search<(Sizes, Sides)> {
        let Case { w, gpu, problem: c } = *case;
        let sensible = Sizes::sensible(gpu, 2, c.co, Store::Tma, tail(w, &c));
        let all = sensible.chain(reduction(w, &c, gpu).sensible(gpu)).flat_map(|sizes| {
            let sides = powers().take_while(move |rows| *rows < 2 * c.oh()).flat_map(move |rows| {
                powers().take_while(move |columns| *columns < 2 * c.ow()).map(move |columns| Sides { rows, columns })
            });
            sides.map(move |sides| (sizes.sensible_for(w), sides))
        });
        Search::Among(all.collect())
    }

    fn kernel<'a>(case: &Case<'a, Conv2d>, plan: &Convolution<'a>) -> Result<Scheduled, TemplateError> {
        let pack = if plan.turns() { Some(turned::pack(case.w, 4)?) } else { None };
        built(kernel(plan, plan.sizes, case.gpu), pack)
    }
}

impl Plan for Convolution<'_> {
    fn needs(&self) -> Needs {
        Needs { threads: self.sizes.threads(), registers: 0, shared_bytes: self.sizes.shared_bytes(BUFFERS) }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Convolution { workload: w, c, sizes, pixels } = self;
        sizes.fits(gpu)
            && pixels.are_one_box(c)
            && clusters_fit(c, *sizes, *pixels)
            && reduction(w, c, gpu).fits(*sizes)
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        model::us(shape(w, &self.c, self.sizes, self.pixels), self.sizes, gpu)
    }
}

/// A convolution in tiles.
pub struct Convolution<'w> {
    workload: &'w Workload,
    c: Conv2d,
    sizes: Sizes,
    pixels: Pixels,
}

impl Convolution<'_> {
    /// Whether the weights are turned around when they are packed.
    fn turns(&self) -> bool {
        plan::turns(self.workload, self.sizes.bn, self.c.co)
    }

    /// The steps of a block's part of the reduction: taps and channels of each are what its number says.
    fn steps_of_part(
        &self,
        b: &mut KernelBuilder,
        place: &[Expr],
        body: &mut dyn FnMut(&mut KernelBuilder, &[Expr], Depth),
    ) {
        let (c, depth) = (&self.c, depth(self.workload));
        let (all, chunks) = (all_steps(self.workload, c), ceil_div(c.ci, depth));
        let part = ceil_div(all, self.sizes.split);
        b.for_("step", part, |b, step| {
            let step = b.let_("step_of_all", place[4].clone() + step);
            let tap = b.let_("tap", Expr::from(step).floor_div(chunks));
            let (kh, kw) = (Expr::from(tap).floor_div(c.kw), Expr::from(tap).floor_mod(c.kw));
            let (h, w) = (taps::first(c, 0, &place[1], kh.clone()), taps::first(c, 1, &place[2], kw.clone()));
            let ci = Expr::from(step).floor_mod(chunks) * depth;
            let exists = (part * self.sizes.split != all).then(|| Expr::from(step).lt(all));
            let meets = [taps::meets(c, 0, &h, self.pixels.rows), taps::meets(c, 1, &w, self.pixels.columns)];
            b.when(Expr::all(exists.into_iter().chain(meets.into_iter().flatten())), |b| {
                let step = [h.clone(), w.clone(), kh.clone(), kw.clone(), ci.clone()];
                body(b, &step, Depth { whole: depth, tail: 0 });
            });
        });
    }
}

impl Product for Convolution<'_> {
    fn workload(&self) -> &Workload {
        self.workload
    }

    fn shape(&self, param: &Param) -> Vec<i64> {
        match param.role {
            Role::Weight if self.turns() => turned::shape(&param.shape),
            _ => param.shape.clone(),
        }
    }

    fn tiles(&self) -> i64 {
        self.pixels.tiles(&self.c).iter().product::<i64>() * ceil_div(self.c.co, self.sizes.bn)
    }

    /// First image, row, column and channel, and first step. Channels go fastest: the blocks that run at the same time share
    /// pixels, and the weights stay in the L2 cache anyway.
    fn place(&self, b: &mut KernelBuilder, item: VarId, rank: &Expr) -> Vec<Expr> {
        let [high, wide] = self.sizes.cluster.tiles();
        let [images, rows, columns] = self.pixels.tiles(&self.c);
        let (images, channels) = (images / high, ceil_div(self.c.co, self.sizes.bn) / wide);
        let of_rank = |index: Expr, tiles: i64| if tiles == 1 { index } else { index * tiles + rank.clone() };
        let pixels = Expr::from(item).floor_div(channels);
        let channel = b.let_("channel_tile", of_rank(Expr::from(item).floor_mod(channels), wide));
        let image = b.let_("image_tile", of_rank(pixels.clone().floor_mod(images), high));
        let pixels = pixels.floor_div(images);
        let column = b.let_("column_tile", pixels.clone().floor_mod(columns));
        let row = b.let_("row_tile", pixels.floor_div(columns).floor_mod(rows));
        // The factors stay visible: they say how stores are aligned.
        let Pixels { images, rows, columns } = self.pixels;
        let steps = ceil_div(all_steps(self.workload, &self.c), self.sizes.split);
        let first = if self.sizes.split > 1 { rank.clone() * steps } else { Expr::Int(0) };
        vec![image * images, row * rows, column * columns, channel * self.sizes.bn, first]
    }

    fn piece(&self, place: &[Expr], row: Expr, column: Expr, rows: i64, columns: i64) -> Box {
        let (start, extents) = self.pixels.run(&row, rows);
        let pixels = start.into_iter().zip(place).map(|(within, tile)| tile.clone() + within);
        Box {
            origin: pixels.chain([place[3].clone() + column]).collect(),
            extents: extents.into_iter().chain([columns]).collect(),
            steps: vec![],
        }
    }

    fn feed<'f>(&'f self, b: &mut KernelBuilder, block: &Block<'_>) -> std::boxed::Box<dyn Feed + 'f> {
        std::boxed::Box::new(Ring::make(b, block, self))
    }

    fn element(&self, place: &[Expr], row: Expr, column: Expr) -> Element {
        let Pixels { images, rows, columns } = self.pixels;
        let pixel = row.clone().floor_mod(rows * columns);
        Element::new([
            (place[0].clone() + row.floor_div(rows * columns), self.c.n, images),
            (place[1].clone() + pixel.clone().floor_div(columns), self.c.oh(), rows),
            (place[2].clone() + pixel.floor_mod(columns), self.c.ow(), columns),
            (place[3].clone() + column, self.c.co, self.sizes.bn),
        ])
    }
}

impl Steps for Convolution<'_> {
    fn layouts(&self) -> [Layout; 2] {
        [Layout::ReductionFast, if self.turns() { Layout::ReductionFast } else { Layout::ReductionSlow }]
    }

    fn steps(&self, b: &mut KernelBuilder, place: &[Expr], body: &mut dyn FnMut(&mut KernelBuilder, &[Expr], Depth)) {
        if self.sizes.split > 1 {
            return self.steps_of_part(b, place, body);
        }
        b.for_("kh", self.c.kh, |b, kh| {
            let h = taps::first(&self.c, 0, &place[1], kh);
            b.when(taps::meets(&self.c, 0, &h, self.pixels.rows), |b| {
                b.for_("kw", self.c.kw, |b, kw| {
                    let w = taps::first(&self.c, 1, &place[2], kw);
                    b.when(taps::meets(&self.c, 1, &w, self.pixels.columns), |b| {
                        each_step(b, "ci", self.workload, (self.c.ci, self.sizes.tail), &mut |b, ci, deep| {
                            body(b, &[h.clone(), w.clone(), kh.into(), kw.into(), ci], deep);
                        });
                    });
                });
            });
        });
    }

    fn left(&self, place: &[Expr], step: &[Expr], part: &Part) -> Box {
        let [vertical, horizontal] = self.c.stride;
        let strided = vertical > 1 || horizontal > 1;
        let ([image, row, column], [images, rows, columns]) = self.pixels.run(&part.first, part.along);
        Box {
            origin: vec![
                place[0].clone() + image,
                step[0].clone() + row * vertical,
                step[1].clone() + column * horizontal,
                step[4].clone() + part.deep.clone(),
            ],
            extents: vec![images, rows, columns, part.depth],
            steps: if strided { vec![1, vertical, horizontal, 1] } else { vec![] },
        }
    }

    fn right(&self, place: &[Expr], step: &[Expr], part: &Part) -> Box {
        let (ci, channel) = (step[4].clone() + part.deep.clone(), place[3].clone() + part.first.clone());
        let ([first, second], [high, wide]) = match self.turns() {
            true => ([channel, ci], [part.along, part.depth]),
            false => ([ci, channel], [part.depth, part.along]),
        };
        Box {
            origin: vec![step[2].clone(), step[3].clone(), first, second],
            extents: vec![1, 1, high, wide],
            steps: vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::DType;
    use crate::space::Config;
    use crate::templates::Template;

    /// 128 columns of stride 3 reach over 382, more than the copy engine takes.
    #[test]
    fn boxes_of_wide_strides_stay_within_what_the_copy_engine_takes() {
        let c = Conv2d { layout: ConvLayout::Nhwc, ..Conv2d::nchw(1, 64, 4, 1200, 64, 1, 3, 0) };
        let (w, t) = (Workload::f32(c).with_dtype(DType::F16), Target::find("sm_90a").expect("a target"));
        let wide = |config: &Config| config.int("tile_w").expect("a knob") > 64;
        let default = WgmmaConv2d.default_config(&w, t).expect("it applies");
        assert!(!wide(&default), "{default}");
        let space = WgmmaConv2d.space(&w, t).expect("it applies");
        assert!(space.normalise(&default).is_ok());
        assert!(space.sample(1).take(300).all(|(_, config)| !wide(&config)));
    }
}
