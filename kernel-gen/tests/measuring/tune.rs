//! `kernel-gen tune` and `kernel-gen report`, end to end: on a recording, and on this CPU.

use crate::folder::Folder;
use kernel_gen::cli::{Output, run};
use kernel_gen::records::log::{Entry, Log};
use kernel_gen::records::{BestRecords, FailureKind, Outcome, Record, write_records};
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::workload::Workload;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

impl Folder {
    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

fn command(words: &[&str]) -> Output {
    run(&Registry::builtin(), [&["kernel-gen"], words].concat())
}

fn tuned(words: &[&str]) -> String {
    let output = command(&[&["tune", "--quiet", "--no-shipped"], words].concat());
    assert!(output.success, "{:#?}", output.errors);
    output.text
}

fn error_of(words: &[&str]) -> String {
    let output = command(words);
    assert!(!output.success, "{}", output.text);
    assert_eq!(output.errors.len(), 1, "{:#?}", output.errors);
    output.errors[0].clone()
}

/// Writes a record into a folder; gives its file.
fn write(record: &Record, folder: &str) -> PathBuf {
    write_records(Path::new(folder), [record]).unwrap().remove(0)
}

/// A record that says what a trial in a log does.
fn record_of(entry: &Entry) -> Record {
    let (task, trial) = (&entry.task, &entry.trial);
    Record {
        workload: task.workload.clone(),
        target: task.target.clone(),
        device: entry.device.clone(),
        threads: entry.threads,
        template: task.template.clone(),
        template_version: task.template_version,
        space: task.space,
        config: trial.config.clone(),
        time_us: trial.outcome.time_us().unwrap_or(1.0),
        gflops: 1.0,
        core_gflops: None,
        floor_us: None,
        spread: None,
        max_error: 0.0,
        verified: true,
        generator: "0.1.0".into(),
    }
}

/// 4096 configs of one layer as an H100 measured them.
fn landscape() -> String {
    let file = "../specs/landscapes/h100-conv2d_no_batching-n1c512h7w7.txt.gz";
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file).display().to_string()
}

/// The configs of a log, and how many trials there are of them.
fn configs(log: &str) -> (BTreeSet<String>, usize) {
    let log = Log::read(&[log]).unwrap();
    let all: BTreeSet<String> = log.entries.iter().map(|e| e.trial.config.id()).collect();
    (all, log.entries.len())
}

#[test]
fn a_recorded_search_ends_in_a_record_that_a_second_one_keeps() {
    let folder = Folder::new("tune-replay");
    let (landscape, log, records) = (landscape(), folder.file("log.jsonl"), folder.file("tuned"));
    let words = ["--replay", &landscape, "--log", &log, "--tuned", &records, "--trials", "64", "--seed", "1"];
    let text = tuned(&words);
    assert!(text.starts_with("workload"), "{text}");
    assert!(text.contains("64 trials in") && text.contains("\nwrote "), "{text}");
    let (known, trials) = configs(&log);
    assert_eq!((known.len(), trials), (64, 64), "no config is tried twice");
    let best = BestRecords::load(Path::new(&records)).unwrap();
    let record = best.iter().next().unwrap();
    let file = Path::new(&records).join(record.slot().relative_path());
    assert!(record.verified && record.template == "conv2d_no_batching" && record.target == "sm_90a");
    assert!(record.time_us < 110.0, "{record:?}");
    let bytes = fs::read(&file).unwrap();

    // All trials are made: nothing is measured, and the record stays as it is.
    let text = tuned(&words);
    assert!(text.contains("\n0 trials in") && text.contains("and 64 of earlier runs"), "{text}");
    assert!(text.contains("the record stays") && !text.contains("wrote"), "{text}");
    assert_eq!(fs::read(&file).unwrap(), bytes);

    // A record whose time no longer holds stays too, but not its time.
    write(&Record { time_us: 1.5 * record.time_us, ..record.clone() }, &records);
    assert_ne!(fs::read(&file).unwrap(), bytes);
    let text = tuned(&words);
    assert!(text.contains("the record stays") && text.contains("\nwrote "), "{text}");
    assert_eq!(fs::read(&file).unwrap(), bytes);

    // Another search finds others that are as fast; a tie is no reason for a change.
    let other = folder.file("other.jsonl");
    let words = ["--replay", &landscape, "--log", &other, "--tuned", &records, "--trials", "200", "--tuner", "ga"];
    let text = tuned(&words);
    let now = BestRecords::load(Path::new(&records)).unwrap();
    let now = now.iter().next().unwrap().clone();
    if now != *record {
        assert!(now.time_us < 0.99 * record.time_us, "{} us for {} us: {text}", now.time_us, record.time_us);
    }
}

