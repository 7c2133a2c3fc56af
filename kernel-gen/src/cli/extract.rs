//! `kernel-gen extract`: the workloads of a model as a spec, for people who want kernels and no network.

use super::output::{Failure, Output, write_new};
use crate::emit::rust::rust_name;
use crate::network::{Network, Task};
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
    /// What the names of kernels begin with [default: the file's name]
    #[arg(long)]
    name: Option<String>,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// `x=1,3,224,224`.
fn shape(text: &str) -> Result<(String, Vec<i64>), String> {
    let help = "write NAME=N,N,..., such as x=1,3,224,224";
    // A name may hold the sign, extents do not.
    let (name, extents) = text.rsplit_once('=').ok_or(help)?;
    let extents = extents.split(',').map(|n| n.trim().parse().ok().filter(|n| *n > 0)).collect::<Option<Vec<i64>>>();
    Ok((name.to_string(), extents.ok_or(help)?))
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, Failure> {
    let Arguments { model, inputs, .. } = arguments;
    let inputs: BTreeMap<String, Vec<i64>> = inputs.iter().cloned().collect();
    let stem = model.file_stem().map_or("network".into(), |stem| stem.to_string_lossy());
    let name = arguments.name.clone().unwrap_or_else(|| rust_name(&stem));
    let network = Network::load(&name, model, &inputs).map_err(|problems| {
        Failure::Lines(problems.iter().map(|problem| format!("{}: {problem}", model.display())).collect())
    })?;
    let text = text(&network, &model.display().to_string());
    let Some(file) = &arguments.output else { return Ok(Output::success(text)) };
    let shown = write_new(file, &text)?;
    let (tasks, steps) = (network.tasks.len(), network.program.steps.len());
    Ok(Output::success(format!("wrote {shown}: {tasks} workloads of {steps} launches\n")))
}

/// The spec.
fn text(network: &Network, model: &str) -> String {
    let mut text = format!(
        "# The workloads of {}, each with what is fused into it, and how often it occurs. Written by `kernel-gen extract`.\n\
         schema = 1\n\n[targets]\ncuda = [\"sm_80\", \"sm_90a\"]\n",
        crate::diagnostic::one_line(model.to_string())
    );
    let mut functions: Vec<&str> = vec![];
    for task in &network.tasks {
        if !functions.contains(&task.function.as_str()) {
            functions.push(&task.function);
        }
    }
    for function in functions {
        let mut tasks = network.tasks.iter().filter(|task| task.function == function).peekable();
        if let Some(first) = tasks.peek() {
            kernel(&mut text, first);
        }
        tasks.for_each(|task| workload(&mut text, task));
    }
    text
}

/// The header of a kernel.
fn kernel(text: &mut String, task: &Task) {
    // Writing to a string cannot fail.
    let _ = write!(text, "\n[[kernel]]\nname = \"{}\"\nop = \"{}\"\n", task.function, task.workload.op_name());
    for flag in &task.said.flags {
        let _ = writeln!(text, "{flag} = true");
    }
    let steps: Vec<String> = task.workload.epilogue.iter().map(|step| format!("\"{step}\"")).collect();
    if !steps.is_empty() {
        let _ = writeln!(text, "epilogue = [{}]", steps.join(", "));
    }
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
