//! The side of a worker: it takes requests for its device, measures, replies, and then acknowledges.

use crate::meeting::{Kind, Meeting, runtime, token};
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::Batch;
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{AckKind, Message};
use futures_util::StreamExt;
use kernel_gen::records::{Failure, FailureKind, Outcome};
use kernel_gen::space::Config;
use kernel_gen::stable::fnv1a_128;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::tune::Task;
use kernel_gen::tune::fleet::Place;
use kernel_gen::tune::fleet::wire::{Measuring, Presence, Reply, Request, WIRE, parse};
use kernel_gen::tune::measure::{Attached, JobId, Options, Provenance, WireOutcome, for_target};
use kernel_gen::tune::session::Stop;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// Deliveries after which a request is answered whatever comes of it.
const DELIVERIES: i64 = 5;

/// The most deliveries of a request to workers that it is not for.
const IN_VAIN: i64 = 500;

/// How long to wait for requests before looking at anything else.
const TICK: Duration = Duration::from_millis(100);

/// How long a worker waits at the queue before it asks again.
const PULL: Duration = Duration::from_secs(2);

/// How long what is under way may take when a worker is told to end.
const ENDING: Duration = Duration::from_secs(20);

/// A request that is under way for longer than this is no longer kept from other workers: whatever measures it hangs.
const LONGEST: Duration = Duration::from_secs(600);

/// For what is for other workers.
const NOT_MINE: AckKind = AckKind::Nak(Some(Duration::from_millis(500)));

/// The longest rest of a worker that could not measure what it took.
const REST: Duration = Duration::from_secs(60);

/// For what another worker may be able to take.
const LATER: AckKind = AckKind::Nak(Some(Duration::from_secs(5)));

/// A request that this worker has taken, by a number of its own.
struct Taken {
    number: u64,
    request: Request,
    /// How often it was delivered, to this worker or another one.
    deliveries: i64,
}

impl Taken {
    /// Whether this is its last delivery: it is answered whatever comes of it.
    fn is_last(&self) -> bool {
        self.deliveries >= DELIVERIES
    }
}

/// What becomes of a request.
enum Verdict {
    Reply(Box<Reply>),
    /// Another worker is to have it.
    Back,
    /// This worker has it at work already.
    NotMine,
    /// No worker can do anything with it.
    Refused(String),
}

type Done = (u64, Verdict);

/// When the thread that measures was last seen to go on.
type Pulse = Arc<Mutex<Instant>>;

/// Works until it is told to stop.
pub(crate) fn work(
    registry: &Registry,
    target: &'static Target,
    options: &Options,
    place: &Place,
    stop: &Stop,
) -> Result<String, String> {
    std::thread::scope(|scope| {
        // The device first: without one nothing is promised to anybody.
        let attached = for_target(scope, target, options.clone()).map_err(|e| e.to_string())?;
        let (provenance, capacity) = (attached.provenance.clone(), attached.measurer.capacity());
        let worker = name(&provenance);
        let presence = Presence { wire: WIRE, worker: worker.clone(), provenance: provenance.clone(), capacity };
        let (give, requests) = channel();
        let (done, verdicts) = unbounded_channel();
        let (tell, ended) = channel();
        let runtime = runtime()?;
        let lost = Arc::new(AtomicBool::new(false));
        let (place, stopped, is_lost) = (place.clone(), stop.clone(), Arc::clone(&lost));
        let pulse: Pulse = Arc::new(Mutex::new(Instant::now()));
        let seen = Arc::clone(&pulse);
        std::thread::spawn(move || {
            let ended = runtime.block_on(serve(place, presence, give, verdicts, stopped, seen));
            is_lost.store(ended.is_err(), Ordering::Relaxed);
            let _ = tell.send(ended);
        });
        let mut worker = Worker {
            scope,
            registry,
            target,
            options: options.clone(),
            attached: None,
            idle: Some(attached),
            name: worker,
            provenance: provenance.clone(),
            running: HashMap::new(),
            done,
            measured: 0,
            stop: stop.clone(),
            lost: Arc::clone(&lost),
            pulse,
        };
        worker.run(&requests);
        let (measured, name) = (worker.measured, worker.name.clone());
        drop(worker);
        ended.recv().map_err(|_| "the connection has ended".to_string())??;
        Ok(format!("{name} measured {measured} configs on {provenance}\n"))
    })
}

