//! The value of a knob, and its text form.

use std::fmt;

/// The value of one knob.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Value {
    /// Sizes of the parts of a split loop, outermost first. The first is -1, "the rest", in every config that a
    /// [`Space`](super::Space) hands out.
    Split(Vec<i64>),
    /// An order of loops: `Perm[i]` is the index of the axis that stands at position `i`.
    Perm(Vec<usize>),
    /// One annotation per axis.
    Annotate(Vec<Annotation>),
    /// A number.
    Int(i64),
    /// A word.
    Str(String),
    /// A switch.
    Bool(bool),
}

impl Value {
    /// What kind of value it is, as error messages call it.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Split(_) => "split",
            Value::Perm(_) => "permutation",
            Value::Annotate(_) => "annotation",
            Value::Int(_) => "integer",
            Value::Str(_) => "string",
            Value::Bool(_) => "bool",
        }
    }

    /// Reads the text form that [`Display`](fmt::Display) writes: `[-1,8,4]`, `(0,2,1)`, `<none,unroll>`, `32`,
    /// `true`, `word` or `"any text"`.
    pub fn parse(text: &str) -> Result<Value, String> {
        let inside = |open: char, close: char| text.strip_prefix(open).and_then(|t| t.strip_suffix(close));
        fn list<T>(t: &str, item: impl Fn(&str) -> Option<T>, what: &str) -> Result<Vec<T>, String> {
            t.split(',').map(|x| item(x.trim()).ok_or_else(|| format!("`{}` is not {what}", x.trim()))).collect()
        }
        if let Some(t) = inside('[', ']') {
            return list(t, |x| x.parse().ok(), "a size").map(Value::Split);
        }
        if let Some(t) = inside('(', ')') {
            return list(t, |x| x.parse().ok(), "the index of an axis").map(Value::Perm);
        }
        if let Some(t) = inside('<', '>') {
            return list(t, Annotation::from_name, "one of none, unroll, vec").map(Value::Annotate);
        }
        if text.starts_with('"') {
            return unquote(text).map(Value::Str).ok_or_else(|| format!("{text} is not a complete quoted string"));
        }
        match text {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ if is_word(text) => Ok(Value::Str(text.to_string())),
            _ => text.parse().map(Value::Int).map_err(|_| format!("`{text}` is neither a number nor a word")),
        }
    }
}

/// Whether a string may be the name of a knob: letters, digits, `_`, `-` and `.`, a letter or `_` first. A string value
/// of this form is printed without quotes.
pub fn is_word(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        && !matches!(text, "true" | "false")
}

fn quote(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c.is_control() || c.is_whitespace() => write!(f, "\\u{{{:x}}}", c as u32)?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

fn unquote(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text.strip_prefix('"')?.strip_suffix('"')?.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => return None,
            '\\' => match rest.next()? {
                c @ ('"' | '\\') => out.push(c),
                'u' => {
                    let hex = rest.as_str().strip_prefix('{')?;
                    let (code, tail) = hex.split_once('}')?;
                    out.push(char::from_u32(u32::from_str_radix(code, 16).ok()?)?);
                    rest = tail.chars();
                }
                _ => return None,
            },
            c => out.push(c),
        }
    }
    Some(out)
}

fn comma_separated<T: fmt::Display>(items: &[T], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            f.write_str(",")?;
        }
        write!(f, "{item}")?;
    }
    Ok(())
}

impl fmt::Display for Value {
    /// Contains no space, so that a config is a list of words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = match self {
            Value::Split(_) => ("[", "]"),
            Value::Perm(_) => ("(", ")"),
            Value::Annotate(_) => ("<", ">"),
            _ => ("", ""),
        };
        f.write_str(open)?;
        match self {
            Value::Split(sizes) => comma_separated(sizes, f)?,
            Value::Perm(axes) => comma_separated(axes, f)?,
            Value::Annotate(list) => comma_separated(list, f)?,
            Value::Int(x) => write!(f, "{x}")?,
            Value::Bool(b) => write!(f, "{b}")?,
            Value::Str(s) if is_word(s) => f.write_str(s)?,
            Value::Str(s) => quote(s, f)?,
        }
        f.write_str(close)
    }
}

impl From<i64> for Value {
    fn from(x: i64) -> Value {
        Value::Int(x)
    }
}

impl From<bool> for Value {
    fn from(x: bool) -> Value {
        Value::Bool(x)
    }
}

impl From<&str> for Value {
    fn from(x: &str) -> Value {
        Value::Str(x.to_string())
    }
}

impl From<String> for Value {
    fn from(x: String) -> Value {
        Value::Str(x)
    }
}

/// What happens to one loop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Annotation {
    /// Nothing.
    None,
    /// It is unrolled.
    Unroll,
    /// It is vectorised.
    Vec,
}

impl Annotation {
    /// The name used in configs.
    pub fn name(self) -> &'static str {
        match self {
            Annotation::None => "none",
            Annotation::Unroll => "unroll",
            Annotation::Vec => "vec",
        }
    }

    /// The annotation with that name.
    pub fn from_name(name: &str) -> Option<Annotation> {
        [Annotation::None, Annotation::Unroll, Annotation::Vec].into_iter().find(|a| a.name() == name)
    }
}

impl fmt::Display for Annotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
