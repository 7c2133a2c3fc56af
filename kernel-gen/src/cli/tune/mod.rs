//! `kernel-gen tune`: searches for faster configs and writes the records of those that it finds.

mod events;
mod plan;

use super::project::{Measured, Measuring, Project, target, target_here};
use super::{Failure, Output};
use crate::diagnostic::closest;
use crate::files;
use crate::records::log::{ComparedConfig, Host, Log, LogReader, LogWriter, Machine, Run, Settings};
use crate::records::{BestRecords, FailureKind, Outcome, Record, Trial};
use crate::space::Config;
use crate::target::{Device, Target};
use crate::templates::Registry;
use crate::tune::gflops;
use crate::tune::landscape::Landscape;
use crate::tune::measure::{self, Measurer, Provenance};
use crate::tune::progress::{Progress, Style, counted, table};
use crate::tune::replay::{Recording, Replay};
use crate::tune::session::{self, Candidate, Entry, Event, Options, Stop, Summary, Verdict};
use crate::tune::tuner;
use clap::Args;
use events::Events;
use plan::{Earlier, Incumbents, Plan};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Searches for the fastest config of each workload, and writes what it finds as records
///
/// Every config that is tried is compiled, run, and checked against the reference before it is timed; what became of it is
/// appended to a log. Running the same command again goes on from the log: nothing is tried twice. Ctrl-C finishes what is
/// under way; what is in the log stays. At the end the fastest configs run once more beside the record that there is, and
/// the record is replaced only if it is slower by more than the noise.
///
/// Examples:
///
///   kernel-gen tune                              all workloads of kernels.toml on this CPU
///
///   kernel-gen tune specs/resnet50.toml --target sm_90a --trials 256
///
///   kernel-gen tune --workload conv2d-nchw-f32-n1c512h7w7-o512k3x3-s1x1-p1.1.1.1-d1x1-g1 --target sm_90a
///
///   kernel-gen tune --workload matmul-f16.f32-m1024n1024k1024-nn --target sm_90a --seconds 60
///
///   kernel-gen tune --replay landscape.txt --tuner model --seed 3     no device is needed
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(flatten)]
    measured: Measured,
    #[command(flatten)]
    measuring: Measuring,
    /// Only this template; may be given several times
    #[arg(long, value_name = "NAME")]
    template: Vec<String>,
    /// How configs are searched for: auto, model, ga, descent, random or grid. AutoTVM's names are understood
    #[arg(long, value_name = "NAME", default_value = "auto")]
    tuner: String,
    /// Trials for each workload, on average: they go where the network's time is. Those in the log count. With 0 the records
    /// are timed again beside the defaults
    #[arg(long, value_name = "N", default_value_t = 128)]
    trials: u64,
    /// End after this many seconds. The comparison at the end is part of them; with many workloads it takes up to half
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// A task is done after this many trials without a gain of more than 2 %, if its tuner expects none
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    patience: u64,
    /// Time the finalists so many times, all workloads each time; the round counts that was disturbed least. For machines
    /// that are shared
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// What everything random follows from
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The log of all trials [default: tuning.jsonl, beside the spec; none with --replay]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The folder of best records [default: tuned, beside the spec; none with --replay]
    #[arg(long, value_name = "FOLDER")]
    tuned: Option<PathBuf>,
    /// Answer from a landscape or a log instead of a device
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Say what would be tuned, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Print what happens as JSON, one object a line
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// A time limit.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s: &f64| s.is_finite() && *s > 0.0);
    seconds.ok_or_else(|| "write a number of seconds above 0".to_string())
}

/// Where trials are made.
struct Bench {
    device: String,
    threads: u32,
    machine: Machine,
    /// How it measures, and the host; none of a recording.
    settings: Option<Settings>,
    host: Option<Host>,
}

