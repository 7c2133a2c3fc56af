//! The `kernel-gen` command with this crate's template beside the built-in ones.

#[path = "../template.rs"]
mod template;

fn main() -> std::process::ExitCode {
    kernel_gen::cli::main(&kernel_gen::templates::Registry::builtin().with(template::MatvecInPlace))
}
