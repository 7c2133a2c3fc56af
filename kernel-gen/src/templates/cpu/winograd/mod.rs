//! Convolutions by Winograd's minimal filtering: filters of 3, 5 or 7 taps in one or both dimensions, 3 with stride 2 as well.
//!
//! `F(m x m, 3 x 3)` makes m x m outputs from (m + 2) x (m + 2) inputs with one product each, where the definition has nine
//! an output: 2.25 times fewer for m = 2, 4 times for m = 4, 5.06 times for m = 6. With stride 2 it is 1.44 and 1.78 times
//! fewer, for 5x5 2.8 and 4.6 times (m = 2 and 3), for 1x7 and 7x1 1.75 to 2.8 times (m = 2 to 4; `filter.rs`). Both sides
//! are transformed first (`transform.rs`), the weights once, by the pack kernel (`pack.rs`). What is left is a small product
//! over the input channels for each place of a tile, which runs on the register tiles of the direct template
//! (`kernel.rs`).
//!
//! Transforms and products have channels along the lanes, so an NCHW tensor is turned by register transposes as it is
//! read and written. A block of tile rows keeps its transformed input and the products of one tile of output channels in
//! the second-level cache; only the transformed weights stream.
//!
//! # Precision
//! Sums and differences before and after the products cost accuracy, more for larger tiles, because the matrices'
//! entries grow. Against an f64 reference F(2x2) of 3x3 and both methods with stride 2 are as exact as a sequential `f32` sum
//! where operands are of one magnitude; F(4x4) stays far within the eightfold of the class `fp32`; F(6x6) does not and is left
//! to `tf32` (figures in `docs/archive/perf-notes.md`; the other methods in `filter.rs`). None of them is local, so the classes `strict` and
//! `local` have none.
//! The knob `m` has only the values that the workload's class allows.

mod kernel;
mod pack;

use super::tile::{
    MAX_VECTORS, RegisterTile, ceil_div, cover_cycles, cycles_to_us, even_tiles, is_even_tile, worth_trying,
};
use crate::ir::DType;
use crate::schedule::Schedule;
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::winograd::filter::{Filter, NOT_LOCAL, reach, tile_sizes};
use crate::templates::{Pack, Scheduled, Template, TemplateError};
use crate::workload::special::Reach;
use crate::workload::{Conv2d, ConvLayout, Op, Workload};
use kernel::{Cut, Sizes};

/// See the module's text. Knobs: `m` outputs of a tile in each dimension in which the filter has several taps, `tile_rows` rows of tiles of a block, `rows` tiles
/// and `nv` vectors of output channels of a register tile, `groups` tasks that share a block, each with its part of the
/// output channels.
pub struct Conv2dWinograd;

/// Most tiles of a register tile.
const MAX_ROWS: i64 = 28;

/// Numbers of tasks that share a block.
const GROUPS: [i64; 5] = [1, 2, 4, 8, 16];

/// How much the time on so many threads counts in the choice of a default.
const THREADS: [(i64, f64); 4] = [(1, 0.4), (2, 0.5), (4, 0.07), (8, 0.03)];

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Conv2d, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
    if w.math.is_local() {
        return Err(NOT_LOCAL.into());
    }
    if [c.kh, c.kw] == [1, 1] || c.dilation != [1, 1] || methods(w, &c).is_empty() {
        return Err("for filters of 3, 5 and 7 taps with stride 1 and of 3 with stride 2, not dilated".into());
    }
    if c.groups != 1 {
        return Err("for convolutions without groups".into());
    }
    if w.dtype != DType::F32 || w.out_dtype != DType::F32 {
        return Err("for f32".into());
    }
    // Farther out an output sees nothing but padding and is exactly zero, which sums and differences are not.
    let taps = [c.kh, c.kw, c.kh, c.kw];
    if c.padding.iter().zip(taps).any(|(p, taps)| *p >= taps) {
        return Err("for less padding than taps".into());
    }
    match c.layout {
        ConvLayout::Nchw | ConvLayout::Nhwc => {}
        ConvLayout::NchwC(block) if block % cpu.f32_lanes() == 0 => {}
        ConvLayout::NchwC(_) => return Err("the channel block must hold whole vectors".into()),
        ConvLayout::Hwcn | ConvLayout::NhwcNc(_) => return Err("for NCHW, NHWC and NCHW16c".into()),
    }
    Ok((c, cpu))
}

/// Output tiles that keep the precision class.
fn methods(w: &Workload, c: &Conv2d) -> Vec<i64> {
    tile_sizes([c.kh, c.kw], c.stride, w.math)
}

/// Rows of tiles of a whole map.
fn all_tile_rows(c: &Conv2d, m: i64) -> i64 {
    ceil_div(c.oh(), if c.kh == 1 { 1 } else { m })
}

/// Numbers of tile rows of a block worth offering.
fn block_sizes(c: &Conv2d, m: i64) -> Vec<i64> {
    worth_trying(even_tiles(all_tile_rows(c, m), i64::MAX))
}

