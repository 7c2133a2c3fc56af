//! Generates the wrappers of `kernels.toml`.

fn main() {
    kernel_gen_build::configure().generate_or_exit();
}
