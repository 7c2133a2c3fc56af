//! `[[extern]]`: C code of the user's own.

use super::names::Names;
use crate::diagnostic::{Found, Report, Table};
use std::path::{Component, Path};

/// Code of the user's own that is compiled and wrapped along.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternSpec {
    /// Name of the generated module.
    pub name: String,
    /// The source, relative to the spec's folder.
    pub source: String,
    /// The header that declares its functions, relative to the spec's folder.
    pub header: String,
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
    for (file, extension, what, help) in [
        (&source, "c", "C", "name a file that ends in .c; CUDA of your own is a template, see docs/templates.md"),
        (&header, "h", "a header of C", "name a file that ends in .h"),
    ] {
        let ends = |f: &&Found<&str>| Path::new(f.value).extension().is_some_and(|e| e == extension);
        if let Some(f) = file.as_ref().filter(|f| !ends(f)) {
            report.error(&f.span, format!("\"{}\" is not {what}", f.value), help);
        }
    }
    let source = relative(report, source?);
    let header = relative(report, header?);
    Some(ExternSpec { name: name?, source: source?, header: header?, line })
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
