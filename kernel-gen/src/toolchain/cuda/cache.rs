//! The folder in which results are kept from one build to the next.

use super::environment::{Environment, TRUST};
use super::request::{Made, Request};
use crate::cache::Cache;
use crate::stored::stored;
use std::fs;
use std::path::{Path, PathBuf};

stored! { Made { ptx, cubin, log, compiler } }

/// The cache of a build: the folder that KERNEL_GEN_CACHE names, if no other user can write there; else a folder in cargo's target
/// folder, so that profiles, crates of a workspace and features share it; else one in a build script's OUT_DIR; none elsewhere.
pub fn of(environment: &Environment) -> Option<Cache> {
    let own = environment.path("KERNEL_GEN_CACHE").filter(|_| refused(environment).is_none());
    let of_cargo = || {
        let out = environment.path("OUT_DIR")?;
        let shared = target_folder(&out).filter(|target| others_write(target).is_none());
        let shared = shared.map(|target| target.join("kernel-gen")).filter(|folder| others_write(folder).is_none());
        Some(shared.unwrap_or_else(|| out.join("kernel-gen-cache")))
    };
    own.or_else(of_cargo).map(Cache::at)
}

/// The folder of a build that OUT_DIR lies in: cargo marks it as one that backups need not hold. Not any folder above it with such a mark:
/// `target/<triple>/<profile>/build/<package>/<hash>/out` is the deepest that cargo makes.
fn target_folder(out: &Path) -> Option<PathBuf> {
    out.ancestors().skip(1).take(6).find(|folder| folder.join("CACHEDIR.TAG").is_file()).map(Path::to_path_buf)
}

/// Why the folder that KERNEL_GEN_CACHE names is not used, for the user. Who writes there decides which code is linked, and
/// which helper is run.
pub fn refused(environment: &Environment) -> Option<String> {
    let folder = environment.path("KERNEL_GEN_CACHE")?;
    let why = others_write(&folder).filter(|_| !environment.trusts_artifacts())?;
    Some(format!(
        "the cache {} is not used, because {why}; change that, or set {TRUST}=1 if you trust them all (SECURITY.md)",
        folder.display()
    ))
}

/// What to tell a user whose cache cannot be written. Nothing else depends on it.
pub fn trouble(cache: &Cache) -> Option<String> {
    let reason = cache.trouble()?;
    Some(format!(
        "the cache cannot be written ({reason}), so the next build makes all again; KERNEL_GEN_CACHE names another folder"
    ))
}

/// What such a compiler makes of a request, as a key of the cache. What a kernel is called only shows in messages.
pub(super) fn key(request: &Request, compiler: &str, lowest_ptx: bool) -> String {
    let ptx = if lowest_ptx { "lowest" } else { "as made" };
    format!("cuda\n{}\n{}\n{compiler}\nPTX {ptx}\n", request.hash(), request.arch)
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

#[cfg(all(test, unix))]
mod tests {
    use super::super::testing::Folder;
    use super::*;

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
        for (mode, trust, is_used) in
            [(0o700, "", true), (0o775, "", true), (0o777, "", false), (0o1777, "0", false), (0o777, "1", true)]
        {
            fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
            let expected = if is_used { shared.clone() } else { folder.join("out/kernel-gen-cache") };
            assert_eq!(of(&with(trust)).unwrap().folder(), expected, "{mode:o} {trust}");
            let told = refused(&with(trust));
            assert_eq!(told.is_none(), is_used);
            assert!(told.is_none_or(|t| t.contains("everybody can write there") && t.contains("TRUST_ARTIFACTS=1")));
        }
    }

    #[test]
    fn builds_of_one_target_folder_share_a_cache() {
        let folder = Folder::new("target-cache");
        let of = |all: &[(&'static str, PathBuf)]| {
            let all = all.iter().map(|(name, value)| (*name, value.clone().into_os_string()));
            of(&Environment::new(all, Path::new("/"))).map(|cache| cache.folder().to_path_buf())
        };
        assert_eq!(of(&[]), None);
        let out = |profile: &str| ("OUT_DIR", folder.join(format!("target/{profile}/build/crate-1/out")));
        for profile in ["debug", "x86_64-unknown-linux-gnu/release"] {
            fs::create_dir_all(out(profile).1).unwrap();
            assert_eq!(of(&[out(profile)]), Some(out(profile).1.join("kernel-gen-cache")));
        }
        fs::write(folder.join("target/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55").unwrap();
        for profile in ["debug", "x86_64-unknown-linux-gnu/release"] {
            assert_eq!(of(&[out(profile)]), Some(folder.join("target/kernel-gen")));
        }
        assert_eq!(of(&[out("debug"), ("KERNEL_GEN_CACHE", "/c".into())]), Some("/c".into()));
    }

    #[test]
    fn the_key_has_everything_in_it_that_changes_the_code() {
        let request = |source: &str, arch: &str| Request::new("k", source, arch.parse().unwrap());
        let one = request("source", "sm_80");
        let keys = [
            key(&one, "a", true),
            key(&one, "a", false),
            key(&one, "b", true),
            key(&request("source", "sm_90"), "a", true),
            key(&request("source", "sm_90a"), "a", true),
            key(&request("source2", "sm_80"), "a", true),
        ];
        for (i, key) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(key), "{i}");
        }
    }
}
