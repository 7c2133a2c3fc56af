//! Objects of many sources: several at a time, none that is there already or in a cache, and headers compiled beforehand.

use super::c::{Compiler, Unit, io_error, object_of};
use super::headers::Headers;
use super::{ToolError, in_parallel};
use crate::cache::Cache;
use crate::files;
use crate::stable::fnv1a;
use std::fs;
use std::path::{Path, PathBuf};

impl Compiler {
    /// Compiles the sources to objects beside them, several at a time. An object that was made from the same source
    /// by the same compiler is kept, or taken from the cache. All sources that fail are reported.
    pub fn compile(&self, units: &[Unit], jobs: usize, cache: Option<&Cache>) -> Result<Vec<PathBuf>, Vec<ToolError>> {
        // What debuggers are told names a folder, which is another one elsewhere.
        let cache = cache.filter(|_| !self.writes_debug_information() && !self.reads_more());
        let identity = self.identity();
        let stale = units.iter().filter_map(|unit| Stale::of(unit, identity).transpose());
        let (mut stale, mut errors) = apart_from_errors(stale);
        stale.retain(|stale| !cache.is_some_and(|cache| stale.is_in(cache)));
        let headers = Headers::worth(self, stale.iter().map(|s| (&*s.text, &*s.unit.flags)), jobs, cache);
        // The longest first: a long one at the end would leave processors idle.
        let mut order: Vec<usize> = (0..stale.len()).collect();
        order.sort_by_key(|i| std::cmp::Reverse(stale[*i].text.len()));
        let mut made = in_parallel(jobs, &order, |i| (*i, self.make(&stale[*i], &headers, cache)));
        made.sort_by_key(|(i, _)| *i);
        errors.extend(made.into_iter().filter_map(|(_, made)| made.err()));
        match errors.is_empty() {
            true => Ok(units.iter().map(|u| object_of(&u.source)).collect()),
            false => Err(errors),
        }
    }

    fn make(&self, stale: &Stale<'_>, headers: &Headers, cache: Option<&Cache>) -> Result<(), ToolError> {
        let unit = stale.unit;
        // Without its key, an object that a failure leaves behind is not taken for a good one.
        let _ = fs::remove_file(key_of(&unit.source));
        let headers = headers.of(&stale.text, &unit.flags);
        // A failure is told of the source alone, with a command that works without headers that are gone.
        let made = headers.is_some_and(|headers| self.object(unit, Some(headers)).is_ok());
        if !made {
            self.object(unit, None)?;
        }
        if let Some(cache) = cache {
            let object = object_of(&unit.source);
            cache.put(&stale.key_anywhere(), &fs::read(&object).map_err(|e| io_error(&object, &e))?);
        }
        stale.note()
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
        let key = format!("{:016x} {compiler:016x} {:?}", fnv1a(&text), unit.flags);
        let is_kept = fs::read(key_of(&unit.source)).is_ok_and(|old| old == key.as_bytes());
        Ok((!is_kept || !object_of(&unit.source).exists()).then_some(Stale { unit, text, key }))
    }

    /// What the object is of, wherever the source lies: an object holds the source's name, and nothing of its folder.
    fn key_anywhere(&self) -> String {
        let name = self.unit.source.file_name().unwrap_or_default().display();
        format!("object\n{}\n{name}\n{}", self.key, String::from_utf8_lossy(&self.text))
    }

    /// Takes the object from a cache, if it is there.
    fn is_in(&self, cache: &Cache) -> bool {
        let Some(bytes) = cache.get::<Vec<u8>>(&self.key_anywhere()) else { return false };
        files::write_whole(&object_of(&self.unit.source), &bytes).is_ok() && self.note().is_ok()
    }

