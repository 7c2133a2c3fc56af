//! Folders of records: `<target>/<device>.toml`, a line a record; how they are read and written.
//!
//! Until schema 2 each record had a file of its own, `<target>/<workload>-<hash>.toml`. Such files are read, and are gone when
//! their record is written again.

use super::best::{BestRecords, Entry};
use super::record::{Record, Slot, relative_path};
use super::text::{self, Form};
use crate::diagnostic::Diagnostic;
use crate::files;
use crate::space::stable_hash;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The folder beside the targets' that holds compiled code and no records.
pub const ARTIFACTS: &str = "artifacts";

impl BestRecords {
    /// Reads every `*.toml` in the folders of `folder`, but for [`ARTIFACTS`]. A folder that does not exist holds no
    /// records; one that is itself a target's is an error, as is a record outside of such folders. Whatever is wrong with any
    /// file is reported, for all files together.
    pub fn load(folder: &Path) -> Result<BestRecords, Vec<Diagnostic>> {
        BestRecords::load_some(folder, &|_| true)
    }

    /// As [`BestRecords::load`], but reads only the records whose workload key is wanted. Other lines are not parsed, so errors in
    /// them are not reported.
    pub fn load_some(folder: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<BestRecords, Vec<Diagnostic>> {
        let (mut all, mut wrong) = (BestRecords::new(), vec![]);
        let of_old_form = all_files(folder, &mut wrong)
            .into_iter()
            .filter(|file| !all.add_file(file, folder, wanted, &mut wrong))
            .collect::<Vec<_>>();
        for file in of_old_form {
            all.add_old_file(&file, wanted, &mut wrong);
        }
        if wrong.is_empty() { Ok(all) } else { Err(wrong) }
    }

    /// Reads records that came with the library: files by their names, with their texts. Of each only those whose workload's key
    /// is wanted.
    pub fn shipped(files: &[(&str, &str)], wanted: &dyn Fn(&str) -> bool) -> Result<BestRecords, Vec<Diagnostic>> {
        let (mut all, mut wrong) = (BestRecords::new(), vec![]);
        for (name, text) in files {
            match text::parse_list(text, name, wanted) {
                Ok(list) => {
                    all.leave(&list.target, true, &list.device, list.unread);
                    for (line, record) in list.records {
                        all.add(Entry { record, file: name.to_string(), line, is_shipped: true });
                    }
                }
                Err(diagnostics) => wrong.extend(diagnostics),
            }
        }
        if wrong.is_empty() { Ok(all) } else { Err(wrong) }
    }

    /// Adds what a file holds, unless it is of the old form.
    fn add_file(
        &mut self,
        file: &TextFile,
        folder: &Path,
        wanted: &dyn Fn(&str) -> bool,
        wrong: &mut Vec<Diagnostic>,
    ) -> bool {
        if text::form(&file.text) == Form::Single {
            return false;
        }
        match text::parse_list(&file.text, &file.name, wanted) {
            Ok(list) => {
                let place = folder.join(relative_path(&list.target, &list.device));
                if place != file.path {
                    let cause = "the file is not where the records of its target and device are".to_string();
                    let help = format!("move it to {}", shown(&place));
                    wrong.push(Diagnostic { file: file.name.clone(), line: 1, cause, help });
                }
                self.leave(&list.target, false, &list.device, list.unread);
                for (line, record) in list.records {
                    self.add(Entry { record, file: file.name.clone(), line, is_shipped: false });
                }
            }
            Err(diagnostics) => wrong.extend(diagnostics),
        }
        true
    }

    /// Adds the record of a file of the old form. Of a slot that a list has too, because one side of a merge was converted and
    /// the other tuned, the faster one counts.
    fn add_old_file(&mut self, file: &TextFile, wanted: &dyn Fn(&str) -> bool, wrong: &mut Vec<Diagnostic>) {
        match read_single(file) {
            Ok(record) if !wanted(&record.workload) => self.leave(&record.target, false, &record.device, 1),
            Ok(record) => {
                let is_better = |listed: &Record| record.verified && record.time_us < listed.time_us;
                if self.get(&record.slot()).is_none_or(is_better) {
                    self.add(Entry { record, file: file.name.clone(), line: 1, is_shipped: false });
                }
            }
            Err(diagnostics) => wrong.extend(diagnostics),
        }
    }
}

/// Writes records below a folder and says which files have them now. Each file is replaced in one step and under a lock of its
/// folder, so a reader sees the old records or the new ones, and several runs may write at once. A file that would not change
/// is left alone; files of the old form that hold the same records are removed.
///
/// # Errors
/// If a file cannot be written, or one that is there cannot be read: what it has must not be lost.
pub fn write_records<'r>(folder: &Path, records: impl IntoIterator<Item = &'r Record>) -> io::Result<Vec<PathBuf>> {
    let mut by_file: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
    for record in records {
        by_file.entry(record.slot().relative_path()).or_default().push(record);
    }
    let write = |(place, some): (String, Vec<&Record>)| {
        let path = folder.join(place);
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", shown(&path)));
        write_into(&path, &some).map_err(failed)
    };
    by_file.into_iter().map(write).collect()
}

