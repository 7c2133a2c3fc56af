//! Predicted time of a convolution over planes.
//!
//! The constants are cycles measured on a Zen 5 core, as those of [`conv2d_direct`](super::super::conv2d_direct).

use super::cut::Cut;
use super::knobs::Source;
use super::steps::Steps;
use crate::integer::ceil_div;
use crate::target::Cpu;
use crate::templates::cpu::tile::cycles_to_us;
use crate::templates::planes::Planes;

/// Cycles that a step of the reduction costs beside its multiply-adds.
const STEP: f64 = 0.4;
/// Cycles of a vector that is copied, of one that goes from the sums to the output, and of an element that is stored apart from
/// its neighbours.
const COPY: f64 = 2.5;
const STORE: f64 = 5.0;
const SCATTERED: f64 = 1.3;
/// Cycles that a step loses for each line that comes from L2, and from beyond it.
const L2_LINE: f64 = 0.2;
const L3_LINE: f64 = 2.0;
/// Cycles to find a page again, where a pass over the channels meets more of them than the first-level TLB holds.
const PAGE: f64 = 2.5;
const PAGE_BYTES: i64 = 4096;
const TLB_PAGES: i64 = 96;
/// Cycles to fetch a line that another core has written.
const FOREIGN_LINE: f64 = 8.0;
/// Microseconds between two phases.
const PHASE_US: f64 = 1.0;

/// Cycles of a step of the reduction: one term of all sums of a register tile.
fn step(channels: i64, vectors: i64, cpu: &Cpu) -> f64 {
    let sums = (channels * vectors) as f64;
    // Most loads of a vector lie across two cache lines and count twice.
    let loads = (channels + 2 * vectors) as f64 / 2.0;
    let beside = if cpu.vector_registers < 32 { 0.4 * loads / sums } else { 0.0 };
    let multiply_adds = sums / cpu.fma_units.max(1) as f64 * if cpu.fma { 1.0 } else { 2.0 };
    multiply_adds.max(loads).max(cpu.fma_latency as f64) * (1.0 + beside) + STEP
}

/// Cycles of a step of a tile of channels at all places of a task.
pub(super) fn cycles_of_channels(mr: i64, vectors: i64, across: i64, cpu: &Cpu) -> f64 {
    let (whole, rest) = (across / vectors, across % vectors);
    whole as f64 * step(mr, vectors, cpu) + if rest > 0 { step(mr, rest, cpu) } else { 0.0 }
}

/// The taps of a phase, on average.
fn taps(steps: &Steps) -> f64 {
    // A few phases tell enough of many.
    let phases = steps.of.phases().min(64);
    (0..phases).map(|phase| steps.of.met(phase)).sum::<i64>() as f64 / phases as f64
}

/// Cycles of copying a channel of the input.
fn copied(cut: &Cut) -> f64 {
    let [deep, down, along] = cut.lengths();
    cut.all(Steps::slots) as f64 * deep as f64 * down as f64 * ceil_div(along, cut.lanes) as f64 * COPY
}

/// Predicted microseconds on one core.
pub(super) fn estimate(cut: &Cut, cpu: &Cpu) -> f64 {
    let (k, planes) = (cut.knobs, &cut.planes);
    let tasks = cut.tasks() as f64;
    let [blocks, ..] = cut.blocks();
    let tiles = cut.channel_tiles() as f64 / blocks as f64;
    let phases = cut.phases() as f64;
    let terms = cut.steps.iter().map(taps).product::<f64>() * planes.ci as f64;
    let passes = tasks * phases * tiles;
    let sums = passes * terms * cycles_of_channels(k.mr, k.vectors, cut.across(), cpu);

    // Lines of weights are read again for each tile of places, those of the input for each tile of channels.
    let line = cpu.cache_line_bytes.max(1) as f64;
    let weights = terms * k.mr as f64 * 4.0;
    let far = |bytes: f64| match bytes {
        b if b <= cpu.l1_bytes as f64 * 0.75 => 0.0,
        b if b <= cpu.l2_bytes as f64 * 0.6 => L2_LINE,
        _ => L3_LINE,
    };
    let again = (ceil_div(cut.across(), k.vectors) - 1) as f64 * far(weights);
    let all_weights = weights * phases * tiles;
    let first = far(all_weights).max(L2_LINE);
    let weight_lines = passes * weights / line * (first + again);
    // A pass meets all pixels of the slots, or, where each tap has its own, those of its taps.
    let met = match k.source {
        Source::Taps => terms,
        _ => planes.ci as f64 * cut.all(Steps::slots) as f64,
    };
    let input = 4.0 * met * (cut.across() * cut.lanes) as f64;
    let input_lines = passes * input / line * far(input + weights);

    let pages = match k.source {
        Source::Task => 0,
        _ => (cut.channel() / (PAGE_BYTES / 4)).min(cut.all(Steps::slots) * cut.steps[0].of.most_taps()) * planes.ci,
    };
    let found = if pages > TLB_PAGES { pages as f64 * PAGE } else { 0.0 };
    let pages = passes * ceil_div(cut.across(), k.vectors) as f64 * found;

    let outputs = (planes.n * planes.groups * planes.co * planes.all(|d| d.output)) as f64;
    let lanes = cut.lanes as f64;
    let row = k.columns as f64 / lanes;
    let stored = match cut.steps[2].of.phases() {
        1 => outputs / lanes * STORE * (row.ceil() / row),
        _ => outputs * SCATTERED,
    };
    let kept = passes * (k.mr * cut.across()) as f64 * 2.0;

    let channels = (planes.n * planes.groups * planes.ci) as f64;
    let copies = match k.source {
        Source::Input => 0.0,
        Source::Image | Source::Taps => channels * copied(cut) + PHASE_US * cpu.clock_mhz as f64,
        Source::Task => tasks * planes.ci as f64 * copied(cut),
    };
    cycles_to_us(sums + weight_lines + input_lines + pages + stored + kept + copies, cpu)
}

/// Predicted time where one, two or four threads may run it: unequal shares wait for each other, and what one thread has copied is
/// far away for another.
pub(super) fn rank_us(cut: &Cut, cpu: &Cpu) -> f64 {
    let tasks = cut.tasks();
    let share = |threads: i64| (ceil_div(tasks, threads) * threads) as f64 / tasks as f64;
    let balance = (share(1) + share(2) + share(4)) / 3.0;
    let Planes { n, groups, ci, .. } = cut.planes;
    let bytes = 4.0 * (n * groups * ci) as f64 * cut.channel() as f64;
    let shared = match cut.knobs.source {
        Source::Image | Source::Taps => {
            cycles_to_us(bytes / cpu.cache_line_bytes.max(1) as f64 / 2.0 * FOREIGN_LINE, cpu)
        }
        _ => 0.0,
    };
    estimate(cut, cpu) * balance + shared
}
