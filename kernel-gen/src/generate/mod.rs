//! From a spec and records to sources: the whole pipeline in one call.
//!
//! For every workload of the spec and every CPU level and CUDA architecture: choose a template and a config, schedule,
//! verify, lower, emit C or CUDA; then the Rust wrappers over all of it. [`generate`] reads no file, no clock and no environment, so its result is
//! a function of its arguments: the same bytes in every folder, for every user, with any number of threads.
//! [`build`] writes the sources into a folder and compiles them.

mod build;
pub mod bundle;
mod chosen;
mod cuda;
mod early;
mod error;
#[cfg(feature = "cli")]
mod replay;
mod report;
mod variant;

pub use build::{Built, CudaSupply, build, write_if_changed};
#[cfg(feature = "tune")]
pub(crate) use chosen::pack_positions;
pub use cuda::CudaSource;
#[cfg(feature = "tune")]
pub(crate) use early::Early;
pub use error::{Cause, GenerateError, WorkloadFault};
#[cfg(feature = "cli")]
pub(crate) use replay::emitted;
pub use report::{Report, Row};

use crate::emit::rust;
use crate::model;
use crate::records::{BestRecords, Choice};
use crate::spec::{Fallback, Spec};
use crate::target::Target;
use crate::templates::Registry;
use crate::toolchain::cuda::require_portable;
use crate::toolchain::in_parallel;
use crate::workload::Workload;
use chosen::{Chosen, Outcome, carry_out};

/// What to generate, besides spec, records and templates.
#[derive(Clone, Debug)]
pub struct Options {
    /// The architecture to generate for, as Rust calls it.
    pub arch: String,
    /// What the C symbols start with. Two crates in one program must have different ones.
    pub prefix: String,
    /// How to choose.
    pub choose: model::Options,
    /// Whether there will be code for the CPU behind the wrappers.
    pub code: CodePolicy,
    /// Whether CUDA is emitted for the CUDA architectures of the spec.
    pub cuda: bool,
    /// The folder of compiled CUDA, below the `OUT_DIR` of the build script whose crate includes the wrappers.
    pub images: String,
    /// How many threads generate; the result does not depend on it.
    pub jobs: usize,
}

/// Whether there will be code behind the wrappers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CodePolicy {
    /// Yes: C is emitted, to be compiled.
    Compile,
    /// No, and launches return an error with this reason.
    Absent(String),
    /// No, and a program that contains a launch does not link: it misses a symbol of this name.
    Unresolved(String),
}

/// The sources of a crate's kernels.
#[derive(Clone, Debug, Default)]
pub struct Generated {
    /// The C sources.
    pub sources: Vec<Source>,
    /// The CUDA sources, each of which becomes an image.
    pub cuda: Vec<CudaSource>,
    /// One header that declares every function of the sources.
    pub header: String,
    /// The Rust wrappers.
    pub rust: String,
    /// Where every choice came from.
    pub report: Report,
}

/// A C source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The file's name.
    pub name: String,
    /// What the compiler must be told.
    pub flags: Vec<String>,
    /// Its text.
    pub text: String,
}

