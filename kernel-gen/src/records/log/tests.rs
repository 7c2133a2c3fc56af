use super::*;
use crate::records::merge::{Side, merge_logs};
use crate::records::{Failure, FailureKind, Outcome, Timing, Trial};
use crate::space::{Annotation, Config, Fingerprint, Value};
use crate::stable::Rng;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file in a folder of its own, gone when the test ends.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> File {
        let folder = std::env::temp_dir().join(format!("kernel-gen-log-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        File(folder.join("trials.jsonl"))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.parent().unwrap());
    }
}

fn task(name: &str) -> TaskKey {
    TaskKey {
        workload: format!("matmul-f32-{name}-nn"),
        target: "sm_90a".into(),
        template: "gemm".into(),
        template_version: 2,
        space: Fingerprint(0x56e5_8302_9914_c63f),
    }
}

fn run() -> Run {
    let machine = Machine::Cuda {
        capability: "9.0".into(),
        sms: 132,
        driver: "580.65".into(),
        toolkit: "nvrtc 13.0".into(),
        sm_mhz: 1980,
        memory_mhz: 2619,
        uuid: "GPU-5d5b".into(),
    };
    Run::new("NVIDIA \"H100\"", 1, machine, "auto", u64::MAX)
}

/// A trial that differs in everything that a random number can decide.
fn trial(rng: &mut Rng) -> Trial {
    let mut time = || (1 + rng.below(1 << 40)) as f64 / 3e6;
    let (samples_us, cold_us) = (vec![time(), time(), time()], vec![time()]);
    let kind = FailureKind::ALL[rng.below(10) as usize];
    let outcome = match rng.below(3) {
        0 => Outcome::Failed(Failure { kind, detail: "at \"y[3]\":\n\t1 \u{2260} 2 \\".into() }),
        _ => Outcome::Timed(Timing { samples_us, cold_us, max_error: 1e-7 / 3.0, ..Timing::default() }),
    };
    let config = Config::new()
        .with_split("tile_f", &[-1, 1 << rng.below(9)])
        .with("order", Value::Perm(vec![1, 0]))
        .with("ann", Value::Annotate(vec![Annotation::Vec]))
        .with("pack", rng.below(2) == 0)
        .with("word", "two words")
        .with("unroll", rng.below(2000) as i64);
    Trial { index: rng.next_u64(), config, outcome }
}

/// Writes `count` trials of two tasks and says what was written.
fn write(path: &Path, count: usize, seed: u64) -> Vec<(TaskKey, Trial)> {
    let mut rng = Rng::new(seed);
    let mut log = LogWriter::open(path, run()).unwrap();
    let all: Vec<_> = (0..count).map(|i| (task(["a", "b"][i % 2]), trial(&mut rng))).collect();
    for (task, trial) in &all {
        log.append(task, trial).unwrap();
    }
    all
}

fn trials(log: &Log) -> Vec<(TaskKey, Trial)> {
    log.entries.iter().map(|e| (e.task.clone(), e.trial.clone())).collect()
}

#[test]
fn what_is_written_is_read_back_to_the_last_bit() {
    let file = File::new("round-trip");
    let written = write(file.path(), 40, 1);
    let log = Log::read(&[file.path()]).unwrap();
    assert_eq!(trials(&log), written);
    assert!(log.skipped.is_empty() && log.warnings.is_empty(), "{log:?}");
    assert_eq!(log.runs.values().map(|(run, _)| run.clone()).collect::<Vec<_>>(), [run()]);
    let numbers: Vec<u64> = log.entries.iter().map(|e| e.number).collect();
    assert_eq!(numbers, (0..40).collect::<Vec<_>>());
    assert!(log.entries.iter().all(|e| (e.tuner.as_str(), e.seed, e.threads) == ("auto", u64::MAX, 1)));
    assert!(log.entries.iter().all(|e| e.machine.as_deref() == Some(&run().machine)));
    assert_eq!(log.of_task(&task("a")).count(), 20);
    assert_eq!(log.of_task_on(&task("b"), "NVIDIA \"H100\"", 1).count(), 20);
    assert_eq!(log.of_task_on(&task("b"), "NVIDIA \"H100\"", 2).count(), 0);
    assert_eq!(log.tasks().len(), 2);
    // Each line begins where its place says.
    let text = fs::read_to_string(file.path()).unwrap();
    for e in &log.entries {
        assert!(text[e.place.offset as usize..].starts_with("{\"log\":1,\"line\":\"trial\""));
        assert_eq!(text.lines().nth(e.place.line - 1), text[e.place.offset as usize..].lines().next());
    }
}

#[test]
fn a_log_cut_at_any_byte_loses_the_line_that_was_cut_and_goes_on() {
    let file = File::new("cut");
    let written = write(file.path(), 3, 2);
    let whole = fs::read(file.path()).unwrap();
    let ends: Vec<usize> = whole.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i).collect();
    for cut in 0..=whole.len() {
        fs::write(file.path(), &whole[..cut]).unwrap();
        // The first line is the run's. A line whose end of line alone is missing is whole.
        let lines = ends.iter().filter(|end| **end <= cut).count();
        let kept = &written[..lines.saturating_sub(1)];
        let torn = !whole[..cut].is_empty() && whole[cut - 1] != b'\n' && !ends.contains(&cut);
        let log = Log::read(&[file.path()]).unwrap();
        assert_eq!(trials(&log), kept, "cut at {cut}");
        assert_eq!(log.skipped.len(), usize::from(torn), "cut at {cut}: {:?}", log.skipped);
        if torn {
            let message = log.skipped[0].to_string();
            assert!(message.contains(&format!("trials.jsonl:{}: the last line is cut off", lines + 1)), "{message}");
        }
        let more = write(file.path(), 1, 3);
        let log = Log::read(&[file.path()]).unwrap();
        assert_eq!(trials(&log), [kept, &more].concat(), "cut at {cut}, then appended to");
        assert_eq!(log.skipped.len(), usize::from(torn), "cut at {cut}, then appended to: {:?}", log.skipped);
        assert!(log.warnings.is_empty());
    }
}

