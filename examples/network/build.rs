//! Generates the network that `kernels.toml` names.

fn main() {
    kernel_gen_build::configure().spec("kernels.toml").generate_or_exit();
}
