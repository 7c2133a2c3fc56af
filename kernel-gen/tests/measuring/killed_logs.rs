//! Processes that append to a log are killed at random moments, alone and beside others: what was logged stays, and the
//! log goes on.

use crate::folder::Folder;
use kernel_gen::records::log::{Log, LogWriter, Machine, Run, RunId, TaskKey};
use kernel_gen::records::{Outcome, Timing, Trial};
use kernel_gen::space::{Config, Fingerprint};
use kernel_gen::stable::Rng;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Tells the child its log.
const LOG: &str = "KERNEL_GEN_TEST_LOG";

/// Tells the child how many trials to append.
const COUNT: &str = "KERNEL_GEN_TEST_COUNT";

fn task() -> TaskKey {
    TaskKey {
        workload: "matmul-f32-m64n64k64-nn".into(),
        target: "x86-64-v3".into(),
        template: "gemm".into(),
        template_version: 1,
        space: Fingerprint(7),
    }
}

/// The trial of a number, long enough that a kill may hit the middle of its line.
fn trial(number: u64) -> Trial {
    let samples_us = (0..40).map(|i| 1.0 + (number * 40 + i) as f64 / 7.0).collect();
    let timing = Timing { samples_us, ..Timing::default() };
    Trial { index: number, config: Config::new().with("n", number as i64), outcome: Outcome::Timed(timing) }
}

#[test]
#[ignore = "the child of the other tests: it appends until it is killed"]
fn appends() {
    let path = PathBuf::from(std::env::var_os(LOG).expect("the parent names the log"));
    let count: u64 = std::env::var(COUNT).expect("the parent says how many").parse().expect("a number");
    let mut log = LogWriter::open(&path, Run::new("CPU", 1, Machine::Other, "child", 0)).unwrap();
    println!("\nrun {}", log.run_id());
    for number in 0..count {
        log.append(&task(), &trial(number)).unwrap();
        // Not `println!`, whose output the test harness may hold back.
        let mut out = std::io::stdout().lock();
        writeln!(out, "logged {number}").and_then(|()| out.flush()).expect("the parent reads");
    }
}

impl Folder {
    fn log(&self) -> PathBuf {
        self.0.join("trials.jsonl")
    }
}

fn child(log: &Path, count: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "killed_logs::appends", "--nocapture"])
        .env(LOG, log)
        .env(COUNT, count.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// What a child said: its run, and the trials that it knew to be logged.
fn said(child: &mut Child) -> (Option<RunId>, u64) {
    let (mut run, mut logged) = (None, 0);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(id) = line.strip_prefix("run ") {
            run = RunId::parse(id);
        }
        if let Some(number) = line.strip_prefix("logged ")
            && let Ok(number) = number.parse::<u64>()
        {
            logged = number + 1;
        }
    }
    (run, logged)
}

/// Kills a child after a while, while others read what it says.
fn run_and_kill(log: &Path, wait: Duration) -> (Option<RunId>, u64) {
    let mut child = child(log, u64::MAX);
    let id = child.id();
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(wait);
            // `Child::kill` is SIGKILL as well, but the child is read from meanwhile.
            let killed = Command::new("kill").args(["-9", &id.to_string()]).status().unwrap();
            assert!(killed.success());
        });
        let said = said(&mut child);
        assert!(!child.wait().unwrap().success());
        said
    })
}

/// Holds a log against what one of its writers said.
fn holds(log: &Log, run: RunId, logged: u64) -> u64 {
    let found: Vec<_> = log.entries.iter().filter(|e| e.run == run).collect();
    for (number, entry) in found.iter().enumerate() {
        assert_eq!((entry.number, &entry.trial), (number as u64, &trial(number as u64)));
        assert!(entry.machine.is_some());
    }
    let found = found.len() as u64;
    assert!(found == logged || found == logged + 1, "{logged} trials were logged, and {found} are found");
    found
}

#[cfg(unix)]
#[test]
fn a_writer_that_is_killed_loses_at_most_the_line_in_flight() {
    let folder = Folder::new("alone");
    let mut rng = Rng::new(11);
    let mut expected: Vec<(RunId, u64)> = vec![];
    for _ in 0..20 {
        let (run, logged) = run_and_kill(&folder.log(), Duration::from_micros(3_000 + rng.below(30_000)));
        let log = Log::read(&[folder.log()]).unwrap_or_default();
        // Every kill leaves at most one torn line, and no other is ever harmed.
        assert!(log.skipped.len() <= expected.len() + 1, "{:?}", log.skipped);
        let Some(run) = run else { continue };
        expected.push((run, holds(&log, run, logged)));
        for (run, found) in &expected {
            assert_eq!(log.entries.iter().filter(|e| e.run == *run).count() as u64, *found);
        }
    }
    let logged: u64 = expected.iter().map(|(_, n)| n).sum();
    println!("20 kills, {} while it wrote, {logged} trials", expected.len());
    assert!(expected.len() >= 10 && logged >= 20, "the children are killed before they write: {expected:?}");
}

#[cfg(unix)]
#[test]
fn the_death_of_one_writer_does_not_harm_another() {
    let folder = Folder::new("beside");
    let mut other = child(&folder.log(), 300);
    let reader = thread::spawn(move || {
        let said = said(&mut other);
        (said, other.wait().unwrap().success())
    });
    let mut rng = Rng::new(12);
    let mut killed = vec![];
    while !reader.is_finished() && killed.len() < 10 {
        let (run, logged) = run_and_kill(&folder.log(), Duration::from_micros(5_000 + rng.below(30_000)));
        killed.extend(run.map(|run| (run, logged)));
    }
    let ((run, logged), well) = reader.join().unwrap();
    assert!(well && logged == 300);
    let log = Log::read(&[folder.log()]).unwrap();
    assert_eq!(holds(&log, run.unwrap(), logged), 300);
    for (run, logged) in &killed {
        holds(&log, *run, *logged);
    }
    assert!(log.skipped.len() <= killed.len(), "{:?}", log.skipped);
}

#[test]
fn two_processes_share_a_log() {
    let folder = Folder::new("shared");
    let mut both = [child(&folder.log(), 100), child(&folder.log(), 100)];
    let said: Vec<_> = both.iter_mut().map(said).collect();
    assert!(both.iter_mut().all(|c| c.wait().unwrap().success()));
    let log = Log::read(&[folder.log()]).unwrap();
    assert_eq!((log.entries.len(), log.skipped.len(), log.warnings.len(), log.runs.len()), (200, 0, 0, 2));
    for (run, logged) in said {
        assert_eq!((holds(&log, run.unwrap(), logged), logged), (100, 100));
    }
}
