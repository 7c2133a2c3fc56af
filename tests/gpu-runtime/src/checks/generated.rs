//! Generated functions against plain loops, on any device.

use crate::kernels;
use crate::suite::{Check, ensure, passed};
use kernel_gen_runtime::{D1, D2, D4, Device, F16, Tensor};

pub(super) type Done = Result<(), Box<dyn std::error::Error>>;

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check { name: "generated products", run: |dev| passed(products(dev)) },
        Check { name: "generated products of halves", run: |dev| passed(halves(dev)) },
        Check { name: "generated convolutions", run: |dev| passed(convolutions(dev)) },
        Check { name: "branches of a concatenation", run: |dev| passed(branches(dev)) },
    ]
}

/// Everything, on any device.
pub(crate) fn all<Dev: Device>(dev: &Dev) -> Done {
    kernels::preload(dev)?;
    products(dev)?;
    halves(dev)?;
    convolutions(dev)?;
    branches(dev)
}

/// Small numbers that are exact in every type, so that sums are exact in any order.
pub(super) fn value(i: usize) -> f32 {
    (i * 7 % 13) as f32 - 6.0
}

/// `relu(a b + bias)`, row-major.
pub(super) fn product(a: &[f32], b: &[f32], bias: &[f32], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let element = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum::<f32>() + bias[j];
    (0..m * n).map(|i| element(i / n, i % n).max(0.0)).collect()
}

/// Fails unless all elements are the same.
pub(super) fn equal(what: &str, got: &[f32], expected: &[f32]) -> Done {
    let wrong = got.iter().zip(expected).position(|(g, e)| g != e);
    ensure(wrong.is_none() && got.len() == expected.len(), || {
        let at = wrong.unwrap_or_default();
        format!("{what}: element {at} is {} and should be {}", got[at], expected[at])
    })
}

fn products<Dev: Device>(dev: &Dev) -> Done {
    let a = Tensor::<f32, D2<6, 5>>::from_fn(value);
    let b = Tensor::<f32, D2<5, 7>>::from_fn(|i| value(i + 3));
    let bias: [f32; 7] = std::array::from_fn(|i| value(i + 1));
    let expected = product(a.as_slice(), b.as_slice(), &bias, [6, 7, 5]);
    let (a, b, bias) = (dev.upload(&a)?, dev.upload(&b)?, dev.upload(&bias)?);
    let mut c = dev.zeros::<f32, D2<6, 7>>()?;
    kernels::product(dev, &a, &b, &bias, &mut c)?;
    equal("product", dev.download(&c)?.as_slice(), &expected)?;
    let packed = kernels::small::pack_weight(dev, &b)?;
    let mut c = dev.zeros::<f32, D2<6, 7>>()?;
    kernels::small::launch(dev, &a, &packed, &bias, &mut c)?;
    equal("product with its weight packed", dev.download(&c)?.as_slice(), &expected)?;

    let a = Tensor::<f32, D2<64, 64>>::from_fn(value);
    let b = Tensor::<f32, D2<64, 64>>::from_fn(|i| value(i * 3 + 1));
    let bias = Tensor::<f32, D1<64>>::from_fn(value);
    let expected = product(a.as_slice(), b.as_slice(), bias.as_slice(), [64, 64, 64]);
    let mut c = dev.zeros::<f32, D2<64, 64>>()?;
    kernels::product(dev, &dev.upload(&a)?, &dev.upload(&b)?, &dev.upload(&bias)?, &mut c)?;
    equal("square product", dev.download(&c)?.as_slice(), &expected)
}

fn halves<Dev: Device>(dev: &Dev) -> Done {
    let a = Tensor::<F16, D2<128, 64>>::from_fn(|i| F16::from_f32(value(i)));
    let b = Tensor::<F16, D2<64, 128>>::from_fn(|i| F16::from_f32(value(i * 5 + 2)));
    let mut c = dev.zeros::<F16, D2<128, 128>>()?;
    kernels::product_f16(dev, &dev.upload(&a)?, &dev.upload(&b)?, &mut c)?;
    let expected = product_of_halves(a.as_slice(), b.as_slice(), [128, 128, 64]);
    equal("product of halves", &wide(dev.download(&c)?.as_slice()), &expected)?;

    let a = Tensor::<F16, D2<512, 256>>::from_fn(|i| F16::from_f32((i * 7 % 5) as f32 - 2.0));
    let b = Tensor::<F16, D2<256, 384>>::from_fn(|i| F16::from_f32((i * 11 % 3) as f32 - 1.0));
    let mut c = dev.zeros::<F16, D2<512, 384>>()?;
    kernels::product_f16(dev, &dev.upload(&a)?, &dev.upload(&b)?, &mut c)?;
    let expected = product_of_halves(a.as_slice(), b.as_slice(), [512, 384, 256]);
    equal("large product of halves", &wide(dev.download(&c)?.as_slice()), &expected)
}

/// Small numbers whose sums are exact in `f16`.
fn third(i: usize) -> F16 {
    F16::from_f32((i * 7 % 3) as f32 - 1.0)
}

