//! Sources from kernels: C and CUDA C that compile, and the Rust wrappers that call them.

pub mod rust;