    /// Notes beside the object what it is of.
    fn note(&self) -> Result<(), ToolError> {
        let file = key_of(&self.unit.source);
        fs::write(&file, &self.key).map_err(|e| io_error(&file, &e))
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
        let unit = |value: i32| Unit { source: source.clone(), flags: vec![format!("-DANSWER={value}")] };
        let object = compiler.compile(&[unit(1)], 2, None).unwrap().remove(0);
        let stamp = |p: &Path| fs::metadata(p).unwrap().modified().unwrap();
        let first = stamp(&object);
        compiler.compile(&[unit(1)], 1, None).unwrap();
        assert_eq!(stamp(&object), first);
        std::thread::sleep(std::time::Duration::from_millis(20));
        compiler.compile(&[unit(2)], 1, None).unwrap();
        assert_ne!(stamp(&object), first);
        compiler.archive(&[object], &folder.join("liba.a")).unwrap();
        assert!(folder.join("liba.a").exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_object_that_another_folder_made_is_taken_from_the_cache() {
        let (root, compiler) = (folder("share"), Compiler::host().unwrap());
        let cache = Cache::at(root.join("cache"));
        let unit = |folder: &str, value: i32| {
            fs::create_dir_all(root.join(folder)).unwrap();
            let source = root.join(folder).join("a.c");
            fs::write(&source, format!("int answer(void) {{ return {value}; }}\n")).unwrap();
            Unit { source, flags: vec![] }
        };
        let object = |unit: Unit| fs::read(compiler.compile(&[unit], 1, Some(&cache)).unwrap().remove(0)).unwrap();
        let first = object(unit("one", 1));
        assert_eq!(object(unit("two", 1)), first);
        // That it was taken shows where the entry is another object.
        let other = unit("three", 2);
        let stale = Stale::of(&other, compiler.identity()).unwrap().unwrap();
        cache.put(&stale.key_anywhere(), &first);
        assert_eq!(object(other.clone()), first);
        // Another text, other flags and another name are other objects.
        assert_ne!(object(unit("four", 3)), first);
        let renamed = Unit { source: root.join("four/b.c"), flags: vec![] };
        fs::write(&renamed.source, "int answer(void) { return 1; }\n").unwrap();
        assert_ne!(object(renamed), first);
        let flags = vec!["-DX".to_string()];
        let key = |unit: &Unit| Stale::of(unit, 1).unwrap().unwrap().key_anywhere();
        assert_ne!(key(&Unit { flags, ..unit("five", 1) }), key(&unit("six", 1)));
        fs::remove_dir_all(root).unwrap();
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn headers_that_are_compiled_beforehand_change_no_object() {
        let compiler = Compiler::host().unwrap();
        let flags: Vec<String> = FLAGS.iter().chain(&["-march=x86-64-v3"]).map(|f| f.to_string()).collect();
        let kept = folder("headers-cache");
        let cache = Cache::at(&kept);
        let objects = |name: &str, count: usize, cache: Option<&Cache>| {
            let folder = folder(name);
            let unit = |i: usize| {
                let source = folder.join(format!("k{i}.c"));
                let body = "float f(const float *p) { return _mm256_cvtss_f32(_mm256_sqrt_ps(_mm256_loadu_ps(p))); }";
                fs::write(&source, format!("{}#define I {i}\n{body}\n", crate::toolchain::headers::text(true)))
                    .unwrap();
                Unit { source, flags: flags.clone() }
            };
            let units: Vec<Unit> = (0..count).map(unit).collect();
            let texts: Vec<Vec<u8>> = units.iter().map(|u| fs::read(&u.source).unwrap()).collect();
            let sources = || texts.iter().zip(&units).map(|(t, u)| (&**t, &*u.flags));
            let headers = Headers::worth(&compiler, sources(), 2, cache);
            let has_headers = headers.of(&texts[0], &flags).is_some();
            assert_eq!(headers.of(b"int no_intrinsics;\n", &flags), None);
            // Objects are made, not taken.
            let made = units.iter().map(|unit| {
                compiler.object(unit, headers.of(&texts[0], &flags)).unwrap();
                fs::read(object_of(&unit.source)).unwrap()
            });
            let made: Vec<Vec<u8>> = made.collect();
            fs::remove_dir_all(folder).unwrap();
            (has_headers, made)
        };
        let (one, many) = (objects("headers-1", 1, None), objects("headers-5", 5, None));
        let cold = objects("headers-cold", 1, Some(&cache));
        let all = [objects("headers-kept", 5, Some(&cache)), objects("headers-warm", 1, Some(&cache))];
        fs::remove_dir_all(&kept).unwrap();
        assert!(!cold.0, "nothing is kept yet, and one source is not worth it");
        assert!(all.iter().all(|(has, _)| *has) || compiler.clang, "headers are kept");
        all.iter().for_each(|(_, made)| assert_eq!(made[0], one.1[0]));
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
                Unit { source, flags: vec![] }
            })
            .collect();
        let errors = Compiler::host().unwrap().compile(&units, 2, None).unwrap_err();
        assert_eq!(errors.len(), 2);
        assert!(errors[0].to_string().contains("s0.c") && errors[0].to_string().contains("error"), "{}", errors[0]);
        fs::remove_dir_all(folder).unwrap();
    }
}
