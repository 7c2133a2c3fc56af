use super::{Output, run};
use crate::ir::parse::parse;
use crate::records::{Record, write_records};
use crate::space::Config;
use crate::target::Target;
use crate::templates::Registry;
use crate::templates::testing::Rows;
use crate::workload::Workload;
use std::fs;
use std::path::PathBuf;

const SPEC: &str = "\
schema = 1
[targets]
cpu = [\"x86-64-v3\"]
[[kernel]]
name = \"product\"
op = \"matmul\"
[[kernel.workload]]
name = \"small\"
a = [64, 16]
b = [16, 32]
[[kernel.workload]]
name = \"large\"
a = [128, 64]
b = [64, 64]
";

fn registry() -> Registry {
    let rows = |name, version, cost| Rows { name, version, cost };
    Registry::empty().with(rows("slow", 1, 9.0)).with(rows("fast", 3, 2.0))
}

/// A folder with a spec and records, gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, spec: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("kernel-gen-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("kernels.toml"), spec).unwrap();
        Folder(folder)
    }

    fn record(&self, key: &str, change: impl Fn(&mut Record)) -> PathBuf {
        let (workload, target) = (Workload::from_key(key).unwrap(), Target::find("x86-64-v3").unwrap());
        let mut record = Record {
            workload: key.into(),
            target: target.name.clone(),
            device: "CPU".into(),
            threads: 1,
            template: "slow".into(),
            template_version: 1,
            space: registry().find("slow").unwrap().space(&workload, target).unwrap().fingerprint(),
            config: Config::new().with_split("rows", &[-1, 8]),
            time_us: 1.5,
            gflops: 43.7,
            core_gflops: None,
            floor_us: None,
            spread: None,
            max_error: 0.0,
            verified: true,
            generator: "0.1.0".into(),
        };
        change(&mut record);
        write_records(&self.0.join("tuned"), [&record]).unwrap().remove(0)
    }

    /// Runs a command on this folder, whose name is replaced in what comes out.
    fn run(&self, arguments: &[&str]) -> Output {
        let spec = self.0.join("kernels.toml").display().to_string();
        let all = [&["kernel-gen"], arguments, &["--spec", &spec]].concat();
        let clean = |text: &str| text.replace(&self.0.display().to_string(), "DIR");
        let output = run(&registry(), all);
        let errors = output.errors.iter().map(|e| clean(e)).collect();
        Output { text: clean(&output.text), errors, success: output.success }
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.success && output.text.is_empty(), "{output:?}");
        assert!(output.errors.iter().all(|e| e.lines().count() == 1), "{output:?}");
        output.errors.join("\n")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SMALL: &str = "matmul-f32-m64n32k16-nn";

#[test]
fn explain_says_what_was_chosen_and_why() {
    let folder = Folder::new("explain", SPEC);
    folder.record(SMALL, |_| ());
    let output = folder.run(&["explain", "small", "--target", "x86-64-v3"]);
    assert_eq!(
        output.text,
        "\
matmul-f32-m64n32k16-nn
  0.066 MFLOP, at least 0.014 MB to move, 4.6 FLOP a byte

x86-64-v3
  template  slow
  config    rows=[-1,8] (id 1a306c5a1896)
  origin    record of this target, 1.5 us on CPU with 1 thread
  - slow v1                         9.0 us predicted for rows=[-1,1]
  - fast v3                         2.0 us predicted for rows=[-1,1]
"
    );
    let json = folder.run(&["explain", SMALL, "--target", "x86-64-v3", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.text).unwrap();
    assert_eq!(json["targets"][0]["choice"]["origin"], "same-target");
    assert_eq!(json["targets"][0]["choice"]["config"]["knobs"]["rows"][1], 8);
    let conv = "conv2d-nchw-f32-n1c4h8w8-o4k3x3-s1x1-p1.1.1.1-d1x1-g1";
    let output = folder.run(&["explain", conv, "--target", "x86-64-v3"]);
    assert!(!output.success && output.text.contains("does not apply: it takes only matrix products"), "{output:?}");
}

#[test]
fn space_prints_the_space_and_finds_configs_in_it() {
    let folder = Folder::new("space", SPEC);
    let output = folder.run(&[
        "space",
        "small",
        "--template",
        "fast",
        "--index",
        "3",
        "--config",
        "rows=[4,16]",
        "--target",
        "x86-64-v3",
    ]);
    assert!(output.success, "{output:?}");
    let text = output.text;
    assert!(text.starts_with("fast v3 on x86-64-v3\nConfigSpace (len=7, range_length=7, space_map=\n"), "{text}");
    assert!(text.ends_with("default 0 rows=[-1,1]\nconfig 3 rows=[-1,8]\nconfig 4 rows=[-1,16]\n"), "{text}");
    let json = folder.run(&["space", "small", "--sample", "3", "--seed", "1", "--json"]).text;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["templates"].as_array().unwrap().len(), 2);
    assert_eq!(json["templates"][0]["configs"].as_array().unwrap().len(), 3);
    assert_eq!(folder.fails(&["space", "small", "--index", "7"]), "error: the space has the indices 0 to 6, not 7");
    assert_eq!(
        folder.fails(&["space", "small", "--config", "cols=1"]),
        "error: there is no knob `cols`; the knobs are rows"
    );
    assert_eq!(
        folder.fails(&["space", "small", "--template", "quick"]),
        "error: there is no template `quick`; the templates: slow, fast"
    );
}

