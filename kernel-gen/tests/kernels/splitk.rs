//! The split reduction of small convolutions, knob by knob: what the interpreter computes stays within the derived bound
//! of the `f64` reference, whatever is split how.

use crate::checked;
use kernel_gen::ir::DType;
use kernel_gen::templates::cuda::splitk::SplitkDirect;
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Workload};

const F32: [DType; 2] = [DType::F32; 2];

fn check(c: Conv2d, epilogue: &[Epilogue], target: &str, config: &str) -> String {
    check_as(c, F32, epilogue, target, config)
}

/// With elements of other types, those that are read and those that are written.
fn check_as(c: Conv2d, types: [DType; 2], epilogue: &[Epilogue], target: &str, config: &str) -> String {
    let [dtype, out_dtype] = types;
    let workload = Workload { dtype, out_dtype, ..Workload::f32(c).with_epilogue(epilogue) };
    checked::check(&SplitkDirect, &workload, target, config)
}

fn config(tile: [i64; 2], lanes: i64, channels: i64, warps: i64, cluster: i64, step: i64, stages: i64) -> String {
    let [h, w] = tile;
    format!(
        "tile_h={h} tile_w={w} lanes={lanes} channels={channels} warps={warps} cluster={cluster} step={step} stages={stages}"
    )
}

const EPILOGUE: [Epilogue; 3] = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];

#[test]
fn a_whole_map_is_reduced_by_a_cluster() {
    let c = Conv2d::nchw(1, 32, 7, 7, 40, 3, 1, 1);
    let text = check(c, &EPILOGUE, "sm_90a", &config([7, 7], 32, 1, 4, 4, 1, 2));
    assert!(text.contains("store_at(") && text.contains("__cluster_dims__(4, 1, 1)"), "{text}");
    // Sums are declared, cleared, and stored; of the 441 products of a channel those with the padding are left out.
    assert_eq!(text.matches("acc_").count(), 49 + 49 + 361 + 49, "{text}");
}

#[test]
fn rings_turn_where_the_reduction_is_longer() {
    check(Conv2d::nchw(1, 24, 5, 5, 32, 3, 1, 1), &[], "sm_90a", &config([5, 4], 32, 1, 2, 2, 1, 3));
    check(Conv2d::nchw(1, 24, 5, 5, 32, 3, 1, 1), &[], "sm_80", &config([5, 4], 32, 1, 2, 1, 2, 2));
}

#[test]
fn tiles_need_not_divide_the_map_nor_warps_the_channels() {
    check(Conv2d::nchw(2, 13, 9, 10, 70, 3, 1, 1), &EPILOGUE, "sm_90a", &config([4, 4], 32, 2, 2, 2, 1, 2));
    check(Conv2d::nchw(1, 7, 9, 6, 33, 1, 2, 0), &EPILOGUE, "sm_80", &config([2, 2], 8, 4, 1, 1, 1, 1));
}

#[test]
fn a_tile_with_all_columns_fetches_one_run_of_pixels() {
    // The whole map has no padding to ask about: 49 pixels of each of four groups, in seven rounds.
    let text = check(Conv2d::nchw(1, 32, 7, 7, 16, 3, 1, 1), &EPILOGUE, "sm_90a", &config([7, 7], 8, 1, 2, 2, 1, 2));
    assert!(text.contains("+ lane + 192, lane < 4);"), "{text}");
    // Some of its rows: those above and below the map are zeros. Four, two and one pixels at a time.
    let rows = |w: i64, tile: i64| {
        let c = Conv2d::nchw(1, 16, w, w, 20, 3, 1, 1);
        check(c, &EPILOGUE, "sm_80", &config([tile, w], 16, 1, 2, 1, 2, 2))
    };
    assert!(rows(8, 4).contains("cp_async_16(pixels"));
    assert!(rows(14, 2).contains("cp_async_8(pixels"));
    assert!(rows(7, 4).contains("cp_async_4(pixels"));
    // Strides, unequal padding and dilation, and maps that tiles have all rows of but not all columns.
    check(Conv2d::nchw(2, 24, 14, 14, 32, 3, 2, 1), &EPILOGUE, "sm_90a", &config([4, 7], 8, 2, 2, 1, 1, 2));
    check(Conv2d::nchw(1, 24, 14, 14, 32, 1, 2, 0), &[], "sm_80", &config([2, 7], 8, 2, 2, 1, 1, 1));
    let c = Conv2d { dilation: [1, 2], padding: [1, 3, 2, 1], ..Conv2d::nchw(1, 8, 4, 8, 20, 3, 1, 0) };
    check(c, &EPILOGUE, "sm_80", &config([5, 8], 16, 1, 2, 1, 1, 2));
    check(c, &EPILOGUE, "sm_80", &config([2, 8], 16, 1, 2, 1, 1, 2));
    check(c, &EPILOGUE, "sm_80", &config([5, 4], 16, 1, 2, 1, 1, 2));
}

