//! From a config to compiled code.

use super::protocol::{Candidate, Pack, Program};
use crate::emit::cuda::CudaSource;
use crate::records::{Failure, FailureKind};
use crate::target::{Cuda, Target};
use crate::toolchain::cuda::{Arch, Artifact, CudaCompiler, CudaError, Options as CompileOptions, Request};
use crate::tune::measure::backend::{Builder, Job};
use crate::tune::measure::pipeline::{self, failure};
use crate::tune::measure::{Edit, Options};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

pub(super) struct CudaBuilder {
    compiler: CudaCompiler,
    arch: Arch,
    compile: CompileOptions,
    edit: Option<Edit>,
    /// What packs parameters, by its source: many configs share it.
    packs: Mutex<BTreeMap<String, Artifact>>,
}

/// A candidate and its images.
pub(super) struct CudaCode {
    pub(super) candidate: Candidate,
    pub(super) images: Vec<u8>,
}

impl CudaBuilder {
    pub(super) fn new(compiler: CudaCompiler, arch: Arch, options: &Options) -> CudaBuilder {
        let limit = options.build_limit.unwrap_or(Options::CUDA_LIMIT);
        let compile = CompileOptions { limit, lowest_ptx: false, ..CompileOptions::default() };
        CudaBuilder { compiler, arch, compile, edit: options.edit.clone(), packs: Mutex::new(BTreeMap::new()) }
    }

    fn compile(&self, source: &CudaSource) -> Result<Artifact, Failure> {
        let request = Request::new("kernel", source.source.clone(), self.arch);
        self.compiler.compile(&request, &self.compile, None).map_err(|error| classify(&error))
    }

    fn compile_pack(&self, source: &CudaSource) -> Result<Artifact, Failure> {
        let lock = || self.packs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&source.source) {
            return Ok(known.clone());
        }
        let made = self.compile(source)?;
        lock().insert(source.source.clone(), made.clone());
        Ok(made)
    }
}

impl Builder for CudaBuilder {
    type Code = CudaCode;

    fn build(&self, job: &Job<'_>) -> Result<CudaCode, Failure> {
        let code = pipeline::cuda(job, self.edit.as_ref())?;
        let artifact = self.compile(&code.source)?;
        check_resources(job.target, &code.source, &artifact)?;
        let mut images = vec![];
        let main = program(&code.source, &artifact, &mut images);
        let mut packs = vec![];
        for (param, bytes, source) in &code.packs {
            let artifact = self.compile_pack(source)?;
            let program = program(source, &artifact, &mut images);
            packs.push(Pack { param: *param, bytes: usize::try_from(*bytes).unwrap_or(0), program });
        }
        Ok(CudaCode { candidate: Candidate { main, packs, reach: job.reach() }, images })
    }
}

/// The program of a source; its image joins those before it.
fn program(source: &CudaSource, artifact: &Artifact, images: &mut Vec<u8>) -> Program {
    let image = artifact.cubin.as_deref().unwrap_or(artifact.ptx.as_bytes());
    images.extend(image);
    let workspace_bytes = usize::try_from(source.workspace_bytes).unwrap_or(0);
    Program { launches: source.launches.clone(), workspace_bytes, image_bytes: image.len() }
}

/// What the compiler's failure says of a candidate.
fn classify(error: &CudaError) -> Failure {
    let kind = match error {
        CudaError::Timeout { .. } => FailureKind::BuildTimeout,
        CudaError::Failed { output, .. } if output.contains("too much") || output.contains("too many resources") => {
            FailureKind::Resource
        }
        // It says nothing of the source.
        CudaError::Failed { output, .. } if output.contains("No space left on device") => FailureKind::Worker,
        CudaError::Failed { .. } => FailureKind::Build,
        _ => FailureKind::Worker,
    };
    match error {
        // The command is the same for all; what it said is not.
        CudaError::Failed { output, .. } => failure(kind, output),
        other => failure(kind, other),
    }
}

/// Holds what the assembler says of the kernels against what a block of the target may have.
fn check_resources(target: &Target, source: &CudaSource, artifact: &Artifact) -> Result<(), Failure> {
    let Some(cuda) = target.cuda() else { return Ok(()) };
    let exceeded = |what: &str, wanted: i64, most: i64| {
        Err(failure(FailureKind::Resource, format!("a block has {wanted} {what}, {most} are allowed")))
    };
    for launch in &source.launches {
        let threads: i64 = launch.block.iter().map(|n| i64::from(*n)).product();
        if threads > cuda.threads_per_block {
            return exceeded("threads", threads, cuda.threads_per_block);
        }
        let Some(used) = artifact.log.kernels.iter().find(|k| k.kernel == launch.symbol) else { continue };
        let shared = i64::from(used.shared_bytes) + i64::from(launch.dynamic_shared_bytes);
        if shared > cuda.shared_per_block_optin {
            return exceeded("bytes of shared memory", shared, cuda.shared_per_block_optin);
        }
        let registers = registers(cuda, threads, i64::from(used.registers));
        if registers > cuda.registers_per_block {
            return exceeded("registers", registers, cuda.registers_per_block);
        }
    }
    Ok(())
}

/// Registers of a block: whole units for each warp.
fn registers(cuda: &Cuda, threads: i64, registers: i64) -> i64 {
    let unit = cuda.register_allocation_unit.max(1);
    let warp = (registers * Cuda::WARP + unit - 1) / unit * unit;
    (threads + Cuda::WARP - 1) / Cuda::WARP * warp
}
