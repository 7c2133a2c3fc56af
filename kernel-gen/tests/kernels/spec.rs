//! Well-formed specs mean what they say.

use kernel_gen::ir::DType;
use kernel_gen::spec::{Fallback, Spec};
use kernel_gen::workload::{ConvLayout, Epilogue, Math};
use std::path::Path;

fn parse(text: &str) -> Spec {
    Spec::parse(text, "kernels.toml").unwrap_or_else(|faults| {
        panic!("{}", faults.iter().map(|d| format!("{d}\n")).collect::<String>());
    })
}

const SMALL: &str = "\
schema = 1

[[kernel]]
name = \"conv\"
op = \"conv2d\"

[[kernel.workload]]
input = [1, 8, 9, 10]
weight = [16, 8, 3, 3]
";

#[test]
fn what_is_left_out_has_its_default() {
    let spec = parse(SMALL);
    assert_eq!((spec.threads, spec.fallback), (None, Fallback::Allow));
    assert!(spec.targets.cuda.is_empty() && spec.externs.is_empty());
    let kernel = &spec.kernels[0];
    assert_eq!((kernel.name.as_str(), kernel.op, kernel.line), ("conv", "conv2d", 3));
    let w = &kernel.workloads[0];
    assert_eq!((w.name.as_deref(), w.count, w.line), (None, 1, 7));
    assert_eq!(w.workload.key(), "conv2d-nchw-f32-n1c8h9w10-o16k3x3-s1x1-p0.0.0.0-d1x1-g1");
    assert_eq!((w.workload.math, w.workload.out_dtype), (Math::Fp32, DType::F32));
}

#[test]
fn one_integer_stands_for_all_dimensions_and_same_pads_as_much_as_is_needed() {
    let key = |op: &str, keys: &str| {
        let text = format!("schema = 1\n[[kernel]]\nname = \"k\"\nop = \"{op}\"\n[[kernel.workload]]\n{keys}\n");
        parse(&text).kernels[0].workloads[0].workload.key()
    };
    const CONV: &str = "input = [1, 8, 9, 10]\nweight = [16, 8, 3, 5]\n";
    for (short, long) in [
        ("stride = 2\npadding = 1\ndilation = 2", "stride = [2, 2]\npadding = [1, 1]\ndilation = [2, 2]"),
        // 9 and 10 by 1: 2 and 4 elements, evenly. By 2: windows 5 and 5 of 3 and 5 need 11 and 13, the odd one behind.
        ("padding = \"same\"", "padding = [1, 2]"),
        ("stride = 2\npadding = \"same\"", "stride = [2, 2]\npadding = [1, 1, 1, 2]"),
        ("dilation = 2\npadding = \"same\"", "dilation = [2, 2]\npadding = [2, 4]"),
        // Windows that leave elements out need none.
        ("stride = 16\npadding = \"same\"", "stride = [16, 16]\npadding = [0, 0]"),
    ] {
        assert_eq!(key("conv2d", &format!("{CONV}{short}")), key("conv2d", &format!("{CONV}{long}")), "{short}");
    }
    let pool = "input = [1, 8, 7, 7]\n";
    assert_eq!(
        key("max_pool2d", &format!("{pool}window = 2\nstride = 2\npadding = \"same\"")),
        key("max_pool2d", &format!("{pool}window = [2, 2]\nstride = [2, 2]\npadding = [0, 0, 1, 1]"))
    );
    let volume = "input = [1, 2, 5, 6, 7]\nweight = [4, 2, 3, 3, 3]\n";
    assert_eq!(
        key("conv3d", &format!("{volume}padding = \"same\"\nstride = 2")),
        key("conv3d", &format!("{volume}padding = [1, 0, 1, 1, 1, 1]\nstride = [2, 2, 2]"))
    );
    let row = "input = [1, 2, 8]\nweight = [4, 2, 4]\n";
    assert_eq!(key("conv1d", &format!("{row}padding = \"same\"")), key("conv1d", &format!("{row}padding = [1, 2]")));
}

#[test]
fn a_pair_of_convolutions_has_two_weights_and_two_epilogues() {
    let spec = parse(
        "schema = 1\n[[kernel]]\nname = \"separable\"\nop = \"depthwise_pointwise\"\n\
         depthwise_epilogue = [\"bias\", \"relu6\"]\nepilogue = [\"bias\"]\n[[kernel.workload]]\n\
         input = [1, 32, 14, 15]\nweight = [32, 1, 3, 3]\npointwise = [64, 32, 1, 1]\npadding = [1, 1]\n",
    );
    let w = &spec.kernels[0].workloads[0].workload;
    assert_eq!(w.key(), "depthwise_pointwise-nchw-f32-n1c32h14w15-o64k3x3-s1x1-p1.1.1.1-d1x1-dw.bias.relu6-bias");
    assert_eq!(w.params().iter().map(|p| p.name).collect::<Vec<_>>(), ["x", "dw", "dw_bias", "w", "bias", "y"]);
}

