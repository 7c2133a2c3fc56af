//! `kernel-gen spec`: the spec of a known network.

mod networks;

use super::output::{Failure, Output, write_new};
use crate::diagnostic::closest;
use clap::{Args, ValueEnum};
use networks::{Ending, Layer, Network, Op};
use std::fmt::Write;
use std::path::PathBuf;

/// Writes the spec of a known network: every convolution and product with what follows it, and how often it occurs
///
/// Networks: resnet-18, resnet-34, resnet-50, resnet-101, resnet-152, vgg-11, vgg-13, vgg-16, vgg-19, mobilenet, squeezenet,
/// inception_v3. Batch normalisations are folded into weights and bias.
///
/// Example:
///
///   kernel-gen spec resnet-34 --batch 8 --layout NHWC --dtype f16 -o kernels.toml
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    /// The network
    network: String,
    /// Images
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..=65_536))]
    batch: i64,
    /// Order of the dimensions
    #[arg(long, value_enum, default_value_t = Layout::Nchw, ignore_case = true)]
    layout: Layout,
    /// Type of the elements; sums are in f32
    #[arg(long, value_enum, default_value_t = Dtype::F32, ignore_case = true)]
    dtype: Dtype,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE", alias = "output")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Layout {
    #[value(name = "NCHW")]
    Nchw,
    #[value(name = "NHWC")]
    Nhwc,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Dtype {
    F32,
    F16,
    Bf16,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, Failure> {
    let network = networks::find(&arguments.network).ok_or_else(|| {
        let close = closest(&arguments.network, networks::NAMES);
        let hint = close.map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
        let all = networks::NAMES.join(", ");
        format!("there is no network `{}`; {hint}the networks are {all}", arguments.network)
    })?;
    let text = text(&network, arguments);
    let Some(file) = &arguments.out else { return Ok(Output::success(text)) };
    let shown = write_new(file, &text)?;
    let runs: u32 = network.layers.iter().map(|l| l.count).sum();
    let text = format!("wrote {shown}: {} workloads of {}, {runs} layers\n", network.layers.len(), network.title);
    Ok(Output::success(text))
}

/// The kernels of a spec, in the order in which they are written: what distinguishes them, and their names.
const KERNELS: [(&str, &str, Ending); 9] = [
    ("conv_bias_relu", "conv2d", Ending::Relu),
    ("conv_bias_relu6", "conv2d", Ending::Relu6),
    ("conv_bias_add_relu", "conv2d", Ending::AddRelu),
    ("conv_bias", "conv2d", Ending::Bias),
    ("depthwise_bias_relu6", "depthwise_conv2d", Ending::Relu6),
    ("linear_relu", "matmul", Ending::Relu),
    ("linear_relu6", "matmul", Ending::Relu6),
    ("linear_add_relu", "matmul", Ending::AddRelu),
    ("linear", "matmul", Ending::Bias),
];

fn text(network: &Network, arguments: &Arguments) -> String {
    let Arguments { batch, layout, dtype, .. } = arguments;
    let images = if *batch == 1 { String::new() } else { "s".into() };
    let mut text = format!(
        "# {}, {batch} image{images}: every convolution and product, each with what follows it, and how often it occurs. Batch\n\
         # normalisations are folded into the weights and the bias. Written by `kernel-gen spec`.\nschema = 1\n\n[targets]\n",
        network.title
    );
    if *dtype != Dtype::F32 {
        text.push_str("cpu = [\"x86-64-v3\"]\n");
    }
    text.push_str("cuda = [\"sm_80\", \"sm_90a\"]\n");
    for (name, op, ending) in KERNELS {
        let of_kernel = |l: &&Layer| l.ending == ending && op_of(&l.op) == op;
        let mut layers = network.layers.iter().filter(of_kernel).peekable();
        if layers.peek().is_none() {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "\n[[kernel]]\nname = \"{name}\"\nop = \"{op}\"\n");
        match (op, layout) {
            ("matmul", _) => text.push_str("trans_b = true\n"),
            (_, Layout::Nchw) => text.push_str("layout = \"NCHW\"\n"),
            (_, Layout::Nhwc) => text.push_str("layout = \"NHWC\"\n"),
        }
        match dtype {
            Dtype::F32 => {}
            Dtype::F16 => text.push_str("dtype = \"f16\"\n"),
            Dtype::Bf16 => text.push_str("dtype = \"bf16\"\n"),
        }
        let epilogue = match ending {
            Ending::Bias => "\"bias\"",
            Ending::Relu => "\"bias\", \"relu\"",
            Ending::Relu6 => "\"bias\", \"relu6\"",
            Ending::AddRelu => "\"bias\", \"residual_add\", \"relu\"",
        };
        let _ = writeln!(text, "epilogue = [{epilogue}]");
        layers.for_each(|layer| workload(&mut text, layer, *batch, *layout));
    }
    text
}

fn op_of(op: &Op) -> &'static str {
    match op {
        Op::Conv { .. } => "conv2d",
        Op::Depthwise { .. } => "depthwise_conv2d",
        Op::Linear { .. } => "matmul",
    }
}

fn workload(text: &mut String, layer: &Layer, n: i64, layout: Layout) {
    let _ = write!(text, "\n[[kernel.workload]]\nname = \"{}\"\n", layer.name);
    if layer.count > 1 {
        let _ = writeln!(text, "count = {}", layer.count);
    }
    let ([c, h, w], [co, per_filter, kh, kw], stride, padding) = match layer.op {
        Op::Linear { k, n: outputs } => {
            let _ = write!(text, "a = [{n}, {k}]\nb = [{outputs}, {k}]\n");
            return;
        }
        Op::Conv { input, filter: [co, kh, kw], stride, padding } => (input, [co, input[0], kh, kw], stride, padding),
        Op::Depthwise { input, stride } => (input, [input[0], 1, 3, 3], stride, [1, 1]),
    };
    let _ = match layout {
        Layout::Nchw => write!(text, "input = [{n}, {c}, {h}, {w}]\nweight = [{co}, {per_filter}, {kh}, {kw}]\n"),
        Layout::Nhwc => write!(text, "input = [{n}, {h}, {w}, {c}]\nweight = [{kh}, {kw}, {per_filter}, {co}]\n"),
    };
    if stride != 1 {
        let _ = writeln!(text, "stride = [{stride}, {stride}]");
    }
    if padding != [0, 0] {
        let _ = writeln!(text, "padding = [{}, {}]", padding[0], padding[1]);
    }
}
