//! Generates the kernels of `kernels.toml` twice: with this crate's template among those to choose from, and with the
//! library's own templates only, to compare with.

// The template is part of this crate, but it is the build script that runs it.
#[path = "src/template.rs"]
mod template;

fn main() {
    kernel_gen_build::configure().template(template::MatvecInPlace).module("custom").generate_or_exit();
    kernel_gen_build::configure().module("builtin").quiet(true).generate_or_exit();
}
