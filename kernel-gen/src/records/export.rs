//! Export in AutoTVM's benchmark-log format, schema 0.1: one JSON object a measurement, for tools that read it.
//!
//! The format is that of TVM's `docs/dev/benchmark.rst` (to 0.8). Its required keys are all there; what it does not know
//! goes into its open dictionaries: the config into `engine_config`, the machine into `hardware_config` and
//! `software_config`, error and throughput into `metrics`. A best record keeps neither spread nor date, so that
//! `runtime_ms_std` and `timestamp` are null there; a trial has both.

use super::log::{Entry, Host, Log, Machine, RunId, Settings};
use super::{BestRecords, Outcome, Record};
use crate::space::{Config, Value};
use crate::workload::{Role, Workload};
use serde_json::{Map, Value as Json, json};

/// The version of the format.
const BENCHMARK_SCHEMA: &str = "0.1";

/// One object a record, in the order of their files.
pub fn of_records(records: &BestRecords) -> Vec<Json> {
    records.iter().map(of_record).collect()
}

/// One object a trial that was timed, in the order of the log. Failed trials have no time and no place in the format.
pub fn of_log(log: &Log) -> Vec<Json> {
    log.entries.iter().filter_map(|entry| of_entry(entry, log)).collect()
}

/// What both kinds share.
struct Common<'a> {
    workload: &'a str,
    target: &'a str,
    device: &'a str,
    threads: u32,
    template: &'a str,
    version: u32,
    space: String,
    config: &'a Config,
    generator: &'a str,
    max_error: f64,
    median_us: f64,
    machine: Option<&'a Machine>,
    host: Option<&'a Host>,
}

impl Common<'_> {
    fn json(&self) -> Map<String, Json> {
        let (mut shapes, mut types) = (Map::new(), Map::new());
        let workload = Workload::from_key(self.workload).ok();
        for p in workload.iter().flat_map(|w| w.params()).filter(|p| p.role != Role::Output) {
            shapes.insert(p.name.into(), json!(p.shape));
            types.insert(p.name.into(), json!(type_name(p.dtype.name())));
        }
        let flops = workload.as_ref().map_or(0, |w| w.flops());
        let mut hardware = Map::new();
        hardware.insert("device".into(), json!(self.device));
        let mut software = Map::new();
        if let Some(Host { os, kernel, arch, processors, memory_mib, packages }) = self.host {
            let known = |text: &str| if text.is_empty() { Json::Null } else { json!(text) };
            software.insert("os".into(), known(os));
            software.insert("os_kernel".into(), known(kernel));
            software.insert("packages".into(), json!(packages));
            hardware.insert("architecture".into(), known(arch));
            hardware.insert("cpu_count".into(), if *processors == 0 { Json::Null } else { json!(processors) });
            let gb = (*memory_mib as f64 / 1024.0 * 10.0).round() / 10.0;
            hardware.insert("memory_GB".into(), if *memory_mib == 0 { Json::Null } else { json!(gb) });
        }
        match self.machine {
            Some(Machine::Cpu { isa, compiler }) => {
                hardware.insert("cpu_isa".into(), json!(isa));
                software.insert("compiler".into(), json!(compiler));
            }
            Some(Machine::Cuda { capability, sms, driver, toolkit, sm_mhz, memory_mhz, uuid }) => {
                hardware.insert("compute_capability".into(), json!(capability));
                hardware.insert("multiprocessors".into(), json!(sms));
                hardware.insert("sm_clock_mhz".into(), json!(sm_mhz));
                hardware.insert("memory_clock_mhz".into(), json!(memory_mhz));
                hardware.insert("uuid".into(), json!(uuid));
                software.insert("cuda_driver".into(), json!(driver));
                software.insert("cuda_toolkit".into(), json!(toolkit));
            }
            Some(Machine::Other) | None => {}
        }
        let knobs: Map<String, Json> =
            self.config.entries().map(|(knob, value)| (knob.into(), knob_json(value))).collect();
        let pairs = [
            ("workload", json!(self.workload)),
            ("engine", json!("kernel-gen")),
            ("hardware", json!(self.device)),
            ("schema_version", json!(BENCHMARK_SCHEMA)),
            ("metadata", json!({})),
            ("workload_args", json!({"input_shape_dict": shapes, "input_type_dict": types, "input_value_dict": {}})),
            (
                "workload_metadata",
                json!({"class": "operator", "type": workload.as_ref().map_or("", |w| w.op_name()), "flops": flops}),
            ),
            ("engine_version", json!(self.generator)),
            (
                "engine_config",
                json!({"template": self.template, "template_version": self.version, "space": self.space, "config": knobs}),
            ),
            ("compilation_config", json!({"target": self.target})),
            ("software_config", Json::Object(software)),
            ("runtime_config", json!({"num_cpu_threads": self.threads})),
            ("hardware_config", Json::Object(hardware)),
            (
                "metrics",
                json!({
                    "runtime_ms_median": self.median_us / 1e3,
                    "gflops": flops as f64 / self.median_us / 1e3,
                    "max_error": self.max_error,
                    "verified": true,
                }),
            ),
        ];
        pairs.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }
}

