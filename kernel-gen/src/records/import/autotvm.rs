//! Lines of AutoTVM's logs, format 0.2 (TVM 0.7 to 0.19; TopHub's files).
//!
//! ```text
//! {"input": ["cuda -model=v100", "conv2d_nchw.cuda",
//!            [["TENSOR", [1, 512, 7, 7], "float32"], ["TENSOR", [512, 512, 3, 3], "float32"],
//!             [1, 1], [1, 1, 1, 1], [1, 1], "float32"], {}],
//!  "config": {"index": 844, "code_hash": null, "entity": [["tile_f", "sp", [-1, 2, 64, 1]], …]},
//!  "result": [[0.000097], 0, 1.93, 1601123791.98], "version": 0.2, "tvm_version": "0.7.dev1"}
//! ```
//!
//! What counts is `entity`: `index` belongs to the space of the version that wrote the line, and any change of the
//! template renumbers it.
//!
//! Which tasks there are templates for, and what their knobs become, is in the module `tasks`.

use super::tasks::{self, Inexact};
use crate::ir::DType;
use crate::records::log::json_cause;
use crate::space::{Annotation, Config, Value, is_knob_name};
use crate::workload::Workload;
use serde_json::Value as Json;
use std::fmt;

/// Why a line cannot be taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LineError {
    /// It is not JSON.
    Json(String),
    /// It is of the time when lines held Python objects: four fields between tabs, each but the first a pickle in base64.
    Pickle,
    /// It has another version.
    Version(String),
    /// It is not built as lines are.
    Form(String),
    /// Nothing is known of its task.
    Task(String),
    /// Its task, or its config, is not what a template here does.
    Nearest {
        /// The task.
        task: String,
        /// What is different.
        why: String,
        /// What comes nearest here.
        nearest: String,
    },
    /// A library computes its task.
    Library {
        /// The task.
        task: String,
        /// The library, as the task's name has it.
        library: String,
    },
    /// Its workload is none here.
    Workload(String),
    /// It does not say what it was compiled for, and neither does the caller.
    NoTarget,
}

impl LineError {
    /// What a person can do about it.
    pub fn help(&self) -> &'static str {
        match self {
            LineError::Json(_) => "a line that was cut off is lost; delete it",
            LineError::Pickle => "read it with the TVM that wrote it and write it as JSON (format 0.2), or tune here",
            LineError::Version(_) => "convert it with a TVM that still reads it, or tune here",
            LineError::Form(_) => "write it as AutoTVM 0.2 does, or delete the line",
            LineError::Task(_) => "tune here; `kernel-gen import --help` lists the tasks that are taken",
            LineError::Nearest { .. } | LineError::Library { .. } => "tune the workload here, or delete the line",
            LineError::Workload(_) => "tune here a workload that is",
            LineError::NoTarget => "name it with --target",
        }
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineError::Json(cause) => write!(f, "the line is not complete JSON: {cause}"),
            LineError::Pickle => f.write_str(
                "the line is of AutoTVM's pickle format, which is not read: it holds Python objects, and reading them runs code",
            ),
            LineError::Version(version) => write!(f, "the line has version {version}, and not 0.2"),
            LineError::Form(cause) => f.write_str(cause),
            LineError::Task(task) => write!(f, "no template here has the knobs of the task {task}"),
            LineError::Nearest { task, why, nearest } => {
                write!(f, "the task {task} is not taken: {why}; nearest here is {nearest}")
            }
            LineError::Library { task, library } => {
                write!(f, "the task {task} is not taken: {library} computes it, and its line says nothing of how")
            }
            LineError::Workload(cause) => write!(f, "the workload is none of ours: {cause}"),
            LineError::NoTarget => f.write_str("the line does not say for which architecture"),
        }
    }
}

impl std::error::Error for LineError {}

/// What a line says, in this program's terms.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// The target, as it was written: `cuda -model=v100`.
    pub target: String,
    /// The task's name there.
    pub task: String,
    /// The templates here: the first one counts that is registered and applies.
    pub templates: &'static [&'static str],
    /// Whether it is the tutorial's task, whose schedule exchanges `tile_ry` and `tile_rx`.
    pub tutorial: bool,
    /// Whether a template here numbers its configs as the task does.
    pub numbered: bool,
    /// The workload.
    pub workload: Workload,
    /// The config, with its knobs as the template here has them; as it was written where it failed.
    pub config: Config,
    /// The index that was written.
    pub index: Option<u64>,
    /// The mean time in microseconds; none where it failed.
    pub time_us: Option<f64>,
    /// Whether it failed there.
    pub failed: bool,
}

