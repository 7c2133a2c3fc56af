//! Generates kernels for exactly the shapes of the published tests.

fn main() {
    kernel_gen_build::configure().spec("kernels.toml").generate_or_exit();
}
