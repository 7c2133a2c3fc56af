//! Special values at single positions of a workload's operands, for tests: small workloads of every kind, the values, and what
//! a method that is not local may make of them.
//!
//! An output of a local method depends on its own operands alone. [`Reach`] says what else those of other methods depend on, and
//! so what they may give: tests and the tuner hold the results of every template to that.

use super::bound::{Reference, reference_with_bounds, with_epilogue};
use super::operator::OfI32;
use super::reference::{Activation, Filter, sums};
use super::sample::{self, Rng};
use super::{Conv2d, ConvLayout, Epilogue, Math, Op, Quant, Workload};
use crate::ir::DType;

/// The special values of a type, with their names: all are numbers that the type holds exactly, or none at all. Integers are those of
/// eight bits or of 32.
pub fn values(dtype: DType) -> [(&'static str, f64); 5] {
    if let (true, Some((least, most))) = (dtype.is_byte(), dtype.limits()) {
        let [least, most, middle] = [least, most, (least + most + 1) / 2].map(|n| n as f64);
        return [("the largest", most), ("the smallest", least), ("zero", 0.0), ("one", 1.0), ("the middle", middle)];
    }
    if dtype.is_int() {
        let [most, least] = [i32::MAX, i32::MIN].map(f64::from);
        return [
            ("the largest", most),
            ("the smallest", least),
            ("zero", 0.0),
            ("one below", -1.0),
            ("one above", 1.0),
        ];
    }
    if dtype == DType::E4m3 {
        // It has no infinities.
        let (largest, smallest) = (448.0, 2f64.powi(-9));
        return [
            ("NaN", f64::NAN),
            ("the largest", largest),
            ("minus the largest", -largest),
            ("the smallest subnormal", smallest),
            ("an outlier", 256.0),
        ];
    }
    let (smallest, outlier) = match dtype {
        DType::F16 => (2f64.powi(-24), 6e4),
        DType::Bf16 => (2f64.powi(-133), 2f64.powi(100)),
        DType::E5m2 => (2f64.powi(-16), 57344.0),
        _ => (2f64.powi(-149), 2f64.powi(100)),
    };
    [
        ("NaN", f64::NAN),
        ("+inf", f64::INFINITY),
        ("-inf", f64::NEG_INFINITY),
        ("the smallest subnormal", smallest),
        ("an outlier", outlier),
    ]
}

/// A special value at one position of one operand.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// The name of the operand.
    pub operand: &'static str,
    /// The name of the value.
    pub value: &'static str,
    /// The position in the operand.
    pub position: usize,
    /// All operands in the order of the parameters, with the value in its place.
    pub inputs: Vec<Vec<f64>>,
}

/// Each special value once in each operand, at random positions. All other numbers are those of [`sample::inputs`].
pub fn cases(workload: &Workload, rng: &mut Rng) -> Vec<Case> {
    let inputs = sample::inputs(workload, rng);
    let params = workload.params();
    let mut cases = vec![];
    for (operand, param) in params[..inputs.len()].iter().enumerate() {
        for (value, number) in values(param.dtype) {
            let position = rng.below(param.elements() as u64) as usize;
            let mut inputs = inputs.clone();
            inputs[operand][position] = workload.within_exact(number);
            cases.push(Case { operand: param.name, value, position, inputs });
        }
    }
    cases
}

