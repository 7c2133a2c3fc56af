//! Direct convolution in NCHW that skips the taps in the padding.
//!
//! [`super::conv2d_direct`] copies what is padded and multiplies its zeros. Where maps are small that is a good part of the
//! work: of a 3x3 filter with padding 1 on 7x7 outputs 18 % of the products with stride 1, 9 % with stride 2. Here the
//! input is read in place, and a pixel of a register tile has a condition where some tap lies outside; conditions depend
//! on loops over few rows and taps only, so lowering cuts those loops and what is left are smaller tiles without any.
//!
//! A task makes some whole rows of one tile of output channels. Their pixels are contiguous in an NCHW output whatever the
//! length of a row, so the task's sums are stored in vectors that do not end with a row: 49 pixels of a 7x7 map take
//! four register transposes and not seven.

use super::pack_weights;
use super::tile::{MAX_VECTORS, RegisterTile, WANTED_TASKS, ceil_div, cycles_to_us, even_tiles};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Kernel, LoopKind, ReduceOp, Scope, Stmt, VarId};
use crate::schedule::Schedule;
use crate::space::{Config, Space, divisors};
use crate::target::{Cpu, Target};
use crate::templates::{Pack, Scheduled, Template, TemplateError};
use crate::workload::naive::epilogue;
use crate::workload::operands::Operands;
use crate::workload::{Conv2d, ConvLayout, Op, Role, Workload};

/// See the module's text. Knobs: `nv` vectors of output channels, `ow_tile` pixels and `rows` output rows of the register
/// tile, `oh_tile` output rows of a task.
pub struct Conv2dSkip;

/// Most pixels of a register tile.
const MAX_PIXELS: i64 = 30;
/// Cycles that a step of the reduction costs beside its multiply-adds.
const STEP: f64 = 0.4;
/// Cycles of a cache line that comes from L2, and from beyond it.
const L2_LINE: f64 = 0.5;
const L3_LINE: f64 = 2.0;
/// Cycles of a 16 x 16 transpose with its epilogue.
const TRANSPOSE: f64 = 90.0;

/// A config, read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Knobs {
    vectors: i64,
    ow_tile: i64,
    rows: i64,
    oh_tile: i64,
}

impl Knobs {
    fn read(config: &Config) -> Result<Knobs, TemplateError> {
        Ok(Knobs {
            vectors: config.int("nv")?,
            ow_tile: config.int("ow_tile")?,
            rows: config.int("rows")?,
            oh_tile: config.int("oh_tile")?,
        })
    }

    fn config(self) -> Config {
        Config::new()
            .with("nv", self.vectors)
            .with("ow_tile", self.ow_tile)
            .with("rows", self.rows)
            .with("oh_tile", self.oh_tile)
    }

    /// What the space asks of a config besides the values of each knob; [`Conv2dSkip::space`] says it in words.
    fn is_sane(self, c: &Conv2d, cpu: &Cpu) -> bool {
        RegisterTile { rows: self.ow_tile * self.rows, vectors: self.vectors }.fits(cpu)
            && self.rows <= self.oh_tile
            && (self.rows == 1 || self.ow_tile == c.ow())
    }
}

/// Most taps of a filter. The time of a tile is that of the taps that it meets, and a large filter makes each tile another kind.
const MOST_TAPS: i64 = 1 << 16;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Conv2d, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
    if !c.has_padding() {
        return Err("for convolutions with padding".into());
    }
    if c.layout != ConvLayout::Nchw || c.groups != 1 {
        return Err("for NCHW without groups".into());
    }
    if c.kh * c.kw > MOST_TAPS {
        return Err(format!("for filters of at most {MOST_TAPS} taps"));
    }
    if w.dtype != DType::F32 || w.out_dtype != DType::F32 {
        return Err("for f32".into());
    }
    Ok((c, cpu))
}