#[test]
fn a_log_that_was_cut_anywhere_is_gone_on_with() {
    let folder = Folder::new("cut");
    let (landscape, log) = (landscape(), folder.file("log.jsonl"));
    let words = ["--replay", &landscape, "--log", &log, "--trials", "48", "--patience", "1000", "--tuner", "random"];
    tuned(&words);
    let (all, _) = configs(&log);
    let bytes = fs::read(&log).unwrap();
    for cut in [0, 1, 300, 4000, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&log, &bytes[..cut]).unwrap();
        let before = configs(&log).1;
        let text = tuned(&words);
        let (configs, trials) = configs(&log);
        assert_eq!((configs.len(), trials), (48, 48), "cut at {cut}, {before} trials were left: {text}");
        // Random search of the same seed tries the same configs, in whatever run.
        assert_eq!(configs, all, "cut at {cut}");
    }
}

#[test]
fn a_record_of_a_template_that_is_not_tuned_is_lost_only_to_something_faster() {
    let folder = Folder::new("standing");
    let (landscape, log, records) = (landscape(), folder.file("log.jsonl"), folder.file("tuned"));
    tuned(&["--replay", &landscape, "--log", &log, "--trials", "20", "--tuner", "random"]);
    let best = Log::read(&[&log]).unwrap().entries.remove(0);
    let (registry, target) = (Registry::builtin(), Target::find("sm_90a").unwrap());
    let workload = Workload::from_key(&best.task.workload).unwrap();
    let template = registry.find("splitk_direct").unwrap();
    let record = Record {
        template: "splitk_direct".into(),
        template_version: template.version(),
        space: template.space(&workload, target).unwrap().fingerprint(),
        config: template.default_config(&workload, target).unwrap(),
        ..record_of(&best)
    };
    let words = ["--replay", &landscape, "--log", &log, "--tuned", &records, "--trials", "20", "--tuner", "random"];
    for (time_us, stays) in [(1.0, true), (1e6, false)] {
        let file = write(&Record { time_us, ..record.clone() }, &records);
        let text = tuned(&words);
        assert_eq!(text.contains("the record of splitk_direct stays, 1.0000 us"), stays, "{text}");
        let left = fs::read_to_string(&file).unwrap();
        assert_eq!(left.contains("splitk_direct"), stays, "{left}");
    }
}

#[test]
fn a_recording_is_not_asked_for_other_numbers_of_images() {
    let output = command(&["tune", "--replay", &landscape(), "--images", "64", "--dry-run"]);
    assert!(!output.success && output.errors.concat().contains("leave --images out"), "{:#?}", output.errors);
}

#[test]
fn trials_that_do_not_belong_are_named_and_not_gone_on_with() {
    let folder = Folder::new("foreign");
    let (landscape, log) = (landscape(), folder.file("log.jsonl"));
    tuned(&["--replay", &landscape, "--log", &log, "--trials", "20", "--tuner", "random"]);
    // The checksum of a line covers its content, so a device is changed by who reads the log, not by who wrote it.
    let other = folder.file("other.txt");
    let text = String::from_utf8(unpacked(&landscape)).unwrap().replace("device NVIDIA H100", "device Another H100");
    fs::write(&other, text).unwrap();
    let words = ["tune", "--replay", &other, "--log", &log, "--trials", "30", "--tuner", "random", "--dry-run"];
    let output = command(&words);
    assert!(output.success, "{:#?}", output.errors);
    assert!(!output.text.contains("trials in the log"), "{}", output.text);
    assert!(output.text.contains("NVIDIA H100 80GB HBM3"), "the other device is named: {}", output.text);
}

/// The content of a file that gzip compressed.
fn unpacked(file: &str) -> Vec<u8> {
    let done = Command::new("gzip").args(["-dc", file]).output().unwrap();
    assert!(done.status.success());
    done.stdout
}

#[test]
fn a_log_can_be_replayed_too() {
    let folder = Folder::new("log");
    let (landscape, log) = (landscape(), folder.file("log.jsonl"));
    tuned(&["--replay", &landscape, "--log", &log, "--trials", "40", "--tuner", "random"]);
    let text = tuned(&["--replay", &log, "--trials", "100", "--tuner", "grid", "--patience", "1000"]);
    assert!(text.contains("40 trials in") && text.contains("every config was tried"), "{text}");
    assert!(!text.contains("wrote"), "a replay writes only what it is asked for: {text}");
}

