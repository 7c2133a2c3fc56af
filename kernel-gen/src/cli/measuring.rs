//! What is measured and how: the options that `tune` and `bench` have in common.

use super::output::Failure;
use super::project::{Files, Project, RecordFiles, SpecFile, Wanted};
use crate::target::Target;
use crate::tune::measure;
use crate::workload::operator::SizeRole;
use crate::workload::{Range, Workload, WorkloadError};
use clap::Args;
use kernel_gen_runtime::Cuda;
use std::path::PathBuf;
use std::time::Duration;

/// What is measured, and on what: the options that `tune` and `bench` have in common.
#[derive(Args, Clone, Debug)]
pub(super) struct Measured {
    #[command(flatten)]
    pub(super) spec: SpecFile,
    /// This workload, a name in the spec or a key such as matmul-f32-m512n512k512-nn; may be given several times
    #[arg(long, value_name = "KEY", conflicts_with = "only")]
    pub(super) workload: Vec<String>,
    /// Only this kernel or workload of the spec; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(super) only: Vec<String>,
    /// So many times as many images as the workloads say: convolutions with N times the batch, products with N times the rows
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..=65_536))]
    images: i64,
    /// Target [default: the best that this machine's CPU executes and the spec asks for]
    #[arg(long, value_name = "NAME")]
    pub(super) target: Option<String>,
    /// The device, where there are several: a GPU's number, counted from 0, or a part of its name
    #[arg(long, value_name = "NAME", default_value = "0")]
    device: String,
    /// Threads that CPU kernels run on [default: what the spec says, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Leave out the records that came with this command
    #[arg(long)]
    no_shipped: bool,
}

/// How configs are measured: the options that `tune` and `bench` have in common.
#[derive(Args, Clone, Debug)]
pub(super) struct Measuring {
    /// Give a config up whose compiler uses a processor for longer than this [default: 3 for C, 4 for CUDA; 60 in bench]
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    build_timeout: Option<f64>,
    /// Give a config up of which one call takes longer than this [default: 1]
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    run_timeout: Option<f64>,
    /// Calls that a sample is the mean of, at least; more where --min-repeat-ms needs them [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    number: Option<u32>,
    /// Samples of every config [default: 5 to 15, fewer where calls are long or slow, and 31 in comparisons]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: Option<u32>,
    /// Repeat calls until a sample takes this long [default: 1.5]
    #[arg(long, value_name = "MS", value_parser = not_negative, allow_negative_numbers = true)]
    min_repeat_ms: Option<f64>,
    /// Rest before each config is timed [default: 0]
    #[arg(long, value_name = "S", value_parser = not_negative, allow_negative_numbers = true)]
    cooldown: Option<f64>,
}

/// A time limit.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s: &f64| s.is_finite() && *s > 0.0);
    seconds.ok_or_else(|| "write a number of seconds above 0".to_string())
}

/// A time that may be 0.
fn not_negative(text: &str) -> Result<f64, String> {
    let time = text.parse().ok().filter(|s: &f64| *s >= 0.0 && *s <= 86_400_000.0);
    time.ok_or_else(|| "write a number of at least 0, and of at most a day".to_string())
}

impl Measuring {
    /// `options`, with what is asked for in their place.
    pub(super) fn applied(&self, options: measure::Options) -> measure::Options {
        let mut options = options;
        let limit = |s: f64| Duration::from_secs_f64(s.min(1e9));
        options.build_limit = self.build_timeout.map(limit).or(options.build_limit);
        options.run_limit = self.run_timeout.map_or(options.run_limit, limit);
        options.cooldown = self.cooldown.map_or(options.cooldown, limit);
        if let Some(repeat) = self.repeat {
            options.sampling = options.sampling.with_repeat(repeat as usize);
        }
        options.sampling.number = self.number.map_or(options.sampling.number, |n| n as usize);
        options.sampling.sample_us = self.min_repeat_ms.map_or(options.sampling.sample_us, |ms| ms * 1e3);
        options
    }
}

impl Measured {
    /// The spec and the records in `tuned`.
    pub(super) fn project(&self, tuned: Option<&PathBuf>) -> Result<Project, Failure> {
        Project::load(&self.files(tuned))
    }

    /// The same, where `tuned` may be a folder that is yet to be made.
    pub(super) fn project_to_tune(&self, tuned: Option<&PathBuf>) -> Result<Project, Failure> {
        Project::read(&self.files(tuned))
    }

    fn files(&self, tuned: Option<&PathBuf>) -> Files {
        let records = RecordFiles { tuned: tuned.cloned(), no_shipped: self.no_shipped };
        Files { spec: self.spec.clone(), records }
    }