/// Output rows of a task worth offering: divisors, so that a task's pixels are whole.
fn oh_tiles(c: &Conv2d) -> Vec<i64> {
    divisors(c.oh())
}

fn row_counts(c: &Conv2d) -> Vec<i64> {
    even_tiles(c.oh(), (MAX_PIXELS / c.ow()).max(1))
}

impl Template for Conv2dSkip {
    fn name(&self) -> &str {
        "conv2d_skip"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let registers = cpu.clone();
        Ok(Space::builder()
            .knob("nv", 1..=ceil_div(c.co, cpu.f32_lanes()).min(MAX_VECTORS))
            .knob("ow_tile", even_tiles(c.ow(), MAX_PIXELS))
            .knob("rows", row_counts(&c))
            .knob("oh_tile", oh_tiles(&c))
            .filter(
                "accumulators fit in the vector registers, several rows are whole rows of the task",
                move |config| Knobs::read(config).is_ok_and(|k| k.is_sane(&c, &registers)),
            )
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let mut best: Option<((bool, f64), Knobs)> = None;
        for vectors in 1..=ceil_div(c.co, cpu.f32_lanes()).min(MAX_VECTORS) {
            for ow_tile in even_tiles(c.ow(), MAX_PIXELS) {
                for rows in row_counts(&c) {
                    for oh_tile in oh_tiles(&c) {
                        let k = Knobs { vectors, ow_tile, rows, oh_tile };
                        if !k.is_sane(&c, cpu) {
                            continue;
                        }
                        let tasks = c.n * ceil_div(c.co, vectors * cpu.f32_lanes()) * (c.oh() / oh_tile);
                        let rank = (tasks < WANTED_TASKS, estimate(&c, cpu, k));
                        if best.is_none_or(|(least, _)| rank < least) {
                            best = Some((rank, k));
                        }
                    }
                }
            }
        }
        best.map(|b| b.1.config()).ok_or_else(|| TemplateError::Limit("no register tile fits".into()))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (problem(w, t), Knobs::read(config)) {
            (Ok((c, cpu)), Ok(knobs)) => estimate(&c, cpu, knobs),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let knobs = Knobs::read(config)?;
        if !knobs.is_sane(&c, cpu) || c.oh() % knobs.oh_tile != 0 {
            return Err(TemplateError::Limit(format!("`{config}` is not of the space: see its conditions")));
        }
        let cut = Cut::new(c, knobs, cpu.f32_lanes());
        let packs = vec![Pack { param: "w".into(), kernel: pack_weights::pack(w, &c, cut.co_tile) }];
        Ok(Scheduled { schedule: Schedule::new(kernel(w, cut)), packs })
    }
}

/// Register tiles of one dimension, by the taps that lie inside of the input, summed over a tile's outputs: that sum, and
/// how many tiles have it. Between the outputs where a tap enters or leaves the input, tiles are alike, and there may be many.
fn tiles_by_taps(outputs: i64, tile: i64, taps: i64, [stride, dilation, before, size]: [i64; 4]) -> Vec<(i64, i64)> {
    let inside = |o: i64| {
        // The first tap that is not before the input, and the first that is behind it.
        let first = ceil_div(before - o * stride, dilation).max(0);
        let end = ceil_div(size + before - o * stride, dilation).min(taps);
        (end - first).max(0)
    };
    let ends = (0..taps).flat_map(|tap| [before - tap * dilation, size + before - tap * dilation]);
    let mut changes: Vec<i64> = ends.map(|end| ceil_div(end, stride).clamp(0, outputs)).chain([outputs]).collect();
    changes.sort_unstable();
    let mut changes = changes.into_iter().peekable();
    let mut tiles: Vec<(i64, i64)> = vec![];
    let mut first = 0;
    while first < outputs {
        while changes.next_if(|change| *change <= first).is_some() {}
        let alike = (changes.peek().map_or(0, |change| change - first) / tile).max(1);
        let taps = (first..outputs.min(first + tile)).map(inside).sum();
        match tiles.last_mut() {
            Some((same, more)) if *same == taps => *more += alike,
            _ => tiles.push((taps, alike)),
        }
        first += alike * tile;
    }
    tiles
}

/// Predicted microseconds on one core.
fn estimate(c: &Conv2d, cpu: &Cpu, k: Knobs) -> f64 {
    let lanes = cpu.f32_lanes();
    let channel_tiles = ceil_div(c.co, k.vectors * lanes) as f64;
    let (oh, ow) = (c.oh(), c.ow());
    let [rows, columns] = dimensions(c);
    let images = c.n as f64;
    // Pixels times taps that are done, in each register tile by itself: no tile is faster than its loads and latency.
    let mut cycles = 0.0;
    let mut tiles = 0.0;
    // Tasks end at multiples of their rows, tiles within them.
    let across = tiles_by_taps(ow, k.ow_tile, c.kw, columns);
    for (taps_down, down) in tiles_by_taps(oh, k.rows, c.kh, rows) {
        for (taps_across, along) in &across {
            let steps = (c.kh * c.kw) as f64;
            let pixels = ((taps_down * taps_across) as f64 / steps).max(1.0);
            let loads = (pixels + k.vectors as f64) / 2.0;
            let multiply_adds = pixels * k.vectors as f64 / cpu.fma_units.max(1) as f64;
            let beside = if cpu.vector_registers < 32 { 0.4 * loads / (pixels * k.vectors as f64) } else { 0.0 };
            let step = multiply_adds.max(loads).max(cpu.fma_latency as f64) * (1.0 + beside);
            let alike = (down * along) as f64;
            cycles += alike * steps * (step + STEP);
            tiles += alike;
        }
    }
    let sums = images * channel_tiles * c.ci as f64 * cycles;
    // Weights once a register tile: the first time from wherever they are.
    let line = cpu.cache_line_bytes.max(1) as f64;
    let tile_bytes = 4 * c.ci * c.kh * c.kw * k.vectors * lanes;
    let lines = images * channel_tiles * tile_bytes as f64 / line;
    let near = if tile_bytes <= cpu.l1_bytes / 2 {
        0.0
    } else if tile_bytes <= cpu.l2_bytes * 3 / 4 {
        L2_LINE * k.vectors as f64 / 2.0
    } else {
        L3_LINE
    };
    let row_tasks = (oh / k.oh_tile) as f64;
    let far = L3_LINE * if 4 * c.co * c.ci * c.kh * c.kw > cpu.l2_bytes { 0.5 } else { 0.25 };
    let weights = lines * ((tiles - row_tasks).max(0.0) * near + row_tasks * far);
    // The input once a register tile as well.
    let span = |pixels: i64| ((pixels - 1) * c.stride[1] + c.kw) as f64 * 4.0 / line + 1.0;
    let input_bytes = 4 * c.ci * c.h * c.w;
    let read = if input_bytes <= cpu.l1_bytes / 2 { 0.0 } else { 0.2 };
    let input = images * channel_tiles * tiles * (c.ci * c.kh * k.rows) as f64 * span(k.ow_tile) * read;
    let blocks = images * (c.co as f64 / lanes as f64) * row_tasks * ceil_div(k.oh_tile * ow, lanes) as f64;
    let stores = blocks * TRANSPOSE * lanes as f64 / 16.0;
    cycles_to_us(sums + weights + input + stores, cpu)
}

/// Stride, dilation, padding before, and size of the input: rows, then columns.
fn dimensions(c: &Conv2d) -> [[i64; 4]; 2] {
    [[c.stride[0], c.dilation[0], c.padding[0], c.h], [c.stride[1], c.dilation[1], c.padding[1], c.w]]
}

/// A convolution cut by a config.
#[derive(Clone, Copy, Debug)]
struct Cut {
    conv: Conv2d,
    knobs: Knobs,
    lanes: i64,
    /// Output channels of a register tile.
    co_tile: i64,
    /// Tiles of output channels.
    co_tiles: i64,
    /// Tasks of an image with the same channels.
    row_tasks: i64,
}

impl Cut {
    fn new(conv: Conv2d, knobs: Knobs, lanes: i64) -> Cut {
        let co_tile = knobs.vectors * lanes;
        Cut { conv, knobs, lanes, co_tile, co_tiles: ceil_div(conv.co, co_tile), row_tasks: conv.oh() / knobs.oh_tile }
    }
}

/// The kernel, with weights as [`pack_weights::pack`] packs them.
fn kernel(workload: &Workload, cut: Cut) -> Kernel {
    let c = cut.conv;
    let mut b = KernelBuilder::new(workload.kernel_name());
    // Outputs and residuals as rows of all their pixels, which is how they lie in memory.
    let packed = pack_weights::shape(&c, cut.co_tile);
    let flat = [c.n, c.co, c.oh() * c.ow()];
    let params = Operands::shaped(&mut b, workload, |p| match p.role {
        Role::Weight => packed.to_vec(),
        _ if p.shape.len() == 4 && p.name != "x" => flat.to_vec(),
        _ => p.shape.clone(),
    });
    let parts = Parts { workload, cut, params };
    parts.tasks(&mut b);
    b.finish()
}

/// Where a task is.
struct Place {
    n: Expr,
    co_t: Expr,
    /// Its first output row.
    first: Expr,
}

struct Parts<'a> {
    workload: &'a Workload,
    cut: Cut,
    params: Operands,
}

impl Parts<'_> {
    fn tasks(&self, b: &mut KernelBuilder) {
        let Cut { conv: c, knobs: k, co_tile, co_tiles, row_tasks, .. } = self.cut;
        b.loop_("task", c.n * co_tiles * row_tasks, LoopKind::Parallel, |b, task| {
            let task = Expr::from(task);
            let place = Place {
                n: task.clone().floor_div(co_tiles * row_tasks),
                co_t: task.clone().floor_div(row_tasks).floor_mod(co_tiles),
                first: task.floor_mod(row_tasks) * k.oh_tile,
            };
            let out = b.alloc("out", DType::F32, &[k.oh_tile * c.ow(), co_tile], Scope::Local);
            let (whole, rest) = (k.oh_tile / k.rows, k.oh_tile % k.rows);
            if whole > 0 {
                b.for_("oh_t", whole, |b, t| self.tile_row(b, &place, out, &(t * k.rows), k.rows));
            }
            if rest > 0 {
                self.tile_row(b, &place, out, &Expr::Int(whole * k.rows), rest);
            }
            self.store(b, &place, out);
        });
    }