pub(super) fn run(registry: &Registry, arguments: &Arguments) -> Result<Output, Failure> {
    let kind = tuner::Kind::from_name(&arguments.tuner).ok_or_else(|| {
        let all: Vec<&str> = tuner::Kind::ALL.iter().map(|k| k.name()).collect();
        let close = closest(&arguments.tuner, tuner::Kind::names());
        let hint = close.map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
        format!("there is no tuner `{}`; {hint}the tuners are {}", arguments.tuner, all.join(", "))
    })?;
    // A workload that is given by its key needs no spec, and neither does a recording.
    let project = arguments.measured.project_to_tune(arguments.tuned.as_ref())?;
    let recording = arguments.replay.as_deref().map(|file| recording(file, registry)).transpose()?;
    let target = target_of(&project, arguments, recording.as_ref())?;
    let plan = Plan::new(registry, &project, arguments, recording.as_ref(), target)?;
    let threads = arguments.measured.threads(&project, target);
    let known = OnceCell::new();
    let know = |bench: &Bench| Known::new(registry, &project, arguments, &plan, Some(bench));
    if let Some(recording) = recording {
        let device = recording.device.clone().unwrap_or_else(|| "a recording".to_string());
        let bench = Bench { device, threads, machine: Machine::Other, settings: None, host: None };
        let known = known.get_or_init(|| know(&bench)).as_ref().map_err(Failure::clone)?;
        return match arguments.dry_run {
            true => Ok(Output::success(described(&plan, known, &arguments.options(&plan)))),
            false => tune(arguments, kind, &plan, known, &bench, &mut Replay::new(recording)),
        };
    }
    if arguments.dry_run {
        let known = Known::new(registry, &project, arguments, &plan, None)?;
        return Ok(Output::success(described(&plan, &known, &arguments.options(&plan))));
    }
    arguments.measured.check_threads(threads)?;
    std::thread::scope(|scope| {
        let options = measure::Options {
            device: arguments.measured.device,
            threads: threads as usize,
            seed: arguments.seed.wrapping_add(1),
            ..measure::Options::default()
        };
        let options = arguments.measuring.applied(options);
        let settings = options.settings(target);
        let mut attached = measure::for_target(scope, target, options).map_err(|e| e.to_string())?;
        let bench = Bench { settings: Some(settings), ..Bench::of(&attached.provenance) };
        let known = known.get_or_init(|| know(&bench)).as_ref().map_err(Failure::clone)?;
        tune(arguments, kind, &plan, known, &bench, &mut *attached.measurer)
    })
}

impl Bench {
    fn of(provenance: &Provenance) -> Bench {
        let version = |v: Option<(u32, u32)>| v.map(|(major, minor)| format!("{major}.{minor}")).unwrap_or_default();
        let machine = match provenance.capability {
            None => Machine::Cpu { isa: provenance.target.clone(), compiler: provenance.compiler.clone() },
            Some(_) => Machine::Cuda {
                capability: version(provenance.capability),
                sms: provenance.units,
                driver: version(provenance.driver),
                toolkit: provenance.compiler.clone(),
                sm_mhz: provenance.clock_mhz.unwrap_or_default(),
                memory_mhz: 0,
                uuid: provenance.uuid.clone().unwrap_or_default(),
            },
        };
        let (device, host) = (provenance.device.clone(), Some(provenance.host()));
        Bench { device, threads: provenance.threads, machine, settings: None, host }
    }
}

impl Arguments {
    /// What the session is told.
    fn options(&self, plan: &Plan<'_>) -> Options {
        Options {
            trials: self.trials.saturating_mul(plan.workloads() as u64),
            seconds: self.seconds,
            patience: self.patience,
            rounds: self.rounds.into(),
            ..Options::default()
        }
    }
}

/// What is known before a session begins, and where what it finds goes.
struct Known {
    /// Trials of earlier runs, for each task.
    histories: Vec<Vec<Trial>>,
    /// Configs that were fast elsewhere, for each task: on other devices and threads, for other workloads.
    hints: Vec<Vec<Config>>,
    /// The records that there are.
    incumbents: Vec<session::Incumbent>,
    /// Those of templates that are not tuned.
    standing: Vec<Record>,
    /// What people should know before it begins.
    notes: Vec<String>,
    /// The log, unless none is written.
    log: Option<PathBuf>,
    /// The folder of records, unless none are written.
    tuned: Option<PathBuf>,
}

