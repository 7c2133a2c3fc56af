//! `kernel-gen extract`: the workloads of a model as a spec, for people who want kernels and no network.

use super::output::{Failure, Output, write_new};
use crate::diagnostic::{Array, Size};
use crate::emit::rust::rust_name;
use crate::ir::DType;
use crate::network::{Batch, Network, Task, Wanted};
use crate::workload::ConvLayout;
use clap::Args;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

/// Writes the spec of a model's workloads: each with what is fused into it, and how often it occurs
///
/// Example:
///
///   kernel-gen extract model.onnx --input image=1,3,224,224 -o kernels.toml
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    /// The model, an ONNX file
    model: PathBuf,
    /// The shape of an input, where the file leaves extents open
    #[arg(long = "input", value_name = "NAME=N,N,...", value_parser = shape)]
    inputs: Vec<(String, Vec<i64>)>,
    /// The value of an input that is always the same: a number or an array
    #[arg(long = "constant", value_name = "NAME=VALUE", value_parser = constant)]
    constants: Vec<(String, Array)>,
    /// What the names of kernels begin with [default: the file's name]
    #[arg(long)]
    name: Option<String>,
    /// The type of the numbers: f32, f16 or bf16 [default: that of the model's inputs]
    #[arg(long, value_name = "TYPE", value_parser = dtype)]
    dtype: Option<DType>,
    /// The order of the dimensions of images: NCHW or NHWC [default: NHWC for f16 and bf16]
    #[arg(long, value_parser = layout)]
    layout: Option<ConvLayout>,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE", alias = "output")]
    out: Option<PathBuf>,
}

/// `x=1,3,224,224`.
fn shape(text: &str) -> Result<(String, Vec<i64>), String> {
    let help = "write NAME=N,N,..., such as x=1,3,224,224";
    // A name may hold the sign, extents do not.
    let (name, extents) = text.rsplit_once('=').ok_or(help)?;
    let extents = extents.split(',').map(|n| n.trim().parse().ok().filter(|n| *n > 0)).collect::<Option<Vec<i64>>>();
    Ok((name.to_string(), extents.ok_or(help)?))
}

/// `rate=16000` or `lengths=[32, 16]`.
fn constant(text: &str) -> Result<(String, Array), String> {
    let help = "write NAME=VALUE, such as rate=16000 or lengths=[32, 16]";
    let (name, value) = text.rsplit_once('=').ok_or(help)?;
    Ok((name.to_string(), Array::parse(value).ok_or(help)?))
}

/// A type of numbers.
fn dtype(text: &str) -> Result<DType, String> {
    let all = [DType::F32, DType::F16, DType::Bf16];
    all.into_iter().find(|dtype| dtype.name() == text).ok_or("write f32, f16 or bf16".into())
}

