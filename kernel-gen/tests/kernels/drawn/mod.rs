//! Random workloads of every kind that a template for CPUs is for.

use kernel_gen::ir::DType;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Conv2d, ConvLayout, Matmul, Op, Quant, WeightZero, Workload};

/// A random workload; every third one is of a kind that few random ones are.
pub(crate) fn workload(seed: u64) -> Workload {
    let mut rng = Rng::new(seed);
    loop {
        if seed % 12 == 7 {
            // Integers, every other time for each channel by itself, which is for all that is made for them.
            let workload = match seed % 24 {
                19 => sample::quantised(&mut rng),
                _ => {
                    let c = Conv2d { layout: ConvLayout::Nhwc, ..sample::depthwise(&mut rng) };
                    let of = sample::with_integers(c, &mut rng);
                    Workload { quant: Quant { weight_zero: WeightZero::None, ..of.quant }, ..of }
                }
            };
            if workload.validate().is_ok() && workload.macs() <= 300_000 {
                return workload;
            }
            continue;
        }
        if seed % 24 == 14 {
            // Integers under 3x3 taps.
            let c = Conv2d { layout: ConvLayout::Nhwc, kh: 3, kw: 3, stride: [1, 1], ..sample::conv2d(&mut rng) };
            let of = sample::with_integers(Conv2d { dilation: [1, 1], groups: 1, ..c }, &mut rng);
            let workload = Workload { quant: Quant { weight_zero: WeightZero::None, ..of.quant }, ..of };
            if workload.validate().is_ok() && workload.macs() <= 300_000 {
                return workload;
            }
            continue;
        }
        let mut workload = sample::workload(&mut rng);
        if seed % 24 == 13 {
            workload.op = Op::MatmulNbits(sample::few_bits(&mut rng));
            if workload.validate().is_ok() {
                return workload;
            }
            continue;
        }
        if seed % 6 == 1 {
            workload.op = Op::DepthwisePointwise(sample::pair(&mut rng));
            if workload.validate().is_ok() && workload.macs() <= 1_000_000 {
                return workload;
            }
            continue;
        }
        if seed % 12 == 5 {
            workload.op = Op::Attention(sample::attention(&mut rng, 60));
            return workload;
        }
        if seed % 24 == 15 {
            // A filter for each channel, without a multiplier.
            let Op::Conv2d(c) = workload.op else { continue };
            workload = Workload::f32(Conv2d { layout: ConvLayout::Nchw, dilation: [1, 1], ..c }.depthwise(1));
            if workload.validate().is_ok() && workload.macs() <= 1_000_000 {
                return workload;
            }
            continue;
        }
        if seed % 24 == 3 {
            // Convolutions over planes, every other one transposed.
            const NAMES: [&str; 6] =
                ["conv1d", "conv_transpose1d", "conv3d", "conv_transpose2d", "conv2d", "conv_transpose3d"];
            let mut workload = sample::of_operator(NAMES[(seed / 24) as usize % NAMES.len()], &mut rng);
            if let Op::Conv2d(c) = &mut workload.op {
                // Few channels a group.
                let groups = 2 + seed as i64 % 3;
                *c = Conv2d { layout: ConvLayout::Nchw, ci: 3 * groups, co: 5 * groups, groups, ..*c };
            }
            if workload.validate().is_ok() {
                return workload;
            }
            continue;
        }
        if let kind @ 9..12 = seed % 12 {
            // What has no products: windows, pixels between pixels, rows.
            const WINDOWS: [&str; 4] = ["max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d"];
            const ROWS: [&str; 6] =
                ["softmax", "layer_norm", "reduce_max", "group_norm", "log_softmax", "reduce_log_sum_exp"];
            let turn = seed as usize / 12;
            let name = match kind {
                9 => WINDOWS[turn % WINDOWS.len()],
                10 => "resize_bilinear",
                _ => ROWS[turn % ROWS.len()],
            };
            workload = sample::of_operator(name, &mut rng);
            let layout = match workload.op {
                Op::MaxPool2d(of) => of.window.layout,
                Op::AvgPool2d(of) => of.window.layout,
                Op::Resize(of) => of.layout,
                _ => ConvLayout::Nchw,
            };
            if layout == ConvLayout::Nchw {
                return workload;
            }
            continue;
        }
        if let Op::Matmul(m) = &mut workload.op
            && !seed.is_multiple_of(3)
        {
            // Every other product is narrow, with a reduction of whole vectors.
            if seed.is_multiple_of(2) {
                *m = Matmul { n: m.n.min(12), k: (m.k + 15) / 16 * 16, trans_a: false, ..*m };
            }
            return workload;
        }
        let Op::Conv2d(c) = &mut workload.op else { continue };
        match seed % 6 {
            0 => {
                *c =
                    Conv2d { layout: ConvLayout::Nchw, kh: 1, kw: 1, stride: [1, 1], padding: [0; 4], groups: 1, ..*c };
            }
            // The first layers of networks.
            2 => {
                *c = Conv2d { layout: ConvLayout::Nchw, groups: 1, ci: c.ci.min(4), w: c.w + 16, ..*c };
                (workload.dtype, workload.out_dtype) = (DType::F32, DType::F32);
            }
            3 => *c = c.depthwise(1),
            4 => {
                let (stride, padding) = ([1, 1], c.padding.map(|p| p.min(2)));
                *c = Conv2d {
                    layout: ConvLayout::Nchw,
                    kh: 3,
                    kw: 3,
                    stride,
                    padding,
                    dilation: [1, 1],
                    groups: 1,
                    ..*c
                };
                (workload.dtype, workload.out_dtype) = (DType::F32, DType::F32);
            }
            _ => {}
        }
        if workload.validate().is_ok() {
            return workload;
        }
    }
}
