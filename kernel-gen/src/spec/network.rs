//! `[[network]]`: a model file whose workloads are generated, with the code that runs them in order.

use super::KernelSpec;
#[cfg(feature = "networks")]
use super::WorkloadSpec;
use super::kernel::is_range_of_units;
use super::names::Names;
use crate::diagnostic::{Array, Found, Report, Size, Table};
use crate::ir::DType;
#[cfg(feature = "networks")]
use crate::network::{Batch, Network, Task, Wanted};
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
    /// The shapes of the inputs, one map a plan.
    shapes: Vec<Shapes>,
    dtype: Option<DType>,
    layout: Option<ConvLayout>,
    images: Option<Images>,
    /// The values of inputs that are always the same.
    constants: BTreeMap<String, Array>,
    on_cpus: bool,
    /// Where the model's path stands in the spec.
    span: Range<usize>,
    line: usize,
}

/// How several images run, if the spec says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Images {
    Together,
    Apart,
}

/// Reads a network, and its workloads as kernels of the spec. Whether all its targets are CPUs says `on_cpus`; `file` is the spec's: the model's
/// path counts from its folder.
pub(super) fn read(
    table: &mut Table<'_, '_>,
    report: &mut Report,
    names: &mut Names,
    (file, on_cpus): (&str, bool),
) -> Option<(NetworkSpec, Vec<KernelSpec>)> {
    let line = report.line(table.span().start);
    table.require(report, "name", "name = \"classifier\"");
    table.require(report, "model", "model = \"model.onnx\"");
    let name = table.string(report, "name").and_then(|n| names.take(report, &n, false));
    let model = table.string(report, "model");
    let before = report.len();
    let inputs = table.table(report, "inputs").map(|t| t.named_shapes(report, "inputs")).unwrap_or_default();
    let constants = table.table(report, "constants").map(|t| t.named_arrays(report, "constants")).unwrap_or_default();
    for (name, found) in constants.iter().filter(|(name, _)| inputs.contains_key(*name)) {
        report.error(
            &found.span,
            format!("`{name}` is one of `inputs` as well"),
            "leave it out there: it is no input any more",
        );
    }
    // Without the shapes that are wrong the model would be found to want them.
    let shapes = if report.len() > before { None } else { shapes(report, inputs) };
    let types = [("f32", DType::F32), ("f16", DType::F16), ("bf16", DType::Bf16)];
    let dtype = table.choice(report, "dtype", &types).map(|found| found.value);
    let layouts = [("NCHW", ConvLayout::Nchw), ("NHWC", ConvLayout::Nhwc)];
    let layout = table.choice(report, "layout", &layouts).map(|found| found.value);
    let ways = [("together", Images::Together), ("apart", Images::Apart)];
    let images = table.choice(report, "images", &ways);
    if let Some(found) = images.as_ref().filter(|found| found.value == Images::Apart && !on_cpus) {
        let cause = "`images = \"apart\"` is for CPUs alone, and the spec has CUDA targets";
        report.error(&found.span, cause, "leave one of them out");
    }
    let images = images.map(|found| found.value);
    table.finish(report);
    let (name, model) = (name?, model?);
    let path = Path::new(file).parent().unwrap_or(Path::new("")).join(model.value);
    // Without shapes the file is read all the same: it may be wrong, too.
    let is_whole = shapes.is_some();
    let shapes = shapes.unwrap_or_default();
    let constants = constants.into_iter().map(|(name, found)| (name, found.value)).collect();
    let span = model.span;
    load(report, names, Header { name, model: path, shapes, dtype, layout, images, constants, on_cpus, span, line })
        .filter(|_| is_whole)
}

/// The shapes of inputs by name.
type Shapes = BTreeMap<String, Vec<Size>>;

/// Most lists of shapes that one network is made for.
const MAX_PLANS: usize = 64;

