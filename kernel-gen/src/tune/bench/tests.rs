//! Rows, means and the table, on outcomes that are given.

use super::*;
use crate::records::{Failure, FailureKind, Origin, Outcome, Record, Timing};
use crate::space::Config;
use crate::templates::testing::Rows;
use crate::tune::measure::{JobId, PeerTiming};
use crate::tune::replay::{Recording, Replay};
use crate::workload::bound::Accuracy;
use crate::workload::{Conv2d, Matmul};
use std::time::Duration;

const TARGET: &str = "x86-64-v3";

fn registry() -> Registry {
    let rows = |name, version, cost| Rows { name, version, cost };
    Registry::empty().with(rows("slow", 1, 9.0)).with(rows("fast", 3, 2.0))
}

fn product(m: i64) -> Workload {
    Workload::f32(Matmul::new(m, 32, 16))
}

fn config(inner: i64) -> Config {
    Config::new().with_split("rows", &[-1, inner])
}

fn timed(us: f64) -> Outcome {
    Outcome::Timed(Timing { samples_us: vec![us; 3], max_error: 0.25, ..Timing::default() })
}

fn record(m: i64, template: &str, inner: i64, time_us: f64) -> Record {
    let (registry, target) = (registry(), Target::find(TARGET).unwrap());
    let template = registry.find(template).unwrap();
    Record {
        workload: product(m).key(),
        target: TARGET.into(),
        device: "CPU".into(),
        threads: 1,
        template: template.name().into(),
        template_version: template.version(),
        space: template.space(&product(m), target).unwrap().fingerprint(),
        config: config(inner),
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

/// A replay that counts what it is asked.
struct Counted(Replay, Vec<usize>);

impl<'r> Measurer<'r> for Counted {
    fn capacity(&self) -> usize {
        Measurer::capacity(&self.0)
    }

    fn submit(&mut self, id: JobId, task: &Task<'r>, config: &Config) {
        self.0.submit(id, task, config);
    }

    fn next(&mut self, wait: Duration) -> Option<(JobId, Outcome)> {
        Measurer::next(&mut self.0, wait)
    }

    fn compare(&mut self, candidates: &[(&Task<'r>, &Config)]) -> Vec<Outcome> {
        self.1.push(candidates.len());
        self.0.compare(candidates)
    }
}

/// A report on products with so many rows, and how many candidates were timed for each.
fn report(subjects: &[i64], records: &[Record], outcomes: &[(i64, &str, i64, Outcome)]) -> (Report, Vec<usize>) {
    let registry = registry();
    let target = Target::find(TARGET).unwrap();
    let mut best = BestRecords::new();
    records.iter().for_each(|r| drop(best.insert(r.clone())));
    let mut recording = Recording::new();
    for (m, template, inner, outcome) in outcomes {
        recording.add(&product(*m).key(), TARGET, template, &config(*inner), outcome.clone());
    }
    let mut measurer = Counted(Replay::new(recording), vec![]);
    let subjects: Vec<Subject> = subjects
        .iter()
        .map(|m| Subject { name: format!("rows {m}"), weight: 1.0, workload: product(*m), ranged: None })
        .collect();
    let options = Options { others: true, ..Options::default() };
    let provenance = Provenance {
        device: "CPU".into(),
        target: TARGET.into(),
        threads: 1,
        compiler: "cc".into(),
        ..Provenance::default()
    };
    let bench = Bench { registry: &registry, target, records: &best, options: &options, provenance: &provenance };
    let mut heard = 0;
    let report = bench.run(&subjects, &mut measurer, &Stop::new(), &mut |_| heard += 1);
    assert_eq!(heard, subjects.len());
    (report, measurer.1)
}

#[test]
fn a_record_stands_beside_the_default_and_what_other_records_choose() {
    let records = [record(64, "slow", 8, 1.5), record(128, "slow", 4, 2.5)];
    // Whatever is not the record's config takes twice as long as that.
    let mut outcomes = vec![];
    for (m, us) in [(64, 1.53), (128, 3.0)] {
        let all = [1, 2, 4, 8].into_iter().flat_map(|inner| [("slow", inner), ("fast", inner)]);
        outcomes.extend(all.map(|(template, inner)| (m, template, inner, timed(2.0 * us))));
    }
    outcomes.extend([(64, "slow", 8, timed(1.53)), (128, "slow", 4, timed(3.0))]);
    let (report, asked) = report(&[64, 128], &records, &outcomes);
    assert!(asked.len() == 2 && asked.iter().all(|n| (2..=3).contains(n)), "{asked:?}");
    let rows: Vec<&Measured> = report.rows.iter().map(|r| r.result.as_ref().unwrap()).collect();
    assert_eq!(rows[0].recorded_us(), Some(1.5));
    assert!((rows[0].again().unwrap() - 1.02).abs() < 1e-9);
    assert_eq!(rows[0].relative(&rows[0].default), Some(2.0));
    let others = rows[0].others.as_ref().unwrap();
    assert!(matches!(others.choice.origin, Origin::Model { records: 1, .. }), "{:?}", others.choice);
    let summary = report.summary();
    assert_eq!((summary.recorded, summary.workloads, summary.failed), (2, 2, 0));
    assert_eq!(summary.counts, Again { confirmed: 1, slower: 1, faster: 0 });
    assert_eq!(
        summary.to_string(),
        "2 of 2 workloads have a record; geometric means: default/record 2.000 over 2 workloads, others/record 2.000 over \
         2 workloads, now/recorded 1.106 over 2 workloads; 1 of 2 records of this device timed again within 5 %, 1 slower, \
         0 faster"
    );
    assert_eq!(
        table(&report),
        format!(
            "\
CPU, 0 units, x86-64-v3 by cc
workload  recorded us  now us  now/recorded  default us   /now  others us   /now  chosen by
rows 64         1.500   1.530         1.02x       3.060  2.00x      3.060  2.00x  record, slow
rows 128        2.500   3.000         1.20x       6.000  2.00x      6.000  2.00x  record, slow
{summary}
"
        )
    );
}

#[test]
fn what_is_the_same_config_is_timed_once() {
    // No records: all three are the default. A record that is the default: two of them are.
    let (report_none, asked) = report(&[64], &[], &[(64, "fast", 1, timed(3.0))]);
    assert_eq!(asked, [1]);
    let row = report_none.rows[0].result.as_ref().unwrap();
    assert_eq!((row.chosen.us(), row.recorded_us(), row.again()), (Some(3.0), None, None));
    let summary = report_none.summary();
    assert_eq!((summary.recorded, summary.default, summary.counts.total()), (0, None, 0));
    assert_eq!(summary.to_string(), "0 of 1 workloads have a record");
    assert!(table(&report_none).contains("no record: the default, fast"), "{}", table(&report_none));
    let (_, asked) = report(&[64], &[record(64, "fast", 1, 3.0)], &[(64, "fast", 1, timed(3.0))]);
    assert_eq!(asked, [1]);
}

#[test]
fn a_failure_is_a_row_with_its_reason_and_the_next_is_measured() {
    let wrong = Outcome::Failed(Failure { kind: FailureKind::WrongAnswer, detail: "element 3 is 7 and not 4".into() });
    let records = [record(64, "slow", 8, 1.5)];
    let outcomes = [
        (64, "slow", 8, timed(1.5)),
        (64, "fast", 1, wrong.clone()),
        (128, "slow", 1, timed(6.0)),
        (128, "fast", 1, timed(6.0)),
    ];
    let (report, _) = report(&[64, 128], &records, &outcomes);
    let text = table(&report);
    let want = "the default failed: wrong_answer: element 3 is 7 and not 4 (fast rows=[-1,1])";
    // The default and the choice by other records are the same here: one reason is enough.
    assert_eq!(text.matches("failed: ").count(), 1, "{text}");
    assert!(text.contains(want), "{text}");
    let summary = report.summary();
    assert_eq!((summary.default, summary.again.map(|m| m.workloads)), (None, Some(1)));
    assert_eq!(summary.counts, Again { confirmed: 1, slower: 0, faster: 0 });
    assert!(
        text.contains("no record: by records of other shapes") || text.contains("no record: the default"),
        "{text}"
    );
}

#[test]
fn the_fastest_library_stands_beside_what_is_used() {
    let timing = |way: &str, us: f64| PeerTiming {
        way: way.into(),
        tried: vec![],
        samples_us: vec![us; 3],
        cold_us: vec![2.0 * us],
        accuracy: Accuracy { max: 2.5e-7, rms: 1e-7 },
    };
    let both = |us, cold| {
        let accuracy = Some(Accuracy { max: 1.25e-7, rms: 5e-8 });
        Outcome::Timed(Timing { samples_us: vec![us], cold_us: vec![cold], accuracy, ..Timing::default() })
    };
    // Of the first, calls begin before those in front have ended.
    let early = match both(2.0, 3.0) {
        Outcome::Timed(t) => Outcome::Timed(Timing { apart_us: vec![2.5], apart_cold_us: vec![4.0], ..t }),
        failed => failed,
    };
    let outcomes = [(64, "fast", 1, early), (128, "fast", 1, both(4.0, 5.0)), (256, "fast", 1, both(1.0, 2.0))];
    let (mut report, _) = report(&[64, 128, 256], &[], &outcomes);
    report.peers = vec![Peer::Cublas];
    let peers = [Ok(timing("cuBLAS", 4.0)), Ok(timing("cuBLAS", 2.0)), Err("it is not here".to_string())];
    for (row, peer) in report.rows.iter_mut().zip(peers) {
        row.result.as_mut().unwrap().peers = vec![(Peer::Cublas, peer)];
    }
    let summary = report.summary();
    assert_eq!((summary.peer.unwrap(), summary.worst.clone()), (mean([2.0, 0.5]), Some((0.5, "rows 128".into()))));
    // 8 to 3 and 4 to 5.
    assert!((summary.cold_peer.unwrap().ratio - (8.0f64 / 3.0 * 0.8).sqrt()).abs() < 1e-12);
    // 4 to 2.5 and 2 to 4: what never begins early counts as it is.
    assert!((summary.apart_peer.unwrap().ratio - (1.6f64 * 0.5).sqrt()).abs() < 1e-12);
    assert!((summary.cold_apart_peer.unwrap().ratio - (2.0f64 * 0.8).sqrt()).abs() < 1e-12);
    let text = table(&report);
    for line in [
        "  cold us  apart us  apart cold us  error max / rms",
        "    3.000     2.500          4.000  1.2e-7 / 5.0e-8",
        "    5.000         -              -  1.2e-7 / 5.0e-8",
        "  peer us   /now  /apart  peer cold us  /cold  /apart cold       peer error  peer    chosen by",
        "    4.000  2.00x   1.60x         8.000  2.67x        2.00x  2.5e-7 / 1.0e-7  cuBLAS  no record",
        "    2.000  0.50x   0.50x         4.000  0.80x        0.80x  2.5e-7 / 1.0e-7  cuBLAS  no record",
        "        -      -       -             -      -            -                -  -       no record",
        "no peer for 1 of 3 workloads: cublas: it is not here\n",
        "; peer/now is 0.50 at worst (rows 128)",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn where_a_residual_is_added_a_library_that_adds_it_goes_before_a_faster_one_that_does_not() {
    let timing = |way: &str, us: f64| {
        Ok(PeerTiming {
            way: way.into(),
            tried: vec![],
            samples_us: vec![us; 3],
            cold_us: vec![us],
            accuracy: Accuracy { max: 0.0, rms: 0.0 },
        })
    };
    let (mut report, _) = report(&[64], &[], &[(64, "fast", 1, timed(4.0))]);
    report.peers = vec![Peer::Cudnn, Peer::CudnnFused];
    let note = "the peer of 1 of 1 workloads leaves out the residual that they add: compare with cudnn-fused\n";
    let (bare, fused) = ((Peer::Cudnn, timing("bare", 2.0)), (Peer::CudnnFused, timing("fused", 5.0)));
    let cases = [
        (false, vec![bare.clone(), fused.clone()], Some("bare"), false),
        (true, vec![bare.clone(), fused], Some("fused"), false),
        (true, vec![bare.clone()], Some("bare"), true),
        (true, vec![bare, (Peer::CudnnFused, Err("it is not here".into()))], Some("bare"), true),
        (true, vec![], None, false),
    ];
    for (adds_residual, peers, way, noted) in cases {
        let measured = report.rows[0].result.as_mut().unwrap();
        (measured.adds_residual, measured.peers) = (adds_residual, peers);
        assert_eq!((measured.peer().map(|p| &p.way[..]), measured.peer_leaves_out_residual()), (way, noted));
        assert_eq!(table(&report).contains(note), noted, "{}", table(&report));
    }
}

fn mean(ratios: [f64; 2]) -> Mean {
    Mean { ratio: (ratios[0] * ratios[1]).sqrt(), workloads: 2 }
}

/// Knows the libraries that it is asked for, and has no device.
struct Asked(Replay, Vec<Vec<Peer>>);

impl<'r> Measurer<'r> for Asked {
    fn capacity(&self) -> usize {
        1
    }

    fn submit(&mut self, _: JobId, _: &Task<'r>, _: &Config) {}

    fn next(&mut self, _: Duration) -> Option<(JobId, Outcome)> {
        None
    }

    fn compare(&mut self, candidates: &[(&Task<'r>, &Config)]) -> Vec<Outcome> {
        self.0.compare(candidates)
    }

    fn compare_with(&mut self, candidates: &[(&Task<'r>, &Config)], peers: &[Peer]) -> Comparison {
        self.1.push(peers.to_vec());
        Comparison { outcomes: self.compare(candidates), peers: peers.iter().map(|_| Err("none".into())).collect() }
    }
}

#[test]
fn a_library_is_asked_for_operators_that_it_has() {
    let registry = registry();
    let target = Target::find(TARGET).unwrap();
    let options = Options { peers: vec![Peer::Cudnn, Peer::Cublas], ..Options::default() };
    let (best, provenance) = (BestRecords::new(), Provenance::default());
    let bench = Bench { registry: &registry, target, records: &best, options: &options, provenance: &provenance };
    let subjects = [Subject { name: "a".into(), weight: 1.0, workload: product(64), ranged: None }];
    let mut measurer = Asked(Replay::new(Recording::new()), vec![]);
    let report = bench.run(&subjects, &mut measurer, &Stop::new(), &mut |_| ());
    assert_eq!(measurer.1, [[Peer::Cublas]]);
    assert_eq!(report.rows[0].result.as_ref().unwrap().peers, [(Peer::Cublas, Err("none".to_string()))]);
    assert!(has(Peer::Cudnn, &Op::Conv2d(Conv2d::nchw(1, 8, 8, 8, 8, 3, 1, 1))));
}

#[test]
fn all_launches_are_summed_where_some_run_more_than_once() {
    let all = [(64, "slow", 8, timed(1.5)), (64, "fast", 1, timed(3.0)), (64, "slow", 4, timed(3.0))];
    let (mut report, _) = report(&[64], &[record(64, "slow", 8, 1.5)], &all);
    assert_eq!(report.summary().sums, None);
    report.rows[0].weight = 3.0;
    assert_eq!(report.summary().sums, Some(Sums { chosen: 4.5, default: Some(9.0), peer: None }));
    let text = report.summary().to_string();
    assert!(text.contains("; all launches together 0.004 ms, by default 0.009 ms"), "{text}");
    report.rows.push(Row { result: Err("no time".into()), ..report.rows[0].clone() });
    assert_eq!(report.summary().sums, None, "one is missing");
}

#[test]
fn records_of_other_devices_are_not_counted_as_timed_again() {
    let foreign = Record { device: "another".into(), ..record(64, "slow", 8, 1.0) };
    let threads = Record { threads: 4, ..record(128, "slow", 8, 1.0) };
    let outcomes = [
        (64, "slow", 8, timed(1.5)),
        (64, "fast", 1, timed(3.0)),
        (64, "slow", 4, timed(3.0)),
        (128, "slow", 8, timed(1.5)),
        (128, "fast", 1, timed(3.0)),
    ];
    let (report, _) = report(&[64, 128], &[foreign, threads], &outcomes);
    let summary = report.summary();
    assert_eq!((summary.recorded, summary.counts.total(), summary.again), (2, 0, None));
    assert_eq!(summary.default.map(|m| (m.ratio.round(), m.workloads)), Some((2.0, 2)));
}

#[test]
fn a_slower_clock_is_not_held_against_a_record() {
    // A tenth slower, as is the clock; and a tenth slower at the same clock.
    let at = |us: f64, core: f64| match timed(us) {
        Outcome::Timed(timing) => Outcome::Timed(Timing { core_gflops: vec![core; 3], ..timing }),
        failed => failed,
    };
    let recorded = |m| Record { core_gflops: Some(220.0), ..record(m, "fast", 4, 10.0) };
    let records = [recorded(64), recorded(128), record(256, "fast", 4, 10.0)];
    let outcomes =
        [(64, "fast", 4, at(11.0, 200.0)), (128, "fast", 4, at(11.0, 220.0)), (256, "fast", 4, at(11.0, 200.0))];
    let (report, _) = report(&[64, 128, 256], &records, &outcomes);
    let close = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-9);
    let rows: Vec<&Measured> = report.rows.iter().map(|row| row.result.as_ref().unwrap()).collect();
    assert!(rows.iter().all(|m| close(m.again(), 1.1)));
    assert!(close(rows[0].clock(), 10.0 / 11.0) && close(rows[0].again_at_clock(), 1.0), "{:?}", rows[0].clock());
    assert!(close(rows[1].clock(), 1.0) && close(rows[1].again_at_clock(), 1.1), "{:?}", rows[1].clock());
    // A record from before clocks were measured says nothing about them.
    assert!(rows[2].clock().is_none() && close(rows[2].again_at_clock(), 1.1));
    let counts = report.summary().counts;
    assert_eq!((counts.confirmed, counts.slower), (1, 2), "{}", table(&report));
    assert!(table(&report).contains("at its clock") && report.summary().to_string().contains("at the record's clock"));
}

#[test]
fn a_shape_is_withheld_with_every_epilogue_and_type() {
    let mut all = BestRecords::new();
    for key in [
        "conv2d-nchw-f32-n1c64h56w56-o64k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.relu",
        "conv2d-nchw-f32-n1c64h56w56-o64k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.residual_add.relu",
        "conv2d-nchw-f16-n1c64h56w56-o64k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.relu",
        "conv2d-nchw-f32-n1c64h28w28-o64k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.relu",
    ] {
        assert!(Workload::from_key(key).is_ok(), "{key}");
        all.insert(Record { workload: key.into(), ..record(64, "slow", 8, 1.0) });
    }
    let own = Workload::from_key("conv2d-nchw-f32-n1c64h56w56-o64k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.relu").unwrap();
    let left = without_shape(&all, &own);
    let keys: Vec<&str> = left.iter().map(|r| r.workload.as_str()).collect();
    assert_eq!(keys, ["conv2d-nchw-f32-n1c64h28w28-o64k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.relu"]);
}

#[test]
fn what_the_time_or_the_user_ends_is_named() {
    let registry = registry();
    let target = Target::find(TARGET).unwrap();
    let options = Options { limit: Some(Duration::ZERO), ..Options::default() };
    let (best, provenance) = (BestRecords::new(), Provenance::default());
    let bench = Bench { registry: &registry, target, records: &best, options: &options, provenance: &provenance };
    let subjects = [Subject { name: "a".into(), weight: 1.0, workload: product(64), ranged: None }];
    let mut measurer = Replay::new(Recording::new());
    let text = table(&bench.run(&subjects, &mut measurer, &Stop::new(), &mut |_| ()));
    assert!(text.contains("not measured: the time is over; --seconds gives more"), "{text}");
    let stop = Stop::new();
    stop.ask();
    let report = bench.run(&subjects, &mut measurer, &stop, &mut |_| ());
    assert_eq!(report.rows[0].result, Err("stopped by the user".to_string()));
    assert_eq!(report.summary().failed, 1);
}
