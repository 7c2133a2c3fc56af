//! Names in a spec become Rust items and C symbols: they must be legal as both, and unique.

use crate::diagnostic::{Found, Report};
use std::collections::BTreeMap;

/// Longer names are legal, but nobody means them.
const MAX_LENGTH: usize = 100;

/// Words that cannot name a function or a module: Rust's keywords, strict and reserved, in every edition.
const RUST_KEYWORDS: &[&str] = &[
    "Self", "_", "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do",
    "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro",
    "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super",
    "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// C's keywords that are not Rust's, and names that the C library or the language takes.
const C_KEYWORDS: &[&str] = &[
    "auto", "case", "char", "default", "double", "float", "goto", "inline", "int", "long", "main", "register",
    "restrict", "short", "signed", "sizeof", "switch", "typedef", "union", "unsigned", "void", "volatile",
];

/// Items that the generated module has anyway.
const GENERATED: &[&str] = &["kernels", "report", "preload", "BUILD_REPORT"];
/// What names of other items of the generated module begin with.
const GENERATED_PREFIX: &str = "KERNEL_GEN_";

/// All names of a spec with the line of each.
#[derive(Default)]
pub(super) struct Names {
    taken: BTreeMap<String, usize>,
}

impl Names {
    /// Checks a name and takes it, with the `_dyn` form beside it if there is one.
    pub(super) fn take(&mut self, report: &mut Report, name: &Found<&str>, has_dyn: bool) -> Option<String> {
        if let Some((cause, help)) = illegal(name.value) {
            report.error(&name.span, cause, help);
            return None;
        }
        let line = report.line(name.span.start);
        let dynamic = has_dyn.then(|| format!("{}_dyn", name.value));
        for taken in std::iter::once(name.value).chain(dynamic.as_deref()) {
            if let Some(other) = self.taken.get(taken) {
                let cause = if taken == name.value {
                    format!("the name `{taken}` is taken in line {other}")
                } else {
                    format!("the name `{}` would make `{taken}`, which is taken in line {other}", name.value)
                };
                report.error(
                    &name.span,
                    cause,
                    "choose another: kernels, their `_dyn` forms, workloads and externs share their names",
                );
                return None;
            }
        }
        self.taken.insert(name.value.to_string(), line);
        if let Some(dynamic) = dynamic {
            self.taken.insert(dynamic, line);
        }
        Some(name.value.to_string())
    }
}

/// Why a name cannot be used, and what to do.
pub(super) fn illegal(name: &str) -> Option<(String, String)> {
    let shown: String = name.chars().take(40).collect();
    let mut chars = name.chars();
    let starts = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !starts || !chars.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        let help = match identifier_from(name) {
            Some(better) => format!("use letters, digits and `_`, no digit first: `{better}`"),
            None => "use letters, digits and `_`, no digit first".into(),
        };
        return Some((format!("\"{shown}\" is not an identifier"), help));
    }
    if name.len() > MAX_LENGTH {
        return Some((format!("the name \"{shown}...\" is too long"), format!("use at most {MAX_LENGTH} characters")));
    }
    let word = if RUST_KEYWORDS.contains(&name) {
        "a word of the Rust language"
    } else if C_KEYWORDS.contains(&name) {
        "a word of the C language"
    } else if GENERATED.contains(&name) || name.starts_with(GENERATED_PREFIX) {
        "an item that is generated anyway"
    } else {
        return None;
    };
    Some((
        format!("`{name}` is {word}"),
        format!("choose another name, for example `{}_kernel`", name.trim_matches('_').to_lowercase()),
    ))
}

/// The name with everything illegal replaced.
fn identifier_from(name: &str) -> Option<String> {
    let mut better: String = name.chars().take(40).map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if better.starts_with(|c: char| c.is_ascii_digit()) {
        better.insert(0, '_');
    }
    better.contains(|c: char| c.is_ascii_alphabetic()).then_some(better)
}
