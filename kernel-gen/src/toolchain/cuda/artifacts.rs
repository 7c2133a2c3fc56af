//! Compiled code that is checked in, so that a build needs no compiler.
//!
//! A folder holds `<kernel>-<arch>-<hash>.ptx` and `.cubin` and an index that says what each was made from, by what, and
//! the hash of its bytes. An artifact is found by the hash of the source (with its flags) and the architecture and by
//! nothing else: code that was made from another source is never used, and a file that changed is an error.
//!
//! The hashes find what is stale or damaged. They do not find what is forged: anyone who can write the folder can write an
//! index that fits. Whether its files are what a compiler makes of the source, only that compiler can tell
//! (`kernel-gen package --verify`). So a build uses a folder only if it lies in the package that is built, which is trusted as
//! its source is, or if somebody vouches for it ([`Artifacts::within`]).

use super::arch::Arch;
use super::environment::{TRUST, entries};
use super::request::{Artifact, Request, file_stem};
use super::resources::AssemblerLog;
use super::{ContentHash, CudaError};
use crate::diagnostic::{Report, Table, parse};
use crate::files;
use crate::records::quoted;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The index's name.
const INDEX: &str = "artifacts.toml";

/// The format of the index.
const SCHEMA: i64 = 1;

/// A folder of packaged artifacts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Artifacts {
    folder: PathBuf,
    entries: BTreeMap<(ContentHash, Arch), Entry>,
}

/// What the index says of one artifact.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    kernel: String,
    compiler: String,
    ptx: Packed,
    cubin: Option<Packed>,
}

/// A file and the hash of its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Packed {
    file: String,
    hash: ContentHash,
}

