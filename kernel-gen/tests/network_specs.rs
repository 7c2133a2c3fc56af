//! The specs of known networks hold what the networks compute.

use kernel_gen::spec::Spec;
use kernel_gen::workload::{Op, Role};
use std::path::Path;

fn load(name: &str) -> Spec {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs").join(name);
    Spec::load(&path).unwrap_or_else(|faults| panic!("{}", faults[0]))
}

/// Multiply-adds of a workload, given how often the network runs it.
fn macs(spec: &Spec, times: &dyn Fn(&str) -> i64) -> i64 {
    spec.workloads().map(|(_, w)| w.workload.macs() * times(w.name.as_deref().expect("all are named"))).sum()
}

#[test]
fn resnet18_has_the_published_amount_of_work() {
    let spec = load("resnet18.toml");
    assert_eq!(spec.workloads().count(), 8 + 4 + 3 + 1);
    // Blocks that keep their shape run twice in layer 1 and once elsewhere; every second convolution runs twice.
    let times = |name: &str| match name {
        "layer1_conv1" => 2,
        n if n.ends_with("conv2") => 2,
        _ => 1,
    };
    // 1.81 G multiply-adds (He et al., table 1: 1.8 x 10^9 FLOPs, a multiply-add counted as one).
    let total = macs(&spec, &times);
    assert!((1_810_000_000..1_820_000_000).contains(&total), "{total}");
    // 11.69 million parameters, batch normalisations folded.
    let parameters: i64 = spec
        .workloads()
        .map(|(_, w)| {
            let own: i64 = w
                .workload
                .params()
                .iter()
                .filter(|p| matches!(p.role, Role::Weight | Role::Bias))
                .map(|p| p.elements())
                .sum();
            own * times(w.name.as_deref().expect("all are named"))
        })
        .sum();
    assert!((11_680_000..11_700_000).contains(&parameters), "{parameters}");
}

#[test]
fn mobilenet_v1_has_the_published_amount_of_work() {
    let spec = load("mobilenet_v1.toml");
    // The block of 512 channels at 14x14 runs five times.
    let times = |name: &str| if ["pointwise_512_512", "depthwise_512"].contains(&name) { 5 } else { 1 };
    // 569 M multiply-adds (Howard et al., table 8).
    let total = macs(&spec, &times);
    assert!((568_000_000..570_000_000).contains(&total), "{total}");
    let depthwise = spec.workloads().filter(|(_, w)| w.workload.conv2d().is_some_and(|c| c.is_depthwise())).count();
    assert_eq!(depthwise, 9);
}

#[test]
fn the_products_parse() {
    let spec = load("matmul.toml");
    let scores = spec.find("scores").expect("declared");
    assert!(matches!(scores.op, Op::Matmul(m) if m.batch == 12 && m.trans_b && m.k == 64 && m.n == 128));
    assert_eq!(scores.key(), "batch_matmul-f32-b12m128n128k64-nt");
}
