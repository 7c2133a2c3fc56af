//! What measurements teach: a model of a task's times that is fitted while it is tuned.
//!
//! [`Features`] turns configs of any template into numbers; [`Trees`] are boosted trees; a [`Surrogate`] is several of
//! them on top of the template's own prediction, so that it knows how sure it is; a [`Process`] says the same from far
//! fewer trials, at a cost that grows with their cube; [`Transfer`] is what the trials of other workloads say about a new
//! one.
//!
//! Nothing here is used to build kernels: it decides only what is tried next.

mod features;
mod process;
mod surrogate;
mod transfer;
mod trees;

pub use features::Features;
pub use process::{Belief, Process};
pub(crate) use surrogate::in_parallel;
pub use surrogate::{Estimate, Objective, Surrogate};
pub use transfer::{Earlier, Transfer};
pub use trees::{Labels, Loss, Matrix, Parameters, Trees};
