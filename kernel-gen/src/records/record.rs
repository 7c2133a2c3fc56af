//! A record: what was measured to be fastest, and which one it is.

use crate::space::{Config, Fingerprint};
use std::fmt;

/// The version of the format of files of records that this library writes. It reads schema 1 as well.
pub const SCHEMA: i64 = 2;

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
    /// How far apart two machines of this kind are at it: the longer of their times divided by the shorter. None where one machine
    /// measured it.
    pub spread: Option<f64>,
    /// Largest error against the reference, as [`Timing::max_error`](super::Timing::max_error) has it.
    pub max_error: f64,
    /// Whether the result was checked against the reference. A record without this is never used.
    pub verified: bool,
    /// Version of the generator that measured it.
    pub generator: String,
}

/// What a record is of. There is one record of each; the order is that of files and of their lines.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Slot {
    /// The target.
    pub target: String,
    /// The device.
    pub device: String,
    /// The workload's key.
    pub workload: String,
    /// The number of threads.
    pub threads: u32,
}

impl Slot {
    /// The file below the folder of records, with `/` between its parts: the target's folder, and the device's name in small
    /// letters and digits, with a dash for whatever else it holds.
    pub fn relative_path(&self) -> String {
        relative_path(&self.target, &self.device)
    }
}

/// [`Slot::relative_path`] of a target and a device.
pub(super) fn relative_path(target: &str, device: &str) -> String {
    let plain = device.to_lowercase();
    let words: Vec<&str> = plain.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).collect();
    let stem: String = words.join("-").chars().take(100).collect();
    let stem = if stem.is_empty() { "device" } else { &stem };
    format!("{target}/{stem}.toml")
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Slot { workload, device, threads, .. } = self;
        let s = if *threads == 1 { "" } else { "s" };
        write!(f, "{}: {workload} on {device} with {threads} thread{s}", self.relative_path())
    }
}

impl Record {
    /// What it is a record of.
    pub fn slot(&self) -> Slot {
        let Record { target, device, workload, threads, .. } = self.clone();
        Slot { target, device, workload, threads }
    }
}

/// Whether a workload key or a target name may be part of a path: one word that stays inside its folder.
pub(super) fn is_file_word(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 200
        && !text.starts_with('.')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'+'))
}