#[test]
fn one_changed_byte_costs_one_line() {
    let file = File::new("flip");
    let written = write(file.path(), 4, 4);
    let whole = fs::read(file.path()).unwrap();
    let mut rng = Rng::new(5);
    for _ in 0..600 {
        let (at, to) = (rng.below(whole.len() as u64) as usize, rng.below(256) as u8);
        let mut damaged = whole.clone();
        damaged[at] = to;
        fs::write(file.path(), &damaged).unwrap();
        let log = Log::read(&[file.path()]).unwrap();
        if to == whole[at] {
            assert_eq!(trials(&log), written);
            continue;
        }
        let line = whole[..at].iter().filter(|b| **b == b'\n').count();
        // A lost end of line joins two lines; a new one cuts a line in two. A blank at the end harms nothing.
        let lost = if whole[at] == b'\n' { line..line + 2 } else { line..line + 1 };
        let kept: Vec<_> = (1..5).filter(|l| !lost.contains(l)).map(|l| written[l - 1].clone()).collect();
        let found = trials(&log);
        assert!(found == kept || found == written, "byte {at} to {to}");
        assert!(found == written || !log.skipped.is_empty(), "byte {at} to {to}: nothing is said");
        assert_eq!(log.warnings.is_empty(), line > 0 || log.skipped.is_empty(), "{:?}", log.warnings);
    }
}

#[test]
fn many_lines_with_one_fault_are_one_line_to_read() {
    let file = File::new("told");
    write(file.path(), 5, 6);
    let text = fs::read_to_string(file.path()).unwrap().replace("\"gemm\"", "\"gamm\"");
    fs::write(file.path(), text).unwrap();
    let log = Log::read(&[file.path()]).unwrap();
    assert_eq!(log.skipped.len(), 5);
    let told: Vec<String> = log.told().iter().map(|d| d.to_string()).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("trials.jsonl:2: the line was damaged") && told[0].contains("and 4 more lines"),
        "{told:?}"
    );
}

