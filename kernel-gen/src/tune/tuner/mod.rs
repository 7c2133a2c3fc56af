//! Tuners: which configs to try next.
//!
//! | kind | what it does | from |
//! |---|---|---|
//! | [`Kind::Random`] | all configs in a random order | AutoTVM |
//! | [`Kind::Grid`] | all configs in order of their indices | AutoTVM |
//! | [`Kind::Ga`] | a genetic algorithm | AutoTVM (Chen et al., "Learning to Optimize Tensor Programs", 2018) |
//! | [`Kind::Model`] | boosted trees that rank configs, searched by simulated annealing | AutoTVM's XGBTuner |
//! | [`Kind::Descent`] | one knob after the other, with a significance test | Droplet Search (Canesche et al., 2024) |
//! | [`Kind::Auto`] | the template's prediction, then trees, then descent, all at once | here |
//!
//! [`make`] makes any of them. All share one [`driver`](self): it keeps what was tried, lets nothing be proposed twice,
//! and fills in configs in a random order where a method has no idea left, so every tuner ends with the space exhausted.
//!
//! The size of a batch is the tuner's own and not that of the machine that measures it, and everything random comes from
//! the seed. Threads only share out the scoring of configs, so their number changes nothing.

mod anneal;
mod auto;
mod descent;
mod driver;
mod ga;
mod model;
mod plain;
mod pool;
mod significance;

pub use significance::{Verdict, compare};

use super::Task;
use crate::model::learned::Features;
use crate::records::Trial;
use crate::space::Config;
use driver::{Driver, Known};
use std::fmt;

/// A way to search a task's space.
pub trait Tuner: Send {
    /// Its name on the command line and in logs.
    fn name(&self) -> &'static str;

    /// The configs to try next, at most `most`, with their indices: valid ones that it never proposed before. Fewer than
    /// `most` end its batch: it wants to see their outcomes first. None while outcomes are outstanding means the same;
    /// none when all were observed means that the space is exhausted.
    fn propose(&mut self, most: usize) -> Vec<(u64, Config)>;

    /// Takes outcomes of proposals, in the order of the proposals. Also called before the first proposal with trials of an
    /// earlier run, which it then does not propose again. A newer outcome of the same config replaces the older.
    fn observe(&mut self, trials: &[Trial]);

    /// By how much it expects its next batch to lower the best time, as a share of that time; none if it cannot say, as
    /// tuners without a model never can. A session may stop where this is less than the noise of a measurement.
    fn expected_gain(&self) -> Option<f64> {
        None
    }
}

/// The tuners there are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Kind {
    /// See [the table](self).
    #[default]
    Auto,
    /// See [the table](self).
    Model,
    /// See [the table](self).
    Ga,
    /// See [the table](self).
    Descent,
    /// See [the table](self).
    Random,
    /// See [the table](self).
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
    /// [`Tuner::observe`] instead.
    pub earlier: Vec<(&'t Task<'t>, &'t [Trial])>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { seed: 0, threads: 1, earlier: vec![] }
    }
}

/// A tuner of that kind for a task.
///
/// ```
/// use kernel_gen::{target::Target, templates::Registry, tune::{Task, tuner}, workload::{Conv2d, Workload}};
/// let registry = Registry::builtin();
/// let template = registry.find("conv2d_no_batching").ok_or("no such template")?;
/// let target = Target::find("sm_90").ok_or("no such target")?;
/// let task = Task::new(Workload::f32(Conv2d::nchw(1, 64, 7, 7, 64, 3, 1, 1)), target, template)?;
/// let mut random = tuner::make(tuner::Kind::Random, &task, &tuner::Options::default());
/// assert_eq!(random.propose(8).len(), 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn make<'t>(kind: Kind, task: &'t Task<'t>, options: &Options<'t>) -> Box<dyn Tuner + 't> {
    let known = Known::new(task, options.seed);
    match kind {
        Kind::Random => Box::new(Driver::new(known, plain::Random)),
        Kind::Grid => Box::new(Driver::new(known, plain::Grid::new())),
        Kind::Ga => Box::new(Driver::new(known, ga::Ga::new(pool::Scope::new(task, options)))),
        Kind::Model => Box::new(Driver::new(known, model::Model::new(pool::Scope::new(task, options)))),
        Kind::Descent => Box::new(Driver::new(known, descent::Descent::new(pool::Scope::new(task, options)))),
        Kind::Auto => Box::new(Driver::new(known, auto::Auto::new(pool::Scope::new(task, options)))),
    }
}

/// The features of a task's configs.
fn features<'t>(task: &'t Task<'t>) -> Features<'t> {
    Features::new(&task.workload, task.target, task.template, &task.space)
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
