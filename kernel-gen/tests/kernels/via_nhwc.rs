//! 16-bit convolutions in other layouts by way of NHWC: what the interpreter computes stays within the derived bound of the
//! `f64` reference, whatever is turned.

use crate::checked;
use kernel_gen::analysis::verify::verify;
use kernel_gen::ir::DType;
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::target::Target;
use kernel_gen::templates::cuda::via_nhwc::ViaNhwc;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Workload};

const EPILOGUE: [Epilogue; 3] = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];
const RING: &str =
    "consumers=1 row_blocks=1 bn=64 stages=3 group=1 cluster=none schedule=cooperative store=tma pending=1";

fn half(c: Conv2d) -> Workload {
    Workload::f32(c).with_dtype(DType::F16).with_epilogue(&EPILOGUE)
}

/// The input, the residual and the output are turned: four launches.
#[test]
fn channels_first() {
    let c = Conv2d::nchw(3, 24, 7, 9, 40, 3, 1, 1);
    let config = format!("{RING} split=1 tile_h=4 tile_w=4");
    let text = checked::check(&ViaNhwc::wgmma_conv2d(), &half(c), "sm_90a", &config);
    assert_eq!(text.matches("__global__").count(), 4, "{text}");
    // Even rows go in pairs of pixels.
    let even = Conv2d { w: 10, stride: [2, 1], padding: [0, 2, 1, 0], ..c };
    checked::check(&ViaNhwc::wgmma_conv2d(), &half(even), "sm_90a", &config);
}

#[test]
fn images_last() {
    for images in [5, 66] {
        let c = Conv2d { layout: ConvLayout::Hwcn, ..Conv2d::nchw(images, 16, 3, 4, 72, 3, 1, 1) };
        let config = format!("{RING} split=1 tile_h=2 tile_w=4");
        checked::check(&ViaNhwc::wgmma_conv2d(), &half(c), "sm_90a", &config);
    }
}

/// One image in HWCN and maps of one pixel in NCHW lie as in NHWC: one launch.
#[test]
fn nothing_to_turn() {
    let config = format!("{RING} split=1 tile_h=2 tile_w=4");
    let image = Conv2d { layout: ConvLayout::Hwcn, ..Conv2d::nchw(1, 16, 5, 4, 72, 3, 1, 1) };
    let text = checked::check(&ViaNhwc::wgmma_conv2d(), &half(image), "sm_90a", &config);
    assert_eq!(text.matches("__global__").count(), 1, "{text}");
    let vectors = Conv2d::nchw(70, 32, 1, 1, 40, 1, 1, 0);
    let text = checked::check(&ViaNhwc::wgmma_gemm(), &half(vectors), "sm_90a", &format!("{RING} split=1"));
    assert_eq!(text.matches("__global__").count(), 1, "{text}");
}

/// The product takes pixels as one coordinate, and the output is `f32`.
#[test]
fn rows_of_one_coordinate() {
    for layout in [ConvLayout::Nchw, ConvLayout::Hwcn] {
        let c = Conv2d { layout, ..Conv2d::nchw(2, 72, 5, 6, 24, 1, 1, 0) };
        let w = Workload { out_dtype: DType::F32, ..half(c) };
        checked::check(&ViaNhwc::wgmma_gemm(), &w, "sm_90a", &format!("{RING} split=1"));
    }
}

/// Weights that the other template packs, too, and channels of pairs and of single ones.
#[test]
fn before_hopper() {
    let c = Conv2d::nchw(2, 10, 6, 5, 33, 3, 1, 1);
    let target = Target::find("sm_80").expect("a built-in target");
    for layout in [ConvLayout::Nchw, ConvLayout::Hwcn] {
        let w = half(Conv2d { layout, ..c });
        let config = ViaNhwc::mma_conv2d().default_config(&w, target).expect("it applies");
        checked::check(&ViaNhwc::mma_conv2d(), &w, "sm_80", &config.to_string());
    }
}

#[test]
fn large_shapes_are_verified_and_are_the_default() {
    let target = Target::find("sm_90a").expect("a built-in target");
    let registry = Registry::builtin();
    for (key, expected) in [
        ("conv2d-nchw-f16-n64c64h56w56-o64k3x3-s1x1-p1.1.1.1-d1x1-g1", "via_nhwc_wgmma_conv2d"),
        ("conv2d-nchw-f16-n64c512h7w7-o512k3x3-s1x1-p1.1.1.1-d1x1-g1", "via_nhwc_wgmma_conv2d"),
        ("conv2d-nchw-f16-n64c1024h14w14-o256k1x1-s1x1-p0.0.0.0-d1x1-g1", "via_nhwc_wgmma_gemm"),
        ("conv2d-hwcn-f16-n256c256h14w14-o512k3x3-s1x1-p1.1.1.1-d1x1-g1", "via_nhwc_wgmma_conv2d"),
    ] {
        let w = Workload::from_key(key).expect("a key");
        let cost = |t: &dyn Template| t.cost(&w, target, &t.default_config(&w, target).expect("it applies"));
        let best = registry.applicable(&w, target).min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
        let best = best.expect("a template takes it");
        let config = best.default_config(&w, target).expect("it applies");
        println!("{key}: {} {config}, {:.1} us", best.name(), cost(best));
        assert_eq!(best.name(), expected, "{key}");
        let made = best.schedule(&w, target, &config).expect("it is in the space");
        if let Err(faults) = verify(insert_barriers(made.schedule.kernel), &target.limits()) {
            panic!("{key} with {config}: {}", faults[0]);
        }
    }
}

/// Neither pixels nor channels divide the tiles that are turned, whatever the layout.
#[test]
fn tails_are_verified() {
    let target = Target::find("sm_90a").expect("a built-in target");
    for layout in [ConvLayout::Nchw, ConvLayout::Hwcn] {
        for (images, h, w) in [(2, 17, 19), (5, 9, 11), (61, 35, 35), (3, 28, 30), (61, 149, 147)] {
            for (ci, co) in [(104, 584), (8, 16)] {
                let c = Conv2d { layout, w, ..Conv2d::nchw(images, ci, h, w, co, 3, 1, 1) };
                for template in [&ViaNhwc::wgmma_conv2d() as &dyn Template, &ViaNhwc::mma_conv2d()] {
                    let w = half(c);
                    if let Err(why) = template.admits(&w, target) {
                        assert_eq!(why, "1336083 pixels do not divide tiles");
                        continue;
                    }
                    let config = template.default_config(&w, target).expect("it applies");
                    let made = template.schedule(&w, target, &config).expect("it is in the space");
                    if let Err(faults) = verify(insert_barriers(made.schedule.kernel), &target.limits()) {
                        panic!("{} {} with {config}: {}", template.name(), w.key(), faults[0]);
                    }
                }
            }
        }
    }
}

#[test]
fn what_others_do_is_left_to_them() {
    let target = Target::find("sm_90a").expect("a built-in target");
    let refusal = |w: &Workload| ViaNhwc::wgmma_conv2d().applies(w, target).expect_err("it refuses");
    let c = Conv2d::nchw(2, 64, 8, 8, 64, 3, 1, 1);
    assert_eq!(refusal(&Workload::f32(c)), "for f16 and bf16, not f32");
    assert_eq!(refusal(&half(Conv2d { layout: ConvLayout::Nhwc, ..c })), "for NCHW and HWCN, not NHWC");
}