#[test]
fn what_would_be_tuned_is_said_without_a_device() {
    let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/resnet18.toml").display().to_string();
    let output = command(&["tune", &spec, "--target", "sm_90a", "--only", "stem", "--dry-run", "--trials", "10"]);
    assert!(output.success, "{:#?}", output.errors);
    assert!(output.text.contains("conv2d_no_batching v"), "{}", output.text);
    assert!(output.text.contains("at most 10 trials"), "{}", output.text);
    // 64 times as many images, and a template that does not run the classifier.
    let words = ["tune", &spec, "--target", "sm_90a", "--images", "64", "--template", "splitk_direct", "--dry-run"];
    let output = command(&words);
    assert!(output.success, "{:#?}", output.errors);
    assert!(output.text.contains("15 workloads on sm_90a, 15 tasks"), "{}", output.text);
}

#[test]
fn what_cannot_be_tuned_is_named_with_help() {
    let folder = Folder::new("tune-errors");
    let spec = folder.file("kernels.toml");
    fs::write(
        &spec,
        "schema = 1\n[[kernel]]\nname = \"product\"\nop = \"matmul\"\n[[kernel.workload]]\na = [8, 8]\nb = [8, 8]\n",
    )
    .unwrap();
    let key = "matmul-f32-m8n8k8-nn";
    for (words, want) in [
        (
            vec!["tune", "--tuner", "xgb-rnk", &spec],
            "no tuner `xgb-rnk`; did you mean `xgb-rank`? the tuners are auto, model",
        ),
        (vec!["tune", &spec, "--only", "produkt"], "did you mean `product`?"),
        (vec!["tune", &spec, "--target", "sm90a"], "there is no target `sm90a`; did you mean `sm_90a`?"),
        (vec!["tune", &spec, "--template", "fast"], "there is no template `fast`; the templates: conv2d_direct"),
        (vec!["tune", &spec, "--target", "aarch64"], "aarch64"),
        (vec!["tune", &spec, "--template", "conv2d_direct"], "matmul-f32-m8n8k8-nn is left out (conv2d_direct: "),
        (vec!["tune", "no.toml"], "no.toml:1: cannot be read"),
        (vec!["tune", &spec, "--replay", "no.txt"], "no.txt: cannot be read"),
        (vec!["tune", &spec, "--replay", &spec], "neither a landscape nor a log with trials"),
        (vec!["tune", "--workload", key, "--only", "x"], "cannot be used with"),
        (vec!["tune", &spec, "--seconds=-3"], "write a number of seconds above 0"),
        (vec!["tune", &spec, "--seconds", "-3"], "write a number of seconds above 0"),
        (vec!["tune", &spec, "--repeat", "0"], "0 is not in 1..=100000"),
        (vec!["tune", &spec, "--number", "0"], "0 is not in 1..=1000000"),
        (vec!["tune", &spec, "--cooldown=-1"], "write a number of at least 0"),
        (vec!["bench", &spec, "--min-repeat-ms", "much"], "write a number of at least 0"),
        (vec!["tune", &spec, "--build-timeout", "0"], "write a number of seconds above 0"),
        (vec!["tune", &spec, "--run-timeout", "nan"], "write a number of seconds above 0"),
        (vec!["tune", &spec, "--threads", "1024"], "kernels on 1024 threads cannot be timed on"),
        (vec!["bench", &spec, "--threads", "1024"], "kernels on 1024 threads cannot be timed on"),
        (vec!["tune", "--workload", "matmul-f32", &spec], "matmul-f32"),
        (vec!["report", "no.jsonl"], "no.jsonl"),
        (vec!["report", "."], ".: cannot open the log: is a directory"),
        (vec!["report", &spec], "name a log that `kernel-gen tune` wrote"),
        (vec!["report", "log.jsonl", &spec, "other.toml"], "name one spec"),
    ] {
        let error = error_of(&words);
        assert!(error.contains(want), "{words:?}: {error}");
    }
}

#[test]
fn a_folder_that_no_record_can_be_written_to_is_named_before_the_first_trial() {
    let folder = Folder::new("unwritable");
    let (log, tuned) = (folder.file("log.jsonl"), folder.file("tuned"));
    fs::create_dir_all(&tuned).unwrap();
    fs::write(folder.file("tuned/sm_90a"), "in the way").unwrap();
    let error = error_of(&["tune", "--quiet", "--replay", &landscape(), "--log", &log, "--tuned", &tuned]);
    assert!(error.contains("tuned/sm_90a: no record can be written here") && error.contains("--tuned"), "{error}");
    assert_eq!(configs(&log).1, 0);
}

