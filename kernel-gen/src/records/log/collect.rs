//! What several logs say together.

use super::entry::{Compared, Entry, Run, RunId, Seed, TaskKey};
use super::reader::{LogItem, LogReader};
use super::writer::LogError;
use crate::diagnostic::Diagnostic;
use crate::records::validate::summarised;
use crate::records::{Mismatch, Purpose};
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::path::Path;

/// All lines of some logs, in the order in which they were read.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Log {
    /// The trials. One that stands in several of the files is here once.
    pub entries: Vec<Entry>,
    /// The comparisons at the ends of runs.
    pub compared: Vec<Compared>,
    /// The seeds.
    pub seeds: Vec<Seed>,
    /// The runs, and when they began, in seconds since 1970.
    pub runs: BTreeMap<RunId, (Run, u64)>,
    /// Lines that were skipped, each with its reason.
    pub skipped: Vec<Diagnostic>,
    /// What is odd but does no harm.
    pub warnings: Vec<Diagnostic>,
    seen: BTreeSet<(RunId, u64, String)>,
    /// Workers whose trials are left out, in whichever file they are.
    dropped: BTreeSet<String>,
}

impl Log {
    /// Reads files. Only a file that cannot be opened is an error; lines that cannot be read are in
    /// [`skipped`](Log::skipped).
    pub fn read(files: &[impl AsRef<Path>]) -> Result<Log, LogError> {
        let mut log = Log::default();
        for file in files {
            log.extend(LogReader::open(file.as_ref())?);
        }
        Ok(log)
    }

    /// Reads one log more.
    pub fn extend<R: BufRead>(&mut self, reader: LogReader<R>) {
        let mut lost: BTreeMap<RunId, Diagnostic> = BTreeMap::new();
        for item in reader {
            match item {
                Err(skipped) => self.skipped.push(skipped),
                Ok(LogItem::Run { id, run, started }) => drop(self.runs.insert(id, (*run, started))),
                Ok(LogItem::Compared(compared)) => {
                    // One that stands in several of the files is here once.
                    if !self.compared.contains(&compared) {
                        self.compared.push(*compared);
                    }
                }
                Ok(LogItem::Seed(seed)) => self.seeds.push(*seed),
                Ok(LogItem::Dropped(worker)) => drop(self.dropped.insert(worker)),
                Ok(LogItem::Trial(entry)) => {
                    if entry.machine.is_none() {
                        let place = &entry.place;
                        lost.entry(entry.run)
                            .or_insert_with(|| Mismatch::NoMachine.diagnostic(&place.file, place.line, Purpose::Tune));
                    }
                    if self.seen.insert((entry.run, entry.number, entry.trial.config.id())) {
                        self.entries.push(*entry);
                    }
                }
            }
        }
        self.warnings.extend(lost.into_values());
        self.entries.retain(|e| e.worker.as_deref().is_none_or(|worker| !self.dropped.contains(worker)));
    }

    /// What a person is told of the lines: those that were skipped, and what is odd. Lines with the same fault are named once,
    /// with their number.
    pub fn told(&self) -> Vec<Diagnostic> {
        summarised(self.skipped.iter().chain(&self.warnings).cloned().collect())
    }

    /// The trials of a task, on any device.
    pub fn of_task<'a>(&'a self, task: &'a TaskKey) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |e| e.task == *task)
    }

    /// The trials of a task on one device with one number of threads: what a run goes on from.
    pub fn of_task_on<'a>(
        &'a self,
        task: &'a TaskKey,
        device: &'a str,
        threads: u32,
    ) -> impl Iterator<Item = &'a Entry> {
        self.of_task(task).filter(move |e| e.device == device && e.threads == threads)
    }

    /// The seeds of a task.
    pub fn seeds_of<'a>(&'a self, task: &'a TaskKey) -> impl Iterator<Item = &'a Seed> {
        self.seeds.iter().filter(move |s| s.task == *task)
    }

    /// The tasks that there are trials of, in order.
    pub fn tasks(&self) -> BTreeSet<&TaskKey> {
        self.entries.iter().map(|e| &e.task).collect()
    }
}
