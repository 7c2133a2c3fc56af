//! Landscapes: every config of a part of a space with what it measured on a device.
//!
//! A search can be repeated on one without the device, with any seed, and its result compared with the best there is.
//! The text form is a header, the values of each knob, and a line for each config by its index in that part:
//!
//! ```text
//! kernel-gen landscape 1
//! device NVIDIA H100 80GB HBM3
//! target sm_90a
//! workload conv2d-nchw-f32-n1c512h7w7-o512k3x3-s1x1-p1.1.1.1-d1x1-g1
//! template conv2d_no_batching 1
//! knob tile_f [-1,1,8,1] [-1,1,16,1]
//! knob unroll_explicit 0 1
//! 0 96.1 96.0 96.2
//! 3 build_timeout
//! ```
//!
//! What follows an index are samples in microseconds, or the kind of the failure.

use super::Task;
use crate::records::{Failure, FailureKind, Outcome, Timing};
use crate::space::{Space, Value};
use crate::target::Target;
use crate::templates::{Registry, Template};
use crate::workload::Workload;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

/// The first line: the format and its version.
const MAGIC: &str = "kernel-gen landscape 1";

/// A part of a template's space for a workload, and what its configs measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Landscape {
    /// The device's name.
    pub device: String,
    /// The target's name.
    pub target: String,
    /// The workload's key.
    pub workload: String,
    /// The template's name.
    pub template: String,
    /// The template's version.
    pub template_version: u32,
    /// The values of each knob.
    pub knobs: Vec<(String, Vec<Value>)>,
    /// What became of the configs, by their index in the part.
    pub outcomes: BTreeMap<u64, Outcome>,
}

/// The most bytes that a compressed file may hold: some six million configs.
const LARGEST: u64 = 256 << 20;

/// What is compressed by gzip. A small file can hold any number of bytes, so there is a limit.
fn plain(bytes: &[u8], limit: u64) -> Result<Vec<u8>, String> {
    let mut plain = vec![];
    let decoder = flate2::read::GzDecoder::new(bytes);
    decoder.take(limit + 1).read_to_end(&mut plain).map_err(|e| e.to_string())?;
    match plain.len() as u64 > limit {
        true => {
            Err(format!("it holds more than {limit} bytes, which is no landscape; pass a file that is not compressed"))
        }
        false => Ok(plain),
    }
}

impl Landscape {
    /// A landscape without outcomes.
    pub fn new(device: &str, workload: &Workload, target: &Target, template: &dyn Template) -> Landscape {
        Landscape {
            device: device.to_string(),
            target: target.name.clone(),
            workload: workload.key(),
            template: template.name().to_string(),
            template_version: template.version(),
            knobs: vec![],
            outcomes: BTreeMap::new(),
        }
    }

