//! The side of a session: a measurer whose work is done by a fleet.

use crate::meeting::{Kind, Meeting};
use async_nats::jetstream::consumer::{DeliverPolicy, push};
use futures_util::StreamExt;
use kernel_gen::records::{Failure, FailureKind, Outcome};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::tune::Task;
use kernel_gen::tune::fleet::Place;
use kernel_gen::tune::fleet::wire::{Presence, Reply, Request, parse};
use kernel_gen::tune::measure::{Attached, JobId, Measurer, Options, Provenance};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How often workers are counted.
const COUNTED: Duration = Duration::from_secs(1);

/// How long a session waits for a first worker.
const FIRST: Duration = Duration::from_secs(60);

/// What the server has to say.
enum Said {
    /// The device that the session's requests go to.
    Device(Box<Provenance>),
    /// A reply, of this session or of one before it.
    Reply(Box<Reply>),
    /// All replies that were there when the session began have been given.
    CaughtUp,
    /// It cannot begin.
    Failed(String),
}

/// A measurer whose configs are measured elsewhere.
struct Session {
    publish: UnboundedSender<Request>,
    said: Receiver<Said>,
    options: Options,
    /// Requests that no reply has come to, by their names.
    asked: HashMap<String, (Request, Vec<JobId>)>,
    /// Replies that came before anybody asked: in an earlier session, or to what is compared.
    known: HashMap<String, Reply>,
    ready: VecDeque<(JobId, Outcome, Option<Duration>)>,
    last_cost: Option<Duration>,
    fleet: Arc<Workers>,
    /// What tells this session's comparisons from others.
    name: String,
    comparisons: u64,
}

/// The workers of the session's kind of device.
#[derive(Default)]
struct Workers {
    capacity: AtomicUsize,
    /// Seconds for which there has been none.
    gone_s: AtomicU64,
}

/// A measurer whose requests go to the workers of a target.
pub(crate) fn attach<'s>(target: &Target, options: &Options, place: &Place) -> Result<Attached<'s, 's>, String> {
    let (publish, requests) = unbounded_channel();
    let (tell, said) = channel();
    let fleet = Arc::new(Workers::default());
    let (wanted, place, workers) = (target.name.clone(), place.clone(), Arc::clone(&fleet));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|e| format!("no thread for the network: {e}"))?;
    // It ends when the measurer does, which drops the requests' sender.
    std::thread::spawn(move || {
        let failed = tell.clone();
        if let Err(cause) = runtime.block_on(serve(wanted, place, requests, tell, workers)) {
            let _ = failed.send(Said::Failed(cause));
        }
    });
    let mut known = HashMap::new();
    let mut provenance = None;
    loop {
        match said.recv().map_err(|_| "the connection has ended".to_string())? {
            Said::Device(device) => provenance = Some(*device),
            Said::Reply(reply) => drop(known.entry(reply.request.clone()).or_insert(*reply)),
            Said::CaughtUp => break,
            Said::Failed(cause) => return Err(cause),
        }
    }
    let provenance = provenance.ok_or("the connection has ended")?;
    let provenance = Provenance { threads: options.threads as u32, ..provenance };
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let session = Session {
        publish,
        said,
        options: options.clone(),
        asked: HashMap::new(),
        known,
        ready: VecDeque::new(),
        last_cost: None,
        fleet,
        name: format!("{:x}-{:x}", since.as_nanos(), std::process::id()),
        comparisons: 0,
    };
    Ok(Attached { measurer: Box::new(session), provenance })
}

/// The network's side: counts workers, publishes requests, hands on replies, until nobody asks any more.
async fn serve(
    target: String,
    place: Place,
    mut requests: UnboundedReceiver<Request>,
    tell: Sender<Said>,
    workers: Arc<Workers>,
) -> Result<(), String> {
    let meeting = Meeting::at(&place).await?;
    let provenance = first_worker(&meeting, &target).await?;
    let kind = Kind::of(&provenance);
    let _ = tell.send(Said::Device(Box::new(provenance)));
    let counting = tokio::spawn(count(meeting.clone(), kind.clone(), workers));
    let reading = tokio::spawn(read(meeting.clone(), kind.clone(), tell));
    let subject = meeting.to_jobs(&kind);
    while let Some(request) = requests.recv().await {
        if let Ok(payload) = serde_json::to_vec(&request) {
            meeting.publish(&subject, &request.id(), payload).await;
        }
    }
    counting.abort();
    reading.abort();
    Ok(())
}

