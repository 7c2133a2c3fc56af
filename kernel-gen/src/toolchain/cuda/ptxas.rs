//! The assembler, by itself or through `nvcc`, and the search for the oldest PTX that serves.

use super::arch::{Arch, Version, older_ptx};
use super::process::{self, Ended, Scratch, ask};
use super::request::{Flags, declared_version, with_version};
use super::{CudaError, Environment};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What turns PTX into machine code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Assembler {
    /// `ptxas`.
    Ptxas(PathBuf),
    /// `nvcc`, which knows where its own `ptxas` is, however it was installed or wrapped.
    Nvcc(PathBuf),
}

/// What assembling gave.
pub(super) struct Assembled {
    pub(super) cubin: Vec<u8>,
    pub(super) log: String,
}

/// How an attempt ended.
pub(super) enum Attempt {
    Done(Assembled),
    Refused { command: String, output: String },
    Late,
}

impl Assembler {
    fn command(&self, arch: Arch, flags: &Flags) -> Command {
        match self {
            Assembler::Ptxas(program) => {
                let mut command = Command::new(program);
                command.arg("-v").arg(format!("-arch={arch}"));
                command.args(flags.max_registers.map(|n| format!("--maxrregcount={n}")));
                command.args(flags.line_info.then_some("--generate-line-info"));
                command
            }
            Assembler::Nvcc(program) => {
                let mut command = Command::new(program);
                command.args(["-cubin", "-Xptxas", "-v", "-gencode"]);
                command.arg(format!("arch={},code={arch}", arch.virtual_name()));
                command.args(flags.max_registers.map(|n| format!("--maxrregcount={n}")));
                command.args(flags.line_info.then_some("--generate-line-info"));
                command
            }
        }
    }

    /// Assembles a text inside the folder.
    pub(super) fn assemble(
        &self,
        ptx: &str,
        arch: Arch,
        flags: &Flags,
        folder: &Scratch,
        limit: Duration,
    ) -> Result<Attempt, CudaError> {
        let mut command = self.command(arch, flags);
        folder.write("assemble.ptx", ptx)?;
        command.args(["-o", "assemble.cubin", "assemble.ptx"]);
        let shown = process::shown(&command);
        Ok(match process::run(command, folder, limit)? {
            Ended::Well(log) => Attempt::Done(Assembled { cubin: folder.read("assemble.cubin")?, log }),
            Ended::Badly(output) => Attempt::Refused { command: shown, output },
            Ended::Late => Attempt::Late,
        })
    }

    /// Has a text checked without making code of it, which takes a hundredth of the time: that is what the assembler
    /// does for a virtual architecture. Gives its complaints, if it has any.
    fn check(&self, ptx: &str, arch: Arch, folder: &Scratch, limit: Duration) -> Result<Option<String>, CudaError> {
        let virtual_arch = format!("-arch={}", arch.virtual_name());
        let mut command = match self {
            Assembler::Ptxas(program) => Command::new(program),
            Assembler::Nvcc(_) => {
                let mut command = self.command(arch, &Flags::default());
                // The last of several wins, and nvcc passes this one on behind its own.
                command.arg("-Xptxas");
                command
            }
        };
        folder.write("assemble.ptx", ptx)?;
        command.arg(virtual_arch).args(["-o", "checked.cubin", "assemble.ptx"]);
        Ok(match process::run(command, folder, limit)? {
            Ended::Well(_) => None,
            Ended::Badly(output) => Some(output),
            Ended::Late => Some("it did not end in time".to_string()),
        })
    }

    /// The same text declaring the oldest PTX that the assembler takes it as.
    ///
    /// A compiler writes the newest version that it knows, and a driver that is older than the compiler's toolkit
    /// refuses the text for this alone, though it needs nothing new. The assembler holds every instruction against the
    /// declared version, so the first version that it accepts is right. Without an assembler there is no such proof,
    /// and the text stays as it is.
    pub(super) fn lowest(
        &self,
        ptx: String,
        arch: Arch,
        folder: &Scratch,
        limit: Duration,
    ) -> Result<String, CudaError> {
        let Some(made) = declared_version(&ptx) else { return Ok(ptx) };
        let mut least = Version(0, 0);
        for version in older_ptx(arch, made) {
            if version < least {
                continue;
            }
            let lower = with_version(&ptx, version);
            match self.check(&lower, arch, folder, limit)? {
                None => return Ok(lower),
                Some(complaints) => least = required(&complaints),
            }
        }
        Ok(ptx)
    }
}

/// The newest version that the assembler's complaints name: `Feature 'WGMMA' requires PTX ISA .version 8.0 or later`.
fn required(complaints: &str) -> Version {
    let versions = complaints.lines().filter_map(|line| {
        let (_, after) = line.split_once("requires PTX ISA .version ")?;
        Version::parse(after)
    });
    versions.max().unwrap_or(Version(0, 0))
}

/// Every `ptxas` that stands by itself, in the order of the lookup: the one that KERNEL_GEN_PTXAS names, and no other then;
/// the toolkits', that on PATH.
pub(super) fn candidates(environment: &Environment) -> Vec<PathBuf> {
    if let Some(value) = environment.get("KERNEL_GEN_PTXAS") {
        return environment.program(value).into_iter().collect();
    }
    let in_toolkits = environment.toolkits().into_iter().map(|(_, home)| home.join("bin/ptxas"));
    in_toolkits.filter(|p| p.is_file()).chain(environment.program("ptxas")).collect()
}

/// The first of them that works. None is no error, but one that is named must work.
pub(super) fn find(environment: &Environment) -> Result<Option<(PathBuf, String)>, CudaError> {
    let mut all = candidates(environment).into_iter();
    if environment.get("KERNEL_GEN_PTXAS").is_none() {
        return Ok(all.find_map(|program| version(&program).ok().map(|version| (program, version))));
    }
    let wrong = |reason| CudaError::Named {
        variable: "KERNEL_GEN_PTXAS".to_string(),
        value: environment.text("KERNEL_GEN_PTXAS"),
        reason,
    };
    let program = all.next().ok_or_else(|| wrong("there is no such program".to_string()))?;
    let version = version(&program).map_err(wrong)?;
    Ok(Some((program, version)))
}

fn version(program: &Path) -> Result<String, String> {
    let text = ask(program, &["--version"])?;
    release(&text).ok_or_else(|| format!("`{} --version` names no release", program.display()))
}

/// The version in what NVIDIA's tools say of themselves: `Cuda compilation tools, release 13.0, V13.0.88`.
pub(super) fn release(text: &str) -> Option<String> {
    let (_, after) = text.split_once("release ")?;
    let line = after.lines().next()?;
    let full = line.split_once(", V").map_or(line, |(_, full)| full);
    let end = full.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(full.len());
    Version::parse(&full[..end]).map(|_| full[..end].to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_from_what_tools_say() {
        let text = "Copyright\nCuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/compiler.1\n";
        assert_eq!(release(text).as_deref(), Some("13.0.88"));
        assert_eq!(release("release 11.4"), Some("11.4".to_string()));
        assert_eq!(release("Debian release"), None);
        assert_eq!(release("release x"), None);
    }

    #[test]
    fn complaints_name_the_version_that_is_needed() {
        let text = "ptxas a.ptx, line 3; error   : Feature 'WGMMA' requires PTX ISA .version 8.0 or later\n\
                    ptxas a.ptx, line 9; error   : Feature 'x' requires PTX ISA .version 8.6 or later\n";
        assert_eq!(required(text), Version(8, 6));
        assert_eq!(required("anything else"), Version(0, 0));
    }
}
