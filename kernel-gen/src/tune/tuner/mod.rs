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
mod options;
mod plain;
mod pool;
mod significance;

pub use driver::Tuner;
pub use options::{Kind, Options};
pub use significance::{Verdict, compare};

use super::Task;
use driver::{Driver, Known};

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
