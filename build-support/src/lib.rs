//! Generate kernels from `build.rs`.
//!
//! ```no_run
//! // In `fn main()` of build.rs:
//! kernel_gen_build::configure().spec("kernels.toml").tuned("tuned").generate_or_exit();
//! ```
//!
//! The build reads the spec, the tuned records, its environment and its cache, and nothing else: no network, no device. It writes
//! into `OUT_DIR`: `kernels.rs` (brought in by `kernel_gen_runtime::include_kernels!()`), the C sources and a
//! static library, which cargo is told to link. What earlier builds made it takes from a cache in cargo's target folder.
//!
//! # How long it takes
//!
//! Cargo compiles build scripts, and all that they depend on, without optimisation, in the profiles `dev` and `release`
//! alike. Kernels are made again only when the spec, the records, a compiler or the generator changed, and then only those
//! that this changes: choices, code, objects and compiled CUDA are kept in a cache, `kernel-gen` in cargo's target folder (in `OUT_DIR`
//! where cargo marks no such folder as its own, or others can write it). All profiles, features and crates of a workspace share it, and
//! `KERNEL_GEN_CACHE` names a folder that several target folders share. An
//! entry says in full what it was made of, and the generator by a hash of its sources (with templates of your own, of the build
//! script). What no build asks for in 30 days is removed. Where the generator changes often, a little optimisation pays: 30 s in place of
//! 45 for ResNet-18's 16 layers on five targets without records, on two cores, after a first build that takes 46 s longer. In the root `Cargo.toml` of the crate or of its workspace:
//!
//! ```toml
//! [profile.dev.build-override]
//! opt-level = 1
//!
//! [profile.release.build-override]
//! opt-level = 1
//! ```
//!
//! # What makes it run again
//!
//! The script tells cargo exactly what it read: the spec, the folder of records, the sources of `[[extern]]` code, the
//! variables below, and `PATH` (tools are looked up there). When it runs and nothing has changed, it notices by a hash
//! and does nothing. The hash has the tools in it that were found, not the text of `PATH`: an editor and a terminal may
//! differ in that and share a target folder. Of records, those count that may decide something about the spec's workloads. When
//! something has changed, kernels are made of what is new or was chosen anew, only sources whose text changed are compiled
//! again, and files that stay the same are not written.
//!
//! # Environment
//!
//! | variable | effect |
//! |---|---|
//! | `CC`, `CFLAGS`, `AR` and their per-target forms | the C compiler, as for any crate that uses `cc`. Of CFLAGS, kernels do without warnings, sanitizers, coverage and profiles, `-ffast-math` and its parts, code that is not position-independent, and `-mno-avx` and the like; a warning names what was taken out. `-m32` for a 64-bit target is an error |
//! | `KERNEL_GEN_NO_CC=1` | wrappers without code for CPUs, and no C compiler: a launch on a `Cpu` returns an error. Code for GPUs is made all the same, and calls of `[[extern]]` code do not link |
//! | `KERNEL_GEN_TRUST_ARTIFACTS=1` | packaged code outside of the package is used, as [`Config::trust_artifacts`], and so is a cache (`KERNEL_GEN_CACHE`) that other users can write |
//! | `KERNEL_GEN_CACHE` | the folder of the cache |
//! | `KERNEL_GEN_DENY_FALLBACK=1` | a workload without a tuned record is an error, as [`Config::deny_fallback`] |
//! | `KERNEL_GEN_CUDA` | `off`: no code for GPUs, packaged code included, as `.cuda(false)`; a launch on a GPU returns an error. `nvcc`, `nvrtc` or `clang`: the one compiler to use for what is not packaged, and an error without it. `embed`: none, the sources go into the program |
//! | `KERNEL_GEN_NVCC`, `NVCC`, `CUDA_HOME`, ... | where CUDA compilers are; each comes before `PATH`, see [`kernel_gen::toolchain::cuda`]. Read if the spec has CUDA targets |
//! | `DOCS_RS` | set to anything: wrappers without code for CPUs and for GPUs, and no tool is needed, libclang neither |
//!
//! `KERNEL_GEN_NO_CC`, `KERNEL_GEN_DENY_FALLBACK` and `KERNEL_GEN_TRUST_ARTIFACTS` count as unset where they are empty, `0` or `false`.
//!
//! # GPUs
//!
//! `[targets] cuda` in the spec asks for code for GPUs. It is packaged ([`Config::artifacts`]) or compiled here; without
//! a CUDA compiler the sources take its place, and NVRTC compiles each at first use, which a warning says
//! ([`MissingCudaCompiler`]). It becomes part of the program if the feature `cuda` of `kernel-gen-runtime` is on.
//!
//! # C and CUDA code of your own
//!
//! With the feature `bindgen`, `[[extern]]` in the spec names a source and its header. A C source is compiled along,
//! and each function of the header whose pointers are declared as arrays of constant extents gets a typed launch:
//! `void blur(const float x[3][32][32], float y[3][32][32])` becomes `kernels::<name>::blur(&dev, &x, &mut y)`. The
//! feature needs libclang where the build script runs; `LIBCLANG_PATH` names its folder.
//!
//! A CUDA source is compiled as generated kernels are, for the architectures of the spec, or packaged. Each kernel that its header
//! declares, `extern "C" __global__ void scale(const float x[64], float y[64], float factor)`, has a grid and a block in the
//! spec and becomes `kernels::<name>::scale(&dev, &x, &mut y, factor)`. The program needs a driver and nothing else of CUDA.
//!
//! # Without a C compiler
//!
//! A build for this machine fails with one clear error. A build for another target goes on: its wrappers refer to a
//! symbol that does not exist and whose name says what is missing, so `cargo check` works, and linking a program fails
//! instead of producing one that has no kernels. [`Config::missing_compiler`] chooses otherwise.
#![forbid(unsafe_code)]

