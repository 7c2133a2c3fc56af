//! Merging: of trial logs, and of best records, by what they say and not by where a line stands.
//!
//! A merge is the same whichever side comes first, and merging again changes nothing. With an ancestor, what one side
//! deleted stays deleted.

use super::log::{BYTE_ORDER_MARK, LogReader, Parsed, parse_line, sealed};
use super::text::list;
use super::{BestRecords, Record, Slot, parse};
use crate::diagnostic::Diagnostic;
use std::collections::{BTreeMap, BTreeSet};

/// A text and its name in messages.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The name.
    pub file: &'a str,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// A line, as far as merging looks at it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Line {
    /// A run, or one of its trials by its number.
    OfRun { run: u64, trial: Option<u64>, text: String },
    /// A seed, or what takes back a worker's trials.
    Seed(String),
    /// A whole line that this version cannot read; it is kept because another may.
    Other(String),
}

/// The lines of a log. Notes when runs began, and what cannot be read.
fn lines(side: Side<'_>, started: &mut BTreeMap<u64, u64>, told: &mut Vec<Diagnostic>) -> BTreeSet<Line> {
    let mut lines = BTreeSet::new();
    let mut reader = LogReader::new(side.bytes, side.file);
    while let Some((place, text, last)) = reader.next_line() {
        let parsed = match &text {
            Ok(text) if text.trim().is_empty() => continue,
            Ok(text) => parse_line(text, &place, last),
            Err(fault) => Err(fault.clone()),
        };
        let text = text.unwrap_or_default().trim_end_matches('\r').to_string();
        let line = match parsed {
            Ok(Parsed::Run(id, _, at)) => {
                // Two headers of one name would be a defect; the earlier counts, on whichever side it is.
                let first = started.entry(id.0).or_insert(at);
                *first = at.min(*first);
                Line::OfRun { run: id.0, trial: None, text }
            }
            Ok(Parsed::Trial(entry)) => Line::OfRun { run: entry.run.0, trial: Some(entry.number), text },
            // Behind the trials of its run.
            Ok(Parsed::Compared(compared)) => {
                let after = u64::MAX / 2 + compared.number;
                Line::OfRun { run: compared.run.0, trial: Some(after), text }
            }
            Ok(Parsed::Seed(_) | Parsed::Dropped(_)) => Line::Seed(text),
            Err(_) if sealed(&text).is_some() => Line::Other(text),
            Err(fault) => {
                told.push(super::log::diagnostic(&place, &fault));
                continue;
            }
        };
        lines.insert(line);
    }
    lines
}

/// Merges logs: the runs in the order in which they began, each with its trials in theirs; then seeds; then what this
/// version cannot read. Lines that are torn or damaged are left out, and named; with an ancestor, a line that one side
/// deleted is left out too.
pub fn merge_logs(base: Option<Side<'_>>, sides: &[Side<'_>]) -> (String, Vec<Diagnostic>) {
    let (mut started, mut told) = (BTreeMap::new(), vec![]);
    let read: Vec<_> = sides.iter().map(|side| lines(*side, &mut started, &mut told)).collect();
    // What is wrong with the ancestor is no news: it is wrong with the sides as well, or corrected there.
    let base = base.map(|side| lines(side, &mut started, &mut vec![])).unwrap_or_default();
    let all: BTreeSet<&Line> = read.iter().flatten().collect();
    let deleted = |line: &Line| base.contains(line) && !read.iter().all(|side| side.contains(line));
    let mut kept: Vec<&Line> = all.into_iter().filter(|line| !deleted(line)).collect();
    // Runs in the order in which they began. The rest is in order already, and the sort keeps it.
    let began = |line: &Line| match line {
        Line::OfRun { run, .. } => (0, started.get(run).copied().unwrap_or(u64::MAX)),
        Line::Seed(_) | Line::Other(_) => (1, 0),
    };
    kept.sort_by_key(|line| began(line));
    let text = |line: &Line| match line {
        Line::OfRun { text, .. } | Line::Seed(text) | Line::Other(text) => format!("{text}\n"),
    };
    (kept.into_iter().map(text).collect(), told)
}

/// The better of two records of one workload, target, device and number of threads: one that was checked, then of the
/// newer version of the same template, then the faster one. The order of the two does not matter.
pub fn better<'a>(a: &'a Record, b: &'a Record) -> &'a Record {
    let same_template = a.template == b.template;
    let newer = |r: &Record| if same_template { r.template_version } else { 0 };
    let order = b
        .verified
        .cmp(&a.verified)
        .then(newer(b).cmp(&newer(a)))
        .then(a.time_us.total_cmp(&b.time_us))
        .then_with(|| a.to_line().cmp(&b.to_line()));
    if order.is_le() { a } else { b }
}

/// Merges folders of records.
pub fn merge_folders(sides: &[BestRecords]) -> BestRecords {
    let mut merged = BestRecords::new();
    for record in sides.iter().flat_map(BestRecords::iter) {
        let winner = merged.get(&record.slot()).map_or(record, |other| better(other, record)).clone();
        merged.insert(winner);
    }
    merged
}

/// Merges two versions of a file of records, record by record. With an ancestor, what one side changed is what counts, and what
/// one side deleted stays deleted unless the other changed it.
///
/// # Errors
/// If one of them cannot be read, or they are of different devices.
pub fn merge_records(base: Option<Side<'_>>, ours: Side<'_>, theirs: Side<'_>) -> Result<String, Vec<Diagnostic>> {
    let read = |side: Side<'_>| {
        let records = parse(&String::from_utf8_lossy(side.bytes), side.file)?;
        Ok(records.into_iter().map(|record| (record.slot(), record)).collect::<BTreeMap<_, _>>())
    };
    let (a, b) = match (read(ours), read(theirs)) {
        (Ok(a), Ok(b)) => (a, b),
        (a, b) => {
            let faults: [Option<Vec<Diagnostic>>; 2] = [a.err(), b.err()];
            return Err(faults.into_iter().flatten().flatten().collect());
        }
    };
    let devices: BTreeSet<(&str, &str)> =
        a.keys().chain(b.keys()).map(|s| (s.target.as_str(), s.device.as_str())).collect();
    if devices.len() > 1 {
        let devices: Vec<String> = devices.iter().map(|(target, device)| format!("`{device}` for {target}")).collect();
        let cause = format!("the two sides hold records of {}", devices.join(" and of "));
        return Err(vec![Diagnostic {
            file: ours.file.into(),
            line: 1,
            cause,
            help: "merge each with its own file".into(),
        }]);
    }
    let (target, device) = devices.first().copied().unwrap_or_default();
    // An ancestor that nobody can read decides nothing.
    let base = base.and_then(|side| read(side).ok()).unwrap_or_default();
    let slots: BTreeSet<&Slot> = a.keys().chain(b.keys()).collect();
    let merged = slots.into_iter().filter_map(|slot| match (base.get(slot), a.get(slot), b.get(slot)) {
        (Some(base), Some(a), Some(b)) if base == a => Some(b),
        (Some(base), Some(a), Some(b)) if base == b => Some(a),
        (_, Some(a), Some(b)) => Some(better(a, b)),
        (Some(base), Some(one), None) | (Some(base), None, Some(one)) => Some(one).filter(|one| *one != base),
        (None, one, other) => one.or(other),
        (Some(_), None, None) => None,
    });
    Ok(list(target, device, merged))
}

/// Whether a file's text is that of a log rather than of a record.
pub fn is_log(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{')
}

#[cfg(test)]
mod tests;
