//! One line of a log: its JSON, its checksum, and what may be wrong with it.
//!
//! The forms that are written live here and not on [`Trial`]: what a log calls things stays the same when the
//! program's own types change.

use super::entry::{
    Compared, ComparedConfig, Entry, Host, LOG_SCHEMA, Machine, Place, Run, RunId, Seed, Settings, TaskKey,
};
use crate::records::{Failure, FailureKind, Mismatch, Outcome, Timing, Trial, is_file_word, not_plain};
use crate::space::{Config, Fingerprint};
use crate::stable::stable_hash;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What stands between a line's content and its checksum.
const SUM: &str = ",\"sum\":\"";

/// What a line says.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::records) enum Parsed {
    Run(RunId, Box<Run>, u64),
    Trial(Box<Entry>),
    Compared(Box<Compared>),
    Seed(Box<Seed>),
    Dropped(String),
}

/// Why a line says nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::records) enum LineFault {
    /// It is longer than any line that is written.
    TooLong,
    /// It is not text.
    NotText,
    /// It is the last one, and its end is missing.
    Torn,
    /// It begins like a line of a log, but its end is missing.
    Cut,
    /// It is something else.
    Foreign,
    /// It is a line of AutoTVM's.
    AutoTvm,
    /// It is a mark of a merge.
    Conflict,
    /// Its checksum is another one.
    Changed,
    /// It has another schema.
    Schema(i64),
    /// What is written in it makes no sense.
    Malformed(String),
}

impl LineFault {
    /// What a person can do about it, which is what the table of mismatches says unless the case is clearer than that.
    pub(in crate::records) fn help(&self) -> String {
        let rule = |mismatch: Mismatch| format!("it is skipped; {}", mismatch.rule().help);
        match self {
            LineFault::TooLong | LineFault::NotText | LineFault::Changed | LineFault::Cut => rule(Mismatch::Damaged),
            LineFault::Schema(recorded) => rule(Mismatch::Schema { recorded: *recorded }),
            LineFault::Torn => "it is skipped, and what is appended next begins on a new line".into(),
            LineFault::Foreign => "it is skipped; delete the line, or name another file".into(),
            LineFault::AutoTvm => "read it with `kernel-gen import`".into(),
            LineFault::Conflict => {
                "delete the mark: both sides' lines may stay; or merge with `kernel-gen merge`".into()
            }
            LineFault::Malformed(_) => "it is skipped; measure again with this version".into(),
        }
    }
}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineFault::TooLong => f.write_str("the line is longer than any line of a log"),
            LineFault::NotText => f.write_str("the line is not UTF-8 text"),
            LineFault::Torn => f.write_str("the last line is cut off: its writer was ended, or is still writing"),
            LineFault::Cut => f.write_str("the line is cut off"),
            LineFault::Foreign => f.write_str("the line is not one of a trial log"),
            LineFault::AutoTvm => f.write_str("the line is one of AutoTVM's"),
            LineFault::Conflict => f.write_str("a merge conflict is not resolved"),
            LineFault::Changed => f.write_str("the line was damaged or changed: its checksum does not belong to it"),
            LineFault::Schema(schema) => write!(f, "the line has schema {schema}"),
            LineFault::Malformed(cause) => f.write_str(cause),
        }
    }
}

/// The first look at a line.
#[derive(Deserialize)]
struct Head {
    log: i64,
    line: String,
}

/// As [`Machine`].
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum MachineForm {
    Cpu { isa: String, compiler: String },
    Cuda { capability: String, sms: u32, driver: String, toolkit: String, sm_mhz: u32, memory_mhz: u32, uuid: String },
    Other {},
}

/// As [`Settings`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsForm {
    number: u64,
    repeat: [u64; 2],
    min_repeat_ms: f64,
    cooldown_s: f64,
    build_timeout_s: f64,
    run_timeout_s: f64,
}

