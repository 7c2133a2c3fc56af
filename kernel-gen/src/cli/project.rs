//! What every command needs: the spec, the records, and the workload and target that the user means.

use super::output::Failure;
use crate::diagnostic::{Diagnostic, closest};
use crate::emit::c::Isa;
use crate::model::{Options, choose};
use crate::records::{BestRecords, Choice, Entry};
use crate::space::{Config, Value};
use crate::spec::{Fallback, KernelSpec, Spec, WorkloadSpec};
use crate::target::Target;
use crate::templates::Registry;
use crate::tune::bench::Ranged;
use crate::workload::{Range, Workload};
use clap::Args;
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

/// Where the spec and the records are.
#[derive(Args, Clone, Debug)]
pub(super) struct Files {
    #[command(flatten)]
    pub(super) spec: SpecFile,
    #[command(flatten)]
    pub(super) records: RecordFiles,
}

/// Where the records are.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct RecordFiles {
    /// The folder of best records [default: tuned, beside the spec]
    #[arg(long, value_name = "FOLDER")]
    pub(super) tuned: Option<PathBuf>,
    /// Leave out the records that came with this command, as a build does by `shipped_records(false)`
    #[arg(long)]
    pub(super) no_shipped: bool,
}

impl RecordFiles {
    /// The records of a folder, over those that were shipped unless they are left out.
    pub(super) fn load(&self, folder: &Path) -> Result<BestRecords, Vec<Diagnostic>> {
        let shipped = match self.no_shipped {
            true => Ok(BestRecords::new()),
            false => BestRecords::shipped(kernel_gen_records::FILES, &|_| true),
        };
        BestRecords::load(folder).and_then(|own| Ok(own.over(shipped?)))
    }
}

/// Whether a folder of records that is named is there.
pub(super) fn require_folder(named: &Path) -> Result<(), Failure> {
    match named.is_dir() {
        true => Ok(()),
        false => {
            let help = "name one that has a folder of records for each target";
            Err(format!("there is no folder {}; {help}", named.display()).into())
        }
    }
}

/// The spec, by position or by name.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct SpecFile {
    /// The spec [default: kernels.toml]
    #[arg(value_name = "SPEC")]
    pub(super) file: Option<PathBuf>,
    /// The same
    #[arg(long = "spec", value_name = "FILE", hide = true, conflicts_with = "file")]
    named: Option<PathBuf>,
}

impl SpecFile {
    /// This one, or the default.
    pub(super) fn of(file: Option<&PathBuf>) -> SpecFile {
        SpecFile { file: file.cloned(), named: None }
    }

    /// The one that is given, or the default.
    pub(super) fn path(&self) -> PathBuf {
        self.given().cloned().unwrap_or_else(|| PathBuf::from("kernels.toml"))
    }

    /// The one that is given.
    pub(super) fn given(&self) -> Option<&PathBuf> {
        self.file.as_ref().or(self.named.as_ref())
    }
}

impl Files {
    /// The files, and a workload's name that was given before the spec or behind it.
    pub(super) fn beside(&self, workload: &str) -> Result<(Files, String), Failure> {
        match &self.spec.file {
            _ if !workload.ends_with(".toml") => Ok((self.clone(), workload.to_string())),
            Some(file) => {
                let spec = SpecFile::of(Some(&workload.into()));
                Ok((Files { spec, ..self.clone() }, file.to_string_lossy().into_owned()))
            }
            None => {
                Err(format!("name a workload or a kernel of {workload} as well, behind it{}", names(workload)).into())
            }
        }
    }
}

