//! Products and convolutions of integers of eight bits, four or two terms at a time.
//!
//! ```text
//! weights   words of input channels, [set][tile of co][kh][kw][word][channel of the tile], once; behind the words of a tile
//!           the sum of each channel's weights
//! x_words   the input in words, padding included: what stands for 0 outside
//! for task (set, tile of co, image, block of pixels), in the order in which less comes from afar:
//!   for tile of pixels:
//!     sums[pixel, channel]   in registers: dot(word of a pixel, broadcast; words of the channels)
//!     y[..]                  = epilogue(sums - zero point * sum of the weights)
//! ```
//! `vpdpbusd`, the instruction for words of four bytes on x86, takes unsigned times signed bytes. Signed inputs become unsigned by 128
//! more, which is 128 more of their zero point; unsigned weights signed by 128 less. `sdot` of Arm takes signed ones, so unsigned inputs
//! become signed there; `usdot` takes inputs as they are. Levels without any of these have words of two integers of 16
//! bits, which bytes are widened to as they are, and `vpmaddwd`: 32 products a cycle where two units multiply, as many as by
//! `vpmaddubsw`, whose sums of two saturate. The sums are exact whatever the order, so zero points are taken account of at the
//! end: `sum (x - zx)(w - zw) = sum x w - zx sum w - zw (sum x - K zx)`.

pub mod depthwise;
mod input;
mod kernel;
mod level;
mod problem;
pub mod tiles;
pub mod winograd;

use self::kernel::{Tiles, build, pack};
use self::level::{WANTED_TASKS, fits, words};
use self::problem::Problem;
use super::tile::{
    MAX_VECTORS, RegisterTile, best_tile, ceil_div, cover_cycles, cycles_to_us, even_tiles, worth_trying,
};
use crate::schedule::Schedule;
use crate::space::{Config, ConfigError, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Pack, Scheduled, Template, TemplateError};
use crate::workload::Workload;

/// See the module's text. Knobs: `rows` pixels and `vectors` of output channels of a tile, `block` tiles of pixels of a task;
/// `fetch` whether weights are asked for on `demand` or `ahead`.
pub struct IntegersCpu;

/// Most pixels of a tile.
const MAX_ROWS: i64 = 28;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Problem, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    Ok((Problem::of(w, words(w.dtype, cpu))?, cpu))
}

/// The tile that a default takes.
fn default_tile(p: &Problem, cpu: &Cpu) -> RegisterTile {
    let best = best_tile(p.pixels(), p.co, MAX_ROWS, cpu);
    if fits(best, p.words, cpu) {
        return best;
    }
    let all = even_tiles(p.pixels(), MAX_ROWS)
        .into_iter()
        .flat_map(|rows| (1..=MAX_VECTORS).map(move |vectors| RegisterTile { rows, vectors }));
    let useful =
        |t: &RegisterTile| fits(*t, p.words, cpu) && (t.vectors == 1 || (t.vectors - 1) * cpu.f32_lanes() < p.co);
    let cycles = |t: &RegisterTile| cover_cycles(p.pixels(), p.co, *t, cpu);
    all.filter(useful).min_by(|a, b| cycles(a).total_cmp(&cycles(b))).unwrap_or(RegisterTile { rows: 1, vectors: 1 })
}

/// What a line from the second cache adds to the products that hide most of it: of ResNet-50 on a Xeon with VNNI tiles of 6 pixels take
/// 1.14 times as long as tiles of 14.
const CYCLES_OF_A_LINE: f64 = 0.5;