/// The worker's name: the machine, the process, and when it began. No other worker ever has it, so that what it measured can be
/// dropped by it.
fn name(provenance: &Provenance) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { provenance.device.as_str() } else { host.trim() };
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{:x}", token(host), std::process::id(), since.as_nanos())
}

struct Worker<'scope, 'env, 'r> {
    scope: &'scope Scope<'scope, 'env>,
    registry: &'r Registry,
    target: &'static Target,
    options: Options,
    /// What measures, and how.
    attached: Option<(Measuring, Attached<'scope, 'r>)>,
    /// What was attached before any request said how to measure.
    idle: Option<Attached<'scope, 'r>>,
    name: String,
    provenance: Provenance,
    running: HashMap<u64, Taken>,
    done: UnboundedSender<Done>,
    measured: u64,
    stop: Stop,
    /// Set where the device may be another worker's by now.
    lost: Arc<AtomicBool>,
    pulse: Pulse,
}

impl<'scope, 'env, 'r: 'scope> Worker<'scope, 'env, 'r> {
    /// Takes requests and measures until nobody gives any.
    fn run(&mut self, requests: &Receiver<Taken>) {
        loop {
            *self.pulse.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            let wait = if self.running.is_empty() { TICK } else { Duration::ZERO };
            match requests.recv_timeout(wait) {
                Ok(taken) if self.stop.is_asked() => self.end(taken.number, Verdict::Back),
                Ok(taken) => self.begin(taken),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => self.outcome(TICK / 5),
            }
        }
        // What is under way is finished if that takes no longer than a batch system waits.
        let until = Instant::now() + ENDING;
        while !self.running.is_empty() && Instant::now() < until && !self.lost.load(Ordering::Relaxed) {
            self.outcome(TICK);
        }
        for number in std::mem::take(&mut self.running).into_keys() {
            self.end(number, Verdict::Back);
        }
    }

    fn drain(&mut self) {
        while !self.running.is_empty() {
            self.outcome(TICK);
        }
    }

    fn end(&self, number: u64, verdict: Verdict) {
        // The network's side may have ended: then the request goes to another worker.
        let _ = self.done.send((number, verdict));
    }

    /// Attaches what measures as a request says. What another measurer has under way is finished first.
    fn attach(&mut self, request: &Request) -> Result<(), String> {
        if self.attached.as_ref().is_none_or(|(how, _)| *how != request.measuring) {
            let options = request.measuring.applied(&self.options)?;
            self.drain();
            (self.attached, self.idle) = (None, None);
            let attached = for_target(self.scope, self.target, options).map_err(|e| e.to_string())?;
            let (asked, there) = (request.measuring.threads(), attached.provenance.threads as usize);
            if attached.provenance.capability.is_none() && asked != there {
                return Err(format!("it asks for {asked} threads, this worker has {there}"));
            }
            self.attached = Some((request.measuring.clone(), attached));
        }
        Ok(())
    }

    /// Gives back what this worker cannot measure: another one may be of the version that it is for. What several could
    /// not is answered.
    fn refuse(&mut self, taken: &Taken, cause: String) {
        if !taken.is_last() {
            return self.end(taken.number, Verdict::Refused(cause));
        }
        let failure = Failure { kind: FailureKind::Worker, detail: format!("{} refuses it: {cause}", self.name) };
        let outcomes = vec![Outcome::Failed(failure); taken.request.candidates.len()];
        self.reply(taken, outcomes, None);
    }

    fn begin(&mut self, taken: Taken) {
        let registry = self.registry;
        let number = taken.number;
        // The second delivery of what this one has at work is for another one, which may be faster.
        let has = self.running.values().any(|running| running.request == taken.request);
        // What may not go to some has been to them in vain.
        let in_vain = if taken.request.not_by.is_empty() { 0 } else { IN_VAIN };
        if taken.deliveries > 2 * DELIVERIES + in_vain {
            return self.refuse(&taken, "it has ended too many workers".to_string());
        }
        if has {
            return self.end(number, Verdict::NotMine);
        }
        // A template that panics at a workload is no reason to end.
        let prepared = catch_unwind(AssertUnwindSafe(|| self.prepared(registry, &taken.request)));
        let tasks = match prepared.unwrap_or_else(|_| Err("a template panics at it".to_string())) {
            Ok(tasks) => tasks,
            Err(cause) => return self.refuse(&taken, cause),
        };
        if let Err(cause) = self.attach(&taken.request) {
            return self.refuse(&taken, cause);
        }
        if taken.request.comparison.is_some() {
            self.drain();
            let candidates: Vec<(&Task<'r>, &Config)> = tasks.iter().map(|(task, config)| (task, config)).collect();
            let began = Instant::now();
            let Some((_, attached)) = &mut self.attached else { return };
            let outcomes = attached.measurer.compare(&candidates);
            return self.reply(&taken, outcomes, Some(began.elapsed()));
        }
        if let (Some((_, attached)), Some((task, config))) = (&mut self.attached, tasks.first()) {
            attached.measurer.submit(JobId(number), task, config);
            self.running.insert(number, taken);
        }
    }

    /// The tasks of a request, if this worker can have them.
    fn prepared(&self, registry: &'r Registry, request: &Request) -> Result<Vec<(Task<'r>, Config)>, String> {
        if request.target != self.target.name {
            return Err(format!("it is for {}, this worker has {}", request.target, self.target.name));
        }
        let tasks = request.tasks(registry)?;
        match (&request.comparison, tasks.len()) {
            (None, n) if n != 1 => Err(format!("{n} candidates, and no comparison")),
            _ => Ok(tasks),
        }
    }

    /// Waits for an outcome and replies.
    fn outcome(&mut self, wait: Duration) {
        let Some((_, attached)) = &mut self.attached else { return };
        let Some((JobId(number), outcome)) = attached.measurer.next(wait) else { return };
        let cost = attached.measurer.last_cost();
        if let Some(taken) = self.running.remove(&number) {
            self.reply(&taken, vec![outcome], cost);
        }
    }

    fn reply(&mut self, taken: &Taken, outcomes: Vec<Outcome>, cost: Option<Duration>) {
        let reply = Reply {
            wire: WIRE,
            request: taken.request.id(),
            worker: self.name.clone(),
            provenance: self.provenance.clone(),
            cost_s: cost.map(|cost| cost.as_secs_f64()),
            deliveries: taken.deliveries.try_into().unwrap_or(u32::MAX),
            outcomes: outcomes.into_iter().map(WireOutcome::from).collect(),
        };
        // What says nothing of the config is held against this worker, and another one is asked.
        if !reply.is_of_configs() && !taken.is_last() {
            return self.end(taken.number, Verdict::Back);
        }
        self.measured += reply.outcomes.len() as u64;
        self.end(taken.number, Verdict::Reply(Box::new(reply)));
    }
}