impl Artifacts {
    /// Reads the index of a folder. A folder that is not there, or has no index, holds no artifacts.
    pub fn open(folder: &Path) -> Result<Artifacts, CudaError> {
        let path = folder.join(INDEX);
        let entries = match fs::read_to_string(&path) {
            Ok(text) => read_index(&text, &path.display().to_string())?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(CudaError::io(&path, &e)),
        };
        Ok(Artifacts { folder: folder.to_path_buf(), entries })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The index and every file it names: a build depends on them.
    pub fn files(&self) -> Vec<PathBuf> {
        let packed = self.entries.values().flat_map(|e| std::iter::once(&e.ptx).chain(&e.cubin));
        let mut all: Vec<PathBuf> = packed.map(|p| self.folder.join(&p.file)).collect();
        all.push(self.folder.join(INDEX));
        all.sort();
        all.dedup();
        all
    }

    /// The artifacts, if they lie in the folder of a package; links are followed. The error is a warning for the user: it
    /// names the file that lies elsewhere, and what to do.
    pub fn within(self, package: &Path) -> Result<Artifacts, String> {
        let package = fs::canonicalize(package).ok();
        let inside = |path: &Path| match fs::canonicalize(path) {
            Ok(real) => package.as_ref().is_some_and(|package| real.starts_with(package)),
            // One that is missing is told when it is used.
            Err(_) => true,
        };
        let outside = self.files().into_iter().find(|file| !inside(file));
        match outside.filter(|_| !self.is_empty()) {
            None => Ok(self),
            Some(file) => Err(format!(
                "CUDA: the packaged code in {} is not used, because {} lies outside of the package that is built, and nothing \
                 here can tell whether it was made from its source; if you trust everyone who can write there, set \
                 {TRUST}=1 or call `.trust_artifacts(true)` in build.rs (SECURITY.md)",
                self.folder.display(),
                file.display()
            )),
        }
    }

    /// The code that was made from a request's source (see [`Request::hash`]) for its architecture. A file that is missing or
    /// changed, or that does not define the kernels of the source for that architecture, is an error: to go on without it
    /// would hide that the package is broken.
    pub fn find(&self, request: &Request) -> Result<Option<Artifact>, CudaError> {
        let (source, arch) = (request.hash(), request.arch);
        let Some(entry) = self.entries.get(&(source, arch)) else { return Ok(None) };
        let damaged =
            |cause: String| CudaError::Damaged { file: self.folder.join(&entry.ptx.file).display().to_string(), cause };
        let ptx = String::from_utf8(self.load(&entry.ptx)?).map_err(|_| damaged("it is not text".to_string()))?;
        if let Some(difference) = request.differs_from(&ptx) {
            return Err(damaged(format!("{difference}, so it was not made from the source of {}", request.kernel)));
        }
        let cubin = entry.cubin.as_ref().map(|packed| self.load(packed)).transpose()?;
        Ok(Some(Artifact {
            kernel: entry.kernel.clone(),
            arch,
            source,
            compiler: entry.compiler.clone(),
            ptx,
            cubin,
            log: AssemblerLog::default(),
        }))
    }

    /// Whether there is code for the kernel and architecture that was made from another source: what to tell a person
    /// whose artifact was not found.
    pub fn has_other_source(&self, kernel: &str, source: ContentHash, arch: Arch) -> bool {
        self.entries.iter().any(|((s, a), entry)| *s != source && *a == arch && entry.kernel == kernel)
    }

    /// What it has that none of the requests asks for: the kernel and the architecture of each.
    pub fn unused(&self, requests: &[Request]) -> Vec<(String, Arch)> {
        let wanted: BTreeSet<(ContentHash, Arch)> = requests.iter().map(|r| (r.hash(), r.arch)).collect();
        let unused = self.entries.iter().filter(|(key, _)| !wanted.contains(key));
        let mut all: Vec<(String, Arch)> = unused.map(|((_, arch), entry)| (entry.kernel.clone(), *arch)).collect();
        all.sort();
        all
    }

    fn load(&self, packed: &Packed) -> Result<Vec<u8>, CudaError> {
        let path = self.folder.join(&packed.file);
        let damaged = |cause: String| CudaError::Damaged { file: path.display().to_string(), cause };
        let bytes = fs::read(&path).map_err(|e| damaged(format!("it cannot be read: {e}")))?;
        let hash = ContentHash::of(&bytes);
        match hash == packed.hash {
            true => Ok(bytes),
            false => Err(damaged(format!("its bytes have the hash {hash}, and {INDEX} says {}", packed.hash))),
        }
    }

    /// Makes the folder hold exactly these artifacts and gives the files, the index last. Files that are right already
    /// are not touched; artifacts of an earlier time are removed, and nothing else is.
    pub fn write(folder: &Path, artifacts: &[Artifact]) -> Result<Vec<PathBuf>, CudaError> {
        let old = Artifacts::open(folder).map(|old| old.files()).unwrap_or_default();
        let mut files: BTreeMap<String, &[u8]> = BTreeMap::new();
        let mut all = BTreeMap::new();
        for artifact in artifacts {
            let (stem, arch) = (file_stem(&artifact.kernel), artifact.arch.to_string());
            // A kernel's name may have the architecture in it already.
            let stem = stem.strip_suffix(&arch).map_or(stem.as_str(), |s| s.trim_end_matches(['_', '-']));
            let stem = format!("{stem}-{arch}-{}", artifact.source.short());
            let mut pack = |extension: &str, bytes| {
                let file = format!("{stem}.{extension}");
                let hash = ContentHash::of(bytes);
                files.insert(file.clone(), bytes);
                Packed { file, hash }
            };
            let ptx = pack("ptx", artifact.ptx.as_bytes());
            let cubin = artifact.cubin.as_deref().map(|bytes| pack("cubin", bytes));
            let (kernel, compiler) = (artifact.kernel.clone(), artifact.compiler.clone());
            all.insert((artifact.source, artifact.arch), Entry { kernel, compiler, ptx, cubin });
        }
        let index = index(&all);
        // Version control that changes the ends of lines would change hashes.
        files.insert(".gitattributes".to_string(), b"*.ptx -text\n*.cubin binary\n");
        let mut written = vec![];
        let kept: BTreeSet<PathBuf> = files.keys().map(|file| folder.join(file)).collect();
        for (file, bytes) in
            files.iter().map(|(file, bytes)| (file.as_str(), *bytes)).chain([(INDEX, index.as_bytes())])
        {
            let path = folder.join(file);
            if !fs::read(&path).is_ok_and(|old| old == bytes) {
                write_whole(&path, bytes)?;
            }
            written.push(path);
        }
        for path in old.iter().filter(|path| !kept.contains(*path) && !path.ends_with(INDEX)) {
            match fs::remove_file(path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(CudaError::io(path, &e)),
                _ => {}
            }
        }
        Ok(written)
    }

    /// Files in the folder that look like artifacts and that the index does not name: rests of an interrupted run.
    pub fn strays(&self) -> Vec<PathBuf> {
        let known = self.files();
        let is_code = |path: &Path| path.extension().is_some_and(|e| e == "ptx" || e == "cubin");
        entries(&self.folder).into_iter().filter(|path| is_code(path) && !known.contains(path)).collect()
    }
}

/// The index's text: sorted by kernel, so that a change of one kernel is a small difference.
fn index(all: &BTreeMap<(ContentHash, Arch), Entry>) -> String {
    let mut sorted: Vec<_> = all.iter().collect();
    sorted.sort_by_key(|((source, arch), entry)| (&entry.kernel, *arch, *source));
    let mut t = String::from(
        "# Compiled kernels, so that a build needs no CUDA compiler. Written by `kernel-gen package`; keep the folder in\n\
         # version control.\n",
    );
    // Writing to a string cannot fail.
    let _ = writeln!(t, "schema = {SCHEMA}");
    for ((source, arch), entry) in sorted {
        let _ = writeln!(t, "\n[[artifact]]\nkernel = {}\narch = \"{arch}\"", quoted(&entry.kernel));
        let _ = writeln!(t, "source = \"{source}\"\ncompiler = {}", quoted(&entry.compiler));
        let _ = writeln!(t, "ptx = {}\nptx_hash = \"{}\"", quoted(&entry.ptx.file), entry.ptx.hash);
        if let Some(cubin) = &entry.cubin {
            let _ = writeln!(t, "cubin = {}\ncubin_hash = \"{}\"", quoted(&cubin.file), cubin.hash);
        }
    }
    t
}

const MEND: &str = "write the folder anew with `kernel-gen package`";

fn read_index(text: &str, file: &str) -> Result<BTreeMap<(ContentHash, Arch), Entry>, CudaError> {
    let mut report = Report::new(file, text);
    let document = parse(text, &mut report);
    let mut all = BTreeMap::new();
    if report.is_clean() {
        let mut root = Table::root(&document, "the index");
        match root.integer(&mut report, "schema") {
            Some(schema) if schema.value == SCHEMA => {}
            Some(schema) => report.error(&schema.span, format!("the index has schema {}", schema.value), MEND),
            None => report.error(&root.span(), "the index has no `schema`", MEND),
        }
        for mut table in root.tables(&mut report, "artifact", "[[artifact]]") {
            if let Some((key, entry)) = read_entry(&mut table, &mut report) {
                all.insert(key, entry);
            }
            table.finish(&mut report);
        }
        root.finish(&mut report);
    }
    report.finish(Some(all)).map_err(|faults| CudaError::Index { faults })
}

fn read_entry(table: &mut Table<'_, '_>, report: &mut Report) -> Option<((ContentHash, Arch), Entry)> {
    let mut string = |key: &'static str| {
        table.require(report, key, &format!("it, or {MEND}"));
        table.string(report, key)
    };
    let (kernel, arch, source) = (string("kernel"), string("arch"), string("source"));
    let (compiler, ptx, ptx_hash) = (string("compiler"), string("ptx"), string("ptx_hash"));
    let has_cubin = table.has("cubin") || table.has("cubin_hash");
    let cubin = has_cubin.then(|| {
        let mut string = |key: &'static str| {
            table.require(report, key, &format!("it, or {MEND}"));
            table.string(report, key)
        };
        (string("cubin"), string("cubin_hash"))
    });
    let mut hash = |found: Option<crate::diagnostic::Found<&str>>| {
        let found = found?;
        let hash = found.value.parse().ok();
        if hash.is_none() {
            report.error(&found.span, format!("`{}` is not a hash of 32 digits", found.value), MEND);
        }
        hash
    };
    let (source, ptx_hash) = (hash(source), hash(ptx_hash));
    let cubin = cubin.map(|(file, text)| (file, hash(text)));
    let mut name = |found: Option<crate::diagnostic::Found<&str>>| {
        let found = found?;
        // A path could lead out of the folder.
        let plain = found.value.rsplit_once('.').is_some_and(|(stem, _)| {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            !stem.is_empty() && stem.chars().all(fits)
        });
        if !plain {
            report.error(&found.span, format!("`{}` is not the name of an artifact's file", found.value), MEND);
        }
        plain.then(|| found.value.to_string())
    };
    let ptx = name(ptx);
    let cubin = match cubin {
        None => None,
        Some((file, hash)) => Some(Packed { file: name(file)?, hash: hash? }),
    };
    let arch = arch.and_then(|found| {
        let arch = found.value.parse::<Arch>();
        arch.map_err(|e| report.error(&found.span, e.to_string(), MEND)).ok()
    });
    let entry = Entry {
        kernel: kernel?.value.to_string(),
        compiler: compiler?.value.to_string(),
        ptx: Packed { file: ptx?, hash: ptx_hash? },
        cubin,
    };
    Some(((source?, arch?), entry))
}

