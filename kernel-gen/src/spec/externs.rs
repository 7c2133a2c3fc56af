//! `[[extern]]`: C or CUDA code of the user's own.

use super::names::Names;
use crate::diagnostic::{Found, Report, Table};
use std::path::{Component, Path};

/// What language a source is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// `.c`: compiled with the C compiler, one object.
    C,
    /// `.cu`: compiled for the CUDA targets of the spec.
    Cuda,
}

/// Code of the user's own that is compiled and wrapped along.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternSpec {
    /// Name of the generated module.
    pub name: String,
    /// The source, relative to the spec's folder.
    pub source: String,
    /// The header that declares its functions, relative to the spec's folder.
    pub header: String,
    /// What the source is written in.
    pub language: Language,
    /// The line of its header in the spec.
    pub line: usize,
}

pub(super) fn read(table: &mut Table<'_, '_>, report: &mut Report, names: &mut Names) -> Option<ExternSpec> {
    let line = report.line(table.span().start);
    for (key, example) in [
        ("name", "name = \"my_kernels\""),
        ("source", "source = \"src/mine.c\""),
        ("header", "header = \"src/mine.h\""),
    ] {
        table.require(report, key, example);
    }
    let name = table.string(report, "name").and_then(|n| names.take(report, &n, false));
    let source = table.string(report, "source");
    let header = table.string(report, "header");
    table.finish(report);
    let language = source.as_ref().and_then(|s| {
        let extension = extension(s.value);
        match extension {
            "c" => Some(Language::C),
            "cu" => Some(Language::Cuda),
            _ => {
                let cause = format!("the source \"{}\" is neither C nor CUDA", s.value);
                report.error(&s.span, cause, "name a file that ends in .c or .cu");
                None
            }
        }
    });
    if let Some(h) = header.as_ref().filter(|h| !["h", "cuh"].contains(&extension(h.value))) {
        report.error(&h.span, format!("\"{}\" is not a header", h.value), "name a file that ends in .h or .cuh");
    }
    let source = relative(report, source?);
    let header = relative(report, header?);
    Some(ExternSpec { name: name?, source: source?, header: header?, language: language?, line })
}

fn extension(path: &str) -> &str {
    Path::new(path).extension().and_then(|e| e.to_str()).unwrap_or_default()
}

/// A path that means the same wherever the crate is checked out.
fn relative(report: &mut Report, path: Found<&str>) -> Option<String> {
    let absolute = Path::new(path.value).components().any(|c| matches!(c, Component::RootDir | Component::Prefix(_)));
    if absolute || path.value.contains('\\') {
        let cause = format!("the path \"{}\" is not relative to the spec, with `/` between folders", path.value);
        report.error(&path.span, cause, "write it like \"src/mine.c\"");
        return None;
    }
    Some(path.value.to_string())
}