pub(super) fn form(what: &str) -> LineError {
    LineError::Form(what.to_string())
}

/// A text of the line in a message, on one line and not too long.
pub(super) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("`{}`", short.escape_debug())
}

impl Line {
    /// Reads a line.
    pub fn parse(text: &str) -> Result<Line, LineError> {
        if is_pickle(text) {
            return Err(LineError::Pickle);
        }
        let json: Json = serde_json::from_str(text).map_err(|e| LineError::Json(json_cause(&e)))?;
        if !json.is_object() {
            return Err(form("the line is not an object"));
        }
        // Lines of 0.1 have no version, and another input.
        match json.get("version") {
            Some(v) if v.as_f64() == Some(0.2) => {}
            Some(v) => return Err(LineError::Version(shown(&v.to_string()))),
            None => return Err(LineError::Version("0.1 or none".into())),
        }
        let input = json["input"].as_array().filter(|i| i.len() == 4);
        let input = input.ok_or_else(|| form("`input` is not a list of target, task, arguments and keywords"))?;
        let (Some(target), Some(task), Some(args)) = (input[0].as_str(), input[1].as_str(), input[2].as_array()) else {
            return Err(form("`input` is not a list of target, task, arguments and keywords"));
        };
        let known = tasks::find(task).ok_or_else(|| tasks::refusal(task))?;
        let workload = (known.workload)(args)?;
        workload.validate().map_err(|e| LineError::Workload(e.to_string()))?;
        let mut config = entities(&json["config"]["entity"])?;
        let (time_us, failed) = result(&json["result"])?;
        if !failed {
            config = (known.config)(&config).map_err(|inexact| match inexact {
                Inexact::Form(cause) => LineError::Form(cause),
                Inexact::Differs { why, nearest } => {
                    let template = known.templates.first().copied().unwrap_or_default();
                    LineError::Nearest { task: shown(task), why, nearest: format!("`{template}` with {nearest}") }
                }
            })?;
        }
        Ok(Line {
            target: target.chars().filter(|c| !c.is_control()).take(200).collect(),
            task: task.to_string(),
            templates: known.templates,
            tutorial: task == tasks::TUTORIAL,
            numbered: known.numbered,
            workload,
            config,
            index: json["config"]["index"].as_u64(),
            time_us,
            failed,
        })
    }

    /// The architecture that the target names.
    pub fn arch(&self) -> Option<&str> {
        self.target.split_whitespace().find_map(|word| word.strip_prefix("-arch="))
    }

    /// Gives each of the knobs `tile_ry` and `tile_rx` the other's value.
    pub fn exchange_ry_rx(&mut self) {
        if let (Some(ry), Some(rx)) = (self.config.find("tile_ry").cloned(), self.config.find("tile_rx").cloned()) {
            self.config.set("tile_ry", rx);
            self.config.set("tile_rx", ry);
        }
    }
}

/// Whether a line is one of `record.encode(…, protocol="pickle")`. A pickle begins with the byte 0x80 and a version from 2 to
/// 5, which is `gAI`, `gAM`, `gAQ` or `gAU` in base64.
fn is_pickle(text: &str) -> bool {
    let fields: Vec<&str> = text.split('\t').collect();
    let pickled = |field: &&str| {
        ["gAI", "gAJ", "gAK", "gAL", "gAM", "gAN", "gAO", "gAP", "gAQ", "gAR", "gAS", "gAT", "gAU", "gAV"]
            .iter()
            .any(|start| field.starts_with(start))
    };
    fields.len() == 4 && fields[1..].iter().any(pickled)
}

/// A list of numbers.
pub(super) fn numbers<const N: usize>(json: &Json, what: &str) -> Result<[i64; N], LineError> {
    let list = json.as_array().filter(|l| l.len() == N);
    let read = list.and_then(|l| l.iter().map(Json::as_i64).collect::<Option<Vec<_>>>());
    read.and_then(|l| l.try_into().ok()).ok_or_else(|| LineError::Form(format!("{what} is not a list of {N} numbers")))
}

