//! The side of a session: a measurer whose work is done by a fleet.

use crate::meeting::{Kind, Meeting, runtime};
use async_nats::jetstream::consumer::{DeliverPolicy, push};
use futures_util::StreamExt;
use kernel_gen::records::{Failure, FailureKind, Outcome};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::tune::Task;
use kernel_gen::tune::fleet::Place;
use kernel_gen::tune::fleet::wire::{Measuring, Presence, Reply, Request, parse};
use kernel_gen::tune::measure::{Attached, JobId, Measurer, Options, Provenance};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How often workers are counted.
const COUNTED: Duration = Duration::from_secs(1);

/// Requests that are published at a time.
const AT_A_TIME: usize = 256;

/// The most requests that are under way: whoever writes to the server says how many workers there are.
const MOST_UNDER_WAY: usize = 50_000;

/// How long a session waits for a first worker.
const FIRST: Duration = Duration::from_secs(60);

/// What the server has to say.
enum Said {
    /// The device that the session's requests go to.
    Device(Box<Provenance>),
    /// A reply, of this session or of one before it.
    Reply(Box<Reply>),
    /// A request, by its name, that no worker could read, or whose reply nobody can.
    Unreadable(String, String),
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
    /// Replies that came before anybody asked, in an earlier session.
    known: HashMap<String, Reply>,
    /// The reply to the comparison that is waited for.
    compared: Option<Reply>,
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
    count: AtomicUsize,
    capacity: AtomicUsize,
    /// Seconds for which there has been none.
    gone_s: AtomicU64,
}

/// A measurer whose requests go to the workers of a target.
pub(crate) fn attach<'s>(target: &Target, options: &Options, place: &Place) -> Result<Attached<'s, 's>, String> {
    Measuring::of(options).applied(options).map_err(|cause| format!("no worker measures so: {cause}"))?;
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let name = format!("{:x}-{:x}", since.as_nanos(), std::process::id());
    let (publish, requests) = unbounded_channel();
    let (tell, said) = channel();
    let fleet = Arc::new(Workers::default());
    let (wanted, place, workers, session) = (target.name.clone(), place.clone(), Arc::clone(&fleet), name.clone());
    let runtime = runtime()?;
    // It ends when the measurer does, which drops the requests' sender.
    std::thread::spawn(move || {
        let failed = tell.clone();
        if let Err(cause) = runtime.block_on(serve(wanted, place, session, requests, tell, workers)) {
            let _ = failed.send(Said::Failed(cause));
        }
    });
    let mut known = HashMap::new();
    let mut provenance = None;
    loop {
        match said.recv().map_err(|_| "the connection has ended".to_string())? {
            Said::Device(device) => provenance = Some(*device),
            Said::Reply(reply) if reply.is_of_configs() => drop(known.entry(reply.request.clone()).or_insert(*reply)),
            Said::Reply(_) | Said::Unreadable(..) => {}
            Said::CaughtUp => break,
            Said::Failed(cause) => return Err(cause),
        }
    }
    let provenance = provenance.ok_or("the connection has ended")?;
    let provenance = Provenance { threads: options.threads as u32, ..provenance };
    let session = Session {
        publish,
        said,
        options: options.clone(),
        asked: HashMap::new(),
        known,
        compared: None,
        ready: VecDeque::new(),
        last_cost: None,
        fleet,
        name,
        comparisons: 0,
    };
    Ok(Attached { measurer: Box::new(session), provenance })
}

/// The network's side: counts workers, publishes requests, hands on replies, until nobody asks any more.
async fn serve(
    target: String,
    place: Place,
    session: String,
    mut requests: UnboundedReceiver<Request>,
    tell: Sender<Said>,
    workers: Arc<Workers>,
) -> Result<(), String> {
    let meeting = Meeting::at(&place).await?;
    let provenance = first_worker(&meeting, &target).await?;
    let kind = Kind::of(&provenance);
    let _ = tell.send(Said::Device(Box::new(provenance)));
    let counting = tokio::spawn(count(meeting.clone(), kind.clone(), workers));
    let reading = tokio::spawn(read(meeting.clone(), kind.clone(), tell.clone()));
    let subject = meeting.to_jobs(&kind);
    // Many at a time: the way to a server that is far away takes longer than all else.
    let all = futures_util::stream::poll_fn(|context| requests.poll_recv(context));
    all.for_each_concurrent(AT_A_TIME, async |request| {
        // The name is of this session: what an earlier one asked for may have been given up since.
        let (id, payload) = (request.id(), serde_json::to_vec(&request).unwrap_or_default());
        if let Err(cause) = meeting.publish(&subject, &format!("{id}.{session}"), payload, None).await {
            let _ = tell.send(Said::Unreadable(id, cause));
        }
    })
    .await;
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
        match meeting.present().await {
            Ok(present) => {
                let ours = || present.iter().filter(|p: &&Presence| Kind::of(&p.provenance) == kind);
                let capacity = ours().map(|p| p.capacity.min(1024)).sum();
                workers.count.store(ours().count(), Ordering::Relaxed);
                workers.capacity.store(capacity, Ordering::Relaxed);
                if capacity > 0 {
                    last = Instant::now();
                }
            }
            // While the server is away, nothing is known of the workers.
            Err(_) => last = Instant::now(),
        }
        workers.gone_s.store(last.elapsed().as_secs(), Ordering::Relaxed);
        tokio::time::sleep(COUNTED).await;
    }
}

