//! The side of a session: a measurer whose work is done by a fleet.

use crate::meeting::{Kind, Meeting, runtime};
use crate::reading::{Said, hand, read};
use futures_util::StreamExt;
use kernel_gen::records::{Failure, FailureKind, Outcome};
use kernel_gen::space::Config;
use kernel_gen::tune::Task;
use kernel_gen::tune::fleet::Place;
use kernel_gen::tune::fleet::wire::{Measuring, Presence, Reply, Request};
use kernel_gen::tune::measure::{
    Attached, Comparison, Contest, JobId, Judged, Measurer, Options, Provenance, Repeated, WireOutcome, Worker,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Requests that are published at a time.
const AT_A_TIME: usize = 256;

/// The most requests that are under way. Presences on the server, which anybody with access can write, may claim any capacity.
const MOST_UNDER_WAY: usize = 50_000;

/// The most bytes of replies that are kept because they may be asked for.
const MOST_KEPT: usize = 256 << 20;

/// The most messages that wait for the session; the next ones wait at the server.
const MOST_WAITING: usize = 256;

/// How many times the average a request may take before another worker is asked as well.
const OVERDUE: f64 = 8.0;

/// How long a second opinion is waited for, at least; and a first reply, before another worker is asked as well.
const SILENCE: Duration = Duration::from_secs(30);

/// How often workers are counted.
const COUNTED: Duration = Duration::from_secs(1);

/// How long a session waits for a first worker.
const FIRST: Duration = Duration::from_secs(60);

/// A measurer whose configs are measured elsewhere.
struct Session {
    publish: UnboundedSender<ToPublish>,
    said: Receiver<Said>,
    options: Options,
    /// Requests that no reply has come to, by their names.
    asked: HashMap<String, Asked>,
    /// What a request of one config takes from here to its reply, in seconds, on average.
    round_trip_s: Option<f64>,
    /// The longest that a comparison took from here to its reply.
    longest: Duration,
    /// When it was looked last for requests that take too long.
    looked: Instant,
    /// Replies that came before anybody asked, in an earlier session, and their bytes.
    known: HashMap<String, (Reply, usize)>,
    kept: usize,
    /// Their names, the oldest first.
    oldest: VecDeque<String>,
    /// Who answered what was asked, and the time that it said, until a second reply was held against it.
    answered: HashMap<String, Option<(Arc<Worker>, f64)>>,
    /// Times that a second worker gave for what was answered.
    repeated: Vec<Repeated>,
    /// Replies to comparisons that are waited for.
    compared: HashMap<String, Reply>,
    ready: VecDeque<(JobId, Outcome, Told)>,
    last: Told,
    fleet: Arc<Workers>,
    /// Those that replied, by their names.
    workers: HashMap<String, Arc<Worker>>,
    /// Deliveries that came to nothing: of workers that were lost or gave requests back.
    redelivered: u64,
    /// What tells this session's comparisons from others.
    name: String,
    comparisons: u64,
}

/// A request, and whether it is published a second time.
type ToPublish = (Request, bool);

/// A request that no reply has come to.
struct Asked {
    request: Request,
    jobs: Vec<JobId>,
    since: Instant,
    /// Whether another worker was asked as well.
    again: bool,
    /// Whether one of the two could not measure.
    spared: bool,
}

/// What is told of an outcome beside it: its cost, and who measured.
type Told = (Option<Duration>, Option<Arc<Worker>>);

/// The workers of the session's kind of device.
#[derive(Default)]
struct Workers {
    names: Mutex<Vec<String>>,
    capacity: AtomicUsize,
    /// Seconds for which there has been none.
    gone_s: AtomicU64,
    /// Requests that wait for a worker.
    waiting: AtomicU64,
    /// Devices whose workers were lost: they ended without a word.
    lost: AtomicU64,
    /// Messages that nobody could read.
    unreadable: AtomicU64,
}

impl Workers {
    fn names(&self) -> MutexGuard<'_, Vec<String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kinds of device that workers have.
pub(crate) fn kinds(target: Option<&str>, place: &Place) -> Result<Vec<Provenance>, String> {
    runtime()?.block_on(async {
        let meeting = Meeting::at(place).await?;
        let since = Instant::now();
        loop {
            let present = meeting.present().await.unwrap_or_default();
            let mut kinds: Vec<Provenance> = present.into_values().map(|p| p.provenance).collect();
            kinds.retain(|kind| target.is_none_or(|target| kind.target == target));
            kinds.sort_by_key(Kind::of);
            kinds.dedup_by_key(|kind| Kind::of(kind));
            if !kinds.is_empty() {
                return Ok(kinds);
            }
            if since.elapsed() > FIRST {
                let (shown, s) = (meeting.place.shown(), FIRST.as_secs());
                let of = target.map(|target| format!(" of {target}")).unwrap_or_default();
                let target = target.map(|target| format!(" --target {target}")).unwrap_or_default();
                return Err(format!(
                    "{shown}: no worker{of} has come in {s} s; begin one on a machine that has it: kernel-gen-fleet worker \
                     --fleet {shown}{target} --stream {}",
                    meeting.place.stream
                ));
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    })
}

/// A measurer whose requests go to the workers of a kind of device.
pub(crate) fn attach<'s, 'r>(of: &Provenance, options: &Options, place: &Place) -> Result<Attached<'s, 'r>, String> {
    Measuring::of(options).applied(options).map_err(|cause| format!("no worker measures so: {cause}"))?;
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let name = format!("{:x}-{:x}", since.as_nanos(), std::process::id());
    let (publish, requests) = unbounded_channel();
    let (tell, said) = sync_channel(MOST_WAITING);
    let fleet = Arc::new(Workers::default());
    let (kind, place, workers, session) = (Kind::of(of), place.clone(), Arc::clone(&fleet), name.clone());
    let runtime = runtime()?;
    // It ends when the measurer does, which drops the requests' sender.
    std::thread::spawn(move || {
        let failed = tell.clone();
        if let Err(cause) = runtime.block_on(serve(kind, place, session, requests, tell, workers)) {
            let _ = failed.send(Said::Failed(cause));
        }
    });
    let mut session = Session {
        publish,
        said,
        options: options.clone(),
        asked: HashMap::new(),
        round_trip_s: None,
        longest: Duration::ZERO,
        looked: Instant::now(),
        known: HashMap::new(),
        kept: 0,
        oldest: VecDeque::new(),
        answered: HashMap::new(),
        repeated: vec![],
        compared: HashMap::new(),
        ready: VecDeque::new(),
        last: (None, None),
        fleet,
        workers: HashMap::new(),
        redelivered: 0,
        name,
        comparisons: 0,
    };
    loop {
        match session.said.recv().map_err(|_| "the connection has ended".to_string())? {
            Said::Reply(reply, bytes) => session.take(*reply, bytes),
            Said::Unreadable(..) => {}
            Said::CaughtUp => break,
            Said::Failed(cause) => return Err(cause),
        }
    }
    let provenance = Provenance { threads: options.threads as u32, uuid: None, ..of.clone() };
    Ok(Attached { measurer: Box::new(session), provenance })
}

/// The network's side: counts workers, publishes requests, hands on replies, until nobody asks any more.
async fn serve(
    kind: Kind,
    place: Place,
    session: String,
    mut requests: UnboundedReceiver<ToPublish>,
    tell: SyncSender<Said>,
    workers: Arc<Workers>,
) -> Result<(), String> {
    let meeting = Meeting::at(&place).await?;
    let counting = tokio::spawn(count(meeting.clone(), kind.clone(), Arc::clone(&workers)));
    let reading = tokio::spawn(read(meeting.clone(), kind.clone(), tell.clone()));
    let subject = meeting.to_jobs(&kind);
    // Many at a time: the way to a server that is far away takes longer than all else.
    let all = futures_util::stream::poll_fn(|context| requests.poll_recv(context));
    let publish = |(request, again): ToPublish| {
        let (meeting, subject, session, tell) = (&meeting, &subject, &session, &tell);
        async move {
            // The name is of this session: what an earlier one asked for may have been given up since.
            let (id, payload) = (request.id(), serde_json::to_vec(&request).unwrap_or_default());
            let name = format!("{id}.{session}.{}", u8::from(again));
            if let Err(cause) = meeting.publish(subject, &name, payload, None).await {
                hand(tell, Said::Unreadable(id, cause)).await;
            }
        }
    };
    all.for_each_concurrent(AT_A_TIME, publish).await;
    counting.abort();
    reading.abort();
    Ok(())
}

/// Counts the workers again and again.
async fn count(meeting: Meeting, kind: Kind, workers: Arc<Workers>) {
    let mut last = Instant::now();
    let mut before: BTreeMap<String, Presence> = BTreeMap::new();
    loop {
        match meeting.present().await {
            Ok(mut present) => {
                present.retain(|_, p| Kind::of(&p.provenance) == kind);
                let capacity = present.values().map(|p| p.capacity.min(1024)).sum();
                workers.capacity.store(capacity, Ordering::Relaxed);
                *workers.names() = present.values().map(|p| p.worker.clone()).collect();
                for key in before.keys().filter(|key| !present.contains_key(*key)) {
                    // One that ends in order takes its key back; that of one that was lost vanishes with its lease.
                    if let Ok(None) = meeting.devices.entry(key.as_str()).await {
                        workers.lost.fetch_add(1, Ordering::Relaxed);
                    }
                }
                before = present;
                if capacity > 0 {
                    last = Instant::now();
                }
                if let Ok(mut queue) = meeting.queue(&kind).await
                    && let Ok(info) = queue.info().await
                {
                    workers.waiting.store(info.num_pending, Ordering::Relaxed);
                }
                if let Ok(dead) = meeting.count_of(&meeting.to_dead()).await {
                    workers.unreadable.store(dead, Ordering::Relaxed);
                }
            }
            // While the server is away, nothing is known of the workers.
            Err(_) => last = Instant::now(),
        }
        workers.gone_s.store(last.elapsed().as_secs(), Ordering::Relaxed);
        tokio::time::sleep(COUNTED).await;
    }
}

fn lost(detail: String) -> Outcome {
    Outcome::Failed(Failure { kind: FailureKind::Worker, detail })
}

/// The median time of the only outcome.
fn us_of(reply: &Reply) -> Option<f64> {
    match &reply.outcomes[..] {
        [WireOutcome::Timed(timing)] => Some(timing.median_us()).filter(|us| us.is_finite() && *us > 0.0),
        _ => None,
    }
}

impl Session {
    /// Asks for a request, unless somebody has asked for it already. Gives its name.
    fn ask(&mut self, request: Request, job: Option<JobId>) -> String {
        let name = request.id();
        let asked = self.asked.entry(name.clone()).or_insert_with(|| {
            // The network's side lives as long as this one.
            let _ = self.publish.send((request.clone(), false));
            Asked { request, jobs: vec![], since: Instant::now(), again: false, spared: false }
        });
        asked.jobs.extend(job);
        name
    }

    /// Asks another worker as well for what takes far longer than others do, if one has nothing to do: a worker that is slow or hangs,
    /// and says all the same that it is at work, would hold up its tasks. The first reply counts.
    fn ask_again(&mut self) {
        if self.looked.elapsed() < COUNTED {
            return;
        }
        self.looked = Instant::now();
        // Before there was any reply, nobody knows what is long.
        let round_trip_s = self.round_trip_s.unwrap_or(SILENCE.as_secs_f64() / OVERDUE);
        if self.fleet.waiting.load(Ordering::Relaxed) > 0 || self.fleet.names().len() < 2 {
            return;
        }
        let limit = Duration::from_secs_f64(OVERDUE * round_trip_s).max(COUNTED * 2);
        let late =
            |asked: &&mut Asked| !asked.again && asked.request.comparison.is_none() && asked.since.elapsed() > limit;
        for asked in self.asked.values_mut().filter(late) {
            asked.again = true;
            let _ = self.publish.send((asked.request.clone(), true));
        }
    }

    /// Who replied.
    fn worker(&mut self, reply: &Reply) -> Arc<Worker> {
        let new = || Worker { name: reply.worker.clone(), provenance: reply.provenance.clone() };
        Arc::clone(self.workers.entry(reply.worker.clone()).or_insert_with(|| Arc::new(new())))
    }

    /// What came of a request, and what is told beside it.
    fn outcomes(&mut self, reply: Reply, request: &Request) -> (Vec<Outcome>, Told) {
        let worker = self.worker(&reply);
        if let Some(us) = us_of(&reply) {
            self.answered.insert(reply.request.clone(), Some((Arc::clone(&worker), us)));
        }
        let cost = reply.cost_s.filter(|s| (0.0..1e6).contains(s)).map(Duration::from_secs_f64);
        let outcomes = reply.outcomes(request).unwrap_or_else(|cause| {
            let said = format!("the worker {} replied what cannot be: {cause}", worker.name);
            request.candidates.iter().map(|_| lost(said.clone())).collect()
        });
        (outcomes, (cost, Some(worker)))
    }

    /// Takes a reply, which has `bytes` bytes: to what was asked for, or to be looked up.
    fn take(&mut self, reply: Reply, bytes: usize) {
        let Some(asked) = self.asked.get_mut(&reply.request) else { return self.keep(reply, bytes) };
        // Who was not to be asked has nothing to say; and where two were asked, one that could not measure is not the last word.
        let spared = asked.again && !reply.is_of_configs() && !std::mem::replace(&mut asked.spared, true);
        if asked.request.not_by.contains(&reply.worker) || spared {
            return;
        }
        let Some(Asked { request, jobs, since, .. }) = self.asked.remove(&reply.request) else { return };
        self.redelivered += u64::from(reply.deliveries.saturating_sub(1));
        if request.comparison.is_some() {
            self.longest = self.longest.max(since.elapsed());
            self.compared.insert(reply.request.clone(), reply);
            return;
        }
        let took_s = since.elapsed().as_secs_f64();
        self.round_trip_s = Some(self.round_trip_s.map_or(took_s, |mean| mean + 0.05 * (took_s - mean)));
        let (outcomes, told) = self.outcomes(reply, &request);
        for (job, outcome) in jobs.into_iter().zip(outcomes.iter().cycle()) {
            self.ready.push_back((job, outcome.clone(), told.clone()));
        }
    }

    /// Keeps a reply that nobody waits for: it may be asked for later. A second reply to what was answered shows whether two workers
    /// agree.
    fn keep(&mut self, reply: Reply, bytes: usize) {
        if let Some(first) = self.answered.get_mut(&reply.request) {
            let us = us_of(&reply);
            // One second reply says what there is to say.
            if first.as_ref().is_some_and(|(first, _)| first.name != reply.worker)
                && let (Some((first, first_us)), Some(us)) = (first.take(), us)
            {
                let (worker, other) = (reply.worker, first.name.clone());
                self.repeated.push(Repeated { worker, other, ratio: us / first_us });
            }
            return;
        }
        // What says nothing of a config is no reason not to ask again; and nobody asks for another session's comparison.
        if !reply.is_of_configs() || reply.outcomes.len() != 1 || self.known.contains_key(&reply.request) {
            return;
        }
        self.kept += bytes;
        self.oldest.push_back(reply.request.clone());
        self.known.insert(reply.request.clone(), (reply, bytes));
        while self.kept > MOST_KEPT
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.kept -= self.known.remove(&oldest).map_or(0, |(_, bytes)| bytes);
        }
    }

    /// Fails the jobs of a request.
    fn fail(&mut self, jobs: Vec<JobId>, cause: &str) {
        self.ready.extend(jobs.into_iter().map(|job| (job, lost(cause.to_string()), (None, None))));
    }

    /// Fails the jobs of all requests.
    fn fail_all(&mut self, cause: &str) {
        for (_, asked) in std::mem::take(&mut self.asked) {
            self.fail(asked.jobs, cause);
        }
    }

    /// Waits for a message for at most `wait`. Fails all requests if no worker has been present for [`FIRST`].
    fn hear(&mut self, wait: Duration) {
        match self.said.recv_timeout(wait) {
            Ok(Said::Reply(reply, bytes)) => self.take(*reply, bytes),
            Ok(Said::Unreadable(id, cause)) => {
                let jobs = self.asked.remove(&id).map(|asked| asked.jobs).unwrap_or_default();
                self.fail(jobs, &cause);
            }
            Ok(_) => {}
            // The network's side has ended, and with it all that was asked.
            Err(RecvTimeoutError::Disconnected) => self.fail_all("the connection has ended"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        self.ask_again();
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
        self.fleet.names().len()
    }

    fn submit(&mut self, id: JobId, task: &Task<'r>, config: &Config) {
        match Request::new(&[(task, config)], &self.options, None) {
            Err(cause) => {
                let failure = Failure { kind: FailureKind::Refused, detail: cause };
                self.ready.push_back((id, Outcome::Failed(failure), (None, None)));
            }
            Ok(request) => match self.known.remove(&request.id()) {
                Some((reply, bytes)) => {
                    self.kept -= bytes;
                    let (outcomes, told) = self.outcomes(reply, &request);
                    self.ready.extend(outcomes.into_iter().map(|outcome| (id, outcome, told.clone())));
                }
                None => drop(self.ask(request, Some(id))),
            },
        }
    }

    fn next(&mut self, wait: Duration) -> Option<(JobId, Outcome)> {
        let until = Instant::now() + wait;
        loop {
            if let Some((id, outcome, told)) = self.ready.pop_front() {
                self.last = told;
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
        self.last.0
    }

    fn last_worker(&self) -> Option<Arc<Worker>> {
        self.last.1.clone()
    }

    fn repeated(&mut self) -> Vec<Repeated> {
        std::mem::take(&mut self.repeated)
    }

    fn standing(&self) -> Option<String> {
        let Workers { waiting, lost, unreadable, .. } = &*self.fleet;
        let [waiting, lost, unreadable] = [waiting, lost, unreadable].map(|n| n.load(Ordering::Relaxed));
        let mut text = format!("{} workers, {} asked for, {waiting} of them wait", self.workers(), self.asked.len());
        let more = [(self.redelivered, "given again"), (lost, "workers lost"), (unreadable, "unreadable")];
        for (number, what) in more.into_iter().filter(|(number, _)| *number > 0) {
            text += &format!(", {number} {what}");
        }
        Some(text)
    }

    fn compare(&mut self, candidates: &[(&Task<'r>, &Config)]) -> Vec<Outcome> {
        let contest = Contest { candidates: candidates.to_vec(), not_by: vec![] };
        match self.compare_all(&[contest], &mut || true).pop().flatten() {
            Some(judged) => judged.comparison.outcomes,
            None => vec![lost("no worker is there".to_string()); candidates.len()],
        }
    }

    fn compare_all(&mut self, all: &[Contest<'_, 'r>], goes_on: &mut dyn FnMut() -> bool) -> Vec<Option<Judged>> {
        let mut requests = vec![];
        for Contest { candidates, not_by } in all {
            self.comparisons += 1;
            let comparison = format!("{}-{}", self.name, self.comparisons);
            let request = Request::new(candidates, &self.options, Some(comparison));
            requests.push(request.map(|request| {
                let request = Request { not_by: not_by.clone(), ..request };
                (self.ask(request.clone(), None), request)
            }));
        }
        let open =
            |session: &Session| requests.iter().flatten().filter(|(name, _)| session.asked.contains_key(name)).count();
        let (mut before, mut since) = (open(self), Instant::now());
        while before > 0 && goes_on() {
            self.hear(Duration::from_millis(200));
            let now = open(self);
            if now < before {
                (before, since) = (now, Instant::now());
            }
            let names = self.fleet.names().clone();
            // Where nobody is left who may, nobody will; and so where those who may say nothing for far longer than ever.
            let silent = since.elapsed() > SILENCE.max(4 * self.longest);
            let able = |request: &Request| {
                request.not_by.is_empty() || !silent && names.iter().any(|n| !request.not_by.contains(n))
            };
            for (name, _) in requests.iter().flatten().filter(|(_, request)| !able(request)) {
                self.asked.remove(name);
            }
            before = before.min(open(self));
        }
        let judged = requests.into_iter().zip(all).map(|(request, contest)| match request {
            Err(cause) => {
                let refused = Outcome::Failed(Failure { kind: FailureKind::Refused, detail: cause });
                let outcomes = vec![refused; contest.candidates.len()];
                Some(Judged { comparison: Comparison { outcomes, peers: vec![] }, worker: None })
            }
            Ok((name, request)) => {
                // What was not done is waited for no more.
                self.asked.remove(&name);
                let (outcomes, (_, worker)) = self.compared.remove(&name).map(|r| self.outcomes(r, &request))?;
                Some(Judged { comparison: Comparison { outcomes, peers: vec![] }, worker })
            }
        });
        judged.collect()
    }
}
