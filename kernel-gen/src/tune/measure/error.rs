//! Why nothing can be measured here.

use crate::toolchain::ToolError;
use crate::toolchain::cuda::CudaError;
use std::fmt;

/// Why there is no measurer for a target.
#[derive(Clone, PartialEq, Debug)]
pub enum MeasureError {
    /// The machine does not execute the target's instructions.
    NotThisCpu {
        /// The target.
        target: String,
        /// The best target that it does execute.
        best: String,
    },
    /// There is no device for the target.
    NoDevice {
        /// The target.
        target: String,
        /// What was found instead, and what to do about it.
        cause: String,
    },
    /// The device has another compute capability than the target's code is for.
    WrongCapability {
        /// The target.
        target: String,
        /// The device's name.
        device: String,
        /// Its compute capability, as 10 times the major and the minor number.
        capability: u32,
    },
    /// There is no C compiler.
    Compiler(ToolError),
    /// There is no CUDA compiler.
    CudaCompiler(CudaError),
    /// The worker process does not start.
    Worker {
        /// What was run.
        command: String,
        /// What went wrong.
        cause: String,
    },
}

impl fmt::Display for MeasureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeasureError::NotThisCpu { target, best } => write!(
                f,
                "this machine does not execute {target}, so nothing can be measured for it; tune for {best} here, or run on \
                 a machine that has it"
            ),
            MeasureError::NoDevice { target, cause } => write!(f, "there is no device for {target}: {cause}"),
            MeasureError::WrongCapability { target, device, capability } => write!(
                f,
                "{device} has compute capability {}.{}, which does not run code for {target}; tune for sm_{capability}, or \
                 pick another device",
                capability / 10,
                capability % 10
            ),
            MeasureError::Compiler(error) => error.fmt(f),
            MeasureError::CudaCompiler(error) => error.fmt(f),
            MeasureError::Worker { command, cause } => write!(
                f,
                "the process that holds the device does not start (`{command}`): {cause}; a program of your own that tunes \
                 must give its arguments to `kernel_gen::cli::main`, which knows the command `worker`"
            ),
        }
    }
}

impl std::error::Error for MeasureError {}

impl From<ToolError> for MeasureError {
    fn from(error: ToolError) -> Self {
        MeasureError::Compiler(error)
    }
}

impl From<CudaError> for MeasureError {
    fn from(error: CudaError) -> Self {
        MeasureError::CudaCompiler(error)
    }
}