fn of_record(r: &Record) -> Json {
    let common = Common {
        workload: &r.workload,
        target: &r.target,
        device: &r.device,
        threads: r.threads,
        template: &r.template,
        version: r.template_version,
        space: r.space.to_string(),
        config: &r.config,
        generator: &r.generator,
        max_error: r.max_error,
        median_us: r.time_us,
        machine: None,
        host: None,
    };
    let mut json = common.json();
    json["metrics"]["verified"] = json!(r.verified);
    json.insert("runtime_ms_mean".into(), json!(r.time_us / 1e3));
    json.insert("runtime_ms_std".into(), Json::Null);
    json.insert("timestamp".into(), Json::Null);
    json.insert("execution_config".into(), json!({}));
    Json::Object(json)
}

fn of_entry(entry: &Entry, log: &Log) -> Option<Json> {
    let Outcome::Timed(timing) = &entry.trial.outcome else { return None };
    let run = log.runs.get(&entry.run).map(|(run, _)| run);
    let common = Common {
        workload: &entry.task.workload,
        target: &entry.task.target,
        device: &entry.device,
        threads: entry.threads,
        template: &entry.task.template,
        version: entry.task.template_version,
        space: entry.task.space.to_string(),
        config: &entry.trial.config,
        generator: &entry.generator,
        max_error: timing.max_error,
        median_us: timing.median_us(),
        machine: entry.machine.as_deref(),
        host: run.and_then(|run| run.host.as_ref()),
    };
    let mut json = common.json();
    let ms: Vec<f64> = timing.samples_us.iter().map(|us| us / 1e3).collect();
    let mean = ms.iter().sum::<f64>() / ms.len() as f64;
    // Of the population, as numpy's `std` has it, which AutoTVM's scripts use.
    let std = (ms.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / ms.len() as f64).sqrt();
    json.insert("runtime_ms_mean".into(), json!(mean));
    json.insert("runtime_ms_std".into(), json!(std));
    json.insert("timestamp".into(), timestamp(entry, log));
    json.insert("execution_config".into(), execution(run.and_then(|run| run.settings), ms.len()));
    json.insert("runtime_raw".into(), json!(ms));
    if let Some(cost_s) = entry.cost_s {
        json["metrics"]["all_cost_s"] = json!(cost_s);
    }
    if !timing.cold_us.is_empty() {
        json["metrics"]["runtime_ms_cold_median"] = json!(timing.cold_median_us() / 1e3);
    }
    Some(Json::Object(json))
}

/// The settings that were in force, as far as the log says them, and how many samples there are.
fn execution(settings: Option<Settings>, samples: usize) -> Json {
    let Some(Settings { number, repeat, min_repeat_ms, cooldown_s, build_timeout_s, run_timeout_s }) = settings else {
        return json!({ "repeat": samples });
    };
    json!({
        "number": number,
        "repeat": samples,
        "repeat_at_least": repeat[0],
        "repeat_at_most": repeat[1],
        "min_repeat_ms": min_repeat_ms,
        "cooldown_s": cooldown_s,
        "build_timeout_s": build_timeout_s,
        "run_timeout_s": run_timeout_s,
    })
}

/// When a trial was made, `20191123003411` in UTC; null where its run's line is lost.
fn timestamp(entry: &Entry, log: &Log) -> Json {
    let start = |id: &RunId| log.runs.get(id).map(|(_, started)| *started);
    start(&entry.run).map_or(Json::Null, |started| json!(date(started.saturating_add(entry.at_s as u64))))
}

/// Seconds since 1970 as year, month, day, hour, minute and second. The calendar is that of Hinnant, "chrono-compatible
/// low-level date algorithms": years begin in March, so that the odd day is the last.
fn date(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}{:02}{:02}{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// numpy's names.
fn type_name(name: &str) -> String {
    match name {
        "f32" => "float32".into(),
        "f16" => "float16".into(),
        "bf16" => "bfloat16".into(),
        other => other.into(),
    }
}

fn knob_json(value: &Value) -> Json {
    match value {
        Value::Split(sizes) => json!(sizes),
        Value::Perm(order) => json!(order),
        Value::Annotate(all) => json!(all.iter().map(|a| a.name()).collect::<Vec<_>>()),
        Value::Int(x) => json!(x),
        Value::Str(s) => json!(s),
        Value::Bool(b) => json!(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "19700101000000"),
            (951_782_399, "20000228235959"),
            (951_782_400, "20000229000000"),
            (1_574_469_251, "20191123003411"),
            (4_107_542_400, "21000301000000"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }
}
