//! CUDA architectures.

use std::fmt;

/// What code is compiled for: `sm_80`, `sm_90a`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arch {
    /// Its name.
    pub name: &'static str,
    /// The compute capability: major, minor.
    pub capability: (i32, i32),
    /// Whether the code uses what only this capability has (the names that end in `a`).
    pub exact: bool,
}

impl Arch {
    /// Whether a device can run code for it: its own binary, or the portable form that the driver translates.
    pub fn runs_on(&self, device: (i32, i32)) -> bool {
        if self.exact { device == self.capability } else { device >= self.capability }
    }

    /// Reads `sm_90a`.
    pub(crate) fn parse(name: &'static str) -> Option<Arch> {
        let number = name.strip_prefix("sm_")?;
        let (number, exact) = number.strip_suffix('a').map_or((number, false), |n| (n, true));
        let number: i32 = number.parse().ok()?;
        Some(Arch { name, capability: (number / 10, number % 10), exact })
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_code_runs_on_its_own_capability_only() {
        let (exact, portable) = (Arch::parse("sm_90a").unwrap(), Arch::parse("sm_80").unwrap());
        assert_eq!((exact.capability, exact.exact), ((9, 0), true));
        assert_eq!(Arch::parse("sm_120").unwrap().capability, (12, 0));
        assert!(exact.runs_on((9, 0)) && !exact.runs_on((10, 0)) && !exact.runs_on((8, 0)));
        assert!(portable.runs_on((8, 0)) && portable.runs_on((8, 6)) && portable.runs_on((12, 0)));
        assert!(!portable.runs_on((7, 5)));
        assert_eq!(Arch::parse("x86-64"), None);
    }
}
