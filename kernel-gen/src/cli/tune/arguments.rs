//! The arguments of `kernel-gen tune`.

use crate::cli::fleet::FleetOptions;
use crate::cli::measuring::{Measured, Measuring, seconds};
use clap::Args;
use std::path::PathBuf;

/// Searches for the fastest config of each workload, and writes what it finds as records
///
/// Every config that is tried is compiled, run, and checked against the reference before it is timed; what became of it is
/// appended to a log. Running the same command again goes on from the log: nothing is tried twice. Ctrl-C finishes what is
/// under way; what is in the log stays. At the end the fastest configs run once more beside the record that there is, and
/// the record is replaced only if it is slower by more than the noise.
///
/// Examples:
///
///   kernel-gen tune                              all workloads of kernels.toml on this CPU
///
///   kernel-gen tune specs/resnet50.toml --target sm_90a --trials 256
///
///   kernel-gen tune --workload conv2d-nchw-f32-n1c512h7w7-o512k3x3-s1x1-p1.1.1.1-d1x1-g1 --target sm_90a
///
///   kernel-gen tune --workload matmul-f16.f32-m1024n1024k1024-nn --target sm_90a --seconds 60
///
///   kernel-gen tune --replay landscape.txt --tuner model --seed 3     no device is needed
///
///   kernel-gen-fleet tune --fleet nats://host:4222 --target sm_90a     the workers of a fleet measure
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Arguments {
    #[command(flatten)]
    pub(super) measured: Measured,
    #[command(flatten)]
    pub(super) measuring: Measuring,
    #[command(flatten)]
    pub(super) fleet: FleetOptions,
    /// Only this template; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(super) template: Vec<String>,
    /// How configs are searched for: auto, model, ga, descent, random or grid. AutoTVM's names are understood
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(super) tuner: String,
    /// Trials for each workload, on average: they go where the network's time is. Those in the log count. With 0 the records
    /// are timed again beside the defaults
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(super) trials: u64,
    /// End after this many seconds. The comparison at the end is part of them; with many workloads it takes up to half
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub(super) seconds: Option<f64>,
    /// A task is done after this many trials without a gain of more than 2 %, if its tuner expects none
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) patience: u64,
    /// Time the finalists so many times, all workloads each time; the round counts that was disturbed least. For machines
    /// that are shared
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) rounds: u16,
    /// What everything random follows from
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// The log of all trials [default: tuning.jsonl, beside the spec; none with --replay]
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
    /// The folder of best records [default: tuned, beside the spec; none with --replay]
    #[arg(long, value_name = "FOLDER")]
    pub(super) tuned: Option<PathBuf>,
    /// Answer from a landscape or a log instead of a device
    #[arg(long, value_name = "FILE")]
    pub(super) replay: Option<PathBuf>,
    /// Say what would be tuned, and do nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Print what happens as JSON, one object a line
    #[arg(long)]
    pub(super) json: bool,
    /// Show no progress
    #[arg(long, short)]
    pub(super) quiet: bool,
}
