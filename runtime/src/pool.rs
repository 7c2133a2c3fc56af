//! A small thread pool for fork-join with low latency.
//!
//! A launch gives every pool thread the same body and waits for all of them; the caller takes part as worker 0.
//! Idle threads spin for some microseconds, since the next kernel of a network follows at once, and then sleep. One
//! launch uses the threads at a time: a launch that finds them busy (from another thread, or from inside a body) runs
//! all its workers on the calling thread, which needs no waiting and cannot deadlock.

use crate::executor::Executor;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};

/// Rounds of spinning before an idle thread sleeps: tens of microseconds.
const SPIN_IDLE: u32 = 4_000;
/// Rounds before a caller that waits for the last worker yields, and then sleeps. Workers have equal parts, so the
/// wait is short unless a worker lost its core.
const SPIN_JOIN: u32 = 20_000;

/// What the workers of a launch run; lives on the launching thread's stack.
struct Job<'a> {
    body: &'a (dyn Fn(usize) + Sync),
}

/// The letter box of one pool thread, on cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Slot {
    /// Null: nothing to do. Otherwise a job, or [`stop`].
    job: AtomicPtr<Job<'static>>,
    /// Whether the thread sleeps, or is about to.
    asleep: AtomicBool,
}

/// The job that ends a thread. Never dereferenced.
fn stop() -> *mut Job<'static> {
    std::ptr::without_provenance_mut(align_of::<Job<'static>>())
}

struct Shared {
    slots: Box<[Slot]>,
    /// Set while a launch uses the threads.
    busy: AtomicBool,
    /// Pool threads that have not finished the current job.
    pending: AtomicUsize,
    /// Whether the launching thread sleeps until `pending` is 0, and which it is.
    waiting: AtomicBool,
    waiter: Mutex<Option<Thread>>,
    /// The first panic of the current job's pool threads.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    spin: bool,
}

/// Threads that wait for launches. Dropping it ends them.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool for `workers` workers: one thread less, since the caller is one. If the system gives fewer threads, the
    /// pool is smaller.
    pub(crate) fn new(workers: usize) -> Pool {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            slots: (1..workers).map(|_| Slot::default()).collect(),
            busy: AtomicBool::new(false),
            pending: AtomicUsize::new(0),
            waiting: AtomicBool::new(false),
            waiter: Mutex::new(None),
            panic: Mutex::new(None),
            // With more workers than cores, a spinning thread steals time from a working one.
            spin: workers <= cores,
        });
        let threads = (1..workers)
            .map_while(|worker| {
                let shared = Arc::clone(&shared);
                let name = format!("kernel-gen-{worker}");
                std::thread::Builder::new().name(name).spawn(move || shared.serve(worker)).ok()
            })
            .collect();
        Pool { shared, threads }
    }

    /// Wakes the threads of workers `1..workers` with a job.
    fn post(&self, workers: usize, job: *mut Job<'static>) {
        for (slot, thread) in self.shared.slots.iter().zip(&self.threads).take(workers - 1) {
            slot.job.store(job, Ordering::SeqCst);
            // The thread sets `asleep` and then looks at `job` again, both in the one order of SeqCst, so either it
            // sees the job or this sees that it sleeps.
            if slot.asleep.swap(false, Ordering::SeqCst) {
                thread.thread().unpark();
            }
        }
    }
}

impl Executor for Pool {
    fn workers(&self) -> usize {
        self.threads.len() + 1
    }

    fn run(&self, workers: usize, body: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        let workers = workers.min(self.workers());
        if workers <= 1 || shared.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            (0..workers).for_each(body);
            return;
        }
        let job = Job { body };
        shared.pending.store(workers - 1, Ordering::Relaxed);
        self.post(workers, std::ptr::from_ref(&job).cast_mut().cast());
        let own = catch_unwind(AssertUnwindSafe(|| body(0)));
        shared.join();
        // All threads are done with `job`; from here on it may go.
        let theirs = lock(&shared.panic).take();
        shared.busy.store(false, Ordering::Release);
        if let Some(payload) = own.err().or(theirs) {
            resume_unwind(payload);
        }
    }
}

impl Shared {
    /// The life of a pool thread.
    fn serve(&self, worker: usize) {
        let slot = &self.slots[worker - 1];
        loop {
            let job = self.next_job(slot);
            if job == stop() {
                return;
            }
            // SAFETY: `Pool::run` posted a pointer to a job on its stack, and stays in `join` until this thread has
            // counted itself out below; the body may be called from any thread, since it is `Sync`.
            let body = unsafe { (*job).body };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(worker))) {
                lock(&self.panic).get_or_insert(payload);
            }
            slot.job.store(std::ptr::null_mut(), Ordering::Relaxed);
            // Release: what the body wrote is seen by the launching thread. From here on `job` is not touched.
            if self.pending.fetch_sub(1, Ordering::SeqCst) == 1
                && self.waiting.swap(false, Ordering::SeqCst)
                && let Some(thread) = lock(&self.waiter).take()
            {
                thread.unpark();
            }
        }
    }

    /// Spins, then sleeps, until there is something to do.
    fn next_job(&self, slot: &Slot) -> *mut Job<'static> {
        for _ in 0..if self.spin { SPIN_IDLE } else { 1 } {
            let job = slot.job.load(Ordering::Acquire);
            if !job.is_null() {
                return job;
            }
            std::hint::spin_loop();
        }
        loop {
            slot.asleep.store(true, Ordering::SeqCst);
            let job = slot.job.load(Ordering::SeqCst);
            if !job.is_null() {
                slot.asleep.store(false, Ordering::SeqCst);
                return job;
            }
            std::thread::park();
        }
    }

    /// Waits until all pool threads have finished the job.
    fn join(&self) {
        for round in 0..SPIN_JOIN {
            if self.pending.load(Ordering::Acquire) == 0 {
                return;
            }
            if self.spin && round < SPIN_JOIN / 2 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        *lock(&self.waiter) = Some(std::thread::current());
        self.waiting.store(true, Ordering::SeqCst);
        while self.pending.load(Ordering::SeqCst) != 0 {
            std::thread::park();
        }
        self.waiting.store(false, Ordering::SeqCst);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.post(self.threads.len() + 1, stop());
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
