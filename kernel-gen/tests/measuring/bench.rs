//! `kernel-gen bench`, end to end on this CPU, and what it says where there is nothing to measure.

use crate::folder::Folder;
use kernel_gen::cli::run;
use kernel_gen::templates::Registry;
use std::fs;
use std::process::{Command, Output};

const SPEC: &str = "\
schema = 1
[[kernel]]
name = \"product\"
op = \"matmul\"
[[kernel.workload]]
name = \"tuned\"
a = [16, 16]
b = [16, 16]
[[kernel.workload]]
name = \"new\"
a = [16, 32]
b = [32, 16]
";

fn binary(folder: &Folder, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kernel-gen")).current_dir(&folder.0).args(words).output().unwrap()
}

#[test]
fn wrong_arguments_exit_with_2_and_what_fails_with_1() {
    let folder = Folder::new("exits");
    let status = |words: &[&str]| binary(&folder, words).status.code();
    assert_eq!(status(&["bench", "--help"]), Some(0));
    assert_eq!(status(&["bench", "none.toml"]), Some(1));
    assert_eq!([status(&["bench", "--repeat", "x"]), status(&[]), status(&["bnch"])], [Some(2); 3]);
}

#[test]
fn libraries_of_gpus_are_for_gpus() {
    let folder = Folder::new("peers");
    fs::write(folder.0.join("kernels.toml"), SPEC).unwrap();
    let said = |words: &[&str]| {
        let done = binary(&folder, words);
        assert!(!done.status.success());
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let text = said(&["bench", "--peers", "cublas"]);
    assert!(text.contains("--peers is for GPUs") && text.contains("--target sm_90a"), "{text}");
    let text = said(&["bench", "--peers", "cudnn,mkl"]);
    assert!(text.contains("'mkl'") && text.contains("known are cudnn, cudnn-fused, cublas"), "{text}");
}

#[test]
fn a_record_is_timed_again_and_a_workload_without_one_says_so() {
    let folder = Folder::new("bench-cpu");
    fs::write(folder.0.join("kernels.toml"), SPEC).unwrap();
    let tuned = binary(&folder, &["tune", "--only", "tuned", "--trials", "3", "--seconds", "15", "--quiet"]);
    assert!(tuned.status.success(), "{}", String::from_utf8_lossy(&tuned.stderr));
    let done = binary(&folder, &["bench", "--others", "--out", "bench.json"]);
    let (text, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{text}{errors}");
    assert!(errors.contains("1/2 tuned: ") && errors.contains("us recorded"), "{errors}");
    assert!(errors.contains("2/2 new: ") && errors.contains("no record"), "{errors}");
    assert!(text.contains("1 of 2 workloads have a record; geometric means: default/record"), "{text}");
    assert!(text.contains("no record: by records of other shapes"), "{text}");

    let json = fs::read_to_string(folder.0.join("bench.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["schema"], json["rows"].as_array().map(Vec::len)), (&1.into(), Some(2)), "{json}");
    let (tuned, new) = (&json["rows"][0], &json["rows"][1]);
    assert_eq!((&tuned["chosen"]["origin"], &new["chosen"]["origin"]), (&"exact".into(), &"model".into()), "{json}");
    // There is no other record to choose by, so that choice is the default: the same candidate with the same samples.
    assert_eq!(tuned["others"]["config"], tuned["default"]["config"], "{json}");
    assert_eq!(tuned["others"]["samples_us"], tuned["default"]["samples_us"], "{json}");
    assert!(tuned["recorded_us"].as_f64() > Some(0.0) && new["recorded_us"].is_null(), "{json}");
    let ratio = tuned["chosen"]["us"].as_f64().unwrap() / tuned["recorded_us"].as_f64().unwrap();
    assert_eq!(tuned["now_to_recorded"].as_f64(), Some(ratio), "{json}");
    assert!(new["chosen"]["max_error"].as_f64().is_some_and(|e| (0.0..=1.0).contains(&e)), "{json}");
}

#[test]
fn what_cannot_be_measured_is_named_with_help() {
    let folder = Folder::new("bench-errors");
    let spec = folder.0.join("kernels.toml");
    fs::write(&spec, SPEC).unwrap();
    let spec = spec.to_str().unwrap();
    for (words, want) in [
        (vec!["bench", spec, "--only", "tunde"], "did you mean `tuned`?"),
        (vec!["bench", spec, "--target", "sm90a"], "there is no target `sm90a`; did you mean `sm_90a`?"),
        (vec!["bench", spec, "--target", "aarch64"], "does not execute aarch64"),
        (vec!["bench", "no.toml"], "no.toml:1: cannot be read"),
        (vec!["bench", spec, "--seconds=-3"], "write a number of seconds above 0"),
        (vec!["bench", "--workload", "matmul-f32", spec], "matmul-f32"),
    ] {
        let output = run(&Registry::builtin(), [&["kernel-gen"], &words[..]].concat());
        assert!(!output.success && output.errors.len() == 1, "{words:?}: {output:?}");
        assert!(output.errors[0].contains(want), "{words:?}: {:?}", output.errors);
    }
}
