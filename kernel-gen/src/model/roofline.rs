//! How fast a workload could be at best on a target: what the target's data say of its peak and its memory.

use crate::ir::DType;
use crate::target::{Device, Target};
use crate::workload::{Math, Workload};

/// The two limits of a target for one kind of arithmetic.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Roofline {
    /// Arithmetic: billions of floating-point operations a second.
    pub peak_gflops: f64,
    /// Memory: billions of bytes a second.
    pub bandwidth_gb_s: f64,
}

impl Roofline {
    /// The limits of a target for the arithmetic of a workload; on a CPU with that number of threads.
    pub fn new(workload: &Workload, target: &Target, threads: u32) -> Roofline {
        match &target.device {
            Device::Cpu(cpu) => {
                // Of bytes an instruction of such a level (`vpdpbusd`) adds up four products a lane; one on tiles takes 16 cycles for
                // 16 x 16 sums of 64.
                let tiles = cpu.features.iter().any(|feature| feature == "amx-int8");
                let products = match (workload.is_quantised() && cpu.integers_only, tiles) {
                    (true, true) => 32,
                    (true, false) => 4,
                    (false, _) => 1,
                };
                let flops = products * cpu.f32_flops_per_cycle() * cpu.clock_mhz;
                Roofline {
                    peak_gflops: flops as f64 * f64::from(threads.max(1)) / 1e3,
                    bandwidth_gb_s: cpu.bandwidth_gb_s,
                }
            }
            Device::Cuda(cuda) => {
                let tensor = match (workload.dtype, workload.math) {
                    (DType::F16 | DType::Bf16, _) => cuda.f16_flops_per_sm_clock,
                    // Twice as many are in an instruction's operands, of which it takes as many bytes a clock.
                    (DType::I8 | DType::U8 | DType::E4m3 | DType::E5m2, _) => 2 * cuda.f16_flops_per_sm_clock,
                    (_, Math::Tf32) => cuda.tf32_flops_per_sm_clock,
                    _ => 0,
                };
                let flops = tensor.max(cuda.f32_flops_per_sm_clock);
                Roofline {
                    peak_gflops: (flops * cuda.sm_count * cuda.clock_mhz) as f64 / 1e3,
                    bandwidth_gb_s: cuda.bandwidth_gb_s,
                }
            }
        }
    }

    /// The least time in microseconds: every operation at the peak, every byte moved once, both at the same time.
    pub fn floor_us(&self, workload: &Workload) -> f64 {
        let arithmetic = workload.flops() as f64 / self.peak_gflops;
        let memory = workload.bytes() as f64 / self.bandwidth_gb_s;
        arithmetic.max(memory) / 1e3
    }
}

/// Billions of floating-point operations a second.
pub fn gflops(workload: &Workload, time_us: f64) -> f64 {
    workload.flops() as f64 / time_us / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Matmul;

    #[test]
    fn limits_depend_on_the_arithmetic() {
        let h100 = Target::find("sm_90a").unwrap();
        let product = Workload::f32(Matmul::new(4096, 4096, 4096));
        let f32 = Roofline::new(&product, h100, 1);
        let f16 = Roofline::new(&product.clone().with_dtype(DType::F16), h100, 1);
        assert!((f32.peak_gflops / 61_840.0 - 1.0).abs() < 0.01, "{}", f32.peak_gflops);
        assert!((f16.peak_gflops / f32.peak_gflops - 16.0).abs() < 1e-9);
        let bytes = Roofline::new(&product.clone().with_dtype(DType::I8), h100, 1);
        assert!((bytes.peak_gflops / f16.peak_gflops - 2.0).abs() < 1e-9);
        // 137.4 GFLOP at 61.8 TFLOP/s; the 201 MB take 60 us.
        assert!((f32.floor_us(&product) / 2222.0 - 1.0).abs() < 0.01, "{}", f32.floor_us(&product));
        let thin = Workload::f32(Matmul::new(1, 4096, 4096));
        assert!((f32.floor_us(&thin) / 20.0 - 1.0).abs() < 0.02, "memory bounds it: {}", f32.floor_us(&thin));
    }

    #[test]
    fn threads_multiply_the_peak_of_a_cpu() {
        let target = Target::find("x86-64-v3").unwrap();
        let product = Workload::f32(Matmul::new(64, 64, 64));
        let one = Roofline::new(&product, target, 1);
        assert_eq!(Roofline::new(&product, target, 2).peak_gflops, 2.0 * one.peak_gflops);
        assert!((gflops(&product, 524.288) - 1.0).abs() < 1e-9);
    }
}
