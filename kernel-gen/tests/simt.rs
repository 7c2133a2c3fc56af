//! Products of `f32` without tensor cores, case by case: what the interpreter computes stays within the derived bound of the
//! `f64` reference, whatever the order of storage, tails and parts of the reduction.

mod checked;

use kernel_gen::templates::cuda::simt::{SimtConv2d, SimtGemm};
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Math, Matmul, Workload};

fn product(m: Matmul, epilogue: &[Epilogue]) -> Workload {
    Workload { math: Math::Strict, ..Workload::f32(m).with_epilogue(epilogue) }
}

/// Tile and step, a thread's rows and columns, stages, and parts of the reduction.
fn config(tile: [i64; 3], own: [i64; 2], stages: i64, split: i64) -> String {
    let ([m, n, k], [own_m, own_n]) = (tile, own);
    format!("tile_m={m} tile_n={n} tile_k={k} own_m={own_m} own_n={own_n} stages={stages} split={split} group=1")
}

#[test]
fn products_in_all_four_orders_of_storage() {
    for (trans_a, trans_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let m = Matmul { trans_a, trans_b, ..Matmul::new(72, 68, 24) };
        let w = product(m, &[Epilogue::Bias, Epilogue::Gelu]);
        let text = checked::check(&SimtGemm, &w, "sm_80", &config([64, 64, 8], [8, 4], 2, 1));
        assert_eq!(text.contains("cp_async_16("), trans_a || !trans_b, "{text}");
        // The barriers behind the waits keep the ring in order alone: before the first step, and in each.
        assert_eq!(text.matches("__syncthreads();").count(), 2, "{text}");
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

fn conv(c: Conv2d) -> Workload {
    let epilogue = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];
    let c = Conv2d { layout: ConvLayout::Hwcn, ..c };
    Workload { math: Math::Strict, ..Workload::f32(c).with_epilogue(&epilogue) }
}

#[test]
fn taps_in_the_padding_are_left_out() {
    let w = conv(Conv2d::nchw(32, 8, 5, 4, 32, 3, 1, 1));
    let text = checked::check(&SimtConv2d, &w, "sm_80", &config([32, 32, 8], [4, 4], 2, 1));
    assert!(text.contains("rows_met"), "{text}");
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
