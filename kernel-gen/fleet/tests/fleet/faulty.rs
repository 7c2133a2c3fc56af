//! Workers that are slow, hang or lie, and devices of several kinds.

use crate::server::{Server, ended, spec, text, trials};
use crate::stranger::{Stranger, cpu, gpu, runtime, time_us};
use async_nats::jetstream::AckKind;
use kernel_gen::records::BestRecords;
use kernel_gen::records::log::Log;
use kernel_gen::stable::stable_hash;
use kernel_gen::tune::fleet::wire::{Candidate, Reply, Request};
use kernel_gen::tune::measure::Provenance;
use kernel_gen::tune::session::Stop;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn signal(process: u32, signal: &str) {
    let said = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(said.is_ok_and(|status| status.success()));
}

/// What was taken by one that hangs, and by one that is slower than a lease, is measured by others. What they reply too late counts
/// once.
#[cfg(unix)]
#[test]
fn a_slow_and_a_hung_worker_cost_a_lease() {
    let Some(server) = Server::start("slow") else { return };
    spec(&server, 3);
    let hung = server.worker();
    let session = server.session("10").spawn().expect("the session starts");
    let log = server.folder.join("tuning.jsonl");
    let begun = Instant::now();
    while std::fs::metadata(&log).map_or(0, |file| file.len()) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is measured");
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(hung.0.id(), "-STOP");
    let runtime = runtime();
    let slow = runtime.spawn(slow(server.port));
    std::thread::sleep(Duration::from_millis(500));
    let _worker = server.worker();
    let output = ended(session, 90);
    signal(hung.0.id(), "-CONT");
    let late = runtime.block_on(slow).expect("it ends");
    let (all, _) = trials(&server);
    println!("{late} replies too late; {} trials\n{}", all.len(), text(&output));
    assert!(output.status.success(), "{}", text(&output));
    assert!(late > 0, "the slow one had nothing");
    assert_eq!(all.len(), 30);
    assert!(all.values().all(|n| *n == 1), "trials that count twice: {all:?}");
}

/// Takes a few requests, and replies when their lease has long ended.
async fn slow(port: u16) -> usize {
    let provenance = cpu(port).await;
    let mut worker = Stranger::at(port, "slow", provenance, 4).await;
    let mut taken = vec![];
    while taken.is_empty() {
        taken = worker.take(4).await;
    }
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        worker.be_present().await;
    }
    for (request, _) in &taken {
        let reply = worker.reply(request, time_us);
        worker.publish(format!("{}.slow", request.id()), serde_json::to_vec(&reply).expect("it can be written")).await;
    }
    taken.len()
}

/// One that never replies, and says all the while that it is at work, holds up nobody: another one is asked as well.
#[test]
fn a_worker_that_hangs_and_keeps_its_lease_holds_up_nobody() {
    let Some(server) = Server::start("hangs") else { return };
    spec(&server, 3);
    let end = Stop::new();
    let runtime = runtime();
    ended(server.said(&["fleet", "status"]), 30);
    let has = Stop::new();
    let hangs = runtime.spawn(hang(server.port, has.clone(), end.clone()));
    let begun = Instant::now();
    let session = server.session("16").args(["--target", "sm_90a"]).spawn().expect("the session starts");
    while !has.is_asked() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it has nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
    runtime.spawn(join(server.port, "works", gpu(0), end.clone(), truth));
    let output = ended(session, 60);
    end.ask();
    let held = runtime.block_on(hangs).expect("it ends");
    println!("{held} requests held for {:.1} s\n{}", begun.elapsed().as_secs_f64(), text(&output));
    assert!(output.status.success() && text(&output).contains("48 trials in "), "{}", text(&output));
    assert!(held > 0, "it had nothing");
    let (all, _) = trials(&server);
    assert!(all.len() == 48 && all.values().all(|n| *n == 1), "{} trials", all.len());
}