/// A small workload of any kind: every operator, layout, type and class, and shapes that templates of one purpose want. Each
/// built-in template takes some of these.
pub fn small(rng: &mut Rng) -> Workload {
    const MOST_MACS: i64 = 300_000;
    loop {
        let layout = *rng.pick(&[ConvLayout::Nchw, ConvLayout::Nhwc, ConvLayout::Hwcn]);
        let op = match rng.below(10) {
            0 => Op::Matmul(sample::matmul(rng)),
            1 => Op::Matmul(sample::matmul_rows_of_eight(rng, 64)),
            2 => {
                // Few rows and a long sum.
                let m = sample::matmul_rows_of_eight(rng, 64);
                Op::Matmul(super::Matmul { m: rng.between(1, 4), k: 8 * m.k, trans_a: false, ..m })
            }
            3 => Op::Conv2d(sample::conv2d(rng)),
            4 => Op::Conv2d(Conv2d { layout, groups: 1, ..sample::conv2d(rng) }),
            5 => {
                // What minimal filtering takes.
                let (c, taps) = (sample::conv2d(rng), *rng.pick(&[3, 3, 5]));
                let (stride, padding) = (if taps == 3 { rng.between(1, 2) } else { 1 }, rng.between(0, 2));
                let (ci, co) = (c.ci.min(19), c.co.min(19));
                Op::Conv2d(Conv2d { layout, ..Conv2d::nchw(1, ci, c.h.max(5), c.w.max(5), co, taps, stride, padding) })
            }
            6 => Op::Conv2d(Conv2d { layout, ..sample::conv2d_rows_of_eight(rng, 32) }),
            7 => Op::Conv2d(Conv2d { layout, ..sample::pointwise_rows_of_eight(rng, 64) }),
            8 if rng.one_in(2) => Op::DepthwisePointwise(sample::pair(rng)),
            8 => Op::Conv2d(sample::depthwise(rng)),
            9 if rng.one_in(2) => Op::Conv2d(sample::conv2d_tiles(rng)),
            9 if rng.one_in(3) => Op::Attention(sample::attention(rng, 24)),
            9 if rng.one_in(4) => {
                // Planes that have more pixels than windows have taps.
                const PLANES: [&str; 5] = ["max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d", "resize_bilinear"];
                let name = *rng.pick(&PLANES);
                sample::of_operator(name, rng).op
            }
            9 if rng.one_in(6) => Op::MatmulNbits(sample::few_bits(rng)),
            9 if rng.one_in(4) => {
                // Columns of several vectors.
                let name = *rng.pick(&["reduce_sum", "reduce_mean", "reduce_max"]);
                let shape = [rng.between(1, 3), rng.between(40, 90), 8 * rng.between(4, 12)];
                match sample::of_operator(name, rng).op {
                    Op::Reduce(of) => {
                        let dims = |list: &[i64]| super::Dims::new(list).expect("three dimensions");
                        Op::Reduce(super::Reduce { input: dims(&shape), combined: dims(&[0, 1, 0]), ..of })
                    }
                    op => op,
                }
            }
            _ => {
                let names: Vec<&str> = super::operator_names().collect();
                let name = *rng.pick(&names[..]);
                match sample::of_operator(name, rng).op {
                    // Rows of several vectors of a warp.
                    Op::RowWise(r) => Op::RowWise(super::RowWise { rows: 4 * r.rows, columns: 8 * r.columns, ..r }),
                    op => op,
                }
            }
        };
        let most = if matches!(op, Op::Conv2d(c) if c.layout == ConvLayout::NhwcNc(16)) { 16 } else { 1 } * MOST_MACS;
        let dtype = *rng.pick(&[DType::F32, DType::F32, DType::F16, DType::Bf16]);
        let out_dtype = if rng.one_in(4) { DType::F32 } else { dtype };
        let math = *rng.pick(if dtype == DType::F32 { &Math::ALL[..] } else { &[Math::Fp32, Math::Local] });
        let epilogue = match rng.below(3) {
            0 => vec![Epilogue::Bias, *rng.pick(&[Epilogue::Relu, Epilogue::Relu6])],
            _ => sample::epilogue(rng),
        };
        let workload = match op.get().of_i32() {
            of if of != OfI32::Nothing && rng.one_in(4) => sample::on_i32(op, rng),
            _ => Workload { op, dtype, out_dtype, math, epilogue, quant: Quant::default() },
        };
        if workload.validate().is_ok() && sample::work(&workload) <= most {
            return workload;
        }
    }
}

