//! What a session is to tune: workloads, the templates that compete for each, and what is known of them already.

use super::arguments::Arguments;
use super::bench::Bench;
use crate::cli::output::Failure;
use crate::cli::project::{Project, Wanted};
use crate::cli::space::find_template;
use crate::model::{self, default_of, ladder};
use crate::records::log::{Log, TaskKey};
use crate::records::validate::{Validator, summarised};
use crate::records::{BestRecords, Entry, FailureKind, Outcome, Purpose, Record, Trial};
use crate::space::Config;
use crate::target::Target;
use crate::templates::{Registry, Template};
use crate::tune::Task;
use crate::tune::replay::Recording;
use crate::tune::session::Incumbent;
use crate::workload::Workload;
use std::collections::{BTreeMap, BTreeSet};

/// A template whose model expects its default to take this many times as long as the best of the workload's defaults is
/// left out, unless it is asked for by name: on a large workload one trial of it might take longer than all others.
const HOPELESS: f64 = 20.0;

/// Tasks with everything that a session wants to know of them but a tuner.
pub(super) struct Plan<'r> {
    /// The target of all tasks.
    pub(super) target: &'static Target,
    /// The tasks, those of a workload side by side.
    pub(super) items: Vec<Item<'r>>,
    /// The tasks themselves, one for each item.
    pub(super) tasks: Vec<Task<'r>>,
    /// Templates that were left out, and why.
    pub(super) left_out: Vec<String>,
}

/// One task of a plan.
pub(super) struct Item<'r> {
    /// What people call the workload.
    pub(super) name: String,
    /// How often it occurs.
    pub(super) weight: f64,
    /// What logs call the task.
    pub(super) key: TaskKey,
    /// The default, as the template's space writes it.
    pub(super) default: Config,
    /// The template.
    pub(super) template: &'r dyn Template,
}

/// What a log says of the tasks of a plan.
pub(super) struct Earlier {
    /// Trials that need not be repeated, for each task.
    pub(super) histories: Vec<Vec<Trial>>,
    /// Configs that were fast elsewhere, for each task: where its tuner starts.
    pub(super) hints: Vec<Vec<Config>>,
    /// What does not belong, and what becomes of it.
    pub(super) notes: Vec<String>,
}

/// Configs of other devices, or that somebody else measured, that a task begins with.
const HINTS: usize = 4;

/// Configs of other workloads, or of this one on other devices or threads, that a task begins with besides.
const NEIGHBOURS: usize = 2;