/// The network's side: holds the device's lease, takes requests, keeps them, replies and acknowledges.
async fn serve(
    place: Place,
    presence: Presence,
    give: Sender<Taken>,
    mut verdicts: UnboundedReceiver<Done>,
    stop: Stop,
    pulse: Pulse,
) -> Result<(), String> {
    let meeting = Meeting::at(&place).await?;
    let kind = Kind::of(&presence.provenance);
    let lease = Lease::of(&meeting, &presence).await?;
    let beat = meeting.place.lease / 4;
    // Beside all else, so that nothing makes it late.
    let mut renewing = tokio::spawn(lease.keep(meeting.clone(), beat));
    let mut taken: HashMap<u64, Kept> = HashMap::new();
    let (mut next, mut give, mut finishing) = (0, Some(give), JoinSet::new());
    let (mut queue, mut asked) = (None, None);
    let (mut failures, mut rested) = (0u32, Instant::now());
    let mut beats = tokio::time::interval(beat);
    loop {
        if stop.is_asked() {
            // Nothing more is given; what is under way comes back.
            give = None;
        }
        let free = presence.capacity.saturating_sub(taken.len());
        if asked.is_none() && free > 0 && give.is_some() && Instant::now() >= rested {
            asked = ask(&meeting, &kind, &mut queue, free).await;
        }
        tokio::select! {
            done = verdicts.recv() => match done {
                // What is done is told before it is acknowledged.
                Some((number, verdict)) => {
                    // A worker that cannot measure would have room for all that there is.
                    failures = if matches!(verdict, Verdict::Back) { failures + 1 } else { 0 };
                    if failures > 2 {
                        rested = Instant::now() + Duration::from_secs(1 << failures.min(6)).min(REST);
                    }
                    if let Some(request) = taken.remove(&number) {
                        finishing.spawn(finish(meeting.clone(), kind.clone(), request, verdict, stop.clone()));
                    }
                }
                None => break,
            },
            message = heard(&mut asked) => match (message, &give) {
                (Some(Ok(message)), Some(give)) => {
                    let Some((request, deliveries, place)) = read(&meeting, message).await else { continue };
                    if request.not_by.contains(&presence.worker) && deliveries <= IN_VAIN {
                        let _ = place.acker.ack_with(NOT_MINE).await;
                        continue;
                    }
                    taken.insert(next, place);
                    if give.send(Taken { number: next, request, deliveries }).is_err() {
                        return Err("what measures has ended".into());
                    }
                    next += 1;
                }
                // What came too late goes to another worker at once.
                (Some(Ok(message)), None) => drop(message.ack_with(AckKind::Nak(None)).await),
                (Some(Err(_)), _) => (queue, asked, rested) = (None, None, Instant::now() + TICK),
                (None, _) => asked = None,
            },
            lost = &mut renewing => return lost.unwrap_or_else(|e| Err(e.to_string())),
            _ = beats.tick() => {
                let silent = pulse.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
                if silent > LONGEST {
                    return Err(format!("what measures has said nothing for {} s", silent.as_secs()));
                }
                // The server may have lost its files meanwhile, and with them the queue.
                queue = None;
                for place in taken.values().filter(|place| place.since.elapsed() < LONGEST) {
                    // Where that does not arrive, the request goes to another worker, and the first reply counts.
                    let _ = place.acker.ack_with(AckKind::Progress).await;
                }
            }
            Some(_) = finishing.join_next() => {}
            _ = tokio::time::sleep(TICK) => {}
        }
    }
    finishing.join_all().await;
    renewing.abort();
    // What is left of it is the session's to see.
    let key = Lease::key(&presence);
    let own = |value: &[u8]| parse::<Presence>(value).is_ok_and(|now| now.worker == presence.worker);
    if let Ok(Some(value)) = meeting.devices.get(key.as_str()).await
        && own(&value)
    {
        let _ = meeting.devices.purge(key.as_str()).await;
    }
    Ok(())
}

