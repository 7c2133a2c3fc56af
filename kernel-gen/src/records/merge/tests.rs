use super::*;
use crate::records::log::{Log, Place};
use crate::records::log::{LogWriter, Machine, Run, Seed, TaskKey, append_seeds};
use crate::records::{Outcome, Timing, Trial};
use crate::space::{Config, Fingerprint};
use std::fs;
use std::path::PathBuf;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kernel-gen-merge-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn task() -> TaskKey {
    TaskKey {
        workload: "matmul-f32-m8n8k8-nn".into(),
        target: "x86-64-v3".into(),
        template: "gemm".into(),
        template_version: 1,
        space: Fingerprint(7),
    }
}

/// The text of a log of one run with `trials` trials.
fn log(file: &std::path::Path, trials: u64, seed: u64) -> String {
    let run = Run::new("CPU", 1, Machine::Other, "random", seed);
    let mut writer = LogWriter::open(file, run).unwrap();
    for index in 0..trials {
        let timing = Timing { samples_us: vec![1.0 + index as f64], ..Timing::default() };
        let config = Config::new().with("x", index as i64);
        writer.append(&task(), &Trial { index, config, outcome: Outcome::Timed(timing) }).unwrap();
    }
    fs::read_to_string(file).unwrap()
}

fn side<'a>(file: &'a str, text: &'a str) -> Side<'a> {
    Side { file, bytes: text.as_bytes() }
}

fn merged(sides: &[&str]) -> String {
    let sides: Vec<Side<'_>> = sides.iter().map(|text| side("log", text)).collect();
    merge_logs(None, &sides).0
}