/// What a spec has names for, as the end of a message; nothing of a spec that cannot be read.
fn names(spec: &str) -> String {
    let Ok(spec) = Spec::load(Path::new(spec)) else { return String::new() };
    let networks = spec.networks.iter().map(|network| &network.name);
    let own = |kernel: &&KernelSpec| !spec.networks.iter().any(|n| kernel.name.starts_with(&format!("{}_", n.name)));
    let all: Vec<&String> = networks.chain(spec.kernels.iter().filter(own).map(|kernel| &kernel.name)).collect();
    let shown: Vec<&str> = all.iter().take(8).map(|name| name.as_str()).collect();
    let more = if all.len() > shown.len() { ", ..." } else { "" };
    if shown.is_empty() { String::new() } else { format!(", one of {}{more}", shown.join(", ")) }
}

/// A workload that is asked for.
pub(super) struct Wanted {
    /// Its name in the spec, or its key.
    pub(super) name: String,
    /// How often it occurs.
    pub(super) weight: f64,
    /// The workload.
    pub(super) workload: Workload,
    /// Present if it is one size of a range.
    pub(super) ranged: Option<Ranged>,
}

/// A spec and its records.
pub(super) struct Project {
    /// The spec, if there is one.
    pub(super) spec: Option<Spec>,
    /// The records, and those that were shipped under them.
    pub(super) records: BestRecords,
    /// Where they were looked for.
    pub(super) tuned: PathBuf,
}

impl Project {
    /// Reads the spec and the records. Where none is given, a missing `kernels.toml` is no spec; without `--tuned`, a missing
    /// folder has no records.
    pub(super) fn load(files: &Files) -> Result<Project, Failure> {
        files.records.tuned.as_deref().map_or(Ok(()), require_folder)?;
        Project::read(files)
    }

    /// The same, where the folder of records may be missing although it is named.
    pub(super) fn read(files: &Files) -> Result<Project, Failure> {
        let path = files.spec.path();
        let spec = if files.spec.given().is_some() || path.exists() { Some(Spec::load(&path)) } else { None };
        let beside = path.parent().unwrap_or(Path::new("")).join("tuned");
        let tuned = files.records.tuned.clone().unwrap_or(beside);
        let records = files.records.load(&tuned);
        // Whatever is wrong with either is worth knowing at once.
        match (spec.transpose(), records) {
            (Ok(spec), Ok(records)) => Ok(Project { spec, records, tuned }),
            (spec, records) => Err(spec.err().into_iter().chain(records.err()).flatten().collect::<Vec<_>>().into()),
        }
    }

    /// The user's own records.
    pub(super) fn own_records(&self) -> impl Iterator<Item = &Entry> {
        self.records.entries().filter(|entry| !entry.is_shipped)
    }

    /// The workload that a name, or a key, stands for.
    pub(super) fn workload(&self, name: &str) -> Result<Workload, Failure> {
        let mut names = vec![];
        if let Some(spec) = &self.spec {
            if let Some(workload) = spec.find(name) {
                return Ok(workload.clone());
            }
            for kernel in &spec.kernels {
                match &kernel.workloads[..] {
                    [only] if kernel.name == name => return Ok(only.workload.clone()),
                    several if kernel.name == name => {
                        let all: Vec<String> = several.iter().map(|w| label(w.name.as_deref(), &w.workload)).collect();
                        return Err(
                            format!("`{name}` has {} workloads; name one: {}", all.len(), all.join(", ")).into()
                        );
                    }
                    several => {
                        names.push(kernel.name.clone());
                        names.extend(several.iter().filter_map(|w| w.name.clone()));
                    }
                }
            }
        }
        if name.contains('-') {
            return Ok(Workload::from_key(name)?);
        }
        let spec = self.spec.as_ref().map_or("kernels.toml, which is not here".to_string(), |s| s.file.clone());
        let hint = match closest(name, names.iter().map(String::as_str)) {
            Some(close) => format!("did you mean `{close}`?"),
            None if names.is_empty() => "give the key of a workload, such as matmul-f32-m512n512k512-nn".to_string(),
            None => format!("it has {}", names.join(", ")),
        };
        Err(format!("there is no workload `{name}` in {spec}; {hint}").into())
    }

