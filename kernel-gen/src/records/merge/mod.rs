//! Merging: of trial logs, and of best records, by what they say and not by where a line stands.
//!
//! A merge is the same whichever side comes first, and merging again changes nothing. With an ancestor, what one side
//! deleted stays deleted.

use super::log::{LogReader, Parsed, parse_line, sealed};
use super::{BestRecords, Record};
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

/// Where a line stands in a merged log: the runs in the order in which they began, each with its trials in theirs; then
/// seeds; then whole lines that this version cannot read, which are kept because another may.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    Run { started: u64, run: u64, trial: Option<u64> },
    Seed,
    Other,
}

/// Lines of a log.
#[derive(Default)]
struct Lines {
    /// Trials and runs: the run, the trial's number, the text.
    of_runs: BTreeSet<(u64, Option<u64>, String)>,
    seeds: BTreeSet<String>,
    others: BTreeSet<String>,
}

impl Lines {
    fn read(side: Side<'_>, started: &mut BTreeMap<u64, u64>, told: &mut Vec<Diagnostic>) -> Lines {
        let mut lines = Lines::default();
        let mut reader = LogReader::new(side.bytes, side.file);
        while let Some((place, text, last)) = reader.next_line() {
            let parsed = match &text {
                Ok(text) if text.trim().is_empty() => continue,
                Ok(text) => parse_line(text, &place, last),
                Err(fault) => Err(fault.clone()),
            };
            let text = || text.as_deref().unwrap_or_default().trim_end_matches('\r').to_string();
            match parsed {
                Ok(Parsed::Run(id, _, at)) => {
                    // Two headers of one name would be one defect; the earlier counts, on whichever side it is.
                    let first = started.entry(id.0).or_insert(at);
                    *first = at.min(*first);
                    lines.of_runs.insert((id.0, None, text()));
                }
                Ok(Parsed::Trial(entry)) => drop(lines.of_runs.insert((entry.run.0, Some(entry.number), text()))),
                Ok(Parsed::Seed(_)) => drop(lines.seeds.insert(text())),
                Err(_) if sealed(&text()).is_some() => drop(lines.others.insert(text())),
                Err(fault) => told.push(super::log::diagnostic(&place, &fault)),
            }
        }
        lines
    }

    fn all(self) -> BTreeSet<(Option<(u64, Option<u64>)>, bool, String)> {
        let runs = self.of_runs.into_iter().map(|(run, trial, text)| (Some((run, trial)), false, text));
        let seeds = self.seeds.into_iter().map(|text| (None, true, text));
        let others = self.others.into_iter().map(|text| (None, false, text));
        runs.chain(seeds).chain(others).collect()
    }
}

/// Merges logs. Lines that are torn or damaged are left out, and named; with an ancestor, a line that one side deleted is
/// left out too.
pub fn merge_logs(base: Option<Side<'_>>, sides: &[Side<'_>]) -> (String, Vec<Diagnostic>) {
    let (mut started, mut told) = (BTreeMap::new(), vec![]);
    let read: Vec<_> = sides.iter().map(|side| Lines::read(*side, &mut started, &mut told).all()).collect();
    // What is wrong with the ancestor is no news: it is wrong with the sides as well, or mended there.
    let base = base.map(|side| Lines::read(side, &mut started, &mut vec![]).all()).unwrap_or_default();
    let mut ranked: Vec<(Rank, String)> = vec![];
    for line in read.iter().flatten().collect::<BTreeSet<_>>() {
        if base.contains(line) && !read.iter().all(|side| side.contains(line)) {
            continue;
        }
        let (of_run, seed, text) = line;
        let rank = match of_run {
            Some((run, trial)) => {
                let started = started.get(run).copied().unwrap_or(u64::MAX);
                Rank::Run { started, run: *run, trial: *trial }
            }
            None if *seed => Rank::Seed,
            None => Rank::Other,
        };
        ranked.push((rank, text.clone()));
    }
    ranked.sort();
    (ranked.into_iter().map(|(_, text)| text + "\n").collect(), told)
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
        .then_with(|| a.to_toml().cmp(&b.to_toml()));
    if order.is_le() { a } else { b }
}

/// Merges folders of records.
pub fn merge_folders(sides: &[BestRecords]) -> BestRecords {
    let mut merged: BTreeMap<String, Record> = BTreeMap::new();
    for (_, record) in sides.iter().flat_map(BestRecords::iter) {
        let path = record.relative_path();
        let winner = merged.get(&path).map_or(record, |other| better(other, record)).clone();
        merged.insert(path, winner);
    }
    let mut all = BestRecords::new();
    for record in merged.into_values() {
        all.insert(record);
    }
    all
}

/// Merges two versions of one record's file.
pub fn merge_record(base: Option<Side<'_>>, ours: Side<'_>, theirs: Side<'_>) -> Result<String, Vec<Diagnostic>> {
    let read = |side: Side<'_>| {
        let text = String::from_utf8_lossy(side.bytes);
        Record::parse(&text, side.file).map(|record| (record, text.into_owned()))
    };
    let (a, b) = match (read(ours), read(theirs)) {
        (Ok(a), Ok(b)) => (a, b),
        (a, b) => return Err(a.err().into_iter().chain(b.err()).flatten().collect()),
    };
    // An ancestor that nobody can read decides nothing.
    let base = base.and_then(|side| read(side).ok()).map(|(record, _)| record);
    let winner = match base {
        Some(base) if base == a.0 => b,
        Some(base) if base == b.0 => a,
        _ if *better(&a.0, &b.0) == a.0 => a,
        _ => b,
    };
    Ok(winner.1)
}

/// Whether a file's text is that of a log rather than of a record.
pub fn is_log(bytes: &[u8]) -> bool {
    bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{')
}

#[cfg(test)]
mod tests;
