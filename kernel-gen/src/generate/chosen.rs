//! What was chosen for a workload on a target, and the kernel of the choice: what C and CUDA variants have in common.

use super::early::Early;
use super::error::{Cause, GenerateError, WorkloadFault};
use super::report::Row;
use super::task::Task;
use crate::emit::rust;
use crate::ir::{Access, Kernel};
use crate::model;
use crate::records::{BestRecords, Choice, Unusable};
use crate::stable::fnv1a;
use crate::target::Target;
use crate::templates::{Pack, Registry, Scheduled};

/// Where the workload is declared, and what was chosen; goes into errors.
pub(super) struct Place<'a> {
    task: &'a Task<'a>,
    choice: Option<String>,
}

impl Place<'_> {
    pub(super) fn fault(&self, cause: Cause) -> GenerateError {
        let (file, choice) = (self.task.file.to_string(), self.choice.clone());
        GenerateError::Workload(Box::new(WorkloadFault { file, line: self.task.line, choice, cause }))
    }
}

/// A choice and its kernel, checked against the workload.
pub(super) struct Chosen<'a> {
    task: &'a Task<'a>,
    pub(super) target: &'a Target,
    choice: Choice,
    /// Template and version.
    pub(super) template: String,
    /// The config as text.
    pub(super) config: String,
    pub(super) kernel: Kernel,
    /// Whether the kernel begins before what is in front of it has ended.
    pub(super) early: Early,
    /// Packed parameters: position in the workload's parameters, and what packs.
    pub(super) packs: Vec<(usize, Pack)>,
    /// What the symbols of C start with, behind the crate's prefix: workload, target and template.
    pub(super) stem: String,
    /// What the symbols of CUDA start with. An image is a module of its own, whose names meet no others, so they need neither
    /// prefix nor content, and packaged code serves every crate.
    pub(super) symbol: String,
    pub(super) place: Place<'a>,
}

