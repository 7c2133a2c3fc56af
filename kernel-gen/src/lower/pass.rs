//! What a pass is, what it is told, and why it may refuse.

use crate::ir::Kernel;
use crate::target::Target;
use std::fmt;

/// One step of lowering.
pub struct Pass {
    /// Its name, which is also its file.
    pub name: &'static str,
    /// What it does.
    pub run: fn(Kernel, &LowerOptions) -> Result<Kernel, LowerError>,
}

/// What lowering needs to know about where the kernel goes.
#[derive(Clone, Debug, PartialEq)]
pub struct LowerOptions {
    /// Vectorised loops longer than this become a serial loop of vectors.
    pub max_lanes: i64,
    /// Unrolling stops where one loop would exceed this many statements.
    pub max_unrolled_steps: i64,
    /// Loop partitioning stops where the kernel would exceed this many statements, counting unrolled ones as copied.
    pub max_partitioned_steps: i64,
    /// Whether the emitter transposes tiles by shuffles of vectors; false where loops are as good.
    pub shuffles: bool,
    /// Whether no thread knows which elements of a fragment it holds, so that a `move` of sums stays one instruction.
    pub opaque_fragments: bool,
    /// Present if the number of units in some tensors is to be the caller's to say.
    pub units: Option<Units>,
}

impl LowerOptions {
    /// For the C emitter.
    pub fn cpu() -> Self {
        LowerOptions {
            max_lanes: 64,
            max_unrolled_steps: 1024,
            max_partitioned_steps: 4096,
            shuffles: true,
            opaque_fragments: false,
            units: None,
        }
    }

    /// For the CUDA emitter, from compute capability 7.5 on.
    pub fn cuda() -> Self {
        LowerOptions {
            max_lanes: 8,
            max_unrolled_steps: 4096,
            max_partitioned_steps: 4096,
            shuffles: false,
            opaque_fragments: false,
            units: None,
        }
    }

    /// For the emitter of a target.
    pub fn of(target: &Target) -> Self {
        match target.cpu() {
            Some(_) => LowerOptions::cpu(),
            None => LowerOptions { opaque_fragments: target.has_opaque_fragments(), ..LowerOptions::cuda() },
        }
    }
}

/// What varies in size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Units {
    /// The most units, which the kernel is made for; at least 1.
    pub most: i64,
    /// Positions of the parameters whose units they are.
    pub params: Vec<usize>,
}

/// Why a kernel cannot be lowered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LowerError {
    /// A reduction names a reduce loop that does not enclose it.
    ReduceLoopMissing {
        /// The buffer that is reduced into.
        buffer: String,
        /// The loops that were not found.
        missing: Vec<String>,
    },
    /// A reduce loop runs its iterations at the same time.
    ConcurrentReduceLoop {
        /// The buffer that is reduced into.
        buffer: String,
        /// The loop.
        var: String,
        /// Its kind.
        kind: &'static str,
    },
    /// A tensor cannot be of as many units as the caller says.
    NotNarrow {
        /// The tensor.
        buffer: String,
        /// Why not.
        why: String,
    },
}

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LowerError::ReduceLoopMissing { buffer, missing } => write!(
                f,
                "the reduction into `{buffer}` runs over {}, which does not enclose it; keep reduce loops around their \
                 statement",
                missing.join(", ")
            ),
            LowerError::ConcurrentReduceLoop { buffer, var, kind } => write!(
                f,
                "the reduction into `{buffer}` runs over `{var}`, a {kind} loop: its iterations would race; apply rfactor \
                 first, or bind another loop"
            ),
            LowerError::NotNarrow { buffer, why } => write!(f, "the kernel wants all of `{buffer}`: {why}"),
        }
    }
}

impl std::error::Error for LowerError {}
