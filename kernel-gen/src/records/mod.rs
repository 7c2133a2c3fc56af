//! Best records: what was measured to be fastest, kept in version control.
//!
//! A record says which config of which template was fastest for a workload on a target, and everything that decides
//! whether it may be used: the template's version, the fingerprint of its space, whether its result was checked. A folder
//! of records has a file for each target and device, `tuned/<target>/<device>.toml`, with a line for each workload and number of
//! threads, sorted: hundreds of records are one difference that a person can read. A file holds no clock and no host name, and the
//! same records are the same bytes.
//!
//! [`BestRecords`] is a collection of records: those of a folder, and under them those that came with the library. [`lookup`]
//! finds the one for a workload, and says why it did not take the others.

mod best;
#[cfg(feature = "tune")]
pub mod export;
mod folder;
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

pub use best::{BestRecords, Entry};
pub use folder::{ARTIFACTS, write_records};
pub use lookup::{Choice, Found, Lookup, Measurement, Offer, Origin, PassedOver, Query, Refusal, Unusable, lookup};
pub(crate) use lookup::{Preference, is_word_of_target};
#[cfg(feature = "tune")]
use record::is_file_word;
pub use record::{Record, SCHEMA, Slot};
pub use rules::{Mismatch, Purpose, REFUSED, RULES, Rule, Verdict};
#[cfg(feature = "tune")]
use text::not_plain;
pub use text::parse;
pub(crate) use text::quoted;
#[cfg(feature = "tune")]
pub(crate) use trial::median;
#[cfg(feature = "tune")]
pub use trial::{Failure, FailureKind, Outcome, Timing, Trial};

#[cfg(test)]
mod tests;
