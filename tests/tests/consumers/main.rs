//! Crates that use the library as a stranger's would: the examples, programs with GPU code, headers, the quick
//! starts of the documentation, and what must not compile.
//!
//! `downstream` is apart, because it times builds.

mod book;
mod examples;
mod gpu_consumers;
mod header;
mod own_cuda;
mod ranges;
mod refused;
