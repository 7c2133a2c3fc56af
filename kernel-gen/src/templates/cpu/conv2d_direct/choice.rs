//! The choices of a direct convolution: which values are worth offering, and the default.

use super::cost::{estimate, shared_image_us};
use super::knobs::{Knobs, Pad};
use crate::space::{Config, Space, divisors};
use crate::target::Cpu;
use crate::templates::TemplateError;
use crate::templates::cpu::tile::{MAX_VECTORS, WANTED_TASKS, ceil_div, even_tiles, worth_trying};
use crate::workload::{Conv2d, ConvLayout};

/// Most pixels of a register tile.
const MAX_PIXELS: i64 = 30;

/// Lengths of a block of input channels worth offering: divisors, in whole blocks of a blocked layout. A ragged last block
/// would double the code of every register tile, until compilers take minutes for it.
fn ci_tiles(c: &Conv2d) -> Vec<i64> {
    let unit = if let ConvLayout::NchwC(block) = c.layout { block } else { 1 };
    let blocks = c.ci_per_group() / unit;
    divisors(blocks).into_iter().map(|t| t * unit).filter(|t| *t >= c.ci_per_group().min(16)).collect()
}

/// Rows of a register tile worth offering: more than one where a whole row leaves most of the registers free.
fn row_counts(c: &Conv2d) -> Vec<i64> {
    even_tiles(c.oh(), (MAX_PIXELS / c.ow()).max(1))
}

fn vectors(c: &Conv2d, cpu: &Cpu) -> std::ops::RangeInclusive<i64> {
    1..=ceil_div(c.co_per_group(), cpu.f32_lanes()).min(MAX_VECTORS)
}

/// How many tiles of channels a task may take: powers of two.
fn tile_counts(c: &Conv2d, cpu: &Cpu) -> Vec<i64> {
    let most = ceil_div(c.co_per_group(), cpu.f32_lanes());
    (0..62).map(|i| 1 << i).take_while(|t| *t <= most).collect()
}

fn pads(c: &Conv2d) -> &'static [Pad] {
    if c.has_padding() { &[Pad::Task, Pad::Image] } else { &[Pad::Task] }
}

/// The space of a workload.
pub(super) fn space(c: &Conv2d, cpu: &Cpu) -> Result<Space, TemplateError> {
    let (conv, target) = (*c, cpu.clone());
    let pad_names = pads(c).iter().map(|p| if *p == Pad::Image { "image" } else { "task" });
    Ok(Space::builder()
        .knob("nv", vectors(c, cpu))
        .knob("ow_tile", even_tiles(c.ow(), MAX_PIXELS))
        .knob("rows", row_counts(c))
        .knob("oh_tile", worth_trying(even_tiles(c.oh(), i64::MAX)))
        .knob("ci_tile", ci_tiles(c))
        .knob("tiles", tile_counts(c, cpu))
        .knob("pad", pad_names)
        .filter(
            "accumulators fit in the vector registers, several rows are whole rows of the task, tiles of channels divide \
             a group, which has as many as a task takes",
            move |config| Knobs::read(config).is_ok_and(|k| k.is_sane(&conv, &target)),
        )
        .build()?)
}

/// The config of least predicted time that has enough tasks.
pub(super) fn default_config(c: &Conv2d, cpu: &Cpu) -> Option<Config> {
    let mut best: Option<((bool, f64), Knobs)> = None;
    for tile in tiles(c, cpu) {
        for oh_tile in worth_trying(even_tiles(c.oh(), i64::MAX)) {
            for ci_tile in ci_tiles(c) {
                for tiles in tile_counts(c, cpu) {
                    for pad in pads(c) {
                        let k = Knobs { oh_tile, ci_tile, tiles, pad: *pad, ..tile };
                        if !k.is_sane(c, cpu) {
                            continue;
                        }
                        let rank = (k.tasks(c, cpu) < WANTED_TASKS, rank_us(c, cpu, k));
                        if best.is_none_or(|(least, _)| rank < least) {
                            best = Some((rank, k));
                        }
                    }
                }
            }
        }
    }
    best.map(|(_, k)| k.config())
}

/// Whether a tile of channels divides a group, without which no config does.
pub(super) fn is_possible(c: &Conv2d, cpu: &Cpu) -> bool {
    vectors(c, cpu).any(|vectors| {
        let k = Knobs { vectors, ow_tile: 1, rows: 1, oh_tile: 1, ci_tile: c.ci_per_group(), tiles: 1, pad: Pad::Task };
        k.is_sane(c, cpu)
    })
}

/// Predicted time of a config where one, two or four threads may run it: unequal shares wait for each other, and an image
/// that one thread has padded is far away for another.
fn rank_us(c: &Conv2d, cpu: &Cpu, k: Knobs) -> f64 {
    let tasks = k.tasks(c, cpu);
    let share = |threads: i64| (ceil_div(tasks, threads) * threads) as f64 / tasks as f64;
    let balance = (share(1) + share(2) + share(4)) / 3.0;
    let shared = if k.pad == Pad::Image { shared_image_us(c, cpu) } else { 0.0 };
    estimate(c, cpu, k) * balance + shared
}

/// Register tiles for a default; the other knobs hold the smallest values. A ragged last tile of channels has conditions
/// on each lane and is scalar code, and with few registers a low tile reads its vectors again for every few pixels: both
/// only where nothing else is left.
fn tiles(c: &Conv2d, cpu: &Cpu) -> Vec<Knobs> {
    let mut tiles = vec![];
    for vectors in vectors(c, cpu) {
        for ow_tile in even_tiles(c.ow(), MAX_PIXELS) {
            for rows in row_counts(c) {
                let k = Knobs { vectors, ow_tile, rows, oh_tile: rows, ci_tile: 1, tiles: 1, pad: Pad::Task };
                if k.is_sane(c, cpu) {
                    tiles.push(k);
                }
            }
        }
    }
    let lanes = cpu.f32_lanes();
    let low = |k: &Knobs| cpu.vector_registers < 32 && k.ow_tile * k.rows < k.vectors;
    let good = |k: &&Knobs| c.co_per_group() % (k.vectors * lanes) == 0 && !low(k);
    let best: Vec<Knobs> = tiles.iter().filter(good).copied().collect();
    if best.is_empty() { tiles } else { best }
}
