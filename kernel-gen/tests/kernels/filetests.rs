//! Passes and the C emitter, held to what `specs/filetests/lower` and `specs/filetests/emit-c` say.
//!
//! `KERNEL_GEN_BLESS=1 cargo test --test kernels filetests::` writes what came out; read the difference before you commit it.

use crate::compiled;
use kernel_gen::analysis::verify::{Limits, verify};
use kernel_gen::emit::c::{COptions, Isa, emit};
use kernel_gen::interp::{self, Mode};
use kernel_gen::ir::{Kernel, parse};
use kernel_gen::lower::{LowerOptions, PASSES, lower};
use kernel_gen::toolchain::harness::RunOptions;
use std::fs;
use std::path::{Path, PathBuf};

/// The kernels of a folder, with their files and texts.
fn kernels(folder: &str) -> Vec<(PathBuf, String, Kernel)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/filetests").join(folder);
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .expect("the folder is part of the repository")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == "kernel"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a readable file");
            let kernel = parse::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            (path, text, kernel)
        })
        .collect()
}

/// Compares with the file beside, or writes it.
fn compare(path: &Path, found: &str, failures: &mut Vec<String>) {
    if std::env::var_os("KERNEL_GEN_BLESS").is_some() {
        fs::write(path, found).expect("a writable folder");
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    if found != expected {
        failures.push(format!("{}:\n--- expected\n{expected}--- found\n{found}", path.display()));
    }
}

#[test]
fn each_pass_does_to_its_kernels_what_the_files_say() {
    let mut failures = vec![];
    for (path, text, kernel) in kernels("lower") {
        let name = text.lines().find_map(|l| l.strip_prefix("; pass ")).expect("the first line names a pass");
        let pass = PASSES.iter().find(|p| p.name == name.trim()).unwrap_or_else(|| panic!("no pass {name}"));
        let after = (pass.run)(kernel.clone(), &LowerOptions::cpu()).unwrap();
        assert_eq!(parse::parse(&after.to_string()).unwrap().to_string(), after.to_string());
        let inputs = interp::seeded_inputs(&kernel, 1);
        // Barriers are what makes that kernel defined in the first place.
        if pass.name != "insert_barriers" {
            assert_eq!(
                interp::run(&kernel, &inputs, Mode::F64).unwrap(),
                interp::run(&after, &inputs, Mode::F64).unwrap(),
                "{}",
                path.display()
            );
        }
        interp::run(&after, &inputs, Mode::F64).unwrap();
        compare(&path.with_extension("expect"), &after.to_string(), &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_emitted_c_is_what_the_files_say_and_computes_what_the_interpreter_computes() {
    let mut failures = vec![];
    for (path, _, kernel) in kernels("emit-c") {
        let verified =
            verify(kernel.clone(), &Limits::cpu()).unwrap_or_else(|f| panic!("{}: {}", path.display(), f[0]));
        let lowered = lower(verified, &LowerOptions::cpu()).unwrap();
        let inputs = interp::seeded_inputs(&kernel, 1);
        let want = interp::run(&kernel, &inputs, Mode::Declared).unwrap();
        for isa in [Isa::X86_64V4, Isa::X86_64V3, Isa::X86_64V4Amx, Isa::Aarch64, Isa::Portable] {
            let comment = format!("Expected of {}.", path.file_name().unwrap_or_default().to_string_lossy());
            let options = COptions { isa, symbol: kernel.name.clone(), comment };
            let source = emit(&lowered, &options).unwrap();
            // Two levels are enough to read, and tiles of registers where there are some; all that run here are run.
            let has_tiles = isa == Isa::X86_64V4Amx && source.source.contains("_tile_dp");
            if matches!(isa, Isa::X86_64V4 | Isa::Portable) || has_tiles {
                compare(&path.with_extension(format!("{}.c", isa.name())), &source.source, &mut failures);
            }
            if !isa.runs_here() {
                continue;
            }
            let program = compiled::program(&source, &kernel).unwrap_or_else(|e| panic!("{e}"));
            let values: Vec<Vec<f64>> =
                program.params().iter().map(|p| inputs.get(&p.name).cloned().unwrap_or_default()).collect();
            let got = program.run(&values, &RunOptions::default()).unwrap_or_else(|e| panic!("{e}"));
            for (p, got) in program.params().iter().zip(&got) {
                let Some(want) = want.get(&p.name) else { continue };
                let close = |(g, w): (&f64, &f64)| {
                    (g - w).abs() <= w.abs() * 1e-2_f64.min(1e-5 * 4f64.powi(8 - 2 * p.dtype.bytes() as i32))
                };
                assert!(got.iter().zip(want).all(close), "{} {}: {}", path.display(), isa.name(), p.name);
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Of a loop over steps, each of which reads its own; and of one over taps, which read what their neighbours do.
#[test]
fn steps_that_share_nothing_are_copied_out_where_registers_are_few() {
    for (read, expected) in [("a[k * 24 + j]", "KG_UNROLL(4)"), ("a[k + j]", "KG_UNROLL(1)")] {
        let text = format!(
            "kernel sums {{ param a: f32[1536] global read param b: f32[64, 4] global read param c: f32[4, 24] global write \
             for task in 0..1 parallel {{ alloc acc: f32[4, 24] register \
             for k in 0..64 {{ for i in 0..4 unrolled {{ for j in 0..24 vectorized {{ \
             acc[i, j] += {read} * b[k, i] init 0.0f32 over (k) }} }} }} \
             for i_1 in 0..4 unrolled {{ for j_1 in 0..24 vectorized {{ c[i_1, j_1] = acc[i_1, j_1] }} }} }} }}"
        );
        let kernel = parse::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let lowered = lower(verify(kernel, &Limits::cpu()).unwrap(), &LowerOptions::cpu()).unwrap();
        let options = COptions { isa: Isa::X86_64V3, symbol: "sums".into(), comment: String::new() };
        let source = emit(&lowered, &options).unwrap().source;
        let lines: Vec<&str> = source.lines().map(str::trim).collect();
        let at = lines.iter().position(|line| line.starts_with("for (int64_t k = 0")).expect("the loop");
        assert_eq!(lines[at - 1], expected, "{source}");
    }
}
