//! Which record to use for a workload, and why not the others.

use super::{BestRecords, Record};
use crate::space::{Config, ConfigError, Fingerprint, Space};
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
    /// The device whose record is preferred where a target has several.
    pub device: Option<&'a str>,
    /// The number of threads whose record is preferred.
    pub threads: u32,
}

impl<'a> Query<'a> {
    /// A workload on a target, for one thread, on any device of that target.
    pub fn new(workload: &'a str, target: &'a str) -> Query<'a> {
        Query { workload, target, related_targets: &[], device: None, threads: 1 }
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
    /// A record of this workload on this target.
    Exact {
        /// Its file.
        file: PathBuf,
        /// The device that it was measured on.
        device: String,
        /// The threads that it was measured with.
        threads: u32,
        /// The time that was measured, in microseconds.
        time_us: f64,
    },
    /// A record of this workload on another target.
    SameShapeOtherDevice {
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
    },
    /// The template's own default, chosen by analytic cost.
    Analytic {
        /// The time that the cost function predicts, in microseconds.
        predicted_us: f64,
    },
}

impl Origin {
    /// One word for tables: `exact`, `other-device`, `model`, `analytic`.
    pub fn word(&self) -> &'static str {
        match self {
            Origin::Exact { .. } => "exact",
            Origin::SameShapeOtherDevice { .. } => "other-device",
            Origin::Model { .. } => "model",
            Origin::Analytic { .. } => "analytic",
        }
    }

    /// Whether a measurement of this very workload stands behind it.
    pub fn is_measured(&self) -> bool {
        matches!(self, Origin::Exact { .. } | Origin::SameShapeOtherDevice { .. })
    }

    /// The time that was measured or predicted, in microseconds.
    pub fn time_us(&self) -> f64 {
        match self {
            Origin::Exact { time_us, .. } | Origin::SameShapeOtherDevice { time_us, .. } => *time_us,
            Origin::Model { predicted_us } | Origin::Analytic { predicted_us } => *predicted_us,
        }
    }
}

impl fmt::Display for Origin {
    /// One line for a person. Holds the file's name but not its folder, so that a report does not depend on where it
    /// was made.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |file: &PathBuf| file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        match self {
            Origin::Exact { file, device, threads, time_us } => {
                let s = if *threads == 1 { "" } else { "s" };
                write!(f, "exact record {}, {time_us:.1} us on {device} with {threads} thread{s}", name(file))
            }
            Origin::SameShapeOtherDevice { file, target, device, time_us } => {
                write!(f, "record {} of the target {target}, {time_us:.1} us on {device}", name(file))
            }
            Origin::Model { predicted_us } => write!(f, "model, {predicted_us:.1} us predicted"),
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
}

/// A record that may not be used.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    /// Its file.
    pub file: PathBuf,
    /// Why.
    pub reason: RefusalReason,
}

/// Why a record may not be used.
#[derive(Clone, PartialEq, Debug)]
pub enum RefusalReason {
    /// Its result was never checked.
    NotVerified,
    /// No template of that name can run the workload here.
    NoTemplate {
        /// The name.
        template: String,
        /// The templates that can.
        offered: Vec<String>,
    },
    /// The template has changed since.
    OtherVersion {
        /// The template.
        template: String,
        /// Its version in the record.
        recorded: u32,
        /// Its version now.
        current: u32,
    },
    /// The template's space has changed since.
    OtherSpace {
        /// The fingerprint in the record.
        recorded: Fingerprint,
        /// The fingerprint now.
        current: Fingerprint,
    },
    /// The config is not in the space.
    BadConfig(ConfigError),
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefusalReason::NotVerified => f.write_str("its result was never checked (verified = false)"),
            RefusalReason::NoTemplate { template, offered } if offered.is_empty() => {
                write!(f, "its template `{template}` does not apply, and no other does")
            }
            RefusalReason::NoTemplate { template, offered } => {
                write!(f, "its template `{template}` does not apply here; those that do: {}", offered.join(", "))
            }
            RefusalReason::OtherVersion { template, recorded, current } => {
                write!(f, "it was made for version {recorded} of the template `{template}`, which is now {current}")
            }
            RefusalReason::OtherSpace { recorded, current } => {
                write!(f, "it was made in another config space ({recorded}, now {current})")
            }
            RefusalReason::BadConfig(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display().to_string().replace('\\', "/");
        write!(f, "{file}: the record is not used: {}; tune the workload again or delete the file", self.reason)
    }
}

/// A usable record.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The record.
    pub record: Record,
    /// Its config, as the template's space writes it.
    pub config: Config,
    /// [`Origin::Exact`] or [`Origin::SameShapeOtherDevice`].
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
/// A record of the target itself comes first; among several, that of the wanted device, then the one whose number of
/// threads is closest to the wanted one, then the fastest. Without any, the related targets are looked through in
/// their order; their configs hold only where the space here has the same fingerprint. A record of this target that
/// may not be used is a [`Refusal`]; one of another target is not, because its space is expected to differ.
pub fn lookup(records: &BestRecords, query: &Query<'_>, offers: &[Offer<'_>]) -> Lookup {
    let mut refusals = vec![];
    for target in std::iter::once(query.target).chain(query.related_targets.iter().copied()) {
        let mut usable = vec![];
        for (file, record) in records.iter().filter(|(_, r)| r.workload == query.workload && r.target == target) {
            match usable_config(record, offers) {
                Ok(config) => usable.push((file, record, config)),
                Err(reason) if target == query.target => refusals.push(Refusal { file, reason }),
                Err(_) => {}
            }
        }
        usable.sort_by(|(_, a, _), (_, b, _)| {
            let rank = |r: &Record| (query.device.is_some_and(|d| d != r.device), r.threads.abs_diff(query.threads));
            rank(a).cmp(&rank(b)).then(a.time_us.total_cmp(&b.time_us))
        });
        if let Some((file, record, config)) = usable.into_iter().next() {
            let (device, time_us) = (record.device.clone(), record.time_us);
            let origin = if target == query.target {
                Origin::Exact { file, device, threads: record.threads, time_us }
            } else {
                Origin::SameShapeOtherDevice { file, target: target.to_string(), device, time_us }
            };
            return Lookup { found: Some(Found { record: record.clone(), config, origin }), refusals };
        }
    }
    Lookup { found: None, refusals }
}

/// The config of a record as its template's space writes it now, or why the record may not be used.
fn usable_config(record: &Record, offers: &[Offer<'_>]) -> Result<Config, RefusalReason> {
    if !record.verified {
        return Err(RefusalReason::NotVerified);
    }
    let template = record.template.clone();
    let Some(offer) = offers.iter().find(|o| o.template == template) else {
        let offered = offers.iter().map(|o| o.template.to_string()).collect();
        return Err(RefusalReason::NoTemplate { template, offered });
    };
    if offer.version != record.template_version {
        return Err(RefusalReason::OtherVersion {
            template,
            recorded: record.template_version,
            current: offer.version,
        });
    }
    // A knob that is gone says more than two fingerprints do.
    let config = match offer.space.normalise(&record.config) {
        Err(error @ (ConfigError::Unknown { .. } | ConfigError::Missing { .. })) => {
            return Err(RefusalReason::BadConfig(error));
        }
        other => other,
    };
    let current = offer.space.fingerprint();
    if current != record.space {
        return Err(RefusalReason::OtherSpace { recorded: record.space, current });
    }
    config.map_err(RefusalReason::BadConfig)
}
