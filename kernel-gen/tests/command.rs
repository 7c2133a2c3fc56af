//! The command on the networks' specs with the built-in templates.
#![cfg(feature = "cli")]

use kernel_gen::cli::{Output, run};
use kernel_gen::ir::parse::parse;
use kernel_gen::spec::Spec;
use kernel_gen::templates::Registry;
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
fn every_workload_of_every_network_is_served_on_every_cpu() {
    for spec in specs() {
        for arch in ["x86_64", "aarch64"] {
            let output = command(&["check", "--arch", arch, "--spec", spec.to_str().unwrap()]);
            assert!(output.success, "{}: {:#?}", spec.display(), output.errors);
        }
    }
}

#[test]
fn what_lower_prints_of_every_layer_parses_back() {
    for path in specs() {
        let spec = Spec::load(&path).unwrap();
        for (_, w) in spec.workloads() {
            // One level is enough: the text form does not depend on it, and there are many layers.
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
