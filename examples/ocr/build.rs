//! Generates the networks that `kernels.toml` names, from the files that `fetch.py` writes.

fn main() {
    kernel_gen_build::configure().spec("kernels.toml").generate_or_exit();
}
