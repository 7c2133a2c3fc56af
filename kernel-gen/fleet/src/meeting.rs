//! The server, and what a fleet keeps there.

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, RetentionPolicy, Stream};
use async_nats::jetstream::{Context, kv, new};
use async_nats::{ConnectOptions, ServerAddr};
use futures_util::{StreamExt, TryStreamExt};
use kernel_gen::tune::fleet::Place;
use kernel_gen::tune::fleet::wire::{MOST_BYTES, Presence, parse};
use kernel_gen::tune::measure::Provenance;
use kernel_gen::tune::session::Stop;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long the server remembers the name of a message, so that it takes it once.
const REMEMBERED: Duration = Duration::from_secs(120);

/// The most workers that are looked at.
const MOST_WORKERS: usize = 10_000;

/// Keys that are asked for at a time.
const AT_A_TIME: usize = 64;

/// How long replies are kept.
const KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

/// How long a request waits for a worker before the server forgets it.
const FORGOTTEN: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long to try to meet: a server that has just begun takes connections before it has its streams.
const PATIENCE: Duration = Duration::from_secs(10);

/// Parts of errors that trying again does not change.
const FINAL: [&str; 4] =
    ["not an address", "authorization violation", "invalid peer certificate", "not a file of credentials"];

/// What runs the network's side of a session or a worker, in a thread beside it.
pub(crate) fn runtime() -> Result<Runtime, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|e| format!("no thread for the network: {e}"))
}

/// A fleet's streams and bucket.
#[derive(Clone)]
pub(crate) struct Meeting {
    pub(crate) server: Context,
    pub(crate) jobs: Stream,
    pub(crate) results: Stream,
    pub(crate) devices: kv::Store,
    pub(crate) place: Place,
}

/// A kind of device: those that one session's requests may go to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Kind {
    pub(crate) target: String,
    pub(crate) device: String,
}

impl Kind {
    /// The kind of a device.
    pub(crate) fn of(provenance: &Provenance) -> Kind {
        Kind { target: provenance.target.clone(), device: provenance.device.clone() }
    }

    /// As a part of subjects and names.
    fn token(&self) -> (String, String) {
        (token(&self.target), token(&self.device))
    }
}

