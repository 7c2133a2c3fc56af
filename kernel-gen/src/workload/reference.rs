//! What an operator computes, in plain Rust and `f64`: the oracle that knows nothing of the IR.

use super::{Conv2d, ConvLayout, Epilogue, Matmul, Op, Workload};

/// The output of a valid workload, row-major as stored.
///
/// `inputs` are the parameters in the order of [`Workload::params`] without the output, each row-major as stored.
/// Nothing is rounded to a storage type: round the inputs before if they must be.
///
/// # Panics
/// If an input has another number of elements than its parameter.
pub fn reference(workload: &Workload, inputs: &[&[f64]]) -> Vec<f64> {
    check_lengths(workload, inputs);
    let mut values = sums(workload, inputs).values;
    apply_epilogue(workload, inputs, &mut values);
    values
}

/// What the epilogue makes of the sums.
pub(super) fn apply_epilogue(workload: &Workload, inputs: &[&[f64]], values: &mut [f64]) {
    let channels = channels_of_elements(workload);
    let mut operands = inputs[workload.operator_params()..].iter();
    let mut next = || *operands.next().expect("the lengths of all inputs were checked");
    for step in &workload.epilogue {
        match step {
            Epilogue::Bias => {
                let bias = next();
                values.iter_mut().zip(&channels).for_each(|(v, c)| *v += bias[*c]);
            }
            Epilogue::Relu => values.iter_mut().for_each(|v| *v = v.max(0.0)),
            Epilogue::Relu6 => values.iter_mut().for_each(|v| *v = v.clamp(0.0, 6.0)),
            Epilogue::Gelu => values.iter_mut().for_each(|v| *v = gelu(*v)),
            Epilogue::ResidualAdd => values.iter_mut().zip(next()).for_each(|(v, r)| *v += r),
            Epilogue::Scale => {
                let (scale, shift) = (next(), next());
                values.iter_mut().zip(&channels).for_each(|(v, c)| *v = *v * scale[*c] + shift[*c]);
            }
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

/// The sums before the epilogue.
pub(super) struct Sums {
    /// `sum x w` of each output element.
    pub(super) values: Vec<f64>,
    /// `sum |x||w|` of each, which error bounds are made of.
    pub(super) magnitudes: Vec<f64>,
}

impl Sums {
    fn zeros(elements: usize) -> Sums {
        Sums { values: vec![0.0; elements], magnitudes: vec![0.0; elements] }
    }

    /// Adds `weight * x` to elements `to`, `to + 1`, ... for all `x`.
    fn add<'a>(&mut self, to: usize, x: impl Iterator<Item = &'a f64>, weight: f64) {
        for ((x, value), magnitude) in x.zip(&mut self.values[to..]).zip(&mut self.magnitudes[to..]) {
            let product = weight * x;
            *value += product;
            *magnitude += product.abs();
        }
    }
}

/// The sums of a workload; of a pair those of its second half.
pub(super) fn sums(workload: &Workload, inputs: &[&[f64]]) -> Sums {
    match &workload.op {
        Op::Conv2d(c) => convolve(c, inputs[0], inputs[1]),
        Op::Matmul(m) => multiply(m, inputs[0], inputs[1]),
        Op::DepthwisePointwise(p) => {
            let [first, _] = workload.parts().expect("a pair has two parts");
            let weight = workload.operator_params() - 1;
            convolve(&p.pointwise(), &reference(&first, &inputs[..weight]), inputs[weight])
        }
    }
}

/// The exact GELU.
pub(super) fn gelu(v: f64) -> f64 {
    0.5 * v * (1.0 + erf(v * std::f64::consts::FRAC_1_SQRT_2))
}

/// The error function, by the series `2/sqrt(pi) exp(-x^2) sum_n 2^n x^(2n+1) / (2n+1)!!` (Abramowitz and Stegun
/// 7.1.6): all its terms have one sign, so that nothing cancels.
fn erf(x: f64) -> f64 {
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
struct Activation {
    image: Vec<usize>,
    channel: Vec<usize>,
    h_step: usize,
    w_step: usize,
}

impl Activation {
    fn new(layout: ConvLayout, n: usize, c: usize, h: usize, w: usize) -> Activation {
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

/// A tensor in NCHW: its rows are what a thread goes along.
fn in_nchw(c: &Conv2d, x: &[f64]) -> Vec<f64> {
    let at = Activation::new(c.layout, c.n as usize, c.ci as usize, c.h as usize, c.w as usize);
    let mut all = Vec::with_capacity(x.len());
    for image in &at.image {
        for channel in &at.channel {
            for row in 0..c.h as usize {
                let first = image + channel + row * at.h_step;
                all.extend((0..c.w as usize).map(|column| x[first + column * at.w_step]));
            }
        }
    }
    all
}

fn convolve(c: &Conv2d, x: &[f64], w: &[f64]) -> Sums {
    let (oh, ow) = (c.oh(), c.ow());
    let x = &in_nchw(c, x);
    let y_at = Activation::new(c.layout, c.n as usize, c.co as usize, oh as usize, ow as usize);
    let (ci, co, kh, kw) = (c.ci_per_group() as usize, c.co as usize, c.kh as usize, c.kw as usize);
    // Where the weights of an output and of an input channel lie, and steps along the two axes of the kernel.
    let every = |n: usize, step: usize| (0..n).map(|i| i * step).collect::<Vec<usize>>();
    let (o_at, i_at, kh_step, kw_step) = match c.layout {
        ConvLayout::Nchw | ConvLayout::NchwC(_) => (every(co, ci * kh * kw), every(ci, kh * kw), kw, 1),
        ConvLayout::Nhwc | ConvLayout::Hwcn => (every(co, 1), every(ci, co), kw * ci * co, ci * co),
        ConvLayout::NhwcNc(block) => {
            let b = block as usize;
            let tiled = |n: usize, tile: usize, within: usize| (0..n).map(|i| i / b * tile + i % b * within).collect();
            (tiled(co, b * b, 1), tiled(ci, co * b, b), kw * ci * co, ci * co)
        }
    };
    // Which columns of the output a tap of the kernel reaches without touching the padding, and where in the input.
    let taps: Vec<(std::ops::Range<i64>, i64)> = (0..c.kw)
        .map(|s| {
            let offset = s * c.dilation[1] - c.padding[1];
            let first = div_ceil(-offset, c.stride[1]);
            let last = div_ceil(c.w - offset, c.stride[1]).min(ow);
            (first..last, offset)
        })
        .collect();
    let x_step = c.stride[1] as usize;
    let (rows, columns) = (oh as usize, ow as usize);
    // One channel of an image is what a thread computes at a time.
    let plane = |number: usize| -> Sums {
        let (n, o) = (number / co, number % co);
        let first = n * c.ci as usize + o / c.co_per_group() as usize * ci;
        let mut plane = Sums::zeros(rows * columns);
        // Those of this channel side by side, taps the slowest: they are read for each row.
        let taps_of = (0..kh * c.kw as usize).map(|tap| tap / c.kw as usize * kh_step + tap % c.kw as usize * kw_step);
        let of_channel = &w[o_at[o]..];
        let weights: Vec<f64> = taps_of.flat_map(|tap| i_at.iter().map(move |i| of_channel[i + tap])).collect();
        for row in 0..rows {
            for r in 0..kh {
                let h = row as i64 * c.stride[0] + r as i64 * c.dilation[0] - c.padding[0];
                if !(0..c.h).contains(&h) {
                    continue;
                }
                for (s, (reached, offset)) in taps.iter().enumerate().filter(|(_, (reached, _))| !reached.is_empty()) {
                    let count = (reached.end - reached.start) as usize;
                    let start = (reached.start * c.stride[1] + offset) as usize;
                    let (width, plane_size) = (c.w as usize, (c.h * c.w) as usize);
                    let to = row * columns + reached.start as usize;
                    for (i, &weight) in weights[(r * c.kw as usize + s) * ci..][..ci].iter().enumerate() {
                        let from = (first + i) * plane_size + h as usize * width + start;
                        // Most convolutions are this case, which compilers make vectors of.
                        if x_step == 1 {
                            plane.add(to, x[from..from + count].iter(), weight);
                        } else {
                            plane.add(to, x[from..].iter().step_by(x_step).take(count), weight);
                        }
                    }
                }
            }
        }
        plane
    };
    let mut y = Sums::zeros(c.n as usize * co * rows * columns);
    let macs = rows * columns * ci * kh * c.kw as usize;
    for_each_part(c.n as usize * co, macs, plane, |number, plane| {
        let start = y_at.image[number / co] + y_at.channel[number % co];
        for (i, (value, magnitude)) in plane.values.into_iter().zip(plane.magnitudes).enumerate() {
            let to = start + i / columns * y_at.h_step + i % columns * y_at.w_step;
            y.values[to] = value;
            y.magnitudes[to] = magnitude;
        }
    });
    y
}

/// Computes the parts `0..count`, each about `macs` products, on all processors, and hands them on in their order. Every
/// part is computed as it would be alone, so the result does not depend on how many threads there are.
fn for_each_part(count: usize, macs: usize, part: impl Fn(usize) -> Sums + Sync, mut put: impl FnMut(usize, Sums)) {
    // A thread costs as much as some ten thousand products.
    const WORTH_A_THREAD: usize = 1_000_000;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = processors.min(count.saturating_mul(macs) / WORTH_A_THREAD).min(count).max(1);
    if threads == 1 {
        (0..count).for_each(|number| put(number, part(number)));
        return;
    }
    std::thread::scope(|scope| {
        let part = &part;
        let shares: Vec<_> = (0..threads).map(|t| count * t / threads..count * (t + 1) / threads).collect();
        let running: Vec<_> =
            shares.iter().cloned().map(|share| scope.spawn(move || share.map(part).collect::<Vec<_>>())).collect();
        for (share, thread) in shares.into_iter().zip(running) {
            let parts = thread.join().expect("a part panics only where the whole would");
            share.zip(parts).for_each(|(number, sums)| put(number, sums));
        }
    });
}

/// `ceil(a / b)`, and 0 for negative `a`.
fn div_ceil(a: i64, b: i64) -> i64 {
    (a.max(0) + b - 1) / b
}

fn multiply(p: &Matmul, a: &[f64], b: &[f64]) -> Sums {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let (a_row, a_column) = if p.trans_a { (1, m) } else { (k, 1) };
    let (b_row, b_column) = if p.trans_b { (1, k) } else { (n, 1) };
    // A tile of some rows, whose left operands share what comes of the right one, which memory is slow to bring, and of as many
    // columns as caches hold the sums of.
    const ROWS: usize = 8;
    const COLUMNS: usize = 1024;
    let (blocks, strips) = (m.div_ceil(ROWS), n.div_ceil(COLUMNS));
    // Batch, first row and first column of a tile.
    let place = |number: usize| {
        let (batch, within) = (number / (blocks * strips), number % (blocks * strips));
        (batch, within / strips * ROWS, within % strips * COLUMNS)
    };
    let tile = |number: usize| -> Sums {
        let (batch, row, column) = place(number);
        let (a, b) = (&a[batch * m * k..], &b[batch * k * n + column * b_column..]);
        let (rows, columns) = (ROWS.min(m - row), COLUMNS.min(n - column));
        let mut tile = Sums::zeros(rows * columns);
        for r in 0..k {
            let right = &b[r * b_row..];
            for i in 0..rows {
                let weight = a[(row + i) * a_row + r * a_column];
                // Compilers make vectors of neighbours.
                if b_column == 1 {
                    tile.add(i * columns, right[..columns].iter(), weight);
                } else {
                    tile.add(i * columns, right.iter().step_by(b_column).take(columns), weight);
                }
            }
        }
        tile
    };
    let mut c = Sums::zeros(p.batch as usize * m * n);
    for_each_part(p.batch as usize * blocks * strips, ROWS.min(m) * COLUMNS.min(n) * k, tile, |number, tile| {
        let (batch, row, column) = place(number);
        let columns = COLUMNS.min(n - column);
        for (i, (values, magnitudes)) in tile.values.chunks(columns).zip(tile.magnitudes.chunks(columns)).enumerate() {
            let start = (batch * m + row + i) * n + column;
            c.values[start..][..columns].copy_from_slice(values);
            c.magnitudes[start..][..columns].copy_from_slice(magnitudes);
        }
    });
    c
}

/// The output channel (the column of a product) of every output element, in the order of storage.
pub(super) fn channels_of_elements(workload: &Workload) -> Vec<usize> {
    let shape = workload.output_shape();
    let elements: i64 = shape.iter().product();
    // Elements between neighbouring channels, and for blocked layouts the block.
    let (channels, step, block) = match &workload.op {
        Op::Matmul(m) => (m.n, 1, 1),
        Op::DepthwisePointwise(p) => (p.co, p.output_pixels().iter().product(), 1),
        Op::Conv2d(c) => match c.layout {
            ConvLayout::Nchw => (c.co, c.oh() * c.ow(), 1),
            ConvLayout::Nhwc => (c.co, 1, 1),
            ConvLayout::Hwcn => (c.co, c.n, 1),
            ConvLayout::NchwC(block) => (c.co / block, c.oh() * c.ow() * block, block),
            ConvLayout::NhwcNc(block) => (c.co / block, block * block, block),
        },
    };
    (0..elements).map(|i| (i / step % channels * block + i % block) as usize).collect()
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
        // More rows and columns than a tile has, in each of two batches; all is whole numbers, so that sums are exact.
        let p = Matmul { batch: 2, ..Matmul::new(9, 1030, 3) };
        let value = |i: usize| ((i * 37 + 11) % 29) as f64 - 14.0;
        let (a, b): (Vec<f64>, Vec<f64>) = ((0..2 * 27).map(value).collect(), (0..2 * 3090).map(value).collect());
        let transposed: Vec<f64> = (0..2 * 3090).map(|i| b[i / 3090 * 3090 + i % 3 * 1030 + i % 3090 / 3]).collect();
        let entry = |i: usize| -> f64 {
            let (batch, row, column) = (i / 9270, i / 1030 % 9, i % 1030);
            (0..3).map(|r| a[batch * 27 + row * 3 + r] * b[batch * 3090 + r * 1030 + column]).sum()
        };
        let expected: Vec<f64> = (0..2 * 9270).map(entry).collect();
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
