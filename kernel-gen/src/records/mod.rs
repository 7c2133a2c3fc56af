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
mod rules;
mod text;
#[cfg(feature = "tune")]
mod trial;
#[cfg(feature = "tune")]
pub mod validate;

pub use best::{ARTIFACTS, BestRecords};
pub(crate) use lookup::Preference;
pub use lookup::{Choice, Found, Lookup, Offer, Origin, PassedOver, Query, Refusal, Unusable, lookup};
pub use rules::{Mismatch, Purpose, RULES, Rule, Verdict};
#[cfg(feature = "tune")]
use text::not_plain;
pub(crate) use text::quoted;
#[cfg(feature = "tune")]
pub(crate) use trial::median;
#[cfg(feature = "tune")]
pub use trial::{Failure, FailureKind, Outcome, Timing, Trial};

use crate::space::{Config, Fingerprint, stable_hash};

/// The version of the record format that this library reads and writes.
pub const SCHEMA: i64 = 1;

/// What was fastest for one workload on one device with one number of threads.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// The workload's key: operator, shape, types, epilogue.
    pub workload: String,
    /// The target that the kernel was compiled for, such as `x86-64-v4` or `sm_90a`.
    pub target: String,
    /// Name of the device that it was measured on, as the device calls itself.
    pub device: String,
    /// Threads that it ran on; 1 on a GPU.
    pub threads: u32,
    /// The template.
    pub template: String,
    /// The template's version. Another version may mean something else by the same config.
    pub template_version: u32,
    /// Fingerprint of the space that the config was found in.
    pub space: Fingerprint,
    /// The config.
    pub config: Config,
    /// Median time in microseconds.
    pub time_us: f64,
    /// Billions of floating-point operations a second at that time.
    pub gflops: f64,
    /// What one core did in fused multiply-adds meanwhile, in GFLOP/s: how fast the processor's clock was. Times of a
    /// processor whose clock moves can be compared by it. None where it was not measured, and on GPUs.
    pub core_gflops: Option<f64>,
    /// What it took where nothing disturbed it, in microseconds, see [`Rounds`](crate::tune::measure::Rounds::floor_us): the time
    /// that comes back on a machine that is shared with others. None where it was not measured, and on GPUs, which nobody
    /// shares.
    pub floor_us: Option<f64>,
    /// Largest error against the reference, as [`Timing::max_error`] has it.
    pub max_error: f64,
    /// Whether the result was checked against the reference. A record without this is never used.
    pub verified: bool,
    /// Version of the generator that measured it.
    pub generator: String,
}

impl Record {
    /// The name of its file: the workload, and a hash of the device and the number of threads.
    pub fn file_name(&self) -> String {
        let hash = stable_hash(&format!("{}\n{}\n{}", self.workload, self.device, self.threads)) >> 32;
        format!("{}-{hash:08x}.toml", self.workload)
    }

    /// The line of its file, as it is written, that begins with a key; the first one if none does.
    fn line_of(&self, key: &str) -> usize {
        let begins = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ="));
        self.to_toml().lines().position(begins).map_or(1, |i| i + 1)
    }

    /// The file below the folder of records, with `/` between its parts.
    pub fn relative_path(&self) -> String {
        format!("{}/{}", self.target, self.file_name())
    }
}

/// Whether a workload key or a target name may be part of a path: one word that stays inside its folder.
fn is_file_word(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 200
        && !text.starts_with('.')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'+'))
}

#[cfg(test)]
mod tests;
