//! What was compiled once need not be compiled again.

use super::environment::{Environment, TRUST};
use super::request::{Made, Request};
use super::{ContentHash, CudaError};
use crate::files;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The first line of an entry; another number for another format.
const MAGIC: &str = "kernel-gen cuda 1";

/// A folder of compiled code, one file an entry, named by everything that decides its contents. It may be deleted at any
/// time, shared by several builds, and copied to other machines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cache {
    folder: PathBuf,
    /// Why an entry could not be written, the first one.
    trouble: Arc<OnceLock<String>>,
}

impl Cache {
    /// The cache in that folder, which need not exist.
    pub fn at(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: folder.into(), trouble: Arc::default() }
    }

    /// The folder that KERNEL_GEN_CACHE names, if no other user can write there; else one in a build script's OUT_DIR; none
    /// elsewhere.
    pub fn of(environment: &Environment) -> Option<Cache> {
        let own = environment.path("KERNEL_GEN_CACHE").filter(|_| Cache::refused(environment).is_none());
        own.or_else(|| Some(environment.path("OUT_DIR")?.join("kernel-gen-cuda"))).map(Cache::at)
    }

    /// Why the folder that KERNEL_GEN_CACHE names is not used, for the user. Who writes there decides which code is linked, and
    /// which helper is run.
    pub fn refused(environment: &Environment) -> Option<String> {
        let folder = environment.path("KERNEL_GEN_CACHE")?;
        let why = others_write(&folder).filter(|_| !environment.trusts_artifacts())?;
        Some(format!(
            "CUDA: the cache {} is not used, because {why}; change that, or set {TRUST}=1 if you trust them all (SECURITY.md)",
            folder.display()
        ))
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The name of what such a compiler makes of a request. What a kernel is called only shows in messages.
    pub(super) fn key(request: &Request, compiler: &str, lowest_ptx: bool) -> ContentHash {
        let ptx = if lowest_ptx { "lowest" } else { "as made" };
        let (source, arch) = (request.hash().to_string(), request.arch.to_string());
        ContentHash::of_parts(&[MAGIC, &source, &arch, compiler, ptx].map(str::as_bytes))
    }

    fn file(&self, key: ContentHash) -> PathBuf {
        self.folder.join(format!("{key}.code"))
    }

    /// The entry, if it is there and whole.
    pub(super) fn get(&self, key: ContentHash) -> Option<Made> {
        let bytes = fs::read(self.file(key)).ok()?;
        let (head, body) = bytes.split_at(bytes.windows(2).position(|w| w == b"\n\n")? + 2);
        let mut lines = std::str::from_utf8(head).ok()?.lines();
        if lines.next() != Some(MAGIC) || lines.next()?.parse() != Ok(ContentHash::of(body)) {
            return None;
        }
        let compiler = lines.next()?.to_string();
        let mut rest = body;
        let mut part = || {
            let size: usize = lines.next()?.parse().ok()?;
            let (part, after) = rest.split_at_checked(size)?;
            rest = after;
            Some(part.to_vec())
        };
        let (ptx, cubin, log) = (part()?, part()?, part()?);
        let cubin = (!cubin.is_empty()).then_some(cubin);
        Some(Made { ptx: String::from_utf8(ptx).ok()?, cubin, log: String::from_utf8(log).ok()?, compiler })
    }

    /// What to tell a user whose cache cannot be written. Nothing else depends on it.
    pub fn trouble(&self) -> Option<String> {
        let reason = self.trouble.get()?;
        Some(format!(
            "CUDA: the cache cannot be written ({reason}), so the next build compiles again; KERNEL_GEN_CACHE names another \
             folder"
        ))
    }

    /// Writes an entry in one step: other processes may read it now. A cache that cannot be written is no reason to fail.
    pub(super) fn put(&self, key: ContentHash, made: &Made) {
        let cubin = made.cubin.as_deref().unwrap_or_default();
        let body = [made.ptx.as_bytes(), cubin, made.log.as_bytes()].concat();
        let sizes = format!("{}\n{}\n{}", made.ptx.len(), cubin.len(), made.log.len());
        let head = format!("{MAGIC}\n{}\n{}\n{sizes}\n\n", ContentHash::of(&body), made.compiler.replace('\n', " "));
        let file = self.file(key);
        if let Err(error) = write_whole(&file, &[head.as_bytes(), &body].concat()) {
            // The first reason stays.
            let _ = self.trouble.set(error.to_string());
        }
    }
}

/// Who else can write a folder, as far as its owner and mode say. One that does not exist will be this user's. The system's
/// administrator can write everywhere, and so can this user where it is one.
#[cfg(unix)]
fn others_write(folder: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(folder).ok()?;
    let own = fs::metadata("/proc/self").map_or(found.uid(), |own| own.uid());
    if found.mode() & 0o002 != 0 {
        return Some("everybody can write there".to_string());
    }
    (own != 0 && found.uid() != 0 && found.uid() != own).then(|| format!("it belongs to user {}", found.uid()))
}

