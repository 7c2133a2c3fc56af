//! The CPU as a device.

use crate::arena::{Arena, Lease};
use crate::executor::Executor;
use crate::pool::{Pool, most_workers};
use crate::{Error, Isa, Result};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

/// The CPU: an instruction set level, threads and workspace.
///
/// A clone shares the threads and the workspace. A device may be used from several threads at once; launches that
/// overlap are correct, and one of them has the pool while the others run on their own thread.
///
/// With threads of its own, worker `i` begins with the `i`-th share of every launch, so on a machine whose cores have memories of
/// their own it comes back, as a rule, to pages that it touched first: [`crate::Tensor`]s and workspaces of 1 MiB and more are left
/// untouched until a worker writes them (on Linux). What a program fills itself lies near the thread that fills it.
///
/// A process that is forked keeps a working device, but not its threads: there every launch runs on the calling thread.
/// Make a new device in the child for launches on several threads.
#[derive(Clone)]
pub struct Cpu {
    inner: Arc<Inner>,
    isa: Isa,
}

struct Inner {
    threads: Threads,
    arena: Arena,
}

enum Threads {
    /// The calling thread only.
    One,
    /// Threads of the device's own.
    Pool(Pool),
    /// Somebody else's.
    Custom(Box<dyn Executor>),
}

impl Cpu {
    /// A device with one worker a core, or as many as `KERNEL_GEN_THREADS` says (a value that is not a positive
    /// number is not obeyed).
    pub fn new() -> Cpu {
        let asked = std::env::var("KERNEL_GEN_THREADS").ok().and_then(|t| t.trim().parse().ok()).filter(|t| *t > 0);
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let dev = Cpu::with_threads(asked.unwrap_or_else(cores));
        if let Some(asked) = asked.filter(|asked| *asked > dev.threads()) {
            static SAID: Once = Once::new();
            let got = dev.threads();
            SAID.call_once(|| {
                eprintln!(
                    "kernel-gen: KERNEL_GEN_THREADS asks for {asked} workers, and there are {got}: a device has at most {}, \
                     and no more than the system gives threads for",
                    most_workers()
                );
            });
        }
        dev
    }

    /// A device with `threads` workers, the caller included; 0 counts as 1. With one worker there is no pool.
    ///
    /// It has fewer if that is more than 16 a core and more than 512, or more than the system gives:
    /// [`threads`](Cpu::threads) says how many there are.
    pub fn with_threads(threads: usize) -> Cpu {
        Cpu::from_threads(if threads <= 1 { Threads::One } else { Threads::Pool(Pool::new(threads)) })
    }

    /// A device whose workers are somebody else's threads.
    pub fn with_executor(executor: impl Executor + 'static) -> Cpu {
        Cpu::from_threads(Threads::Custom(Box::new(executor)))
    }

    fn from_threads(threads: Threads) -> Cpu {
        Cpu { inner: Arc::new(Inner { threads, arena: Arena::default() }), isa: Isa::from_env() }
    }

    /// The same device (threads and workspace shared), held to a lower instruction set level.
    pub fn with_isa(&self, isa: Isa) -> Result<Cpu> {
        let machine = Isa::detect();
        if !machine.runs(isa) {
            return Err(Error::UnsupportedIsa { asked: isa, machine });
        }
        Ok(Cpu { inner: Arc::clone(&self.inner), isa })
    }

    /// So many devices of one thread each, with a workspace each.
    pub(crate) fn alone(&self, count: usize) -> Vec<Cpu> {
        let one = || Inner { threads: Threads::One, arena: Arena::default() };
        (0..count).map(|_| Cpu { inner: Arc::new(one()), isa: self.isa }).collect()
    }

    /// A device of one thread with the level of another one.
    pub(crate) fn like(&self, other: &Cpu) -> Cpu {
        Cpu { inner: Arc::clone(&self.inner), isa: other.isa }
    }

    /// The instruction set level that kernels are picked for.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Number of workers, the caller included.
    pub fn threads(&self) -> usize {
        match &self.inner.threads {
            Threads::One => 1,
            Threads::Pool(pool) => pool.workers(),
            Threads::Custom(executor) => executor.workers().max(1),
        }
    }

    /// Bytes of workspace that the device keeps for later launches.
    pub fn workspace_bytes(&self) -> usize {
        self.inner.arena.held_bytes()
    }