/// One number for both axes, or two.
pub(super) fn pair(json: &Json, what: &str) -> Result<[i64; 2], LineError> {
    match json.as_i64() {
        Some(both) => Ok([both, both]),
        None => numbers(json, what),
    }
}

/// One number for all sides, two for the axes, or four: top, left, bottom, right.
pub(super) fn padding(json: &Json) -> Result<[i64; 4], LineError> {
    match json.as_array().map(Vec::len) {
        Some(4) => numbers(json, "the padding"),
        _ => pair(json, "the padding").map(|[y, x]| [y, x, y, x]),
    }
}

pub(super) fn dtype(json: &Json) -> Result<DType, LineError> {
    match json.as_str() {
        Some("float32") => Ok(DType::F32),
        Some("float16") => Ok(DType::F16),
        Some("bfloat16") => Ok(DType::Bf16),
        Some(other) => Err(LineError::Workload(format!("its type is {}", shown(other)))),
        None => Err(form("a type is not text")),
    }
}

/// `["TENSOR", [1, 512, 7, 7], "float32"]`.
pub(super) fn tensor<const N: usize>(json: &Json) -> Result<([i64; N], DType), LineError> {
    match json.as_array().map(Vec::as_slice) {
        Some([tag, shape, kind]) if tag == "TENSOR" => Ok((numbers(shape, "a tensor's shape")?, dtype(kind)?)),
        _ => Err(form("a tensor is not [\"TENSOR\", shape, type]")),
    }
}

/// `[[knob, tag, value], …]`.
fn entities(json: &Json) -> Result<Config, LineError> {
    let list = json.as_array().ok_or_else(|| form("`config` has no list `entity`"))?;
    let mut config = Config::new();
    for entity in list {
        let Some([name, tag, value]) = entity.as_array().map(Vec::as_slice) else {
            return Err(form("an entity is not [knob, tag, value]"));
        };
        let (Some(name), Some(tag)) = (name.as_str().filter(|n| is_knob_name(n)), tag.as_str()) else {
            return Err(form("an entity is not [knob, tag, value]"));
        };
        if config.find(name).is_some() {
            return Err(LineError::Form(format!("the knob {} has two values", shown(name))));
        }
        let value = entity_value(tag, value);
        let value =
            value.ok_or_else(|| LineError::Form(format!("the knob {} has a value that no knob takes", shown(name))))?;
        config.set(name, value);
    }
    Ok(config)
}

fn entity_value(tag: &str, json: &Json) -> Option<Value> {
    let list = |json: &Json| json.as_array().filter(|l| !l.is_empty()).cloned();
    match tag {
        "sp" => list(json)?.iter().map(Json::as_i64).collect::<Option<_>>().map(Value::Split),
        "re" => {
            let axis = |j: &Json| usize::try_from(j.as_u64()?).ok();
            list(json)?.iter().map(axis).collect::<Option<_>>().map(Value::Perm)
        }
        "an" => {
            let one = |j: &Json| Annotation::from_name(j.as_str()?);
            list(json)?.iter().map(one).collect::<Option<_>>().map(Value::Annotate)
        }
        "ot" => match json {
            Json::Bool(b) => Some(Value::Bool(*b)),
            Json::String(s) => Some(Value::Str(s.clone())),
            number => number.as_i64().map(Value::Int),
        },
        _ => None,
    }
}

/// `[[seconds, …], error number, seconds in all, time]`: the mean in microseconds, or that it failed.
fn result(json: &Json) -> Result<(Option<f64>, bool), LineError> {
    let wrong = || form("`result` is not [costs, error, seconds, time]");
    let list = json.as_array().filter(|l| l.len() >= 2).ok_or_else(wrong)?;
    let costs = list[0].as_array().ok_or_else(wrong)?;
    if list[1].as_i64().ok_or_else(wrong)? != 0 {
        return Ok((None, true));
    }
    let costs: Vec<f64> = costs.iter().map(Json::as_f64).collect::<Option<_>>().ok_or_else(wrong)?;
    let mean = costs.iter().sum::<f64>() / costs.len() as f64 * 1e6;
    if mean.is_finite() && mean > 0.0 { Ok((Some(mean), false)) } else { Err(wrong()) }
}
