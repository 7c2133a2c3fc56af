//! Generates the kernels, with the plain template of this test beside the built-in ones.

mod plain;

fn main() {
    kernel_gen_build::configure().template(plain::Plain).generate_or_exit();
}