/// The device of the workers of a target, all of which have one kind.
async fn first_worker(meeting: &Meeting, target: &str) -> Result<Provenance, String> {
    let since = Instant::now();
    loop {
        let present = meeting.present().await.unwrap_or_default();
        let mut devices: Vec<Provenance> =
            present.into_iter().map(|p| p.provenance).filter(|p| p.target == target).collect();
        devices.sort_by(|a, b| a.device.cmp(&b.device));
        devices.dedup_by(|a, b| a.device == b.device);
        if devices.len() > 1 {
            let names: Vec<&str> = devices.iter().map(|p| p.device.as_str()).collect();
            let shown = meeting.place.shown();
            return Err(format!(
                "{shown}: workers of {target} have {}, and times of several devices cannot be compared; give each kind a \
                 --stream of its own",
                names.join(", ")
            ));
        }
        if let Some(device) = devices.pop() {
            return Ok(device);
        }
        if since.elapsed() > FIRST {
            let (shown, s) = (meeting.place.shown(), FIRST.as_secs());
            return Err(format!(
                "{shown}: no worker of {target} has come in {s} s; begin one on a machine that has it: kernel-gen-fleet \
                 worker --fleet {shown} --target {target} --stream {}",
                meeting.place.stream
            ));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Counts the workers again and again.
async fn count(meeting: Meeting, kind: Kind, workers: Arc<Workers>) {
    let mut last = Instant::now();
    loop {
        // While the server is away, nothing is known of them.
        if let Ok(present) = meeting.present().await {
            let ours = present.iter().filter(|p: &&Presence| Kind::of(&p.provenance) == kind);
            let capacity = ours.map(|p| p.capacity.min(1024)).sum();
            workers.capacity.store(capacity, Ordering::Relaxed);
            if capacity > 0 {
                last = Instant::now();
            }
        }
        workers.gone_s.store(last.elapsed().as_secs(), Ordering::Relaxed);
        tokio::time::sleep(COUNTED).await;
    }
}

/// Hands on all replies of the kind, from the first that the server has.
async fn read(meeting: Meeting, kind: Kind, tell: Sender<Said>) {
    let mut next = 1;
    let mut results = meeting.results.clone();
    let mut there = None;
    loop {
        let last = match (there, results.info().await) {
            (Some(there), _) => there,
            (None, Ok(info)) => *there.insert(info.state.last_sequence),
            (None, Err(_)) => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                continue;
            }
        };
        let config = push::OrderedConfig {
            deliver_subject: meeting.server.client().new_inbox(),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: next },
            ..push::OrderedConfig::default()
        };
        if next > last && there.replace(u64::MAX) != Some(u64::MAX) && tell.send(Said::CaughtUp).is_err() {
            return;
        }
        if let Ok(consumer) = results.create_consumer(config).await
            && let Ok(mut messages) = consumer.messages().await
        {
            while let Some(Ok(message)) = messages.next().await {
                let Ok(sequence) = message.info().map(|info| info.stream_sequence) else { continue };
                next = next.max(sequence + 1);
                if message.subject.as_str() == meeting.to_results(&kind) {
                    match parse::<Reply>(&message.payload) {
                        Ok(reply) => {
                            if tell.send(Said::Reply(Box::new(reply))).is_err() {
                                return;
                            }
                        }
                        Err(_) => {
                            meeting.publish(&meeting.to_dead(), &format!("r{sequence}"), dead(&message.payload)).await
                        }
                    }
                }
                if next > last && there.replace(u64::MAX) != Some(u64::MAX) && tell.send(Said::CaughtUp).is_err() {
                    return;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// The beginning of a message that nobody can read.
pub(crate) fn dead(payload: &[u8]) -> Vec<u8> {
    payload[..payload.len().min(4096)].to_vec()
}

fn lost(detail: String) -> Outcome {
    Outcome::Failed(Failure { kind: FailureKind::Worker, detail })
}

impl Session {
    /// Asks for a request, unless somebody has asked for it already.
    fn ask(&mut self, request: Request, job: Option<JobId>) {
        let name = request.id();
        let (_, jobs) = self.asked.entry(name).or_insert_with(|| {
            // The network's side lives as long as this one.
            let _ = self.publish.send(request.clone());
            (request, vec![])
        });
        jobs.extend(job);
    }

    /// What came of a request, and what it cost.
    fn outcomes(reply: Reply, request: &Request) -> (Vec<Outcome>, Option<Duration>) {
        let worker = reply.worker.clone();
        let cost = reply.cost_s.filter(|s| (0.0..1e6).contains(s)).map(Duration::from_secs_f64);
        let outcomes = reply.outcomes(request).unwrap_or_else(|cause| {
            let said = format!("the worker {worker} replied what cannot be: {cause}");
            request.candidates.iter().map(|_| lost(said.clone())).collect()
        });
        (outcomes, cost)
    }

    /// Takes a reply: to a trial that was asked for, or to be looked up.
    fn take(&mut self, reply: Reply) {
        let Some((request, jobs)) = self.asked.remove(&reply.request) else {
            self.known.entry(reply.request.clone()).or_insert(reply);
            return;
        };
        self.known.insert(reply.request.clone(), reply.clone());
        let (outcomes, cost) = Session::outcomes(reply, &request);
        for (job, outcome) in jobs.into_iter().zip(outcomes.iter().cycle()) {
            self.ready.push_back((job, outcome.clone(), cost));
        }
    }

    /// Hears what is said within a time; fails what nobody is there for.
    fn hear(&mut self, wait: Duration) {
        if let Ok(Said::Reply(reply)) = self.said.recv_timeout(wait) {
            self.take(*reply);
        }
        let gone = self.fleet.gone_s.load(Ordering::Relaxed);
        if gone > FIRST.as_secs() {
            let said = format!("no worker has been there for {gone} s");
            for (_, (_, jobs)) in self.asked.drain() {
                self.ready.extend(jobs.into_iter().map(|job| (job, lost(said.clone()), None)));
            }
        }
    }
}

impl<'r> Measurer<'r> for Session {
    fn capacity(&self) -> usize {
        // One worker's share, so that something waits for the first that comes back.
        self.fleet.capacity.load(Ordering::Relaxed).max(4)
    }

    fn submit(&mut self, id: JobId, task: &Task<'r>, config: &Config) {
        match Request::new(&[(task, config)], &self.options, None) {
            Err(cause) => {
                let failure = Failure { kind: FailureKind::Refused, detail: cause };
                self.ready.push_back((id, Outcome::Failed(failure), None));
            }
            Ok(request) => match self.known.get(&request.id()).cloned() {
                Some(reply) => {
                    let (outcomes, cost) = Session::outcomes(reply, &request);
                    self.ready.extend(outcomes.into_iter().map(|outcome| (id, outcome, cost)));
                }
                None => self.ask(request, Some(id)),
            },
        }
    }

    fn next(&mut self, wait: Duration) -> Option<(JobId, Outcome)> {
        let until = Instant::now() + wait;
        loop {
            if let Some((id, outcome, cost)) = self.ready.pop_front() {
                self.last_cost = cost;
                return Some((id, outcome));
            }
            let left = until.saturating_duration_since(Instant::now());
            if self.asked.is_empty() || left.is_zero() {
                return None;
            }
            self.hear(left);
        }
    }

    fn last_cost(&self) -> Option<Duration> {
        self.last_cost
    }

    fn compare(&mut self, candidates: &[(&Task<'r>, &Config)]) -> Vec<Outcome> {
        self.comparisons += 1;
        let comparison = format!("{}-{}", self.name, self.comparisons);
        let request = match Request::new(candidates, &self.options, Some(comparison)) {
            Ok(request) => request,
            Err(cause) => {
                let refused = Outcome::Failed(Failure { kind: FailureKind::Refused, detail: cause });
                return vec![refused; candidates.len()];
            }
        };
        let name = request.id();
        self.ask(request.clone(), None);
        while self.asked.contains_key(&name) {
            self.hear(Duration::from_millis(200));
        }
        match self.known.remove(&name) {
            Some(reply) => Session::outcomes(reply, &request).0,
            None => vec![lost("no worker is there".to_string()); candidates.len()],
        }
    }
}