/// As [`Host`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostForm {
    os: String,
    kernel: String,
    arch: String,
    processors: u32,
    memory_mib: u64,
    packages: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ComparedForm {
    log: i64,
    line: String,
    workload: String,
    target: String,
    device: String,
    threads: u32,
    candidates: Vec<CandidateForm>,
    run: String,
    n: u64,
    at: f64,
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "it was compared before the line was parsed")]
    sum: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CandidateForm {
    template: String,
    version: u32,
    config: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    default: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    chosen: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    us: Option<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunForm {
    log: i64,
    line: String,
    run: String,
    generator: String,
    device: String,
    threads: u32,
    machine: MachineForm,
    tuner: String,
    seed: u64,
    /// Seconds since 1970.
    started: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measure: Option<SettingsForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<HostForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "it was compared before the line was parsed")]
    sum: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrialForm {
    log: i64,
    line: String,
    workload: String,
    target: String,
    device: String,
    threads: u32,
    template: String,
    version: u32,
    space: String,
    index: u64,
    config: String,
    /// For people who sort lines; what is read are the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    median_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    us: Vec<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cold_us: Vec<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    core_gflops: Vec<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verified: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    generator: String,
    tuner: String,
    seed: u64,
    run: String,
    n: u64,
    at: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost_s: Option<f64>,
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "it was compared before the line was parsed")]
    sum: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DroppedForm {
    log: i64,
    line: String,
    worker: String,
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "it was compared before the line was parsed")]
    sum: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeedForm {
    log: i64,
    line: String,
    workload: String,
    target: String,
    template: String,
    version: u32,
    space: String,
    index: u64,
    config: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reported_us: Option<f64>,
    verified: bool,
    source: String,
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "it was compared before the line was parsed")]
    sum: String,
}

/// Eight hexadecimal digits that belong to the text.
fn checksum(text: &str) -> String {
    format!("{:08x}", stable_hash(text) >> 32)
}

/// An object's text with its checksum, and the end of the line.
fn seal(object: &impl Serialize) -> Result<String, String> {
    let mut text = serde_json::to_string(object).map_err(|e| e.to_string())?;
    // The checksum covers everything in front of it; the brace comes back behind it.
    text.pop();
    let sum = checksum(&text);
    text.push_str(SUM);
    text.push_str(&sum);
    text.push_str("\"}\n");
    Ok(text)
}

/// The content of a line whose checksum is right.
pub(in crate::records) fn sealed(line: &str) -> Option<&str> {
    let (content, sum) = line.rsplit_once(SUM)?;
    (sum.strip_suffix("\"}")? == checksum(content)).then_some(content)
}

/// Texts that stay on one line and of a length that a person reads.
fn detail_of(text: &str) -> String {
    const MOST: usize = 2000;
    let end = (0..=text.len().min(MOST)).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    if end < text.len() { format!("{}…", &text[..end]) } else { text.to_string() }
}

impl Run {
    /// The line of a run.
    pub(in crate::records) fn to_line(&self, id: RunId, started: u64) -> Result<String, String> {
        let machine = match self.machine.clone() {
            Machine::Cpu { isa, compiler } => MachineForm::Cpu { isa, compiler },
            Machine::Cuda { capability, sms, driver, toolkit, sm_mhz, memory_mhz, uuid } => {
                MachineForm::Cuda { capability, sms, driver, toolkit, sm_mhz, memory_mhz, uuid }
            }
            Machine::Other => MachineForm::Other {},
        };
        positive("threads", u64::from(self.threads))?;
        let form = RunForm {
            log: LOG_SCHEMA,
            line: "run".into(),
            run: id.to_string(),
            generator: self.generator.clone(),
            device: self.device.clone(),
            threads: self.threads,
            machine,
            tuner: self.tuner.clone(),
            seed: self.seed,
            started,
            measure: self.settings.map(|s| SettingsForm {
                number: s.number,
                repeat: s.repeat,
                min_repeat_ms: s.min_repeat_ms,
                cooldown_s: s.cooldown_s,
                build_timeout_s: s.build_timeout_s,
                run_timeout_s: s.run_timeout_s,
            }),
            host: self.host.clone().map(|Host { os, kernel, arch, processors, memory_mib, packages }| HostForm {
                os,
                kernel,
                arch,
                processors,
                memory_mib,
                packages,
            }),
            worker: self.worker.clone(),
            sum: String::new(),
        };
        plain_run(&form)?;
        seal(&form)
    }

    /// The line of a comparison.
    pub(in crate::records) fn compared_line(&self, compared: &Compared) -> Result<String, String> {
        let candidate = |c: &ComparedConfig| CandidateForm {
            template: c.template.clone(),
            version: c.version,
            config: c.config.to_string(),
            default: c.is_default,
            chosen: c.is_chosen,
            us: c.us,
        };
        let form = ComparedForm {
            log: LOG_SCHEMA,
            line: "compared".into(),
            workload: compared.workload.clone(),
            target: compared.target.clone(),
            device: compared.device.clone(),
            threads: compared.threads,
            candidates: compared.candidates.iter().map(candidate).collect(),
            run: compared.run.to_string(),
            n: compared.number,
            at: milliseconds(compared.at_s),
            sum: String::new(),
        };
        let line = seal(&form)?;
        compared_of(form)?;
        Ok(line)
    }