mod environment;
mod error;
#[cfg(feature = "bindgen")]
mod externs;
mod run;
mod stamp;

pub use error::Error;
pub use kernel_gen;
pub use kernel_gen::generate::Row;

use kernel_gen::templates::{Registry, Template};
use std::path::{Path, PathBuf};

/// What to do when there is no C compiler for the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MissingCompiler {
    /// [`MissingCompiler::Error`] when building for this machine, [`MissingCompiler::LinkError`] for another.
    #[default]
    Auto,
    /// The build fails and says what was looked for.
    Error,
    /// The crate compiles, so that it can be checked; a program that uses it does not link.
    LinkError,
    /// The crate compiles, and launches return an error.
    Wrappers,
}

/// What to do when there is no CUDA compiler and code for GPUs is wanted that is not packaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MissingCudaCompiler {
    /// The sources go into the program, and NVRTC on the machine that runs it compiles each at first use. A warning
    /// says so.
    #[default]
    EmbedSource,
    /// The build fails and says where a compiler was looked for.
    Error,
}

/// What a build did.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Where every choice came from, one row a workload and instruction set level.
    pub choices: kernel_gen::generate::Report,
    /// The wrappers.
    pub wrappers: PathBuf,
    /// The static library, if there was code to compile.
    pub library: Option<PathBuf>,
    /// Whether nothing had changed, so that nothing was done.
    pub fresh: bool,
}

/// A build, before it runs. Made by [`configure`].
#[derive(Debug)]
pub struct Config {
    spec: PathBuf,
    tuned: Option<PathBuf>,
    shipped_records: bool,
    registry: Registry,
    module: String,
    deny_fallback: bool,
    device: Option<String>,
    threads: Option<u32>,
    missing_compiler: MissingCompiler,
    cuda: bool,
    missing_cuda: MissingCudaCompiler,
    artifacts: Option<PathBuf>,
    trust_artifacts: bool,
    quiet: bool,
}

/// Starts a build with the defaults: the spec `kernels.toml`, the records that come with kernel-gen, the built-in templates, the
/// module `kernels`.
pub fn configure() -> Config {
    Config {
        spec: "kernels.toml".into(),
        tuned: None,
        shipped_records: true,
        registry: Registry::builtin(),
        module: "kernels".into(),
        deny_fallback: false,
        device: None,
        threads: None,
        missing_compiler: MissingCompiler::default(),
        cuda: true,
        missing_cuda: MissingCudaCompiler::default(),
        artifacts: None,
        trust_artifacts: false,
        quiet: false,
    }
}

impl Config {
    /// The spec, relative to the package.
    pub fn spec(mut self, file: impl AsRef<Path>) -> Config {
        self.spec = file.as_ref().to_path_buf();
        self
    }

    /// The folder of tuned records, relative to the package. It should exist, even if it is empty: cargo runs a build
    /// script each time, and compiles the crate behind it, as long as something that it waits for is not there. A build
    /// without the folder says so in a warning and goes on without records.
    pub fn tuned(mut self, folder: impl AsRef<Path>) -> Config {
        self.tuned = Some(folder.as_ref().to_path_buf());
        self
    }

