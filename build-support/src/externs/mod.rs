//! `[[extern]]`: C code of the user's own, compiled along and wrapped with typed launches.
//!
//! A function of the header gets a typed launch if each of its pointers is declared as an array of constant extents:
//!
//! ```c
//! void blur(const float x[3][32][32], float y[3][32][32], int rounds);
//! ```
//! becomes `blur(&dev, &x, &mut y, rounds)`, where `x` and `y` are anything that views as `f32` of that shape. A function
//! whose last parameters are `int64_t worker, int64_t begin, int64_t end` becomes a launch over all workers of the
//! device, `unsafe fn blur(&dev, extent, ...)`: that its iterations do not race is the caller's word. Everything else
//! that the header declares is in the module `raw`, as bindgen writes it.

mod signature;
mod wrapper;

use crate::stamp;
use bindgen::callbacks::ParseCallbacks;
use kernel_gen::diagnostic::Diagnostic;
use kernel_gen::generate::{GenerateError, Source};
use kernel_gen::spec::{ExternSpec, Spec};
use kernel_gen::toolchain::{Compiler, FLAGS};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What the `[[extern]]` of a spec become.
#[derive(Default)]
pub(crate) struct Wrapped {
    /// More of the wrappers' file.
    pub(crate) rust: String,
    /// More C to compile.
    pub(crate) sources: Vec<Source>,
    /// The files that were read.
    pub(crate) inputs: Vec<PathBuf>,
}

/// Wraps all of a spec's. Without a compiler there is nothing to compile; the wrappers are the same. For documentation,
/// libclang may be missing too.
pub(crate) fn wrap(
    spec: &Spec,
    compiler: Option<&Compiler>,
    documentation: bool,
) -> Result<Wrapped, Vec<GenerateError>> {
    let mut wrapped = Wrapped::default();
    let mut errors = vec![];
    for item in &spec.externs {
        if let Err(error) = wrap_one(spec, item, compiler, documentation, &mut wrapped) {
            errors.push(error.into());
        }
    }
    if errors.is_empty() { Ok(wrapped) } else { Err(errors) }
}

fn wrap_one(
    spec: &Spec,
    item: &ExternSpec,
    compiler: Option<&Compiler>,
    documentation: bool,
    wrapped: &mut Wrapped,
) -> Result<(), Diagnostic> {
    let fault = |cause: String, help: &str| Diagnostic {
        file: spec.file.clone(),
        line: item.line,
        cause: cause.trim().replace('\n', " "),
        help: help.into(),
    };
    let folder = Path::new(&spec.file).parent().unwrap_or(Path::new(""));
    let (source, header) = (folder.join(&item.source), folder.join(&item.header));
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|e| {
            fault(format!("\"{}\" cannot be read ({e})", path.display()), "paths count from the folder of the spec")
        })
    };
    read(&source)?;
    let header_text = read(&header)?;
    // bindgen panics without libclang.
    let loaded = clang_sys::load();
    if loaded.is_err() && documentation {
        wrapped.rust += &format!(
            "\n/// C code of the crate's own; read without libclang, so that its launches are missing.\npub mod {} {{}}\n",
            item.name
        );
        return Ok(());
    }
    loaded.map_err(|e| {
        fault(
            format!("libclang is needed to read \"{}\" and was not found ({e})", item.header),
            "install it (on Debian and Ubuntu: apt install libclang-dev), or name its folder with LIBCLANG_PATH",
        )
    })?;
    let (bindings, included) = bind(&header, compiler)
        .map_err(|e| fault(format!("the header \"{}\" cannot be read: {e}", item.header), "correct the header"))?;
    wrapped.rust += &wrapper::module(&item.name, &bindings, &signature::functions(&bindings, &header_text));
    let mut inputs = vec![source.clone(), header];
    inputs.extend(included);
    let absolute = std::path::absolute(&source).unwrap_or_else(|_| source.clone());
    let absolute = absolute.display().to_string();
    let Some(included) = kernel_gen::emit::escape::include_path(&absolute) else {
        return Err(fault(
            format!("the path {absolute:?} cannot stand in an #include of C"),
            "rename the folder or the file: no quotation marks, backslashes, `??` or control characters",
        ));
    };
    if compiler.is_some() {
        // The source is included where it lies, so that its own includes work. The hash of everything that was read
        // makes the text another one, and so the object, when any of it changes.
        let hash = inputs.iter().fold(0, |h, file| stamp::hash(h, &std::fs::read(file).unwrap_or_default()));
        wrapped.sources.push(Source {
            name: format!("extern.{}.c", item.name),
            flags: FLAGS.iter().map(|f| f.to_string()).collect(),
            text: format!("// {hash:016x}\n#include \"{included}\"\n"),
        });
    }
    wrapped.inputs.append(&mut inputs);
    Ok(())
}

/// Notes the files that a header includes.
#[derive(Debug)]
struct Includes(Rc<RefCell<Vec<PathBuf>>>);

impl ParseCallbacks for Includes {
    fn include_file(&self, file: &str) {
        self.0.borrow_mut().push(file.into());
    }
}

/// What bindgen makes of a header, and the files that it includes.
fn bind(header: &Path, compiler: Option<&Compiler>) -> Result<(String, Vec<PathBuf>), String> {
    let included = Rc::new(RefCell::new(vec![]));
    let target = bindgen::RustTarget::stable(88, 0).map_err(|e| e.to_string())?;
    let mut builder = bindgen::builder()
        .header(header.display().to_string())
        .allowlist_file(escape(&header.display().to_string()))
        .array_pointers_in_arguments(true)
        .layout_tests(false)
        .merge_extern_blocks(true)
        .disable_header_comment()
        .formatter(bindgen::Formatter::None)
        .rust_target(target)
        .rust_edition(bindgen::RustEdition::Edition2021)
        .parse_callbacks(Box::new(Includes(Rc::clone(&included))));
    // libclang may come without the headers that belong to a compiler, such as stddef.h.
    if let Some(folder) = compiler.and_then(Compiler::include_folder) {
        builder = builder.clang_args(["-idirafter".to_string(), folder.display().to_string()]);
    }
    let bindings = builder.generate().map_err(|e| e.to_string())?;
    let included = included.borrow().clone();
    Ok((bindings.to_string(), included))
}

/// A path as a regular expression that matches it only.
fn escape(path: &str) -> String {
    let special = |c: char| !(c.is_alphanumeric() || matches!(c, '/' | '_' | '-' | ' '));
    path.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}