/// What an output of a method may depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "tune", derive(serde::Serialize, serde::Deserialize))]
pub enum Reach {
    /// Its own operands, as the classes `strict` and `local` want it.
    Own,
    /// All that a tile of outputs reads, so many rows and columns, which are computed together as Winograd's methods do.
    Tile([i64; 2]),
    /// All weights of its channel or column, which share a scale.
    Weights,
    /// Infinities and NaN of so many pixels on either side of its window's rows, which are multiplied by zero.
    Beside(i64),
}

impl Reach {
    /// What a method of this reach may give: the output, its bounds, and what may be NaN. No bound is below that of [`Reach::Own`].
    ///
    /// # Panics
    /// If the workload is no convolution and the reach is one of convolutions, or if an input has another number of elements than
    /// its parameter.
    pub fn reference(self, workload: &Workload, inputs: &[&[f64]]) -> Reference {
        match self {
            Reach::Own => reference_with_bounds(workload, inputs),
            Reach::Tile(tile) => of_tiles(workload, inputs, tile),
            Reach::Weights => of_scaled_weights(workload, inputs),
            Reach::Beside(columns) => of_wide_windows(workload, inputs, columns),
        }
    }
}

/// What a convolution may give whose method computes `tile` rows and columns of outputs together, as Winograd's does.
///
/// An operand that is no finite number may make NaN of all outputs of the tiles whose windows have it, and a weight of all
/// outputs of its channel. Finite operands have the error of a sum whose terms are all as large as the largest pixel of the window
/// times the largest weight, of each input channel.
fn of_tiles(workload: &Workload, inputs: &[&[f64]], tile: [i64; 2]) -> Reference {
    let Op::Conv2d(c) = workload.op else { panic!("{} is no convolution", workload.key()) };
    let tile = tile.map(|m| m as usize);
    let mut exact = sums(workload, inputs);
    let windows = Windows::new(&c, inputs[0], tile, 0);
    let weights = largest_weights(&c, inputs[1]);
    let (ci, co) = (c.ci_per_group() as usize, (c.co / c.groups) as usize);
    let taps = (c.kh * c.kw) as f64;
    for_each_output(&c, |[n, o, oh, ow], y| {
        let (mut magnitude, mut finite) = (0.0, true);
        for i in 0..ci {
            let (x, w) = (windows.at(n, o / co * ci + i, oh, ow), weights[o * ci + i]);
            magnitude += taps * x.finite * w.finite;
            finite &= !x.other && !w.other;
        }
        exact.magnitudes[y] = magnitude;
        exact.or_nan.extend((!finite).then_some(y));
    });
    with_epilogue(workload, inputs, exact, &[])
}

/// What a convolution may give that multiplies `beside` pixels on either side of a window's rows by zero, as one whose vectors hold
/// more pixels than taps does: NaN where one of these or of the window's own is infinite or NaN.
fn of_wide_windows(workload: &Workload, inputs: &[&[f64]], beside: i64) -> Reference {
    let Op::Conv2d(c) = workload.op else { panic!("{} is no convolution", workload.key()) };
    let mut exact = sums(workload, inputs);
    let windows = Windows::new(&c, inputs[0], [1, 1], beside);
    let ci = c.ci_per_group() as usize;
    for_each_output(&c, |[n, o, oh, ow], y| {
        let first = o / (c.co / c.groups) as usize * ci;
        let other = (first..first + ci).any(|channel| windows.at(n, channel, oh, ow).other);
        exact.or_nan.extend(other.then_some(y));
    });
    with_epilogue(workload, inputs, exact, &[])
}

