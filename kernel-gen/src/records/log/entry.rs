//! What the lines of a log say: runs, trials, comparisons, seeds.

use crate::diagnostic::leaves_its_line;
use crate::records::{Record, Trial};
use crate::space::{Config, Fingerprint};
use std::fmt;
use std::sync::Arc;

/// The version of the log format that this library reads and writes.
pub const LOG_SCHEMA: i64 = 1;

/// What a trial is a trial of. Trials of equal keys may be compared, if they are of one device and number of threads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskKey {
    /// The workload's key.
    pub workload: String,
    /// The target's name.
    pub target: String,
    /// The template's name.
    pub template: String,
    /// The template's version.
    pub template_version: u32,
    /// Fingerprint of the template's space for this workload and target.
    pub space: Fingerprint,
}

impl From<&Record> for TaskKey {
    /// What a record's config was a trial of.
    fn from(record: &Record) -> TaskKey {
        TaskKey {
            workload: record.workload.clone(),
            target: record.target.clone(),
            template: record.template.clone(),
            template_version: record.template_version,
            space: record.space,
        }
    }
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} on {}", self.template, self.workload, self.target)
    }
}

/// One run of a tuner, and where it ran.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// Version of the generator.
    pub generator: String,
    /// Name of the device, as the device calls itself.
    pub device: String,
    /// Threads that kernels ran on; 1 on a GPU.
    pub threads: u32,
    /// The machine in full.
    pub machine: Machine,
    /// Name of the tuner.
    pub tuner: String,
    /// Its seed.
    pub seed: u64,
    /// How it measured; none in logs of before that was written, and where nothing was measured.
    pub settings: Option<Settings>,
    /// The host; none in logs of before that was written.
    pub host: Option<Host>,
    /// The worker of a fleet whose trials these are; none for those of the machine that tunes.
    pub worker: Option<String>,
}

/// How trials were measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Calls of a sample, at the least.
    pub number: u64,
    /// Samples of a config, at the least and at the most: where the two differ, as many as make its interval narrow.
    pub repeat: [u64; 2],
    /// Calls are repeated until a sample takes this long, in milliseconds.
    pub min_repeat_ms: f64,
    /// Seconds of rest before a config is timed.
    pub cooldown_s: f64,
    /// Seconds of a processor that a compiler may use.
    pub build_timeout_s: f64,
    /// Seconds that one call may take.
    pub run_timeout_s: f64,
}

/// The machine that a device is in. Empty texts and 0 stand for what could not be found out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Host {
    /// The operating system and its version, such as `Debian GNU/Linux 12 (bookworm)`.
    pub os: String,
    /// Its kernel, such as `Linux 6.1.0`.
    pub kernel: String,
    /// The architecture, such as `x86_64`.
    pub arch: String,
    /// Processors that the process may use.
    pub processors: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Versions of what made and runs the code: this library, compilers, drivers.
    pub packages: std::collections::BTreeMap<String, String>,
}

/// The comparison of a workload at the end of a run: what the choice was made by. Samples of all candidates were taken in turn,
/// so their times may be divided by each other, and by no others.
#[derive(Clone, PartialEq, Debug)]
pub struct Compared {
    /// The workload's key.
    pub workload: String,
    /// The target's name.
    pub target: String,
    /// The device.
    pub device: String,
    /// The threads that it ran on.
    pub threads: u32,
    /// All that was compared.
    pub candidates: Vec<ComparedConfig>,
    /// The run that it belongs to.
    pub run: RunId,
    /// Its number among the comparisons of the run, from 0.
    pub number: u64,
    /// Seconds from the start of the run.
    pub at_s: f64,
}

/// A config in a comparison.
#[derive(Clone, PartialEq, Debug)]
pub struct ComparedConfig {
    /// Its template.
    pub template: String,
    /// The template's version.
    pub version: u32,
    /// The config.
    pub config: Config,
    /// Whether it is what a build uses without any record.
    pub is_default: bool,
    /// Whether it was chosen: the record of the workload from then on.
    pub is_chosen: bool,
    /// The median of what the candidates were compared by, in microseconds (see
    /// [`Timing::compared_us`](crate::records::Timing::compared_us)); none where it failed.
    pub us: Option<f64>,
}

