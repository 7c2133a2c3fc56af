//! Why a line of AutoTVM's logs cannot be taken.

use std::fmt;

/// Why a line cannot be taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LineError {
    /// It is not JSON.
    Json(String),
    /// It is of the time when lines held Python objects: four fields between tabs, each but the first a pickle in base64.
    Pickle,
    /// It has another version.
    Version(String),
    /// It is not built as lines are.
    Form(String),
    /// Nothing is known of its task.
    Task(String),
    /// Its task, or its config, is not what a template here does.
    Nearest {
        /// The task.
        task: String,
        /// What is different.
        why: String,
        /// What comes nearest here.
        nearest: String,
    },
    /// A library computes its task.
    Library {
        /// The task.
        task: String,
        /// The library, as the task's name has it.
        library: String,
    },
    /// Its workload is none here.
    Workload(String),
    /// It does not say what it was compiled for, and neither does the caller.
    NoTarget,
}

impl LineError {
    /// What a person can do about it.
    pub fn help(&self) -> &'static str {
        match self {
            LineError::Json(_) => "a line that was cut off is lost; delete it",
            LineError::Pickle => "read it with the TVM that wrote it and write it as JSON (format 0.2), or tune here",
            LineError::Version(_) => "convert it with a TVM that still reads it, or tune here",
            LineError::Form(_) => "write it as AutoTVM 0.2 does, or delete the line",
            LineError::Task(_) => "tune here; `kernel-gen import --help` lists the tasks that are taken",
            LineError::Nearest { .. } | LineError::Library { .. } => "tune the workload here, or delete the line",
            LineError::Workload(_) => "tune here a workload that is",
            LineError::NoTarget => "name it with --target",
        }
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineError::Json(cause) => write!(f, "the line is not complete JSON: {cause}"),
            LineError::Pickle => f.write_str(
                "the line is of AutoTVM's pickle format, which is not read: it holds Python objects, and reading them runs code",
            ),
            LineError::Version(version) => write!(f, "the line has version {version}, and not 0.2"),
            LineError::Form(cause) => f.write_str(cause),
            LineError::Task(task) => write!(f, "no template here has the knobs of the task {task}"),
            LineError::Nearest { task, why, nearest } => {
                write!(f, "the task {task} is not taken: {why}; nearest here is {nearest}")
            }
            LineError::Library { task, library } => {
                write!(f, "the task {task} is not taken: {library} computes it, and its line says nothing of how")
            }
            LineError::Workload(cause) => write!(f, "the workload is none of ours: {cause}"),
            LineError::NoTarget => f.write_str("the line does not say for which architecture"),
        }
    }
}

impl std::error::Error for LineError {}
