//! How many workers one session keeps busy: a discrete-event simulation of a fleet.
//!
//! ```sh
//! cargo run --release -p kernel-gen-fleet --example simulate -- --svg docs/fleet-simulation.svg
//! ```
//!
//! One session, one NATS server and 1 to 1000 workers tune one spec. A trial takes this way:
//!
//! 1. A task's tuner proposes batches of 16 configs. At most 4 batches of a task are open. The oldest is closed when
//!    all of its trials are known, so one late trial can hold up its task (`feed.rs` of `kernel_gen::tune::session`).
//! 2. The session opens requests while the server and the workers hold fewer than a quarter more than the workers have
//!    places. It publishes many at once, and waits for the server's confirmation of each.
//! 3. The server gives the request to a worker that has a place free, each worker in turn.
//! 4. The worker builds it on one of its builders, then checks and times it on its device. Some trials fail at the
//!    build.
//! 5. The worker publishes the reply, then acknowledges the request. The session's thread takes the reply and writes
//!    the log.
//!
//! A worker dies without a word and comes back later. What it had not acknowledged is redelivered after the lease, and
//! the first reply counts. At the end the session compares the finalists of each workload, each comparison on one
//! worker and then on another one.
//!
//! Each queue is first come, first served. The server is one queue of messages. Only the steady state counts: the
//! simulation asks for trials for [`END_S`] seconds, and leaves out the first [`WARM_UP_S`].
//!
//! Left out: the size of messages; failures of the server and of the network; tuners that wait for outcomes; the
//! choice among tasks, which take turns here; builds of finalists. A slow worker builds and times slowly, and renews
//! its leases as others do.
//!
//! # Parameters
//!
//! All are in [`MEASURED`]. "Assumed" marks a figure without a measurement behind it.
//!
//! | parameter | unit | from |
//! |---|---|---|
//! | `build` | s a trial, log-normal | 1250 random trials of `specs/resnet50_f16.toml` on an H200: median 0.33 s with the device's time |
//! | `device` | s a trial, log-normal | a bound: 28 builders and one H200 made 54 trials a second |
//! | `fails_at_build` | share of trials | none of these 1250 failed |
//! | `builders`, `spare_places` | count a worker | those of that run; places are `2 * builders + 2` in all |
//! | `reply_s` | s of the session's thread a trial | `tests/fleet/load.rs` with `--tuner random`: 8600 trials a second on two cores |
//! | `batch_s` | s of a tuner a batch of 16 | the same with `--tuner auto`: 148 trials a second on two cores |
//! | `publishes_at_once` | requests that wait for a confirmation | `AT_A_TIME` in `src/session.rs` |
//! | `open_per_place`, `most_open` | requests a place of the workers; requests | `capacity` in `src/session.rs` |
//! | `request_messages`, `reply_messages` | messages a trial | counted in `src/session.rs` and `src/worker.rs` |
//! | `worker_messages_per_s` | messages a second a worker | counted in `src/worker.rs`: pulls, leases, progress |
//! | `server_per_s` | messages a second | a bound: those 8600 trials, with server, session and workers on the same two cores |
//! | `latency_s` | s one way | assumed: one data centre |
//! | `death_every_s`, `back_after_s` | s | assumed |
//! | `lease_s` | s | the default of `--lease` |
//! | `again_after_s` | s | `OVERDUE` in `src/session.rs` |
//! | `slow_share`, `slowness` | share of workers, factor | assumed |
//! | `workloads`, `candidates`, `candidate_s` | count, count, s | assumed: comparisons at the end |
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Write;

/// Simulated seconds before the session stops asking for trials.
const END_S: f64 = 300.0;

/// Simulated seconds that do not count: queues fill meanwhile.
const WARM_UP_S: f64 = 60.0;

/// Proposals of a batch, and open batches of a task: `MOST` and `AHEAD` of `kernel_gen::tune::session`.
const BATCH: usize = 16;
const AHEAD: usize = 4;

/// Requests that a session opens before it has counted its workers: `capacity` in `src/session.rs`.
const FEWEST_OPEN: usize = 4;

const SEED: u64 = 1;

const FLEETS: [usize; 11] = [1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000];

const SCENARIOS: [Scenario; 3] = [
    Scenario { name: "20 tasks, tuners on 16 threads", tasks: 20, tuner_threads: 16 },
    Scenario { name: "200 tasks, tuners on 16 threads", tasks: 200, tuner_threads: 16 },
    Scenario { name: "200 tasks, tuners on 128 threads", tasks: 200, tuner_threads: 128 },
];

/// The figures to replace by measured ones. The module's documentation has their units and sources.
const MEASURED: Measured = Measured {
    build: LogNormal { median_s: 0.31, sigma: 0.64 },
    device: LogNormal { median_s: 0.015, sigma: 0.5 },
    fails_at_build: 0.0,
    builders: 11,
    spare_places: 13,
    open_per_place: 1.25,
    most_open: 50_000,
    reply_s: 0.00012,
    batch_s: 0.2,
    publishes_at_once: 256,
    request_messages: 3.0,
    reply_messages: 5.0,
    worker_messages_per_s: 7.0,
    server_per_s: 69_000.0,
    latency_s: 0.0005,
    death_every_s: 6.0 * 3600.0,
    back_after_s: 60.0,
    lease_s: 30.0,
    again_after_s: 3.2,
    slow_share: 0.01,
    slowness: 10.0,
    workloads: 20,
    candidates: 6,
    candidate_s: 1.0,
};

