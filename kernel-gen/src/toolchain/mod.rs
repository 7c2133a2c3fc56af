//! Tools outside of Rust: which C compiler there is for a target, and how sources become a static library.
//!
//! Nothing here looks at a device or at the network. A tool that is missing is an error that says what was tried and
//! which variable names another.

mod c;
mod error;

pub use c::{Compiler, SETTINGS, Unit, settings_for};
pub use error::ToolError;
