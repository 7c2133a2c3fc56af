//! Folders among the temporary files that vanish with their values, and those of processes that were killed.
//!
//! A process that is killed leaves its folders behind, tens of megabytes of precompiled headers among them. Each folder
//! holds a file that its process keeps locked: where nobody does any more, the next process takes the folder away. A number
//! of a process would not do, because containers that share the temporary files each count their own.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What the folders' names begin with.
const PREFIX: &str = "kernel-gen-";

/// The file in a folder that is locked while the folder is in use.
const LOCK: &str = "lock";

/// A folder that is younger than this is left alone: its process may be about to lock it.
const YOUNG: Duration = Duration::from_secs(60);

/// A folder that vanishes with its value.
#[derive(Debug)]
pub(super) struct Temporary {
    path: PathBuf,
    /// Locked, unless the file system has no locks.
    _lock: File,
}

impl Temporary {
    /// A new folder. The first one of a process takes away what others have left.
    pub(super) fn new() -> io::Result<Temporary> {
        static SWEPT: Once = Once::new();
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let all = std::env::temp_dir();
        SWEPT.call_once(|| sweep(&all, YOUNG));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Temporary::at(all.join(format!("{PREFIX}{}-{number}", std::process::id())))
    }

    fn at(path: PathBuf) -> io::Result<Temporary> {
        fs::create_dir_all(&path)?;
        let lock = File::create(path.join(LOCK))?;
        // Without it the folder is not taken away if this process is killed, and that is all.
        let _ = lock.try_lock();
        Ok(Temporary { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Left-over files in the temporary folder harm nobody.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Takes away the folders that no process uses. What cannot be looked at or taken away is somebody else's.
fn sweep(all: &Path, young: Duration) {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let is_old = |file: &File| {
            let changed = file.metadata().and_then(|m| m.modified()).ok();
            changed.and_then(|at| at.elapsed().ok()).is_some_and(|age| age >= young)
        };
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if is_old(&lock) && lock.try_lock().is_ok() {
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
        sweep(all.path(), Duration::from_secs(3600));
        assert!(left.exists(), "it is too young");
        sweep(all.path(), Duration::ZERO);
        assert!(!left.exists());
        assert!(used.path().exists(), "it is in use");
        assert!(all.path().join("kernel-gen-3-0").exists(), "it has no lock");
        assert!(all.path().join("other-4-0").exists(), "it is called otherwise");
    }
}