fn on_one_line(text: &str) -> String {
    text.replace(leaves_its_line, " ")
}

impl Run {
    /// A run of this version of the generator. What a device or a driver says of itself becomes one line of text: a log
    /// refuses names with control characters.
    pub fn new(device: &str, threads: u32, machine: Machine, tuner: &str, seed: u64) -> Run {
        Run {
            generator: env!("CARGO_PKG_VERSION").to_string(),
            device: on_one_line(device),
            threads,
            machine: match machine {
                Machine::Cpu { isa, compiler } => Machine::Cpu { isa, compiler: on_one_line(&compiler) },
                Machine::Cuda { capability, sms, driver, toolkit, sm_mhz, memory_mhz, uuid } => {
                    let (driver, toolkit) = (on_one_line(&driver), on_one_line(&toolkit));
                    Machine::Cuda { capability, sms, driver, toolkit, sm_mhz, memory_mhz, uuid: on_one_line(&uuid) }
                }
                Machine::Other => Machine::Other,
            },
            tuner: tuner.to_string(),
            seed,
            settings: None,
            host: None,
            worker: None,
        }
    }
}

/// What else is worth knowing of the machine behind a measurement. Nothing here decides whether a record may be used;
/// it is what a person needs to explain a number. A text is empty, and a number 0, where it could not be found out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Machine {
    /// A CPU.
    Cpu {
        /// The instruction set level that ran.
        isa: String,
        /// The compiler, with its version.
        compiler: String,
    },
    /// A CUDA device.
    Cuda {
        /// Compute capability, such as `9.0`.
        capability: String,
        /// Number of multiprocessors.
        sms: u32,
        /// The driver's version.
        driver: String,
        /// What compiled, with its version.
        toolkit: String,
        /// Clock of the multiprocessors in MHz: the locked one, or the highest.
        sm_mhz: u32,
        /// Clock of the memory in MHz.
        memory_mhz: u32,
        /// The unit, such as `GPU-5d5b…`.
        uuid: String,
    },
    /// Something that is not described.
    Other,
}

/// The name of a run within its log: 48 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunId(pub u64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}", self.0)
    }
}

impl RunId {
    /// Reads the twelve hexadecimal digits that [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<RunId> {
        let canonical = text.len() == 12 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        canonical.then(|| u64::from_str_radix(text, 16).ok().map(RunId)).flatten()
    }
}

/// Where a line lies.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The file, as the user named it.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// The byte of the file at which the line begins.
    pub offset: u64,
}

/// A trial as a log holds it.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// What it is a trial of.
    pub task: TaskKey,
    /// The device.
    pub device: String,
    /// The threads that it ran on.
    pub threads: u32,
    /// The config, and what became of it. Times are of results that were checked.
    pub trial: Trial,
    /// Version of the generator.
    pub generator: String,
    /// Name of the tuner.
    pub tuner: String,
    /// Its seed.
    pub seed: u64,
    /// The run that it belongs to.
    pub run: RunId,
    /// Its number within the run, from 0.
    pub number: u64,
    /// Seconds from the start of the run.
    pub at_s: f64,
    /// Seconds that the trial cost: to build, check and time it, without waiting. AutoTVM's `all_cost`.
    pub cost_s: Option<f64>,
    /// The machine; none where the run's own line is lost.
    pub machine: Option<Arc<Machine>>,
    /// The worker of a fleet that made it; none for the machine that tunes.
    pub worker: Option<Arc<str>>,
    /// Where it was read.
    pub place: Place,
}

/// A config that was measured elsewhere, without a check that anyone here can vouch for.
#[derive(Clone, PartialEq, Debug)]
pub struct Seed {
    /// The task that it is of use for.
    pub task: TaskKey,
    /// Its index in the task's space.
    pub index: u64,
    /// The config.
    pub config: Config,
    /// The time in microseconds that was reported; none where it failed there.
    pub reported_us: Option<f64>,
    /// Where it comes from, in a few words.
    pub source: String,
    /// Where it was read.
    pub place: Place,
}
