//! What a kernel can do wrong in its process.

use crate::toolchain::ToolError;
use std::fmt;

/// Why a kernel's run gave no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HarnessError {
    /// It did not compile.
    Tool(ToolError),
    /// The number or size of the inputs is not the kernel's.
    Inputs {
        /// What was wrong.
        cause: String,
    },
    /// It touched memory outside of a buffer.
    OutOfBounds {
        /// The buffer.
        buffer: String,
        /// Bytes from its start.
        offset: i64,
    },
    /// It touched memory that is far from any buffer.
    Stray,
    /// It wrote beside a buffer.
    Canary {
        /// The buffer.
        buffer: String,
        /// Bytes from its start.
        offset: i64,
    },
    /// It wrote a parameter that it may only read.
    InputChanged {
        /// The parameter.
        buffer: String,
    },
    /// Two runs differ: it reads memory that nothing wrote, or its result depends on the order of parallel iterations.
    Unstable {
        /// The output.
        buffer: String,
        /// The first byte that differs.
        offset: i64,
    },
    /// It ran past the time limit.
    Timeout {
        /// The limit in seconds.
        limit_s: u64,
    },
    /// It wants more memory than it may have.
    Memory,
    /// Somebody ended its process: that says nothing of the kernel.
    Killed,
    /// It ended in another way.
    Died {
        /// How.
        cause: String,
    },
}

impl fmt::Display for HarnessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HarnessError::Tool(e) => e.fmt(f),
            HarnessError::Inputs { cause } => f.write_str(cause),
            HarnessError::OutOfBounds { buffer, offset } => {
                write!(f, "the kernel touched memory {offset} bytes from the start of `{buffer}`, outside of it")
            }
            HarnessError::Stray => f.write_str("the kernel touched memory that is far from any buffer"),
            HarnessError::Canary { buffer, offset } => {
                write!(f, "the kernel wrote {offset} bytes from the start of `{buffer}`, outside of it")
            }
            HarnessError::InputChanged { buffer } => write!(f, "the kernel wrote `{buffer}`, which it may only read"),
            HarnessError::Unstable { buffer, offset } => write!(
                f,
                "two runs differ at byte {offset} of `{buffer}`: the kernel reads memory that nothing wrote, or depends on \
                 the order of parallel iterations"
            ),
            HarnessError::Timeout { limit_s } => write!(f, "the kernel did not end within {limit_s} s"),
            HarnessError::Memory => f.write_str("the kernel wants more memory than it may have"),
            HarnessError::Killed => f.write_str("the kernel's process was killed from outside"),
            HarnessError::Died { cause } => write!(f, "the kernel's process died: {cause}"),
        }
    }
}

impl std::error::Error for HarnessError {}

impl From<ToolError> for HarnessError {
    fn from(e: ToolError) -> Self {
        HarnessError::Tool(e)
    }
}