#[derive(Clone, Debug)]
struct Measured {
    build: LogNormal,
    device: LogNormal,
    fails_at_build: f64,
    builders: usize,
    /// Places of a worker beyond its builders: requests that wait for a builder or for the device.
    spare_places: usize,
    open_per_place: f64,
    most_open: usize,
    reply_s: f64,
    batch_s: f64,
    publishes_at_once: usize,
    /// The request, its confirmation and its delivery.
    request_messages: f64,
    /// The reply, its confirmation, its delivery to the session, the acknowledgement and its confirmation.
    reply_messages: f64,
    /// 1 for pulls that end after 2 s, 4 for progress on 24 requests, 2 for the session's count of workers. All but
    /// progress remain where a worker is idle.
    worker_messages_per_s: f64,
    server_per_s: f64,
    latency_s: f64,
    death_every_s: f64,
    back_after_s: f64,
    lease_s: f64,
    /// A request without a reply for so long is given to another worker as well, if one has nothing to do: eight times what
    /// one takes.
    again_after_s: f64,
    slow_share: f64,
    slowness: f64,
    workloads: usize,
    candidates: usize,
    candidate_s: f64,
}

impl Measured {
    /// Requests that a worker holds at most.
    fn places(&self) -> usize {
        self.builders + self.spare_places
    }

    /// Trials a second that one worker can build.
    fn builds_per_s(&self) -> f64 {
        self.builders as f64 / self.build.mean_s()
    }

    /// Trials a second that one worker's device can time, with those that never get there.
    fn device_per_s(&self) -> f64 {
        1.0 / (self.device.mean_s() * (1.0 - self.fails_at_build))
    }

    /// Mean seconds from a request to its reply where nothing queues.
    fn round_trip_s(&self) -> f64 {
        let device_s = self.device.mean_s() * (1.0 - self.fails_at_build);
        self.build.mean_s() + device_s + 4.0 * self.latency_s + self.reply_s
    }
}

#[derive(Clone, Copy, Debug)]
struct LogNormal {
    median_s: f64,
    sigma: f64,
}

impl LogNormal {
    fn mean_s(&self) -> f64 {
        self.median_s * (self.sigma * self.sigma / 2.0).exp()
    }

    fn sample_s(&self, rng: &mut Rng) -> f64 {
        // Box and Muller, 1958.
        let (a, b) = (1.0 - rng.unit(), rng.unit());
        let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
        self.median_s * (self.sigma * normal).exp()
    }
}

#[derive(Clone, Copy, Debug)]
struct Scenario {
    name: &'static str,
    tasks: usize,
    /// Threads for tuners beside the session's. With 0 its own thread runs them.
    tuner_threads: usize,
}

impl Scenario {
    /// Trials a second that each resource allows by itself, the lowest first. That of tasks is an upper bound: a batch
    /// is as late as its last trial, and batches are closed in order.
    fn limits(&self, m: &Measured) -> Vec<(&'static str, f64)> {
        let batch_s = m.batch_s / BATCH as f64;
        let (own_s, beside_s) = if self.tuner_threads == 0 { (batch_s, 0.0) } else { (0.0, batch_s) };
        let messages = m.request_messages + m.reply_messages;
        let confirmation_s = 2.0 * m.latency_s + m.request_messages / m.server_per_s;
        let mut limits = vec![
            ("session", 1.0 / (m.reply_s + own_s)),
            ("tuners", self.tuner_threads as f64 / beside_s),
            ("publish", m.publishes_at_once as f64 / confirmation_s),
            ("server", m.server_per_s / (messages + m.worker_messages_per_s / m.builds_per_s().min(m.device_per_s()))),
            ("tasks", (self.tasks * AHEAD * BATCH) as f64 / m.round_trip_s()),
        ];
        limits.retain(|(_, per_s)| per_s.is_finite());
        limits.sort_by(|a, b| a.1.total_cmp(&b.1));
        limits
    }
}

/// SplitMix64, as `kernel_gen::stable::Rng`; a copy, so that this file compiles by itself.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uniform number in `[0, 1)`.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The time to the next event of a Poisson process, in seconds.
    fn exponential_s(&mut self, mean_s: f64) -> f64 {
        -mean_s * (1.0 - self.unit()).ln()
    }
}

/// Nanoseconds since the session began. Integers have an order, which times of events need.
type Time = u64;

fn ns(seconds: f64) -> Time {
    (seconds * 1e9).round() as Time
}

/// How much of a span counts, in seconds.
fn counted_s(from: Time, to: Time) -> f64 {
    to.min(ns(END_S)).saturating_sub(from.max(ns(WARM_UP_S))) as f64 / 1e9
}

