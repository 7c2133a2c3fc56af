//! Sources into a folder, and from there into a static library and images of GPU code.

use super::assemble::Generated;
use super::bundle;
use super::error::GenerateError;
use super::join::join;
use super::own::own_faults;
use crate::cache::Cache;
use crate::files;
use crate::toolchain::cuda::{Artifacts, CudaError, Environment, SupplyOptions, supply};
use crate::toolchain::{Compiler, Unit};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What a build left behind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Built {
    /// The static library, if there was anything to compile.
    pub library: Option<PathBuf>,
    /// All files that were written or kept, the library included.
    pub files: Vec<PathBuf>,
    /// Where compiled CUDA came from, in one line; nothing if there is no CUDA.
    pub cuda: String,
    /// What a user should know although nothing failed.
    pub warnings: Vec<String>,
}

/// Where compiled CUDA is to come from.
#[derive(Clone, Copy, Debug)]
pub struct CudaSupply<'a> {
    /// Code that was packaged.
    pub packaged: Option<&'a Artifacts>,
    /// Where compilers are looked for.
    pub environment: &'a Environment,
    /// What to do without one, and how to compile.
    pub options: &'a SupplyOptions,
}

/// Writes the C and CUDA sources and the C header into `folder`, compiles them, archives the objects as
/// `lib<library>.a` there, and puts compiled CUDA into one file a source. Objects are taken from the cache and kept there. Files that are
/// right already are not touched, and what an earlier build left in the folder and this one does not have is removed.
pub fn build(
    generated: &Generated,
    compiler: Option<&Compiler>,
    cuda: CudaSupply<'_>,
    folder: &Path,
    library: &str,
    jobs: usize,
    cache: Option<&Cache>,
) -> Result<Built, Vec<GenerateError>> {
    let one = |e: GenerateError| vec![e];
    fs::create_dir_all(folder).map_err(|e| one(io(folder, &e)))?;
    let mut keep = BTreeSet::new();
    let mut write = |name: &str, bytes: &[u8]| -> Result<PathBuf, GenerateError> {
        let path = folder.join(name);
        write_if_changed(&path, bytes)?;
        keep.insert(path.clone());
        Ok(path)
    };
    write("kernels.h", generated.header.as_bytes()).map_err(one)?;
    for (name, bytes) in &generated.files {
        write(name, bytes).map_err(one)?;
    }
    for source in &generated.sources {
        write(&source.name, source.text.as_bytes()).map_err(one)?;
    }
    let mut units = vec![];
    for file in join(&generated.sources) {
        let path = write(&file.name, file.text.as_bytes()).map_err(one)?;
        units.push(Unit { source: path, flags: file.flags.clone() });
    }
    let mut built = Built::default();
    let compiler = compiler.filter(|_| !units.is_empty());
    // At the same time: each has fewer sources than processors where little changed.
    let (supplied, objects) = std::thread::scope(|scope| {
        let supplied = scope.spawn(|| supply_cuda(generated, cuda));
        let objects = compiler.map(|compiler| compiler.compile(&units, jobs, cache));
        (supplied.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), objects)
    });
    let supplied = supplied?;
    let objects = objects.transpose();
    let objects = objects.map_err(|all| all.into_iter().map(GenerateError::Tool).collect::<Vec<_>>())?;
    for (source, bundle) in generated.cuda.iter().zip(&supplied.bundles) {
        write(&format!("{}.cu", source.name), source.text.as_bytes()).map_err(one)?;
        write(&source.image(), bundle).map_err(one)?;
    }
    (built.cuda, built.warnings) = (supplied.summary, supplied.warnings);
    if let Some((compiler, objects)) = compiler.zip(objects) {
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

/// Bundles of compiled CUDA, one a source.
struct Bundles {
    bundles: Vec<Vec<u8>>,
    summary: String,
    warnings: Vec<String>,
}

fn supply_cuda(generated: &Generated, cuda: CudaSupply<'_>) -> Result<Bundles, Vec<GenerateError>> {
    let all = |errors: Vec<CudaError>| errors.into_iter().map(GenerateError::Cuda).collect::<Vec<_>>();
    let requests = generated.cuda.iter().map(|source| source.request()).collect::<Result<Vec<_>, _>>();
    let requests = requests.map_err(|e| all(vec![e]))?;
    let supplied = supply(&requests, cuda.packaged, cuda.environment, cuda.options).map_err(all)?;
    let faults = own_faults(&generated.cuda, &supplied.code);
    if !faults.is_empty() {
        return Err(faults.into_iter().map(GenerateError::Input).collect());
    }
    let bundles = requests.iter().zip(&supplied.code);
    let bundles = bundles.map(|(request, code)| bundle::of_code(code, &request.source, request.arch)).collect();
    Ok(Bundles { bundles, summary: supplied.summary, warnings: supplied.warnings })
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
    files::write_whole(path, bytes).map_err(|e| io(path, &e))?;
    Ok(true)
}

fn io(path: &Path, error: &std::io::Error) -> GenerateError {
    GenerateError::Io { file: path.display().to_string(), reason: error.to_string() }
}
