//! Generates the kernel of `kernels.toml`.

fn main() {
    kernel_gen_build::configure().generate_or_exit();
}
