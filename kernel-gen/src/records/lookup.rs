//! Which record to use for a workload, and why not the others.

use super::best::BestRecords;
use super::record::Record;
use super::rules::{Mismatch, Purpose};
use crate::space::{Config, Fingerprint, Space};
use std::cmp::Ordering;
use std::fmt;
use std::path::PathBuf;

/// What is looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query<'a> {
    /// The workload's key.
    pub workload: &'a str,
    /// The target's name.
    pub target: &'a str,
    /// Other targets whose records may serve, the closest first.
    pub related_targets: &'a [&'a str],
    /// The device whose record is preferred where a target has several; by default [`BestRecords::main_device`].
    pub device: Option<&'a str>,
    /// The number of threads whose record is preferred. Where nobody said, the record with most threads is: what was tuned
    /// for several runs on one thread almost as well, and what was tuned for one may have work for one only.
    pub threads: Option<u32>,
}

impl<'a> Query<'a> {
    /// A workload on a target, for any number of threads, on any device of that target.
    pub fn new(workload: &'a str, target: &'a str) -> Query<'a> {
        Query { workload, target, related_targets: &[], device: None, threads: None }
    }
}

/// A template that could run the workload, and the space it has for it.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The template's name.
    pub template: &'a str,
    /// Its version.
    pub version: u32,
    /// Its space for this workload and target.
    pub space: &'a Space,
}

/// Where a choice comes from.
#[derive(Clone, PartialEq, Debug)]
pub enum Origin {
    /// A record of this workload on this target, measured on the device that was asked for.
    Exact {
        /// Its file.
        file: PathBuf,
        /// The device that it was measured on.
        device: String,
        /// The threads that it was measured with.
        threads: u32,
        /// The time that was measured, in microseconds.
        time_us: f64,
        /// How fast a core was meanwhile, see [`Record::core_gflops`].
        core_gflops: Option<f64>,
        /// What it took where nothing disturbed it, see [`Record::floor_us`].
        floor_us: Option<f64>,
    },
    /// A record of this workload on this target, where no device was asked for or another one: whose device it is, nobody
    /// knows here. A CPU level's may be of another vendor.
    SameTarget {
        /// Its file.
        file: PathBuf,
        /// The device that it was measured on.
        device: String,
        /// The threads that it was measured with.
        threads: u32,
        /// The time that was measured, in microseconds.
        time_us: f64,
        /// How fast a core was meanwhile, see [`Record::core_gflops`].
        core_gflops: Option<f64>,
        /// What it took where nothing disturbed it, see [`Record::floor_us`].
        floor_us: Option<f64>,
    },
    /// A record of this workload on a target that differs in its letter only (`sm_90`, `sm_90a`).
    SameCapability {
        /// Its file.
        file: PathBuf,
        /// The target.
        target: String,
        /// The device that it was measured on.
        device: String,
        /// The time that was measured there, in microseconds.
        time_us: f64,
    },
    /// A record of this workload on another target of the same architecture, whose config is within the limits here.
    OtherTarget {
        /// Its file.
        file: PathBuf,
        /// The other target.
        target: String,
        /// The device that it was measured on.
        device: String,
        /// The time that was measured there, in microseconds.
        time_us: f64,
    },
    /// A model that learned from records of other shapes.
    Model {
        /// The time that it predicts, in microseconds.
        predicted_us: f64,
        /// How many records it was learned from.
        records: usize,
    },
    /// The template's own default, chosen by analytic cost.
    Analytic {
        /// The time that the cost function predicts, in microseconds.
        predicted_us: f64,
    },
}

impl Origin {
    /// One word for tables: `exact`, `same-target`, `same-capability`, `other-target`, `model`, `analytic`.
    pub fn word(&self) -> &'static str {
        match self {
            Origin::Exact { .. } => "exact",
            Origin::SameTarget { .. } => "same-target",
            Origin::SameCapability { .. } => "same-capability",
            Origin::OtherTarget { .. } => "other-target",
            Origin::Model { .. } => "model",
            Origin::Analytic { .. } => "analytic",
        }
    }

    /// Whether a measurement of this very workload stands behind it.
    pub fn is_measured(&self) -> bool {
        self.is_of_target() || self.is_foreign()
    }

    /// Whether it is a record of the very target.
    pub fn is_of_target(&self) -> bool {
        matches!(self, Origin::Exact { .. } | Origin::SameTarget { .. })
    }

    /// Whether it is a record of another target.
    pub fn is_foreign(&self) -> bool {
        matches!(self, Origin::SameCapability { .. } | Origin::OtherTarget { .. })
    }

    /// The time that was measured or predicted, in microseconds.
    pub fn time_us(&self) -> f64 {
        match self {
            Origin::Exact { time_us, .. }
            | Origin::SameTarget { time_us, .. }
            | Origin::SameCapability { time_us, .. }
            | Origin::OtherTarget { time_us, .. } => *time_us,
            Origin::Model { predicted_us, .. } | Origin::Analytic { predicted_us } => *predicted_us,
        }
    }
}

