//! What the interpreter reports.

use std::fmt;

/// What went wrong.
#[derive(Clone, PartialEq, Debug)]
pub enum Cause {
    /// An index outside a buffer's shape.
    OutOfBounds {
        /// Whether the access was a write.
        write: bool,
        /// Buffer's name.
        buffer: String,
        /// Where it pointed.
        index: Vec<i64>,
        /// The buffer's shape.
        shape: Vec<i64>,
    },
    /// A read of an element that nothing has written.
    Unwritten {
        /// Buffer's name.
        buffer: String,
        /// Which element.
        index: Vec<i64>,
    },
    /// Two concurrent iterations touch one element, at least one of them writing, with no barrier in between.
    Race {
        /// Buffer's name.
        buffer: String,
        /// Which element.
        index: Vec<i64>,
        /// Who came first, and what it did.
        first: String,
        /// Who came second, and what it did.
        second: String,
    },
    /// Two lanes of a vectorised loop touch one element, at least one of them writing.
    LaneConflict {
        /// Buffer's name.
        buffer: String,
        /// Which element.
        index: Vec<i64>,
    },
    /// Some threads wait at a barrier that others do not reach.
    DivergentBarrier {
        /// A thread that waits.
        waiting: String,
        /// A thread that does not, and where it is instead.
        other: String,
    },
    /// Threads wait for what never comes.
    Deadlock {
        /// Each position that threads wait at, and what they wait for.
        waiting: Vec<String>,
    },
    /// A read of an element whose asynchronous write the reader does not know to be done.
    Unfinished {
        /// Buffer's name.
        buffer: String,
        /// Which element.
        index: Vec<i64>,
        /// What writes it.
        writer: String,
        /// Who reads it.
        reader: String,
    },
    /// The copy engine or the tensor cores read what a thread wrote without a fence.
    Unfenced {
        /// Buffer's name.
        buffer: String,
        /// Which element.
        index: Vec<i64>,
        /// Who wrote it.
        writer: String,
        /// What reads it.
        reader: String,
    },
    /// A thread ends while the copy engine may still read what it stores.
    UnfinishedStore {
        /// Which thread.
        thread: String,
    },
    /// A thread touches an element of a fragment that another one holds.
    ForeignElement {
        /// Fragment's name.
        buffer: String,
        /// Which element.
        index: Vec<i64>,
        /// Which thread.
        thread: String,
    },
    /// Memory of a block is reached from another one that it does not wait for before it ends.
    EndedBlock {
        /// Who ends, or reaches.
        thread: String,
        /// What the other one does.
        other: String,
    },
    /// A barrier is used in a way that it is not made for.
    Misuse(String),
    /// A barrier that is not inside a thread block.
    BarrierOutsideBlock,
    /// A write parameter has an element that nothing wrote.
    UnwrittenOutput {
        /// Buffer's name.
        buffer: String,
        /// The first such element.
        index: Vec<i64>,
    },
    /// Integer division or remainder by zero.
    DivisionByZero,
    /// The values passed do not fit the parameter.
    Input {
        /// Parameter's name.
        buffer: String,
        /// What does not fit.
        detail: String,
    },
    /// The kernel is not well formed, so it means nothing.
    Malformed(String),
    /// The kernel needs more memory than an interpreter should take.
    TooLarge {
        /// Elements of all buffers together.
        elements: i64,
    },
    /// The kernel did not end within the allowed number of loop iterations.
    StepLimit,
}