/// The kernels of what `lower` prints, by their titles.
fn sections(text: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = vec![];
    for line in text.lines() {
        match line.strip_prefix("; ") {
            Some(title) => all.push((title.to_string(), String::new())),
            None => all.last_mut().expect("the first line is a title").1 += &format!("{line}\n"),
        }
    }
    all.retain(|(_, kernel)| !kernel.trim().is_empty());
    all
}

#[test]
fn lower_prints_kernels_that_parse_back() {
    let folder = Folder::new("lower", SPEC);
    let output = folder.run(&["lower", "large", "--config", "rows=[-1,4]"]);
    assert!(output.success, "{output:?}");
    let sections = sections(&output.text);
    assert_eq!(sections[0].0, "definition");
    assert!(sections[1].0.starts_with("step 1: split("), "{}", sections[1].0);
    for (title, kernel) in &sections {
        let parsed = parse(kernel).unwrap_or_else(|e| panic!("{title}: {e}\n{kernel}"));
        assert_eq!(parsed.to_string().trim(), kernel.trim(), "{title}");
    }
    let by_index = folder.run(&["lower", "large", "--config", "2"]).text;
    assert_eq!(by_index, output.text);
    assert_eq!(
        folder.fails(&["lower", "large", "--config", "rows=[-1,5]"]),
        "error: the knob `rows` cannot be [-1,5]: it is Split(policy=factors, product=128, num_outputs=2) len=8"
    );
}

#[test]
fn show_prints_the_source_of_the_chosen_kernel() {
    let folder = Folder::new("show", SPEC);
    let output = folder.run(&["show", "small", "--target", "x86-64-v3"]);
    assert!(output.success && output.text.contains("workload: matmul-f32-m64n32k16-nn"), "{output:?}");
    assert!(output.text.contains("void fast_"), "{}", output.text);
    let header = folder.run(&["show", "small", "--target", "x86-64-v3", "--header"]).text;
    assert!(header.contains("_p0(") && !header.contains("for ("), "{header}");
    let json = folder.run(&["show", "small", "--target", "x86-64-v3", "--json"]).text;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["sources"][0]["source"], output.text.as_str());
}

#[test]
fn show_prints_cuda_for_a_cuda_target() {
    let show = |more: &[&str]| {
        let key = "matmul-f32-m64n32k16-nn";
        run(&Registry::builtin(), [&["kernel-gen", "show", key, "--target", "sm_80"], more].concat())
    };
    let cuda = show(&[]).text;
    assert!(cuda.contains("__global__") && cuda.contains("workload: matmul-f32-m64n32k16-nn"), "{cuda}");
    let json: serde_json::Value = serde_json::from_str(&show(&["--json"]).text).unwrap();
    assert_eq!(json["sources"][0]["source"], cuda.as_str());
    assert!(json["sources"][0]["launches"][0]["grid"][0].as_u64() >= Some(1), "{json}");
    assert!(show(&["--header"]).errors[0].contains("have no header"));
}

#[test]
fn doctor_finds_the_compiler_that_tests_need_anyway() {
    let output = run(&registry(), ["kernel-gen", "doctor"]);
    assert!(output.success, "{output:?}");
    assert!(output.text.contains("templates: slow v1, fast v3\nok       C compiler for "), "{}", output.text);
    assert!(output.text.contains("ok       level portable: compiles, and runs on this machine"), "{}", output.text);
    let json: serde_json::Value =
        serde_json::from_str(&run(&registry(), ["kernel-gen", "doctor", "--json"]).text).unwrap();
    assert_eq!(json["success"], true);
}