    /// Some rows of register tiles, from the task's row `from` on.
    fn tile_row(&self, b: &mut KernelBuilder, place: &Place, out: BufferId, from: &Expr, rows: i64) {
        let Cut { conv: c, knobs: k, .. } = self.cut;
        let (whole, rest) = (c.ow() / k.ow_tile, c.ow() % k.ow_tile);
        if whole > 0 {
            b.for_("ow_t", whole, |b, t| {
                self.register_tile(b, place, out, [from, &(t * k.ow_tile)], [rows, k.ow_tile]);
            });
        }
        if rest > 0 {
            self.register_tile(b, place, out, [from, &Expr::Int(whole * k.ow_tile)], [rows, rest]);
        }
    }

    /// The sums of rows x pixels x channels.
    fn register_tile(
        &self,
        b: &mut KernelBuilder,
        place: &Place,
        out: BufferId,
        [from, left]: [&Expr; 2],
        [rows, pixels]: [i64; 2],
    ) {
        let Cut { conv: c, co_tile, .. } = self.cut;
        let acc = b.alloc("acc", DType::F32, &[rows * pixels, co_tile], Scope::Register);
        for p in 0..rows * pixels {
            self.vectors(b, |b, co| b.store(acc, vec![p.into(), co], Expr::f32(0.0)));
        }
        let [vertical, horizontal] = dimensions(&c);
        // Where a tap of an output lies in the input, which may be outside.
        let at = |o: Expr, tap: Expr, [stride, dilation, before, _]: [i64; 4]| o * stride + tap * dilation - before;
        // Taps in one loop: cut into loops over rows and over columns, whose lengths are two and three, it would be copied out
        // by compilers, which then keep what neighbouring taps share and not the sums.
        b.nest(&[("ci", c.ci), ("tap", c.kh * c.kw)], |b, over| {
            let (kh, kw) = (Expr::from(over[1]).floor_div(c.kw), Expr::from(over[1]).floor_mod(c.kw));
            for row in 0..rows {
                let h = at(place.first.clone() + from.clone() + row, kh.clone(), vertical);
                b.if_(KernelBuilder::between(&h, 0, c.h), |b| {
                    for pixel in 0..pixels {
                        let column = at(left.clone() + pixel, kw.clone(), horizontal);
                        b.if_(KernelBuilder::between(&column, 0, c.w), |b| {
                            let input = vec![place.n.clone(), over[0].into(), h.clone(), column.clone()];
                            let weight = [&place.co_t, &over[0].into(), &kh, &kw];
                            self.add(b, acc, acc_place(row, pixel, pixels), &input, weight);
                        });
                    }
                });
            }
        });
        for row in 0..rows {
            for pixel in 0..pixels {
                self.vectors(b, |b, co| {
                    let sum = Expr::load(acc, vec![acc_place(row, pixel, pixels), co.clone()]);
                    let place = (from.clone() + row) * c.ow() + left.clone() + pixel;
                    b.store(out, vec![place, co], sum);
                });
            }
        }
    }

