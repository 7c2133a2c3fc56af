//! What generated code links: devices, typed shapes, a thread pool and the dispatch tables.
//!
//! A crate that declares kernels in a spec writes in its `build.rs`
//!
//! ```ignore
//! fn main() {
//!     kernel_gen_build::configure().spec("kernels.toml").tuned("tuned").generate_or_exit();
//! }
//! ```
//!
//! and in its library
//!
//! ```ignore
//! kernel_gen_runtime::include_kernels!();
//!
//! let dev = kernel_gen_runtime::Cpu::new();
//! kernels::conv2d_nchw(&dev, &x, &w, &bias, &mut y)?;
//! ```
//!
//! The same functions run on a GPU (feature `cuda`): `Cuda::new(0)?` is a device like [`Cpu`], and arguments are then arrays
//! in its memory. What is generic over [`Device`] runs on both.
//!
//! Shapes are types ([`D1`] to [`D6`]), so a call with a shape that the spec does not declare does not compile.
//! Arguments are anything that is a dense array of known shape: a [`View`] of a slice, a [`Tensor`], a nested Rust
//! array, or a `View` made of an `ndarray` array (feature `ndarray` for version 0.17, `ndarray-0_16` for version 0.16).
//! Nothing is copied on the way in or out.
//!
//! # Environment
//!
//! A program reads these when it makes a device, and the last one at the first use of a kernel that it holds as source. What
//! a build reads is in the documentation of `kernel-gen-build`.
//!
//! | variable | effect |
//! |---|---|
//! | `KERNEL_GEN_CAPTURE` | a file: each `_dyn` call with shapes that no workload has appends these shapes to it, once; `kernel-gen capture` makes lines of a spec of them |
//! | `KERNEL_GEN_THREADS` | how many workers [`Cpu::new`] has, in place of one for each processor. What is no positive number is not obeyed. More than 16 a core and more than 512, or more than the system gives threads for, are fewer, and a line on standard error says so; [`Cpu::with_threads`] does not ask |
//! | `KERNEL_GEN_ISA` | the instruction set level of a new [`Cpu`], if the machine runs it: `x86-64`, `x86-64-v3`, `x86-64-v3-vnni`, `x86-64-v4`, `x86-64-v4-vnni`, `x86-64-v4-amx`, `aarch64`, `aarch64-dotprod` or `aarch64-i8mm`. Any other value is not obeyed; [`Cpu::with_isa`] says what is wrong |
//! | `KERNEL_GEN_NVRTC` | (feature `cuda`) NVRTC's library, or the folder that it is in, for kernels that were built without a CUDA compiler; otherwise the loader looks for it |
//!
//! # What first launches do
//!
//! The first launch of a workload on a GPU loads its code, or compiles it where the program holds the source, and may allocate
//! workspace. The generated function `kernels::preload(&dev)?` does that for all workloads at once. Call it before launches are
//! timed, and before they are captured in a graph, where code can no longer be loaded. On a CPU it only says whether there
//! is code for every workload.
//!
//! Of the library's crates that a build or a program links, this is the only one that holds `unsafe` code; what generated
//! code adds are calls of the emitted C functions through [`dispatch`], whose tables can only be made inside `unsafe`.
//!
//! # Versions
//!
//! This crate and `kernel-gen-build` are meant to have the same version. Where generated code is in a format that this
//! crate does not read, one compile error says which of the two to update.
#![warn(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod arena;
mod blocked;
mod capture;
mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
pub mod dispatch;
mod dynamic;
mod element;
mod error;
mod executor;
#[doc(hidden)]
pub mod generated;
mod isa;
#[cfg(any(feature = "ndarray", feature = "ndarray-0_16"))]
mod nd;
pub mod network;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod pages;
mod peak;
mod pool;
pub mod report;
mod shape;
mod tensor;
#[cfg(test)]
mod threads;
mod view;

pub use blocked::{block_channels, unblock_channels};
pub use cpu::Cpu;
#[cfg(feature = "cuda")]
pub use cuda::{Cuda, CudaError, CudaInfo};
pub use device::{Device, Input, Output};
pub use dynamic::{DynView, DynViewMut};
pub use element::{Bf16, BitsOf, DType, E4m3, E5m2, Element, F16, elements, elements_mut};
pub use error::{Error, IoError, Result};
pub use executor::Executor;
#[cfg(feature = "rayon")]
pub use executor::Rayon;
pub use isa::Isa;
pub use report::Report;
pub use shape::{D1, D2, D3, D4, D5, D6, Shape};
pub use tensor::Tensor;
pub use view::{AsView, AsViewMut, View, ViewMut};

/// The table of GPU code in generated code: there with the feature `cuda`, and nothing without it.
#[cfg(feature = "cuda")]
#[doc(hidden)]
#[macro_export]
macro_rules! cuda_table {
    ($($table:tt)*) => { $($table)* };
}

/// The table of GPU code in generated code: there with the feature `cuda`, and nothing without it.
#[cfg(not(feature = "cuda"))]
#[doc(hidden)]
#[macro_export]
macro_rules! cuda_table {
    ($($table:tt)*) => {
        ()
    };
}

/// Brings in what `build.rs` generated.
///
/// `include_kernels!()` makes a module `kernels`. A crate with several specs gives each a module name in its
/// `build.rs` (`.module("filters")`) and writes `include_kernels!(filters)`.
///
/// The library, the binaries, the tests and the examples of the package may all include the kernels, whatever the dependency on
/// this crate is called. On Windows, where there is a library, it alone may: cargo links the C code to nothing else.
///
/// The module declares and calls C functions, so it holds `unsafe` code and allows it for itself. A crate that includes
/// it may `deny(unsafe_code)`, but not `forbid` it.
#[macro_export]
macro_rules! include_kernels {
    () => {
        $crate::include_kernels!(kernels);
    };
    ($module:ident) => {
#[doc = "Kernels generated by `build.rs` from the crate's kernel spec."]
        #[allow(
            unsafe_code, unreachable_pub, dead_code, unused_imports, unused_variables, clippy::all, clippy::pedantic, clippy::restriction
        )]
        #[rustfmt::skip]
        pub mod $module {
            // Generated code calls this crate by its own name, whatever the dependency is called.
            use $crate as kernel_gen_runtime;
            include!(concat!(env!("OUT_DIR"), "/", stringify!($module), ".rs"));
        }
    };
}
