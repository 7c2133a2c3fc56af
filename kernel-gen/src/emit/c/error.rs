//! Why a kernel has no C form.

use std::fmt;

/// What the C emitter cannot say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// A loop that only a GPU has.
    GpuLoop {
        /// The loop.
        var: String,
        /// Its kind.
        kind: &'static str,
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
    /// A target whose name is no instruction set level that C is emitted for.
    UnknownLevel {
        /// The target.
        target: String,
    },
    /// A type that has no operation of that kind.
    Unsupported {
        /// What was asked for.
        what: String,
    },
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmitError::GpuLoop { var, kind } => write!(
                f,
                "loop `{var}` is a {kind} loop, which a CPU does not have; bind it as parallel, or lower for CUDA"
            ),
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
            EmitError::UnknownLevel { target } => {
                let known: Vec<&str> = super::Isa::ALL.iter().map(|isa| isa.name()).collect();
                write!(f, "C is emitted for the levels {}, and `{target}` is none of them", known.join(", "))
            }
            EmitError::Unsupported { what } => write!(f, "the C emitter has no form for {what}"),
        }
    }
}

impl std::error::Error for EmitError {}