/// Writes a file in one step, and its folder if that is missing.
fn write_whole(file: &Path, bytes: &[u8]) -> Result<(), CudaError> {
    let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
    folder.and_then(|()| files::write_whole(file, bytes)).map_err(|e| CudaError::io(file, &e))
}

#[cfg(all(test, unix))]
mod tests {
    use super::super::testing::Folder;
    use super::*;

    fn arch(name: &str) -> Arch {
        name.parse().unwrap()
    }

    fn artifact(kernel: &str, source: &str, arch: &str, cubin: Option<&[u8]>) -> Artifact {
        let request = Request::new(kernel, source, arch.parse().unwrap());
        Artifact {
            kernel: kernel.to_string(),
            arch: request.arch,
            source: request.hash(),
            compiler: "nvcc 13.0.88".to_string(),
            ptx: format!(".version 8.0\n.target {arch}\n// {source}\n"),
            cubin: cubin.map(<[u8]>::to_vec),
            log: AssemblerLog::default(),
        }
    }

    #[test]
    fn what_was_packaged_is_found_by_source_and_architecture() {
        let folder = Folder::new("artifacts");
        let package = folder.join("tuned/artifacts");
        assert!(Artifacts::open(&package).unwrap().is_empty());
        let all = [
            artifact("conv \"a\"", "one", "sm_90a", Some(b"\x7fELF\0\r\n")),
            artifact("conv \"a\"", "one", "sm_80", Some(b"\x7fELF 80")),
            artifact("mm", "two", "sm_80", None),
        ];
        let files = Artifacts::write(&package, &all).unwrap();
        assert_eq!(files.len(), 3 + 2 + 2);
        let read = Artifacts::open(&package).unwrap();
        assert_eq!((read.len(), read.is_empty(), read.strays()), (3, false, vec![]));
        for artifact in &all {
            let source = if artifact.kernel == "mm" { "two" } else { "one" };
            let request = Request::new("any", source, artifact.arch);
            assert_eq!(read.find(&request).unwrap().as_ref(), Some(artifact));
        }
        assert_eq!(read.find(&Request::new("mm", "two", all[0].arch)), Ok(None));
        let other = Request::new("mm", "three", "sm_80".parse().unwrap());
        assert_eq!(read.find(&other), Ok(None));
        assert!(read.has_other_source("mm", other.hash(), other.arch));
        assert!(!read.has_other_source("mm", all[2].source, all[2].arch));
        assert_eq!(
            read.unused(&[Request::new("mm", "two", arch("sm_80"))]),
            [("conv \"a\"".to_string(), arch("sm_80")), ("conv \"a\"".to_string(), arch("sm_90a"))]
        );
        // Again, in another order: the same bytes; with one less: its files go.
        let bytes = || files.iter().map(|f| fs::read(f).unwrap()).collect::<Vec<_>>();
        let before = bytes();
        let reversed: Vec<Artifact> = all.iter().rev().cloned().collect();
        assert_eq!(Artifacts::write(&package, &reversed).unwrap(), files);
        assert_eq!(bytes(), before);
        fs::write(package.join("notes.txt"), "mine").unwrap();
        Artifacts::write(&package, &all[1..]).unwrap();
        assert_eq!(Artifacts::open(&package).unwrap().len(), 2);
        let left = entries(&package).len();
        assert_eq!(left, 2 + 1 + 3, "{:?}", entries(&package));
    }