    /// Adds the products of one input to the sums of a pixel of the tile.
    fn add(&self, b: &mut KernelBuilder, acc: BufferId, pixel: Expr, input: &[Expr], weight: [&Expr; 4]) {
        let (x, w) = (self.params.at(0), self.params.at(1));
        self.vectors(b, |b, co| {
            let weight: Vec<Expr> = weight.into_iter().cloned().chain([co.clone()]).collect();
            // An update of a sum that was begun before: no tap is done by every pixel.
            b.push(Stmt::Reduce {
                buffer: acc,
                indices: vec![pixel, co],
                op: ReduceOp::Add,
                init: Expr::f32(0.0),
                value: Expr::load(x, input.to_vec()) * Expr::load(w, weight),
                over: vec![],
            });
        });
    }

    /// The task's rows with the epilogue, as far as there are channels.
    fn store(&self, b: &mut KernelBuilder, place: &Place, out: BufferId) {
        let Cut { conv: c, knobs: k, lanes, co_tile, co_tiles, .. } = self.cut;
        let padded = co_tiles * co_tile;
        b.for_("vector", k.vectors, |b, vector| {
            let first = place.co_t.clone() * co_tile + vector * lanes;
            if c.co >= lanes {
                let body = |b: &mut KernelBuilder| self.store_channels(b, place, out, vector, lanes);
                match padded > c.co {
                    true => b.if_((first.clone() + (lanes - 1)).lt(c.co), body),
                    false => body(b),
                }
            }
            let rest = c.co % lanes;
            if rest > 0 {
                let last = Expr::Int(c.co).le(first.clone() + (lanes - 1)).and((first + (rest - 1)).lt(c.co));
                b.if_(last, |b| self.store_channels(b, place, out, vector, rest));
            }
        });
    }

