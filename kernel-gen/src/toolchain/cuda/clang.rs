//! clang as a compiler of CUDA C++ to PTX, without any file of CUDA. It has all but the functions of libdevice.

use super::arch::{Arch, Version};
use super::error::CudaError;
use super::process::{self, Ended, Scratch, ask};
use super::request::{Made, Request};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What CUDA's own compilers know without a header, for clang.
const PRELUDE: &str = include_str!("clang_prelude.h");

/// The oldest clang whose PTX target knows Hopper.
pub(super) const OLDEST: u32 = 19;

/// Names to look for on PATH, newest first after the plain one.
pub(super) const NAMES: [&str; 6] = ["clang", "clang-23", "clang-22", "clang-21", "clang-20", "clang-19"];

/// A clang that makes PTX.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Clang {
    pub(super) program: PathBuf,
    /// `19.1.7`.
    pub(super) release: String,
    major: u32,
}

impl Clang {
    /// Asks the program for its version and its targets.
    pub(super) fn open(program: &Path) -> Result<Clang, String> {
        let said = ask(program, &["--version"])?;
        let unreadable = || format!("`{} --version` names no version of clang", program.display());
        let (_, after) = said.split_once("clang version ").ok_or_else(unreadable)?;
        let end = after.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(after.len());
        let release = after[..end].to_string();
        let major = release.split('.').next().and_then(|n| n.parse().ok()).ok_or_else(unreadable)?;
        if major < OLDEST {
            return Err(format!("{} is clang {release}; {OLDEST} or newer is needed", program.display()));
        }
        if !ask(program, &["--print-targets"])?.contains("nvptx64") {
            return Err(format!("{} was built without the nvptx64 target", program.display()));
        }
        Ok(Clang { program: program.to_path_buf(), release, major })
    }

    /// What changes its output, besides the request.
    pub(super) fn identity(&self) -> String {
        format!("clang {}\n{PRELUDE}", self.release)
    }

    /// Whether its back end knows the architecture.
    pub(super) fn knows(&self, arch: Arch) -> bool {
        match arch.capability {
            ..=90 => arch.capability != 88,
            100 | 120 => self.major >= 20,
            103 | 121 => self.major >= 21,
            _ => false,
        }
    }

    /// To PTX. The machine code is the assembler's affair, if there is one.
    pub(super) fn make(&self, request: &Request, folder: &Scratch, limit: Duration) -> Result<Made, CudaError> {
        let Request { kernel, source, arch, flags, .. } = request;
        let file = format!("{}.cu", request.stem());
        folder.write(&file, source)?;
        folder.write("prelude.h", PRELUDE)?;
        // clang checks nothing that is written as text, and every instruction up to Hopper's is in PTX 8.0.
        let ptx = arch.lowest_ptx().max(Version(8, 0));
        let mut command = Command::new(&self.program);
        command.args(["-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-fdeclspec", "-std=c++17"]);
        command.args(["-O3", "-S", "-include", "prelude.h", "-Xclang", "-target-feature", "-Xclang"]);
        command.arg(format!("+ptx{}{}", ptx.0, ptx.1)).arg(format!("--cuda-gpu-arch={arch}"));
        command.args(["-ffp-contract=fast"]);
        command.args(flags.fast_math.then_some("-ffast-math"));
        command.args(flags.line_info.then_some("-gline-directives-only"));
        command.args(["-o", "made.ptx", &file]);
        let shown = process::shown(&command);
        let failed =
            |output: String| CudaError::Failed { kernel: kernel.clone(), arch: *arch, command: shown.clone(), output };
        match process::run(command, folder, limit)? {
            Ended::Well(log) => {
                let text = String::from_utf8(folder.read("made.ptx")?);
                let ptx = text.map_err(|_| failed("its PTX is not text".to_string()))?;
                Ok(Made { ptx, cubin: None, log, compiler: format!("clang {}", self.release) })
            }
            Ended::Badly(output) => {
                let hint = hint(&output);
                Err(failed(if hint.is_empty() { output } else { format!("{}\n{hint}", output.trim_end()) }))
            }
            Ended::Late => Err(CudaError::Timeout { kernel: kernel.clone(), arch: *arch, limit_s: limit.as_secs() }),
        }
    }
}

/// A way out of what clang cannot do, or nothing.
fn hint(output: &str) -> &'static str {
    // Those are in NVIDIA's libdevice, which no clang brings along.
    let functions = ["expf'", "tanhf'", "erff'", "exp'", "tanh'", "erf'"];
    if functions.iter().any(|f| output.contains(&format!("undeclared identifier '{f}"))) {
        return "clang has no exp, tanh and erf for GPUs; NVRTC and nvcc have (`kernel-gen doctor`)";
    }
    if output.contains("'__grid_constant__'") {
        return "kernels that take tensor maps need clang 20 or newer, or NVRTC or nvcc (`kernel-gen doctor`)";
    }
    ""
}