    #[test]
    fn a_file_that_changed_or_is_missing_is_an_error_that_says_so() {
        let folder = Folder::new("damaged");
        let one = artifact("mm", "one", "sm_80", Some(b"\x7fELF"));
        let request = Request::new("mm", "one", arch("sm_80"));
        Artifacts::write(&folder.path(), std::slice::from_ref(&one)).unwrap();
        let read = Artifacts::open(&folder.path()).unwrap();
        let ptx = read.files().into_iter().find(|f| f.extension().is_some_and(|e| e == "ptx")).unwrap();
        let bytes = fs::read(&ptx).unwrap();
        fs::write(&ptx, [&bytes[..], b"\r\n"].concat()).unwrap();
        let text = read.find(&request).unwrap_err().to_string();
        assert!(text.contains(".ptx: its bytes have the hash") && text.contains("restore it"), "{text}");
        fs::remove_file(&ptx).unwrap();
        let text = read.find(&request).unwrap_err().to_string();
        assert!(text.contains("cannot be read"), "{text}");
        fs::write(&ptx, bytes).unwrap();
        assert_eq!(read.find(&request), Ok(Some(one)));
    }

    #[test]
    fn code_of_another_kernel_or_architecture_is_refused_whatever_the_index_says() {
        let folder = Folder::new("forged");
        let source = "extern \"C\" __global__ void __launch_bounds__(32) mine(float *y) {\n}\n";
        let request = Request::new("mine", source, arch("sm_80"));
        let check = |ptx: &str, expected: Option<&str>| {
            // With hashes that fit, as anyone can compute them.
            let forged = Artifact { ptx: ptx.to_string(), ..artifact("mine", source, "sm_80", None) };
            Artifacts::write(&folder.path(), &[forged]).unwrap();
            match (Artifacts::open(&folder.path()).unwrap().find(&request), expected) {
                (Ok(Some(_)), None) => {}
                (Err(error), Some(cause)) => {
                    let text = error.to_string();
                    assert!(text.contains(".ptx: ") && text.contains(cause), "{text}");
                    assert!(text.contains("not made from the source of mine"), "{text}");
                }
                (found, _) => panic!("{found:?}"),
            }
        };
        check(".version 7.0\n.target sm_80\n.visible .entry mine(\n)\n{ ret; }\n", None);
        check(".version 7.0\n.target sm_80\n.visible .entry other(\n)\n{ ret; }\n", Some("it has no kernel `mine`"));
        check(".version 7.0\n.target sm_80\n.visible .entry mine2(\n)\n{ ret; }\n", Some("it has no kernel `mine`"));
        check(".version 7.0\n.target sm_90\n.visible .entry mine(\n)\n{ ret; }\n", Some("it is not for sm_80"));
        check("", Some("it is not for sm_80"));
    }

