//! `kernel-gen check`: whether spec and records are sound and belong together.

use super::changes::Changes;
use super::health::Health;
use super::output::{Failure, Output, json_text};
use super::project::{Files, Project, choice_json, label, require_folder, row_text, word};
use crate::generate::{self, Cause, CodePolicy, DryRun, GenerateError, Tried, dry_run, own_cuda};
use crate::model::{ModelError, Options, ladder};
use crate::records::{Choice, Entry, Record, is_word_of_target};
use crate::spec::Spec;
use crate::target::Target;
use crate::templates::Registry;
use crate::toolchain::cuda::{Arch, require_portable};
use clap::Args;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Checks the spec and its records: what is malformed, missing, stale or unused
///
/// Logs are checked with --log: lines that cannot be read and trials that may not be used are errors.
///
/// Each workload goes through what a build does with it on each target, up to the sources. A choice that cannot be carried
/// out, so that another one takes its place, is a warning.
///
/// With --against, choices that differ from those by another folder of records are printed as lines of a diff: what a change of
/// records does to the kernels of a build.
///
/// Malformed files, stale records and workloads that no template can run are errors; so is a missing record where
/// the fallback is denied, by the spec or by an option.
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    files: Files,
    /// Architecture whose CPU levels are checked [default: this machine's]
    #[arg(long, value_name = "ARCH", default_value = std::env::consts::ARCH, hide_default_value = true)]
    arch: String,
    /// Say what changes for each workload against the records of this folder, such as those of another revision
    #[arg(long, value_name = "FOLDER")]
    against: Option<PathBuf>,
    /// Take a missing record for an error, whatever the spec says
    #[arg(long)]
    deny_fallback: bool,
    /// Take an unused record for an error
    #[arg(long)]
    deny_unused: bool,
    /// Check this trial log as well; without a spec, only the logs. May be given several times
    #[arg(long = "log", value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(registry: &Registry, arguments: &Arguments) -> Result<Output, Failure> {
    let health = match &arguments.logs[..] {
        [] => None,
        logs => Some(Health::of(registry, logs)?),
    };
    let project = Project::load(&arguments.files)?;
    let Some(spec) = &project.spec else {
        return match health.filter(|_| arguments.against.is_none()) {
            Some(health) => Ok(only_logs(&health, arguments.json)),
            None => Err("there is no kernels.toml here; name the spec".to_string().into()),
        };
    };
    let known: BTreeSet<&str> = Target::all().iter().filter_map(|t| Some(t.cpu()?.arch.as_str())).collect();
    if !known.contains(&arguments.arch[..]) && arguments.arch != std::env::consts::ARCH {
        let known: Vec<&str> = known.into_iter().collect();
        return Err(format!("there are no CPU levels of `{}`; there are {}", arguments.arch, known.join(", ")).into());
    }
    let options = project.options();
    let deny_fallback = arguments.deny_fallback || options.deny_fallback;
    // Every workload is looked at, with or without a record: what is denied is decided at the end.
    let options = Options { deny_fallback: false, ..options };
    let targets = project.targets(&arguments.arch);
    let mut rows: Vec<Json> = vec![];
    let mut errors: Vec<String> = vec![];
    let mut stale: BTreeSet<String> = BTreeSet::new();
    let mut missing = 0;
    errors.extend(unbuildable(spec));
    let mut warnings: Vec<String> = vec![];
    let options = build_options(&arguments.arch, options);
    for dry in dry_run(spec, &targets, &project.records, registry, &options) {
        let row = row(spec, &dry);
        match dry.tried {
            Ok(Tried { choice, smaller, warnings: said }) => {
                let all = smaller.iter().map(|(_, choice)| choice).chain([&choice]);
                stale.extend(all.flat_map(|choice| &choice.refusals).map(|r| r.to_string()));
                warnings.extend(said);
                if choice.origin.measured().is_none() {
                    missing += 1;
                    if deny_fallback {
                        let cause = format!("{} has no record on {}", word(&row["name"]), dry.target.name);
                        let place = format!("{}:{}", spec.file, dry.workload.line);
                        errors.push(format!("{place}: {cause}; tune it, or allow the fallback"));
                    }
                }
            }
            Err(_) => errors.push(word(&row["error"]).to_string()),
        }
        rows.push(row);
    }
    let mut changes = None;
    if let Some(folder) = &arguments.against {
        require_folder(folder)?;
        // Records of before that nobody can read are no fault of those of today.
        match arguments.files.records.load(folder) {
            Ok(records) => {
                let before = dry_run(spec, &targets, &records, registry, &options);
                changes = Some(Changes::of(before.iter().map(|dry| self::row(spec, dry)).collect(), &rows));
            }
            Err(faults) => warnings.extend(faults.iter().map(|fault| format!("nothing is compared: {fault}"))),
        }
    }
    let unused = unused_records(&project);
    errors.extend(stale.iter().cloned());
    if arguments.deny_unused {
        errors.extend(unused.iter().map(|file| {
            format!(
                "{file}: no workload and target of {} uses this record; delete the line, or extend the spec",
                spec.file
            )
        }));
    }
    errors.extend(health.iter().flat_map(|h| h.errors.iter().cloned()));
    let success = errors.is_empty();
    let summary = json!({
        "workloads": spec.workloads().count(),
        "targets": targets.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(),
        "records": project.own_records().count(),
        "shipped": project.records.len() - project.own_records().count(),
        "missing": missing,
        "stale": stale,
        "unused": unused,
        "warnings": warnings,
        "logs": health.as_ref().map(Health::json),
        "choices": rows,
        "changes": changes.as_ref().map(Changes::json),
        "success": success,
    });
    if arguments.json {
        // The errors are in the object as well; a program reads one stream.
        let mut summary = summary;
        summary["errors"] = json!(errors);
        return Ok(Output { text: json_text(&summary), errors: vec![], success });
    }
    let mut text = String::new();
    let s = |n: usize| if n == 1 { "" } else { "s" };
    let (workloads, records) = (spec.workloads().count(), project.own_records().count());
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{}: {workloads} workload{}; {}: {records} record{}",
        spec.file,
        s(workloads),
        project.tuned.display().to_string().replace('\\', "/"),
        s(records),
    );
    for target in &targets {
        describe(target, &rows, &mut text);
    }
    for warning in &warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    if !unused.is_empty() && !arguments.deny_unused {
        let _ = writeln!(text, "unused records:");
        unused.iter().for_each(|file| {
            let _ = writeln!(text, "  {file}");
        });
    }
    text.extend(changes.iter().map(Changes::text));
    text.extend(health.iter().map(Health::text));
    Ok(Output { text, errors, success })
}