/// What was asked of the queue: messages, up to the number that was asked for, or until the time is over.
type Asked = (Batch, Instant);

/// Asks the queue for requests, at most `most`. None where the server does not answer now.
async fn ask(meeting: &Meeting, kind: &Kind, queue: &mut Option<PullConsumer>, most: usize) -> Option<Asked> {
    if queue.is_none() {
        *queue = meeting.queue(kind).await.ok();
    }
    let fetched = queue.as_ref()?.fetch().max_messages(most).expires(PULL).messages().await;
    if fetched.is_err() {
        *queue = None;
    }
    Some((fetched.ok()?, Instant::now()))
}

/// The next message of what was asked; none at its end. Where the server goes away meanwhile, nothing says that there will be no more.
async fn heard(asked: &mut Option<Asked>) -> Option<Result<Message, async_nats::Error>> {
    let Some((messages, since)) = asked else { return std::future::pending().await };
    let until = *since + PULL + Duration::from_secs(1);
    tokio::time::timeout_at(until.into(), messages.next()).await.unwrap_or(None)
}

/// Reads a request. What nobody can read is buried at last.
async fn read(meeting: &Meeting, message: Message) -> Option<(Request, i64, Kept)> {
    let (deliveries, sequence) = message.info().map_or((1, 0), |info| (info.delivered, info.stream_sequence));
    let (message, acker) = message.split();
    match parse::<Request>(&message.payload) {
        Ok(request) => return Some((request, deliveries, Kept { acker, sequence, since: Instant::now() })),
        // A worker of another version may read it.
        Err(_) if deliveries < DELIVERIES => drop(acker.ack_with(LATER).await),
        Err(_) => {
            let name = format!("j{:032x}.{sequence}", fnv1a_128(&message.payload));
            meeting.bury(&name, &message.payload).await;
            let _ = acker.ack_with(AckKind::Term).await;
        }
    }
    None
}

