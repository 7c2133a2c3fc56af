//! Threads that build, and one that runs.

use super::backend::{Builder, Job, Runner};
use super::pipeline::failure;
use super::{Comparison, JobId, Measurer, Peer};
use crate::records::{Failure, FailureKind, Outcome};
use crate::space::Config;
use crate::tune::Task;
use crate::workload::Workload;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// A measurer made of a builder and a runner.
pub(super) struct Pool<'r, C> {
    to_build: Sender<ToBuild<'r>>,
    to_run: Sender<ToRun<C>>,
    outcomes: Receiver<(JobId, Outcome, Duration)>,
    built: Receiver<(usize, Result<C, Failure>)>,
    compared: Receiver<Comparison>,
    under_way: usize,
    last_cost: Option<Duration>,
    capacity: usize,
    /// Set when nobody waits for outcomes any more.
    closed: Arc<AtomicBool>,
}

struct ToBuild<'r> {
    purpose: Purpose,
    job: Job<'r>,
}

enum Purpose {
    /// To be run, under this number.
    Run(JobId),
    /// To be compared with others, in this place.
    Compare(usize),
}

enum ToRun<C> {
    /// `cost` is that of building it.
    One {
        id: JobId,
        workload: Workload,
        code: C,
        cost: Duration,
    },
    Several {
        workload: Workload,
        codes: Vec<Result<C, Failure>>,
        peers: Vec<Peer>,
    },
}

impl<'r, C: Send> Pool<'r, C> {
    /// Starts `jobs` threads that build and one that runs.
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        jobs: usize,
        builder: impl Builder<Code = C> + 'scope,
        runner: impl Runner<Code = C> + 'scope,
    ) -> Pool<'r, C>
    where
        'r: 'scope,
        C: 'scope,
    {
        let (to_build, builds) = channel::<ToBuild<'r>>();
        let (to_run, runs) = channel();
        let (tell, outcomes) = channel();
        let (tell_built, built) = channel();
        let (tell_compared, compared) = channel();
        let closed = Arc::new(AtomicBool::new(false));
        let (builder, builds) = (Arc::new(builder), Arc::new(Mutex::new(builds)));
        for thread in 0..jobs {
            let (builder, builds, closed) = (Arc::clone(&builder), Arc::clone(&builds), Arc::clone(&closed));
            let (to_run, tell, tell_built) = (to_run.clone(), tell.clone(), tell_built.clone());
            let work = move || {
                loop {
                    let next = builds.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(ToBuild { purpose, job }) = next else { return };
                    if closed.load(Ordering::Relaxed) {
                        return;
                    }
                    let began = Instant::now();
                    let made = match build(&*builder, &job) {
                        // What ended the compiler from outside is often over: the config is given a second chance.
                        Err(why) if why.kind == FailureKind::Worker => build(&*builder, &job),
                        made => made,
                    };
                    let cost = began.elapsed();
                    // Who does not listen any more has been dropped, and the thread is about to be told so.
                    let _gone = match (purpose, made) {
                        (Purpose::Compare(at), made) => tell_built.send((at, made)).is_err(),
                        (Purpose::Run(id), Ok(code)) => {
                            to_run.send(ToRun::One { id, workload: job.workload, code, cost }).is_err()
                        }
                        (Purpose::Run(id), Err(why)) => tell.send((id, Outcome::Failed(why), cost)).is_err(),
                    };
                }
            };
            let spawned = std::thread::Builder::new().spawn_scoped(scope, work);
            // If the system gives fewer threads, those that there are do the work; without any there is no tuning.
            if spawned.is_err() && thread > 0 {
                break;
            }
            spawned.expect("the system gives a thread to build on");
        }
        let stop = Arc::clone(&closed);
        scope.spawn(move || run_all(runner, &runs, &tell, &tell_compared, &stop));
        // Two for each that is being built: one is waiting while the other is under way, and some for the device.
        let capacity = 2 * jobs + 2;
        Pool { to_build, to_run, outcomes, built, compared, under_way: 0, last_cost: None, capacity, closed }
    }
}

