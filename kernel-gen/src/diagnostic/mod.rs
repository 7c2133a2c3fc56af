//! What is wrong with a file that a person wrote: `file:line: cause; help`.
//!
//! A [`Report`] collects everything that is wrong with one file, so that a user sees all of it at once. [`Table`]
//! reads TOML tables into it.

mod table;

pub use table::{Found, Table, parse};

use std::fmt;
use std::ops::Range;

/// One thing that is wrong with a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Diagnostic {
    /// The file, as the user named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub cause: String,
    /// What to write instead.
    pub help: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.file, self.line, self.cause, self.help)
    }
}

impl std::error::Error for Diagnostic {}

/// Everything that is wrong with one file.
#[derive(Clone, Debug)]
pub struct Report {
    file: String,
    /// Byte offset at which each line starts.
    line_starts: Vec<usize>,
    diagnostics: Vec<Diagnostic>,
}

impl Report {
    /// An empty report on the file called `file` with this text.
    pub fn new(file: &str, text: &str) -> Report {
        let after_newline = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1);
        Report {
            file: file.into(),
            line_starts: std::iter::once(0).chain(after_newline).collect(),
            diagnostics: vec![],
        }
    }

    /// The line, from 1, that holds a byte of the text.
    pub fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// Adds a diagnostic at the start of a span of bytes.
    pub fn error(&mut self, span: &Range<usize>, cause: impl Into<String>, help: impl Into<String>) {
        let (file, line) = (self.file.clone(), self.line(span.start));
        self.diagnostics.push(Diagnostic { file, line, cause: one_line(cause.into()), help: one_line(help.into()) });
    }

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.diagnostics.is_empty()
    }

    /// How many diagnostics there are so far.
    pub fn len(&self) -> usize {
        self.diagnostics.len()
    }

    /// Whether nothing is wrong; the same as [`Report::is_clean`].
    pub fn is_empty(&self) -> bool {
        self.is_clean()
    }

    /// The value if nothing is wrong, and otherwise all diagnostics, by line and without repetitions.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Vec<Diagnostic>> {
        let mut diagnostics = self.diagnostics;
        diagnostics.sort_by_key(|d| d.line);
        diagnostics.dedup();
        match value {
            Some(value) if diagnostics.is_empty() => Ok(value),
            _ => Err(diagnostics),
        }
    }
}

/// A diagnostic is one line, whatever the user's strings hold: what could end or reorder it is escaped.
pub fn one_line(text: String) -> String {
    if !text.contains(leaves_its_line) {
        return text;
    }
    text.chars().map(|c| if leaves_its_line(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// Whether a character is no text within a line: control characters, the line separators of Unicode, and what changes the
/// direction of the text around it.
pub fn leaves_its_line(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The candidate that `word` is most likely a misspelling of, if one is close enough.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = word.to_lowercase();
    // Nobody misspells a key into something much longer than any key.
    if wanted.len() > 64 {
        return None;
    }
    candidates
        .into_iter()
        .map(|c| (edit_distance(&wanted, &c.to_lowercase()), c))
        .filter(|(distance, c)| *distance <= 1 + c.chars().count() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}

/// `did you mean ...?` where something is close, and the list of what is allowed.
pub fn suggest(word: &str, allowed: &[&str]) -> String {
    let list = allowed.join(", ");
    match closest(word, allowed.iter().copied()) {
        Some(close) => format!("did you mean `{close}`? Allowed: {list}"),
        None => format!("use one of {list}"),
    }
}

/// Levenshtein's distance with neighbours swapped counted as one edit.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: [Vec<usize>; 3] = [vec![], (0..=b.len()).collect(), vec![0; b.len() + 1]];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let substitution = rows[1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = substitution.min(rows[1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[0][j - 2] + 1);
            }
        }
        rows[0] = std::mem::replace(&mut rows[1], row);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_count_from_one() {
        let report = Report::new("f", "a\nbc\n\nd");
        let lines: Vec<usize> = (0..8).map(|i| report.line(i)).collect();
        assert_eq!(lines, [1, 1, 2, 2, 2, 3, 4, 4]);
    }

    #[test]
    fn misspellings_find_what_was_meant() {
        let keys = ["stride", "padding", "dilation", "groups"];
        for (word, meant) in
            [("strides", "stride"), ("paddign", "padding"), ("Group", "groups"), ("dialation", "dilation")]
        {
            assert_eq!(closest(word, keys), Some(meant));
        }
        assert_eq!(closest("colour", keys), None);
    }

    #[test]
    fn a_diagnostic_is_one_line() {
        let mut report = Report::new("kernels.toml", "x = 1\ny = 2\n");
        report.error(&(6..7), "`a\nb` is wrong", "leave it out");
        let all = report.finish(Some(())).unwrap_err();
        assert_eq!(all[0].to_string(), "kernels.toml:2: `a\\nb` is wrong; leave it out");
    }
}
