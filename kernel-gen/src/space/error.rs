//! Why a space cannot be made, and why a config cannot be used.

use super::value::Value;
use std::fmt;

/// Why a space cannot be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SpaceError {
    /// Two knobs of one name.
    DuplicateKnob {
        /// The knob.
        knob: String,
    },
    /// A knob that makes no sense or has no value.
    BadKnob {
        /// The knob.
        knob: String,
        /// What is wrong with it.
        cause: String,
    },
    /// More points than 64 bits can number.
    TooLarge,
}

impl fmt::Display for SpaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpaceError::DuplicateKnob { knob } => write!(f, "knob `{knob}` is defined twice"),
            SpaceError::BadKnob { knob, cause } => write!(f, "knob `{knob}`: {cause}"),
            SpaceError::TooLarge => write!(f, "the space has more than 2^64 points; bound its knobs"),
        }
    }
}

impl std::error::Error for SpaceError {}

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
