use super::of_logs::date;
use super::*;
use crate::records::log::{Compared, ComparedConfig, Entry, Log, LogReader, Machine};
use crate::records::{BestRecords, FailureKind, Outcome};
use crate::target::Target;
use crate::templates::Registry;
use crate::workload::Workload;
use std::sync::atomic::{AtomicU32, Ordering};

/// Lines of a log as its writer makes them.
fn log(trials: &[(&str, &str, Outcome)]) -> Log {
    use crate::records::Trial;
    use crate::records::log::{LogWriter, Run, TaskKey};
    // Tests of one process run at the same time.
    static LOGS: AtomicU32 = AtomicU32::new(0);
    let number = LOGS.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("kernel-gen-report-{}-{number}", std::process::id()));
    let file = folder.join("log.jsonl");
    let _ = std::fs::remove_dir_all(&folder);
    let machine = Machine::Cpu { isa: "x86-64-v3".into(), compiler: "cc <12>".into() };
    let mut writer = LogWriter::open(&file, Run::new("Some & CPU", 1, machine, "auto", 7)).unwrap();
    let registry = Registry::builtin();
    let target = Target::find("x86-64-v3").unwrap();
    for (at, (workload, template, outcome)) in trials.iter().enumerate() {
        let template = registry.find(template).unwrap();
        let space = template.space(&Workload::from_key(workload).unwrap(), target).unwrap();
        let task = TaskKey {
            workload: workload.to_string(),
            target: target.name.clone(),
            template: template.name().to_string(),
            template_version: template.version(),
            space: space.fingerprint(),
        };
        let (index, config) = space.sample(at as u64).next().unwrap();
        writer.append(&task, &Trial { index, config, outcome: outcome.clone() }).unwrap();
    }
    drop(writer);
    let text = std::fs::read(&file).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let mut log = Log::default();
    log.extend(LogReader::new(&text[..], "some.jsonl"));
    log
}

fn timed(us: f64) -> Outcome {
    Outcome::Timed(crate::records::Timing { samples_us: vec![us, us], ..crate::records::Timing::default() })
}

fn failed(kind: FailureKind, detail: &str) -> Outcome {
    Outcome::Failed(crate::records::Failure { kind, detail: detail.into() })
}

const SMALL: &str = "matmul-f32-m64n64k64-nn";
const LARGE: &str = "matmul-f32-m256n256k256-nn";

fn report() -> Report {
    let log = log(&[
        (SMALL, "matmul_packed", timed(9.0)),
        (SMALL, "matmul_packed", failed(FailureKind::Build, "cc: <error> & more")),
        (SMALL, "matmul_packed", timed(12.0)),
        (SMALL, "plain", timed(40.0)),
        (LARGE, "matmul_packed", timed(700.0)),
        (LARGE, "matmul_packed", timed(500.0)),
        (SMALL, "matmul_packed", timed(6.0)),
    ]);
    let names = Names::from([(SMALL.to_string(), ("head".to_string(), 100.0))]);
    Report::new("A <report>", &log, &names, None)
}

#[test]
fn curves_shares_and_failures_are_those_of_the_log() {
    let report = report();
    let bench = &report.benches[0];
    assert_eq!((report.benches.len(), bench.device.as_str(), bench.threads), (1, "Some & CPU", 1));
    // The small one occurs a hundred times: 600 us of the network against 500.
    let names: Vec<&str> = bench.layers.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["head", LARGE]);
    assert_eq!(bench.network_us(), 1100.0);
    let head = &bench.layers[0];
    assert_eq!(head.tasks[0].curve, [(1, 9.0), (4, 6.0)]);
    assert_eq!((head.trials(), head.best_us()), ((5, 1), Some(6.0)));
    assert_eq!(head.tasks[0].failures[&FailureKind::Build], (1, "cc: <error> & more".to_string()));
    assert!(head.tasks[1].template.starts_with("plain v"), "the faster template comes first");
    assert_eq!(head.tasks[0].best.as_ref().map(|b| b.place.as_str()), Some("some.jsonl:8"));
    let run = &report.runs[0];
    assert_eq!((run.trials, run.tuner.as_str(), run.machine.as_str()), (7, "auto, seed 7", "x86-64-v3, cc <12>"));
}

#[test]
fn the_page_stands_alone_and_shows_text_as_text() {
    let page = report().to_html();
    for tag in ["http", "src=", "@import", "url("] {
        assert!(!page.contains(tag), "the page asks for something: {tag}");
    }
    for (open, close) in [("<svg", "</svg>"), ("<table>", "</table>"), ("<div", "</div>"), ("<tr>", "</tr>")] {
        assert_eq!(page.matches(open).count(), page.matches(close).count(), "{open}");
    }
    assert!(page.contains("cc: &lt;error&gt; &amp; more") && !page.contains("<error>"));
    assert!(page.contains("<title>A &lt;report&gt;</title>"));
    // A curve for each workload, and the roofline.
    assert_eq!(page.matches("<svg").count(), 3);
    let shown = page.split("<script>").next().unwrap();
    assert!(!shown.contains("NaN") && !shown.contains("inf"), "a number is none");
}

#[test]
fn a_workload_above_the_roof_is_inside_of_the_drawing() {
    let log = log(&[(SMALL, "matmul_packed", timed(0.001)), (LARGE, "matmul_packed", timed(700.0))]);
    let page = Report::new("t", &log, &Names::new(), None).to_html();
    let points: Vec<f64> = page
        .split("<g class=\"point\">")
        .skip(1)
        .filter_map(|point| point.split("cy=\"").nth(1)?.split('"').next()?.parse().ok())
        .collect();
    assert_eq!(points.len(), 2, "{page}");
    assert!(points.iter().all(|y| (24.0..336.0).contains(y)), "{points:?}");
}