fn write_into(path: &Path, some: &[&Record]) -> io::Result<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let _lock = lock(folder);
    let old = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let mut all: BTreeMap<Slot, Record> = BTreeMap::new();
    if !old.is_empty() {
        let list =
            text::parse_list(&old, &shown(path), &|_| true).map_err(|all| io::Error::other(all[0].to_string()))?;
        all.extend(list.records.into_iter().map(|(_, record)| (record.slot(), record)));
    }
    all.extend(some.iter().map(|record| (record.slot(), (*record).clone())));
    let (target, device) = (&some[0].target, &some[0].device);
    if let Some(other) = all.keys().find(|slot| (&slot.target, &slot.device) != (target, device)) {
        return Err(io::Error::other(format!(
            "records of `{device}` for {target} and of `{}` for {} would lie in this file; keep one of them in another folder",
            other.device, other.target
        )));
    }
    let text = text::list(target, device, all.values());
    if text != old {
        files::write_whole(path, text.as_bytes())?;
    }
    for record in some {
        match fs::remove_file(folder.join(single_name(record))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(path.to_path_buf())
}

/// Holds a folder against other processes that write records, until it is dropped. Where the system has no locks of folders,
/// nothing is held: of two runs that end in the same moment one may lose a record, which is in its log.
fn lock(folder: &Path) -> Option<File> {
    File::open(folder).and_then(|folder| folder.lock().map(|()| folder)).ok()
}

/// A file's text and names.
struct TextFile {
    path: PathBuf,
    name: String,
    text: String,
}

/// The files of records below a folder, and what is wrong with where they lie.
fn all_files(folder: &Path, wrong: &mut Vec<Diagnostic>) -> Vec<TextFile> {
    let is_toml = |path: &Path| path.extension().is_some_and(|e| e == "toml") && !is_hidden(path);
    let mut all = vec![];
    for target in sorted_entries(folder, wrong) {
        if is_toml(&target) && target.is_file() {
            wrong.extend(stray(&target, folder));
        }
        if !target.is_dir() || is_hidden(&target) || target.ends_with(ARTIFACTS) {
            continue;
        }
        for path in sorted_entries(&target, wrong).into_iter().filter(|path| is_toml(path)) {
            match fs::read_to_string(&path) {
                Ok(text) => all.push(TextFile { name: shown(&path), path, text }),
                Err(error) => wrong.push(unreadable(&path, &error)),
            }
        }
    }
    all
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

/// What is wrong with a file that lies where the targets' folders should: nothing if it holds no records.
fn stray(file: &Path, folder: &Path) -> Option<Diagnostic> {
    let name = shown(file);
    let record = text::parse(&fs::read_to_string(file).ok()?, &name).ok()?.into_iter().next()?;
    let (cause, help) = if folder.file_name().is_some_and(|f| f == record.target.as_str()) {
        let above = folder.parent().map(shown).filter(|above| !above.is_empty()).unwrap_or_else(|| "..".to_string());
        let cause =
            format!("{} is the folder of one target, and not the one that has a folder for each", shown(folder));
        (cause, format!("name {above}"))
    } else {
        let cause = "records lie outside of the folder of their target".to_string();
        (cause, format!("move it to {}", shown(&folder.join(record.slot().relative_path()))))
    };
    Some(Diagnostic { file: name, line: 1, cause, help })
}

/// The name of a record's file in the old form: the workload, and a hash of the device and the number of threads.
fn single_name(record: &Record) -> String {
    let hash = stable_hash(&format!("{}\n{}\n{}", record.workload, record.device, record.threads)) >> 32;
    format!("{}-{hash:08x}.toml", record.workload)
}

/// Reads a file of the old form, which must lie where its content says.
fn read_single(file: &TextFile) -> Result<Record, Vec<Diagnostic>> {
    let record = Record::parse(&file.text, &file.name)?;
    let misplaced = |cause: &str, help: String| {
        Err(vec![Diagnostic { file: file.name.clone(), line: 1, cause: cause.to_string(), help }])
    };
    let name = single_name(&record);
    if file.path.parent().and_then(Path::file_name).is_none_or(|f| f != record.target.as_str()) {
        let cause = format!("the record is for the target {} but lies in another folder", record.target);
        return misplaced(&cause, format!("move it to {}/{name}", record.target));
    }
    if file.path.file_name().is_none_or(|f| f != name.as_str()) {
        let cause = "the file's name does not belong to its workload, device and threads";
        return misplaced(cause, format!("call it {name}"));
    }
    Ok(record)
}
