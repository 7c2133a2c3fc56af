//! First layers on tensor cores, case by case: what the interpreter computes stays within the derived bound of the `f64`
//! reference, whatever layout, stride, padding and number of channels.

use crate::checked;
use kernel_gen::ir::DType;
use kernel_gen::templates::cuda::stem::Conv2dStem;
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Workload};

fn check(workload: &Workload, target: &str, config: &str) -> String {
    checked::check(&Conv2dStem, workload, target, config)
}

fn f16(c: Conv2d, layout: ConvLayout, epilogue: &[Epilogue]) -> Workload {
    Workload::f32(Conv2d { layout, ..c }).with_epilogue(epilogue).with_dtype(DType::F16)
}

fn config(tile: [i64; 2], rows: i64, columns: i64, across: i64, store: &str) -> String {
    let [h, w] = tile;
    format!("tile_h={h} tile_w={w} rows={rows} columns={columns} across={across} store={store}")
}

const EPILOGUE: [Epilogue; 3] = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];

#[test]
fn a_seven_by_seven_stem_in_channels_last() {
    let w = f16(Conv2d::nchw(2, 3, 17, 37, 24, 7, 2, 3), ConvLayout::Nhwc, &EPILOGUE);
    let text = check(&w, "sm_90a", &config([4, 1], 2, 2, 1, "rows"));
    // Two pixels of four channels a cell, halves of a left operand from overlapping rows.
    assert!(text.contains("mma_ldmatrix_half(left") && text.contains("mma_m16n8k16_f16("), "{text}");
    // Rows of 37 * 3 elements have no words; of 38 * 3 they do, and cells take up two elements at a time.
    let words = |text: &str| text.matches("*(const unsigned *)(x + ").count();
    assert_eq!(words(&text), 0, "{text}");
    let w = f16(Conv2d::nchw(2, 3, 17, 38, 24, 7, 2, 3), ConvLayout::Nhwc, &EPILOGUE);
    let text = check(&w, "sm_90a", &config([4, 1], 2, 2, 1, "rows"));
    assert!(words(&text) >= 3 && words(&text) % 3 == 0, "{text}");
    check(&w, "sm_80", &config([3, 2], 1, 1, 2, "direct"));
}

#[test]
fn channels_first_and_odd_output_channels() {
    let w = f16(Conv2d::nchw(1, 3, 9, 20, 19, 3, 1, 1), ConvLayout::Nchw, &EPILOGUE);
    check(&w, "sm_90a", &config([2, 2], 4, 2, 1, "direct"));
    let w = f16(Conv2d::nchw(1, 3, 9, 20, 19, 3, 2, 0), ConvLayout::Nhwc, &[Epilogue::Bias]);
    check(&w, "sm_90a", &config([2, 1], 1, 1, 2, "rows"));
    let w = f16(Conv2d::nchw(1, 3, 9, 20, 18, 3, 2, 0), ConvLayout::Nhwc, &[Epilogue::Bias]);
    check(&w, "sm_90a", &config([2, 1], 1, 1, 2, "direct"));
}

#[test]
fn one_channel_with_a_wide_stride_and_distant_taps() {
    let w = f16(Conv2d::nchw(1, 1, 30, 70, 8, 5, 4, 2), ConvLayout::Nhwc, &[Epilogue::Relu6]);
    check(&w, "sm_90a", &config([2, 1], 1, 1, 1, "rows"));
    let distant = Conv2d { dilation: [2, 3], ..Conv2d::nchw(1, 3, 12, 24, 16, 3, 1, 2) };
    check(&f16(distant, ConvLayout::Nhwc, &EPILOGUE), "sm_90a", &config([2, 2], 2, 1, 1, "rows"));
}

#[test]
fn whole_cells_are_copied_and_parts_of_cells_are_not() {
    for ci in [8, 12, 32] {
        let w = f16(Conv2d::nchw(1, ci, 8, 18, 16, 3, 1, 1), ConvLayout::Nhwc, &[Epilogue::Bias]);
        let text = check(&w, "sm_90a", &config([2, 1], 1, 1, 1, "rows"));
        assert_eq!(text.matches("cp_async_16(").count() - 1, if ci % 8 == 0 { 2 } else { 1 }, "{text}");
    }
}

#[test]
fn f32_results_of_bf16() {
    let c = Conv2d { layout: ConvLayout::Nhwc, ..Conv2d::nchw(1, 3, 8, 18, 16, 3, 2, 1) };
    let w = Workload { out_dtype: DType::F32, ..Workload::f32(c).with_dtype(DType::Bf16) };
    check(&w, "sm_90a", &config([2, 1], 2, 1, 1, "rows"));
}

/// A single output channel is one thread's of a warp, which a condition says once the fragment's loops are gone.
#[test]
fn one_output_channel_and_one_pixel_a_tile() {
    let conv = Conv2d { dilation: [3, 3], kw: 2, ..Conv2d::nchw(5, 9, 16, 2, 1, 3, 1, 1) };
    let w = Workload::f32(conv).with_epilogue(&[Epilogue::Gelu]).with_dtype(DType::Bf16);
    check(&w, "sm_90a", &config([1, 1], 1, 1, 1, "direct"));
}
