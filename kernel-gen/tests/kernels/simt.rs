//! Products of `f32` without tensor cores, case by case: what the interpreter computes stays within the derived bound of the
//! `f64` reference, whatever the order of storage, tails and parts of the reduction.

use crate::checked;
use crate::structure;
use kernel_gen::interp::{self, Mode};
use kernel_gen::model;
use kernel_gen::records::BestRecords;
use kernel_gen::target::Target;
use kernel_gen::templates::cuda::simt::{SimtConv2d, SimtGemm};
use kernel_gen::templates::{Registry, Template};
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Math, Matmul, Workload};

fn product(m: Matmul, epilogue: &[Epilogue]) -> Workload {
    Workload { math: Math::Strict, ..Workload::f32(m).with_epilogue(epilogue) }
}

/// Tile and step, a thread's rows and columns, stages, and parts of the reduction.
fn config(tile: [i64; 3], own: [i64; 2], stages: i64, split: i64) -> String {
    let ([m, n, k], [own_m, own_n]) = (tile, own);
    format!("tile_m={m} tile_n={n} tile_k={k} own_m={own_m} own_n={own_n} stages={stages} split={split} group=1")
}

/// With a ring of two: the copies of a step are under way while the one before is multiplied, and the barriers behind the waits
/// keep the ring in order alone.
const OVERLAPPED: &str = "copy left_tile, copy right_tile, commit, wait 0, barrier, \
                          loop, copy left_tile, copy right_tile, commit, sum sum, wait 0, barrier, sum sum, end, store ";

#[test]
fn products_in_all_four_orders_of_storage() {
    for (trans_a, trans_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let m = Matmul { trans_a, trans_b, ..Matmul::new(72, 68, 24) };
        let w = product(m, &[Epilogue::Bias, Epilogue::Gelu]);
        let text = checked::check(&SimtGemm, &w, "sm_80", &config([64, 64, 8], [8, 4], 2, 1));
        assert_eq!(text.contains("cp_async_16("), trans_a || !trans_b, "{text}");
        let kernel = structure::lowered(&SimtGemm, &w, "sm_80", &config([64, 64, 8], [8, 4], 2, 1));
        assert_eq!(structure::order(&kernel).join(", "), format!("{OVERLAPPED}c"));
        checked::check(&SimtGemm, &w, "sm_90", &config([64, 32, 8], [4, 4], 2, 2));
    }
}

#[test]
fn odd_sizes() {
    for (trans_a, trans_b) in [(false, false), (true, true)] {
        let m = Matmul { trans_a, trans_b, ..Matmul::new(47, 35, 61) };
        let w = product(m, &[Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu]);
        checked::check(&SimtGemm, &w, "sm_80", &config([64, 64, 16], [4, 8], 3, 1));
        checked::check(&SimtGemm, &w, "sm_86", &config([64, 64, 8], [8, 4], 2, 2));
        checked::check(&SimtGemm, &w, "sm_90", &config([32, 64, 8], [4, 4], 2, 4));
    }
}

#[test]
fn sixteen_rows_of_a_thread() {
    let w = product(Matmul::new(130, 62, 70), &[Epilogue::Scale]);
    checked::check(&SimtGemm, &w, "sm_80", &config([128, 64, 8], [16, 8], 4, 1));
}

#[test]
fn batches_of_products() {
    let w = product(Matmul { batch: 3, ..Matmul::new(33, 20, 34) }, &[]);
    let text = checked::check(&SimtGemm, &w, "sm_80", &config([32, 32, 8], [4, 4], 2, 1));
    assert!(text.contains("cp_async_4(") && text.contains("cp_async_16("), "{text}");
    let text = checked::check(&SimtGemm, &w, "sm_80", &config([32, 32, 8], [4, 4], 2, 2));
    assert!(text.contains("kernel_1("), "{text}");
}

const EPILOGUE: [Epilogue; 3] = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];

fn conv_in(layout: ConvLayout, c: Conv2d, epilogue: &[Epilogue]) -> Workload {
    Workload { math: Math::Strict, ..Workload::f32(Conv2d { layout, ..c }).with_epilogue(epilogue) }
}

fn conv(c: Conv2d) -> Workload {
    conv_in(ConvLayout::Hwcn, c, &EPILOGUE)
}

fn channels_last(c: Conv2d, epilogue: &[Epilogue]) -> Workload {
    conv_in(ConvLayout::Nhwc, c, epilogue)
}

