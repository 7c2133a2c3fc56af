//! Instruction set levels, and which one this machine has.

use std::fmt;

/// An instruction set level that C is compiled for. Which levels one includes, [`Isa::runs`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Any 64-bit x86: SSE2.
    X86_64,
    /// x86-64-v3: AVX2, FMA, BMI, F16C (2013 and later).
    X86_64V3,
    /// x86-64-v4: AVX-512 F, BW, CD, DQ, VL.
    X86_64V4,
    /// Any 64-bit Arm: NEON.
    Aarch64,
    /// x86-64-v3 with AVX-VNNI, for integers of eight bits.
    X86_64V3Vnni,
    /// x86-64-v4 with AVX-512 VNNI, for integers of eight bits.
    X86_64V4Vnni,
    /// 64-bit Arm with dot products of bytes of one kind (FEAT_DotProd), for integers of eight bits.
    Aarch64Dotprod,
    /// The same with dot products of bytes with signs and without (FEAT_I8MM).
    Aarch64I8mm,
    /// x86-64-v4 with AVX-512 VNNI and AMX's tiles, for integers of eight bits.
    X86_64V4Amx,
    /// An architecture that kernels are not emitted for.
    Other,
}

impl Isa {
    /// All levels that kernels are emitted for.
    pub const ALL: [Isa; 9] = [
        Isa::X86_64,
        Isa::X86_64V3,
        Isa::X86_64V3Vnni,
        Isa::X86_64V4,
        Isa::X86_64V4Vnni,
        Isa::X86_64V4Amx,
        Isa::Aarch64,
        Isa::Aarch64Dotprod,
        Isa::Aarch64I8mm,
    ];

    /// The lowest level of the architecture that this is compiled for: every machine runs it.
    pub const LOWEST: Isa = if cfg!(target_arch = "x86_64") {
        Isa::X86_64
    } else if cfg!(all(target_arch = "aarch64", target_endian = "little")) {
        Isa::Aarch64
    } else {
        Isa::Other
    };

