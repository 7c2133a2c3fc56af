//! Products whose rows go straight to the registers, case by case: what the interpreter computes stays within the derived
//! bound of the `f64` reference, whatever the number of rows, terms and columns.

use crate::checked;
use crate::structure;
use kernel_gen::analysis::dependency::read_early;
use kernel_gen::ir::DType;
use kernel_gen::lower::overlap_launches::overlap_launches;
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cuda::pointwise::PointwiseRows;
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Matmul, Workload};

fn check(workload: &Workload, target: &str, config: &str) -> String {
    checked::check(&PointwiseRows, workload, target, config)
}

fn conv(n: i64, ci: i64, side: [i64; 2], co: i64) -> Workload {
    let c = Conv2d { w: side[1], layout: ConvLayout::Nhwc, ..Conv2d::nchw(n, ci, side[0], side[0], co, 1, 1, 0) };
    Workload::f32(c).with_dtype(DType::F16)
}

const EPILOGUE: [Epilogue; 3] = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];

#[test]
fn rows_are_loaded_sixteen_bytes_a_lane() {
    let w = conv(2, 64, [6, 8], 16).with_epilogue(&EPILOGUE);
    let text = check(&w, "sm_90a", "bn=16 warps=1 resident=1 ahead=0 store=direct");
    // Two chunks of two times eight rows, none of which needs a question, beside the function itself.
    assert_eq!(text.matches("mma_load_row(&left[").count(), 4, "{text}");
    assert!(text.lines().filter(|l| l.contains("mma_load_row(&left[")).all(|l| l.ends_with(", true);")), "{text}");
    check(&w, "sm_80", "bn=16 warps=1 resident=1 ahead=0 store=rows");
}

#[test]
fn rows_and_columns_that_do_not_fill_their_tiles() {
    let w = conv(3, 72, [5, 7], 26).with_epilogue(&EPILOGUE);
    check(&w, "sm_90a", "bn=16 warps=1 resident=1 ahead=0 store=direct");
    check(&w, "sm_90a", "bn=32 warps=1 resident=1 ahead=0 store=rows");
    // An odd number of columns has no pairs.
    let w = conv(1, 8, [5, 7], 19).with_epilogue(&[Epilogue::Bias]);
    check(&w, "sm_90a", "bn=32 warps=1 resident=1 ahead=0 store=rows");
    let space = PointwiseRows.space(&w, Target::find("sm_90a").unwrap()).unwrap();
    assert!((0..space.range_len()).filter_map(|i| space.get(i)).all(|c| c.str("store") == Ok("rows")));
}

#[test]
fn the_next_tile_comes_while_this_one_is_multiplied() {
    // 132 blocks of two warps have 264 of the 324 tiles at once; in the next turn all blocks have one or none.
    let w = conv(1, 40, [71, 73], 16).with_epilogue(&[Epilogue::Relu]);
    let [ahead, behind] =
        ["bn=16 warps=2 resident=1 ahead=1 store=direct", "bn=16 warps=2 resident=1 ahead=0 store=rows"];
    check(&w, "sm_90a", ahead);
    check(&w, "sm_90a", behind);
    let turn = |config: &str| {
        let order = structure::order(&structure::lowered(&PointwiseRows, &w, "sm_90a", config));
        // The turns are behind the barrier that the weights wait at.
        let first = order.iter().position(|event| event == "barrier").expect("weights are shared") + 1;
        order[first..].join(", ")
    };
    // Each of two chunks comes as soon as the one that it goes over was multiplied.
    let stores = "loop, store y, end, loop, store y, end";
    assert_eq!(turn(ahead), format!("loop, mma sums, rows left, mma sums, rows left, {stores}, end"));
    // Or all of them behind the stores.
    assert_eq!(turn(behind), "loop, mma sums, barrier, store y, barrier, rows left, end");
    // Outputs leave in pairs from the registers, and 16 bytes at a time from shared memory.
    let stored = |config: &str| {
        let vectors = structure::vectors(&structure::lowered(&PointwiseRows, &w, "sm_90a", config));
        vectors.into_iter().filter(|v| v.starts_with("store y ")).collect::<Vec<_>>()
    };
    assert_eq!([stored(ahead), stored(behind)], [["store y x2"], ["store y x8"]]);
}