#[test]
fn taps_in_the_padding_are_left_out() {
    let w = conv(Conv2d::nchw(32, 8, 5, 4, 32, 3, 1, 1));
    let config_of = config([32, 32, 8], [4, 4], 2, 1);
    checked::check(&SimtConv2d, &w, "sm_80", &config_of);
    // A weight that is NaN makes outputs NaN whose sums have its tap, with a zero of the padding too. So it shows where the first
    // tap is multiplied: nowhere in the first row and the first column, and everywhere else.
    let kernel = structure::lowered(&SimtConv2d, &w, "sm_80", &config_of);
    let mut values = interp::seeded_inputs(&kernel, 3);
    values.get_mut("w").expect("the weights")[..8 * 32].fill(f64::NAN);
    let y = &interp::run(&kernel, &values, Mode::Declared).expect("it runs")["y"];
    let outputs = 32 * 32;
    assert_eq!(y.len(), 5 * 4 * outputs);
    for (pixel, of_pixel) in y.chunks(outputs).enumerate() {
        let skipped = pixel / 4 == 0 || pixel % 4 == 0;
        let multiplied = of_pixel.iter().filter(|v| v.is_nan()).count();
        assert_eq!(multiplied, if skipped { 0 } else { outputs }, "row {}, column {}", pixel / 4, pixel % 4);
    }
    // Neither channels nor images divide tiles and steps, and taps far apart meet the input on neither side.
    let far = Conv2d { dilation: [3, 2], padding: [4, 1, 2, 3], ..Conv2d::nchw(6, 5, 6, 7, 35, 3, 2, 0) };
    checked::check(&SimtConv2d, &conv(far), "sm_86", &config([32, 32, 8], [4, 4], 2, 1));
}

#[test]
fn taps_are_shared_by_parts_of_a_reduction() {
    let w = conv(Conv2d::nchw(7, 12, 3, 4, 20, 3, 1, 1));
    checked::check(&SimtConv2d, &w, "sm_80", &config([32, 32, 8], [4, 4], 2, 4));
    checked::check(&SimtConv2d, &w, "sm_90", &config([32, 32, 8], [4, 4], 2, 2));
}

#[test]
fn channels_last_are_turned_around() {
    // Taps that last a step, in the padding on all sides; the last tile has pixels of no image.
    let w = channels_last(Conv2d::nchw(3, 16, 5, 6, 40, 3, 1, 1), &EPILOGUE);
    let text = checked::check(&SimtConv2d, &w, "sm_80", &config([64, 64, 8], [8, 4], 2, 1));
    // Elements of pixels, and vectors of weights.
    assert!(text.contains("cp_async_4(left_tile") && text.contains("cp_async_16(right_tile"), "{text}");
    let kernel = structure::lowered(&SimtConv2d, &w, "sm_80", &config([64, 64, 8], [8, 4], 2, 1));
    assert_eq!(structure::order(&kernel).join(", "), format!("{OVERLAPPED}y"));
    let vectors = ["bias", "left_tile", "residual", "right_tile", "sum"].map(|from| format!("load {from} x4"));
    let stores = ["left", "right", "y"].map(|to| format!("store {to} x4"));
    assert_eq!(structure::vectors(&kernel), vectors.into_iter().chain(stores).collect());
    checked::check(&SimtConv2d, &w, "sm_90", &config([32, 64, 16], [4, 8], 3, 1));
    // Nothing is asked where there is no padding and all divides.
    let whole = channels_last(Conv2d::nchw(2, 24, 4, 8, 32, 1, 1, 0), &[]);
    let text = checked::check(&SimtConv2d, &whole, "sm_86", &config([64, 32, 8], [4, 4], 2, 1));
    assert!(text.contains("cp_async_16(right_tile") && !text.contains("0 <= "), "{text}");
}