    /// The number of the GPU that is asked for.
    pub(super) fn device(&self) -> Result<usize, Failure> {
        // The first one needs no looking for; where there is none, what measures says so.
        if self.device == "0" {
            return Ok(0);
        }
        let found = Cuda::probe().map_err(|e| format!("--device {}: {e}", self.device))?;
        let all: Vec<(usize, &str)> = found.devices.iter().map(|device| (device.ordinal, &*device.name)).collect();
        Ok(device_of(&self.device, &all)?)
    }

    /// The workloads that are asked for, of ranges the sizes that `sizes` says.
    pub(super) fn wanted(&self, project: &Project, sizes: &dyn Fn(&Range) -> Vec<i64>) -> Result<Vec<Wanted>, Failure> {
        let mut all = project.wanted(&self.workload, &self.only, sizes)?;
        for Wanted { name, workload, .. } in all.iter_mut().filter(|_| self.images > 1) {
            *workload =
                with_images(workload, self.images).map_err(|e| format!("{name} with --images {}: {e}", self.images))?;
        }
        Ok(all)
    }

    /// Whether workloads are wanted as they are written.
    pub(super) fn as_written(&self) -> bool {
        self.images == 1
    }

    /// How many threads CPU kernels run on; on a GPU, the one that launches them.
    pub(super) fn threads(&self, project: &Project, target: &Target) -> u32 {
        match target.cuda() {
            Some(_) => 1,
            None => self.threads.or(project.options().threads).unwrap_or(1),
        }
    }

    /// What to know where kernels are tuned for one thread because nobody said how many, and programs use more.
    pub(super) fn threads_of_programs(&self, project: &Project, target: &Target) -> Option<String> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let is_default = target.cuda().is_none() && self.threads.or(project.options().threads).is_none();
        (is_default && processors > 1).then(|| {
            format!(
                "tuning for 1 thread; `Cpu::new` has {processors} here: say --threads {processors}, or `threads = {processors}` in the spec, \
                 to tune for them"
            )
        })
    }

    /// Whether this machine can time kernels on so many threads.
    pub(super) fn check_threads(&self, threads: u32) -> Result<(), Failure> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        if threads <= processors {
            return Ok(());
        }
        let help = format!("--threads {processors} times them on all of it");
        Err(format!("kernels on {threads} threads cannot be timed on {processors} processors; {help}").into())
    }
}

/// The number of the GPU that `wanted` is the number of, or a part of the name of. `all` are numbers and names.
fn device_of(wanted: &str, all: &[(usize, &str)]) -> Result<usize, String> {
    let numbered = all.iter().find(|(number, _)| wanted.parse() == Ok(*number));
    // A number may be a word of a name (`4090`), and is no part of one: `1` is not the H100.
    let is_number = wanted.bytes().all(|b| b.is_ascii_digit());
    let fits = |name: &str| match is_number {
        true => name.split(|c: char| !c.is_alphanumeric()).any(|word| word == wanted),
        false => name.to_lowercase().contains(&wanted.to_lowercase()),
    };
    let named = || all.iter().find(|(_, name)| fits(name));
    match numbered.or_else(|| named().filter(|_| !wanted.trim().is_empty())) {
        Some((number, _)) => Ok(*number),
        None => {
            let all: Vec<String> = all.iter().map(|(number, name)| format!("{number} ({name})")).collect();
            Err(format!("--device {wanted:?}: there is no such GPU here; there are {}", all.join(", ")))
        }
    }
}

/// The workload for so many times as many images.
fn with_images(workload: &Workload, times: i64) -> Result<Workload, WorkloadError> {
    // What no longer fits is refused as any size is that is too large.
    let op = workload.op.with_size(SizeRole::Images, |images| images.saturating_mul(times));
    let workload = Workload { op: op.unwrap_or(workload.op), ..workload.clone() };
    workload.validate().map(|()| workload)
}

#[cfg(test)]
mod tests {
    use super::device_of;

    #[test]
    fn a_gpu_is_named_by_its_number_or_a_part_of_its_name() {
        let all = [(0, "NVIDIA H100 80GB HBM3"), (1, "NVIDIA GeForce RTX 4090")];
        for (wanted, expected) in [("0", 0), ("1", 1), ("h100", 0), ("4090", 1), ("NVIDIA", 0)] {
            assert_eq!(device_of(wanted, &all), Ok(expected), "{wanted}");
        }
        for wanted in ["", " ", "3", "8", "a100"] {
            let there = "there are 0 (NVIDIA H100 80GB HBM3), 1 (NVIDIA GeForce RTX 4090)";
            assert_eq!(
                device_of(wanted, &all),
                Err(format!("--device {wanted:?}: there is no such GPU here; {there}"))
            );
        }
    }
}
