//! What a command has to say, and why it could not do what it was asked for.

use crate::diagnostic::Diagnostic;
use crate::model::ModelError;
use crate::space::{ConfigError, SpaceError};
use crate::templates::TemplateError;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

/// What a command has to say.
#[derive(Clone, PartialEq, Debug)]
pub struct Output {
    /// For standard output.
    pub text: String,
    /// For standard error: one line each.
    pub errors: Vec<String>,
    /// Whether the exit status is 0.
    pub success: bool,
}

impl Output {
    /// What a command prints that did what it was asked for.
    pub(super) fn success(text: String) -> Output {
        Output { text, errors: vec![], success: true }
    }
}

/// Writes a file that is not there yet; gives its name as messages have it. A file that is there may have been edited.
pub(super) fn write_new(file: &Path, text: &str) -> Result<String, Failure> {
    let shown = file.display().to_string().replace('\\', "/");
    let made =
        OpenOptions::new().write(true).create_new(true).open(file).and_then(|mut f| f.write_all(text.as_bytes()));
    match made {
        Ok(()) => Ok(shown),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(format!("{shown}: there is such a file already; delete it, or name another one").into())
        }
        Err(error) => Err(format!("{shown}: cannot be written: {error}; name another file").into()),
    }
}

/// Why a command could not do what it was asked for.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Failure {
    /// Files that the user wrote are wrong.
    Diagnostics(Vec<Diagnostic>),
    /// Several lines, complete as they are.
    Lines(Vec<String>),
    /// Something else; the text is one line.
    Message(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Diagnostics(all) => {
                let lines: Vec<String> = all.iter().map(Diagnostic::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            Failure::Lines(lines) => f.write_str(&lines.join("\n")),
            Failure::Message(text) => f.write_str(text),
        }
    }
}

impl From<Vec<Diagnostic>> for Failure {
    fn from(all: Vec<Diagnostic>) -> Failure {
        Failure::Diagnostics(all)
    }
}

macro_rules! message_from {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::Message(error.to_string())
            }
        })*
    };
}

message_from!(String, ModelError, ConfigError, SpaceError, TemplateError);

/// A JSON value as the commands print it.
pub(super) fn json_text(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}
