//! Many machines that measure for one session.
//!
//! A session asks a [`Measurer`](super::measure::Measurer); a [`Fleet`] gives it one whose work is done elsewhere, and serves
//! a device of this machine to sessions elsewhere. What travels is [`wire`]: names and numbers, never code. The library
//! knows no network: a program that brings a fleet gives it to `kernel_gen::cli::main_with`. The crate `kernel-gen-fleet`
//! has one on NATS JetStream.

pub mod wire;

use super::measure::{Attached, Options, Provenance};
use super::session::Stop;
use crate::target::Target;
use crate::templates::Registry;
use std::path::PathBuf;
use std::thread::Scope;
use std::time::Duration;

/// Where a fleet meets.
#[derive(Clone, Debug)]
pub struct Place {
    /// Address of the server, such as `nats://host:4222`. It may hold a name and a password, so it is never printed as it is.
    pub url: String,
    /// The name under which sessions and workers find each other; what was measured under one name counts for all its sessions.
    pub stream: String,
    /// A file of credentials.
    pub credentials: Option<PathBuf>,
    /// A file with the certificate of the authority that the server's is signed by.
    pub authority: Option<PathBuf>,
    /// What a worker has taken belongs to others when it has not been heard of for so long.
    pub lease: Duration,
}

impl Place {
    /// The address without what only its owner may know.
    pub fn shown(&self) -> String {
        match self.url.split_once("://") {
            Some((scheme, rest)) => format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host)),
            None => self.url.rsplit_once('@').map_or(&self.url[..], |(_, host)| host).to_string(),
        }
    }
}

/// A way to other machines.
pub trait Fleet: Sync {
    /// The kinds of device that workers have, each as one of its workers says it; if a target is named, those of that target. Waits
    /// for a first worker.
    ///
    /// # Errors
    /// If nothing can be reached, or no such worker comes.
    fn kinds(&self, target: Option<&str>, place: &Place) -> Result<Vec<Provenance>, String>;

    /// A measurer whose configs are built and run by workers that have this kind of device. `options` say how they measure.
    ///
    /// # Errors
    /// If nothing can be reached.
    fn attach<'scope, 'r: 'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        kind: &Provenance,
        options: &Options,
        place: &Place,
    ) -> Result<Attached<'scope, 'r>, String>;

    /// Measures on a device of this machine what sessions ask for, until it is told to stop. What it has taken by then it
    /// finishes or gives back. Gives a line about what it did.
    ///
    /// # Errors
    /// If nothing can be reached, the device cannot be used, or another worker has it.
    fn work(
        &self,
        registry: &Registry,
        target: &'static Target,
        options: &Options,
        place: &Place,
        stop: &Stop,
    ) -> Result<String, String>;

    /// How the fleet does, for people: workers, what waits, what could not be read.
    ///
    /// # Errors
    /// If nothing can be reached.
    fn status(&self, place: &Place) -> Result<String, String>;

    /// Forgets what a worker has replied, and says how many replies that were.
    ///
    /// # Errors
    /// If nothing can be reached.
    fn forget(&self, worker: &str, place: &Place) -> Result<u64, String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_an_address_has_no_password() {
        let place = |url: &str| Place {
            url: url.into(),
            stream: "s".into(),
            credentials: None,
            authority: None,
            lease: Duration::from_secs(1),
        };
        for (url, shown) in [
            ("nats://host:4222", "nats://host:4222"),
            ("tls://me:se@cret@host:1", "tls://host:1"),
            ("me:secret@host", "host"),
        ] {
            assert_eq!(place(url).shown(), shown);
        }
    }
}