fn counts(at: Time) -> bool {
    (ns(WARM_UP_S)..ns(END_S)).contains(&at)
}

/// A trial or a comparison, by its place in [`Simulation::requests`].
type Id = u32;

/// A worker in one of its lives: what was planned in an earlier life does not happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Life {
    worker: u32,
    number: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// The session's thread, or a tuner's, has a batch of a task.
    Proposed(u32),
    /// The server has confirmed a request.
    Confirmed,
    /// A request is in the server's queue.
    Queued(Id),
    Delivered(Life, Id),
    Built(Life, Id),
    Timed(Life, Id),
    Acknowledged(Life, Id),
    ReplyArrived(Id),
    ReplyTaken(Id),
    /// A worker pulls, renews its lease and says that it is at work.
    Chores(u32),
    Died(Life),
    LeaseEnded(u32),
    CameBack(u32),
    /// A request has been open for long.
    Overdue(Id),
    /// No more trials.
    Ending,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Trial {
        task: u32,
        batch: u32,
    },
    Comparison {
        /// The worker that made the first of the two.
        first_on: Option<u32>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Request {
    kind: Kind,
    build_s: f32,
    /// `None` where the build fails.
    device_s: Option<f32>,
    is_begun: bool,
    /// The worker that replied.
    sent_by: Option<u32>,
    is_known: bool,
}

/// A task's open batches, with the number of trials of each that are not known.
#[derive(Default)]
struct Task {
    open: VecDeque<usize>,
    /// The number of the first open batch.
    first: u32,
    is_proposing: bool,
    is_listed: bool,
}

impl Task {
    /// Closes the oldest batch if that is what the task waits for.
    fn close(&mut self) {
        while self.open.len() == AHEAD && self.open.front() == Some(&0) {
            self.open.pop_front();
            self.first += 1;
        }
    }
}

#[derive(Default)]
struct Session {
    tasks: Vec<Task>,
    /// Tasks that may propose, in turn.
    able: VecDeque<u32>,
    /// Proposals that wait for a place.
    proposals: VecDeque<Id>,
    /// Requests without a reply that was taken.
    open: usize,
    replies: VecDeque<Id>,
    is_busy: bool,
    tuners_busy: usize,
    /// Requests that wait for their turn to be published, and when those were sent that wait for a confirmation.
    unpublished: VecDeque<Id>,
    unconfirmed: VecDeque<Time>,
    /// Since when places have been free and all tasks full.
    full_since: Option<Time>,
    is_ending: bool,
    comparisons_left: usize,
}

#[derive(Default)]
struct Server {
    free_at: Time,
    queue: VecDeque<Id>,
    /// Workers with a pull that waits, in turn.
    pulling: VecDeque<u32>,
}

#[derive(Default)]
struct Worker {
    life: u32,
    is_alive: bool,
    slowness: f64,
    is_pulling: bool,
    /// Requests that it has not acknowledged; and those of a life before, until the lease ends.
    taken: Vec<Id>,
    lost: Vec<Id>,
    to_build: VecDeque<Id>,
    /// Since when each idle builder has been idle.
    idle: VecDeque<Time>,
    to_time: VecDeque<Id>,
    device_is_busy: bool,
}

/// Sums over the time that counts; seconds unless said otherwise.
#[derive(Clone, PartialEq, Default, Debug)]
struct Tally {
    trials: u64,
    session_s: f64,
    tuners_s: f64,
    publish_s: f64,
    server_s: f64,
    builders_s: f64,
    devices_s: f64,
    full_s: f64,
    redelivered: u64,
    /// Trials that a death interrupted, and replies that came second.
    wasted: u64,
    waits_s: Vec<f32>,
    /// What the comparisons took, from the first request to the last reply.
    comparisons_s: f64,
}

struct Simulation<'m> {
    m: &'m Measured,
    tuner_threads: usize,
    rng: Rng,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    /// Makes events of one time come in the order in which they were planned.
    sequence: u64,
    requests: Vec<Request>,
    session: Session,
    server: Server,
    workers: Vec<Worker>,
    /// Workers whose lease has not ended: those that the session counts.
    present: usize,
    tally: Tally,
    /// When the comparisons began.
    comparing_since: Option<Time>,
}

impl<'m> Simulation<'m> {
    fn new(m: &'m Measured, scenario: &Scenario, workers: usize, seed: u64) -> Simulation<'m> {
        let mut simulation = Simulation {
            m,
            tuner_threads: scenario.tuner_threads,
            rng: Rng(seed),
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            requests: vec![],
            session: Session::default(),
            server: Server::default(),
            workers: vec![],
            present: workers,
            tally: Tally::default(),
            comparing_since: None,
        };
        let slow = (workers as f64 * m.slow_share).round() as usize;
        for at in 0..workers {
            let slowness = if at >= workers - slow { m.slowness } else { 1.0 };
            simulation.workers.push(Worker { slowness, ..Worker::default() });
            simulation.begin_life(at as u32);
            // Spread over a second, as workers that were started by hand are.
            simulation.after(at as f64 / workers as f64, Event::Chores(at as u32));
        }
        simulation.session.tasks = (0..scenario.tasks).map(|_| Task::default()).collect();
        (0..scenario.tasks as u32).for_each(|task| simulation.list(task));
        simulation.after(END_S, Event::Ending);
        simulation
    }

    fn run(mut self) -> Tally {
        self.act();
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            self.now = time;
            if self.happens(event) {
                break;
            }
        }
        self.tally
    }

