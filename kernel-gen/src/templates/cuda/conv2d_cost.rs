//! What a launch of [`conv2d_no_batching`](super::conv2d_no_batching) is expected to take.
//!
//! A block goes through equal steps. In each, a thread copies its share of the operands into shared memory, waits, and
//! then computes: loads from shared memory, multiply-adds, and the loops around them. Three rates bound what the blocks on
//! a multiprocessor do in a step (instructions, accesses of shared memory, bytes from L2), and none of it is faster than
//! the step of one thread alone. The sharp edges of both are rounded: p-norms in place of maxima.
//!
//! What separates good configs from bad ones is in two counts of the first warp's accesses: how many of its lanes collide
//! in a bank of shared memory, and over how many sectors of 32 bytes it spreads the results that it writes.
//!
//! The constants are clocks and instructions that were fitted to 900 verified timings of ResNet-50's layers on an H100,
//! random configs and good ones; of these the typical one is off by 15 %, and by 10 % between layers.

use super::model::{Waves, ceil_div, memory_us, whole_sectors};
use crate::target::Cuda;

/// What there is to know about a config.
pub(super) struct Shape {
    /// Blocks of the grid.
    pub(super) blocks: i64,
    /// Steps of a block.
    pub(super) outer: i64,
    /// Rounds of a step, of which each loads operands into registers.
    pub(super) middle: i64,
    /// Threads along channels, rows and columns.
    pub(super) threads: [i64; 3],
    /// Sums of a thread.
    pub(super) sums: i64,
    /// Elements of the input and of the weights that a thread loads in a round.
    pub(super) loads: [i64; 2],
    /// Distances in shared memory between the input elements of neighbouring threads along rows and columns, and between
    /// the weights of neighbouring threads along channels.
    pub(super) apart: [i64; 3],
    /// Distances in the output between the results of neighbouring threads along channels, rows and columns.
    pub(super) results_apart: [i64; 3],
    /// Multiply-adds of a thread in a round.
    pub(super) multiply_adds: i64,
    /// Elements of the input and of the weights that a block fetches in a step.
    pub(super) fetched: [i64; 2],
    /// The rows that they lie in: how many, and elements of one; for input and weights.
    pub(super) rows: [(i64, i64); 2],
    /// Bytes of an element.
    pub(super) element_bytes: i64,
    /// Bytes that have to move to or from memory in the whole launch.
    pub(super) bytes: f64,
    /// Whether the loops of a round are unrolled, and if so whether the source already says it.
    pub(super) unrolled: Option<Unrolled>,
}

/// Who unrolls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unrolled {
    /// The source has every iteration.
    Source,
    /// The source asks the compiler to.
    Compiler,
}

/// Instructions that copy an element of the input, whose padding is a condition, and of the weights.
const COPY: [f64; 2] = [45.0, 14.0];
/// Instructions of a load from shared memory, and of a round's loop.
const LOAD: f64 = 1.8;
const ROUND: f64 = 1.9;
/// Instructions of a multiply-add whose loops are unrolled in the source, and of one whose loops are not.
const FROM_SOURCE: f64 = 0.85;
const NOT_UNROLLED: f64 = 2.0;
/// Clocks that a warp's load occupies shared memory for each element of the worst bank, and a store.
const SHARED_LOAD: f64 = 0.6;
const SHARED_STORE: f64 = 1.8;
/// Bytes that a multiprocessor gets from L2 in a clock.
const L2_BYTES: f64 = 40.0;
/// Clocks of a thread alone: a step, each element of its copy, a round, a load and a multiply-add.
const STEP_ALONE: f64 = 180.0;
const COPY_ALONE: f64 = 43.0;
const ROUND_ALONE: f64 = 7.6;
const LOAD_ALONE: f64 = 1.8;
const MULTIPLY_ADD_ALONE: f64 = 1.9;
/// Clocks that a sum's result takes to write for each sector that a warp's results lie in.
const RESULT: f64 = 5.0;
/// Microseconds of a launch.
const LAUNCH_US: f64 = 1.5;
/// How round the corners are: between the rates, and between them and a thread alone.
const RATES_NORM: f64 = 3.2;
const ALONE_NORM: f64 = 2.6;

