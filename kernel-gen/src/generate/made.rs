//! A choice as code, in C or in CUDA.

use super::chosen::Chosen;
use super::error::GenerateError;
use super::{c, cuda};

/// The code of a workload on a target.
pub(super) enum Made {
    C(c::Made),
    Cuda(cuda::Made),
}

/// Makes the code of a choice.
pub(super) fn make(chosen: &Chosen<'_>, prefix: &str) -> Result<Made, GenerateError> {
    match chosen.target.cpu() {
        Some(_) => c::make(chosen, prefix).map(Made::C),
        None => cuda::make(chosen).map(Made::Cuda),
    }
}
