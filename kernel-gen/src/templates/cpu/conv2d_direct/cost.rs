//! Predicted time of a direct convolution.
//!
//! Multiply-adds at the rate of the register tile, and beside them what they do not hide: cache lines that a step waits
//! for, sums that go through memory, the copy that pads, the transposes at the end. The constants are cycles measured on
//! a Zen 5 core (docs/archive/perf-notes.md); they rank configs on other machines as well, since all of them pay for the same
//! things.

use super::knobs::{Knobs, Pad};
use crate::target::Cpu;
use crate::templates::cpu::tile::{ceil_div, cover_cycles, cycles_to_us};
use crate::workload::{Conv2d, ConvLayout};

/// Cycles that a step of the reduction costs beside its multiply-adds and loads.
const STEP: f64 = 0.4;
/// Cycles that a step loses for each line of weights or input that comes from L2, and from beyond it.
const L2_LINE: f64 = 0.2;
const L3_LINE: f64 = 2.0;
/// Cycles of a vector that padding copies: one load and one store, mostly across lines.
const PAD_VECTOR: f64 = 4.0;
/// Cycles of a 16 x 16 transpose with its epilogue.
const TRANSPOSE: f64 = 90.0;
/// Microseconds between two phases.
const PHASE_US: f64 = 1.0;

/// Bytes of the input rows that `oh_tile` output rows need, of all channels of a group.
fn input_rows_bytes(c: &Conv2d, oh_tile: i64) -> i64 {
    4 * c.ci_per_group() * padded_rows(c, oh_tile) * (c.w + c.padding[1] + c.padding[3])
}

fn padded_rows(c: &Conv2d, oh_tile: i64) -> i64 {
    (oh_tile - 1) * c.stride[0] + (c.kh - 1) * c.dilation[0] + 1
}

