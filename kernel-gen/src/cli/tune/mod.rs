//! `kernel-gen tune`: searches for faster configs and writes the records of those that it finds.

mod arguments;
mod bench;
mod events;
mod known;
mod plan;
mod recorded;
mod write;

pub(super) use arguments::Arguments;

use super::fleet::of_program;
use super::interrupt::stop_on_interrupt;
use super::output::{Failure, Output};
use super::project::{Project, target};
use crate::diagnostic::closest;
use crate::records::log::{ComparedConfig, LogWriter, Machine, Run};
use crate::records::{FailureKind, Outcome, Trial};
use crate::target::Target;
use crate::templates::Registry;
use crate::tune::fleet::{Fleet, Place as Meeting};
use crate::tune::measure::{self, Attached, Measurer, Provenance, Worker};
use crate::tune::progress::{Progress, Style, counted, table};
use crate::tune::replay::Replay;
use crate::tune::session::{self, Candidate, Doubt, Entry, Event, Options, Summary, Verdict};
use crate::tune::tuner;
use bench::Bench;
use events::Events;
use known::Known;
use plan::Plan;
use recorded::{recording, target_of};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::thread::Scope;
use write::{Written, can_be_written, write_records};

pub(super) fn run(registry: &Registry, arguments: &Arguments, fleet: Option<&dyn Fleet>) -> Result<Output, Failure> {
    let kind = tuner::Kind::from_name(&arguments.tuner).ok_or_else(|| {
        let all: Vec<&str> = tuner::Kind::ALL.iter().map(|k| k.name()).collect();
        let close = closest(&arguments.tuner, tuner::Kind::names());
        let hint = close.map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
        format!("there is no tuner `{}`; {hint}the tuners are {}", arguments.tuner, all.join(", "))
    })?;
    // A workload that is given by its key needs no spec, and neither does a recording.
    let project = arguments.measured.project_to_tune(arguments.tuned.as_ref())?;
    let recording = arguments.replay.as_deref().map(|file| recording(file, registry)).transpose()?;
    if let Some(recording) = recording {
        let target = target_of(&project, arguments, Some(&recording))?;
        let plan = Plan::new(registry, &project, arguments, Some(&recording), target)?;
        let device = recording.device.clone().unwrap_or_else(|| "a recording".to_string());
        let threads = arguments.measured.threads(&project, target);
        let bench = Bench { device, threads, machine: Machine::Other, settings: None, host: None };
        let known = Known::new(registry, &project, arguments, &plan, Some(&bench))?;
        return match arguments.dry_run {
            true => Ok(Output::success(described(&plan, &known, &arguments.options(&plan)))),
            false => tune(arguments, kind, &plan, &known, &bench, &mut Replay::new(recording), None),
        };
    }
    if arguments.dry_run {
        let plan = Plan::new(registry, &project, arguments, None, target_of(&project, arguments, None)?)?;
        let known = Known::new(registry, &project, arguments, &plan, None)?;
        return Ok(Output::success(described(&plan, &known, &arguments.options(&plan))));
    }
    let on = On { registry, arguments, kind, project: &project };
    match arguments.fleet.place() {
        Some(place) => on.fleet(of_program(fleet)?, &place),
        None => {
            let target = target_of(&project, arguments, None)?;
            arguments.measured.check_threads(arguments.measured.threads(&project, target))?;
            on.device(target, &Place::Here { device: arguments.measured.device()? })
        }
    }
}

/// The most kinds of device that are tuned at the same time.
const MOST_KINDS: usize = 16;

/// Where the devices are that measure.
enum Place<'p> {
    /// In this machine.
    Here { device: usize },
    /// In the machines of a fleet: those of one kind of device. There is a name if several kinds are tuned.
    Fleet { fleet: &'p dyn Fleet, at: &'p Meeting, kind: &'p Provenance, name: Option<&'p str> },
}

impl Place<'_> {
    fn attach<'s, 'r: 's>(
        &self,
        scope: &'s Scope<'s, '_>,
        target: &Target,
        options: measure::Options,
    ) -> Result<Attached<'s, 'r>, String> {
        match self {
            Place::Here { device } => {
                let options = measure::Options { device: *device, ..options };
                measure::for_target(scope, target, options).map_err(|e| e.to_string())
            }
            Place::Fleet { fleet, at, kind, .. } => fleet.attach(scope, kind, &options, at),
        }
    }
}

/// What is tuned, on whatever there is.
#[derive(Clone, Copy)]
struct On<'a> {
    registry: &'a Registry,
    arguments: &'a Arguments,
    kind: tuner::Kind,
    project: &'a Project,
}

