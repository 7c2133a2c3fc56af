//! The module that `build.rs` generates.

kernel_gen_runtime::include_kernels!();
