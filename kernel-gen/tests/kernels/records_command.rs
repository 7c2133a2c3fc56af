//! `prune`, `merge`, `import`, `export` and `check --log`, from the files to what is said.

use crate::folder::Folder;
use kernel_gen::cli::{Output, run};
use kernel_gen::records::log::{Log, LogWriter, Machine, Run};
use kernel_gen::records::{BestRecords, Outcome, Timing, Trial};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::tune::Task;
use kernel_gen::workload::Workload;
use std::fs;
use std::path::Path;
use std::process::Command;

const PRODUCT: &str = "matmul-f32-m64n64k64-nn";

impl Folder {
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Runs a command, with the names of files of this folder in the place of `@name`.
    fn run(&self, words: &[&str]) -> Output {
        let words = words.iter().map(|w| w.strip_prefix('@').map_or(w.to_string(), |name| self.path(name)));
        let output = run(&Registry::builtin(), std::iter::once("kernel-gen".to_string()).chain(words));
        let clean = |text: &str| text.replace(&self.0.display().to_string(), "DIR");
        let errors = output.errors.iter().map(|e| clean(e)).collect();
        Output { text: clean(&output.text), errors, success: output.success }
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

/// The first configs of the product's first template.
fn with_task<T>(count: usize, body: impl FnOnce(&Task<'_>, Vec<Config>) -> T) -> T {
    let (registry, target) = (Registry::builtin(), Target::find("x86-64-v3").unwrap());
    let workload = Workload::from_key(PRODUCT).unwrap();
    let template = registry.applicable(&workload, target).next().unwrap();
    let task = Task::new(workload.clone(), target, template).unwrap();
    let configs: Vec<Config> = (0..task.space.range_len()).filter_map(|i| task.space.get(i)).take(count).collect();
    assert_eq!(configs.len(), count);
    body(&task, configs)
}

/// Logs one trial a time, of one config after the other.
fn log(file: &Path, times_us: &[f64]) {
    with_task(times_us.len(), |task, configs| {
        let machine = Machine::Cpu { isa: "x86-64-v3".into(), compiler: "gcc 12.2".into() };
        let mut log = LogWriter::open(file, Run::new("Some CPU", 2, machine, "random", 1)).unwrap();
        for (config, time) in configs.into_iter().zip(times_us) {
            let timing =
                Timing { samples_us: vec![*time; 5], cold_us: vec![time * 2.0], max_error: 1e-7, ..Timing::default() };
            let trial = Trial { index: 0, config, outcome: Outcome::Timed(timing) };
            log.append(&task.key().unwrap(), &trial).unwrap();
        }
    });
}

#[test]
fn pruned_logs_become_records_that_stay() {
    let folder = Folder::new("prune");
    log(&folder.0.join("a.jsonl"), &[9.0, 8.0, 9.5]);
    let prune = |words: &[&str]| folder.run(&[&["prune", "@a.jsonl", "--tuned", "@tuned"], words].concat());
    let dry = prune(&["--dry-run"]);
    assert!(dry.success && dry.text.ends_with("3 trials: 1 record would be written, 0 kept\n"), "{dry:?}");
    assert!(!folder.0.join("tuned").exists());
    let first = prune(&[]);
    assert!(first.text.contains(": new, 8.00 +- 0.00 us, the best of 3 configs\n"), "{first:?}");
    assert!(first.text.ends_with("3 trials: 1 record written, 0 kept\n") && first.errors.is_empty(), "{first:?}");
    let records = BestRecords::load(&folder.0.join("tuned")).unwrap();
    let record = records.iter().next().unwrap();
    let file = folder.0.join("tuned").join(record.slot().relative_path());
    assert_eq!((record.time_us, record.threads, record.device.as_str()), (8.0, 2, "Some CPU"));
    let before = fs::read(&file).unwrap();
    // The same logs again, and a config that is faster by less than the noise.
    log(&folder.0.join("a.jsonl"), &[7.95]);
    let again = prune(&[]);
    assert!(again.text.ends_with("4 trials: 0 records written, 1 kept\n"), "{again:?}");
    assert_eq!(fs::read(&file).unwrap(), before);
    let json: serde_json::Value = serde_json::from_str(&prune(&["--json"]).text).unwrap();
    assert_eq!((&json["records"][0]["decision"], &json["changed"]), (&"kept".into(), &0.into()));
    // What builds and commands make of it.
    let spec = format!("--tuned={}", folder.path("tuned"));
    let explained = folder.run(&["explain", PRODUCT, "--target", "x86-64-v3", &spec]);
    assert!(
        explained.text.contains("origin    record of this target, 8.0 us on Some CPU with 2 threads"),
        "{explained:?}"
    );
    let missing = folder.run(&["prune", "@none.jsonl"]);
    assert!(!missing.success && missing.errors[0].starts_with("DIR/none.jsonl: cannot open the log"), "{missing:?}");
}

#[test]
fn check_names_what_is_wrong_with_a_log() {
    let folder = Folder::new("check");
    log(&folder.0.join("a.jsonl"), &[9.0, 8.0]);
    // There is a spec where the tests run from or there is none: name one that is not there to say which.
    fs::write(
        folder.path("kernels.toml"),
        "schema = 1\n[[kernel]]\nname = \"p\"\nop = \"matmul\"\n[[kernel.workload]]\na = [64, 64]\nb = [64, 64]\n",
    )
    .unwrap();
    let check = || folder.run(&["check", "--spec", "@kernels.toml", "--log", "@a.jsonl"]);
    let good = check();
    assert!(
        good.success && good.text.ends_with("logs: 2 timed trials of 1 runs, 2 of use; 0 failed, 0 seeds\n"),
        "{good:?}"
    );
    let text = folder.text("a.jsonl");
    fs::write(folder.path("a.jsonl"), text.replacen("\"us\":[9.0", "\"us\":[1.0", 1) + "{\"log\":1,\"li").unwrap();
    let bad = check();
    assert!(!bad.success && bad.errors.len() == 2, "{bad:?}");
    assert!(bad.errors[0].starts_with("DIR/a.jsonl:2: the line was damaged or changed"), "{bad:?}");
    assert!(bad.errors[1].starts_with("DIR/a.jsonl:4: the last line is cut off"), "{bad:?}");
}

#[test]
fn merged_logs_and_folders_do_not_depend_on_the_order() {
    let folder = Folder::new("merge");
    log(&folder.0.join("a.jsonl"), &[9.0, 8.0]);
    log(&folder.0.join("b.jsonl"), &[7.0]);
    for (logs, out) in [(["@a.jsonl", "@b.jsonl"], "@ab.jsonl"), (["@b.jsonl", "@a.jsonl"], "@ba.jsonl")] {
        let output = folder.run(&["merge", logs[0], logs[1], "--out", out]);
        assert!(output.success && output.text.ends_with(": 5 lines\n"), "{output:?}");
    }
    assert_eq!(folder.text("ab.jsonl"), folder.text("ba.jsonl"));
    assert_eq!(folder.run(&["merge", "@ab.jsonl", "@a.jsonl"]).text, folder.text("ab.jsonl"));
    for (log, tuned) in [("@a.jsonl", "@one"), ("@b.jsonl", "@two")] {
        assert!(folder.run(&["prune", log, "--tuned", tuned]).success);
    }
    let output = folder.run(&["merge", "@one", "@two", "--out", "@three"]);
    assert_eq!(output.text, "DIR/three: 1 record\n");
    assert_eq!(BestRecords::load(&folder.0.join("three")).unwrap().iter().next().unwrap().time_us, 7.0);
    let mixed = folder.run(&["merge", "@one", "@a.jsonl", "--out", "@x"]);
    assert!(!mixed.success && mixed.errors[0].contains("merge them by themselves"), "{mixed:?}");
}

#[test]
fn git_merges_logs_and_records_with_the_driver() {
    let folder = Folder::new("git");
    let git = |words: &[&str]| {
        let identity = [
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "-c",
            "init.defaultBranch=main",
            "-c",
            "commit.gpgsign=false",
        ];
        let driver = format!("merge.kernel-gen.driver={} merge --driver %O %A %B %P", env!("CARGO_BIN_EXE_kernel-gen"));
        Command::new("git").args(identity).args(["-c", &driver]).args(words).current_dir(&folder.0).output()
    };
    if git(&["init", "-q"]).is_err() {
        println!("[SKIP] there is no git here");
        return;
    }
    let well = |words: &[&str]| {
        let output = git(words).unwrap();
        assert!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    fs::write(folder.path(".gitattributes"), "tuned/**/*.toml merge=kernel-gen\n*.jsonl merge=kernel-gen\n").unwrap();
    log(&folder.0.join("t.jsonl"), &[9.0]);
    assert!(folder.run(&["prune", "@t.jsonl", "--tuned", "@tuned"]).success);
    well(&["add", "."]);
    well(&["commit", "-qm", "base"]);
    for (branch, times) in [("ours", [9.0, 8.0].as_slice()), ("theirs", &[9.0, 9.0, 7.0])] {
        well(&["checkout", "-q", "-b", branch, "main"]);
        log(&folder.0.join("t.jsonl"), times);
        assert!(folder.run(&["prune", "@t.jsonl", "--tuned", "@tuned"]).success);
        well(&["commit", "-qam", branch]);
    }
    well(&["checkout", "-q", "ours"]);
    well(&["merge", "-q", "--no-edit", "theirs"]);
    let merged = Log::read(&[folder.path("t.jsonl")]).unwrap();
    assert_eq!((merged.entries.len(), merged.runs.len(), merged.skipped.len()), (6, 3, 0));
    assert_eq!(BestRecords::load(&folder.0.join("tuned")).unwrap().iter().next().unwrap().time_us, 7.0);
}

#[test]
fn imported_configs_are_seeds_and_never_records() {
    let folder = Folder::new("import");
    let line = "{\"input\": [\"cuda\", \"tutorial/conv2d_no_batching\", [1, 7, 7, 512, 512, 3, 3, [1, 1], [1, 1]], {}], \
                \"config\": {\"index\": 4881186, \"code_hash\": null, \"entity\": [[\"tile_f\", \"sp\", [-1, 2, 64, 1]], \
                [\"tile_y\", \"sp\", [-1, 1, 1, 7]], [\"tile_x\", \"sp\", [-1, 1, 7, 1]], [\"tile_rc\", \"sp\", [-1, 2, 2]], \
                [\"tile_ry\", \"sp\", [-1, 3, 1]], [\"tile_rx\", \"sp\", [-1, 1, 3]], [\"auto_unroll_max_step\", \"ot\", \
                1500], [\"unroll_explicit\", \"ot\", 0]]}, \"result\": [[0.0007478322784810127], 0, 1.66, 1605451988.4], \
                \"version\": 0.2, \"tvm_version\": \"0.8.dev0\"}\n";
    fs::write(folder.path("conv2d.log"), format!("{line}{}", &line[..200])).unwrap();
    let import = || folder.run(&["import", "@conv2d.log", "--log", "@t.jsonl", "--target", "sm_90a"]);
    let first = import();
    assert!(
        first.success
            && first
                .text
                .starts_with("1 lines taken, 1 of them new in DIR/t.jsonl; 0 had failed there, 1 cannot be taken\n"),
        "{first:?}"
    );
    assert!(first.text.contains("applies tile_rx to ry and tile_ry to rx"), "{first:?}");
    assert!(first.errors[0].starts_with("DIR/conv2d.log:2: the line is not complete JSON"), "{first:?}");
    let text = folder.text("t.jsonl");
    assert!(text.contains("\"index\":4881186,\"config\":\"tile_f=[-1,2,64,1] tile_y=[-1,1,1,7]"), "{text}");
    assert!(import().text.contains("1 lines taken, 0 of them new"));
    assert_eq!(folder.text("t.jsonl"), text);
    let pruned = folder.run(&["prune", "@t.jsonl", "--tuned", "@tuned"]);
    assert_eq!(pruned.text, "0 trials: 0 records written, 0 kept\n");
    let wrong = folder.run(&["import", "@conv2d.log", "--log", "@t.jsonl", "--target", "sm90a"]);
    assert!(wrong.errors[0].starts_with("error: there is no target `sm90a`; did you mean `sm_90a`?"), "{wrong:?}");
}

#[test]
fn exported_measurements_have_the_keys_of_the_schema() {
    let folder = Folder::new("export");
    log(&folder.0.join("t.jsonl"), &[9.0, 8.0]);
    assert!(folder.run(&["prune", "@t.jsonl", "--tuned", "@tuned"]).success);
    let output = folder.run(&["export", "@t.jsonl", "@tuned"]);
    let objects: Vec<serde_json::Value> = output.text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((objects.len(), output.errors.len()), (3, 0));
    for object in &objects {
        for key in [
            "workload",
            "engine",
            "hardware",
            "runtime_ms_mean",
            "runtime_ms_std",
            "timestamp",
            "schema_version",
            "metadata",
            "workload_args",
            "workload_metadata",
            "engine_version",
            "engine_config",
            "compilation_config",
            "software_config",
            "runtime_config",
            "hardware_config",
            "execution_config",
            "metrics",
        ] {
            assert!(object.get(key).is_some(), "{key} is missing: {object}");
        }
        assert_eq!((&object["schema_version"], &object["engine"]), (&"0.1".into(), &"kernel-gen".into()));
        assert_eq!(object["workload_args"]["input_shape_dict"]["a"], serde_json::json!([64, 64]));
        assert_eq!(object["workload_args"]["input_type_dict"]["b"], "float32");
        assert_eq!(object["runtime_config"]["num_cpu_threads"], 2);
    }
    let (trial, record) = (&objects[0], &objects[2]);
    assert_eq!((trial["runtime_ms_mean"].as_f64(), trial["runtime_ms_std"].as_f64()), (Some(0.009), Some(0.0)));
    assert_eq!(trial["timestamp"].as_str().map(str::len), Some(14));
    assert_eq!(trial["software_config"]["compiler"], "gcc 12.2");
    assert_eq!((record["runtime_ms_mean"].as_f64(), record["timestamp"].is_null()), (Some(0.008), true));
    let written = folder.run(&["export", "@t.jsonl", "--out", "@bench.json"]);
    assert_eq!(written.text, "DIR/bench.json: 2 measurements\n");
    let kept = folder.run(&["export", "@t.jsonl", "--out", "@t.jsonl"]);
    assert!(!kept.success && kept.errors[0].contains("is a trial log and is not written over"), "{kept:?}");
}
