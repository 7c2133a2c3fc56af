//! Images of another size.

use super::number::Number;
use super::operator::{
    FLOATS, Fault, Kind, OfBytes, OfI32, Operand, Operator, Shared, Size, SizeRole, SpecKey, Values, check_sizes,
};
use super::products::Sums;
use super::stage::{Axis, Combine, Stage, axis, input};
use super::{ConvLayout, Op, Role, Workload, WorkloadError, conv2d, reference};
use crate::ir::{BinOp, DType, Expr};

/// Images resized to `oh` by `ow` pixels. Where output pixel `i` of `o` lies among the `s` of the input:
///
/// | method | coordinate | pixel |
/// |---|---|---|
/// | nearest | `i * s/o` | the one that it lies in: PyTorch's `nearest`, ONNX's `asymmetric` with `floor` |
/// | nearest, `half_pixel` | `(i + 1/2) * s/o` | the one that it lies in: PyTorch's `nearest-exact` |
/// | bilinear | `(i + 1/2) * s/o - 1/2`, at least 0 | the four around it by their distance: PyTorch's and ONNX's default |
/// | bilinear, `align_corners` | `i * (s-1)/(o-1)` | likewise |
/// | bicubic | `(i + 1/2) * s/o - 1/2` | the sixteen around it, by cubic polynomials of their distance |
/// | bicubic, `align_corners` | `i * (s-1)/(o-1)` | likewise |
///
/// Which pixels these are and how far they are is computed in whole numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Resize {
    /// `NCHW` or `NHWC`.
    pub layout: ConvLayout,
    /// Images.
    pub n: i64,
    /// Channels.
    pub c: i64,
    /// Input height.
    pub h: i64,
    /// Input width.
    pub w: i64,
    /// Output height.
    pub oh: i64,
    /// Output width.
    pub ow: i64,
    /// What an output pixel is made of.
    pub method: Interpolation,
}

/// What an output pixel is made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Interpolation {
    /// One pixel of the input.
    Nearest {
        /// Whether coordinates are those of the pixels' centres.
        half_pixel: bool,
    },
    /// Four pixels.
    Bilinear {
        /// Whether the outermost pixels' centres lie on each other.
        align_corners: bool,
    },
    /// Sixteen pixels, those beyond the edge being the nearest ones (R. Keys, *Cubic convolution interpolation for digital image
    /// processing*, 1981).
    Bicubic {
        /// Whether the outermost pixels' centres lie on each other.
        align_corners: bool,
        /// The slope of the weights at a distance of 1: -0.75 in PyTorch and ONNX, -0.5 in Pillow and TensorFlow.
        coefficient: Number,
    },
}

/// A kind of a method.
macro_rules! kind {
    ($name:literal, $flag:literal, $pattern:literal, $method:expr) => {
        Kind {
            name: $name,
            pattern: $pattern,
            sizes: &[
                Size::new("n", "n (the batch)", SizeRole::Images),
                Size::new("c", "c (the channels)", SizeRole::Channels),
                Size::new("h", "h (the input height)", SizeRole::Extent),
                Size::new("w", "w (the input width)", SizeRole::Extent),
                Size::new("oh", "oh (the output height)", SizeRole::Extent),
                Size::new("ow", "ow (the output width)", SizeRole::Extent),
                Size::new($flag, $flag, SizeRole::Choice),
            ],
            layouts: &[ConvLayout::Nchw, ConvLayout::Nhwc],
            flags: &[$flag],
            between: &[],
            outputs: FLOATS,
            keys,
            read: |shared, values| read(shared, values, $method(shared.flags[0])),
            of_sizes: |layout, sizes| {
                let [n, c, h, w, oh, ow, flag] = *sizes else { return None };
                Some(Op::Resize(Resize { layout, n, c, h, w, oh, ow, method: $method(flag == 1) }))
            },
            guilty: |error| match error {
                WorkloadError::NotPositive { size, .. } if size.starts_with('o') => "size",
                _ => "input",
            },
        }
    };
}

/// `resize_nearest` in specs and keys.
pub(crate) static RESIZE_NEAREST: Kind =
    kind!("resize_nearest", "half_pixel", "n{}c{}h{}w{}-o{}x{}-{corner|half_pixel}", |half_pixel| {
        Interpolation::Nearest { half_pixel }
    });

/// `resize_bilinear`.
pub(crate) static RESIZE_BILINEAR: Kind = RESIZE_BILINEAR_KIND;

const RESIZE_BILINEAR_KIND: Kind =
    kind!("resize_bilinear", "align_corners", "n{}c{}h{}w{}-o{}x{}-{half_pixel|align_corners}", |align_corners| {
        Interpolation::Bilinear { align_corners }
    });