    fn after(&mut self, seconds: f64, event: Event) {
        self.at(self.now + ns(seconds), event);
    }

    fn at(&mut self, time: Time, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    /// Changes the state as an event does. Says whether all is over.
    fn happens(&mut self, event: Event) -> bool {
        match event {
            Event::Proposed(task) => self.proposed(task),
            Event::Confirmed => {
                let sent = self.session.unconfirmed.pop_front().unwrap_or(self.now);
                self.tally.publish_s += counted_s(sent, self.now);
                self.publish();
            }
            Event::Queued(id) => {
                self.server.queue.push_back(id);
                self.deliver();
            }
            Event::Delivered(life, id) if self.lives(life) => self.delivered(life.worker, id),
            Event::Built(life, id) if self.lives(life) => self.built(life, id),
            Event::Timed(life, id) if self.lives(life) => {
                self.workers[life.worker as usize].device_is_busy = false;
                self.reply(life, id);
                self.start_device(life.worker);
            }
            Event::Acknowledged(life, id) if self.lives(life) => {
                self.workers[life.worker as usize].taken.retain(|taken| *taken != id);
                self.pull(life.worker);
            }
            Event::ReplyArrived(id) => {
                self.session.replies.push_back(id);
                self.act();
            }
            Event::ReplyTaken(id) => return self.reply_taken(id),
            Event::Chores(worker) => {
                if self.workers[worker as usize].is_alive {
                    self.serve(self.m.worker_messages_per_s);
                }
                self.after(1.0, Event::Chores(worker));
            }
            Event::Died(life) if self.lives(life) => self.died(life.worker),
            Event::LeaseEnded(worker) => self.lease_ended(worker),
            Event::CameBack(worker) => {
                self.present += 1;
                self.begin_life(worker);
                self.act();
            }
            Event::Overdue(id) => {
                // As long as others wait, or replies do, a worker that is slow is not the reason.
                if !self.requests[id as usize].is_known
                    && self.server.queue.is_empty()
                    && self.session.replies.is_empty()
                {
                    self.session.unpublished.push_back(id);
                    self.publish();
                }
            }
            Event::Ending => {
                self.session.is_ending = true;
                self.session.proposals.clear();
                self.act();
            }
            Event::Delivered(..) | Event::Built(..) | Event::Timed(..) | Event::Acknowledged(..) | Event::Died(..) => {}
        }
        false
    }

    fn lives(&self, life: Life) -> bool {
        let worker = &self.workers[life.worker as usize];
        worker.is_alive && worker.life == life.number
    }
}

/// The session.
impl Simulation<'_> {
    /// Requests that the session wants to have open.
    fn most_open(&self) -> usize {
        let places = (self.present * self.m.places()) as f64;
        ((places * self.m.open_per_place) as usize).clamp(FEWEST_OPEN, self.m.most_open)
    }

    /// Lets a task propose when its turn comes, if it may.
    fn list(&mut self, at: u32) {
        let task = &mut self.session.tasks[at as usize];
        if !task.is_listed && !task.is_proposing && task.open.len() < AHEAD {
            task.is_listed = true;
            self.session.able.push_back(at);
        }
    }

    /// Whether the session lacks proposals. Tuners beside it work one batch a thread ahead.
    fn wants_batch(&self) -> bool {
        let session = &self.session;
        let coming = session.open + session.proposals.len() + session.tuners_busy * BATCH;
        !session.is_ending && coming < self.most_open() + self.tuner_threads * BATCH
    }

    /// All that the session can do now. As in `search`, proposals come before replies.
    fn act(&mut self) {
        while self.session.tuners_busy < self.tuner_threads && self.wants_batch() && self.begin_batch() {
            self.session.tuners_busy += 1;
            self.tally.tuners_s += counted_s(self.now, self.now + ns(self.m.batch_s));
        }
        if !self.session.is_busy {
            self.ask();
            if self.session.is_ending && self.session.open == 0 && self.comparing_since.is_none() {
                self.begin_comparisons();
            }
            let is_tuner = self.tuner_threads == 0 && self.session.proposals.is_empty();
            if is_tuner && self.wants_batch() && self.begin_batch() {
                self.keep_busy(self.m.batch_s);
            } else if let Some(id) = self.session.replies.pop_front() {
                self.keep_busy(self.m.reply_s);
                self.after(self.m.reply_s, Event::ReplyTaken(id));
            }
        }
        let session = &mut self.session;
        let idle = session.able.is_empty() && session.tuners_busy == 0 && session.proposals.is_empty();
        let are_full = self.wants_batch() && idle;
        match self.session.full_since {
            None if are_full => self.session.full_since = Some(self.now),
            Some(since) if !are_full => {
                self.tally.full_s += counted_s(since, self.now);
                self.session.full_since = None;
            }
            _ => {}
        }
    }