#[test]
fn a_task_begins_with_what_was_fastest_for_its_neighbours() {
    let folder = Folder::new("neighbours");
    let (landscape, before, after) = (landscape(), folder.file("before.jsonl"), folder.file("after.jsonl"));
    tuned(&["--replay", &landscape, "--log", &before, "--trials", "40", "--tuner", "random"]);
    let log = Log::read(&[&before]).unwrap();
    let timed = log.entries.iter().filter_map(|e| Some((e.trial.outcome.time_us()?, e)));
    // One that no tuner would begin with.
    let (time_us, best) = timed.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    // The same layer with a bias, recorded with this config.
    let (registry, task) = (Registry::builtin(), &best.task);
    let workload = Workload::from_key(&format!("{}-bias", task.workload)).unwrap();
    let (template, target) = (registry.find(&task.template).unwrap(), Target::find(&task.target).unwrap());
    let space = template.space(&workload, target).unwrap().fingerprint();
    let record = Record { workload: workload.key(), space, time_us, ..record_of(best) };
    let first_trials = |record: &Record, name: &str| {
        let (records, log) = (folder.file(name), format!("{after}.{name}"));
        write(record, &records);
        tuned(&["--replay", &landscape, "--log", &log, "--tuned", &records, "--trials", "3"]);
        let entries = Log::read(&[&log]).unwrap().entries;
        entries.into_iter().map(|e| e.trial.config).collect::<Vec<_>>()
    };
    // Only the default is tried before it, if it is in the landscape.
    assert!(first_trials(&record, "believed")[..2].contains(&best.trial.config));
    // What was not checked, or is of another version of the template or another target, is no advice.
    let doubtful = [
        ("unchecked", Record { verified: false, ..record.clone() }),
        ("other-version", Record { template_version: 99, ..record.clone() }),
        ("other-target", Record { target: "sm_80".into(), ..record.clone() }),
    ];
    for (name, record) in doubtful {
        assert!(!first_trials(&record, name).contains(&best.trial.config), "{name}");
    }
}

#[test]
fn a_record_of_this_device_does_not_hide_that_of_another() {
    let folder = Folder::new("two-devices");
    let (landscape, before, after) = (landscape(), folder.file("before.jsonl"), folder.file("after.jsonl"));
    let records = folder.file("tuned");
    tuned(&["--replay", &landscape, "--log", &before, "--trials", "40", "--tuner", "random"]);
    let log = Log::read(&[&before]).unwrap();
    let mut timed: Vec<&Entry> = log.entries.iter().filter(|e| e.trial.outcome.time_us().is_some()).collect();
    timed.sort_by(|a, b| b.trial.outcome.time_us().unwrap().total_cmp(&a.trial.outcome.time_us().unwrap()));
    // Two that no tuner would begin with: one is this device's record, the other what another device found.
    let (own, other) = (record_of(timed[0]), Record { device: "NVIDIA H200".into(), ..record_of(timed[1]) });
    for record in [&own, &other] {
        write(record, &records);
    }
    tuned(&["--replay", &landscape, "--log", &after, "--tuned", &records, "--trials", "4"]);
    let first: Vec<_> = Log::read(&[&after]).unwrap().entries.into_iter().map(|e| e.trial.config).collect();
    assert!(first[..3].contains(&own.config), "its own record is tried: {first:#?}");
    assert!(first[..3].contains(&other.config), "and the other device's: {first:#?}");
}

#[test]
fn a_report_is_one_file_that_asks_for_nothing() {
    let folder = Folder::new("report");
    let (landscape, log, page) = (landscape(), folder.file("log.jsonl"), folder.file("report.html"));
    tuned(&["--replay", &landscape, "--log", &log, "--trials", "40"]);
    let output = command(&["report", &log, "-o", &page, "--title", "Seven by seven"]);
    assert!(output.success, "{:#?}", output.errors);
    assert!(output.text.contains("40 trials of 1 workload"), "{}", output.text);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("<h1>Seven by seven</h1>") && html.contains("NVIDIA H100 80GB HBM3"));
    assert!(!html.contains("http") && !html.contains("src="));
}

/// What the tests below tune on this CPU.
const TINY: &str = "matmul-f32-m16n16k16-nn";

