//! `gpu-suite`: generated kernels on a real device.
//!
//! `gpu-suite families` checks every template family on random workloads and configs against the `f64` reference, with
//! poisoned outputs and canaries, with `--repeats` that every run gives the same bits, and with `--slices` the same of parts of larger tensors. `gpu-suite bench` times the workloads of the README beside cuBLAS and cuDNN, interleaved
//! in this process; `gpu-suite search` looks for better configs among random ones; `gpu-suite landscape`
//! measures a whole neighbourhood, on which searches are tested; `gpu-suite fallback` holds what is chosen without records
//! against the best of a small search, for a whole spec; `gpu-suite faults` plants faults in candidates and kills workers;
//! `gpu-suite tensorcores` checks and times the tutorial's schedule with sums in f32 and f16, as it is emitted for each
//! generation of tensor cores;
//! `gpu-suite special-values` puts NaN, infinities, subnormal numbers and outliers at single positions of every template's operands.
//! All print plain tables. Without a device they say `[SKIP] no GPU` and succeed.
//!
//! The program links nothing of CUDA. It wants nvcc or NVRTC on the machine where it runs, as a build would.

mod bench;
mod fallback;
mod families;
mod faults;
mod gpu;
mod kernel;
mod landscape;
mod peers;
mod prepare;
mod search;
mod special;
mod tensorcores;

use anyhow::Result;
use gpu::Gpu;
use std::process::ExitCode;

const USAGE: &str = "\
usage: gpu-suite families [--workloads N] [--configs N] [--seed N] [--repeats N] [--slices] [--only TEMPLATE]
                          [--target NAME]
       gpu-suite bench [--only PART]
       gpu-suite search [--only PART | --key WORKLOAD --template NAME] [--trials N | --file PATH] [--seed N]
       gpu-suite landscape --out FILE [--seconds N]
       gpu-suite faults [--kills N]
       gpu-suite tensorcores [--small]
       gpu-suite special-values [--workloads N] [--seed N] [--only TEMPLATE]";

/// What follows a flag, as a number.
pub(crate) struct Options(Vec<String>);

impl Options {
    /// The value of `--name`, if it was given.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|a| a == name)?;
        self.0.get(at + 1).map(String::as_str)
    }

    /// Whether `--name` was given.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.iter().any(|a| a == name)
    }

    /// The value of `--name` as a number.
    pub(crate) fn number(&self, name: &str, otherwise: u64) -> Result<u64> {
        match self.text(name) {
            Some(text) => text.parse().map_err(|_| anyhow::anyhow!("{name} wants a number, not `{text}`")),
            None => Ok(otherwise),
        }
    }
}

fn run(mut arguments: Vec<String>) -> Result<bool> {
    let command = if arguments.is_empty() { String::new() } else { arguments.remove(0) };
    let options = Options(arguments);
    if command == "worker" {
        // The process that holds the GPU for a measurer of this program.
        let device = options.number("--device", 0)? as usize;
        kernel_gen::tune::measure::serve(&mut std::io::stdin().lock(), &mut std::io::stdout().lock(), device)?;
        return Ok(true);
    }
    if command == "faults" {
        // The suite itself holds no context while candidates run.
        return if Gpu::open()?.is_some() { faults::run(&options) } else { Ok(true) };
    }
    let suite: fn(&Gpu, &Options) -> Result<bool> = match command.as_str() {
        "families" => families::run,
        "bench" => bench::run,
        "search" => search::run,
        "fallback" => fallback::run,
        "landscape" => landscape::run,
        "special-values" => special::run,
        "tensorcores" => tensorcores::run,
        _ => anyhow::bail!("`{command}` is not known\n{USAGE}"),
    };
    let Some(gpu) = Gpu::open()? else { return Ok(true) };
    println!("{}, compute capability {}.{}", gpu.name, gpu.capability.0, gpu.capability.1);
    suite(&gpu, &options)
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