    #[test]
    fn packaged_code_is_used_only_where_it_lies_in_the_package() {
        let folder = Folder::new("within");
        let package = folder.join("package");
        let inside = package.join("tuned/artifacts");
        let outside = folder.join("outside");
        let all = [artifact("mm", "one", "sm_80", None)];
        for folder in [&inside, &outside] {
            Artifacts::write(folder, &all).unwrap();
        }
        let within = |folder: &Path| Artifacts::open(folder).unwrap().within(&package).map(|all| all.len());
        assert_eq!(within(&inside), Ok(1));
        for lies_outside in [outside.clone(), package.join("../outside")] {
            let told = within(&lies_outside).unwrap_err();
            assert!(told.contains(&lies_outside.display().to_string()) && told.contains("artifacts.toml"), "{told}");
            assert!(told.contains("KERNEL_GEN_TRUST_ARTIFACTS=1"), "{told}");
        }
        // A folder and a file that are links out of it.
        std::os::unix::fs::symlink(&outside, package.join("link")).unwrap();
        assert!(within(&package.join("link")).is_err());
        let ptx = entries(&inside).into_iter().find(|f| f.extension().is_some_and(|e| e == "ptx")).unwrap();
        fs::remove_file(&ptx).unwrap();
        std::os::unix::fs::symlink(outside.join(ptx.file_name().unwrap()), &ptx).unwrap();
        assert!(within(&inside).unwrap_err().contains(".ptx lies outside"));
        // Nothing there is nothing to warn of.
        assert_eq!(within(&folder.join("empty")), Ok(0));
    }

    #[test]
    fn an_index_that_is_wrong_is_told_with_its_lines() {
        let folder = Folder::new("index");
        let check = |text: &str, expected: &[&str]| {
            fs::write(folder.join(INDEX), text).unwrap();
            let error = Artifacts::open(&folder.path()).unwrap_err().to_string();
            for part in expected {
                assert!(error.contains(part), "{part} in {error}");
            }
        };
        check("schema = 2\n", &["artifacts.toml:1: the index has schema 2", "kernel-gen package"]);
        check("", &["has no `schema`"]);
        check("schema = 1\n[[artifact]]\nkernel = \"k\"\n", &[":2: [[artifact]] has no `arch`", "no `ptx_hash`"]);
        check("schema = \n", &["not valid TOML"]);
        let hash = "0".repeat(32);
        let entry = |file: &str, arch: &str, hash: &str| {
            format!(
                "schema = 1\n[[artifact]]\nkernel = \"k\"\narch = \"{arch}\"\nsource = \"{hash}\"\ncompiler = \"c\"\n\
                 ptx = \"{file}\"\nptx_hash = \"{hash}\"\n"
            )
        };
        check(&entry("../up.ptx", "sm_80", &hash), &[":7: `../up.ptx` is not the name"]);
        check(&entry("a.ptx", "sm_8", &hash), &[":4: `sm_8` is not a CUDA architecture"]);
        check(&entry("a.ptx", "sm_80", "12"), &[":5: `12` is not a hash"]);
        fs::write(folder.join(INDEX), entry("a.ptx", "sm_80", &hash)).unwrap();
        assert_eq!(Artifacts::open(&folder.path()).unwrap().len(), 1);
    }
}
