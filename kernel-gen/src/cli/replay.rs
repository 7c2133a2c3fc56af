//! `kernel-gen replay`: whether this version emits the same kernels as an earlier one.

use super::output::{Failure, Output};
use super::space::find_template;
use crate::files::write_whole;
use crate::generate::emitted;
use crate::model::{Options, choose};
use crate::records::{BestRecords, Entry};
use crate::space::Config;
use crate::spec::Spec;
use crate::stable::fnv1a;
use crate::target::Target;
use crate::templates::Registry;
use crate::toolchain::in_parallel;
use crate::workload::Workload;
use clap::Args;
use similar::TextDiff;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

/// Compares the kernels that are emitted with those of an earlier version, by one hash a kernel in FILE
///
/// The kernels are those of all records, those of each template's default for each workload of the specs, and what a build
/// without records chooses for each workload on each target. Each is emitted as a build does it: sources, wrappers, launches.
/// Kernels that changed, appeared or vanished are named, and the exit status is 1.
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// The hashes, one line a kernel
    #[arg(value_name = "FILE")]
    hashes: PathBuf,
    /// The specs [default: all in the folder of FILE]
    #[arg(long = "spec", value_name = "FILE")]
    specs: Vec<PathBuf>,
    /// The folder of records [default: tuned, beside FILE]
    #[arg(long, value_name = "FOLDER")]
    tuned: Option<PathBuf>,
    /// Write FILE instead of comparing
    #[arg(long, conflicts_with_all = ["sample", "print", "before"])]
    write: bool,
    /// Emit the kernels of this workload only, a key; may be given several times. FILE keeps those of others
    #[arg(long = "workload", value_name = "KEY")]
    workloads: Vec<String>,
    /// Emit only one kernel of N, the same ones in each run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    sample: u64,
    /// Show how the first kernel that changed differs from what PROGRAM, an earlier kernel-gen, emits
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,
    /// Print what is emitted for one kernel, as FILE names it
    #[arg(long, value_name = "KERNEL", conflicts_with_all = ["sample", "before"])]
    print: Option<String>,
}

/// A kernel to emit.
struct Case {
    workload: Workload,
    target: &'static Target,
    choice: Chosen,
}

/// Which config of which template.
enum Chosen {
    /// The one of a record.
    Recorded { template: String, config: Config },
    /// The default of this template.
    Default { template: String },
    /// What a build without records chooses.
    Best,
}

impl Case {
    /// What is emitted, or why nothing is.
    fn text(&self, registry: &Registry) -> String {
        self.emitted(registry).unwrap_or_else(|error| format!("refused: {error}"))
    }

    fn emitted(&self, registry: &Registry) -> Result<String, String> {
        let (workload, target) = (&self.workload, self.target);
        let (template, config) = match &self.choice {
            Chosen::Recorded { template, config } => (template.clone(), config.clone()),
            Chosen::Default { template } => {
                let config = find_template(registry, template).map_err(|e| e.to_string())?;
                (template.clone(), config.default_config(workload, target).map_err(|e| e.to_string())?)
            }
            Chosen::Best => {
                let choice = choose(registry, workload, target, &BestRecords::new(), &Options::default());
                choice.map(|choice| (choice.template, choice.config)).map_err(|e| e.to_string())?
            }
        };
        emitted(workload, target, registry, &template, &config).map_err(|e| e.to_string())
    }
}

pub(super) fn run(registry: &Registry, arguments: &Arguments) -> Result<Output, Failure> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let cases = cases(registry, arguments)?;
    if let Some(name) = &arguments.print {
        let case = cases.get(name).ok_or_else(|| format!("there is no kernel `{name}`; FILE has their names"))?;
        return Ok(Output::success(case.text(registry)));
    }
    let is_wanted =
        |name: &str| arguments.workloads.is_empty() || arguments.workloads.iter().any(|key| is_of(name, key));
    if let Some(key) = arguments.workloads.iter().find(|key| !cases.keys().any(|name| is_of(name, key))) {
        return Err(format!("there is no kernel of `{key}`; FILE has the keys of all").into());
    }
    let listed: Vec<(&String, &Case)> =
        cases.iter().filter(|(name, _)| is_wanted(name) && is_drawn(name, arguments.sample)).collect();
    let hashes = in_parallel(jobs, &listed, |(_, case)| fnv1a(case.text(registry).as_bytes()) as u32);
    let now: BTreeMap<String, u32> = listed.iter().map(|(name, _)| (*name).clone()).zip(hashes).collect();
    let path = arguments.hashes.display().to_string().replace('\\', "/");
    let before = || {
        let text = std::fs::read_to_string(&arguments.hashes).map_err(|error| format!("{path}: {error}"))?;
        read(&path, &text)
    };
    if arguments.write {
        let mut all = if arguments.workloads.is_empty() { BTreeMap::new() } else { before()? };
        all.retain(|name, _| !is_wanted(name));
        all.extend(now);
        write_whole(&arguments.hashes, written(&all).as_bytes())
            .map_err(|error| format!("{path}: cannot be written: {error}"))?;
        return Ok(Output::success(format!("{path}: {} kernels\n", all.len())));
    }
    let mut then = before()?;
    then.retain(|name, _| is_wanted(name) && is_drawn(name, arguments.sample));
    let mut errors = vec![];
    let mut first = None;
    for name in now.keys().chain(then.keys()).collect::<BTreeSet<_>>() {
        let what = match (then.get(name), now.get(name)) {
            (Some(then), Some(now)) if then == now => continue,
            (Some(_), Some(_)) => "changed",
            (None, _) => "new",
            (_, None) => "gone",
        };
        if what == "changed" {
            first.get_or_insert(name);
        }
        errors.push(format!("{what}: {name}"));
    }
    let mut text = format!("{path}: {} kernels, {} differ\n", now.len(), errors.len());
    if let (Some(name), Some(program)) = (first, &arguments.before) {
        text += &difference(name, &cases[name].text(registry), program, arguments)?;
    }
    let success = errors.is_empty();
    Ok(Output { text, errors, success })
}