    fn keep_busy(&mut self, seconds: f64) {
        self.session.is_busy = true;
        self.tally.session_s += counted_s(self.now, self.now + ns(seconds));
    }

    /// Begins a batch of the next task that may propose, if there is one.
    fn begin_batch(&mut self) -> bool {
        let Some(at) = self.session.able.pop_front() else { return false };
        let task = &mut self.session.tasks[at as usize];
        (task.is_listed, task.is_proposing) = (false, true);
        task.open.push_back(BATCH);
        self.after(self.m.batch_s, Event::Proposed(at));
        true
    }

    fn proposed(&mut self, at: u32) {
        match self.tuner_threads {
            0 => self.session.is_busy = false,
            _ => self.session.tuners_busy -= 1,
        }
        let task = &mut self.session.tasks[at as usize];
        task.is_proposing = false;
        let batch = task.first + task.open.len() as u32 - 1;
        task.close();
        self.list(at);
        if !self.session.is_ending {
            for _ in 0..BATCH {
                let build_s = self.m.build.sample_s(&mut self.rng) as f32;
                let device_s = self.m.device.sample_s(&mut self.rng) as f32;
                let device_s = (self.rng.unit() >= self.m.fails_at_build).then_some(device_s);
                let id = self.request(Kind::Trial { task: at, batch }, build_s, device_s);
                self.session.proposals.push_back(id);
            }
        }
        self.act();
    }

    fn request(&mut self, kind: Kind, build_s: f32, device_s: Option<f32>) -> Id {
        self.requests.push(Request { kind, build_s, device_s, is_begun: false, sent_by: None, is_known: false });
        self.requests.len() as Id - 1
    }

    /// Asks for proposals while there are places.
    fn ask(&mut self) {
        while self.session.open < self.most_open() {
            let Some(id) = self.session.proposals.pop_front() else { break };
            self.open(id);
        }
    }

    fn open(&mut self, id: Id) {
        self.session.open += 1;
        self.session.unpublished.push_back(id);
        self.after(self.m.again_after_s, Event::Overdue(id));
        self.publish();
    }

    /// Publishes while not too many confirmations are awaited.
    fn publish(&mut self) {
        while self.session.unconfirmed.len() < self.m.publishes_at_once {
            let Some(id) = self.session.unpublished.pop_front() else { break };
            self.session.unconfirmed.push_back(self.now);
            let done = self.serve(self.m.request_messages);
            self.at(done + ns(self.m.latency_s), Event::Queued(id));
            self.at(done + ns(2.0 * self.m.latency_s), Event::Confirmed);
        }
    }

    /// Takes a reply. Says whether it was the last of all.
    fn reply_taken(&mut self, id: Id) -> bool {
        self.session.is_busy = false;
        let request = self.requests[id as usize];
        self.requests[id as usize].is_known = true;
        if request.is_known {
            self.tally.wasted += u64::from(counts(self.now));
            self.act();
            return false;
        }
        self.session.open -= 1;
        match request.kind {
            Kind::Trial { task: at, batch } => {
                self.tally.trials += u64::from(counts(self.now));
                let task = &mut self.session.tasks[at as usize];
                task.open[(batch - task.first) as usize] -= 1;
                task.close();
                self.list(at);
            }
            Kind::Comparison { first_on } => {
                if first_on.is_none() {
                    self.compare(request.sent_by);
                }
                self.session.comparisons_left -= 1;
                let since = self.comparing_since.unwrap_or(self.now);
                self.tally.comparisons_s = (self.now - since) as f64 / 1e9;
                if self.session.comparisons_left == 0 {
                    return true;
                }
            }
        }
        self.act();
        false
    }

    /// Asks for the first comparison of each workload. The second follows the first.
    fn begin_comparisons(&mut self) {
        self.comparing_since = Some(self.now);
        self.session.comparisons_left = 2 * self.m.workloads;
        for _ in 0..self.m.workloads {
            self.compare(None);
        }
    }

    fn compare(&mut self, first_on: Option<u32>) {
        let device_s = self.m.candidates as f64 * self.m.candidate_s;
        let id = self.request(Kind::Comparison { first_on }, 0.0, Some(device_s as f32));
        self.open(id);
    }
}

/// The server.
impl Simulation<'_> {
    /// Lets messages pass, and says when they have.
    fn serve(&mut self, messages: f64) -> Time {
        let from = self.server.free_at.max(self.now);
        let to = from + ns(messages / self.m.server_per_s);
        self.tally.server_s += counted_s(from, to);
        self.server.free_at = to;
        to
    }

    /// A worker with a free place pulls.
    fn pull(&mut self, at: u32) {
        let places = self.m.places();
        let worker = &mut self.workers[at as usize];
        if worker.is_alive && !worker.is_pulling && worker.taken.len() < places {
            worker.is_pulling = true;
            self.server.pulling.push_back(at);
            self.deliver();
        }
    }

    /// Gives requests to workers that pull, each worker in turn.
    fn deliver(&mut self) {
        while let Some(&id) = self.server.queue.front() {
            let Some(mut at) = self.server.pulling.pop_front() else { break };
            if let Kind::Comparison { first_on: Some(first) } = self.requests[id as usize].kind
                && first == at
                && let Some(other) = self.server.pulling.pop_front()
            {
                self.server.pulling.push_back(at);
                at = other;
            }
            let worker = &mut self.workers[at as usize];
            worker.is_pulling = false;
            if !worker.is_alive {
                continue;
            }
            self.server.queue.pop_front();
            worker.taken.push(id);
            let life = Life { worker: at, number: worker.life };
            self.after(self.m.latency_s, Event::Delivered(life, id));
            self.pull(at);
        }
    }
}