    /// The workloads with these names or keys; without any those of the kernels and workloads of the spec called `only`;
    /// without any of those all of the spec. Equal ones are one, with their weights summed up.
    /// Of a range, the sizes that `sizes` says.
    pub(super) fn wanted(
        &self,
        named: &[String],
        only: &[String],
        sizes: &dyn Fn(&Range) -> Vec<i64>,
    ) -> Result<Vec<Wanted>, Failure> {
        let mut all: Vec<Wanted> = vec![];
        let mut add = |wanted: Wanted| match all.iter_mut().find(|w| w.workload == wanted.workload) {
            Some(same) => {
                same.weight += wanted.weight;
                same.ranged = same.ranged.take().or(wanted.ranged);
            }
            None => all.push(wanted),
        };
        for name in named {
            let workload = self.workload(name)?;
            add(Wanted { name: name.clone(), weight: 1.0, workload, ranged: None });
        }
        if !named.is_empty() {
            return Ok(all);
        }
        let Some(spec) = &self.spec else {
            let help = "name a spec, or a workload with --workload";
            return Err(format!("there is no kernels.toml here; {help}").into());
        };
        for (kernel, w) in spec.workloads() {
            let asked = |name: &String| kernel.name == *name || w.name.as_ref() == Some(name);
            if only.is_empty() || only.iter().any(asked) {
                let (name, weight) = (label(w.name.as_deref(), &w.workload), f64::from(w.count));
                let Some(range) = &w.range else {
                    add(Wanted { name, weight, workload: w.workload.clone(), ranged: None });
                    continue;
                };
                for units in sizes(range) {
                    let ranged = Ranged { workload: w.workload.clone(), range: range.clone(), units };
                    let (name, workload) = (format!("{name} {units}"), range.at(&w.workload, units));
                    add(Wanted { name, weight, workload, ranged: Some(ranged) });
                }
            }
        }
        let missing = only.iter().find(|name| {
            let is = |(kernel, w): (&KernelSpec, &WorkloadSpec)| kernel.name == **name || w.name.as_ref() == Some(name);
            !spec.workloads().any(is)
        });
        match missing {
            // `workload` knows what is close to it.
            Some(name) => Err(self.workload(name).err().unwrap_or_else(|| {
                format!("{} has no kernel or workload called `{name}`; a key goes to --workload", spec.file).into()
            })),
            None => Ok(all),
        }
    }

    /// The CPU levels and CUDA architectures that code is made for when compiling for a CPU architecture.
    pub(super) fn targets(&self, arch: &str) -> Vec<&'static Target> {
        match &self.spec {
            Some(spec) => {
                let integers = spec.workloads().any(|(_, w)| w.workload.is_quantised());
                let all = spec.workloads().all(|(_, w)| w.workload.is_quantised());
                let for_integers = if integers { spec.targets.integer_levels(arch) } else { vec![] };
                let levels = spec.targets.cpu_levels(arch);
                // What is taken where nobody names a target comes first: a level for all that there is.
                let levels = if all { [for_integers, levels].concat() } else { [levels, for_integers].concat() };
                levels.into_iter().chain(spec.targets.cuda.iter().copied()).collect()
            }
            None => Target::cpu_levels(arch),
        }
    }

    /// How the spec wants templates to be chosen.
    pub(super) fn options(&self) -> Options {
        let mut options = Options::default();
        if let Some(spec) = &self.spec {
            options.deny_fallback = spec.fallback == Fallback::Deny;
            options.threads = spec.threads.and_then(|t| u32::try_from(t).ok());
        }
        options
    }
}

/// The target of that name; without one, the best level of this machine's architecture that the project asks for.
pub(super) fn target(project: &Project, name: Option<&str>) -> Result<&'static Target, Failure> {
    if let Some(name) = name {
        return named(name);
    }
    let arch = std::env::consts::ARCH;
    let first = project.targets(arch).first().copied();
    first.ok_or_else(|| format!("there is no target for {arch}; name one with --target").into())
}

