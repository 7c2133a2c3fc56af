//! Generates the kernels that the network's spec declares.

fn main() {
    kernel_gen_build::configure()
        .spec("../../specs/resnet18.toml")
        .tuned("../../specs/tuned")
        .cuda(cfg!(feature = "cuda"))
        .generate_or_exit();
}