impl fmt::Display for Origin {
    /// One line for a person. Holds the file's name but not its folder, so that a report does not depend on where it
    /// was made.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |file: &PathBuf| file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        match self {
            Origin::Exact { file, device, threads, time_us, .. } => {
                let s = if *threads == 1 { "" } else { "s" };
                write!(f, "exact record {}, {time_us:.1} us on {device} with {threads} thread{s}", name(file))
            }
            Origin::SameTarget { file, device, threads, time_us, .. } => {
                let s = if *threads == 1 { "" } else { "s" };
                write!(f, "record {} of this target, {time_us:.1} us on {device} with {threads} thread{s}", name(file))
            }
            Origin::SameCapability { file, target, device, time_us } => {
                write!(f, "record {} of {target}, same capability, {time_us:.1} us on {device}", name(file))
            }
            Origin::OtherTarget { file, target, device, time_us } => {
                write!(f, "record {} of the target {target}, {time_us:.1} us on {device}", name(file))
            }
            Origin::Model { predicted_us, records } => {
                let s = if *records == 1 { "" } else { "s" };
                write!(f, "model, from {records} record{s} of other shapes, {predicted_us:.1} us predicted")
            }
            Origin::Analytic { predicted_us } => {
                write!(f, "no record: analytic default, {predicted_us:.1} us predicted")
            }
        }
    }
}

/// Which template with which config, and where that comes from.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// The template's name.
    pub template: String,
    /// The config, as the template's space writes it.
    pub config: Config,
    /// Where it comes from.
    pub origin: Origin,
    /// Records of this workload and target that were not used, with the reason. Never silent: callers print them.
    pub refusals: Vec<Refusal>,
    /// A record of another target that might have been used, and that the default was preferred to.
    pub passed_over: Option<PassedOver>,
    /// Better choices that cannot be carried out, with the reason. Never silent either.
    pub unusable: Vec<Unusable>,
}

/// A record of another target that lost against what is chosen without it.
#[derive(Clone, PartialEq, Debug)]
pub struct PassedOver {
    /// The record's template.
    pub template: String,
    /// Where it comes from.
    pub origin: Origin,
    /// The time that its template's model expects of it on the target of the choice, in microseconds.
    pub predicted_us: f64,
    /// The time that the same model, or that of the default's template, expects of the default.
    pub default_us: f64,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PassedOver { template, origin, predicted_us, default_us } = self;
        write!(f, "{template} by {origin}: here {predicted_us:.1} us expected, {default_us:.1} us of the default")
    }
}

/// A template's default or a config that would have been chosen, but cannot be carried out: a defect of the template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unusable {
    /// The template, with its version and config where they are known.
    pub choice: String,
    /// Why it cannot be carried out.
    pub reason: String,
}

/// A record that may not be used.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    /// Its file.
    pub file: PathBuf,
    /// The line that is to blame, where the file is as it was written.
    pub line: usize,
    /// Why.
    pub reason: Mismatch,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display().to_string().replace('\\', "/");
        self.reason.diagnostic(&file, self.line, Purpose::Build).fmt(f)
    }
}

/// A usable record.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The record.
    pub record: Record,
    /// Its config, as the template's space writes it.
    pub config: Config,
    /// One of those of records: see [`Origin::is_measured`].
    pub origin: Origin,
}

/// The answer of [`lookup`].
#[derive(Clone, PartialEq, Debug)]
pub struct Lookup {
    /// The record to use, if there is one.
    pub found: Option<Found>,
    /// The records of this workload and target that may not be used.
    pub refusals: Vec<Refusal>,
}

