//! What a launch is expected to take: occupancy, waves and bytes.
//!
//! A block is a number of equal *steps*: fetch operands into shared memory (or straight into registers), wait, compute.
//! Three rates bound the steps of the blocks that a multiprocessor holds at the same time, and the slowest of them
//! counts: arithmetic, shared memory (128 bytes a clock) and what comes from beyond the multiprocessor (64 bytes a clock
//! from L2; CUDA C++ Best Practices Guide and the microbenchmarks of Jia et al., "Dissecting the NVIDIA Volta GPU
//! Architecture via Microbenchmarking", 2018). On top of it comes the latency of each step, which blocks on the same
//! multiprocessor hide for each other. Multiprocessors take blocks in waves; memory bandwidth bounds the whole.
//!
//! Ratios between configs are what this is for. It knows nothing of bank conflicts, caches and clocks.

pub(in crate::templates) use crate::integer::ceil_div;
use crate::target::Cuda;
use crate::workload::Workload;

/// Bytes of shared memory that a multiprocessor reads in a clock.
const SHARED_BYTES_PER_CLOCK: f64 = 128.0;

/// Bytes that a multiprocessor gets from L2 in a clock.
const L2_BYTES_PER_CLOCK: f64 = 64.0;

/// Clocks from a load that misses L1 until its value is there.
const MEMORY_LATENCY: f64 = 600.0;

/// Clocks of a step that only touches shared memory: the loads and two barriers.
const STEP_LATENCY: f64 = 80.0;

/// Clocks until the result of a multiply-add can be used.
const FMA_LATENCY: f64 = 4.0;

/// Microseconds that any kernel takes: launching it and filling the machine.
pub(super) const LAUNCH_US: f64 = 2.0;

/// The arithmetic units that a kernel uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::templates) enum Unit {
    /// `f32` multiply-adds.
    Fma,
    /// Products of 16-bit tiles that accumulate in `f32`.
    Tensor,
}

/// What there is to know about a launch.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::templates) struct Launch {
    /// Blocks of the grid.
    pub(in crate::templates) blocks: i64,
    /// Threads of a block.
    pub(in crate::templates) threads: i64,
    /// Registers of a thread.
    pub(in crate::templates) registers: i64,
    /// Shared memory of a block.
    pub(in crate::templates) shared_bytes: i64,
    /// Which units compute.
    pub(in crate::templates) unit: Unit,
    /// Independent sums of a thread: instructions that need not wait for each other.
    pub(in crate::templates) sums: i64,
    /// Steps of a block.
    pub(in crate::templates) steps: f64,
    /// Floating-point operations of a block in one step, those that are thrown away included.
    pub(in crate::templates) step_flops: f64,
    /// Bytes that a block's threads read from shared memory in one step.
    pub(in crate::templates) step_shared_bytes: f64,
    /// Bytes that a block fetches from beyond its multiprocessor in one step, counting what a partial access wastes.
    pub(in crate::templates) step_fetched_bytes: f64,
    /// Bytes that have to move to or from memory at least once, in the whole launch.
    pub(in crate::templates) bytes: f64,
}

impl Launch {
    /// Expected time; infinite if not even one block fits.
    pub(in crate::templates) fn microseconds(&self, gpu: &Cuda) -> f64 {
        let resident = gpu.blocks_resident(self.threads, self.registers, self.shared_bytes);
        if resident == 0 || self.blocks == 0 {
            return f64::INFINITY;
        }
        let Waves { count: waves, average, .. } = Waves::of(self.blocks, resident, gpu);
        let flops_per_clock = match self.unit {
            // Instructions of a warp reach about 60 % of what those of a warpgroup do.
            Unit::Tensor => gpu.f16_flops_per_sm_clock.max(1) as f64 * 0.6,
            Unit::Fma => gpu.f32_flops_per_sm_clock as f64 * self.issue_rate(gpu, average),
        };
        let throughput = average
            * (self.step_flops / flops_per_clock)
                .max(self.step_shared_bytes / SHARED_BYTES_PER_CLOCK)
                .max(self.step_fetched_bytes / L2_BYTES_PER_CLOCK);
        // What a step's fetch waits for, unless the other blocks keep the units busy meanwhile.
        let latency = if self.step_fetched_bytes > 0.0 { MEMORY_LATENCY } else { STEP_LATENCY };
        let step = throughput.max(latency + throughput / average);
        let clocks = waves * (self.steps * step + MEMORY_LATENCY);
        let compute_us = clocks / gpu.clock_mhz.max(1) as f64;
        LAUNCH_US + compute_us.max(memory_us(self.bytes, gpu))
    }

