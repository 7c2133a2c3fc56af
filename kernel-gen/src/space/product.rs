//! A space: the product of its knobs, minus what its joint constraints refuse.

use super::annotate::Annotate;
use super::config::Config;
use super::error::{ConfigError, SpaceError};
use super::knob::Knob;
use super::reorder::Reorder;
use super::split::Split;
use super::value::{Value, is_word};
use crate::stable::{Rng, stable_hash};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A 64-bit hash of the names, kinds and parameters of a space's knobs, in order.
///
/// Filters are functions and are not covered; a config that they refuse is found when it is checked against the
/// space, which every lookup does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// Reads the sixteen hexadecimal digits that [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Fingerprint> {
        let canonical = text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        canonical.then(|| u64::from_str_radix(text, 16).ok().map(Fingerprint)).flatten()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

type Predicate = Arc<dyn Fn(&Config) -> bool + Send + Sync>;

/// Collects the knobs of a space; the first mistake is reported by [`build`](SpaceBuilder::build).
#[derive(Default)]
pub struct SpaceBuilder {
    knobs: Vec<(Arc<str>, Knob)>,
    filters: Vec<(String, Predicate)>,
    error: Option<SpaceError>,
}

impl SpaceBuilder {
    fn add(mut self, name: &str, make: impl FnOnce() -> Result<Knob, SpaceError>) -> SpaceBuilder {
        if self.error.is_some() {
            return self;
        }
        let knob = if self.knobs.iter().any(|(n, _)| &**n == name) {
            Err(SpaceError::DuplicateKnob { knob: name.to_string() })
        } else if !is_word(name) {
            let cause = "a name is letters, digits, `_`, `-` and `.`, and starts with a letter or `_`".to_string();
            Err(SpaceError::BadKnob { knob: name.to_string(), cause })
        } else {
            make()
        };
        match knob {
            Ok(knob) => self.knobs.push((name.into(), knob)),
            Err(error) => self.error = Some(error),
        }
        self
    }

    /// A split knob.
    pub fn split(self, name: &str, split: Split) -> SpaceBuilder {
        self.add(name, || split.resolve(name).map(Knob::Split))
    }

    /// A reorder knob over named axes.
    pub fn reorder(self, name: &str, axes: &[&str], policy: Reorder) -> SpaceBuilder {
        self.add(name, || policy.resolve(name, axes).map(Knob::Reorder))
    }

    /// An annotate knob over named axes.
    pub fn annotate(self, name: &str, axes: &[&str], policy: Annotate) -> SpaceBuilder {
        self.add(name, || policy.resolve(name, axes).map(Knob::Annotate))
    }

    /// A knob that takes one of a list of numbers, words or switches.
    pub fn knob<V: Into<Value>>(self, name: &str, values: impl IntoIterator<Item = V>) -> SpaceBuilder {
        let values = values.into_iter().map(Into::into).collect();
        self.add(name, || Knob::choice(name, values))
    }

    /// A joint constraint: only configs for which `keep` holds are in the space. `name` says what is required; it is
    /// what a refused config is told.
    pub fn filter(mut self, name: &str, keep: impl Fn(&Config) -> bool + Send + Sync + 'static) -> SpaceBuilder {
        self.filters.push((name.to_string(), Arc::new(keep)));
        self
    }

    /// The space, or the first mistake.
    pub fn build(self) -> Result<Space, SpaceError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let product = self.knobs.iter().try_fold(1u64, |product, (_, knob)| product.checked_mul(knob.len()));
        let range_len = product.ok_or(SpaceError::TooLarge)?;
        Ok(Space { knobs: self.knobs, filters: self.filters, range_len, len: OnceLock::new() })
    }
}

/// Spaces above this number of points print an estimate of how many pass their constraints, not the exact count.
const COUNT_FOR_PRINTING: u64 = 1 << 20;

/// The configs that a template offers for a workload. It is the product of its knobs, minus what its joint constraints
/// refuse; [`space`](super) says more.
#[derive(Clone)]
pub struct Space {
    pub(super) knobs: Vec<(Arc<str>, Knob)>,
    pub(super) filters: Vec<(String, Predicate)>,
    pub(super) range_len: u64,
    /// The number of configs, once somebody has counted.
    pub(super) len: OnceLock<u64>,
}

impl Space {
    /// Starts a space.
    pub fn builder() -> SpaceBuilder {
        SpaceBuilder::default()
    }

    /// The knobs in the order of definition.
    pub fn knobs(&self) -> impl ExactSizeIterator<Item = (&str, &Knob)> {
        self.knobs.iter().map(|(n, k)| (&**n, k))
    }

    /// The knob of that name.
    pub fn find_knob(&self, name: &str) -> Option<&Knob> {
        self.knobs().find(|(n, _)| *n == name).map(|(_, k)| k)
    }

    /// What the joint constraints require, by name.
    pub fn constraints(&self) -> impl ExactSizeIterator<Item = &str> {
        self.filters.iter().map(|(n, _)| n.as_str())
    }

    /// Number of indices: the product of the lengths of the knobs.
    pub fn range_len(&self) -> u64 {
        self.range_len
    }

    /// Number of configs. With joint constraints this looks at every index once and then remembers the answer: for
    /// more than some millions of them use [`estimated_len`](Space::estimated_len).
    #[expect(clippy::len_without_is_empty, reason = "a space has at least one index; `is_empty` would have to count")]
    pub fn len(&self) -> u64 {
        if self.filters.is_empty() {
            return self.range_len;
        }
        *self.len.get_or_init(|| self.count_in(0..self.range_len))
    }

