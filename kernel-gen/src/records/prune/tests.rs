use super::*;
use crate::records::log::{LogWriter, Machine, Run};
use crate::records::{Timing, Trial};
use crate::target::Target;
use crate::templates::testing::Rows;
use std::fs;
use std::path::PathBuf;

const PRODUCT: &str = "matmul-f32-m64n32k16-nn";

fn registry() -> Registry {
    Registry::empty().with(Rows { name: "rows", version: 2, cost: 1.0 })
}

fn task() -> TaskKey {
    let (workload, target) = (Workload::from_key(PRODUCT).unwrap(), Target::find("x86-64-v3").unwrap());
    let space = registry().find("rows").unwrap().space(&workload, target).unwrap().fingerprint();
    TaskKey {
        workload: PRODUCT.into(),
        target: "x86-64-v3".into(),
        template: "rows".into(),
        template_version: 2,
        space,
    }
}

fn rows(n: i64) -> Config {
    Config::new().with_split("rows", &[-1, n])
}

/// A log in a folder of its own, gone when the test ends.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> File {
        let folder = std::env::temp_dir().join(format!("kernel-gen-prune-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        File(folder.join("trials.jsonl"))
    }

    /// Logs trials of `rows` with their samples.
    fn log(&self, device: &str, threads: u32, task: &TaskKey, trials: &[(i64, &[f64])]) -> &File {
        let mut writer = LogWriter::open(&self.0, Run::new(device, threads, Machine::Other, "random", 1)).unwrap();
        for (n, samples) in trials {
            let timing = Timing { samples_us: samples.to_vec(), max_error: 1e-7 * *n as f64, ..Timing::default() };
            let trial = Trial { index: 0, config: rows(*n), outcome: Outcome::Timed(timing) };
            writer.append(task, &trial).unwrap();
        }
        self
    }

    fn prune(&self, incumbents: &[Record]) -> Pruned {
        let mut best = BestRecords::new();
        incumbents.iter().for_each(|r| drop(best.insert(r.clone())));
        prune(&Log::read(&[&self.0]).unwrap(), &best, &registry())
    }

    /// The only decision, and its record.
    fn decide(&self, incumbent: &Record) -> (Decision, Record) {
        let pruned = self.prune(std::slice::from_ref(incumbent));
        let [one] = &pruned.verdicts[..] else { panic!("{pruned:?}") };
        (one.decision.clone(), one.record.clone())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.parent().unwrap());
    }
}

#[test]
fn the_best_of_each_device_and_number_of_threads_becomes_a_record() {
    let file = File::new("best");
    file.log("A", 1, &task(), &[(1, &[9.0; 5]), (8, &[4.0, 5.0, 4.5, 4.5, 100.0]), (4, &[6.0; 5])]);
    file.log("A", 2, &task(), &[(2, &[3.0; 5])]).log("B", 1, &task(), &[(4, &[7.0; 5])]);
    let pruned = file.prune(&[]);
    let of = |r: &Record| (r.device.clone(), r.threads, r.config.to_string(), r.time_us);
    let mut found: Vec<_> = pruned.changed().map(of).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.cmp(&b.1)));
    let row = |device: &str, threads, n: i64, time| (device.to_string(), threads, rows(n).to_string(), time);
    assert_eq!(found, [row("A", 1, 8, 4.5), row("A", 2, 2, 3.0), row("B", 1, 4, 7.0)]);
    let record = &pruned.verdicts.iter().find(|v| v.record.threads == 1 && v.record.device == "A").unwrap().record;
    assert_eq!((record.verified, record.max_error, record.template_version), (true, 8e-7, 2));
    assert!((record.gflops - 2.0 * 64.0 * 32.0 * 16.0 / 4.5 / 1e3).abs() < 1e-9);
    assert_eq!(pruned.told, []);
    assert!(pruned.verdicts[0].to_string().contains(": new, "), "{}", pruned.verdicts[0]);
    // A second time nothing changes, whatever the order of the log.
    let records: Vec<Record> = pruned.changed().cloned().collect();
    assert_eq!(file.prune(&records).changed().count(), 0);
}

#[test]
fn an_incumbent_stays_unless_another_config_is_faster_by_more_than_the_noise() {
    let file = File::new("ties");
    file.log("A", 1, &task(), &[(8, &[10.0, 10.1, 9.9, 10.0])]);
    let old = file.prune(&[]).verdicts[0].record.clone();
    // Faster by less than one percent.
    file.log("A", 1, &task(), &[(4, &[9.95; 9])]);
    assert!(matches!(file.decide(&old), (Decision::Kept { challenger: Some(_) }, r) if r == old));
    // Faster by two percent, but with samples that scatter by more.
    file.log("A", 1, &task(), &[(2, &[9.4, 9.8, 10.2, 9.5, 10.1])]);
    assert!(matches!(file.decide(&old), (Decision::Kept { .. }, r) if r == old));
    let text = file.prune(std::slice::from_ref(&old)).verdicts[0].to_string();
    assert!(text.ends_with("kept, 10.00 us: the fastest other config has 9.80 us, and the noise is 0.44 us"), "{text}");
    // Faster by five.
    file.log("A", 1, &task(), &[(1, &[9.5; 9])]);
    let (decision, new) = file.decide(&old);
    let Decision::Faster { before_us, noise_us } = decision else { panic!("{decision:?}") };
    assert!((before_us, new.config == rows(1)) == (10.0, true) && noise_us < 0.5, "{noise_us}");
    let text = file.prune(std::slice::from_ref(&old)).verdicts[0].to_string();
    assert!(text.contains("replaced: 9.50 +- 0.00 us, the best of 4 configs, before 10.00 us"), "{text}");
    assert!(matches!(file.decide(&new).0, Decision::Kept { .. }));
}

