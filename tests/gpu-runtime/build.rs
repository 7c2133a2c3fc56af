//! Generates the kernels of the spec, and compiles those written by hand into the same kind of bundle.

use kernel_gen_build::MissingCudaCompiler;
use kernel_gen_build::kernel_gen::generate::bundle;
use kernel_gen_build::kernel_gen::toolchain::cuda::{Arch, Environment, Request, SupplyOptions, VARIABLES, supply};
use std::path::PathBuf;
use std::{env, fs};

/// The kernels written by hand, and what each is compiled for.
const HAND: [(&str, &str); 8] = [
    ("add", "sm_80"),
    ("add", "sm_90a"),
    ("increment", "sm_80"),
    ("big_shared", "sm_80"),
    ("cluster", "sm_90"),
    ("tensor_map", "sm_90"),
    ("programmatic", "sm_90"),
    ("shrink", "sm_90a"),
];

fn main() {
    let mut config = kernel_gen_build::configure().quiet(true);
    // `GPU_RUNTIME_ARTIFACTS` names a folder of packaged code, for builds without a CUDA compiler.
    println!("cargo::rerun-if-env-changed=GPU_RUNTIME_ARTIFACTS");
    if let Some(folder) = env::var_os("GPU_RUNTIME_ARTIFACTS") {
        // Who names a package means to do without a compiler, and vouches for it.
        let config_with = config.artifacts(PathBuf::from(folder)).trust_artifacts(true);
        config = config_with.missing_cuda_compiler(MissingCudaCompiler::Error);
    }
    config.generate_or_exit();
    if env::var_os("CARGO_FEATURE_OWN").is_some() {
        kernel_gen_build::configure().spec("own.toml").module("own").generate_or_exit();
    }
    if env::var_os("CARGO_FEATURE_HAND").is_some()
        && let Err(error) = hand()
    {
        println!("cargo::error={error}");
        std::process::exit(1);
    }
}

/// Compiles the kernels written by hand.
fn hand() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=kernels");
    for variable in VARIABLES.iter().filter(|v| **v != "OUT_DIR") {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let mut requests = vec![];
    for (name, arch) in HAND {
        let source = fs::read_to_string(format!("kernels/{name}.cu"))?;
        requests.push(Request::new(name, source, arch.parse::<Arch>()?));
    }
    let supplied = supply(&requests, None, &Environment::of_process(), &SupplyOptions::default());
    let supplied = supplied.map_err(|errors| errors.iter().map(|e| e.to_string()).collect::<Vec<_>>().join("; "))?;
    for warning in &supplied.warnings {
        println!("cargo::warning={warning}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    for (request, code) in requests.iter().zip(&supplied.code) {
        let (stem, arch) = (&request.kernel, request.arch);
        fs::write(out.join(format!("{stem}.{arch}.kgi")), bundle::of_code(code, &request.source, arch))?;
        // The bare launch that typed ones are timed beside loads the same code by itself.
        if let (Some(artifact), "increment") = (code.artifact(), stem.as_str()) {
            fs::write(out.join("increment.ptx"), format!("{}\0", artifact.ptx))?;
        } else if stem == "increment" {
            fs::write(out.join("increment.ptx"), "")?;
        }
    }
    Ok(())
}