    /// Whether the records that come with kernel-gen lie under those of [`Config::tuned`]; they do unless this says no. They are of
    /// the devices that kernel-gen was tuned on, and a record of the user's own goes before them. The report calls them
    /// `shipped`.
    pub fn shipped_records(mut self, shipped: bool) -> Config {
        self.shipped_records = shipped;
        self
    }

    /// Adds a template, in the place of the one with the same name if there is one. What is made by it is kept by its name and version
    /// and the build script's program: a template that depends on a variable or a file says so in its version.
    pub fn template(mut self, template: impl Template + 'static) -> Config {
        self.registry.register(template);
        self
    }

    /// Replaces all templates.
    pub fn registry(mut self, registry: Registry) -> Config {
        self.registry = registry;
        self
    }

    /// The name of the generated module, for crates with several specs: `include_kernels!(name)` brings it in.
    pub fn module(mut self, name: &str) -> Config {
        self.module = name.to_string();
        self
    }

    /// Whether a workload without a tuned record is an error. For release builds, where every kernel is to be measured.
    pub fn deny_fallback(mut self, deny: bool) -> Config {
        self.deny_fallback = deny;
        self
    }

    /// The device whose records are preferred, where a target has records of several: by default the one with most of them.
    pub fn device(mut self, name: &str) -> Config {
        self.device = Some(name.to_string());
        self
    }

    /// The number of threads that CPU kernels run on, if the spec does not say: records of as many are preferred. Where
    /// nobody says, those of most threads are.
    pub fn threads(mut self, threads: u32) -> Config {
        self.threads = Some(threads);
        self
    }

    /// What to do without a C compiler.
    pub fn missing_compiler(mut self, policy: MissingCompiler) -> Config {
        self.missing_compiler = policy;
        self
    }

    /// Whether code is made for the CUDA architectures of the spec; it is unless this says no. A crate that has a
    /// feature for GPUs writes `.cuda(cfg!(feature = "cuda"))`.
    pub fn cuda(mut self, cuda: bool) -> Config {
        self.cuda = cuda;
        self
    }

    /// What to do without a CUDA compiler.
    pub fn missing_cuda_compiler(mut self, policy: MissingCudaCompiler) -> Config {
        self.missing_cuda = policy;
        self
    }

    /// The folder of packaged GPU code, relative to the package, if it is not `artifacts` below that of the records, where
    /// `kernel-gen package` writes it. What it has needs no CUDA compiler. A folder named here should exist, for the same
    /// reason as that of [`Config::tuned`]. One outside of the package needs [`Config::trust_artifacts`].
    pub fn artifacts(mut self, folder: impl AsRef<Path>) -> Config {
        self.artifacts = Some(folder.as_ref().to_path_buf());
        self
    }

    /// Whether packaged GPU code is used that lies outside of the package, by itself or through a link. No build can tell machine
    /// code from a forgery without the compiler that made it. So code within the package is trusted as its source is, and other
    /// code is passed over with a warning, unless this says that everyone who can write there is trusted. A member of a workspace
    /// whose records lie beside it, `.tuned("../tuned")`, calls this. `kernel-gen package --verify` compares packaged code
    /// with what its compiler makes of the sources.
    pub fn trust_artifacts(mut self, trust: bool) -> Config {
        self.trust_artifacts = trust;
        self
    }

    /// Whether to keep quiet about choices that were not tuned. Otherwise one warning counts them; who wants a release
    /// without them uses [`Config::deny_fallback`]. Other warnings are printed all the same.
    pub fn quiet(mut self, quiet: bool) -> Config {
        self.quiet = quiet;
        self
    }

    /// Generates, compiles, and tells cargo what to link and when to run again.
    ///
    /// # Errors
    /// Everything that is wrong, all of it at once. Nothing is printed about it; see [`Config::generate_or_exit`].
    pub fn generate(self) -> Result<Report, Error> {
        run::run(&self)
    }

    /// As [`Config::generate`]; prints one line for each thing that is wrong, as cargo shows errors, and ends the build
    /// script.
    pub fn generate_or_exit(self) {
        if let Err(error) = self.generate() {
            for diagnostic in error.diagnostics() {
                // Cargo takes one line; what a compiler said follows on standard error, which cargo shows on failure.
                let (first, rest) = diagnostic.split_once('\n').unwrap_or((&diagnostic, ""));
                run::tell(&format!("cargo::error={first}"));
                if !rest.is_empty() {
                    eprintln!("{rest}");
                }
            }
            std::process::exit(1);
        }
    }
}