#[test]
fn the_same_logs_give_the_same_page() {
    let log = log(&[(SMALL, "matmul_packed", timed(9.0)), (LARGE, "matmul_packed", timed(700.0))]);
    let page = || Report::new("t", &log, &Names::new(), None).to_html();
    assert_eq!(page(), page());
}

#[test]
fn workloads_that_nobody_knows_any_more_are_shown_all_the_same() {
    let mut log =
        log(&[(SMALL, "matmul_packed", timed(9.0)), (SMALL, "matmul_packed", failed(FailureKind::Crash, ""))]);
    for entry in &mut log.entries {
        entry.task.workload = "winograd-9000".into();
        entry.task.target = "z80".into();
    }
    let page = Report::new("t", &log, &Names::new(), None).to_html();
    assert!(page.contains("winograd-9000") && page.contains("9.000"));
    assert_eq!(page.matches("<svg").count(), 1, "no roofline without a target");
    let nothing = Report::new("t", &Log::default(), &Names::new(), None).to_html();
    assert!(nothing.contains("The logs hold no trials."));
}

#[test]
fn dates_are_those_of_the_calendar() {
    let all = [0, 951_782_400, 1_709_164_799, 1_795_254_755].map(date);
    assert_eq!(all, ["1970-01-01 00:00", "2000-02-29 00:00", "2024-02-28 23:59", "2026-11-21 09:52"]);
}

#[test]
fn only_times_of_one_comparison_are_divided() {
    let mut log = log(&[(SMALL, "matmul_packed", timed(9.0)), (SMALL, "matmul_packed", timed(10.0))]);
    let (chosen, default) = (log.entries[0].clone(), log.entries[1].clone());
    let one = |entry: &Entry, us, is_default, is_chosen| ComparedConfig {
        template: entry.task.template.clone(),
        version: entry.task.template_version,
        config: entry.trial.config.clone(),
        is_default,
        is_chosen,
        us,
    };
    let compared = |candidates| Compared {
        workload: SMALL.into(),
        target: "x86-64-v3".into(),
        device: "Some & CPU".into(),
        threads: 1,
        candidates,
        run: chosen.run,
        number: 0,
        at_s: 1.0,
    };
    let report = |log: &Log, records: Option<&BestRecords>| Report::new("t", log, &Names::new(), records);
    let gain = |report: &Report| report.benches[0].layers[0].beside_default_us;
    // The search's times of the default and of the best are none of one comparison.
    let page = report(&log, None);
    assert_eq!(gain(&page), None);
    assert!(!page.to_html().contains("as fast as without records") && !page.to_html().contains("1.11 x"));
    // In the comparison at the end the default is as fast; another one before it, and one of another device, say nothing.
    log.compared.push(compared(vec![one(&default, Some(20.0), true, false), one(&chosen, Some(9.0), false, true)]));
    log.compared.push(compared(vec![one(&default, Some(8.0), true, true), one(&chosen, Some(8.0), false, false)]));
    let other = compared(vec![one(&default, Some(80.0), true, false), one(&chosen, Some(8.0), false, true)]);
    log.compared.push(Compared { device: "Other".into(), ..other });
    let page = report(&log, None);
    assert_eq!(gain(&page), Some((8.0, 8.0)));
    assert!(page.to_html().contains("1.00 x"));
    // What builds use is the record, and a record that was not compared has no ratio.
    let mut records = BestRecords::new();
    let mut record = crate::records::Record {
        workload: SMALL.into(),
        target: "x86-64-v3".into(),
        device: "Some & CPU".into(),
        threads: 1,
        template: chosen.task.template.clone(),
        template_version: chosen.task.template_version,
        space: chosen.task.space,
        config: chosen.trial.config.clone(),
        time_us: 8.0,
        gflops: 1.0,
        core_gflops: None,
        floor_us: None,
        spread: Some(1.07),
        max_error: 0.0,
        verified: true,
        generator: "0.1.0".into(),
    };
    records.insert(record.clone());
    let page = report(&log, Some(&records));
    assert_eq!(gain(&page), Some((8.0, 8.0)));
    assert!(page.to_html().contains(", 1.07 times from machine to machine"));
    record.template_version += 1;
    let mut records = BestRecords::new();
    records.insert(record);
    assert_eq!(gain(&report(&log, Some(&records))), None);
}

#[test]
fn trials_of_a_fleet_are_counted_by_worker() {
    let mut log = log(&[
        (SMALL, "plain", timed(9.0)),
        (SMALL, "matmul_packed", failed(FailureKind::Build, "no")),
        (SMALL, "matmul_packed", timed(8.0)),
    ]);
    let page = Report::new("t", &log, &Names::new(), None);
    assert!(page.benches[0].workers.is_empty() && !page.to_html().contains("Trials by worker"));
    for (entry, worker) in log.entries.iter_mut().zip(["node<1>", "node<1>", "node2"]) {
        (entry.worker, entry.cost_s) = (Some(worker.into()), Some(0.5));
    }
    let page = Report::new("t", &log, &Names::new(), None);
    let workers = page.benches[0].workers.iter().map(|w| (&w.name[..], w.trials, w.failed, w.seconds));
    assert_eq!(workers.collect::<Vec<_>>(), [("node2", 1, 0, 0.5), ("node<1>", 2, 1, 1.0)]);
    assert!(page.to_html().contains("<td class=\"name\">node&lt;1&gt;</td><td>x86-64-v3, cc &lt;12&gt;</td>"));
}
