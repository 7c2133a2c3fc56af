//! ResNet-18 on generated kernels: the network as data, its parameters, the forward pass, and a reference in `f64`.
//!
//! The program of this package runs it on an image and prints a table; `tests/peers` times it beside other libraries.

pub mod forward;
#[cfg(feature = "cuda")]
pub mod gpu;
pub mod json;
pub mod network;
pub mod place;
pub mod pool;
pub mod preprocess;
pub mod reference;
pub mod safetensors;
pub mod table;
pub mod weights;

kernel_gen_runtime::include_kernels!();