    /// Number of configs in a range of indices; looks at each of them.
    pub fn count_in(&self, range: Range<u64>) -> u64 {
        range.filter(|index| self.is_valid(*index)).count() as u64
    }

    /// Number of configs, extrapolated from 4096 sampled indices where counting would take long.
    pub fn estimated_len(&self) -> u64 {
        if self.filters.is_empty() || self.range_len <= COUNT_FOR_PRINTING || self.len.get().is_some() {
            return self.len();
        }
        let samples = 4096;
        let mut rng = Rng::new(0);
        let valid = (0..samples).filter(|_| self.is_valid(rng.below(self.range_len))).count();
        (self.range_len as f64 * valid as f64 / f64::from(samples)) as u64
    }

    /// The lengths of the knobs, in order of definition.
    pub fn dims(&self) -> Vec<u64> {
        self.knobs.iter().map(|(_, k)| k.len()).collect()
    }

    /// The rank of each knob's value at an index.
    pub fn point_of(&self, mut index: u64) -> Vec<u64> {
        self.knobs
            .iter()
            .map(|(_, k)| {
                let rank = index % k.len();
                index /= k.len();
                rank
            })
            .collect()
    }

    /// The index of a list of ranks; the inverse of [`point_of`](Space::point_of).
    pub fn index_of_point(&self, point: &[u64]) -> u64 {
        assert_eq!(point.len(), self.knobs.len(), "a point has one rank per knob");
        self.knobs.iter().zip(point).rev().fold(0, |index, ((_, k), rank)| index * k.len() + rank)
    }

    /// The values at an index, whatever the constraints say.
    pub(crate) fn at(&self, mut index: u64) -> Config {
        let mut config = Config::new();
        for (name, knob) in &self.knobs {
            config.push(name.clone(), knob.get(index % knob.len()));
            index /= knob.len();
        }
        config
    }

    /// The first constraint that a config breaks.
    fn broken(&self, config: &Config) -> Option<&str> {
        self.filters.iter().find(|(_, keep)| !keep(config)).map(|(name, _)| name.as_str())
    }

    /// Whether the constraints allow a config of this space's knobs.
    pub(crate) fn takes(&self, config: &Config) -> bool {
        self.broken(config).is_none()
    }

    /// The config at an index, or `None` outside the range and where a constraint refuses it.
    pub fn get(&self, index: u64) -> Option<Config> {
        if index >= self.range_len {
            return None;
        }
        Some(self.at(index)).filter(|config| self.takes(config))
    }

    /// Whether there is a config at an index.
    pub fn is_valid(&self, index: u64) -> bool {
        index < self.range_len && (self.filters.is_empty() || self.get(index).is_some())
    }

    /// The constraint that refuses the config at an index, if one does.
    pub fn refused_by(&self, index: u64) -> Option<&str> {
        if index >= self.range_len { None } else { self.broken(&self.at(index)) }
    }

    /// The index of a config, or why it is not in this space. The order of its entries does not matter, and the first
    /// size of a split may be -1 or the number that it stands for.
    pub fn index_of(&self, config: &Config) -> Result<u64, ConfigError> {
        for (name, _) in config.entries() {
            if self.find_knob(name).is_none() {
                let known = self.knobs().map(|(n, _)| n.to_string()).collect();
                return Err(ConfigError::Unknown { knob: name.to_string(), known });
            }
        }
        let mut point = vec![];
        for (name, knob) in self.knobs() {
            let value = config.value(name)?;
            let error = || {
                let name = name.to_string();
                if value.kind() == knob.kind() {
                    ConfigError::NotInSpace { knob: name, value: value.clone(), allowed: knob.to_string() }
                } else {
                    ConfigError::WrongKind { knob: name, wanted: knob.kind(), found: value.clone() }
                }
            };
            point.push(knob.rank_of(value).ok_or_else(error)?);
        }
        let index = self.index_of_point(&point);
        match self.refused_by(index) {
            Some(constraint) => {
                Err(ConfigError::Filtered { constraint: constraint.to_string(), config: config.to_string() })
            }
            None => Ok(index),
        }
    }

    /// The config as this space writes it (knobs in the space's order, -1 as the first size of every split), or why
    /// it is not in this space.
    pub fn normalise(&self, config: &Config) -> Result<Config, ConfigError> {
        self.index_of(config).map(|index| self.at(index))
    }

    /// See [`Fingerprint`].
    pub fn fingerprint(&self) -> Fingerprint {
        let lines: Vec<String> =
            self.knobs().map(|(name, knob)| format!("{name}:{}:{}", knob.kind(), knob.parameters())).collect();
        Fingerprint(stable_hash(&lines.join("\n")))
    }
}

impl fmt::Display for Space {
    /// As AutoTVM prints it; `~` marks an estimate.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.estimated_len();
        let exact = self.filters.is_empty() || self.len.get().is_some();
        let mark = if exact { "" } else { "~" };
        writeln!(f, "ConfigSpace (len={mark}{len}, range_length={}, space_map=", self.range_len)?;
        for (i, (name, knob)) in self.knobs().enumerate() {
            writeln!(f, "  {i:2} {name}: {knob}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
