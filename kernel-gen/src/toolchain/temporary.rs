//! Folders among the temporary files that vanish with their values, and those of processes that were killed.
//!
//! What lies there is compiled and run, so nobody else may get at it. A folder has a random name and mode 0700, and one that
//! exists is never taken.
//!
//! A process that is killed leaves its folders behind, tens of megabytes of precompiled headers among them. Each folder
//! holds a file that its process keeps locked: where nobody does any more, the next process takes the folder away. A number
//! of a process would not do, because containers that share the temporary files each count their own.

use crate::files::{create_new, create_private_folder, is_older, is_private_folder, random_name};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

/// What the folders' names begin with.
const PREFIX: &str = "kernel-gen-";

/// The file in a folder that is locked while the folder is in use.
const LOCK: &str = "lock";

/// A folder that is younger than this is left alone: its process may be about to lock it.
const YOUNG: Duration = Duration::from_secs(60);

/// A folder that vanishes with its value.
#[derive(Debug)]
pub(crate) struct Temporary {
    path: PathBuf,
    /// Locked, unless the file system has no locks.
    _lock: File,
}

impl Temporary {
    /// A new folder. The first one of a process takes away what others have left.
    pub(crate) fn new() -> io::Result<Temporary> {
        static SWEPT: Once = Once::new();
        let all = std::env::temp_dir();
        let folder = Temporary::at(all.join(format!("{PREFIX}{}", random_name())))?;
        SWEPT.call_once(|| sweep(&all, YOUNG, &folder._lock));
        Ok(folder)
    }

    fn at(path: PathBuf) -> io::Result<Temporary> {
        create_private_folder(&path)?;
        let lock = create_new(&path.join(LOCK))?;
        // The folder may have been exchanged since, where the temporary files lie in a folder without the sticky bit.
        if !is_private_folder(&path, &lock) {
            let cause = format!("{} is not this user's own any more", path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, cause));
        }
        // Without it the folder is not taken away if this process is killed, and that is all.
        let _ = lock.try_lock();
        Ok(Temporary { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Left-over files in the temporary folder harm nobody.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Takes away the folders that no process uses, of the owner of `own` only.
fn sweep(all: &Path, young: Duration, own: &File) {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) || !is_private_folder(&entry.path(), own) {
            continue;
        }
        // Within a folder of one's own nobody else can have put a link or a pipe.
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if is_older(&lock, young) && lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_processes_that_were_killed_are_taken_away_and_no_others() {
        let all = Temporary::new().unwrap();
        let used = Temporary::at(all.path().join("kernel-gen-1-0")).unwrap();
        let killed = Temporary::at(all.path().join("kernel-gen-2-0")).unwrap();
        fs::write(killed.path().join("headers.h"), "x").unwrap();
        let left = killed.path().to_path_buf();
        // Whoever is killed loses the lock and does not clean up.
        killed._lock.unlock().unwrap();
        for name in ["kernel-gen-3-0", "other-4-0"] {
            fs::create_dir(all.path().join(name)).unwrap();
        }
        fs::write(all.path().join("other-4-0").join(LOCK), "").unwrap();
        sweep(all.path(), Duration::from_secs(3600), &all._lock);
        assert!(left.exists(), "it is too young");
        sweep(all.path(), Duration::ZERO, &all._lock);
        assert!(!left.exists());
        assert!(used.path().exists(), "it is in use");
        assert!(all.path().join("kernel-gen-3-0").exists(), "it has no lock");
        assert!(all.path().join("other-4-0").exists(), "it is called otherwise");
    }

    #[test]
    fn what_somebody_put_there_is_never_taken() {
        let all = Temporary::new().unwrap();
        let path = all.path().join("kernel-gen-5");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("kernel.so"), "foreign").unwrap();
        assert_eq!(Temporary::at(path.clone()).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(path.join("kernel.so")).unwrap(), b"foreign");
        assert!(!path.join(LOCK).exists());
        #[cfg(unix)]
        {
            use std::os::unix::fs::{PermissionsExt, symlink};
            // A link to a folder that looks like one of a killed process: neither used nor emptied.
            let target = Temporary::at(all.path().join("target")).unwrap();
            target._lock.unlock().unwrap();
            let link = all.path().join("kernel-gen-6");
            symlink(target.path(), &link).unwrap();
            assert!(Temporary::at(link.clone()).is_err());
            sweep(all.path(), Duration::ZERO, &all._lock);
            assert!(target.path().join(LOCK).exists() && fs::symlink_metadata(&link).is_ok());
            let mode = fs::metadata(all.path()).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
    }

    #[test]
    fn two_processes_of_one_number_never_share_a_folder() {
        let folders: Vec<Temporary> = (0..50).map(|_| Temporary::new().unwrap()).collect();
        for folder in &folders {
            let name = folder.path().file_name().unwrap().to_string_lossy().into_owned();
            assert!(!name.split('-').any(|part| part == std::process::id().to_string()), "{name}");
        }
        let names: std::collections::BTreeSet<&Path> = folders.iter().map(Temporary::path).collect();
        assert_eq!(names.len(), folders.len());
    }
}
