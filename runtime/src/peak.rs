//! The machine's roof, measured: what times are to be compared with where the clock is not known.

use crate::{Cpu, Isa};
use std::time::Instant;

/// Multiply-adds in one turn of the loops below, in vectors.
const VECTORS: usize = 24;
/// Turns of one measurement: about a millisecond.
const TURNS: u64 = 100_000;

impl Cpu {
    /// Multiply-adds that the device's threads reach together right now, in GFLOP/s (two operations each), by a
    /// loop that does nothing else: fused ones where the level has them. The best of five short
    /// loops, some milliseconds in all. None on an architecture that kernels are not emitted for.
    ///
    /// The clock of a machine moves, so measure beside what is compared.
    pub fn measure_peak_gflops(&self) -> Option<f64> {
        let (turn, lanes) = loop_of(self.isa())?;
        let flops = (self.threads() as u64 * TURNS) as f64 * (VECTORS * lanes * 2) as f64;
        let best = (0..5).map(|_| {
            let start = Instant::now();
            self.on_each_thread(&|_| turn(TURNS));
            start.elapsed().as_secs_f64()
        });
        Some(flops / best.fold(f64::INFINITY, f64::min) * 1e-9)
    }
}

/// A loop of `VECTORS` multiply-adds a turn, and the `f32` lanes of its vectors.
#[cfg(target_arch = "x86_64")]
fn loop_of(isa: Isa) -> Option<(fn(u64), usize)> {
    match isa {
        Isa::X86_64V4 | Isa::X86_64V4Vnni | Isa::X86_64V4Amx => Some((x86::v4 as fn(u64), 16)),
        Isa::X86_64V3 | Isa::X86_64V3Vnni => Some((x86::v3, 8)),
        Isa::X86_64 => Some((x86::v1, 4)),
        _ => None,
    }
}

#[cfg(target_arch = "aarch64")]
fn loop_of(isa: Isa) -> Option<(fn(u64), usize)> {
    isa.runs(Isa::Aarch64).then_some((neon as fn(u64), 4))
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn loop_of(_: Isa) -> Option<(fn(u64), usize)> {
    None
}

/// Twelve accumulators cover a latency of four to six cycles at two results a cycle. All values are zero, so none
/// grows or becomes subnormal; should the clock run higher on zeros, shares of this peak err on the low side.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;

    macro_rules! turns {
        ($(#[$doc:meta])* $name:ident, $zero:literal: $($instruction:literal),+) => {
            $(#[$doc])*
            pub(super) fn $name(turns: u64) {
                // SAFETY: only the named registers and the flags change; the names of 128-bit registers stand for the
                // wider ones that contain them. A device's level is never above the machine's, so the instructions
                // of the level exist.
                unsafe {
                    asm!(
                        ".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12",
                        $zero,
                        ".endr",
                        "2:",
                        $($instruction),+,
                        "dec {turns}",
                        "jnz 2b",
                        turns = inout(reg) turns.max(1) => _,
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                        out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                        out("xmm12") _, options(nostack, nomem),
                    );
                }
            }
        };
    }
    turns!(v4, "vxorps xmm\\i, xmm\\i, xmm\\i": ".rept 2", ".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11", "vfmadd231ps zmm\\i, zmm12, zmm12", ".endr", ".endr", "vzeroupper");
    turns!(v3, "vxorps xmm\\i, xmm\\i, xmm\\i": ".rept 2", ".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11", "vfmadd231ps ymm\\i, ymm12, ymm12", ".endr", ".endr");
    turns!(
        /// A multiplication and an addition count as one multiply-add.
        v1, "xorps xmm\\i, xmm\\i": ".rept 4", ".irp i, 0, 1, 2, 3, 4, 5", "mulps xmm\\i, xmm12", ".endr", ".irp i, 6, 7, 8, 9, 10, 11", "addps xmm\\i, xmm12", ".endr", ".endr"
    );
}

/// More accumulators than any core's latency times its rate.
#[cfg(target_arch = "aarch64")]
fn neon(turns: u64) {
    use std::arch::aarch64::{vdupq_n_f32, vfmaq_f32};
    // SAFETY: NEON is part of every 64-bit Arm that Rust's standard library runs on.
    unsafe {
        let factor = vdupq_n_f32(std::hint::black_box(0.0));
        let mut sums = [factor; VECTORS];
        for _ in 0..turns {
            for sum in &mut sums {
                *sum = vfmaq_f32(*sum, factor, factor);
            }
        }
        std::hint::black_box(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_plausible_and_wider_vectors_are_not_slower() {
        let dev = Cpu::with_threads(1);
        let Some(peak) = dev.measure_peak_gflops() else { return };
        assert!((0.5..5000.0).contains(&peak), "{peak} GFLOP/s");
        for isa in Isa::ALL {
            let Ok(lower) = dev.with_isa(isa) else { continue };
            let lower = lower.measure_peak_gflops().expect("emitted for");
            // Twice as much as measured, since another program may have had the core meanwhile.
            assert!(lower < 2.0 * peak, "{isa}: {lower} above {peak} GFLOP/s");
        }
    }
}
