//! The headers that emitted sources include, compiled beforehand: reading `<immintrin.h>` takes a compiler longer than
//! most kernels do.

use super::c::Compiler;
use super::in_parallel;
use super::temporary::Temporary;
use crate::cache::Cache;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The intrinsics of x86.
const INTRINSICS: &str = "#include <immintrin.h>\n";

/// From so many sources with the same flags on the headers are compiled beforehand, which takes as long as reading them twice.
const WORTH: usize = 4;

/// The header's name; what is compiled of it lies beside it.
const HEADER: &str = "headers.h";

/// A header with what emitted sources include.
pub(super) fn text(x86: bool) -> String {
    format!("#include <stddef.h>\n#include <stdint.h>\n{}", if x86 { INTRINSICS } else { "" })
}

/// Headers for sources that are compiled together, by the sources' flags. Without a cache they vanish with the value.
#[derive(Default, Debug)]
pub(super) struct Headers {
    made: BTreeMap<Vec<String>, PathBuf>,
    _folder: Option<Temporary>,
}

impl Headers {
    /// Compiles headers for those flags that enough of the sources, given with their flags, are worth; for others they are used if an
    /// earlier build left them in the cache. Where that fails the sources read them as they are.
    pub(super) fn worth<'a>(
        compiler: &Compiler,
        sources: impl IntoIterator<Item = (&'a [u8], &'a [String])>,
        jobs: usize,
        cache: Option<&Cache>,
    ) -> Headers {
        let mut users: BTreeMap<&[String], usize> = BTreeMap::new();
        for (_, flags) in sources.into_iter().filter(|(source, _)| has_intrinsics(source)) {
            *users.entry(flags).or_default() += 1;
        }
        // Clang's precompiled headers name the place where they were made, so they cannot be kept.
        let cache = cache.filter(|_| !compiler.clang);
        if cache.is_none() {
            users.retain(|_, users| *users >= WORTH);
        }
        // What debuggers are told would name a folder that is gone.
        if users.is_empty() || compiler.writes_debug_information() {
            return Headers::default();
        }
        let Ok(folder) = Temporary::new() else { return Headers::default() };
        let identity = compiler.identity();
        let wanted: Vec<(usize, (&[String], usize))> = users.into_iter().enumerate().collect();
        let made = in_parallel(jobs, &wanted, |(number, (flags, users))| {
            let compile = |folder: &Path| {
                let header = std::path::absolute(folder.join(HEADER)).ok()?;
                fs::write(&header, text(true)).ok()?;
                compiler.precompile_for_objects(&header, flags).ok()
            };
            let folder = match cache {
                Some(cache) => {
                    let key = format!("headers\n{identity:016x}\n{flags:?}\n{}", text(true));
                    cache.files(&key, (*users >= WORTH).then_some(compile))?
                }
                None => {
                    let folder = folder.path().join(number.to_string());
                    fs::create_dir(&folder).ok()?;
                    compile(&folder)?;
                    folder
                }
            };
            Some((flags.to_vec(), std::path::absolute(folder.join(HEADER)).ok()?))
        });
        Headers { made: made.into_iter().flatten().collect(), _folder: Some(folder) }
    }

    /// What a source with these flags may include before everything else.
    pub(super) fn of(&self, source: &[u8], flags: &[String]) -> Option<&Path> {
        has_intrinsics(source).then(|| self.made.get(flags).map(PathBuf::as_path)).flatten()
    }
}

/// Whether the source itself, not what it includes, asks for the intrinsics: then it was emitted here, and nothing before its
/// includes changes what they mean.
fn has_intrinsics(source: &[u8]) -> bool {
    source.split_inclusive(|b| *b == b'\n').any(|line| line == INTRINSICS.as_bytes())
}
