//! `kernel-gen fleet`: how a fleet does, and what its workers measured taken back. The options of fleets, and what to say in a
//! program that has none.

use super::output::{Failure, Output};
use crate::records::log::append_dropped;
use crate::tune::fleet::{Fleet, Place};
use crate::tune::progress::counted;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Where a fleet meets: options that `tune` and `worker` have in common.
#[derive(Args, Clone, Debug)]
pub(super) struct FleetOptions {
    /// Measure on the machines of a fleet, which meet at this NATS server: nats://host:4222, or tls://name:password@host
    #[arg(long, value_name = "URL")]
    fleet: Option<String>,
    /// The fleet's name: who has the same one works together, and what was measured under it is not measured again
    #[arg(long, value_name = "NAME", default_value = "kernel-gen", value_parser = name)]
    stream: String,
    /// The file of credentials for the server
    #[arg(long, value_name = "FILE", requires = "fleet")]
    creds: Option<PathBuf>,
    /// The certificate of the authority that the server's certificate is signed by
    #[arg(long, value_name = "FILE", requires = "fleet")]
    ca: Option<PathBuf>,
    /// A worker that was not heard of for so many seconds is given up, and what it had goes to another one
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    lease: u64,
}

impl FleetOptions {
    /// Where to meet, if a fleet is asked for.
    pub(super) fn place(&self) -> Option<Place> {
        let (stream, credentials, authority) = (self.stream.clone(), self.creds.clone(), self.ca.clone());
        let lease = Duration::from_secs(self.lease);
        self.fleet.clone().map(|url| Place { url, stream, credentials, authority, lease })
    }
}

/// A name of streams, subjects and buckets.
fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !text.is_empty() && text.len() <= 64 && text.chars().all(plain) {
        true => Ok(text.to_string()),
        false => Err("a name has 1 to 64 letters, digits, `-` and `_`".to_string()),
    }
}

/// Shows how a fleet does, or takes back what one of its workers measured
///
/// Examples:
///
///   kernel-gen-fleet fleet status --fleet nats://host:4222
///
///   kernel-gen-fleet fleet drop node7-3141-19abc --fleet nats://host:4222 --log tuning.jsonl
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// Its workers, what waits for them, what nobody could read
    Status {
        #[command(flatten)]
        fleet: FleetOptions,
    },
    /// What this worker measured counts no more: in the log, and where the server has it
    Drop {
        /// The worker's name, as a session, a report or `fleet status` says it
        worker: String,
        /// The log. Its trials by this worker stay in the file, and are ignored from now on
        #[arg(long, value_name = "FILE")]
        log: Option<PathBuf>,
        #[command(flatten)]
        fleet: FleetOptions,
    },
}

pub(super) fn run(arguments: &Arguments, program: Option<&dyn Fleet>) -> Result<Output, Failure> {
    match &arguments.action {
        Action::Status { fleet } => {
            let place = fleet.place().ok_or("which fleet? say --fleet nats://host:4222".to_string())?;
            Ok(Output::success(of_program(program)?.status(&place)?))
        }
        Action::Drop { worker, log, fleet } => {
            let place = fleet.place();
            if log.is_none() && place.is_none() {
                return Err("drop it from where? say --log FILE, or --fleet nats://host:4222, or both"
                    .to_string()
                    .into());
            }
            let mut text = String::new();
            if let Some(place) = place {
                let replies = of_program(program)?.forget(worker, &place)?;
                text += &format!("{}: forgot {} of {worker}\n", place.shown(), counted(replies, "message"));
            }
            if let Some(file) = log {
                // A log that is not there holds no trials of the worker, and is not made.
                std::fs::metadata(file).map_err(|e| format!("{}: the log cannot be read: {e}", file.display()))?;
                append_dropped(file, worker).map_err(|e| e.to_string())?;
                text += &format!("{}: the trials of {worker} count no more\n", file.display());
            }
            Ok(Output::success(text))
        }
    }
}

/// The fleet of this program.
pub(super) fn of_program(fleet: Option<&dyn Fleet>) -> Result<&dyn Fleet, Failure> {
    let help = "install that one with `cargo install kernel-gen-fleet`, and give it the same arguments";
    fleet.ok_or_else(|| format!("this program has no fleets: `kernel-gen-fleet` is the same with them; {help}").into())
}
