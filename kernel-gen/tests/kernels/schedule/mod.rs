//! Schedule primitives: what they compute stays the same, and what they refuse.

mod emit_cuda;
mod random;
mod refusals;
mod sequences;
mod tensorize;
mod tutorials;
