//! A collection of records, and which of them lie over others.

use super::record::{Record, Slot};
use std::collections::{BTreeMap, BTreeSet};

/// A record and where it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// The record.
    pub record: Record,
    /// Its file, as messages name it.
    pub file: String,
    /// Its line there, from 1.
    pub line: usize,
    /// Whether it came with the library, and not from the user's folder.
    pub is_shipped: bool,
}

/// Best records: one of each [`Slot`] of the user's own and one of those that were shipped, in their order.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct BestRecords {
    entries: BTreeMap<(Slot, bool), Entry>,
    /// How many records were left unread, by target, whether they were shipped, and device: they count where devices are compared.
    unread: BTreeMap<(String, bool, String), usize>,
}

impl BestRecords {
    /// No records.
    pub fn new() -> BestRecords {
        BestRecords::default()
    }

    /// Adds a record, in the place of the one of the same slot.
    pub fn insert(&mut self, record: Record) -> Option<Record> {
        let file = record.slot().relative_path();
        self.add(Entry { record, file, line: 1, is_shipped: false }).map(|old| old.record)
    }

    /// Adds a record from where it stands, in the place of the one of the same slot.
    pub(super) fn add(&mut self, entry: Entry) -> Option<Entry> {
        self.entries.insert((entry.record.slot(), entry.is_shipped), entry)
    }

    /// Notes records that were left unread.
    pub(super) fn leave(&mut self, target: &str, is_shipped: bool, device: &str, records: usize) {
        if records > 0 {
            *self.unread.entry((target.to_string(), is_shipped, device.to_string())).or_default() += records;
        }
    }

    /// These records, and those that came with the library under them. Both of one slot are kept: where the one here may not be used,
    /// of another version of its template, say, the one below may.
    pub fn over(mut self, shipped: BestRecords) -> BestRecords {
        self.entries.extend(shipped.entries);
        self.unread.extend(shipped.unread);
        self
    }

    /// The records, by target, device, workload and threads.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.entries.values().map(|entry| &entry.record)
    }

    /// The same, each with its place.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// The record of a slot, the user's own where there is one.
    pub fn get(&self, slot: &Slot) -> Option<&Record> {
        let of = |is_shipped| self.entries.get(&(slot.clone(), is_shipped));
        of(false).or_else(|| of(true)).map(|entry| &entry.record)
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The device with most records of a target, among the user's own or among those that were shipped; of those with equally many
    /// the first by name. None where the target has none. Records that were left unread count too, so that a build that reads some
    /// and a command that reads all say the same.
    ///
    /// Where nobody names a device, its records come before those of others. That a record of another device is faster may be
    /// the device's merit and not the config's, and a program whose kernels come from several devices is tuned for none.
    pub fn main_device(&self, target: &str, is_shipped: bool) -> Option<&str> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in self.entries.values().filter(|e| e.record.target == target && e.is_shipped == is_shipped) {
            *counts.entry(&entry.record.device).or_default() += 1;
        }
        for ((_, _, device), records) in self.unread.iter().filter(|((t, s, _), _)| t == target && *s == is_shipped) {
            *counts.entry(device).or_default() += records;
        }
        // Of equal ones `max_by_key` takes the last.
        counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(device, _)| device)
    }

    /// The main devices of all targets, which decide where nobody names a device: with the records themselves, all that a choice
    /// depends on.
    pub fn main_devices(&self) -> Vec<(&str, bool, &str)> {
        let read = self.entries.values().map(|e| (e.record.target.as_str(), e.is_shipped));
        let targets: BTreeSet<(&str, bool)> =
            read.chain(self.unread.keys().map(|(target, is_shipped, _)| (target.as_str(), *is_shipped))).collect();
        let main =
            targets.into_iter().map(|(target, is_shipped)| (target, is_shipped, self.main_device(target, is_shipped)));
        main.filter_map(|(target, is_shipped, device)| Some((target, is_shipped, device?))).collect()
    }
}
