//! Products and convolutions of integers of eight bits, four or two terms at a time.
//!
//! ```text
//! weights   words of input channels, [set][tile of co][kh][kw][word][channel of the tile], once; behind the words of a tile
//!           the sum of each channel's weights
//! x_words   the input in words, padding included: what stands for 0 outside
//! for task (set, tile of co, image, block of pixels):
//!   for tile of pixels:
//!     sums[pixel, channel]   in registers: dot(word of a pixel, broadcast; words of the channels)
//!     y[..]                  = epilogue(sums - zero point * sum of the weights)
//! ```
//! `vpdpbusd`, the instruction for words of four bytes on x86, takes unsigned times signed bytes. Signed inputs become unsigned by 128
//! more, which is 128 more of their zero point; unsigned weights signed by 128 less. Levels without it have words of two integers of 16
//! bits, which bytes are widened to as they are, and `vpmaddwd`: 32 products a cycle where two units multiply, as many as by
//! `vpmaddubsw`, whose sums of two saturate. The sums are exact whatever the order, so zero points are taken account of at the
//! end: `sum (x - zx)(w - zw) = sum x w - zx sum w - zw (sum x - K zx)`.

pub mod depthwise;
mod kernel;
mod problem;

use self::kernel::{Tiles, build, pack};
use self::problem::{Problem, Words};
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

/// Tasks that a default has, if there are enough tiles.
const WANTED_TASKS: i64 = 16;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Problem, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let words = if has_dots(cpu) { Words::Bytes } else { Words::Pairs };
    Ok((Problem::of(w, words)?, cpu))
}

/// Whether one instruction of the level adds up four products.
fn has_dots(cpu: &Cpu) -> bool {
    cpu.features.iter().any(|f| ["avx512vnni", "avxvnni"].contains(&f.as_str()))
}

/// Whether sums and operands fit the registers: the weights, a pixel, and, where products and sums are two instructions, a product.
fn fits(tile: RegisterTile, cpu: &Cpu) -> bool {
    let beside = if has_dots(cpu) { 1 } else { 2 };
    tile.rows * tile.vectors + tile.vectors + beside <= cpu.vector_registers
}

/// The tile that a default takes.
fn default_tile(p: &Problem, cpu: &Cpu) -> RegisterTile {
    let best = best_tile(p.ow, p.co, MAX_ROWS, cpu);
    if fits(best, cpu) {
        return best;
    }
    let all = even_tiles(p.ow, MAX_ROWS)
        .into_iter()
        .flat_map(|rows| (1..=MAX_VECTORS).map(move |vectors| RegisterTile { rows, vectors }));
    let useful = |t: &RegisterTile| fits(*t, cpu) && (t.vectors == 1 || (t.vectors - 1) * cpu.f32_lanes() < p.co);
    let cycles = |t: &RegisterTile| cover_cycles(p.ow, p.co, *t, cpu);
    all.filter(useful).min_by(|a, b| cycles(a).total_cmp(&cycles(b))).unwrap_or(RegisterTile { rows: 1, vectors: 1 })
}

/// Cycles of one core.
fn cycles(p: &Problem, cpu: &Cpu, tile: RegisterTile, block: i64) -> f64 {
    let steps = (p.taps[0] * p.taps[1] * p.words()) as f64;
    let sums = p.n as f64 * (p.groups * p.oh) as f64 * cover_cycles(p.ow, p.co, tile, cpu) * steps;
    let packed = if p.reads_in_place() { 0.0 } else { p.packed_shape().iter().product::<i64>() as f64 };
    let outputs = p.y_shape().iter().product::<i64>() as f64;
    let tiles = p.oh * ceil_div(p.ow, tile.rows);
    // A last block that is not full, and what a tile takes to begin and to end.
    let idle = (ceil_div(tiles, block) * block) as f64 / tiles as f64;
    sums * (0.99 + 0.01 * idle) + packed + outputs
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
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn takes_integers(&self) -> bool {
        true
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (p, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let registers = cpu.clone();
        Ok(Space::builder()
            .knob("rows", even_tiles(p.ow, MAX_ROWS))
            .knob("vectors", 1..=ceil_div(p.co, cpu.f32_lanes()).min(MAX_VECTORS))
            .knob("block", worth_trying(even_tiles(p.oh * p.ow, i64::MAX)))
            .knob("fetch", ["demand", "ahead"])
            .filter("sums and operands fit the vector registers", move |c| {
                matches!((c.int("rows"), c.int("vectors")), (Ok(rows), Ok(vectors)) if fits(RegisterTile { rows, vectors }, &registers))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (p, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let tile = default_tile(&p, cpu);
        let tiles = p.oh * ceil_div(p.ow, tile.rows);
        let others = p.n * p.groups * ceil_div(p.co, tile.vectors * cpu.f32_lanes());
        let wanted = ceil_div(tiles, ceil_div(WANTED_TASKS, others));
        let sizes = worth_trying(even_tiles(p.oh * p.ow, i64::MAX));
        let block = sizes.iter().copied().filter(|size| *size <= wanted).max().unwrap_or(1);
        Ok(Config::new()
            .with("rows", tile.rows)
            .with("vectors", tile.vectors)
            .with("block", block)
            .with("fetch", "ahead"))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match problem(w, t) {
            Ok((p, cpu)) => match tiles_of(config, cpu) {
                Ok(Tiles { rows, vectors, block, .. }) => {
                    cycles_to_us(cycles(&p, cpu, RegisterTile { rows, vectors }, block), cpu)
                }
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
