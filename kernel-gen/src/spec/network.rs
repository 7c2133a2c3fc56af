//! `[[network]]`: a model file whose workloads are generated, with the code that runs them in order.

use super::KernelSpec;
#[cfg(feature = "networks")]
use super::WorkloadSpec;
use super::names::Names;
use crate::diagnostic::{Report, Table};
use crate::ir::DType;
#[cfg(feature = "networks")]
use crate::network::{Network, Task, Wanted};
use crate::workload::ConvLayout;
use std::collections::BTreeMap;
use std::ops::Range;
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

/// What a spec says of a network. Without the feature only the name is of use, for the error.
#[cfg_attr(not(feature = "networks"), allow(dead_code))]
struct Header {
    name: String,
    model: PathBuf,
    inputs: BTreeMap<String, Vec<i64>>,
    dtype: Option<DType>,
    layout: Option<ConvLayout>,
    /// Where the model's path stands in the spec.
    span: Range<usize>,
    line: usize,
}

/// Reads a network, and its workloads as kernels of the spec. `file` is the spec's: the model's path counts from its folder.
pub(super) fn read(
    table: &mut Table<'_, '_>,
    report: &mut Report,
    names: &mut Names,
    file: &str,
) -> Option<(NetworkSpec, Vec<KernelSpec>)> {
    let line = report.line(table.span().start);
    table.require(report, "name", "name = \"classifier\"");
    table.require(report, "model", "model = \"model.onnx\"");
    let name = table.string(report, "name").and_then(|n| names.take(report, &n, false));
    let model = table.string(report, "model");
    let inputs = table.table(report, "inputs").map(|t| t.named_integers(report, "inputs")).unwrap_or_default();
    let types = [("f32", DType::F32), ("f16", DType::F16), ("bf16", DType::Bf16)];
    let dtype = table.choice(report, "dtype", &types).map(|found| found.value);
    let layouts = [("NCHW", ConvLayout::Nchw), ("NHWC", ConvLayout::Nhwc)];
    let layout = table.choice(report, "layout", &layouts).map(|found| found.value);
    table.finish(report);
    let (name, model) = (name?, model?);
    let path = Path::new(file).parent().unwrap_or(Path::new("")).join(model.value);
    load(report, names, Header { name, model: path, inputs, dtype, layout, span: model.span, line })
}

/// Makes steps of the model.
#[cfg(feature = "networks")]
fn load(report: &mut Report, names: &mut Names, header: Header) -> Option<(NetworkSpec, Vec<KernelSpec>)> {
    let Header { name, model, inputs, dtype, layout, span, line } = header;
    let network = Network::load(&name, &model, &inputs, Wanted { dtype, layout });
    let network = network.map_err(|problems| {
        for problem in problems {
            let separator = if problem.place.is_empty() { "" } else { ": " };
            let cause = format!("{}: {}{separator}{}", model.display(), problem.place, problem.cause);
            report.error(&span, cause, problem.help);
        }
    });
    let network = network.ok()?;
    let kernels = kernels(report, names, &span, &network.tasks, line)?;
    Some((NetworkSpec { name, model, network, line }, kernels))
}

/// Refuses the network: reading its model takes the feature.
#[cfg(not(feature = "networks"))]
fn load(report: &mut Report, _: &mut Names, header: Header) -> Option<(NetworkSpec, Vec<KernelSpec>)> {
    let Header { name, span, .. } = header;
    let cause = format!("[[network]] `{name}` needs the feature `networks` of kernel-gen-build");
    report.error(&span, cause, "add features = [\"networks\"] to that build-dependency");
    None
}

/// The tasks as kernels, one for each function.
#[cfg(feature = "networks")]
fn kernels(
    report: &mut Report,
    names: &mut Names,
    span: &Range<usize>,
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
            range: None,
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