    /// The share of the arithmetic peak that so many blocks can issue: a lane is busy if enough warps, or independent
    /// sums of a thread, cover the latency of a multiply-add.
    fn issue_rate(&self, gpu: &Cuda, active: f64) -> f64 {
        let lanes = gpu.f32_flops_per_sm_clock as f64 / 2.0;
        let whole_warps = (ceil_div(self.threads, Cuda::WARP) * Cuda::WARP) as f64;
        let in_flight = active * whole_warps * self.sums.min(8) as f64;
        // Idle lanes of a warp that is not full compute nothing.
        let full = self.threads as f64 / whole_warps;
        full * (in_flight / (lanes * FMA_LATENCY)).min(1.0)
    }
}

/// A launch whose threads each sum up one output straight from memory, through the caches.
///
/// Its constants are clocks measured on an H100: ResNet-50's layers with a thread an output take 3.5 clocks a term for each
/// warp on a multiprocessor, or as long as one thread takes for itself, whichever is longer.
pub(in crate::templates) struct Straight {
    /// Blocks of the grid.
    pub(in crate::templates) blocks: i64,
    /// Threads of a block.
    pub(in crate::templates) threads: i64,
    /// Terms of a sum.
    pub(in crate::templates) terms: i64,
    /// Clocks of a term for a thread alone: whether the compiler could load several terms ahead decides.
    pub(in crate::templates) alone: f64,
    /// How many times as many sectors a warp's load touches as it would if its lanes read neighbours.
    pub(in crate::templates) spread: f64,
}

impl Straight {
    /// Expected time.
    pub(in crate::templates) fn microseconds(&self, w: &Workload, gpu: &Cuda) -> f64 {
        let warps = ceil_div(self.blocks, gpu.sm_count) * ceil_div(self.threads, Cuda::WARP);
        let term = self.alone.max(3.5 * self.spread * warps as f64);
        let compute_us = self.terms as f64 * term / gpu.clock_mhz.max(1) as f64;
        LAUNCH_US + compute_us.max(memory_us(w.bytes() as f64, gpu))
    }
}

/// How the blocks of a grid come to a multiprocessor, which holds several at a time.
pub(in crate::templates) struct Waves {
    /// How often it begins anew.
    pub(in crate::templates) count: f64,
    /// Blocks that it holds at the same time, at most.
    pub(in crate::templates) together: f64,
    /// Blocks of a wave: those of the last one are spread over the multiprocessors like all others.
    pub(in crate::templates) average: f64,
}

impl Waves {
    /// Those of `blocks` blocks, of which a multiprocessor has room for `resident`.
    pub(in crate::templates) fn of(blocks: i64, resident: i64, gpu: &Cuda) -> Waves {
        let per_sm = ceil_div(blocks, gpu.sm_count);
        let together = per_sm.min(resident) as f64;
        let count = (per_sm as f64 / together).ceil();
        Waves { count, together, average: per_sm as f64 / count }
    }
}

/// Time in microseconds that `bytes` bytes take to or from memory at its nominal bandwidth.
pub(in crate::templates) fn memory_us(bytes: f64, gpu: &Cuda) -> f64 {
    bytes / (gpu.bandwidth_gb_s.max(1.0) * 1e3)
}

/// The rounds in which a multiprocessor has its blocks, at most `resident` at a time: how many there are, and of how many blocks.
/// Full rounds come first, then what is left for the last one.
pub(in crate::templates) fn rounds(blocks: i64, resident: i64, gpu: &Cuda) -> impl Iterator<Item = [f64; 2]> {
    let per_sm = ceil_div(blocks, gpu.sm_count);
    let together = per_sm.min(resident);
    let rounds = [[per_sm / together, together], [i64::from(per_sm % together > 0), per_sm % together]];
    rounds.into_iter().filter(|[count, _]| *count > 0).map(|round| round.map(|n| n as f64))
}