impl Known {
    /// Without a bench, of all devices.
    fn new(
        registry: &Registry,
        project: &Project,
        arguments: &Arguments,
        plan: &Plan<'_>,
        bench: Option<&Bench>,
    ) -> Result<Known, Failure> {
        // What a recording says is not measured now: it is written where that is asked for, and nowhere else.
        let measured = arguments.replay.is_none();
        let beside = arguments.measured.spec.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let log_file = arguments.log.clone().or_else(|| measured.then(|| beside.join("tuning.jsonl")));
        let tuned = arguments.tuned.clone().or_else(|| measured.then(|| project.tuned.clone()));
        let log = match &log_file {
            Some(file) if file.exists() => Log::read(&[file]).map_err(|e| e.to_string())?,
            _ => Log::default(),
        };
        let Incumbents { usable: incumbents, standing, mut notes } = match &tuned {
            Some(_) => plan.incumbents(registry, project, bench),
            None => Incumbents::default(),
        };
        notes.extend(plan.left_out.iter().cloned());
        notes.extend(log.told().iter().map(|d| d.to_string()));
        let Earlier { histories, mut hints, notes: told } = plan.earlier(registry, &log, bench);
        notes.extend(told);
        let none = BestRecords::new();
        let records = if tuned.is_some() { &project.records } else { &none };
        for (hints, near) in hints.iter_mut().zip(plan.neighbours(registry, records, &log, bench)) {
            hints.extend(near);
        }
        Ok(Known { histories, hints, incumbents, standing, notes, log: log_file, tuned })
    }
}

/// The target that is asked for; without one that of the recording, if it is of one only, or the best that this machine
/// executes.
fn target_of(
    project: &Project,
    arguments: &Arguments,
    recording: Option<&Recording>,
) -> Result<&'static Target, Failure> {
    if let (None, Some(recording)) = (&arguments.measured.target, recording) {
        let mut names: Vec<&str> = recording.tasks().map(|(_, target, _)| target).collect();
        names.sort_unstable();
        names.dedup();
        return match &names[..] {
            [only] => target(project, Some(only)),
            [] => Err("the recording holds no trials".to_string().into()),
            several => {
                Err(format!("the recording is of several targets; name one with --target: {}", several.join(", "))
                    .into())
            }
        };
    }
    target_here(project, arguments.measured.target.as_deref())
}

/// Reads a landscape or a log.
fn recording(file: &Path, registry: &Registry) -> Result<Recording, Failure> {
    let shown = file.display().to_string().replace('\\', "/");
    let bytes = fs::read(file).map_err(|e| format!("{shown}: cannot be read: {e}; name a landscape or a log"))?;
    let mut recording = Recording::new();
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    if text.starts_with(b"kernel-gen landscape") || file.extension().is_some_and(|e| e == "gz") {
        let landscape = Landscape::load(file)?;
        recording.add_landscape(&landscape, registry).map_err(|cause| format!("{shown}: {cause}"))?;
        return Ok(recording);
    }
    let mut log = Log::default();
    log.extend(LogReader::new(&bytes[..], &shown));
    for entry in &log.entries {
        let (task, trial) = (&entry.task, &entry.trial);
        recording.add(&task.workload, &task.target, &task.template, &trial.config, trial.outcome.clone());
        recording.device.get_or_insert(entry.device.clone());
    }
    if recording.is_empty() {
        let why = log.skipped.first().map(|d| format!(" ({d})")).unwrap_or_default();
        return Err(format!("{shown}: neither a landscape nor a log with trials{why}").into());
    }
    Ok(recording)
}

/// The switch that Ctrl-C turns on, and SIGTERM, by which a batch system takes its machine back. The second one ends the
/// process at once.
pub(super) fn stop_on_interrupt() -> Stop {
    static STOP: OnceLock<Stop> = OnceLock::new();
    STOP.get_or_init(|| {
        let stop = Stop::new();
        let asked = stop.clone();
        // Without a handler, because another one is there or the system has none, the log keeps everything all the same.
        let _ = ctrlc::set_handler(move || ask(&asked, INTERRUPTED));
        #[cfg(unix)]
        if let Ok(mut signals) = signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM]) {
            let asked = stop.clone();
            std::thread::spawn(move || signals.forever().for_each(|signal| ask(&asked, 128 + signal)));
        }
        stop
    })
    .clone()
}

/// The exit status of a process that Ctrl-C has ended: 128 and the signal's number, as shells say it.
const INTERRUPTED: i32 = 130;

/// Asks a session to stop; where it was asked before, ends the process.
fn ask(stop: &Stop, status: i32) {
    if stop.ask() {
        std::process::exit(status);
    }
    eprintln!("\nstopping: what is under way is finished and kept; Ctrl-C again ends at once");
}

