//! A small thread pool for fork-join with low latency.
//!
//! A launch gives every pool thread the same body and waits for all of them; the caller takes part as worker 0.
//! Idle threads watch for the next launch for some microseconds, since the next kernel of a network follows at once, and
//! then sleep. A part whose thread has not begun with it when the caller is through with its own, because it still
//! wakes or has lost its core, is run by the caller: a launch never waits for a thread that does nothing for it. One
//! launch uses the threads at a time: a launch that finds them busy (from another thread, or from inside a body) runs all
//! its workers on the calling thread, which needs no waiting and cannot deadlock.
//!
//! # What is shared, and why it is ordered
//!
//! A launch is known by a *word*: its number, which only grows, and how many workers it has. A thread's `claimed` is the
//! newest launch whose part of this thread has been taken, by the thread or by the caller, and `done` the newest that
//! the thread has finished.
//!
//! - `word` is stored after `job` and loaded before it, with release and acquire: who sees the word sees the job, and all
//!   that the caller wrote before the launch.
//! - `claimed` only grows, in one read-modify-write, so of a thread and a caller that both want a part exactly one gets it.
//!   No data comes with it, so it is relaxed. Who holds the part of a launch keeps the launch from returning, so `job` is still
//!   the one of that launch.
//! - `done` is stored with release and loaded with acquire: the caller sees what the body wrote.
//! - `asleep` against `word`, and `waiting` against `done`: each side stores its own and then loads the other's, all
//!   four sequentially consistent, so at least one of the two sees the other's store. Either the sleeper sees that there
//!   is no reason to sleep, or the other side sees that it must wake it.
//!
//! What different threads write lies on different pairs of cache lines (processors fetch lines in pairs). A launch that
//! finds its threads awake moves three lines from one core to the other and back.

use crate::executor::Executor;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long an idle thread watches for the next launch before it sleeps. Waking it takes a quarter of that.
const IDLE: Duration = Duration::from_micros(100);
/// For how much of that the thread does not offer its core to others, where every worker can have one. From then on each
/// look at the clock offers it, which costs a fraction of a microsecond if nobody wants it.
const IDLE_ALONE: Duration = Duration::from_micros(20);
/// How long a caller watches for its last thread before it sleeps. Workers have equal parts, so that is short unless a
/// thread has lost its core.
const JOIN: Duration = Duration::from_millis(2);
/// For how much of that the caller does not offer its core.
const JOIN_ALONE: Duration = Duration::from_micros(250);
/// Looks between two looks at the clock: about a microsecond.
const LOOKS: u32 = 32;

/// The bits of a word that hold the number of workers.
const WORKER_BITS: u32 = 16;
/// In the place of the number of workers: the threads are to end.
const STOP: u64 = (1 << WORKER_BITS) - 1;

/// How many workers a word's launch has.
fn workers_of(word: u64) -> u64 {
    word & STOP
}

/// What the workers of a launch run; lives on the launching thread's stack.
struct Job<'a> {
    body: &'a (dyn Fn(usize) + Sync),
}

/// A value on cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Lines<T>(T);

/// What a launch writes and all threads read.
#[derive(Default)]
struct Post {
    word: AtomicU64,
    job: AtomicPtr<Job<'static>>,
}

/// What a thread writes and the caller reads.
#[derive(Default)]
struct Slot {
    /// The word of the newest launch that the thread has finished its part of.
    done: AtomicU64,
    /// Whether the thread sleeps, or is about to.
    asleep: AtomicBool,
    /// The word of the newest launch whose part of this thread has been taken. The caller looks at it only when it has
    /// nothing else to do, so it is on lines of its own: taking a part is cheap.
    claimed: Lines<AtomicU64>,
}

impl Slot {
    /// Looks for a moment whether the thread has finished its part of a launch. One that is at work on it needs not be asked
    /// for it then.
    fn finishes(&self, word: u64) -> bool {
        (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            self.done.load(Ordering::Relaxed) == word
        })
    }

    /// Takes the part of a launch; false if it has been taken.
    fn claim(&self, word: u64) -> bool {
        let older = |claimed: u64| (claimed < word).then_some(word);
        self.claimed.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, older).is_ok()
    }
}

