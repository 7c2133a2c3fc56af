//! Why a primitive refused.

use crate::ir::{BufferId, Kernel, LoopKind, VarId};
use std::fmt::{self, Display, Formatter};

/// A primitive refused; the kernel is as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleError {
    /// The primitive, by the name of its function.
    pub primitive: &'static str,
    /// The loop or stage it was asked to work on, as ``loop `co` `` or ``stage `acc` ``.
    pub subject: String,
    /// What stood in the way.
    pub reason: Reason,
}

/// What stood in the way. The text of each says what to do instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// No loop has that variable.
    UnknownLoop,
    /// No statement writes the buffer.
    NotAStage,
    /// The stage is written by several statements.
    SeveralWriters(usize),
    /// The loop's length is not a multiple of the factor.
    NotDividing {
        /// Iterations of the loop.
        extent: i64,
        /// The factor asked for.
        factor: i64,
    },
    /// A number or list is outside of what the primitive takes.
    BadArgument {
        /// What was given.
        given: String,
        /// What is allowed.
        allowed: String,
    },
    /// A loop must directly hold another, and does not.
    NotNested {
        /// The loop that should be inside.
        inner: String,
        /// What stands between.
        because: String,
    },
    /// An iteration uses what another one wrote.
    Dependence {
        /// The buffer they meet in.
        buffer: String,
    },
    /// The loop carries a reduction.
    ReduceLoop {
        /// The buffer that is reduced into.
        buffer: String,
    },
    /// The loop's iterations already have a relation that forbids this.
    BoundLoop(LoopKind),
    /// Something inside or around the loop forbids its new kind.
    Misplaced(String),
    /// The buffer belongs to the caller.
    Parameter,
    /// The stage's loops or indices are not of the form that the primitive can follow.
    NotPlain(String),
    /// The buffer is used where the primitive may not assume anything.
    UsedOutside {
        /// The stage that uses it.
        by: String,
        /// The loop that should hold all uses.
        of_loop: String,
    },
    /// Something the stage reads changes between its old and its new place.
    Overwritten {
        /// What changes.
        buffer: String,
    },
    /// A copy would read elements that may never have been written.
    PartlyWritten,
    /// The part of the buffer that is needed could not be found.
    NoFootprint(String),
    /// The buffer's scope does not fit its place.
    Scope(String),
    /// The nest does not compute what the intrinsic computes.
    NotTheIntrinsic {
        /// The intrinsic.
        intrinsic: String,
        /// Which part differs.
        why: String,
    },
    /// The declaration of an intrinsic contradicts itself.
    BadIntrinsic(String),
}

impl std::error::Error for ScheduleError {}

impl Display for ScheduleError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: {}", self.primitive, self.subject, self.reason)
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Reason::UnknownLoop => f.write_str(
                "the kernel has no such loop; it may have been split or fused away: use what that step returned, or ask \
                 `loops_of` again",
            ),
            Reason::NotAStage => f.write_str(
                "no statement writes it; a stage is named by a buffer that the kernel writes, and an inlined stage is \
                 one no longer",
            ),
            Reason::SeveralWriters(n) => write!(
                f,
                "{n} statements write it; do this before the steps that copy the statement (Tail::Cut, peel, pipeline, \
                 rfactor)"
            ),
            Reason::NotDividing { extent, factor } => {
                let divisors: Vec<String> =
                    (1..=*extent).filter(|d| extent % d == 0).take(12).map(|d| d.to_string()).collect();
                write!(
                    f,
                    "its {extent} iterations are not a multiple of {factor}; use a divisor ({}), or say what to do with \
                     the rest: Tail::Guard, Tail::Cut or Tail::Shift",
                    divisors.join(", ")
                )
            }
            Reason::BadArgument { given, allowed } => write!(f, "{given} was given; allowed is {allowed}"),
            Reason::NotNested { inner, because } => write!(
                f,
                "loop `{inner}` is not perfectly nested in it: {because}; reorder or fuse before attaching stages in \
                 between"
            ),
            Reason::Dependence { buffer } => write!(
                f,
                "its iterations depend on each other through `{buffer}`; keep it serial, or give each iteration a part \
                 of `{buffer}` of its own (cache_write_at, compute_at)"
            ),
            Reason::ReduceLoop { buffer } => write!(
                f,
                "it carries the reduction into `{buffer}`; use rfactor to make its iterations independent, or pick a \
                 spatial loop"
            ),
            Reason::BoundLoop(kind) => {
                write!(f, "the loop is {} already; do this before giving the loop a kind", kind.name())
            }
            Reason::Misplaced(why) => f.write_str(why),
            Reason::Parameter => f.write_str(
                "it is a parameter, whose place and shape the caller knows; use cache_read, cache_write or \
                 transform_layout",
            ),
            Reason::NotPlain(why) => write!(f, "{why}; do this before other steps on the stage's loops"),
            Reason::UsedOutside { by, of_loop } => write!(
                f,
                "`{by}` uses it outside of loop `{of_loop}`; pick a loop around all uses, or move `{by}` first"
            ),
            Reason::Overwritten { buffer } => {
                write!(f, "`{buffer}`, which it reads, is written again before the new place; move less far")
            }
            Reason::PartlyWritten => f.write_str(
                "some of its elements may never be written, and a copy would read them; cache it before guards, peeling \
                 or a layout whose blocks do not divide",
            ),
            Reason::NoFootprint(why) => write!(f, "{why}; attach further out, or split with a factor that divides"),
            Reason::Scope(why) => f.write_str(why),
            Reason::NotTheIntrinsic { intrinsic, why } => write!(f, "the nest is not `{intrinsic}`: {why}"),
            Reason::BadIntrinsic(why) => f.write_str(why),
        }
    }
}

/// ``loop `co` ``; an id that the kernel does not know is shown as a number.
pub(super) fn loop_name(k: &Kernel, v: VarId) -> String {
    match k.vars.get(v.0 as usize) {
        Some(var) => format!("loop `{}`", var.name),
        None => format!("loop #{}", v.0),
    }
}

/// ``stage `acc` ``.
pub(super) fn stage_name(k: &Kernel, b: BufferId) -> String {
    match k.buffers.get(b.0 as usize) {
        Some(buffer) => format!("stage `{}`", buffer.name),
        None => format!("stage #{}", b.0),
    }
}

/// A refusal about a loop.
pub(super) fn refuse_loop(k: &Kernel, primitive: &'static str, v: VarId, reason: Reason) -> ScheduleError {
    ScheduleError { primitive, subject: loop_name(k, v), reason }
}

/// A refusal about a stage.
pub(super) fn refuse_stage(k: &Kernel, primitive: &'static str, b: BufferId, reason: Reason) -> ScheduleError {
    ScheduleError { primitive, subject: stage_name(k, b), reason }
}
