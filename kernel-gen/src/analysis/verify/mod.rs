//! The gate before lowering and emission: what must be true of a kernel.
//!
//! [`verify`] gives [`Verified`], which everything behind it demands. It proves each rule for all loop values, or
//! reports a [`Fault`] that names the kind, the place, the cause and the help. Where a proof by ranges and linear
//! forms fails, the loop values that take part are enumerated, up to a budget; what can be shown neither way is a
//! fault too. The interpreter checks the same rules on one run, so that each checks the other.
//!
//! # Rules
//!
//! **Structure** (`structure`, `types`)
//! * Ids are in their tables; names of variables and buffers are unique.
//! * A variable is bound once, by a loop or a `let`, and used below its binding only. Loop variables are `i64`.
//! * Extents of loops are not negative, those of buffers positive, and the strides of a buffer do not overlap.
//! * A buffer is a parameter or is allocated once, and is used behind its allocation, within its block.
//! * Parameters are `global`; a `read` parameter is not written.
//! * Each access has one index a dimension, of integer type, at most one of them a vector.
//! * Integer arithmetic cannot overflow, whatever the values of loop variables.
//! * Operands agree in type and lanes; conditions are truth values; what is stored has the buffer's class of type.
//! * Tiles of `transpose` are matrices of floats that fit each other.
//! * `grid` loops are not inside `thread` or `parallel` loops, `parallel` loops not inside `grid`, `thread` or
//!   `vectorized` ones; a `vectorized` loop holds no loop over hardware indices, no barrier and no other vectorized loop.
//!
//! **Statements that only a GPU has** (`gpu`; [`crate::ir::gpu`])
//! * They stand inside a launch, and not in a vectorized loop; `fragment.col` loops stand inside `fragment.row` ones.
//! * Fragments are matrices of floats, or of integers of 8 or 32 bits, mbarriers are `i64[n]`. Operands have the scopes that the
//!   statement is for.
//! * `mma.warp` multiplies f16 into f32 or f16, bf16 into f32, i8 and u8 into i32, rows in multiples of 16, columns of 8, over a
//!   multiple of 32 bytes; `mma.warpgroup` multiplies into f32 or, bytes, into i32, 64 rows, 8 to 256 columns in steps of 8 (of
//!   bytes beyond 32 of 16), over a multiple of 32 bytes, from rows of at most the swizzle's bytes. Operands of bytes have the
//!   reduction as their fast dimension.
//! * `copy_async` and `store_at` move 4, 8 or 16 neighbouring bytes, aligned to their number.
//! * `move_rows` fills 16-bit fragments of a warp with multiples of 16 rows by 32 columns of a tensor whose rows are whole,
//!   aligned pieces of 16 bytes; `split` makes 1 or 2 parts in `f32`, up to 3 in bf16, of `f32`.
//! * A box of the copy engine belongs to a parameter of at most 5 dimensions with strides of multiples of 16 bytes; it has
//!   at most 256 elements along each dimension, steps of at most 8, and rows of a multiple of 16 bytes, at most the
//!   swizzle's. Its place in shared memory has no gaps and is aligned to 128 bytes, or to 8 rows of the swizzle.
//! * `set_max_registers` takes a multiple of 8 in 24..=256, a named barrier has a number in 1..=15 and whole warps.
//!
//! **Bounds** (`bounds`): every index of every access is in `0..extent`, assuming the conditions of the `if`s, `select`s,
//! `&&`s and `||`s above it. What the copy engine and `move_rows` read, and the former writes, of a tensor may be
//! outside: that part is left out.
//! A loop whose last iteration alone reaches past the end lacks the guard of its tail.
//!
//! **Division** (`access`): the divisor of an integer division or remainder is positive.
//!
//! **Scopes** (`scopes`)
//! * `global` memory is not allocated inside concurrent loops: all iterations would share it.
//! * `shared` memory, fragments and mbarriers are allocated and used inside a launch (below a `grid` or `thread` loop).
//! * Private memory (`local`, `register`) is not carried into or out of a `parallel` loop or a launch.
//! * `register` arrays, and tiles of fragments, are indexed by constants and the variables of unrolled and vectorised
//!   loops only. Mbarriers are neither read nor written.
//!
//! **Threads** (`barriers`, `races`)
//! * A barrier is inside a launch, and all threads reach it: no condition on a thread's index or on memory decides
//!   about it, nor a thread loop that is shorter than the launch's extent of its axis.
//! * Two threads of a block touch one element of memory, one of them writing, only with a barrier in between, also
//!   from one iteration of a serial loop to the next.
//! * Two iterations of a parallel loop, or two blocks of a grid, never touch one element, one of them writing.
//! * Two lanes of a vectorised loop never touch one element, one of them writing.
//!
//! **Protocols** (`protocol`), in launches with statements that only a GPU has ([`crate::ir::gpu`]), in place of the
//! rule on threads of a block; they are run, for one cluster of each kind, and [`Depth`] says which and how far
//! * What is written by one thread, one engine or one unit is touched by another only behind a barrier or a wait; an
//!   asynchronous copy or product is waited for, also before its source or destination is used again.
//! * Each wait is answered: no thread waits for ever. An mbarrier is made once, and used behind a barrier.
//! * What the copy engine and the tensor cores read of shared memory was fenced, if threads wrote it.
//! * No thread ends while the copy engine reads what it stores, and no block of a cluster before it knows of what others
//!   have done to its memory.
//! * Collective statements are reached by all threads of their unit, with the same operands.
//! * A thread touches the elements of a fragment that it holds.
//!
//! **Values** (`coverage`, `initialised`, `reductions`)
//! * Every element of a `write` parameter is written. Every element that is read of memory that nobody gives was written
//!   before, whatever the loop values are.
//! * A reduction is inside each loop of its `over` list, its destination mentions none of them, and it starts from the
//!   operator's identity. No other loop that the value depends on repeats it on the same element.
//!
//! **Target** ([`Limits`]; `resources`, `alignment`)
//! * Vector accesses of global and shared memory are naturally aligned where the target demands it.
//! * Shared memory, threads of a block, extents of block, grid and cluster and registers of a thread stay within the
//!   limits. Mbarriers and the alignment of swizzled buffers count as shared memory, fragments as registers.
//!
//! **Tensor cores before compute capability 7.5** (`opaque`)
//! * No loop visits a fragment's elements, and no statement puts single elements there. A `move` does not convert.
//! * Tiles of fragments are whole numbers of 16 x 16, operands are f16. In memory, rows of a tile lie side by side and are
//!   aligned to 32 bytes, rows of f16 sums to 16.

