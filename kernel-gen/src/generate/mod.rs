//! From a spec and records to sources: the whole pipeline in one call.
//!
//! For every workload of the spec and every CPU level: choose a template and a config, schedule, verify, lower, emit
//! C; then the Rust wrappers over all of it. [`generate`] reads no file, no clock and no environment, so its result is
//! a function of its arguments: the same bytes in every folder, for every user, with any number of threads.
//! [`build`] writes the sources into a folder and compiles them.

mod build;
mod error;
mod report;
mod variant;

pub use build::{Built, build, write_if_changed};
pub use error::{Cause, GenerateError, WorkloadFault};
pub use report::{Report, Row};

use crate::emit::rust;
use crate::model;
use crate::records::BestRecords;
use crate::spec::{KernelSpec, Spec, WorkloadSpec};
use crate::target::Target;
use crate::templates::Registry;
use crate::toolchain::in_parallel;

/// What to generate, besides spec, records and templates.
#[derive(Clone, Debug)]
pub struct Options {
    /// The architecture to generate for, as Rust calls it.
    pub arch: String,
    /// What the C symbols start with. Two crates in one program must have different ones.
    pub prefix: String,
    /// How to choose.
    pub choose: model::Options,
    /// Whether there will be code behind the wrappers.
    pub code: CodePolicy,
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
#[derive(Clone, Debug)]
pub struct Generated {
    /// The C sources.
    pub sources: Vec<Source>,
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
    let mut names = names(spec);
    let items: Vec<Task<'_>> =
        spec.workloads().map(|(kernel, workload)| Task { kernel, workload, name: names.remove(0) }).collect();
    let jobs: Vec<(&Task<'_>, &Target)> =
        items.iter().flat_map(|item| levels.iter().map(move |level| (item, *level))).collect();
    let made =
        in_parallel(options.jobs, &jobs, |(task, level)| variant::make(task, level, records, registry, options, spec));
    let mut errors = vec![];
    let mut variants = vec![];
    for result in made {
        match result {
            Ok(variant) => variants.push(Some(variant)),
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        // Levels of one workload often fail for one reason.
        errors.dedup();
        return Err(errors);
    }
    Ok(assemble(spec, items, levels.len(), variants, options))
}

/// A workload to generate, with the name of its module.
struct Task<'a> {
    kernel: &'a KernelSpec,
    workload: &'a WorkloadSpec,
    name: String,
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
    levels: usize,
    mut variants: Vec<Option<variant::Made>>,
    options: &Options,
) -> Generated {
    let mut sources = vec![];
    let mut prototypes = String::new();
    let mut report = Report::default();
    let mut functions: Vec<rust::Function> = vec![];
    for (i, item) in items.into_iter().enumerate() {
        let mut made = vec![];
        for level in 0..levels {
            let Some(mut variant) = variants[i * levels + level].take() else { continue };
            sources.append(&mut variant.sources);
            prototypes += &variant.prototypes;
            report.rows.push(variant.row);
            report.warnings.append(&mut variant.warnings);
            made.push(variant.variant);
        }
        let code = match &options.code {
            CodePolicy::Absent(reason) => rust::Code::Absent(reason.clone()),
            CodePolicy::Unresolved(symbol) => rust::Code::Unresolved(symbol.clone()),
            CodePolicy::Compile if made.is_empty() => {
                rust::Code::Absent(format!("kernels are not emitted for the architecture {}", options.arch))
            }
            CodePolicy::Compile => rust::Code::Compiled(made),
        };
        let made = rust::Item { name: item.name, workload: item.workload.workload.clone(), code, cuda: vec![] };
        match functions.last_mut().filter(|f| f.name == item.kernel.name) {
            Some(function) => function.items.push(made),
            None => functions.push(rust::Function { name: item.kernel.name.clone(), items: vec![made] }),
        }
    }
    // Records that fit no level are named once a level; once is enough.
    report.warnings.sort();
    report.warnings.dedup();
    let module =
        rust::Module { spec: file_name(&spec.file), functions, report: report.to_string(), images: String::new() };
    Generated { sources, header: header(&prototypes), rust: rust::emit(&module), report }
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
