//! What an operator computes, in plain Rust and `f64`: the oracle that knows nothing of the IR.

use super::integers;
use super::movement::{Move, Outside};
use super::pool_nd::Pooling;
use super::products::{Products, Sums};
use super::quant;
use super::resize::Interpolation;
use super::stage::AxisRole;
use super::{
    AvgPool2d, BroadcastMatmul, Concat, Conv1d, Conv2d, ConvLayout, ConvNd, Epilogue, Matmul, Movement, PoolNd, Resize,
    Workload,
};
use crate::ir::{float_max, float_min};

/// The output of a valid workload, row-major as stored.
///
/// `inputs` are the parameters in the order of [`Workload::params`] without the output, each row-major as stored.
/// Nothing is rounded to a storage type: round the inputs before if they must be. The padding has no terms: a weight there that is
/// infinite or NaN changes nothing.
///
/// # Panics
/// If an input has another number of elements than its parameter.
pub fn reference(workload: &Workload, inputs: &[&[f64]]) -> Vec<f64> {
    check_lengths(workload, inputs);
    let mut values = sums(workload, inputs).values;
    apply_epilogue(workload, inputs, &mut values);
    if workload.rounds_to_i32() {
        values.iter_mut().for_each(|v| *v = integers::rounded_reference(*v));
    }
    values
}

/// What the epilogue makes of the sums. Of the inputs it reads those behind the operator's own.
pub(crate) fn apply_epilogue(workload: &Workload, inputs: &[&[f64]], values: &mut [f64]) {
    let (channel, image) = (channel_of_element(workload), image_of_element(workload));
    let channels = workload.channels() as usize;
    let mut operands = inputs[workload.operator_params()..].iter();
    let mut next = || *operands.next().expect("the lengths of all inputs were checked");
    for step in &workload.epilogue {
        match step {
            Epilogue::Bias => {
                let bias = next();
                values.iter_mut().enumerate().for_each(|(i, v)| *v += bias[channel(i)]);
            }
            Epilogue::ResidualAdd => values.iter_mut().zip(next()).for_each(|(v, r)| *v += r),
            Epilogue::Multiply => values.iter_mut().zip(next()).for_each(|(v, f)| *v *= f),
            Epilogue::Gate => {
                let gate = next();
                values.iter_mut().enumerate().for_each(|(i, v)| *v *= gate[image(i) * channels + channel(i)]);
            }
            Epilogue::ImageBias => {
                let bias = next();
                values.iter_mut().enumerate().for_each(|(i, v)| *v += bias[image(i) * channels + channel(i)]);
            }
            Epilogue::Scale => {
                let (scale, shift) = (next(), next());
                values.iter_mut().enumerate().for_each(|(i, v)| *v = *v * scale[channel(i)] + shift[channel(i)]);
            }
            Epilogue::Dequantize => {
                let multiplier = next();
                values.iter_mut().enumerate().for_each(|(i, v)| *v *= multiplier[channel(i)]);
            }
            Epilogue::Requantize => {
                let (multiplier, zero) = (next(), next());
                for (i, v) in values.iter_mut().enumerate() {
                    *v = quant::saturate(*v as f32 * multiplier[channel(i)] as f32, zero[0], workload.out_dtype);
                }
            }
            Epilogue::RequantizeAdd => {
                let (multiplier, residual, residual_zero, factor, zero) = (next(), next(), next(), next(), next());
                for (i, v) in values.iter_mut().enumerate() {
                    let sum = *v as f32 * multiplier[channel(i)] as f32;
                    let more = (residual[i] - residual_zero[0]) as f32 * factor[0] as f32;
                    *v = quant::saturate(sum + more, zero[0], workload.out_dtype);
                }
            }
            Epilogue::Quantize => {
                let (scale, zero) = (next(), next());
                values
                    .iter_mut()
                    .for_each(|v| *v = quant::saturate(*v as f32 / scale[0] as f32, zero[0], workload.out_dtype));
            }
            step => values.iter_mut().for_each(|v| *v = activation(*step, *v)),
        }
    }
}

/// Holds the inputs against the parameters.
pub(super) fn check_lengths(workload: &Workload, inputs: &[&[f64]]) {
    let params = workload.params();
    assert_eq!(inputs.len() + 1, params.len(), "one input for each parameter but the output");
    for (input, param) in inputs.iter().zip(&params) {
        assert_eq!(input.len() as i64, param.elements(), "number of elements of `{}`", param.name);
    }
}

/// The sums of a workload; of a pair those of its second half.
pub(super) fn sums(workload: &Workload, inputs: &[&[f64]]) -> Sums {
    if workload.is_quantised() { quant::sums(workload, inputs) } else { workload.op.get().reference(workload, inputs) }
}

