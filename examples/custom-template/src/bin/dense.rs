//! The `kernel-gen` command with the template for dense layers alone: `dense bench layers.toml --target sm_90a --peers cublas`
//! times it beside cuBLAS, `dense tune` finds its best configs.

#[path = "../dense_layer.rs"]
mod dense_layer;

fn main() -> std::process::ExitCode {
    kernel_gen::cli::main(&kernel_gen::templates::Registry::empty().with(dense_layer::DenseLayer))
}
