//! Folders for the files of one test.

use std::fs;
use std::path::PathBuf;

/// An empty folder that is gone when the test is.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// A folder of that name, which no other test of the file may take; each file and each process has its own.
    pub(crate) fn new(name: &str) -> Folder {
        let name = format!("kernel-gen-{}-{name}-{}", env!("CARGO_CRATE_NAME"), std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("temporary files can be written");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