/// `resize_bicubic`.
pub(crate) static RESIZE_BICUBIC: Kind = Kind {
    name: "resize_bicubic",
    pattern: "n{}c{}h{}w{}-o{}x{}-{half_pixel|align_corners}-c{f}",
    sizes: &{
        let mut all = [Size::new("cubic_coeff_a", "cubic_coeff_a", SizeRole::Number); 8];
        let mut i = 0;
        while i < RESIZE_BILINEAR_KIND.sizes.len() {
            all[i] = RESIZE_BILINEAR_KIND.sizes[i];
            i += 1;
        }
        all
    },
    keys: |shared| [keys(shared), vec![SpecKey::number("cubic_coeff_a", None)]].concat(),
    read: |shared, values| {
        let coefficient = values.number("cubic_coeff_a").unwrap_or(Number::of(-0.75));
        read(shared, values, Interpolation::Bicubic { align_corners: shared.flags[0], coefficient })
    },
    of_sizes: |layout, sizes| {
        let [n, c, h, w, oh, ow, flag, coefficient] = *sizes else { return None };
        let coefficient = Number::of_size(coefficient)?;
        let method = Interpolation::Bicubic { align_corners: flag == 1, coefficient };
        Some(Op::Resize(Resize { layout, n, c, h, w, oh, ow, method }))
    },
    guilty: |error| match error {
        WorkloadError::Sizes { .. } => "cubic_coeff_a",
        error => (RESIZE_BILINEAR_KIND.guilty)(error),
    },
    ..RESIZE_BILINEAR_KIND
};

fn keys(shared: &Shared) -> Vec<SpecKey> {
    let mut keys = conv2d::keys(shared);
    keys.retain(|key| key.name == "input");
    keys.push(SpecKey::required("size", &[2], "[height, width]"));
    keys
}

fn read(shared: &Shared, values: &Values, method: Interpolation) -> Result<Op, Fault> {
    let [n, c, h, w] = conv2d::activation(shared.layout, "input", values.get("input").unwrap_or_default())?;
    let [oh, ow] = values.shape("size");
    Ok(Op::Resize(Resize { layout: shared.layout, n, c, h, w, oh, ow, method }))
}

impl Resize {
    fn axes(&self, names: [&'static str; 6], h: i64, w: i64) -> Vec<Axis> {
        self.layout.axes(names, [self.n, self.c, h, w])
    }

    fn output_axes(&self) -> Vec<Axis> {
        self.axes(["n", "c", "oh", "ow", "n_in", "c_in"], self.oh, self.ow)
    }

    /// The coordinate of an output pixel as a fraction of whole numbers, numerator and denominator, where it is interpolated.
    pub(crate) fn coordinate(align_corners: bool, at: Expr, from: i64, to: i64) -> (Expr, i64) {
        match align_corners {
            true => (at * (from - 1), (to - 1).max(1)),
            false => ((at * 2 + 1) * from - to, 2 * to),
        }
    }
}

/// Of a bilinear output pixel at a place along a direction of `from` pixels that become `to` the pixels on both sides, and their weights in
/// the type of sums.
pub(crate) fn neighbours(align_corners: bool, at: Expr, [from, to]: [i64; 2], sums: DType) -> [(Expr, Expr); 2] {
    let f = |value: f64| Expr::Float(value, sums.compute());
    let (numerator, denominator) = Resize::coordinate(align_corners, at, from, to);
    let numerator = if align_corners { numerator } else { numerator.max(Expr::Int(0)) };
    let low = numerator.clone().floor_div(denominator).min(Expr::Int(from - 1));
    let high = (low.clone() + 1).min(Expr::Int(from - 1));
    let far = Expr::Cast(sums.compute(), Box::new(numerator.floor_mod(denominator)));
    let far = Expr::bin(BinOp::Div, far, f(denominator as f64));
    [(low, f(1.0) - far.clone()), (high, far)]
}

impl Operator for Resize {
    fn kind(&self) -> &'static Kind {
        match self.method {
            Interpolation::Nearest { .. } => &RESIZE_NEAREST,
            Interpolation::Bilinear { .. } => &RESIZE_BILINEAR,
            Interpolation::Bicubic { .. } => &RESIZE_BICUBIC,
        }
    }

    fn sizes(&self) -> Vec<i64> {
        let flag = match self.method {
            Interpolation::Nearest { half_pixel: flag }
            | Interpolation::Bilinear { align_corners: flag }
            | Interpolation::Bicubic { align_corners: flag, .. } => flag,
        };
        let mut all = vec![self.n, self.c, self.h, self.w, self.oh, self.ow, flag.into()];
        if let Interpolation::Bicubic { coefficient, .. } = self.method {
            all.push(coefficient.to_size());
        }
        all
    }

    fn layout(&self) -> Option<ConvLayout> {
        Some(self.layout)
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        if let Interpolation::Bicubic { coefficient, .. } = self.method
            && !(-4.0..=4.0).contains(&coefficient.get())
        {
            let cause = format!("cubic_coeff_a is {coefficient:?}");
            return Err(WorkloadError::Sizes { cause, help: "it must be from -4 to 4; -0.75 and -0.5 are usual" });
        }
        // Coordinates are fractions of whole numbers as large as the product.
        let fits = |from: i64, to: i64| from.checked_mul(to).is_some_and(|product| product < 1 << 60);
        match fits(self.h, self.oh) && fits(self.w, self.ow) {
            true => Ok(()),
            false => Err(WorkloadError::TooLarge { what: "the output" }),
        }
    }

