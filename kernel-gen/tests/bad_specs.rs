//! Every malformed spec of `specs/filetests/bad-specs` gets exactly the diagnostics beside it.
//!
//! `KERNEL_GEN_BLESS=1 cargo test --test bad_specs` writes what came out; read the difference before you commit it.

use kernel_gen::spec::Spec;
use std::fs;
use std::path::Path;

#[test]
fn malformed_specs_are_refused_with_their_lines_causes_and_mends() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/filetests/bad-specs");
    let bless = std::env::var_os("KERNEL_GEN_BLESS").is_some();
    let mut specs: Vec<_> = fs::read_dir(&folder)
        .expect("the folder is part of the repository")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    specs.sort();
    assert!(specs.len() >= 40, "{} malformed specs", specs.len());
    let mut failures = vec![];
    for path in specs {
        let file = path.file_name().expect("it has an extension").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("a readable file");
        let diagnostics = match Spec::parse(&text, &file) {
            Ok(_) => {
                failures.push(format!("{file} was accepted"));
                continue;
            }
            Err(diagnostics) => diagnostics,
        };
        let found: String = diagnostics.iter().map(|d| format!("{d}\n")).collect();
        for d in &diagnostics {
            assert!(!d.cause.is_empty() && !d.mend.is_empty() && d.line >= 1, "{d}");
            assert!(d.line <= text.lines().count().max(1), "a line that exists: {d}");
        }
        let beside = path.with_extension("expect");
        if bless {
            fs::write(&beside, &found).expect("a writable folder");
        }
        let expected = fs::read_to_string(&beside).unwrap_or_default();
        if found != expected {
            failures.push(format!("{file}:\n--- expected\n{expected}--- found\n{found}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
