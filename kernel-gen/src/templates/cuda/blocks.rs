//! Building blocks for CUDA templates of one's own: what the library's own products are made of.
//!
//! A template is a [`Family`]: it says what it reads of a workload, which knobs it has ([`knobs!`]), how a config cuts the problem
//! up ([`Plan`]: what a block needs, whether that fits, the predicted time) and the kernel. Space, default, checks and the reading
//! of records follow; a `Family` is a [`Template`](crate::templates::Template).
//!
//! The kernel of a product comes from an engine: blocks have a tile of the output each, and `cp.async` brings both operands' tiles,
//! steps ahead of the products, into a ring of slots in shared memory. Its parts:
//!
//! | part | says | ready ones |
//! |---|---|---|
//! | [`Product`] | where pieces of both operands lie, and where an output goes | [`Gemm`] |
//! | [`Whole`], [`Cut`] | rows, columns, reduction and batch; tiles, steps, slots | from the sizes of what multiplies |
//! | what multiplies | the registers, their products, the way of the sums | [`TensorCores`] (16 bits, `mma.sync`), [`MultiplyAdds`] (`f32`) |
//!
//! A [`Product`] that is a convolution, or gathers its rows by an index of its own, is written like [`Gemm`]: the engine asks it for
//! the index of each piece that a thread copies, and for the condition that there is one; where there is none, zeros are multiplied.
//! Epilogues of the workload come with the engine. What all of it makes goes through the same verifier as every kernel, so a wrong index
//! is an error of the build. `examples/custom-template` has a template of 16-bit products in a hundred lines.

pub use super::cut::{Cut, Layout, Whole};
pub use super::family::{Case, Family, Field, Knobs, Needs, Plan, Search, Store, built, unknown};
pub use super::guards::inside;
pub use super::mma::{Reduce, Sizes as TensorCoreSizes, TensorCores, device as with_tensor_cores};
pub use super::product::{Column, Element, Gemm, Piece, Product, widest};
pub use super::requires::device;
pub use super::simt::{MultiplyAdds, Sizes as MultiplyAddSizes, device as with_multiply_adds};
pub use crate::{knobs, words};