#[test]
fn a_trial_that_nobody_could_read_is_not_written() {
    let file = File::new("unfit");
    let mut log = LogWriter::open(file.path(), run()).unwrap();
    let timing = |samples_us, max_error| {
        let outcome = Outcome::Timed(Timing { samples_us, max_error, ..Timing::default() });
        Trial { index: 0, config: Config::new(), outcome }
    };
    for (trial, cause) in [
        (timing(vec![], 0.0), "a trial has neither times nor a failure"),
        (timing(vec![f64::NAN], 0.0), "a time is not a finite number of microseconds above 0"),
        (timing(vec![0.0], 0.0), "a time is not a finite number of microseconds above 0"),
        (timing(vec![1.0], f64::INFINITY), "`error` is not a finite number of at least 0"),
    ] {
        let message = log.append(&task("a"), &trial).unwrap_err().to_string();
        assert!(message.contains(cause), "{message}");
    }
    let odd = TaskKey { workload: "../x".into(), ..task("a") };
    assert!(log.append(&odd, &timing(vec![1.0], 0.0)).unwrap_err().to_string().contains("is not a name"));
    assert_eq!(fs::read(file.path()).unwrap(), b"");
    log.append(&task("a"), &timing(vec![1.0], 0.0)).unwrap();
    assert_eq!(Log::read(&[file.path()]).unwrap().entries[0].number, 0);
    let missing = file.path().with_file_name("none.jsonl");
    let message = Log::read(&[&missing]).unwrap_err().to_string();
    assert!(message.contains("cannot open the log") && message.ends_with("; name a file that is there"), "{message}");
}

#[test]
fn several_writers_share_a_log() {
    let file = File::new("shared");
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let path = file.path();
            scope.spawn(move || write(path, 50, seed));
        }
    });
    let log = Log::read(&[file.path()]).unwrap();
    assert_eq!((log.entries.len(), log.runs.len(), log.skipped.len(), log.warnings.len()), (200, 4, 0, 0));
    for id in log.runs.keys() {
        let numbers: Vec<u64> = log.entries.iter().filter(|e| e.run == *id).map(|e| e.number).collect();
        assert_eq!(numbers, (0..50).collect::<Vec<_>>());
    }
    // The same file read twice says nothing more.
    assert_eq!(Log::read(&[file.path(), file.path()]).unwrap().entries, log.entries);
}

#[test]
fn a_line_without_end_is_not_kept_in_memory() {
    let mut bytes = vec![b'x'; 3 << 20];
    bytes.extend(b"\n\n");
    let items: Vec<_> = LogReader::new(&bytes[..], "big").collect();
    let [Err(one)] = &items[..] else { panic!("{items:?}") };
    assert!(one.to_string().starts_with("big:1: the line is longer than any line of a log"), "{one}");
}

#[test]
fn seeds_read_back() {
    let file = File::new("seeds");
    let place = Place { file: file.path().display().to_string().replace('\\', "/").into(), line: 1, offset: 0 };
    let seed = Seed {
        task: task("a"),
        index: 7,
        config: Config::new().with("unroll", 16),
        reported_us: Some(747.8),
        source: "AutoTVM 0.2, cuda".into(),
        place,
    };
    append_seeds(file.path(), std::slice::from_ref(&seed)).unwrap();
    let log = Log::read(&[file.path()]).unwrap();
    assert_eq!((log.seeds_of(&task("a")).collect::<Vec<_>>(), log.entries.len()), (vec![&seed], 0));
}

#[test]
fn a_mark_of_the_encoding_costs_no_line() {
    let file = File::new("mark");
    let mut writer = LogWriter::open(file.path(), run()).unwrap();
    let mut rng = Rng::new(3);
    for _ in 0..3 {
        writer.append(&task("m8n8k8"), &trial(&mut rng)).unwrap();
    }
    let plain = fs::read(file.path()).unwrap();
    let marked = ["\u{feff}".as_bytes(), &plain].concat();
    // Two such files behind one another have a mark in the middle.
    for (bytes, runs) in [(marked.clone(), 1), ([marked.clone(), marked].concat(), 1)] {
        let mut log = Log::default();
        log.extend(LogReader::new(&bytes[..], "marked.jsonl"));
        assert_eq!(log.skipped, []);
        assert_eq!((log.runs.len(), log.entries.len() % 3), (runs, 0));
        assert!(log.entries.iter().all(|e| e.machine.is_some()), "the line of the run was read");
        assert!(crate::records::merge::is_log(&bytes));
    }
}

