//! Calls every form of the generated functions and holds the results against plain loops.

kernel_gen_runtime::include_kernels!();

use kernel_gen_runtime::{Cpu, D1, D2, D4, DynView, DynViewMut, Tensor, View, ViewMut};

/// Small numbers that are exact in `f32`, so that sums are exact in any order.
fn value(i: usize) -> f32 {
    (i * 7 % 13) as f32 - 6.0
}

fn product(a: &[f32], b: &[f32], bias: &[f32], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let element = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum::<f32>() + bias[j];
    (0..m * n).map(|i| element(i / n, i % n).max(0.0)).collect()
}

/// 3 channels of `size` squared to 4 channels, kernel 3.
fn conv(x: &[f32], w: &[f32], bias: &[f32], size: usize, stride: usize, padding: usize, dilation: usize) -> Vec<f32> {
    let out = (size + 2 * padding - 2 * dilation - 1) / stride + 1;
    let mut y = vec![];
    for co in 0..4 {
        for (oh, ow) in (0..out * out).map(|i| (i / out, i % out)) {
            let mut sum = bias[co];
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

fn products(dev: &Cpu) -> kernel_gen_runtime::Result<()> {
    let a: Vec<f32> = (0..30).map(value).collect();
    let b: Vec<f32> = (3..38).map(value).collect();
    let bias: [f32; 7] = std::array::from_fn(|i| value(i + 1));
    let expected = product(&a, &b, &bias, [6, 7, 5]);

    let mut c = [[0.0f32; 7]; 6];
    kernels::product(dev, &View::<_, D2<6, 5>>::new(&a)?, &View::<_, D2<5, 7>>::new(&b)?, &bias, &mut c)?;
    assert_eq!(c.as_flattened(), expected);

    let mut c = vec![0.0; 42];
    let packed = kernels::small::pack_weight(dev, &View::<_, D2<5, 7>>::new(&b)?)?;
    let mut out = ViewMut::<_, D2<6, 7>>::new(&mut c)?;
    kernels::small::launch(dev, &View::new(&a)?, &packed, &View::<_, D1<7>>::new(&bias)?, &mut out)?;
    assert_eq!(c, expected);

    let mut c = vec![0.0; 42];
    let (av, bv, cv) = (DynView::new(&a, &[6, 5]), DynView::new(&b, &[5, 7]), DynViewMut::new(&mut c, &[6, 7]));
    kernels::product_dyn(dev, av, bv, DynView::new(&bias, &[7]), cv)?;
    assert_eq!(c, expected);

    let mut c = vec![0.0; 49];
    let cv = DynViewMut::new(&mut c, &[7, 7]);
    let error = kernels::product_dyn(dev, DynView::new(&b, &[7, 5]), bv, DynView::new(&bias, &[7]), cv).unwrap_err();
    assert!(error.to_string().contains("small: a [6, 5], b [5, 7], bias [7], c [6, 7]"), "{error}");
    Ok(())
}

fn convolutions(dev: &Cpu) -> kernel_gen_runtime::Result<()> {
    let x: Vec<f32> = (0..192).map(value).collect();
    let w = Tensor::<f32, D4<4, 3, 3, 3>>::from_fn(|i| value(i + 5));
    let bias = Tensor::<f32, D1<4>>::from_fn(value);
    let mut y = Tensor::<f32, D4<1, 4, 8, 8>>::zeros();
    kernels::conv(dev, &View::<_, D4<1, 3, 8, 8>>::new(&x)?, &w, &bias, &mut y)?;
    assert_eq!(y.as_slice(), conv(&x, w.as_slice(), bias.as_slice(), 8, 1, 1, 1));

    let x = Tensor::<f32, D4<1, 3, 7, 7>>::from_slice(&x[..147])?;
    let mut y = Tensor::<f32, D4<1, 4, 3, 3>>::zeros();
    kernels::strided::launch_unpacked(dev, &x, &w, &bias, &mut y)?;
    assert_eq!(y.as_slice(), conv(x.as_slice(), w.as_slice(), bias.as_slice(), 7, 2, 0, 1));
    let packed = kernels::dilated::pack_weight(dev, &w)?;
    kernels::dilated::launch(dev, &x, &packed, &bias, &mut y)?;
    assert_eq!(y.as_slice(), conv(x.as_slice(), w.as_slice(), bias.as_slice(), 7, 1, 0, 2));

    let (xv, wv) = (DynView::new(x.as_slice(), &[1, 3, 7, 7]), DynView::new(w.as_slice(), &[4, 3, 3, 3]));
    let yv = DynViewMut::new(y.as_mut_slice(), &[1, 4, 3, 3]);
    let error = kernels::conv_dyn(dev, xv, wv, DynView::new(bias.as_slice(), &[4]), yv).unwrap_err();
    assert!(error.to_string().contains("`strided::launch_unpacked` or `dilated::launch_unpacked`"), "{error}");
    Ok(())
}

fn branches(dev: &Cpu) -> kernel_gen_runtime::Result<()> {
    let x = Tensor::<f32, D4<2, 5, 8, 8>>::from_fn(value);
    let w = Tensor::<f32, D4<4, 3, 3, 3>>::from_fn(|i| value(i + 5));
    let mut y = Tensor::<f32, D4<2, 12, 8, 8>>::from_fn(|_| 99.0);
    kernels::first_branch::launch_unpacked(dev, &x, &w, &mut y)?;
    let packed = kernels::second_branch::pack_weight(dev, &w)?;
    kernels::second_branch::launch(dev, &x, &packed, &mut y)?;
    for (image, y) in y.as_slice().chunks(12 * 64).enumerate() {
        let expected = |first: usize| {
            let x = &x.as_slice()[(image * 5 + first) * 64..][..3 * 64];
            conv(x, w.as_slice(), &[0.0; 4], 8, 1, 1, 1)
        };
        assert_eq!(y[8 * 64..], expected(1));
        assert_eq!(y[..4 * 64], expected(2));
        assert!(y[4 * 64..8 * 64].iter().all(|v| *v == 99.0), "what is no branch's stays as it was");
    }
    Ok(())
}

fn main() {
    if std::env::args().any(|a| a == "--errors") {
        // Built without code: every launch says why.
        println!("{}", products(&Cpu::new()).unwrap_err());
        return;
    }
    for threads in [1, 3] {
        let dev = Cpu::with_threads(threads);
        for isa in kernel_gen_runtime::Isa::ALL {
            let Ok(dev) = dev.with_isa(isa) else { continue };
            products(&dev).unwrap();
            convolutions(&dev).unwrap();
            branches(&dev).unwrap();
            println!("{isa} with {threads} threads: ok");
        }
    }
    print!("{}", kernels::report());
}
