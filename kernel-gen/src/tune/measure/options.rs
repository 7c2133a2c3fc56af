//! How to measure.

use super::Sampling;
use crate::emit::c::CSource;
use crate::emit::cuda::CudaSource;
use crate::records::log::Settings;
use crate::space::Config;
use crate::target::{Device, Target};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How to measure.
#[derive(Clone)]
pub struct Options {
    /// Which GPU, counted from 0.
    pub device: usize,
    /// Threads that a CPU kernel runs on.
    pub threads: usize,
    /// How many candidates are compiled at the same time; none for one a processor.
    pub build_jobs: Option<usize>,
    /// A candidate whose compiler uses a processor for longer than this is given up; none for [`Options::C_LIMIT`] or [`Options::CUDA_LIMIT`].
    pub build_limit: Option<Duration>,
    /// A candidate of which one call takes longer than this is given up.
    pub run_limit: Duration,
    /// How many samples to take.
    pub sampling: Sampling,
    /// How long the device rests before a candidate is timed, and before a comparison: for devices that get hot.
    pub cooldown: Duration,
    /// What the inputs are drawn from.
    pub seed: u64,
    /// The program that holds a GPU, and its arguments; none for the program that runs now with the argument `worker`.
    pub worker: Option<(PathBuf, Vec<OsString>)>,
    /// Changes what was emitted before it is compiled.
    pub edit: Option<Edit>,
}

/// A change of emitted code: what faults are planted with in tests, and a kernel edited by hand is tried with.
pub type Edit = Arc<dyn Fn(&Config, Emitted<'_>) + Send + Sync>;

/// What was emitted for a config.
#[derive(Debug)]
pub enum Emitted<'a> {
    /// C.
    C(&'a mut CSource),
    /// CUDA C++.
    Cuda(&'a mut CudaSource),
}

impl Options {
    /// How long a candidate in C may compile: ten times what most take. Those that take longer are thousands of lines of
    /// tails.
    pub const C_LIMIT: Duration = Duration::from_secs(3);

    /// How long a candidate in CUDA C++ may compile. Most take a tenth of a second; one in ten, which unrolls thousands of
    /// statements, takes longer than this, and without a limit most of the time would be theirs.
    pub const CUDA_LIMIT: Duration = Duration::from_secs(4);
}

impl Options {
    /// What a log says of how its trials were measured on a target.
    pub fn settings(&self, target: &Target) -> Settings {
        let limit = match &target.device {
            Device::Cpu(_) => Options::C_LIMIT,
            Device::Cuda(_) => Options::CUDA_LIMIT,
        };
        let Sampling { least, most, sample_us, number, .. } = self.sampling;
        Settings {
            number: number as u64,
            repeat: [least as u64, most as u64],
            min_repeat_ms: sample_us / 1e3,
            cooldown_s: self.cooldown.as_secs_f64(),
            build_timeout_s: self.build_limit.unwrap_or(limit).as_secs_f64(),
            run_timeout_s: self.run_limit.as_secs_f64(),
        }
    }
}

impl Default for Options {
    /// The first device, one thread, a second to run.
    fn default() -> Options {
        Options {
            device: 0,
            threads: 1,
            build_jobs: None,
            build_limit: None,
            run_limit: Duration::from_secs(1),
            sampling: Sampling::default(),
            cooldown: Duration::ZERO,
            seed: 1,
            worker: None,
            edit: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("device", &self.device)
            .field("threads", &self.threads)
            .field("build_jobs", &self.build_jobs)
            .field("build_limit", &self.build_limit)
            .field("run_limit", &self.run_limit)
            .field("sampling", &self.sampling)
            .field("cooldown", &self.cooldown)
            .field("seed", &self.seed)
            .field("worker", &self.worker)
            .field("edit", &self.edit.is_some())
            .finish()
    }
}
