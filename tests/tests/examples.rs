//! The examples build from nothing but this repository, run, and find their own results correct.

use std::path::PathBuf;
use std::process::Command;

/// Runs an example; what it prints.
fn run(example: &str, arguments: &[&str]) -> String {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples").join(example).join("Cargo.toml");
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["run", "--quiet", "--release", "--locked", "--manifest-path"])
        .arg(manifest)
        .arg("--")
        .args(arguments);
    // What cargo tells a test about its own package is not for another one.
    command.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_MANIFEST_PATH");
    let output = command.output().expect("cargo, which runs this test, can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{example} fails:\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The number behind `max error`.
fn max_error(text: &str) -> f64 {
    let last = text.lines().last().unwrap_or_default();
    let number = last.strip_prefix("max error ").and_then(|rest| rest.split(' ').next());
    number.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("the last line is `{last}`"))
}

#[test]
fn resnet18_names_every_layer_and_ends_with_its_error() {
    let text = run("resnet18", &["--repeat", "2"]);
    assert!(max_error(&text) < 1e-4, "{text}");
    for layer in ["conv1 ", "maxpool", "layer1.0.conv1", "layer2.0.downsample.0", "layer4.1.conv2", "fc ", "total"] {
        assert!(text.lines().any(|l| l.starts_with(layer)), "no line about {layer}:\n{text}");
    }
}

#[test]
fn resnet18_without_gpus_says_so_and_runs_on_the_cpu() {
    let text = run("resnet18", &["--repeat", "1", "--device", "cuda"]);
    assert!(
        text.starts_with("built without GPUs, so this runs on the CPU: build it with `--features cuda`\n"),
        "{text}"
    );
    assert!(max_error(&text) < 1e-4, "{text}");
}

#[test]
fn filters_writes_a_sheet_of_nine_pictures() {
    let sheet = std::env::temp_dir().join(format!("kernel-gen-filters-{}.png", std::process::id()));
    let scene = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/picture/scene.png");
    let text = run("filters", &[scene, &sheet.to_string_lossy()]);
    let bytes = std::fs::read(&sheet).expect("the sheet is written");
    let _ = std::fs::remove_file(&sheet);
    assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 100_000, "{} bytes", bytes.len());
    assert!(max_error(&text) < 1e-2, "{text}");
}

#[test]
fn custom_template_runs_its_own_template_beside_the_librarys() {
    let text = run("custom-template", &[]);
    assert!(max_error(&text) < 1e-5, "{text}");
    let rows = |template: &str| text.lines().filter(|l| l.contains(template)).count();
    // Without fused multiply-adds both templates are expected to be equally fast, and the library's comes first.
    let portable = text.starts_with("x86-64,");
    assert!(portable || rows("matvec_in_place") == 2, "{text}");
}

#[test]
fn a_tutorial_prints_its_steps_its_loops_its_cuda_and_its_time() {
    let text = run("tutorials", &[]);
    for part in ["# The schedule", "  1  compute_inline(pad)", "# After inject_vthread", "# CUDA", "__global__ void"] {
        assert!(text.contains(part), "no `{part}`:\n{text}");
    }
    let timed = text.lines().filter(|l| l.contains("TFLOP/s")).count() == 2;
    assert!(timed || text.contains("[SKIP] no GPU: "), "{text}");
}
