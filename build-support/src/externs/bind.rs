//! Reads a header with bindgen.

use bindgen::callbacks::ParseCallbacks;
use kernel_gen::toolchain::Compiler;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Notes the files that a header includes.
#[derive(Debug)]
struct Includes(Rc<RefCell<Vec<PathBuf>>>);

impl ParseCallbacks for Includes {
    fn include_file(&self, file: &str) {
        self.0.borrow_mut().push(file.into());
    }
}

/// What a header is read as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Language {
    /// C.
    C,
    /// CUDA: C++ where the words of CUDA say nothing.
    Cuda,
    /// The same without the functions, which exist on no CPU.
    CudaTypes,
}

/// What CUDA adds to C++ in declarations. Kernels look like functions without it.
const WORDS: [&str; 9] = [
    "__global__=",
    "__device__=",
    "__host__=",
    "__constant__=",
    "__forceinline__=inline",
    "__launch_bounds__(...)=",
    "__grid_constant__=",
    "__cluster_dims__(...)=",
    "__align__(n)=__attribute__((aligned(n)))",
];

/// What bindgen makes of a header, and the files that it includes.
pub(super) fn bind(
    header: &Path,
    language: Language,
    compiler: Option<&Compiler>,
) -> Result<(String, Vec<PathBuf>), String> {
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
        // A header is read by itself, and may say `#pragma once`.
        .clang_arg("-Wno-pragma-once-outside-header")
        .parse_callbacks(Box::new(Includes(Rc::clone(&included))));
    if language != Language::C {
        builder = builder.clang_args(["-x", "c++", "-std=c++17"]).clang_args(WORDS.map(|word| format!("-D{word}")));
    }
    if language == Language::CudaTypes {
        builder = builder.ignore_functions();
    }
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