/// Builds; a template that panics costs its config.
fn build<B: Builder>(builder: &B, job: &Job<'_>) -> Result<B::Code, Failure> {
    let made = catch_unwind(AssertUnwindSafe(|| builder.build(job)));
    made.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
        let text = format!("{} panicked at {}: {said}", job.template.name(), job.config);
        Err(failure(FailureKind::Refused, text))
    })
}

/// Runs what was built until nobody can send more.
fn run_all<R: Runner>(
    mut runner: R,
    runs: &Receiver<ToRun<R::Code>>,
    tell: &Sender<(JobId, Outcome, Duration)>,
    tell_compared: &Sender<Comparison>,
    closed: &AtomicBool,
) {
    let mut best: BTreeMap<String, f64> = BTreeMap::new();
    while let Ok(next) = runs.recv() {
        if closed.load(Ordering::Relaxed) {
            return;
        }
        match next {
            ToRun::One { id, workload, code, cost } => {
                let key = workload.key();
                let began = Instant::now();
                let outcome = runner.run(&workload, code, best.get(&key).copied());
                if let Some(us) = outcome.time_us() {
                    let best = best.entry(key).or_insert(us);
                    *best = best.min(us);
                }
                let _ = tell.send((id, outcome, cost + began.elapsed()));
            }
            ToRun::Several { workload, codes, peers } => {
                let _ = tell_compared.send(runner.compare(&workload, codes, &peers));
            }
        }
    }
}

impl<'r, C: Send> Measurer<'r> for Pool<'r, C> {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn submit(&mut self, id: JobId, task: &Task<'r>, config: &Config) {
        let job = ToBuild { purpose: Purpose::Run(id), job: Job::new(task, config) };
        // The threads live as long as the pool.
        self.under_way += usize::from(self.to_build.send(job).is_ok());
    }

    fn next(&mut self, wait: Duration) -> Option<(JobId, Outcome)> {
        if self.under_way == 0 {
            return None;
        }
        let (id, outcome, cost) = self.outcomes.recv_timeout(wait).ok()?;
        self.under_way -= 1;
        self.last_cost = Some(cost);
        Some((id, outcome))
    }

    fn last_cost(&self) -> Option<Duration> {
        self.last_cost
    }

    fn compare(&mut self, candidates: &[(&Task<'r>, &Config)]) -> Vec<Outcome> {
        self.compare_with(candidates, &[]).outcomes
    }

    fn compare_with(&mut self, candidates: &[(&Task<'r>, &Config)], peers: &[Peer]) -> Comparison {
        let Some((first, _)) = candidates.first() else {
            let none = || Err("there is nothing that it stands beside".to_string());
            return Comparison { outcomes: vec![], peers: peers.iter().map(|_| none()).collect() };
        };
        for (at, (task, config)) in candidates.iter().enumerate() {
            let _ = self.to_build.send(ToBuild { purpose: Purpose::Compare(at), job: Job::new(task, config) });
        }
        let lost = || failure(FailureKind::Worker, "the threads that measure have ended");
        let mut codes: Vec<Result<C, Failure>> = candidates.iter().map(|_| Err(lost())).collect();
        for _ in candidates {
            let Ok((at, made)) = self.built.recv() else { break };
            codes[at] = made;
        }
        let _ = self.to_run.send(ToRun::Several { workload: first.workload.clone(), codes, peers: peers.to_vec() });
        self.compared.recv().unwrap_or_else(|_| Comparison {
            outcomes: candidates.iter().map(|_| Outcome::Failed(lost())).collect(),
            peers: peers.iter().map(|_| Err(lost().detail)).collect(),
        })
    }
}

impl<C> Drop for Pool<'_, C> {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}
