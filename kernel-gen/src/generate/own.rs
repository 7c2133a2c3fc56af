//! CUDA code of the user's own: `[[extern]]` with a `.cu`.

use super::cuda::{CudaSource, best_first};
use super::flatten::{Place, flatten};
use super::own_code::OwnCode;
use crate::diagnostic::Diagnostic;
use crate::emit::escape;
use crate::spec::{ExternSpec, Spec};
use crate::toolchain::cuda::Code;
use std::path::{Path, PathBuf};

/// The CUDA of one `[[extern]]`.
#[derive(Clone, Debug)]
pub struct Own {
    /// A source for each CUDA architecture of the spec, in the order in which devices look at their code.
    pub sources: Vec<CudaSource>,
    /// The files that they are made of.
    pub inputs: Vec<PathBuf>,
}

/// What is wrong with compiled code of the user's own, each fault once. Each source has its code.
pub fn own_faults(sources: &[CudaSource], code: &[Code]) -> Vec<Diagnostic> {
    let each = sources.iter().zip(code).filter_map(|(source, code)| Some(source.own.as_ref()?.faults(code)));
    let mut faults: Vec<Diagnostic> = each.flatten().collect();
    // Architectures of one source fail for one reason.
    faults.sort();
    faults.dedup();
    faults
}

/// The CUDA sources of an `[[extern]]`: the user's source with all that it includes. It must include its header, so that
/// the compiler compares the declarations, which launches are made from, with the kernels.
pub fn own_cuda(spec: &Spec, item: &ExternSpec) -> Result<Own, Diagnostic> {
    let folder = Path::new(&spec.file).parent().unwrap_or(Path::new(""));
    let (source, header) = (folder.join(&item.source), folder.join(&item.header));
    let at = |place: Place, cause: String, help: &str| Diagnostic {
        file: place.file,
        line: place.line,
        cause,
        help: help.into(),
    };
    let in_spec = |cause: String, help: &str| at(Place { file: spec.file.clone(), line: item.line }, cause, help);
    for file in [&source, &header] {
        if let Err(error) = std::fs::metadata(file) {
            let cause = format!("\"{}\" cannot be read ({error})", file.display());
            return Err(in_spec(cause, "paths count from the folder of the spec"));
        }
    }
    let flat = flatten(&source, &item.source)?;
    if let Some(place) = flat.launch {
        return Err(at(
            place,
            "code for the CPU that launches kernels by `<<<...>>>` is not supported: it would link the CUDA runtime"
                .into(),
            "leave that code out, declare the kernel in the header and its launch in the spec: [extern.launch.<kernel>]",
        ));
    }
    let is_header = |file: &PathBuf| file.canonicalize().ok() == header.canonicalize().ok();
    if !flat.files.iter().any(is_header) {
        return Err(in_spec(
            format!("\"{}\" does not include its header \"{}\"", item.source, item.header),
            "add an #include \"...\" of it, so that the compiler compares its declarations with the kernels",
        ));
    }
    let code = OwnCode {
        spec: spec.file.clone(),
        line: item.line,
        source: item.source.clone(),
        launches: item.launches.clone(),
        toolkit_header: flat.toolkit.map(|(header, _)| header),
    };
    let head = escape::comment(&format!("[[extern]] {}: {}", item.name, item.source));
    let text = format!("// {head}\n{}", flat.text);
    let sources = best_first(&spec.targets.cuda).into_iter().map(|target| CudaSource {
        name: format!("extern.{}.{}", item.name, target.name),
        arch: target.name.clone(),
        text: text.clone(),
        own: Some(code.clone()),
    });
    Ok(Own { sources: sources.collect(), inputs: flat.files })
}