/// Workers.
impl Simulation<'_> {
    fn begin_life(&mut self, at: u32) {
        let builders = self.m.builders;
        let worker = &mut self.workers[at as usize];
        (worker.is_alive, worker.life) = (true, worker.life + 1);
        worker.idle = std::iter::repeat_n(self.now, builders).collect();
        let life = Life { worker: at, number: worker.life };
        let lives_s = self.rng.exponential_s(self.m.death_every_s);
        self.after(lives_s, Event::Died(life));
        self.pull(at);
    }

    fn died(&mut self, at: u32) {
        let worker = &mut self.workers[at as usize];
        worker.is_alive = false;
        worker.device_is_busy = false;
        worker.to_build.clear();
        worker.to_time.clear();
        let requests = &self.requests;
        let interrupted = |id: &&Id| requests[**id as usize].is_begun && requests[**id as usize].sent_by.is_none();
        if counts(self.now) {
            self.tally.wasted += worker.taken.iter().filter(interrupted).count() as u64;
        }
        worker.lost.append(&mut worker.taken);
        self.after(self.m.lease_s, Event::LeaseEnded(at));
        self.after(self.m.back_after_s, Event::CameBack(at));
    }

    fn lease_ended(&mut self, at: u32) {
        self.present -= 1;
        for id in std::mem::take(&mut self.workers[at as usize].lost) {
            self.tally.redelivered += u64::from(counts(self.now));
            self.requests[id as usize].is_begun = false;
            self.server.queue.push_front(id);
        }
        self.deliver();
    }

    fn delivered(&mut self, at: u32, id: Id) {
        let worker = &mut self.workers[at as usize];
        // The candidates of a comparison are built.
        match self.requests[id as usize].kind {
            Kind::Trial { .. } => worker.to_build.push_back(id),
            Kind::Comparison { .. } => worker.to_time.push_back(id),
        }
        self.start_builders(at);
        self.start_device(at);
    }

    fn start_builders(&mut self, at: u32) {
        loop {
            let worker = &mut self.workers[at as usize];
            let (Some(&id), Some(&since)) = (worker.to_build.front(), worker.idle.front()) else { break };
            worker.to_build.pop_front();
            worker.idle.pop_front();
            let request = &mut self.requests[id as usize];
            request.is_begun = true;
            let build_s = f64::from(request.build_s) * worker.slowness;
            let life = Life { worker: at, number: worker.life };
            self.tally.builders_s += counted_s(self.now, self.now + ns(build_s));
            if counts(self.now) {
                self.tally.waits_s.push((self.now - since) as f32 / 1e9);
            }
            self.after(build_s, Event::Built(life, id));
        }
    }

    fn built(&mut self, life: Life, id: Id) {
        let worker = &mut self.workers[life.worker as usize];
        worker.idle.push_back(self.now);
        if self.requests[id as usize].device_s.is_some() {
            worker.to_time.push_back(id);
            self.start_device(life.worker);
        } else {
            self.reply(life, id);
        }
        self.start_builders(life.worker);
    }

    fn start_device(&mut self, at: u32) {
        let worker = &mut self.workers[at as usize];
        if worker.device_is_busy {
            return;
        }
        let Some(id) = worker.to_time.pop_front() else { return };
        worker.device_is_busy = true;
        let device_s = f64::from(self.requests[id as usize].device_s.unwrap_or_default()) * worker.slowness;
        let life = Life { worker: at, number: worker.life };
        self.tally.devices_s += counted_s(self.now, self.now + ns(device_s));
        self.after(device_s, Event::Timed(life, id));
    }

    /// Publishes a reply, and acknowledges the request when the reply is confirmed.
    fn reply(&mut self, life: Life, id: Id) {
        let done = self.serve(self.m.reply_messages);
        self.requests[id as usize].sent_by = Some(life.worker);
        self.at(done + ns(2.0 * self.m.latency_s), Event::ReplyArrived(id));
        self.at(done + ns(3.0 * self.m.latency_s), Event::Acknowledged(life, id));
    }
}

