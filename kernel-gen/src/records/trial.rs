//! What became of one config that was tried on a device.

use crate::space::Config;
use crate::workload::bound::Accuracy;
use std::fmt;

/// A config and what became of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Trial {
    /// The config's index in its space.
    pub index: u64,
    /// The config.
    pub config: Config,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a config.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// It computed the right result, in this time.
    Timed(Timing),
    /// It is of no use, for this reason.
    Failed(Failure),
}

impl Outcome {
    /// The median time in microseconds, if it was timed.
    pub fn time_us(&self) -> Option<f64> {
        match self {
            Outcome::Timed(timing) => Some(timing.median_us()),
            Outcome::Failed(_) => None,
        }
    }
}

/// Times of a kernel whose result was checked first.
#[derive(Clone, PartialEq, Default, Debug)]
#[cfg_attr(feature = "tune", derive(serde::Serialize, serde::Deserialize))]
pub struct Timing {
    /// Microseconds of one call, a sample each, in the order they were taken. Operands are where the calls before left them,
    /// but on a CPU parameters and the result are in no cache, as in a network. On a GPU a call is one of many in a captured graph:
    /// it begins before the one in front has ended, if its kernel can.
    pub samples_us: Vec<f64>,
    /// Cold calls, with no operand in a cache; empty where that was not measured, and on CPUs.
    pub cold_us: Vec<f64>,
    /// Calls that begin when the one in front has ended, of kernels that can begin before; else empty, and where that was not
    /// measured. Logs do not keep it.
    pub apart_us: Vec<f64>,
    /// The same of cold calls.
    pub apart_cold_us: Vec<f64>,
    /// What one core did in fused multiply-adds beside each sample, in GFLOP/s. It follows the clock, which other users of a
    /// processor move by a tenth and more, and with it every time. Empty where that was not measured, and on GPUs.
    pub core_gflops: Vec<f64>,
    /// Largest error against the reference, as a share of its bound: that of an output's own operands or, where a method that
    /// reaches farther exceeds it, the method's.
    pub max_error: f64,
    /// How far the result is from the exact one, of what was measured by this process; logs and records do not keep it.
    pub accuracy: Option<Accuracy>,
}

impl Timing {
    /// The median of the samples; NaN without any.
    pub fn median_us(&self) -> f64 {
        median(&self.samples_us)
    }

    /// What a call takes where nothing disturbs it: the second least sample, because the least one may be an accident. None
    /// with fewer than two.
    pub fn floor_us(&self) -> Option<f64> {
        let mut sorted = self.samples_us.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(1).copied()
    }

    /// The median of the cold samples; NaN without any.
    pub fn cold_median_us(&self) -> f64 {
        median(&self.cold_us)
    }

    /// The medians of warm and of cold calls that begin when the one in front has ended: [`Timing::apart_us`] where there are any,
    /// else all calls are such. NaN without any.
    pub fn apart_medians_us(&self) -> [f64; 2] {
        let of = |apart: &[f64], all: &[f64]| median(if apart.is_empty() { all } else { apart });
        [of(&self.apart_us, &self.samples_us), of(&self.apart_cold_us, &self.cold_us)]
    }

    /// What configs are compared by, in microseconds, a sample each: the geometric mean of a warm call and a cold one where both
    /// were timed, as in a network, which finds activations in the cache and most weights in memory; else the samples.
    pub fn compared_us(&self) -> Vec<f64> {
        if self.cold_us.len() != self.samples_us.len() {
            return self.samples_us.clone();
        }
        self.samples_us.iter().zip(&self.cold_us).map(|(warm, cold)| (warm * cold).sqrt()).collect()
    }

    /// The median speed of a core meanwhile, if it was measured.
    pub fn core_median_gflops(&self) -> Option<f64> {
        Some(median(&self.core_gflops)).filter(|g| g.is_finite())
    }
}

/// The median: the mean of the middle two where their number is even.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        None => f64::NAN,
        Some(upper) if sorted.len() % 2 == 1 => *upper,
        Some(upper) => (sorted[middle - 1] + upper) / 2.0,
    }
}

/// Why a config is of no use, with what was seen.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// What was seen, in a line: which limit by how much, which element, what a compiler said first.
    pub detail: String,
}

/// Kinds of failures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FailureKind {
    /// The template or the verifier refused the config: no code was made.
    Refused,
    /// The compiler failed.
    Build,
    /// The compiler took longer than it may.
    BuildTimeout,
    /// The device cannot run it: registers, shared memory, memory.
    Resource,
    /// It ran longer than it may; its worker was ended.
    RunTimeout,
    /// It accessed memory that is not its own; its worker was begun anew.
    IllegalAccess,
    /// It ended its worker.
    Crash,
    /// It wrote outside of its outputs.
    OutsideWrite,
    /// It computed something else than the reference.
    WrongAnswer,
    /// The worker could not be asked, for a reason that is not the config's.
    Worker,
}

impl FailureKind {
    /// All kinds, in the order of a trial's life.
    pub const ALL: [FailureKind; 10] = [
        FailureKind::Refused,
        FailureKind::Build,
        FailureKind::BuildTimeout,
        FailureKind::Resource,
        FailureKind::RunTimeout,
        FailureKind::IllegalAccess,
        FailureKind::Crash,
        FailureKind::OutsideWrite,
        FailureKind::WrongAnswer,
        FailureKind::Worker,
    ];

    /// The name in logs and tables.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Refused => "refused",
            FailureKind::Build => "build",
            FailureKind::BuildTimeout => "build_timeout",
            FailureKind::Resource => "resource",
            FailureKind::RunTimeout => "run_timeout",
            FailureKind::IllegalAccess => "illegal_access",
            FailureKind::Crash => "crash",
            FailureKind::OutsideWrite => "outside_write",
            FailureKind::WrongAnswer => "wrong_answer",
            FailureKind::Worker => "worker",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<FailureKind> {
        FailureKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn configs_are_compared_by_warm_and_cold_calls() {
        let timing = Timing { samples_us: vec![4.0, 5.0], cold_us: vec![9.0, 20.0], ..Timing::default() };
        assert_eq!((timing.compared_us(), timing.apart_medians_us()), (vec![6.0, 10.0], [4.5, 14.5]));
        let early = Timing { apart_us: vec![8.0], apart_cold_us: vec![25.0], ..timing.clone() };
        assert_eq!((early.compared_us(), early.apart_medians_us()), (vec![6.0, 10.0], [8.0, 25.0]));
        // On a CPU nothing is cold.
        let warm = Timing { cold_us: vec![], ..timing };
        assert_eq!(warm.compared_us(), [4.0, 5.0]);
    }

    #[test]
    fn every_kind_is_found_by_its_name() {
        for kind in FailureKind::ALL {
            assert_eq!(FailureKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(FailureKind::from_name("none"), None);
    }
}
