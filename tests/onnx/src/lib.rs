//! Kernels for the shapes of the ONNX project's published Conv, MatMul and Gemm tests; `tests/published.rs` runs them.

kernel_gen_runtime::include_kernels!();
