//! `[[extern]]`: C and CUDA code of the user's own, compiled along and wrapped with typed launches.
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
//!
//! What becomes of CUDA code is in `cuda`.

mod bind;
mod cuda;
mod signature;
mod wrapper;

use crate::stamp;
use bind::{Language, bind};
use kernel_gen::diagnostic::Diagnostic;
use kernel_gen::generate::{CudaSource, GenerateError, Options, Source};
use kernel_gen::spec::{ExternSpec, Spec};
use kernel_gen::toolchain::{Compiler, FLAGS};
use std::path::{Path, PathBuf};

/// What the `[[extern]]` of a spec become.
#[derive(Default)]
pub(crate) struct Wrapped {
    /// More of the wrappers' file.
    pub(crate) rust: String,
    /// More C to compile.
    pub(crate) sources: Vec<Source>,
    /// More CUDA to compile.
    pub(crate) cuda: Vec<CudaSource>,
    /// The files that were read.
    pub(crate) inputs: Vec<PathBuf>,
}

/// Wraps all of a spec's. Without a compiler there is nothing to compile; the wrappers are the same. For documentation,
/// libclang may be missing too.
pub(crate) fn wrap(
    spec: &Spec,
    compiler: Option<&Compiler>,
    documentation: bool,
    options: &Options,
) -> Result<Wrapped, Vec<GenerateError>> {
    let mut wrapped = Wrapped::default();
    let mut errors = vec![];
    for item in &spec.externs {
        if let Err(all) = wrap_one(spec, item, compiler, documentation, options, &mut wrapped) {
            errors.extend(all.into_iter().map(GenerateError::Input));
        }
    }
    if errors.is_empty() { Ok(wrapped) } else { Err(errors) }
}

fn wrap_one(
    spec: &Spec,
    item: &ExternSpec,
    compiler: Option<&Compiler>,
    documentation: bool,
    options: &Options,
    wrapped: &mut Wrapped,
) -> Result<(), Vec<Diagnostic>> {
    let fault = |cause: String, help: &str| Diagnostic {
        file: spec.file.clone(),
        line: item.line,
        cause: cause.trim().replace('\n', " "),
        help: help.into(),
    };
    let folder = Path::new(&spec.file).parent().unwrap_or(Path::new(""));
    let files = [&item.source, &item.header].map(|file| folder.join(file));
    for file in &files {
        std::fs::read_to_string(file).map_err(|e| {
            let help = "paths count from the folder of the spec";
            vec![fault(format!("\"{}\" cannot be read ({e})", file.display()), help)]
        })?;
    }
    // bindgen panics without libclang.
    let loaded = clang_sys::load();
    // A build without a C compiler makes code for GPUs all the same.
    let wanted = item.is_cuda() && options.cuda;
    if loaded.is_err() && documentation && !wanted {
        wrapped.rust += &format!(
            "\n/// Code of the crate's own; read without libclang, so that its launches are missing.\npub mod {} {{}}\n",
            item.name
        );
        return Ok(());
    }
    loaded.map_err(|e| {
        vec![fault(
            format!("libclang is needed to read \"{}\" and was not found ({e})", item.header),
            "install it (on Debian and Ubuntu: apt install libclang-dev), or name its folder with LIBCLANG_PATH",
        )]
    })?;
    match item.is_cuda() {
        true => cuda::wrap(spec, item, compiler, options, wrapped),
        false => wrap_c(item, files, compiler, &fault, wrapped).map_err(|e| vec![e]),
    }
}

/// Adds a source and a header of C.
fn wrap_c(
    item: &ExternSpec,
    [source, header]: [PathBuf; 2],
    compiler: Option<&Compiler>,
    fault: &impl Fn(String, &str) -> Diagnostic,
    wrapped: &mut Wrapped,
) -> Result<(), Diagnostic> {
    let header_text = std::fs::read_to_string(&header).unwrap_or_default();
    let (bindings, included) = bind(&header, Language::C, compiler)
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
    if let Some(compiler) = compiler {
        let more = compiler.included(&source);
        inputs.extend(more.into_iter().filter(|file| !inputs.contains(file)).collect::<Vec<_>>());
        // The source is included where it lies, so that its own includes work. The hash of everything that was read
        // makes the text another one, and so the object, when any of it changes.
        let hash = inputs.iter().fold(0, |h, file| stamp::hash(h, &std::fs::read(file).unwrap_or_default()));
        wrapped.sources.push(Source {
            name: format!("extern.{}.c", item.name),
            flags: FLAGS.iter().map(|f| f.to_string()).collect(),
            text: format!("// {hash:016x}\n#include \"{included}\"\n"),
            helpers: vec![],
            prototypes: String::new(),
        });
    }
    wrapped.inputs.append(&mut inputs);
    Ok(())
}