impl Cause {
    /// A short name of the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Cause::OutOfBounds { write: false, .. } => "out-of-bounds read",
            Cause::OutOfBounds { write: true, .. } => "out-of-bounds write",
            Cause::Unwritten { .. } => "read of unwritten memory",
            Cause::Race { .. } => "race",
            Cause::LaneConflict { .. } => "lane conflict",
            Cause::DivergentBarrier { .. } => "divergent barrier",
            Cause::Deadlock { .. } => "deadlock",
            Cause::Unfinished { .. } => "read of unwritten memory",
            Cause::Unfenced { .. } => "missing fence",
            Cause::UnfinishedStore { .. } => "unfinished store",
            Cause::EndedBlock { .. } => "reach into an ended block",
            Cause::ForeignElement { .. } => "fragment element of another thread",
            Cause::Misuse(_) => "barrier misuse",
            Cause::BarrierOutsideBlock => "barrier outside a block",
            Cause::UnwrittenOutput { .. } => "unwritten output",
            Cause::DivisionByZero => "division by zero",
            Cause::Input { .. } => "unfit input",
            Cause::Malformed(_) => "malformed kernel",
            Cause::TooLarge { .. } => "too large",
            Cause::StepLimit => "step limit",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind())?;
        match self {
            Cause::OutOfBounds { write, buffer, index, shape } => {
                let verb = if *write { "writes" } else { "reads" };
                write!(f, "{verb} {buffer}{index:?}, but the shape of {buffer} is {shape:?}")
            }
            Cause::Unwritten { buffer, index } => write!(f, "{buffer}{index:?} is read before anything wrote it"),
            Cause::Race { buffer, index, first, second } => {
                write!(f, "{buffer}{index:?} is {first} and {second} with no barrier in between")
            }
            Cause::LaneConflict { buffer, index } => {
                write!(f, "two lanes of a vectorised loop touch {buffer}{index:?}, and one of them writes it")
            }
            Cause::DivergentBarrier { waiting, other } => write!(f, "{waiting} waits at a barrier, but {other}"),
            Cause::Deadlock { waiting } => write!(f, "no thread can go on: {}", waiting.join("; ")),
            Cause::Unfinished { buffer, index, writer, reader } => {
                write!(f, "{buffer}{index:?} is read by {reader}, which has not waited for {writer}")
            }
            Cause::Unfenced { buffer, index, writer, reader } => {
                write!(f, "{buffer}{index:?} is read by {reader}, but {writer} wrote it with no `fence async` behind")
            }
            Cause::UnfinishedStore { thread } => {
                write!(f, "{thread} ends without `wait store 0` behind its last tensor_store")
            }
            Cause::ForeignElement { buffer, index, thread } => {
                write!(f, "{thread} touches {buffer}{index:?}, which another thread holds")
            }
            Cause::EndedBlock { thread, other } => write!(f, "{thread} {other}, with no `barrier cluster` behind"),
            Cause::Misuse(detail) => f.write_str(detail),
            Cause::BarrierOutsideBlock => f.write_str("only the threads of a block can wait for each other"),
            Cause::UnwrittenOutput { buffer, index } => {
                write!(f, "the kernel ends without having written {buffer}{index:?}")
            }
            Cause::DivisionByZero => f.write_str("an integer is divided by zero"),
            Cause::Input { buffer, detail } => write!(f, "parameter {buffer}: {detail}"),
            Cause::Malformed(detail) => f.write_str(detail),
            Cause::TooLarge { elements } => write!(f, "the buffers have {elements} elements in all"),
            Cause::StepLimit => f.write_str("the kernel did not end within the allowed number of loop iterations"),
        }
    }
}

/// Where in the kernel it went wrong.
#[derive(Clone, PartialEq, Debug)]
pub struct At {
    /// The statement, first line only.
    pub statement: String,
    /// Loops around it, outermost first, with the values of their variables.
    pub loops: Vec<(String, i64)>,
}

/// A place in one line.
pub(super) fn position(at: &At) -> String {
    let loops: Vec<String> = at.loops.iter().map(|(n, v)| format!("{n} = {v}")).collect();
    if loops.is_empty() {
        format!("`{}`", at.statement)
    } else {
        format!("`{}` with {}", at.statement, loops.join(", "))
    }
}

/// A report of the interpreter.
#[derive(Clone, PartialEq, Debug)]
pub struct InterpError {
    /// What.
    pub cause: Cause,
    /// Where, if it belongs to a statement. Boxed to keep `Result`s small.
    pub at: Option<Box<At>>,
}

impl InterpError {
    /// A report about the kernel as a whole.
    pub(super) fn whole(cause: Cause) -> InterpError {
        InterpError { cause, at: None }
    }

    /// A report that the kernel means nothing.
    pub(super) fn malformed(detail: impl Into<String>) -> InterpError {
        InterpError::whole(Cause::Malformed(detail.into()))
    }
}

impl fmt::Display for InterpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        if let Some(at) = &self.at {
            write!(f, "; at `{}`", at.statement)?;
            if !at.loops.is_empty() {
                let loops: Vec<String> = at.loops.iter().map(|(n, v)| format!("{n} = {v}")).collect();
                write!(f, " with {}", loops.join(", "))?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for InterpError {}
