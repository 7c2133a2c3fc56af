//! Names of CUDA architectures, and what they mean for code: which PTX they need, which devices take it.

pub use crate::emit::cuda::Arch;
use std::fmt;

/// A version of two numbers: of the PTX language or of a CUDA toolkit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version(pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Version {
    /// Reads `13.0`; what follows the second number is left alone.
    pub fn parse(text: &str) -> Option<Version> {
        let (major, rest) = text.trim().split_once('.')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Some(Version(major.parse().ok()?, rest[..digits].parse().ok()?))
    }
}

/// The architectures that code is made for: number, the PTX version that introduced it as a target, and the same for
/// its form with an `a`. Source: "PTX ISA", section "Release Notes".
pub(super) const KNOWN: [(u32, Version, Option<Version>); 13] = [
    (70, Version(6, 0), None),
    (75, Version(6, 3), None),
    (80, Version(7, 0), None),
    (86, Version(7, 1), None),
    (87, Version(7, 4), None),
    (88, Version(9, 0), None),
    (89, Version(7, 8), None),
    (90, Version(7, 8), Some(Version(8, 0))),
    (100, Version(8, 6), Some(Version(8, 6))),
    (103, Version(8, 8), Some(Version(8, 8))),
    (110, Version(9, 0), Some(Version(9, 0))),
    (120, Version(8, 7), Some(Version(8, 7))),
    (121, Version(8, 8), Some(Version(8, 8))),
];

/// Every version of PTX from the first that has a target of [`KNOWN`], with the toolkit that brought it. Source: "PTX
/// ISA", section "Release Notes".
const PTX: [(Version, Version); 24] = [
    (Version(6, 0), Version(9, 0)),
    (Version(6, 1), Version(9, 1)),
    (Version(6, 2), Version(9, 2)),
    (Version(6, 3), Version(10, 0)),
    (Version(6, 4), Version(10, 1)),
    (Version(6, 5), Version(10, 2)),
    (Version(7, 0), Version(11, 0)),
    (Version(7, 1), Version(11, 1)),
    (Version(7, 2), Version(11, 2)),
    (Version(7, 3), Version(11, 3)),
    (Version(7, 4), Version(11, 4)),
    (Version(7, 5), Version(11, 5)),
    (Version(7, 6), Version(11, 6)),
    (Version(7, 7), Version(11, 7)),
    (Version(7, 8), Version(11, 8)),
    (Version(8, 0), Version(12, 0)),
    (Version(8, 1), Version(12, 1)),
    (Version(8, 2), Version(12, 2)),
    (Version(8, 3), Version(12, 3)),
    (Version(8, 4), Version(12, 4)),
    (Version(8, 5), Version(12, 5)),
    (Version(8, 6), Version(12, 7)),
    (Version(8, 7), Version(12, 8)),
    (Version(8, 8), Version(12, 9)),
];

/// What the toolchain knows of an architecture, besides what the emitter does.
impl Arch {
    /// The virtual architecture: `compute_90a`.
    pub fn virtual_name(self) -> String {
        format!("compute_{}{}", self.capability, if self.specific { "a" } else { "" })
    }

    /// The oldest PTX that knows the architecture.
    pub fn lowest_ptx(self) -> Version {
        let found = KNOWN.iter().find(|(compute, ..)| *compute == self.capability);
        let (plain, specific) = found.map_or((Version(9, 0), None), |(_, plain, specific)| (*plain, *specific));
        if self.specific { specific.unwrap_or(plain) } else { plain }
    }

    /// Whether a toolkit of that version makes code for the architecture.
    pub fn is_known_to(self, toolkit: Version) -> bool {
        // CUDA 13 makes nothing for what came before Turing.
        self.oldest_toolkit() <= toolkit && (toolkit < Version(13, 0) || self.capability >= 75)
    }

    /// The oldest toolkit that makes code for it.
    pub fn oldest_toolkit(self) -> Version {
        toolkit_of(self.lowest_ptx())
    }

    /// Whether a cubin for the architecture runs on a device of that compute capability (10 major + minor).
    pub fn cubin_runs_on(self, device: u32) -> bool {
        match self.specific {
            true => device == self.capability,
            false => device / 10 == self.capability / 10 && device >= self.capability,
        }
    }

    /// Whether PTX for the architecture can be compiled for a device of that compute capability (10 major + minor).
    pub fn ptx_runs_on(self, device: u32) -> bool {
        match self.specific {
            true => device == self.capability,
            false => device >= self.capability,
        }
    }
}

/// Every architecture that code can be made for, as their names are written.
pub(super) fn known_names() -> String {
    let names =
        KNOWN.iter().flat_map(|(n, _, a)| std::iter::once(format!("sm_{n}")).chain(a.map(|_| format!("sm_{n}a"))));
    names.collect::<Vec<_>>().join(", ")
}

/// The toolkit that brought a version of PTX; a driver of that CUDA version or newer takes it.
pub fn toolkit_of(ptx: Version) -> Version {
    PTX.iter().find(|(p, _)| *p == ptx).map_or(Version(13, 0).max(Version(ptx.0 + 4, ptx.1)), |(_, toolkit)| *toolkit)
}

/// The versions of PTX that could hold code for the architecture and are older than `than`, oldest first.
pub(super) fn older_ptx(arch: Arch, than: Version) -> impl Iterator<Item = Version> {
    PTX.iter().map(|(ptx, _)| *ptx).filter(move |ptx| *ptx >= arch.lowest_ptx() && *ptx < than)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arch(name: &str) -> Arch {
        name.parse().unwrap()
    }

    #[test]
    fn toolkits_know_what_they_knew() {
        let known = |name: &str, toolkit| arch(name).is_known_to(toolkit);
        assert!(known("sm_80", Version(11, 0)) && !known("sm_80", Version(10, 2)));
        assert!(known("sm_90", Version(11, 8)) && !known("sm_90a", Version(11, 8)) && known("sm_90a", Version(12, 0)));
        assert!(known("sm_70", Version(12, 9)) && !known("sm_70", Version(13, 0)));
        assert!(known("sm_110", Version(13, 0)) && !known("sm_120", Version(12, 6)));
        assert_eq!(toolkit_of(Version(9, 0)), Version(13, 0));
        assert_eq!(toolkit_of(Version(9, 1)), Version(13, 1));
    }

    #[test]
    fn cubins_run_within_a_generation_and_ptx_runs_upwards() {
        assert!(
            arch("sm_80").cubin_runs_on(86) && !arch("sm_86").cubin_runs_on(80) && !arch("sm_80").cubin_runs_on(90)
        );
        assert!(arch("sm_80").ptx_runs_on(120) && !arch("sm_90").ptx_runs_on(89));
        assert!(arch("sm_90a").cubin_runs_on(90) && !arch("sm_90a").ptx_runs_on(100));
    }

    #[test]
    fn the_ladder_of_ptx_versions_starts_where_the_architecture_does() {
        let ladder = |name, than| older_ptx(arch(name), than).map(|v| v.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(ladder("sm_90a", Version(8, 3)), "8.0 8.1 8.2");
        assert_eq!(ladder("sm_110", Version(9, 0)), "");
        assert_eq!(Version::parse(" 13.0.88\n"), Some(Version(13, 0)));
        assert_eq!(Version::parse("13"), None);
    }
}
