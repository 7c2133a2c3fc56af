//! Products of `f32` in parts of `f16`: what the interpreter computes stays within the derived bound of the `f64` reference,
//! whatever the size of the numbers.

use crate::checked;
use kernel_gen::analysis::verify::verify;
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cuda::split::SplitHalves;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Math, Matmul, Workload};

fn check(w: &Workload, config: &str) -> String {
    checked::check(&SplitHalves, w, "sm_90a", config)
}

const EPILOGUE: [Epilogue; 3] = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];

#[test]
fn channels_first() {
    let c = Conv2d::nchw(2, 70, 7, 9, 44, 3, 1, 1);
    let w = Workload::f32(c).with_epilogue(&EPILOGUE);
    let text = check(&w, "consumers=2 bn=48 sums=3 stages=3 middle=7 inner=9");
    // Four steps of sixteen for each of the three products.
    assert_eq!(text.matches("wgmma_m64n48k16").count(), 1 + 12, "{text}");
    check(&w, "consumers=1 bn=48 sums=2 stages=2 middle=4 inner=8");
    let uneven = Conv2d { dilation: [2, 1], padding: [0, 2, 3, 0], stride: [1, 2], ..c };
    check(&Workload::f32(uneven), "consumers=1 bn=32 sums=2 stages=4 middle=6 inner=5");
}

/// 63 of a tile's 64 rows are its own.
#[test]
fn rows_of_the_next_tile_fill_up_a_slot() {
    let w = Workload::f32(Conv2d::nchw(10, 33, 4, 7, 36, 3, 1, 1));
    check(&w, "consumers=1 bn=48 sums=2 stages=2 middle=1 inner=7");
    check(&w, "consumers=3 bn=32 sums=3 stages=2 middle=4 inner=7");
    // Twelve rows of pixels are fetched where there are eight.
    let c = Conv2d { layout: ConvLayout::Hwcn, ..Conv2d::nchw(3, 20, 8, 16, 36, 3, 1, 1) };
    check(&Workload::f32(c), "consumers=3 bn=48 sums=2 stages=2 middle=16 inner=1");
}

/// Taps that lie in the padding for all images of a pixel are left out, both by the producer and by the consumers.
#[test]
fn images_last() {
    let c = Conv2d { layout: ConvLayout::Hwcn, ..Conv2d::nchw(70, 20, 3, 4, 36, 3, 1, 1) };
    check(&Workload::f32(c).with_epilogue(&EPILOGUE), "consumers=1 bn=48 sums=2 stages=2 middle=1 inner=64");
    check(&Workload::f32(Conv2d { n: 16, stride: [2, 1], ..c }), "consumers=1 bn=48 sums=3 stages=3 middle=4 inner=16");
}

#[test]
fn transposed_matrices() {
    for trans_b in [false, true] {
        let m = Matmul { trans_a: true, trans_b, ..Matmul::new(100, 50, 77) };
        let config = "consumers=2 bn=32 sums=2 stages=3 middle=1 inner=128";
        check(&Workload::f32(m).with_epilogue(&[Epilogue::Bias]), config);
    }
}

