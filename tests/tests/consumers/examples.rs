//! The examples build from nothing but this repository, run, and find their own results correct.

use kernel_gen::toolchain::cuda::Environment;
use std::path::PathBuf;
use std::process::Command;

/// Runs an example; what it prints.
fn run(example: &str, arguments: &[&str]) -> String {
    run_program(example, &[], arguments)
}

/// Runs a program of an example that `of_cargo` names; what it prints.
fn run_program(example: &str, of_cargo: &[&str], arguments: &[&str]) -> String {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples").join(example).join("Cargo.toml");
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["run", "--quiet", "--release", "--locked", "--manifest-path"])
        .arg(manifest)
        .args(of_cargo)
        .arg("--")
        .args(arguments);
    // What cargo tells a test about its own package is not for another one.
    command.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_MANIFEST_PATH");
    let output = command.output().expect("cargo, which runs this test, can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{example} fails:\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Whether the machine has NVIDIA's driver and a device of its own; what the examples say is not asked.
fn has_gpu() -> bool {
    let device = |name: &str| name == "dxg" || name.strip_prefix("nvidia").is_some_and(|n| n.parse::<u32>().is_ok());
    let mut devices = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let found = devices.any(|entry| device(&entry.file_name().to_string_lossy()));
    found && Environment::of_process().driver().is_some()
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
fn a_network_of_a_model_file_gives_what_onnx_runtime_gave() {
    let text = run("network", &[]);
    let [.., outcome, held_out] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(
        outcome.starts_with("40 of 40 digits right; largest distance from ONNX Runtime's probabilities: "),
        "{text}"
    );
    let counts: Vec<usize> = held_out.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [images, numbers, integers] = counts[..] else { panic!("{text}") };
    // Integers may lose half a percent, which is none of 180 images.
    assert!(numbers * 100 > images * 99 && (numbers - integers.min(numbers)) * 200 <= images, "{text}");
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
    let times = text.lines().filter(|l| l.contains("TFLOP/s")).count();
    let skips = text.lines().filter(|l| l.starts_with("[SKIP] no GPU: ")).count();
    assert_eq!((times, skips), if has_gpu() { (2, 0) } else { (0, 1) }, "{text}");
}

/// With sums of either type, for the oldest tensor cores and for later ones.
#[test]
fn the_tutorial_of_tensor_cores_prints_scalar_loops_and_what_they_become() {
    let program = |arguments: &[&str]| run_program("tutorials", &["--bin", "opt_conv_tensorcore"], arguments);
    let text = program(&["--steps", "--target", "sm_70", "--f16-sums"]);
    for part in [
        "acc[n, oh, ow, co, n_in, co_in] +=",
        "mma.warp acc[",
        "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16",
        "wmma.mma.sync.aligned.row.row.m16n16k16.f16.f16",
        "wmma.store.d.sync.aligned.row.m16n16k16.f16",
    ] {
        assert!(text.contains(part), "no `{part}`:\n{text}");
    }
    let text = program(&["--target", "sm_75"]);
    assert!(text.contains("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32") && !text.contains("wmma."), "{text}");
}

#[test]
fn the_tutorial_of_templates_prints_every_config_of_its_three_spaces() {
    let arguments = ["--size", "16", "--number", "1", "--steps"];
    let text = run_program("tutorials", &["--bin", "tune_simple_template"], &arguments);
    // The schedule, with the loops after each step.
    for part in
        ["  1  split(i_out, 8, Guard)\nkernel ", "  6  reorder([k, i, j])\nkernel ", "# C\n", "void matmul_v0_p0("]
    {
        assert!(text.contains(part), "no `{part}`:\n{text}");
    }
    // Of 16 = 2^4 there are five splits in two.
    for (template, points) in [("matmul_v0", 1), ("matmul_v1", 25), ("matmul", 25)] {
        let (_, rest) = text.split_once(&format!("\n# {template}\nConfigSpace (len={points}, ")).expect(template);
        let (listed, best) = rest.split_once("\nBest config: ").expect(template);
        let results: Vec<&str> = listed.lines().filter(|line| line.starts_with("No: ")).collect();
        // In order, each once, and right: what is wrong has no throughput.
        let indices: Vec<String> =
            results.iter().map(|line| line.rsplit(',').next().unwrap_or_default().into()).collect();
        assert_eq!(indices, (0..points).map(|i| i.to_string()).collect::<Vec<_>>(), "{template}:\n{listed}");
        assert!(results.iter().all(|line| line.contains(" ms ")), "{template}:\n{listed}");
        let (best, _) = best.split_once('\n').expect(template);
        assert!(results.iter().any(|line| line.contains(best)), "{template}: {best} is none of its configs");
    }
    let (_, compared) = text.split_once("error/bound\n").expect("the best ones are compared");
    let names: Vec<&str> = compared.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names[..3], ["matmul_v0", "matmul_v1", "matmul"], "{compared}");
    assert_eq!(names.len(), 4, "{compared}");
}