/// What a fleet did, as the table shows it. Uses are shares of the time that counts.
struct Row {
    workers: usize,
    trials_per_s: f64,
    messages_per_s: f64,
    /// Name and use of each resource, in the order of the table.
    uses: [(&'static str, f64); 6],
    full: f64,
    wait_s: f64,
    redelivered: u64,
    wasted: u64,
    comparisons_s: f64,
}

impl Row {
    fn of(m: &Measured, scenario: &Scenario, workers: usize) -> Row {
        let mut tally = Simulation::new(m, scenario, workers, SEED).run();
        let counted_s = END_S - WARM_UP_S;
        let share = |busy_s: f64, of: usize| busy_s / (of.max(1) as f64 * counted_s);
        let median = tally.waits_s.len() / 2;
        let wait_s = match tally.waits_s.is_empty() {
            true => f64::NAN,
            false => f64::from(*tally.waits_s.select_nth_unstable_by(median, f32::total_cmp).1),
        };
        Row {
            workers,
            trials_per_s: tally.trials as f64 / counted_s,
            messages_per_s: tally.server_s * m.server_per_s / counted_s,
            uses: [
                ("session", share(tally.session_s, 1)),
                ("tuners", share(tally.tuners_s, scenario.tuner_threads)),
                ("publish", share(tally.publish_s, m.publishes_at_once)),
                ("server", share(tally.server_s, 1)),
                ("builders", share(tally.builders_s, workers * m.builders)),
                ("devices", share(tally.devices_s, workers)),
            ],
            full: share(tally.full_s, 1),
            wait_s,
            redelivered: tally.redelivered,
            wasted: tally.wasted,
            comparisons_s: tally.comparisons_s,
        }
    }

    /// The resource that limits. A queue in one place fills others as well: publishing is busy where the server is, and
    /// tasks are full wherever replies wait. So publishing loses ties, and tasks are named only where nothing is busy.
    fn busiest(&self) -> &'static str {
        let rank = |(name, used): (&'static str, f64)| ((100.0 * used).round() as u64, name != "publish", name);
        let (percent, _, name) = self.uses.into_iter().map(rank).max().unwrap_or_default();
        if percent < 90 && self.full > 0.5 { "tasks" } else { name }
    }
}

/// Checks the simulation against itself and against two bounds that are known.
fn check_itself() {
    let [few, many, beside] = &SCENARIOS;
    let twice = [(); 2].map(|()| Simulation::new(&MEASURED, few, 8, SEED).run());
    assert!(twice[0] == twice[1], "one seed, two results");

    let per_s = |m: &Measured, scenario: &Scenario, workers| Row::of(m, scenario, workers).trials_per_s;
    let near = |got: f64, expected: f64, what: &str| {
        assert!((got / expected - 1.0).abs() < 0.1, "{what}: {got:.1} trials/s, expected {expected:.1}");
    };
    let free = Measured { death_every_s: f64::INFINITY, slow_share: 0.0, reply_s: 0.0, batch_s: 0.0, ..MEASURED };
    near(per_s(&free, many, 1), free.builds_per_s().min(free.device_per_s()), "one worker");
    let slow = Measured { reply_s: 0.05, ..free.clone() };
    near(per_s(&slow, beside, 8), 1.0 / slow.reply_s, "a slow session");
    let busy = Measured { server_per_s: 1000.0, ..free };
    let messages_left = busy.server_per_s - 4.0 * busy.worker_messages_per_s;
    near(per_s(&busy, many, 4), messages_left / (busy.request_messages + busy.reply_messages), "a slow server");
}

fn table(m: &Measured, scenario: &Scenario, rows: &[Row]) -> String {
    let mut out = format!("## {}\n\nLimits in trials/s, each by itself:", scenario.name);
    let one = m.builds_per_s().min(m.device_per_s());
    for (name, per_s) in scenario.limits(m) {
        let _ = write!(out, " {name} {per_s:.0} ({:.1} workers);", per_s / one);
    }
    let _ = writeln!(out, " one worker {one:.1}.\n");
    out += "| workers | trials/s | speed-up | session % | tuners % | publish % | messages/s | server % | builders % \
            | devices % | tasks full % | wait ms | redelivered | wasted | end s | busiest |\n|";
    out += &"--:|".repeat(15);
    out += "---|\n";
    let first = rows.first().map_or(f64::NAN, |row| row.trials_per_s);
    for row in rows {
        let [session, tuners, publish, server, builders, devices] = row.uses.map(|(_, share)| 100.0 * share);
        let _ = writeln!(
            out,
            "| {} | {:.1} | {:.1} | {session:.0} | {tuners:.0} | {publish:.0} | {:.0} | {server:.1} | {builders:.0} \
             | {devices:.0} | {:.0} | {:.0} | {} | {} | {:.0} | {} |",
            row.workers,
            row.trials_per_s,
            row.trials_per_s / first,
            row.messages_per_s,
            100.0 * row.full,
            1000.0 * row.wait_s,
            row.redelivered,
            row.wasted,
            row.comparisons_s,
            row.busiest()
        );
    }
    let limited = rows.iter().find(|row| !["builders", "devices"].contains(&row.busiest()));
    let _ = match limited {
        Some(row) => writeln!(out, "\nSaturates first: {}, seen from {} workers on.", row.busiest(), row.workers),
        None => writeln!(out, "\nNothing but the workers saturates."),
    };
    out
}

/// Workers against trials a second, both logarithmic.
fn plot(curves: &[(&str, Vec<Row>)]) -> String {
    /// Middle greys and colours that are read on white and on black.
    const GREY: &str = "#808080";
    const COLOURS: [&str; 3] = ["#3b82d0", "#d9822b", "#2f9e6e"];
    /// Dashes and radii tell curves apart where one covers another.
    const DASHES: [&str; 3] = ["none", "6 4", "none"];
    const RADII: [f64; 3] = [5.0, 3.0, 4.0];
    const LEFT: f64 = 70.0;
    const RIGHT: f64 = 620.0;
    const TOP: f64 = 20.0;
    const BOTTOM: f64 = 370.0;

    let rows = || curves.iter().flat_map(|(_, rows)| rows);
    let one = curves.first().and_then(|(_, rows)| rows.first()).map_or(1.0, |row| row.trials_per_s);
    let most = rows().map(|row| row.workers).max().unwrap_or(1).max(2) as f64;
    let lowest = rows().map(|row| row.trials_per_s).fold(one, f64::min).log10().floor();
    let highest = rows().map(|row| row.trials_per_s).fold(one * most, f64::max).log10().ceil();
    let x = |workers: f64| LEFT + (RIGHT - LEFT) * workers.ln() / most.ln();
    let y = |per_s: f64| BOTTOM - (BOTTOM - TOP) * (per_s.log10() - lowest) / (highest - lowest);

    let mut out = String::from("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 430\" role=\"img\" ");
    out += "font-family=\"sans-serif\" font-size=\"12\">\n<title>Workers and trials a second, simulated</title>\n";
    let _ = writeln!(out, "<g fill=\"{GREY}\" stroke=\"none\">");
    let grid = |out: &mut String, from: (f64, f64), to: (f64, f64)| {
        let ((x1, y1), (x2, y2)) = (from, to);
        let line = format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"");
        let _ = writeln!(out, "{line} stroke=\"{GREY}\" stroke-opacity=\"0.3\"/>");
    };
    for power in lowest as i32..=highest as i32 {
        let (value, at) = (10f64.powi(power), y(10f64.powi(power)));
        grid(&mut out, (LEFT, at), (RIGHT, at));
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>", LEFT - 8.0, at + 4.0);
    }
    for workers in curves.first().into_iter().flat_map(|(_, rows)| rows).map(|row| row.workers) {
        let at = x(workers as f64);
        grid(&mut out, (at, TOP), (at, BOTTOM));
        let label = BOTTOM + 18.0;
        let _ = writeln!(out, "<text x=\"{at:.1}\" y=\"{label:.1}\" text-anchor=\"middle\">{workers}</text>");
    }
    let (centre, middle) = ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0);
    let _ = writeln!(out, "<text x=\"{centre:.1}\" y=\"{:.1}\" text-anchor=\"middle\">workers</text>", BOTTOM + 42.0);
    let turned = format!("transform=\"rotate(-90 16 {middle:.1})\" text-anchor=\"middle\"");
    let _ = writeln!(out, "<text x=\"16\" y=\"{middle:.1}\" {turned}>trials/s</text>\n</g>");

