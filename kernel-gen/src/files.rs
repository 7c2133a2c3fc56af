//! Temporary files and files that are replaced in one step.
//!
//! Temporary folders are shared with other users and, through mounts, with other containers. So a name there is random, what
//! is made must not exist yet, and nobody else may look inside. No name from here enters an output.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A draft that is younger than this is left alone: its process may be about to lock it.
pub(crate) const YOUNG: Duration = Duration::from_secs(10);

/// 32 hexadecimal digits that nobody can foresee: the standard library seeds its hashers from the system's generator.
pub(crate) fn random_name() -> String {
    let word = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", word(), word())
}

/// Whether a text is 32 hexadecimal digits, as [`random_name`] and the names of cached entries are.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Makes a folder that did not exist, which only this user can enter.
pub(crate) fn create_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Whether a path is a folder that belongs to the owner of `own` and that nobody else can write. A link is none.
#[cfg(unix)]
pub(crate) fn is_private_folder(path: &Path, own: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(folder), Ok(own)) = (fs::symlink_metadata(path), own.metadata()) else { return false };
    folder.is_dir() && folder.uid() == own.uid() && folder.mode() & 0o022 == 0
}

/// Whether a path is a folder; other systems give every user a temporary folder of his own.
#[cfg(not(unix))]
pub(crate) fn is_private_folder(path: &Path, _: &File) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.is_dir())
}

/// Creates a file that did not exist. A link of that name is an error, wherever it leads.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Writes a file in one step: a reader sees the old file or the new one. Drafts that ended processes left in the folder are
/// removed.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, |draft| {
        let mut file = create_new(draft)?;
        // Without a lock the draft is taken for one of an ended process when it is old, and that is all.
        let _ = file.try_lock();
        file.write_all(bytes)
    })
}

/// Copies a file, with its permissions, in one step.
pub(crate) fn copy_whole(from: &Path, path: &Path) -> io::Result<()> {
    replace(path, |draft| {
        create_new(draft)?;
        fs::copy(from, draft).map(drop)
    })
}

fn replace(path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sweep_once(folder);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = folder.join(format!(".{name}.{}.tmp", random_name()));
    let replaced = write(&draft).and_then(|()| fs::rename(&draft, path));
    if replaced.is_err() {
        // The error that counts is the one above.
        let _ = fs::remove_file(&draft);
    }
    replaced
}

/// [`sweep_drafts`] for the first file that this process writes into a folder.
fn sweep_once(folder: &Path) {
    static SWEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if SWEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_path_buf()) {
        sweep_drafts(folder, YOUNG);
    }
}

/// Removes the drafts that ended processes left in a folder.
pub(crate) fn sweep_drafts(folder: &Path, young: Duration) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_file = entry.file_type().is_ok_and(|t| t.is_file());
        if !is_file || !is_draft(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let Ok(file) = File::open(entry.path()) else { continue };
        let in_use = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if is_older(&file, young) && !in_use {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a file was last changed at least that long ago.
pub(crate) fn is_older(file: &File, age: Duration) -> bool {
    let changed = file.metadata().and_then(|m| m.modified()).ok();
    changed.and_then(|at| at.elapsed().ok()).is_some_and(|elapsed| elapsed >= age)
}

/// `.NAME.<32 hexadecimal digits>.tmp`; of records also `.NAME.toml.<process number>.tmp`, as versions before this one wrote.
fn is_draft(name: &str) -> bool {
    let parts = name.strip_prefix('.').and_then(|n| n.strip_suffix(".tmp")).and_then(|n| n.rsplit_once('.'));
    parts.is_some_and(|(stem, id)| {
        let process = stem.ends_with(".toml") && !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
        is_name(id) || process
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Folder {
            let path = std::env::temp_dir().join(format!("kernel-gen-test-{}", random_name()));
            create_private_folder(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn names_are_never_the_same() {
        let names: BTreeSet<String> = (0..1000).map(|_| random_name()).collect();
        assert_eq!(names.len(), 1000);
        assert!(names.iter().all(|n| n.len() == 32));
    }

    #[test]
    fn what_is_there_already_is_not_taken() {
        let folder = Folder::new();
        let there = folder.0.join("there");
        create_private_folder(&there).unwrap();
        assert_eq!(create_private_folder(&there).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let file = folder.0.join("file");
        let own = create_new(&file).unwrap();
        assert_eq!(create_new(&file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(is_private_folder(&there, &own) && !is_private_folder(&file, &own));
        #[cfg(unix)]
        {
            use std::os::unix::fs::{PermissionsExt, symlink};
            assert_eq!(fs::metadata(&there).unwrap().permissions().mode() & 0o777, 0o700);
            let (victim, link) = (folder.0.join("victim"), folder.0.join("link"));
            fs::write(&victim, "text").unwrap();
            symlink(&victim, &link).unwrap();
            assert!(create_new(&link).is_err());
            assert_eq!(fs::read(&victim).unwrap(), b"text", "a link is not followed");
            let folder_link = folder.0.join("folder link");
            symlink(&there, &folder_link).unwrap();
            assert!(create_private_folder(&folder_link).is_err() && !is_private_folder(&folder_link, &own));
            fs::set_permissions(&there, fs::Permissions::from_mode(0o777)).unwrap();
            assert!(!is_private_folder(&there, &own), "others can write there");
        }
    }

    #[test]
    fn drafts_of_ended_processes_are_removed_and_nothing_else() {
        let folder = Folder::new();
        let draft = |name: &str| {
            let path = folder.0.join(name);
            fs::write(&path, "half").unwrap();
            let file = File::options().append(true).open(&path).unwrap();
            file.set_modified(std::time::SystemTime::now() - 2 * YOUNG).unwrap();
            (path, file)
        };
        let old = [".a.toml.4711.tmp".to_string(), format!(".b.kgi.{}.tmp", random_name())].map(|n| draft(&n).0);
        let (in_use, file) = draft(&format!(".c.{}.tmp", random_name()));
        file.lock().unwrap();
        let young = folder.0.join(format!(".d.{}.tmp", random_name()));
        fs::write(&young, "half").unwrap();
        let others = [".e.4711.tmp", "f.toml.4711.tmp", ".g.toml.x.tmp", ".h.toml"].map(|n| draft(n).0);
        write_whole(&folder.0.join("new"), b"whole").unwrap();
        assert_eq!(fs::read(folder.0.join("new")).unwrap(), b"whole");
        assert!(old.iter().all(|p| !p.exists()));
        assert!([in_use, young].iter().chain(&others).all(|p| p.exists()));
        // A failure leaves nothing behind.
        let left = fs::read_dir(&folder.0).unwrap().count();
        fs::create_dir(folder.0.join("taken")).unwrap();
        write_whole(&folder.0.join("taken"), b"x").unwrap_err();
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), left + 1);
    }
}
