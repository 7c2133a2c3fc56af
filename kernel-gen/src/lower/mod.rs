//! From a scheduled kernel to one that an emitter can print statement by statement.
//!
//! Lowering is the list [`PASSES`]: each entry is a plain function from kernel to kernel that keeps the kernel's
//! meaning (`interpret(before) == interpret(after)`) and establishes one property that later rooms rely on:
//!
//! | pass | afterwards |
//! |---|---|
//! | `simplify` | index arithmetic is in normal form; conditions that the ranges decide are gone |
//! | `decompose_reduction` | every [`crate::ir::Stmt::Reduce`] is a pure update: its `over` list is empty |
//! | `expand_transposes` | transpositions of tiles are loop nests where the target has no shuffles for them |
//! | `inject_vthread` | there are no vthread loops; what they made private has a dimension for them |
//! | `distribute_fragments` | loops over fragments visit each thread's own elements, in pairs; not before compute capability 7.5 |
//! | `hoist_shared` | shared buffers are allocated at the top of their launch |
//! | `partition_loops` | guards of tails are out of the hot loops, and tails have smaller constant extents |
//! | `fold_storage` | private buffers are no larger than what is touched of them |
//! | `insert_barriers` | threads of a block wait for each other between writes and reads of shared buffers |
//! | `vectorize` | there are no vectorised loops; their statements hold vector expressions |
//! | `unroll` | register buffers have constant indices; remaining unrolled loops are advice to the C compiler |
//!
//! `KERNEL_GEN_DUMP=<pass>` (or `all`) prints the kernel to standard error after that pass, if the pass changed it.

pub mod copy;
pub mod decompose_reduction;
pub mod distribute_fragments;
pub mod expand_transposes;
pub mod fold_storage;
pub mod hoist_shared;
pub mod inject_vthread;
pub mod insert_barriers;
pub mod overlap_launches;
pub mod partition_loops;
pub mod simplify;
pub mod transpose_copies;
pub mod unroll;
pub mod vectorize;

use crate::analysis::verify::{Depth, Fault, Verified, verify};
use crate::ir::Kernel;
use crate::target::Target;
use std::fmt;

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

/// One step of lowering.
pub struct Pass {
    /// Its name, which is also its file.
    pub name: &'static str,
    /// What it does.
    pub run: fn(Kernel, &LowerOptions) -> Result<Kernel, LowerError>,
}

/// The passes, in the order in which they run. `simplify` runs again where a pass leaves arithmetic to fold.
pub const PASSES: &[Pass] = &[
    Pass { name: "simplify", run: simplify::run },
    Pass { name: "decompose_reduction", run: decompose_reduction::run },
    Pass { name: "expand_transposes", run: expand_transposes::run },
    Pass { name: "inject_vthread", run: inject_vthread::run },
    Pass { name: "distribute_fragments", run: distribute_fragments::run },
    Pass { name: "hoist_shared", run: hoist_shared::run },
    Pass { name: "partition_loops", run: partition_loops::run },
    Pass { name: "transpose_copies", run: transpose_copies::run },
    Pass { name: "fold_storage", run: fold_storage::run },
    Pass { name: "insert_barriers", run: insert_barriers::run },
    Pass { name: "vectorize", run: vectorize::run },
    Pass { name: "unroll", run: unroll::run },
    Pass { name: "simplify", run: simplify::run },
];

/// The kernel after one pass.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The pass.
    pub pass: &'static str,
    /// Whether it changed anything.
    pub changed: bool,
    /// What it left.
    pub kernel: Kernel,
}

/// A kernel that went through all passes. Emitters take nothing else.
#[derive(Clone, Debug)]
pub struct Lowered {
    kernel: Kernel,
    verified: Verified,
    options: LowerOptions,
}

impl Lowered {
    /// The kernel to emit.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// How deep the verifier looked before the first pass.
    pub fn depth(&self) -> &Depth {
        self.verified.depth()
    }

    /// The kernel after each pass, in order. The passes run again for it: a build does without copies that nobody reads.
    pub fn trace(&self) -> Vec<Snapshot> {
        let mut trace = vec![];
        let mut before = Kernel::clone(&self.verified);
        let watch = |pass: &'static str, after: &Kernel| {
            let changed = *after != before;
            before = after.clone();
            trace.push(Snapshot { pass, changed, kernel: after.clone() });
        };
        // They ran before, so none of them refuses the kernel.
        let _ = passes(Kernel::clone(&self.verified), &self.options, watch);
        trace
    }
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
        }
    }
}

impl std::error::Error for LowerError {}

/// Why a template's kernel cannot be brought to a target.
#[derive(Clone, Debug)]
pub enum Unlowered {
    /// It is not valid there: all that the verifier found.
    Faults(Vec<Fault>),
    /// A pass refused it.
    Pass(LowerError),
}

impl fmt::Display for Unlowered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unlowered::Faults(faults) => {
                for (i, fault) in faults.iter().enumerate() {
                    write!(f, "{}{fault}", if i == 0 { "" } else { "\n" })?;
                }
                Ok(())
            }
            Unlowered::Pass(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unlowered {}

/// The kernel with the barriers that the schedules of a GPU leave out; for a CPU, as it is.
pub fn with_barriers(kernel: Kernel, target: &Target) -> Kernel {
    if target.cuda().is_some() { insert_barriers::insert_barriers(kernel) } else { kernel }
}

/// Brings a kernel as a template leaves it to a target: puts in the barriers, verifies, and runs all passes. Every path
/// from a config to emitted code, a build's and a tuner's, is this one.
///
/// # Errors
///
/// What the verifier found, or what a pass refused.
pub fn lower_for(kernel: Kernel, target: &Target) -> Result<Lowered, Unlowered> {
    let limits = target.limits();
    let verified = match target.cuda() {
        Some(_) => insert_barriers::insert_and_verify(kernel, &limits),
        None => verify(kernel, &limits),
    };
    lower(verified.map_err(Unlowered::Faults)?, &LowerOptions::of(target)).map_err(Unlowered::Pass)
}

/// Runs all passes over a kernel that the verifier has passed.
pub fn lower(verified: Verified, options: &LowerOptions) -> Result<Lowered, LowerError> {
    let kernel = Kernel::clone(&verified);
    let kernel = match std::env::var("KERNEL_GEN_DUMP") {
        Err(_) => passes(kernel, options, |_, _| {})?,
        Ok(wanted) => {
            let mut before = kernel.clone();
            passes(kernel, options, |pass, after| {
                if *after != before && (wanted == "all" || wanted == pass) {
                    eprintln!("--- after {pass}\n{after}");
                }
                before = after.clone();
            })?
        }
    };
    Ok(Lowered { kernel, verified, options: options.clone() })
}

/// Runs all passes; `watch` sees the kernel after each.
fn passes(
    kernel: Kernel,
    options: &LowerOptions,
    mut watch: impl FnMut(&'static str, &Kernel),
) -> Result<Kernel, LowerError> {
    PASSES.iter().try_fold(kernel, |kernel, pass| {
        let after = (pass.run)(kernel, options)?;
        watch(pass.name, &after);
        Ok(after)
    })
}
