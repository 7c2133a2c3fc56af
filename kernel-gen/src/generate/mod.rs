//! From a spec and records to sources: the whole pipeline in one call.
//!
//! For every workload of the spec and every CPU level and CUDA architecture: choose a template and a config, schedule,
//! verify, lower, emit C or CUDA; then the Rust wrappers over all of it. [`generate`] reads no clock and no environment, and of
//! files only what earlier runs of the same generator left in its [`Memo`], so its result is a function of its arguments: the same
//! bytes in every folder, for every user, with any number of threads.
//! [`build`] writes the sources into a folder and compiles them.

mod assemble;
mod build;
pub mod bundle;
mod c;
mod carry_out;
mod chosen;
mod cuda;
mod early;
mod error;
mod flatten;
mod join;
mod made;
mod memo;
#[cfg(feature = "networks")]
mod network;
mod options;
mod own;
mod own_code;
mod ranges;
#[cfg(feature = "cli")]
mod replay;
mod report;
mod task;

pub use assemble::Generated;
pub use build::{Built, CudaSupply, build, write_if_changed};
pub use c::Source;
#[cfg(feature = "tune")]
pub(crate) use chosen::pack_positions;
pub use cuda::CudaSource;
#[cfg(feature = "tune")]
pub(crate) use early::Early;
pub use error::{Cause, GenerateError, WorkloadFault};
pub use memo::Memo;
pub use options::{CodePolicy, Options};
pub use own::{Own, own_cuda, own_faults};
pub use own_code::OwnCode;
#[cfg(feature = "tune")]
pub(crate) use ranges::rungs;
#[cfg(feature = "cli")]
pub(crate) use replay::emitted;
pub use report::{Report, Row};

use crate::model;
use crate::records::{BestRecords, Choice};
use crate::spec::{Spec, WorkloadSpec};
use crate::target::Target;
use crate::templates::Registry;
use crate::toolchain::cuda::require_portable;
use crate::toolchain::in_parallel;
use crate::workload::{Range, Slices, Workload};
use assemble::assemble;
use carry_out::{With, carry_out_all};
use memo::Digests;
use options::choose_options;
use task::{Rung, Task, tasks};

/// Generates everything that a spec asks for. All workloads that fail are reported.
pub fn generate(
    spec: &Spec,
    records: &BestRecords,
    registry: &Registry,
    options: &Options,
) -> Result<Generated, Vec<GenerateError>> {
    let levels = match &options.code {
        // Of two that a machine runs, one for integers is the better one.
        CodePolicy::Compile => {
            let for_integers = spec.targets.integer_levels(&options.arch).into_iter();
            for_integers.chain(spec.targets.cpu_levels(&options.arch)).collect()
        }
        _ => vec![],
    };
    let items = tasks(spec);
    let archs = if options.cuda { cuda::best_first(&spec.targets.cuda) } else { vec![] };
    let parsed = archs.iter().map(|t| t.name.parse()).collect::<Result<Vec<_>, _>>();
    parsed.and_then(|all| require_portable(&all)).map_err(|e| vec![GenerateError::Cuda(e)])?;
    let jobs: Vec<(&Task<'_>, &Target)> =
        items.iter().flat_map(|item| levels.iter().chain(&archs).map(move |target| (item, *target))).collect();
    let choose = choose_options(spec, options);
    let digests = options.memo.as_ref().map(|_| Digests::new(items.iter().map(|item| item.workload), records));
    let memo = options.memo.as_ref().zip(digests.as_ref());
    let with = With { records, registry, options: &choose, prefix: &options.prefix, memo };
    let made = in_parallel(options.jobs, &jobs, |(task, target)| match target.serves(task.workload) {
        true => carry_out_all(task, target, &with),
        false => Ok(vec![]),
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

/// What came of a workload of a spec on a target, where nothing was built.
pub struct DryRun<'a> {
    /// The workload.
    pub workload: &'a WorkloadSpec,
    /// The target.
    pub target: &'a Target,
    /// What a build would do, or the error that it would end with.
    pub tried: Result<Tried, GenerateError>,
}

/// Does with each workload of the spec on each of the targets what a build does, up to the sources, and keeps none of them.
/// The answers are in the order of the targets, and for each in the order of the spec: of the workloads that it serves.
pub fn dry_run<'a>(
    spec: &'a Spec,
    targets: &[&'a Target],
    records: &BestRecords,
    registry: &Registry,
    options: &Options,
) -> Vec<DryRun<'a>> {
    let (items, choose) = (tasks(spec), choose_options(spec, options));
    let of_target =
        |target: &'a Target| items.iter().zip(spec.workloads()).map(move |(task, (_, w))| (task, w, target));
    let jobs = targets.iter().flat_map(|target| of_target(target));
    let jobs: Vec<_> = jobs.filter(|(task, _, target)| target.serves(task.workload)).collect();
    in_parallel(options.jobs, &jobs, |(task, workload, target)| DryRun {
        workload,
        target,
        tried: try_task(task, target, records, registry, &choose),
    })
}

/// The same for one workload on one target, without a spec; for each number of units, if there is a range of them.
pub fn try_workload(
    (workload, range): (&Workload, Option<&Range>),
    target: &Target,
    records: &BestRecords,
    registry: &Registry,
    options: &model::Options,
) -> Result<Tried, GenerateError> {
    let key = workload.key();
    let task = Task {
        kernel: &key,
        workload,
        slices: Slices::default(),
        rung: range.map(|range| Rung { range, largest: workload, least: range.least, most: range.most }),
        name: workload.kernel_name(),
        file: "workload",
        line: 1,
    };
    try_task(&task, target, records, registry, options)
}

/// What a build would do for a workload on a target.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What it would choose, and which choices that come first cannot be carried out; of a range, for the most units.
    pub choice: Choice,
    /// Of a range, what it would choose for fewer units: how many a kernel is for at most, the fewest first.
    pub smaller: Vec<(i64, Choice)>,
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
    let mut all = carry_out_all(task, target, &With { records, registry, options, prefix: "kg", memo: None })?;
    let warnings = all.iter_mut().flat_map(|outcome| std::mem::take(&mut outcome.warnings)).collect();
    let choice = all.pop().expect("a workload has a kernel, or an error").choice;
    let smaller = all.into_iter().map(|outcome| (outcome.most, outcome.choice)).collect();
    Ok(Tried { choice, smaller, warnings })
}

#[cfg(test)]
mod tests;