/// Expected microseconds; infinite if not even one block fits.
pub(super) fn microseconds(s: &Shape, gpu: &Cuda) -> f64 {
    let thread_count: i64 = s.threads.iter().product();
    let warps = ceil_div(thread_count, Cuda::WARP) as f64;
    let registers = (s.sums + s.loads.iter().sum::<i64>().min(64) + 32).min(gpu.registers_per_thread);
    let shared_bytes = s.fetched.iter().sum::<i64>() * s.element_bytes;
    let resident = gpu.blocks_resident(thread_count, registers, shared_bytes);
    if resident == 0 || s.blocks == 0 {
        return f64::INFINITY;
    }
    let Waves { count: waves, average: active, .. } = Waves::of(s.blocks, resident, gpu);

    let Warp { input_bank, weight_bank, result_sectors } = first_warp(s);
    let [pixels, weights] = s.loads.map(|n| n as f64);
    let middle = s.middle as f64;
    let collisions = pixels * input_bank + weights * weight_bank;
    let multiply_adds = s.multiply_adds as f64
        * match s.unrolled {
            Some(Unrolled::Source) => FROM_SOURCE,
            Some(Unrolled::Compiler) => 1.0,
            None => NOT_UNROLLED,
        };
    let [input_share, weight_share] = s.fetched.map(|n| ceil_div(n, thread_count) as f64);
    let share = input_share + weight_share;

    // Schedulers of a multiprocessor issue an instruction of a warp each in a clock.
    let schedulers = gpu.f32_flops_per_sm_clock as f64 / 2.0 / Cuda::WARP as f64;
    let instructions =
        middle * (multiply_adds + (pixels + weights) * LOAD + ROUND) + input_share * COPY[0] + weight_share * COPY[1];
    let fetched_bytes: f64 = s.rows.iter().map(|(n, length)| *n as f64 * whole_sectors(length * s.element_bytes)).sum();
    let rates = [
        warps * instructions / schedulers,
        warps * (middle * collisions * SHARED_LOAD + share * SHARED_STORE),
        fetched_bytes / L2_BYTES,
    ];
    // More operands than that do not stay in registers until they are used.
    let multiply_adds = multiply_adds * (1.0 + (pixels + weights - 40.0).max(0.0) / 80.0);
    let alone = STEP_ALONE
        + COPY_ALONE * share
        + middle * (ROUND_ALONE + LOAD_ALONE * collisions + MULTIPLY_ADD_ALONE * multiply_adds);
    let step = norm(&[active * norm(&rates, RATES_NORM), alone], ALONE_NORM);
    let results = RESULT * s.sums as f64 * result_sectors * warps * active;
    let compute_us = waves * (s.outer as f64 * step + results) / gpu.clock_mhz.max(1) as f64;
    LAUNCH_US + compute_us.max(memory_us(s.bytes, gpu))
}

/// A maximum with its corners rounded.
pub(super) fn norm(values: &[f64], p: f64) -> f64 {
    let largest = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    largest * values.iter().map(|v| (v / largest).powf(p)).sum::<f64>().powf(1.0 / p)
}

/// How the first warp's accesses spread.
struct Warp {
    /// Different elements in the worst bank, when its lanes load an element of the input each, and of the weights.
    input_bank: f64,
    weight_bank: f64,
    /// Sectors of the output that a result of each lane falls into.
    result_sectors: f64,
}

fn first_warp(s: &Shape) -> Warp {
    let [_, rows, columns] = s.threads;
    let lanes = s.threads.iter().product::<i64>().min(Cuda::WARP) as usize;
    let [mut inputs, mut weights, mut results] = [[0; Cuda::WARP as usize]; 3];
    let places = inputs.iter_mut().zip(&mut weights).zip(&mut results).take(lanes);
    for (lane, ((input, weight), result)) in (0..).zip(places) {
        let (f, y, x) = (lane / (rows * columns), lane / columns % rows, lane % columns);
        // Banks are of 4 bytes: two elements of 16 bits in one word do not collide.
        *input = (y * s.apart[0] + x * s.apart[1]) * s.element_bytes / 4;
        *weight = f * s.apart[2] * s.element_bytes / 4;
        let element = f * s.results_apart[0] + y * s.results_apart[1] + x * s.results_apart[2];
        *result = element * s.element_bytes / 32;
    }
    Warp {
        input_bank: worst_bank(&inputs[..lanes]),
        weight_bank: worst_bank(&weights[..lanes]),
        result_sectors: distinct(&results[..lanes]).count() as f64,
    }
}

/// The values without repetitions.
pub(super) fn distinct(values: &[i64]) -> impl Iterator<Item = i64> + '_ {
    values.iter().enumerate().filter(|(i, v)| !values[..*i].contains(v)).map(|(_, v)| *v)
}

/// Different words in the bank that has most of them.
pub(super) fn worst_bank(words: &[i64]) -> f64 {
    let mut banks = [0u8; 32];
    for word in distinct(words) {
        banks[(word % 32) as usize] += 1;
    }
    f64::from(banks.into_iter().max().unwrap_or(1))
}
