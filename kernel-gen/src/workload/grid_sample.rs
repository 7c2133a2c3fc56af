//! Images read at places that another tensor has.

use super::operator::{FLOATS, Fault, Kind, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, AxisRole, Combine, Stage, axis, input};
use super::{Op, Role, Workload, WorkloadError, reference_grid};
use crate::ir::{DType, Expr, UnOp};

/// `y[n, c, i, j]` is the image `x[n, c]` at the place `grid[n, i, j] = [x, y]`, from -1 to 1 in both directions, as ONNX's
/// `GridSample`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GridSample {
    /// Images.
    pub n: i64,
    /// Channels.
    pub c: i64,
    /// Pixels of the images: height and width.
    pub pixels: [i64; 2],
    /// Places: height and width of the output.
    pub places: [i64; 2],
    /// Whether it takes the nearest pixel, of two the one at an even index; else four are weighed.
    pub nearest: bool,
    /// Whether -1 and 1 are the middles of the outer pixels; else they are their edges.
    pub align_corners: bool,
    /// What is beyond the image.
    pub beyond: Beyond,
}

/// What is beyond an image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Beyond {
    /// Zeros.
    Zeros,
    /// Its border.
    Border,
    /// The image again, reflected at its edges; at the middles of the outer pixels, where corners are aligned.
    Reflection,
}

/// A way to read.
macro_rules! kind {
    ($name:literal, $nearest:expr) => {
        Kind {
            name: $name,
            pattern: "n{}c{}h{}w{}-o{}x{}-{pixels|corners}-{zeros|border|reflection}",
            sizes: &[
                Size::new("n", "n (the batch)", SizeRole::Images),
                Size::new("c", "c (the channels)", SizeRole::Channels),
                Size::new("h", "h (the height)", SizeRole::Extent),
                Size::new("w", "w (the width)", SizeRole::Extent),
                Size::new("oh", "the output's height", SizeRole::Extent),
                Size::new("ow", "the output's width", SizeRole::Extent),
                Size::new("align_corners", "align_corners", SizeRole::Choice),
                Size::new("beyond", "what is beyond", SizeRole::Choice),
            ],
            layouts: &[],
            flags: &["align_corners", "border", "reflection"],
            between: &[],
            outputs: FLOATS,
            keys: |_| {
                let size = SpecKey::required("size", &[2], "[the output's height, its width]");
                vec![SpecKey::required("input", &[4], "[n, c, h, w]"), size]
            },
            read: |shared, values| {
                let ([n, c, h, w], places) = (values.shape("input"), values.shape("size"));
                let beyond = match [shared.has("border"), shared.has("reflection")] {
                    [false, false] => Beyond::Zeros,
                    [true, false] => Beyond::Border,
                    [false, true] => Beyond::Reflection,
                    [true, true] => {
                        let cause = "`border` and `reflection` both say what is beyond the image";
                        return Err(Fault::new("size", cause, "leave one of them out"));
                    }
                };
                let align_corners = shared.has("align_corners");
                let of = GridSample { n, c, pixels: [h, w], places, nearest: $nearest, align_corners, beyond };
                Ok(Op::GridSample(of))
            },
            of_sizes: |_, sizes| {
                let [n, c, h, w, oh, ow, align_corners, beyond] = *sizes else { return None };
                let beyond = *[Beyond::Zeros, Beyond::Border, Beyond::Reflection].get(usize::try_from(beyond).ok()?)?;
                let (pixels, places, align_corners) = ([h, w], [oh, ow], align_corners == 1);
                let of = GridSample { n, c, pixels, places, nearest: $nearest, align_corners, beyond };
                Some(Op::GridSample(of))
            },
            guilty: |error| match error {
                WorkloadError::NotPositive { size: "oh" | "ow", .. } => "size",
                _ => "input",
            },
        }
    };
}

/// `grid_sample_bilinear` in specs and keys.
pub(crate) static GRID_SAMPLE_BILINEAR: Kind = kind!("grid_sample_bilinear", false);

/// `grid_sample_nearest`.
pub(crate) static GRID_SAMPLE_NEAREST: Kind = kind!("grid_sample_nearest", true);

impl GridSample {
    /// Between which places an image is reflected along a direction of this many pixels.
    pub(super) fn edges(&self, pixels: i64) -> [f64; 2] {
        let last = (pixels - 1) as f64;
        if self.align_corners { [0.0, last] } else { [-0.5, last + 0.5] }
    }