#[test]
fn check_counts_what_is_missing_stale_and_unused() {
    let folder = Folder::new("check", SPEC);
    let good = folder.run(&["check", "--arch", "x86_64"]);
    assert!(good.success && good.errors.is_empty(), "{good:?}");
    // The portable level is always there.
    let expected = "\
DIR/kernels.toml: 2 workloads; DIR/tuned: 0 records
x86-64-v3: 2 by the analytic fallback
  small: fast rows=[-1,1] (no record: analytic default, 2.0 us predicted)
  large: fast rows=[-1,1] (no record: analytic default, 2.0 us predicted)
x86-64: 2 by the analytic fallback
";
    assert!(good.text.starts_with(expected), "{}", good.text);

    folder.record(SMALL, |_| ());
    folder.record("matmul-f32-m1n2k3-nn", |_| ());
    let output = folder.run(&["check", "--arch", "x86_64"]);
    assert!(output.success, "{output:?}");
    assert!(output.text.contains("x86-64-v3: 1 of this target, 1 by the model\n"), "{}", output.text);
    assert!(output.text.contains("x86-64: 1 from another target, 1 by"), "{}", output.text);
    assert!(
        output.text.contains("unused records:\n  DIR/tuned/x86-64-v3/cpu.toml:7: matmul-f32-m1n2k3-nn\n"),
        "{}",
        output.text
    );
    let strict = folder.run(&["check", "--arch", "x86_64", "--deny-unused", "--deny-fallback"]);
    assert_eq!((strict.success, strict.errors.len()), (false, 3));
    assert_eq!(
        strict.errors[0],
        "DIR/kernels.toml:11: large has no record on x86-64-v3; tune it, or allow the fallback"
    );

    folder.record(SMALL, |r| r.template_version = 9);
    let stale = folder.run(&["check", "--arch", "x86_64"]);
    assert!(!stale.success && stale.errors.len() == 1, "{stale:?}");
    assert!(stale.errors[0].contains("made for version 9 of the template `slow`, which is now 1"), "{stale:?}");
    let json = folder.run(&["check", "--arch", "x86_64", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.text).unwrap();
    assert_eq!((&json["success"], &json["stale"].as_array().unwrap().len()), (&serde_json::json!(false), &1));
}

#[test]
fn malformed_files_are_all_named_and_nothing_is_printed() {
    let folder = Folder::new("malformed", "schema = 1\n[[kernel]]\nname = 5\n");
    let path = folder.record(SMALL, |_| ());
    fs::write(&path, "schema = 1\n").unwrap();
    let errors = folder.fails(&["check"]);
    assert!(errors.contains("DIR/kernels.toml:3: "), "{errors}");
    assert!(errors.contains("DIR/tuned/x86-64-v3/cpu.toml:"), "{errors}");
}

#[test]
fn names_that_do_not_exist_get_a_hint() {
    let folder = Folder::new("names", SPEC);
    assert_eq!(
        folder.fails(&["explain", "smal"]),
        "error: there is no workload `smal` in DIR/kernels.toml; did you mean `small`?"
    );
    assert_eq!(folder.fails(&["explain", "product"]), "error: `product` has 2 workloads; name one: small, large");
    let unknown = folder.run(&["explain", "small", "--target", "x86_64_v3"]);
    assert!(unknown.errors[0].contains("did you mean `x86-64-v3`?"), "{unknown:?}");
    assert!(folder.fails(&["explain", "conv-3"]).contains("is not the key of a workload"));
}

#[test]
fn a_workload_and_its_spec_may_come_in_either_order() {
    let folder = Folder::new("order", SPEC);
    let spec = folder.0.join("kernels.toml").display().to_string();
    let said = |words: &[&str]| run(&registry(), [&["kernel-gen", "space"], words].concat());
    let named = said(&["small", "--spec", &spec]);
    assert!(named.success, "{named:?}");
    assert_eq!([said(&["small", &spec]), said(&[&spec, "small"])], [named.clone(), named]);
    let alone = said(&[&spec]);
    assert!(alone.errors[0].ends_with("kernels.toml as well, behind it, one of product"), "{alone:?}");
}

#[test]
fn usage_errors_are_one_line() {
    let message = |arguments: &[&str]| {
        let output = run(&registry(), [&["kernel-gen"], arguments].concat());
        assert!(!output.success && output.errors.len() == 1, "{output:?}");
        assert!(output.errors[0].lines().count() == 1 && output.errors[0].starts_with("error: "), "{output:?}");
        output.errors[0].clone()
    };
    assert!(message(&["chek"]).contains("'check'"), "{}", message(&["chek"]));
    message(&[]);
    message(&["explain"]);
    message(&["space", "x", "--index", "many"]);
    assert!(run(&registry(), ["kernel-gen", "--help"]).text.contains("explain"));
    let script = run(&registry(), ["kernel-gen", "completions", "bash"]).text;
    assert!(script.contains("explain") && script.contains("--tuned"), "{script}");
}