fn sizes(config: &Config, cpu: &Cpu) -> Result<Sizes, TemplateError> {
    Ok(Sizes {
        m: config.int("m")?,
        tile_rows: config.int("tile_rows")?,
        rows: config.int("rows")?,
        vectors: config.int("nv")?,
        groups: config.int("groups")?,
        lanes: cpu.f32_lanes(),
    })
}

fn config_of(s: &Sizes) -> Config {
    Config::new()
        .with("m", s.m)
        .with("tile_rows", s.tile_rows)
        .with("rows", s.rows)
        .with("nv", s.vectors)
        .with("groups", s.groups)
}

/// Whether blocks, register tiles and groups are ones that cut evenly.
fn offered(c: &Conv2d, cpu: &Cpu, s: &Sizes) -> bool {
    let cut = Cut::new(*c, *s);
    is_even_tile(all_tile_rows(c, s.m), s.tile_rows)
        && cut.co_tiles % s.groups == 0
        && RegisterTile { rows: s.rows, vectors: s.vectors }.fits(cpu)
        && s.rows <= MAX_ROWS
        && is_even_tile(cut.tiles, s.rows)
}

impl Template for Conv2dWinograd {
    fn name(&self) -> &str {
        "conv2d_winograd"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let tiles = methods(w, &c);
        let mut tile_rows: Vec<i64> = tiles.iter().flat_map(|m| block_sizes(&c, *m)).collect();
        tile_rows.sort_unstable();
        tile_rows.dedup();
        let along = |taps: i64, outputs: i64, m: i64| if taps == 1 { outputs } else { ceil_div(outputs, m) };
        let most = tiles.iter().map(|m| along(c.kh, c.oh(), *m) * along(c.kw, c.ow(), *m)).max().unwrap_or(1);
        let registers = cpu.clone();
        Ok(Space::builder()
            .knob("m", tiles.iter().copied())
            .knob("tile_rows", tile_rows)
            .knob("rows", 1..=MAX_ROWS.min(most))
            .knob("nv", 1..=ceil_div(c.co, cpu.f32_lanes()).min(MAX_VECTORS))
            .knob("groups", GROUPS)
            .filter("blocks and register tiles cut evenly, sums fit in the vector registers", move |config| {
                sizes(config, &registers).is_ok_and(|s| offered(&c, &registers, &s))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let mut best: Option<(f64, Sizes)> = None;
        for m in methods(w, &c) {
            for tile_rows in block_sizes(&c, m) {
                for vectors in 1..=ceil_div(c.co, cpu.f32_lanes()).min(MAX_VECTORS) {
                    let of = |rows, groups| Sizes { m, tile_rows, rows, vectors, groups, lanes: cpu.f32_lanes() };
                    let cut = Cut::new(c, of(1, 1));
                    for rows in even_tiles(cut.tiles, MAX_ROWS) {
                        for s in GROUPS.map(|groups| of(rows, groups)) {
                            if !offered(&c, cpu, &s) {
                                continue;
                            }
                            let cost = cycles(&c, cpu, &s) * imbalance(c.n * cut.blocks * s.groups);
                            if best.is_none_or(|(least, _)| cost < least) {
                                best = Some((cost, s));
                            }
                        }
                    }
                }
            }
        }
        best.map(|(_, s)| config_of(&s)).ok_or_else(|| TemplateError::Limit("no register tile fits".into()))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        let Ok((c, cpu)) = problem(w, t) else { return f64::INFINITY };
        sizes(config, cpu).map_or(f64::INFINITY, |s| cycles_to_us(cycles(&c, cpu, &s), cpu))
    }

    fn reach(&self, w: &Workload, config: &Config) -> Reach {
        reach(w, config.int("m").unwrap_or(1))
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let sizes = sizes(config, cpu)?;
        let class = methods(w, &c);
        let cut = Cut::new(c, sizes);
        let [rows, columns] = [(c.kh, c.stride[0], cut.m[0]), (c.kw, c.stride[1], cut.m[1])]
            .map(|(taps, stride, m)| Filter::of(taps, stride, m).filter(|_| class.contains(&sizes.m)));
        let (Some(rows), Some(columns)) = (rows, columns) else {
            let ([m_h, m_w], math) = (cut.m, w.math.name());
            let text =
                format!("F({m_h}x{m_w}, {}x{}) is not of the class `{math}`; there are m = {class:?}", c.kh, c.kw);
            return Err(TemplateError::Limit(text));
        };
        let filters = [rows, columns];
        if !offered(&c, cpu, &sizes) {
            let text = "does not cut blocks, register tiles and groups evenly, or its sums do not fit in the registers";
            return Err(TemplateError::Limit(format!("`{config}` {text}; take one of the space")));
        }
        let kernel = kernel::kernel(w, cut, &filters);
        let pack = pack::pack(w, &cut, &filters).ok_or_else(|| TemplateError::Limit("there are no weights".into()))?;
        Ok(Scheduled { schedule: Schedule::new(kernel), packs: vec![Pack { param: "w".into(), kernel: pack }] })
    }
}

/// How much longer than their share threads take for so many equal tasks, as a mean over numbers of threads.
fn imbalance(tasks: i64) -> f64 {
    THREADS.iter().map(|(n, weight)| ((ceil_div(tasks, *n) * n) as f64 / tasks as f64).powf(*weight)).product()
}

/// Instructions of one application of the matrices for inputs and for outputs, multiply-adds counted once.
fn transform_steps(taps: i64, stride: i64, m: i64) -> [f64; 2] {
    match (taps, stride, m) {
        (1, ..) => [0.0, 0.0],
        (3, 1, 2) => [4.0, 4.0],
        (3, 1, 4) => [12.0, 13.0],
        (3, 1, 6) => [24.0, 24.0],
        // Of the two filters with stride 2 only that of two taps transforms anything.
        (3, 2, 2) => [2.0, 4.0],
        (3, 2, _) => [12.0, 18.0],
        // Half of a full matrix, since rows and columns come in pairs.
        _ => {
            let (t, m) = ((m + taps - 1) as f64, m as f64);
            [t * t / 2.0, t * (m / 2.0 + 1.0)]
        }
    }
}

/// Predicted cycles on one core.
fn cycles(c: &Conv2d, cpu: &Cpu, s: &Sizes) -> f64 {
    let cut = Cut::new(*c, *s);
    let lanes = cpu.f32_lanes();
    let units = cpu.fma_units.max(1) as f64;
    let blocks = (c.n * cut.blocks) as f64;
    let ([t_h, t_w], [m_h, m_w]) = (cut.t.map(|t| t as f64), cut.m.map(|m| m as f64));
    let places = cut.places() as f64;
    let channels = (cut.ci_blocks * lanes) as f64;
    let outputs = cut.co_tiles * cut.co_tile;
    let [in_rows, out_rows] = transform_steps(c.kh, c.stride[0], s.m);
    let [in_columns, out_columns] = transform_steps(c.kw, c.stride[1], s.m);
    let sums = blocks * places * (cut.tiles * outputs / lanes) as f64 * 2.0;
    // Cycles for a vector that comes from the cache where so many bytes live.
    let vector = cpu.vector_bytes as f64;
    let memory = cpu.clock_mhz as f64 / 1000.0 / cpu.bandwidth_gb_s * vector;
    let read = |bytes: i64| match bytes {
        b if b <= cpu.l1_bytes / 2 => 0.5,
        b if b <= cpu.l2_bytes * 3 / 4 => 1.5,
        b if b <= 16 * cpu.l3_bytes_per_core => 4.0,
        _ => memory,
    };
    // The products, and sums that leave their registers once each. Every register tile reads the weights of its channels
    // again, which do not stay in L1, so few rows wait for them.
    let tile = RegisterTile { rows: s.rows, vectors: s.vectors };
    let steps = blocks * places * channels;
    let panel = 4 * cut.ci_blocks * lanes * cut.co_tile;
    let waits = (ceil_div(cut.tiles, s.rows) * outputs / lanes) as f64 * 0.3 * (read(panel) - 0.5);
    let started = blocks * places * (cut.co_tiles * ceil_div(cut.tiles, s.rows)) as f64 * 40.0;
    let products = steps * (cover_cycles(cut.tiles, outputs, tile, cpu) + waits) + started;
    // Weights stream once a block; they are fetched ahead behind the multiply-adds of what came before.
    let weight_bytes = 4 * cut.places() * cut.ci_blocks * lanes * outputs;
    // The more vectors a step loads, the further ahead of the arithmetic a processor gets.
    let ahead = 1.0 + 1.0 / s.vectors as f64;
    let stream = blocks * weight_bytes as f64 / vector * read(weight_bytes + cut.data_bytes()) * ahead;
    let data = cut.data_bytes();
    let broadcast = blocks * cut.co_tiles as f64 * cut.data_bytes() as f64 / vector * read(data);
    // Rows are turned as they are read, tiles transformed, and stored to the cache.
    let [image_rows, _] = cut.image_rows();
    let turned = (image_rows * ceil_div(c.w, lanes) * cut.ci_blocks * lanes) as f64 * 4.0 * blocks;
    let tiles = blocks * cut.tiles as f64;
    let loads_and_stores = |stored: f64, bytes: i64| places * 0.5 + stored * read(bytes).max(1.0);
    let input_steps = t_h * in_columns + t_w * in_rows;
    let input = tiles * cut.ci_blocks as f64 * (input_steps / units + loads_and_stores(places, data));
    let pixels = m_h * m_w;
    let output_steps = t_w * out_rows + m_h * out_columns;
    let output_vectors = tiles * (outputs / lanes) as f64;
    let output = output_vectors * (output_steps / units + places * read(cut.product_bytes()) + pixels)
        + output_vectors * pixels * 4.0;
    let again = s.groups as f64 * (turned + input);
    products.max(stream) + 0.3 * products.min(stream) + sums + 0.5 * broadcast + again + output
}
