//! The headers that emitted sources include, compiled beforehand: reading `<immintrin.h>` takes a compiler longer than
//! most kernels do.

use super::c::Compiler;
use super::in_parallel;
use super::temporary::Temporary;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The intrinsics of x86.
const INTRINSICS: &str = "#include <immintrin.h>\n";

/// From so many sources with the same flags on the headers are compiled beforehand, which takes as long as reading them twice.
const WORTH: usize = 4;

/// A header with what emitted sources include.
pub(super) fn text(x86: bool) -> String {
    format!("#include <stddef.h>\n#include <stdint.h>\n{}", if x86 { INTRINSICS } else { "" })
}

/// Headers for sources that are compiled together, by the sources' flags. They vanish with the value.
#[derive(Default, Debug)]
pub(super) struct Headers {
    made: BTreeMap<Vec<String>, PathBuf>,
    _folder: Option<Temporary>,
}

impl Headers {
    /// Compiles headers for those flags that enough of the sources, given with their flags, are worth. Where that fails the
    /// sources read them as they are.
    pub(super) fn worth<'a>(
        compiler: &Compiler,
        sources: impl IntoIterator<Item = (&'a [u8], &'a [String])>,
        jobs: usize,
    ) -> Headers {
        let mut users: BTreeMap<&[String], usize> = BTreeMap::new();
        for (source, flags) in sources {
            *users.entry(flags).or_default() += usize::from(has_intrinsics(source));
        }
        users.retain(|_, users| *users >= WORTH);
        // What debuggers are told would name a folder that is gone.
        if users.is_empty() || compiler.writes_debug_information() {
            return Headers::default();
        }
        let Ok(folder) = Temporary::new() else { return Headers::default() };
        let wanted: Vec<(usize, &[String])> = users.into_keys().enumerate().collect();
        let made = in_parallel(jobs, &wanted, |(number, flags)| {
            let header = std::path::absolute(folder.path().join(format!("headers{number}.h"))).ok()?;
            fs::write(&header, text(true)).ok()?;
            compiler.precompile_for_objects(&header, flags).ok()?;
            Some((flags.to_vec(), header))
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
