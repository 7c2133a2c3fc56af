//! Many machines tune one spec, over NATS JetStream.
//!
//! A session (`kernel-gen-fleet tune --fleet nats://host:4222`) publishes requests to a work queue; workers
//! (`kernel-gen-fleet worker --fleet nats://host:4222`), one a device, take them, measure, publish what came of it to a second
//! stream, and only then acknowledge. What a worker had that was not heard of for the time of a lease is delivered to another
//! one. A request is named by a hash of its content, and the session counts the first reply to it, so a request that was
//! measured twice counts once; a session that was ended reads the second stream when it begins again.
//!
//! | what | where |
//! |---|---|
//! | requests | stream `NAME-jobs`, subjects `NAME.jobs.TARGET.DEVICE`, a work queue with one consumer a kind of device |
//! | replies | stream `NAME-results`, subjects `NAME.results.TARGET.DEVICE`; what cannot be read goes to `NAME.dead` |
//! | workers | bucket `NAME-devices`: a key a device, which ends with its worker's lease |
//!
//! A program with templates of its own gives [`Nats`] to `kernel_gen::cli::main_with`, on both sides.
#![forbid(unsafe_code)]

mod meeting;
mod reading;
mod session;
mod status;
mod worker;

use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::tune::fleet::{Fleet, Place};
use kernel_gen::tune::measure::{Attached, Options, Provenance};
use kernel_gen::tune::session::Stop;
use std::thread::Scope;

/// Fleets that meet at a NATS server with JetStream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nats;

impl Fleet for Nats {
    fn kinds(&self, target: Option<&str>, place: &Place) -> Result<Vec<Provenance>, String> {
        session::kinds(target, place)
    }

    fn attach<'scope, 'r: 'scope>(
        &self,
        _: &'scope Scope<'scope, '_>,
        kind: &Provenance,
        options: &Options,
        place: &Place,
    ) -> Result<Attached<'scope, 'r>, String> {
        session::attach(kind, options, place)
    }

    fn work(
        &self,
        registry: &Registry,
        target: &'static Target,
        options: &Options,
        place: &Place,
        stop: &Stop,
    ) -> Result<String, String> {
        worker::work(registry, target, options, place, stop)
    }

    fn status(&self, place: &Place) -> Result<String, String> {
        status::status(place)
    }

    fn forget(&self, worker: &str, place: &Place) -> Result<u64, String> {
        status::forget(worker, place)
    }
}