fn binary(folder: &Folder, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernel-gen"));
    command.current_dir(&folder.0).args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_workload_is_tuned_on_this_cpu_and_the_next_build_uses_its_record() {
    let folder = Folder::new("tune-cpu");
    let words = ["tune", "--workload", TINY, "--trials", "6", "--seconds", "15", "--json"];
    let done = binary(&folder, &words).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{text}{errors}");
    let events: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let named = |name: &str| events.iter().filter(|e| e["event"] == name).count();
    assert_eq!((named("started"), named("ended"), named("decided")), (1, 1, 1), "{text}");
    let trials = named("trial");
    assert!((1..=6).contains(&trials), "{text}");
    let log = folder.file("tuning.jsonl");
    assert_eq!(configs(&log).1, trials);
    let ended = &events[events.len() - 1];
    assert_eq!(ended["workloads"][0]["verdict"], "won", "{ended}");
    assert_eq!(ended["written"].as_array().map(Vec::len), Some(1), "{ended}");

    let tuned = folder.file("tuned");
    let output = command(&["explain", TINY, "--tuned", &tuned, "--json"]);
    let explained: serde_json::Value = serde_json::from_str(&output.text).unwrap();
    let origins: Vec<&str> =
        explained["targets"].as_array().unwrap().iter().filter_map(|t| t["choice"]["origin"].as_str()).collect();
    assert!(origins.contains(&"same-target"), "{}", output.text);
}

#[test]
fn configs_are_measured_as_is_asked_for_and_the_export_says_how() {
    let folder = Folder::new("settings");
    let how = ["--number", "3", "--repeat", "4", "--min-repeat-ms", "0.25", "--cooldown", "0.01"];
    let limits = ["--build-timeout", "50", "--run-timeout", "5"];
    let what = ["tune", "--quiet", "--workload", TINY, "--template", "plain", "--trials", "3"];
    let done = binary(&folder, &[&what[..], &how, &limits].concat()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let log = Log::read(&[folder.file("tuning.jsonl")]).unwrap();
    for entry in &log.entries {
        assert!(entry.cost_s.is_some_and(|s| s > 0.01), "{entry:?}");
        let Outcome::Timed(timing) = &entry.trial.outcome else { continue };
        assert_eq!(timing.samples_us.len(), 4);
    }
    let (run, _) = log.runs.values().next().unwrap();
    let settings = run.settings.unwrap();
    assert_eq!((settings.number, settings.repeat, settings.min_repeat_ms), (3, [4, 4], 0.25));
    assert_eq!((settings.cooldown_s, settings.build_timeout_s, settings.run_timeout_s), (0.01, 50.0, 5.0));
    let host = run.host.as_ref().unwrap();
    assert!(!host.os.is_empty() && host.processors > 0 && host.packages.contains_key("compiler"), "{host:?}");
    // The comparison is in the log too: the report divides the times of one comparison by each other.
    assert_eq!(log.compared.len(), 1);
    assert_eq!(log.compared[0].candidates.iter().filter(|c| c.is_chosen).count(), 1);

    let exported = command(&["export", &folder.file("tuning.jsonl")]);
    let line: serde_json::Value = serde_json::from_str(exported.text.lines().next().unwrap()).unwrap();
    let execution = &line["execution_config"];
    assert_eq!((&execution["number"], &execution["repeat"]), (&3.into(), &4.into()));
    assert_eq!((&execution["min_repeat_ms"], &execution["cooldown_s"]), (&0.25.into(), &0.01.into()));
    assert_eq!((&execution["build_timeout_s"], &execution["run_timeout_s"]), (&50.0.into(), &5.0.into()));
    assert_eq!(line["software_config"]["os"], host.os.as_str());
    assert_eq!(line["hardware_config"]["cpu_count"], host.processors);
    assert_eq!(line["software_config"]["packages"]["kernel-gen"], env!("CARGO_PKG_VERSION"));
    assert!(line["hardware_config"]["memory_GB"].as_f64().is_some_and(|gb| gb > 0.1), "{line}");
    assert!(line["metrics"]["all_cost_s"].as_f64().is_some_and(|s| s > 0.01), "{line}");
}

#[cfg(unix)]
#[test]
fn a_compiler_that_is_killed_is_held_against_no_config() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("killed-compiler");
    let compiler = folder.file("cc");
    // Everything but shared objects is compiled: those are the candidates.
    let script = "#!/bin/sh\ncase \"$*\" in *-shared*) [ -e kill ] && kill -KILL $$;; esac\nexec cc \"$@\"\n";
    fs::write(&compiler, script).unwrap();
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.file("kill"), "").unwrap();
    let words = ["tune", "--quiet", "--workload", TINY, "--template", "plain", "--trials", "5", "--patience", "1000"];
    let tune = || binary(&folder, &words).env("CC", &compiler).output().unwrap();
    let failures = || -> Vec<FailureKind> {
        let log = Log::read(&[folder.file("tuning.jsonl")]).unwrap();
        let kind = |e: &Entry| match &e.trial.outcome {
            Outcome::Failed(failure) => Some(failure.kind),
            Outcome::Timed(_) => None,
        };
        log.entries.iter().filter_map(kind).collect()
    };
    let done = tune();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    assert!(errors.starts_with("error: all of ") && errors.contains(" worker), so there is no time"), "{errors}");
    assert!(errors.contains("signal: 9 (SIGKILL)") && errors.contains("tries them again"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let kinds = failures();
    assert!(!kinds.is_empty() && kinds.iter().all(|kind| *kind == FailureKind::Worker), "{kinds:?}");
    // The same command tries all of them again.
    fs::remove_file(folder.file("kill")).unwrap();
    let done = tune();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(failures().len(), kinds.len());
    assert!(Log::read(&[folder.file("tuning.jsonl")]).unwrap().entries.len() > kinds.len());
}

/// Waits until a log has some trials.
fn wait_for_trials(log: &str, count: usize, child: &mut Child) -> usize {
    let began = Instant::now();
    loop {
        let trials = if Path::new(log).exists() { configs(log).1 } else { 0 };
        if trials >= count || child.try_wait().unwrap().is_some() {
            return trials;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "no trial in two minutes");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A terminal sends Ctrl-C to all processes of a command, so the compilers and kernels that are at work must not take it for
/// themselves: their end would stand in the log as failures of their configs for ever. A batch system's SIGTERM does the same.
#[cfg(unix)]
#[test]
fn an_interrupt_finishes_what_is_under_way_and_keeps_everything() {
    let folder = Folder::new("interrupt");
    let log = folder.file("tuning.jsonl");
    let words = ["tune", "--workload", "matmul-f32-m48n48k48-nn", "--trials", "100000", "--patience", "100000"];
    let mut before = 0;
    for signal in ["-INT", "-TERM"] {
        let mut command = binary(&folder, &words);
        let mut child = std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn().unwrap();
        wait_for_trials(&log, before + 1, &mut child);
        let asked = Command::new("kill").args([signal, "--", &format!("-{}", child.id())]).status().unwrap();
        assert!(asked.success());
        let done = child.wait_with_output().unwrap();
        let (text, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        // What goes on behind it must not take a search that was ended for one that is over.
        assert_eq!(done.status.code(), Some(1), "{text}{errors}");
        assert!(errors.contains("what is under way is finished and kept"), "{errors}");
        assert!(text.contains("stopped by the user") && text.contains("goes on from tuning.jsonl"), "{text}");
        assert!(text.contains("kernel-gen prune tuning.jsonl"), "{text}");
        let (all, trials) = configs(&log);
        assert_eq!(all.len(), trials);
        let s = if trials - before == 1 { "" } else { "s" };
        assert!(text.contains(&format!("{} trial{s} in", trials - before)), "the log has {trials}: {text}");
        let entries = Log::read(&[&log]).unwrap().entries;
        let failed: Vec<&Outcome> =
            entries.iter().map(|e| &e.trial.outcome).filter(|o| o.time_us().is_none()).collect();
        assert!(failed.is_empty(), "{signal}: {failed:?}");
        before = trials;
    }
}

#[cfg(unix)]
#[test]
fn a_kill_loses_what_is_under_way_and_nothing_else() {
    let folder = Folder::new("kill");
    let log = folder.file("tuning.jsonl");
    let words = ["tune", "--workload", "matmul-f32-m48n48k48-nn", "--trials", "100000", "--patience", "100000"];
    let mut before = BTreeSet::new();
    for round in 1..=2 {
        let mut child = binary(&folder, &words).spawn().unwrap();
        wait_for_trials(&log, before.len() + 2, &mut child);
        child.kill().unwrap();
        child.wait().unwrap();
        let (all, trials) = configs(&log);
        assert_eq!(all.len(), trials, "round {round}: a config was tried again");
        assert!(all.is_superset(&before) && all.len() >= before.len() + 2, "round {round}");
        before = all;
    }
}
