//! Which record to use for a workload, and why not the others.

use super::best::{BestRecords, Entry};
use super::record::Record;
use super::rules::{Mismatch, Purpose};
use crate::space::{Config, Fingerprint, Space};
use crate::target::Target;
use std::cmp::Ordering;
use std::fmt;

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
    Exact(Measurement),
    /// A record of this workload on this target, where no device was asked for or another one: whose device it is, nobody
    /// knows here. A CPU level's may be of another vendor.
    SameTarget(Measurement),
    /// A record of this workload on a target that differs in its letter only (`sm_90`, `sm_90a`).
    SameCapability(Measurement),
    /// A record of this workload on another target of the same architecture, whose config is within the limits here.
    OtherTarget(Measurement),
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

/// What a record says of its measurement.
#[derive(Clone, PartialEq, Debug)]
pub struct Measurement {
    /// The target.
    pub target: String,
    /// The device.
    pub device: String,
    /// The number of threads.
    pub threads: u32,
    /// The time, in microseconds.
    pub time_us: f64,
    /// How fast a core was meanwhile, see [`Record::core_gflops`].
    pub core_gflops: Option<f64>,
    /// What it took where nothing disturbed it, see [`Record::floor_us`].
    pub floor_us: Option<f64>,
    /// Whether the record came with the library.
    pub is_shipped: bool,
}

impl Origin {
    /// One word for tables: `exact`, `same-target`, `same-capability`, `other-target`, `model`, `analytic`; a record that came
    /// with the library has `shipped-` in front.
    pub fn word(&self) -> &'static str {
        let (own, shipped) = match self {
            Origin::Exact(_) => ("exact", "shipped-exact"),
            Origin::SameTarget(_) => ("same-target", "shipped-same-target"),
            Origin::SameCapability(_) => ("same-capability", "shipped-same-capability"),
            Origin::OtherTarget(_) => ("other-target", "shipped-other-target"),
            Origin::Model { .. } => ("model", "model"),
            Origin::Analytic { .. } => ("analytic", "analytic"),
        };
        if self.measured().is_some_and(|m| m.is_shipped) { shipped } else { own }
    }

    /// The measurement of this very workload that stands behind it, if there is one.
    pub fn measured(&self) -> Option<&Measurement> {
        match self {
            Origin::Exact(m) | Origin::SameTarget(m) | Origin::SameCapability(m) | Origin::OtherTarget(m) => Some(m),
            Origin::Model { .. } | Origin::Analytic { .. } => None,
        }
    }

    /// The measurement, if it is one of the very target.
    pub fn measured_here(&self) -> Option<&Measurement> {
        self.measured().filter(|_| matches!(self, Origin::Exact(_) | Origin::SameTarget(_)))
    }

    /// Whether it is a record of another target.
    pub fn is_foreign(&self) -> bool {
        matches!(self, Origin::SameCapability(_) | Origin::OtherTarget(_))
    }

    /// The time that was measured or predicted, in microseconds.
    pub fn time_us(&self) -> f64 {
        match self {
            Origin::Exact(m) | Origin::SameTarget(m) | Origin::SameCapability(m) | Origin::OtherTarget(m) => m.time_us,
            Origin::Model { predicted_us, .. } | Origin::Analytic { predicted_us } => *predicted_us,
        }
    }
}

/// Whether a word of [`Origin::word`] stands for a record of the very target.
pub(crate) fn is_word_of_target(word: &str) -> bool {
    matches!(word.strip_prefix("shipped-").unwrap_or(word), "exact" | "same-target")
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.threads == 1 { "" } else { "s" };
        let Measurement { time_us, device, threads, .. } = self;
        write!(f, "{time_us:.1} us on {device} with {threads} thread{s}")
    }
}

impl fmt::Display for Origin {
    /// One line for a person. It holds neither file nor line of a record: a report does not depend on where it was made, nor
    /// on what other records there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.measured().is_some_and(|m| m.is_shipped) {
            write!(f, "shipped ")?;
        }
        match self {
            Origin::Exact(m) => write!(f, "exact record, {m}"),
            Origin::SameTarget(m) => write!(f, "record of this target, {m}"),
            Origin::SameCapability(m) => write!(f, "record of {}, same capability, {m}", m.target),
            Origin::OtherTarget(m) => write!(f, "record of the target {}, {m}", m.target),
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
    /// Its file, as messages name it.
    pub file: String,
    /// Its line there.
    pub line: usize,
    /// Why.
    pub reason: Mismatch,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.diagnostic(&self.file, self.line, Purpose::Build).fmt(f)
    }
}