/// An order of dimensions.
fn layout(text: &str) -> Result<ConvLayout, String> {
    let all = [ConvLayout::Nchw, ConvLayout::Nhwc];
    all.into_iter().find(|layout| layout.name() == text).ok_or("write NCHW or NHWC".into())
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, Failure> {
    let Arguments { model, inputs, .. } = arguments;
    if let Some((name, _)) = arguments.constants.iter().find(|(name, _)| inputs.iter().any(|(other, _)| other == name))
    {
        return Err(format!("`{name}` is a --constant and an --input; leave one of them out").into());
    }
    let wanted = Wanted {
        dtype: arguments.dtype,
        layout: arguments.layout,
        images: Batch::Together,
        constants: arguments.constants.iter().cloned().collect(),
    };
    let sizes = |shape: &[i64]| shape.iter().copied().map(Size::one).collect::<Vec<Size>>();
    let inputs: BTreeMap<String, Vec<Size>> = inputs.iter().map(|(name, shape)| (name.clone(), sizes(shape))).collect();
    let stem = model.file_stem().map_or("network".into(), |stem| stem.to_string_lossy());
    let name = arguments.name.clone().unwrap_or_else(|| rust_name(&stem));
    let network = Network::load(&name, model, &[inputs], wanted).map_err(|problems| {
        Failure::Lines(problems.iter().map(|problem| format!("{}: {problem}", model.display())).collect())
    })?;
    let text = text(&network, &model.display().to_string());
    let Some(file) = &arguments.out else { return Ok(Output::success(text)) };
    let shown = write_new(file, &text)?;
    let (tasks, steps) =
        (network.tasks.len(), network.plans.iter().map(|plan| plan.program.steps.len()).sum::<usize>());
    Ok(Output::success(format!("wrote {shown}: {tasks} workloads of {steps} launches\n")))
}

/// The spec.
fn text(network: &Network, model: &str) -> String {
    let mut text = format!(
        "# The workloads of {}, each with what is fused into it, and how often it occurs. Written by `kernel-gen extract`.\n\
         schema = 1\n\n[targets]\ncuda = [\"sm_80\", \"sm_90a\"]\n",
        crate::diagnostic::one_line(model.to_string())
    );
    // A network's function may have workloads in several layouts and types, a spec's kernel has one.
    let mut kernels: Vec<(&str, String, Vec<&Task>)> = vec![];
    for task in &network.tasks {
        let (function, keys) = (task.function.as_str(), keys(task));
        match kernels.iter_mut().find(|(f, k, _)| *f == function && *k == keys) {
            Some((.., tasks)) => tasks.push(task),
            None => kernels.push((function, keys, vec![task])),
        }
    }
    for (i, (function, keys, tasks)) in kernels.iter().enumerate() {
        let name = match kernels[..i].iter().filter(|(f, ..)| f == function).count() {
            0 => function.to_string(),
            before => format!("{function}_kind{}", before + 1),
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "\n[[kernel]]\nname = \"{name}\"\n{keys}");
        tasks.iter().for_each(|task| workload(&mut text, task));
    }
    text
}

/// What the spec says of all workloads of a kernel.
fn keys(task: &Task) -> String {
    let mut text = format!("op = \"{}\"\n", task.workload.op_name());
    let (dtype, layout) = (task.workload.dtype, task.workload.op.get().layout());
    if let Some(layout) = layout.filter(|layout| *layout != ConvLayout::Nchw) {
        let _ = writeln!(text, "layout = \"{}\"", layout.name());
    }
    if dtype != DType::F32 {
        let _ = writeln!(text, "dtype = \"{}\"", dtype.name());
    }
    let workload = &task.workload;
    if workload.is_quantised() && workload.quant.weight == DType::U8 {
        let _ = writeln!(text, "weight_dtype = \"u8\"");
    }
    if workload.out_dtype != workload.op.output_type(dtype) {
        let _ = writeln!(text, "out_dtype = \"{}\"", workload.out_dtype.name());
    }
    let zeros: Vec<&str> = workload.quant.zero_points().collect();
    if !zeros.is_empty() {
        let _ = writeln!(text, "zero_points = {zeros:?}");
    }
    for flag in &task.said.flags {
        let _ = writeln!(text, "{flag} = true");
    }
    let steps: Vec<String> = task.workload.epilogue.iter().map(|step| format!("\"{step}\"")).collect();
    if !steps.is_empty() {
        let _ = writeln!(text, "epilogue = [{}]", steps.join(", "));
    }
    text
}

/// A workload.
fn workload(text: &mut String, task: &Task) {
    let _ = write!(text, "\n[[kernel.workload]]\nname = \"{}\"\ncount = {}\n", task.name, task.count);
    for (key, value) in &task.said.keys {
        let _ = writeln!(text, "{key} = {value}");
    }
    for (key, slice) in [("from", task.slices.from), ("into", task.slices.into)] {
        if let Some(slice) = slice {
            let _ = writeln!(text, "{key} = {{ of = {}, at = {} }}", slice.of, slice.at);
        }
    }
}