    /// The place of a pixel that a number from -1 to 1 is, along a direction of this many pixels.
    fn place(&self, number: Expr, pixels: i64) -> Expr {
        let f = Expr::f32;
        let last = (pixels - 1) as f64;
        let place = match self.align_corners {
            true => (number + f(1.0)) * f(0.5 * last),
            false => ((number + f(1.0)) * f(pixels as f64) - f(1.0)) * f(0.5),
        };
        let within = |place: Expr| place.max(f(0.0)).min(f(last));
        let [low, high] = self.edges(pixels);
        match self.beyond {
            Beyond::Zeros => place,
            Beyond::Border => within(place),
            Beyond::Reflection if high <= low => within(place),
            Beyond::Reflection => {
                let (span, away) = (high - low, Expr::un(UnOp::Abs, place - f(low)).fmod(f(2.0 * (high - low))));
                let back = f(2.0 * span) - away.clone();
                within(away.clone().le(f(span)).select(away, back) + f(low))
            }
        }
    }
}

impl Operator for GridSample {
    fn kind(&self) -> &'static Kind {
        if self.nearest { &GRID_SAMPLE_NEAREST } else { &GRID_SAMPLE_BILINEAR }
    }

    fn sizes(&self) -> Vec<i64> {
        let ([h, w], [oh, ow]) = (self.pixels, self.places);
        vec![self.n, self.c, h, w, oh, ow, self.align_corners.into(), self.beyond as i64]
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)
    }

    fn inputs(&self) -> Vec<Operand> {
        let ([h, w], [oh, ow]) = (self.pixels, self.places);
        vec![
            Operand::new("x", Role::Input, vec![self.n, self.c, h, w]),
            Operand::new("grid", Role::Input, vec![self.n, oh, ow, 2]),
        ]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        let [oh, ow] = self.places;
        let images = [Axis::new("n", self.n, AxisRole::Batch), Axis::new("c", self.c, AxisRole::Channel)];
        let pixels = [Axis::new("oh", oh, AxisRole::Space), Axis::new("ow", ow, AxisRole::Space)];
        ("y", [images, pixels].concat())
    }

    fn terms(&self) -> i64 {
        1
    }

    /// Two places, their weights, and the pixels that they weigh.
    fn flops_per_term(&self) -> i64 {
        if self.nearest { 8 } else { 22 }
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let f = Expr::f32;
        let number = |direction: i64| {
            Expr::load(input(1), vec![axis(0).into(), axis(2).into(), axis(3).into(), Expr::Int(direction)])
        };
        // Numbers come as x and y, extents as height and width.
        let [y, x] = [self.place(number(1), self.pixels[0]), self.place(number(0), self.pixels[1])];
        let pixel = |[y, x]: [Expr; 2]| {
            let inside =
                |place: &Expr, pixels: i64| f(0.0).le(place.clone()).and(place.clone().le(f((pixels - 1) as f64)));
            let inside = [inside(&y, self.pixels[0]), inside(&x, self.pixels[1])];
            let index = |place: Expr, inside: &Expr, pixels: i64| {
                inside.clone().select(place, f(0.0)).cast(DType::I64).floor_mod(pixels)
            };
            let (row, column) = (index(y, &inside[0], self.pixels[0]), index(x, &inside[1], self.pixels[1]));
            let value = Expr::load(input(0), vec![axis(0).into(), axis(1).into(), row, column]);
            let [in_rows, in_columns] = inside;
            in_rows.and(in_columns).select(value, f(0.0))
        };
        let value = if self.nearest {
            pixel([y, x].map(|place| Expr::un(UnOp::Round, place)))
        } else {
            let first = [y.clone(), x.clone()].map(|place| Expr::un(UnOp::Floor, place));
            let beside = first.clone().map(|place| place + f(1.0));
            let [[top, left], [bottom, right]] = [first.clone(), beside];
            let [below, behind] = [y - first[0].clone(), x - first[1].clone()];
            let [above, before] = [f(1.0) - below.clone(), f(1.0) - behind.clone()];
            let line = |y: Expr| {
                before.clone() * pixel([y.clone(), left.clone()]) + behind.clone() * pixel([y, right.clone()])
            };
            above * line(top) + below * line(bottom)
        };
        let [oh, ow] = self.places;
        vec![Stage {
            name: "acc",
            dtype: sums,
            shape: vec![self.n, self.c, oh, ow],
            loops: vec![("n", self.n), ("c", self.c), ("oh", oh), ("ow", ow)],
            reduce: 0,
            combine: Combine::One,
            index: (0..4).map(|i| axis(i).into()).collect(),
            value,
        }]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_grid::sampled(self, inputs[0], inputs[1])
    }
}