/// The target of that name.
pub(super) fn named(name: &str) -> Result<&'static Target, Failure> {
    let all = || Target::all().iter().map(|t| t.name.as_str());
    Target::find(name).ok_or_else(|| {
        let list: Vec<&str> = all().collect();
        let hint = closest(name, all()).map(|close| format!("did you mean `{close}`? ")).unwrap_or_default();
        format!("there is no target `{name}`; {hint}the targets are {}", list.join(", ")).into()
    })
}

/// Whether this machine's CPU executes the code of a target.
fn runs_here(target: &Target) -> bool {
    Isa::from_name(&target.name).is_some_and(Isa::runs_here)
}

/// The best target that this machine's CPU executes.
pub(super) fn best_here() -> Result<&'static Target, Failure> {
    let arch = std::env::consts::ARCH;
    let best = Target::cpu_levels(arch).into_iter().find(|target| runs_here(target));
    best.ok_or_else(|| format!("there is no target for {arch}; name one with --target").into())
}

/// The target of that name; without one, the best that this machine's CPU executes and the project asks for.
pub(super) fn target_here(project: &Project, name: Option<&str>) -> Result<&'static Target, Failure> {
    let name = name.or_else(|| {
        let all = project.targets(std::env::consts::ARCH);
        all.into_iter().find(|target| runs_here(target)).map(|t| t.name.as_str())
    });
    target(project, name)
}

/// A workload's name, or its key where it has none.
pub(super) fn label(name: Option<&str>, workload: &Workload) -> String {
    name.map_or_else(|| workload.key(), str::to_string)
}

/// A config as an object, knob by knob.
pub(super) fn config_json(config: &Config) -> Json {
    let entry = |value: &Value| match value {
        Value::Split(sizes) => json!(sizes),
        Value::Perm(order) => json!({ "perm": order }),
        Value::Annotate(all) => json!(all.iter().map(|a| a.name()).collect::<Vec<_>>()),
        Value::Int(x) => json!(x),
        Value::Str(s) => json!(s),
        Value::Bool(b) => json!(b),
    };
    let knobs: serde_json::Map<String, Json> = config.entries().map(|(k, v)| (k.to_string(), entry(v))).collect();
    json!({ "id": config.id(), "text": config.to_string(), "knobs": knobs })
}

/// What is chosen for a workload on a target as JSON, or as text why nothing is.
pub(super) fn chosen_json(registry: &Registry, project: &Project, workload: &Workload, target: &Target) -> Json {
    match choose(registry, workload, target, &project.records, &project.options()) {
        Ok(choice) => choice_json(&choice),
        Err(error) => json!(error.to_string()),
    }
}

/// A choice as an object.
pub(super) fn choice_json(choice: &Choice) -> Json {
    json!({
        "template": choice.template,
        "config": config_json(&choice.config),
        "origin": choice.origin.word(),
        "origin_text": choice.origin.to_string(),
        "time_us": choice.origin.time_us(),
        "passed_over": choice.passed_over.as_ref().map(|p| p.to_string()),
        "refused": choice.refusals.iter().map(|r| r.to_string()).collect::<Vec<_>>(),
        "unusable": choice.unusable.iter().map(|p| json!({ "choice": p.choice, "reason": p.reason })).collect::<Vec<_>>(),
    })
}

/// A text in JSON, or nothing.
pub(super) fn word(json: &Json) -> &str {
    json.as_str().unwrap_or_default()
}

/// The `choice` of a row as [`choice_json`] has it, or its `error`.
pub(super) fn row_text(row: &Json) -> String {
    let choice = &row["choice"];
    match row["error"].as_str() {
        Some(error) => error.to_string(),
        None => format!(
            "{} {} ({})",
            word(&choice["template"]),
            word(&choice["config"]["text"]),
            word(&choice["origin_text"])
        ),
    }
}
