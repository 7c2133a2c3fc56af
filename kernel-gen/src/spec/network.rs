//! `[[network]]`: a model file whose workloads are generated, with the code that runs them in order.

use super::KernelSpec;
#[cfg(feature = "networks")]
use super::WorkloadSpec;
use super::names::Names;
use crate::diagnostic::{Report, Table};
#[cfg(feature = "networks")]
use crate::network::{Network, Task};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A network that is generated.
#[derive(Clone, PartialEq, Debug)]
pub struct NetworkSpec {
    /// The name of its module.
    pub name: String,
    /// The model's file.
    pub model: PathBuf,
    /// Its steps.
    #[cfg(feature = "networks")]
    pub network: Network,
    /// The line of its header in the spec.
    pub line: usize,
}

impl NetworkSpec {
    /// The files that it was read from: the model, and external data.
    pub fn files(&self) -> Vec<PathBuf> {
        #[cfg(feature = "networks")]
        let files = self.network.files.iter().cloned().collect();
        #[cfg(not(feature = "networks"))]
        let files = vec![self.model.clone()];
        files
    }
}

/// Reads a network, and its workloads as kernels of the spec. `file` is the spec's: the model's path counts from its folder.
pub(super) fn read(
    table: &mut Table<'_, '_>,
    report: &mut Report,
    names: &mut Names,
    file: &str,
) -> Option<(NetworkSpec, Vec<KernelSpec>)> {
    let span = table.span();
    let line = report.line(span.start);
    table.require(report, "name", "name = \"classifier\"");
    table.require(report, "model", "model = \"model.onnx\"");
    let name = table.string(report, "name").and_then(|n| names.take(report, &n, false));
    let model = table.string(report, "model");
    let inputs = table.table(report, "inputs").map(|t| t.named_integers(report, "inputs")).unwrap_or_default();
    table.finish(report);
    let (name, model) = (name?, model?);
    let path = Path::new(file).parent().unwrap_or(Path::new("")).join(model.value);
    load(report, names, &model.span, name, path, &inputs, line)
}

/// Makes steps of the model.
#[cfg(feature = "networks")]
fn load(
    report: &mut Report,
    names: &mut Names,
    span: &std::ops::Range<usize>,
    name: String,
    model: PathBuf,
    inputs: &BTreeMap<String, Vec<i64>>,
    line: usize,
) -> Option<(NetworkSpec, Vec<KernelSpec>)> {
    let network = Network::load(&name, &model, inputs);
    let network = network.map_err(|problems| {
        for problem in problems {
            let separator = if problem.place.is_empty() { "" } else { ": " };
            let cause = format!("{}: {}{separator}{}", model.display(), problem.place, problem.cause);
            report.error(span, cause, problem.help);
        }
    });
    let network = network.ok()?;
    let kernels = kernels(report, names, span, &network.tasks, line)?;
    Some((NetworkSpec { name, model, network, line }, kernels))
}

/// The tasks as kernels, one for each function.
#[cfg(feature = "networks")]
fn kernels(
    report: &mut Report,
    names: &mut Names,
    span: &std::ops::Range<usize>,
    tasks: &[Task],
    line: usize,
) -> Option<Vec<KernelSpec>> {
    let mut kernels: Vec<KernelSpec> = vec![];
    for task in tasks {
        let mut take = |name: &str, has_dyn| {
            names.take(report, &crate::diagnostic::Found { value: name, span: span.clone() }, has_dyn)
        };
        take(&task.name, false)?;
        let workload = WorkloadSpec {
            name: Some(task.name.clone()),
            workload: task.workload.clone(),
            slices: task.slices,
            count: task.count,
            line,
        };
        match kernels.iter_mut().find(|kernel| kernel.name == task.function) {
            Some(kernel) => kernel.workloads.push(workload),
            None => {
                let name = take(&task.function, true)?;
                kernels.push(KernelSpec { name, op: task.workload.op_name(), workloads: vec![workload], line });
            }
        }
    }
    Some(kernels)
}

/// Refuses the network: reading its model takes the feature.
#[cfg(not(feature = "networks"))]
fn load(
    report: &mut Report,
    _: &mut Names,
    span: &std::ops::Range<usize>,
    name: String,
    _: PathBuf,
    _: &BTreeMap<String, Vec<i64>>,
    _: usize,
) -> Option<(NetworkSpec, Vec<KernelSpec>)> {
    let cause = format!("[[network]] `{name}` needs the feature `networks` of kernel-gen-build");
    report.error(span, cause, "add features = [\"networks\"] to that build-dependency");
    None
}