/// A usable record.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The record.
    pub record: Record,
    /// Its config, as the template's space writes it.
    pub config: Config,
    /// One of those of records: see [`Origin::measured`].
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
/// space here, limits included. Among several of one kind the user's own come before those that were shipped, then the one measured
/// with the number of threads closest to the wanted one, then one of the target's main device
/// ([`BestRecords::main_device`]), then the fastest.
///
/// A record of this target that may not be used is a [`Refusal`]; one of another target is not, because its space is
/// expected to differ, and one that was shipped is not, because its user can do nothing about it: a registry without the built-in
/// templates, say, has no use for theirs. The rules are those of [`RULES`](super::RULES).
pub fn lookup(records: &BestRecords, query: &Query<'_>, offers: &[Offer<'_>]) -> Lookup {
    let mut refusals = vec![];
    for target in std::iter::once(query.target).chain(query.related_targets.iter().copied()) {
        let own = target == query.target;
        let preference = Preference::new(records, target, query.device, query.threads);
        let mut usable = vec![];
        for entry in records.entries() {
            let Entry { record, file, line, is_shipped } = entry;
            if record.workload != query.workload || record.target != target {
                continue;
            }
            match usable_config(record, offers, own) {
                Ok(config) => usable.push((entry, config)),
                Err(reason) if own && !is_shipped => {
                    refusals.push(Refusal { file: file.clone(), line: *line, reason });
                }
                Err(_) => {}
            }
        }
        usable.sort_by(|(a, _), (b, _)| preference.order(a, b));
        if let Some((Entry { record, is_shipped, .. }, config)) = usable.into_iter().next() {
            let Record { threads, time_us, core_gflops, floor_us, .. } = *record;
            let (target, device, is_shipped) = (target.to_string(), record.device.clone(), *is_shipped);
            let measured = Measurement { target, device, threads, time_us, core_gflops, floor_us, is_shipped };
            let origin = if own && query.device == Some(record.device.as_str()) {
                Origin::Exact(measured)
            } else if own {
                Origin::SameTarget(measured)
            } else if same_capability(query.target, &measured.target) {
                Origin::SameCapability(measured)
            } else {
                Origin::OtherTarget(measured)
            };
            return Lookup { found: Some(Found { record: record.clone(), config, origin }), refusals };
        }
    }
    Lookup { found: None, refusals }
}

/// Which of several records of one workload and target to use: of the device that was named, then the user's own, then for the
/// number of threads that is closest to the wanted one, then of the target's main device ([`BestRecords::main_device`]), then
/// the fastest.
#[derive(Clone, Copy)]
pub(crate) struct Preference<'a> {
    device: Option<&'a str>,
    /// Of the user's own records and of those that were shipped.
    main_devices: [Option<&'a str>; 2],
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
        let main_devices = [false, true].map(|is_shipped| records.main_device(target, is_shipped));
        Preference { device, main_devices, threads }
    }

    /// The better one is less.
    pub(crate) fn order(&self, a: &Entry, b: &Entry) -> Ordering {
        let other = |wanted: Option<&str>, r: &Record| wanted.is_some_and(|device| device != r.device);
        let apart = |r: &Record| self.threads.map_or(u32::MAX - r.threads, |threads| r.threads.abs_diff(threads));
        let rank = |e: &Entry| {
            let r = &e.record;
            (other(self.device, r), e.is_shipped, apart(r), other(self.main_devices[usize::from(e.is_shipped)], r))
        };
        rank(a).cmp(&rank(b)).then(a.record.time_us.total_cmp(&b.record.time_us))
    }
}

/// Whether two targets are CUDA architectures of one compute capability.
fn same_capability(a: &str, b: &str) -> bool {
    let capability = |name: &str| Target::find(name).and_then(Target::capability);
    capability(a).is_some_and(|a| Some(a) == capability(b))
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
