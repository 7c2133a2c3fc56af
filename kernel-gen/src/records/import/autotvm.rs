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

use super::arguments::{form, shown};
use super::tasks::{self, Inexact};
use crate::records::log::json_cause;
use crate::space::{Annotation, Config, Value, is_knob_name};
use crate::workload::Workload;
use serde_json::Value as Json;

pub use super::error::LineError;

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