/// Other systems have other rights.
#[cfg(not(unix))]
fn others_write(_: &Path) -> Option<String> {
    None
}

/// Writes a file in one step, and its folder if that is missing.
pub(super) fn write_whole(file: &Path, bytes: &[u8]) -> Result<(), CudaError> {
    let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
    folder.and_then(|()| files::write_whole(file, bytes)).map_err(|e| CudaError::io(file, &e))
}

#[cfg(all(test, unix))]
mod tests {
    use super::super::testing::Folder;
    use super::*;

    #[test]
    fn entries_come_back_whole_or_not_at_all() {
        let folder = Folder::new("cache");
        let cache = Cache::at(folder.join("new"));
        let request = Request::new("k", "source", "sm_80".parse().unwrap());
        let key = Cache::key(&request, "nvcc 13.0.88", true);
        assert!(cache.get(key).is_none());
        let made = || Made {
            ptx: "ptx\n\nof it".into(),
            cubin: Some(vec![0, 10, 10, 255]),
            log: "log".into(),
            compiler: "nvcc".into(),
        };
        cache.put(key, &made());
        assert_eq!(cache.trouble(), None);
        let read = cache.get(key).unwrap();
        assert_eq!((read.ptx, read.cubin), (made().ptx, made().cubin));
        assert_eq!((read.log, read.compiler), (made().log, made().compiler));
        // One byte less, one byte changed.
        let file = cache.file(key);
        let bytes = fs::read(&file).unwrap();
        for wrong in [&bytes[..bytes.len() - 1], &[&bytes[..bytes.len() - 1], b"x"].concat(), b"", b"\n\n"] {
            fs::write(&file, wrong).unwrap();
            assert!(cache.get(key).is_none());
        }
        cache.put(key, &Made { cubin: None, ..made() });
        assert_eq!(cache.get(key).unwrap().cubin, None);
        // A file where its folder should be: nobody can write there, not even root.
        let unwritable = Cache::at(file.join("below"));
        unwritable.put(key, &made());
        let told = unwritable.trouble().unwrap();
        assert!(told.contains("below") && told.contains("KERNEL_GEN_CACHE"), "{told}");
    }

    #[test]
    fn a_folder_that_everybody_can_write_is_no_cache_unless_a_user_says_so() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new("shared-cache");
        let shared = folder.join("shared");
        fs::create_dir(&shared).unwrap();
        let with = |trust: &str| {
            let out = folder.join("out").into_os_string();
            let all = [("KERNEL_GEN_CACHE", shared.clone().into_os_string()), ("OUT_DIR", out), (TRUST, trust.into())];
            Environment::new(all, Path::new("/"))
        };
        let own = Cache::at(folder.join("out/kernel-gen-cuda"));
        for (mode, trust, is_used) in
            [(0o700, "", true), (0o775, "", true), (0o777, "", false), (0o1777, "0", false), (0o777, "1", true)]
        {
            fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
            let expected = if is_used { Cache::at(&shared) } else { own.clone() };
            assert_eq!(Cache::of(&with(trust)), Some(expected), "{mode:o} {trust}");
            let told = Cache::refused(&with(trust));
            assert_eq!(told.is_none(), is_used);
            assert!(told.is_none_or(|t| t.contains("everybody can write there") && t.contains("TRUST_ARTIFACTS=1")));
        }
    }

    #[test]
    fn the_key_has_everything_in_it_that_changes_the_code() {
        let request = |source: &str, arch: &str| Request::new("k", source, arch.parse().unwrap());
        let one = request("source", "sm_80");
        let keys = [
            Cache::key(&one, "a", true),
            Cache::key(&one, "a", false),
            Cache::key(&one, "b", true),
            Cache::key(&request("source", "sm_90"), "a", true),
            Cache::key(&request("source", "sm_90a"), "a", true),
            Cache::key(&request("source2", "sm_80"), "a", true),
        ];
        for (i, key) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(key), "{i}");
        }
        let environment = |all: &[(&'static str, &str)]| {
            Environment::new(all.iter().map(|(name, value)| (*name, (*value).into())), Path::new("/"))
        };
        assert_eq!(Cache::of(&environment(&[])), None);
        assert_eq!(Cache::of(&environment(&[("OUT_DIR", "/o")])), Some(Cache::at("/o/kernel-gen-cuda")));
        let both = environment(&[("OUT_DIR", "/o"), ("KERNEL_GEN_CACHE", "/c")]);
        assert_eq!(Cache::of(&both), Some(Cache::at("/c")));
    }
}