    /// Reads a file of the text form; one whose name ends in `.gz` is compressed by gzip.
    ///
    /// # Errors
    /// The file, and what is wrong with it.
    pub fn load(path: &Path) -> Result<Landscape, String> {
        let at = |cause: String| format!("{}: {cause}", path.display());
        let mut bytes = std::fs::read(path).map_err(|e| at(e.to_string()))?;
        if path.extension().is_some_and(|e| e == "gz") {
            bytes = plain(&bytes, LARGEST).map_err(at)?;
        }
        let text = String::from_utf8(bytes).map_err(|_| at("it is no text".to_string()))?;
        Landscape::parse(&text).map_err(at)
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// The line and what is wrong with it.
    pub fn parse(text: &str) -> Result<Landscape, String> {
        let mut lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate();
        if lines.next().map(|(_, line)| line) != Some(MAGIC) {
            return Err(format!("line 1: a landscape begins with `{MAGIC}`"));
        }
        let [mut device, mut target, mut workload, mut template] = [const { String::new() }; 4];
        let mut template_version = 0;
        let (mut knobs, mut outcomes) = (vec![], BTreeMap::new());
        for (i, line) in lines {
            let at = |cause: String| format!("line {}: {cause}", i + 1);
            let Some((word, rest)) = line.split_once(' ') else {
                return Err(at(format!("`{line}` is no line of a landscape")));
            };
            match word {
                "device" => device = rest.to_string(),
                "target" => target = rest.to_string(),
                "workload" => workload = rest.to_string(),
                "template" => {
                    let (name, version) = rest.split_once(' ').ok_or_else(|| at("a template has a version".into()))?;
                    template = name.to_string();
                    template_version = version.parse().map_err(|_| at(format!("`{version}` is no version")))?;
                }
                "knob" => {
                    let mut words = rest.split(' ');
                    let name = words.next().unwrap_or_default().to_string();
                    let values = words.map(Value::parse).collect::<Result<_, _>>().map_err(at)?;
                    knobs.push((name, values));
                }
                _ => {
                    let index = word.parse().map_err(|_| at(format!("`{word}` is no index")))?;
                    if outcomes.insert(index, outcome(rest).map_err(at)?).is_some() {
                        return Err(at(format!("index {index} comes twice")));
                    }
                }
            }
        }
        Ok(Landscape { device, target, workload, template, template_version, knobs, outcomes })
    }

    /// The text form: the same landscape is the same text.
    pub fn to_text(&self) -> String {
        let Landscape { device, target, workload, template, template_version, knobs, outcomes } = self;
        let mut out = format!(
            "{MAGIC}\ndevice {device}\ntarget {target}\nworkload {workload}\ntemplate {template} {template_version}\n"
        );
        for (name, values) in knobs {
            let words: Vec<String> = values.iter().map(Value::to_string).collect();
            let _ = writeln!(out, "knob {name} {}", words.join(" "));
        }
        for (index, outcome) in outcomes {
            let _ = match outcome {
                Outcome::Timed(timing) => {
                    let samples: Vec<String> = timing.samples_us.iter().map(|us| format!("{us:.3}")).collect();
                    writeln!(out, "{index} {}", samples.join(" "))
                }
                Outcome::Failed(failure) => writeln!(out, "{index} {}", failure.kind),
            };
        }
        out
    }

    /// The part of the template's space that the landscape covers, as a task.
    ///
    /// # Errors
    /// What this library no longer has: a target, a template or its version, a knob or one of its values.
    pub fn task<'r>(&self, registry: &'r Registry) -> Result<Task<'r>, String> {
        let workload = Workload::from_key(&self.workload)?;
        let target = Target::find(&self.target).ok_or_else(|| format!("there is no target {}", self.target))?;
        let template =
            registry.find(&self.template).ok_or_else(|| format!("there is no template {}", self.template))?;
        if template.version() != self.template_version {
            let (name, now, then) = (template.name(), template.version(), self.template_version);
            return Err(format!("{name} is at version {now}, the landscape was measured with {then}"));
        }
        let mut task = Task::new(workload, target, template).map_err(|e| e.to_string())?;
        task.space = self.part_of(&task.space)?;
        Ok(task)
    }

    /// The part of a template's whole space.
    ///
    /// # Errors
    /// A knob or a value that the space does not have.
    pub fn part_of(&self, space: &Space) -> Result<Space, String> {
        let listed: Vec<(&str, Vec<Value>)> = self.knobs.iter().map(|(n, v)| (n.as_str(), v.clone())).collect();
        space.part(&listed).map_err(|e| e.to_string())
    }

    /// The least median time, and where it is.
    pub fn best(&self) -> Option<(u64, f64)> {
        let timed = self.outcomes.iter().filter_map(|(index, o)| Some((*index, o.time_us()?)));
        timed.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Samples, or the kind of a failure.
fn outcome(text: &str) -> Result<Outcome, String> {
    if let Some(kind) = FailureKind::from_name(text) {
        return Ok(Outcome::Failed(Failure { kind, detail: "as recorded".to_string() }));
    }
    let positive = |word: &str| word.parse::<f64>().ok().filter(|us| us.is_finite() && *us > 0.0);
    let samples: Option<Vec<f64>> = text.split(' ').map(positive).collect();
    match samples {
        Some(samples_us) => Ok(Outcome::Timed(Timing { samples_us, ..Timing::default() })),
        None => Err(format!("`{text}` is neither times in microseconds nor the kind of a failure")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "kernel-gen landscape 1
device Some GPU
target sm_90a
workload conv2d-nchw-f32-n1c512h7w7-o512k3x3-s1x1-p1.1.1.1-d1x1-g1
template conv2d_no_batching 1
knob tile_f [-1,1,8,1] [-1,1,16,1]
knob auto_unroll_max_step 0 1500
0 96.100 96.000 96.200
3 build_timeout
";

    #[test]
    fn a_small_file_that_holds_too_much_is_refused() {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::best());
        encoder.write_all(&vec![b'\n'; 1 << 20]).unwrap();
        let bomb = encoder.finish().unwrap();
        assert!(bomb.len() < 4096);
        assert_eq!(plain(&bomb, 1 << 20).unwrap().len(), 1 << 20);
        let error = plain(&bomb, (1 << 20) - 1).unwrap_err();
        assert!(error.starts_with("it holds more than 1048575 bytes"), "{error}");
        // One that is cut off is an error as well, not a short landscape.
        assert!(plain(&bomb[..bomb.len() / 2], 1 << 20).is_err());
    }

    #[test]
    fn the_text_form_reads_back() {
        let landscape = Landscape::parse(TEXT).unwrap();
        assert_eq!(landscape.to_text(), TEXT);
        assert_eq!(landscape.best(), Some((0, 96.1)));
        let registry = Registry::builtin();
        let task = landscape.task(&registry).unwrap();
        assert_eq!(task.space.find_knob("tile_f").unwrap().len(), 2);
    }

    #[test]
    fn the_recorded_landscape_of_the_tutorials_layer_is_complete() {
        let path = "../specs/landscapes/h100-conv2d_no_batching-n1c512h7w7.txt.gz";
        let landscape = Landscape::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let registry = Registry::builtin();
        let task = landscape.task(&registry).unwrap();
        assert!(task.space.len() >= 3000);
        for (index, _) in task.space.sample(1) {
            assert!(landscape.outcomes.contains_key(&index), "{index}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let cause = |text: &str| Landscape::parse(text).unwrap_err();
        assert!(cause("nothing").starts_with("line 1:"));
        for (from, to, want) in [
            ("0 96.100 96.000 96.200", "0 96.1 -3", "line 8: `96.1 -3` is neither"),
            ("3 build", "0 build", "line 9: index 0 comes twice"),
            ("conv2d_no_batching 1", "conv2d_no_batching", "line 5: a template has a version"),
            ("[-1,1,8,1]", "[-1,x]", "line 6: `x` is not a size"),
            ("3 build_timeout", "three", "line 9: `three` is no line"),
        ] {
            let text = TEXT.replace(from, to);
            assert!(cause(&text).contains(want), "{}", cause(&text));
        }
        let mut landscape = Landscape::parse(TEXT).unwrap();
        landscape.template_version = 0;
        assert!(landscape.task(&Registry::builtin()).unwrap_err().contains("measured with 0"));
    }
}
