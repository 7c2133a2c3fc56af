//! A report of what logs hold.

use super::contents::{Bench, Best, Layer, RecordLine, Report, RunLine, TaskLine, WorkerLine};
use crate::model::roofline::Roofline;
use crate::records::log::{Compared, ComparedConfig, Entry, Log, Machine, RunId};
use crate::records::{BestRecords, Outcome, Slot};
use crate::target::Target;
use crate::workload::Workload;
use std::collections::BTreeMap;

/// What people call workloads, and how often they occur, by key.
pub type Names = BTreeMap<String, (String, f64)>;

impl Report {
    /// A report of logs. `names` says what people call the workloads, and `records` what builds use.
    pub fn new(title: &str, log: &Log, names: &Names, records: Option<&BestRecords>) -> Report {
        let mut benches: BTreeMap<(&str, &str, u32), BTreeMap<&str, Vec<&Entry>>> = BTreeMap::new();
        for entry in &log.entries {
            let bench = benches.entry((&entry.task.target, &entry.device, entry.threads)).or_default();
            bench.entry(&entry.task.workload).or_default().push(entry);
        }
        let benches = benches.into_iter().map(|((target, device, threads), workloads)| {
            let workers = workers(workloads.values().flatten().copied(), log);
            let layers = workloads.into_iter().map(|(key, entries)| {
                let record = records.and_then(|all| record_of(all, key, target, device, threads));
                let here = |c: &&Compared| {
                    (c.workload.as_str(), c.target.as_str()) == (key, target)
                        && (c.device.as_str(), c.threads) == (device, threads)
                };
                let beside = log.compared.iter().rev().filter(here).find_map(|c| beside_default(c, record.as_ref()));
                layer((key, target, threads), &entries, names, record, beside)
            });
            let mut layers: Vec<Layer> = layers.collect();
            let time = |l: &Layer| l.used_us().unwrap_or(0.0) * l.weight;
            layers.sort_by(|a, b| time(b).total_cmp(&time(a)).then_with(|| a.name.cmp(&b.name)));
            Bench { target: target.into(), device: device.into(), threads, layers, workers }
        });
        let notes = log.told().iter().map(|d| d.to_string()).collect();
        Report { title: title.into(), benches: benches.collect(), runs: runs(log), notes }
    }
}

fn record_of(all: &BestRecords, key: &str, target: &str, device: &str, threads: u32) -> Option<RecordLine> {
    let slot = Slot { target: target.into(), device: device.into(), workload: key.into(), threads };
    let record = all.get(&slot)?;
    Some(RecordLine {
        file: slot.relative_path(),
        template: format!("{} v{}", record.template, record.template_version),
        config: record.config.to_string(),
        us: record.time_us,
        spread: record.spread,
    })
}

/// What the default and the config that builds use took in a comparison, if both ran in it.
fn beside_default(compared: &Compared, record: Option<&RecordLine>) -> Option<(f64, f64)> {
    let used = |c: &&ComparedConfig| match record {
        Some(r) => r.template == format!("{} v{}", c.template, c.version) && r.config == c.config.to_string(),
        None => c.is_chosen,
    };
    let default = compared.candidates.iter().find(|c| c.is_default)?.us?;
    Some((default, compared.candidates.iter().find(used)?.us?))
}

fn layer(
    (key, target, threads): (&str, &str, u32),
    entries: &[&Entry],
    names: &Names,
    record: Option<RecordLine>,
    beside_default_us: Option<(f64, f64)>,
) -> Layer {
    let workload = Workload::from_key(key).ok();
    let known = Target::find(target);
    let (name, weight) = names.get(key).cloned().unwrap_or_else(|| (key.to_string(), 1.0));
    let mut by_template: BTreeMap<(&str, u32), Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        by_template.entry((&entry.task.template, entry.task.template_version)).or_default().push(entry);
    }
    let tasks =
        by_template.into_iter().map(|((template, version), entries)| task(&format!("{template} v{version}"), &entries));
    let mut tasks: Vec<TaskLine> = tasks.collect();
    let time = |t: &TaskLine| t.best.as_ref().map_or(f64::INFINITY, |b| b.us);
    tasks.sort_by(|a, b| time(a).total_cmp(&time(b)));
    Layer {
        name,
        key: key.into(),
        weight,
        flops: workload.as_ref().map_or(0.0, |w| w.flops() as f64),
        bytes: workload.as_ref().map_or(0.0, |w| w.bytes() as f64),
        roofline: workload.as_ref().zip(known).map(|(w, t)| Roofline::new(w, t, threads)),
        tasks,
        record,
        beside_default_us,
    }
}

