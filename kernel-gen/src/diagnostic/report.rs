//! Everything that is wrong with one file, each with its line.

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
    fn a_diagnostic_is_one_line() {
        let mut report = Report::new("kernels.toml", "x = 1\ny = 2\n");
        report.error(&(6..7), "`a\nb` is wrong", "leave it out");
        let all = report.finish(Some(())).unwrap_err();
        assert_eq!(all[0].to_string(), "kernels.toml:2: `a\\nb` is wrong; leave it out");
    }
}
