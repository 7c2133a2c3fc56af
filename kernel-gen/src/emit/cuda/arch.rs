//! CUDA architectures as the emitter sees them.

use crate::target::{Cuda, CudaFeature, FIRST_MMA_SYNC, Target};
use std::fmt;

/// What machine code is made for: `sm_80`, `sm_90a`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Arch {
    /// Compute capability times ten.
    pub capability: u32,
    /// Whether instructions of this very architecture may be used (the suffix `a`); such code runs nowhere else.
    pub specific: bool,
}

impl Arch {
    /// The oldest architecture that the emitter knows how to write for.
    pub const OLDEST: Arch = Arch { capability: 70, specific: false };

    /// Reads `sm_80` or `sm_90a`.
    pub fn parse(name: &str) -> Option<Arch> {
        let digits = name.strip_prefix("sm_")?;
        let (digits, specific) = digits.strip_suffix('a').map_or((digits, false), |d| (d, true));
        let capability: u32 = digits.parse().ok()?;
        (capability >= Arch::OLDEST.capability).then_some(Arch { capability, specific })
    }

    /// The architecture of a target, if it is a CUDA target.
    pub fn of(target: &Target) -> Option<Arch> {
        target.cuda().and_then(|_| Arch::parse(&target.name))
    }

    /// Whether the architecture can do that; one without a data file has the common ground only.
    pub fn has(self, feature: CudaFeature) -> bool {
        self.data().is_some_and(|c| c.has(feature))
    }

    /// Shared memory that a block can get on request, in bytes; without a data file, what every device has.
    pub fn shared_bytes(self) -> i64 {
        self.data().map_or(48 * 1024, |c| c.shared_per_block_optin)
    }

    /// Whether its tensor cores are there in `wmma` form only (see [`Target::has_opaque_fragments`]).
    pub(super) fn has_opaque_fragments(self) -> bool {
        self.capability < FIRST_MMA_SYNC
    }

    fn data(self) -> Option<&'static Cuda> {
        Target::find(&self.to_string()).and_then(Target::cuda)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.capability, if self.specific { "a" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cuda_target_is_an_architecture_that_reads_and_prints_its_name() {
        for target in Target::all() {
            let Some(cuda) = target.cuda() else { continue };
            let arch = Arch::of(target).unwrap_or_else(|| panic!("{}", target.name));
            assert_eq!(arch.to_string(), target.name);
            assert_eq!(arch.shared_bytes(), cuda.shared_per_block_optin);
        }
        assert_eq!(Arch::parse("sm_61"), None);
        assert_eq!(Arch::parse("x86-64"), None);
        let has = |name: &str, feature| Arch::parse(name).is_some_and(|a| a.has(feature));
        assert!(has("sm_90a", CudaFeature::Wgmma) && !has("sm_90", CudaFeature::Wgmma));
        assert!(has("sm_80", CudaFeature::CpAsync) && !has("sm_75", CudaFeature::CpAsync));
    }
}