    /// The line of one of its trials, or why nothing may be written: a line that nobody could read again.
    pub(in crate::records) fn trial_line(
        &self,
        run: RunId,
        number: u64,
        (at_s, cost_s): (f64, Option<f64>),
        task: &TaskKey,
        trial: &Trial,
    ) -> Result<String, String> {
        let mut form = TrialForm {
            log: LOG_SCHEMA,
            line: "trial".into(),
            workload: task.workload.clone(),
            target: task.target.clone(),
            device: self.device.clone(),
            threads: self.threads,
            template: task.template.clone(),
            version: task.template_version,
            space: task.space.to_string(),
            index: trial.index,
            config: trial.config.to_string(),
            median_us: None,
            us: vec![],
            cold_us: vec![],
            core_gflops: vec![],
            error: None,
            verified: None,
            failure: None,
            detail: None,
            generator: self.generator.clone(),
            tuner: self.tuner.clone(),
            seed: self.seed,
            run: run.to_string(),
            n: number,
            at: milliseconds(at_s),
            cost_s: cost_s.map(milliseconds),
            sum: String::new(),
        };
        match &trial.outcome {
            Outcome::Timed(timing) => {
                form.median_us = Some(timing.median_us());
                form.us.clone_from(&timing.samples_us);
                form.cold_us.clone_from(&timing.cold_us);
                form.core_gflops.clone_from(&timing.core_gflops);
                form.error = Some(timing.max_error);
                form.verified = Some(true);
            }
            Outcome::Failed(failure) => {
                form.failure = Some(failure.kind.name().into());
                form.detail = Some(detail_of(&failure.detail));
            }
        }
        plain_trial(&form)?;
        outcome(&form)?;
        task_key(&form.workload, &form.target, &form.template, form.version, &form.space)?;
        seal(&form)
    }
}

impl Seed {
    /// The line of a seed.
    pub(in crate::records) fn to_line(&self) -> Result<String, String> {
        seal(&SeedForm {
            log: LOG_SCHEMA,
            line: "seed".into(),
            workload: self.task.workload.clone(),
            target: self.task.target.clone(),
            template: self.task.template.clone(),
            version: self.task.template_version,
            space: self.task.space.to_string(),
            index: self.index,
            config: self.config.to_string(),
            reported_us: self.reported_us,
            verified: false,
            source: self.source.clone(),
            sum: String::new(),
        })
    }
}

/// The line that takes back what a worker measured.
pub(super) fn dropped_line(worker: &str) -> Result<String, String> {
    plain(&[("worker", worker)])?;
    seal(&DroppedForm { log: LOG_SCHEMA, line: "dropped".into(), worker: worker.to_string(), sum: String::new() })
}

/// Reads a line, without its end. `place` is where it lies, and `last` says that no end of line follows it.
pub(in crate::records) fn parse_line(text: &str, place: &Place, last: bool) -> Result<Parsed, LineFault> {
    let text = text.trim_end_matches('\r');
    if ["<<<<<<< ", "=======", ">>>>>>> ", "||||||| "].iter().any(|mark| text.starts_with(mark)) {
        return Err(LineFault::Conflict);
    }
    if sealed(text).is_none() {
        return Err(fault_of(text, last));
    }
    let malformed = |error: serde_json::Error| LineFault::Malformed(json_cause(&error));
    let head: Head = serde_json::from_str(text).map_err(malformed)?;
    if head.log != LOG_SCHEMA {
        return Err(LineFault::Schema(head.log));
    }
    match head.line.as_str() {
        "run" => run(serde_json::from_str(text).map_err(malformed)?),
        "trial" => trial(serde_json::from_str(text).map_err(malformed)?, place).map(Box::new).map(Parsed::Trial),
        "compared" => compared_of(serde_json::from_str(text).map_err(malformed)?).map(Box::new).map(Parsed::Compared),
        "seed" => seed(serde_json::from_str(text).map_err(malformed)?, place).map(Box::new).map(Parsed::Seed),
        "dropped" => dropped(serde_json::from_str(text).map_err(malformed)?),
        other => Err(format!(
            "a line cannot be a \"{other}\": it is a run, a trial, a comparison (\"compared\"), a seed or a worker that was \
             dropped (\"dropped\")"
        )),
    }
    .map_err(LineFault::Malformed)
}

