//! Which tuner, and how it is to search.

use crate::records::Trial;
use crate::tune::Task;
use std::fmt;

/// The tuners there are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Kind {
    /// See [the table](super).
    #[default]
    Auto,
    /// See [the table](super).
    Model,
    /// See [the table](super).
    Ga,
    /// See [the table](super).
    Descent,
    /// See [the table](super).
    Random,
    /// See [the table](super).
    Grid,
}

impl Kind {
    /// All of them, the default first.
    pub const ALL: [Kind; 6] = [Kind::Auto, Kind::Model, Kind::Ga, Kind::Descent, Kind::Random, Kind::Grid];

    /// The name on the command line and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Auto => "auto",
            Kind::Model => "model",
            Kind::Ga => "ga",
            Kind::Descent => "descent",
            Kind::Random => "random",
            Kind::Grid => "grid",
        }
    }

    /// The names that AutoTVM has for its tuners, and which of these is meant: its `xgb` ranks configs by boosted trees and
    /// searches by simulated annealing, whatever its loss and its features are; Droplet Search is ours of one knob after the other.
    pub const AUTOTVM: [(&'static str, Kind); 17] = [
        ("xgb", Kind::Model),
        ("xgb-rank", Kind::Model),
        ("xgb_knob", Kind::Model),
        ("xgb_itervar", Kind::Model),
        ("xgb_curve", Kind::Model),
        ("xgb_rank", Kind::Model),
        ("xgb_rank_knob", Kind::Model),
        ("xgb_rank_itervar", Kind::Model),
        ("xgb_rank_curve", Kind::Model),
        ("xgb_rank_binary", Kind::Model),
        ("gridsearch", Kind::Grid),
        ("droplet", Kind::Descent),
        ("XGBTuner", Kind::Model),
        ("GATuner", Kind::Ga),
        ("GridSearchTuner", Kind::Grid),
        ("RandomTuner", Kind::Random),
        ("DropletTuner", Kind::Descent),
    ];

    /// The kind of that name, ours or AutoTVM's.
    pub fn from_name(name: &str) -> Option<Kind> {
        let ours = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        ours.or_else(|| Kind::AUTOTVM.iter().find(|(theirs, _)| *theirs == name).map(|(_, kind)| *kind))
    }

    /// All names that [`Kind::from_name`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Kind::ALL.into_iter().map(Kind::name).chain(Kind::AUTOTVM.iter().map(|(name, _)| *name))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How to search.
#[derive(Clone, Debug)]
pub struct Options<'t> {
    /// What all that is random follows from.
    pub seed: u64,
    /// Threads that may score configs. Proposals do not depend on it.
    pub threads: usize,
    /// Trials of other tasks of the same template on the same target, from which the first batch of [`Kind::Auto`] and
    /// [`Kind::Model`] learns. Tasks of another template or target are left out. Trials of the task itself go to
    /// [`Tuner::observe`](super::Tuner::observe) instead.
    pub earlier: Vec<(&'t Task<'t>, &'t [Trial])>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { seed: 0, threads: 1, earlier: vec![] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_autotvm_are_understood() {
        for (name, kind) in [("xgb", Kind::Model), ("xgb-rank", Kind::Model), ("xgb_rank", Kind::Model)] {
            assert_eq!(Kind::from_name(name), Some(kind));
        }
        assert_eq!((Kind::from_name("gridsearch"), Kind::from_name("ga")), (Some(Kind::Grid), Some(Kind::Ga)));
        assert_eq!((Kind::from_name("random"), Kind::from_name("xgboost")), (Some(Kind::Random), None));
        assert!(Kind::names().all(|name| Kind::from_name(name).is_some()));
    }
}
