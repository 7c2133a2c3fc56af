//! A worker that measures nothing: it says of itself and of configs what a test wants it to.

use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, AckKind, Context};
use futures_util::StreamExt;
use kernel_gen::records::{Outcome, Timing};
use kernel_gen::stable::stable_hash;
use kernel_gen::tune::fleet::wire::{Candidate, Presence, Reply, Request, WIRE};
use kernel_gen::tune::measure::{Provenance, WireOutcome};
use kernel_gen::tune::session::Stop;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// The fleet's name.
pub(crate) const NAME: &str = "kernel-gen";

pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a thread")
}

/// A GPU that is not there.
pub(crate) fn gpu(number: usize) -> Provenance {
    Provenance {
        device: "NVIDIA H100 80GB HBM3".into(),
        target: "sm_90a".into(),
        threads: 1,
        compiler: "NVRTC 13.0".into(),
        units: 132,
        capability: Some((9, 0)),
        driver: Some((13, 0)),
        clock_mhz: Some(1980),
        uuid: Some(format!("GPU-{number}")),
        generator: env!("CARGO_PKG_VERSION").into(),
    }
}

/// The kind of device of a worker that is there.
pub(crate) async fn cpu(port: u16) -> Provenance {
    let client = async_nats::connect(format!("127.0.0.1:{port}")).await.expect("the server is there");
    let devices = jetstream::new(client).get_key_value(format!("{NAME}-devices")).await.expect("a fleet is there");
    let mut keys = devices.keys().await.expect("it has keys");
    let key = keys.next().await.expect("a worker is there").expect("its key");
    let value = devices.get(key).await.expect("the server is there").expect("the worker is there");
    serde_json::from_slice::<Presence>(&value).expect("it says what it has").provenance
}

/// What the streams hold: how many requests, and all replies.
pub(crate) async fn streams(port: u16) -> (u64, Vec<Reply>) {
    let client = async_nats::connect(format!("127.0.0.1:{port}")).await.expect("the server is there");
    let server = jetstream::new(client);
    let jobs = server.get_stream(format!("{NAME}-jobs")).await.expect("the queue is there");
    let results = server.get_stream(format!("{NAME}-results")).await.expect("the replies are there");
    let (waiting, last) = (jobs.cached_info().state.messages, results.cached_info().state.last_sequence);
    let mut replies = vec![];
    for sequence in 1..=last {
        let message = results.get_raw_message(sequence).await.expect("no reply is lost");
        replies.push(serde_json::from_slice(&message.payload).expect("workers send replies"));
    }
    (waiting, replies)
}

/// A time in microseconds that follows from a config.
pub(crate) fn time_us(candidate: &Candidate) -> f64 {
    5.0 + (stable_hash(&format!("{} {}", candidate.template, candidate.config)) % 10_000) as f64 / 1e3
}

/// A stranger at the server.
pub(crate) struct Stranger {
    pub(crate) server: Context,
    pub(crate) presence: Presence,
    queue: PullConsumer,
    to_results: String,
    renewed: Option<Instant>,
}

impl Stranger {
    /// Comes to a fleet that a session has made.
    pub(crate) async fn at(port: u16, worker: &str, provenance: Provenance, capacity: usize) -> Stranger {
        let client = async_nats::connect(format!("127.0.0.1:{port}")).await.expect("the server is there");
        let server = jetstream::new(client);
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
        let token = |text: &str| text.chars().map(plain).collect::<String>();
        let (target, device) = (token(&provenance.target), token(&provenance.device));
        let jobs = loop {
            match server.get_stream(format!("{NAME}-jobs")).await {
                Ok(jobs) => break jobs,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let name = format!("{target}_{device}");
        let config = Config {
            durable_name: Some(name.clone()),
            filter_subject: format!("{NAME}.jobs.{target}.{device}"),
            ack_policy: AckPolicy::Explicit,
            ack_wait: Duration::from_secs(2),
            max_ack_pending: 100_000,
            ..Config::default()
        };
        let queue = jobs.get_or_create_consumer(&name, config).await.expect("the queue of the kind");
        let presence = Presence { wire: WIRE, worker: worker.into(), provenance, capacity };
        let to_results = format!("{NAME}.results.{target}.{device}");
        let mut stranger = Stranger { server, presence, queue, to_results, renewed: None };
        stranger.be_present().await;
        stranger
    }

    /// Says that it is there, now and then.
    pub(crate) async fn be_present(&mut self) {
        if self.renewed.is_some_and(|at| at.elapsed() < Duration::from_millis(400)) {
            return;
        }
        self.renewed = Some(Instant::now());
        let value = serde_json::to_vec(&self.presence).expect("it can be written");
        loop {
            if let Ok(devices) = self.server.get_key_value(format!("{NAME}-devices")).await {
                let _ = devices.put(&self.presence.worker, value.clone().into()).await;
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Takes what is in the queue, at most so many.
    pub(crate) async fn take(&mut self, most: usize) -> Vec<(Request, jetstream::message::Acker)> {
        self.be_present().await;
        let fetched = self.queue.fetch().max_messages(most).expires(Duration::from_millis(20)).messages().await;
        let mut taken = vec![];
        let Ok(mut messages) = fetched else { return taken };
        while let Some(Ok(message)) = messages.next().await {
            let (message, acker) = message.split();
            match serde_json::from_slice::<Request>(&message.payload) {
                Ok(request) if request.not_by.contains(&self.presence.worker) => {
                    let _ = acker.ack_with(AckKind::Nak(Some(Duration::from_millis(50)))).await;
                }
                Ok(request) => taken.push((request, acker)),
                Err(_) => drop(acker.ack_with(AckKind::Nak(None)).await),
            }
        }
        taken
    }

    /// Answers at once, until it is told to end: with the replies that `says` makes of a request.
    pub(crate) async fn answer(mut self, end: Stop, says: impl Fn(&Stranger, &Request) -> Vec<Reply>) -> Stranger {
        while !end.is_asked() {
            for (request, acker) in self.take(64).await {
                for (number, reply) in says(&self, &request).into_iter().enumerate() {
                    let payload = serde_json::to_vec(&reply).expect("it can be written");
                    self.publish(format!("{}.{}.{number}", reply.request, self.presence.worker), payload).await;
                }
                let _ = acker.ack_with(AckKind::Ack).await;
            }
        }
        self
    }

    /// The reply that says these times of the candidates.
    pub(crate) fn reply(&self, request: &Request, us: impl Fn(&Candidate) -> f64) -> Reply {
        let outcome = |candidate: &Candidate| {
            let samples_us = vec![us(candidate); 5];
            WireOutcome::from(Outcome::Timed(Timing { samples_us, max_error: 0.1, ..Timing::default() }))
        };
        Reply {
            wire: WIRE,
            request: request.id(),
            worker: self.presence.worker.clone(),
            provenance: self.presence.provenance.clone(),
            cost_s: Some(0.1),
            deliveries: 1,
            outcomes: request.candidates.iter().map(outcome).collect(),
        }
    }

    /// Publishes a reply under a name, without waiting for the server.
    pub(crate) async fn publish(&self, name: String, payload: Vec<u8>) {
        let message = PublishMessage::build().payload(payload.into()).message_id(name);
        let _ = self.server.send_publish(self.to_results.clone(), message).await;
    }
}