/// Image, channel, row and column of each output, and its position.
fn for_each_output(c: &Conv2d, mut f: impl FnMut([usize; 4], usize)) {
    let [oh, ow] = [c.oh(), c.ow()].map(|size| size as usize);
    let at = Activation::new(c.layout, c.n as usize, c.co as usize, oh, ow);
    for (n, image) in at.image.iter().enumerate() {
        for (o, channel) in at.channel.iter().enumerate() {
            for (h, w) in (0..oh).flat_map(|h| (0..ow).map(move |w| (h, w))) {
                f([n, o, h, w], image + channel + h * at.h_step + w * at.w_step);
            }
        }
    }
}

/// What a method may give whose weights share a scale, those of each output channel, as `f16` parts do.
///
/// Weights that are smaller than the largest of their channel by a factor of 2^30 or more may be lost.
fn of_scaled_weights(workload: &Workload, inputs: &[&[f64]]) -> Reference {
    let mut lost = inputs[1].to_vec();
    for channel in filters(workload) {
        let mut largest = Largest::default();
        channel.iter().for_each(|i| largest.take(inputs[1][*i]));
        channel.iter().for_each(|i| lost[*i] = largest.finite * 2f64.powi(-30));
    }
    let finite = |x: &f64| if x.is_finite() { x.abs() } else { 0.0 };
    let x: Vec<f64> = inputs[0].iter().map(finite).collect();
    with_epilogue(workload, inputs, sums(workload, inputs), &sums(workload, &[&x, &lost]).values)
}

/// The positions of the weights of each output channel or column.
fn filters(workload: &Workload) -> Vec<Vec<usize>> {
    match &workload.op {
        Op::Conv2d(c) => {
            let f = Filter::new(c);
            let taps: Vec<usize> = (0..c.kh as usize)
                .flat_map(|r| (0..c.kw as usize).map(move |s| (r, s)))
                .map(|(r, s)| r * f.kh_step + s * f.kw_step)
                .collect();
            let of = |o: &usize| f.input.iter().flat_map(|i| taps.iter().map(move |tap| o + i + tap)).collect();
            f.output.iter().map(of).collect()
        }
        Op::Matmul(m) => {
            let (n, k) = (m.n as usize, m.k as usize);
            let (column, row) = if m.trans_b { (k, 1) } else { (1, n) };
            let columns = (0..m.batch as usize).flat_map(|b| (0..n).map(move |j| b * n * k + j * column));
            columns.map(|first| (0..k).map(|r| first + r * row).collect()).collect()
        }
        _ => panic!("no method of {} depends on all weights of a channel", workload.key()),
    }
}

/// Of some numbers the largest magnitude of those that are finite, and whether there are others.
#[derive(Clone, Copy, Default)]
struct Largest {
    finite: f64,
    other: bool,
}

impl Largest {
    fn take(&mut self, number: f64) {
        match number.abs() {
            magnitude if magnitude.is_finite() => self.finite = self.finite.max(magnitude),
            _ => self.other = true,
        }
    }
}

/// The largest pixels of the windows that tiles of outputs are computed from.
struct Windows {
    channels: usize,
    tile: [usize; 2],
    /// Rows and columns of tiles.
    tiles: [usize; 2],
    /// By image, channel, and row and column of the tile.
    largest: Vec<Largest>,
}

