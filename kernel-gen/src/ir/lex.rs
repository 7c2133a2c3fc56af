//! Words, numbers and signs of the text form.

use super::DType;
use std::fmt;

/// Why a text is not a kernel, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub col: u32,
    /// What is wrong.
    pub cause: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.col, self.cause)
    }
}

impl std::error::Error for ParseError {}

/// A token.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Token<'t> {
    /// A name or a keyword; dots may stand inside (`grid.x`).
    Word(&'t str),
    /// An integer without its sign.
    Int(u64),
    /// A floating literal without its sign, with the type it carries.
    Float(f64, DType),
    /// An operator or a bracket.
    Sign(&'static str),
    /// The end of the text.
    End,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(w) => write!(f, "`{w}`"),
            Token::Int(v) => write!(f, "`{v}`"),
            Token::Float(v, d) => write!(f, "`{v:?}{d}`"),
            Token::Sign(s) => write!(f, "`{s}`"),
            Token::End => f.write_str("the end of the text"),
        }
    }
}

/// Longer signs first.
const SIGNS: [&str; 29] = [
    "..", "+=", "*=", "==", "!=", "<=", ">=", "&&", "||", "{", "}", "[", "]", "(", ")", ",", ":", "=", "+", "-", "*",
    "/", "%", "<", ">", "!", "&", "|", ".",
];

struct Spanned<'t> {
    token: Token<'t>,
    line: u32,
    col: u32,
}

/// The tokens of a text and a position among them.
pub(super) struct Lexer<'t> {
    tokens: Vec<Spanned<'t>>,
    at: usize,
}

impl<'t> Lexer<'t> {
    /// Cuts a text into tokens.
    pub(super) fn new(text: &'t str) -> Result<Lexer<'t>, ParseError> {
        let mut tokens = vec![];
        let mut line = 0;
        for (i, text) in text.lines().enumerate() {
            line = i as u32 + 1;
            let (mut rest, mut col) = (text, 1);
            loop {
                let trimmed = rest.trim_start();
                col += chars(&rest[..rest.len() - trimmed.len()]);
                rest = trimmed;
                if rest.is_empty() || rest.starts_with(';') {
                    break;
                }
                let (token, length) = token(rest).map_err(|cause| ParseError { line, col, cause })?;
                tokens.push(Spanned { token, line, col });
                col += chars(&rest[..length]);
                rest = &rest[length..];
            }
        }
        // The end is behind the last line's last character.
        let col = text.lines().last().map_or(0, chars) + 1;
        tokens.push(Spanned { token: Token::End, line: line.max(1), col });
        Ok(Lexer { tokens, at: 0 })
    }

    fn spanned(&self, at: usize) -> &Spanned<'t> {
        &self.tokens[at.min(self.tokens.len() - 1)]
    }

    /// The next token.
    pub(super) fn peek(&self) -> Token<'t> {
        self.spanned(self.at).token
    }

    /// The one behind it.
    pub(super) fn peek2(&self) -> Token<'t> {
        self.spanned(self.at + 1).token
    }

    /// Goes past the next token.
    pub(super) fn next(&mut self) {
        self.at += 1;
    }

    /// Line and column of the next token.
    pub(super) fn position(&self) -> (u32, u32) {
        let s = self.spanned(self.at);
        (s.line, s.col)
    }

    /// An error at the next token.
    pub(super) fn error(&self, cause: impl Into<String>) -> ParseError {
        let (line, col) = self.position();
        ParseError { line, col, cause: cause.into() }
    }

    /// An error at the token just passed.
    pub(super) fn error_before(&self, cause: impl Into<String>) -> ParseError {
        let s = self.spanned(self.at.saturating_sub(1));
        ParseError { line: s.line, col: s.col, cause: cause.into() }
    }

    /// A word, whatever it is.
    pub(super) fn name(&mut self, what: &str) -> Result<&'t str, ParseError> {
        match self.peek() {
            Token::Word(w) => {
                self.next();
                Ok(w)
            }
            other => Err(self.error(format!("expected {what}, found {other}"))),
        }
    }
}

/// Columns that a text takes.
fn chars(text: &str) -> u32 {
    text.chars().count() as u32
}

/// The token that a text begins with, and its length in bytes.
fn token(rest: &str) -> Result<(Token<'_>, usize), String> {
    let first = rest.chars().next().unwrap_or(' ');
    if first.is_ascii_digit() {
        return number(rest);
    }
    if first.is_alphabetic() || first == '_' {
        let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        // What `{:?}` prints for the floats that have no digits.
        for (prefix, value) in [("inf", f64::INFINITY), ("NaN", f64::NAN)] {
            if let Some(d) = word.strip_prefix(prefix).and_then(DType::from_name) {
                return Ok((Token::Float(value, d), end));
            }
        }
        return Ok((Token::Word(word), end));
    }
    match SIGNS.iter().find(|s| rest.starts_with(**s)) {
        Some(s) => Ok((Token::Sign(s), s.len())),
        None => Err(format!("unexpected character {first:?}")),
    }
}

/// Characters inside a name. The dot is for schedules, which call the parts of `i` `i.outer` and `i.inner`.
fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '.' || c == '$'
}

/// An integer, or a float with its type.
fn number(rest: &str) -> Result<(Token<'_>, usize), String> {
    let bytes = rest.as_bytes();
    let digits = |mut i: usize| {
        while bytes.get(i).is_some_and(u8::is_ascii_digit) {
            i += 1;
        }
        i
    };
    let mut end = digits(0);
    // `0..4` is a range, `0.5` a fraction.
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        end = digits(end + 1);
    }
    let word = |from: usize| {
        from + rest[from..].find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len() - from)
    };
    // `e4m3` and `e5m2` are types, and no exponents.
    let is_type = DType::from_name(&rest[end..word(end)]).is_some();
    if bytes.get(end) == Some(&b'e') && !is_type {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        if bytes.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
            end = digits(end + 1 + sign);
        }
    }
    let text = &rest[..end];
    let suffix_end = word(end);
    let suffix = &rest[end..suffix_end];
    if suffix.is_empty() {
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse().map(|v| (Token::Int(v), end)).map_err(|_| "the number is too large".to_string());
        }
        return Err(format!("the float {text} needs its type, such as {text}f32"));
    }
    let dtype = DType::from_name(suffix).ok_or_else(|| format!("`{suffix}` is not a type of number"))?;
    let value = text.parse().map_err(|_| format!("{text} is not a number"))?;
    Ok((Token::Float(value, dtype), suffix_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_look_like_exponents_are_types() {
        let float = |text: &str| match number(text) {
            Ok((Token::Float(value, dtype), end)) => (value, dtype, &text[end..] == " + 1"),
            _ => panic!("{text}"),
        };
        assert_eq!(float("1.5e4m3 + 1"), (1.5, DType::E4m3, true));
        assert_eq!(float("0.0e5m2 + 1"), (0.0, DType::E5m2, true));
        assert_eq!(float("2.5e-7e5m2 + 1"), (2.5e-7, DType::E5m2, true));
        assert_eq!(float("1e5f32 + 1"), (1e5, DType::F32, true));
    }
}
