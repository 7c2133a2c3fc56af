//! The command on the networks' specs with the built-in templates.

use crate::folder::Folder;
use kernel_gen::cli::{Output, run};
use kernel_gen::diagnostic::Size;
use kernel_gen::generate::try_workload;
use kernel_gen::ir::parse::parse;
use kernel_gen::model;
use kernel_gen::network::{Network, Wanted};
use kernel_gen::records::BestRecords;
use kernel_gen::space::Config;
use kernel_gen::spec::Spec;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::workload::Workload;
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
        let target = choice["target"].as_str().unwrap();
        let of_integers = target.ends_with("-vnni") || target.ends_with("-amx");
        assert!(integers(choice) || !(of_integers || template.contains("integers")), "{choice}");
    }
    // Six levels, of which three serve integers alone, and an architecture.
    assert_eq!((choices.len(), choices.iter().filter(|choice| integers(choice)).count()), (11, 7), "{found}");
}

/// A spec of one layer that has a record of one thread, and one of two.
const LAYER: &str = r#"schema = 1
threads = 1
[targets]
cpu = ["x86-64-v3"]
[[kernel]]
name = "conv"
op = "conv2d"
epilogue = ["bias", "relu"]
[[kernel.workload]]
name = "layer"
input = [1, 1024, 14, 14]
weight = [1024, 1024, 1, 1]
"#;

/// What a change of records does: nothing by the same, and the kernel of before and of now where they differ.
#[test]
fn check_says_what_other_records_would_change() {
    let folder = Folder::new("changes");
    let spec = folder.0.join("kernels.toml");
    fs::write(&spec, LAYER).unwrap();
    let tuned = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/tuned");
    let against = |folder: &Path, json: bool| {
        let [spec, tuned, folder] = [&spec, &tuned, folder].map(|path| path.to_str().unwrap().to_string());
        let files = ["check", &spec, "--arch", "x86_64", "--no-shipped", "--tuned", &tuned, "--against", &folder];
        command(&[&files[..], if json { &["--json"] } else { &[] }].concat())
    };
    let same = against(&tuned, false).text;
    assert!(same.contains("changes: 0 of 2 choices have another kernel, 0 the same by another record\n"), "{same}");

    let before = folder.0.join("before");
    fs::create_dir(&before).unwrap();
    let text = against(&before, false).text;
    let (_, changes) = text.split_once("changes: 2 of 2 choices have another kernel, 0 the same").expect(&text);
    let lines: Vec<&str> = changes.lines().skip(1).collect();
    assert!(lines[0] == "  layer on x86-64-v3" && lines.len() == 6, "{changes}");
    assert!(lines[1].starts_with("  - ") && lines[1].contains("(no record: "), "{changes}");
    assert!(lines[2].starts_with("  + ") && lines[2].contains("record of this target, "), "{changes}");
    let json: serde_json::Value = serde_json::from_str(&against(&before, true).text).unwrap();
    let [change, _] = &json["changes"]["kernels"].as_array().unwrap()[..] else { panic!("{json}") };
    assert_ne!(change["before"]["choice"]["config"], change["now"]["choice"]["config"]);

    // The same kernel by a record with another time, for both targets.
    let file = "x86-64-v3/amd-epyc-family-25-model-1.toml";
    fs::create_dir(before.join("x86-64-v3")).unwrap();
    let records = fs::read_to_string(tuned.join(file)).unwrap();
    fs::write(before.join(file), records.replace("time_us = 5221.0", "time_us = 5220.0")).unwrap();
    let text = against(&before, false).text;
    assert!(text.contains("changes: 0 of 2 choices have another kernel, 2 the same by another record\n"), "{text}");

    // Records of before that cannot be read are no fault of those of now.
    fs::write(before.join(file), "schema = 2\nnonsense").unwrap();
    let output = against(&before, false);
    assert!(output.success && output.text.contains("warning: nothing is compared: "), "{}", output.text);
    let refused = run(&Registry::builtin(), ["kernel-gen", "check", "--against", "nowhere"]);
    assert!(!refused.success, "{}", refused.text);
}

