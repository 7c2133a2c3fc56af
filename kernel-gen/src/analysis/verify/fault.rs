//! What is wrong with a kernel.

use crate::ir::{For, Kernel, Stmt, print};
use std::fmt;

/// Faults after which checking stops: more of them help nobody.
pub(super) const MOST_FAULTS: usize = 20;

/// The rule that is broken; see [`super`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FaultKind {
    /// The tree does not fit together: ids, names, scoping of variables, shapes.
    Malformed,
    /// Operands of an expression or statement do not agree.
    TypeMismatch,
    /// Loops nest in a way that has no meaning.
    LoopNesting,
    /// A read outside a buffer's shape.
    OutOfBoundsRead,
    /// A write outside a buffer's shape.
    OutOfBoundsWrite,
    /// The last iteration of a split loop reaches past the end.
    UnguardedTail,
    /// An integer division whose divisor may be zero or negative.
    DivisionByZero,
    /// Memory of a scope where that scope has no meaning or another one.
    WrongScope,
    /// A register array with an index that is not constant after unrolling.
    RegisterIndexedAtRunTime,
    /// A barrier that not all threads reach.
    DivergentBarrier,
    /// Threads exchange data with no barrier in between.
    MissingBarrier,
    /// Concurrent iterations write one element, or one reads what another writes.
    WriteRace,
    /// Lanes of a vectorised loop depend on each other.
    LaneConflict,
    /// An element of an output is never written.
    UnwrittenOutput,
    /// A buffer is read that nothing wrote.
    UnwrittenRead,
    /// The copy engine or the tensor cores read what threads wrote with no fence in between.
    MissingFence,
    /// Threads wait for what never comes.
    Deadlock,
    /// A barrier is used in a way that it is not made for.
    BarrierMisuse,
    /// A thread ends while the copy engine may still read what it stores.
    UnfinishedStore,
    /// Memory of a block is reached from another one that it does not wait for before it ends.
    EndedBlock,
    /// A thread touches an element of a fragment that another one holds.
    ForeignElement,
    /// A reduction starts from something else than its operator's identity, or in the wrong iterations.
    WrongReductionInit,
    /// A vector access that the target would fault on.
    MisalignedVector,
    /// More shared memory than the target has.
    SharedMemoryLimit,
    /// More threads, blocks or registers than the target has, or loops it does not have at all.
    ResourceLimit,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [FaultKind; 25] = [
        FaultKind::Malformed,
        FaultKind::TypeMismatch,
        FaultKind::LoopNesting,
        FaultKind::OutOfBoundsRead,
        FaultKind::OutOfBoundsWrite,
        FaultKind::UnguardedTail,
        FaultKind::DivisionByZero,
        FaultKind::WrongScope,
        FaultKind::RegisterIndexedAtRunTime,
        FaultKind::DivergentBarrier,
        FaultKind::MissingBarrier,
        FaultKind::WriteRace,
        FaultKind::LaneConflict,
        FaultKind::UnwrittenOutput,
        FaultKind::UnwrittenRead,
        FaultKind::MissingFence,
        FaultKind::Deadlock,
        FaultKind::BarrierMisuse,
        FaultKind::UnfinishedStore,
        FaultKind::EndedBlock,
        FaultKind::ForeignElement,
        FaultKind::WrongReductionInit,
        FaultKind::MisalignedVector,
        FaultKind::SharedMemoryLimit,
        FaultKind::ResourceLimit,
    ];

    /// A short name.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Malformed => "malformed kernel",
            FaultKind::TypeMismatch => "type mismatch",
            FaultKind::LoopNesting => "loop nesting",
            FaultKind::OutOfBoundsRead => "out-of-bounds read",
            FaultKind::OutOfBoundsWrite => "out-of-bounds write",
            FaultKind::UnguardedTail => "unguarded tail",
            FaultKind::DivisionByZero => "division by zero",
            FaultKind::WrongScope => "wrong scope",
            FaultKind::RegisterIndexedAtRunTime => "register array indexed at run time",
            FaultKind::DivergentBarrier => "divergent barrier",
            FaultKind::MissingBarrier => "missing barrier",
            FaultKind::WriteRace => "write race",
            FaultKind::LaneConflict => "lane conflict",
            FaultKind::UnwrittenOutput => "unwritten output",
            FaultKind::UnwrittenRead => "read of unwritten memory",
            FaultKind::MissingFence => "missing fence",
            FaultKind::Deadlock => "deadlock",
            FaultKind::BarrierMisuse => "barrier misuse",
            FaultKind::UnfinishedStore => "unfinished store",
            FaultKind::EndedBlock => "reach into an ended block",
            FaultKind::ForeignElement => "fragment element of another thread",
            FaultKind::WrongReductionInit => "wrong reduction init",
            FaultKind::MisalignedVector => "misaligned vector",
            FaultKind::SharedMemoryLimit => "shared memory over the limit",
            FaultKind::ResourceLimit => "resource limit",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One thing that is wrong with a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The rule that is broken.
    pub kind: FaultKind,
    /// Names of the loops around the place, outermost first.
    pub loops: Vec<String>,
    /// The statement's first line; empty where the fault is the whole kernel's.
    pub statement: String,
    /// What is wrong, with names and numbers.
    pub cause: String,
    /// What to do about it.
    pub help: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.cause)?;
        if !self.statement.is_empty() {
            write!(f, ", at `{}`", self.statement)?;
        }
        if !self.loops.is_empty() {
            write!(f, " in {}", self.loops.join(", "))?;
        }
        write!(f, "; {}", self.help)
    }
}

impl std::error::Error for Fault {}

impl Fault {
    /// A fault at a statement inside loops.
    pub(super) fn at(
        kernel: &Kernel,
        loops: &[&For],
        stmt: &Stmt,
        kind: FaultKind,
        cause: impl Into<String>,
        help: impl Into<String>,
    ) -> Fault {
        Fault {
            kind,
            loops: loops.iter().map(|l| kernel.var(l.var).name.clone()).collect(),
            statement: print::first_line(kernel, stmt),
            cause: cause.into(),
            help: help.into(),
        }
    }

    /// A fault of the kernel as a whole.
    pub(super) fn whole(kind: FaultKind, cause: impl Into<String>, help: impl Into<String>) -> Fault {
        Fault { kind, loops: vec![], statement: String::new(), cause: cause.into(), help: help.into() }
    }
}