/// Bytes that move when rows of `row_bytes` are fetched from memory: whole sectors of 32.
pub(in crate::templates) fn whole_sectors(row_bytes: i64) -> f64 {
    (ceil_div(row_bytes, 32) * 32) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    /// A product of 4096 x 4096 x 4096 in blocks of 128 x 128 x 8.
    fn product() -> Launch {
        Launch {
            blocks: 32 * 32,
            threads: 256,
            registers: 110,
            shared_bytes: 2 * 128 * 8 * 4,
            unit: Unit::Fma,
            sums: 64,
            steps: 512.0,
            step_flops: 2.0 * 128.0 * 128.0 * 8.0,
            step_shared_bytes: 256.0 * 16.0 * 8.0 * 4.0,
            step_fetched_bytes: 2.0 * 128.0 * 8.0 * 4.0,
            bytes: 3.0 * 4096.0 * 4096.0 * 4.0,
        }
    }

    #[test]
    fn a_good_product_comes_near_the_peak_and_a_bad_one_does_not() {
        let h100 = Target::find("sm_90").and_then(Target::cuda).unwrap();
        let tflops = |l: &Launch| 2.0 * 4096f64.powi(3) / l.microseconds(h100) / 1e6;
        let good = tflops(&product());
        assert!((30.0..62.0).contains(&good), "{good}");
        // One output a thread reads shared memory for every multiply-add.
        let thin = Launch {
            blocks: 256 * 256,
            sums: 1,
            step_flops: 2.0 * 256.0 * 8.0,
            step_shared_bytes: 256.0 * 2.0 * 8.0 * 4.0,
            step_fetched_bytes: 2.0 * 16.0 * 8.0 * 4.0,
            ..product()
        };
        assert!(tflops(&thin) < good / 3.0);
        assert_eq!(Launch { shared_bytes: 1 << 20, ..product() }.microseconds(h100), f64::INFINITY);
    }

    #[test]
    fn blocks_fill_multiprocessors_one_by_one_and_then_in_waves() {
        let h100 = Target::find("sm_90").and_then(Target::cuda).unwrap();
        assert_eq!((h100.sm_count, h100.blocks_resident(256, 110, product().shared_bytes)), (132, 2));
        let time = |blocks: i64| Launch { blocks, ..product() }.microseconds(h100);
        // How much longer some blocks take than others.
        let ratio = |more: i64, fewer: i64| time(more) / time(fewer);
        // Few blocks leave multiprocessors idle: eight times the work in the same time.
        assert_eq!([time(1), time(16)], [time(132), time(132)]);
        // One more block, and a multiprocessor has two, which hide latency for each other: less than twice the time, and again
        // the same for all of them.
        assert!((1.1..1.6).contains(&ratio(133, 132)), "{}", ratio(133, 132));
        assert_eq!(time(133), time(264));
        // Another one begins a second wave, and ten waves take five times as long as two.
        assert!((1.3..2.0).contains(&ratio(265, 264)), "{}", ratio(265, 264));
        assert!((1.9..2.1).contains(&ratio(528, 264)), "{}", ratio(528, 264));
        assert!((4.9..5.1).contains(&ratio(2640, 528)), "{}", ratio(2640, 528));
    }

    #[test]
    fn the_slowest_of_arithmetic_shared_memory_l2_and_memory_counts() {
        let h100 = Target::find("sm_90").and_then(Target::cuda).unwrap();
        let base = product().microseconds(h100);
        // Where there is far more of one of them, it alone is what the launch takes.
        let more = [
            Launch { step_flops: 10.0 * product().step_flops, ..product() },
            Launch { step_shared_bytes: 10.0 * product().step_shared_bytes, ..product() },
            Launch { step_fetched_bytes: 40.0 * product().step_fetched_bytes, ..product() },
            Launch { bytes: 100.0 * product().bytes, ..product() },
        ];
        for launch in more {
            let times = launch.microseconds(h100) / base;
            assert!((1.5..11.0).contains(&times), "{times}: {launch:?}");
        }
        // Half of what does not count saves nothing.
        assert_eq!(Launch { bytes: 0.5 * product().bytes, ..product() }.microseconds(h100), base);
    }
}
