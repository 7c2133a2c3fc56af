//! What of a model cannot be compiled.

use std::fmt;

/// A part of a model that cannot be compiled: which, why, and what would do instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The node and its operator, or another part of the file; empty where the whole file is meant.
    pub place: String,
    /// What is wrong.
    pub cause: String,
    /// What to do.
    pub help: String,
}

impl Problem {
    /// A problem of the whole file.
    pub(super) fn of_file(cause: impl Into<String>, help: impl Into<String>) -> Problem {
        Problem { place: String::new(), cause: cause.into(), help: help.into() }
    }

    /// A problem of a part.
    pub(super) fn at(place: impl Into<String>, fault: Fault) -> Problem {
        Problem { place: place.into(), cause: fault.cause, help: fault.help }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.place.is_empty() { "" } else { ": " };
        write!(f, "{}{separator}{}; {}", self.place, self.cause, self.help)
    }
}

/// Why a node cannot be compiled, and what would do instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    /// Why.
    pub(super) cause: String,
    /// What to do.
    pub(super) help: String,
}

impl Fault {
    /// A fault.
    pub(super) fn new(cause: impl Into<String>, help: impl Into<String>) -> Fault {
        Fault { cause: cause.into(), help: help.into() }
    }

    /// A value of an attribute that is not supported.
    pub(super) fn attribute(name: &str, value: impl fmt::Display, instead: &str) -> Fault {
        Fault::new(format!("`{name}` is {value}"), format!("export the model with {instead}"))
    }
}
