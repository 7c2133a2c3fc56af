//! Sources from kernels: C and CUDA C++ that compile, and the Rust wrappers that call them.

pub mod c;
pub mod cuda;
pub mod escape;
mod lanes;
mod names;
pub mod rust;
mod text;
