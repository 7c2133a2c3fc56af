//! The folder in which programs are made.

use crate::toolchain::ToolError;
use crate::toolchain::temporary::Temporary;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder that vanishes with its value.
#[derive(Debug)]
pub(crate) struct Folder(Temporary);

impl Folder {
    /// A new folder among the temporary files.
    pub(crate) fn new() -> Result<Folder, ToolError> {
        Temporary::new().map(Folder).map_err(|e| io_error(&std::env::temp_dir(), &e))
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, ToolError> {
        let path = self.join(name);
        fs::write(&path, bytes).map_err(|e| io_error(&path, &e))?;
        Ok(path)
    }
}

/// What is wrong with a file.
pub(super) fn io_error(file: &Path, error: &std::io::Error) -> ToolError {
    ToolError::Io { file: file.display().to_string(), reason: error.to_string() }
}
