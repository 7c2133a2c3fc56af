//! Generates the kernels that the network's spec declares, and compiles the pooling layers for GPUs.

use kernel_gen_build::kernel_gen::generate::bundle;
use kernel_gen_build::kernel_gen::toolchain::cuda::{Arch, Environment, Request, SupplyOptions, VARIABLES, supply};
use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let build = kernel_gen_build::configure().spec("../../specs/resnet18.toml").cuda(cfg!(feature = "cuda"));
    let build = build.shipped_records(!cfg!(feature = "fallback"));
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
    let archs: [Arch; 2] = ["sm_80".parse()?, "sm_90".parse()?];
    let source = fs::read_to_string("kernels/pools.cu")?;
    let requests = archs.map(|arch| Request::new("pools", &source, arch));
    let supplied = supply(&requests, None, &environment, &SupplyOptions::default())
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    for (request, code) in requests.iter().zip(&supplied.code) {
        let file = out.join(format!("pools.{}.kgi", request.arch));
        fs::write(file, bundle::of_code(code, &request.source, request.arch))?;
    }
    Ok(())
}
