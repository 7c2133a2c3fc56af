//! What the C emitter knows about an instruction set level.

use crate::emit::EmitError;
use crate::stored::Stored;
#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected as detected;

/// An instruction set level that C is emitted for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Isa {
    /// Any machine with a C compiler; 128-bit vectors, which the compiler splits where there are none.
    Portable,
    /// x86-64 with SSE2 only.
    X86_64,
    /// x86-64 with AVX2, FMA and F16C.
    X86_64V3,
    /// x86-64 with AVX-512 F, BW, CD, DQ and VL.
    X86_64V4,
    /// 64-bit Arm with Advanced SIMD.
    Aarch64,
    /// [`Isa::X86_64V3`] with AVX-VNNI: products of bytes are added up four at a time.
    X86_64V3Vnni,
    /// [`Isa::X86_64V4`] with AVX-512 VNNI, likewise.
    X86_64V4Vnni,
    /// [`Isa::Aarch64`] with dot products of bytes of the same kind.
    Aarch64Dotprod,
    /// [`Isa::Aarch64Dotprod`] with dot products of bytes with signs and without.
    Aarch64I8mm,
    /// [`Isa::X86_64V4Vnni`] with tiles of registers whose products are sums of bytes (AMX).
    X86_64V4Amx,
}

impl Stored for Isa {
    fn put(&self, out: &mut Vec<u8>) {
        self.name().to_string().put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        Isa::from_name(&String::get(from)?)
    }
}

