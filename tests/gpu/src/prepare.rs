//! From a template's config to compiled code: the pipeline of a build, without its records.

use anyhow::{Context, Result, anyhow};
use kernel_gen::emit::cuda::{self, Arch, CudaOptions, CudaSource};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::lower::lower_for;
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::{Pack, Template};
use kernel_gen::toolchain::cuda::{
    Arch as CodeArch, Artifact, CudaCompiler, Environment, Found, Missing, Options, Request, find,
};
use kernel_gen::toolchain::values;
use kernel_gen::workload::{Slices, Workload};
use std::str::FromStr;
use std::time::Duration;

/// The CUDA C++ of a config that takes all tensors as they are.
pub(crate) fn source(
    template: &dyn Template,
    workload: &Workload,
    target: &Target,
    config: &Config,
) -> Result<CudaSource> {
    let (source, packs) = source_and_packs(template, workload, Slices::default(), target, config)?;
    anyhow::ensure!(packs.is_empty(), "{} packs parameters, which this command does not", template.name());
    Ok(source)
}

/// The inputs of a workload as bytes, each in the type of its parameter.
pub(crate) fn plain(workload: &Workload, inputs: &[Vec<f64>]) -> Vec<Vec<u8>> {
    workload.params().iter().zip(inputs).map(|(p, data)| values::encode(p.dtype, data)).collect()
}

/// The same, with those packed that a kernel wants packed, in the type that it wants them in. The interpreter packs them, with
/// the barriers that lowering gives kernels whose threads read what others wrote.
pub(crate) fn packed(
    workload: &Workload,
    target: &Target,
    inputs: &[Vec<f64>],
    packs: &[Pack],
) -> Result<Vec<Vec<u8>>> {
    let mut out = plain(workload, inputs);
    for pack in packs {
        let at = workload.params().iter().position(|p| p.name == pack.param).context("a parameter that is packed")?;
        let given = Values::from([(pack.param.clone(), inputs[at].clone())]);
        let lowered = lower_for(pack.kernel.clone(), target).map_err(|e| anyhow!("{e}"))?;
        let kernel = lowered.kernel();
        let mut made = interp::run(kernel, &given, Mode::Declared).map_err(|e| anyhow!("{e}"))?;
        let result = kernel.params.last().context("a kernel that packs has an output")?;
        let dtype = kernel.buffer(*result).dtype;
        out[at] = values::encode(dtype, &made.pop_first().context("a kernel that packs has an output")?.1);
    }
    Ok(out)
}

/// The CUDA C++ of a config, whose tensors may be slices of larger ones, and what packs its parameters.
pub(crate) fn source_and_packs(
    template: &dyn Template,
    workload: &Workload,
    slices: Slices,
    target: &Target,
    config: &Config,
) -> Result<(CudaSource, Vec<Pack>)> {
    let scheduled = template.schedule(workload, target, config).map_err(|e| anyhow!("{e}"))?;
    let mut kernel = scheduled.schedule.kernel;
    slices.lay(workload, &mut kernel).map_err(|e| anyhow!("{e}"))?;
    let lowered = lower_for(kernel, target).map_err(|e| anyhow!("{e}"))?;
    let arch = Arch::of(target).context("a CUDA target")?;
    let comment = format!("{} {} {config}", workload.key(), template.name());
    let source = cuda::emit(&lowered, &CudaOptions { arch, symbol: "kernel".into(), comment, min_blocks: None })
        .map_err(|e| anyhow!("{e}\n{}", lowered.kernel()))?;
    Ok((source, scheduled.packs))
}

/// A target whose sources a device runs, too, once they are compiled for it.
pub(crate) fn older(name: &str, device: &Target) -> Result<&'static Target> {
    let target =
        Target::find(name).filter(|t| t.cuda().is_some()).with_context(|| format!("no CUDA target `{name}`"))?;
    let runs = name == device.name || !name.ends_with('a') && target.capability() <= device.capability();
    anyhow::ensure!(runs, "{} does not run what is written for {name}", device.name);
    Ok(target)
}

/// A compiler for the target, on this machine.
pub(crate) fn compiler(target: &Target) -> Result<CudaCompiler> {
    let arch = CodeArch::from_str(&target.name).map_err(|e| anyhow!("{e}"))?;
    match find(&Environment::of_process(), &[arch], Missing::Refuse).map_err(|e| anyhow!("{e}"))? {
        Found::Compiler(compiler) => Ok(*compiler),
        _ => anyhow::bail!("KERNEL_GEN_CUDA forbids to compile, which the suite does"),
    }
}

/// Compiles many sources at the same time. Each has its own outcome.
pub(crate) fn compile(compiler: &CudaCompiler, target: &Target, sources: &[CudaSource]) -> Vec<Result<Artifact>> {
    compile_within(compiler, target, sources, Options::default().limit)
}

/// The same; what takes longer than the limit is an error.
pub(crate) fn compile_within(
    compiler: &CudaCompiler,
    target: &Target,
    sources: &[CudaSource],
    limit: Duration,
) -> Vec<Result<Artifact>> {
    let Ok(arch) = CodeArch::from_str(&target.name) else { return vec![] };
    let options = Options { lowest_ptx: false, limit, ..Options::default() };
    each(options.jobs, sources, |source| {
        let request = Request::new("kernel", source.source.clone(), arch);
        compiler.compile(&request, &options, None).map_err(|e| anyhow!("{e}\n{}", source.source))
    })
}

/// The CUDA C++ of many configs, made at the same time. Each has its own outcome.
pub(crate) fn sources(
    template: &dyn Template,
    workload: &Workload,
    target: &Target,
    configs: &[Config],
) -> Vec<Result<CudaSource>> {
    each(Options::default().jobs, configs, |config| source(template, workload, target, config))
}

/// Does something with each item, in so many threads; the outcomes have the order of the items.
fn each<T: Sync, R: Send>(jobs: usize, items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let mut all: Vec<(usize, R)> = std::thread::scope(|scope| {
        let worker = || {
            let mut done = vec![];
            loop {
                let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(item) = items.get(i) else { return done };
                done.push((i, f(item)));
            }
        };
        let threads: Vec<_> = (0..jobs.min(items.len()).max(1)).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().flat_map(|t| t.join().expect("a thread that prepares does not panic")).collect()
    });
    all.sort_by_key(|(i, _)| *i);
    all.into_iter().map(|(_, r)| r).collect()
}