/// A request that is kept from other workers.
struct Kept {
    acker: Acker,
    /// Its place in the queue.
    sequence: u64,
    since: Instant,
}

/// Tells what became of a request, and acknowledges it.
async fn finish(meeting: Meeting, kind: Kind, request: Kept, verdict: Verdict, stop: Stop) {
    let Kept { acker, sequence, .. } = request;
    match verdict {
        Verdict::Reply(mut reply) => {
            // A request that is measured twice keeps its place, and the server takes one reply of a name.
            let (subject, name) = (meeting.to_results(&kind), format!("{}.{sequence}", reply.request));
            let payload = |reply: &Reply| serde_json::to_vec(reply).unwrap_or_default();
            let mut sent = meeting.publish(&subject, &name, payload(&reply), Some(&stop)).await;
            if let Err(cause) = &sent
                && !stop.is_asked()
            {
                let refused = WireOutcome::Failed { kind: FailureKind::Refused.name().into(), detail: cause.clone() };
                reply.outcomes.fill(refused);
                sent = meeting.publish(&subject, &name, payload(&reply), Some(&stop)).await;
            }
            // What was not published is measured again; and so is what the server has not heard the end of.
            if sent.is_ok() {
                let _ = acker.double_ack().await;
            }
        }
        Verdict::Back => drop(acker.ack_with(AckKind::Nak(Some(Duration::from_secs(1)))).await),
        Verdict::NotMine => drop(acker.ack_with(NOT_MINE).await),
        Verdict::Refused(cause) => {
            eprintln!("kernel-gen: a request was refused: {cause}");
            let _ = acker.ack_with(LATER).await;
        }
    }
}

/// The device, while it is this worker's.
struct Lease {
    key: String,
    value: Vec<u8>,
    revision: u64,
}

impl Lease {
    /// The device's key.
    fn key(presence: &Presence) -> String {
        let device = match &presence.provenance.uuid {
            Some(uuid) => token(uuid),
            // A CPU is not exclusive: each worker process has a key of its own.
            None => token(&presence.worker),
        };
        format!("{}_{device}", token(&presence.provenance.target))
    }

    /// Takes the device. A worker that was killed has it until its lease ends.
    async fn of(meeting: &Meeting, presence: &Presence) -> Result<Lease, String> {
        let key = Lease::key(presence);
        let value = serde_json::to_vec(presence).map_err(|e| e.to_string())?;
        let until = Instant::now() + meeting.place.lease + Duration::from_secs(2);
        loop {
            if let Ok(revision) = meeting.devices.create(&key, value.clone().into()).await {
                return Ok(Lease { key, value, revision });
            }
            if Instant::now() > until {
                return Err(format!(
                    "another worker has {} ({key}), or {} does not answer; one worker measures on a device at a time",
                    presence.provenance.device,
                    meeting.place.shown()
                ));
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Keeps it, until another worker has it.
    async fn keep(mut self, meeting: Meeting, beat: Duration) -> Result<(), String> {
        loop {
            tokio::time::sleep(beat).await;
            self.renew(&meeting).await?;
        }
    }

    /// Keeps it for another while.
    async fn renew(&mut self, meeting: &Meeting) -> Result<(), String> {
        let value = || self.value.clone().into();
        if let Ok(revision) = meeting.devices.update(&self.key, value(), self.revision).await {
            self.revision = revision;
            return Ok(());
        }
        // The server was away for longer than the lease: it is free, unless somebody else took it.
        match meeting.devices.create(&self.key, value()).await {
            Ok(revision) => self.revision = revision,
            Err(_) => match meeting.devices.get(self.key.as_str()).await {
                Ok(Some(now)) if now[..] != self.value[..] => {
                    return Err("another worker has taken the device, which this one had lost".into());
                }
                Ok(Some(_)) => {
                    if let Ok(Some(entry)) = meeting.devices.entry(self.key.as_str()).await {
                        self.revision = entry.revision;
                    }
                }
                // The server does not answer now; there will be another time.
                _ => {}
            },
        }
        Ok(())
    }
}
