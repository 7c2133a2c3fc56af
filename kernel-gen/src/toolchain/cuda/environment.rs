//! What the lookup may see: variables, and a root for the folders that everybody has. A value, so that a test can give
//! another than the process has.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The variable by which a user vouches for packaged code and caches, wherever they lie.
pub(super) const TRUST: &str = "KERNEL_GEN_TRUST_ARTIFACTS";

/// Every variable that decides which CUDA compiler is used and what it makes: a build script is to run again when one
/// of them changes.
pub const VARIABLES: [&str; 19] = [
    "KERNEL_GEN_CUDA",
    "KERNEL_GEN_NVCC",
    "KERNEL_GEN_NVRTC",
    "KERNEL_GEN_PTXAS",
    "KERNEL_GEN_CLANG",
    "KERNEL_GEN_CACHE",
    TRUST,
    "NVCC",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "CUDA_HOME",
    "CUDA_PATH",
    "PATH",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "HOME",
    "OUT_DIR",
];

/// Variables and folders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Environment {
    variables: BTreeMap<String, OsString>,
    root: PathBuf,
}

impl Environment {
    /// That of this process.
    pub fn of_process() -> Environment {
        let variables = VARIABLES.iter().filter_map(|name| Some((name.to_string(), std::env::var_os(name)?)));
        Environment { variables: variables.collect(), root: PathBuf::from("/") }
    }

    /// One with these variables only, in which `/usr` and the like are looked for below `root`.
    pub fn new<'a>(variables: impl IntoIterator<Item = (&'a str, OsString)>, root: &Path) -> Environment {
        let variables = variables.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        Environment { variables, root: root.to_path_buf() }
    }

    /// The value of a variable; one that is empty counts as unset.
    pub fn get(&self, name: &str) -> Option<&OsString> {
        self.variables.get(name).filter(|value| !value.is_empty())
    }

    /// The same environment with a variable unset.
    pub fn without(mut self, name: &str) -> Environment {
        self.variables.remove(name);
        self
    }

    /// Whether KERNEL_GEN_TRUST_ARTIFACTS vouches for packaged code and caches that others may have written.
    pub fn trusts_artifacts(&self) -> bool {
        !matches!(self.text(TRUST).trim(), "" | "0" | "false")
    }

    /// The same as text for people.
    pub(super) fn text(&self, name: &str) -> String {
        self.get(name).map_or(String::new(), |value| value.to_string_lossy().into_owned())
    }

    /// The same as a path.
    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    /// A program: a path as it stands, a bare name by the PATH of this environment.
    pub(super) fn program(&self, name: impl AsRef<std::ffi::OsStr>) -> Option<PathBuf> {
        let path = self.get("PATH").cloned().unwrap_or_default();
        which::which_in(name, Some(path), std::env::current_dir().unwrap_or_default()).ok()
    }

    /// CUDA_HOME and CUDA_PATH, where they are set.
    pub(super) fn toolkits(&self) -> Vec<(&'static str, PathBuf)> {
        ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(|name| Some((name, self.path(name)?))).collect()
    }

    /// Folders that could hold libnvrtc, with what they are called, where no variable of CUDA names one: those of the
    /// loader, of an install in the usual place, and of wheels.
    pub(super) fn nvrtc_folders(&self) -> Vec<(String, Vec<PathBuf>)> {
        let mut all = vec![];
        let on_path = self.get("LD_LIBRARY_PATH").map(|value| std::env::split_paths(value).collect::<Vec<_>>());
        if let Some(folders) = on_path {
            all.push(("libnvrtc on LD_LIBRARY_PATH".to_string(), folders));
        }
        all.push(("libnvrtc in the loader's folders".to_string(), self.loader_folders()));
        let mut installs = newest_first(self.root.join("usr/local"), "cuda");
        installs.push(self.root.join("opt/cuda"));
        let installs = installs.iter().flat_map(|toolkit| {
            ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"].map(|lib| toolkit.join(lib))
        });
        all.push(("libnvrtc in /usr/local/cuda* and /opt/cuda".to_string(), installs.collect()));
        all.push(("libnvrtc in Python's packages".to_string(), self.wheel_folders()));
        all
    }

    /// The driver's library, where the loader would find it. It is not opened.
    pub fn driver(&self) -> Option<PathBuf> {
        let on_path = self.get("LD_LIBRARY_PATH").map(|value| std::env::split_paths(value).collect::<Vec<_>>());
        let mut folders = on_path.unwrap_or_default();
        folders.extend(self.loader_folders());
        // Where Windows puts it for Linux beside it.
        folders.push(self.root.join("usr/lib/wsl/lib"));
        folders.iter().map(|folder| folder.join("libcuda.so.1")).find(|file| file.exists())
    }

    /// What `/etc/ld.so.conf` and its parts name, and the usual folders.
    fn loader_folders(&self) -> Vec<PathBuf> {
        let mut files = vec![self.root.join("etc/ld.so.conf")];
        files.extend(entries(&self.root.join("etc/ld.so.conf.d")));
        let lines = files.iter().filter_map(|file| fs::read_to_string(file).ok());
        let mut folders: Vec<PathBuf> = lines
            .flat_map(|text| text.lines().map(str::trim).map(String::from).collect::<Vec<_>>())
            .filter_map(|line| line.strip_prefix('/').map(|rest| self.root.join(rest)))
            .collect();
        let arch = std::env::consts::ARCH;
        let usual = [format!("usr/lib/{arch}-linux-gnu"), "usr/lib64".into(), "usr/lib".into(), "usr/local/lib".into()];
        folders.extend(usual.map(|folder| self.root.join(folder)));
        folders
    }

    /// Where pip puts NVIDIA's wheels: below the site-packages of the active environment, of the user, and of the
    /// Python on PATH. Python itself is not run.
    fn wheel_folders(&self) -> Vec<PathBuf> {
        let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|v| self.path(v)).collect();
        prefixes.extend(self.path("HOME").map(|home| home.join(".local")));
        let python = self.program("python3").and_then(|p| fs::canonicalize(p).ok());
        prefixes.extend(python.and_then(|p| Some(p.parent()?.parent()?.to_path_buf())));
        let mut folders = vec![];
        for prefix in prefixes {
            folders.push(prefix.join("lib"));
            for python in newest_first(prefix.join("lib"), "python3") {
                for packages in ["site-packages", "dist-packages"] {
                    let nvidia = python.join(packages).join("nvidia");
                    folders.extend(["cu13/lib", "cuda_nvrtc/lib"].map(|lib| nvidia.join(lib)));
                }
            }
        }
        folders
    }
}