/// Runs the session and writes what it finds.
fn tune<'t>(
    arguments: &Arguments,
    kind: tuner::Kind,
    plan: &'t Plan<'t>,
    known: &'t Known,
    bench: &Bench,
    measurer: &mut dyn Measurer<'t>,
) -> Result<Output, Failure> {
    let Known { histories, hints, incumbents, standing, notes, log, tuned } = known;
    let options = arguments.options(plan);
    let earlier = |at: usize| {
        let others = plan.tasks.iter().zip(histories).enumerate().filter(move |(i, (_, h))| *i != at && !h.is_empty());
        others.map(|(_, (task, history))| (task, &history[..])).collect()
    };
    let entries: Vec<Entry<'_>> = plan
        .items
        .iter()
        .zip(&plan.tasks)
        .enumerate()
        .map(|(at, (item, task))| {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            let seeded = tuner::Options { seed: arguments.seed, threads, earlier: earlier(at) };
            Entry {
                name: item.name.clone(),
                task,
                threads: bench.threads,
                weight: item.weight,
                tuner: tuner::make(kind, task, &seeded),
                default: item.default.clone(),
                hints: hints[at].clone(),
                history: histories[at].clone(),
            }
        })
        .collect();
    let mut writer = match log {
        Some(file) => {
            let run = Run::new(&bench.device, bench.threads, bench.machine.clone(), kind.name(), arguments.seed);
            let run = Run { settings: bench.settings, host: bench.host.clone(), ..run };
            Some(LogWriter::open(file, run).map_err(|e| e.to_string())?)
        }
        None => None,
    };
    if let Some(folder) = tuned {
        can_be_written(&folder.join(&plan.target.name))?;
    }
    let style = if arguments.quiet || arguments.json { Style::Quiet } else { Style::of_stderr() };
    let mut progress = Progress::new(style);
    notes.iter().for_each(|note| progress.say(note));
    let mut events = arguments.json.then(|| Events::new(plan));
    let stop = stop_on_interrupt();
    let mut made = Made::default();
    let summary = session::run(entries, incumbents, measurer, &options, &stop, &mut |board, event| {
        if let Event::Trial { entry, trial, .. } = event {
            made.take(&plan.items[entry].key.template, trial);
        }
        if let (Event::Trial { entry, trial, cost, .. }, Some(writer)) = (event, &mut writer) {
            writer.append_costing(&plan.items[entry].key, trial, cost).map_err(|e| e.to_string())?;
        }
        if let (Event::Decided { verdict, .. }, Some(writer)) = (event, &mut writer)
            && let Some(first) = verdict.candidates().first()
        {
            let key = &plan.items[first.entry].key;
            let task = (key.workload.as_str(), key.target.as_str());
            writer.append_compared(task, compared(plan, verdict)).map_err(|e| e.to_string())?;
        }
        progress.event(board, event);
        events.as_mut().map_or(Ok(()), |events| events.event(board, event))
    });
    progress.finish();
    let summary = summary.map_err(|e| {
        let kept = log.as_ref().map(|f| format!("; the trials before it are in {}", f.display()));
        Failure::Message(format!("{e}{}", kept.unwrap_or_default()))
    })?;
    let Written { files: written, kept, mut errors } = match tuned {
        Some(folder) => write_records(plan, bench, &summary, (incumbents, standing), folder),
        None => Written::default(),
    };
    errors.extend(made.nothing_ran(&summary));
    let success = errors.is_empty() && summary.ended != session::Ended::Stopped;
    if let Some(events) = &mut events {
        events.end(&summary, &written)?;
        return Ok(Output { text: String::new(), errors, success });
    }
    let mut text = table(&summary);
    // Writing to a string cannot fail.
    for file in &written {
        let _ = writeln!(text, "wrote {}", file.display().to_string().replace('\\', "/"));
    }
    for line in &kept {
        let _ = writeln!(text, "{line}");
    }
    if summary.uncompared > 0 {
        let _ = writeln!(
            text,
            "the time is over: {} of {} were not compared with their records and defaults, and have no new record; \
             --trials 0 with more --seconds compares them",
            summary.uncompared,
            counted(summary.verdicts.len() as u64, "workload")
        );
    }
    match (summary.ended, log) {
        (session::Ended::Stopped, Some(file)) => {
            let file = file.display();
            let _ = writeln!(text, "no records were written; the same command goes on from {file}, and");
            let _ = writeln!(text, "kernel-gen prune {file} makes records of what is in it");
        }
        (session::Ended::Converged, _) => {
            let more = arguments.patience.saturating_mul(4);
            let _ = writeln!(text, "to search on all the same: --patience {more}");
        }
        _ => {}
    }
    Ok(Output { text, errors, success })
}