impl Windows {
    /// `beside` more columns on either side belong to a window.
    fn new(c: &Conv2d, x: &[f64], tile: [usize; 2], beside: i64) -> Windows {
        let (images, channels) = (c.n as usize, c.ci as usize);
        let x_at = Activation::new(c.layout, images, channels, c.h as usize, c.w as usize);
        let tiles = [(c.oh() as usize).div_ceil(tile[0]), (c.ow() as usize).div_ceil(tile[1])];
        // The rows or columns of the input in a window: from the first output's first tap to the last one's last.
        let window = |dim: usize, number: usize| {
            let (size, taps) = [(c.h, c.kh), (c.w, c.kw)][dim];
            let beside = if dim == 1 { beside } else { 0 };
            let first = (number * tile[dim]) as i64 * c.stride[dim] - c.padding[dim];
            let end = first + (tile[dim] as i64 - 1) * c.stride[dim] + (taps - 1) * c.dilation[dim] + 1;
            (first - beside).max(0) as usize..(end + beside).clamp(0, size) as usize
        };
        let mut largest = vec![];
        for (image, channel) in x_at.image.iter().flat_map(|n| x_at.channel.iter().map(move |c| (n, c))) {
            for (row, column) in (0..tiles[0]).flat_map(|r| (0..tiles[1]).map(move |c| (r, c))) {
                let mut of_window = Largest::default();
                for h in window(0, row) {
                    window(1, column)
                        .for_each(|w| of_window.take(x[image + channel + h * x_at.h_step + w * x_at.w_step]));
                }
                largest.push(of_window);
            }
        }
        Windows { channels, tile, tiles, largest }
    }

    /// The window of an output, in one channel of its image.
    fn at(&self, n: usize, channel: usize, oh: usize, ow: usize) -> Largest {
        let [rows, columns] = self.tiles;
        let tile = (oh / self.tile[0]) * columns + ow / self.tile[1];
        self.largest[(n * self.channels + channel) * rows * columns + tile]
    }
}

/// The largest weights of each filter, by output channel and input channel of the group.
fn largest_weights(c: &Conv2d, w: &[f64]) -> Vec<Largest> {
    let filter = Filter::new(c);
    let (kh, kw) = (c.kh as usize, c.kw as usize);
    let mut all = vec![];
    for (output, input) in filter.output.iter().flat_map(|o| filter.input.iter().map(move |i| (o, i))) {
        let mut largest = Largest::default();
        for (r, s) in (0..kh).flat_map(|r| (0..kw).map(move |s| (r, s))) {
            largest.take(w[output + input + r * filter.kh_step + s * filter.kw_step]);
        }
        all.push(largest);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_beside_the_padding_has_the_bound_of_its_whole_tile() {
        // Of the one pixel that is not zero, the corner reads nothing.
        let workload = Workload::f32(Conv2d::nchw(1, 1, 8, 8, 1, 3, 1, 1));
        let mut x = [0.0; 64];
        x[4 * 8 + 4] = 1.0;
        let inputs: [&[f64]; 2] = [&x, &[0.5; 9]];
        let bound = |reach: Reach, at: usize| reach.reference(&workload, &inputs).bounds[at];
        assert_eq!(bound(Reach::Own, 0), 0.0);
        assert_eq!(bound(Reach::Tile([2, 2]), 0), 0.0);
        // As much as where nine pixels are as large as that one.
        let full: [&[f64]; 2] = [&[1.0; 64], inputs[1]];
        let all = Reach::Own.reference(&workload, &full).bounds[9];
        assert!((bound(Reach::Tile([4, 4]), 0) / all - 1.0).abs() < 1e-9);
    }

    #[test]
    fn no_reach_has_narrower_bounds_than_an_outputs_own() {
        let mut rng = Rng::new(5);
        for _ in 0..60 {
            let workload = small(&mut rng);
            let reaches: &[Reach] = match workload.op {
                Op::Conv2d(_) => &[Reach::Tile([1, 4]), Reach::Tile([4, 4]), Reach::Weights, Reach::Beside(3)],
                Op::Matmul(_) => &[Reach::Weights],
                _ => &[],
            };
            let inputs = sample::uneven_inputs(&workload, &mut rng);
            let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
            let own = Reach::Own.reference(&workload, &views);
            for reach in reaches {
                let wider = reach.reference(&workload, &views);
                assert!(wider.values == own.values, "{reach:?} of {}", workload.key());
                let mut both = own.bounds.iter().zip(&wider.bounds);
                assert!(both.all(|(own, wider)| *wider >= own * (1.0 - 1e-12)), "{reach:?} of {}", workload.key());
            }
        }
    }
}
