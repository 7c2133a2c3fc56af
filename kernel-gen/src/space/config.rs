//! One point of a space: a value for every knob.
//!
//! A config is named by its content. Its [`id`](Config::id) does not depend on the order of the knobs, nor on any
//! numbering of the space, so a record stays meaningful when a template gains or reorders knobs.

use super::annotate::Annotation;
use crate::stable::stable_hash;
use std::fmt;
use std::sync::Arc;

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

/// Why a config cannot be used. Every variant names the knob.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The config has no value for a knob that is asked for.
    Missing {
        /// The knob.
        knob: String,
    },
    /// The config has a value for a knob that the space does not have.
    Unknown {
        /// The knob.
        knob: String,
        /// The knobs there are.
        known: Vec<String>,
    },
    /// Two values for one knob.
    Duplicate {
        /// The knob.
        knob: String,
    },
    /// The value is of another kind than the one asked for.
    WrongKind {
        /// The knob.
        knob: String,
        /// The kind that was expected.
        wanted: &'static str,
        /// The value.
        found: Value,
    },
    /// The knob never takes this value.
    NotInSpace {
        /// The knob.
        knob: String,
        /// The value.
        value: Value,
        /// What the knob takes, as the space prints it.
        allowed: String,
    },
    /// Every value is possible, but not together.
    Filtered {
        /// The joint constraint that refuses them.
        constraint: String,
        /// The config.
        config: String,
    },
    /// The text is not a config.
    Syntax {
        /// The part that could not be read.
        text: String,
        /// What is wrong with it.
        cause: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Missing { knob } => write!(f, "the config has no value for the knob `{knob}`"),
            ConfigError::Unknown { knob, known } => {
                write!(f, "there is no knob `{knob}`; the knobs are {}", known.join(", "))
            }
            ConfigError::Duplicate { knob } => write!(f, "the knob `{knob}` has two values"),
            ConfigError::WrongKind { knob, wanted, found } => {
                write!(f, "the knob `{knob}` takes a value of kind {wanted}, not {found} ({})", found.kind())
            }
            ConfigError::NotInSpace { knob, value, allowed } => {
                write!(f, "the knob `{knob}` cannot be {value}: it is {allowed}")
            }
            ConfigError::Filtered { constraint, config } => {
                write!(f, "the config `{config}` breaks the constraint `{constraint}`")
            }
            ConfigError::Syntax { text, cause } => write!(f, "cannot read `{text}` as `knob=value`: {cause}"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// A value for every knob, in the order of the knobs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Config {
    entries: Vec<(Arc<str>, Value)>,
}

impl Config {
    /// A config without knobs, to be filled with [`with`](Config::with).
    pub fn new() -> Config {
        Config::default()
    }

    /// The config with one more knob; a knob that is there already gets the new value in its old place.
    pub fn with(mut self, knob: &str, value: impl Into<Value>) -> Config {
        self.set(knob, value.into());
        self
    }

    /// The config with one more split knob; `sizes` are outermost first, and the first may be -1, "the rest".
    pub fn with_split(self, knob: &str, sizes: &[i64]) -> Config {
        self.with(knob, Value::Split(sizes.to_vec()))
    }

    /// Sets a knob, in its old place if there is one.
    pub fn set(&mut self, knob: &str, value: Value) {
        match self.entries.iter_mut().find(|(k, _)| &**k == knob) {
            Some((_, old)) => *old = value,
            None => self.entries.push((knob.into(), value)),
        }
    }

    /// Adds an entry whose name is known to be new.
    pub(super) fn push(&mut self, knob: Arc<str>, value: Value) {
        self.entries.push((knob, value));
    }

    /// The knobs and their values, in order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (&**k, v))
    }

    /// Number of knobs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no knob at all.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a knob, if it has one.
    pub fn find(&self, knob: &str) -> Option<&Value> {
        self.entries.iter().find(|(k, _)| &**k == knob).map(|(_, v)| v)
    }

    /// The value of a knob.
    pub fn value(&self, knob: &str) -> Result<&Value, ConfigError> {
        self.find(knob).ok_or_else(|| ConfigError::Missing { knob: knob.to_string() })
    }

    fn typed<'a, T>(
        &'a self,
        knob: &str,
        wanted: &'static str,
        pick: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let value = self.value(knob)?;
        pick(value).ok_or_else(|| ConfigError::WrongKind { knob: knob.to_string(), wanted, found: value.clone() })
    }

    /// The number that a knob holds.
    pub fn int(&self, knob: &str) -> Result<i64, ConfigError> {
        self.typed(knob, "integer", |v| if let Value::Int(x) = v { Some(*x) } else { None })
    }

    /// The switch that a knob holds.
    pub fn bool(&self, knob: &str) -> Result<bool, ConfigError> {
        self.typed(knob, "bool", |v| if let Value::Bool(x) = v { Some(*x) } else { None })
    }

    /// The word that a knob holds.
    pub fn str(&self, knob: &str) -> Result<&str, ConfigError> {
        self.typed(knob, "string", |v| if let Value::Str(x) = v { Some(x.as_str()) } else { None })
    }

    /// The sizes that a split knob holds, outermost first; the first may be -1, "the rest".
    pub fn split(&self, knob: &str) -> Result<&[i64], ConfigError> {
        self.typed(knob, "split", |v| if let Value::Split(x) = v { Some(x.as_slice()) } else { None })
    }

    /// The order that a reorder knob holds.
    pub fn perm(&self, knob: &str) -> Result<&[usize], ConfigError> {
        self.typed(knob, "permutation", |v| if let Value::Perm(x) = v { Some(x.as_slice()) } else { None })
    }

    /// The annotations that an annotate knob holds.
    pub fn annotations(&self, knob: &str) -> Result<&[Annotation], ConfigError> {
        self.typed(knob, "annotation", |v| if let Value::Annotate(x) = v { Some(x.as_slice()) } else { None })
    }

    /// The name of the config: twelve hexadecimal digits that depend on the knobs and their values, not on their
    /// order. Stable across versions.
    pub fn id(&self) -> String {
        let mut words: Vec<String> = self.entries().map(|(k, v)| format!("{k}={v}")).collect();
        words.sort_unstable();
        format!("{:012x}", stable_hash(&words.join(" ")) >> 16)
    }

    /// Reads what [`Display`](fmt::Display) writes: `co_tile=32 tile_f=[-1,2,64,1]`, separated by blanks.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let mut config = Config::new();
        for word in text.split_whitespace() {
            let syntax = |cause: String| ConfigError::Syntax { text: word.to_string(), cause };
            let (knob, value) = word.split_once('=').ok_or_else(|| syntax("it has no `=`".to_string()))?;
            if !is_word(knob) {
                return Err(syntax(format!("`{knob}` is not the name of a knob")));
            }
            if config.find(knob).is_some() {
                return Err(ConfigError::Duplicate { knob: knob.to_string() });
            }
            config.push(knob.into(), Value::parse(value).map_err(syntax)?);
        }
        Ok(config)
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (knob, value)) in self.entries().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{knob}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Config {
        Config::new()
            .with_split("tile_f", &[-1, 2, 64, 1])
            .with("order", Value::Perm(vec![0, 2, 1]))
            .with("ann", Value::Annotate(vec![Annotation::None, Annotation::Unroll, Annotation::Vec]))
            .with("unroll", 1500)
            .with("pack", true)
            .with("algorithm", "direct")
            .with("note", "two words, \"quoted\" \\ 5")
            .with("truth", "true")
            .with("empty", "")
    }

    #[test]
    fn the_text_form_reads_back() {
        let text = sample().to_string();
        assert!(text.starts_with("tile_f=[-1,2,64,1] order=(0,2,1) ann=<none,unroll,vec> unroll=1500 pack=true"));
        assert_eq!(Config::parse(&text).unwrap(), sample());
        assert_eq!(Config::parse("").unwrap(), Config::new());
    }

    #[test]
    fn unreadable_text_says_what_is_wrong() {
        let message = |text: &str| Config::parse(text).unwrap_err().to_string();
        assert_eq!(message("a=1 b"), "cannot read `b` as `knob=value`: it has no `=`");
        assert_eq!(message("a=[1,x]"), "cannot read `a=[1,x]` as `knob=value`: `x` is not a size");
        assert_eq!(message("a=1 a=2"), "the knob `a` has two values");
        assert_eq!(message("a=1.5"), "cannot read `a=1.5` as `knob=value`: `1.5` is neither a number nor a word");
        for bad in ["a=[", "a=(1", "a=<x>", "a=\"", "a=\"\\q\"", "=1", "a=", "a=[]", "1=1"] {
            Config::parse(bad).unwrap_err();
        }
    }

    #[test]
    fn the_id_depends_on_content_not_on_order() {
        let a = Config::new().with("x", 1).with("y", 2);
        let b = Config::new().with("y", 2).with("x", 1);
        assert_eq!(a.id(), b.id());
        assert_ne!(a.id(), Config::new().with("x", 1).with("y", 3).id());
        assert_ne!(Config::new().with("x", 1).id(), Config::new().with("x", "1").id());
        assert_eq!(a.id().len(), 12);
        assert_eq!(Config::new().with("co_tile", 32).with("ow_tile", 14).id(), "f40c54f95905");
    }

    #[test]
    fn getters_name_the_knob_and_the_kind() {
        let c = sample();
        assert_eq!(c.split("tile_f").unwrap(), [-1, 2, 64, 1]);
        assert_eq!(c.perm("order").unwrap(), [0, 2, 1]);
        assert_eq!(c.annotations("ann").unwrap()[1], Annotation::Unroll);
        assert_eq!((c.int("unroll").unwrap(), c.bool("pack").unwrap()), (1500, true));
        assert_eq!(c.str("algorithm").unwrap(), "direct");
        assert_eq!(c.int("tile_q").unwrap_err().to_string(), "the config has no value for the knob `tile_q`");
        assert_eq!(
            c.int("tile_f").unwrap_err().to_string(),
            "the knob `tile_f` takes a value of kind integer, not [-1,2,64,1] (split)"
        );
    }
}
