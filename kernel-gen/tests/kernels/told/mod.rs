//! Malformed files, each with the diagnostics that it must get in a file of the same name that ends in `.expect`.

use kernel_gen::diagnostic::Diagnostic;
use std::fs;
use std::path::Path;

/// Compares what `told` says of every file of `specs/filetests/<folder>` that ends in one of `extensions`, of which there
/// are at least so many, with what stands beside it. With `KERNEL_GEN_BLESS=1` it writes what came out; read the
/// difference before you commit it.
///
/// Every file must get some diagnostic, and every diagnostic a cause, a help, and a line that the file has.
pub(crate) fn as_expected(
    folder: &str,
    extensions: &[&str],
    least: usize,
    told: impl Fn(&[u8], &str) -> Vec<Diagnostic>,
) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/filetests").join(folder);
    let bless = std::env::var_os("KERNEL_GEN_BLESS").is_some();
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("the folder is part of the repository")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| extensions.iter().any(|known| e == *known)))
        .collect();
    files.sort();
    assert!(files.len() >= least, "{} files in {}", files.len(), folder.display());
    let mut failures = vec![];
    for path in files {
        let file = path.file_name().expect("it has an extension").to_string_lossy().into_owned();
        let bytes = fs::read(&path).expect("a readable file");
        let diagnostics = told(&bytes, &file);
        let lines = bytes.split(|b| *b == b'\n').count();
        for d in &diagnostics {
            assert!(!d.cause.is_empty() && !d.help.is_empty() && (1..=lines).contains(&d.line), "{d}");
            assert!(!d.to_string().contains('\n'), "{d}");
        }
        let found: String = diagnostics.iter().map(|d| format!("{d}\n")).collect();
        let beside = path.with_extension("expect");
        if bless {
            fs::write(&beside, &found).expect("a writable folder");
        }
        let expected = fs::read_to_string(&beside).unwrap_or_default();
        if found.is_empty() || found != expected {
            failures.push(format!("{file}:\n--- expected\n{expected}--- found\n{found}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
