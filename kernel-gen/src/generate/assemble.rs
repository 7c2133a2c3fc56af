//! All sources of a crate, put together in the order of the spec.

use super::c::Source;
use super::carry_out::Outcome;
use super::cuda::CudaSource;
use super::made::Made;
use super::options::{CodePolicy, Options};
use super::report::Report;
use super::task::Task;
use crate::emit::c::declared_words;
use crate::emit::rust;
use crate::spec::Spec;
use std::collections::BTreeSet;

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
    /// Files that the wrappers include: names and bytes.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Puts the results together in the order of the spec.
pub(super) fn assemble(
    spec: &Spec,
    items: Vec<Task<'_>>,
    targets: usize,
    variants: Vec<Vec<Outcome>>,
    options: &Options,
) -> Generated {
    let mut generated = Generated::default();
    let mut functions: Vec<rust::Function> = vec![];
    let mut variants = variants.into_iter();
    // Workloads share what packs weights of one shape in one way; it has one name then.
    let (mut c_names, mut cuda_names) = (BTreeSet::new(), BTreeSet::new());
    #[cfg(feature = "networks")]
    let (networks, files) = super::network::modules(spec, &options.images);
    #[cfg(not(feature = "networks"))]
    let (networks, files) = (vec![], vec![]);
    generated.files = files;
    let report = &mut generated.report;
    for item in items {
        let (mut made, mut on_gpus) = (vec![], vec![]);
        for mut variant in variants.by_ref().take(targets).flatten() {
            report.rows.push(variant.row);
            report.warnings.extend(variant.choice.refusals.iter().map(|r| r.to_string()));
            report.warnings.append(&mut variant.warnings);
            match variant.made {
                Made::C(c) => {
                    generated.sources.extend(c.sources.into_iter().filter(|s| c_names.insert(s.name.clone())));
                    made.push(c.variant);
                }
                Made::Cuda(cuda) => {
                    generated.cuda.extend(cuda.sources.into_iter().filter(|s| cuda_names.insert(s.name.clone())));
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
        let made = rust::Item {
            name: item.name,
            workload: item.workload.clone(),
            slices: item.slices,
            units: item.rung.map(|rung| rung.range.clone()),
            code,
            cuda: on_gpus,
        };
        match functions.last_mut().filter(|f| f.name == item.kernel) {
            Some(function) => function.items.push(made),
            None => functions.push(rust::Function { name: item.kernel.to_string(), items: vec![made] }),
        }
    }
    // Records that fit no level are named once a level; once is enough.
    report.warnings.sort();
    report.warnings.dedup();
    let images = options.images.clone();
    let module = rust::Module { spec: file_name(&spec.file), functions, networks, report: report.to_string(), images };
    generated.header = header(&generated.sources);
    generated.rust = rust::emit(&module);
    generated
}

/// The name of a file without its folder, which may differ from machine to machine.
fn file_name(path: &str) -> String {
    path.rsplit(['/', '\\']).next().unwrap_or(path).to_string()
}

fn header(sources: &[Source]) -> String {
    let prototypes: String = sources.iter().map(|s| s.prototypes.as_str()).collect();
    let words = declared_words(&prototypes);
    format!(
        "// The functions of all kernels; see the sources beside this file.\n#pragma once\n#include <stdint.h>\n{words}\n{prototypes}"
    )
}
