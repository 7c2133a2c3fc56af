//! One text of a CUDA source and of all that it includes by `#include "..."`.
//!
//! What is compiled, packaged, or kept in the program for NVRTC is one text, which needs no file beside it. Included files
//! are put in their places, and `#line` says where each line is from, so that compilers name the user's own files.

use crate::diagnostic::Diagnostic;
use crate::emit::escape::include_path;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Headers of C whose types NVRTC does not have without a file; [`STANDARD_TYPES`] stands for them.
const STANDARD: [&str; 2] = ["stdint.h", "stddef.h"];

const STANDARD_TYPES: &str = "\
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#else
#include <stddef.h>
#include <stdint.h>
#endif
";

/// Files within files; more is a mistake.
const MAX_DEPTH: usize = 64;

/// A source and what it includes, in one text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Flat {
    pub(super) text: String,
    /// Every file that was read, the source first.
    pub(super) files: Vec<PathBuf>,
    /// The first header that only a CUDA toolkit has, as it is written, and where.
    pub(super) toolkit: Option<(String, Place)>,
    /// Where a kernel is first launched from code for the CPU.
    pub(super) launch: Option<Place>,
}

/// A line of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// The file, for messages.
    pub(super) file: String,
    pub(super) line: usize,
}

/// Reads a source. `shown` is its path as the spec has it: what compilers are to call it.
pub(super) fn flatten(path: &Path, shown: &str) -> Result<Flat, Diagnostic> {
    let mut reader = Reader::default();
    let place = Place { file: path.display().to_string(), line: 1 };
    let mut text = String::new();
    reader.file(&mut text, path, shown, &place)?;
    if reader.standard {
        text.insert_str(0, STANDARD_TYPES);
    }
    reader.flat.text = text;
    Ok(reader.flat)
}

#[derive(Default)]
struct Reader {
    flat: Flat,
    /// The files that the current line is in, outermost first.
    within: Vec<PathBuf>,
    /// Whether the types of [`STANDARD`] are wanted.
    standard: bool,
}

impl Reader {
    /// Appends a file; `place` is the line that includes it.
    fn file(&mut self, out: &mut String, path: &Path, shown: &str, place: &Place) -> Result<(), Diagnostic> {
        let fault = |cause: String, help: &str| Diagnostic {
            file: place.file.clone(),
            line: place.line,
            cause,
            help: help.into(),
        };
        let bytes = std::fs::read(path).map_err(|e| {
            let help = "a path in `#include \"...\"` counts from the folder of the file that includes; write <...> for headers \
                        of the CUDA toolkit";
            fault(format!("\"{}\" cannot be read ({e})", path.display()), help)
        })?;
        let text = String::from_utf8(bytes)
            .map_err(|_| fault(format!("\"{}\" is not UTF-8 text", path.display()), "save it as UTF-8"))?;
        let Some(shown) = include_path(shown) else {
            let help = "rename the folder or the file: no quotation marks, backslashes, `??` or control characters";
            return Err(fault(format!("the path {shown:?} cannot stand in a `#line` of CUDA"), help));
        };
        // The same file by another path is the same file.
        let identity = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        if self.within.contains(&identity) {
            // Its guard would leave nothing of it.
            return Ok(());
        }
        if self.within.len() == MAX_DEPTH {
            return Err(fault(format!("files include each other {MAX_DEPTH} deep"), "include fewer"));
        }
        let number = match self.flat.files.iter().position(|known| *known == path) {
            Some(number) => number,
            None => {
                self.flat.files.push(path.to_path_buf());
                self.flat.files.len() - 1
            }
        };
        self.within.push(identity);
        let plain = without_comments_and_strings(&text);
        let once = plain.lines().any(is_pragma_once);
        if once {
            let _ = write!(out, "#ifndef KERNEL_GEN_ONCE_{number}\n#define KERNEL_GEN_ONCE_{number}\n");
        }
        let _ = writeln!(out, "#line 1 \"{shown}\"");
        for (i, (line, plain)) in text.lines().zip(plain.lines()).enumerate() {
            let here = Place { file: path.display().to_string(), line: i + 1 };
            if plain.contains("<<<") && self.flat.launch.is_none() {
                self.flat.launch = Some(here.clone());
            }
            match directive(line, plain) {
                Directive::Quoted(name) => {
                    if Path::new(name).has_root() {
                        let cause = format!("`#include \"{name}\"` means another file on every machine");
                        let help = "write the path from the folder of the file that includes".to_string();
                        return Err(Diagnostic { file: here.file, line: here.line, cause, help });
                    }
                    let folder = path.parent().unwrap_or(Path::new(""));
                    let beside = shown.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
                    self.file(out, &folder.join(name), &format!("{beside}{name}"), &here)?;
                    let _ = writeln!(out, "#line {} \"{shown}\"", i + 2);
                }
                Directive::Standard => {
                    self.standard = true;
                    out.push('\n');
                }
                Directive::Once => out.push('\n'),
                Directive::Toolkit(name) => {
                    self.flat.toolkit.get_or_insert((name.to_string(), here));
                    out.push_str(line);
                    out.push('\n');
                }
                Directive::Other => {
                    out.push_str(line);
                    out.push('\n');
                }
            }
        }
        if once {
            out.push_str("#endif\n");
        }
        self.within.pop();
        Ok(())
    }
}