/// Finds the record for a workload among those that the offered templates can still make sense of.
///
/// The order is: a record of the target itself, on the wanted device if one is named; a record of a target of the same compute
/// capability; a record of a related target, in the order of the query, if its config is valid in the
/// space here, limits included. Among several of one kind the one measured with the number of threads closest to the
/// wanted one comes first, then one of the target's main device ([`BestRecords::main_device`]), then the fastest.
///
/// A record of this target that may not be used is a [`Refusal`]; one of another target is not, because its space is
/// expected to differ. The rules are those of [`RULES`](super::RULES).
pub fn lookup(records: &BestRecords, query: &Query<'_>, offers: &[Offer<'_>]) -> Lookup {
    let mut refusals = vec![];
    for target in std::iter::once(query.target).chain(query.related_targets.iter().copied()) {
        let own = target == query.target;
        let preference = Preference::new(records, target, query.device, query.threads);
        let mut usable = vec![];
        for (file, record) in records.iter().filter(|(_, r)| r.workload == query.workload && r.target == target) {
            match usable_config(record, offers, own) {
                Ok(config) => usable.push((file, record, config)),
                Err(reason) if own => refusals.push(Refusal { file, line: record.line_of(reason.key()), reason }),
                Err(_) => {}
            }
        }
        usable.sort_by(|(_, a, _), (_, b, _)| preference.order(a, b));
        if let Some((file, record, config)) = usable.into_iter().next() {
            let (target, device, time_us) = (target.to_string(), record.device.clone(), record.time_us);
            let Record { threads, core_gflops, floor_us, .. } = *record;
            let origin = if own && query.device == Some(device.as_str()) {
                Origin::Exact { file, device, threads, time_us, core_gflops, floor_us }
            } else if own {
                Origin::SameTarget { file, device, threads, time_us, core_gflops, floor_us }
            } else if same_capability(query.target, &target) {
                Origin::SameCapability { file, target, device, time_us }
            } else {
                Origin::OtherTarget { file, target, device, time_us }
            };
            return Lookup { found: Some(Found { record: record.clone(), config, origin }), refusals };
        }
    }
    Lookup { found: None, refusals }
}

/// Which of several records of one workload and target to use: of the device that was named, then for the number of
/// threads that is closest to the wanted one, then of the target's main device ([`BestRecords::main_device`]), then the
/// fastest.
#[derive(Clone, Copy)]
pub(crate) struct Preference<'a> {
    device: Option<&'a str>,
    main_device: Option<&'a str>,
    threads: Option<u32>,
}

impl<'a> Preference<'a> {
    /// Among the records of a target; `device` and `threads` are what [`Query`] has.
    pub(crate) fn new(
        records: &'a BestRecords,
        target: &str,
        device: Option<&'a str>,
        threads: Option<u32>,
    ) -> Preference<'a> {
        Preference { device, main_device: records.main_device(target), threads }
    }

    /// The better one is less.
    pub(crate) fn order(&self, a: &Record, b: &Record) -> Ordering {
        let other = |wanted: Option<&str>, r: &Record| wanted.is_some_and(|device| device != r.device);
        let apart = |r: &Record| self.threads.map_or(u32::MAX - r.threads, |threads| r.threads.abs_diff(threads));
        let rank = |r: &Record| (other(self.device, r), apart(r), other(self.main_device, r));
        rank(a).cmp(&rank(b)).then(a.time_us.total_cmp(&b.time_us))
    }
}

/// Whether two targets are CUDA architectures of one compute capability.
fn same_capability(a: &str, b: &str) -> bool {
    let digits = |name: &str| {
        let rest = name.strip_prefix("sm_")?;
        Some(rest.trim_end_matches(|c: char| c.is_ascii_alphabetic()).to_string())
    };
    digits(a).is_some_and(|a| Some(a) == digits(b))
}

/// The config of a record as its template's space writes it now, or why the record may not be used. The space of another
/// target need not be the same: what counts is that the config is in the space here.
fn usable_config(record: &Record, offers: &[Offer<'_>], same_space: bool) -> Result<Config, Mismatch> {
    if !record.verified {
        return Err(Mismatch::Unverified);
    }
    let space = same_space.then_some(record.space);
    fitting(&record.template, record.template_version, space, &record.config, offers)
}

/// A config as its template's space writes it now, or why it means nothing here. Without a fingerprint, any space that has
/// the config will do.
pub(super) fn fitting(
    template: &str,
    version: u32,
    space: Option<Fingerprint>,
    config: &Config,
    offers: &[Offer<'_>],
) -> Result<Config, Mismatch> {
    let template = template.to_string();
    let Some(offer) = offers.iter().find(|o| o.template == template) else {
        let offered = offers.iter().map(|o| o.template.to_string()).collect();
        return Err(Mismatch::NoTemplate { template, offered });
    };
    if offer.version != version {
        return Err(Mismatch::OtherVersion { template, recorded: version, current: offer.version });
    }
    let config = offer.space.normalise(config).map_err(Mismatch::of_config);
    // A knob that is gone says more than two fingerprints do; a value that is gone says less.
    if let Err(error @ Mismatch::Knob(_)) = config {
        return Err(error);
    }
    let current = offer.space.fingerprint();
    match space {
        Some(recorded) if recorded != current => Err(Mismatch::OtherSpace { recorded, current }),
        _ => config,
    }
}
