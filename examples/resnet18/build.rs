//! Generates the kernels that the network's spec declares, and compiles the pooling layers for GPUs.

use kernel_gen_build::kernel_gen::generate::bundle;
use kernel_gen_build::kernel_gen::toolchain::cuda::{Arch, Environment, Request, SupplyOptions, VARIABLES, supply};
use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let build = kernel_gen_build::configure().spec("../../specs/resnet18.toml").cuda(cfg!(feature = "cuda"));
    let build = if cfg!(feature = "fallback") { build } else { build.tuned("../../specs/tuned") };
    build.generate_or_exit();
    if cfg!(feature = "cuda")
        && let Err(error) = pools()
    {
        println!("cargo::error={error}");
        std::process::exit(1);
    }
}

/// Makes bundles of the pooling layers' source and of what it compiles to, as the generated kernels have one each: with
/// and without kernels that begin early. Without a CUDA compiler they hold the source alone, for NVRTC at first use.
fn pools() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=kernels/pools.cu");
    for variable in VARIABLES.iter().filter(|v| **v != "OUT_DIR") {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let environment = Environment::of_process();
    for name in ["sm_80", "sm_90"] {
        let arch: Arch = name.parse()?;
        let request = Request::new("pools", fs::read_to_string("kernels/pools.cu")?, arch);
        let supplied = supply(std::slice::from_ref(&request), None, &environment, &SupplyOptions::default())
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        let code = supplied.code.first().ok_or("a request has an answer")?;
        fs::write(out.join(format!("pools.{name}.kgi")), bundle::of_code(code, &request.source, arch))?;
    }
    Ok(())
}
