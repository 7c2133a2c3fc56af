//! One printer of lowered kernels for the C family, with a dialect for each language.
//!
//! Expressions, precedence, integer arithmetic, casts, literals, branches, loops, declarations and scalar stores are
//! printed here. A [`dialect::Dialect`] says what C and CUDA C++ write differently, each difference once, and emits what
//! the other language does not have: vectors of the CPU in `emit/c`, instructions of the GPU in `emit/cuda`.

pub(super) mod dialect;
pub(super) mod expr;
pub(super) mod lanes;
pub(super) mod names;
pub(super) mod prelude;
mod stmt;
pub(super) mod text;
pub(super) mod walk;
