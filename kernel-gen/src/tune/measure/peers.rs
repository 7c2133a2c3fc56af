//! Libraries of the vendor of a device, timed beside candidates.

use crate::records::{Outcome, median};
/// A library: cuDNN for convolutions, cuBLAS for matrix products.
pub use kernel_gen_runtime::cuda::candidate::PeerKind as Peer;

/// Times of a library's fastest way of computing an operator, without the epilogue.
///
/// What it computes is not checked: its weights are those of the workload in whatever order they lie there.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerTiming {
    /// What the library calls the way.
    pub way: String,
    /// Microseconds of one call, a sample each: operands where the calls before left them.
    pub samples_us: Vec<f64>,
    /// The same with operands that are not in a cache.
    pub cold_us: Vec<f64>,
}

impl PeerTiming {
    /// The median of the warm samples; NaN without any.
    pub fn median_us(&self) -> f64 {
        median(&self.samples_us)
    }

    /// The median of the cold samples; NaN without any.
    pub fn cold_median_us(&self) -> f64 {
        median(&self.cold_us)
    }
}

/// What became of candidates and of the libraries that they were compared with.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// An outcome a candidate, in their order.
    pub outcomes: Vec<Outcome>,
    /// Times of each library that was asked for, in that order, or why there are none.
    pub peers: Vec<Result<PeerTiming, String>>,
}

impl Comparison {
    /// Of two comparisons of the same candidates the one that was disturbed less: on a machine that is shared with others,
    /// what they do only ever makes a time longer, and for seconds or minutes, which more samples in a row do not outlast.
    /// A whole comparison is taken, because only times of the same minute can be compared. What failed in either has
    /// failed.
    pub fn calmer(self, other: Comparison) -> Comparison {
        let times = |c: &Comparison| c.outcomes.iter().map(Outcome::time_us).collect::<Vec<_>>();
        let ratios = times(&self).into_iter().zip(times(&other)).filter_map(|(a, b)| Some((a? / b?).ln()));
        let (mut kept, left) = if ratios.sum::<f64>() <= 0.0 { (self, other) } else { (other, self) };
        for (kept, left) in kept.outcomes.iter_mut().zip(left.outcomes) {
            if matches!(left, Outcome::Failed(_)) {
                *kept = left;
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Failure, FailureKind, Timing};

    #[test]
    fn the_calmer_comparison_is_taken_as_a_whole() {
        let timed = |us: f64| Outcome::Timed(Timing { samples_us: vec![us], cold_us: vec![], max_error: 0.0 });
        let of = |times: &[f64]| Comparison { outcomes: times.iter().map(|us| timed(*us)).collect(), peers: vec![] };
        let times = |c: &Comparison| c.outcomes.iter().map(Outcome::time_us).collect::<Vec<_>>();
        // The second candidate happened to be faster in the disturbed one, which says nothing beside the first.
        let (disturbed, calm) = (of(&[20.0, 10.0]), of(&[11.0, 12.0]));
        assert_eq!(disturbed.clone().calmer(calm.clone()), calm);
        assert_eq!(calm.clone().calmer(disturbed), calm);
        let mut failed = of(&[1.0, 1.0]);
        failed.outcomes[1] =
            Outcome::Failed(Failure { kind: FailureKind::WrongAnswer, detail: "once in two".to_string() });
        assert_eq!(times(&calm.clone().calmer(failed.clone())), [Some(1.0), None]);
        assert_eq!(times(&failed.calmer(calm)), [Some(1.0), None]);
    }
}