impl<'r> Plan<'r> {
    pub(super) fn new(
        registry: &'r Registry,
        project: &Project,
        arguments: &Arguments,
        recording: Option<&Recording>,
        target: &'static Target,
    ) -> Result<Plan<'r>, Failure> {
        let named: Vec<&'r dyn Template> =
            arguments.template.iter().map(|name| find_template(registry, name)).collect::<Result<_, _>>()?;
        let mut plan = Plan { target, items: vec![], tasks: vec![], left_out: vec![] };
        for wanted in wanted(project, arguments, recording, target)? {
            // A template that was asked for need not run all that a spec has, but each workload that was asked for.
            let all =
                named.is_empty() || !arguments.measured.workload.is_empty() || !arguments.measured.only.is_empty();
            plan.add(registry, &named, recording, &wanted, all)?;
        }
        if plan.tasks.is_empty() {
            let what = match &plan.left_out[..] {
                [] => "the recording has nothing of it".to_string(),
                all => all.join("; "),
            };
            return Err(format!("there is nothing to tune on {}: {what}", target.name).into());
        }
        Ok(plan)
    }

    /// Adds a task for each template that can run the workload. None is an error where one must, else a note.
    fn add(
        &mut self,
        registry: &'r Registry,
        named: &[&'r dyn Template],
        recording: Option<&Recording>,
        wanted: &Wanted,
        must: bool,
    ) -> Result<(), Failure> {
        let Wanted { name, weight, workload, .. } = wanted;
        let target = self.target;
        if !target.serves(workload) {
            let why = || {
                format!("code for {} is of workloads on integers of eight bits alone, and {name} is none", target.name)
            };
            return if must { Err(why().into()) } else { Ok(()) };
        }
        let mut found = vec![];
        let mut reasons = vec![];
        for template in registry.iter().filter(|t| named.is_empty() || named.iter().any(|n| n.name() == t.name())) {
            if let Err(reason) = template.admits(workload, target) {
                reasons.push(format!("{}: {reason}", template.name()));
                continue;
            }
            let default = match default_of(template, workload, target)? {
                Ok(candidate) => candidate.config,
                Err(reason) => {
                    reasons.push(format!("{}: {reason}", template.name()));
                    continue;
                }
            };
            let mut task = Task::new(workload.clone(), target, template)?;
            let key = TaskKey {
                workload: workload.key(),
                target: target.name.clone(),
                template: template.name().to_string(),
                template_version: template.version(),
                space: task.space.fingerprint(),
            };
            if let Some(recording) = recording {
                match recording.part_of(&task) {
                    Some(part) => task.space = part,
                    None => continue,
                }
            }
            let predicted = task.predicted_us(&default);
            found.push((predicted, Item { name: name.clone(), weight: *weight, key, default, template }, task));
        }
        if found.is_empty() && recording.is_none() {
            let reasons = reasons.join("; ");
            if !must {
                self.left_out.push(format!("{name} is left out ({reasons})"));
                return Ok(());
            }
            return Err(format!("no template can run {name} on {} ({reasons})", target.name).into());
        }
        let best = found.iter().map(|(predicted, ..)| *predicted).fold(f64::INFINITY, f64::min);
        for (predicted, item, task) in found {
            if named.is_empty() && recording.is_none() && predicted > HOPELESS * best {
                self.left_out.push(format!(
                    "{name}: {} is left out, its model expects {:.0} times as long; --template {} tries it",
                    item.template.name(),
                    predicted / best,
                    item.template.name(),
                ));
                continue;
            }
            self.items.push(item);
            self.tasks.push(task);
        }
        Ok(())
    }

    /// Number of different workloads.
    pub(super) fn workloads(&self) -> usize {
        let mut keys: Vec<&str> = self.items.iter().map(|item| item.key.workload.as_str()).collect();
        keys.dedup();
        keys.len()
    }

    /// What the log says of each task, by the rules of [`RULES`](crate::records::RULES); without a bench, on any device.
    /// Trials that were not measured for reasons that are not the config's are tried again.
    pub(super) fn earlier(&self, registry: &Registry, log: &Log, bench: Option<&Bench>) -> Earlier {
        let mut validator = Validator::new(registry, Purpose::Tune);
        if let Some(bench) = bench {
            validator = validator.on(&self.target.name, &bench.device);
        }
        // By index, with the place of each in the log: a tuner's patience counts trials in the order in which they were made.
        let mut trials: Vec<BTreeMap<u64, (usize, Trial)>> = vec![BTreeMap::new(); self.tasks.len()];
        let mut hints: Vec<Vec<(f64, Config)>> = vec![vec![]; self.tasks.len()];
        let mut told = vec![];
        let place = |key: &TaskKey| {
            let same = |k: &TaskKey| k.workload == key.workload && k.target == key.target && k.template == key.template;
            self.items.iter().position(|item| same(&item.key))
        };
        for (order, entry) in log.entries.iter().enumerate() {
            let Some(at) = place(&entry.task) else { continue };
            let validation = validator.entry(entry);
            told.extend(validation.told);
            // A config is found by its content; its index may be another one where the task is a part of the space.
            let Some(config) = validation.config else { continue };
            let Ok(index) = self.tasks[at].space.index_of(&config) else { continue };
            let here = validation.counts && bench.is_none_or(|b| entry.threads == b.threads);
            match &entry.trial.outcome {
                Outcome::Failed(failure) if failure.kind == FailureKind::Worker => {}
                outcome if here => {
                    let trial = Trial { index, config, outcome: outcome.clone() };
                    trials[at].insert(index, (order, trial));
                }
                outcome => hints[at].extend(outcome.time_us().map(|us| (us, config))),
            }
        }
        for seed in &log.seeds {
            let Some(at) = place(&seed.task) else { continue };
            let validation = validator.seed(seed);
            hints[at].extend(seed.reported_us.zip(validation.config));
        }
        let hints = hints.into_iter().map(|mut all| {
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            all.into_iter().map(|(_, config)| config).take(HINTS).collect()
        });
        let histories = trials.into_iter().map(|all| {
            let mut all: Vec<(usize, Trial)> = all.into_values().collect();
            all.sort_by_key(|(order, _)| *order);
            all.into_iter().map(|(_, trial)| trial).collect()
        });
        Earlier {
            histories: histories.collect(),
            hints: hints.collect(),
            notes: summarised(told).iter().map(|d| d.to_string()).collect(),
        }
    }

    /// For each task what was fastest for the workloads that are most like its own, adapted to its space: the same shape with
    /// another epilogue or on other threads, shapes that are a little larger or smaller.
    pub(super) fn neighbours(
        &self,
        registry: &Registry,
        records: &BestRecords,
        log: &Log,
        bench: Option<&Bench>,
    ) -> Vec<Vec<Config>> {
        /// Whether it is of another device, and how many threads more or less.
        type Far = (bool, u32);
        const HERE: Far = (false, 0);
        struct Best<'a> {
            task: TaskKey,
            config: &'a Config,
            far: Far,
            us: f64,
        }
        // What this very device measured stands beside what others did, not in its place.
        let mut known: BTreeMap<(String, String, bool), Best<'_>> = BTreeMap::new();
        let mut take = |task: TaskKey, device: &str, threads: u32, config, us: f64| {
            let far = bench.map_or((false, 0), |b| (b.device != device, b.threads.abs_diff(threads)));
            let of = (task.template.clone(), task.workload.clone(), far == HERE);
            let old = known.get(&of);
            if old.is_none_or(|old| far.cmp(&old.far).then(us.total_cmp(&old.us)).is_lt()) {
                known.insert(of, Best { task, config, far, us });
            }
        };
        for r in records.iter().filter(|r| r.verified && r.target == self.target.name) {
            take(TaskKey::from(r), &r.device, r.threads, &r.config, r.time_us);
        }
        for e in log.entries.iter().filter(|e| e.task.target == self.target.name) {
            if let Some(us) = e.trial.outcome.time_us() {
                take(e.task.clone(), &e.device, e.threads, &e.trial.config, us);
            }
        }
        // What may not be used is named where it is of a task of this plan, and says nothing here.
        let mut validator = Validator::new(registry, Purpose::Tune);
        let believed: Vec<(Best<'_>, Workload, Config)> = known
            .into_values()
            .filter_map(|best| {
                let workload = Workload::from_key(&best.task.workload).ok()?;
                let config = validator.fit(&best.task, Some(best.task.space), best.config).ok()?;
                Some((best, workload, config))
            })
            .collect();
        let names = |task: &TaskKey| (task.template.clone(), task.workload.clone());
        let measured_here: BTreeSet<(String, String)> =
            believed.iter().filter(|(b, ..)| b.far == HERE).map(|(b, ..)| names(&b.task)).collect();
        let of = |at: usize| {
            let key = &self.items[at].key;
            // Its own best of this very device is its record, or in its log. Of another workload that one is enough.
            let wanted = |b: &Best<'_>| {
                if b.task.workload == key.workload {
                    return b.far != HERE;
                }
                b.far == HERE || !measured_here.contains(&names(&b.task))
            };
            let of_template = believed.iter().filter(|(b, ..)| b.task.template == key.template && wanted(b));
            let others = of_template.map(|(_, workload, config)| (workload.clone(), config.clone()));
            model::neighbours(&self.tasks[at].space, &self.tasks[at].workload, others, NEIGHBOURS)
        };
        (0..self.tasks.len()).map(of).collect()
    }

    /// The records that there are of these workloads on this device, and what is wrong with those that cannot be used.
    pub(super) fn incumbents(&self, registry: &Registry, project: &Project, bench: Option<&Bench>) -> Incumbents {
        let mut all = Incumbents::default();
        let mut validator = Validator::new(registry, Purpose::Tune);
        let mut seen: Vec<&str> = vec![];
        for item in &self.items {
            let workload = item.key.workload.as_str();
            if seen.contains(&workload) {
                continue;
            }
            seen.push(workload);
            let here = |r: &Record| bench.is_none_or(|b| r.device == b.device && r.threads == b.threads);
            let same = |r: &Record| r.workload == workload && r.target == self.target.name && here(r);
            let Some(Entry { record, file, line, .. }) = project.records.entries().find(|e| same(&e.record)) else {
                continue;
            };
            let of_record = |i: &Item<'_>| i.key.workload == record.workload && i.key.template == record.template;
            let outcome = match self.items.iter().position(of_record) {
                Some(entry) => self.incumbent(record, entry).map(|incumbent| all.usable.push(incumbent)),
                // Whoever tunes one template does not mean to lose a record of another.
                None => validator.record(record).map(|_| all.standing.push(record.clone())).map_err(|e| e.to_string()),
            };
            if let Err(reason) = outcome {
                all.notes.push(format!("{file}:{line}: the record is not compared with: {reason}"));
            }
        }
        all
    }

    fn incumbent(&self, record: &Record, entry: usize) -> Result<Incumbent, String> {
        let key = &self.items[entry].key;
        if record.template_version != key.template_version {
            let (old, new) = (record.template_version, key.template_version);
            return Err(format!("it was made for version {old} of {}, which is now {new}", record.template));
        }
        if record.space != key.space {
            return Err(format!("it was made in another config space of {}", record.template));
        }
        let config = self.tasks[entry].space.normalise(&record.config).map_err(|e| e.to_string())?;
        Ok(Incumbent { entry, config, recorded_us: record.time_us, floor_us: record.floor_us })
    }
}

