//! How many calls a sample is of, and how long all of them may take.

use super::stop::Stop;
use crate::tune::measure::Sampling;
use kernel_gen_runtime::cuda::candidate::{Bench, Graph};

/// Calls of a graph: enough for a sample, and no more than take a moment to record unless longer samples are asked for.
pub(super) fn calls(us: f64, sampling: &Sampling) -> usize {
    ((sampling.sample_us / us.max(0.1)).ceil().clamp(1.0, sampling.most_calls()) as usize).max(sampling.number)
}

/// How long `samples` samples may take: thrice what they should, and a margin.
pub(super) fn budget_s(us: f64, calls: usize, samples: usize) -> f64 {
    2.0 + 3e-6 * us * (calls * (samples + 2)) as f64
}

/// The least microseconds of a call in so many replays.
pub(super) fn least_us(bench: &Bench, graph: &Graph<'_>, replays: usize) -> Result<f64, Stop> {
    (0..replays).try_fold(f64::INFINITY, |least, _| Ok(least.min(bench.replay(graph)?)))
}

/// Most that one launch by itself takes between two events however little the kernel does: 6 to 8 on an H100. A layer of a
/// small network takes 2 in a graph; without this, no candidate beside the first would be looked at closely.
pub(super) const LAUNCH_US: f64 = 10.0;
