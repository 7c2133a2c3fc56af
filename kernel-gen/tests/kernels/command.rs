//! The command on the networks' specs with the built-in templates.

use crate::folder::Folder;
use kernel_gen::cli::{Output, run};
use kernel_gen::diagnostic::Size;
use kernel_gen::generate::try_workload;
use kernel_gen::ir::parse::parse;
use kernel_gen::model;
use kernel_gen::network::{Network, Wanted};
use kernel_gen::records::BestRecords;
use kernel_gen::spec::Spec;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn specs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs");
    let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    all.retain(|p| p.extension().is_some_and(|e| e == "toml"));
    all.sort();
    all
}

fn command(words: &[&str]) -> Output {
    run(&Registry::builtin(), [&["kernel-gen"], words].concat())
}

#[test]
fn every_workload_of_every_network_becomes_code() {
    // Each for one target in turn: what each becomes on all is in `specs/replay.txt`.
    let mut targets = ["x86-64-v3", "sm_90a", "aarch64", "sm_80", "x86-64-v4", "x86-64"].into_iter().cycle();
    let (registry, options) = (Registry::builtin(), model::Options::default());
    let tuned = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/tuned");
    let records = BestRecords::load(&tuned).unwrap_or_else(|faults| panic!("{}", faults[0]));
    for path in specs() {
        let spec = Spec::load(&path).unwrap();
        for ((_, w), target) in spec.workloads().zip(targets.by_ref()) {
            let target = Target::find(target).expect("a built-in target");
            let tried = try_workload((&w.workload, w.range.as_ref()), target, &records, &registry, &options);
            let tried = tried.unwrap_or_else(|e| panic!("{} on {}: {e}", w.workload.key(), target.name));
            assert!(tried.warnings.is_empty(), "{:#?}", tried.warnings);
        }
    }
}

#[test]
fn what_lower_prints_of_every_layer_parses_back() {
    for path in specs() {
        let spec = Spec::load(&path).unwrap();
        // One level and a third of the layers: the text form does not depend on the level, and layers of a network are alike.
        for (_, w) in spec.workloads().step_by(3) {
            let key = w.workload.key();
            let output = command(&["lower", &key, "--target", "x86-64-v3"]);
            assert!(output.success, "{key}: {:#?}", output.errors);
            let mut kernels = 0;
            for text in output.text.split("\n; ") {
                let kernel = text.split_once('\n').map_or("", |(_, kernel)| kernel).trim();
                if kernel.starts_with("kernel ") {
                    let parsed = parse(kernel).unwrap_or_else(|e| panic!("{key}: {e}\n{kernel}"));
                    assert_eq!(parsed.to_string().trim(), kernel, "{key}");
                    kernels += 1;
                }
            }
            assert!(kernels >= 3, "{key}: the definition, a step and a pass at least, not {kernels}");
        }
    }
}

/// Large images and long matrices, as people have them beside networks.
const LARGE: &str = r#"schema = 1
[targets]
cpu = ["x86-64-v3"]
cuda = ["sm_80", "sm_90a"]

[[kernel]]
name = "conv"
op = "conv2d"
layout = "NCHW"
[[kernel.workload]]
name = "picture"
input = [1, 3, 8192, 8192]
weight = [32, 3, 3, 3]
padding = [1, 1]
[[kernel.workload]]
name = "strip"
input = [1, 16, 100000, 8]
weight = [16, 16, 3, 3]
[[kernel.workload]]
name = "tiles"
input = [65536, 16, 8, 8]
weight = [16, 16, 3, 3]
padding = [1, 1]

[[kernel]]
name = "product"
op = "matmul"
[[kernel.workload]]
name = "points"
a = [8388544, 64]
b = [64, 64]
[[kernel.workload]]
name = "colours"
a = [5000000, 3]
b = [3, 3]
"#;

#[test]
fn large_shapes_are_scheduled_and_verified_on_every_target() {
    let folder = Folder::new("large");
    let spec = folder.0.join("kernels.toml");
    fs::write(&spec, LARGE).unwrap();
    let spec = spec.to_str().unwrap();
    let started = std::time::Instant::now();
    for workload in ["picture", "strip", "tiles", "points", "colours"] {
        for target in ["x86-64-v3", "x86-64", "sm_80", "sm_90a"] {
            let output = command(&["show", workload, "--target", target, "--spec", spec]);
            assert!(output.success, "{workload} {target}: {:#?}", output.errors);
        }
    }
    // Two seconds here. Costs that grow with the picture took minutes.
    assert!(started.elapsed().as_secs() < 120, "{:?}", started.elapsed());
}

