//! Whoever is killed: every trial counts once.

use crate::server::{Server, Worker, ended, spec, terminate, text, trials};
use crate::stranger::{runtime, streams};
use kernel_gen::records::log::{Entry, Log};
use kernel_gen::records::{BestRecords, Outcome, Record};
use kernel_gen::stable::Rng;
use kernel_gen::tune::measure::WireOutcome;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[cfg(unix)]
#[test]
fn every_trial_counts_once_whoever_is_killed() {
    let Some(mut server) = Server::start("killed") else { return };
    let kills: u64 = std::env::var("KERNEL_GEN_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    spec(&server, if kills > 10 { 20 } else { 4 });
    let mut rng = Rng::new(kills);
    let mut workers: Vec<Worker> = (0..if kills > 10 { 8 } else { 3 }).map(|_| server.worker()).collect();
    let mut session = server.session("12").spawn().expect("the session starts");
    let (mut killed, mut sessions, mut servers) = (0, 0, 0);
    let begun = Instant::now();
    let output = loop {
        std::thread::sleep(Duration::from_millis(300 + rng.below(500)));
        if let Some(status) = session.try_wait().expect("it can be asked") {
            let output = session.wait_with_output().expect("it has ended");
            assert!(status.success(), "{}", text(&output));
            break output;
        }
        let said = || std::fs::read_to_string(server.folder.join("workers.txt")).unwrap_or_default();
        assert!(begun.elapsed() < Duration::from_secs(60 + 5 * kills), "the session does not end:\n{}", said());
        if killed >= kills {
            continue;
        }
        let at = rng.below(workers.len() as u64) as usize;
        workers[at] = server.worker();
        killed += 1;
        if killed == kills / 3 || killed == 2 * kills / 3 {
            server.kill();
            server.run();
            servers += 1;
        }
        if killed % (kills / 3).max(2) == 1 && sessions < 3 {
            let _ = session.kill();
            let _ = session.wait();
            session = server.session("12").spawn().expect("the session starts");
            sessions += 1;
        }
    };
    for worker in &mut workers {
        assert!(terminate(&mut worker.0).success(), "a worker that is told to end does so in order");
    }
    let (all, timed) = trials(&server);
    println!(
        "{killed} workers, {sessions} sessions and {servers} servers killed in {:.0} s: {} trials, {timed} timed\n{}",
        begun.elapsed().as_secs_f64(),
        all.len(),
        text(&output)
    );
    assert!(killed >= 1, "the session ended before anything was killed");
    let twice: Vec<_> = all.iter().filter(|(_, n)| **n != 1).collect();
    assert!(twice.is_empty(), "trials that count twice: {twice:?}");
    assert!(timed * 10 >= all.len() * 8, "{timed} of {} ran", all.len());
    assert!(text(&output).contains("wrote "), "{}", text(&output));
    // The log against the streams: nothing waits any more, and each trial is what a worker replied.
    let (waiting, replies) = runtime().block_on(streams(server.port));
    assert_eq!(waiting, 0, "requests that nobody answered");
    let replied = |entry: &Entry| {
        let Outcome::Timed(timing) = &entry.trial.outcome else { return true };
        let same =
            |outcome: &WireOutcome| matches!(outcome, WireOutcome::Timed(t) if t.samples_us == timing.samples_us);
        replies.iter().any(|r| Some(&*r.worker) == entry.worker.as_deref() && r.outcomes.iter().any(same))
    };
    let log = Log::read(&[server.folder.join("tuning.jsonl")]).expect("the log can be read");
    assert!(log.entries.iter().all(replied), "a trial that nobody replied");
    let asked: BTreeSet<&str> = replies.iter().filter(|r| r.outcomes.len() == 1).map(|r| &*r.request).collect();
    println!("{} replies to {} requests of one config", replies.len(), asked.len());
    assert_eq!(asked.len(), all.len(), "configs that were measured and are not in the log");
    if kills > 10 {
        same_winners(&server);
    }
}

/// What a run finds that nobody disturbs is as fast as what was found here.
fn same_winners(disturbed: &Server) {
    let Some(calm) = Server::start("calm") else { return };
    spec(&calm, 20);
    let _workers: Vec<Worker> = (0..8).map(|_| calm.worker()).collect();
    let output = ended(calm.session("12").spawn().expect("the session starts"), 120);
    assert!(output.status.success(), "{}", text(&output));
    let records = |server: &Server| BestRecords::load(&server.folder.join("tuned")).expect("the records can be read");
    let (one, other) = (records(disturbed), records(&calm));
    let ratio = |a: &Record| {
        let b = other.iter().find(|b| b.workload == a.workload)?;
        Some((a.floor_us.unwrap_or(a.time_us) / b.floor_us.unwrap_or(b.time_us)).ln())
    };
    let ratios: Vec<f64> = one.iter().filter_map(ratio).collect();
    let mean = (ratios.iter().sum::<f64>() / ratios.len() as f64).exp();
    println!("{} winners take {mean:.3} of the time of those of a run without faults", ratios.len());
    assert!(ratios.len() >= 15 && (0.8..1.25).contains(&mean), "{ratios:?}");
}

#[test]
fn a_session_without_workers_or_server_says_so() {
    let Some(mut server) = Server::start("alone") else { return };
    spec(&server, 1);
    server.kill();
    let session = server.session("1").spawn().expect("the session starts");
    let mut worker = Command::new(env!("CARGO_BIN_EXE_kernel-gen-fleet"));
    worker.args(["worker", "--fleet", "nats://me:secret@127.0.0.1:1"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Both try for a while.
    let worker = worker.spawn().expect("the worker starts");
    let said = text(&ended(session, 60));
    assert!(said.contains("no connection") && said.contains("is a NATS server there"), "{said}");
    let output = ended(worker, 60);
    let said = text(&output);
    assert!(!output.status.success() && said.contains("nats://127.0.0.1:1: no connection"), "{said}");
    assert!(!said.contains("secret"), "{said}");
}
