//! Why a candidate was not measured.

use crate::records::{Failure, FailureKind};
use crate::tune::measure::pipeline::failure;
use kernel_gen_runtime::cuda::CudaError;
use std::io;

/// Why a candidate was not measured.
pub(super) enum Stop {
    /// For this reason.
    Failed(Failure),
    /// For this reason, and the context is lost.
    Lost(Failure),
    /// Nobody is at the other end.
    Gone(io::Error),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failed(failure)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Gone(error)
    }
}

impl From<CudaError> for Stop {
    /// What an error of the driver says of the candidate.
    fn from(error: CudaError) -> Self {
        let CudaError::Driver { call, code, name } = &error else {
            return Stop::Failed(failure(FailureKind::Worker, error));
        };
        let says = |kind| failure(kind, format!("{name} ({code}) in {call}"));
        match code {
            // Out of memory; out of resources; a configuration that the device does not take; clusters that do not fit.
            2 | 701 | 912 => Stop::Failed(says(FailureKind::Resource)),
            1 if matches!(*call, "cuFuncSetAttribute" | "cuLaunchKernelEx") => {
                Stop::Failed(says(FailureKind::Resource))
            }
            200 | 209 | 218..=222 | 500 => Stop::Failed(says(FailureKind::Build)),
            // An address that is not its own, not aligned, or of another kind of memory.
            700 | 716 | 717 => Stop::Lost(says(FailureKind::IllegalAccess)),
            702 => Stop::Lost(says(FailureKind::RunTimeout)),
            // Traps, assertions, illegal instructions, a broken stack.
            710 | 714 | 715 | 718 | 719 => Stop::Lost(says(FailureKind::Crash)),
            _ => Stop::Lost(says(FailureKind::Worker)),
        }
    }
}