#[test]
fn settings_host_cost_and_comparisons_come_back() {
    let file = File::new("settings");
    let settings = Settings {
        number: 20,
        repeat: [3, 3],
        min_repeat_ms: 150.0,
        cooldown_s: 0.5,
        build_timeout_s: 10.0,
        run_timeout_s: 4.0,
    };
    let host = Host {
        os: "Debian GNU/Linux 12 (bookworm)".into(),
        kernel: "Linux 6.1.0".into(),
        arch: "x86_64".into(),
        processors: 16,
        memory_mib: 131_072,
        packages: [("compiler".to_string(), "gcc 12.2.0".to_string())].into(),
    };
    let run = Run { settings: Some(settings), host: Some(host), ..run() };
    let mut writer = LogWriter::open(file.path(), run.clone()).unwrap();
    let candidates = |us: Option<f64>| {
        let config = Config::new().with("x", 3);
        let one = |is_default, us| ComparedConfig {
            template: "gemm".into(),
            version: 2,
            config: config.clone(),
            is_default,
            is_chosen: !is_default,
            us,
        };
        vec![one(false, Some(2.5)), one(true, us)]
    };
    // A run that tries nothing and compares begins with its own line too.
    writer.append_compared(("matmul-f32-m8n8k8-nn", "sm_90a"), candidates(Some(3.5))).unwrap();
    let mut rng = Rng::new(3);
    writer.append_costing(&task("m8n8k8"), &trial(&mut rng), Some(Duration::from_micros(1_234_567))).unwrap();
    writer.append(&task("m8n8k8"), &trial(&mut rng)).unwrap();
    writer.append_compared(("matmul-f32-m8n8k8-nn", "sm_90a"), candidates(None)).unwrap();
    let unfit = writer.append_compared(("matmul-f32-m8n8k8-nn", "sm_90a"), candidates(Some(f64::NAN)));
    assert!(unfit.unwrap_err().to_string().contains("not a finite number of microseconds"));

    let mut log = Log::read(&[file.path()]).unwrap();
    assert_eq!((log.skipped.len(), log.warnings.len()), (0, 0));
    assert_eq!(log.runs.values().map(|(run, _)| run).collect::<Vec<_>>(), [&run]);
    assert_eq!(log.entries.iter().map(|e| e.cost_s).collect::<Vec<_>>(), [Some(1.235), None]);
    assert_eq!(log.compared.iter().map(|c| c.number).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(log.compared[0].candidates, candidates(Some(3.5)));
    assert_eq!(log.compared[1].candidates, candidates(None));
    // The same file once more says nothing new, and a merge keeps every line.
    log.extend(LogReader::open(file.path()).unwrap());
    assert_eq!((log.entries.len(), log.compared.len()), (2, 2));
    let bytes = fs::read(file.path()).unwrap();
    let side = crate::records::merge::Side { file: "a", bytes: &bytes };
    let (merged, told) = crate::records::merge::merge_logs(None, &[side, side]);
    assert_eq!((merged.lines().count(), told.len()), (5, 0));
    let lines: Vec<&str> = merged.lines().collect();
    assert!(lines[0].contains("\"line\":\"run\"") && lines[4].contains("\"line\":\"compared\""), "{merged}");
}

#[test]
fn text_that_would_not_stay_on_its_line_is_neither_read_nor_written() {
    let file = File::new("controls");
    // What a device calls itself is made fit.
    assert_eq!(Run::new("a\rb\u{2028}c", 1, Machine::Other, "auto", 1).device, "a b c");
    // A program that fills the fields itself is refused.
    for set in [
        |r: &mut Run, t: String| r.device = t,
        |r: &mut Run, t: String| r.generator = t,
        |r: &mut Run, t: String| r.tuner = t,
    ] {
        let mut run = run();
        set(&mut run, "x\ry".into());
        let refused = LogWriter::open(file.path(), run).and_then(|mut log| {
            let outcome = Outcome::Timed(Timing { samples_us: vec![1.0], ..Timing::default() });
            log.append(&task("a"), &Trial { index: 0, config: Config::new(), outcome })
        });
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("holds the control character U+000D"), "{message}");
    }
    // A line of another writer whose checksum is right.
    let mut rng = Rng::new(3);
    let run = run();
    let line = run.trial_line(RunId(1), 0, (1.0, None), &task("a"), &trial(&mut rng)).unwrap();
    for (field, key) in [(&run.device, "device"), (&"gemm".to_string(), "template"), (&run.tuner, "tuner")] {
        let (content, _) = line.trim_end().rsplit_once(",\"sum\"").unwrap();
        let written = serde_json::to_string(field).unwrap();
        let forged = content.replace(
            &format!("\"{key}\":{written}"),
            &format!("\"{key}\":{}", serde_json::to_string("x\u{0}\ry").unwrap()),
        );
        assert_ne!(forged, content, "{key}");
        let sum = crate::stable::stable_hash(&forged) >> 32;
        let _ = fs::create_dir_all(file.path().parent().unwrap());
        fs::write(file.path(), format!("{forged},\"sum\":\"{sum:08x}\"}}\n")).unwrap();
        let log = Log::read(&[file.path()]).unwrap();
        assert!(log.entries.is_empty(), "{key}");
        let told = log.told()[0].to_string();
        assert!(told.contains(&format!("trials.jsonl:1: `{key}` holds the control character U+0000")), "{told}");
    }
}