/// Each of the kernels of a range is compared, and a record of each of their sizes is used.
#[test]
fn check_compares_every_kernel_of_a_range() {
    let folder = Folder::new("changed-range");
    let [spec, tuned, before] = ["kernels.toml", "tuned", "before"].map(|name| folder.0.join(name));
    let kernel = "[[kernel]]\nname = \"product\"\nop = \"matmul\"\n[[kernel.workload]]\nname = \"rows\"";
    let text =
        format!("schema = 1\n[targets]\ncpu = [\"x86-64-v3\"]\n{kernel}\na = [\"1..512\", 256]\nb = [256, 64]\n");
    fs::write(&spec, text).unwrap();
    fs::create_dir(&before).unwrap();
    let check = |against: bool| {
        let [spec, tuned, before] = [&spec, if against { &tuned } else { &before }, &before];
        let [spec, tuned, before] = [spec, tuned, before].map(|path| path.to_str().unwrap());
        let words =
            ["check", spec, "--arch", "x86_64", "--no-shipped", "--json", "--tuned", tuned, "--against", before];
        serde_json::from_str::<serde_json::Value>(&command(&words).text).unwrap()
    };
    // A record of the fewer rows that the first kernel is for, with another config of the same form of weights.
    let rows = check(false)["choices"][0].clone();
    let [first] = &rows["smaller"].as_array().unwrap()[..] else { panic!("{rows:#}") };
    let key = format!("matmul-f32-m{}n64k256-nn", first["units"]);
    let (template, target) = (first["choice"]["template"].as_str().unwrap(), Target::find("x86-64-v3").unwrap());
    let workload = Workload::from_key(&key).unwrap();
    let registry = Registry::builtin();
    let template = registry.find(template).unwrap();
    let space = template.space(&workload, target).unwrap();
    let config = first["choice"]["config"]["text"].as_str().unwrap().replace("fetch=demand", "fetch=ahead");
    let config = space.normalise(&Config::parse(&config).unwrap()).unwrap().to_string();
    let knob = |knob: &str| match knob.split_once('=').unwrap() {
        (name, value) if value.parse::<i64>().is_ok() => format!("{name} = {value}"),
        (name, value) => format!("{name} = \"{value}\""),
    };
    let knobs: Vec<String> = config.split(' ').map(knob).collect();
    fs::create_dir_all(tuned.join("x86-64-v3")).unwrap();
    let record = format!(
        "schema = 2\ntarget = \"x86-64-v3\"\ndevice = \"some\"\n\n[records]\n\"{key}\".1 = {{ template = \"{}\", \
         template_version = {}, config = {{ {} }}, time_us = 1.0, gflops = 9.0, max_error = 1.2e-7, verified = true, \
         space = \"{}\", generator = \"0.1.0\" }}\n",
        template.name(),
        template.version(),
        knobs.join(", "),
        space.fingerprint()
    );
    fs::write(tuned.join("x86-64-v3/some.toml"), record).unwrap();
    let found = check(true);
    let change = &found["changes"]["kernels"][0];
    let fetch =
        |row: &str| change[row]["smaller"][0]["choice"]["config"]["text"].as_str().unwrap_or_default().to_string();
    assert!(fetch("before").contains("fetch=demand") && fetch("now").contains("fetch=ahead"), "{found:#}");
    assert_eq!(change["now"]["choice"]["config"], change["before"]["choice"]["config"], "{change:#}");
    assert_eq!(found["unused"], serde_json::json!([]), "{found:#}");
}

/// The script of the action for GitHub, in a repository with a change of records: it exits as the command does.
#[test]
fn the_action_compares_records_with_those_of_the_revision_before() {
    let folder = Folder::new("action");
    let folder = fs::canonicalize(&folder.0).unwrap();
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shell = |script: &str, variables: &[(&str, &str)]| {
        let program = Path::new(env!("CARGO_BIN_EXE_kernel-gen")).parent().unwrap();
        let mut command = std::process::Command::new("bash");
        // Nothing of a repository or an action that this test runs in.
        for (name, _) in std::env::vars() {
            if name.starts_with("GIT_") || ["SPEC", "TUNED", "BASE", "ARCH", "SHIPPED"].contains(&&name[..]) {
                command.env_remove(name);
            }
        }
        command.env_remove("DENY_FALLBACK").env_remove("DENY_UNUSED");
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        command.env("PATH", format!("{}:{}", program.display(), std::env::var("PATH").unwrap()));
        command.env("CHECK", manifest.join("../.github/actions/check/check.sh"));
        command.env("RECORDS", manifest.join("../specs/tuned/x86-64-v3"));
        command.env("GITHUB_STEP_SUMMARY", folder.join("summary")).env("ARCH", "x86_64");
        let output =
            command.args(["-c", script]).current_dir(&folder).envs(variables.iter().copied()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    fs::create_dir(folder.join("a net")).unwrap();
    fs::write(folder.join("a net/kernels.toml"), LAYER).unwrap();
    let commit = "git add --all . && git -c user.name=a -c user.email=a@a commit --quiet --message a";
    let made = shell(
        &format!(
            "set -e; git init --quiet --initial-branch main .; echo summary > .gitignore; {commit}; git checkout --quiet -b change;
             mkdir 'a net/tuned'; cp -r \"$RECORDS\" 'a net/tuned'; {commit}; git checkout --quiet main;
             mkdir -p 'a net/tuned/x86-64-v3'; echo wrong > 'a net/tuned/x86-64-v3/a.toml'; {commit}; git checkout --quiet change"
        ),
        &[],
    );
    assert_eq!(made.0, Some(0), "{}", made.1);

    // What the other branch has gained since does not count.
    let run = "bash \"$CHECK\"";
    let own = [("SPEC", "a net/kernels.toml"), ("SHIPPED", "false")];
    let with = |more: &[(&'static str, &'static str)]| [&own[..], more].concat();
    let (ended, said) = shell(run, &with(&[("BASE", "main")]));
    assert!(ended == Some(0) && said.contains("changes: 2 of 2 ") && said.contains("\n  + conv2d_panels "), "{said}");
    let summary = fs::read_to_string(folder.join("summary")).unwrap();
    assert!(summary.contains("```diff\n") && summary.contains("\n+ conv2d_panels "), "{summary}");
    // From a folder of the repository, and from outside, by a path from the root.
    let below = "cd 'a net' && SPEC=kernels.toml bash \"$CHECK\"";
    let outside = "here=$PWD && cd / && SPEC=\"$here/a net/kernels.toml\" TUNED=\"$here/a net/tuned\" bash \"$CHECK\"";
    for script in [below, outside] {
        let (ended, said) = shell(script, &[("SHIPPED", "false"), ("BASE", "HEAD")]);
        assert!(ended == Some(0) && said.contains("changes: 0 of 2 "), "{script}: {said}");
    }
    let (ended, said) = shell(run, &with(&[("DENY_UNUSED", "true")]));
    assert!(ended == Some(1) && said.contains("uses this record") && !said.contains("changes"), "{said}");
    let (ended, said) = shell(run, &with(&[("BASE", "nowhere")]));
    assert!(ended == Some(1) && said.contains("fetch-depth: 0"), "{said}");
    let (ended, said) = shell("cd 'a net' && unset ARCH && bash \"$CHECK\"", &[]);
    assert!(ended == Some(0) && said.contains("kernels.toml: 1 workload"), "{said}");
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
