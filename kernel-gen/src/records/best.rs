//! A collection of records, and which of them lie over others.

use super::record::{Record, Slot};
use std::collections::BTreeMap;

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

/// Best records, one of each [`Slot`], in their order.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct BestRecords {
    entries: BTreeMap<Slot, Entry>,
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
        self.entries.insert(entry.record.slot(), entry)
    }

    /// These records, and those that came with the library under them: of two of one slot the one here counts.
    pub fn over(mut self, shipped: BestRecords) -> BestRecords {
        for (slot, entry) in shipped.entries {
            self.entries.entry(slot).or_insert(Entry { is_shipped: true, ..entry });
        }
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

    /// The record of a slot.
    pub fn get(&self, slot: &Slot) -> Option<&Record> {
        self.entries.get(slot).map(|entry| &entry.record)
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
    /// the first by name. None where the target has none.
    ///
    /// Where nobody names a device, its records come before those of others. That a record of another device is faster may be
    /// the device's merit and not the config's, and a program whose kernels come from several devices is tuned for none.
    pub fn main_device(&self, target: &str, is_shipped: bool) -> Option<&str> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in self.entries.values().filter(|e| e.record.target == target && e.is_shipped == is_shipped) {
            *counts.entry(&entry.record.device).or_default() += 1;
        }
        // Of equal ones `max_by_key` takes the last.
        counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(device, _)| device)
    }
}
