//! Generates the kernels of `kernels.toml`.

fn main() {
    kernel_gen_build::configure().spec("kernels.toml").tuned("../../specs/tuned").generate_or_exit();
}