#[test]
fn what_a_build_would_refuse_or_ignore_is_said() {
    let folder = Folder::new("refused");
    let path = |name: &str| folder.0.join(name).to_str().unwrap().to_string();
    let spec = path("kernels.toml");
    fs::write(&spec, LARGE).unwrap();
    let error = |words: &[&str]| {
        let output = command(words);
        assert!(!output.success, "{words:?}: {}", output.text);
        output.errors.join("\n")
    };
    // By position and by name, one of them.
    assert_eq!(command(&["check", &spec]), command(&["check", "--spec", &spec]));
    let said = error(&["check", &spec, "--spec", &spec]);
    assert!(said.contains("cannot be used with"), "{said}");
    let said = error(&["check", &spec, "--tuned", &path("nope")]);
    assert!(said.contains("there is no folder") && said.contains("nope"), "{said}");
    let said = error(&["check", "--spec", &spec, "--arch", "z80"]);
    assert_eq!(said, "error: there are no CPU levels of `z80`; there are aarch64, x86_64");
    fs::write(&spec, LARGE.replace(r#""sm_80", "#, "")).unwrap();
    let said = error(&["check", "--spec", &spec]);
    assert!(said.contains("sm_90a runs on no other device"), "{said}");
    let external = "[[extern]]\nname = \"mine\"\nsource = \"src/mine.c\"\nheader = \"src/mine.h\"\n";
    fs::write(&spec, format!("{LARGE}{external}")).unwrap();
    let said = error(&["check", "--spec", &spec]);
    assert!(said.contains("there is no file") && said.contains("src/mine.h"), "{said}");

    // Records where nothing looks for them.
    fs::write(&spec, LARGE).unwrap();
    let tuned = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/tuned/x86-64-v3");
    let record = fs::read_dir(&tuned).unwrap().map(|e| e.unwrap().path()).find(|p| p.extension().is_some()).unwrap();
    for (at, help) in [("x86-64-v3", "name "), ("records", "move it to ")] {
        fs::create_dir(path(at)).unwrap();
        fs::copy(&record, Path::new(&path(at)).join(record.file_name().unwrap())).unwrap();
        let said = error(&["check", "--spec", &spec, "--tuned", &path(at)]);
        assert!(said.contains(help) && said.contains(record.file_name().unwrap().to_str().unwrap()), "{said}");
    }
}

/// The levels with VNNI serve workloads on integers only, so there are fewer choices for them: each has the name of its own workload.
#[test]
fn check_says_of_each_workload_what_is_chosen_for_it() {
    let folder = Folder::new("mixed");
    let spec = folder.0.join("kernels.toml");
    let kernel = |name: &str, rest: &str, dtype: &str| {
        let keys = format!("op = \"matmul\"\ndtype = \"{dtype}\"\nout_dtype = \"{rest}\"");
        format!("[[kernel]]\nname = \"{name}\"\n{keys}\n[[kernel.workload]]\na = [\"1..8\", 64]\nb = [64, 48]\n")
    };
    let text =
        format!("schema = 1\n[targets]\ncuda = [\"sm_80\"]\n{}{}", kernel("a", "f32", "f32"), kernel("b", "i32", "u8"));
    std::fs::write(&spec, text).unwrap();
    let found = command(&["check", &spec.to_string_lossy(), "--json"]).text;
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    let choices = found["choices"].as_array().unwrap();
    let integers = |choice: &serde_json::Value| choice["workload"].as_str().unwrap().contains("-u8i8");
    for choice in choices {
        let template = choice["choice"]["template"].as_str().unwrap();
        let vnni = choice["target"].as_str().unwrap().ends_with("-vnni");
        assert!(integers(choice) || !(vnni || template.contains("integers")), "{choice}");
    }
    // Five levels, of which two serve integers alone, and an architecture.
    assert_eq!((choices.len(), choices.iter().filter(|choice| integers(choice)).count()), (10, 6), "{found}");
}

/// What a change of records does: nothing by the same, and a line of before and one of now for each kernel that differs.
#[test]
fn check_says_what_other_records_would_change() {
    let folder = Folder::new("changes");
    let (spec, empty) = (folder.0.join("kernels.toml"), folder.0.join("tuned"));
    let workload = "[[kernel.workload]]\nname = \"layer\"\ninput = [1, 1024, 14, 14]\nweight = [1024, 1024, 1, 1]\n";
    let kernel = "[[kernel]]\nname = \"conv\"\nop = \"conv2d\"\nepilogue = [\"bias\", \"relu\"]\n";
    std::fs::write(&spec, format!("schema = 1\n[targets]\ncpu = [\"x86-64-v3\"]\n{kernel}{workload}")).unwrap();
    std::fs::create_dir(&empty).unwrap();
    let tuned = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/tuned");
    let against = |folder: &Path| {
        let [spec, tuned, folder] = [&spec, &tuned, folder].map(|path| path.to_str().unwrap().to_string());
        let files = ["check", &spec, "--arch", "x86_64", "--no-shipped", "--tuned", &tuned, "--against", &folder];
        (command(&files).text, command(&[&files[..], &["--json"]].concat()).text)
    };
    let (same, _) = against(&tuned);
    assert!(same.contains("changes: 0 of 2 choices have another kernel, 0 the same from another record\n"), "{same}");
    let (text, json) = against(&empty);
    let (_, changes) = text.split_once("changes: 2 of 2 choices have another kernel, 0 the same").expect(&text);
    let lines: Vec<&str> = changes.lines().skip(1).collect();
    assert!(lines[0] == "  layer on x86-64-v3" && lines.len() == 6, "{changes}");
    assert!(lines[1].starts_with("  - ") && lines[1].contains("(no record: "), "{changes}");
    assert!(lines[2].starts_with("  + ") && lines[2].contains("record of this target, "), "{changes}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let [change, _] = &json["changes"]["kernels"].as_array().unwrap()[..] else { panic!("{json}") };
    assert_ne!(change["before"]["choice"]["config"], change["now"]["choice"]["config"]);
}

/// The script of the action for GitHub, in a repository with a change of records: it ends as the command does.
#[test]
fn the_action_compares_records_with_those_of_the_revision_before() {
    let folder = Folder::new("action");
    let folder = &folder.0;
    fs::create_dir(folder.join("net")).unwrap();
    let shell = |script: &str, variables: &[(&str, &str)]| {
        let program = Path::new(env!("CARGO_BIN_EXE_kernel-gen")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let mut command = std::process::Command::new("bash");
        let summary = folder.join("summary");
        command.args(["-c", script]).current_dir(folder).env("PATH", path).env("GITHUB_STEP_SUMMARY", summary);
        command.env("SPEC", "net/kernels.toml").env("SHIPPED", "false");
        let output = command.envs(variables.iter().copied()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let commit = "git add -A && git -c user.name=a -c user.email=a@a commit --quiet --message a";
    let workload = "[[kernel.workload]]\nname = \"layer\"\ninput = [1, 1024, 14, 14]\nweight = [1024, 1024, 1, 1]\n";
    let kernel = "[[kernel]]\nname = \"conv\"\nop = \"conv2d\"\nepilogue = [\"bias\", \"relu\"]\n";
    let spec = format!("schema = 1\n[targets]\ncpu = [\"x86-64-v3\"]\n{kernel}{workload}");
    fs::write(folder.join("net/kernels.toml"), spec).unwrap();
    assert_eq!(shell(&format!("git init --quiet . && {commit}"), &[]).0, Some(0));
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/tuned/x86-64-v3");
    let copy = format!("mkdir -p net/tuned && cp -r {} net/tuned && {commit}", records.display());
    assert_eq!(shell(&copy, &[]).0, Some(0));

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/actions/check/check.sh");
    let script = format!("bash {}", script.display());
    let (ended, said) = shell(&script, &[("BASE", "HEAD^")]);
    assert!(ended == Some(0) && said.contains("\n  + conv2d_panels "), "{said}");
    let summary = fs::read_to_string(folder.join("summary")).unwrap();
    assert!(summary.contains("```diff\n") && summary.contains("\n+ conv2d_panels "), "{summary}");
    let (ended, said) = shell(&script, &[("BASE", "HEAD")]);
    assert!(ended == Some(0) && said.contains("changes: 0 of "), "{said}");
    let (ended, said) = shell(&script, &[("DENY_UNUSED", "true")]);
    assert!(ended == Some(1) && said.contains("uses this record"), "{said}");
    let (ended, said) = shell(&script, &[("BASE", "nowhere")]);
    assert!(ended == Some(1) && said.contains("fetch-depth: 0"), "{said}");
}

/// A function of a network may have workloads in several types and layouts, and with zero points or without: a kernel of a spec has one of
/// each.
#[test]
fn an_extracted_spec_has_the_workloads_of_the_network() {
    for file in ["digits.onnx", "digits_int8.onnx"] {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/network").join(file);
        let inputs = BTreeMap::from([("image".to_string(), [1, 1, 8, 8].map(Size::one).to_vec())]);
        let network = Network::load("digits", &model, &[inputs], Wanted::default()).unwrap();
        let text = command(&["extract", &model.to_string_lossy(), "--input", "image=1,1,8,8", "--name", "digits"]).text;
        let spec = Spec::parse(&text, "extracted.toml").unwrap_or_else(|faults| panic!("{}\n{text}", faults[0]));
        let mut found: Vec<String> = spec.workloads().map(|(_, w)| w.workload.key()).collect();
        let mut expected: Vec<String> = network.tasks.iter().map(|task| task.workload.key()).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{text}");
    }
}

/// `specs/replay.txt` has all kernels; one of 64 is looked at here, the same ones in each run.
#[test]
fn the_kernels_of_records_and_defaults_are_those_of_the_last_landing() {
    let hashes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/replay.txt");
    let output = command(&["replay", hashes.to_str().unwrap(), "--sample", "64"]);
    let list = output.errors.join("\n");
    assert!(output.success, "{}{list}\ntests/replay.sh shows how the first one differs", output.text);
    let kernels: usize = output.text.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(kernels > 300, "{}", output.text);
}

#[test]
fn kernels_that_changed_are_named_and_the_first_is_shown_as_it_was() {
    let folder = Folder::new("replay");
    let path = |name: &str| folder.0.join(name).to_str().unwrap().to_string();
    let spec =
        "schema = 1\n[[kernel]]\nname = \"product\"\nop = \"matmul\"\n[[kernel.workload]]\na = [8, 16]\nb = [16, 24]\n";
    fs::write(folder.0.join("kernels.toml"), spec).unwrap();
    let hashes = path("replay.txt");
    let written = command(&["replay", &hashes, "--write"]);
    assert!(written.success, "{:#?}", written.errors);
    assert!(command(&["replay", &hashes]).success);

    let text = fs::read_to_string(&hashes).unwrap();
    let (chosen, rest) = text.split_once("chosen/default").unwrap();
    let (target, rest) = rest.trim_start().split_once('=').unwrap();
    let (hash, rest) = rest.split_at(8);
    assert_ne!(hash, "00000000");
    let stale = rest.replace(" matmul_packed/default", " matmul_gone/default");
    fs::write(&hashes, format!("{chosen}chosen/default {target}=00000000{stale}")).unwrap();
    let changed = command(&["replay", &hashes]);
    assert!(!changed.success);
    let name = format!("matmul-f32-m8n24k16-nn/chosen/default/{target}");
    assert_eq!(changed.errors[0], format!("changed: {name}"));
    for what in ["new: matmul-f32-m8n24k16-nn/matmul_packed/", "gone: matmul-f32-m8n24k16-nn/matmul_gone/"] {
        assert!(changed.errors.iter().any(|e| e.starts_with(what)), "{what}: {:#?}", changed.errors);
    }

    // An earlier program that emitted one more line.
    let printed = command(&["replay", &hashes, "--print", &name]);
    fs::write(folder.0.join("earlier.txt"), format!("an older line\n{}", printed.text)).unwrap();
    // A shell writes it: what this process has open, the children of other tests have as well, and then it cannot be run.
    let script = format!("printf '#!/bin/sh\\ncat {}\\n' > {1} && chmod +x {1}", path("earlier.txt"), path("earlier"));
    assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let shown = command(&["replay", &hashes, "--before", &path("earlier")]);
    assert!(shown.text.contains(&format!("--- {name} before")), "{}", shown.text);
    assert!(shown.text.contains("\n-an older line\n"), "{}", shown.text);

    fs::write(&hashes, "a\n b/default x86-64-v3=zz\n").unwrap();
    let damaged = command(&["replay", &hashes]);
    assert!(damaged.errors[0].contains("replay.txt:2: `x86-64-v3=zz` is no hash of a target"), "{:#?}", damaged.errors);
}