/// Generates everything that a spec asks for. All workloads that fail are reported.
pub fn generate(
    spec: &Spec,
    records: &BestRecords,
    registry: &Registry,
    options: &Options,
) -> Result<Generated, Vec<GenerateError>> {
    let levels = match &options.code {
        CodePolicy::Compile => spec.targets.cpu_levels(&options.arch),
        _ => vec![],
    };
    let items = tasks(spec);
    let archs = if options.cuda { cuda::best_first(&spec.targets.cuda) } else { vec![] };
    let parsed = archs.iter().map(|t| t.name.parse()).collect::<Result<Vec<_>, _>>();
    parsed.and_then(|all| require_portable(&all)).map_err(|e| vec![GenerateError::Cuda(e)])?;
    let jobs: Vec<(&Task<'_>, &Target)> =
        items.iter().flat_map(|item| levels.iter().chain(&archs).map(move |target| (item, *target))).collect();
    let choose = choose_options(spec, options);
    let made = in_parallel(options.jobs, &jobs, |(task, target)| {
        carry_out(task, target, records, registry, &choose, |chosen| make(chosen, &options.prefix))
    });
    let mut errors = vec![];
    let mut variants = vec![];
    for result in made {
        match result {
            Ok(variant) => variants.push(variant),
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        // Levels of one workload often fail for one reason.
        errors.dedup();
        return Err(errors);
    }
    Ok(assemble(spec, items, levels.len() + archs.len(), variants, options))
}

/// Does with each workload of the spec on each of the targets what a build does, up to the sources, and keeps none of them.
/// The answers are in the order of the targets, and for each in the order of the spec.
pub fn dry_run(
    spec: &Spec,
    targets: &[&Target],
    records: &BestRecords,
    registry: &Registry,
    options: &Options,
) -> Vec<Result<Tried, GenerateError>> {
    let (items, choose) = (tasks(spec), choose_options(spec, options));
    let jobs: Vec<(&Task<'_>, &Target)> =
        targets.iter().flat_map(|target| items.iter().map(move |item| (item, *target))).collect();
    in_parallel(options.jobs, &jobs, |(task, target)| try_task(task, target, records, registry, &choose))
}

/// The same for one workload on one target, without a spec.
pub fn try_workload(
    workload: &Workload,
    target: &Target,
    records: &BestRecords,
    registry: &Registry,
    options: &model::Options,
) -> Result<Tried, GenerateError> {
    let key = workload.key();
    let task = Task { kernel: &key, workload, name: workload.kernel_name(), file: "workload", line: 1 };
    try_task(&task, target, records, registry, options)
}

/// What a build would do for a workload on a target.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What it would choose, and which choices that come first cannot be carried out.
    pub choice: Choice,
    /// What it would say of the latter.
    pub warnings: Vec<String>,
}

fn try_task(
    task: &Task<'_>,
    target: &Target,
    records: &BestRecords,
    registry: &Registry,
    options: &model::Options,
) -> Result<Tried, GenerateError> {
    let outcome = carry_out(task, target, records, registry, options, |chosen| make(chosen, "kg"))?;
    Ok(Tried { choice: outcome.choice, warnings: outcome.warnings })
}

/// The code of a workload on a target.
enum Made {
    C(variant::Made),
    Cuda(cuda::Made),
}

/// Makes the code of a choice.
fn make(chosen: &Chosen<'_>, prefix: &str) -> Result<Made, GenerateError> {
    match chosen.target.cpu() {
        Some(_) => variant::make(chosen, prefix).map(Made::C),
        None => cuda::make(chosen).map(Made::Cuda),
    }
}

/// How the spec and the options want templates to be chosen.
fn choose_options(spec: &Spec, options: &Options) -> model::Options {
    model::Options {
        deny_fallback: options.choose.deny_fallback || spec.fallback == Fallback::Deny,
        threads: spec.threads.and_then(|t| u32::try_from(t).ok()).or(options.choose.threads),
        ..options.choose.clone()
    }
}

/// A workload to generate.
struct Task<'a> {
    /// The name of its function.
    kernel: &'a str,
    workload: &'a Workload,
    /// The name of its module.
    name: String,
    /// The file and the line that ask for it.
    file: &'a str,
    line: usize,
}

/// The workloads of a spec, in its order.
fn tasks(spec: &Spec) -> Vec<Task<'_>> {
    let named = names(spec).into_iter().zip(spec.workloads());
    named
        .map(|(name, (kernel, w))| Task {
            kernel: &kernel.name,
            workload: &w.workload,
            name,
            file: &spec.file,
            line: w.line,
        })
        .collect()
}