#[test]
fn the_example_of_the_documentation_parses() {
    // The block of the module's documentation, its comment signs taken off.
    let source = include_str!("../../src/spec/mod.rs");
    let block = source.split("```").nth(1).expect("the documentation has an example").trim_start_matches("toml");
    let text: String = block.lines().map(|l| format!("{}\n", l.trim_start_matches("//!"))).collect();
    // It shows the keys of convolutions and of products in one kernel; here each keeps its own.
    let conv: String = text
        .lines()
        .filter(|l| !l.contains("trans_") && !l.trim_start().starts_with("a = ") && !l.trim_start().starts_with("b = "))
        .map(|l| format!("{l}\n"))
        .collect();
    let conv = conv.replacen("[[kernel.workload]]               # a convolution", "[[kernel.workload]] #", 1);
    let (before, after) = conv.rsplit_once("[[kernel.workload]]").expect("a second workload");
    let extern_part = &after[after.find("[[extern]]").expect("an extern")..];
    let spec = parse(&format!("{before}{extern_part}"));
    assert_eq!(spec.threads, Some(2));
    assert_eq!(spec.targets.cuda.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["sm_90a", "sm_80"]);
    let layer = spec.find("layer4_conv").expect("named");
    assert_eq!(layer.key(), "conv2d-nchw-f32-n1c512h7w7-o512k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.relu");
    assert_eq!(layer.epilogue, [Epilogue::Bias, Epilogue::Relu]);
    assert_eq!(spec.kernels[0].workloads[0].count, 2);
    assert_eq!((spec.externs[0].name.as_str(), spec.externs[0].source.as_str()), ("my_kernels", "src/mine.c"));
}

#[test]
fn shapes_are_read_in_the_order_of_the_layout() {
    let conv = |layout: &str, input: &str, weight: &str| {
        let text = format!(
            "schema = 1\n[[kernel]]\nname = \"conv\"\nop = \"conv2d\"\nlayout = \"{layout}\"\n[[kernel.workload]]\n\
             input = {input}\nweight = {weight}\nstride = [2, 1]\npadding = [1, 2, 3, 4]\ndilation = [1, 2]\ngroups = 2\n"
        );
        *parse(&text).kernels[0].workloads[0].workload.conv2d().expect("a convolution")
    };
    let nchw = conv("NCHW", "[2, 32, 9, 10]", "[64, 16, 3, 5]");
    assert_eq!((nchw.n, nchw.ci, nchw.h, nchw.w, nchw.co, nchw.kh, nchw.kw), (2, 32, 9, 10, 64, 3, 5));
    assert_eq!((nchw.stride, nchw.padding, nchw.dilation, nchw.groups), ([2, 1], [1, 2, 3, 4], [1, 2], 2));
    for (layout, input, weight) in [
        (ConvLayout::Nhwc, "[2, 9, 10, 32]", "[3, 5, 16, 64]"),
        (ConvLayout::Hwcn, "[9, 10, 32, 2]", "[3, 5, 16, 64]"),
        (ConvLayout::NchwC(16), "[2, 2, 9, 10, 16]", "[64, 16, 3, 5]"),
    ] {
        let other = conv(&layout.name(), input, weight);
        assert_eq!(other.layout, layout);
        assert_eq!(kernel_gen::workload::Conv2d { layout: ConvLayout::Nchw, ..other }, nchw);
    }
    let text = "schema = 1\n[[kernel]]\nname = \"conv\"\nop = \"conv2d\"\nlayout = \"NHWC16n16c\"\n[[kernel.workload]]\n\
                input = [2, 9, 10, 4, 16, 16]\nweight = [3, 5, 4, 8, 16, 16]\n";
    let tiles = *parse(text).kernels[0].workloads[0].workload.conv2d().expect("a convolution");
    let sizes = (tiles.n, tiles.ci, tiles.h, tiles.w, tiles.co, tiles.kh, tiles.kw);
    assert_eq!((tiles.layout, sizes), (ConvLayout::NhwcNc(16), (32, 64, 9, 10, 128, 3, 5)));
}

#[test]
fn products_are_read_as_stored() {
    let spec = parse(
        "schema = 1\n[[kernel]]\nname = \"bmm\"\nop = \"batch_matmul\"\ntrans_a = true\ndtype = \"bf16\"\n\
         out_dtype = \"f32\"\n[[kernel.workload]]\na = [3, 5, 7]\nb = [3, 5, 11]\n",
    );
    assert_eq!(spec.kernels[0].workloads[0].workload.key(), "batch_matmul-bf16.f32-b3m7n11k5-tn");
}

#[test]
fn depthwise_needs_no_groups_and_takes_a_multiplier() {
    let spec = parse(
        "schema = 1\n[[kernel]]\nname = \"dw\"\nop = \"depthwise_conv2d\"\n[[kernel.workload]]\n\
         input = [1, 32, 9, 9]\nweight = [64, 1, 3, 3]\n",
    );
    let conv = *spec.kernels[0].workloads[0].workload.conv2d().expect("a convolution");
    assert_eq!((conv.groups, conv.multiplier()), (32, Some(2)));
}

#[test]
fn shapes_that_differ_only_in_stride_are_told_apart_by_names() {
    let spec = parse(&format!(
        "{SMALL}name = \"wide\"\npadding = [2, 2]\ndilation = [2, 2]\n\n[[kernel.workload]]\nname = \"narrow\"\n\
         input = [1, 8, 9, 10]\nweight = [16, 8, 3, 3]\npadding = [1, 1]\n"
    ));
    assert!(spec.find("wide").is_some() && spec.find("narrow").is_some() && spec.find("other").is_none());
}

#[test]
fn the_portable_level_is_always_made() {
    let levels = |targets: &str| {
        let spec = parse(&SMALL.replace("schema = 1\n", &format!("schema = 1\n{targets}\n")));
        spec.targets.cpu_levels("x86_64").iter().map(|t| t.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(levels(""), ["x86-64-v4", "x86-64-v3", "x86-64"]);
    assert_eq!(levels("[targets]\ncpu = [\"x86-64-v3\"]"), ["x86-64-v3", "x86-64"]);
    assert_eq!(levels("[targets]\ncpu = []"), ["x86-64"]);
}

#[test]
fn a_file_that_cannot_be_read_is_a_diagnostic() {
    let faults = Spec::load(Path::new("no/such/kernels.toml")).unwrap_err();
    assert!(faults[0].to_string().starts_with("no/such/kernels.toml:1: cannot be read ("), "{}", faults[0]);
}