    /// The name that specs and `KERNEL_GEN_ISA` use.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::X86_64 => "x86-64",
            Isa::X86_64V3 => "x86-64-v3",
            Isa::X86_64V4 => "x86-64-v4",
            Isa::X86_64V3Vnni => "x86-64-v3-vnni",
            Isa::X86_64V4Vnni => "x86-64-v4-vnni",
            Isa::X86_64V4Amx => "x86-64-v4-amx",
            Isa::Aarch64 => "aarch64",
            Isa::Aarch64Dotprod => "aarch64-dotprod",
            Isa::Aarch64I8mm => "aarch64-i8mm",
            Isa::Other => "other",
        }
    }

    /// The level with that name.
    pub fn from_name(name: &str) -> Option<Isa> {
        Isa::ALL.into_iter().find(|i| i.name() == name)
    }

    /// Whether a machine of this level runs code that was compiled for `code`.
    pub const fn runs(self, code: Isa) -> bool {
        match self {
            Isa::X86_64 => matches!(code, Isa::X86_64),
            Isa::X86_64V3 => matches!(code, Isa::X86_64 | Isa::X86_64V3),
            Isa::X86_64V3Vnni => matches!(code, Isa::X86_64V3Vnni) || Isa::X86_64V3.runs(code),
            Isa::X86_64V4 => matches!(code, Isa::X86_64 | Isa::X86_64V3 | Isa::X86_64V4),
            Isa::X86_64V4Vnni => matches!(code, Isa::X86_64V4Vnni) || Isa::X86_64V4.runs(code),
            Isa::X86_64V4Amx => matches!(code, Isa::X86_64V4Amx) || Isa::X86_64V4Vnni.runs(code),
            Isa::Aarch64 => matches!(code, Isa::Aarch64),
            Isa::Aarch64Dotprod => matches!(code, Isa::Aarch64 | Isa::Aarch64Dotprod),
            Isa::Aarch64I8mm => matches!(code, Isa::Aarch64 | Isa::Aarch64Dotprod | Isa::Aarch64I8mm),
            Isa::Other => matches!(code, Isa::Other),
        }
    }

    /// The best level of the machine that this runs on.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let v3 = has!("avx2")
                && has!("bmi1")
                && has!("bmi2")
                && has!("f16c")
                && has!("fma")
                && has!("lzcnt")
                && has!("movbe");
            let v4 =
                v3 && has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
            match (v4, v3) {
                (true, _) if has!("avx512vnni") && may_use_tiles() => Isa::X86_64V4Amx,
                (true, _) if has!("avx512vnni") => Isa::X86_64V4Vnni,
                (true, _) => Isa::X86_64V4,
                (false, true) if has!("avxvnni") => Isa::X86_64V3Vnni,
                (false, true) => Isa::X86_64V3,
                (false, false) => Isa::X86_64,
            }
        }
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        {
            use std::arch::is_aarch64_feature_detected as has;
            match (has!("dotprod"), has!("i8mm")) {
                (true, true) => Isa::Aarch64I8mm,
                (true, false) => Isa::Aarch64Dotprod,
                (false, _) => Isa::Aarch64,
            }
        }
        #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))))]
        {
            Isa::LOWEST
        }
    }

    /// What a device starts with: the machine's level, or the lower one that `KERNEL_GEN_ISA` names. A name that is
    /// unknown, or that this machine cannot run, is not obeyed.
    pub(crate) fn from_env() -> Isa {
        let machine = Isa::detect();
        match std::env::var("KERNEL_GEN_ISA").ok().and_then(|name| Isa::from_name(name.trim())) {
            Some(asked) if machine.runs(asked) => asked,
            _ => machine,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether this process may use the tiles of AMX for bytes. Linux gives a process their 8 KiB of state, for all of its threads, when it asks
/// (`Documentation/arch/x86/xstate.rst`); what another system does is not known, so tiles are not used there.
#[cfg(target_arch = "x86_64")]
fn may_use_tiles() -> bool {
    #[cfg(target_os = "linux")]
    {
        use std::arch::{asm, x86_64::__cpuid_count};
        /// Of leaf 7, EDX: AMX-TILE and AMX-INT8.
        const TILES_OF_BYTES: u32 = 1 << 24 | 1 << 25;
        const ARCH_PRCTL: i64 = 158;
        const REQUEST_PERMISSION: u64 = 0x1023;
        /// The component of the processor's state that tiles are.
        const TILE_DATA: u64 = 18;
        // Older compilers have it as unsafe.
        #[allow(unused_unsafe)]
        // SAFETY: a processor with AVX-512 has leaf 7; nothing else asks.
        let has = unsafe { __cpuid_count(7, 0) }.edx & TILES_OF_BYTES == TILES_OF_BYTES;
        let mut answer = ARCH_PRCTL;
        if has {
            // SAFETY: the call takes two numbers and touches no memory of the process; the kernel changes RCX and R11.
            unsafe {
                asm!("syscall", inlateout("rax") answer, in("rdi") REQUEST_PERMISSION, in("rsi") TILE_DATA,
                    out("rcx") _, out("r11") _, options(nostack));
            }
        }
        has && answer == 0
    }
    #[cfg(not(target_os = "linux"))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_one_architecture_include_the_lower_ones() {
        assert!(Isa::X86_64V4.runs(Isa::X86_64V3) && Isa::X86_64V3.runs(Isa::X86_64));
        assert!(Isa::X86_64V4Amx.runs(Isa::X86_64V4Vnni) && !Isa::X86_64V4Vnni.runs(Isa::X86_64V4Amx));
        assert!(!Isa::X86_64.runs(Isa::X86_64V3) && !Isa::Aarch64.runs(Isa::X86_64));
        assert!(Isa::Aarch64I8mm.runs(Isa::Aarch64Dotprod) && !Isa::Aarch64Dotprod.runs(Isa::Aarch64I8mm));
        assert!(Isa::detect().runs(Isa::detect()) && Isa::detect().runs(Isa::LOWEST));
        for isa in Isa::ALL {
            assert_eq!(Isa::from_name(isa.name()), Some(isa));
        }
    }
}
