//! Why a spec did not become code.

use crate::analysis::verify::Fault;
use crate::diagnostic::Diagnostic;
use crate::emit::c::EmitError;
use crate::lower::{LowerError, Unlowered};
use crate::model::ModelError;
use crate::templates::TemplateError;
use crate::toolchain::ToolError;
use crate::toolchain::cuda::CudaError;
use std::fmt;

/// What went wrong.
#[derive(Clone, PartialEq, Debug)]
pub enum GenerateError {
    /// A workload of the spec did not become a kernel.
    Workload(Box<WorkloadFault>),
    /// A tool is missing or failed.
    Tool(ToolError),
    /// A CUDA compiler is missing or failed, or packaged code is damaged.
    Cuda(CudaError),
    /// A file of the output could not be written.
    Io {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
    /// Something in a file that a person wrote.
    Input(Diagnostic),
}

/// Why a workload did not become a kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkloadFault {
    /// The spec's file.
    pub file: String,
    /// The line of the workload.
    pub line: usize,
    /// Template, config and level, once they were chosen.
    pub choice: Option<String>,
    /// What went wrong.
    pub cause: Cause,
}

/// The step that failed.
#[derive(Clone, PartialEq, Debug)]
pub enum Cause {
    /// No template applies, or fallback is denied and there is no record.
    Choose(ModelError),
    /// The chosen template refused its config.
    Template(TemplateError),
    /// The parameters of the scheduled kernel are not those of the workload.
    Parameters(String),
    /// The kernel cannot be laid into the larger tensors that the spec asks for.
    Slice(String),
    /// The scheduled kernel did not pass the verifier.
    Verify(Vec<String>),
    /// The kernel could not be lowered.
    Lower(LowerError),
    /// The kernel could not be emitted as C.
    Emit(EmitError),
    /// The kernel could not be emitted as CUDA.
    EmitCuda(crate::emit::cuda::EmitError),
}

impl From<Unlowered> for Cause {
    fn from(error: Unlowered) -> Cause {
        match error {
            Unlowered::Faults(faults) => Cause::Verify(faults.iter().map(Fault::to_string).collect()),
            Unlowered::Pass(error) => Cause::Lower(error),
        }
    }
}

impl fmt::Display for WorkloadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if let Some(choice) = &self.choice {
            write!(f, "{choice}: ")?;
        }
        // A choice that the pipeline cannot carry out is not the user's fault.
        const DEFECT: &str = "this is a defect of the template: pick another with a record, and report it";
        match &self.cause {
            Cause::Choose(error) => error.fmt(f),
            cause @ Cause::Slice(_) => write!(f, "{cause}; leave `from` and `into` out, and copy the slice"),
            cause => write!(f, "{cause}; {DEFECT}"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Choose(error) => error.fmt(f),
            Cause::Template(error) => error.fmt(f),
            Cause::Parameters(reason) => f.write_str(reason),
            Cause::Slice(reason) => write!(f, "it has no slices: {reason}"),
            Cause::Verify(faults) => write!(f, "the kernel is not valid: {}", faults.join("; ")),
            Cause::Lower(error) => error.fmt(f),
            Cause::Emit(error) => error.fmt(f),
            Cause::EmitCuda(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for GenerateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GenerateError::Workload(fault) => fault.fmt(f),
            GenerateError::Tool(error) => error.fmt(f),
            GenerateError::Cuda(error) => error.fmt(f),
            GenerateError::Io { file, reason } => {
                write!(f, "{file}: cannot be written: {reason}; make the folder writable")
            }
            GenerateError::Input(diagnostic) => diagnostic.fmt(f),
        }
    }
}

impl std::error::Error for GenerateError {}

impl From<ToolError> for GenerateError {
    fn from(error: ToolError) -> GenerateError {
        GenerateError::Tool(error)
    }
}

impl From<CudaError> for GenerateError {
    fn from(error: CudaError) -> GenerateError {
        GenerateError::Cuda(error)
    }
}

impl From<Diagnostic> for GenerateError {
    fn from(diagnostic: Diagnostic) -> GenerateError {
        GenerateError::Input(diagnostic)
    }
}
