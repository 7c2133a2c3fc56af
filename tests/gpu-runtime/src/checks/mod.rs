//! The checks, one file a subject.

mod capture;
mod cost;
mod errors;
#[cfg(feature = "hand")]
mod features;
pub(crate) mod generated;
mod graph;
mod kept;
#[cfg(feature = "own")]
pub(crate) mod own;

use crate::suite::Check;

/// All checks, in the order in which they run.
pub(crate) fn all() -> Vec<Check> {
    let mut all = generated::checks();
    #[cfg(feature = "hand")]
    all.extend(features::checks());
    #[cfg(feature = "own")]
    all.extend(own::checks());
    all.extend(errors::checks());
    all.extend(graph::checks());
    all.extend(kept::checks());
    // Before what is dropped in a capture, which is kept for good and its stream with it: cudarc keeps account of who uses
    // what while a context has several streams, and that is what a launch would be seen to cost.
    all.extend(cost::checks());
    all.extend(capture::checks());
    all
}