/// What a line is whose checksum is missing or wrong.
fn fault_of(text: &str, last: bool) -> LineFault {
    const START: &str = "{\"log\":";
    let ours = text.starts_with(START);
    let complete = text.ends_with("\"}") && text.contains(SUM);
    match ours {
        true if complete => LineFault::Changed,
        true if last => LineFault::Torn,
        true => LineFault::Cut,
        // Too short to say what it was to become.
        false if last && START.starts_with(text) => LineFault::Torn,
        false if START.starts_with(text) => LineFault::Cut,
        false if text.starts_with('{') && text.contains("\"input\"") && text.contains("\"config\"") => {
            LineFault::AutoTvm
        }
        false if complete => LineFault::Changed,
        false => LineFault::Foreign,
    }
}

/// What serde says, in one line and without the line's number, which is always 1.
pub(in crate::records) fn json_cause(error: &serde_json::Error) -> String {
    let text = error.to_string().replace('\n', " ");
    match text.rsplit_once(" at line ") {
        Some((cause, _)) if error.column() > 0 => format!("{cause} (column {})", error.column()),
        _ => text,
    }
}

fn run(form: RunForm) -> Result<Parsed, String> {
    plain_run(&form)?;
    let id = run_id(&form.run)?;
    positive("threads", u64::from(form.threads))?;
    let machine = match form.machine {
        MachineForm::Cpu { isa, compiler } => Machine::Cpu { isa, compiler },
        MachineForm::Cuda { capability, sms, driver, toolkit, sm_mhz, memory_mhz, uuid } => {
            Machine::Cuda { capability, sms, driver, toolkit, sm_mhz, memory_mhz, uuid }
        }
        MachineForm::Other {} => Machine::Other,
    };
    let RunForm { generator, device, threads, tuner, seed, measure, host, worker, .. } = form;
    let settings = measure.map(|s| Settings {
        number: s.number,
        repeat: s.repeat,
        min_repeat_ms: s.min_repeat_ms,
        cooldown_s: s.cooldown_s,
        build_timeout_s: s.build_timeout_s,
        run_timeout_s: s.run_timeout_s,
    });
    let host = host.map(|HostForm { os, kernel, arch, processors, memory_mib, packages }| Host {
        os,
        kernel,
        arch,
        processors,
        memory_mib,
        packages,
    });
    let run = Run { generator, device, threads, machine, tuner, seed, settings, host, worker };
    Ok(Parsed::Run(id, Box::new(run), form.started))
}

fn trial(form: TrialForm, place: &Place) -> Result<Entry, String> {
    plain_trial(&form)?;
    let task = task_key(&form.workload, &form.target, &form.template, form.version, &form.space)?;
    positive("threads", u64::from(form.threads))?;
    let run = run_id(&form.run)?;
    let config = config(&form.config)?;
    let outcome = outcome(&form)?;
    Ok(Entry {
        task,
        device: form.device,
        threads: form.threads,
        trial: Trial { index: form.index, config, outcome },
        generator: form.generator,
        tuner: form.tuner,
        seed: form.seed,
        run,
        number: form.n,
        at_s: form.at,
        cost_s: form.cost_s,
        machine: None,
        worker: None,
        place: place.clone(),
    })
}

/// Whole milliseconds of seconds: more digits would be noise.
fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

fn compared_of(form: ComparedForm) -> Result<Compared, String> {
    for (key, word) in [("workload", &form.workload), ("target", &form.target)] {
        if !is_file_word(word) {
            return Err(format!("`{key}` is not a name: \"{}\"", word.escape_debug()));
        }
    }
    positive("threads", u64::from(form.threads))?;
    let candidate = |c: CandidateForm| -> Result<ComparedConfig, String> {
        if c.us.is_some_and(|us| !us.is_finite() || us <= 0.0) {
            return Err("a time is not a finite number of microseconds above 0".into());
        }
        let config = config(&c.config)?;
        let CandidateForm { template, version, default, chosen, us, .. } = c;
        Ok(ComparedConfig { template, version, config, is_default: default, is_chosen: chosen, us })
    };
    Ok(Compared {
        workload: form.workload,
        target: form.target,
        device: form.device,
        threads: form.threads,
        candidates: form.candidates.into_iter().map(candidate).collect::<Result<_, _>>()?,
        run: run_id(&form.run)?,
        number: form.n,
        at_s: form.at,
    })
}

/// Refuses text that would not stay on one line: it goes from logs into records, and from there into comments of sources.
fn plain(fields: &[(&str, &str)]) -> Result<(), String> {
    fields.iter().find_map(|(key, text)| not_plain(key, text)).map_or(Ok(()), Err)
}

