//! The options of fleets, and what to say in a program that has none.

use super::output::Failure;
use crate::tune::fleet::{Fleet, Place};
use clap::Args;
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

/// The fleet of this program.
pub(super) fn of_program(fleet: Option<&dyn Fleet>) -> Result<&dyn Fleet, Failure> {
    let help = "install that one with `cargo install kernel-gen-fleet`, and give it the same arguments";
    fleet.ok_or_else(|| format!("this program has no fleets: `kernel-gen-fleet` is the same with them; {help}").into())
}
