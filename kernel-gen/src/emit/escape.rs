//! Text of files and specs in emitted sources. It passes through here, whatever the language: C, CUDA C++, headers and Rust.
//!
//! Device names, config words, paths and reports come from files that anyone may have written. In a source they are
//! data. Printable ASCII stays as it is; everything else becomes `\u{..}`, so the bytes of a source do not depend on a
//! version of Unicode, and no character can end a line or hide text from a reader.

use std::fmt::Write;

/// Text for a `//` comment: one line, which ends nowhere but at its end.
///
/// A carriage return ends a `//` comment of C. A backslash at the end continues it in the next line, and so does the
/// trigraph `??/`. `*/` and `/*` matter in block comments. None of them is left.
pub fn comment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let joins = match out.chars().next_back() {
            Some('?') => c == '?',
            Some('*') => c == '/',
            Some('/') => c == '*',
            _ => false,
        };
        if !is_plain(c) || c == '\\' || joins { escape(&mut out, c) } else { out.push(c) }
    }
    out
}

/// `//` comments, one for each line of the text. Only `\n` separates lines.
pub fn comments(text: &str) -> String {
    let lines = text.strip_suffix('\n').unwrap_or(text).split('\n').filter(|_| !text.is_empty());
    lines.fold(String::new(), |out, line| out + format!("// {}", comment(line)).trim_end() + "\n")
}

/// The text as a string literal of Rust, with its quotation marks.
pub fn rust_literal(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_plain(c) => out.push(c),
            c => escape(&mut out, c),
        }
    }
    out.push('"');
    out
}

/// The path of an `#include "..."`, unless it holds a character for which C has no escape there.
pub fn include_path(path: &str) -> Option<&str> {
    let trigraph = path.contains("??");
    (!trigraph && !path.chars().any(|c| c.is_control() || matches!(c, '"' | '\\' | '\u{2028}' | '\u{2029}')))
        .then_some(path)
}

fn is_plain(c: char) -> bool {
    c == ' ' || c.is_ascii_graphic()
}

fn escape(out: &mut String, c: char) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\\u{{{:x}}}", c as u32);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that could leave a comment or a literal.
    fn hostile() -> Vec<String> {
        let controls = (0..0x20u8).chain([0x7f]).map(char::from).chain('\u{80}'..='\u{9f}');
        let separators = "\u{2028}\u{2029}\u{202e}\u{2066}\u{200b}\u{feff}é".chars();
        let single = controls.chain(separators).map(|c| format!("a{c}b{c}"));
        single
            .chain(["\\", "x\\", "??/", "???/", "*/ int x; /*", "**//", "/*", "\"#\\\"", "\\\\"].map(String::from))
            .collect()
    }

    #[test]
    fn no_text_leaves_its_comment() {
        for text in hostile() {
            let line = comment(&text);
            assert!(line.chars().all(is_plain), "{text:?}: {line}");
            assert!(!line.ends_with('\\') && !line.ends_with("??/"), "{text:?}: {line}");
            assert!(["*/", "/*", "??"].iter().all(|mark| !line.contains(mark)), "{text:?}: {line}");
            let all = comments(&text);
            assert!(all.lines().all(|l| l.starts_with("//")), "{text:?}: {all}");
        }
        assert_eq!(comment("a\rb\\"), r"a\u{d}b\u{5c}");
        assert_eq!(comments("one\n\ntwo\n"), "// one\n//\n// two\n");
        assert_eq!(comments(""), "");
        let usual = "config: tile=[-1,8] ann=<none,vec> note=\"x\"; 5 us on AMD EPYC(TM) 100% with 2 / 3 threads?";
        assert_eq!(comment(usual), usual, "the usual text stays");
    }

    #[test]
    fn a_literal_is_one_token_of_rust() {
        for text in hostile() {
            let literal = rust_literal(&text);
            let inner = literal.strip_prefix('"').and_then(|l| l.strip_suffix('"')).unwrap();
            assert!(inner.chars().all(is_plain), "{text:?}: {literal}");
            // Read back by TOML's rules, which share these escapes but for the form of numbers.
            assert_eq!(unescape(inner), text, "{literal}");
        }
    }

    /// What Rust reads in a literal; panics at a quotation mark.
    fn unescape(mut text: &str) -> String {
        let mut out = String::new();
        while let Some(c) = text.chars().next() {
            text = &text[c.len_utf8()..];
            assert_ne!(c, '"', "the literal ends early");
            if c != '\\' {
                out.push(c);
                continue;
            }
            let kind = text.chars().next().expect("a backslash at the end escapes the quotation mark");
            text = &text[1..];
            out.push(match kind {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => {
                    let (digits, rest) = text.strip_prefix('{').and_then(|t| t.split_once('}')).unwrap();
                    text = rest;
                    char::from_u32(u32::from_str_radix(digits, 16).unwrap()).unwrap()
                }
                other => other,
            });
        }
        out
    }

    #[test]
    fn an_include_refuses_what_it_cannot_say() {
        assert_eq!(include_path("/home/é/a b/mine.c"), Some("/home/é/a b/mine.c"));
        for bad in ["a\"b.c", "a\nb.c", "a\rb.c", "a\\b.c", "a??/b.c", "a\u{2028}b.c"] {
            assert_eq!(include_path(bad), None, "{bad:?}");
        }
    }
}