/// What the log says of a comparison.
fn compared(plan: &Plan<'_>, verdict: &Verdict) -> Vec<ComparedConfig> {
    let chosen = verdict.choice();
    let config = |c: &Candidate| ComparedConfig {
        template: plan.items[c.entry].key.template.clone(),
        version: plan.items[c.entry].key.template_version,
        config: c.config.clone(),
        is_default: c.is_default,
        is_chosen: chosen == Some(c),
        us: c.compared_us().filter(|us| us.is_finite()),
    };
    verdict.candidates().iter().map(config).collect()
}

/// What became of the trials of this run.
#[derive(Default)]
struct Made {
    timed: u64,
    /// How many failed by kind, and what the first of each said.
    failed: BTreeMap<FailureKind, (u64, String)>,
}

impl Made {
    fn take(&mut self, template: &str, trial: &Trial) {
        match &trial.outcome {
            Outcome::Timed(_) => self.timed += 1,
            Outcome::Failed(failure) => {
                let said = || (0, format!("{template}: {}", failure.detail));
                self.failed.entry(failure.kind).or_insert_with(said).0 += 1;
            }
        }
    }

    /// An error where every trial of the run failed and nothing else ran either: whatever that is, it is not what was asked for.
    fn nothing_ran(&self, summary: &Summary) -> Option<String> {
        let all: u64 = self.failed.values().map(|(n, _)| n).sum();
        let ran = |v: &Verdict| v.candidates().iter().any(|c| c.outcome.time_us().is_some());
        if self.timed > 0 || all == 0 || summary.ended == session::Ended::Stopped || summary.verdicts.iter().any(ran) {
            return None;
        }
        let kinds: Vec<String> = self.failed.iter().map(|(kind, (n, _))| format!("{n} {kind}")).collect();
        let (_, said) = self.failed.values().max_by_key(|(n, _)| *n)?;
        let help = match self.failed.contains_key(&FailureKind::Worker) {
            true => "`worker` says nothing of the configs: the same command tries them again",
            false => "`kernel-gen doctor` says what is wrong with compilers and devices",
        };
        let trials = counted(all, "trial");
        Some(format!(
            "error: all of {trials} failed ({}), so there is no time; the first said: {said}; {help}",
            kinds.join(", ")
        ))
    }
}

/// Says before hours of tuning, and not after, that no record can be written to a folder.
fn can_be_written(folder: &Path) -> Result<(), Failure> {
    let probe = folder.join(format!(".kernel-gen-{}", files::random_name()));
    let tried = fs::create_dir_all(folder)
        .and_then(|()| files::create_new(&probe))
        .and_then(|_| fs::remove_file(&probe))
        .map(|()| remove_drafts(folder));
    tried.map_err(|error| {
        let folder = folder.display().to_string().replace('\\', "/");
        format!("{folder}: no record can be written here: {error}; name another folder with --tuned").into()
    })
}

/// Removes what a run that was killed left in the folders of the targets.
fn remove_drafts(folder: &Path) {
    for target in fs::read_dir(folder).into_iter().flatten().flatten() {
        if target.file_type().is_ok_and(|t| t.is_dir()) {
            files::sweep_drafts(&target.path(), files::YOUNG);
        }
    }
}

/// A record that stays is written again where its time is off by more than this share: whoever reads it compares times of
/// records with each other, and they were taken on another machine then, or in another way.
const STALE: f64 = 0.03;

/// Whether a record does not say what its config takes now: where nothing disturbs it, on a CPU, and else as it is. A record
/// of a CPU that is older than that is written again.
fn is_stale(record: &session::Incumbent, now: &session::Candidate, of_a_cpu: bool) -> bool {
    let ratio = match (record.floor_us, now.floor_us.filter(|_| of_a_cpu)) {
        (Some(then), Some(now)) => now / then,
        (None, Some(_)) => return true,
        (_, None) => now.outcome.time_us().map_or(1.0, |us| us / record.recorded_us),
    };
    ratio.ln().abs() > STALE
}

/// What became of what was found.
#[derive(Default)]
struct Written {
    files: Vec<PathBuf>,
    /// Which records stay although they were not tuned.
    kept: Vec<String>,
    errors: Vec<String>,
}