/// Inputs that no `f16` holds, or only with few bits: each kind of them is multiplied by multiply-adds, or is scaled.
#[test]
fn numbers_of_every_size_stay_in_the_class() {
    let power = |e: i32| 2f64.powi(e);
    let pixels = |c: &Conv2d| c.h * c.w;
    for kernel in [1, 3] {
        let c = Conv2d::nchw(2, 12, 5, 6, 36, kernel, 1, kernel / 2);
        let w = Workload::f32(c);
        let [x, weights] = <[Vec<f64>; 2]>::try_from(sample::inputs(&w, &mut Rng::new(5))).expect("two inputs");
        let plane = pixels(&c) as usize;
        let depth = (c.ci * kernel * kernel) as usize;
        let of_pixels = |factor: &dyn Fn(usize) -> f64| x.iter().enumerate().map(|(i, v)| v * factor(i)).collect();
        let of_columns =
            |factor: &dyn Fn(usize) -> f64| weights.iter().enumerate().map(|(i, v)| v * factor(i / depth)).collect();
        let same: Vec<f64> = weights.clone();
        let cases: [(&str, Vec<f64>, Vec<f64>); 9] = [
            ("huge", of_pixels(&|_| power(100)), same.clone()),
            ("just too large for f16", of_pixels(&|_| power(14)), same.clone()),
            ("tiny", of_pixels(&|_| power(-60)), same.clone()),
            ("tiny and not subnormal in f16 yet", of_pixels(&|_| power(-20)), same.clone()),
            ("one pixel", of_pixels(&|i| if i % plane == 7 { power(90) } else { 1.0 }), same.clone()),
            (
                "tiny pixels beside others",
                of_pixels(&|i| power(if (i % plane).is_multiple_of(2) { 0 } else { -40 })),
                same.clone(),
            ),
            ("channels", of_pixels(&|i| power(i as i32 / plane as i32 % 5 * 9 - 18)), same),
            (
                "zeros",
                of_pixels(&|i| if (i % plane).is_multiple_of(3) { 0.0 } else { 1.0 }),
                of_columns(&|c| c as f64 % 2.0),
            ),
            ("columns", x.clone(), of_columns(&|c| power(c as i32 * 6 - 100))),
        ];
        for (what, x, weights) in cases {
            println!("{what}, {kernel} x {kernel}");
            checked::check_inputs(
                &SplitHalves,
                &w,
                "sm_90a",
                "consumers=1 bn=48 sums=2 stages=2 middle=5 inner=6",
                &[x, weights],
            );
        }
    }
}

#[test]
fn large_shapes_are_verified() {
    let target = Target::find("sm_90a").expect("a built-in target");
    for key in [
        "matmul-f32-m5000n3001k1000-tn",
        "conv2d-nchw-f32-n64c256h14w14-o256k3x3-s1x1-p1.1.1.1-d1x1-g1",
        "conv2d-hwcn-f32-n256c256h14w14-o512k3x3-s1x1-p1.1.1.1-d1x1-g1",
        "conv2d-nchw-f32-n64c64h56w56-o64k3x3-s1x1-p1.1.1.1-d1x1-g1",
        "conv2d-nchw-f32-n64c256h14w14-o512k3x3-s2x2-p1.1.1.1-d1x1-g1",
        "conv2d-nchw-f32-n64c64h224w224-o64k3x3-s1x1-p1.1.1.1-d1x1-g1",
    ] {
        let w = Workload::from_key(key).expect("a key");
        let config = SplitHalves.default_config(&w, target).expect("it applies");
        println!("{key}: {config}, {:.1} us", SplitHalves.cost(&w, target, &config));
        let made = SplitHalves.schedule(&w, target, &config).expect("it is in the space");
        if let Err(faults) = verify(insert_barriers(made.schedule.kernel), &target.limits()) {
            panic!("{key} with {config}: {}", faults[0]);
        }
    }
}

#[test]
fn other_classes_and_layouts_are_left_to_others() {
    let target = Target::find("sm_90a").expect("a built-in target");
    let tf32 = Workload { math: Math::Tf32, ..Workload::f32(Conv2d::nchw(1, 64, 8, 8, 64, 1, 1, 0)) };
    let why = SplitHalves.applies(&tf32, target).expect_err("it refuses");
    assert_eq!(why, "products of f16 parts are for the class fp32: `strict` asks for multiply-adds, `tf32` for less");
    let why = SplitHalves.applies(&Workload::f32(Matmul::new(64, 64, 64)), target).expect_err("it refuses");
    assert_eq!(why, "turns rows into columns: for NCHW, HWCN and transposed left operands");
    let apart = Workload::f32(Conv2d::nchw(1, 64, 80, 80, 64, 1, 9, 0));
    let why = SplitHalves.applies(&apart, target).expect_err("it refuses");
    assert_eq!(why, "a stride of 9: the copy engine takes up to 8");
}
