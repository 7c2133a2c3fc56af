//! The interpreter: runs any kernel, at any stage of scheduling or lowering, and says what is wrong with it.
//!
//! ```
//! use kernel_gen::interp::{self, Mode};
//! use kernel_gen::ir::{builder::KernelBuilder, Access, DType, Expr};
//! let mut b = KernelBuilder::new("double");
//! let x = b.param("x", DType::F32, &[3], Access::Read);
//! let y = b.param("y", DType::F32, &[3], Access::Write);
//! b.for_("i", 3, |b, i| b.store(y, [i.into()], Expr::load(x, vec![i.into()]) * Expr::f32(2.0)));
//! let inputs = [("x".to_string(), vec![1.0, 2.0, 3.0])].into();
//! let outputs = interp::run(&b.finish(), &inputs, Mode::F64).unwrap();
//! assert_eq!(outputs["y"], [2.0, 4.0, 6.0]);
//! ```
//!
//! # What runs how
//! * A kernel is compiled once into a flat program over integer and floating slots ([`Program`]); index
//!   expressions become linear forms, and bounds that hold for all iterations are not checked again.
//! * Outermost `grid` and `thread` loops start a *launch*. Its grid and block extents are the maxima over all
//!   loops of each axis below; every thread of every block runs the launch's statements, and at a `grid` or
//!   `thread` loop executes the body for its own index if that is less than the extent. Statements outside the
//!   loops of an axis are therefore run by all indices of that axis, as on the hardware.
//! * The threads of a block run one after the other, each to its next barrier.
//! * With statements that only a GPU has ([`crate::ir::gpu`]), the threads of a whole cluster run like that, each to where
//!   it has to wait. What a warp or a warpgroup does together happens once all of its threads have come to it.
//!   Asynchronous copies and products take effect at once, but whoever touches their elements without having waited for
//!   them is reported: what is ordered before what is known for each actor, so the reports do not depend on the order
//!   in which the threads are run. `set_max_registers` and `dependency` have no effect.
//! * `parallel` iterations run one after the other, but count as concurrent (two levels of nesting do).
//! * `vectorized` iterations run one after the other; that this equals lockstep is checked: no lane may touch what
//!   another lane wrote. Vector expressions are computed lane by lane, all values before the first store.
//! * `vthread` iterations run one after the other.
//!
//! # What is reported
//! The first [`Cause`] met, with buffer, index, statement and loop values: accesses out of bounds, reads of memory
//! that was never written, races between concurrent iterations on global or shared memory, lane conflicts,
//! divergent barriers, outputs left unwritten and division by zero; and with statements that only a GPU has deadlocks with
//! what each thread waits for, missing waits, missing fences, misused barriers, stores that a block does not wait for,
//! and elements of a fragment that another thread holds. Write parameters and allocations start
//! unwritten; private memory (`local`, `register`) is fresh in each parallel iteration and each thread, and shared
//! memory is fresh in each block.
//!
//! Buffers are addressed by their logical indices; strides have no influence here (the verifier demands that they
//! do not overlap). Inputs and outputs are row-major.

mod arithmetic;
mod between;
mod cluster;
mod collective;
mod compile;
mod compile_gpu;
mod data;
mod error;
mod expr;
mod gpu;
mod launch;
mod layout;
mod machine;
mod memory;
mod program;
mod round;
mod shadow;

pub use data::{Mode, Values, max_difference, seeded_inputs};
pub use error::{At, Cause, InterpError};
pub use program::Program;

use crate::ir::Kernel;
/// Loop iterations after which [`run`] gives up; a kernel of that size is not meant for an interpreter.
pub const DEFAULT_STEP_LIMIT: u64 = 20_000_000_000;

impl<'k> Program<'k> {
    /// Compiles a kernel; fails only when it is malformed.
    pub fn compile(kernel: &'k Kernel, mode: Mode) -> Result<Program<'k>, InterpError> {
        compile::compile(kernel, mode)
    }

    /// Runs it; see [`run`]. Gives up after `step_limit` loop iterations.
    pub fn run(&self, inputs: &Values, step_limit: u64) -> Result<Values, InterpError> {
        machine::run(self, inputs, step_limit)
    }
}

/// Runs a kernel on the values of its `read` and `readwrite` parameters and gives those of its `write` and
/// `readwrite` ones.
pub fn run(kernel: &Kernel, inputs: &Values, mode: Mode) -> Result<Values, InterpError> {
    Program::compile(kernel, mode)?.run(inputs, DEFAULT_STEP_LIMIT)
}
