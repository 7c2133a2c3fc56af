//! The `kernel-gen` command, with the built-in templates.

fn main() -> std::process::ExitCode {
    kernel_gen::cli::main(&kernel_gen::templates::Registry::builtin())
}
