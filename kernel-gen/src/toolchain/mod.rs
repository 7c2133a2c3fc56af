//! Tools outside of Rust: which C compiler there is for a target, how sources become a static library, and how a kernel
//! is run in a process of its own.
//!
//! Nothing here looks at a device or at the network. A tool that is missing is an error that says what was tried and
//! which variable names another.

mod c;
pub mod cuda;
mod error;
mod flags;
#[cfg(feature = "tune")]
pub mod harness;
mod headers;
mod objects;
mod parallel;
mod process;
mod temporary;
#[cfg(feature = "tune")]
pub mod values;

pub use c::{Compiler, FLAGS, SETTINGS, Unit, Warnings, file_identity, host_triple, resolve, settings_for};
pub use error::ToolError;
pub(crate) use parallel::in_parallel;
pub(crate) use process::{apart, ended_by, is_over_in_time};
#[cfg(feature = "cli")]
pub(crate) use temporary::Temporary;