fn task(template: &str, entries: &[&Entry]) -> TaskLine {
    let mut line = TaskLine {
        template: template.into(),
        trials: entries.len(),
        failures: BTreeMap::new(),
        curve: vec![],
        best: None,
    };
    for (at, entry) in entries.iter().enumerate() {
        match &entry.trial.outcome {
            Outcome::Failed(failure) => {
                let kind = line.failures.entry(failure.kind).or_insert_with(|| (0, failure.detail.clone()));
                kind.0 += 1;
            }
            Outcome::Timed(timing) => {
                let us = timing.median_us();
                if line.best.as_ref().is_none_or(|b| us < b.us) {
                    line.curve.push((at + 1, us));
                    line.best = Some(Best {
                        us,
                        spread_us: spread(&timing.samples_us),
                        config: entry.trial.config.clone(),
                        run: entry.run,
                        tuner: format!("{}, seed {}", entry.tuner, entry.seed),
                        place: format!("{}:{}", entry.place.file, entry.place.line),
                    });
                }
            }
        }
    }
    line
}

/// Half the distance between the quartiles.
fn spread(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted.get((share * sorted.len().saturating_sub(1) as f64).round() as usize).copied();
    at(0.75).zip(at(0.25)).map_or(0.0, |(high, low)| (high - low) / 2.0)
}

fn runs(log: &Log) -> Vec<RunLine> {
    let mut lines: BTreeMap<RunId, RunLine> = BTreeMap::new();
    for entry in &log.entries {
        let line = lines.entry(entry.run).or_insert_with(|| {
            let known = log.runs.get(&entry.run);
            let threads = if entry.threads == 1 { String::new() } else { format!(", {} threads", entry.threads) };
            RunLine {
                id: entry.run,
                generator: entry.generator.clone(),
                device: format!("{}{threads}", entry.device),
                machine: known.map(|(run, _)| machine(&run.machine)).unwrap_or_default(),
                tuner: format!("{}, seed {}", entry.tuner, entry.seed),
                started: known.map(|(_, started)| date(*started)).unwrap_or_default(),
                trials: 0,
                seconds: 0.0,
            }
        });
        line.trials += 1;
        line.seconds = line.seconds.max(entry.at_s);
    }
    let mut lines: Vec<RunLine> = lines.into_values().collect();
    lines.sort_by(|a, b| a.started.cmp(&b.started).then(a.id.cmp(&b.id)));
    lines
}

/// The workers that made the trials.
fn workers<'e>(entries: impl Iterator<Item = &'e Entry>, log: &Log) -> Vec<WorkerLine> {
    let mut lines: BTreeMap<&str, WorkerLine> = BTreeMap::new();
    for entry in entries {
        let Some(name) = entry.worker.as_deref() else { continue };
        let line = lines.entry(name).or_insert_with(|| {
            let known = log.runs.get(&entry.run).map(|(run, _)| &run.machine);
            let unit = match known {
                Some(Machine::Cuda { uuid, .. }) if !uuid.is_empty() => format!(", {uuid}"),
                _ => String::new(),
            };
            let machine = known.map(machine).unwrap_or_default() + &unit;
            WorkerLine { name: name.to_string(), machine, trials: 0, failed: 0, seconds: 0.0 }
        });
        line.trials += 1;
        line.failed += usize::from(matches!(entry.trial.outcome, Outcome::Failed(_)));
        line.seconds += entry.cost_s.unwrap_or(0.0);
    }
    lines.into_values().collect()
}

/// What is known of a machine, in words.
fn machine(machine: &Machine) -> String {
    let join = |parts: Vec<String>| parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(", ");
    let with = |label: &str, text: &str| if text.is_empty() { String::new() } else { format!("{label} {text}") };
    let mhz = |label: &str, mhz: u32| if mhz == 0 { String::new() } else { format!("{label} {mhz} MHz") };
    match machine {
        Machine::Cpu { isa, compiler } => join(vec![isa.clone(), compiler.clone()]),
        Machine::Cuda { capability, sms, driver, toolkit, sm_mhz, memory_mhz, .. } => join(vec![
            with("capability", capability),
            if *sms == 0 { String::new() } else { format!("{sms} SMs") },
            with("driver", driver),
            toolkit.clone(),
            mhz("SM", *sm_mhz),
            mhz("memory", *memory_mhz),
        ]),
        Machine::Other => String::new(),
    }
}

/// A time in seconds since 1970 as a date and a time of day. The calendar is Howard Hinnant's `civil_from_days`.
pub(super) fn date(unix: u64) -> String {
    let (days, seconds) = ((unix / 86_400) as i64, unix % 86_400);
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", seconds / 3600, seconds % 3600 / 60)
}
