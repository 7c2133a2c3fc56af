//! Convolutions of integers of eight bits with 3x3 taps by Winograd's minimal filtering, exactly.
//!
//! `F(2 x 2, 3 x 3)` (Lavin and Gray 2016) makes four outputs from 16 inputs with 16 products, where the definition has 36. Its matrices
//! have whole numbers if those of the weights are doubled: `y = A^T [(2G) g (2G)^T * B^T d B] A / 4`. Transformed inputs are below
//! 4 * 255 and transformed weights below 9 * 255 in size, so both fit 16 bits, and the division leaves no rest. Sums wrap around at 32
//! bits, which does not matter where four times the result fits.
//!
//! ```text
//! weights   [tile of co][place][word][channel of the tile], once; behind the words of a tile the sum of each channel's weights
//! x_words   the input in words of two integers, padding included
//! for task (image, block of tile rows, group of tiles of channels):
//!   data[place, tile, word]        = B^T d B of each tile
//!   for co_t of the group:
//!     products[place, tile, co]    = sum of dot(data, weights) over the words
//!     y                            = epilogue(A^T products A / 4 - zero point * sum of the weights)
//! ```
//! Where an instruction adds up four products of bytes, it takes half of what pairs of 16 bits take, and this has nothing to offer.

use super::input::{Input, int, operands, word};
use super::kernel::fetch_ahead;
use super::level::{fits, words};
use super::problem::{Channels, Problem, Words};
use crate::integer::{ceil_div, round_up};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Access, BinOp, BufferId, DType, Expr, Kernel, LoopKind, Scope, VarId};
use crate::schedule::Schedule;
use crate::space::{Config, ConfigError, Space};
use crate::target::{Cpu, Target};
use crate::templates::cpu::tile::{
    MAX_VECTORS, RegisterTile, cover_cycles, cycles_to_us, even_tiles, is_even_tile, worth_trying,
};
use crate::templates::{Pack, Scheduled, Template, TemplateError};
use crate::workload::epilogue::StepOperand;
use crate::workload::naive::epilogue_from;
use crate::workload::operands::Operands;
use crate::workload::{Op, WeightZero, Workload};

/// See the module's text. Knobs: `tile_rows` rows of tiles of a block, `rows` tiles and `vectors` of output channels of a register tile,
/// `groups` tasks that share a block, each with its part of the output channels.
pub struct WinogradIntegers;

/// Outputs of a tile in each dimension.
const OUTPUTS: i64 = 2;

/// Inputs of a tile in each dimension.
const INPUTS: i64 = 4;

/// Products of a tile for each pair of channels.
const PLACES: i64 = INPUTS * INPUTS;

/// `2 G`.
const WEIGHT: [[i64; 3]; 4] = [[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]];

/// `B^T`.
const INPUT: [[i64; 4]; 4] = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]];

/// `A^T`.
const OUTPUT: [[i64; 4]; 2] = [[1, 1, 1, 0], [0, 1, -1, -1]];

/// What the doubled matrices make of a product.
const SCALE: i64 = 4;

/// Numbers of tasks that share a block.
const GROUPS: [i64; 5] = [1, 2, 4, 8, 16];

/// Most tiles of a register tile.
const MAX_ROWS: i64 = 14;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Problem, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    if words(w.dtype, cpu) != Words::Pairs {
        return Err("for levels without an instruction that adds up four products".into());
    }
    let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
    if [c.kh, c.kw] != [3, 3] || c.stride != [1, 1] || c.dilation != [1, 1] || c.groups != 1 {
        return Err("for 3x3 taps with stride 1, neither dilated nor in groups".into());
    }
    let mut p = Problem::of_taps(w, Words::Pairs)?;
    if p.x != Channels::Last {
        return Err("for NHWC".into());
    }
    if w.quant.weight_zero != WeightZero::None {
        return Err("for weights without zero points".into());
    }
    let largest = if w.quant.weight == DType::U8 { 255 } else { 128 };
    if c.ci.checked_mul(9 * 255 * largest * SCALE).is_none_or(|sum| sum > i64::from(i32::MAX)) {
        return Err("for sums a quarter of which an i32 holds".into());
    }
    // The last tiles of a row and a column may reach further than the image.
    p.padding[2] += p.oh % OUTPUTS;
    p.padding[3] += p.ow % OUTPUTS;
    Ok((p, cpu))
}

/// How the work is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sizes {
    tile_rows: i64,
    rows: i64,
    vectors: i64,
    groups: i64,
    /// Lanes of a vector.
    lanes: i64,
}

