//! Products of `f32` in three parts of bf16: what the interpreter computes stays within the derived bound of the `f64`
//! reference, in every layout, with every shape of a tile and with numbers of every size.

use crate::checked;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cuda::split::{SplitBf16, SplitProduct};
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Math, Matmul, Workload};

fn check(w: &Workload, config: &str) -> String {
    checked::check(&SplitBf16, w, "sm_90a", config)
}

const EPILOGUE: [Epilogue; 3] = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];

#[test]
fn channels_first() {
    let c = Conv2d::nchw(2, 40, 7, 9, 44, 3, 1, 1);
    let text = check(&Workload::f32(c).with_epilogue(&EPILOGUE), "consumers=2 row_blocks=1 bn=48 stages=3 lag=1");
    // Two steps of sixteen for each of the six products.
    assert_eq!(text.matches("wgmma_m64n48k16_bf16_held_n(").count(), 1 + 12, "{text}");
    // 8 pairs, which do not lie side by side.
    assert_eq!(text.matches("split_bf16_3(").count(), 1 + 8, "{text}");
    assert!(!text.contains("(const float2 *)(pixels"), "{text}");
    check(&Workload::f32(c), "consumers=2 row_blocks=1 bn=32 stages=5 lag=3");
}

#[test]
fn channels_last() {
    let c = Conv2d { layout: ConvLayout::Nhwc, ..Conv2d::nchw(2, 36, 9, 8, 40, 3, 2, 1) };
    let text = check(&Workload::f32(c).with_epilogue(&EPILOGUE), "consumers=1 row_blocks=1 bn=48 stages=3 lag=1");
    assert_eq!(text.matches("*(const float2 *)(pixels").count(), 8, "{text}");
    let uneven = Conv2d { dilation: [2, 1], padding: [0, 2, 3, 0], stride: [1, 2], ..c };
    check(&Workload::f32(uneven), "consumers=3 row_blocks=1 bn=32 stages=4 lag=2");
}

#[test]
fn images_last() {
    let c = Conv2d { layout: ConvLayout::Hwcn, ..Conv2d::nchw(20, 12, 4, 5, 36, 3, 1, 1) };
    let text = check(&Workload::f32(c), "consumers=2 row_blocks=1 bn=48 stages=3 lag=1");
    assert!(text.contains("cp_async_16(") && !text.contains("cp_async_4("), "{text}");
    check(&Workload::f32(Conv2d { n: 3, ..c }), "consumers=1 row_blocks=1 bn=48 stages=3 lag=1");
}

#[test]
fn matrices_in_all_four_orders() {
    for (trans_a, trans_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let m = Matmul { trans_a, trans_b, ..Matmul::new(100, 50, 76) };
        check(&Workload::f32(m).with_epilogue(&[Epilogue::Bias]), "consumers=2 row_blocks=1 bn=32 stages=3 lag=1");
    }
}

/// Two parts in tf32 are refused these.
#[test]
fn sums_of_one_term() {
    for terms in 1..4 {
        let m = Matmul { trans_a: true, ..Matmul::new(70, 40, terms) };
        check(&Workload::f32(m), "consumers=1 row_blocks=1 bn=32 stages=3 lag=1");
    }
}

/// To `f16` they are infinite or zero; bf16 has the exponents of `f32`.
#[test]
fn numbers_of_every_size_stay_in_the_class() {
    for layout in [ConvLayout::Nchw, ConvLayout::Nhwc] {
        let w = Workload::f32(Conv2d { layout, ..Conv2d::nchw(2, 12, 5, 6, 36, 3, 1, 1) });
        let [x, weights] = <[Vec<f64>; 2]>::try_from(sample::inputs(&w, &mut Rng::new(5))).expect("two inputs");
        let scaled = |values: &[f64], factor: &dyn Fn(usize) -> f64| -> Vec<f64> {
            values.iter().enumerate().map(|(i, v)| f64::from((v * factor(i)) as f32)).collect()
        };
        let all = |factor: f64| move |_: usize| factor;
        let mixed = |i: usize| 10f64.powi(i as i32 % 7 * 10 - 30);
        for (what, x, weights) in [
            ("huge", scaled(&x, &all(1e30)), weights.clone()),
            ("tiny", scaled(&x, &all(1e-30)), weights.clone()),
            ("huge by tiny", scaled(&x, &all(1e30)), scaled(&weights, &all(1e-30))),
            ("mixed", scaled(&x, &mixed), weights.clone()),
            ("zeros", scaled(&x, &|i| (i % 3) as f64), scaled(&weights, &|i| (i % 2) as f64)),
        ] {
            println!("{what}, {layout:?}");
            checked::check_inputs(
                &SplitBf16,
                &w,
                "sm_90a",
                "consumers=1 row_blocks=1 bn=48 stages=3 lag=1",
                &[x, weights],
            );
        }
    }
}

#[test]
fn it_is_more_exact_than_two_parts_in_tf32() {
    // Few terms, so that it is the products that are wrong, and not their sums.
    let w = Workload::f32(Matmul { trans_a: true, ..Matmul::new(128, 64, 4) });
    let error = |template: &dyn Template, seed: u64| {
        let inputs = sample::inputs(&w, &mut Rng::new(seed));
        // All bits of an `f32`, of which the samples have few.
        let bits = |v: &f64| f64::from((v * 0.765_432_1) as f32);
        let inputs: Vec<Vec<f64>> = inputs.iter().map(|values| values.iter().map(bits).collect()).collect();
        let config = "consumers=1 row_blocks=1 bn=64 stages=3 lag=1";
        checked::check_error(template, &w, "sm_90a", config, &inputs).1
    };
    for seed in 1..4 {
        let [bf16, tf32] = [&SplitBf16 as &dyn Template, &SplitProduct].map(|t| error(t, seed));
        println!("largest share of the bound: {bf16:.3} in bf16, {tf32:.3} in tf32");
        assert!(bf16 < 0.6 * tf32, "{bf16} in bf16, {tf32} in tf32");
    }
}

/// Weights are fewer bytes, which is all that the prediction may gain.
#[test]
fn it_is_not_predicted_to_be_faster_than_its_bytes() {
    let target = Target::find("sm_90a").expect("a built-in target");
    for key in [
        "matmul-f32-m1024n1024k1024-nn",
        "conv2d-nchw-f32-n64c64h56w56-o64k3x3-s1x1-p1.1.1.1-d1x1-g1",
        "conv2d-nhwc-f32-n64c256h14w14-o256k3x3-s1x1-p1.1.1.1-d1x1-g1",
    ] {
        let w = Workload::from_key(key).expect("a key");
        let space = SplitBf16.space(&w, target).expect("it applies");
        for config in (0..space.range_len()).filter_map(|i| space.get(i)) {
            let [bf16, tf32] = [&SplitBf16 as &dyn Template, &SplitProduct].map(|t| t.cost(&w, target, &config));
            assert!(bf16 > tf32 * 0.75, "{key} with {config}: {bf16}, {tf32}");
        }
    }
}

#[test]
fn what_it_refuses() {
    let target = Target::find("sm_90a").expect("a built-in target");
    let why = |math| {
        let w = Workload { math, ..Workload::f32(Matmul::new(64, 64, 64)) };
        SplitBf16.applies(&w, target).expect_err("it refuses")
    };
    assert_eq!(why(Math::Strict), "products of parts are no f32 multiply-adds, which `strict` asks for");
    assert_eq!(why(Math::Tf32), "three parts are for the class fp32: `tf32` is content with one");
}
