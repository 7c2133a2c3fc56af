//! CUDA C++ to PTX and machine code, with whatever compiler there is, or with none.
//!
//! [`supply`] is the way in: it takes sources and gives code. For each it looks first among packaged artifacts
//! ([`Artifacts`]), and only if one is not there for a compiler ([`find()`]), in this order:
//!
//! 1. what a variable names: nvcc (`KERNEL_GEN_NVCC`, `NVCC`), libnvrtc (`KERNEL_GEN_NVRTC`), clang (`KERNEL_GEN_CLANG`);
//! 2. the toolkit that `CUDA_HOME` names, then that of `CUDA_PATH`: of each libnvrtc, then `bin/nvcc`;
//! 3. of the toolkit of the `nvcc` on PATH likewise;
//! 4. `libnvrtc` in the loader's folders, the usual place of installs, and Python's packages;
//! 5. clang on PATH, 19 or newer (20 for tensor maps), with its PTX target. It has no `exp`, `tanh` and `erf`;
//! 6. none: the source goes into the program and NVRTC compiles it at first use, which the result says aloud; or an error
//!    that lists all of these places, whichever the caller wants.
//!
//! What a person sets comes before what happens to be on PATH. A toolkit's libnvrtc comes before its nvcc because it has
//! the same optimiser and assembler and starts no processes: ResNet-18's 55 kernels take 3 s of a build instead of 9. `ptxas` is looked for in the same order: `KERNEL_GEN_PTXAS`,
//! the toolkits, PATH.
//!
//! `KERNEL_GEN_CUDA` may hold `nvcc`, `nvrtc`, `clang` (nothing else is looked for), `embed` (6 at once) or `off` (no CUDA
//! code at all). A tool that is named by a variable and does not work is an error, never a reason to look further.
//!
//! What comes out is an [`Artifact`]: machine code for exactly the architecture, and PTX that declares the oldest version
//! of the language that serves, so that drivers older than the compiler take it. The latter needs an assembler to prove
//! it (any `ptxas`); without one the PTX declares the compiler's own version. The sources include no header, so that
//! every one of these compilers takes them.
//!
//! Everything is cached by content: source, flags, architecture and compiler.

mod arch;
mod artifacts;
pub mod cache;
mod clang;
mod compile;
mod entries;
mod environment;
mod error;
mod find;
mod hash;
mod nvcc;
mod nvrtc;
mod process;
mod ptxas;
mod request;
mod resources;
mod supply;
#[cfg(all(test, unix))]
pub(crate) mod testing;
#[cfg(all(test, unix))]
mod tests;
mod wanted;

pub use crate::cache::Cache;
pub use arch::{Arch, Version, toolkit_of};
pub use artifacts::Artifacts;
pub use compile::{CudaCompiler, Options};
pub use entries::{Entry, entries};
pub use environment::{Environment, VARIABLES};
pub use error::{CudaError, GET_NVCC, GET_NVRTC, GET_PTXAS, Looked};
pub use find::{Found, Missing, Survey, find, survey, tools};
pub use hash::ContentHash;
pub use request::{Artifact, Flags, Request};
pub use resources::{AssemblerLog, Resources};
pub use supply::{Code, Supplied, SupplyOptions, supply};
pub use wanted::require_portable;