#[test]
fn one_lucky_sample_does_not_beat_what_was_measured_again_and_again() {
    let file = File::new("lucky");
    let often: &[f64] = &[10.0, 10.02, 9.98, 10.01];
    file.log("A", 1, &task(), &[(4, &[9.9]), (8, often), (8, often), (8, often)]);
    assert_eq!(file.prune(&[]).verdicts[0].record.config, rows(8));
    file.log("A", 1, &task(), &[(2, &[9.0; 3])]);
    assert_eq!(file.prune(&[]).verdicts[0].record.config, rows(2));
}

#[test]
fn a_record_is_rewritten_when_its_own_time_changed() {
    let file = File::new("again");
    file.log("A", 1, &task(), &[(8, &[12.0; 5])]);
    let mut old = file.prune(&[]).verdicts[0].record.clone();
    old.time_us = 12.05;
    assert!(matches!(file.decide(&old).0, Decision::Kept { challenger: None }));
    old.time_us = 10.0;
    let (decision, new) = file.decide(&old);
    assert!(matches!(decision, Decision::Remeasured { before_us: 10.0, .. }), "{decision:?}");
    assert_eq!(new.time_us, 12.0);
    // Measured again beside it, another config is faster than what the record once said.
    file.log("A", 1, &task(), &[(4, &[11.0; 5])]);
    assert!(matches!(file.decide(&old), (Decision::Faster { before_us: 12.0, .. }, r) if r.config == rows(4)));
}

#[test]
fn what_may_not_become_a_record_is_named_and_left_out() {
    let file = File::new("refused");
    let other = |change: fn(&mut TaskKey)| {
        let mut task = task();
        change(&mut task);
        task
    };
    file.log("A", 1, &other(|t| t.template_version = 1), &[(8, &[1.0]), (4, &[1.0])]);
    file.log("A", 1, &other(|t| t.space.0 = 1), &[(8, &[1.0])]);
    file.log("A", 1, &other(|t| t.template = "gone".into()), &[(8, &[1.0])]);
    file.log("A", 1, &other(|t| t.target = "sm_1".into()), &[(8, &[1.0])]);
    file.log("A", 1, &other(|t| t.workload = "dream".into()), &[(8, &[1.0])]);
    file.log("A", 1, &task(), &[(3, &[1.0]), (8, &[5.0])]);
    fs::OpenOptions::new()
        .append(true)
        .open(&file.0)
        .and_then(|mut f| std::io::Write::write_all(&mut f, b"{\"log\":1,"))
        .unwrap();
    let pruned = file.prune(&[]);
    let [one] = &pruned.verdicts[..] else { panic!("{pruned:?}") };
    assert_eq!((one.record.config.clone(), one.record.time_us), (rows(8), 5.0));
    let told: Vec<String> =
        pruned.told.iter().map(|d| d.to_string().replace(&file.0.display().to_string(), "LOG")).collect();
    let expected = [
        "LOG:15: the last line is cut off: ",
        "LOG:2: the trial is not used: it was made for version 1 of the template `rows`, which is now 2 (and 1 more line); tune",
        "LOG:5: the trial is not used: it was made in another config space (0000000000000001, now ",
        "LOG:7: the trial is not used: its template `gone` does not apply here; those that do: rows; register",
        "LOG:9: the trial is not used: the target `sm_1` is not known here; ",
        "LOG:11: the trial is not used: the workload `dream` is not known here; ",
        "LOG:13: the trial is not used: the knob `rows` cannot be [-1,3]: it is ",
    ];
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}\n{expected}");
    }
}

#[test]
fn a_record_that_may_not_be_used_gives_way() {
    let file = File::new("stale");
    file.log("A", 1, &task(), &[(8, &[12.0; 5])]);
    let good = file.prune(&[]).verdicts[0].record.clone();
    for old in [
        Record { template_version: 1, time_us: 1.0, ..good.clone() },
        Record { verified: false, time_us: 1.0, ..good.clone() },
        Record { config: rows(3), time_us: 1.0, ..good.clone() },
    ] {
        let (decision, new) = file.decide(&old);
        assert!(matches!(decision, Decision::Stale(_)), "{decision:?}");
        assert_eq!(new, good);
    }
    let text = file.prune(&[Record { verified: false, ..good }]).verdicts[0].to_string();
    assert!(text.contains("replaced: its result was never checked; now 12.00 +- 0.00 us"), "{text}");
}