    /// Stores all pixels of so many channels: channels by pixels, in blocks that lowering turns by shuffles.
    fn store_channels(&self, b: &mut KernelBuilder, place: &Place, out: BufferId, vector: VarId, channels: i64) {
        let Cut { conv: c, knobs: k, lanes, co_tile, .. } = self.cut;
        let pixels = k.oh_tile * c.ow();
        let y = self.params.output();
        let block = |b: &mut KernelBuilder, first: Expr, pixels: i64| {
            b.loop_("co", channels, LoopKind::Unrolled, |b, co| {
                along_lanes(b, "pixel", pixels, |b, pixel| {
                    let from = first.clone() + pixel;
                    let sum = Expr::load(out, vec![from.clone(), vector * lanes + co]);
                    let channel = place.co_t.clone() * co_tile + vector * lanes + co;
                    let index = vec![place.n.clone(), channel.clone(), place.first.clone() * c.ow() + from];
                    let value = epilogue(self.workload, sum, &channel, &index, &self.params);
                    b.store(y, index, value);
                });
            });
        };
        let (whole, rest) = (pixels / lanes, pixels % lanes);
        if whole > 0 {
            b.for_("pixel_t", whole, |b, t| block(b, t * lanes, lanes));
        }
        if rest > 0 {
            block(b, Expr::Int(whole * lanes), rest);
        }
    }