    /// Workspace for one launch.
    pub(crate) fn lease(&self, bytes: usize) -> Result<Lease<'_>> {
        self.inner.arena.lease(bytes)
    }

    /// Calls `body(worker)` once on each thread of the device, the calling one as worker 0: to pin threads to cores, say, or
    /// to name them. Where another launch has the threads, or on somebody else's executor, it is called once a worker on
    /// any thread.
    pub fn on_each_thread(&self, body: &(dyn Fn(usize) + Sync)) {
        match &self.inner.threads {
            Threads::Pool(pool) => pool.on_each_thread(body),
            Threads::One => body(0),
            Threads::Custom(_) => {
                let workers = self.threads();
                self.split_over(workers, workers, &|worker, _| body(worker));
            }
        }
    }

    /// Splits `0..extent` into contiguous ranges, one or a few for each worker, and runs `body(worker, range)` on each. Every index is
    /// in exactly one range, a range is never empty, and two bodies that run at the same time have different workers. Whoever is
    /// through with its own ranges takes those that another has not begun: one that is late to begin, because it slept or lost
    /// its core, may find that nothing is left.
    pub fn split(&self, extent: usize, body: &(dyn Fn(usize, Range<usize>) + Sync)) {
        self.split_over(self.threads(), extent, body);
    }

    /// [`Cpu::split`] over at most so many workers. An executor is a user's and may have another number of workers each time
    /// that it is asked. So who sizes memory by the number asks once, and says here what it was.
    pub(crate) fn split_over(&self, workers: usize, extent: usize, body: &(dyn Fn(usize, Range<usize>) + Sync)) {
        let workers = match &self.inner.threads {
            Threads::One => 1,
            Threads::Pool(pool) => workers.min(pool.workers()),
            Threads::Custom(_) => workers,
        };
        let workers = workers.min(extent);
        if workers <= 1 {
            if extent > 0 {
                body(0, 0..extent);
            }
            return;
        }
        let part = |worker: usize| {
            // The first `extent % workers` ranges are one longer.
            let (size, longer) = (extent / workers, extent % workers);
            let begin = worker * size + worker.min(longer);
            body(worker, begin..begin + size + usize::from(worker < longer));
        };
        match &self.inner.threads {
            Threads::One => (0..workers).for_each(part),
            Threads::Pool(pool) if workers <= MOST_SHARING && (2 * workers..=MOST_SHARED).contains(&extent) => {
                let shares = Shares::new(workers, extent);
                pool.run(workers, &|worker| shares.work(worker, &|range| body(worker, range)));
            }
            Threads::Pool(pool) => pool.run(workers, &part),
            Threads::Custom(executor) => {
                // Parts are claimed here and not named by the executor, so whatever it does, each runs once.
                let next = AtomicUsize::new(0);
                let claim = || {
                    let worker = next.fetch_add(1, Ordering::Relaxed);
                    let some = worker < workers;
                    if some {
                        part(worker);
                    }
                    some
                };
                executor.run(workers, &|_| {
                    claim();
                });
                while claim() {}
            }
        }
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Cpu::new()
    }
}

impl fmt::Debug for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cpu").field("isa", &self.isa).field("threads", &self.threads()).finish()
    }
}

/// Workers among whom ranges are shared; more have one range each.
const MOST_SHARING: usize = 16;
/// Ranges of each worker. Cores that others use too, or whose clocks differ, are not equally fast. The more ranges, the less is waited
/// for the slowest, and the more calls there are.
const PIECES: usize = 4;

/// The largest extent that is shared: its ends are computed without overflow.
const MOST_SHARED: usize = usize::MAX / (MOST_SHARING * PIECES);

/// The ranges of a launch, each worker's a contiguous part of the whole, so that it reads what lies together.
struct Shares {
    workers: usize,
    extent: usize,
    /// How many of each worker's ranges have been taken.
    taken: [Line; MOST_SHARING],
}

/// A counter on cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicUsize);

impl Shares {
    fn new(workers: usize, extent: usize) -> Shares {
        Shares { workers, extent, taken: Default::default() }
    }