/// What launching threads write.
#[derive(Default)]
struct Launches {
    /// Set while a launch uses the threads.
    busy: AtomicBool,
    /// Whether the launching thread sleeps until its threads are done, and which it is.
    waiting: AtomicBool,
    waiter: Mutex<Option<Thread>>,
    /// Whether a pool thread's part of the current launch has panicked, and the first payload.
    panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

struct Shared {
    post: Lines<Post>,
    launches: Lines<Launches>,
    slots: Box<[Lines<Slot>]>,
    /// Whether every worker can have a core.
    alone: bool,
}

/// Threads that wait for launches. Dropping it ends them.
///
/// A process that is forked has a copy of the pool and none of its threads. There a launch finds no thread that takes its
/// part, so the caller runs all; what needs the threads themselves compares the number of the process.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The process that has the threads.
    process: u32,
}

/// The most workers of a pool: more than any program gains by, and far fewer threads than a system runs out of. Beyond
/// that a new thread may find no memory for what it needs before its first line, and end the whole process.
pub(crate) fn most_workers() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (16 * cores).clamp(512, STOP as usize - 1)
}

impl Pool {
    /// A pool for `workers` workers: one thread less, since the caller is one. It is smaller where that is more than
    /// [`most_workers`], and if the system gives fewer threads.
    pub(crate) fn new(workers: usize) -> Pool {
        let workers = workers.min(most_workers());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            post: Lines::default(),
            launches: Lines::default(),
            slots: (1..workers).map(|_| Lines::default()).collect(),
            // With more workers than cores, a watching thread takes time from a working one, so it offers its core at once.
            // Where this thread may use fewer cores just now than the workers will, that still costs little.
            alone: workers <= cores,
        });
        let threads = (1..workers)
            .map_while(|worker| {
                let shared = Arc::clone(&shared);
                let name = format!("kernel-gen-{worker}");
                std::thread::Builder::new().name(name).spawn(move || shared.serve(worker)).ok()
            })
            .collect();
        Pool { shared, threads, process: std::process::id() }
    }

    /// Whether this is a forked process, which the threads are not in.
    fn forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Calls `body` with each of `0..=threads`, each on the thread that has this number, the caller being 0. If the
    /// threads are busy with another launch, or are another process's, all on the calling thread.
    pub(crate) fn on_each_thread(&self, body: &(dyn Fn(usize) + Sync)) {
        if self.forked() {
            return (0..self.workers()).for_each(body);
        }
        self.launch(self.workers(), body, false);
    }

    /// Runs the workers of a launch; with `take`, those on the calling thread whose threads are late.
    fn launch(&self, workers: usize, body: &(dyn Fn(usize) + Sync), take: bool) {
        let (shared, launches) = (&*self.shared, &self.shared.launches.0);
        let workers = workers.min(self.workers());
        let free = || launches.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if workers <= 1 || !free() {
            (0..workers).for_each(body);
            return;
        }
        let job = Job { body };
        shared.post.0.job.store(std::ptr::from_ref(&job).cast_mut().cast(), Ordering::Relaxed);
        let word = self.post(workers as u64);
        // Each worker that the caller runs is caught, since the threads may still use `job`.
        let mut panic = catch_unwind(AssertUnwindSafe(|| body(0))).err();
        for (slot, worker) in shared.slots.iter().zip(1..workers) {
            if take && !slot.0.finishes(word) && slot.0.claim(word) {
                let taken = catch_unwind(AssertUnwindSafe(|| body(worker)));
                panic = panic.or(taken.err());
                // As its thread would: it does not write here now, since it holds no part.
                slot.0.done.store(word, Ordering::Relaxed);
            }
        }
        shared.join(workers - 1, word);
        // All threads are done with `job`; from here on it may go.
        if launches.panicked.load(Ordering::Relaxed) {
            launches.panicked.store(false, Ordering::Relaxed);
            panic = panic.or(lock(&launches.panic).take());
        }
        launches.busy.store(false, Ordering::Release);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    /// Makes the next word known, and wakes the threads of workers `1..workers` that sleep. Gives the word.
    fn post(&self, workers: u64) -> u64 {
        let word = &self.shared.post.0.word;
        let next = (((word.load(Ordering::Relaxed) >> WORKER_BITS) + 1) << WORKER_BITS) | workers;
        word.store(next, Ordering::SeqCst);
        for (slot, (thread, _)) in self.shared.slots.iter().zip(self.threads.iter().zip(1..workers)) {
            if slot.0.asleep.load(Ordering::SeqCst) {
                thread.thread().unpark();
            }
        }
        next
    }
}

