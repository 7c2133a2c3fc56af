//! A crate whose spec has ranges: every number of images and rows, by shapes known at run time, by types, and with packed weights.

use kernel_gen::templates::Registry;
use kernel_gen_tests::consumer::Consumer;
use std::path::Path;

const SPEC: &str = r#"schema = 1
[targets]
cpu = ["x86-64-v3", "aarch64"]

[[kernel]]
name = "conv"
op = "conv2d"
epilogue = ["bias", "residual_add", "relu"]
[[kernel.workload]]
name = "images"
input = ["1..8", 5, 9, 7]
weight = [11, 5, 3, 3]
padding = [1, 1]
[[kernel.workload]]
name = "other"
input = [2, 5, 8, 7]
weight = [11, 5, 3, 3]
padding = [1, 1]

[[kernel]]
name = "product"
op = "matmul"
[[kernel.workload]]
name = "rows"
a = ["3..50", 37]
b = [37, 29]
"#;

const MAIN: &str = r#"use kernel_gen_runtime::{Cpu, D1, D4, DynView, DynViewMut, Error, Tensor};
kernel_gen_runtime::include_kernels!();
use kernels::{conv, conv_dyn, images, product_dyn, rows};

const EDGE: usize = 64;

fn data(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 16) as f32 / 65536.0 - 0.5
    };
    (0..count).map(|_| next()).collect()
}

/// An output with numbers on both sides that nobody may touch.
fn output(count: usize) -> Vec<f32> {
    let mut all = vec![f32::NAN; count + 2 * EDGE];
    all[..EDGE].fill(7.0);
    all[EDGE + count..].fill(7.0);
    all
}

fn untouched(all: &[f32]) -> bool {
    all[..EDGE].iter().chain(&all[all.len() - EDGE..]).all(|edge| *edge == 7.0)
}

/// `relu(conv(x, w) + bias + residual)` at one place.
fn wanted(x: &[f32], w: &[f32], bias: &[f32], residual: &[f32], at: [usize; 4]) -> f32 {
    let [image, channel, row, column] = at;
    let mut sum = bias[channel];
    for (c, dy, dx) in (0..5).flat_map(|c| (0..3).flat_map(move |dy| (0..3).map(move |dx| (c, dy, dx)))) {
        let (y, x_) = (row + dy, column + dx);
        if (1..=9).contains(&y) && (1..=7).contains(&x_) {
            sum += x[((image * 5 + c) * 9 + y - 1) * 7 + x_ - 1] * w[((channel * 5 + c) * 3 + dy) * 3 + dx];
        }
    }
    (sum + residual[((image * 11 + channel) * 9 + row) * 7 + column]).max(0.0)
}

fn check(x: &[f32], w: &[f32], bias: &[f32], residual: &[f32], y: &[f32], images: usize) {
    assert_eq!(y.len(), images * 11 * 63);
    for (i, got) in y.iter().enumerate() {
        let at = [i / 693, i / 63 % 11, i / 7 % 9, i % 7];
        let wanted = wanted(x, w, bias, residual, at);
        assert!((got - wanted).abs() < 1e-5, "{images} images, {at:?}: {got} for {wanted}");
    }
}

