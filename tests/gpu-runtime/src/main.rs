//! Checks of the runtime on a GPU. It is built where there is a CUDA compiler (or packaged code) and no GPU, and runs
//! where there is a GPU and nothing of CUDA but the driver. Without a GPU it says so in one line and runs the same
//! functions on the CPU.
//!
//! `gpu-runtime [NAME...]` runs the checks whose names contain one of these texts, or all.

mod checks;
mod counting;
#[cfg(feature = "hand")]
mod hand;
mod suite;

kernel_gen_runtime::include_kernels!();
#[cfg(feature = "own")]
kernel_gen_runtime::include_kernels!(own);

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

fn main() -> std::process::ExitCode {
    suite::run(std::env::args().skip(1).collect())
}
