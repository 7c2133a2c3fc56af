//! `Resize` and `Upsample`: by the operators that resize images, or along each dimension by a constant matrix.

use super::builder::{Builder, Call};
use super::bytes::by_numbers_of;
use super::contraction;
use super::element::binary;
use super::movement::by_indices;
use super::operands::{axis, required};
use crate::network::model::{Attribute, Node};
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::Tensor;

/// Most pixels of a side of an image.
const MOST_PIXELS: i64 = 1 << 20;
/// Most elements of a matrix that resizes a dimension.
const MOST_SHARES: i64 = 1 << 26;

/// One dimension that is resized.
#[derive(Clone, Copy, Debug)]
struct Side {
    /// Its extents before and behind.
    from: i64,
    to: i64,
    /// Their ratio, as the model says it.
    scale: f64,
    /// Where a cut-out begins and ends, as parts of the whole.
    cut: [f64; 2],
}

/// How places become pixels.
#[derive(Clone, Copy, Debug)]
struct Way<'a> {
    mode: &'a str,
    coordinates: &'a str,
    rounding: &'a str,
    antialias: bool,
    exclude_outside: bool,
    cubic: f64,
}

impl<'a> Way<'a> {
    fn of(node: &'a Node, upsample: bool) -> Result<Way<'a>, Fault> {
        let mode = match node.text("mode", "nearest") {
            "nearest" => "nearest",
            "linear" | "bilinear" => "linear",
            "cubic" => "cubic",
            other => return Err(Fault::attribute("mode", other, "the mode nearest, linear or cubic")),
        };
        let way = Way {
            mode,
            coordinates: node
                .text("coordinate_transformation_mode", if upsample { "asymmetric" } else { "half_pixel" }),
            rounding: node.text("nearest_mode", if upsample { "floor" } else { "round_prefer_floor" }),
            antialias: node.flag("antialias") && mode != "nearest",
            exclude_outside: node.flag("exclude_outside"),
            cubic: f64::from(node.float("cubic_coeff_a", -0.75)),
        };
        let side = Side { from: 1, to: 1, scale: 1.0, cut: [0.0, 1.0] };
        match way.place(&side, 0) {
            Some(_) => Ok(way),
            None => Err(Fault::attribute(
                "coordinate_transformation_mode",
                way.coordinates,
                "half_pixel, half_pixel_symmetric, pytorch_half_pixel, asymmetric, align_corners or tf_crop_and_resize",
            )),
        }
    }

    /// Which place of the original a pixel of the result is at.
    fn place(&self, side: &Side, i: i64) -> Option<f64> {
        let (n, m, i, scale) = (side.from as f64, side.to as f64, i as f64, side.scale);
        Some(match self.coordinates {
            "align_corners" if side.to == 1 => 0.0,
            "align_corners" => i * (n - 1.0) / (m - 1.0),
            "asymmetric" => i / scale,
            "pytorch_half_pixel" if side.to == 1 => 0.0,
            "half_pixel" | "pytorch_half_pixel" => (i + 0.5) / scale - 0.5,
            "half_pixel_symmetric" => n / 2.0 * (1.0 - m / (scale * n)) + (i + 0.5) / scale - 0.5,
            CUT => {
                let [start, end] = side.cut;
                let along = if side.to == 1 { 0.5 } else { i / (m - 1.0) };
                (start + along * (end - start)) * (n - 1.0)
            }
            _ => return None,
        })
    }

    /// The pixel nearest to a place.
    fn rounded(&self, place: f64) -> f64 {
        match self.rounding {
            "floor" => place.floor(),
            "ceil" => place.ceil(),
            "round_prefer_ceil" => (place + 0.5).floor(),
            _ => (place - 0.5).ceil(),
        }
    }

    /// How much of each of its neighbours is in a pixel at a place that lies so far behind its left neighbour, from the
    /// first neighbour on. As the standard's reference has it.
    fn shares(&self, behind: f64, scale: f64) -> Vec<f64> {
        let a = self.cubic;
        let cubic = |x: f64| match x.abs() {
            x if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            x if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
            _ => 0.0,
        };
        let linear = |x: f64| (1.0 - x.abs()).max(0.0);
        let reach = if self.mode == "cubic" { 2.0 } else { 1.0 };
        // Where the result is smaller, a pixel of it covers several.
        let scale = if self.antialias { scale.min(1.0) } else { 1.0 };
        let first = (-reach / scale).floor() as i64 + 1;
        let of = |i: i64| {
            let x = scale * (i as f64 - behind);
            if self.mode == "cubic" { cubic(x) } else { linear(x) }
        };
        let all: Vec<f64> = (first..2 - first).map(of).collect();
        let sum: f64 = if self.antialias { all.iter().sum() } else { 1.0 };
        all.iter().map(|share| share / sum).collect()
    }

    /// What a pixel of the result is computed of: pixels and shares. None if it lies outside of a cut-out's original.
    fn row(&self, side: &Side, i: i64) -> Option<Vec<(i64, f64)>> {
        let place = self.place(side, i)?;
        let last = side.from - 1;
        if self.coordinates == CUT && !(0.0..=last as f64).contains(&place) {
            return None;
        }
        if self.mode == "nearest" {
            return Some(vec![((self.rounded(place) as i64).clamp(0, last), 1.0)]);
        }
        let left = place.ceil() - 1.0;
        let shares = self.shares(place - left, side.scale);
        let count = shares.len() as i64;
        let first = (left as i64 + 1 - count / 2).clamp(-(count / 2), side.from - count / 2);
        let inside = |pixel: i64| (0..side.from).contains(&pixel);
        let mut row: Vec<(i64, f64)> = (first..).zip(shares).collect();
        if self.exclude_outside {
            row.retain(|(pixel, _)| inside(*pixel));
            let sum: f64 = row.iter().map(|(_, share)| share).sum();
            row.iter_mut().filter(|_| sum != 0.0).for_each(|(_, share)| *share /= sum);
        }
        // What lies outside is as what is at the edge.
        Some(row.into_iter().map(|(pixel, share)| (pixel.clamp(0, last), share)).collect())
    }

    /// Whether an operator of ours reads the same pixels along a dimension: its flag is `half_pixel` where the nearest pixel is taken, and
    /// else `align_corners`.
    fn is_ours(&self, side: &Side, flagged: bool) -> bool {
        let (n, m) = (side.from as f64, side.to as f64);
        let clamp = |place: f64| if self.mode == "cubic" { place } else { place.clamp(0.0, n - 1.0) };
        let same = |i: i64| {
            let Some(place) = self.place(side, i) else { return false };
            let (theirs, ours) = match (self.mode, flagged) {
                ("nearest", false) => (self.rounded(place), (i * side.from / side.to) as f64),
                ("nearest", true) => (self.rounded(place), ((2 * i + 1) * side.from / (2 * side.to)) as f64),
                (_, false) => (place, (i as f64 + 0.5) * n / m - 0.5),
                (_, true) => (place, i as f64 * (n - 1.0) / (m - 1.0).max(1.0)),
            };
            (clamp(theirs) - clamp(ours)).abs() <= 1e-6
        };
        !self.antialias && !self.exclude_outside && self.coordinates != CUT && (0..side.to).all(same)
    }
}

/// `Resize` and `Upsample`.
pub(super) fn resize(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let shape = b.shape(input);
    let upsample = node.op == "Upsample" || b.opset < 11;
    let way = Way::of(node, upsample)?;
    if way.mode != "nearest" && (b.byte(input).is_some() || b.is_integer(input)) {
        return by_numbers_of(b, node, x, resize);
    }
    let sides = sides(b, node, x, upsample)?;
    let resized: Vec<usize> = (0..shape.len())
        .filter(|at| {
            let Side { from, to, scale, cut } = sides[*at];
            from != to || scale != 1.0 || cut != [0.0, 1.0]
        })
        .collect();
    if resized.is_empty() {
        return Ok(input);
    }
    // The last two dimensions of images, or the last one of lines, which are images of one row.
    let image = match shape.len() {
        4 if resized.iter().all(|at| *at >= 2) => Some([shape[0], shape[1], shape[2], shape[3]]),
        3 if resized.iter().all(|at| *at == 2) => Some([shape[0], shape[1], 1, shape[2]]),
        _ => None,
    };
    let result: Vec<i64> = sides.iter().map(|side| side.to).collect();
    let fits = |flagged: bool| resized.iter().all(|at| way.is_ours(&sides[*at], flagged));
    let flagged = [false, true].into_iter().find(|flagged| fits(*flagged));
    let (Some(image), Some(flagged)) = (image, flagged) else {
        let mut y = input;
        for at in resized {
            y = along(b, &way, y, at, &sides[at])?;
        }
        return outside(b, node, &way, y, &sides);
    };
    let (kind, flag) = match way.mode {
        "nearest" => ("resize_nearest", "half_pixel"),
        "linear" => ("resize_bilinear", "align_corners"),
        _ => ("resize_bicubic", "align_corners"),
    };
    let input = b.view(input, &image)?;
    let size = [if shape.len() == 4 { result[2] } else { 1 }, result[shape.len() - 1]];
    let call = Call::new(kind, &[input]).key("input", &image).key("size", &size).flag(flag, flagged);
    let y = b.compute(match way.mode {
        "cubic" => call.number("cubic_coeff_a", way.cubic as f32)?,
        _ => call,
    })?;
    b.view(y, &result)
}

/// What becomes of each dimension.
fn sides(b: &Builder, node: &Node, x: &[Option<ValueId>], upsample: bool) -> Result<Vec<Side>, Fault> {
    let shape = b.shape(required(x, 0)?);
    let rank = shape.len();
    let axes = match node.integers("axes") {
        Some(axes) => axes.iter().map(|at| axis(*at, rank)).collect::<Result<Vec<usize>, Fault>>()?,
        None => (0..rank).collect(),
    };
    let operand = |at: usize| x.get(at).copied().flatten().filter(|id| b.program.elements(*id) > 0);
    let scales = match operand(if upsample { 1 } else { 2 }) {
        Some(id) => Some(b.floats("scales", id)?),
        None => match node.attributes.get("scales") {
            Some(Attribute::Floats(list)) => Some(list.clone()),
            _ => None,
        },
    };
    let mut sides: Vec<Side> = shape.iter().map(|n| Side { from: *n, to: *n, scale: 1.0, cut: [0.0, 1.0] }).collect();
    match (scales, operand(3)) {
        (Some(scales), _) if scales.len() == axes.len() => {
            for (at, scale) in axes.iter().zip(scales) {
                let side = &mut sides[*at];
                side.scale = f64::from(scale);
                side.to = (side.from as f64 * side.scale).floor() as i64;
            }
        }
        (None, Some(id)) => {
            let sizes = b.integers("sizes", id)?;
            if sizes.len() != axes.len() {
                return Err(Fault::new(format!("{} sizes for {} dimensions", sizes.len(), axes.len()), CONSTANT));
            }
            for (at, size) in axes.iter().zip(&sizes) {
                let side = &mut sides[*at];
                (side.to, side.scale) = (*size, *size as f64 / side.from as f64);
            }
            let all = axes.iter().map(|at| sides[*at].scale);
            let one = match node.text("keep_aspect_ratio_policy", "stretch") {
                "not_larger" => all.reduce(f64::min),
                "not_smaller" => all.reduce(f64::max),
                _ => None,
            };
            for at in axes.iter().filter(|_| one.is_some()) {
                let side = &mut sides[*at];
                side.scale = one.unwrap_or(1.0);
                side.to = (side.from as f64 * side.scale + 0.5).floor() as i64;
            }
        }
        _ => return Err(Fault::new("neither scales nor sizes are known", CONSTANT)),
    }
    if let Some(id) = operand(1).filter(|_| !upsample && node.text("coordinate_transformation_mode", "") == CUT) {
        let cut = b.floats("roi", id)?;
        if cut.len() != 2 * axes.len() {
            return Err(Fault::new(format!("a cut-out of {} numbers", cut.len()), CONSTANT));
        }
        for (i, at) in axes.iter().enumerate() {
            sides[*at].cut = [cut[i], cut[axes.len() + i]].map(f64::from);
        }
    }
    let fits = |side: &Side| side.from >= 1 && (1..=MOST_PIXELS).contains(&side.to) && side.scale > 0.0;
    if !sides.iter().all(fits) {
        let result: Vec<i64> = sides.iter().map(|side| side.to).collect();
        return Err(Fault::new(
            format!("a result of {result:?} from {shape:?}"),
            format!("let each extent be 1 to {MOST_PIXELS}"),
        ));
    }
    Ok(sides)
}

/// What helps where sizes are not known.
const CONSTANT: &str = "export the model with constant sizes";
/// The coordinates of cut-outs.
const CUT: &str = "tf_crop_and_resize";

/// Resizes one dimension: pixels that are copies are gathered, others are products with a matrix.
fn along(b: &mut Builder, way: &Way<'_>, x: ValueId, at: usize, side: &Side) -> Result<ValueId, Fault> {
    let mut shape = b.shape(x);
    if way.mode == "nearest" {
        let pixels: Option<Vec<i64>> = (0..side.to).map(|i| way.row(side, i).map(|row| row[0].0)).collect();
        if let Some(pixels) = pixels {
            let pixels = b.add_constant(Tensor::integers(&[side.to], pixels));
            let y = by_indices(b, x, at, pixels)?;
            shape[at] = side.to;
            return b.view(y, &shape);
        }
    }
    let elements = side.to.saturating_mul(side.from);
    if elements > MOST_SHARES {
        let cause = format!("a dimension of {} becomes {} by a matrix of {elements} elements", side.from, side.to);
        return Err(Fault::new(
            cause,
            format!("use half_pixel coordinates without antialias, or at most {MOST_SHARES}"),
        ));
    }
    b.allow(elements, elements)?;
    let mut matrix = vec![0.0f32; elements as usize];
    for (i, shares) in (0..side.to).zip(matrix.chunks_exact_mut(side.from as usize)) {
        for (pixel, share) in way.row(side, i).into_iter().flatten() {
            shares[pixel as usize] += share as f32;
        }
    }
    let inner: i64 = shape[at + 1..].iter().product();
    let outer: i64 = shape[..at].iter().product();
    let y = if inner == 1 {
        // Behind the last dimension the matrix stands on the right.
        let turned =
            (0..side.from as usize).flat_map(|pixel| matrix.iter().skip(pixel).step_by(side.from as usize).copied());
        let matrix = Tensor::floats(&[side.from, side.to], turned.collect::<Vec<f32>>());
        let matrix = b.add_constant(matrix);
        let x = b.view(x, &[outer, side.from])?;
        contraction::matmul(b, &Node::default(), &[Some(x), Some(matrix)])?
    } else {
        let matrix = b.add_constant(Tensor::floats(&[side.to, side.from], matrix));
        let x = b.view(x, &[outer, side.from, inner])?;
        contraction::matmul(b, &Node::default(), &[Some(matrix), Some(x)])?
    };
    shape[at] = side.to;
    b.view(y, &shape)
}

/// Adds what pixels outside of a cut-out's original are.
fn outside(b: &mut Builder, node: &Node, way: &Way<'_>, y: ValueId, sides: &[Side]) -> Result<ValueId, Fault> {
    let value = node.float("extrapolation_value", 0.0);
    let is_outside = |side: &Side| (0..side.to).map(|i| way.row(side, i).is_none()).collect::<Vec<bool>>();
    let all: Vec<Vec<bool>> = sides.iter().map(is_outside).collect();
    if value == 0.0 || !all.iter().flatten().any(|outside| *outside) {
        return Ok(y);
    }
    // Dimensions without such pixels are one.
    let extents: Vec<i64> = all.iter().map(|side| if side.contains(&true) { side.len() as i64 } else { 1 }).collect();
    let count = extents.iter().product::<i64>();
    b.allow(count, count)?;
    let added = (0..count).map(|mut at| {
        let mut is_outside = false;
        for (extent, side) in extents.iter().zip(&all).rev() {
            is_outside |= *extent > 1 && side[(at % extent) as usize] || *extent == 1 && side.first() == Some(&true);
            at /= extent;
        }
        if is_outside { value } else { 0.0 }
    });
    let added = Tensor::floats(&extents, added.collect::<Vec<f32>>());
    let added = b.add_constant(added);
    binary(b, "add", y, added)
}