    let mut line = |points: &[(f64, f64)], colour: &str, dash: &str, radius: f64, at: usize, name: &str| {
        let points: Vec<(f64, f64)> = points.iter().map(|(workers, per_s)| (x(*workers), y(*per_s))).collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let style = format!("stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"");
        let _ = writeln!(out, "<polyline points=\"{}\" fill=\"none\" {style}/>", path.join(" "));
        for (x, y) in points.iter().filter(|_| radius > 0.0) {
            let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"/>");
        }
        let (left, top) = (LEFT + 14.0, TOP + 16.0 + 20.0 * at as f64);
        let _ = writeln!(out, "<line x1=\"{left}\" y1=\"{top}\" x2=\"{}\" y2=\"{top}\" {style}/>", left + 30.0);
        let _ = writeln!(out, "<text x=\"{}\" y=\"{}\" fill=\"{GREY}\">{name}</text>", left + 38.0, top + 4.0);
    };
    line(&[(1.0, one), (most, one * most)], GREY, "3 4", 0.0, 0, "ideal: workers times the rate of one");
    for (at, (name, rows)) in curves.iter().enumerate() {
        let points: Vec<(f64, f64)> = rows.iter().map(|row| (row.workers as f64, row.trials_per_s)).collect();
        let look = at % COLOURS.len();
        line(&points, COLOURS[look], DASHES[look], RADII[look], at + 1, name);
    }
    out + "</svg>\n"
}

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let file = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => None,
        ["--svg", file] => Some(file.to_string()),
        _ => return Err("usage: simulate [--svg FILE]".to_string()),
    };
    check_itself();
    let mut curves = vec![];
    for scenario in &SCENARIOS {
        let rows: Vec<Row> = FLEETS.iter().map(|workers| Row::of(&MEASURED, scenario, *workers)).collect();
        println!("{}", table(&MEASURED, scenario, &rows));
        curves.push((scenario.name, rows));
    }
    match file {
        Some(file) => std::fs::write(&file, plot(&curves)).map_err(|cause| format!("{file}: {cause}")),
        None => Ok(()),
    }
}
