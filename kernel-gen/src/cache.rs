//! Results that are kept from one run to the next, in a folder that several builds may share.
//!
//! An entry is a file. Its name is a hash of what the result was made of, and it says in full what that is: two results never take
//! each other's place, and crates, profiles and target folders can use one folder. Files are replaced in one step, so builds can run
//! at the same time; one that is damaged is made again. A folder that cannot be written makes builds slower and changes nothing else.

use crate::files;
use crate::stable::fnv1a_128;
use crate::stored::Stored;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

/// How long an entry is kept that no build asks for.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// An entry that is older than this gets a new time when it is used.
const YOUNG: Duration = Duration::from_secs(24 * 3600);
/// What entries hold and how: changed with the stored form of any of them, so that no build reads what another version wrote.
const FORMAT: &str = "format 1";
/// What the names of entries end in.
const ENDING: &str = "kept";
/// The file that holds the key of an entry that is a folder.
const OF: &str = "of";

/// A folder of results, which need not exist. It may be deleted at any time.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    used: Arc<Mutex<BTreeSet<PathBuf>>>,
    /// Why an entry could not be written, the first one.
    trouble: Arc<OnceLock<String>>,
}

impl Cache {
    /// The cache in a folder.
    pub fn at(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: folder.into(), used: Arc::default(), trouble: Arc::default() }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The first error of writing an entry.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.get().map(String::as_str)
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{:032x}.{ENDING}", fnv1a_128(format!("{FORMAT}\n{key}").as_bytes())))
    }

    /// Notes an error of writing. The result is none.
    fn cannot_write<T>(&self, path: &Path, error: &std::io::Error) -> Option<T> {
        let _ = self.trouble.set(format!("{}: {error}", path.display()));
        None
    }

    /// Says that an entry is in use.
    fn touch(&self, path: &Path) {
        if let Ok(file) = fs::File::open(path)
            && files::is_older(&file, YOUNG)
        {
            let _ = file.set_modified(SystemTime::now());
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_path_buf());
    }

    /// The result that was made of what `key` says, if it is there and whole.
    pub(crate) fn get<T: Stored>(&self, key: &str) -> Option<T> {
        let path = self.path(key);
        let bytes = fs::read(&path).ok()?;
        self.touch(&path);
        let mut from = &bytes[..];
        let (of, sum): (String, (u64, u64)) = Stored::get(&mut from)?;
        if of != key || sum != checksum(from) {
            return None;
        }
        Stored::get(&mut from).filter(|_| from.is_empty())
    }

    /// Keeps a result.
    pub(crate) fn put(&self, key: &str, value: &impl Stored) {
        let (mut head, mut body) = (vec![], vec![]);
        value.put(&mut body);
        (key.to_string(), checksum(&body)).put(&mut head);
        head.append(&mut body);
        let path = self.path(key);
        if let Err(error) = fs::create_dir_all(&self.folder).and_then(|()| files::write_whole(&path, &head)) {
            self.cannot_write::<()>(&path, &error);
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(path);
    }

    /// The folder of files that an earlier call kept for `key`. If there is none and `make` is given, a new folder that `make` fills. Tools
    /// read the files in place.
    pub(crate) fn files(&self, key: &str, make: Option<impl FnOnce(&Path) -> Option<()>>) -> Option<PathBuf> {
        let path = self.path(key);
        let is_whole = |path: &Path| fs::read(path.join(OF)).is_ok_and(|of| of == key.as_bytes());
        if !is_whole(&path) {
            // As an entry of no key, it is forgotten like any other if this process ends here.
            let draft = self.folder.join(format!("{}.{ENDING}", files::random_name()));
            let made = make.and_then(|make| match fs::create_dir_all(&draft) {
                Ok(()) => make(&draft),
                Err(error) => self.cannot_write(&draft, &error),
            });
            let is_made = made.is_some_and(|()| match fs::write(draft.join(OF), key) {
                Ok(()) => true,
                Err(error) => self.cannot_write::<()>(&draft, &error).is_some(),
            });
            // What is there may be damaged, or another build was faster, whose folder is as good.
            if is_made && !is_whole(&path) {
                let _ = fs::remove_dir_all(&path);
            }
            let moved = if is_made { fs::rename(&draft, &path) } else { Ok(()) };
            if let Err(error) = moved
                && !is_whole(&path)
            {
                self.cannot_write::<()>(&path, &error);
            }
            let _ = fs::remove_dir_all(&draft);
        }
        let whole = is_whole(&path).then_some(path);
        whole.iter().for_each(|path| self.touch(path));
        whole
    }

    /// Removes old entries that nobody asked for since the cache was opened.
    pub fn forget(&self) {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        for path in fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|e| e.path()) {
            let is_old = || fs::File::open(&path).is_ok_and(|file| files::is_older(&file, KEPT));
            // Nothing else in the folder is touched: a user may have named one that holds other things.
            let is_own = path.extension().is_some_and(|e| e == ENDING)
                && path.file_stem().and_then(|stem| stem.to_str()).is_some_and(files::is_name);
            if is_own && !used.contains(&path) && is_old() {
                let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            }
        }
    }
}