    /// The vectors of channels of a register tile.
    fn vectors(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, Expr)) {
        let Cut { knobs: k, lanes, .. } = self.cut;
        b.loop_("vector", k.vectors, LoopKind::Unrolled, |b, vector| {
            along_lanes(b, "co", lanes, |b, co| body(b, vector * lanes + co));
        });
    }
}

/// Place of a pixel among the sums of a register tile.
fn acc_place(row: i64, pixel: i64, pixels: i64) -> Expr {
    Expr::Int(row * pixels + pixel)
}

/// A loop over the lanes of a vector.
fn along_lanes(b: &mut KernelBuilder, name: &str, extent: i64, body: impl FnOnce(&mut KernelBuilder, VarId)) {
    b.loop_(name, extent, if extent > 1 { LoopKind::Vectorized } else { LoopKind::Serial }, body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alike_tiles_are_counted_as_they_would_be_one_by_one() {
        // In the last one there are outputs without a tap between those with one.
        let dimensions =
            [[1, 1, 1, 14], [2, 1, 3, 224], [1, 2, 2, 9], [3, 1, 0, 50], [1, 1, 6, 5], [2, 3, 9, 40], [1, 40, 90, 3]];
        for (taps, [stride, dilation, before, size]) in [1, 2, 3, 7].iter().flat_map(|t| dimensions.map(|d| (*t, d))) {
            let outputs = (size + 2 * before - (taps - 1) * dilation - 1) / stride + 1;
            for tile in 1..=outputs.min(30) {
                let inside = |o: i64| {
                    let places = (0..taps).map(|k| o * stride + k * dilation - before);
                    places.filter(|p| (0..size).contains(p)).count() as i64
                };
                let mut one_by_one: Vec<i64> = (0..outputs)
                    .step_by(tile as usize)
                    .map(|first| (first..outputs.min(first + tile)).map(inside).sum())
                    .collect();
                let tiles = tiles_by_taps(outputs, tile, taps, [stride, dilation, before, size]);
                let mut counted: Vec<i64> = tiles.iter().flat_map(|(t, n)| vec![*t; *n as usize]).collect();
                one_by_one.sort_unstable();
                counted.sort_unstable();
                assert_eq!(counted, one_by_one, "{taps} taps, {stride} {dilation} {before} {size}, tiles of {tile}");
            }
        }
        // The cost of a large image is that of its edges, and that of a large padding that of the image.
        assert!(tiles_by_taps(1 << 20, 4, 3, [1, 1, 1, 1 << 20]).len() <= 4);
        assert_eq!(tiles_by_taps(1 << 40, 4, 1, [1, 1, 1 << 39, 1]), [(0, 1 << 37), (1, 1), (0, (1 << 37) - 1)]);
    }
}