/// Writes a record for each workload that has a new one, or whose record says a time that no longer holds. A record of a
/// template that was not tuned stays where its time is below what was found.
fn write_records(
    plan: &Plan<'_>,
    bench: &Bench,
    summary: &Summary,
    (incumbents, standing): (&[session::Incumbent], &[Record]),
    folder: &Path,
) -> Written {
    let of_a_cpu = matches!(plan.target.device, Device::Cpu(_));
    let stale = |candidate: &session::Candidate| {
        let same = |i: &&session::Incumbent| i.entry == candidate.entry && i.config == candidate.config;
        incumbents.iter().find(same).is_some_and(|record| is_stale(record, candidate, of_a_cpu))
    };
    let mut written = Written::default();
    for verdict in &summary.verdicts {
        let winner = match verdict {
            Verdict::Won { candidates, winner, .. } => &candidates[*winner],
            Verdict::Kept { candidates, incumbent } if stale(&candidates[*incumbent]) => &candidates[*incumbent],
            _ => continue,
        };
        let Outcome::Timed(timing) = &winner.outcome else { continue };
        let (item, task) = (&plan.items[winner.entry], &plan.tasks[winner.entry]);
        let time_us = timing.median_us();
        let faster = |s: &&Record| s.workload == item.key.workload && s.time_us <= time_us;
        if let Some(Record { template, time_us: us, .. }) = standing.iter().find(faster) {
            let (name, found) = (&item.name, &item.key.template);
            written.kept.push(format!(
                "{name}: the record of {template} stays, {us:.4} us; {found} takes {time_us:.4}. Both are compared with \
                 --template {template} --template {found}"
            ));
            continue;
        }
        let record = Record {
            workload: item.key.workload.clone(),
            target: item.key.target.clone(),
            device: bench.device.clone(),
            threads: bench.threads,
            template: item.key.template.clone(),
            template_version: item.key.template_version,
            space: item.key.space,
            config: winner.config.clone(),
            time_us,
            gflops: gflops(&task.workload, time_us),
            core_gflops: timing.core_median_gflops(),
            floor_us: winner.floor_us.filter(|_| of_a_cpu),
            max_error: timing.max_error,
            // A measurer times what passed the check against the reference, and nothing else.
            verified: true,
            generator: env!("CARGO_PKG_VERSION").to_string(),
        };
        match record.write(folder) {
            Ok(file) => written.files.push(file),
            Err(error) => {
                let file = folder.join(record.relative_path()).display().to_string().replace('\\', "/");
                let help = "the trials are in the log, and the same command decides again";
                written.errors.push(format!("error: {file}: the record cannot be written: {error}; {help}"));
            }
        }
    }
    written
}

/// What would be tuned.
fn described(plan: &Plan<'_>, known: &Known, options: &Options) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} on {}, {}, at most {}",
        counted(plan.workloads() as u64, "workload"),
        plan.target.name,
        counted(plan.tasks.len() as u64, "task"),
        counted(options.trials, "trial"),
    );
    let mut last = "";
    for (at, (item, task)) in plan.items.iter().zip(&plan.tasks).enumerate() {
        if item.key.workload != last {
            last = &item.key.workload;
            let times = if item.weight == 1.0 { String::new() } else { format!(", {} times", item.weight) };
            let _ = writeln!(text, "{}{times}", item.name);
        }
        let incumbent = known.incumbents.iter().find(|i| i.entry == at);
        let before = match (known.histories[at].len(), incumbent) {
            (0, None) => String::new(),
            (n, None) => format!(", {n} trials in the log"),
            (0, Some(i)) => format!(", a record of {:.1} us", i.recorded_us),
            (n, Some(i)) => format!(", {n} trials in the log, a record of {:.1} us", i.recorded_us),
        };
        let elsewhere = match known.hints[at].len() {
            0 => String::new(),
            n => format!(", {} from elsewhere to begin with", counted(n as u64, "config")),
        };
        let _ = writeln!(
            text,
            "  {} v{}: {} configs, the default expects {:.1} us{before}{elsewhere}",
            item.key.template,
            item.key.template_version,
            task.space.estimated_len(),
            task.predicted_us(&item.default),
        );
    }
    known.notes.iter().for_each(|note| {
        let _ = writeln!(text, "{note}");
    });
    text
}
