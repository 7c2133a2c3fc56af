//! `conv_planes` on shapes that random workloads rarely meet, with its default and some other configs.

use crate::cpu_templates::{Way, check};
use kernel_gen::emit::c::Isa;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cpu::conv_planes::ConvPlanes;
use kernel_gen::workload::Workload;

/// Phases with different numbers of taps, or none; pixels that padding cuts off on both sides; strides with and without a divisor
/// in common with the dilation; rows of one vector, and shorter and longer ones; inputs that are read as they are.
const SHAPES: &[&str] = &[
    "conv_transpose2d-f32-n1c6o5-4x4-k4x4-s2x2-p1.1.1.1-d1x1-e0x0-g1-bias.relu",
    "conv_transpose2d-f32-n2c4o7-5x3-k3x3-s2x2-p1.1.1.1-d1x1-e1x1-g1-bias.residual_add.relu",
    "conv_transpose2d-f32-n1c4o3-8x8-k2x2-s2x2-p0.0.0.0-d1x1-e0x0-g1",
    "conv_transpose2d-f32-n1c6o10-4x7-k2x3-s3x2-p0.1.0.2-d1x2-e2x0-g2",
    "conv_transpose2d-f32-n1c3o4-3x17-k3x2-s4x3-p5.0.1.3-d2x3-e0x1-g1",
    "conv_transpose2d-f32-n1c3o2-6x5-k1x3-s2x1-p0.0.0.0-d1x4-e1x0-g1",
    "conv_transpose1d-f32-n2c3o4-21-k16-s8-p4.4-d1-e0-g1-bias",
    "conv_transpose1d-f32-n1c4o4-40-k5-s3-p7.2-d2-e1-g2",
    "conv_transpose3d-f32-n1c3o2-3x4x5-k2x2x2-s2x2x2-p0.0.0.0.0.0-d1x1x1-e0x0x0-g1",
    "conv_transpose3d-f32-n1c2o3-2x3x4-k3x4x2-s1x2x3-p1.1.0.1.0.0-d1x1x2-e0x0x1-g1-bias",
    "conv1d-f32-n2c5w50-o9k3-s1-p1.1-d1-g1-bias.relu",
    "conv1d-f32-n1c6w70-o6k5-s2-p0.3-d3-g3",
    "conv1d-f32-n1c4w33-o7k1-s2-p0.0-d1-g1",
    "conv1d-f32-n1c4w64-o8k1-s1-p0.0-d1-g2",
    "conv3d-f32-n1c3o5-4x5x6-k3x3x3-s1x1x1-p1.1.1.1.1.1-d1x1x1-g1-bias",
    "conv3d-f32-n2c4o2-5x6x7-k2x3x2-s2x2x2-p0.2.1.1.0.0-d2x1x3-g2",
    "conv2d-nchw-f32-n1c12h9w17-o20k3x3-s1x1-p1.1.1.1-d1x1-g4-bias.residual_add.relu",
    "conv2d-nchw-f32-n2c6h8w7-o6k3x3-s2x2-p1.1.1.1-d1x1-g3",
    "depthwise_conv2d-nchw-f32-n1c6h7w40-o18k5x3-s2x3-p2.0.1.1-d1x2-g6-bias",
];

fn on_shapes(way: Way, configs: usize, targets: &[&str]) {
    let mut checked = 0;
    for (seed, key) in (1..).zip(SHAPES) {
        let workload = Workload::from_key(key).expect("a key");
        for target in targets.iter().map(|t| Target::find(t).expect("a built-in target")) {
            // Groups of whole vectors are for another template.
            if ConvPlanes.applies(&workload, target).is_err() {
                continue;
            }
            let space = ConvPlanes.space(&workload, target).expect("it applies");
            let default = ConvPlanes.default_config(&workload, target).expect("it applies");
            let sampled = space.sample(seed).map(|(_, config)| config).take(configs);
            for config in std::iter::once(default).chain(sampled) {
                check(&ConvPlanes, &workload, target, &config, seed, way);
                checked += 1;
            }
        }
    }
    assert!(checked > (SHAPES.len() - 3) * targets.len() * (configs + 1), "{checked} configs were checked");
}

#[test]
fn planes_are_right_in_the_interpreter() {
    on_shapes(Way::Interpreted, 3, &["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"]);
}

#[test]
fn planes_are_right_where_they_are_compiled() {
    let best = ["x86-64-v4", "x86-64"].into_iter().find(|t| Isa::from_name(t).is_some_and(Isa::runs_here));
    if let Some(best) = best {
        on_shapes(Way::Compiled, 0, &[best]);
    }
}
