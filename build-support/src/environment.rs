//! What cargo tells a build script.

use crate::Error;
use std::env;
use std::path::PathBuf;

/// Variables of this crate, besides those of the C compiler.
pub(crate) const VARIABLES: [&str; 9] = [
    "KERNEL_GEN_NO_CC",
    "KERNEL_GEN_CUDA",
    "KERNEL_GEN_DENY_FALLBACK",
    "KERNEL_GEN_TRUST_ARTIFACTS",
    "KERNEL_GEN_CACHE",
    // Of the generator: what each pass changes, on standard error.
    "KERNEL_GEN_DUMP",
    "DOCS_RS",
    "LIBCLANG_PATH",
    "BINDGEN_EXTRA_CLANG_ARGS",
];

/// The environment of a build script.
pub(crate) struct Environment {
    pub(crate) out_dir: PathBuf,
    pub(crate) target: String,
    pub(crate) host: String,
    pub(crate) arch: String,
    pub(crate) package: String,
    pub(crate) version: String,
    pub(crate) unix: bool,
    pub(crate) jobs: usize,
    pub(crate) docs_rs: bool,
    pub(crate) no_cc: bool,
    pub(crate) no_cuda: bool,
    pub(crate) deny_fallback: bool,
    pub(crate) dumps_passes: bool,
}

impl Environment {
    pub(crate) fn read() -> Result<Environment, Error> {
        let required = |variable: &'static str| env::var(variable).map_err(|_| Error::NotABuildScript { variable });
        Ok(Environment {
            out_dir: required("OUT_DIR")?.into(),
            target: required("TARGET")?,
            host: required("HOST")?,
            arch: required("CARGO_CFG_TARGET_ARCH")?,
            package: required("CARGO_PKG_NAME")?,
            version: required("CARGO_PKG_VERSION")?,
            unix: env::var_os("CARGO_CFG_UNIX").is_some(),
            jobs: env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1),
            docs_rs: env::var_os("DOCS_RS").is_some(),
            no_cc: is_on("KERNEL_GEN_NO_CC"),
            no_cuda: env::var("KERNEL_GEN_CUDA").is_ok_and(|v| v == "off"),
            deny_fallback: is_on("KERNEL_GEN_DENY_FALLBACK"),
            dumps_passes: env::var_os("KERNEL_GEN_DUMP").is_some_and(|pass| !pass.is_empty()),
        })
    }
}

/// Whether a variable is set to something else than nothing, 0 or false.
fn is_on(variable: &str) -> bool {
    env::var(variable).is_ok_and(|v| !matches!(v.trim(), "" | "0" | "false"))
}
