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
mod folder;
mod host;
mod program;
mod session;
mod tables;

pub use error::HarnessError;
pub(crate) use folder::Folder;
pub use host::Host;
pub use program::{Param, Program, RunOptions, TimeOptions, Timing};
pub use session::{Sample, Session};
pub use tables::PackSource;
