//! What can go wrong in a build.

use kernel_gen::generate::GenerateError;
use std::fmt;

/// Why a build failed.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A variable that cargo sets for build scripts is not set.
    NotABuildScript {
        /// The variable.
        variable: &'static str,
    },
    /// The module's name is no Rust name.
    Module {
        /// The name.
        name: String,
    },
    /// Something is wrong with the spec, the records, a template or a tool; usually several things at once.
    Generate(Vec<GenerateError>),
}

impl Error {
    /// One text for each thing that is wrong. The first line of each says it all.
    pub fn diagnostics(&self) -> Vec<String> {
        match self {
            Error::Generate(errors) => errors.iter().map(|e| e.to_string()).collect(),
            Error::NotABuildScript { variable } => vec![format!(
                "the variable {variable} is not set; call this from build.rs, or set what cargo would set"
            )],
            Error::Module { name } => vec![format!(
                "`{name}` cannot name the generated module; use lower-case letters, digits and `_`, and no Rust keyword"
            )],
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostics().join("\n"))
    }
}

impl std::error::Error for Error {}

impl From<GenerateError> for Error {
    fn from(error: GenerateError) -> Error {
        Error::Generate(vec![error])
    }
}

impl From<Vec<GenerateError>> for Error {
    fn from(errors: Vec<GenerateError>) -> Error {
        Error::Generate(errors)
    }
}
