//! Products of `f32` in parts of tf32: what the interpreter computes stays within the derived bound of the `f64` reference,
//! in every layout and with every shape of a tile.

use crate::checked;
use kernel_gen::analysis::verify::verify;
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cuda::split::SplitProduct;
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Math, Matmul, Workload};

fn check(w: &Workload, config: &str) -> String {
    checked::check(&SplitProduct, w, "sm_90a", config)
}

const EPILOGUE: [Epilogue; 3] = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];

#[test]
fn channels_first() {
    let c = Conv2d::nchw(2, 40, 7, 9, 44, 3, 1, 1);
    let text = check(&Workload::f32(c).with_epilogue(&EPILOGUE), "consumers=2 row_blocks=1 bn=48 stages=3 lag=1");
    // Four steps of eight for each of the three products.
    assert_eq!(text.matches("wgmma_m64n48k8_tf32(").count(), 1 + 12, "{text}");
    check(&Workload::f32(c), "consumers=2 row_blocks=1 bn=32 stages=5 lag=3");
}

#[test]
fn four_neighbours_are_copied_at_once_where_they_lie_so() {
    let text =
        check(&Workload::f32(Conv2d::nchw(3, 33, 4, 8, 32, 1, 1, 0)), "consumers=1 row_blocks=1 bn=32 stages=3 lag=1");
    assert!(text.contains("cp_async_16(") && !text.contains("cp_async_4("), "{text}");
    let strided = Conv2d::nchw(3, 33, 8, 16, 32, 1, 2, 0);
    let text = check(&Workload::f32(strided), "consumers=1 row_blocks=1 bn=32 stages=3 lag=1");
    assert!(text.contains("cp_async_4("), "{text}");
}

#[test]
fn channels_last() {
    let c = Conv2d { layout: ConvLayout::Nhwc, ..Conv2d::nchw(2, 36, 9, 8, 40, 3, 2, 1) };
    check(&Workload::f32(c).with_epilogue(&EPILOGUE), "consumers=1 row_blocks=1 bn=48 stages=3 lag=1");
    let uneven = Conv2d { dilation: [2, 1], padding: [0, 2, 3, 0], stride: [1, 2], ..c };
    check(&Workload::f32(uneven), "consumers=2 row_blocks=1 bn=32 stages=4 lag=2");
    check(&Workload::f32(uneven), "consumers=3 row_blocks=1 bn=32 stages=5 lag=3");
}

#[test]
fn images_last() {
    let c = Conv2d { layout: ConvLayout::Hwcn, ..Conv2d::nchw(20, 12, 4, 5, 36, 3, 1, 1) };
    check(&Workload::f32(c), "consumers=2 row_blocks=1 bn=48 stages=3 lag=1");
    check(&Workload::f32(Conv2d { n: 3, ..c }), "consumers=1 row_blocks=1 bn=48 stages=3 lag=1");
}

#[test]
fn matrices_in_all_four_orders() {
    for (trans_a, trans_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let m = Matmul { trans_a, trans_b, ..Matmul::new(100, 50, 76) };
        check(&Workload::f32(m).with_epilogue(&[Epilogue::Bias]), "consumers=2 row_blocks=1 bn=32 stages=3 lag=1");
    }
}

/// Tiles and steps that do not divide sizes at which nothing is found by counting.
#[test]
fn large_shapes_are_verified() {
    let target = Target::find("sm_90a").expect("a built-in target");
    for key in [
        "matmul-f32-m5000n3001k1000-nt-bias",
        "matmul-f32-m5000n3001k1000-tn",
        "conv2d-nchw-f32-n37c48h35w35-o100k5x5-s1x1-p2.2.2.2-d1x1-g1",
        "conv2d-nhwc-f32-n64c36h57w55-o72k3x3-s1x1-p1.1.1.1-d1x1-g1",
        "conv2d-nchw-f32-n512c64h224w224-o64k3x3-s1x1-p1.1.1.1-d1x1-g1",
        "conv2d-nhwc-f32-n4001c36h257w255-o72k3x3-s1x1-p1.1.1.1-d1x1-g1",
        "matmul-f32-m5000001n3001k1000-nt-bias",
    ] {
        let w = Workload::from_key(key).expect("a key");
        let config = SplitProduct.default_config(&w, target).expect("it applies");
        let made = SplitProduct.schedule(&w, target, &config).expect("it is in the space");
        if let Err(faults) = verify(insert_barriers(made.schedule.kernel), &target.limits()) {
            panic!("{key} with {config}: {}", faults[0]);
        }
    }
}

#[test]
fn one_part_is_the_class_tf32() {
    let w = Workload { math: Math::Tf32, ..Workload::f32(Conv2d::nchw(2, 40, 7, 9, 44, 3, 1, 1)) };
    let text = check(&w, "consumers=1 row_blocks=1 bn=48 stages=3 lag=1");
    assert_eq!(text.matches("wgmma_m64n48k8_tf32(").count(), 1 + 4, "{text}");
    check(&w, "consumers=1 row_blocks=2 bn=32 stages=3 lag=1");
}

#[test]
fn strict_sums_are_left_to_others() {
    let target = Target::find("sm_90a").expect("a built-in target");
    let w = Workload { math: Math::Strict, ..Workload::f32(Matmul::new(64, 64, 64)) };
    let why = SplitProduct.applies(&w, target).expect_err("it refuses");
    assert_eq!(why, "products of parts are no f32 multiply-adds, which `strict` asks for");
}
