//! Schedule primitives: what they compute stays the same, and what they refuse.

#[path = "../cuda_on_cpu/mod.rs"]
mod cuda_on_cpu;
mod emit_cuda;
mod random;
mod refusals;
mod sequences;
mod tensorize;
mod tutorials;
