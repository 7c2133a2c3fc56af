//! What sessions and workers say to each other, as JSON.
//!
//! Both sides take what they are sent for text of a stranger: it is held against this version, this registry and the
//! workload's own space before anything is built, and an outcome against what can be true of one.

use crate::diagnostic::leaves_its_line;
use crate::records::{FailureKind, Outcome};
use crate::space::Config;
use crate::stable::fnv1a_128;
use crate::target::Target;
use crate::templates::Registry;
use crate::tune::Task;
use crate::tune::measure::{Options, Provenance, Sampling, WireOutcome};
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version of these messages. Others are refused.
pub const WIRE: u32 = 1;

/// The most bytes of a message; what is longer is not looked at.
pub const MOST_BYTES: usize = 1 << 20;

/// The most workers that a request may not go to.
const MOST_NAMES: usize = 16;

/// The most candidates of a request, which is what a comparison of all templates has.
const MOST_CANDIDATES: usize = 256;

/// A request: a config to be measured, or several of one workload to be compared.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// [`WIRE`].
    pub wire: u32,
    /// Version of the generator, which makes the code: equal on both sides.
    pub generator: String,
    /// The name of the target, of all candidates.
    pub target: String,
    /// The workload's key, of all candidates.
    pub workload: String,
    /// The configs.
    pub candidates: Vec<Candidate>,
    /// How to measure.
    pub measuring: Measuring,
    /// Present in a comparison: what tells it from others of the same candidates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<String>,
    /// The workers that are not to take it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_by: Vec<String>,
}

/// A config of a template.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// The template's name.
    pub template: String,
    /// Its version.
    pub version: u32,
    /// Fingerprint of its space for the workload and the target.
    pub space: String,
    /// The config's text.
    pub config: String,
}

/// How to measure: what of [`Options`] changes a result.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measuring {
    threads: usize,
    seed: u64,
    number: usize,
    least: usize,
    most: usize,
    compare: usize,
    interval: f64,
    screen: f64,
    sample_us: f64,
    most_us: f64,
    cooldown_s: f64,
    run_limit_s: f64,
    build_limit_s: Option<f64>,
}

/// A worker, as it says of itself while it has its device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Presence {
    /// [`WIRE`].
    pub wire: u32,
    /// Its name, which its replies have.
    pub worker: String,
    /// The device.
    pub provenance: Provenance,
    /// Requests that it takes at a time.
    pub capacity: usize,
}

/// A reply to a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// [`WIRE`].
    pub wire: u32,
    /// The request's [`Request::id`].
    pub request: String,
    /// Who measured.
    pub worker: String,
    /// What it measured on.
    pub provenance: Provenance,
    /// Seconds that it took, waiting excluded, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_s: Option<f64>,
    /// How often the request was delivered until this came of it.
    #[serde(default)]
    pub deliveries: u32,
    /// An outcome a candidate, in their order.
    pub outcomes: Vec<WireOutcome>,
}

/// A message, whose text is a stranger's.
pub trait Message: serde::de::DeserializeOwned {
    /// The most bytes of one; what is longer is not looked at.
    const MOST: usize = MOST_BYTES;

    /// What is wrong with its names and texts, which go into logs, records and commands that people copy.
    fn fault(&self) -> Option<String>;
}

impl Message for Request {
    fn fault(&self) -> Option<String> {
        // All of its texts are held against what this worker has.
        None
    }
}

impl Message for Reply {
    fn fault(&self) -> Option<String> {
        fault_of_worker(&self.worker, &self.provenance)
    }
}

impl Message for Presence {
    const MOST: usize = 4096;

    fn fault(&self) -> Option<String> {
        fault_of_worker(&self.worker, &self.provenance)
    }
}

/// What is wrong with what a worker says of itself.
fn fault_of_worker(name: &str, of: &Provenance) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 128 || !name.chars().all(plain) {
        return Some("a worker's name has 1 to 128 letters, digits, `-`, `_` and `.`".to_string());
    }
    let texts = [&of.device, &of.target, &of.compiler, &of.generator].into_iter().chain(&of.uuid);
    let odd = |text: &&String| text.len() > 256 || text.chars().any(leaves_its_line);
    let empty = of.device.trim().is_empty() || of.target.is_empty();
    (empty || texts.filter(odd).count() > 0).then(|| "a device or a compiler is no line of text".to_string())
}

/// Reads a message.
///
/// # Errors
/// If it is too long, no message of this kind, or its texts are not what such a message has.
pub fn parse<T: Message>(message: &[u8]) -> Result<T, String> {
    if message.len() > T::MOST {
        return Err(format!("it has {} bytes, which is more than {}", message.len(), T::MOST));
    }
    let message: T = serde_json::from_slice(message).map_err(|e| e.to_string())?;
    message.fault().map_or(Ok(message), Err)
}

