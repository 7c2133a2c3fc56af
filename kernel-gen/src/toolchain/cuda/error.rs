//! What can go wrong between CUDA C++ and an artifact.

use super::arch::{Arch, Version, known_names};
use crate::diagnostic::Diagnostic;
use crate::toolchain::ToolError;
use std::fmt;

/// How to get a compiler without a CUDA install; the versions match each other, which without `--no-deps` they do not.
pub const GET_NVRTC: &str = "python3 -m pip install --no-deps --target DIR nvidia-cuda-nvrtc==13.0.88, then set \
                             KERNEL_GEN_NVRTC=DIR/nvidia/cu13/lib";
/// The same for `nvcc` and `ptxas`.
pub const GET_NVCC: &str = "python3 -m pip install --no-deps --target DIR nvidia-cuda-nvcc==13.0.88 \
                            nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 \
                            nvidia-cuda-cccl==13.0.85, then set KERNEL_GEN_NVCC=DIR/nvidia/cu13/bin/nvcc";
/// The same for `ptxas` alone, which needs nothing else.
pub const GET_PTXAS: &str = "python3 -m pip install --no-deps --target DIR nvidia-cuda-nvcc==13.0.88, then set \
                             KERNEL_GEN_PTXAS=DIR/nvidia/cu13/bin/ptxas";

/// A place that was looked at for a compiler, and what was there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Looked {
    /// What was looked for and where: `nvcc on PATH`.
    pub place: String,
    /// What was found instead of a working compiler: `not there`.
    pub found: String,
    /// Whether something is there that does not serve, which is another reason than a place that is empty.
    pub present: bool,
}

impl fmt::Display for Looked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.found)
    }
}

/// Why no compiler is used, in one line: none is there, or those that are there do not serve.
pub(super) fn no_compiler(looked: &[Looked]) -> String {
    let refused: Vec<String> = looked.iter().filter(|looked| looked.present).map(Looked::to_string).collect();
    match refused.is_empty() {
        true => "no CUDA compiler was found".to_string(),
        false => crate::diagnostic::one_line(format!("no CUDA compiler serves ({})", refused.join("; "))),
    }
}

/// Why there is no compiled CUDA code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CudaError {
    /// No architecture has this name.
    UnknownArch {
        /// The name.
        name: String,
    },
    /// Only devices of one architecture would have code.
    NoPortable {
        /// That architecture.
        arch: Arch,
        /// All that were asked for.
        all: Vec<Arch>,
    },
    /// No compiler was found.
    NoCompiler {
        /// Everywhere it was looked for, in that order.
        looked: Vec<Looked>,
    },
    /// A variable names a tool that does not work.
    Named {
        /// The variable.
        variable: String,
        /// What it holds.
        value: String,
        /// What is wrong with that.
        reason: String,
    },
    /// The compiler makes no code for the architecture.
    ArchNotSupported {
        /// The compiler.
        compiler: String,
        /// The architecture.
        arch: Arch,
        /// The oldest toolkit that does, if that is the reason.
        needs: Option<Version>,
    },
    /// The source does not compile.
    Failed {
        /// The kernel's name.
        kernel: String,
        /// The architecture it was compiled for.
        arch: Arch,
        /// What was run.
        command: String,
        /// What it said.
        output: String,
    },
    /// The compiler did not end in time.
    Timeout {
        /// The kernel's name.
        kernel: String,
        /// The architecture it was compiled for.
        arch: Arch,
        /// The limit.
        limit_s: u64,
    },
    /// A tool that the compiler needs is missing or failed.
    Tool(ToolError),
    /// An index of packaged artifacts cannot be read.
    Index {
        /// All that is wrong with it.
        faults: Vec<Diagnostic>,
    },
    /// A packaged file does not hold what its index says.
    Damaged {
        /// The file.
        file: String,
        /// What is wrong.
        cause: String,
    },
    /// A file could not be read or written.
    Io {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
}

impl CudaError {
    pub(super) fn io(file: &std::path::Path, error: &std::io::Error) -> CudaError {
        CudaError::Io { file: file.display().to_string(), reason: error.to_string() }
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CudaError::UnknownArch { name } => {
                write!(f, "`{name}` is not a CUDA architecture that code is made for; write one of {}", known_names())
            }
            CudaError::NoPortable { arch, all } => {
                let all: Vec<String> = all.iter().map(Arch::to_string).collect();
                write!(
                    f,
                    "code for {arch} runs on no other device, not even on newer ones, and of {} none is a portable \
                     architecture that is not newer; add a portable one, for example sm_80",
                    all.join(", ")
                )
            }
            CudaError::NoCompiler { looked } => {
                write!(f, "{}. Looked at", no_compiler(looked))?;
                for place in looked {
                    write!(f, "\n  {place}")?;
                }
                write!(
                    f,
                    "\nany of these help it:\n  build from packaged artifacts (kernel-gen package, on a machine that \
                     has a compiler)\n  {GET_NVRTC}\n  {GET_NVCC}\n  KERNEL_GEN_CUDA=embed: compile at first use, \
                     with NVRTC on the user's machine\n  KERNEL_GEN_CUDA=off: no CUDA code, CPU only"
                )
            }
            CudaError::Named { variable, value, reason } => {
                write!(f, "{variable} is `{value}`, but {reason}; correct it or unset it")
            }
            CudaError::ArchNotSupported { compiler, arch, needs } => {
                write!(f, "{compiler} makes no code for {arch}")?;
                match needs {
                    Some(needs) => write!(f, "; that needs CUDA {needs} or newer: {GET_NVCC}"),
                    None => write!(f, "; take it out of the targets, or use an older CUDA (12) for it"),
                }
            }
            CudaError::Failed { kernel, arch, command, output } => {
                write!(f, "compiling {kernel} for {arch} failed: {command}")?;
                match output.trim() {
                    "" => Ok(()),
                    output => write!(f, "\n{output}"),
                }
            }
            CudaError::Timeout { kernel, arch, limit_s } => {
                write!(
                    f,
                    "compiling {kernel} for {arch} did not end within {limit_s} s; its schedule unrolls too much, or \
                     the limit is too small"
                )
            }
            CudaError::Tool(e) => e.fmt(f),
            CudaError::Index { faults } => {
                let lines: Vec<String> = faults.iter().map(Diagnostic::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            CudaError::Damaged { file, cause } => write!(
                f,
                "{file}: {cause}; restore it from version control (as a binary file: *.ptx and *.cubin must keep \
                 their bytes) or write it anew with `kernel-gen package`"
            ),
            CudaError::Io { file, reason } => write!(f, "{file}: {reason}"),
        }
    }
}

impl std::error::Error for CudaError {}

impl From<ToolError> for CudaError {
    fn from(e: ToolError) -> CudaError {
        CudaError::Tool(e)
    }
}
