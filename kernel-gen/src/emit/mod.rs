//! Sources from kernels: C and CUDA C++ that compile, and the Rust wrappers that call them.

pub mod c;
mod clike;
pub mod cuda;
mod error;
pub mod escape;
pub mod rust;

pub use error::EmitError;
