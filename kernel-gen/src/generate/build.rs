//! Sources into a folder, and from there into a static library.

use super::{GenerateError, Generated};
use crate::toolchain::{Compiler, Unit};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What a build left behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Built {
    /// The static library, if there was anything to compile.
    pub library: Option<PathBuf>,
    /// All files that were written or kept, the library included.
    pub files: Vec<PathBuf>,
}

/// Writes the C sources and their header into `folder`, compiles them and archives the objects as
/// `lib<library>.a` there. Files that are right already are not touched, and what an earlier build left in the folder
/// and this one does not have is removed.
pub fn build(
    generated: &Generated,
    compiler: Option<&Compiler>,
    folder: &Path,
    library: &str,
    jobs: usize,
) -> Result<Built, Vec<GenerateError>> {
    let one = |e: GenerateError| vec![e];
    fs::create_dir_all(folder).map_err(|e| one(io(folder, &e)))?;
    let mut keep = BTreeSet::new();
    let mut write = |name: &str, text: &str| -> Result<PathBuf, GenerateError> {
        let path = folder.join(name);
        write_if_changed(&path, text.as_bytes())?;
        keep.insert(path.clone());
        Ok(path)
    };
    write("kernels.h", &generated.header).map_err(one)?;
    let mut units = vec![];
    for source in &generated.sources {
        let path = write(&source.name, &source.text).map_err(one)?;
        units.push(Unit { source: path, flags: source.flags.clone(), depends: 0 });
    }
    let mut built = Built { library: None, files: vec![] };
    if let Some(compiler) = compiler.filter(|_| !units.is_empty()) {
        let objects = compiler
            .compile(&units, jobs)
            .map_err(|all| all.into_iter().map(GenerateError::Tool).collect::<Vec<_>>())?;
        for object in &objects {
            keep.insert(object.clone());
            keep.insert(object.with_extension("o.key"));
        }
        let path = folder.join(format!("lib{library}.a"));
        compiler.archive(&objects, &path).map_err(|e| one(e.into()))?;
        keep.insert(path.clone());
        built.library = Some(path);
    }
    remove_others(folder, &keep);
    built.files = keep.into_iter().collect();
    Ok(built)
}

/// Removes the files of the folder that are not to be kept. One that cannot be removed only takes space.
fn remove_others(folder: &Path, keep: &BTreeSet<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_file() && !keep.contains(&path) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes a file unless it holds these bytes already, so that nothing that depends on it is made again. The file is
/// replaced in one step.
pub fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<bool, GenerateError> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path)).map_err(|e| io(path, &e))?;
    Ok(true)
}

fn io(path: &Path, error: &std::io::Error) -> GenerateError {
    GenerateError::Io { file: path.display().to_string(), reason: error.to_string() }
}