/// The records that there are when a session begins.
#[derive(Default)]
pub(super) struct Incumbents {
    /// Those that what is found is timed beside.
    pub(super) usable: Vec<Incumbent>,
    /// Those of templates that are not tuned now: one stays unless what is found takes less than its time.
    pub(super) standing: Vec<Record>,
    /// What is wrong with the others.
    pub(super) notes: Vec<String>,
}

/// The workloads that are asked for; without a spec, those of the recording.
fn wanted(
    project: &Project,
    arguments: &Arguments,
    recording: Option<&Recording>,
    target: &Target,
) -> Result<Vec<Wanted>, Failure> {
    if let (true, None, Some(recording)) = (arguments.measured.workload.is_empty(), &project.spec, recording) {
        if !arguments.measured.as_written() {
            let help = "name a spec whose workloads with so many images it holds, or leave --images out";
            return Err(format!("a recording holds times of the workloads in it, not of others: {help}").into());
        }
        let mut all: Vec<Wanted> = vec![];
        for (key, _, _) in recording.tasks().filter(|(_, t, _)| *t == target.name) {
            if !all.iter().any(|w| w.name == key) {
                let workload = Workload::from_key(key)?;
                all.push(Wanted { name: key.to_string(), weight: 1.0, workload, ranged: None });
            }
        }
        return Ok(all);
    }
    // What is chosen for a range is chosen for these.
    arguments.measured.wanted(project, &|range| ladder(range, target))
}