/// Cycles of one core.
fn cycles(p: &Problem, cpu: &Cpu, tiles: &Tiles) -> f64 {
    let tile = RegisterTile { rows: tiles.rows, vectors: tiles.vectors };
    let steps = (p.taps[0] * p.taps[1] * p.words()) as f64;
    let all = ceil_div(p.pixels(), tiles.rows);
    let sums = cover_cycles(p.pixels(), p.co, tile, cpu) * steps;
    // Weights of a tile of channels that outgrow the first cache come from the second for each tile of pixels. With vectors of half a line they
    // hide behind the products.
    let streams = cpu.vector_bytes >= cpu.cache_line_bytes
        && (tiles.vectors * cpu.vector_bytes) as f64 * steps > (cpu.l1_bytes / 2) as f64;
    let lines = (all * ceil_div(p.co, cpu.f32_lanes())) as f64 * steps;
    let sums = sums + if streams { CYCLES_OF_A_LINE * lines } else { 0.0 };
    let inputs = p.packed_shape().iter().product::<i64>() / p.n.max(1);
    let packed = if p.reads_in_place() { 0.0 } else { inputs as f64 / cpu.f32_lanes() as f64 * 2.0 };
    let outputs = (p.pixels() * p.co / cpu.f32_lanes()) as f64 * 4.0;
    // A last block that is not full, what a tile takes to begin and to end, and inputs that leave the cache between tiles of channels.
    let idle = (ceil_div(all, tiles.block) * tiles.block) as f64 / all as f64;
    let away = if p.block_bytes(tiles.rows * tiles.block) <= cpu.l2_bytes / 2 { 0.0 } else { 0.04 };
    (p.n * p.groups) as f64 * (sums * (0.99 + 0.01 * idle + away) + outputs + packed)
}

/// A config with a type.
fn tiles_of(config: &Config, cpu: &Cpu) -> Result<Tiles, ConfigError> {
    let [rows, vectors, block] = ["rows", "vectors", "block"].map(|knob| config.int(knob));
    let ahead = config.str("fetch")? == "ahead";
    Ok(Tiles { rows: rows?, vectors: vectors?, block: block?, lanes: cpu.f32_lanes(), ahead })
}

impl Template for IntegersCpu {
    fn name(&self) -> &str {
        "integers_cpu"
    }

    fn version(&self) -> u32 {
        2
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn takes_integers(&self) -> bool {
        true
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (p, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let (words, registers) = (p.words, cpu.clone());
        Ok(Space::builder()
            .knob("rows", even_tiles(p.pixels(), MAX_ROWS))
            .knob("vectors", 1..=ceil_div(p.co, cpu.f32_lanes()).min(MAX_VECTORS))
            .knob("block", worth_trying(even_tiles(p.pixels(), i64::MAX)))
            .knob("fetch", ["demand", "ahead"])
            .filter("sums and operands fit the vector registers", move |c| {
                matches!((c.int("rows"), c.int("vectors")), (Ok(rows), Ok(vectors)) if fits(RegisterTile { rows, vectors }, words, &registers))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (p, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let RegisterTile { rows, vectors } = default_tile(&p, cpu);
        let all = ceil_div(p.pixels(), rows);
        let others = p.n * p.groups * ceil_div(p.co, vectors * cpu.f32_lanes());
        let wanted = ceil_div(all, ceil_div(WANTED_TASKS, others));
        let sizes = worth_trying(even_tiles(p.pixels(), i64::MAX));
        // Of the blocks that leave enough tasks the largest whose inputs stay in the cache for all tiles of channels.
        let stays = |size: &i64| *size <= wanted && p.block_bytes(rows * size) <= cpu.l2_bytes / 2;
        let block = sizes.iter().copied().filter(stays).max().unwrap_or(1);
        Ok(Config::new().with("rows", rows).with("vectors", vectors).with("block", block).with("fetch", "ahead"))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match problem(w, t) {
            Ok((p, cpu)) => match tiles_of(config, cpu) {
                Ok(tiles) => cycles_to_us(cycles(&p, cpu, &tiles), cpu),
                Err(_) => f64::INFINITY,
            },
            Err(_) => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (p, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        self.space(w, t)?.index_of(config)?;
        let tiles = tiles_of(config, cpu)?;
        let weights = w.params()[1].name.to_string();
        let packs = vec![Pack { param: weights, kernel: pack(w, &p, tiles.channels()) }];
        Ok(Scheduled { schedule: Schedule::new(build(w, &p, tiles)), packs })
    }
}