/// The shapes of all inputs, one map a plan: of an input with several, one after the other.
fn shapes(report: &mut Report, inputs: BTreeMap<String, Found<Vec<Vec<Size>>>>) -> Option<Vec<Shapes>> {
    let before = report.len();
    let longest = inputs.iter().max_by_key(|(_, found)| found.value.len());
    let plans = longest.map_or(1, |(_, found)| found.value.len());
    let mut ranges: BTreeMap<usize, (&str, Size)> = BTreeMap::new();
    for (name, Found { value: shapes, span }) in &inputs {
        if let (Some((other, _)), true) = (longest, shapes.len() != 1 && shapes.len() != plans) {
            let cause = format!("`{name}` has {} shapes, and `{other}` has {plans}", shapes.len());
            report.error(span, cause, "give each input one shape for each call, or one for all calls");
        } else if shapes.len() > MAX_PLANS {
            report.error(span, format!("`{name}` has {} shapes", shapes.len()), format!("give it at most {MAX_PLANS}"));
        }
        for (plan, shape) in shapes.iter().enumerate() {
            for size in shape.iter().filter(|size| size.is_range()) {
                if !is_range_of_units(report, name, span, *size) {
                    continue;
                }
                // One shape is that of all plans.
                let of_plans = if shapes.len() == 1 { 0..plans } else { plan..plan + 1 };
                for plan in of_plans {
                    let (other, first) = *ranges.entry(plan).or_insert((name, *size));
                    if first != *size {
                        let cause = format!(
                            "`{name}` has the range \"{}..{}\" and `{other}` \"{}..{}\"",
                            size.least, size.most, first.least, first.most
                        );
                        report.error(span, cause, "a run has one number of images: write the same range");
                    }
                }
            }
        }
    }
    if report.len() > before {
        return None;
    }
    let of_plan = |plan: usize| {
        let shape = |shapes: &Vec<Vec<Size>>| shapes[if shapes.len() == 1 { 0 } else { plan }].clone();
        inputs.iter().map(|(name, found)| (name.clone(), shape(&found.value))).collect()
    };
    let all: Vec<Shapes> = (0..plans).map(of_plan).collect();
    let pairs = (0..all.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
    for (i, j) in pairs.filter(|(i, j)| alike(&all[*i], &all[*j])) {
        let span = longest.map_or(0..0, |(_, found)| found.span.clone());
        let (first, second) = (i + 1, j + 1);
        if meet(&all[i], &all[j]) {
            report.error(&span, format!("the shapes {first} and {second} fit the same inputs"), "leave one out");
            return None;
        }
        let (a, b) = (ranged(&all[i]), ranged(&all[j]));
        if !a.is_empty() && !b.is_empty() && a != b {
            let cause =
                format!("of the shapes {first} and {second} different inputs have a range, and nothing else differs");
            report.error(&span, cause, "make a [[network]] of each");
            return None;
        }
    }
    Some(all)
}

/// The extents of a shape: a scalar has one.
fn extents(shape: &[Size]) -> &[Size] {
    if shape.is_empty() { &[Size { least: 1, most: 1 }] } else { shape }
}

/// Whether the shapes of two plans differ in numbers of images only.
fn alike(a: &Shapes, b: &Shapes) -> bool {
    let same = |(name, a): (&String, &Vec<Size>)| {
        let (a, b) = (extents(a), b.get(name).map_or(&[][..], |shape| extents(shape)));
        let fixed = usize::from(a.iter().chain(b).any(|size| size.is_range()));
        a.len() == b.len() && a[fixed..] == b[fixed..]
    };
    a.iter().all(same)
}

/// Whether there are inputs that have the shapes of two plans, which are alike.
fn meet(a: &Shapes, b: &Shapes) -> bool {
    let meet = |(a, b): (&Vec<Size>, &Vec<Size>)| {
        a.first().zip(b.first()).is_none_or(|(a, b)| a.least <= b.most && b.least <= a.most)
    };
    a.values().zip(b.values()).all(meet)
}

/// The inputs that have a range.
fn ranged(shapes: &Shapes) -> Vec<&String> {
    let has_range = |(_, shape): &(&String, &Vec<Size>)| shape.iter().any(|size| size.is_range());
    shapes.iter().filter(has_range).map(|(name, _)| name).collect()
}

/// Makes steps of the model.
#[cfg(feature = "networks")]
fn load(report: &mut Report, names: &mut Names, header: Header) -> Option<(NetworkSpec, Vec<KernelSpec>)> {
    let Header { name, model, shapes, dtype, layout, images, constants, on_cpus, span, line } = header;
    let images = match images {
        Some(Images::Together) => Batch::Together,
        Some(Images::Apart) => Batch::Apart,
        None if on_cpus => Batch::Faster,
        // Launches of several images are what a GPU is fast with.
        None => Batch::Together,
    };
    let network = Network::load(&name, &model, &shapes, Wanted { dtype, layout, images, constants });
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
            range: task.range.clone(),
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
