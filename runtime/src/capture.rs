//! Shapes that a program asked for and no kernel was generated for, for `kernel-gen capture`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Appends a call's shapes, one line a distinct call, to the file that `KERNEL_GEN_CAPTURE` names. The call fails with its own error in
/// any case, so a file that cannot be written changes nothing.
pub(crate) fn note(function: &str, shapes: &[(&'static str, Vec<usize>)]) {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    static NOTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let file = FILE.get_or_init(|| std::env::var_os("KERNEL_GEN_CAPTURE").filter(|v| !v.is_empty()).map(PathBuf::from));
    let Some(file) = file else { return };
    let line = line(function, shapes);
    if NOTED.lock().unwrap_or_else(PoisonError::into_inner).insert(line.clone()) {
        // One write: lines of several threads and processes do not mix.
        let opened = OpenOptions::new().create(true).append(true).open(file);
        let _ = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// `function x=1,3,224,224 w=64,3,7,7`.
fn line(function: &str, shapes: &[(&'static str, Vec<usize>)]) -> String {
    let mut line = function.to_string();
    for (name, shape) in shapes {
        let extents: Vec<String> = shape.iter().map(usize::to_string).collect();
        let _ = write!(line, " {name}={}", extents.join(","));
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_has_the_function_and_every_shape() {
        let shapes = [("x", vec![2, 3]), ("scale", vec![]), ("y", vec![7])];
        assert_eq!(super::line("product", &shapes), "product x=2,3 scale= y=7\n");
    }
}