mod access;
mod alignment;
mod barriers;
mod bounds;
mod coverage;
mod depth;
mod enumerate;
mod equal;
mod facts;
mod fault;
mod gpu;
mod initialised;
mod limits;
mod mixed_radix;
mod opaque;
mod partition;
mod protocol;
mod races;
mod reach;
mod reductions;
mod resources;
mod scopes;
mod structure;
mod types;
mod vector_eval;

pub use depth::{Depth, LaunchDepth, ReadDepth};
pub(crate) use enumerate::eval_by;
pub use fault::{Fault, FaultKind};
pub use limits::Limits;
pub(crate) use races::never_meet;
#[cfg(feature = "interp")]
pub(crate) use structure::ids as unknown_ids;

use crate::ir::Kernel;
use fault::MOST_FAULTS;
use std::fmt;
use std::ops::Deref;

/// A kernel that [`verify`] has passed, and how deep it was looked at.
#[derive(Clone, PartialEq, Debug)]
pub struct Verified {
    kernel: Kernel,
    depth: Depth,
}

impl Verified {
    /// The kernel, to change it; it must pass again then.
    pub fn into_inner(self) -> Kernel {
        self.kernel
    }

    /// What of the rules was shown by running a part of the kernel, and which. All else is proven for all loop values.
    pub fn depth(&self) -> &Depth {
        &self.depth
    }
}

impl Deref for Verified {
    type Target = Kernel;

    fn deref(&self) -> &Kernel {
        &self.kernel
    }
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernel.fmt(f)
    }
}

/// Checks every rule of the module's text.
pub fn verify(kernel: Kernel, limits: &Limits) -> Result<Verified, Vec<Fault>> {
    let (faults, depth) = inspect(&kernel, limits);
    if faults.is_empty() { Ok(Verified { kernel, depth }) } else { Err(faults) }
}

/// The faults of a kernel, in the order of its text for each rule; none means that it passes.
pub fn check(kernel: &Kernel, limits: &Limits) -> Vec<Fault> {
    inspect(kernel, limits).0
}

/// Whether the rules under "Protocols" hold.
pub(crate) fn keeps_protocols(kernel: &Kernel) -> bool {
    let mut faults = vec![];
    protocol::check(kernel, &mut faults);
    faults.is_empty()
}

/// The faults, and how deep was looked for them.
fn inspect(kernel: &Kernel, limits: &Limits) -> (Vec<Fault>, Depth) {
    let mut depth = Depth::default();
    // The other rules take the structure for granted.
    let mut faults = structure::check(kernel);
    if !faults.is_empty() {
        return (faults, depth);
    }
    let sites = access::collect(kernel, &mut faults);
    bounds::check(kernel, &sites, &mut faults);
    scopes::check(kernel, &sites, &mut faults);
    barriers::check(kernel, &mut faults);
    reductions::check(kernel, &mut faults);
    resources::check(kernel, limits, &mut faults);
    alignment::check(kernel, limits, &sites, &mut faults);
    gpu::alignment(kernel, &sites, &mut faults);
    opaque::check(kernel, limits, &sites, &mut faults);
    // Elements out of bounds or in the wrong memory would only be reported again.
    if faults.is_empty() {
        races::check(kernel, &sites, &mut faults);
        depth.launches = protocol::check(kernel, &mut faults);
        coverage::check(kernel, &sites, &mut faults);
        initialised::check(kernel, &sites, &mut depth, &mut faults);
    }
    faults.truncate(MOST_FAULTS);
    (faults, depth)
}