impl Isa {
    /// All of them.
    pub const ALL: [Isa; 10] = [
        Isa::Portable,
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

    /// The name that targets and specs use.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::X86_64 => "x86-64",
            Isa::X86_64V3 => "x86-64-v3",
            Isa::X86_64V4 => "x86-64-v4",
            Isa::Aarch64 => "aarch64",
            Isa::X86_64V3Vnni => "x86-64-v3-vnni",
            Isa::X86_64V4Vnni => "x86-64-v4-vnni",
            Isa::X86_64V4Amx => "x86-64-v4-amx",
            Isa::Aarch64Dotprod => "aarch64-dotprod",
            Isa::Aarch64I8mm => "aarch64-i8mm",
        }
    }

    /// The level with that name.
    pub fn from_name(name: &str) -> Option<Isa> {
        Isa::ALL.into_iter().find(|i| i.name() == name)
    }

    /// The level of a target.
    ///
    /// # Errors
    /// If it is none of them. There is no level to take in its place: code for a higher one ends a program on a lower one.
    pub fn of_target(target: &str) -> Result<Isa, EmitError> {
        let known = || Isa::ALL.iter().map(|isa| isa.name()).collect();
        Isa::from_name(target).ok_or_else(|| EmitError::UnknownLevel { target: target.to_string(), known: known() })
    }

    /// Width of a vector register.
    pub fn vector_bytes(self) -> usize {
        match self {
            Isa::Portable | Isa::X86_64 | Isa::Aarch64 | Isa::Aarch64Dotprod | Isa::Aarch64I8mm => 16,
            Isa::X86_64V3 | Isa::X86_64V3Vnni => 32,
            Isa::X86_64V4 | Isa::X86_64V4Vnni | Isa::X86_64V4Amx => 64,
        }
    }

    /// The level whose vectors it has: itself, or the one that it adds instructions to.
    pub(super) fn vectors(self) -> Isa {
        match self {
            Isa::X86_64V3Vnni => Isa::X86_64V3,
            Isa::X86_64V4Vnni | Isa::X86_64V4Amx => Isa::X86_64V4,
            Isa::Aarch64Dotprod | Isa::Aarch64I8mm => Isa::Aarch64,
            other => other,
        }
    }

    /// Whether one instruction adds up four products of bytes; whether those of each operand have signs.
    pub(super) fn adds_four_products(self, signed: [bool; 2]) -> bool {
        match self {
            Isa::X86_64V3Vnni | Isa::X86_64V4Vnni | Isa::X86_64V4Amx => signed == [false, true],
            Isa::Aarch64Dotprod => signed[0] == signed[1],
            Isa::Aarch64I8mm => true,
            _ => false,
        }
    }

    /// What the compiler must be told, apart from the flags that all levels share.
    pub fn flags(self) -> &'static [&'static str] {
        match self {
            Isa::Portable => &[],
            Isa::X86_64 => &["-march=x86-64"],
            Isa::X86_64V3 => &["-march=x86-64-v3"],
            // GCC would use half of each register by default.
            Isa::X86_64V4 => &["-march=x86-64-v4", "-mprefer-vector-width=512"],
            Isa::X86_64V3Vnni => &["-march=x86-64-v3", "-mavxvnni"],
            Isa::X86_64V4Vnni => &["-march=x86-64-v4", "-mavx512vnni", "-mprefer-vector-width=512"],
            Isa::X86_64V4Amx => {
                &["-march=x86-64-v4", "-mavx512vnni", "-mamx-tile", "-mamx-int8", "-mprefer-vector-width=512"]
            }
            Isa::Aarch64 => &["-march=armv8-a"],
            Isa::Aarch64Dotprod => &["-march=armv8.2-a+dotprod"],
            Isa::Aarch64I8mm => &["-march=armv8.2-a+dotprod+i8mm"],
        }
    }

    /// Whether it multiplies tiles of bytes.
    pub(super) fn has_tiles(self) -> bool {
        self == Isa::X86_64V4Amx
    }

    /// Whether `<immintrin.h>` has intrinsics for this level that helpers use.
    pub(super) fn is_x86(self) -> bool {
        matches!(self.vectors(), Isa::X86_64 | Isa::X86_64V3 | Isa::X86_64V4)
    }

    /// Whether the level is one of an architecture, as Rust calls it.
    pub fn is_for(self, arch: &str) -> bool {
        match self {
            Isa::Portable => true,
            Isa::Aarch64 | Isa::Aarch64Dotprod | Isa::Aarch64I8mm => arch == "aarch64",
            _ => arch == "x86_64",
        }
    }

    /// Whether the processor this program was compiled for and runs on executes the level.
    pub fn runs_here(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::X86_64 => true,
            #[cfg(target_arch = "x86_64")]
            Isa::X86_64V3 => {
                let vectors = detected!("avx2") && detected!("fma") && detected!("f16c");
                vectors && detected!("bmi1") && detected!("bmi2") && detected!("lzcnt") && detected!("movbe")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::X86_64V4 => {
                let wide = detected!("avx512f") && detected!("avx512bw") && detected!("avx512cd");
                Isa::X86_64V3.runs_here() && wide && detected!("avx512dq") && detected!("avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::X86_64V3Vnni => Isa::X86_64V3.runs_here() && detected!("avxvnni"),
            #[cfg(target_arch = "x86_64")]
            Isa::X86_64V4Vnni => Isa::X86_64V4.runs_here() && detected!("avx512vnni"),
            #[cfg(target_arch = "x86_64")]
            Isa::X86_64V4Amx => Isa::X86_64V4Vnni.runs_here() && has_tiles_here(),
            #[cfg(target_arch = "aarch64")]
            Isa::Aarch64 => true,
            #[cfg(target_arch = "aarch64")]
            Isa::Aarch64Dotprod => std::arch::is_aarch64_feature_detected!("dotprod"),
            #[cfg(target_arch = "aarch64")]
            Isa::Aarch64I8mm => Isa::Aarch64Dotprod.runs_here() && std::arch::is_aarch64_feature_detected!("i8mm"),
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }

    /// The widest level that runs here, but those that only add instructions for bytes.
    pub fn best_here() -> Isa {
        [Isa::X86_64V4, Isa::X86_64V3, Isa::X86_64, Isa::Aarch64]
            .into_iter()
            .find(|i| i.runs_here())
            .unwrap_or(Isa::Portable)
    }
}

/// Whether the kernel of this machine lets programs use tiles of bytes: Linux says so here. Programs ask for them first, as the runtime's `Isa`
/// and the harness do.
#[cfg(target_arch = "x86_64")]
fn has_tiles_here() -> bool {
    let told = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = told.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    ["amx_tile", "amx_int8"].iter().all(|flag| flags.split_whitespace().any(|f| f == *flag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[test]
    fn every_cpu_target_is_a_level_and_nothing_else_is() {
        for target in Target::all() {
            match target.cpu() {
                Some(cpu) => assert!(Isa::of_target(&target.name).unwrap().is_for(&cpu.arch), "{}", target.name),
                None => assert!(Isa::of_target(&target.name).is_err(), "{}", target.name),
            }
        }
        let error = Isa::of_target("x86-64-v5").unwrap_err().to_string();
        assert_eq!(
            error,
            "C is emitted for the levels portable, x86-64, x86-64-v3, x86-64-v3-vnni, x86-64-v4, x86-64-v4-vnni, x86-64-v4-amx, aarch64, aarch64-dotprod, aarch64-i8mm, and `x86-64-v5` is none of them"
        );
    }
}
