//! `kernel-gen worker`: a device at the disposal of sessions elsewhere.
//!
//! With `--fleet` it serves a fleet. Without, it is the process that holds a GPU for a measurer of this machine, which starts
//! it; nobody else does.

use super::fleet::{FleetOptions, of_program};
use super::interrupt::stop_on_interrupt;
use super::output::{Failure, Output};
use super::project::{best_here, named};
use crate::templates::Registry;
use crate::tune::fleet::Fleet;
use crate::tune::measure::{Options, serve};
use clap::Args;
use std::io::{BufReader, IsTerminal, stdin, stdout};
use std::time::Duration;

/// Measures on a device of this machine what the sessions of a fleet ask for
///
/// One worker has a device at a time, and measures all that `kernel-gen-fleet tune --fleet` asks of its kind of device.
/// SIGTERM or Ctrl-C: it finishes what it measures, gives the rest back, and ends.
///
/// Examples:
///
///   kernel-gen-fleet worker --fleet nats://host:4222 --target sm_90a --device 1
///
///   kernel-gen-fleet worker --fleet nats://host:4222     the CPU, for the best target that it executes
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(flatten)]
    fleet: FleetOptions,
    /// Target [default: the best that this machine's CPU executes]
    #[arg(long, value_name = "NAME", requires = "fleet")]
    target: Option<String>,
    /// Which GPU, counted from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,
    /// Configs that are compiled at the same time [default: one a processor]
    #[arg(long, value_name = "N", requires = "fleet", value_parser = clap::value_parser!(u16).range(1..=1024))]
    build_jobs: Option<u16>,
}

pub(super) fn run(registry: &Registry, arguments: &Arguments, fleet: Option<&dyn Fleet>) -> Result<Output, Failure> {
    if let Some(place) = arguments.fleet.place() {
        let fleet = of_program(fleet)?;
        let target = arguments.target.as_deref().map_or_else(best_here, named)?;
        let build_jobs = arguments.build_jobs.map(usize::from);
        let options = Options { device: arguments.device, build_jobs, ..Options::default() };
        let said = fleet.work(registry, target, &options, &place, &stop_on_interrupt())?;
        return Ok(Output::success(said));
    }
    if stdin().is_terminal() {
        return Err("which fleet is it to work for? say --fleet nats://host:4222".to_string().into());
    }
    end_with_parent();
    let mut input = BufReader::with_capacity(1 << 20, stdin().lock());
    serve(&mut input, &mut stdout().lock(), arguments.device).map_err(|e| format!("the measurer is gone: {e}"))?;
    Ok(Output::success(String::new()))
}

/// Ends the process soon after the one that started it. Where nothing runs, the end of the input says the same; but a
/// kernel that hangs keeps this process from its input, and with it the GPU from everybody.
fn end_with_parent() {
    #[cfg(unix)]
    std::thread::spawn(|| {
        let parent = std::os::unix::process::parent_id();
        while std::os::unix::process::parent_id() == parent {
            std::thread::sleep(Duration::from_millis(500));
        }
        // What a driver would do at an orderly exit waits for the kernel.
        std::process::abort();
    });
}