/// Predicted microseconds on one core.
pub(super) fn estimate(c: &Conv2d, cpu: &Cpu, k: Knobs) -> f64 {
    let lanes = cpu.f32_lanes();
    let channels = k.channels(c, cpu);
    let channel_tiles = (c.groups * k.channel_tiles(c, cpu)) as f64;
    let images = c.n as f64;
    let steps = (c.ci_per_group() * c.kh * c.kw) as f64;

    // Pixels of an image in register tiles: tails of rows are counted a task at a time.
    let tile = k.tile();
    let (tasks, last_rows) = (c.oh() / k.oh_tile, c.oh() % k.oh_tile);
    let over_rows =
        |of: &dyn Fn(i64) -> f64| tasks as f64 * of(k.oh_tile) + if last_rows > 0 { of(last_rows) } else { 0.0 };
    let group = c.groups as f64;
    let per_step = over_rows(&|rows| {
        if k.rows == 1 {
            rows as f64 * cover_cycles(c.ow(), c.co_per_group(), tile, cpu)
        } else {
            cover_cycles(rows * c.ow(), c.co_per_group(), tile, cpu)
        }
    });
    let compute = images * group * per_step * steps;
    let pixel_tiles = over_rows(&|rows| {
        if k.rows == 1 { (rows * ceil_div(c.ow(), k.ow_tile)) as f64 } else { ceil_div(rows, k.rows) as f64 }
    });
    let overhead = images * channel_tiles * pixel_tiles * steps * STEP;

    // Lines of weights: once a register tile of pixels, from where a block of channels stays meanwhile.
    let weights_bytes = 4 * c.ci_per_group() * c.kh * c.kw * channels;
    let block_bytes = 4 * k.ci_tile * c.kh * c.kw * channels;
    let line = cpu.cache_line_bytes.max(1) as f64;
    let fits = |bytes: i64, cache: i64| bytes <= cache;
    let weight_lines = images * channel_tiles * weights_bytes as f64 / line;
    // Several lines a step are in each other's way.
    let again = if fits(block_bytes, cpu.l1_bytes * 3 / 4) {
        0.0
    } else if fits(block_bytes, cpu.l2_bytes / 2) {
        L2_LINE * k.vectors as f64 / 2.0
    } else {
        L3_LINE
    };
    // The first pass of a task brings them from wherever they are.
    let row_tasks = ceil_div(c.oh(), k.oh_tile) as f64;
    let all_weights = 4 * c.co * c.ci_per_group() * c.kh * c.kw;
    let first = if fits(weights_bytes * k.tiles, cpu.l2_bytes / 2) { L2_LINE } else { L3_LINE };
    let cold = weight_lines * L3_LINE / if all_weights > cpu.l2_bytes { 1.0 } else { 4.0 };
    let weights = weight_lines * ((pixel_tiles - row_tasks).max(0.0) * again + (row_tasks - 1.0) * first) + cold;

    // Lines of input: a step's pixels lie in a row of a map or two, which the columns of the kernel share.
    let input_bytes = input_rows_bytes(c, k.oh_tile);
    let span = |pixels: i64| ((pixels - 1) * c.stride[1] + c.kw) as f64 * 4.0 / line + 1.0;
    let per_row = span(k.ow_tile) * k.rows as f64;
    let input_line = if fits(input_bytes, cpu.l1_bytes * 3 / 4) {
        0.0
    } else if fits(input_bytes, cpu.l2_bytes / 2) {
        L2_LINE
    } else {
        L3_LINE / 2.0
    };
    let input = images * channel_tiles * pixel_tiles * (c.ci_per_group() * c.kh) as f64 * per_row * input_line;

    // Sums go through a private tile between blocks of channels, and wait for it, and once more for the epilogue.
    let ragged = (ceil_div(c.ow(), lanes) * lanes) as f64 / c.ow() as f64;
    let outputs = (c.n * c.co * c.oh() * c.ow()) as f64;
    let blocks = ceil_div(c.ci_per_group(), k.ci_tile) as f64;
    let per_vector = if fits(4 * channels * k.oh_tile * c.ow(), cpu.l1_bytes) { 1.0 } else { 2.0 };
    let copies = outputs / lanes as f64 * (5.0 * blocks - 2.0) * per_vector;
    let turns = match c.layout {
        ConvLayout::Nchw => outputs / (lanes * lanes) as f64 * ragged * TRANSPOSE * lanes as f64 / 16.0,
        _ => 0.0,
    };

    // Padding copies the rows of a task, again for each task with other channels.
    let padding = if c.has_padding() {
        let vectors = ceil_div(c.w + c.padding[1] + c.padding[3], lanes) as f64;
        let rows = |rows: i64| vectors * (c.ci_per_group() * rows) as f64 * PAD_VECTOR;
        match k.pad {
            Pad::Image => images * group * rows(c.h + c.padding[0] + c.padding[2]) + PHASE_US * cpu.clock_mhz as f64,
            Pad::Task => {
                let times = k.channel_tasks(c, cpu) as f64;
                let spilled = if input_bytes > cpu.l2_bytes / 2 { 2.0 } else { 1.0 };
                images * times * spilled * over_rows(&|of| rows(padded_rows(c, of)))
            }
        }
    } else {
        0.0
    };
    cycles_to_us(compute + overhead + weights + input + copies + turns + padding, cpu)
}

/// Cycles to fetch a line that another core has written, beyond what a line of L2 costs.
const FOREIGN_LINE: f64 = 50.0;

/// What several threads lose where each reads what the others have padded: half of the image with two of them.
pub(super) fn shared_image_us(c: &Conv2d, cpu: &Cpu) -> f64 {
    let lines = 4 * c.n * c.ci * c.padded_h() * (c.w + c.padding[1] + c.padding[3]) / cpu.cache_line_bytes.max(1);
    cycles_to_us(lines as f64 / 2.0 * FOREIGN_LINE, cpu)
}