fn branches<Dev: Device>(dev: &Dev) -> Done {
    let x = Tensor::<F16, D4<2, 9, 9, 136>>::from_fn(third);
    let one = Tensor::<F16, D4<1, 1, 64, 64>>::from_fn(|i| third(i + i / 9));
    let three = Tensor::<F16, D4<3, 3, 64, 128>>::from_fn(|i| third(i + i / 7));
    let untouched = F16::from_f32(99.0);
    let mut y = dev.upload(&Tensor::<F16, D4<2, 9, 9, 200>>::from_fn(|_| untouched))?;
    kernels::branch(dev, &dev.upload(&x)?, &dev.upload(&one)?, &mut y)?;
    let packed = kernels::branch_3x3::pack_weight(dev, &dev.upload(&three)?)?;
    kernels::branch_3x3::launch(dev, &dev.upload(&x)?, &packed, &mut y)?;
    // The taps of a kernel of `k` squared around a pixel, over 64 channels from `first` on.
    let (x, one, three) = (wide(x.as_slice()), wide(one.as_slice()), wide(three.as_slice()));
    let sum = |w: &[f32], [k, first, co, of]: [usize; 4], [image, row, column]: [usize; 3]| -> f32 {
        let taps = (0..k * k).map(|tap| (tap, row + tap / k, column + tap % k));
        let inside = taps.filter(|(_, h, v)| (k / 2..9 + k / 2).contains(h) && (k / 2..9 + k / 2).contains(v));
        let terms = inside.flat_map(|(tap, h, v)| {
            let pixel = ((image * 9 + h - k / 2) * 9 + v - k / 2) * 136 + first;
            (0..64).map(move |c| (pixel + c, (tap * 64 + c) * of + co))
        });
        terms.map(|(pixel, weight)| x[pixel] * w[weight]).sum()
    };
    let expected = (0..2 * 81 * 200).map(|i| {
        let (at, co) = ([i / 200 / 81, i / 200 / 9 % 9, i / 200 % 9], i % 200);
        let sum = match co {
            0..128 => sum(&three, [3, 72, co, 128], at),
            128..192 => sum(&one, [1, 8, co - 128, 64], at),
            _ => 99.0,
        };
        F16::from_f32(sum).to_f32()
    });
    equal("branches", &wide(dev.download(&y)?.as_slice()), &expected.collect::<Vec<_>>())
}

fn wide(halves: &[F16]) -> Vec<f32> {
    halves.iter().map(|v| v.to_f32()).collect()
}

/// `a b`, row-major. The sums are exact in f32; each result is rounded once.
fn product_of_halves(a: &[F16], b: &[F16], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let (a, b) = (wide(a), wide(b));
    let mut c = vec![0.0f32; m * n];
    for (i, row) in c.chunks_mut(n).enumerate() {
        for l in 0..k {
            row.iter_mut().zip(&b[l * n..][..n]).for_each(|(c, b)| *c += a[i * k + l] * b);
        }
    }
    c.into_iter().map(|v| F16::from_f32(v).to_f32()).collect()
}

/// 3 channels of `size` squared to 4 channels, kernel 3.
fn conv(x: &[f32], w: &[f32], bias: &[f32], size: usize, stride: usize, padding: usize, dilation: usize) -> Vec<f32> {
    let out = (size + 2 * padding - 2 * dilation - 1) / stride + 1;
    let mut y = vec![];
    for (co, b) in bias.iter().enumerate() {
        for (oh, ow) in (0..out * out).map(|i| (i / out, i % out)) {
            let mut sum = *b;
            for (ci, kh, kw) in (0..27).map(|i| (i / 9, i / 3 % 3, i % 3)) {
                let (h, w_) = (oh * stride + kh * dilation, ow * stride + kw * dilation);
                let inside = |i: usize| (padding..size + padding).contains(&i);
                if inside(h) && inside(w_) {
                    let source = (ci * size + h - padding) * size + w_ - padding;
                    sum += x[source] * w[((co * 3 + ci) * 3 + kh) * 3 + kw];
                }
            }
            y.push(sum);
        }
    }
    y
}

fn convolutions<Dev: Device>(dev: &Dev) -> Done {
    let x = Tensor::<f32, D4<1, 3, 8, 8>>::from_fn(value);
    let w = Tensor::<f32, D4<4, 3, 3, 3>>::from_fn(|i| value(i + 5));
    let bias = Tensor::<f32, D1<4>>::from_fn(value);
    let expected = conv(x.as_slice(), w.as_slice(), bias.as_slice(), 8, 1, 1, 1);
    let (on_w, on_bias) = (dev.upload(&w)?, dev.upload(&bias)?);
    let mut y = dev.zeros::<f32, D4<1, 4, 8, 8>>()?;
    kernels::conv(dev, &dev.upload(&x)?, &on_w, &on_bias, &mut y)?;
    equal("padded convolution", dev.download(&y)?.as_slice(), &expected)?;

    let x = Tensor::<f32, D4<1, 3, 7, 7>>::from_fn(|i| value(i + 2));
    let on_x = dev.upload(&x)?;
    let mut y = dev.zeros::<f32, D4<1, 4, 3, 3>>()?;
    kernels::strided::launch_unpacked(dev, &on_x, &on_w, &on_bias, &mut y)?;
    let expected = conv(x.as_slice(), w.as_slice(), bias.as_slice(), 7, 2, 0, 1);
    equal("strided convolution", dev.download(&y)?.as_slice(), &expected)?;
    let packed = kernels::dilated::pack_weight(dev, &on_w)?;
    kernels::dilated::launch(dev, &on_x, &packed, &on_bias, &mut y)?;
    let expected = conv(x.as_slice(), w.as_slice(), bias.as_slice(), 7, 1, 0, 2);
    equal("dilated convolution", dev.download(&y)?.as_slice(), &expected)
}