/// What a line asks of the preprocessor.
enum Directive<'a> {
    /// `#include "..."`.
    Quoted(&'a str),
    /// `#include <...>` of one of [`STANDARD`].
    Standard,
    /// Another `#include <...>`, with its brackets.
    Toolkit(&'a str),
    /// `#pragma once`.
    Once,
    /// Anything else.
    Other,
}

/// `plain` is the line without comments and without what is in strings.
fn directive<'a>(line: &'a str, plain: &str) -> Directive<'a> {
    if is_pragma_once(plain) {
        return Directive::Once;
    }
    let words = plain.trim_start().strip_prefix('#').map(str::trim_start).and_then(|rest| rest.strip_prefix("include"));
    let Some(rest) = words else { return Directive::Other };
    // Both lines have the same bytes in the same places.
    let name = line[line.len().min(plain.len() - rest.len())..].trim_start();
    if let Some((name, _)) = name.strip_prefix('"').and_then(|n| n.split_once('"')) {
        return Directive::Quoted(name);
    }
    match name.strip_prefix('<').and_then(|n| n.split_once('>')) {
        Some((inner, _)) if STANDARD.contains(&inner) => Directive::Standard,
        Some((inner, _)) => Directive::Toolkit(&name[..inner.len() + 2]),
        None => Directive::Other,
    }
}

fn is_pragma_once(line: &str) -> bool {
    let mut words = line.split_whitespace();
    match words.next() {
        Some("#pragma") => words.next() == Some("once"),
        Some("#") => words.next() == Some("pragma") && words.next() == Some("once"),
        _ => false,
    }
}

/// The text with spaces in place of comments and of what is in quotation marks; every line keeps its length in bytes.
fn without_comments_and_strings(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let blank = |out: &mut String, text: &str| {
        for c in text.chars() {
            match c {
                '\n' | '\r' => out.push(c),
                c => out.extend(std::iter::repeat_n(' ', c.len_utf8())),
            }
        }
    };
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        // `1'000` has a separator of digits.
        let is_separator = c == '\'' && out.ends_with(|c: char| c.is_ascii_alphanumeric());
        let length = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |at| at + 4),
            '"' | '\'' if !is_separator => quoted(rest, c),
            _ => 0,
        };
        let (token, behind) = rest.split_at(length.max(c.len_utf8()));
        match (length, c) {
            (0, _) => out.push_str(token),
            (_, '/') => blank(&mut out, token),
            _ => {
                // The marks stay.
                let inner = &token[1..];
                let (inner, end) = inner.strip_suffix(c).map_or((inner, ""), |i| (i, &token[token.len() - 1..]));
                out.push(c);
                blank(&mut out, inner);
                out.push_str(end);
            }
        }
        rest = behind;
    }
    out
}

/// The length of what is between two marks, with both; it ends with its line at the latest.
fn quoted(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' => return at,
            c if c == mark => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked_in_their_places() {
        for (text, expected) in [
            ("a // b \"c\nd", "a        \nd"),
            ("a /* b\n<<< */ c", "a     \n       c"),
            ("/*/ a */ b", "         b"),
            ("/* a /*/ c", "         c"),
            ("a /* b", "a     "),
            ("x = \"<<< // \\\" é\"; // c", "x = \"            \";     "),
            ("'\"' 1'000 '\\'' \"a\nb", "' ' 1'000 '  ' \" \nb"),
            ("\"a\\\nb\" c", "\"  \n \" c"),
        ] {
            let plain = without_comments_and_strings(text);
            assert_eq!(plain, expected, "{text:?}");
            assert_eq!(plain.len(), text.len());
        }
    }

    #[test]
    fn directives_are_told_apart() {
        let kind = |line: &str| match directive(line, &without_comments_and_strings(line)) {
            Directive::Quoted(name) => format!("\"{name}\""),
            Directive::Standard => "standard".into(),
            Directive::Toolkit(name) => name.to_string(),
            Directive::Once => "once".into(),
            Directive::Other => "other".into(),
        };
        assert_eq!(kind("#include \"a/b.h\" // c"), "\"a/b.h\"");
        assert_eq!(kind("  #  include\"b.h\""), "\"b.h\"");
        assert_eq!(kind("#include <stdint.h>"), "standard");
        assert_eq!(kind("#include <cuda_fp16.h>"), "<cuda_fp16.h>");
        assert_eq!(kind("# pragma once"), "once");
        assert_eq!(kind("// #include \"a.h\""), "other");
        assert_eq!(kind("#include MACRO"), "other");
        assert_eq!(kind("#define a \"#include\""), "other");
    }
}
