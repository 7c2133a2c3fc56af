//! A compiler that was found, whichever it is.

use super::arch::{Arch, Version};
use super::clang::Clang;
use super::nvcc::Nvcc;
use super::nvrtc::Nvrtc;
use super::process::Scratch;
use super::ptxas::{Assembler, Attempt};
use super::request::{Artifact, Made, Request};
use super::resources::AssemblerLog;
use super::{CudaError, cache};
use crate::cache::Cache;
use crate::toolchain::in_parallel;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How to compile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// A source whose compilation takes longer is an error.
    pub limit: Duration,
    /// Whether to look for the oldest PTX version that serves. A tuner, which runs the code where it is made, need not.
    pub lowest_ptx: bool,
    /// How many compilations run at the same time.
    pub jobs: usize,
}

impl Default for Options {
    /// Ten minutes, the oldest PTX, and as many jobs as cargo gives a build script (NUM_JOBS), or one a processor.
    fn default() -> Options {
        let processors = || std::thread::available_parallelism().map_or(1, |n| n.get());
        let given = std::env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok());
        Options { limit: Duration::from_secs(600), lowest_ptx: true, jobs: given.unwrap_or_else(processors).max(1) }
    }
}

#[derive(Debug)]
pub(super) enum Tool {
    Nvcc(Nvcc),
    Nvrtc(Nvrtc),
    Clang(Clang),
}

/// A compiler of CUDA C++.
#[derive(Debug)]
pub struct CudaCompiler {
    pub(super) tool: Tool,
    /// A `ptxas` beside a compiler that has none, and its version.
    pub(super) ptxas: Option<(PathBuf, String)>,
}

impl CudaCompiler {
    /// Its name and version: `nvcc 13.0.88`.
    pub fn name(&self) -> String {
        match &self.tool {
            Tool::Nvcc(nvcc) => format!("nvcc {}", nvcc.release),
            Tool::Nvrtc(nvrtc) => format!("NVRTC {}", nvrtc.version),
            Tool::Clang(clang) => format!("clang {}", clang.release),
        }
    }

    /// The program or library.
    pub fn path(&self) -> &Path {
        match &self.tool {
            Tool::Nvcc(nvcc) => &nvcc.program,
            Tool::Nvrtc(nvrtc) => &nvrtc.library,
            Tool::Clang(clang) => &clang.program,
        }
    }

    /// The assembler that proves which PTX serves, if there is one: the program and its version.
    pub fn assembler(&self) -> Option<(&Path, &str)> {
        match &self.tool {
            Tool::Nvcc(nvcc) => Some((&nvcc.program, &nvcc.release)),
            _ => self.ptxas.as_ref().map(|(program, version)| (program.as_path(), version.as_str())),
        }
    }

    /// Whether it makes code for the architecture.
    pub fn supports(&self, arch: Arch) -> Result<(), CudaError> {
        let (known, version) = match &self.tool {
            Tool::Nvcc(nvcc) => (arch.is_known_to(nvcc.version), Some(nvcc.version)),
            Tool::Nvrtc(nvrtc) => {
                (nvrtc.knows(arch.capability) && arch.is_known_to(nvrtc.version), Some(nvrtc.version))
            }
            Tool::Clang(clang) => (clang.knows(arch), None),
        };
        if known {
            return Ok(());
        }
        // Where one is too new for an old architecture, a newer one does not help.
        let oldest = arch.oldest_toolkit();
        let needs = version.is_none_or(|v: Version| v < oldest).then_some(oldest);
        Err(CudaError::ArchNotSupported { compiler: self.name(), arch, needs })
    }

    /// What changes its output, besides the request: part of the cache's key.
    fn identity(&self) -> String {
        let tool = match &self.tool {
            Tool::Nvcc(nvcc) => nvcc.identity(),
            Tool::Nvrtc(nvrtc) => nvrtc.identity(),
            Tool::Clang(clang) => clang.identity(),
        };
        let ptxas = self.ptxas.as_ref().map_or("none", |(_, version)| version);
        format!("{tool}\nptxas {ptxas}")
    }

    /// Compiles one source, or takes what the cache has of it.
    pub fn compile(&self, request: &Request, options: &Options, cache: Option<&Cache>) -> Result<Artifact, CudaError> {
        self.supports(request.arch)?;
        let key = cache::key(request, &self.identity(), options.lowest_ptx);
        let made = match cache.and_then(|cache| cache.get(&key)) {
            Some(made) => made,
            None => {
                let made = self.make(request, options)?;
                if let Some(cache) = cache {
                    cache.put(&key, &made);
                }
                made
            }
        };
        Ok(Artifact {
            kernel: request.kernel.clone(),
            arch: request.arch,
            source: request.hash(),
            compiler: made.compiler,
            ptx: made.ptx,
            cubin: made.cubin,
            log: AssemblerLog::parse(&made.log),
        })
    }

    /// Compiles several sources at the same time, each with its own outcome. The result does not depend on how many.
    pub fn compile_each(
        &self,
        requests: &[Request],
        options: &Options,
        cache: Option<&Cache>,
    ) -> Vec<Result<Artifact, CudaError>> {
        in_parallel(options.jobs, requests, |request| self.compile(request, options, cache))
    }

    /// The same where one that fails is a failure of all. All that fail are reported.
    pub fn compile_all(
        &self,
        requests: &[Request],
        options: &Options,
        cache: Option<&Cache>,
    ) -> Result<Vec<Artifact>, Vec<CudaError>> {
        let mut errors = vec![];
        let mut all = vec![];
        for result in self.compile_each(requests, options, cache) {
            match result {
                Ok(artifact) => all.push(artifact),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(all) } else { Err(errors) }
    }

    fn make(&self, request: &Request, options: &Options) -> Result<Made, CudaError> {
        let Request { kernel, arch, flags, .. } = request;
        let folder = Scratch::new()?;
        let mut made = match &self.tool {
            Tool::Nvcc(nvcc) => nvcc.make(request, &folder, options.limit)?,
            Tool::Nvrtc(nvrtc) => nvrtc.make(request, options.limit)?,
            Tool::Clang(clang) => clang.make(request, &folder, options.limit)?,
        };
        let assembler = match &self.tool {
            Tool::Nvcc(nvcc) => Some(nvcc.assembler()),
            _ => self.ptxas.as_ref().map(|(program, _)| Assembler::Ptxas(program.clone())),
        };
        let Some(assembler) = assembler else { return Ok(made) };
        if let (None, Some((_, version))) = (&made.cubin, &self.ptxas) {
            match assembler.assemble(&made.ptx, *arch, flags, &folder, options.limit)? {
                Attempt::Done(done) => {
                    made.cubin = Some(done.cubin);
                    made.log += &done.log;
                    made.compiler += &format!(" and ptxas {version}");
                }
                Attempt::Refused { command, output } => {
                    return Err(CudaError::Failed { kernel: kernel.clone(), arch: *arch, command, output });
                }
                Attempt::Late => {
                    let limit_s = options.limit.as_secs();
                    return Err(CudaError::Timeout { kernel: kernel.clone(), arch: *arch, limit_s });
                }
            }
        }
        if options.lowest_ptx {
            made.ptx = assembler.lowest(made.ptx, *arch, &folder, options.limit)?;
        }
        Ok(made)
    }
}