#[test]
fn a_merge_of_logs_is_the_same_in_any_order_and_changes_nothing_when_repeated() {
    let folder = folder("logs");
    let a = log(&folder.join("a"), 12, 1);
    let b = log(&folder.join("b"), 3, 2);
    let place = Place { file: "c".into(), line: 1, offset: 0 };
    let seed = Seed { task: task(), index: 5, config: Config::new(), reported_us: None, source: "s".into(), place };
    append_seeds(&folder.join("b"), &[seed]).unwrap();
    let b = b + fs::read_to_string(folder.join("b")).unwrap().lines().last().unwrap() + "\n";
    let both = merged(&[&a, &b]);
    assert_eq!(both, merged(&[&b, &a]));
    assert_eq!(both, merged(&[&both, &a, &b]));
    assert_eq!(merged(&[&a]), a, "a log of one run is in its order already");
    assert_eq!(both.lines().count(), 13 + 4 + 1);
    // Both halves of a log give the whole, with what they share only once.
    let lines: Vec<&str> = a.lines().collect();
    let (first, second) = (lines[..8].join("\n"), lines[5..].join("\r\n"));
    assert_eq!(merged(&[&second, &first]), a);
    let mut back = Log::default();
    back.extend(LogReader::new(both.as_bytes(), "both"));
    assert_eq!((back.entries.len(), back.runs.len(), back.seeds.len(), back.skipped.len()), (15, 2, 1, 0));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_one_side_deleted_stays_deleted_and_what_is_damaged_is_named() {
    let folder = folder("three");
    let base = log(&folder.join("a"), 4, 1);
    let ours: String = base.lines().filter(|l| !l.contains("\"n\":2")).map(|l| format!("{l}\n")).collect();
    let theirs = base.clone() + log(&folder.join("b"), 1, 2).as_str() + "{\"log\":1,\"line\":\"tri";
    let merge = |a: &str, b: &str| merge_logs(Some(side("base", &base)), &[side("ours", a), side("theirs", b)]);
    let (text, told) = merge(&ours, &theirs);
    assert_eq!((text.lines().count(), told.len()), (6, 1));
    assert_eq!(told[0].to_string().split(':').take(2).collect::<Vec<_>>(), ["theirs", "8"]);
    assert!(!text.contains("\"n\":2"));
    assert_eq!(text, merge(&theirs, &ours).0);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn lines_of_a_newer_schema_are_kept_as_they_are() {
    let folder = folder("newer");
    let old = log(&folder.join("a"), 1, 1);
    // The checksum belongs to the text, whatever the text says.
    let body = "{\"log\":2,\"line\":\"dream\"";
    let sum = crate::space::stable_hash(body) >> 32;
    let newer = format!("{body},\"sum\":\"{sum:08x}\"}}\n");
    let text = merged(&[&newer, &old]);
    assert_eq!(text, old + &newer);
    fs::remove_dir_all(folder).unwrap();
}

fn record(time_us: f64) -> Record {
    Record {
        workload: "matmul-f32-m8n8k8-nn".into(),
        target: "x86-64-v3".into(),
        device: "CPU".into(),
        threads: 1,
        template: "gemm".into(),
        template_version: 2,
        space: Fingerprint(7),
        config: Config::new().with("x", time_us as i64),
        time_us,
        gflops: 1.0,
        core_gflops: None,
        floor_us: None,
        spread: None,
        max_error: 0.0,
        verified: true,
        generator: "0.1.0".into(),
    }
}

#[test]
fn of_two_records_the_checked_then_the_newer_then_the_faster_one_stays() {
    let fast = record(1.0);
    for worse in [
        record(2.0),
        Record { verified: false, ..record(0.5) },
        Record { template_version: 1, ..record(0.5) },
        Record { template: "other".into(), template_version: 9, ..record(2.0) },
    ] {
        assert_eq!(better(&fast, &worse), &fast, "{worse:?}");
        assert_eq!(better(&worse, &fast), &fast, "{worse:?}");
    }
    let tie = Record { config: Config::new().with("x", 5), ..fast.clone() };
    assert_eq!(better(&fast, &tie), better(&tie, &fast));
}

#[test]
fn of_a_record_that_one_side_changed_the_change_stays() {
    let text = |us: f64| list("x86-64-v3", "CPU", [&record(us)]);
    let (old, slow, fast) = (text(2.0), text(3.0), text(1.0));
    let merge =
        |base: &str, a: &str, b: &str| merge_records(Some(side("O", base)), side("A", a), side("B", b)).unwrap();
    assert_eq!((merge(&old, &slow, &old), merge(&old, &old, &slow)), (slow.clone(), slow.clone()));
    assert_eq!((merge(&old, &slow, &fast), merge(&old, &fast, &slow)), (fast.clone(), fast.clone()));
    assert_eq!(merge("", &slow, &fast), fast);
    let error = merge_records(None, side("A", "x ="), side("B", &fast)).unwrap_err();
    assert!(error[0].to_string().starts_with("A:1: "), "{error:?}");
    // Record by record: each side adds one, one deletes, one deletes what the other changed.
    let of = |m: i64, us: f64| Record { workload: format!("matmul-f32-m{m}n8k8-nn"), ..record(us) };
    let file = |all: &[Record]| list("x86-64-v3", "CPU", all);
    let base = file(&[of(1, 5.0), of(2, 5.0), of(3, 5.0)]);
    let (ours, theirs) = (file(&[of(2, 5.0), of(4, 1.0)]), file(&[of(1, 5.0), of(2, 4.0), of(3, 6.0), of(5, 1.0)]));
    let both = file(&[of(2, 4.0), of(3, 6.0), of(4, 1.0), of(5, 1.0)]);
    assert_eq!((merge(&base, &ours, &theirs), merge(&base, &theirs, &ours)), (both.clone(), both));
    let error = merge_records(
        None,
        side("A", &fast),
        side("B", &list("x86-64-v3", "X", [&Record { device: "X".into(), ..record(1.0) }])),
    );
    assert!(error.unwrap_err()[0].to_string().contains("`CPU` for x86-64-v3 and of `X` for x86-64-v3"));
    let folders = |times: [f64; 2]| {
        let mut one = [BestRecords::new(), BestRecords::new()];
        one.iter_mut().zip(times).for_each(|(folder, t)| drop(folder.insert(record(t))));
        merge_folders(&one).iter().map(|r| r.time_us).collect::<Vec<_>>()
    };
    assert_eq!((folders([2.0, 1.0]), folders([1.0, 2.0])), (vec![1.0], vec![1.0]));
}
