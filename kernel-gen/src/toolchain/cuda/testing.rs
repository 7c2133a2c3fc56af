//! Folders and small programs for this room's tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder that vanishes with its value.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("kernel-gen-cuda-test-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.clone()
    }

    pub(super) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Writes an executable shell script.
    pub(super) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Written by another process: a file that this one holds open for writing, if only in a child that another
        // test is starting right now, cannot be run.
        let shell = which::which("sh").unwrap();
        let text = format!("#!{}\n{text}\n", shell.display());
        let write = "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"";
        let status = Command::new(&shell).args(["-c", write, "sh", &text]).arg(&path).status().unwrap();
        assert!(status.success());
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
