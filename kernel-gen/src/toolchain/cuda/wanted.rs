//! The architectures that a user asks for: their names, and whether together they serve all devices.

use super::arch::{Arch, KNOWN};
use super::error::CudaError;
use std::str::FromStr;

impl FromStr for Arch {
    type Err = CudaError;

    fn from_str(name: &str) -> Result<Arch, CudaError> {
        let unknown = || CudaError::UnknownArch { name: name.to_string() };
        let digits = name.strip_prefix("sm_").ok_or_else(unknown)?;
        let (digits, specific) = digits.strip_suffix('a').map_or((digits, false), |d| (d, true));
        let compute: u32 = digits.parse().map_err(|_| unknown())?;
        let has = KNOWN.iter().any(|(number, _, a)| *number == compute && (!specific || a.is_some()));
        if has && digits == compute.to_string() { Ok(Arch { capability: compute, specific }) } else { Err(unknown()) }
    }
}

/// Code for `sm_90a` runs on compute capability 9.0 and on nothing else, not even on newer devices. So a kernel that
/// is made for such an architecture must also be made for a portable one that is not newer: then every device that is
/// at least as new has a variant. This is where that rule is kept.
pub fn require_portable(archs: &[Arch]) -> Result<(), CudaError> {
    let serves = |arch: &Arch| archs.iter().any(|other| !other.specific && other.capability <= arch.capability);
    match archs.iter().find(|arch| arch.specific && !serves(arch)) {
        Some(arch) => Err(CudaError::NoPortable { arch: *arch, all: archs.to_vec() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn arch(name: &str) -> Arch {
        name.parse().unwrap()
    }

    #[test]
    fn every_cuda_target_is_an_architecture_and_prints_as_its_name() {
        let targets: Vec<_> = Target::all().iter().filter(|t| t.cuda().is_some()).collect();
        assert!(targets.len() >= 13);
        for target in targets {
            assert_eq!(arch(&target.name).to_string(), target.name);
        }
        for wrong in ["sm_80a", "sm_9", "sm_090", "compute_80", "sm_", "x86-64", "sm_90b", "sm_+90"] {
            let text = wrong.parse::<Arch>().unwrap_err().to_string();
            assert!(text.starts_with(&format!("`{wrong}` is not")) && text.contains("sm_90a"), "{text}");
        }
    }

    #[test]
    fn a_specific_architecture_needs_a_portable_one_that_is_not_newer() {
        let check = |names: &[&str]| require_portable(&names.iter().map(|n| arch(n)).collect::<Vec<_>>());
        assert_eq!(check(&["sm_90a", "sm_80"]), Ok(()));
        assert_eq!(check(&["sm_90a", "sm_90"]), Ok(()));
        assert_eq!(check(&["sm_80", "sm_120"]), Ok(()));
        let text = check(&["sm_90a"]).unwrap_err().to_string();
        assert!(text.contains("sm_90a") && text.contains("add a portable one"), "{text}");
        assert!(check(&["sm_90a", "sm_120"]).is_err());
        assert!(check(&["sm_80", "sm_90a", "sm_100a"]).is_ok());
    }
}
