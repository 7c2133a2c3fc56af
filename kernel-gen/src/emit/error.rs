//! Why a kernel has no form in a language.

use super::cuda::arch::Arch;
use crate::analysis::dependency::DependencyFault;
use std::fmt;

/// What an emitter cannot say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// A loop that only a GPU has, in C.
    GpuLoop {
        /// The loop.
        var: String,
        /// Its kind.
        kind: &'static str,
    },
    /// A loop that only a CPU has, in CUDA.
    CpuLoop {
        /// The loop.
        var: String,
    },
    /// A buffer in a scope that a CPU does not have.
    Scope {
        /// The buffer.
        buffer: String,
        /// Its scope.
        scope: &'static str,
    },
    /// A register buffer is indexed by something that is not a constant.
    RegisterIndex {
        /// The buffer.
        buffer: String,
        /// The index, as text.
        index: String,
    },
    /// Something that an earlier pass should have removed.
    NotLowered {
        /// What was found.
        what: String,
        /// The pass that removes it.
        pass: &'static str,
    },
    /// A `let` at the top of the kernel whose value depends on memory would have to hold across phases.
    LetAcrossPhases {
        /// The variable.
        var: String,
    },
    /// A `let` between launches reads memory that launches may change.
    LetAcrossLaunches {
        /// The variable.
        var: String,
    },
    /// A target whose name is no instruction set level that C is emitted for.
    UnknownLevel {
        /// The target.
        target: String,
        /// The levels.
        known: Vec<&'static str>,
    },
    /// A statement at the top of the kernel that no thread of a launch runs.
    OutsideLaunch {
        /// What stands there.
        what: String,
    },
    /// A kernel without any launch.
    NoLaunch,
    /// More shared memory than a block can have.
    SharedMemory {
        /// The launch.
        symbol: String,
        /// Bytes that its buffers take.
        bytes: i64,
        /// Bytes that the architecture has.
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
    /// Something that has no form in the language.
    Unsupported {
        /// `C` or `CUDA`.
        language: &'static str,
        /// What was asked for, and what would do instead.
        what: String,
    },
}

impl EmitError {
    /// The language has no form for that.
    pub(super) fn unsupported(language: &'static str, what: impl Into<String>) -> EmitError {
        EmitError::Unsupported { language, what: what.into() }
    }

    /// C has no form for that.
    pub(super) fn in_c(what: impl Into<String>) -> EmitError {
        EmitError::unsupported("C", what)
    }

    /// CUDA has no form for that.
    pub(super) fn in_cuda(what: impl Into<String>) -> EmitError {
        EmitError::unsupported("CUDA", what)
    }
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmitError::GpuLoop { var, kind } => write!(
                f,
                "loop `{var}` is a {kind} loop, which a CPU does not have; bind it as parallel, or lower for CUDA"
            ),
            EmitError::CpuLoop { var } => {
                write!(f, "loop `{var}` is parallel, which is for the threads of a CPU; bind it to grid or thread axes")
            }
            EmitError::Scope { buffer, scope } => write!(
                f,
                "buffer `{buffer}` has scope {scope}, which a CPU does not have; use local, or lower for CUDA"
            ),
            EmitError::RegisterIndex { buffer, index } => write!(
                f,
                "register buffer `{buffer}` is indexed by `{index}`, which is not a constant; unroll or vectorise the \
                 loops in it, or use scope local"
            ),
            EmitError::NotLowered { what, pass } => write!(f, "{what} is left; run the pass `{pass}` before emitting"),
            EmitError::LetAcrossPhases { var } => write!(
                f,
                "`let {var}` at the top of the kernel reads memory but is used in several phases; move it into the loops"
            ),
            EmitError::LetAcrossLaunches { var } => write!(
                f,
                "`let {var}` between launches reads memory, which launches may change; move it into the launch"
            ),
            EmitError::UnknownLevel { target, known } => {
                write!(f, "C is emitted for the levels {}, and `{target}` is none of them", known.join(", "))
            }
            EmitError::OutsideLaunch { what } => {
                write!(f, "{what} stands outside of any launch; bind a loop around it to grid or thread axes")
            }
            EmitError::NoLaunch => write!(f, "the kernel has no loop bound to a grid or thread axis; bind one"),
            EmitError::SharedMemory { symbol, bytes, available, arch } => write!(
                f,
                "{symbol} needs {bytes} bytes of shared memory, a block has {available} on {arch}; use smaller tiles or \
                 fewer stages"
            ),
            EmitError::Architecture { what, needs, arch } => {
                write!(f, "{what} needs {needs}, and {arch} was asked for; emit for {needs}, or schedule without it")
            }
            EmitError::Dependency(fault) => write!(f, "a launch cannot begin early: {fault}"),
            EmitError::Unsupported { language, what } => write!(f, "the {language} emitter has no form for {what}"),
        }
    }
}

impl std::error::Error for EmitError {}

impl From<DependencyFault> for EmitError {
    fn from(fault: DependencyFault) -> EmitError {
        EmitError::Dependency(fault)
    }
}