/// An activation by the formula of its documentation. Maxima and minima keep NaN.
pub(super) fn activation(step: Epilogue, v: f64) -> f64 {
    let clip = |v: f64, low: f64, high: f64| float_min(float_max(v, low), high);
    match step {
        Epilogue::Relu => float_max(v, 0.0),
        Epilogue::Relu6 => clip(v, 0.0, 6.0),
        Epilogue::Gelu => 0.5 * v * (1.0 + erf(v * std::f64::consts::FRAC_1_SQRT_2)),
        Epilogue::Sigmoid => 1.0 / (1.0 + (-v).exp()),
        Epilogue::Silu => v / (1.0 + (-v).exp()),
        Epilogue::HardSigmoid => clip(v / 6.0 + 0.5, 0.0, 1.0),
        Epilogue::HardSwish => v * clip(v + 3.0, 0.0, 6.0) / 6.0,
        Epilogue::Tanh => v.tanh(),
        Epilogue::GeluTanh => {
            0.5 * v * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v * v * v)).tanh())
        }
        Epilogue::Elu(alpha) if v <= 0.0 => alpha.get() * v.exp_m1(),
        Epilogue::LeakyRelu(alpha) if v <= 0.0 => alpha.get() * v,
        Epilogue::Elu(_) | Epilogue::LeakyRelu(_) => v,
        Epilogue::HardSigmoidOf(alpha, beta) => clip(alpha.get() * v + beta.get(), 0.0, 1.0),
        Epilogue::Selu(alpha, gamma) if v <= 0.0 => gamma.get() * alpha.get() * v.exp_m1(),
        Epilogue::Selu(_, gamma) => gamma.get() * v,
        Epilogue::Celu(alpha) if v <= 0.0 => alpha.get() * (v / alpha.get()).exp_m1(),
        Epilogue::Celu(_) => v,
        Epilogue::ThresholdedRelu(alpha) if v <= alpha.get() => 0.0,
        Epilogue::ThresholdedRelu(_) => v,
        Epilogue::Shrink(lambda, bias) if v < -lambda.get() => v + bias.get(),
        Epilogue::Shrink(lambda, bias) if v > lambda.get() => v - bias.get(),
        Epilogue::Shrink(..) if v.is_nan() => v,
        Epilogue::Shrink(..) => 0.0,
        Epilogue::Clip(low, high) => clip(v, low.get(), high.get()),
        Epilogue::Bias
        | Epilogue::Scale
        | Epilogue::ResidualAdd
        | Epilogue::Multiply
        | Epilogue::Gate
        | Epilogue::ImageBias
        | Epilogue::Dequantize
        | Epilogue::Requantize
        | Epilogue::RequantizeAdd
        | Epilogue::Quantize => {
            unreachable!("{step} has operands")
        }
    }
}