/// Chooses for a workload and makes code of the choice. Where that fails, what comes next takes its place: a choice that the
/// verifier or a later step refuses is a defect of its template, and ends no build as long as another one works. Without
/// fallback there is no other one, since none was measured.
pub(super) fn carry_out<'a, T>(
    task: &'a Task<'a>,
    target: &'a Target,
    records: &BestRecords,
    registry: &Registry,
    options: &model::Options,
    make: impl Fn(&Chosen<'a>) -> Result<T, GenerateError>,
) -> Result<Outcome<T>, GenerateError> {
    let first = model::choose(registry, task.workload, target, records, options)
        .map_err(|error| Place { task, choice: None }.fault(Cause::Choose(error)))?;
    let (refusals, mut unusable) = (first.refusals.clone(), first.unusable.clone());
    let attempt = |choice: Choice| {
        let chosen = Chosen::new(task, target, registry, choice)?;
        make(&chosen).map(|made| (made, chosen))
    };
    let mut first_error = None;
    let mut next = std::iter::once(first.clone());
    let mut others = (!options.deny_fallback).then(|| {
        std::iter::once_with(|| model::instead_of(&first, registry, task.workload, target, options)).flatten()
    });
    while let Some(choice) = next.next().or_else(|| others.as_mut()?.next()) {
        let name = choice_name(registry, &choice);
        match attempt(choice) {
            Ok((made, chosen)) => {
                let warnings = unusable.iter().map(|over| chosen.instead_of(over)).collect();
                let (row, choice) = (chosen.row(), Choice { refusals, unusable, ..chosen.choice });
                return Ok(Outcome { made, choice, row, warnings });
            }
            Err(error) => {
                let reason = match &error {
                    GenerateError::Workload(fault) => fault.cause.to_string(),
                    other => other.to_string(),
                };
                unusable.push(Unusable { choice: name, reason });
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.expect("the first choice was tried"))
}

/// Template, version and config of a choice, and where it was measured.
fn choice_name(registry: &Registry, choice: &Choice) -> String {
    let version = registry.find(&choice.template).map_or(0, |t| t.version());
    let name = format!("{} v{version} with {}", choice.template, choice.config);
    if choice.origin.is_measured() { format!("{name} ({})", choice.origin) } else { name }
}

/// What came of a workload on a target.
pub(super) struct Outcome<T> {
    pub(super) made: T,
    /// The choice that was carried out.
    pub(super) choice: Choice,
    pub(super) row: Row,
    /// What was passed over, in sentences.
    pub(super) warnings: Vec<String>,
}

impl<'a> Chosen<'a> {
    /// Makes the kernel of a choice.
    pub(super) fn new(
        task: &'a Task<'a>,
        target: &'a Target,
        registry: &Registry,
        choice: Choice,
    ) -> Result<Chosen<'a>, GenerateError> {
        let workload = task.workload;
        let template = registry.find(&choice.template).expect("a choice names a template of the registry");
        let version = format!("{} v{}", template.name(), template.version());
        let config = choice.config.to_string();
        let place = Place { task, choice: Some(format!("{version} with {config} on {}", target.name)) };
        let Scheduled { schedule, packs } =
            template.schedule(workload, target, &choice.config).map_err(|error| place.fault(Cause::Template(error)))?;
        let kernel = schedule.kernel;
        let positions =
            pack_positions(&kernel, &packs, workload).map_err(|reason| place.fault(Cause::Parameters(reason)))?;
        let level = target.name.replace('-', "_");
        // The symbol names the config by its hash: profilers show it, and the report and the source's header spell it out.
        let hash = fnv1a(format!("{version} {config}").as_bytes()) as u32;
        let stem = format!("{}_{level}_{}", task.name, rust::rust_name(template.name()));
        let symbol = format!("{stem}_{hash:08x}");
        let packs = positions.into_iter().zip(packs).collect();
        let early = Early::of(template, workload, target);
        Ok(Chosen { task, target, choice, template: version, config, kernel, early, packs, stem, symbol, place })
    }

    /// Says that this took the place of another choice.
    fn instead_of(&self, over: &Unusable) -> String {
        let Task { file, line, name, .. } = self.task;
        format!(
            "{file}:{line}: {name} on {}: {} cannot be used: {}; {} with {} takes its place, which may be slower; report the defect of \
             the template, or tune the workload",
            self.target.name, over.choice, over.reason, self.template, self.config
        )
    }

    /// What stands at the top of a source.
    pub(super) fn comment(&self, what: &str) -> String {
        format!(
            "{what}\nworkload: {}\ntemplate: {}\nconfig: {}\norigin: {}\n\
             Generated by kernel-gen {}; change the spec or its tuned records and build again to regenerate.",
            self.task.workload.key(),
            self.template,
            self.config,
            self.choice.origin,
            env!("CARGO_PKG_VERSION"),
        )
    }

    /// Says of the main kernel what it is.
    pub(super) fn title(&self) -> String {
        format!("{} of `{}`", self.task.name, self.task.kernel)
    }

    /// Says of a packing kernel what it is.
    pub(super) fn pack_title(&self, pack: &Pack) -> String {
        format!("packs `{}` of {}", pack.param, self.task.name)
    }

    /// The stem of the names of files.
    pub(super) fn file_stem(&self) -> String {
        format!("{}.{}", self.task.name, self.target.name)
    }

    /// Where the config came from, in one word.
    pub(super) fn origin(&self) -> String {
        self.choice.origin.word().to_string()
    }

    /// The same in a sentence.
    pub(super) fn origin_detail(&self) -> String {
        self.choice.origin.to_string()
    }

    /// Measured or expected time, if it is a number.
    pub(super) fn cost_us(&self) -> Option<f64> {
        Some(self.choice.origin.time_us()).filter(|t| t.is_finite())
    }

    /// All of that, as the wrappers' tables say it.
    pub(super) fn summary(&self) -> rust::Choice {
        rust::Choice {
            template: self.template.clone(),
            config: self.config.clone(),
            origin: self.origin(),
            origin_detail: self.origin_detail(),
            cost_us: self.cost_us(),
        }
    }

    /// The row of the report.
    pub(super) fn row(&self) -> Row {
        Row {
            kernel: self.task.kernel.to_string(),
            name: self.task.name.clone(),
            workload: self.task.workload.key(),
            target: self.target.name.clone(),
            template: self.template.clone(),
            config: self.config.clone(),
            origin: self.origin(),
            origin_detail: self.origin_detail(),
            time_us: self.choice.origin.time_us(),
        }
    }
}

/// Holds a scheduled kernel's parameters against its workload's: the same order, and the same shape and type unless
/// the parameter is packed. Gives the position of each pack's parameter.
pub(crate) fn pack_positions(
    kernel: &Kernel,
    packs: &[Pack],
    workload: &crate::workload::Workload,
) -> Result<Vec<usize>, String> {
    let params = workload.params();
    if kernel.params.len() != params.len() {
        return Err(format!("the kernel has {} parameters, the workload {}", kernel.params.len(), params.len()));
    }
    let mut positions = vec![];
    for pack in packs {
        let position = kernel.params.iter().position(|p| kernel.buffer(*p).name == pack.param);
        let position = position.ok_or_else(|| format!("it packs `{}`, which is no parameter", pack.param))?;
        let [original, packed] = pack.kernel.params[..] else {
            return Err(format!("what packs `{}` does not have two parameters", pack.param));
        };
        let (original, packed) = (pack.kernel.buffer(original), pack.kernel.buffer(packed));
        let wanted = kernel.buffer(kernel.params[position]);
        if original.shape != params[position].shape || original.dtype != params[position].dtype {
            return Err(format!("what packs `{}` takes another tensor than the workload has", pack.param));
        }
        if packed.shape != wanted.shape || packed.strides != wanted.strides || packed.dtype != wanted.dtype {
            return Err(format!("what packs `{}` makes another tensor than the kernel takes", pack.param));
        }
        positions.push(position);
    }
    for (i, (id, param)) in kernel.params.iter().zip(&params).enumerate() {
        let buffer = kernel.buffer(*id);
        // A template may see a dense tensor under another shape, rows of pixels as one row, say: what counts is that
        // the elements are the same in the same order.
        let elements = buffer.shape.iter().copied().fold(1, i64::saturating_mul);
        let same = elements == param.elements() && buffer.dtype == param.dtype && buffer.is_row_major();
        if !same && !positions.contains(&i) {
            return Err(format!(
                "the parameter `{}` is not `{}` of the workload, and nothing packs it",
                buffer.name, param.name
            ));
        }
        if (buffer.access == Access::Read) != (param.access == Access::Read) {
            return Err(format!(
                "the parameter `{}` is not read or written as `{}` of the workload is",
                buffer.name, param.name
            ));
        }
    }
    Ok(positions)
}
