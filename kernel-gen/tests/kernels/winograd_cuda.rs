//! Winograd convolutions of CUDA, knob by knob: what the interpreter computes stays within the derived bound of the `f64`
//! reference, whatever does not divide what.

use crate::checked;
use crate::structure;
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cuda::winograd::WinogradConv2d;
use kernel_gen::templates::cuda::winograd::fused::WinogradFused;
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Math, Workload};

const EPILOGUE: [Epilogue; 3] = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];

fn config(m: i64, rounds: i64, block: [i64; 2], own: [i64; 2], step: i64, stages: i64) -> String {
    let ([channels, tiles], [own_channels, own_tiles]) = (block, own);
    format!(
        "m={m} rounds={rounds} block_channels={channels} block_tiles={tiles} own_channels={own_channels} own_tiles={own_tiles} \
         step={step} stages={stages}"
    )
}

fn check(workload: &Workload, target: &str, config: &str) -> String {
    checked::check(&WinogradConv2d, workload, target, config)
}

#[test]
fn odd_maps_and_channels_fill_neither_tiles_nor_blocks() {
    let w = Workload::f32(Conv2d::nchw(4, 11, 9, 7, 37, 3, 1, 1)).with_epilogue(&EPILOGUE);
    let text = check(&w, "sm_80", &config(4, 1, [32, 32], [4, 4], 8, 2));
    assert_eq!(text.matches("__global__").count(), 3, "{text}");
    check(&w, "sm_90a", &config(2, 2, [32, 64], [4, 8], 8, 2));
}

#[test]
fn any_padding_below_three() {
    for (padding, m) in [(0, 4), (2, 2), (2, 4)] {
        let w = Workload::f32(Conv2d::nchw(1, 8, 10, 13, 32, 3, 1, padding));
        check(&w, "sm_90a", &config(m, 1, [32, 32], [4, 4], 8, 2));
    }
    let uneven = Conv2d { padding: [2, 0, 1, 2], ..Conv2d::nchw(1, 9, 8, 8, 33, 3, 1, 0) };
    check(&Workload::f32(uneven), "sm_80", &config(4, 1, [32, 32], [4, 4], 8, 2));
}

#[test]
fn rings_turn_and_threads_have_several_vectors() {
    let w = Workload::f32(Conv2d::nchw(12, 40, 8, 8, 64, 3, 1, 1)).with_epilogue(&[Epilogue::Bias, Epilogue::Relu6]);
    let three = config(4, 1, [64, 64], [8, 8], 8, 3);
    check(&w, "sm_90a", &three);
    let kernel = structure::lowered(&WinogradConv2d, &w, "sm_90a", &three);
    // Of a ring of three, two steps are under way before the first; each step waits for its own alone, and the one that is
    // begun in it comes while it is multiplied.
    let copies = "copy weights, copy pixels, commit";
    let order = format!("{copies}, {copies}, loop, wait 1, barrier, {copies}, sum sum, end, store y");
    assert_eq!(structure::order(&kernel).join(", "), order);
    let vectors = structure::vectors(&kernel);
    for access in ["load weights x4", "load pixels x4", "store products x4", "store y x4"] {
        assert!(vectors.contains(access), "{access}: {vectors:?}");
    }
    assert!(vectors.iter().all(|v| v.ends_with(" x4")), "{vectors:?}");
    check(&w, "sm_90a", &config(2, 2, [64, 64], [8, 8], 16, 2));
    check(&w, "sm_80", &config(2, 4, [32, 64], [8, 4], 8, 4));
}

#[test]
fn classes_that_are_local_have_no_tiles() {
    let w = Workload::f32(Conv2d::nchw(1, 16, 6, 6, 32, 3, 1, 1));
    check(&w, "sm_90a", &config(2, 1, [32, 32], [4, 4], 16, 2));
    let target = Target::find("sm_90a").expect("a built-in target");
    for math in [Math::Strict, Math::Local] {
        let local = Workload { math, ..w.clone() };
        let config = Config::parse(&config(2, 1, [32, 32], [4, 4], 8, 2)).expect("a config");
        let error = WinogradConv2d.schedule(&local, target, &config).expect_err("it is not local").to_string();
        assert!(error.contains("depends on operands of its neighbours"), "{error}");
        assert_eq!(WinogradFused.applies(&local, target), Err(error));
    }
}

#[test]
fn what_it_does_not_take_is_said() {
    let target = Target::find("sm_90a").expect("a built-in target");
    let c = Conv2d::nchw(8, 64, 14, 14, 64, 3, 1, 1);
    let refused = |c: Conv2d| WinogradConv2d.applies(&Workload::f32(c), target).expect_err("it is refused");
    assert_eq!(
        refused(Conv2d { dilation: [2, 2], padding: [2; 4], ..c }),
        "dilated taps do not overlap as minimal filtering needs them to"
    );
    assert_eq!(refused(Conv2d { groups: 2, ..c }), "for one group: with several there are too few channels to add up");
    assert_eq!(refused(Conv2d { padding: [3; 4], ..c }), "for less padding than taps");
    assert_eq!(refused(Conv2d { layout: ConvLayout::Nhwc, ..c }), "for NCHW, not NHWC");
    assert_eq!(refused(Conv2d::nchw(8, 64, 14, 14, 64, 3, 2, 1)), "for 3x3 filters with stride 1");
    let old = Target::find("sm_75").expect("a built-in target");
    assert_eq!(WinogradConv2d.applies(&Workload::f32(c), old).expect_err("no cp.async"), "needs cp.async (sm_80)");
}
