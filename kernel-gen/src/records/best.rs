//! All records of a folder, and how they are read and written.

use super::record::Record;
use crate::diagnostic::Diagnostic;
use crate::files;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The folder beside the targets' that holds compiled code and no records.
pub const ARTIFACTS: &str = "artifacts";

/// The records of a folder by file, in the order of their names.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct BestRecords {
    /// Where they were read from; empty for records that were only put together.
    folder: PathBuf,
    records: BTreeMap<String, Record>,
    folders_read: Vec<PathBuf>,
    files_read: Vec<PathBuf>,
}

impl BestRecords {
    /// No records.
    pub fn new() -> BestRecords {
        BestRecords::default()
    }

    /// Reads every `*.toml` in the folders of `folder`, but for [`ARTIFACTS`]. A folder that does not exist holds no
    /// records; one that is itself a target's is an error, as is a record outside of such folders. Whatever is wrong with any
    /// file is reported, for all files together.
    pub fn load(folder: &Path) -> Result<BestRecords, Vec<Diagnostic>> {
        let mut all = BestRecords { folder: folder.to_path_buf(), ..BestRecords::default() };
        let mut wrong = vec![];
        all.folders_read.push(folder.to_path_buf());
        for target in sorted_entries(folder, &mut wrong) {
            if target.extension().is_some_and(|e| e == "toml") && target.is_file() && !is_hidden(&target) {
                wrong.extend(stray(&target, folder));
            }
            if !target.is_dir() || is_hidden(&target) || target.ends_with(ARTIFACTS) {
                continue;
            }
            all.folders_read.push(target.clone());
            for file in sorted_entries(&target, &mut wrong) {
                if file.extension().is_some_and(|e| e == "toml") && !is_hidden(&file) {
                    match read_file(&file, &target) {
                        Ok(record) => drop(all.records.insert(record.relative_path(), record)),
                        Err(diagnostics) => wrong.extend(diagnostics),
                    }
                    all.files_read.push(file);
                }
            }
        }
        if wrong.is_empty() { Ok(all) } else { Err(wrong) }
    }

    /// Adds a record, in the place of the one with the same workload, target, device and threads.
    pub fn insert(&mut self, record: Record) -> Option<Record> {
        self.records.insert(record.relative_path(), record)
    }

    /// The records and their files, in the order of the files' names.
    pub fn iter(&self) -> impl Iterator<Item = (PathBuf, &Record)> {
        self.records.iter().map(|(path, record)| (self.folder.join(path), record))
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The device with most records of a target; of those with equally many the first by name. None where the target has none.
    ///
    /// Where nobody names a device, its records come before those of others. That a record of another device is faster may be
    /// the device's merit and not the config's, and a program whose kernels come from several devices is tuned for none.
    pub fn main_device(&self, target: &str) -> Option<&str> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for record in self.records.values().filter(|r| r.target == target) {
            *counts.entry(&record.device).or_default() += 1;
        }
        // Of equal ones `max_by_key` takes the last.
        counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(device, _)| device)
    }

    /// The folders that [`load`](BestRecords::load) looked into, for a build script's rerun rules. The first is the
    /// one it was given, whether it exists or not.
    pub fn folders_read(&self) -> &[PathBuf] {
        &self.folders_read
    }

    /// The files that [`load`](BestRecords::load) read.
    pub fn files_read(&self) -> &[PathBuf] {
        &self.files_read
    }
}

impl Record {
    /// Writes the record's file below the folder of records and says where. The file is replaced in one step, so a
    /// reader sees the old record or the new one; a file that would not change is left alone.
    pub fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        let path = folder.join(self.relative_path());
        let text = self.to_toml();
        if fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(path);
        }
        let target = folder.join(&self.target);
        fs::create_dir_all(&target)?;
        files::write_whole(&path, text.as_bytes()).map(|()| path)
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'))
}

fn shown(path: &Path) -> String {
    path.display().to_string().replace('\\', "/")
}

fn unreadable(path: &Path, error: &io::Error) -> Diagnostic {
    let help = "make it readable, or name another folder of records".to_string();
    Diagnostic { file: shown(path), line: 1, cause: format!("cannot be read: {error}"), help }
}

fn sorted_entries(folder: &Path, wrong: &mut Vec<Diagnostic>) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).and_then(|all| all.map(|e| e.map(|e| e.path())).collect::<io::Result<Vec<_>>>());
    match entries {
        Ok(mut entries) => {
            entries.sort();
            entries
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => vec![],
        Err(error) => {
            wrong.push(unreadable(folder, &error));
            vec![]
        }
    }
}

/// What is wrong with a file that lies where the targets' folders should: nothing if it is no record.
fn stray(file: &Path, folder: &Path) -> Option<Diagnostic> {
    let name = shown(file);
    let record = Record::parse(&fs::read_to_string(file).ok()?, &name).ok()?;
    let (cause, help) = if folder.file_name().is_some_and(|f| f == record.target.as_str()) {
        let above = folder.parent().map(shown).filter(|above| !above.is_empty()).unwrap_or_else(|| "..".to_string());
        let cause =
            format!("{} is the folder of one target, and not the one that has a folder for each", shown(folder));
        (cause, format!("name {above}"))
    } else {
        let cause = "a record lies outside of the folder of its target".to_string();
        (cause, format!("move it to {}", shown(&folder.join(record.relative_path()))))
    };
    Some(Diagnostic { file: name, line: 1, cause, help })
}

/// Reads a record that must lie where its content says.
fn read_file(file: &Path, target: &Path) -> Result<Record, Vec<Diagnostic>> {
    let name = shown(file);
    let text = fs::read_to_string(file).map_err(|error| vec![unreadable(file, &error)])?;
    let record = Record::parse(&text, &name)?;
    let misplaced = |cause: String, help: String| Err(vec![Diagnostic { file: name.clone(), line: 1, cause, help }]);
    if target.file_name().is_none_or(|f| f != record.target.as_str()) {
        return misplaced(
            format!("the record is for the target {} but lies in another folder", record.target),
            format!("move it to {}", record.relative_path()),
        );
    }
    if file.file_name().is_none_or(|f| f != record.file_name().as_str()) {
        return misplaced(
            "the file's name does not belong to its workload, device and threads".to_string(),
            format!("call it {}", record.file_name()),
        );
    }
    Ok(record)
}
