//! Libraries of the vendor of a device, timed beside candidates.

use crate::records::{FailureKind, Outcome, median};
use crate::workload::bound::Accuracy;

/// A library of a GPU's vendor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Peer {
    /// cuDNN, for convolutions.
    Cudnn,
    /// cuDNN's call that adds bias and residual to a convolution and applies ReLU.
    CudnnFused,
    /// cuBLAS, for matrix products.
    Cublas,
}

impl Peer {
    /// All of them.
    pub const ALL: [Peer; 3] = [Peer::Cudnn, Peer::CudnnFused, Peer::Cublas];

    /// The one of a name.
    pub fn from_name(name: &str) -> Option<Peer> {
        Peer::ALL.into_iter().find(|peer| peer.name() == name)
    }

    /// As people write it: `cudnn`, `cudnn-fused`, `cublas`.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Cudnn => "cudnn",
            Peer::CudnnFused => "cudnn-fused",
            Peer::Cublas => "cublas",
        }
    }
}

/// Times of a library's fastest way of computing an operator, without the epilogue unless it is asked to fuse it.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct PeerTiming {
    /// What the library calls the way.
    pub way: String,
    /// All its ways, for people: what each took when they were ranked, or why it did not run.
    pub tried: Vec<String>,
    /// Microseconds of one call, a sample each: operands where the calls before left them.
    pub samples_us: Vec<f64>,
    /// The same with operands that are not in a cache.
    pub cold_us: Vec<f64>,
    /// How far its result is from the exact one on the workload's own operands, put into its order; what it does not fuse is
    /// added exactly.
    pub accuracy: Accuracy,
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
    /// A whole comparison is taken, because only times of the same minute can be compared: the one in which more ran, and
    /// of these the faster one, libraries included. What is found out about a candidate in either, such as a wrong result,
    /// holds; that it could not be built or did not end in time may be the machine's fault.
    pub fn calmer(self, other: Comparison) -> Comparison {
        let times = |c: &Comparison| -> Vec<Option<f64>> {
            let own = c.outcomes.iter().map(Outcome::time_us);
            own.chain(c.peers.iter().map(|p| Some(p.as_ref().ok()?.median_us()))).collect()
        };
        let (a, b) = (times(&self), times(&other));
        let ran = |all: &[Option<f64>]| all.iter().flatten().count();
        let slower: f64 = a.iter().zip(&b).filter_map(|(a, b)| Some(((*a)? / (*b)?).ln())).sum();
        let first = ran(&a) > ran(&b) || ran(&a) == ran(&b) && slower <= 0.0;
        let (mut kept, left) = if first { (self, other) } else { (other, self) };
        for (kept, left) in kept.outcomes.iter_mut().zip(left.outcomes) {
            if matches!(&left, Outcome::Failed(failure) if CONVICTS.contains(&failure.kind)) {
                *kept = left;
            }
        }
        kept
    }
}

/// Failures that are a candidate's own, however busy the machine is.
const CONVICTS: [FailureKind; 4] =
    [FailureKind::IllegalAccess, FailureKind::Crash, FailureKind::OutsideWrite, FailureKind::WrongAnswer];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Failure, Timing};

    #[test]
    fn the_calmer_comparison_is_taken_as_a_whole() {
        let timed = |us: f64| Outcome::Timed(Timing { samples_us: vec![us], ..Timing::default() });
        let of = |times: &[f64]| Comparison { outcomes: times.iter().map(|us| timed(*us)).collect(), peers: vec![] };
        let times = |c: &Comparison| c.outcomes.iter().map(Outcome::time_us).collect::<Vec<_>>();
        // The second candidate happened to be faster in the disturbed one, which says nothing beside the first.
        let (disturbed, calm) = (of(&[20.0, 10.0]), of(&[11.0, 12.0]));
        assert_eq!(disturbed.clone().calmer(calm.clone()), calm);
        assert_eq!(calm.clone().calmer(disturbed), calm);
        let failed = |kind| {
            let mut failed = of(&[1.0, 1.0]);
            failed.outcomes[1] = Outcome::Failed(Failure { kind, detail: "once in two".to_string() });
            failed
        };
        // A wrong result counts whenever it happens; a lost worker says nothing of the config.
        let (wrong, lost) = (failed(FailureKind::WrongAnswer), failed(FailureKind::Worker));
        assert_eq!(times(&calm.clone().calmer(wrong.clone())), [Some(11.0), None]);
        assert_eq!(times(&wrong.calmer(calm.clone())), [Some(11.0), None]);
        assert_eq!(calm.clone().calmer(lost.clone()), calm);
        assert_eq!(lost.calmer(calm.clone()), calm);
        // A library that was disturbed counts as well: ours would look good beside it.
        let beside = |us: f64, peer: f64| {
            let (way, samples_us) = ("best".to_string(), vec![peer]);
            let peer = PeerTiming {
                way,
                tried: vec![],
                samples_us,
                cold_us: vec![],
                accuracy: Accuracy { max: 0.0, rms: 0.0 },
            };
            Comparison { peers: vec![Ok(peer)], ..of(&[us]) }
        };
        assert_eq!(beside(9.9, 20.0).calmer(beside(10.0, 12.0)), beside(10.0, 12.0));
    }
}
