//! Products of `f32` in the class `tf32` by the Hopper templates: what the interpreter computes stays within the derived bound
//! of the `f64` reference, for every way of storing, sharing and waiting.

use crate::checked;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cuda::wgmma::{WgmmaConv2d, WgmmaGemm};
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Math, Matmul, Op, Workload};

fn tf32(op: impl Into<Op>, epilogue: &[Epilogue]) -> Workload {
    Workload { math: Math::Tf32, ..Workload::f32(op).with_epilogue(epilogue) }
}

fn config(tile: [i64; 3], stages: i64, cluster: &str, schedule: &str, store: &str, pending: i64) -> String {
    let [consumers, row_blocks, bn] = tile;
    format!(
        "consumers={consumers} row_blocks={row_blocks} bn={bn} stages={stages} group=4 cluster={cluster} \
         schedule={schedule} store={store} pending={pending}"
    )
}

#[test]
fn right_operands_are_turned_around_where_their_reduction_is_slow() {
    for (trans_b, batch) in [(false, 1), (true, 1), (false, 2)] {
        let w = tf32(Matmul { trans_b, batch, ..Matmul::new(72, 68, 44) }, &[Epilogue::Bias, Epilogue::Relu]);
        let config = config([1, 1, 64], 2, "none", "cooperative", "registers", 1);
        let text = checked::check(&WgmmaGemm, &w, "sm_90a", &format!("{config} split=1"));
        assert!(text.contains("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32"), "{text}");
    }
}

#[test]
fn every_way_of_storing_and_sharing() {
    let epilogue = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];
    let w = tf32(Matmul::new(256, 128, 72), &epilogue);
    for (cluster, schedule, store, pending) in [
        ("none", "cooperative", "tma", 0),
        ("none", "pingpong", "tma", 1),
        ("rows", "cooperative", "registers", 0),
        ("columns", "cooperative", "tma", 1),
    ] {
        let config = config([2, 1, 64], 3, cluster, schedule, store, pending);
        checked::check(&WgmmaGemm, &w, "sm_90a", &format!("{config} split=1"));
    }
}

#[test]
fn convolutions() {
    let epilogue = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];
    for (c, bn, tile) in [
        (Conv2d::nchw(2, 36, 7, 7, 68, 3, 1, 1), 64, "tile_h=2 tile_w=8"),
        (Conv2d::nchw(1, 12, 9, 9, 64, 3, 2, 1), 64, "tile_h=4 tile_w=4"),
        (Conv2d::nchw(3, 64, 4, 4, 20, 1, 1, 0), 64, "tile_h=4 tile_w=4"),
        (Conv2d::nchw(5, 40, 5, 4, 96, 2, 1, 1), 96, "tile_h=4 tile_w=4"),
    ] {
        let w = tf32(Conv2d { layout: ConvLayout::Nhwc, ..c }, &epilogue);
        for store in ["registers", "tma"] {
            let config = config([1, 1, bn], 2, "none", "cooperative", store, 1);
            checked::check(&WgmmaConv2d, &w, "sm_90a", &format!("{config} {tile} split=1"));
        }
    }
}

#[test]
fn convolutions_in_parts() {
    let c = Conv2d { layout: ConvLayout::Nhwc, ..Conv2d::nchw(1, 36, 7, 7, 68, 3, 1, 1) };
    let w = tf32(c, &[Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu]);
    let config = config([1, 1, 64], 2, "none", "cooperative", "registers", 1);
    checked::check(&WgmmaConv2d, &w, "sm_90a", &format!("{config} tile_h=8 tile_w=8 split=4"));
}

#[test]
fn pointwise_convolutions_as_products() {
    let epilogue = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];
    let w = tf32(Conv2d { layout: ConvLayout::Nhwc, ..Conv2d::nchw(2, 68, 5, 7, 44, 1, 1, 0) }, &epilogue);
    let whole = config([3, 1, 64], 2, "none", "cooperative", "tma", 0);
    checked::check(&WgmmaGemm, &w, "sm_90a", &format!("{whole} split=1"));
    let in_parts = config([1, 1, 32], 2, "none", "cooperative", "registers", 1);
    checked::check(&WgmmaGemm, &w, "sm_90a", &format!("{in_parts} split=2"));
}

#[test]
fn what_they_refuse() {
    let target = Target::find("sm_90a").expect("a target");
    let why = |w: &Workload| WgmmaGemm.applies(w, target).expect_err("it refuses");
    let m = Matmul::new(64, 64, 64);
    let fp32 = Workload::f32(m);
    assert_eq!(
        why(&fp32),
        "multiplies f16 and bf16, f32 in the class tf32, i8 and u8, and e4m3 and e5m2 in the class fp32, not f32 in fp32"
    );
    let turned = tf32(Matmul { trans_a: true, ..m }, &[]);
    assert_eq!(why(&turned), "the reduction of a left operand in f32 must be its fast dimension");
    assert_eq!(
        why(&tf32(Matmul::new(64, 64, 62), &[])),
        "rows of 62 elements in memory: their number must divide by 4"
    );
    // The taps of the one column of outputs are at -1, 1 and 3, the column of inputs is at 0.
    let beside = Workload::from_key("conv2d-nhwc-f16-n5c24h8w1-o120k3x3-s2x2-p3.1.3.3-d3x2-g1-relu6").expect("a key");
    assert_eq!(WgmmaConv2d.applies(&beside, target).expect_err("it refuses"), "all taps lie in the padding");
}