/// Percent-decodes a part of an address; a `%` without two hexadecimal digits stays.
fn decoded(text: &str) -> String {
    let mut bytes = vec![];
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = (*first == b'%').then(|| after.get(..2)).flatten();
        let code = code.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A text as one token of a subject or a key: what neither has becomes `-`.
pub(crate) fn token(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
    let token: String = text.chars().map(plain).take(80).collect();
    if token.is_empty() { "-".to_string() } else { token }
}

impl Meeting {
    /// Connects, and makes what is not there yet.
    pub(crate) async fn at(place: &Place) -> Result<Meeting, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            match Meeting::try_at(place).await {
                Err(cause) if FINAL.iter().any(|words| cause.contains(words)) => return Err(cause),
                Err(_) if Instant::now() < until => tokio::time::sleep(Duration::from_millis(500)).await,
                met => return met,
            }
        }
    }

    async fn try_at(place: &Place) -> Result<Meeting, String> {
        let shown = place.shown();
        let mut options = ConnectOptions::new().name("kernel-gen").connection_timeout(PATIENCE);
        if let Some(file) = &place.credentials {
            let read = options.credentials_file(file).await;
            options = read.map_err(|e| format!("{}: not a file of credentials: {e}", file.display()))?;
        }
        if let Some(file) = &place.authority {
            options = options.add_root_certificates(file.clone()).require_tls(true);
        }
        // The client ignores the name and the password in an address.
        let address: ServerAddr = place.url.parse().map_err(|e| format!("{shown}: not an address: {e}"))?;
        match (address.username().map(decoded), address.password().map(decoded)) {
            (Some(name), Some(password)) => options = options.user_and_password(name, password),
            (Some(token), None) => options = options.token(token),
            (None, _) => {}
        }
        let help = "is a NATS server there, and are name, password and certificates right?";
        let client = options.connect(&place.url).await.map_err(|e| format!("{shown}: no connection: {e}; {help}"))?;
        let server = new(client);
        let told = |e: &dyn std::fmt::Display| format!("{shown}: {e}; does its server run with JetStream (`-js`)?");
        let name = &place.stream;
        let stream = |what: &str, subjects: Vec<String>, retention| Config {
            name: format!("{name}-{what}"),
            subjects,
            retention,
            max_message_size: MOST_BYTES as i32,
            duplicate_window: REMEMBERED,
            ..Config::default()
        };
        let jobs = stream("jobs", vec![format!("{name}.jobs.>")], RetentionPolicy::WorkQueue);
        let jobs = Config { max_age: FORGOTTEN, ..jobs };
        let jobs = server.get_or_create_stream(jobs).await.map_err(|e| told(&e))?;
        let subjects = vec![format!("{name}.results.>"), format!("{name}.dead")];
        let results = Config { max_age: KEPT, ..stream("results", subjects, RetentionPolicy::Limits) };
        let results = server.get_or_create_stream(results).await.map_err(|e| told(&e))?;
        let bucket = format!("{name}-devices");
        let devices: kv::Store = match server.get_key_value(&bucket).await {
            Ok(devices) => devices,
            Err(_) => {
                let config = kv::Config { bucket, history: 1, max_age: place.lease, ..kv::Config::default() };
                server.create_key_value(config).await.map_err(|e| told(&e))?
            }
        };
        // All members use the lease time that the bucket was made with.
        let lease = devices.status().await.map_err(|e| told(&e))?.max_age();
        Ok(Meeting { server, jobs, results, devices, place: Place { lease, ..place.clone() } })
    }

    fn subject(&self, what: &str, kind: &Kind) -> String {
        let (target, device) = kind.token();
        format!("{}.{what}.{target}.{device}", self.place.stream)
    }

    /// Where requests to a kind of device go.
    pub(crate) fn to_jobs(&self, kind: &Kind) -> String {
        self.subject("jobs", kind)
    }

    /// Where replies of a kind of device go.
    pub(crate) fn to_results(&self, kind: &Kind) -> String {
        self.subject("results", kind)
    }

    /// Where goes what nobody can read.
    pub(crate) fn to_dead(&self) -> String {
        format!("{}.dead", self.place.stream)
    }

    /// The queue of a kind of device, which all its workers share.
    pub(crate) async fn queue(&self, kind: &Kind) -> Result<PullConsumer, String> {
        let (target, device) = kind.token();
        let name = format!("{target}_{device}");
        let config = pull::Config {
            durable_name: Some(name.clone()),
            filter_subject: self.to_jobs(kind),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.place.lease,
            max_ack_pending: 100_000,
            // Each worker that has nothing to do waits at the queue.
            max_waiting: 2 * MOST_WORKERS as i64,
            ..pull::Config::default()
        };
        self.jobs.get_or_create_consumer(&name, config).await.map_err(|e| e.to_string())
    }

    /// Publishes until the server has it. Of messages of one name it keeps the first.
    ///
    /// # Errors
    /// If the server will never take it, because it is too long, or nobody waits any more.
    pub(crate) async fn publish(
        &self,
        subject: &str,
        name: &str,
        payload: Vec<u8>,
        stop: Option<&Stop>,
    ) -> Result<(), String> {
        if payload.len() > MOST_BYTES {
            return Err(format!("a message of {} bytes is too long", payload.len()));
        }
        let (began, mut told) = (Instant::now(), false);
        loop {
            let message = PublishMessage::build().payload(payload.clone().into()).message_id(name);
            let sent = match self.server.send_publish(subject.to_string(), message).await {
                Ok(sent) => sent.await.map(|_| ()),
                Err(error) => Err(error),
            };
            let Err(error) = sent else { return Ok(()) };
            let is_late = began.elapsed() > PATIENCE;
            if error.kind() == PublishErrorKind::MaxPayloadExceeded || is_late && stop.is_some_and(Stop::is_asked) {
                return Err(error.to_string());
            }
            if is_late && !told {
                told = true;
                eprintln!("kernel-gen: {}: {error}; trying again until it is there", self.place.shown());
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Keeps what nobody can read where somebody may look at it.
    pub(crate) async fn bury(&self, name: &str, payload: &[u8]) {
        let beginning = payload[..payload.len().min(4096)].to_vec();
        let _ = self.publish(&self.to_dead(), name, beginning, None).await;
    }

    /// How many messages of a subject the replies' stream has.
    pub(crate) async fn count_of(&self, subject: &str) -> Result<u64, String> {
        let subjects = self.results.info_with_subjects(subject).await.map_err(|e| e.to_string())?;
        let all: Vec<(String, usize)> = subjects.try_collect().await.map_err(|e| e.to_string())?;
        Ok(all.iter().map(|(_, number)| *number as u64).sum())
    }

    /// The workers that have a device now, by the device's key.
    pub(crate) async fn present(&self) -> Result<BTreeMap<String, Presence>, String> {
        // A key that ends while keys are listed may never come.
        let listed = tokio::time::timeout(Duration::from_secs(5), self.all_present()).await;
        listed.unwrap_or_else(|_| Err("no answer".to_string()))
    }

    async fn all_present(&self) -> Result<BTreeMap<String, Presence>, String> {
        let keys: Vec<String> = match self.devices.keys().await {
            Ok(keys) => keys.take(MOST_WORKERS).try_collect().await.map_err(|e| e.to_string())?,
            Err(error) => return Err(error.to_string()),
        };
        // A lease may have ended since, and what stands there may be anybody's.
        let get = |key: String| async move {
            let value = self.devices.get(key.as_str()).await.ok()??;
            Some((key, parse::<Presence>(&value).ok()?))
        };
        let found = futures_util::stream::iter(keys).map(get).buffer_unordered(AT_A_TIME);
        Ok(found.filter_map(std::future::ready).collect().await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_may_hold_what_has_a_meaning_in_addresses() {
        for (text, meant) in
            [("plain", "plain"), ("a%40b%2F", "a@b/"), ("100%", "100%"), ("%zz%4", "%zz%4"), ("%C3%A9", "\u{e9}")]
        {
            assert_eq!(decoded(text), meant);
        }
    }

    #[test]
    fn tokens_of_subjects_have_no_dots_and_no_wildcards() {
        assert_eq!(token("NVIDIA H100.80 > *"), "nvidia-h100-80----");
        assert_eq!(token(""), "-");
    }
}