#[test]
fn channels_last_with_taps_that_change_within_a_step() {
    // First layers; channels that no step divides; taps far apart, steps of several pixels, unequal borders.
    let first = Conv2d::nchw(2, 3, 11, 13, 17, 7, 2, 3);
    let far = Conv2d { dilation: [3, 2], padding: [4, 1, 2, 3], ..Conv2d::nchw(3, 5, 9, 7, 35, 3, 2, 0) };
    let uneven = Conv2d { kw: 5, stride: [1, 3], padding: [0, 2, 1, 3], ..Conv2d::nchw(2, 18, 6, 10, 12, 2, 1, 0) };
    for c in [first, far, uneven] {
        let w = channels_last(c, &EPILOGUE);
        checked::check(&SimtConv2d, &w, "sm_80", &config([32, 32, 8], [4, 4], 2, 1));
        checked::check(&SimtConv2d, &w, "sm_86", &config([32, 32, 16], [4, 4], 2, 2));
    }
}

#[test]
fn channels_last_shared_by_parts_of_a_reduction() {
    let w = channels_last(Conv2d::nchw(1, 32, 3, 4, 20, 3, 1, 1), &[Epilogue::Bias, Epilogue::Scale]);
    let text = checked::check(&SimtConv2d, &w, "sm_80", &config([32, 32, 8], [4, 4], 2, 4));
    assert!(text.contains("kernel_1("), "{text}");
    // Parts and steps do not divide the taps.
    checked::check(&SimtConv2d, &w, "sm_90", &config([32, 32, 16], [4, 4], 2, 4));
}

#[test]
fn channels_last_with_every_epilogue() {
    use Epilogue::{Bias, Gate, Gelu, ImageBias, Relu, Relu6, ResidualAdd, Scale};
    let epilogues: [&[Epilogue]; 8] = [
        &[],
        &[Bias, Scale, Gelu],
        &[Bias, Relu6],
        &[ResidualAdd],
        &[Bias, ResidualAdd, Relu],
        &[Scale, Relu],
        &[Bias, Gate, ResidualAdd, Relu],
        &[ResidualAdd, ImageBias],
    ];
    for epilogue in epilogues {
        // Vectors of outputs, and single ones.
        for co in [36, 33] {
            let w = channels_last(Conv2d::nchw(2, 8, 4, 5, co, 3, 1, 1), epilogue);
            checked::check(&SimtConv2d, &w, "sm_80", &config([32, 32, 8], [4, 4], 2, 1));
        }
    }
}

#[test]
fn a_gate_is_read_in_vectors_where_a_tile_has_several_images() {
    let w = channels_last(Conv2d::nchw(3, 8, 4, 5, 32, 3, 1, 1), &[Epilogue::Gate]);
    let config = config([32, 32, 8], [4, 4], 2, 1);
    checked::check(&SimtConv2d, &w, "sm_80", &config);
    let kernel = structure::lowered(&SimtConv2d, &w, "sm_80", &config);
    assert!(structure::vectors(&kernel).contains("load gate x4"), "{kernel}");
}

#[test]
fn images_and_channels_side_by_side_are_all_it_takes() {
    let target = Target::find("sm_80").expect("a built-in target");
    let refuses = |w: &Workload| SimtConv2d.applies(w, target).expect_err("it does not apply");
    let c = Conv2d::nchw(8, 8, 5, 5, 8, 3, 1, 1);
    let all = "for HWCN with one group, and NHWC with several channels in a group";
    assert_eq!(refuses(&conv_in(ConvLayout::Nchw, c, &[])), all);
    assert_eq!(refuses(&conv_in(ConvLayout::Hwcn, Conv2d { groups: 2, ..c }, &[])), all);
    assert_eq!(refuses(&channels_last(Conv2d { groups: 8, ..c }, &[])), all);
    assert_eq!(SimtConv2d.applies(&channels_last(Conv2d { groups: 2, ..c }, &[]), target), Ok(()));
}

/// The layers of ResNet-50 that nothing but these kernels was made for: many images in the class `strict`.
#[test]
fn many_images_in_the_class_strict_are_its_own() {
    let (registry, target) = (Registry::builtin(), Target::find("sm_90a").expect("a built-in target"));
    let layers = [
        Conv2d::nchw(64, 256, 14, 14, 256, 3, 1, 1),
        Conv2d::nchw(64, 1024, 14, 14, 256, 1, 1, 0),
        Conv2d::nchw(64, 3, 224, 224, 64, 7, 2, 3),
    ];
    for c in layers {
        let w = channels_last(c, &[Epilogue::Bias, Epilogue::Relu]);
        let records = BestRecords::default();
        let choice = model::choose(&registry, &w, target, &records, &model::Options::default()).expect("a choice");
        assert_eq!(choice.template, "simt_conv2d", "{}", w.key());
    }
}