/// The entries of a folder, sorted; none if there is no such folder.
pub(super) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(folder).map(|all| all.filter_map(|e| e.ok().map(|e| e.path())).collect()).unwrap_or_default();
    all.sort();
    all
}

/// The entries whose names start like that, by the numbers in their names, greatest first; a name without a number
/// (a link to the one that is meant) before all.
pub(super) fn newest_first(folder: PathBuf, start: &str) -> Vec<PathBuf> {
    let name = |path: &Path| path.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
    let number = |path: &Path| {
        let digits = name(path)[start.len()..].to_string();
        let numbers: Vec<u32> =
            digits.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
        (!numbers.is_empty(), std::cmp::Reverse(numbers))
    };
    let mut all: Vec<PathBuf> = entries(&folder).into_iter().filter(|path| name(path).starts_with(start)).collect();
    all.sort_by_key(|path| number(path));
    all
}

#[cfg(test)]
mod tests {
    use super::super::testing::Folder;
    use super::*;

    #[test]
    fn newer_versions_come_first() {
        let folder = Folder::new("newest");
        for name in ["cuda-12.8", "cuda-9.0", "cuda-13.0", "cuda", "other-99"] {
            fs::create_dir(folder.join(name)).unwrap();
        }
        let names: Vec<String> = newest_first(folder.path(), "cuda")
            .iter()
            .map(|p| p.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["cuda", "cuda-13.0", "cuda-12.8", "cuda-9.0"]);
    }

    #[test]
    fn a_program_is_found_on_the_path_of_the_environment_only() {
        let folder = Folder::new("program");
        let tool = folder.script("some-tool", "exit 0");
        let with = Environment::new([("PATH", folder.path().into_os_string())], &folder.path());
        assert_eq!(with.program("some-tool"), Some(tool.clone()));
        assert_eq!(with.program("sh"), None);
        let without = Environment::new([], &folder.path());
        assert_eq!(without.program("some-tool"), None);
        assert_eq!(without.program(&tool), Some(tool));
        assert_eq!(Environment::new([("NVCC", OsString::new())], &folder.path()).get("NVCC"), None);
    }

    #[test]
    fn the_loaders_configuration_and_wheels_are_read() {
        let root = Folder::new("loader");
        fs::create_dir_all(root.join("etc/ld.so.conf.d")).unwrap();
        fs::write(root.join("etc/ld.so.conf.d/cuda.conf"), "# CUDA\n/opt/somewhere/lib\n").unwrap();
        fs::create_dir_all(root.join("venv/lib/python3.12/site-packages")).unwrap();
        let environment = Environment::new([("VIRTUAL_ENV", root.join("venv").into_os_string())], &root.path());
        assert_eq!(environment.driver(), None);
        fs::create_dir_all(root.join("opt/somewhere/lib")).unwrap();
        fs::write(root.join("opt/somewhere/lib/libcuda.so.1"), "").unwrap();
        assert_eq!(environment.driver(), Some(root.join("opt/somewhere/lib/libcuda.so.1")));
        let folders: Vec<PathBuf> = environment.nvrtc_folders().into_iter().flat_map(|(_, all)| all).collect();
        assert!(folders.contains(&root.join("opt/somewhere/lib")));
        assert!(folders.contains(&root.join("venv/lib/python3.12/site-packages/nvidia/cu13/lib")));
    }
}
