//! Products of warps with a ring of asynchronous copies, case by case: what the interpreter computes stays within the
//! derived bound of the `f64` reference, whatever the order of storage, stride, padding, tails and parts of the reduction.

use crate::checked;
use kernel_gen::ir::DType;
use kernel_gen::templates::cuda::mma::{MmaConv2d, MmaGemm};
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Matmul, Workload};

const EPILOGUE: [Epilogue; 3] = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];

fn conv(c: Conv2d, epilogue: &[Epilogue]) -> Workload {
    Workload::f32(Conv2d { layout: ConvLayout::Nhwc, ..c }).with_epilogue(epilogue).with_dtype(DType::F16)
}

/// Tile, warps, stages, parts and how they meet, and how sums are stored.
fn config(tile: [i64; 3], warps: [i64; 2], stages: i64, split: (i64, &str), store: &str) -> String {
    let ([m, n, k], [down, across], (split, reduce)) = (tile, warps, split);
    format!(
        "tile_m={m} tile_n={n} tile_k={k} warps_m={down} warps_n={across} stages={stages} split={split} \
         reduce={reduce} group=1 store={store}"
    )
}

#[test]
fn a_padded_convolution_with_tails_in_pixels_and_channels() {
    let w = conv(Conv2d::nchw(2, 32, 7, 5, 40, 3, 1, 1), &EPILOGUE);
    let text = checked::check(&MmaConv2d, &w, "sm_80", &config([64, 64, 32], [2, 2], 3, (1, "launch"), "rows"));
    for part in ["cp_async_16(", "mma_ldmatrix(", "mma_ldmatrix_transposed(", "mma_m16n8k16_f16("] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // The barriers behind the waits keep the ring in order alone: before the first step, and in each.
    assert_eq!(text.matches("__syncthreads();").count(), 2, "{text}");
    checked::check(&MmaConv2d, &w, "sm_89", &config([32, 32, 16], [1, 2], 4, (1, "launch"), "direct"));
}

#[test]
fn taps_change_within_a_step_where_channels_are_few() {
    let w = conv(Conv2d::nchw(1, 12, 9, 6, 17, 3, 2, 1), &[Epilogue::Bias]);
    let text = checked::check(&MmaConv2d, &w, "sm_80", &config([32, 32, 32], [2, 1], 2, (1, "launch"), "rows"));
    assert!(text.contains("cp_async_8("), "{text}");
    let distant = Conv2d { dilation: [2, 3], ..Conv2d::nchw(1, 6, 12, 14, 16, 3, 1, 2) };
    checked::check(
        &MmaConv2d,
        &conv(distant, &EPILOGUE),
        "sm_90",
        &config([32, 32, 16], [1, 1], 3, (1, "launch"), "direct"),
    );
}

#[test]
fn parts_of_a_reduction_meet_in_a_cluster_or_in_another_launch() {
    let w = conv(Conv2d::nchw(1, 32, 5, 6, 40, 3, 1, 1), &EPILOGUE);
    let text = checked::check(&MmaConv2d, &w, "sm_90", &config([32, 32, 16], [2, 1], 3, (4, "cluster"), "direct"));
    assert!(text.contains("store_at("), "{text}");
    let text = checked::check(&MmaConv2d, &w, "sm_80", &config([32, 32, 16], [1, 2], 3, (4, "launch"), "direct"));
    assert!(text.contains("kernel_1("), "{text}");
    // Neither channels nor parts divide the steps.
    let w = conv(Conv2d::nchw(1, 40, 5, 6, 40, 3, 1, 1), &EPILOGUE);
    checked::check(&MmaConv2d, &w, "sm_80", &config([32, 32, 16], [1, 1], 2, (8, "launch"), "direct"));
    checked::check(&MmaConv2d, &w, "sm_90", &config([32, 32, 16], [1, 1], 2, (8, "cluster"), "direct"));
}

#[test]
fn products_in_all_four_orders_of_storage() {
    for (trans_a, trans_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let m = Matmul { trans_a, trans_b, ..Matmul::new(72, 40, 56) };
        let w = Workload::f32(m).with_epilogue(&[Epilogue::Bias, Epilogue::Gelu]).with_dtype(DType::Bf16);
        checked::check(&MmaGemm, &w, "sm_80", &config([64, 32, 32], [2, 1], 2, (1, "launch"), "rows"));
        checked::check(&MmaGemm, &w, "sm_90", &config([32, 32, 16], [1, 2], 2, (2, "cluster"), "direct"));
    }
}

/// Rows of sums that another launch adds up are padded: pairs of 13 columns are stored where there are 14.
#[test]
fn odd_numbers_of_columns() {
    let m = Matmul { trans_a: true, trans_b: true, ..Matmul::new(46, 13, 94) };
    let w = Workload::f32(m).with_epilogue(&[Epilogue::Bias]).with_dtype(DType::Bf16);
    checked::check(&MmaGemm, &w, "sm_86", &config([64, 32, 16], [1, 1], 3, (2, "launch"), "direct"));
    checked::check(&MmaGemm, &w, "sm_90", &config([32, 32, 16], [1, 1], 3, (2, "cluster"), "direct"));
    checked::check(&MmaGemm, &w, "sm_86", &config([32, 32, 32], [2, 1], 2, (1, "launch"), "rows"));
}

#[test]
fn batches_of_products_with_short_rows() {
    let m = Matmul { batch: 3, ..Matmul::new(33, 20, 34) };
    let w = Workload { out_dtype: DType::F32, ..Workload::f32(m).with_dtype(DType::F16) };
    let text = checked::check(&MmaGemm, &w, "sm_80", &config([32, 32, 16], [1, 1], 2, (1, "launch"), "rows"));
    assert!(text.contains("cp_async_4(") && text.contains("cp_async_8("), "{text}");
    checked::check(&MmaGemm, &w, "sm_80", &config([32, 32, 16], [2, 1], 2, (2, "launch"), "direct"));
}