#[test]
fn parts_of_rows_come_several_pixels_at_a_time_where_they_are_aligned() {
    let c = Conv2d::nchw(1, 16, 12, 12, 20, 3, 1, 1);
    // Two, since with four a row of six begins so far ahead that it takes another load from shared memory.
    let text = check(c, &EPILOGUE, "sm_80", &config([4, 4], 8, 1, 2, 1, 1, 2));
    assert!(text.contains("cp_async_8(pixels"), "{text}");
    let c = Conv2d::nchw(1, 32, 12, 12, 20, 1, 1, 0);
    let text = check(c, &EPILOGUE, "sm_80", &config([4, 4], 4, 1, 2, 1, 1, 2));
    assert!(text.contains("cp_async_16(pixels"), "{text}");
    // A row of 13 begins anywhere.
    let text = check(Conv2d { w: 13, ..c }, &EPILOGUE, "sm_80", &config([4, 4], 8, 1, 2, 1, 1, 2));
    assert!(text.contains("cp_async_4(pixels"), "{text}");
}

#[test]
fn groups_of_lanes_split_the_reduction_too() {
    let c = Conv2d::nchw(1, 40, 7, 7, 20, 3, 1, 1);
    check(c, &EPILOGUE, "sm_90a", &config([7, 7], 8, 1, 2, 2, 1, 1));
    check(c, &EPILOGUE, "sm_80", &config([4, 7], 4, 2, 2, 1, 1, 2));
    check(Conv2d::nchw(1, 19, 6, 6, 16, 1, 1, 0), &[], "sm_90a", &config([2, 4], 8, 2, 1, 4, 1, 2));
}

fn dilated() -> Conv2d {
    Conv2d { dilation: [2, 3], padding: [2, 3, 1, 2], stride: [1, 2], ..Conv2d::nchw(1, 6, 11, 12, 32, 3, 1, 0) }
}

#[test]
fn strides_and_dilation_skip_pixels() {
    check(Conv2d::nchw(1, 8, 14, 14, 32, 3, 2, 1), &[Epilogue::Relu6], "sm_90a", &config([7, 7], 32, 1, 2, 2, 2, 1));
    check(dilated(), &[Epilogue::Scale], "sm_90a", &config([4, 2], 32, 1, 2, 1, 1, 2));
}

/// Whole maps and clusters, steps of several channels, groups of lanes, and rings that turn, where tiles, warps and channels
/// divide nothing, with an epilogue for these; the source of the first.
fn check_layout(layout: ConvLayout, types: [DType; 2], last: &[Epilogue]) -> String {
    let check = |c: Conv2d, epilogue: &[Epilogue], config: &str| {
        check_as(Conv2d { layout, ..c }, types, epilogue, "sm_90a", config)
    };
    let text = check(Conv2d::nchw(1, 32, 7, 7, 40, 3, 1, 1), &EPILOGUE, &config([7, 7], 32, 1, 2, 4, 2, 2));
    check(Conv2d::nchw(2, 37, 7, 6, 20, 3, 1, 1), &EPILOGUE, &config([4, 4], 8, 2, 2, 2, 2, 1));
    check(Conv2d::nchw(3, 43, 9, 10, 70, 3, 1, 1), last, &config([4, 4], 32, 2, 2, 2, 2, 3));
    text
}

#[test]
fn channels_that_are_neighbours_come_side_by_side() {
    for layout in [ConvLayout::Nhwc, ConvLayout::Hwcn] {
        let text = check_layout(layout, F32, &EPILOGUE);
        assert!(text.contains("cp.async") && text.contains("__cluster_dims__(4, 1, 1)"), "{text}");
        let check = |c: Conv2d, epilogue: &[Epilogue], target: &str, config: &str| {
            check_as(Conv2d { layout, ..c }, F32, epilogue, target, config)
        };
        let c = Conv2d::nchw(2, 37, 7, 6, 20, 3, 1, 1);
        check(c, &[Epilogue::Scale], "sm_80", &config([5, 4], 4, 4, 1, 1, 1, 2));
        // Strides, dilation, unequal padding; few channels; steps of many.
        check(dilated(), &[Epilogue::Relu6], "sm_90a", &config([4, 2], 32, 1, 2, 1, 1, 2));
        check(Conv2d::nchw(1, 3, 20, 20, 33, 7, 2, 3), &EPILOGUE, "sm_80", &config([2, 4], 16, 2, 1, 1, 1, 1));
        check(Conv2d::nchw(1, 64, 5, 5, 24, 1, 1, 0), &EPILOGUE, "sm_90a", &config([5, 2], 8, 1, 2, 1, 4, 2));
    }
}

#[test]
fn elements_of_16_bits_come_by_way_of_registers() {
    for (layout, types) in [
        (ConvLayout::Nchw, [DType::F16; 2]),
        (ConvLayout::Nhwc, [DType::Bf16; 2]),
        (ConvLayout::Hwcn, [DType::F16, DType::F32]),
    ] {
        // What is loaded behind the last step, too.
        let text = check_layout(layout, types, &[Epilogue::Gelu]);
        // The sums are of f32, so are the weights as they are packed.
        assert!(text.contains("float acc_") && text.contains("const float *__restrict__ w,"), "{text}");
        let c = Conv2d { layout, ..Conv2d::nchw(1, 24, 11, 12, 32, 3, 2, 1) };
        check_as(c, types, &EPILOGUE, "sm_80", &config([2, 2], 16, 1, 2, 1, 1, 4));
    }
}
