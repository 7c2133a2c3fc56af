//! Objects of many sources: several at a time, none that is there already, and headers compiled beforehand.

use super::c::{Compiler, Unit, io_error, object_of};
use super::headers::Headers;
use super::{ToolError, in_parallel};
use crate::stable::fnv1a;
use std::fs;
use std::path::{Path, PathBuf};

impl Compiler {
    /// Compiles the sources to objects beside them, several at a time. An object that was made from the same source
    /// by the same compiler is kept. All sources that fail are reported.
    pub fn compile(&self, units: &[Unit], jobs: usize) -> Result<Vec<PathBuf>, Vec<ToolError>> {
        let identity = self.identity();
        let stale = units.iter().filter_map(|unit| Stale::of(unit, identity).transpose());
        let (stale, mut errors) = apart_from_errors(stale);
        let headers = Headers::worth(self, stale.iter().map(|s| (&*s.text, &*s.unit.flags)), jobs);
        // The longest first: a long one at the end would leave processors idle.
        let mut order: Vec<usize> = (0..stale.len()).collect();
        order.sort_by_key(|i| std::cmp::Reverse(stale[*i].text.len()));
        let mut made = in_parallel(jobs, &order, |i| (*i, self.make(&stale[*i], &headers)));
        made.sort_by_key(|(i, _)| *i);
        errors.extend(made.into_iter().filter_map(|(_, made)| made.err()));
        match errors.is_empty() {
            true => Ok(units.iter().map(|u| object_of(&u.source)).collect()),
            false => Err(errors),
        }
    }

    fn make(&self, stale: &Stale<'_>, headers: &Headers) -> Result<(), ToolError> {
        let (unit, key_file) = (stale.unit, key_of(&stale.unit.source));
        // Without its key, an object that a failure leaves behind is not taken for a good one.
        let _ = fs::remove_file(&key_file);
        let headers = headers.of(&stale.text, &unit.flags);
        // A failure is told of the source alone, with a command that works without headers that are gone.
        let made = headers.is_some_and(|headers| self.object(unit, Some(headers)).is_ok());
        if !made {
            self.object(unit, None)?;
        }
        fs::write(&key_file, &stale.key).map_err(|e| io_error(&key_file, &e))
    }
}

/// A source whose object has to be made.
struct Stale<'a> {
    unit: &'a Unit,
    text: Vec<u8>,
    /// What the object is of; kept in a file beside it.
    key: String,
}

impl<'a> Stale<'a> {
    /// The unit, unless its object is of the same source, flags and compiler already.
    fn of(unit: &'a Unit, compiler: u64) -> Result<Option<Stale<'a>>, ToolError> {
        let text = fs::read(&unit.source).map_err(|e| io_error(&unit.source, &e))?;
        let key = format!("{:016x} {:016x} {compiler:016x} {:?}", fnv1a(&text), unit.depends, unit.flags);
        let is_kept = fs::read(key_of(&unit.source)).is_ok_and(|old| old == key.as_bytes());
        Ok((!is_kept || !object_of(&unit.source).exists()).then_some(Stale { unit, text, key }))
    }
}

/// What went well, and what did not.
fn apart_from_errors<T>(results: impl Iterator<Item = Result<T, ToolError>>) -> (Vec<T>, Vec<ToolError>) {
    let (mut good, mut errors) = (vec![], vec![]);
    for result in results {
        match result {
            Ok(value) => good.push(value),
            Err(error) => errors.push(error),
        }
    }
    (good, errors)
}

/// The file that says what an object is of.
fn key_of(source: &Path) -> PathBuf {
    source.with_extension("o.key")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolchain::FLAGS;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("kernel-gen-cc-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn objects_are_kept_until_their_source_or_flags_change() {
        let folder = folder("keep");
        let source = folder.join("a.c");
        fs::write(&source, "int answer(void) { return ANSWER; }\n").unwrap();
        let compiler = Compiler::host().unwrap();
        let unit = |value: i32| Unit { source: source.clone(), flags: vec![format!("-DANSWER={value}")], depends: 0 };
        let object = compiler.compile(&[unit(1)], 2).unwrap().remove(0);
        let stamp = |p: &Path| fs::metadata(p).unwrap().modified().unwrap();
        let first = stamp(&object);
        compiler.compile(&[unit(1)], 1).unwrap();
        assert_eq!(stamp(&object), first);
        std::thread::sleep(std::time::Duration::from_millis(20));
        compiler.compile(&[unit(2)], 1).unwrap();
        assert_ne!(stamp(&object), first);
        compiler.archive(&[object], &folder.join("liba.a")).unwrap();
        assert!(folder.join("liba.a").exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn headers_that_are_compiled_beforehand_change_no_object() {
        let compiler = Compiler::host().unwrap();
        let flags: Vec<String> = FLAGS.iter().chain(&["-march=x86-64-v3"]).map(|f| f.to_string()).collect();
        let objects = |name: &str, count: usize| {
            let folder = folder(name);
            let unit = |i: usize| {
                let source = folder.join(format!("k{i}.c"));
                let body = "float f(const float *p) { return _mm256_cvtss_f32(_mm256_sqrt_ps(_mm256_loadu_ps(p))); }";
                fs::write(&source, format!("{}#define I {i}\n{body}\n", crate::toolchain::headers::text(true)))
                    .unwrap();
                Unit { source, flags: flags.clone(), depends: 0 }
            };
            let units: Vec<Unit> = (0..count).map(unit).collect();
            let texts: Vec<Vec<u8>> = units.iter().map(|u| fs::read(&u.source).unwrap()).collect();
            let headers = Headers::worth(&compiler, texts.iter().zip(&units).map(|(t, u)| (&**t, &*u.flags)), 2);
            let has_headers = headers.of(&texts[0], &flags).is_some();
            assert_eq!(headers.of(b"int no_intrinsics;\n", &flags), None);
            drop(headers);
            let made: Vec<Vec<u8>> =
                compiler.compile(&units, 2).unwrap().iter().map(|o| fs::read(o).unwrap()).collect();
            fs::remove_dir_all(folder).unwrap();
            (has_headers, made)
        };
        let (one, many) = (objects("headers-1", 1), objects("headers-5", 5));
        assert!(!one.0, "one source is not worth it");
        assert!(many.0 || compiler.clang, "GCC compiles headers beforehand");
        assert_eq!(one.1[0], many.1[0]);
    }

    #[test]
    fn what_the_compiler_says_is_part_of_the_error_and_all_failures_are_told() {
        let folder = folder("fail");
        let units: Vec<Unit> = ["int f( {", "int ok;", "nonsense"]
            .iter()
            .enumerate()
            .map(|(i, text)| {
                let source = folder.join(format!("s{i}.c"));
                fs::write(&source, text).unwrap();
                Unit { source, flags: vec![], depends: 0 }
            })
            .collect();
        let errors = Compiler::host().unwrap().compile(&units, 2).unwrap_err();
        assert_eq!(errors.len(), 2);
        assert!(errors[0].to_string().contains("s0.c") && errors[0].to_string().contains("error"), "{}", errors[0]);
        fs::remove_dir_all(folder).unwrap();
    }
}