    fn inputs(&self) -> Vec<Operand> {
        let axes = self.axes(["n", "c", "h", "w", "n_in", "c_in"], self.h, self.w);
        vec![Operand::new("x", Role::Input, axes.iter().map(|axis| axis.extent).collect())]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", self.output_axes())
    }

    fn of_bytes(&self) -> OfBytes {
        if matches!(self.method, Interpolation::Nearest { .. }) { OfBytes::Moves } else { OfBytes::Nothing }
    }

    fn of_i32(&self) -> OfI32 {
        if matches!(self.method, Interpolation::Nearest { .. }) { OfI32::Moves } else { OfI32::Nothing }
    }

    fn terms(&self) -> i64 {
        match self.method {
            Interpolation::Nearest { .. } => 1,
            Interpolation::Bilinear { .. } => 4,
            Interpolation::Bicubic { .. } => 16,
        }
    }

    /// A pixel that is moved counts as one operation, so that what is faster has a higher rate here too.
    fn flops_per_term(&self) -> i64 {
        if matches!(self.method, Interpolation::Nearest { .. }) { 1 } else { 2 }
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let axes = self.output_axes();
        let place = |name| axes.iter().position(|axis| axis.name == name).expect("an output has pixels");
        let (rows, columns) = (place("oh"), place("ow"));
        let load = |row: Expr, column: Expr| {
            let mut index: Vec<Expr> = (0..axes.len()).map(|i| axis(i).into()).collect();
            (index[rows], index[columns]) = (row, column);
            Expr::load(input(0), index)
        };
        let f = |value: f64| Expr::Float(value, sums.compute());
        let value = match self.method {
            Interpolation::Nearest { half_pixel } => {
                let along = |at: usize, from: i64, to: i64| {
                    let at = Expr::from(axis(at));
                    let found = match half_pixel {
                        true => ((at * 2 + 1) * from).floor_div(2 * to),
                        false => (at * from).floor_div(to),
                    };
                    // It is never above; the minimum says so to who checks bounds.
                    found.min(Expr::Int(from - 1))
                };
                load(along(rows, self.h, self.oh), along(columns, self.w, self.ow))
            }
            Interpolation::Bilinear { align_corners } => {
                let along =
                    |at: usize, from: i64, to: i64| neighbours(align_corners, axis(at).into(), [from, to], sums);
                let rows = along(rows, self.h, self.oh);
                let row = |(row, weight): (Expr, Expr)| {
                    let [left, right] = along(columns, self.w, self.ow);
                    (load(row.clone(), left.0) * left.1 + load(row, right.0) * right.1) * weight
                };
                let [above, below] = rows.map(row);
                above + below
            }
            Interpolation::Bicubic { align_corners, coefficient } => {
                // The pixels around the coordinate and their weights: the polynomials of the distances, in the share `t` of the way
                // from the second pixel to the third.
                let a = coefficient.get();
                let along = |at: usize, from: i64, to: i64| {
                    let (numerator, denominator) = Resize::coordinate(align_corners, axis(at).into(), from, to);
                    let t = Expr::Cast(sums.compute(), Box::new(numerator.clone().floor_mod(denominator)));
                    let t = Expr::bin(BinOp::Div, t, f(denominator as f64));
                    let rest = || f(1.0) - t.clone();
                    let outer = |t: Expr, rest: Expr| f(a) * t * rest.clone() * rest;
                    let inner = |t: Expr| (f(a + 2.0) * t.clone() - f(a + 3.0)) * t.clone() * t + f(1.0);
                    let weights = [outer(t.clone(), rest()), inner(t.clone()), inner(rest()), outer(rest(), t.clone())];
                    let pixel = |k: i64| {
                        let place = numerator.clone().floor_div(denominator) + (k - 1);
                        place.max(Expr::Int(0)).min(Expr::Int(from - 1))
                    };
                    (0..).map(pixel).zip(weights).collect::<Vec<(Expr, Expr)>>()
                };
                let sum = |terms: Vec<Expr>| terms.into_iter().reduce(|a, b| a + b).expect("four terms");
                let row = |(row, weight): (Expr, Expr)| {
                    let columns = along(columns, self.w, self.ow).into_iter();
                    sum(columns.map(|(column, of_column)| load(row.clone(), column) * of_column).collect()) * weight
                };
                sum(along(rows, self.h, self.oh).into_iter().map(row).collect())
            }
        };
        vec![Stage {
            name: "acc",
            dtype: sums,
            shape: axes.iter().map(|axis| axis.extent).collect(),
            loops: axes.iter().map(|axis| (axis.name, axis.extent)).collect(),
            reduce: 0,
            combine: Combine::One,
            index: (0..axes.len()).map(|i| axis(i).into()).collect(),
            value,
        }]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference::resized(self, inputs[0])
    }
}
