//! Depthwise convolutions from registers, case by case: what the interpreter computes stays within the derived bound of
//! the `f64` reference, and accesses are as wide as they are aligned.

use crate::checked;
use kernel_gen::analysis::verify::verify;
use kernel_gen::ir::DType;
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cuda::depthwise_direct::DepthwiseDirect;
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Workload};

const EPILOGUE: [Epilogue; 3] = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu6];

/// A depthwise convolution of so many images and channels of `size` rows and columns.
fn square(n: i64, channels: i64, size: i64, k: i64, stride: i64) -> Conv2d {
    Conv2d::nchw(n, channels, size, size, channels, k, stride, k / 2).depthwise(1)
}

fn config(patch: [i64; 2], vector: i64, ahead: i64, threads: i64) -> String {
    let [rows, columns] = patch;
    format!("rows={rows} columns={columns} vector={vector} ahead={ahead} threads={threads}")
}

fn check(c: Conv2d, dtype: DType, config: &str) -> String {
    let w = Workload::f32(c).with_epilogue(&EPILOGUE).with_dtype(dtype);
    checked::check(&DepthwiseDirect, &w, "sm_90a", config)
}

#[test]
fn rows_of_planes_come_in_whole_vectors() {
    let text = check(square(2, 3, 12, 3, 1), DType::F32, &config([4, 4], 1, 8, 64));
    // Six rows with one vector each, and nothing else is as wide but the residual and the output.
    assert_eq!(text.matches("*(const float4 *)(x + ").count(), 6, "{text}");
    assert_eq!(text.matches("*(float4 *)(y + ").count(), 4, "{text}");
    // The rows above and below the plane are asked for behind a condition, as whole words.
    assert_eq!(text.matches(" ? *(const float4 *)(x + ").count(), 2, "{text}");
    let text = check(square(1, 2, 24, 5, 1), DType::F16, &config([2, 8], 1, 2, 64));
    assert_eq!(text.matches("*(const uint4 *)(x + ").count(), 6, "{text}");
}

#[test]
fn patches_reach_over_the_edge() {
    // 7 columns in patches of 4 and 2, 14 in patches of 4 that vectors of two divide, 9 rows in patches of 4.
    for (c, patch) in
        [(square(3, 5, 7, 3, 1), [7, 4]), (square(2, 3, 14, 3, 1), [4, 4]), (square(1, 3, 9, 5, 2), [4, 2])]
    {
        check(c, DType::F32, &config(patch, 1, 4, 64));
        check(c, DType::Bf16, &config(patch, 1, 1, 128));
    }
}

#[test]
fn channels_last() {
    for (channels, vector, stride) in [(8, 8, 1), (12, 4, 2), (6, 2, 1), (5, 1, 2)] {
        let c = Conv2d { layout: ConvLayout::Nhwc, ..square(2, channels, 9, 3, stride) };
        check(c, DType::F16, &config([2, 2], vector, 2, 64));
        if vector <= 4 {
            check(c, DType::F32, &config([4, 2], vector, 4, 64));
        }
    }
}

#[test]
fn distant_taps_wide_strides_and_several_outputs_a_channel() {
    let distant = Conv2d { dilation: [2, 3], padding: [2, 3, 1, 0], ..square(1, 4, 13, 3, 1) };
    check(distant, DType::F32, &config([4, 2], 1, 2, 64));
    // A stride beyond the kernel: there are rows and columns that no tap meets.
    let wide = Conv2d { stride: [3, 4], padding: [0; 4], ..square(2, 3, 12, 2, 1) };
    check(wide, DType::F32, &config([2, 2], 1, 4, 64));
    check(Conv2d { layout: ConvLayout::Nhwc, ..wide }, DType::F32, &config([2, 2], 1, 4, 64));
    check(square(2, 3, 8, 3, 1).depthwise(2), DType::F32, &config([2, 4], 1, 4, 64));
}

/// Sizes at which the verifier cannot try out all elements.
#[test]
fn cut_patches_are_known_to_stay_inside_and_to_cover_large_outputs() {
    let target = Target::find("sm_90a").expect("a built-in target");
    let f16 = |c: Conv2d| Workload::f32(Conv2d { layout: ConvLayout::Nhwc, ..c }).with_dtype(DType::F16);
    for (w, config) in [
        // Two elements beyond the last whole patch of a row of 96, and rows that 4 does not divide.
        (Workload::f32(square(64, 256, 96, 5, 1)), config([8, 4], 1, 4, 128)),
        (Workload::f32(square(64, 250, 75, 5, 1)), config([4, 4], 1, 4, 128)),
        (f16(square(64, 64, 112, 3, 2)), config([16, 2], 4, 8, 128)),
        (f16(square(64, 512, 14, 3, 1)), config([4, 8], 4, 1, 256)),
    ] {
        let parsed = Config::parse(&config).expect("a config");
        let made = DepthwiseDirect.schedule(&w, target, &parsed).expect("it is in the space");
        if let Err(faults) = verify(made.schedule.kernel, &target.limits()) {
            panic!("{} with {config}: {}", w.key(), faults[0]);
        }
    }
}

#[test]
fn what_it_is_not_for_is_refused() {
    let target = Target::find("sm_90a").expect("a built-in target");
    let refuses = |c: Conv2d| DepthwiseDirect.applies(&Workload::f32(c), target).expect_err("it does not apply");
    assert_eq!(refuses(Conv2d::nchw(1, 8, 8, 8, 8, 3, 1, 1)), "for depthwise convolutions");
    assert_eq!(refuses(Conv2d { layout: ConvLayout::Hwcn, ..square(1, 8, 8, 3, 1) }), "for NCHW and NHWC");
    let several = Conv2d { layout: ConvLayout::Nhwc, ..square(1, 8, 8, 3, 1).depthwise(2) };
    assert_eq!(refuses(several), "for one output channel an input channel in NHWC");
    assert_eq!(refuses(square(1, 8, 40, 31, 1)), "the taps of a 31 x 31 kernel do not fit in registers");
}
