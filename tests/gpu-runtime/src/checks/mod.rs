//! The checks, one file a subject.

mod capture;
mod cost;
mod errors;
#[cfg(feature = "hand")]
mod features;
pub(crate) mod generated;
mod graph;

use crate::suite::Check;

/// All checks, in the order in which they run.
pub(crate) fn all() -> Vec<Check> {
    let mut all = generated::checks();
    #[cfg(feature = "hand")]
    all.extend(features::checks());
    all.extend(errors::checks());
    all.extend(graph::checks());
    all.extend(capture::checks());
    all.extend(cost::checks());
    all
}
