//! Which templates are for CPUs and which for CUDA devices, told by what they take and not by how they refuse.

use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::workload::Workload;

/// The tutorials' workloads, a pair of MobileNet, a layer with few outputs, a layer in HWCN and 16 bits, the large products, a
/// classifier, two layers of ResNet-50 without tensor cores, one whose weights stay, and
/// rows of a softmax and of a norm, heads of attention, a mean of pixels, a gate, two transposed layers, one with groups, a batch, products of
/// integers, and one with weights of four bits.
pub(crate) const KNOWN: [&str; 30] = [
    "conv2d-nchw-f32-n1c512h7w7-o512k3x3-s1x1-p1.1.1.1-d1x1-g1",
    "conv2d-hwcn-f32-n256c256h14w14-o512k3x3-s1x1-p1.1.1.1-d1x1-g1",
    "conv2d-nhwc-f16-n256c256h14w14-o512k3x3-s1x1-p1.1.1.1-d1x1-g1",
    "conv2d-nhwc-f16-n1c3h224w224-o64k7x7-s2x2-p3.3.3.3-d1x1-g1-bias.relu",
    "conv2d-nhwc16n16c-f16-n256c256h14w14-o512k3x3-s1x1-p1.1.1.1-d1x1-g1",
    "depthwise_conv2d-nchw-f32-n1c32h112w112-o32k3x3-s1x1-p1.1.1.1-d1x1-g32-bias.relu6",
    "depthwise_pointwise-nchw-f32-n1c512h14w14-o512k3x3-s1x1-p1.1.1.1-d1x1-dw.bias.relu6-bias.relu6",
    "conv2d-nhwc-f16-n64c64h55w55-o16k1x1-s1x1-p0.0.0.0-d1x1-g1-bias.relu",
    "conv2d-hwcn-f16-n64c512h14w14-o256k1x1-s1x1-p0.0.0.0-d1x1-g1-bias.residual_add.relu",
    "matmul-f32-m4096n4096k4096-nn",
    "matmul-f16-m4096n4096k4096-nn",
    "matmul-bf16-m4096n4096k4096-nn",
    "matmul-f32-m1n1000k512-nt-bias",
    "conv2d-nhwc-f32-strict-n64c256h14w14-o256k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.residual_add.relu",
    "conv2d-nhwc-f32-strict-n64c3h224w224-o64k7x7-s2x2-p3.3.3.3-d1x1-g1-bias.relu",
    "conv2d-nhwc-f16-n64c64h56w56-o64k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.residual_add.relu",
    "softmax-f32-m4096n4096",
    "attention-f16-b1h12m197n197d64v64-g12-full",
    "attention-f32-b1h12m197n197d64v64-g12-full",
    "layer_norm-f16-m197n768-e6-scale",
    "reduce_mean-f16-1x3136x144-r0x1x0",
    "multiply-f16-a1x96x28x28-b1x96x1x1",
    "conv_transpose2d-f32-n1c128o64-128x128-k2x2-s2x2-p0.0.0.0-d1x1-e0x0-g1",
    "conv_transpose2d-f16-n1c512o256-8x8-k4x4-s2x2-p1.1.1.1-d1x1-e0x0-g1-bias.relu",
    "conv2d-nchw-f16-n1c128h56w56-o128k3x3-s1x1-p1.1.1.1-d1x1-g32-bias.relu",
    "broadcast_matmul-f16-a8x12x197x64-b12x64x197",
    "matmul-i8i8.i32-m256n256k256-nt",
    "matmul-e4m3.f16-m256n256k256-nt",
    "scaled_matmul-e4m3.bf16-m256n256k512-s128",
    "matmul_nbits-f16-m1n4096k4096-w4-z-g32",
];

/// What the templates for CPUs are for, beside the above.
const ON_CPUS: [&str; 10] = [
    "conv2d-nchw-f32-n1c64h56w56-o64k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.relu",
    "conv2d-nchw-f32-n1c64h56w56-o256k1x1-s1x1-p0.0.0.0-d1x1-g1",
    "conv2d-nchw-f32-n1c3h224w224-o64k7x7-s2x2-p3.3.3.3-d1x1-g1-bias.relu",
    "depthwise_conv2d-nchw-f32-n1c64h56w56-o64k3x3-s1x1-p1.1.1.1-d1x1-g64-bias",
    "matmul-f32-m256n256k256-nn",
    "matmul-f32-m64n4k512-nt",
    "max_pool2d-nchw-f32-n1c64h112w112-k3x3-s2x2-p1.1.1.1-d1x1",
    "resize_bilinear-nchw-f32-n1c256h32w32-o64x64-half_pixel",
    "depthwise_conv2d-nhwc-u8zi8-n1c64h28w28-o64k3x3-s1x1-p1.1.1.1-d1x1-g64-bias.requantize",
    "conv2d-nhwc-u8zi8-n1c64h28w28-o64k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.requantize",
];

/// The templates for CPUs, and those for CUDA devices: those that take one of these workloads there. A template that takes none, or
/// some on both, would be in no suite, or in two; add a workload that it is for.
pub(crate) fn by_kind(registry: &Registry) -> [Vec<&dyn Template>; 2] {
    let workloads: Vec<Workload> =
        KNOWN.iter().chain(&ON_CPUS).map(|key| Workload::from_key(key).expect("a key")).collect();
    let takes = |template: &dyn Template, cuda: bool| {
        let mut targets = Target::all().iter().filter(|t| t.cuda().is_some() == cuda);
        targets.any(|target| workloads.iter().any(|w| template.admits(w, target).is_ok()))
    };
    let mut kinds = [vec![], vec![]];
    let mut in_no_suite = vec![];
    for template in registry.iter() {
        match [takes(template, false), takes(template, true)] {
            [true, false] => kinds[0].push(template),
            [false, true] => kinds[1].push(template),
            both => in_no_suite.push((template.name(), both)),
        }
    }
    assert!(in_no_suite.is_empty(), "templates that take workloads on [CPUs, CUDA devices]: {in_no_suite:?}");
    kinds
}
