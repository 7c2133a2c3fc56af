//! `kernel-gen bench`: times what is used for each workload, beside what would be used without its record.

mod json;

use super::interrupt::stop_on_interrupt;
use super::measuring::{Measured, Measuring, seconds};
use super::output::{Failure, Output, json_text};
use super::project::{Wanted, target_here};
use crate::model::sizes;
use crate::target::Device;
use crate::templates::Registry;
use crate::tune::bench::{Bench, Options, Row, Subject, table};
use crate::tune::measure::{self, Peer};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Times what is used for each workload again, beside what would be used without its record
///
/// For each workload the config that a build would use is compiled, checked against the reference and timed, interleaved
/// with the config that is used where there is no record at all. "now/recorded" says how well a record's time holds on this
/// device today. With --others the config that is chosen by records of other shapes only is timed too: how good the fallback
/// is for a shape that nobody tuned. With --peers the fastest algorithm of cuDNN or cuBLAS is timed too, the operator without
/// its epilogue. No record changes, and no log is written.
///
/// Examples:
///
///   kernel-gen bench                                    the workloads of kernels.toml on this CPU
///
///   kernel-gen bench specs/resnet50.toml --tuned specs/tuned --target sm_90a --others
///
///   kernel-gen bench specs/resnet18.toml --tuned specs/tuned --target sm_90a --peers cudnn,cublas
///
///   kernel-gen bench specs/resnet18.toml --tuned specs/tuned --only stem --threads 2 --out bench.json
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(flatten)]
    measured: Measured,
    #[command(flatten)]
    measuring: Measuring,
    /// The folder of best records [default: tuned, beside the spec]
    #[arg(long, value_name = "FOLDER")]
    tuned: Option<PathBuf>,
    /// Time what records of other shapes would choose as well
    #[arg(long)]
    others: bool,
    /// Time these libraries as well: cudnn, cudnn-fused, cublas (GPUs only; they are opened where they are, none is linked)
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = peer)]
    peers: Vec<Peer>,
    /// Time the whole list so many times; each row is of the round that was disturbed least. For machines that are shared
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Begin no workload after so many seconds
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// At most N sizes of each range in the spec, spread from the smallest to the largest
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(i64).range(2..))]
    sizes: i64,
    /// What the inputs are drawn from
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print JSON: everything that was measured
    #[arg(long)]
    json: bool,
    /// Write to this file: JSON beside the output if its name ends in `.json`, else the output in place of printing it
    #[arg(long, short, value_name = "FILE", alias = "output")]
    out: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// What takes longer than this to compile is a failure: a build would take as long.
const BUILD_LIMIT: Duration = Duration::from_secs(60);

/// A library by its name.
fn peer(name: &str) -> Result<Peer, String> {
    Peer::from_name(name).ok_or_else(|| {
        let all: Vec<&str> = Peer::ALL.iter().map(|peer| peer.name()).collect();
        format!("there is no such library; known are {}", all.join(", "))
    })
}

pub(super) fn run(registry: &Registry, arguments: &Arguments) -> Result<Output, Failure> {
    let project = arguments.measured.project(arguments.tuned.as_ref())?;
    let target = target_here(&project, arguments.measured.target.as_deref())?;
    if matches!(target.device, Device::Cpu(_)) && !arguments.peers.is_empty() {
        return Err(format!("--peers is for GPUs, and the target is {}; --target sm_90a names one", target.name).into());
    }
    let wanted = arguments.measured.wanted(&project, &|range| sizes(range, arguments.sizes))?;
    let subject = |Wanted { name, weight, workload, ranged }| Subject { name, weight, workload, ranged };
    let subjects: Vec<Subject> = wanted.into_iter().map(subject).collect();
    let threads = arguments.measured.threads(&project, target);
    let options = Options {
        model: project.options(),
        others: arguments.others,
        peers: arguments.peers.clone(),
        limit: arguments.seconds.map(Duration::from_secs_f64),
        rounds: arguments.rounds.into(),
    };
    arguments.measured.check_threads(threads)?;
    let report = std::thread::scope(|scope| {
        let measuring = measure::Options {
            device: arguments.measured.device()?,
            threads: threads as usize,
            build_limit: Some(BUILD_LIMIT),
            seed: arguments.seed.wrapping_add(1),
            ..measure::Options::default()
        };
        let measuring = arguments.measuring.applied(measuring);
        let mut attached = measure::for_target(scope, target, measuring).map_err(|e| e.to_string())?;
        let provenance = &attached.provenance;
        let bench = Bench { registry, target, records: &project.records, options: &options, provenance };
        let mut done = 0;
        let mut told = |row: &Row| {
            done += 1;
            if !arguments.quiet {
                // Standard error may be closed; the measurement goes on.
                let _ = writeln!(std::io::stderr().lock(), "{done}/{} {}", subjects.len(), progress(row));
            }
        };
        Ok::<_, Failure>(bench.run(&subjects, &mut *attached.measurer, &stop_on_interrupt(), &mut told))
    })?;
    let json = || json_text(&json::report(&report));
    let mut text = if arguments.json { json() } else { table(&report) };
    if let Some(file) = &arguments.out {
        let is_json = file.extension().is_some_and(|e| e == "json");
        let written = if is_json { json() } else { std::mem::take(&mut text) };
        std::fs::write(file, written).map_err(|e| format!("{} cannot be written: {e}", file.display()))?;
    }
    // What a build would use and does not run here is wrong; an alternative that fails is a finding.
    let good = |row: &Row| row.result.as_ref().is_ok_and(|m| m.chosen.us().is_some());
    Ok(Output { text, errors: vec![], success: report.rows.iter().all(good) })
}

/// A row in a few words.
fn progress(row: &Row) -> String {
    let name = &row.name;
    match &row.result {
        Err(why) => format!("{name}: not measured: {why}"),
        Ok(m) => match (m.chosen.us(), m.recorded_us()) {
            (Some(now), Some(recorded)) => format!("{name}: {now:.2} us, {recorded:.2} us recorded"),
            (Some(now), None) => format!("{name}: {now:.2} us, no record"),
            (None, _) => format!("{name}: what is chosen failed"),
        },
    }
}
