//! Which template with which config runs a workload: what was measured if there is a record, and otherwise what the
//! templates' own cost functions say.
//!
//! The order is: a record of this workload on this target; then what records of other shapes on this target teach; then the
//! default config of each template that applies, the one with the least predicted time. Templates made by rules
//! ([`sketch`](crate::templates::sketch)) are considered only where that would be a plain one. A record of the workload on a related
//! target competes with the latter two: it is used where the model holds no more against it here than on its own target.
//! Where the choice comes from is part of it, and so is every record that had to
//! be refused.

mod choose;
mod defaults;
mod error;
mod instead;
#[cfg(feature = "tune")]
pub mod learned;
mod options;
mod ranges;
mod recorded;
pub mod roofline;
#[cfg(test)]
mod tests;
mod transfer;

pub use choose::choose;
#[cfg(feature = "cli")]
pub(crate) use defaults::default_of;
pub use defaults::{Candidate, candidates};
pub use error::ModelError;
pub use instead::instead_of;
pub use options::Options;
pub use ranges::{Rung, Shares, ladder, rungs, sizes};
pub(crate) use ranges::{begins_early, most_early};
pub use recorded::related_targets;
pub use transfer::Kinds;
#[cfg(feature = "cli")]
pub(crate) use transfer::neighbours;
