//! `nvcc`.

use super::arch::Version;
use super::process::{self, Ended, Scratch, ask};
use super::ptxas::{Assembler, Attempt, release};
use super::request::{Made, Request};
use super::{CudaError, Environment};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An `nvcc` that answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Nvcc {
    pub(super) program: PathBuf,
    /// `13.0.88`.
    pub(super) release: String,
    pub(super) version: Version,
    /// The variables that change what it does.
    settings: String,
}

impl Nvcc {
    /// Asks the program for its version.
    pub(super) fn open(program: &Path, environment: &Environment) -> Result<Nvcc, String> {
        let said = ask(program, &["--version"])?;
        let unreadable = || format!("`{} --version` names no release of CUDA", program.display());
        let release = release(&said).ok_or_else(unreadable)?;
        let version = Version::parse(&release).ok_or_else(unreadable)?;
        let settings = ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"].map(|name| environment.text(name));
        Ok(Nvcc { program: program.to_path_buf(), release, version, settings: settings.join("\n") })
    }

    /// What changes its output, besides the request.
    pub(super) fn identity(&self) -> String {
        format!("nvcc {}\n{}", self.release, self.settings)
    }

    pub(super) fn assembler(&self) -> Assembler {
        Assembler::Nvcc(self.program.clone())
    }

    /// To PTX and from there to machine code, so that both are of one text.
    pub(super) fn make(&self, request: &Request, folder: &Scratch, limit: Duration) -> Result<Made, CudaError> {
        let Request { kernel, source, arch, flags, .. } = request;
        let file = format!("{}.cu", request.stem());
        folder.write(&file, source)?;
        let mut command = Command::new(&self.program);
        let virtual_name = arch.virtual_name();
        command.args(["-ptx", "--std=c++17", "-gencode"]).arg(format!("arch={virtual_name},code={virtual_name}"));
        command.args(flags.nvidia()).args(["-o", "made.ptx", &file]);
        let failed = |command, output| CudaError::Failed { kernel: kernel.clone(), arch: *arch, command, output };
        let late = || CudaError::Timeout { kernel: kernel.clone(), arch: *arch, limit_s: limit.as_secs() };
        let shown = process::shown(&command);
        let warnings = match process::run(command, folder, limit)? {
            Ended::Well(said) => said,
            Ended::Badly(output) => return Err(failed(shown, with_hint(output))),
            Ended::Late => return Err(late()),
        };
        let ptx = folder.read("made.ptx")?;
        let ptx = String::from_utf8(ptx).map_err(|_| failed(shown, "its PTX is not text".to_string()))?;
        match self.assembler().assemble(&ptx, *arch, flags, folder, limit)? {
            Attempt::Done(done) => {
                let compiler = format!("nvcc {}", self.release);
                Ok(Made { ptx, cubin: Some(done.cubin), log: warnings + &done.log, compiler })
            }
            Attempt::Refused { command, output } => Err(failed(command, output)),
            Attempt::Late => Err(late()),
        }
    }
}

/// nvcc has the host's C++ compiler preprocess even what is for the device only. Where that is missing or too new, a
/// person is told a way out beside what nvcc says.
fn with_hint(output: String) -> String {
    let signs = ["cc1plus", "host compiler", "unsupported GNU version", "unsupported clang version"];
    match signs.iter().any(|sign| output.contains(sign)) {
        true => {
            let hint = "nvcc needs a C++ compiler that it knows: install g++, or name one with NVCC_CCBIN; or set \
                        KERNEL_GEN_CUDA=nvrtc, which needs none (`kernel-gen doctor`)";
            format!("{}\n{hint}", output.trim_end())
        }
        false => output,
    }
}