#[test]
fn matrices_and_bf16() {
    for trans_b in [false, true] {
        let m = Matmul { trans_b, ..Matmul::new(50, 30, 48) };
        let w = Workload::f32(m).with_dtype(DType::Bf16).with_epilogue(&[Epilogue::Bias]);
        check(&w, "sm_90a", "bn=32 warps=1 resident=1 ahead=0 store=direct");
        let w = Workload { out_dtype: DType::F32, ..w };
        check(&w, "sm_90a", "bn=16 warps=1 resident=1 ahead=0 store=rows");
    }
}

#[test]
fn what_it_is_not_for_is_refused_in_words() {
    let target = Target::find("sm_90a").unwrap();
    let reason = |w: &Workload| PointwiseRows.applies(w, target).unwrap_err();
    let strided = Conv2d { layout: ConvLayout::Nhwc, ..Conv2d::nchw(1, 64, 8, 8, 16, 1, 2, 0) };
    assert!(reason(&Workload::f32(strided).with_dtype(DType::F16)).contains("without stride"));
    assert!(reason(&conv(1, 60, [8, 8], 16)).contains("no whole pieces of 16 bytes"));
    assert!(reason(&conv(1, 64, [8, 8], 512)).contains("at most 192 columns"));
    assert!(reason(&Workload::f32(Matmul::new(64, 64, 64))).contains("f16 and bf16"));
    assert!(
        reason(&Workload::f32(Matmul { trans_a: true, ..Matmul::new(64, 64, 64) }).with_dtype(DType::F16))
            .contains("along the reduction")
    );
}

#[test]
fn large_outputs_can_be_shown_to_be_written() {
    let target = Target::find("sm_90a").unwrap();
    let w = |co: i64| conv(64, 192, [35, 35], co).with_epilogue(&[Epilogue::Bias]);
    // Lanes share out rows of 2, 4, 6, 8, 10 and 12 pieces.
    for (w, config) in [
        (w(64), "bn=16 warps=2 resident=2 ahead=0 store=rows"),
        (w(64), "bn=32 warps=8 resident=1 ahead=0 store=rows"),
        (w(96), "bn=48 warps=8 resident=1 ahead=0 store=rows"),
        (w(64), "bn=64 warps=8 resident=1 ahead=1 store=rows"),
        (w(80), "bn=80 warps=8 resident=1 ahead=0 store=rows"),
        (w(96), "bn=96 warps=8 resident=1 ahead=1 store=rows"),
    ] {
        let scheduled = PointwiseRows.schedule(&w, target, &Config::parse(config).unwrap()).unwrap();
        checked::lowered(scheduled.schedule.kernel, target);
    }
}

#[test]
fn rows_wait_for_the_launch_in_front_and_weights_do_not() {
    let target = Target::find("sm_90a").unwrap();
    let config = Config::parse("bn=16 warps=1 resident=1 ahead=0 store=direct").unwrap();
    let scheduled = PointwiseRows.schedule(&conv(2, 64, [6, 8], 16), target, &config).unwrap();
    let (_, lowered) = checked::lowered(scheduled.schedule.kernel, target);
    let lowered = overlap_launches(lowered, &[1], 132, 1);
    let order = structure::order(lowered.kernel());
    let places = |what: &str| (0..order.len()).filter(|at| order[*at] == what).collect::<Vec<_>>();
    let [copies, waits, rows] = ["copy weights", "dependency wait", "rows left"].map(places);
    assert_eq!(waits.len(), 1, "{order:?}");
    assert!(!copies.is_empty() && copies.iter().all(|at| *at < waits[0]), "{order:?}");
    assert!(!rows.is_empty() && rows.iter().all(|at| *at > waits[0]), "{order:?}");
    assert_eq!(read_early(lowered.kernel(), &lowered.kernel().body[0]), Ok(Some(vec![1])));
}
