//! GPU kernels: CUDA C++, compiled in processes of their own, run in one that holds the GPU.

mod build;
mod client;
mod loaded;
mod peers;
mod protocol;
mod stop;
mod task;
mod timing;
mod vendor;
mod worker;

pub use worker::serve;

use super::pool::Pool;
use super::{Attached, MeasureError, Options, Provenance};
use crate::target::Target;
use crate::toolchain::cuda::{Arch, CudaCompiler, Environment, Found, Missing, VARIABLES, find};
use build::CudaBuilder;
use client::Client;
use std::path::Path;
use std::thread::Scope;

/// The measurer of a CUDA target.
pub(super) fn attach<'scope, 'r: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    target: &Target,
    options: Options,
) -> Result<Attached<'scope, 'r>, MeasureError> {
    let arch: Arch = target.name.parse()?;
    let (client, device) = Client::start(target, &options)?;
    let capability = device.capability.0 * 10 + device.capability.1;
    if !arch.cubin_runs_on(capability) && !arch.ptx_runs_on(capability) {
        return Err(MeasureError::WrongCapability { target: target.name.clone(), device: device.name, capability });
    }
    let compiler = compiler(target, arch)?;
    let provenance = Provenance {
        device: device.name,
        target: target.name.clone(),
        threads: 1,
        compiler: compiler.name(),
        units: device.multiprocessors,
        capability: Some(device.capability),
        driver: Some(device.driver),
        clock_mhz: Some(device.clock_mhz),
        uuid: Some(device.uuid),
        generator: env!("CARGO_PKG_VERSION").into(),
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = options.build_jobs.unwrap_or(processors).max(1);
    let builder = CudaBuilder::new(compiler, arch, &options);
    Ok(Attached { measurer: Box::new(Pool::start(scope, jobs, builder, client)), provenance })
}

/// The compiler. NVRTC comes first where the user has no wish: it takes a tenth of the time of nvcc.
fn compiler(target: &Target, arch: Arch) -> Result<CudaCompiler, MeasureError> {
    let process = Environment::of_process();
    let found = if process.get("KERNEL_GEN_CUDA").is_none() {
        let given = VARIABLES.iter().filter_map(|name| Some((*name, process.get(name)?.clone())));
        let wish = std::iter::once(("KERNEL_GEN_CUDA", "nvrtc".into()));
        find(&Environment::new(given.chain(wish), Path::new("/")), &[arch], Missing::Refuse).ok()
    } else {
        None
    };
    let found = match found {
        Some(found) => found,
        None => find(&process, &[arch], Missing::Refuse)?,
    };
    match found {
        Found::Compiler(compiler) => Ok(*compiler),
        Found::Embed { .. } | Found::CpuOnly => Err(MeasureError::NoDevice {
            target: target.name.clone(),
            cause: "KERNEL_GEN_CUDA forbids to compile; unset it to tune".into(),
        }),
    }
}
