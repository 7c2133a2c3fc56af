//! Why a kernel has no CUDA form.

use super::Arch;
use crate::analysis::dependency::DependencyFault;
use std::fmt;

/// What the CUDA emitter cannot say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// A statement at the top of the kernel that no thread of a launch runs.
    OutsideLaunch {
        /// What stands there.
        what: String,
    },
    /// A kernel without any launch.
    NoLaunch,
    /// A loop that only a CPU has.
    CpuLoop {
        /// The loop.
        var: String,
    },
    /// Something that an earlier pass should have removed.
    NotLowered {
        /// What was found.
        what: String,
        /// The pass that removes it.
        pass: &'static str,
    },
    /// A `let` between launches reads memory that launches may change.
    LetAcrossLaunches {
        /// The variable.
        var: String,
    },
    /// More shared memory than a block can have.
    SharedMemory {
        /// The launch.
        symbol: String,
        /// What its buffers take.
        bytes: i64,
        /// What the architecture has.
        available: i64,
        /// The architecture.
        arch: Arch,
    },
    /// An instruction that the architecture lacks.
    Architecture {
        /// What needs it.
        what: String,
        /// What has it.
        needs: &'static str,
        /// The architecture.
        arch: Arch,
    },
    /// A launch that waits for those in front of it, but not soon enough, or not with all its threads.
    Dependency(DependencyFault),
    /// Something that has no form in CUDA.
    Unsupported {
        /// What was asked for, and what would do instead.
        what: String,
    },
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmitError::OutsideLaunch { what } => {
                write!(f, "{what} stands outside of any launch; bind a loop around it to grid or thread axes")
            }
            EmitError::NoLaunch => write!(f, "the kernel has no loop bound to a grid or thread axis; bind one"),
            EmitError::CpuLoop { var } => {
                write!(f, "loop `{var}` is parallel, which is for the threads of a CPU; bind it to grid or thread axes")
            }
            EmitError::NotLowered { what, pass } => write!(f, "{what} is left; run the pass `{pass}` before emitting"),
            EmitError::LetAcrossLaunches { var } => {
                write!(
                    f,
                    "`let {var}` between launches reads memory, which launches may change; move it into the launch"
                )
            }
            EmitError::SharedMemory { symbol, bytes, available, arch } => write!(
                f,
                "{symbol} needs {bytes} bytes of shared memory, a block has {available} on {arch}; use smaller tiles or \
                 fewer stages"
            ),
            EmitError::Architecture { what, needs, arch } => {
                write!(f, "{what} needs {needs}, and {arch} was asked for; emit for {needs}, or schedule without it")
            }
            EmitError::Dependency(fault) => write!(f, "a launch cannot begin early: {fault}"),
            EmitError::Unsupported { what } => write!(f, "the CUDA emitter has no form for {what}"),
        }
    }
}

impl std::error::Error for EmitError {}

impl From<DependencyFault> for EmitError {
    fn from(fault: DependencyFault) -> EmitError {
        EmitError::Dependency(fault)
    }
}