/// Hands on all replies of the kind, from the first that the server has.
async fn read(meeting: Meeting, kind: Kind, tell: Sender<Said>) {
    let (mut next, mut caught_up) = (1, false);
    let (ours, dead) = (meeting.to_results(&kind), meeting.to_dead());
    loop {
        let config = push::OrderedConfig {
            deliver_subject: meeting.server.client().new_inbox(),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: next },
            ..push::OrderedConfig::default()
        };
        if let Ok(consumer) = meeting.results.create_consumer(config).await {
            let mut left = consumer.cached_info().num_pending;
            if let Ok(mut messages) = consumer.messages().await {
                loop {
                    if left == 0 && !std::mem::replace(&mut caught_up, true) && tell.send(Said::CaughtUp).is_err() {
                        return;
                    }
                    let Some(Ok(message)) = messages.next().await else { break };
                    let Ok((sequence, pending)) = message.info().map(|info| (info.stream_sequence, info.pending))
                    else {
                        continue;
                    };
                    left = pending;
                    // A consumer that the client made again may begin at the beginning.
                    if sequence < next {
                        continue;
                    }
                    next = sequence + 1;
                    let name = message.headers.as_ref().and_then(|h| h.get("Nats-Msg-Id")).map(|name| name.to_string());
                    let said = if message.subject.as_str() == ours {
                        match parse::<Reply>(&message.payload) {
                            Ok(reply) => Said::Reply(Box::new(reply)),
                            Err(cause) => {
                                let id = name.unwrap_or_default();
                                let id = id.split('.').next().unwrap_or_default().to_string();
                                Said::Unreadable(id, format!("nobody can read the reply: {cause}"))
                            }
                        }
                    } else if message.subject.as_str() == dead {
                        let id = name.unwrap_or_default().trim_start_matches('j').to_string();
                        Said::Unreadable(id, "no worker can read the request".to_string())
                    } else {
                        continue;
                    };
                    if tell.send(said).is_err() {
                        return;
                    }
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
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

    /// Takes a reply: to what was asked for, or to be looked up.
    fn take(&mut self, reply: Reply) {
        let asked = self.asked.remove(&reply.request);
        if let Some((request, _)) = &asked
            && request.comparison.is_some()
        {
            self.compared = Some(reply);
            return;
        }
        // What says nothing of a config is no reason not to ask again.
        if reply.is_of_configs() {
            self.known.entry(reply.request.clone()).or_insert_with(|| reply.clone());
        }
        let Some((request, jobs)) = asked else { return };
        let (outcomes, cost) = Session::outcomes(reply, &request);
        for (job, outcome) in jobs.into_iter().zip(outcomes.iter().cycle()) {
            self.ready.push_back((job, outcome.clone(), cost));
        }
    }

    /// Fails the jobs of a request.
    fn fail(&mut self, jobs: Vec<JobId>, cause: &str) {
        self.ready.extend(jobs.into_iter().map(|job| (job, lost(cause.to_string()), None)));
    }

    /// Fails the jobs of all requests.
    fn fail_all(&mut self, cause: &str) {
        for (_, (_, jobs)) in std::mem::take(&mut self.asked) {
            self.fail(jobs, cause);
        }
    }

    /// Waits for a message for at most `wait`. Fails all requests if no worker has been present for [`FIRST`].
    fn hear(&mut self, wait: Duration) {
        match self.said.recv_timeout(wait) {
            Ok(Said::Reply(reply)) => self.take(*reply),
            Ok(Said::Unreadable(id, cause)) => {
                let jobs = self.asked.remove(&id).map(|(_, jobs)| jobs).unwrap_or_default();
                self.fail(jobs, &cause);
            }
            Ok(_) => {}
            // The network's side has ended, and with it all that was asked.
            Err(RecvTimeoutError::Disconnected) => self.fail_all("the connection has ended"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let gone = self.fleet.gone_s.load(Ordering::Relaxed);
        if gone > FIRST.as_secs() {
            self.fail_all(&format!("no worker has been there for {gone} s"));
        }
    }
}

impl<'r> Measurer<'r> for Session {
    fn capacity(&self) -> usize {
        // A quarter more than workers take, so that something waits for the first that has room.
        let taken = self.fleet.capacity.load(Ordering::Relaxed);
        (taken + taken / 4).clamp(4, MOST_UNDER_WAY)
    }

    fn workers(&self) -> usize {
        self.fleet.count.load(Ordering::Relaxed)
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
        match self.compared.take().filter(|reply| reply.request == name) {
            Some(reply) => Session::outcomes(reply, &request).0,
            None => vec![lost("no worker is there".to_string()); candidates.len()],
        }
    }
}
