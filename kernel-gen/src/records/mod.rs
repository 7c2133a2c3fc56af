//! Best records: what was measured to be fastest, kept in version control.
//!
//! A record says which config of which template was fastest for a workload on a target, and everything that decides
//! whether it may be used: the template's version, the fingerprint of its space, whether its result was checked. One
//! record is one small file, `tuned/<target>/<workload>-<hash>.toml`; the hash covers the device and the number of
//! threads, so that records of several machines lie side by side. A file holds no clock and no host name, and the same
//! record is the same bytes.
//!
//! [`BestRecords`] is all records of a folder; [`lookup`] finds the one for a workload, and says why it did not take
//! the others.

mod best;
#[cfg(feature = "tune")]
pub mod export;
#[cfg(feature = "tune")]
pub mod import;
#[cfg(feature = "tune")]
pub mod log;
mod lookup;
#[cfg(feature = "tune")]
pub mod merge;
#[cfg(feature = "tune")]
pub mod prune;
mod record;
mod rules;
mod text;
#[cfg(feature = "tune")]
mod trial;
#[cfg(feature = "tune")]
pub mod validate;

pub use best::{ARTIFACTS, BestRecords};
pub(crate) use lookup::Preference;
pub use lookup::{Choice, Found, Lookup, Offer, Origin, PassedOver, Query, Refusal, Unusable, lookup};
#[cfg(feature = "tune")]
use record::is_file_word;
pub use record::{Record, SCHEMA};
pub use rules::{Mismatch, Purpose, RULES, Rule, Verdict};
#[cfg(feature = "tune")]
use text::not_plain;
pub(crate) use text::quoted;
#[cfg(feature = "tune")]
pub(crate) use trial::median;
#[cfg(feature = "tune")]
pub use trial::{Failure, FailureKind, Outcome, Timing, Trial};

#[cfg(test)]
mod tests;