    /// Takes ranges, those of this worker first, until all have been taken. No data comes with a range, so the counters are
    /// relaxed; what a launch reads and writes is ordered by its beginning and its end.
    fn work(&self, worker: usize, body: &dyn Fn(Range<usize>)) {
        for owner in (worker..self.workers).chain(0..worker) {
            let taken = &self.taken[owner].0;
            while taken.load(Ordering::Relaxed) < PIECES {
                let piece = taken.fetch_add(1, Ordering::Relaxed);
                // The parts of all workers have `PIECES` ranges, whose ends are as even as whole numbers allow.
                let at = |piece: usize| self.extent * piece / (self.workers * PIECES);
                let range = at(owner * PIECES + piece)..at(owner * PIECES + piece + 1);
                if piece < PIECES && !range.is_empty() {
                    body(range);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// The ranges that a device splits an extent into, by worker.
    fn ranges(dev: &Cpu, extent: usize) -> Vec<(usize, Range<usize>)> {
        let seen = Mutex::new(vec![]);
        dev.split(extent, &|w, r| seen.lock().unwrap().push((w, r)));
        let mut seen = seen.into_inner().unwrap();
        seen.sort_by_key(|(w, _)| *w);
        seen
    }

    #[test]
    fn a_split_is_even_and_complete() {
        for threads in 1..6 {
            let dev = Cpu::with_threads(threads);
            for extent in 0..50 {
                let mut parts = ranges(&dev, extent);
                assert!(parts.iter().all(|(worker, range)| *worker < threads.min(extent) && !range.is_empty()));
                parts.sort_by_key(|(_, range)| range.start);
                let ends: Vec<usize> = parts.iter().map(|(_, range)| range.end).collect();
                let starts: Vec<usize> = parts.iter().map(|(_, range)| range.start).collect();
                assert_eq!(starts.iter().chain([&extent]).skip(1).collect::<Vec<_>>(), ends.iter().collect::<Vec<_>>());
                assert_eq!(starts.first().copied().unwrap_or(0), 0);
                let most = extent.div_ceil(threads);
                assert!(parts.iter().all(|(_, range)| range.len() <= most), "{parts:?}");
            }
        }
    }

    /// A worker that is slow keeps what it has begun, and the others do the rest.
    #[test]
    fn what_a_slow_worker_has_not_begun_is_done_by_others() {
        let dev = Cpu::with_threads(2);
        let done = [AtomicUsize::new(0), AtomicUsize::new(0)];
        dev.split(16, &|_, range| {
            // Whoever has the first index waits until all ranges but its own have been done.
            let slow = range.contains(&0);
            done[usize::from(slow)].fetch_add(range.len(), Ordering::Relaxed);
            let start = std::time::Instant::now();
            while slow && done[0].load(Ordering::Relaxed) < 14 && start.elapsed().as_secs() < 20 {
                std::thread::yield_now();
            }
        });
        assert_eq!(done.map(|n| n.into_inner()), [14, 2]);
    }

    #[test]
    fn an_executor_that_breaks_its_contract_cannot_lose_or_repeat_work() {
        struct Lazy;
        impl Executor for Lazy {
            fn workers(&self) -> usize {
                4
            }
            fn run(&self, _: usize, body: &(dyn Fn(usize) + Sync)) {
                body(99);
            }
        }
        struct Eager;
        impl Executor for Eager {
            fn workers(&self) -> usize {
                3
            }
            fn run(&self, workers: usize, body: &(dyn Fn(usize) + Sync)) {
                (0..workers * 3).for_each(body);
            }
        }
        for dev in [Cpu::with_executor(Lazy), Cpu::with_executor(Eager)] {
            let parts = ranges(&dev, 10);
            assert_eq!(parts.iter().map(|(_, r)| r.len()).sum::<usize>(), 10);
            assert_eq!(parts.len(), dev.threads());
        }
    }

    #[cfg(feature = "rayon")]
    #[test]
    fn rayon_runs_every_part() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        for executor in [crate::Rayon::pool(Arc::new(pool)), crate::Rayon::global()] {
            let dev = Cpu::with_executor(executor);
            assert_eq!(ranges(&dev, 100).iter().map(|(_, r)| r.len()).sum::<usize>(), 100);
        }
    }

    /// Launches from tasks of the caller's own pool, on the pool's threads and on a device with threads of its own: none
    /// waits for a thread that waits for it.
    #[cfg(feature = "rayon")]
    #[test]
    fn launches_from_inside_of_a_rayon_pool_run_every_part() {
        let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap());
        for dev in
            [Cpu::with_executor(crate::Rayon::pool(Arc::clone(&pool))), Cpu::with_threads(2), Cpu::with_threads(1)]
        {
            let done = AtomicUsize::new(0);
            pool.install(|| {
                rayon::scope(|s| {
                    for _ in 0..20 {
                        s.spawn(|_| {
                            dev.split(100, &|_, r| {
                                done.fetch_add(r.len(), Ordering::Relaxed);
                            });
                        });
                    }
                });
            });
            assert_eq!(done.into_inner(), 2000, "{dev:?}");
        }
    }

    #[test]
    fn a_level_that_the_machine_lacks_is_refused() {
        let foreign = if cfg!(target_arch = "aarch64") { Isa::X86_64 } else { Isa::Aarch64 };
        let error = Cpu::with_threads(1).with_isa(foreign).unwrap_err();
        assert!(error.to_string().contains("this machine has"), "{error}");
    }
}
