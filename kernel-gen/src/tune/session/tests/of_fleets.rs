//! Sessions whose measurer is several workers, some of which are not to be trusted.

use super::*;
use crate::stable::stable_hash;
use crate::tune::measure::{Comparison, Contest, Judged, Provenance, Worker};

/// Workers that take turns. Each makes the times of a recording so many times as long; one that lies says what it likes.
struct Team {
    replay: Replay,
    workers: Vec<(Arc<Worker>, Says)>,
    turn: usize,
    last: usize,
    contests: Vec<(String, Vec<String>)>,
}

#[derive(Clone, Copy)]
enum Says {
    Times(f64),
    /// Small times without an order.
    Lies,
    /// That it could not measure.
    Fails,
    /// That all results are wrong.
    Wrong,
}

impl Team {
    fn new(recording: Recording, says: &[Says]) -> Team {
        let worker = |(at, says): (usize, &Says)| {
            let name = format!("worker {at}");
            (Arc::new(Worker { name, provenance: Provenance::default() }), *says)
        };
        let workers = says.iter().enumerate().map(worker).collect();
        Team { replay: Replay::new(recording), workers, turn: 0, last: 0, contests: vec![] }
    }

    fn said(&self, worker: usize, config: &Config, outcome: Outcome) -> Outcome {
        match (outcome, self.workers[worker].1) {
            (Outcome::Timed(_), Says::Fails) => failure(FailureKind::Worker),
            (Outcome::Timed(_), Says::Wrong) => failure(FailureKind::WrongAnswer),
            (Outcome::Timed(_), Says::Lies) => timing(10.0 + (stable_hash(&config.to_string()) % 100) as f64),
            (Outcome::Timed(mut timing), Says::Times(factor)) => {
                timing.samples_us.iter_mut().for_each(|us| *us *= factor);
                Outcome::Timed(timing)
            }
            (failed, _) => failed,
        }
    }
}

impl<'r> Measurer<'r> for Team {
    fn capacity(&self) -> usize {
        4
    }

    fn workers(&self) -> usize {
        self.workers.len()
    }

    fn submit(&mut self, id: JobId, task: &Task<'r>, config: &Config) {
        self.replay.submit(id, task, config);
    }

    fn next(&mut self, wait: Duration) -> Option<(JobId, Outcome)> {
        let (id, outcome) = Measurer::next(&mut self.replay, wait)?;
        self.turn += 1;
        self.last = self.turn % self.workers.len();
        Some((id, self.said(self.last, &Config::new(), outcome)))
    }

    fn last_worker(&self) -> Option<Arc<Worker>> {
        Some(Arc::clone(&self.workers[self.last].0))
    }

    fn compare(&mut self, candidates: &[(&Task<'r>, &Config)]) -> Vec<Outcome> {
        self.replay.compare(candidates)
    }

    fn compare_all(&mut self, all: &[Contest<'_, 'r>], goes_on: &mut dyn FnMut() -> bool) -> Vec<Option<Judged>> {
        let mut judged = vec![];
        for Contest { candidates, not_by } in all {
            self.turn += 1;
            let order = (0..self.workers.len()).map(|i| (i + self.turn) % self.workers.len());
            let able = order.into_iter().find(|at| !not_by.contains(&self.workers[*at].0.name));
            let Some(at) = able.filter(|_| goes_on()) else {
                judged.push(None);
                continue;
            };
            let outcomes = self.replay.compare(candidates).into_iter().zip(candidates);
            let outcomes = outcomes.map(|(outcome, (_, config))| self.said(at, config, outcome)).collect();
            let worker = Arc::clone(&self.workers[at].0);
            self.contests.push((worker.name.clone(), not_by.clone()));
            judged.push(Some(Judged { comparison: Comparison { outcomes, peers: vec![] }, worker: Some(worker) }));
        }
        judged
    }
}

/// What a session of eight workloads finds with such workers, and how the comparisons went.
fn found(says: &[Says]) -> (Summary, Vec<(String, Vec<String>)>) {
    let all: Vec<Task<'_>> = (1..=8).map(|columns| task(columns, &TEMPLATE)).collect();
    let mut recording = Recording::new();
    all.iter().for_each(|task| record(&mut recording, task, 1.0));
    let entries = all.iter().map(|t| entry("layer", t, Walker::boxed(&t.space, 1, false))).collect();
    let mut team = Team::new(recording, says);
    let (summary, _) = run_on(&mut team, entries, &[], &options(8 * 24));
    (summary, team.contests)
}

#[test]
fn what_one_worker_found_another_one_confirms() {
    let (summary, contests) = found(&[Says::Times(1.0), Says::Times(1.1)]);
    assert_eq!(contests.len(), 16, "two comparisons a workload");
    for (by, not_by) in &contests {
        assert!(!not_by.contains(by));
    }
    assert_eq!(summary.doubts, []);
    for verdict in &summary.verdicts {
        let choice = verdict.choice().expect("it is decided");
        assert!(choice.spread.is_some_and(|spread| (spread - 1.1).abs() < 1e-9), "{choice:?}");
        let us = |c: &Candidate| c.outcome.time_us();
        assert!(verdict.candidates().iter().all(|c| us(c) >= us(choice)));
    }
    // One that cannot measure says nothing of what another one found, nor does it decide; one that finds all results wrong is outvoted.
    for odd in [Says::Fails, Says::Wrong] {
        let (summary, _) = found(&[Says::Times(1.0), odd, Says::Times(1.0)]);
        let decided = summary.verdicts.iter().filter(|v| v.choice().is_some()).count();
        assert!(decided >= 5, "{decided} of 8");
        assert!(summary.verdicts.iter().all(|v| !matches!(v, Verdict::Nothing { .. })), "{:?}", summary.verdicts);
    }
    // One alone has nobody to confirm what it found.
    let (summary, contests) = found(&[Says::Times(1.0)]);
    assert_eq!((contests.len(), summary.doubts), (8, vec![]));
    assert!(summary.verdicts.iter().all(|v| v.choice().is_some_and(|c| c.spread.is_none())));
}

#[test]
fn a_worker_that_lies_decides_nothing_and_is_named() {
    let (summary, contests) = found(&[Says::Times(1.0), Says::Lies, Says::Times(1.05), Says::Times(0.95)]);
    assert!(contests.iter().any(|(_, not_by)| not_by.len() == 2), "where two disagree, a third one is asked");
    assert_eq!(summary.doubts.iter().map(|d| &d.worker[..]).collect::<Vec<_>>(), ["worker 1"]);
    assert!(summary.doubts[0].ratio < 0.5, "{:?}", summary.doubts);
    for verdict in &summary.verdicts {
        let us = verdict.choice().and_then(|c| c.outcome.time_us()).expect("the others agree");
        assert!(us > 1000.0, "{us} us is a lie");
    }
    // Of two who disagree, nobody knows who lies: nothing is decided, and both are named.
    let (summary, _) = found(&[Says::Times(1.0), Says::Lies]);
    assert!(summary.verdicts.iter().all(|v| *v == Verdict::NotDecided));
    assert_eq!(summary.doubts.len(), 2, "{:?}", summary.doubts);
}