#[test]
fn a_fleet_has_a_run_a_worker_and_a_worker_that_is_dropped_counts_no_more() {
    let file = File::new("workers");
    let mut rng = Rng::new(9);
    let all: Vec<Trial> = (0..6).map(|_| trial(&mut rng)).collect();
    let mut log = LogWriter::open(file.path(), run()).unwrap();
    for (at, trial) in all.iter().enumerate() {
        let machine = || Machine::Cpu { isa: "x".into(), compiler: format!("cc {}", at % 2) };
        log.append_of_worker((["a-1", "b-2"][at % 2], machine), &task("a"), trial, Some(Duration::from_millis(5)))
            .unwrap();
    }
    log.append(&task("b"), &all[0]).unwrap();
    assert_eq!(log.appended(), 7);
    let read = || Log::read(&[file.path()]).unwrap();
    let log = read();
    assert!(log.skipped.is_empty() && log.warnings.is_empty(), "{log:?}");
    let by: Vec<Option<&str>> = log.entries.iter().map(|e| e.worker.as_deref()).collect();
    assert_eq!(by, [Some("a-1"), Some("b-2"), Some("a-1"), Some("b-2"), Some("a-1"), Some("b-2"), None]);
    assert_eq!(log.entries[2].machine.as_deref(), Some(&Machine::Cpu { isa: "x".into(), compiler: "cc 0".into() }));
    assert_eq!(log.runs.len(), 3);
    append_dropped(file.path(), "a-1").unwrap();
    let left = || read().entries.iter().map(|e| e.worker.as_deref().unwrap_or("-").to_string()).collect::<Vec<_>>();
    assert_eq!(left(), ["b-2", "b-2", "b-2", "-"]);
    // In whichever of several files it stands, and behind a merge.
    append_dropped(file.path(), "nobody").unwrap();
    let other = File::new("workers-too");
    append_dropped(other.path(), "b-2").unwrap();
    let both = Log::read(&[other.path(), file.path()]).unwrap();
    assert_eq!(both.entries.len(), 1);
    let bytes = [fs::read(file.path()).unwrap(), fs::read(other.path()).unwrap()];
    let sides = [Side { file: "a", bytes: &bytes[0] }, Side { file: "b", bytes: &bytes[1] }];
    fs::write(file.path(), merge_logs(None, &sides).0).unwrap();
    assert_eq!(left(), ["-"]);
}