/// Whether a kernel is one of a workload.
fn is_of(name: &str, key: &str) -> bool {
    name.strip_prefix(key).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a kernel is in a sample of one in `n`.
fn is_drawn(name: &str, n: u64) -> bool {
    fnv1a(name.as_bytes()).is_multiple_of(n)
}

/// All kernels by their names: those of the records, and the defaults of the specs' workloads on all targets.
fn cases(registry: &Registry, arguments: &Arguments) -> Result<BTreeMap<String, Case>, Failure> {
    let folder = arguments.hashes.parent().unwrap_or_else(|| "".as_ref());
    let mut specs = arguments.specs.clone();
    if specs.is_empty() {
        let entries = std::fs::read_dir(if folder.as_os_str().is_empty() { ".".as_ref() } else { folder });
        let entries = entries.map_err(|error| format!("{}: {error}", folder.display()))?;
        specs.extend(entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "toml")));
        specs.sort();
    }
    let mut workloads: BTreeMap<String, Workload> = BTreeMap::new();
    for spec in &specs {
        workloads.extend(Spec::load(spec)?.workloads().map(|(_, w)| (w.workload.key(), w.workload.clone())));
    }
    let mut cases = BTreeMap::new();
    let records = BestRecords::load(arguments.tuned.as_ref().unwrap_or(&folder.join("tuned")))?;
    for Entry { record, file, line, .. } in records.entries() {
        let stray = |what: &str| format!("{file}:{line}: {what}; this version has none of that name");
        let target = Target::find(&record.target).ok_or_else(|| stray(&format!("the target {}", record.target)))?;
        let workload = Workload::from_key(&record.workload)?;
        let (template, config) = (record.template.clone(), record.config.clone());
        let name = format!("{}/{template}/{}/{}", record.workload, config.id(), target.name);
        cases.insert(name, Case { workload, target, choice: Chosen::Recorded { template, config } });
    }
    for (key, workload) in &workloads {
        for target in Target::all().iter().filter(|target| target.serves(workload)) {
            let mut add = |template: &str, choice| {
                let name = format!("{key}/{template}/default/{}", target.name);
                cases.insert(name, Case { workload: workload.clone(), target, choice });
            };
            registry.applicable(workload, target).for_each(|template| {
                let template = template.name().to_string();
                add(&template.clone(), Chosen::Default { template });
            });
            add("chosen", Chosen::Best);
        }
    }
    Ok(cases)
}

/// The text of a file of hashes: a line a workload, and below it one for each template and config with a hash a target.
fn written(hashes: &BTreeMap<String, u32>) -> String {
    let (mut text, mut workload, mut config) = (String::new(), "", "");
    for (name, hash) in hashes {
        let (rest, target) = name.rsplit_once('/').expect("a name ends with its target");
        let (key, _) = rest.split_once('/').expect("a name begins with its workload");
        if key != workload {
            text += &format!("{}{key}", if text.is_empty() { "" } else { "\n" });
        }
        if rest != config {
            text += &format!("\n {}", &rest[key.len() + 1..]);
        }
        text += &format!(" {target}={hash:08x}");
        (workload, config) = (key, rest);
    }
    text + "\n"
}

/// The hashes of such a file, by the names of the kernels.
fn read(path: &str, text: &str) -> Result<BTreeMap<String, u32>, String> {
    let (mut hashes, mut workload) = (BTreeMap::new(), "");
    for (i, line) in text.lines().enumerate() {
        let Some(line) = line.strip_prefix(' ') else {
            workload = line;
            continue;
        };
        let mut words = line.split(' ');
        let config = words.next().unwrap_or_default();
        for word in words {
            let hash = word.split_once('=').and_then(|(target, h)| Some((target, u32::from_str_radix(h, 16).ok()?)));
            let fault =
                || format!("{path}:{}: `{word}` is no hash of a target; write the file again with --write", i + 1);
            let (target, hash) = hash.ok_or_else(fault)?;
            hashes.insert(format!("{workload}/{config}/{target}"), hash);
        }
    }
    Ok(hashes)
}

/// How a kernel differs from what an earlier program emits.
fn difference(name: &str, now: &str, program: &std::path::Path, arguments: &Arguments) -> Result<String, Failure> {
    let mut command = Command::new(program);
    command.arg("replay").arg(&arguments.hashes).args(["--print", name]);
    command.args(arguments.specs.iter().flat_map(|spec| ["--spec".as_ref(), spec.as_os_str()]));
    command.args(arguments.tuned.iter().flat_map(|tuned| ["--tuned".as_ref(), tuned.as_os_str()]));
    let output = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
    if !output.status.success() {
        return Err(format!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    let then = String::from_utf8_lossy(&output.stdout);
    let diff = TextDiff::from_lines(&*then, now);
    Ok(diff.unified_diff().header(&format!("{name} before"), &format!("{name} now")).to_string())
}