impl Sizes {
    fn of(config: &Config, cpu: &Cpu) -> Result<Sizes, ConfigError> {
        let [tile_rows, rows, vectors, groups] =
            ["tile_rows", "rows", "vectors", "groups"].map(|knob| config.int(knob));
        Ok(Sizes { tile_rows: tile_rows?, rows: rows?, vectors: vectors?, groups: groups?, lanes: cpu.f32_lanes() })
    }

    fn config(self) -> Config {
        Config::new()
            .with("tile_rows", self.tile_rows)
            .with("rows", self.rows)
            .with("vectors", self.vectors)
            .with("groups", self.groups)
    }

    fn channels(self) -> i64 {
        self.vectors * self.lanes
    }
}

/// A problem cut that way.
#[derive(Clone, Copy)]
struct Cut<'a> {
    p: &'a Problem,
    sizes: Sizes,
}

impl Cut<'_> {
    /// Rows and columns of tiles of an image.
    fn grid(&self) -> [i64; 2] {
        [self.p.oh, self.p.ow].map(|outputs| ceil_div(outputs, OUTPUTS))
    }

    /// Blocks of tile rows of an image.
    fn blocks(&self) -> i64 {
        ceil_div(self.grid()[0], self.sizes.tile_rows)
    }

    /// Tiles of a block.
    fn tiles(&self) -> i64 {
        self.sizes.tile_rows * self.grid()[1]
    }

    fn co_tiles(&self) -> i64 {
        ceil_div(self.p.co, self.sizes.channels())
    }

    /// Shape of the transformed weights, in words: tiles of channels, words of all places and one more, channels.
    fn packed_shape(&self) -> [i64; 3] {
        [self.co_tiles(), PLACES * self.p.words() + 1, self.sizes.channels()]
    }

    /// Whether the space has it.
    fn is_offered(&self, cpu: &Cpu) -> bool {
        let Sizes { tile_rows, rows, vectors, groups, .. } = self.sizes;
        is_even_tile(self.grid()[0], tile_rows)
            && is_even_tile(self.tiles(), rows)
            && self.co_tiles() % groups == 0
            && fits(RegisterTile { rows, vectors }, Words::Pairs, cpu)
    }

    /// Cycles of one core.
    fn cycles(&self, cpu: &Cpu) -> f64 {
        let (p, sizes) = (self.p, self.sizes);
        let (blocks, tiles) = ((p.n * self.blocks()) as f64, self.tiles() as f64);
        let (words, channels) = (p.words() as f64, (self.co_tiles() * sizes.channels()) as f64);
        let lanes = sizes.lanes as f64;
        // Cycles for a vector that comes from the cache where so many bytes live, beyond those of a load.
        let wait = |bytes: f64| match bytes {
            b if b <= cpu.l1_bytes as f64 * 0.75 => 0.0,
            b if b <= cpu.l2_bytes as f64 * 0.75 => 0.5,
            _ => 1.5,
        };
        let tile = RegisterTile { rows: sizes.rows, vectors: sizes.vectors };
        let sums = blocks * PLACES as f64 * words * cover_cycles(self.tiles(), p.co, tile, cpu);
        let began = blocks * PLACES as f64 * (self.co_tiles() * ceil_div(self.tiles(), sizes.rows)) as f64 * 30.0;
        // The weights of a block come once, those of a place stay for its tiles; the data is read again for each tile of channels.
        let all_weights = PLACES as f64 * words * channels * 4.0;
        let weights = blocks * all_weights / (4.0 * lanes) * wait(all_weights);
        let data_bytes = PLACES as f64 * tiles * words * 4.0;
        let data = blocks * self.co_tiles() as f64 * data_bytes / (4.0 * lanes) * wait(data_bytes);
        let inputs = blocks * sizes.groups as f64 * tiles * words / lanes * PLACES as f64 * (2.5 + wait(data_bytes));
        let outputs = blocks * tiles * channels / lanes * (PLACES as f64 * 2.0 + 4.0 * 6.0);
        let packed = (p.packed_shape().iter().product::<i64>() as f64) / lanes * 2.0;
        sums + began + weights + data + inputs + outputs + packed
    }
}