/// The row of a workload on a target: its choice, or the error. The choices of a range for fewer units are `smaller`.
fn row(spec: &Spec, dry: &DryRun<'_>) -> Json {
    let w = dry.workload;
    let mut row = json!({
        "name": label(w.name.as_deref(), &w.workload),
        "workload": w.workload.key(),
        "target": dry.target.name,
        "line": w.line,
    });
    match &dry.tried {
        Ok(tried) => {
            row["choice"] = choice_json(&tried.choice);
            let smaller = |(units, choice): &(i64, Choice)| json!({ "units": units, "choice": choice_json(choice) });
            if !tried.smaller.is_empty() {
                row["smaller"] = tried.smaller.iter().map(smaller).collect();
            }
        }
        Err(GenerateError::Workload(fault)) if matches!(fault.cause, Cause::Choose(ModelError::NoTemplate { .. })) => {
            let help = "add a template, or leave the target or the workload out";
            row["error"] = json!(format!("{}:{}: {}; {help}", spec.file, w.line, fault.cause));
        }
        Err(error) => row["error"] = json!(error.to_string()),
    }
    row
}

/// The options of a build that chooses in this way; all processors take part.
fn build_options(arch: &str, choose: Options) -> generate::Options {
    generate::Options {
        arch: arch.to_string(),
        prefix: "kg".into(),
        choose,
        code: CodePolicy::Compile,
        cuda: true,
        images: "images".into(),
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        memo: None,
    }
}