fn plain_run(form: &RunForm) -> Result<(), String> {
    let worker = form.worker.as_deref().unwrap_or_default();
    plain(&[("generator", &form.generator), ("device", &form.device), ("tuner", &form.tuner), ("worker", worker)])?;
    match &form.machine {
        MachineForm::Cpu { isa, compiler } => plain(&[("isa", isa), ("compiler", compiler)]),
        MachineForm::Cuda { capability, driver, toolkit, uuid, .. } => {
            plain(&[("capability", capability), ("driver", driver), ("toolkit", toolkit), ("uuid", uuid)])
        }
        MachineForm::Other {} => Ok(()),
    }
}

fn plain_trial(form: &TrialForm) -> Result<(), String> {
    plain(&[
        ("device", &form.device),
        ("template", &form.template),
        ("generator", &form.generator),
        ("tuner", &form.tuner),
    ])
}

fn seed(form: SeedForm, place: &Place) -> Result<Seed, String> {
    plain(&[("template", &form.template), ("source", &form.source)])?;
    let task = task_key(&form.workload, &form.target, &form.template, form.version, &form.space)?;
    let config = config(&form.config)?;
    if form.verified {
        return Err("a seed cannot be verified".into());
    }
    if form.reported_us.is_some_and(|t| t <= 0.0) {
        return Err("`reported_us` is not a time".into());
    }
    Ok(Seed {
        task,
        index: form.index,
        config,
        reported_us: form.reported_us,
        source: form.source,
        place: place.clone(),
    })
}

fn dropped(form: DroppedForm) -> Result<Parsed, String> {
    plain(&[("worker", &form.worker)])?;
    Ok(Parsed::Dropped(form.worker))
}

/// The outcome of a trial: either times of a checked result, or a failure.
fn outcome(form: &TrialForm) -> Result<Outcome, String> {
    let time = |t: &f64| t.is_finite() && *t > 0.0;
    match (&form.failure, form.us.is_empty()) {
        (Some(_), false) => Err("a trial cannot have failed and have times".into()),
        (None, true) => Err("a trial has neither times nor a failure".into()),
        (Some(name), true) => {
            let kinds = || FailureKind::ALL.map(FailureKind::name).join(", ");
            let kind = FailureKind::from_name(name)
                .ok_or_else(|| format!("there is no failure \"{name}\"; failures are {}", kinds()))?;
            Ok(Outcome::Failed(Failure { kind, detail: form.detail.clone().unwrap_or_default() }))
        }
        (None, false) => {
            if !form.us.iter().chain(&form.cold_us).all(time) {
                return Err("a time is not a finite number of microseconds above 0".into());
            }
            if !form.core_gflops.iter().all(time) {
                return Err("`core_gflops` holds what is not a finite number above 0".into());
            }
            if form.verified != Some(true) {
                return Err("a trial has times, but its result was never checked".into());
            }
            let max_error = form.error.filter(|e| e.is_finite() && *e >= 0.0);
            let max_error = max_error.ok_or("`error` is not a finite number of at least 0")?;
            let (samples_us, cold_us) = (form.us.clone(), form.cold_us.clone());
            Ok(Outcome::Timed(Timing {
                samples_us,
                cold_us,
                core_gflops: form.core_gflops.clone(),
                max_error,
                ..Timing::default()
            }))
        }
    }
}

fn task_key(workload: &str, target: &str, template: &str, version: u32, space: &str) -> Result<TaskKey, String> {
    // These become names of files.
    for (key, word) in [("workload", workload), ("target", target)] {
        if !is_file_word(word) {
            return Err(format!("`{key}` is not a name: \"{}\"", word.escape_debug()));
        }
    }
    let space = Fingerprint::parse(space)
        .ok_or_else(|| format!("`space` is not a fingerprint: \"{}\"", space.escape_debug()))?;
    Ok(TaskKey {
        workload: workload.into(),
        target: target.into(),
        template: template.into(),
        template_version: version,
        space,
    })
}

fn run_id(text: &str) -> Result<RunId, String> {
    RunId::parse(text).ok_or_else(|| format!("`run` is not the name of a run: \"{}\"", text.escape_debug()))
}

fn config(text: &str) -> Result<Config, String> {
    Config::parse(text).map_err(|e| e.to_string())
}

fn positive(key: &str, value: u64) -> Result<(), String> {
    if value == 0 { Err(format!("`{key}` cannot be 0")) } else { Ok(()) }
}