impl Request {
    /// The request to measure configs of tasks of one workload.
    ///
    /// # Errors
    /// If there is none, or the tasks are of several workloads or of a range, which no worker measures.
    pub fn new<'r>(
        candidates: &[(&Task<'r>, &Config)],
        options: &Options,
        comparison: Option<String>,
    ) -> Result<Request, String> {
        let (first, _) = candidates.first().ok_or("a request has no candidate")?;
        let all = candidates.iter().map(|(task, config)| {
            if task.made_for.is_some() {
                return Err(format!("{task:?} is of a range, and ranges are not tuned by fleets"));
            }
            if (task.workload.key(), &task.target.name) != (first.workload.key(), &first.target.name) {
                return Err("its candidates are of several workloads".to_string());
            }
            let key = task.key().map_err(|e| e.to_string())?;
            let (template, version) = (key.template, key.template_version);
            Ok(Candidate { template, version, space: key.space.to_string(), config: config.to_string() })
        });
        Ok(Request {
            wire: WIRE,
            generator: env!("CARGO_PKG_VERSION").to_string(),
            target: first.target.name.clone(),
            workload: first.workload.key(),
            candidates: all.collect::<Result<_, _>>()?,
            measuring: Measuring::of(options),
            comparison,
            not_by: vec![],
        })
    }

    /// The request's name: a hash of all that it says, so equal requests are one.
    pub fn id(&self) -> String {
        // What was read from text or made of numbers and text can be written.
        let text = serde_json::to_vec(self).unwrap_or_default();
        format!("{:032x}", fnv1a_128(&text))
    }

    /// The tasks and configs that it names, as this library has them.
    ///
    /// # Errors
    /// Why this worker cannot take it: another version, a workload or target that there is not, a template that is not in
    /// the registry or has another version or space, a config that is not in the space.
    pub fn tasks<'r>(&self, registry: &'r Registry) -> Result<Vec<(Task<'r>, Config)>, String> {
        if self.wire != WIRE {
            return Err(format!("it is of version {} of the messages, this is {WIRE}", self.wire));
        }
        let own = env!("CARGO_PKG_VERSION");
        if self.generator != own {
            return Err(format!("it is of version {} of kernel-gen, this is {own}", self.generator));
        }
        if self.candidates.is_empty() || self.candidates.len() > MOST_CANDIDATES {
            return Err(format!("it has {} candidates", self.candidates.len()));
        }
        if self.not_by.len() > MOST_NAMES {
            return Err(format!("{} workers are not to take it", self.not_by.len()));
        }
        let workload = Workload::from_key(&self.workload).map_err(|e| format!("its workload: {e}"))?;
        workload.validate().map_err(|e| format!("its workload: {e}"))?;
        let target = Target::find(&self.target).ok_or_else(|| format!("there is no target `{}`", self.target))?;
        let task = |candidate: &Candidate| {
            let Candidate { template: name, version, space, config } = candidate;
            let template = registry.find(name).ok_or_else(|| format!("there is no template `{name}`"))?;
            if template.version() != *version {
                return Err(format!("it wants version {version} of `{name}`, this is {}", template.version()));
            }
            let task = Task::new(workload.clone(), target, template).map_err(|e| e.to_string())?;
            let own = task.space.fingerprint().to_string();
            if own != *space {
                return Err(format!("its space of `{name}` is {space}, here it is {own}"));
            }
            let config = Config::parse(config).map_err(|e| format!("its config: {e}"))?;
            task.space.index_of(&config).map_err(|e| format!("its config: {e}"))?;
            Ok((task, config))
        };
        self.candidates.iter().map(task).collect()
    }
}

impl Reply {
    /// Whether it says something of its configs: a failure of a worker does not.
    pub fn is_of_configs(&self) -> bool {
        let worker = FailureKind::Worker.name();
        !self.outcomes.iter().any(|o| matches!(o, WireOutcome::Failed { kind, .. } if kind == worker))
    }

    /// The outcomes for a request that was sent.
    ///
    /// # Errors
    /// If they are not as many as there were candidates, or cannot be true.
    pub fn outcomes(self, request: &Request) -> Result<Vec<Outcome>, String> {
        if self.wire != WIRE {
            return Err(format!("it is of version {} of the messages, this is {WIRE}", self.wire));
        }
        if self.outcomes.len() != request.candidates.len() {
            return Err(format!("{} outcomes of {} candidates", self.outcomes.len(), request.candidates.len()));
        }
        let Measuring { most, compare, .. } = request.measuring;
        // Samples of several kinds, and some more than were asked for where calls are short.
        let samples = 2 * most.max(compare) + 64;
        self.outcomes.into_iter().map(|outcome| outcome.checked(samples)).collect()
    }
}