/// What is said where there are logs and no spec.
fn only_logs(health: &Health, json: bool) -> Output {
    let success = health.errors.is_empty();
    match json {
        true => {
            Output { text: json_text(&json!({"logs": health.json(), "success": success})), errors: vec![], success }
        }
        false => Output { text: health.text(), errors: health.errors.clone(), success },
    }
}

/// One line a target, and one for each workload without a record of it.
fn describe(target: &Target, rows: &[Json], text: &mut String) {
    let rows: Vec<&Json> = rows.iter().filter(|r| r["target"] == target.name.as_str()).collect();
    let count = |origin: &str| rows.iter().filter(|r| r["choice"]["origin"] == origin).count();
    let counts: Vec<String> = [
        ("exact", "exact"),
        ("shipped-exact", "exact, shipped"),
        ("same-target", "of this target"),
        ("shipped-same-target", "of this target, shipped"),
        ("same-capability", "from another target of the same capability"),
        ("shipped-same-capability", "from another target of the same capability, shipped"),
        ("other-target", "from another target"),
        ("shipped-other-target", "from another target, shipped"),
        ("model", "by the model"),
        ("analytic", "by the analytic fallback"),
    ]
    .iter()
    .map(|(origin, words)| (count(origin), words))
    .filter(|(n, _)| *n > 0)
    .map(|(n, words)| format!("{n} {words}"))
    .collect();
    let counts = if counts.is_empty() { "nothing chosen".to_string() } else { counts.join(", ") };
    let _ = writeln!(text, "{}: {counts}", target.name);
    let of_target = |r: &Json| r["choice"]["origin"].as_str().is_some_and(is_word_of_target);
    for row in rows.iter().filter(|r| r["choice"].is_object() && !of_target(r)) {
        let _ = writeln!(text, "  {}: {}", word(&row["name"]), row_text(row));
    }
}

/// The user's records whose workload is not in the spec, or whose target it does not ask for, each with its place. Where it lists
/// no CPU levels it asks for all, of every architecture.
fn unused_records(project: &Project) -> Vec<String> {
    let Some(spec) = &project.spec else { return vec![] };
    let mut keys: BTreeSet<String> = spec.workloads().map(|(_, w)| w.workload.key()).collect();
    for (range, w) in spec.workloads().filter_map(|(_, w)| Some((w.range.as_ref()?, w))) {
        let sizes = Target::all().iter().flat_map(|target| ladder(range, target));
        keys.extend(sizes.map(|units| range.at(&w.workload, units).key()));
    }
    let mut targets: BTreeSet<&str> = spec.targets.cuda.iter().map(|t| t.name.as_str()).collect();
    for target in Target::all().iter().filter(|t| t.cpu().is_some()) {
        let wanted = |arch: &str| {
            let levels = [spec.targets.cpu_levels(arch), spec.targets.integer_levels(arch)].concat();
            levels.iter().any(|t| t.name == target.name)
        };
        if target.cpu().is_some_and(|c| wanted(&c.arch)) {
            targets.insert(&target.name);
        }
    }
    let used = |r: &Record| keys.contains(&r.workload) && targets.contains(r.target.as_str());
    let own = project.own_records().filter(|e| !used(&e.record));
    own.map(|Entry { file, line, record, .. }| format!("{file}:{line}: {}", record.workload)).collect()
}

/// What a build refuses besides: CUDA targets no code of which runs on later devices, and files of the user's that are not
/// there.
fn unbuildable(spec: &Spec) -> Vec<String> {
    let archs: Vec<Arch> = spec.targets.cuda.iter().filter_map(|t| t.name.parse().ok()).collect();
    let mut errors: Vec<String> =
        require_portable(&archs).err().map(|e| format!("{}: {e}", spec.file)).into_iter().collect();
    let folder = Path::new(&spec.file).parent().unwrap_or(Path::new(""));
    for item in &spec.externs {
        if item.is_cuda() {
            errors.extend(own_cuda(spec, item).err().map(|e| e.to_string()));
            continue;
        }
        for file in [&item.source, &item.header].map(|f| folder.join(f)).iter().filter(|f| !f.is_file()) {
            let help = "paths count from the folder of the spec";
            errors.push(format!("{}:{}: there is no file {}; {help}", spec.file, item.line, file.display()));
        }
    }
    errors
}
