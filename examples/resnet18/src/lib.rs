//! ResNet-18 on generated kernels: the network as data, its parameters, the forward pass, and a reference in `f64`.
//!
//! The program of this package runs it on an image and prints a table; `tests/peers` times it beside other libraries, and
//! `examples/networks` has other networks of the same parts.

pub mod forward;
#[cfg(feature = "cuda")]
pub mod gpu;
pub mod json;
pub mod network;
pub mod place;
pub mod pool;
#[cfg(feature = "cuda")]
pub mod pools;
pub mod preprocess;
pub mod program;
pub mod reference;
pub mod safetensors;
pub mod table;
pub mod weights;

kernel_gen_runtime::include_kernels!();
