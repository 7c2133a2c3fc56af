//! Why a spec did not become code.

use crate::diagnostic::Diagnostic;
use crate::emit::c::EmitError;
use crate::lower::LowerError;
use crate::model::ModelError;
use crate::templates::TemplateError;
use crate::toolchain::ToolError;
use std::fmt;

/// What went wrong, and for which workload.
#[derive(Clone, PartialEq, Debug)]
pub enum GenerateError {
    /// No choice could be made: no template applies, or fallback is denied and there is no record.
    Choose {
        /// The spec's file.
        file: String,
        /// The line of the workload.
        line: usize,
        /// Why.
        error: ModelError,
    },
    /// The chosen template refused its config.
    Template {
        /// The spec's file.
        file: String,
        /// The line of the workload.
        line: usize,
        /// Template and config.
        choice: String,
        /// Why.
        error: TemplateError,
    },
    /// A scheduled kernel did not pass the verifier: a defect of its template.
    Verify {
        /// The spec's file.
        file: String,
        /// The line of the workload.
        line: usize,
        /// Template and config.
        choice: String,
        /// What the verifier found.
        faults: Vec<String>,
    },
    /// A verified kernel could not be lowered.
    Lower {
        /// The spec's file.
        file: String,
        /// The line of the workload.
        line: usize,
        /// Template and config.
        choice: String,
        /// Why.
        error: LowerError,
    },
    /// A lowered kernel could not be emitted.
    Emit {
        /// The spec's file.
        file: String,
        /// The line of the workload.
        line: usize,
        /// Template and config.
        choice: String,
        /// Why.
        error: EmitError,
    },
    /// The parameters of a scheduled kernel are not those of its workload: a defect of its template.
    Parameters {
        /// The spec's file.
        file: String,
        /// The line of the workload.
        line: usize,
        /// Template and config.
        choice: String,
        /// What is different.
        reason: String,
    },
    /// A tool is missing or failed.
    Tool(ToolError),
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

impl fmt::Display for GenerateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DEFECT: &str = "this is a defect of the template; choose another config with a record, or report it";
        match self {
            GenerateError::Choose { file, line, error } => write!(f, "{file}:{line}: {error}"),
            GenerateError::Template { file, line, choice, error } => {
                write!(f, "{file}:{line}: {choice}: {error}; {DEFECT}")
            }
            GenerateError::Verify { file, line, choice, faults } => {
                write!(f, "{file}:{line}: {choice}: the kernel is not valid: {}; {DEFECT}", faults.join("; "))
            }
            GenerateError::Lower { file, line, choice, error } => write!(f, "{file}:{line}: {choice}: {error}"),
            GenerateError::Emit { file, line, choice, error } => write!(f, "{file}:{line}: {choice}: {error}"),
            GenerateError::Parameters { file, line, choice, reason } => {
                write!(f, "{file}:{line}: {choice}: {reason}; {DEFECT}")
            }
            GenerateError::Tool(error) => error.fmt(f),
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

impl From<Diagnostic> for GenerateError {
    fn from(diagnostic: Diagnostic) -> GenerateError {
        GenerateError::Input(diagnostic)
    }
}
