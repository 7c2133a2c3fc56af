//! The `kernel-gen` command with fleets, and the built-in templates.

fn main() -> std::process::ExitCode {
    kernel_gen::cli::main_with(&kernel_gen::templates::Registry::builtin(), &kernel_gen_fleet::Nats)
}
