//! The split reduction of pairs, knob by knob: what the interpreter computes stays within the derived bound of the `f64`
//! reference, whatever is split how and whatever stands between the two convolutions.

use crate::checked;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cuda::splitk::SplitkPair;
use kernel_gen::workload::{Conv2d, DepthwisePointwise, Epilogue, Matmul, Workload};

const BETWEEN: [Epilogue; 2] = [Epilogue::Bias, Epilogue::Relu6];
const EPILOGUE: [Epilogue; 3] = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];

/// A 3x3 depthwise convolution of so many channels of `size`, and so many output channels behind it.
fn pair(ci: i64, size: [i64; 2], stride: i64, co: i64) -> DepthwisePointwise {
    DepthwisePointwise::new(Conv2d::nchw(1, ci, size[0], size[1], ci, 3, stride, 1), co)
}

fn check(pair: DepthwisePointwise, epilogue: &[Epilogue], target: &str, config: &str) -> String {
    checked::check(&SplitkPair, &Workload::f32(pair).with_epilogue(epilogue), target, config)
}

fn config(tile: [i64; 2], lanes: i64, channels: i64, warps: i64, cluster: i64, step: i64, stages: i64) -> String {
    let [h, w] = tile;
    format!(
        "tile_h={h} tile_w={w} lanes={lanes} channels={channels} warps={warps} cluster={cluster} step={step} stages={stages}"
    )
}

#[test]
fn a_row_of_a_map_is_reduced_by_a_cluster() {
    let pair = pair(32, [6, 14], 1, 40).with_between(&BETWEEN);
    let text = check(pair, &EPILOGUE, "sm_90a", &config([1, 14], 32, 1, 2, 2, 4, 2));
    assert!(text.contains("store_at(") && text.contains("__cluster_dims__(2, 1, 1)"), "{text}");
}

#[test]
fn filters_come_as_wide_as_they_are_aligned() {
    // Of four channels 36 taps, in vectors of four.
    let text = check(pair(32, [5, 8], 1, 16), &[], "sm_80", &config([2, 8], 16, 1, 2, 1, 2, 2));
    assert!(text.contains("filters") && !text.contains("biases"), "{text}");
    assert!(text.contains("cp_async_16(filters"), "{text}");
    // Channels that a step does not divide come tap by tap.
    check(pair(13, [5, 8], 1, 16).with_between(&BETWEEN), &[], "sm_80", &config([2, 8], 32, 1, 2, 1, 2, 2));
    check(pair(10, [5, 8], 1, 16).with_between(&BETWEEN), &[], "sm_80", &config([1, 4], 8, 2, 1, 1, 2, 1));
}

#[test]
fn pixels_come_as_wide_as_rows_and_tiles_are_aligned() {
    for (width, tile, piece) in [(12, 4, 16), (14, 14, 8), (12, 7, 4), (9, 4, 4)] {
        let text = check(pair(8, [4, width], 1, 16), &[], "sm_80", &config([2, tile], 16, 1, 2, 1, 1, 2));
        assert!(text.contains(&format!("cp_async_{piece}(pixels")), "{width} {tile}: {text}");
    }
}

#[test]
fn strides_dilation_and_uneven_padding() {
    check(pair(16, [14, 14], 2, 32).with_between(&BETWEEN), &EPILOGUE, "sm_90a", &config([7, 7], 32, 1, 2, 2, 2, 2));
    let distant =
        Conv2d { dilation: [2, 3], padding: [2, 3, 1, 2], stride: [1, 2], ..pair(6, [11, 12], 1, 1).depthwise };
    let distant = DepthwisePointwise::new(distant, 33).with_between(&[Epilogue::Gelu]);
    check(distant, &[Epilogue::Scale], "sm_90a", &config([4, 2], 32, 1, 2, 1, 1, 2));
    let wide = Conv2d { kh: 5, kw: 4, padding: [2, 2, 2, 1], ..pair(8, [9, 9], 1, 1).depthwise };
    check(DepthwisePointwise::new(wide, 20), &EPILOGUE, "sm_80", &config([3, 7], 16, 2, 1, 1, 2, 2));
}

#[test]
fn tiles_need_not_divide_the_map_nor_warps_the_channels() {
    let images = DepthwisePointwise {
        depthwise: Conv2d { n: 2, ..pair(13, [9, 10], 1, 1).depthwise },
        ..pair(13, [9, 10], 1, 70)
    };
    check(images.with_between(&BETWEEN), &EPILOGUE, "sm_90a", &config([4, 4], 32, 2, 2, 2, 1, 2));
    check(pair(7, [9, 6], 2, 33), &EPILOGUE, "sm_80", &config([2, 2], 8, 4, 1, 1, 1, 1));
    check(pair(24, [5, 5], 1, 8).with_between(&[Epilogue::Bias]), &[], "sm_90a", &config([5, 2], 4, 2, 1, 1, 1, 3));
}

#[test]
fn a_lane_has_two_groups_of_output_channels() {
    let text =
        check(pair(16, [7, 7], 1, 300).with_between(&BETWEEN), &EPILOGUE, "sm_90a", &config([1, 7], 32, 8, 2, 2, 2, 2));
    assert!(text.contains("__cluster_dims__(2, 1, 1)"), "{text}");
    check(pair(8, [4, 4], 2, 250), &[Epilogue::Bias], "sm_80", &config([2, 2], 32, 8, 2, 1, 1, 1));
}

/// Four channels of four columns fill half of the lanes with runs of four rows and all of them with runs of two; seven rows
/// are one run or seven turns.
#[test]
fn lanes_compute_results_below_each_other() {
    for (rows, stride, stores) in [(4, 1, 2), (7, 1, 7), (2, 2, 1), (1, 1, 1)] {
        let text = check(pair(8, [8, 8], stride, 16), &[], "sm_80", &config([rows, 4], 16, 1, 1, 1, 2, 1));
        let stored = text.lines().filter(|line| line.trim_start().starts_with("mid[")).count();
        assert_eq!(stored, stores, "{rows} {stride}: {text}");
    }
}

#[test]
fn what_it_is_not_for_is_refused() {
    let target = Target::find("sm_80").expect("a built-in target");
    let refuses = |w: &Workload, t: &Target| SplitkPair.applies(w, t).expect_err("it does not apply");
    assert_eq!(
        refuses(&Workload::f32(Matmul::new(8, 8, 8)), target),
        "for pairs of a depthwise and a pointwise convolution"
    );
    let old = Target::find("sm_75").expect("a built-in target");
    assert_eq!(refuses(&Workload::f32(pair(8, [8, 8], 1, 8)), old), "needs cp.async (sm_80)");
}
