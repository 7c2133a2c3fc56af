//! Generates the kernels that `kernels.toml` declares.

fn main() {
    kernel_gen_build::configure().spec("kernels.toml").generate_or_exit();
}
