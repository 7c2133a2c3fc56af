//! What can go wrong with tools.

use std::fmt;

/// Why sources did not become a library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToolError {
    /// There is no C compiler (or no archiver) for the target.
    Missing {
        /// `C compiler` or `archiver`.
        what: &'static str,
        /// The program that was looked for.
        tried: String,
        /// The target.
        target: String,
        /// The variable that would name another.
        variable: String,
        /// What else could be done; may be empty.
        hint: String,
    },
    /// The compiler is not one that knows GNU C.
    NotGnu {
        /// The compiler.
        compiler: String,
        /// The variable that would name another.
        variable: String,
    },
    /// CFLAGS, or the variable that names the compiler, has a flag that no kernel can be compiled with.
    Flag {
        /// The flag.
        flag: String,
        /// What it does.
        reason: String,
        /// The target.
        target: String,
    },
    /// The compiler cannot be asked for: a variable holds nonsense, say.
    Unusable {
        /// What was said.
        reason: String,
    },
    /// A command failed.
    Failed {
        /// The source or library it was run on.
        file: String,
        /// The command.
        command: String,
        /// What it printed.
        output: String,
    },
    /// A command took longer than it may.
    Timeout {
        /// The source or library it was run on.
        file: String,
        /// The limit.
        limit: std::time::Duration,
    },
    /// Something else ended the tool, or it got no memory: nothing is known of the source.
    Killed {
        /// The source or library it was run on.
        file: String,
        /// What ended it.
        by: String,
    },
    /// A file could not be read or written.
    Io {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
}

impl ToolError {
    /// The same error, naming another way out if a tool is missing.
    pub fn with_hint(self, text: &str) -> ToolError {
        match self {
            ToolError::Missing { what, tried, target, variable, .. } => {
                ToolError::Missing { what, tried, target, variable, hint: text.to_string() }
            }
            other => other,
        }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToolError::Missing { what, tried, target, variable, hint } => {
                let or = if hint.is_empty() { "" } else { ", or " };
                write!(
                    f,
                    "no {what} for {target}: `{tried}` is not there or not on PATH; install one (for example gcc or \
                     clang), or name it with {variable}{or}{hint}"
                )
            }
            ToolError::NotGnu { compiler, variable } => write!(
                f,
                "the C compiler `{compiler}` does not understand GNU C (vector types); name gcc or clang with {variable}"
            ),
            ToolError::Flag { flag, reason, target } => write!(
                f,
                "the C compiler's flags for {target} have `{flag}`, {reason}; take it out of CFLAGS (or CC), which kernels \
                 are compiled with as well"
            ),
            ToolError::Unusable { reason } => write!(f, "the C compiler cannot be set up: {reason}"),
            ToolError::Failed { file, command, output } => {
                write!(f, "compiling {file} failed: {command}")?;
                match output.trim() {
                    "" => Ok(()),
                    output => write!(f, "\n{output}"),
                }
            }
            ToolError::Timeout { file, limit } => write!(f, "compiling {file} took longer than {limit:?}"),
            ToolError::Killed { file, by } => write!(
                f,
                "the compiler was ended from outside while it compiled {file} ({by}); this is no fault of the source: free \
                 memory or run fewer compilers at a time, and try again"
            ),
            ToolError::Io { file, reason } => write!(f, "{file}: {reason}"),
        }
    }
}

impl std::error::Error for ToolError {}