impl Executor for Pool {
    fn workers(&self) -> usize {
        self.threads.len() + 1
    }

    fn run(&self, workers: usize, body: &(dyn Fn(usize) + Sync)) {
        self.launch(workers, body, true);
    }
}

impl Shared {
    /// The life of a pool thread.
    fn serve(&self, worker: usize) {
        let slot = &self.slots[worker - 1].0;
        let mut seen = 0;
        loop {
            seen = self.next(slot, seen);
            if workers_of(seen) == STOP {
                return;
            }
            if worker as u64 >= workers_of(seen) || !slot.claim(seen) {
                continue;
            }
            let launches = &self.launches.0;
            // SAFETY: this thread holds a part of the launch `seen`, so `Pool::launch` is still in `join` for it, and
            // `job` is the pointer to a job on its stack that was stored before that word. The body may be called from
            // any thread, since it is `Sync`.
            let body = unsafe { (*self.post.0.job.load(Ordering::Relaxed)).body };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(worker))) {
                lock(&launches.panic).get_or_insert(payload);
                launches.panicked.store(true, Ordering::Relaxed);
            }
            // From here on `job` is not touched.
            slot.done.store(seen, Ordering::SeqCst);
            if launches.waiting.load(Ordering::SeqCst)
                && let Some(thread) = &*lock(&launches.waiter)
            {
                thread.unpark();
            }
        }
    }

    /// For how long a watching thread keeps its core.
    fn keep(&self, alone: Duration) -> Duration {
        if self.alone { alone } else { Duration::ZERO }
    }

    /// Waits for a word other than `seen`: watches, then sleeps.
    fn next(&self, slot: &Slot, seen: u64) -> u64 {
        let word = &self.post.0.word;
        if !watch(IDLE, self.keep(IDLE_ALONE), || word.load(Ordering::Acquire) != seen) {
            slot.asleep.store(true, Ordering::SeqCst);
            while word.load(Ordering::SeqCst) == seen {
                std::thread::park();
            }
            slot.asleep.store(false, Ordering::Relaxed);
        }
        word.load(Ordering::Acquire)
    }

    /// Waits until the first `threads` pool threads have finished the launch.
    fn join(&self, threads: usize, word: u64) {
        let slots = &self.slots[..threads];
        let done = |order| slots.iter().all(|slot| slot.0.done.load(order) == word);
        if watch(JOIN, self.keep(JOIN_ALONE), || done(Ordering::Acquire)) {
            return;
        }
        let launches = &self.launches.0;
        *lock(&launches.waiter) = Some(std::thread::current());
        launches.waiting.store(true, Ordering::SeqCst);
        while !done(Ordering::SeqCst) {
            std::thread::park();
        }
        launches.waiting.store(false, Ordering::Relaxed);
    }
}

