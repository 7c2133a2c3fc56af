//! `[[extern]]`: C and CUDA code of the user's own.

use super::launch::{self, ExternLaunch};
use super::names::Names;
use crate::diagnostic::{Found, Report, Table};
use crate::target::Target;
use std::path::{Component, Path};

/// Code of the user's own that is compiled and wrapped along.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternSpec {
    /// Name of the generated module.
    pub name: String,
    /// The source, relative to the spec's folder: C, or CUDA if there are launches.
    pub source: String,
    /// The header that declares its functions, relative to the spec's folder.
    pub header: String,
    /// How the kernels of a CUDA source are launched; none for C.
    pub launches: Vec<ExternLaunch>,
    /// The line of its header in the spec.
    pub line: usize,
}

impl ExternSpec {
    /// Whether the source is CUDA.
    pub fn is_cuda(&self) -> bool {
        ends_in(&self.source, &["cu"])
    }
}

/// `cuda` are the CUDA targets of the spec, if that list could be read.
pub(super) fn read(
    table: &mut Table<'_, '_>,
    report: &mut Report,
    names: &mut Names,
    cuda: Option<&[&'static Target]>,
) -> Option<ExternSpec> {
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
    let is_cuda = source.as_ref().is_some_and(|s| ends_in(s.value, &["cu"]));
    if let Some(f) = source.as_ref().filter(|f| !ends_in(f.value, &["c", "cu"])) {
        let help = "name a file that ends in .c or .cu";
        report.error(&f.span, format!("\"{}\" is neither C nor CUDA", f.value), help);
    }
    let (endings, help): (&[&str], _) = match is_cuda {
        true => (&["h", "cuh"], "name a file that ends in .h or .cuh"),
        false => (&["h"], "name a file that ends in .h"),
    };
    if let Some(f) = header.as_ref().filter(|f| !ends_in(f.value, endings)) {
        let what = if is_cuda { "a header" } else { "a header of C" };
        report.error(&f.span, format!("\"{}\" is not {what}", f.value), help);
    }
    let launches = match (&source, is_cuda) {
        (_, true) => {
            if cuda.is_some_and(<[_]>::is_empty) {
                let cause = "the source is CUDA, and the spec asks for no code for GPUs";
                report.error(&table.span_of("source"), cause, "add cuda = [\"sm_80\"], say, to [targets]");
            }
            launch::read_all(table, report, cuda.unwrap_or_default())
        }
        (Some(source), false) if table.has("launch") => {
            // Asked for, so that it is not an unknown key besides.
            table.table(report, "launch");
            let cause = format!("`launch` is for CUDA, and the source is \"{}\"", source.value);
            report.error(&table.span_of("launch"), cause, "leave it out: functions of C are called, not launched");
            Some(vec![])
        }
        _ => Some(vec![]),
    };
    table.finish(report);
    let source = relative(report, source?);
    let header = relative(report, header?);
    Some(ExternSpec { name: name?, source: source?, header: header?, launches: launches?, line })
}

fn ends_in(path: &str, endings: &[&str]) -> bool {
    Path::new(path).extension().is_some_and(|e| endings.iter().any(|ending| e == *ending))
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