/// The error function, by the series `2/sqrt(pi) exp(-x^2) sum_n 2^n x^(2n+1) / (2n+1)!!` (Abramowitz and Stegun
/// 7.1.6): all its terms have one sign, so that nothing cancels.
pub(super) fn erf(x: f64) -> f64 {
    // 1 - erf(6) is below 2^-54.
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > 1e-17 * sum.abs() {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// Where an element of an activation tensor lies: `image[n] + channel[c] + h * h_step + w * w_step`.
pub(super) struct Activation {
    pub(super) image: Vec<usize>,
    pub(super) channel: Vec<usize>,
    pub(super) h_step: usize,
    pub(super) w_step: usize,
}

/// Where an element of a filter lies: `output[o] + input[i] + kh * kh_step + kw * kw_step`, `i` within its group.
pub(super) struct Filter {
    pub(super) output: Vec<usize>,
    pub(super) input: Vec<usize>,
    pub(super) kh_step: usize,
    pub(super) kw_step: usize,
}

impl Filter {
    pub(super) fn new(c: &Conv2d) -> Filter {
        let (ci, co, kh, kw) = (c.ci_per_group() as usize, c.co as usize, c.kh as usize, c.kw as usize);
        let every = |n: usize, step: usize| (0..n).map(|i| i * step).collect::<Vec<usize>>();
        match c.layout {
            ConvLayout::Nchw | ConvLayout::NchwC(_) => {
                Filter { output: every(co, ci * kh * kw), input: every(ci, kh * kw), kh_step: kw, kw_step: 1 }
            }
            ConvLayout::Nhwc | ConvLayout::Hwcn => {
                Filter { output: every(co, 1), input: every(ci, co), kh_step: kw * ci * co, kw_step: ci * co }
            }
            ConvLayout::NhwcNc(block) => {
                let b = block as usize;
                let tiled =
                    |n: usize, tile: usize, within: usize| (0..n).map(|i| i / b * tile + i % b * within).collect();
                let (output, input) = (tiled(co, b * b, 1), tiled(ci, co * b, b));
                Filter { output, input, kh_step: kw * ci * co, kw_step: ci * co }
            }
        }
    }
}

impl Activation {
    pub(super) fn new(layout: ConvLayout, n: usize, c: usize, h: usize, w: usize) -> Activation {
        let channel = |step: usize| (0..c).map(|c| c * step).collect();
        let image = |step: usize| (0..n).map(|n| n * step).collect();
        match layout {
            ConvLayout::Nchw => Activation { image: image(c * h * w), channel: channel(h * w), h_step: w, w_step: 1 },
            ConvLayout::Nhwc => Activation { image: image(h * w * c), channel: channel(1), h_step: w * c, w_step: c },
            ConvLayout::Hwcn => Activation { image: image(1), channel: channel(n), h_step: w * c * n, w_step: c * n },
            ConvLayout::NchwC(block) => {
                let b = block as usize;
                let channel = (0..c).map(|c| c / b * (h * w * b) + c % b).collect();
                Activation { image: image(c * h * w), channel, h_step: w * b, w_step: b }
            }
            ConvLayout::NhwcNc(block) => {
                let b = block as usize;
                let image = (0..n).map(|n| n / b * (h * w * c * b) + n % b * b).collect();
                let channel = (0..c).map(|c| c / b * (b * b) + c % b).collect();
                Activation { image, channel, h_step: w * c * b, w_step: c * b }
            }
        }
    }
}

/// The input of a convolution with the zeros of the padding around it, in the same layout.
fn padded(c: &Conv2d, x: &[f64]) -> Vec<f64> {
    let [top, left, ..] = c.padding.map(|p| p as usize);
    let (h, w, padded_h, padded_w) = (c.h as usize, c.w as usize, c.padded_h() as usize, c.padded_w() as usize);
    // In every layout the columns of a row lie side by side, `inner` elements each, and the rows of an image or of a block.
    let inner = Activation::new(c.layout, c.n as usize, c.ci as usize, h, w).w_step;
    let mut all = vec![0.0; x.len() / (h * w) * padded_h * padded_w];
    for (number, row) in x.chunks(w * inner).enumerate() {
        let padded_row = number / h * padded_h + number % h + top;
        all[(padded_row * padded_w + left) * inner..][..row.len()].copy_from_slice(row);
    }
    all
}

pub(super) fn convolve(c: &Conv2d, x: &[f64], w: &[f64]) -> Sums {
    let (n, ci, co) = (c.n as usize, c.ci_per_group() as usize, c.co as usize);
    let (kh, kw, oh, ow) = (c.kh as usize, c.kw as usize, c.oh() as usize, c.ow() as usize);
    let [stride_h, stride_w, dilation_h, dilation_w] =
        [c.stride[0], c.stride[1], c.dilation[0], c.dilation[1]].map(|step| step as usize);
    let x_at = Activation::new(c.layout, n, c.ci as usize, c.padded_h() as usize, c.padded_w() as usize);
    let y_at = Activation::new(c.layout, n, co, oh, ow);
    let filter = Filter::new(c);
    let pixels = |at: &Activation, h_step: usize, w_step: usize| -> Vec<usize> {
        let row = |first: usize| (0..ow).map(move |column| first + column * w_step);
        at.image.iter().flat_map(|image| (0..oh).flat_map(move |h| row(image + h * h_step))).collect()
    };
    // The products of a sum: taps of the kernel, and the input channels of each.
    let terms = |channels: &[usize], h_step: usize, w_step: usize| -> Vec<usize> {
        let tap = |tap: usize| tap / kw * h_step + tap % kw * w_step;
        (0..kh * kw).flat_map(|t| channels.iter().map(move |channel| channel + tap(t))).collect()
    };
    let x_terms_of = |channels| terms(channels, dilation_h * x_at.h_step, dilation_w * x_at.w_step);
    let products = Products {
        x: &padded(c, x),
        x_pixels: pixels(&x_at, stride_h * x_at.h_step, stride_w * x_at.w_step),
        x_terms: x_at.channel.chunks(ci).map(x_terms_of).collect(),
        w,
        w_terms: terms(&filter.input, filter.kh_step, filter.kw_step),
        w_channels: filter.output,
        y_pixels: pixels(&y_at, y_at.h_step, y_at.w_step),
        y_channels: y_at.channel,
    };
    if w.iter().all(|w| w.is_finite()) {
        return products.sums();
    }
    let inside: Vec<bool> = padded(c, &vec![1.0; x.len()]).into_iter().map(|inside| inside != 0.0).collect();
    products.sums_inside(&inside)
}

/// A convolution along one axis is one of images with one row.
pub(super) fn convolve_1d(c: &Conv1d, x: &[f64], w: &[f64]) -> Sums {
    let [left, right] = c.padding;
    let row = Conv2d {
        padding: [0, left, 0, right],
        stride: [1, c.stride],
        dilation: [1, c.dilation],
        groups: c.groups,
        kh: 1,
        ..Conv2d::nchw(c.n, c.ci, 1, c.w, c.co, c.k, 1, 0)
    };
    convolve(&row, x, w)
}

/// A convolution over some dimensions, or a transposed one, product by product.
pub(super) fn convolve_nd(c: &ConvNd, x: &[f64], w: &[f64]) -> Sums {
    let windows = &c.windows;
    let dims = windows.dimensions();
    let out: Vec<i64> = dims.clone().map(|i| c.output(i)).collect();
    let pixels = |extents: &[i64]| extents.iter().product::<i64>() as usize;
    let (x_pixels, y_pixels) = (pixels(&windows.pixels[dims.clone()]), pixels(&out));
    let taps: Vec<Vec<i64>> = indices(&windows.taps[dims.clone()]).collect();
    let x_steps = steps(&windows.pixels[dims.clone()]);
    // For each output pixel and each tap the pixel of the input, if there is one.
    let source = |o: &[i64], tap: &[i64]| -> Option<usize> {
        let along = |i: usize| {
            let at = match c.transposed {
                None => o[i] * windows.stride[i] + tap[i] * windows.dilation[i] - windows.before[i],
                Some(_) => {
                    let from = o[i] + windows.before[i] - tap[i] * windows.dilation[i];
                    if from % windows.stride[i] != 0 { -1 } else { from / windows.stride[i] }
                }
            };
            (0..windows.pixels[i]).contains(&at).then(|| at as usize * x_steps[i])
        };
        dims.clone().map(along).sum()
    };
    let sources: Vec<Vec<Option<usize>>> =
        indices(&out).map(|o| taps.iter().map(|tap| source(&o, tap)).collect()).collect();
    let (n, ci, co) = (c.n as usize, c.ci as usize, c.co as usize);
    let (per_group, co_per_group) = ((c.ci / c.groups) as usize, (c.co / c.groups) as usize);
    let mut sums = Sums { values: vec![], magnitudes: vec![], or_nan: vec![] };
    for (image, o) in (0..n).flat_map(|image| (0..co).map(move |o| (image, o))) {
        for sources in &sources {
            let (mut value, mut magnitude, mut absent) = (0.0, 0.0, false);
            for i in 0..per_group {
                let channel = o / co_per_group * per_group + i;
                let weight = match c.transposed {
                    None => o * per_group + i,
                    Some(_) => channel * co_per_group + o % co_per_group,
                };
                for (w, source) in w[weight * taps.len()..].iter().zip(sources) {
                    match source {
                        Some(at) => {
                            let term = x[(image * ci + channel) * x_pixels + at] * w;
                            value += term;
                            magnitude += term.abs();
                        }
                        None => absent |= !w.is_finite(),
                    }
                }
            }
            sums.or_nan.extend(absent.then_some(sums.values.len()));
            sums.values.push(value);
            sums.magnitudes.push(magnitude);
        }
    }
    debug_assert_eq!(sums.values.len(), n * co * y_pixels);
    sums
}

/// What is made of the elements of each window that are inside of the input, over one dimension or three.
pub(super) fn pooled(op: &PoolNd, x: &[f64]) -> Sums {
    let w = &op.windows;
    let dims = w.dimensions();
    let out: Vec<i64> = dims.clone().map(|i| w.windows(i)).collect();
    let (x_steps, pixels) = (steps(&w.pixels[dims.clone()]), w.pixels[dims.clone()].iter().product::<i64>() as usize);
    let taps: Vec<Vec<i64>> = indices(&w.taps[dims.clone()]).collect();
    let mut sums = Sums { values: vec![], magnitudes: vec![], or_nan: vec![] };
    for channel in x.chunks(pixels) {
        for o in indices(&out) {
            let source = |tap: &Vec<i64>| -> Option<usize> {
                let along = |i: usize| {
                    let at = o[i] * w.stride[i] + tap[i] * w.dilation[i] - w.before[i];
                    (0..w.pixels[i]).contains(&at).then(|| at as usize * x_steps[i])
                };
                dims.clone().map(along).sum()
            };
            let elements: Vec<f64> = taps.iter().filter_map(source).map(|at| channel[at]).collect();
            let (value, magnitude) = match op.function {
                Pooling::Max => (elements.iter().copied().fold(f64::NEG_INFINITY, float_max), 0.0),
                Pooling::Average { count_padding } => {
                    // Taps that are not beyond what counts of the padding.
                    let counts = |tap: &&Vec<i64>| {
                        dims.clone().all(|i| {
                            let at = o[i] * w.stride[i] + tap[i] * w.dilation[i];
                            at < w.before[i] + w.pixels[i] + w.after[i] - op.beyond[i]
                        })
                    };
                    let padded = taps.iter().filter(counts).count();
                    let count = if count_padding { padded } else { elements.len() } as f64;
                    (elements.iter().sum::<f64>() / count, elements.iter().map(|x| x.abs()).sum::<f64>() / count)
                }
            };
            sums.values.push(value);
            sums.magnitudes.push(magnitude);
        }
    }
    sums
}

/// The largest element of each window, NaN if it has one. Nothing is rounded.
pub(super) fn largest_of_windows(c: &Conv2d, x: &[f64]) -> Sums {
    let values = of_windows(c, x, |elements| elements.fold(f64::NEG_INFINITY, float_max));
    Sums { magnitudes: vec![0.0; values.len()], values, or_nan: vec![] }
}

/// The average of each window, over its elements inside of the input or over all.
pub(super) fn averages_of_windows(op: &AvgPool2d, x: &[f64]) -> Sums {
    let c = &op.window;
    let sum = |elements: &mut dyn Iterator<Item = f64>| elements.sum::<f64>();
    // What counts: the elements of the input, or those of an input that has as many of the padding as count.
    let counted = if op.count_padding {
        let [top, left, bottom, right] = c.padding;
        let (h, w) = (c.padded_h() - op.beyond[0], c.padded_w() - op.beyond[1]);
        let padding = [0, 0, op.beyond[0], op.beyond[1]];
        debug_assert_eq!([h, w], [c.h + top + bottom - op.beyond[0], c.w + left + right - op.beyond[1]]);
        Conv2d { h, w, padding, ..*c }
    } else {
        *c
    };
    let ones = vec![1.0; counted.input_shape().iter().product::<i64>() as usize];
    let counts = of_windows(&counted, &ones, sum);
    let shared = |sums: Vec<f64>| sums.into_iter().zip(&counts).map(|(sum, count)| sum / count).collect();
    let values = shared(of_windows(c, x, sum));
    let magnitudes = shared(of_windows(c, x, |elements| elements.map(f64::abs).sum()));
    Sums { values, magnitudes, or_nan: vec![] }
}

/// What is made of the elements of each window that are inside of the input.
fn of_windows(c: &Conv2d, x: &[f64], make: impl Fn(&mut dyn Iterator<Item = f64>) -> f64) -> Vec<f64> {
    let (n, channels) = (c.n as usize, c.ci as usize);
    let x_at = Activation::new(c.layout, n, channels, c.h as usize, c.w as usize);
    let y_at = Activation::new(c.layout, n, channels, c.oh() as usize, c.ow() as usize);
    let taps = |out: i64, axis: usize, k: i64, extent: i64| {
        let at = move |tap| out * c.stride[axis] + tap * c.dilation[axis] - c.padding[axis];
        (0..k).map(at).filter(move |at| (0..extent).contains(at)).map(|at| at as usize)
    };
    let mut values = vec![0.0; c.output_shape().iter().product::<i64>() as usize];
    for (x_image, y_image) in x_at.image.iter().zip(&y_at.image) {
        for (x_channel, y_channel) in x_at.channel.iter().zip(&y_at.channel) {
            for (oh, ow) in (0..c.oh()).flat_map(|oh| (0..c.ow()).map(move |ow| (oh, ow))) {
                let row = |h: usize| taps(ow, 1, c.kw, c.w).map(move |w| (h, w));
                let window = taps(oh, 0, c.kh, c.h).flat_map(row);
                let mut elements = window.map(|(h, w)| x[x_image + x_channel + h * x_at.h_step + w * x_at.w_step]);
                let y = y_image + y_channel + oh as usize * y_at.h_step + ow as usize * y_at.w_step;
                values[y] = make(&mut elements);
            }
        }
    }
    values
}

/// Elements from one index to the next along each dimension of a row-major tensor.
pub(super) fn steps(shape: &[i64]) -> Vec<usize> {
    (1..=shape.len()).map(|i| shape[i..].iter().product::<i64>() as usize).collect()
}

/// Every index of a tensor, in the order of its elements.
pub(super) fn indices(shape: &[i64]) -> impl Iterator<Item = Vec<i64>> {
    let steps = steps(shape);
    let shape = shape.to_vec();
    let count = shape.iter().product::<i64>() as usize;
    (0..count).map(move |at| shape.iter().zip(&steps).map(|(extent, step)| (at / step) as i64 % extent).collect())
}

/// Where the elements of a tensor lie whose neighbours along each dimension are so far apart, in their order. Constants of networks are
/// computed by such lists in unoptimised build scripts.
pub(super) fn places(shape: &[i64], steps: &[usize]) -> Vec<usize> {
    let mut all = vec![0];
    for (extent, step) in shape.iter().zip(steps) {
        all = all.iter().flat_map(|first| (0..*extent as usize).map(move |i| first + i * step)).collect();
    }
    all
}

/// The places of a tensor's elements that meet those of a shape, whose last dimensions are its own; where its extent is 1 it is repeated.
pub(super) fn repeated_places(shape: &[i64], own: &[i64]) -> Vec<usize> {
    let apart = steps(own).into_iter().zip(own).map(|(step, extent)| if *extent == 1 { 0 } else { step });
    let apart: Vec<usize> = std::iter::repeat_n(0, shape.len() - own.len()).chain(apart).collect();
    places(shape, &apart)
}

/// The place of an element of a tensor whose last dimensions are those of an index, and which is repeated where its extent is 1.
pub(super) fn repeated(index: &[i64], shape: &[i64]) -> usize {
    let index = &index[index.len() - shape.len()..];
    index.iter().zip(shape).zip(steps(shape)).map(|((i, extent), step)| (i % extent) as usize * step).sum()
}

/// The elements of a tensor where a movement puts them. Nothing is rounded.
pub(super) fn moved(op: &Movement, x: &[f64]) -> Sums {
    let shape = op.output_shape();
    let mut y = vec![0.0; shape.iter().product::<i64>() as usize];
    let (x_steps, y_steps) = (steps(&op.input), steps(&shape));
    let x_at = |index: &[i64]| index.iter().zip(&x_steps).map(|(i, step)| *i as usize * step).sum::<usize>();
    let y_at = |index: &[i64]| index.iter().zip(&y_steps).map(|(i, step)| *i as usize * step).sum::<usize>();
    match op.function {
        Move::Permute { order } => {
            let apart: Vec<usize> = order.iter().map(|from| x_steps[*from as usize]).collect();
            y = places(&shape, &apart).into_iter().map(|from| x[from]).collect();
        }
        Move::Tile { .. } => {
            for index in indices(&shape) {
                let from: Vec<i64> = index.iter().zip(op.input.iter()).map(|(i, extent)| i % extent).collect();
                y[y_at(&index)] = x[x_at(&from)];
            }
        }
        // Padding takes its elements; everything else puts each element of the input where it goes.
        Move::Pad { before, outside, .. } => {
            for index in indices(&shape) {
                let place = |(i, (before, extent)): (&i64, (&i64, &i64))| {
                    let from = i - before;
                    match outside {
                        _ if (0..*extent).contains(&from) => Some(from),
                        Outside::Zero | Outside::Value(_) => None,
                        Outside::Edge => Some(if from < 0 { 0 } else { extent - 1 }),
                        Outside::Reflect => Some(if from < 0 { -from } else { 2 * (extent - 1) - from }),
                    }
                };
                let from: Option<Vec<i64>> = index.iter().zip(before.iter().zip(op.input.iter())).map(place).collect();
                y[y_at(&index)] = from.map_or(outside.number().unwrap_or(0.0), |from| x[x_at(&from)]);
            }
        }
        function => {
            for index in indices(&op.input) {
                let to: Option<Vec<i64>> = match function {
                    Move::Slice { start, size, step } => (0..index.len())
                        .map(|i| {
                            let (steps, rest) =
                                ((index[i] - start[i]).div_euclid(step[i]), (index[i] - start[i]) % step[i]);
                            ((0..size[i]).contains(&steps) && rest == 0).then_some(steps)
                        })
                        .collect(),
                    function => {
                        let [n, c, h, w] = index[..] else { unreachable!("it has four dimensions") };
                        let channels = op.input[1];
                        Some(match function {
                            Move::DepthToSpace(b) => {
                                let (block, c) = (c / (channels / (b * b)), c % (channels / (b * b)));
                                vec![n, c, h * b + block / b, w * b + block % b]
                            }
                            Move::PixelShuffle(b) => vec![n, c / (b * b), h * b + c / b % b, w * b + c % b],
                            Move::SpaceToDepth(b) => vec![n, (h % b * b + w % b) * channels + c, h / b, w / b],
                            Move::PixelUnshuffle(b) => vec![n, c * b * b + h % b * b + w % b, h / b, w / b],
                            Move::ChannelShuffle(groups) => {
                                let each = channels / groups;
                                vec![n, c % each * groups + c / each, h, w]
                            }
                            Move::Permute { .. } | Move::Slice { .. } | Move::Tile { .. } | Move::Pad { .. } => {
                                unreachable!("above")
                            }
                        })
                    }
                };
                if let Some(to) = to {
                    y[y_at(&to)] = x[x_at(&index)];
                }
            }
        }
    }
    Sums { magnitudes: vec![0.0; y.len()], values: y, or_nan: vec![] }
}

/// The inputs of a concatenation, each in its place.
pub(super) fn side_by_side(op: &Concat, inputs: &[&[f64]]) -> Sums {
    // What lies behind the axis is moved as one.
    let inner: usize = op.input[op.axis as usize + 1..].iter().product::<i64>() as usize;
    let rows: Vec<usize> =
        [op.input[op.axis as usize]].iter().chain(op.others.iter()).map(|extent| *extent as usize * inner).collect();
    let mut values = vec![];
    for outer in 0..inputs[0].len() / rows[0] {
        inputs.iter().zip(&rows).for_each(|(input, row)| values.extend_from_slice(&input[outer * row..][..*row]));
    }
    Sums { magnitudes: vec![0.0; values.len()], values, or_nan: vec![] }
}

/// Resized images. The magnitudes of interpolated pixels are the largest of the pixels around them, as often as weights and sums are
/// rounded, over the number of terms.
pub(super) fn resized(op: &Resize, x: &[f64]) -> Sums {
    let [n, c, h, w, oh, ow] = [op.n, op.c, op.h, op.w, op.oh, op.ow].map(|size| size as usize);
    let (x_at, y_at) = (Activation::new(op.layout, n, c, h, w), Activation::new(op.layout, n, c, oh, ow));
    let (mut values, mut magnitudes) = (vec![0.0; n * c * oh * ow], vec![0.0; n * c * oh * ow]);
    // The pixels of a direction that an output pixel is made of, with their weights.
    let along = |at: usize, from: usize, to: usize| -> Vec<(usize, f64)> {
        let (at, last, scale) = (at as f64, from - 1, from as f64 / to as f64);
        match op.method {
            Interpolation::Nearest { half_pixel } => {
                // Whole numbers, because a product with the scale may be just below one.
                let twice = if half_pixel { 2 * at as usize + 1 } else { 2 * at as usize };
                vec![(twice * from / (2 * to), 1.0)]
            }
            Interpolation::Bilinear { align_corners } => {
                let place = match align_corners {
                    true if to == 1 => 0.0,
                    true => at * last as f64 / (to - 1) as f64,
                    false => ((at + 0.5) * scale - 0.5).max(0.0),
                };
                // Of what should be a whole number.
                let near = place.round();
                let place = if (place - near).abs() < 1e-9 { near } else { place };
                let low = (place.floor() as usize).min(last);
                let far = place - place.floor();
                vec![(low, 1.0 - far), ((low + 1).min(last), far)]
            }
            Interpolation::Bicubic { align_corners, coefficient: a } => {
                let place = match align_corners {
                    true if to == 1 => 0.0,
                    true => at * last as f64 / (to - 1) as f64,
                    false => (at + 0.5) * scale - 0.5,
                };
                let near = place.round();
                let place = if (place - near).abs() < 1e-9 { near } else { place };
                // The polynomials as Keys has them.
                let weight = |distance: f64| {
                    let (a, d) = (a.get(), distance.abs());
                    match d {
                        d if d <= 1.0 => (a + 2.0) * d.powi(3) - (a + 3.0) * d.powi(2) + 1.0,
                        d if d < 2.0 => a * d.powi(3) - 5.0 * a * d.powi(2) + 8.0 * a * d - 4.0 * a,
                        _ => 0.0,
                    }
                };
                let pixels = (-1..3).map(|k| place.floor() + f64::from(k));
                pixels.map(|pixel| (pixel.clamp(0.0, last as f64) as usize, weight(place - pixel))).collect()
            }
        }
    };
    let (rows, columns): (Vec<_>, Vec<_>) =
        ((0..oh).map(|at| along(at, h, oh)).collect(), (0..ow).map(|at| along(at, w, ow)).collect());
    let exact = matches!(op.method, Interpolation::Nearest { .. });
    for (x_image, y_image) in x_at.image.iter().zip(&y_at.image) {
        for (x_channel, y_channel) in x_at.channel.iter().zip(&y_at.channel) {
            for (i, row) in rows.iter().enumerate() {
                for (j, column) in columns.iter().enumerate() {
                    let y = y_image + y_channel + i * y_at.h_step + j * y_at.w_step;
                    let (mut value, mut largest) = (0.0, 0.0f64);
                    for ((r, of_row), (s, of_column)) in row.iter().flat_map(|r| column.iter().map(move |s| (r, s))) {
                        let x = x[x_image + x_channel + r * x_at.h_step + s * x_at.w_step];
                        if exact {
                            value = x;
                        } else {
                            value += x * of_row * of_column;
                        }
                        if x.is_finite() {
                            largest = largest.max(x.abs());
                        }
                    }
                    values[y] = value;
                    magnitudes[y] = match op.method {
                        Interpolation::Nearest { .. } => 0.0,
                        Interpolation::Bilinear { .. } => 3.0 * largest,
                        // Sixteen weights, each a product of two with an error of their own, and the sum.
                        Interpolation::Bicubic { coefficient, .. } => {
                            let sum = |weights: &[(usize, f64)]| weights.iter().map(|w| w.1.abs()).sum::<f64>();
                            let of_weight = 5.0 * (coefficient.get().abs() + 3.0);
                            let [rows, columns] = [sum(row), sum(column)];
                            largest * (4.0 * of_weight * (rows + columns) + 8.0 * rows * columns) / 16.0
                        }
                    };
                }
            }
        }
    }
    Sums { values, magnitudes, or_nan: vec![] }
}

/// Each matrix of a batch times that of the other one which it meets.
pub(super) fn multiply_batches(op: &BroadcastMatmul, a: &[f64], b: &[f64]) -> Sums {
    let [m, k, n] = op.matrices();
    let shape = op.output_shape();
    let batch = &shape[..shape.len() - 2];
    let mut all = Sums { values: vec![], magnitudes: vec![], or_nan: vec![] };
    for index in indices(batch) {
        let a_first = repeated(&index, BroadcastMatmul::batch(&op.a)) * (m * k) as usize;
        let b_first = repeated(&index, BroadcastMatmul::batch(&op.b)) * (k * n) as usize;
        let (a, b) = (&a[a_first..][..(m * k) as usize], &b[b_first..][..(k * n) as usize]);
        let one = multiply(&Matmul::new(m, n, k), a, b);
        all.values.extend(one.values);
        all.magnitudes.extend(one.magnitudes);
    }
    all
}

/// Columns of `b` are the pixels, rows of `a` the channels, and each batch is a group of them.
pub(super) fn multiply(p: &Matmul, a: &[f64], b: &[f64]) -> Sums {
    let (batch, m, n, k) = (p.batch as usize, p.m as usize, p.n as usize, p.k as usize);
    let (a_row, a_column) = if p.trans_a { (1, m) } else { (k, 1) };
    let (b_row, b_column) = if p.trans_b { (1, k) } else { (n, 1) };
    let every = |n: usize, step: usize| (0..n).map(move |i| i * step);
    Products {
        x: b,
        x_pixels: every(n, b_column).collect(),
        x_terms: every(batch, k * n).map(|first| every(k, b_row).map(|r| first + r).collect()).collect(),
        w: a,
        w_channels: every(batch, m * k).flat_map(|first| every(m, a_row).map(move |row| first + row)).collect(),
        w_terms: every(k, a_column).collect(),
        y_pixels: every(n, 1).collect(),
        y_channels: every(batch * m, n).collect(),
    }
    .sums()
}

/// The output channel (the column of a product) of an output element, by its place in storage.
pub(super) fn channel_of_element(workload: &Workload) -> impl Fn(usize) -> usize + Sync {
    let axes = workload.op.get().output().1;
    let position = |role: AxisRole| axes.iter().position(|axis| axis.role == role);
    // Elements from one index of an axis to the next.
    let step = |at: usize| axes[at + 1..].iter().map(|axis| axis.extent).product::<i64>() as usize;
    let outer = position(AxisRole::Channel).expect("every output has channels");
    let (outer_step, channels) = (step(outer), axes[outer].extent as usize);
    let (inner_step, block) =
        position(AxisRole::ChannelBlock).map_or((1, 1), |at| (step(at), axes[at].extent as usize));
    move |i| i / outer_step % channels * block + i / inner_step % block
}

/// The image of an output element, by its place in storage: its coordinates along all axes of images, the first of which counts
/// most.
pub(super) fn image_of_element(workload: &Workload) -> impl Fn(usize) -> usize + Sync {
    let axes = workload.op.get().output().1;
    let (mut step, mut all) = (1, vec![]);
    for axis in axes.iter().rev() {
        let extent = axis.extent as usize;
        if axis.role == AxisRole::Batch {
            all.push((step, extent));
        }
        step *= extent;
    }
    move |i| all.iter().rev().fold(0, |image, (step, extent)| image * extent + i / step % extent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_has_the_tabulated_values() {
        // Abramowitz and Stegun, table 7.1.
        for (x, value) in
            [(0.0, 0.0), (0.5, 0.5204998778), (1.0, 0.8427007929), (2.0, 0.9953222650), (3.0, 0.9999779095)]
        {
            assert!((erf(x) - value).abs() < 1e-10, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
    }

    #[test]
    fn a_convolution_by_hand() {
        // The kernel of ones over 3x3 sums the neighbourhood; zeros stand around the input.
        let w = Workload::f32(Conv2d::nchw(1, 1, 3, 3, 1, 3, 1, 1));
        let x: Vec<f64> = (1..=9).map(f64::from).collect();
        let y = reference(&w, &[&x, &[1.0; 9]]);
        assert_eq!(y, [12.0, 21.0, 16.0, 27.0, 45.0, 33.0, 24.0, 39.0, 28.0]);
    }

    #[test]
    fn the_window_moves_by_stride_and_reaches_by_dilation() {
        let conv = Conv2d { stride: [2, 1], dilation: [1, 2], ..Conv2d::nchw(1, 1, 4, 4, 1, 2, 1, 0) };
        let x: Vec<f64> = (0..16).map(f64::from).collect();
        // y[r, s] = x[2r, s] + 10 x[2r, s+2] + 100 x[2r+1, s] + 1000 x[2r+1, s+2]
        let y = reference(&Workload::f32(conv), &[&x, &[1.0, 10.0, 100.0, 1000.0]]);
        assert_eq!(y, [6420.0, 7531.0, 15308.0, 16419.0]);
    }

    #[test]
    fn transposed_products_agree_with_plain_ones() {
        let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let b = [7.0, 8.0, 9.0, 10.0, 11.0, 12.0];
        let plain = reference(&Workload::f32(Matmul::new(2, 2, 3)), &[&a, &b]);
        assert_eq!(plain, [58.0, 64.0, 139.0, 154.0]);
        let (at, bt) = ([1.0, 4.0, 2.0, 5.0, 3.0, 6.0], [7.0, 9.0, 11.0, 8.0, 10.0, 12.0]);
        let both = Matmul { trans_a: true, trans_b: true, ..Matmul::new(2, 2, 3) };
        assert_eq!(reference(&Workload::f32(both), &[&at, &bt]), plain);
    }

    #[test]
    fn products_are_put_together_from_tiles() {
        // More rows, columns and terms than a tile has, in each of two batches, and enough for two threads; all is whole
        // numbers, so that sums are exact.
        const M: usize = 35;
        const N: usize = 259;
        const K: usize = 131;
        let p = Matmul { batch: 2, ..Matmul::new(M as i64, N as i64, K as i64) };
        let value = |i: usize| ((i * 37 + 11) % 29) as f64 - 14.0;
        let (a, b): (Vec<f64>, Vec<f64>) = ((0..2 * M * K).map(value).collect(), (0..2 * K * N).map(value).collect());
        let transposed: Vec<f64> =
            (0..2 * K * N).map(|i| b[i / (K * N) * K * N + i % K * N + i % (K * N) / K]).collect();
        let entry = |i: usize| -> f64 {
            let (batch, row, column) = (i / (M * N), i / N % M, i % N);
            (0..K).map(|r| a[(batch * M + row) * K + r] * b[(batch * K + r) * N + column]).sum()
        };
        let expected: Vec<f64> = (0..2 * M * N).map(entry).collect();
        assert_eq!(reference(&Workload::f32(p), &[&a, &b]), expected);
        let transposing = Matmul { trans_b: true, ..p };
        assert_eq!(reference(&Workload::f32(transposing), &[&a, &transposed]), expected);
    }

    #[test]
    fn layouts_and_groups_are_permutations_of_one_result() {
        // Each layout's result, read back element by element, equals NCHW's.
        let base = Conv2d { stride: [2, 1], padding: [1, 0, 2, 1], ..Conv2d::nchw(2, 32, 5, 4, 64, 3, 1, 0) };
        let value = |i: usize| ((i * 37 + 11) % 29) as f64 - 14.0;
        let logical = |c: &Conv2d, h: i64, w: i64, channels: i64| {
            let at = Activation::new(c.layout, c.n as usize, channels as usize, h as usize, w as usize);
            let mut offsets = vec![];
            for n in 0..c.n as usize {
                for ch in 0..channels as usize {
                    for r in 0..h as usize {
                        for s in 0..w as usize {
                            offsets.push(at.image[n] + at.channel[ch] + r * at.h_step + s * at.w_step);
                        }
                    }
                }
            }
            offsets
        };
        let run = |c: Conv2d| {
            let mut x = vec![0.0; (c.n * c.ci * c.h * c.w) as usize];
            for (i, offset) in logical(&c, c.h, c.w, c.ci).into_iter().enumerate() {
                x[offset] = value(i);
            }
            let (ci, co, kh, kw) = (c.ci_per_group() as usize, c.co as usize, 3, 3);
            let mut w = vec![0.0; co * ci * kh * kw];
            for (i, (o, j, r, s)) in (0..co)
                .flat_map(|o| (0..ci).flat_map(move |j| (0..kh).flat_map(move |r| (0..kw).map(move |s| (o, j, r, s)))))
                .enumerate()
            {
                let offset = match c.layout {
                    ConvLayout::Nchw | ConvLayout::NchwC(_) => i,
                    ConvLayout::Nhwc | ConvLayout::Hwcn => ((r * kw + s) * ci + j) * co + o,
                    ConvLayout::NhwcNc(_) => {
                        ((((r * kw + s) * ci / 16 + j / 16) * co / 16 + o / 16) * 16 + j % 16) * 16 + o % 16
                    }
                };
                w[offset] = value(i * 3 + 1);
            }
            let bias: Vec<f64> = (0..co).map(|o| value(o + 5)).collect();
            let workload = Workload::f32(c).with_epilogue(&[Epilogue::Bias]);
            let y = reference(&workload, &[&x, &w, &bias]);
            logical(&c, c.oh(), c.ow(), c.co).into_iter().map(|i| y[i]).collect::<Vec<f64>>()
        };
        let grouped = Conv2d { groups: 2, ..base };
        let tiles = ConvLayout::NhwcNc(16);
        let expected = run(grouped);
        for layout in ConvLayout::ALL.into_iter().filter(|l| *l != tiles) {
            assert_eq!(run(Conv2d { layout, ..grouped }), expected, "{}", layout.name());
        }
        let batch = Conv2d { n: 32, ..base };
        assert_eq!(run(Conv2d { layout: tiles, ..batch }), run(batch));
    }
}
