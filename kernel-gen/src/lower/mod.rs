//! From a scheduled kernel to one that an emitter can print statement by statement.
//!
//! Lowering is the list [`PASSES`]: each entry is a plain function from kernel to kernel that keeps the kernel's
//! meaning (`interpret(before) == interpret(after)`) and establishes one property that later rooms rely on:
//!
//! | pass | afterwards |
//! |---|---|
//! | `narrow` | tensors have as many units (images, rows) as the caller says, where that is asked for |
//! | `simplify` | index arithmetic is in normal form; conditions that the ranges decide are gone |
//! | `decompose_reduction` | every [`crate::ir::Stmt::Reduce`] is a pure update: its `over` list is empty |
//! | `expand_transposes` | transpositions of tiles are loop nests where the target has no shuffles for them |
//! | `inject_vthread` | there are no vthread loops; what they made private has a dimension for them |
//! | `distribute_fragments` | loops over fragments visit each thread's own elements, in pairs; not before compute capability 7.5 |
//! | `hoist_shared` | shared buffers are allocated at the top of their launch |
//! | `partition_loops` | guards of tails are out of the hot loops, and tails have smaller constant extents |
//! | `transpose_copies` | stores do not read a private tile across its rows: the tile is transposed in registers first |
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
pub mod narrow;
pub mod overlap_launches;
pub mod partition_loops;
mod pass;
mod passes;
pub mod simplify;
pub mod transpose_copies;
pub mod unroll;
pub mod vectorize;
mod work;

pub use pass::{LowerError, LowerOptions, Pass, Units};
pub use passes::{Lowered, PASSES, Snapshot, lower};
pub use work::Work;

use crate::analysis::verify::{Fault, verify};
use crate::ir::Kernel;
use crate::target::Target;
use std::fmt;

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
    lower_units(kernel, target, None)
}

/// The same; with `units`, the caller of the code says how many of them some tensors have.
///
/// # Errors
///
/// Those of [`lower_for`].
pub fn lower_units(kernel: Kernel, target: &Target, units: Option<Units>) -> Result<Lowered, Unlowered> {
    let limits = target.limits();
    let verified = match target.cuda() {
        Some(_) => insert_barriers::insert_and_verify(kernel, &limits),
        None => verify(kernel, &limits),
    };
    let options = LowerOptions { units, ..LowerOptions::of(target) };
    lower(verified.map_err(Unlowered::Faults)?, &options).map_err(Unlowered::Pass)
}