impl Measuring {
    /// What of these options a request says.
    pub fn of(options: &Options) -> Measuring {
        let Sampling { least, most, interval, screen, sample_us, most_us, compare, number } = options.sampling;
        Measuring {
            threads: options.threads,
            seed: options.seed,
            number,
            least,
            most,
            compare,
            interval,
            screen,
            sample_us,
            most_us,
            cooldown_s: options.cooldown.as_secs_f64(),
            run_limit_s: options.run_limit.as_secs_f64(),
            build_limit_s: options.build_limit.map(|limit| limit.as_secs_f64()),
        }
    }

    /// Threads that kernels run on.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// These options of a worker with what the request says.
    ///
    /// # Errors
    /// If a number is none that a session sends: a worker is not to sleep or to sample for days.
    pub fn applied(&self, options: &Options) -> Result<Options, String> {
        let seconds = |what: &str, s: f64, most: f64| match (0.0..=most).contains(&s) {
            true => Ok(Duration::from_secs_f64(s)),
            false => Err(format!("it asks for {what} of {s} s; 0 to {most} are measured")),
        };
        let counts = [self.number, self.least, self.most, self.compare];
        if counts.iter().any(|n| !(1..=1_000_000).contains(n)) || !(1..=1024).contains(&self.threads) {
            return Err(format!("it asks for {counts:?} calls and samples on {} threads", self.threads));
        }
        seconds("samples", self.most.max(self.compare) as f64 * self.sample_us / 1e6, 600.0)?;
        // Two of them are limits, which may be none.
        let limits = [self.interval, self.screen, self.most_us];
        if !limits.iter().all(|n| n.is_finite() && *n >= 0.0) || !(0.0..=1e8).contains(&self.sample_us) {
            return Err(format!("it asks for samples of {} us, with limits {limits:?}", self.sample_us));
        }
        Ok(Options {
            threads: self.threads,
            seed: self.seed,
            sampling: Sampling {
                least: self.least,
                most: self.most,
                interval: self.interval,
                screen: self.screen,
                sample_us: self.sample_us,
                most_us: self.most_us,
                compare: self.compare,
                number: self.number,
            },
            cooldown: seconds("rest", self.cooldown_s, 60.0)?,
            run_limit: seconds("calls", self.run_limit_s, 60.0)?,
            build_limit: self.build_limit_s.map(|s| seconds("builds", s, 600.0)).transpose()?,
            ..options.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Matmul;

    fn request(registry: &Registry) -> Request {
        let workload = Workload::f32(Matmul::new(64, 64, 64));
        let (target, template) = (Target::find("x86-64").unwrap(), registry.find("plain").unwrap());
        let task = Task::new(workload, target, template).unwrap();
        let config = task.template.default_config(&task.workload, target).unwrap();
        let config = task.space.normalise(&config).unwrap();
        Request::new(&[(&task, &config)], &Options::default(), None).unwrap()
    }

    #[test]
    fn a_request_arrives_as_it_was_sent_and_names_what_it_was_made_of() {
        let registry = Registry::builtin();
        let sent = request(&registry);
        let text = serde_json::to_vec(&sent).unwrap();
        let got: Request = parse(&text).unwrap();
        assert_eq!((&got, got.id()), (&sent, sent.id()));
        let tasks = got.tasks(&registry).unwrap();
        assert_eq!(tasks.len(), 1);
        assert_eq!(
            (tasks[0].0.workload.key(), tasks[0].1.to_string()),
            (sent.workload, sent.candidates[0].config.clone())
        );
    }

    #[test]
    fn a_request_with_any_options_of_the_command_can_be_measured() {
        for sampling in [Sampling::default(), Sampling::default().with_repeat(9)] {
            let options = Options { sampling, cooldown: Duration::from_millis(5), ..Options::default() };
            let applied = Measuring::of(&options).applied(&Options::default()).unwrap();
            assert_eq!((applied.sampling, applied.cooldown), (options.sampling, options.cooldown));
        }
    }

    #[test]
    fn what_a_worker_does_not_have_is_refused_with_its_reason() {
        let registry = Registry::builtin();
        let refused = |change: &dyn Fn(&mut Request)| {
            let mut request = request(&registry);
            change(&mut request);
            let tasks = request.tasks(&registry).map(|tasks| tasks.len());
            tasks.and_then(|_| request.measuring.applied(&Options::default()).map(|_| 0)).unwrap_err()
        };
        for (change, reason) in [
            (&(|r: &mut Request| r.wire = 2) as &dyn Fn(&mut Request), "version 2 of the messages"),
            (&|r| r.generator = "9.9.9".into(), "version 9.9.9 of kernel-gen"),
            (&|r| r.target = "z80".into(), "no target `z80`"),
            (&|r| r.workload = "matmul-f32-m0n0k0-nn".into(), "its workload: "),
            (&|r| r.workload = "rm -rf".into(), "its workload: "),
            (&|r| r.candidates[0].template = "none".into(), "no template `none`"),
            (&|r| r.candidates[0].version += 1, "version"),
            (&|r| r.candidates[0].space = "0".into(), "its space of `plain` is 0"),
            (&|r| r.candidates[0].config = "tile=[".into(), "its config: "),
            (&|r| r.candidates.clear(), "0 candidates"),
            (&|r| r.measuring.cooldown_s = 1e9, "rest of 1000000000 s"),
            (&|r| r.measuring.most = 0, "calls and samples"),
            (&|r| (r.measuring.most, r.measuring.sample_us) = (1000, 1e6), "samples of 1000 s; 0 to 600 are"),
            (&|r| r.measuring.sample_us = f64::NAN, "samples of"),
        ] {
            let said = refused(change);
            assert!(said.contains(reason), "{said}");
        }
    }

    #[test]
    fn outcomes_that_cannot_be_true_are_no_outcomes() {
        let registry = Registry::builtin();
        let request = request(&registry);
        let reply = |outcomes: &str| {
            let provenance = Provenance { device: "d".into(), target: "t".into(), ..Provenance::default() };
            let provenance = serde_json::to_string(&provenance).unwrap();
            let text = format!(
                r#"{{"wire":1,"request":"{}","worker":"w","provenance":{provenance},"outcomes":[{outcomes}]}}"#,
                request.id()
            );
            parse::<Reply>(text.as_bytes()).and_then(|reply| reply.outcomes(&request))
        };
        let timed = |us: &str, error: &str| {
            format!(
                r#"{{"Timed":{{"samples_us":[{us}],"cold_us":[],"apart_us":[],"apart_cold_us":[],"core_gflops":[],"max_error":{error},"accuracy":null}}}}"#
            )
        };
        assert_eq!(reply(&timed("2.5", "0.1")).unwrap()[0].time_us(), Some(2.5));
        assert!(reply(r#"{"Failed":{"kind":"wrong-answer","detail":"d"}}"#).is_ok());
        for wrong in [timed("-1.0", "0.1"), timed("0.0", "0.1"), timed("", "0.1"), timed("1.0", "-0.1"), String::new()]
        {
            assert!(reply(&wrong).is_err(), "{wrong}");
        }
        assert!(reply(&[timed("1.0", "0.1"), timed("1.0", "0.1")].join(",")).is_err());
        let many = vec!["1.0"; 2_000].join(",");
        assert!(reply(&timed(&many, "0.1")).unwrap_err().contains("2000 samples"));
        let said = format!(r#"{{"Failed":{{"kind":"build","detail":"{}"}}}}"#, "\u{e9}".repeat(3_000));
        let Outcome::Failed(failure) = &reply(&said).unwrap()[0] else { panic!("it failed") };
        assert!((1_990..=2_000).contains(&failure.detail.len()), "{}", failure.detail.len());
    }

    #[test]
    fn what_a_worker_says_of_itself_is_a_name_and_lines_of_text() {
        let presence = |worker: &str, compiler: &str, uuid: &str| {
            let provenance = Provenance {
                device: "NVIDIA H100".into(),
                target: "sm_90a".into(),
                compiler: compiler.into(),
                uuid: Some(uuid.into()),
                ..Provenance::default()
            };
            let presence = Presence { wire: WIRE, worker: worker.into(), provenance, capacity: 4 };
            parse::<Presence>(&serde_json::to_vec(&presence).unwrap())
        };
        assert!(presence("node7-31-19.a", "NVRTC 13.0", "GPU-1").is_ok());
        let long = "n".repeat(200);
        for worker in ["", "a b", "x; rm -rf ~", "a\nb", "\u{e9}", &long] {
            assert!(presence(worker, "NVRTC", "GPU").is_err(), "{worker}");
        }
        let long = "c".repeat(300);
        for text in ["a\nb", "a\u{2028}b", &long] {
            assert!(presence("w", text, "GPU").is_err() && presence("w", "NVRTC", text).is_err(), "{text}");
        }
    }
}