/// Two words that a damaged file does not have.
fn checksum(bytes: &[u8]) -> (u64, u64) {
    let hash = fnv1a_128(bytes);
    (hash as u64, (hash >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("kernel-gen-cache-{name}-{}", std::process::id()))
    }

    #[test]
    fn entries_come_back_whole_or_not_at_all() {
        let folder = folder("whole");
        let cache = Cache::at(folder.join("new"));
        assert_eq!(cache.get::<String>("key"), None);
        cache.put("key", &"value".to_string());
        assert_eq!((cache.get::<String>("key"), cache.trouble()), (Some("value".into()), None));
        assert_eq!(cache.get::<String>("another key"), None);
        // What another key made under the same name, one byte less, one more, one changed.
        let file = cache.path("key");
        let bytes = fs::read(&file).unwrap();
        let changed = |at: usize| bytes.iter().enumerate().map(|(i, b)| b ^ u8::from(i == at)).collect::<Vec<u8>>();
        let wrong = (0..bytes.len()).map(changed).chain([bytes[1..].to_vec(), [&bytes[..], b"x"].concat(), vec![]]);
        for wrong in wrong {
            fs::write(&file, &wrong).unwrap();
            assert_eq!(cache.get::<String>("key"), None, "{wrong:?}");
        }
        // A file where the folder should be: nobody can write there, not even root.
        let unwritable = Cache::at(file.join("below"));
        unwritable.put("key", &1u64);
        assert!(unwritable.trouble().unwrap().contains("below"));
        let unwritable = Cache::at(file.join("beneath"));
        assert_eq!(unwritable.files("key", Some(|_: &Path| Some(()))), None);
        assert!(unwritable.trouble().unwrap().contains("beneath"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_of_files_is_there_in_full_or_not_at_all() {
        let cache = Cache::at(folder("files"));
        let fill = |folder: &Path| fs::write(folder.join("header"), "text").ok();
        type Fill = fn(&Path) -> Option<()>;
        assert_eq!(cache.files("key", None::<Fill>), None);
        assert_eq!(cache.files("key", Some(|_: &Path| None)), None);
        let made = cache.files("key", Some(fill)).unwrap();
        assert_eq!(fs::read(made.join("header")).unwrap(), b"text");
        assert_eq!(cache.files("key", None::<Fill>), Some(made.clone()));
        // One that is damaged is made again.
        fs::write(made.join(OF), "another key").unwrap();
        assert_eq!(cache.files("key", None::<Fill>), None);
        assert_eq!(cache.files("key", Some(fill)), Some(made));
        assert_eq!(cache.files("another key", None::<Fill>), None);
        assert_eq!(fs::read_dir(cache.folder()).unwrap().count(), 1, "no draft is left");
        fs::remove_dir_all(cache.folder()).unwrap();
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten_after_a_month() {
        let cache = Cache::at(folder("old"));
        let age = |key: &str, days: u64| {
            let file = fs::File::options().append(true).open(cache.path(key)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(days * 24 * 3600)).unwrap();
        };
        for (key, days) in [("young", 29), ("old", 31), ("used", 31)] {
            cache.put(key, &1u64);
            age(key, days);
        }
        // What a user has in the folder besides is no entry, however old.
        let foreign = [".config", "Documents", "notes.kept"].map(|name| cache.folder().join(name));
        for folder in &foreign {
            fs::create_dir(folder).unwrap();
            let then = SystemTime::now() - Duration::from_secs(400 * 24 * 3600);
            fs::File::open(folder).unwrap().set_modified(then).unwrap();
        }
        let next = Cache::at(cache.folder());
        assert_eq!(next.get("used"), Some(1u64));
        next.forget();
        assert!(foreign.iter().all(|folder| folder.is_dir()));
        let left = ["young", "old", "used"].map(|key| Cache::at(cache.folder()).get::<u64>(key).is_some());
        assert_eq!(left, [true, false, true]);
        fs::remove_dir_all(cache.folder()).unwrap();
    }
}
