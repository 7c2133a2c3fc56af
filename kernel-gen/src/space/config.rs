//! One point of a space: a value for every knob.
//!
//! A config is named by its content. Its [`id`](Config::id) does not depend on the order of the knobs, nor on any
//! numbering of the space, so a record stays meaningful when a template gains or reorders knobs.

use super::error::ConfigError;
use super::value::{Annotation, Value, is_word};
use crate::stable::stable_hash;
use std::fmt;
use std::sync::Arc;

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