/// The module names of all workloads: their own, or made from what they compute.
fn names(spec: &Spec) -> Vec<String> {
    let mut taken: Vec<String> = spec.workloads().filter_map(|(_, w)| w.name.clone()).collect();
    taken.extend(spec.kernels.iter().map(|k| k.name.clone()));
    taken.extend(spec.externs.iter().map(|e| e.name.clone()));
    let mut names = vec![];
    for (kernel, workload) in spec.workloads() {
        names.push(workload.name.clone().unwrap_or_else(|| {
            // The kernel's name stands for what all its workloads share, so the shape is enough.
            let wanted = rust::rust_name(&format!("{}_{}", kernel.name, shape_key(&workload.workload.key())));
            let mut name = wanted.clone();
            let mut number = 2;
            while taken.contains(&name) {
                name = format!("{wanted}_{number}");
                number += 1;
            }
            taken.push(name.clone());
            name
        }));
    }
    names
}

/// The part of a workload's key from its shape on.
fn shape_key(key: &str) -> &str {
    // Operator, layout, types and math come first; the first part that holds a size starts with `n`, `m` or `b`.
    let mut start = 0;
    for part in key.split('-') {
        let mut chars = part.chars();
        let sized = matches!(chars.next(), Some('n' | 'm' | 'b')) && chars.next().is_some_and(|c| c.is_ascii_digit());
        if sized && !part.starts_with("bf16") {
            return &key[start..];
        }
        start += part.len() + 1;
    }
    key
}

/// Puts the results together in the order of the spec.
fn assemble(
    spec: &Spec,
    items: Vec<Task<'_>>,
    targets: usize,
    variants: Vec<Outcome<Made>>,
    options: &Options,
) -> Generated {
    let mut generated = Generated::default();
    let mut prototypes = String::new();
    let mut functions: Vec<rust::Function> = vec![];
    let mut variants = variants.into_iter();
    let report = &mut generated.report;
    for item in items {
        let (mut made, mut on_gpus) = (vec![], vec![]);
        for mut variant in variants.by_ref().take(targets) {
            report.rows.push(variant.row);
            report.warnings.extend(variant.choice.refusals.iter().map(|r| r.to_string()));
            report.warnings.append(&mut variant.warnings);
            match variant.made {
                Made::C(mut c) => {
                    generated.sources.append(&mut c.sources);
                    prototypes += &c.prototypes;
                    made.push(c.variant);
                }
                Made::Cuda(mut cuda) => {
                    generated.cuda.append(&mut cuda.sources);
                    on_gpus.push(cuda.variant);
                }
            }
        }
        let code = match &options.code {
            CodePolicy::Absent(reason) => rust::Code::Absent(reason.clone()),
            CodePolicy::Unresolved(symbol) => rust::Code::Unresolved(symbol.clone()),
            CodePolicy::Compile if made.is_empty() => {
                rust::Code::Absent(format!("kernels are not emitted for the architecture {}", options.arch))
            }
            CodePolicy::Compile => rust::Code::Compiled(made),
        };
        let made = rust::Item { name: item.name, workload: item.workload.clone(), code, cuda: on_gpus };
        match functions.last_mut().filter(|f| f.name == item.kernel) {
            Some(function) => function.items.push(made),
            None => functions.push(rust::Function { name: item.kernel.to_string(), items: vec![made] }),
        }
    }
    // Records that fit no level are named once a level; once is enough.
    report.warnings.sort();
    report.warnings.dedup();
    let images = options.images.clone();
    let module = rust::Module { spec: file_name(&spec.file), functions, report: report.to_string(), images };
    generated.header = header(&prototypes);
    generated.rust = rust::emit(&module);
    generated
}

/// The name of a file without its folder, which may differ from machine to machine.
fn file_name(path: &str) -> String {
    path.rsplit(['/', '\\']).next().unwrap_or(path).to_string()
}

fn header(prototypes: &str) -> String {
    format!(
        "// The functions of all kernels; see the sources beside this file.\n#pragma once\n#include <stdint.h>\n\n{prototypes}"
    )
}

#[cfg(test)]
mod tests;