/// Takes two trials and keeps them; all else it does.
async fn hang(port: u16, has: Stop, end: Stop) -> usize {
    let mut worker = Stranger::at(port, "hangs", gpu(1), 4).await;
    let mut held = vec![];
    while !end.is_asked() {
        for (request, acker) in worker.take(4).await {
            if request.comparison.is_none() && held.len() < 2 {
                held.push(acker);
                has.ask();
                continue;
            }
            let reply = worker.reply(&request, time_us);
            worker.publish(request.id(), serde_json::to_vec(&reply).expect("it can be written")).await;
            let _ = acker.ack_with(AckKind::Ack).await;
        }
        for acker in &held {
            let _ = acker.ack_with(AckKind::Progress).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    held.len()
}

/// Small times in an order of its own.
fn lie(candidate: &Candidate) -> f64 {
    0.5 + (stable_hash(&format!("lie {}", candidate.config)) % 1000) as f64 / 1e3
}

/// What the liar says: each reply twice, with another time, and a reply to what it never had.
fn lies(worker: &Stranger, request: &Request) -> Vec<Reply> {
    let other = Request { workload: "matmul-f32-m9n9k9-nn".into(), ..request.clone() };
    let never_had = Reply { request: other.id(), ..worker.reply(&other, lie) };
    vec![worker.reply(request, lie), worker.reply(request, |c| 2.0 * lie(c)), never_had]
}

fn truth(worker: &Stranger, request: &Request) -> Vec<Reply> {
    vec![worker.reply(request, time_us)]
}

async fn join(port: u16, name: &str, kind: Provenance, end: Stop, says: fn(&Stranger, &Request) -> Vec<Reply>) {
    Stranger::at(port, name, kind, 8).await.answer(end, says).await;
}

fn records(folder: &Path) -> BestRecords {
    BestRecords::load(&folder.join("tuned")).expect("the records can be read")
}

#[test]
fn a_lying_worker_is_named_and_its_trials_can_be_dropped() {
    let Some(server) = Server::start("liar") else { return };
    spec(&server, 6);
    let end = Stop::new();
    let runtime = runtime();
    let mut working = vec![];
    for (number, (name, says)) in
        [("honest-1", truth as fn(&_, &_) -> _), ("liar", lies), ("honest-2", truth)].into_iter().enumerate()
    {
        working.push(runtime.spawn(join(server.port, name, gpu(number), end.clone(), says)));
    }
    let tune = |trials: &str| -> Output {
        let session = server.session(trials).args(["--target", "sm_90a"]).spawn().expect("the session starts");
        let output = ended(session, 90);
        assert!(output.status.success(), "{}", text(&output));
        output
    };
    let first = text(&tune("24"));
    println!("{first}");
    assert!(first.contains("\nliar: ") && first.contains("could not be repeated"), "{first}");
    assert!(!first.contains("\nhonest"), "{first}");
    // Whoever compared: no record has a time that the liar made up.
    let written = records(&server.folder);
    assert!(written.iter().count() > 0, "{first}");
    for record in written.iter() {
        assert!(record.time_us >= 5.0, "{record:?}");
        assert!(record.spread.is_some_and(|spread| spread < 1.01), "{record:?}");
    }
    let log = server.folder.join("tuning.jsonl");
    let by = |worker: &str| {
        let log = Log::read(&[&log]).expect("the log can be read");
        log.entries.iter().filter(|e| e.worker.as_deref() == Some(worker)).count()
    };
    let (lied, all) = (by("liar"), by("liar") + by("honest-1") + by("honest-2"));
    assert!(lied > 0 && all == 6 * 24, "{lied} of {all}");
    let status = text(&ended(server.said(&["fleet", "status"]), 30));
    assert!(status.contains("sm_90a on NVIDIA H100 80GB HBM3") && status.contains("worker liar, GPU-1: "), "{status}");
    // Without the liar and what it said, the same command measures again what is missing.
    let still = text(&ended(server.said(&["fleet", "drop", "liar"]), 30));
    assert!(still.contains("liar is still there"), "{still}");
    working.remove(1).abort();
    std::thread::sleep(Duration::from_secs(3));
    let dropped = text(&ended(server.said(&["fleet", "drop", "liar", "--log", "tuning.jsonl"]), 30));
    assert!(
        dropped.contains(" messages of liar\n") && dropped.contains("the trials of liar count no more"),
        "{dropped}"
    );
    assert_eq!(by("liar"), 0);
    let second = text(&tune("24"));
    println!("{dropped}{second}");
    assert!(!second.contains("could not be repeated"), "{second}");
    assert_eq!((by("liar"), by("honest-1") + by("honest-2")), (0, all));
    end.ask();
}

#[test]
fn kinds_of_device_are_tuned_side_by_side_each_with_records_of_its_own() {
    let Some(server) = Server::start("kinds") else { return };
    spec(&server, 2);
    let end = Stop::new();
    let runtime = runtime();
    let kinds = [
        gpu(0),
        Provenance { device: "NVIDIA H200".into(), ..gpu(1) },
        Provenance {
            device: "NVIDIA A100".into(),
            target: "sm_80".into(),
            capability: Some((8, 0)),
            units: 108,
            ..gpu(2)
        },
    ];
    for (number, kind) in kinds.iter().enumerate() {
        runtime.spawn(join(server.port, ["a", "b", "c"][number], kind.clone(), end.clone(), truth));
    }
    // Those that are there when it begins; workers wait for a session to make the streams.
    let made = text(&ended(server.said(&["fleet", "status"]), 30));
    assert!(made.contains("no workers") || made.contains("worker a"), "{made}");
    std::thread::sleep(Duration::from_secs(2));
    let output = ended(server.session("8").spawn().expect("the session starts"), 90);
    let said = text(&output);
    println!("{said}");
    assert!(output.status.success(), "{said}");
    for kind in &kinds {
        assert!(said.contains(&format!("{} on {}\n", kind.target, kind.device)), "{said}");
        let all = records(&server.folder);
        let of = all.iter().filter(|r| (&r.target, &r.device) == (&kind.target, &kind.device)).count();
        assert_eq!(of, 2, "{kind}");
    }
    let one = server.session("8").args(["--json"]).spawn().expect("the session starts");
    let refused = text(&ended(one, 60));
    assert!(
        refused.contains("--json is of one kind of device") && refused.contains("sm_80 on NVIDIA A100"),
        "{refused}"
    );
    end.ask();
}