impl Template for WinogradIntegers {
    fn name(&self) -> &str {
        "winograd_integers"
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
        let cpu = cpu.clone();
        let grid = [p.oh, p.ow].map(|outputs| ceil_div(outputs, OUTPUTS));
        Ok(Space::builder()
            .knob("tile_rows", worth_trying(even_tiles(grid[0], i64::MAX)))
            .knob("rows", 1..=MAX_ROWS.min(grid[0] * grid[1]))
            .knob("vectors", 1..=ceil_div(p.co, cpu.f32_lanes()).min(MAX_VECTORS))
            .knob("groups", GROUPS)
            .filter("blocks, register tiles and groups cut evenly, sums fit the vector registers", move |config| {
                Sizes::of(config, &cpu).is_ok_and(|sizes| Cut { p: &p, sizes }.is_offered(&cpu))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (p, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let lanes = cpu.f32_lanes();
        let mut best: Option<(f64, Sizes)> = None;
        for tile_rows in worth_trying(even_tiles(ceil_div(p.oh, OUTPUTS), i64::MAX)) {
            for vectors in 1..=ceil_div(p.co, lanes).min(MAX_VECTORS) {
                let of = |rows, groups| Sizes { tile_rows, rows, vectors, groups, lanes };
                let tiles = Cut { p: &p, sizes: of(1, 1) }.tiles();
                for rows in even_tiles(tiles, MAX_ROWS) {
                    for sizes in GROUPS.map(|groups| of(rows, groups)) {
                        let cut = Cut { p: &p, sizes };
                        if !cut.is_offered(cpu) {
                            continue;
                        }
                        // Two threads should find as much to do.
                        let tasks = p.n * cut.blocks() * sizes.groups;
                        let cycles = cut.cycles(cpu) * (round_up(tasks, 2) as f64 / tasks as f64).sqrt();
                        if best.is_none_or(|(least, _)| cycles < least) {
                            best = Some((cycles, sizes));
                        }
                    }
                }
            }
        }
        best.map(|(_, sizes)| sizes.config()).ok_or_else(|| TemplateError::Limit("no register tile fits".into()))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        let Ok((p, cpu)) = problem(w, t) else { return f64::INFINITY };
        Sizes::of(config, cpu).map_or(f64::INFINITY, |sizes| cycles_to_us(Cut { p: &p, sizes }.cycles(cpu), cpu))
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (p, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        self.space(w, t)?.index_of(config)?;
        let cut = Cut { p: &p, sizes: Sizes::of(config, cpu)? };
        let packs = vec![Pack { param: "w".into(), kernel: pack(w, &cut) }];
        Ok(Scheduled { schedule: Schedule::new(build(w, cut)), packs })
    }
}

/// `sum c_i x_i` for coefficients of one or two, the first term without a minus.
fn combination<const N: usize>(row: &[i64; N], terms: &[Expr]) -> Expr {
    let mut terms: Vec<(i64, &Expr)> = row.iter().copied().zip(terms).filter(|(c, _)| *c != 0).collect();
    terms.sort_by_key(|(c, _)| *c < 0);
    let scaled = |(c, x): (i64, &Expr)| if c.abs() == 1 { x.clone() } else { x.clone() + x.clone() };
    terms
        .into_iter()
        .map(|term| (term.0 < 0, scaled(term)))
        .fold(None, |sum, (minus, term)| match sum {
            None => Some(term),
            Some(sum) if minus => Some(sum - term),
            Some(sum) => Some(sum + term),
        })
        .expect("a row of the matrices has a term")
}

/// The kernel that transforms the weights.
fn pack(w: &Workload, cut: &Cut<'_>) -> Kernel {
    let (p, shape) = (cut.p, cut.packed_shape());
    let mut b = KernelBuilder::new(format!("{}_pack_w", w.kernel_name()));
    let from = b.param("w", w.quant.weight, &[3, 3, p.ci, p.co], Access::Read);
    let to = b.param("packed", DType::I16x2, &shape, Access::Write);
    let width = cut.sizes.channels();
    b.loop_("tile", shape[0], LoopKind::Parallel, |b, of| {
        b.for_("lane", width, |b, lane| {
            let channel = Expr::from(b.let_("channel", of * width + lane));
            let total = b.alloc("total", DType::I32, &[1], Scope::Register);
            b.store(total, [Expr::Int(0)], int(0));
            b.for_("word", p.words(), |b, q| {
                let taps = b.alloc("taps", DType::I32, &[2, 9], Scope::Register);
                let half = b.alloc("half", DType::I32, &[2, 12], Scope::Register);
                let at = |buffer: BufferId, i: i64, place: usize| {
                    Expr::load(buffer, vec![Expr::Int(i), Expr::Int(place as i64)])
                };
                for i in [0, 1] {
                    let ci = p.channel(q.into(), i);
                    let inside = [
                        (p.co % width != 0).then(|| channel.clone().lt(p.co)),
                        (p.ci % 2 != 0 && i == 1).then(|| ci.clone().lt(p.ci)),
                    ];
                    let inside = Expr::all(inside.into_iter().flatten());
                    for tap in 0..9 {
                        let index = vec![Expr::Int(tap / 3), Expr::Int(tap % 3), ci.clone(), channel.clone()];
                        let value = Expr::load(from, index).cast(DType::I32);
                        let value = match &inside {
                            Some(inside) => inside.clone().select(value, int(0)),
                            None => value,
                        };
                        b.store(taps, [Expr::Int(i), Expr::Int(tap)], value);
                        let sum = Expr::load(total, vec![Expr::Int(0)]) + at(taps, i, tap as usize);
                        b.store(total, [Expr::Int(0)], sum);
                    }
                    for (row, matrix) in WEIGHT.iter().enumerate() {
                        for column in 0..3 {
                            let terms = [0, 1, 2].map(|tap| at(taps, i, tap * 3 + column));
                            let place = Expr::Int((row * 3 + column) as i64);
                            b.store(half, [Expr::Int(i), place], combination(matrix, &terms));
                        }
                    }
                }
                for row in 0..4 {
                    for (column, matrix) in WEIGHT.iter().enumerate() {
                        let value = |i: i64| combination(matrix, &[0, 1, 2].map(|tap| at(half, i, row * 3 + tap)));
                        let place = Expr::Int((row * 4 + column) as i64 * p.words()) + q;
                        b.store(to, [of.into(), place, lane.into()], word(DType::I16x2, vec![value(0), value(1)]));
                    }
                }
            });
            let sum = Expr::load(total, vec![Expr::Int(0)]).cast(DType::I16x2);
            b.store(to, [of.into(), Expr::Int(shape[1] - 1), lane.into()], sum);
        });
    });
    b.finish()
}

/// The kernel.
fn build(w: &Workload, cut: Cut<'_>) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let mut p = *cut.p;
    p.padding[2] += OUTPUTS * (cut.blocks() * cut.sizes.tile_rows - cut.grid()[0]);
    let p = &p;
    let params = operands(&mut b, w, p, &p.x_shape(), &cut.packed_shape());
    let input = Input { p, params: &params, lanes: cut.sizes.lanes };
    let x = input.pack(&mut b, false);
    Build { w, cut, params: &params, input }.tasks(&mut b, x);
    b.finish()
}

struct Build<'a> {
    w: &'a Workload,
    cut: Cut<'a>,
    params: &'a Operands,
    input: Input<'a>,
}

impl Build<'_> {
    fn tasks(&self, b: &mut KernelBuilder, x: BufferId) {
        let (cut, Sizes { tile_rows, groups, .. }) = (self.cut, self.cut.sizes);
        let ([grid_rows, across], blocks) = (cut.grid(), cut.blocks());
        b.loop_("task", cut.p.n * blocks * groups, LoopKind::Parallel, |b, task| {
            let image = Expr::from(b.let_("image", Expr::from(task).floor_div(blocks * groups)));
            let block = Expr::from(task).floor_div(groups).floor_mod(blocks);
            let first = Expr::from(b.let_("first_row", block * tile_rows));
            let data = b.alloc("data", DType::I16x2, &[PLACES, cut.tiles(), cut.p.words()], Scope::Local);
            // Rows of the last block beyond the grid have inputs, which are padding, and no outputs.
            let each_tile = |b: &mut KernelBuilder, all: bool, body: &dyn Fn(&mut KernelBuilder, [Expr; 2], Expr)| {
                b.for_("tile_row", tile_rows, |b, th| {
                    let row = Expr::from(b.let_("row", first.clone() + th));
                    b.when((!all && grid_rows % tile_rows != 0).then(|| row.clone().lt(grid_rows)), |b| {
                        b.for_("tile_column", across, |b, tw| body(b, [row.clone(), tw.into()], th * across + tw));
                    });
                });
            };
            each_tile(b, true, &|b, at, tile| self.transform_input(b, [x, data], &image, &at, &tile));
            let of_group = cut.co_tiles() / groups;
            b.for_("co_t", of_group, |b, co_t| {
                let co_t = Expr::from(b.let_("channels", Expr::from(task).floor_mod(groups) * of_group + co_t));
                let shape = [PLACES, cut.tiles(), cut.sizes.channels()];
                let products = b.alloc("products", DType::I32, &shape, Scope::Local);
                self.products(b, [data, products], &co_t);
                each_tile(b, false, &|b, at, tile| self.transform_output(b, products, &image, &co_t, &at, &tile));
            });
        });
    }

    /// `data = B^T d B` for all words of a tile.
    fn transform_input(
        &self,
        b: &mut KernelBuilder,
        [x, data]: [BufferId; 2],
        image: &Expr,
        [row, column]: &[Expr; 2],
        tile: &Expr,
    ) {
        let lanes = self.cut.sizes.lanes;
        let half = b.alloc("half", DType::I16x2, &[PLACES, lanes], Scope::Register);
        self.input.each_vector_of_row(b, self.cut.p.words(), |b, word, lane| {
            for i in 0..INPUTS {
                for j in 0..INPUTS {
                    let terms = [0, 1, 2, 3].map(|r| {
                        let at = [(row, r), (column, j)].map(|(first, i)| first.clone() * OUTPUTS + i);
                        let [h, w] = at;
                        Expr::load(x, vec![image.clone(), h, w, word.clone()])
                    });
                    let at = vec![Expr::Int(i * INPUTS + j), lane.clone()];
                    b.store(half, at, combination(&INPUT[i as usize], &terms));
                }
            }
            for i in 0..INPUTS {
                let terms = [0, 1, 2, 3].map(|j| Expr::load(half, vec![Expr::Int(i * INPUTS + j), lane.clone()]));
                for (j, matrix) in INPUT.iter().enumerate() {
                    let place = Expr::Int(i * INPUTS + j as i64);
                    b.store(data, [place, tile.clone(), word.clone()], combination(matrix, &terms));
                }
            }
        });
    }

    /// The products of all places of a block with a tile of channels.
    fn products(&self, b: &mut KernelBuilder, [data, products]: [BufferId; 2], co_t: &Expr) {
        let (cut, Sizes { rows, .. }) = (self.cut, self.cut.sizes);
        b.for_("place", PLACES, |b, place| {
            let (whole, rest) = (cut.tiles() / rows, cut.tiles() % rows);
            if whole > 0 {
                b.for_("tiles", whole, |b, at| {
                    self.register_tile(b, [data, products], co_t, place, &(at * rows), rows);
                });
            }
            if rest > 0 {
                self.register_tile(b, [data, products], co_t, place, &Expr::Int(whole * rows), rest);
            }
        });
    }

    fn register_tile(
        &self,
        b: &mut KernelBuilder,
        [data, products]: [BufferId; 2],
        co_t: &Expr,
        place: VarId,
        first: &Expr,
        rows: i64,
    ) {
        let (words, weights) = (self.cut.p.words(), self.params.at(1));
        let sums = b.alloc("sums", DType::I32, &[rows, self.cut.sizes.channels()], Scope::Register);
        self.each_sum(b, rows, |b, r, c| b.store(sums, [r.into(), c], int(0)));
        b.for_fetching("word", words, fetch_ahead(self.cut.sizes.channels()), |b, q| {
            self.each_sum(b, rows, |b, r, c| {
                let value = Expr::load(data, vec![place.into(), first.clone() + r, q.into()]);
                let weight = Expr::load(weights, vec![co_t.clone(), place * words + q, c.clone()]);
                let at = vec![r.into(), c];
                b.store(sums, at.clone(), Expr::load(sums, at) + value.dot(weight));
            });
        });
        self.each_sum(b, rows, |b, r, c| {
            let sum = Expr::load(sums, vec![r.into(), c.clone()]);
            b.store(products, [place.into(), first.clone() + r, c], sum);
        });
    }

    fn each_sum(&self, b: &mut KernelBuilder, rows: i64, body: impl Fn(&mut KernelBuilder, VarId, Expr)) {
        let Sizes { vectors, lanes, .. } = self.cut.sizes;
        b.loop_("row", rows, LoopKind::Unrolled, |b, row| {
            b.loop_("vector", vectors, LoopKind::Unrolled, |b, vector| {
                b.loop_("lane", lanes, LoopKind::Vectorized, |b, lane| body(b, row, vector * lanes + lane));
            });
        });
    }

    /// The outputs of a tile.
    fn transform_output(
        &self,
        b: &mut KernelBuilder,
        products: BufferId,
        image: &Expr,
        co_t: &Expr,
        [row, column]: &[Expr; 2],
        tile: &Expr,
    ) {
        let (p, sizes) = (self.cut.p, self.cut.sizes);
        let (width, lanes) = (sizes.channels(), sizes.lanes);
        // A row or a column of outputs alone has no second one, and no need of what only that is made of.
        let [rows, columns] = [p.oh, p.ow].map(|outputs| outputs.min(OUTPUTS));
        let matrices = |count: i64| (0..count).zip(&OUTPUT);
        let is_used = |j: i64| matrices(columns).any(|(_, matrix)| matrix[j as usize] != 0);
        let vector = |b: &mut KernelBuilder, vector: VarId, count: i64| {
            let half = b.alloc("half", DType::I32, &[OUTPUTS * INPUTS, lanes], Scope::Register);
            let sums = b.alloc("sums", DType::I32, &[OUTPUTS * OUTPUTS, lanes], Scope::Register);
            let each_lane = |b: &mut KernelBuilder, body: &dyn Fn(&mut KernelBuilder, Expr, Expr)| {
                let kind = if count > 1 { LoopKind::Vectorized } else { LoopKind::Serial };
                b.loop_("lane", count, kind, |b, lane| body(b, lane.into(), vector * lanes + lane));
            };
            each_lane(b, &|b, lane, c| {
                for j in (0..INPUTS).filter(|j| is_used(*j)) {
                    let terms = [0, 1, 2, 3]
                        .map(|i| Expr::load(products, vec![Expr::Int(i * INPUTS + j), tile.clone(), c.clone()]));
                    for (i, matrix) in matrices(rows) {
                        let at = vec![Expr::Int(i * INPUTS + j), lane.clone()];
                        b.store(half, at, combination(matrix, &terms));
                    }
                }
                for i in 0..rows {
                    let terms = [0, 1, 2, 3].map(|j| Expr::load(half, vec![Expr::Int(i * INPUTS + j), lane.clone()]));
                    for (j, matrix) in matrices(columns) {
                        let at = vec![Expr::Int(i * OUTPUTS + j), lane.clone()];
                        b.store(sums, at, Expr::bin(BinOp::Div, combination(matrix, &terms), int(SCALE)));
                    }
                }
            });
            for i in 0..rows {
                for j in 0..columns {
                    let [oh, ow] = [(row, i), (column, j)].map(|(first, i)| first.clone() * OUTPUTS + i);
                    let inside = [
                        (i > 0 && p.oh % OUTPUTS != 0).then(|| oh.clone().lt(p.oh)),
                        (j > 0 && p.ow % OUTPUTS != 0).then(|| ow.clone().lt(p.ow)),
                    ];
                    b.when(Expr::all(inside.into_iter().flatten()), |b| {
                        each_lane(b, &|b, lane, c| {
                            let at = vec![Expr::Int(i * OUTPUTS + j), lane];
                            let sum = Expr::load(sums, at) - self.of_zero(co_t, &c);
                            let channel = co_t.clone() * width + c;
                            let index = vec![image.clone(), oh.clone() * p.ow + ow.clone(), channel.clone()];
                            let read = |operand: &StepOperand| self.params.read(self.w, operand, &channel, &index);
                            let value = epilogue_from(0, self.w, sum, &index, &read);
                            b.store(self.params.output(), index, value);
                        });
                    });
                }
            }
        };
        b.for_("vector", sizes.vectors, |b, v| {
            let first = co_t.clone() * width + v * lanes;
            let (whole, rest) = (p.co / lanes, p.co % lanes);
            // All vectors are whole, or some of the last tile are not, or not there.
            match (p.co % width, whole, rest) {
                (0, ..) => vector(b, v, lanes),
                (_, 0, rest) => b.if_(first.lt(rest), |b| vector(b, v, rest)),
                (_, whole, rest) => {
                    b.if_(first.clone().lt(whole * lanes), |b| vector(b, v, lanes));
                    if rest > 0 {
                        b.if_(first.eq(whole * lanes), |b| vector(b, v, rest));
                    }
                }
            }
        });
    }

    /// What the zero point of the input adds to the sums of a channel.
    fn of_zero(&self, co_t: &Expr, c: &Expr) -> Expr {
        match self.input.zero() {
            Some(zero) => {
                let last = Expr::Int(self.cut.packed_shape()[1] - 1);
                Expr::load(self.params.at(1), vec![co_t.clone(), last, c.clone()]).cast(DType::I32) * zero
            }
            None => int(0),
        }
    }
}