fn main() {
    let dev = Cpu::new();
    println!("{}", kernels::BUILD_REPORT);
    let (w, bias) = (data(11 * 45, 1), data(11, 2));
    let (x, residual) = (data(8 * 315, 3), data(8 * 693, 4));
    for n in 1..=8 {
        let (x, residual) = (x[..n * 315].to_vec(), residual[..n * 693].to_vec());
        let mut all = output(n * 693);
        let y = &mut all[EDGE..EDGE + n * 693];
        conv_dyn(
            &dev,
            DynView::new(&x, &[n, 5, 9, 7]),
            DynView::new(&w, &[11, 5, 3, 3]),
            DynView::new(&bias, &[11]),
            DynView::new(&residual, &[n, 11, 9, 7]),
            DynViewMut::new(y, &[n, 11, 9, 7]),
        )
        .unwrap();
        check(&x, &w, &bias, &residual, y, n);
        assert!(untouched(&all), "{n} images");
    }
    // Types say how many there are.
    let weight = Tensor::<f32, D4<11, 5, 3, 3>>::from_slice(&w).unwrap();
    let packed = images::pack_weight(&dev, &weight).unwrap();
    let bias_ = Tensor::<f32, D1<11>>::from_slice(&bias).unwrap();
    macro_rules! typed {
        ($($n:literal)*) => {$(
            let x_ = Tensor::<f32, images::X<$n>>::from_slice(&x[..$n * 315]).unwrap();
            let residual_ = Tensor::<f32, D4<$n, 11, 9, 7>>::from_slice(&residual[..$n * 693]).unwrap();
            let mut y = Tensor::<f32, images::Y<$n>>::zeros();
            conv(&dev, &x_, &weight, &bias_, &residual_, &mut y).unwrap();
            check(&x, &w, &bias, &residual, y.as_slice(), $n);
            let mut again = Tensor::<f32, images::Y<$n>>::zeros();
            images::launch(&dev, &x_, &packed, &bias_, &residual_, &mut again).unwrap();
            assert_eq!(y.as_slice(), again.as_slice());
        )*};
    }
    typed!(1 5 8);
    // An empty batch does nothing, and too many rows are an error that says what there is.
    let b = data(37 * 29, 5);
    let product = |m: usize| {
        let a = data(m * 37, 6);
        let mut all = output(m * 29);
        let c = &mut all[EDGE..EDGE + m * 29];
        let (of_a, of_b, of_c) = ([m, 37], [37, 29], [m, 29]);
        let views = (DynView::new(&a, &of_a), DynView::new(&b, &of_b), DynViewMut::new(c, &of_c));
        let result = product_dyn(&dev, views.0, views.1, views.2);
        for i in (0..m * 29).filter(|_| result.is_ok()) {
            let wanted: f32 = (0..37).map(|k| a[i / 29 * 37 + k] * b[k * 29 + i % 29]).sum();
            assert!((c[i] - wanted).abs() < 1e-5, "{m} rows, {i}");
        }
        assert!(untouched(&all));
        result
    };
    (3..=50).for_each(|m| product(m).unwrap());
    product(0).unwrap();
    for m in [2, 51] {
        let error = product(m).unwrap_err();
        assert!(matches!(error, Error::NoWorkload { .. }) && error.to_string().contains("[3..50, 37]"), "{error}");
    }
    let _ = rows::WORKLOAD;
    println!("all sizes are right");
}
"#;

#[test]
fn every_number_of_a_range_is_computed_and_no_other() {
    let consumer = Consumer::new(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("downstream"), "ranges");
    consumer.write("kernels.toml", SPEC);
    consumer.write("build.rs", "fn main() {\n    kernel_gen_build::configure().generate_or_exit();\n}\n");
    consumer.write("src/main.rs", MAIN);
    // What it asks for and is refused becomes lines of the spec.
    let met = consumer.folder.join("met.txt").display().to_string();
    let ran = consumer.cargo_with(&[("KERNEL_GEN_CAPTURE", &met)], &["run", "--offline", "--locked"]).passed();
    assert_eq!(
        std::fs::read_to_string(&met).unwrap(),
        "product a=2,37 b=37,29 c=2,29\nproduct a=51,37 b=37,29 c=51,29\n"
    );
    let spec = consumer.folder.join("kernels.toml").display().to_string();
    let lines = kernel_gen::cli::run(&Registry::builtin(), ["kernel-gen", "capture", &met, &spec]);
    assert!(lines.text.contains("replaces the workload") && lines.text.contains("a = [\"2..51\", 37]"), "{lines:?}");
    assert!(ran.stdout.contains("all sizes are right"), "{}", ran.stdout);
    assert!(ran.stdout.contains("to 8, expected to take at most"), "{}", ran.stdout);
    // A type with more images than declared is no program.
    consumer.write("src/main.rs", &MAIN.replace("typed!(1 5 8);", "typed!(1 9);"));
    let refused = consumer.cargo(&["build", "--offline", "--locked"]).failed();
    assert!(refused.stderr.contains("`images` is declared for 1 to 8 images or rows"), "{}", refused.stderr);
}
