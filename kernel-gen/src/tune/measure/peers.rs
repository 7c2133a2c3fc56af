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