/// Looks whether `ready` until it is, or the time is up; which of the two. The core is kept for `alone` and then offered
/// to others at each look at the clock.
fn watch(time: Duration, alone: Duration, ready: impl Fn() -> bool) -> bool {
    let mut start = None;
    loop {
        for _ in 0..LOOKS {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        let past = start.get_or_insert_with(Instant::now).elapsed();
        if past >= time {
            return false;
        }
        if past >= alone {
            std::thread::yield_now();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.forked() {
            // There is nothing to end. The handles are of threads that do not exist: not even to let go of them is defined.
            return self.threads.drain(..).for_each(std::mem::forget);
        }
        self.post(STOP);
        let me = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // A body may hold the last clone of a device, which then ends on a pool thread: that one is not joined.
            if thread.thread().id() != me {
                // A pool thread catches panics, so there is none to pass on.
                let _ = thread.join();
            }
        }
    }
}

/// The lock's contents; they are whole even if a holder panicked.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_worker_runs_once_in_each_of_many_launches() {
        for workers in [1, 2, 3, 8] {
            let pool = Pool::new(workers);
            let counts: Vec<AtomicU64> = (0..workers).map(|_| AtomicU64::new(0)).collect();
            for round in 0..2000 {
                if round % 500 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(2)); // long enough to fall asleep
                }
                pool.run(workers, &|w| {
                    counts[w].fetch_add(1, Ordering::Relaxed);
                });
            }
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 2000));
        }
    }

    #[test]
    fn a_part_whose_thread_is_late_is_run_by_the_caller_and_only_once() {
        let pool = Pool::new(3);
        let (mut taken, total) = (0, AtomicU64::new(0));
        let me = std::thread::current().id();
        for round in 0..300 {
            if round % 3 == 0 {
                std::thread::sleep(Duration::from_millis(1)); // asleep, so late
            }
            let runs = [const { AtomicU64::new(0) }; 3];
            let mine = AtomicU64::new(0);
            pool.run(3, &|w| {
                runs[w].fetch_add(1, Ordering::Relaxed);
                mine.fetch_add(u64::from(std::thread::current().id() == me), Ordering::Relaxed);
                total.fetch_add(1, Ordering::Relaxed);
            });
            assert!(runs.iter().all(|r| r.load(Ordering::Relaxed) == 1), "{runs:?}");
            taken += mine.into_inner() - 1;
        }
        assert_eq!(total.into_inner(), 900);
        assert!(taken > 0, "an empty part is over before a thread wakes");
    }

    #[test]
    fn a_body_for_each_thread_runs_on_that_thread() {
        let pool = Pool::new(3);
        let ids = |_| {
            std::thread::sleep(Duration::from_millis(1)); // asleep, so late
            let ids = [const { Mutex::new(None) }; 3];
            pool.on_each_thread(&|w| *ids[w].lock().unwrap() = Some(std::thread::current().id()));
            ids.map(|id| id.into_inner().unwrap().unwrap())
        };
        let rounds: Vec<_> = (0..20).map(ids).collect();
        assert!(rounds.iter().all(|r| *r == rounds[0]));
        let [a, b, c] = rounds[0];
        assert!(a == std::thread::current().id() && a != b && b != c && a != c);
    }

    #[test]
    fn more_workers_than_cores_finish_what_takes_longer_than_anybody_watches() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let pool = Pool::new(4 * cores);
        let count = AtomicU64::new(0);
        for round in 0..3 {
            pool.run(4 * cores, &|w| {
                // The last worker keeps the caller waiting until it sleeps.
                if w == 4 * cores - 1 && round != 1 {
                    std::thread::sleep(JOIN * 2);
                }
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(count.into_inner(), 12 * cores as u64);
    }

    #[test]
    fn a_pool_that_is_dropped_ends_its_threads_asleep_or_awake() {
        for nap in [0, 1] {
            let pool = Pool::new(4);
            let shared = Arc::downgrade(&pool.shared);
            pool.run(4, &|_| {});
            std::thread::sleep(Duration::from_millis(nap));
            drop(pool);
            assert!(shared.upgrade().is_none(), "a thread holds it");
        }
    }

    #[test]
    fn fewer_workers_than_threads_may_take_part() {
        let pool = Pool::new(4);
        for workers in [2, 4, 1, 3, 2] {
            let seen = AtomicU64::new(0);
            pool.run(workers, &|w| {
                seen.fetch_or(1 << w, Ordering::Relaxed);
            });
            assert_eq!(seen.into_inner(), (1 << workers) - 1);
        }
    }

    #[test]
    fn more_workers_than_a_system_has_threads_for_are_not_asked_for() {
        let pool = Pool::new(1_000_000);
        let workers = pool.workers();
        assert!((2..=most_workers()).contains(&workers), "{workers}");
        let count = AtomicU64::new(0);
        pool.run(workers, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), workers as u64);
    }

    #[test]
    fn a_launch_inside_a_launch_runs_inline() {
        let pool = Pool::new(3);
        let count = AtomicU64::new(0);
        pool.run(3, &|_| {
            pool.run(3, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            })
        });
        assert_eq!(count.into_inner(), 9);
    }

    #[test]
    fn several_threads_may_launch_at_once() {
        let pool = Pool::new(3);
        let count = AtomicU64::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..500 {
                        pool.run(3, &|_| {
                            count.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 4 * 500 * 3);
    }

    #[test]
    fn a_panic_of_any_worker_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(3);
        for bad in 0..3 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(3, &|w| assert_ne!(w, bad, "worker {w} gives up"));
            }));
            let payload = caught.unwrap_err();
            assert!(payload.downcast_ref::<String>().unwrap().contains("gives up"));
        }
        let count = AtomicU64::new(0);
        pool.run(3, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 3);
    }
}
