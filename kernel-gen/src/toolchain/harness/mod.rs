//! Runs compiled kernels in a process of their own: checked or timed, never inside this one.
//!
//! A [`Host`] is a small program that opens a kernel's shared object; it is compiled once for an instruction set level. A
//! [`Program`] is a kernel's shared object. [`Program::start`] gives a [`Session`]: a process that checks and times.
//!
//! A checked run executes the kernel twice, with buffers against an inaccessible page on the left and then on the right,
//! canaries on the other side, different poison in outputs and workspace, and iterations of parallel phases handed out in
//! both orders; the two results must agree to the bit. A timed run interleaves samples with a loop of fused multiply-adds,
//! so that each sample has a measured peak beside it.

mod error;
mod host;
mod program;
mod session;
mod tables;

pub use error::HarnessError;
pub use host::Host;
pub use program::{PackSource, Param, Program, RunOptions, TimeOptions, Timing};
pub use session::{Sample, Session};

use super::ToolError;
use super::temporary::Temporary;
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

fn io_error(file: &Path, error: &std::io::Error) -> ToolError {
    ToolError::Io { file: file.display().to_string(), reason: error.to_string() }
}