impl On<'_> {
    /// On all kinds of device of a fleet at the same time, each with a session of its own.
    fn fleet(self, fleet: &dyn Fleet, at: &Meeting) -> Result<Output, Failure> {
        let kinds = fleet.kinds(self.arguments.measured.target.as_deref(), at)?;
        let session = |kind: &Provenance, name: Option<&str>| {
            self.device(target(self.project, Some(&kind.target))?, &Place::Fleet { fleet, at, kind, name })
        };
        if kinds.len() > MOST_KINDS {
            let (number, shown) = (kinds.len(), at.shown());
            return Err(format!("{shown}: its workers have {number} kinds of device; name a --target").into());
        }
        if let [only] = &kinds[..] {
            return session(only, None);
        }
        let names: Vec<String> = kinds.iter().map(|kind| format!("{} on {}", kind.target, kind.device)).collect();
        if self.arguments.json {
            let names = names.join(", ");
            return Err(format!("--json is of one kind of device, and the fleet has {names}; name a --target").into());
        }
        let outputs: Vec<Result<Output, Failure>> = std::thread::scope(|scope| {
            let session = &session;
            let run = |(kind, name)| scope.spawn(move || session(kind, Some(name)));
            let running: Vec<_> = kinds.iter().zip(names.iter().map(String::as_str)).map(run).collect();
            running.into_iter().map(|s| s.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let mut all = Output::success(String::new());
        for (name, output) in names.iter().zip(outputs) {
            // What one kind of device cannot do says nothing of the others.
            let Output { text, errors, success } = output.unwrap_or_else(|failure| Output {
                text: String::new(),
                errors: failure.to_string().lines().map(|line| format!("error: {name}: {line}")).collect(),
                success: false,
            });
            all.text += &format!("{name}\n{text}");
            all.errors.extend(errors);
            all.success &= success;
        }
        Ok(all)
    }

    /// On one kind of device.
    fn device(self, target: &'static Target, place: &Place<'_>) -> Result<Output, Failure> {
        let On { registry, arguments, kind, project } = self;
        let plan = Plan::new(registry, project, arguments, None, target)?;
        let known = OnceCell::new();
        std::thread::scope(|scope| {
            let options = measure::Options {
                threads: arguments.measured.threads(project, target) as usize,
                seed: arguments.seed.wrapping_add(1),
                ..measure::Options::default()
            };
            let options = arguments.measuring.applied(options);
            let settings = Some(options.settings(target));
            let mut attached = place.attach(scope, target, options)?;
            let bench = Bench { settings, ..Bench::of(&attached.provenance) };
            // This machine did not measure what a fleet did.
            let (host, name) = match place {
                Place::Here { .. } => (bench.host, None),
                Place::Fleet { name, .. } => (None, *name),
            };
            let bench = Bench { host, ..bench };
            let know = || Known::new(registry, project, arguments, &plan, Some(&bench));
            let known = known.get_or_init(know).as_ref().map_err(Failure::clone)?;
            tune(arguments, kind, &plan, known, &bench, &mut *attached.measurer, name)
        })
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
            // Answers of a recording come at once: the same seed makes the same trials.
            thinkers: if self.replay.is_some() { 0 } else { processors() },
            ..Options::default()
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs the session and writes what it finds.
fn tune<'t>(
    arguments: &Arguments,
    kind: tuner::Kind,
    plan: &'t Plan<'t>,
    known: &'t Known,
    bench: &Bench,
    measurer: &mut dyn Measurer<'t>,
    name: Option<&str>,
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
            // Where as many tuners think as there are processors, none needs several.
            let alone = options.thinkers == 0;
            let threads = if alone { processors() } else { (processors() / plan.tasks.len().max(1)).max(1) };
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
    let mut progress = match name {
        Some(name) => Progress::of_several(style, name),
        None => Progress::new(style),
    };
    notes.iter().for_each(|note| progress.say(note));
    let mut events = arguments.json.then(|| Events::new(plan));
    let stop = stop_on_interrupt();
    let mut made = Made::default();
    let summary = session::run(entries, incumbents, measurer, &options, &stop, &mut |board, event| {
        if let Event::Trial { entry, trial, .. } = event {
            made.take(&plan.items[entry].key.template, trial);
        }
        if let (Event::Trial { entry, trial, cost, worker, .. }, Some(writer)) = (event, &mut writer) {
            let task = &plan.items[entry].key;
            let appended = match worker {
                None => writer.append_costing(task, trial, cost),
                Some(Worker { name, provenance }) => {
                    writer.append_of_worker((name, || Bench::of(provenance).machine), task, trial, cost)
                }
            };
            appended.map_err(|e| e.to_string())?;
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
        events.end(&summary, written.keys())?;
        return Ok(Output { text: String::new(), errors, success });
    }
    let mut text = table(&summary);
    // Writing to a string cannot fail.
    for (file, records) in &written {
        let (file, records) = (file.display().to_string().replace('\\', "/"), counted(*records as u64, "record"));
        let _ = writeln!(text, "wrote {records} to {file}");
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
    let stream = arguments.fleet.place().map(|at| format!(" --stream {}", at.stream)).unwrap_or_default();
    for Doubt { worker, checks, apart, ratio } in &summary.doubts {
        let _ = writeln!(
            text,
            "{worker}: {apart} of {checks} of its times, {ratio:.2} of those of others in the median, could not be repeated; \
             end it, then kernel-gen-fleet fleet drop {worker} --fleet URL{stream}{} takes all of them back, and the same command \
             decides again",
            log.as_ref().map(|file| format!(" --log {}", file.display())).unwrap_or_default()
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
