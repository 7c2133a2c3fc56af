//! Products and convolutions of integers of eight bits whose sums are tiles of registers (AMX).
//!
//! ```text
//! weights   words of input channels, as `integers_cpu` has them
//! x_words   the words of an image as one run, padding included: what stands for 0 outside
//! for task (set, tile of co, image, run of pixels, block of it):
//!   for tile of pixels:
//!     sums[i][j]   tiles of 16 pixels by 16 channels: words of pixels * words of channels, up to 16 words at a time
//!     y[..]        = epilogue(sums - zero point * sum of the weights)
//! ```
//! `tdpbusd` and its like multiply 16 rows of 16 words by 16 words of 16 columns in as many cycles, sixteen times what `vpdpbusd` does in
//! one; with fewer rows or words it takes the larger number of the two, and never less than nine (measured on a Xeon). The rows of
//! a tile are the same number of bytes apart, so neighbours of an output row are one, and with a stride of 1 a whole image is: where
//! a tile goes beyond the end of an output row it computes what nobody wants, sums across the padding. Neighbouring columns of taps
//! are one run of words, so a step has 16 words also where a pixel has few.
//!
//! The kernel is said in the IR as any other, sums of products of words in register buffers. The C emitter sees that such a buffer
//! is only set to zero, added to by products of tiles, and copied: `emit/c/matrix.rs`.

use super::input::{Input, operands};
use super::kernel::{Build, Task, Tiles};
use super::level::WANTED_TASKS;
use super::problem::{Channels, Problem, Words};
use crate::integer::ceil_div;
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Kernel, LoopKind, Scope};
use crate::schedule::Schedule;
use crate::space::{Config, ConfigError, Space};
use crate::target::{Cpu, Target};
use crate::templates::cpu::tile::{cycles_to_us, even_tiles, worth_trying};
use crate::templates::{Pack, Scheduled, Template, TemplateError};
use crate::workload::Workload;
use crate::workload::epilogue::Per;

/// See the module's text. Knobs: `rows` pixels of a tile of registers; `down` such tiles and `vectors` of output channels that are summed up
/// at once; `block` of these of a task; `run` whether tiles go on from one row of outputs to the next, in an `image`, or end
/// with the `row`.
pub struct IntegersTiles;

/// Rows of a tile, and words of one.
const SIDE: i64 = 16;

/// Tiles that there are.
const TILES: i64 = 8;

/// Tiles that sums may take: the others are for operands.
const MOST_SUMS: i64 = TILES - 2;

/// Places of an image that is one run, at most: where rows of outputs are long, tiles of equal parts of one lose nothing, and that
/// each output is written once is shown by trying all places.
const MOST_PLACES: i64 = 1024;

/// Least cycles of a product of tiles.
const LEAST_CYCLES: i64 = 9;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Problem, &'a Cpu), String> {
    let cpu =
        t.cpu().filter(|cpu| cpu.features.iter().any(|f| f == "amx-int8")).ok_or("for CPUs with tiles of bytes")?;
    let p = Problem::of(w, Words::Bytes(w.dtype))?;
    if p.x != Channels::Last {
        return Err("for inputs whose channels are neighbours".into());
    }
    if p.sums_inputs() {
        return Err("for weights without zero points".into());
    }
    Ok((p, cpu))
}

/// How the pixels of an image are cut into runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Run {
    /// All outputs, and what lies between their rows.
    Image,
    /// A row of outputs.
    Row,
}

impl Run {
    /// The runs that a problem can have.
    fn of(p: &Problem) -> Vec<Run> {
        let [_, places] = Run::Image.extents(p);
        if p.oh > 1 && p.stride == [1, 1] && places <= MOST_PLACES {
            vec![Run::Image, Run::Row]
        } else {
            vec![Run::Row]
        }
    }

    fn name(self) -> &'static str {
        match self {
            Run::Image => "image",
            Run::Row => "row",
        }
    }

    /// Runs of an image, and places of one.
    fn extents(self, p: &Problem) -> [i64; 2] {
        match self {
            Run::Image => [1, (p.oh - 1) * p.padded()[1] + p.ow],
            Run::Row => [p.oh, p.ow],
        }
    }
}

/// How the outputs are cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    run: Run,
    rows: i64,
    down: i64,
    vectors: i64,
    block: i64,
    lanes: i64,
}

impl Cut {
    fn of(config: &Config, cpu: &Cpu) -> Result<Cut, ConfigError> {
        let [rows, down, vectors, block] = ["rows", "down", "vectors", "block"].map(|knob| config.int(knob));
        let run = if config.str("run")? == Run::Image.name() { Run::Image } else { Run::Row };
        let lanes = cpu.f32_lanes();
        Ok(Cut { run, rows: rows?, down: down?, vectors: vectors?, block: block?, lanes })
    }

    /// Pixels that are summed up at once.
    fn pixels(&self) -> i64 {
        self.rows * self.down
    }

    /// Whether sums, and an operand of each shape beside them, have tiles: of the last pixels one tile may have fewer rows than the others.
    fn fits(&self, places: i64) -> bool {
        let rest = places % self.pixels();
        let shapes = if rest > self.rows && rest % self.rows != 0 { 2 } else { 1 };
        self.down * self.vectors <= MOST_SUMS && ceil_div(rest, self.rows) * self.vectors + shapes < TILES
    }

    /// Whether tasks end where runs do, which is to be seen at their numbers: blocks are equal parts of equal tiles, or one is the whole run
    /// or a tile. Where there is one run, the last task may go beyond it.
    fn ends_with_runs(&self, p: &Problem) -> bool {
        let [runs, places] = self.run.extents(p);
        let all = ceil_div(places, self.pixels());
        let equal = places % self.pixels() == 0 && all % self.block.min(all) == 0;
        runs == 1 || self.block == 1 || self.block >= all || equal
    }

    /// As the other kernels for integers have it.
    fn tiles(&self) -> Tiles {
        Tiles { rows: self.pixels(), vectors: self.vectors, block: self.block, lanes: self.lanes, ahead: false }
    }
}

/// The words that follow each other under the taps.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// Columns of taps that are visited one by one.
    columns: i64,
    /// Words of each.
    words: i64,
    /// Words of a step.
    step: i64,
}

impl Terms {
    fn of(p: &Problem) -> Terms {
        let neighbours = p.groups == 1 && p.dilation[1] == 1;
        let (columns, words) = if neighbours { (1, p.taps[1] * p.words()) } else { (p.taps[1], p.words()) };
        let step = (1..=SIDE.min(words)).rev().find(|n| words % n == 0).unwrap_or(1);
        Terms { columns, words, step }
    }
}

/// Cycles of one core.
fn cycles(p: &Problem, cpu: &Cpu, cut: &Cut) -> f64 {
    let terms = Terms::of(p);
    let [runs, places] = cut.run.extents(p);
    let (vectors, tiles) = (ceil_div(p.co, cut.lanes), ceil_div(places, cut.rows));
    let steps = p.taps[0] * terms.columns * (terms.words / terms.step);
    // An operand takes eight cycles to load. Those of the channels stay for all tiles of pixels if there is a register for each.
    let sums = cut.down * cut.vectors;
    let stay = TILES - sums > cut.vectors;
    let loads = 8.0 * (cut.down + cut.vectors * if stay { 1 } else { cut.down }) as f64 / sums as f64;
    let product = (cut.rows.max(terms.step).max(LEAST_CYCLES) as f64).max(loads);
    // Sums come into vectors by way of memory.
    let sum = steps as f64 * product + 24.0;
    let at_once = 60.0 * (ceil_div(tiles, cut.down) * ceil_div(vectors, cut.vectors)) as f64;
    let inputs = p.packed_shape().iter().product::<i64>() / p.n.max(1);
    let packed = if p.reads_in_place() { 0.0 } else { inputs as f64 / cpu.f32_lanes() as f64 * 2.0 };
    let outputs = (p.pixels() * vectors) as f64 * 6.0;
    let all = ceil_div(places, cut.pixels());
    let idle = (ceil_div(all, cut.block) * cut.block) as f64 / all as f64;
    let away = if p.block_bytes(cut.pixels() * cut.block) <= cpu.l2_bytes / 2 { 0.0 } else { 0.04 };
    let sums = runs as f64 * ((tiles * vectors) as f64 * sum + at_once);
    (p.n * p.groups) as f64 * (sums * (0.99 + 0.01 * idle + away) + outputs + packed)
}

impl Template for IntegersTiles {
    fn name(&self) -> &str {
        "integers_tiles"
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
        let (runs, registers) = (Run::of(&p), cpu.clone());
        let longest = runs.iter().map(|run| run.extents(&p)[1]).max().unwrap_or(1);
        Ok(Space::builder()
            .knob("rows", 1..=SIDE.min(longest))
            .knob("down", 1..=MOST_SUMS)
            .knob("vectors", 1..=MOST_SUMS.min(ceil_div(p.co, cpu.f32_lanes())))
            .knob("block", worth_trying(even_tiles(longest, i64::MAX)))
            .knob("run", runs.iter().map(|run| run.name()))
            .filter("sums and operands fit the tiles of registers, and tasks end with the rows of outputs", move |c| {
                Cut::of(c, &registers).is_ok_and(|cut| cut.fits(cut.run.extents(&p)[1]) && cut.ends_with_runs(&p))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (p, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let lanes = cpu.f32_lanes();
        let mut best: Option<(f64, Cut)> = None;
        for run in Run::of(&p) {
            let [_, places] = run.extents(&p);
            for rows in even_tiles(places, SIDE) {
                for (down, vectors) in [(2, 2), (1, 4), (4, 1), (3, 2), (2, 3), (1, 2), (2, 1), (1, 1)] {
                    if (vectors - 1) * lanes >= p.co || (down - 1) * rows >= places {
                        continue;
                    }
                    let cut = Cut { run, rows, down, vectors, block: 1, lanes };
                    let cycles = cycles(&p, cpu, &cut);
                    if cut.fits(places) && best.is_none_or(|(least, _)| cycles < 0.999 * least) {
                        best = Some((cycles, cut));
                    }
                }
            }
        }
        let (_, cut) = best.ok_or_else(|| TemplateError::Limit("a product of nothing".into()))?;
        let [runs, places] = cut.run.extents(&p);
        let all = ceil_div(places, cut.pixels());
        let others = p.n * p.groups * runs * ceil_div(p.co, cut.vectors * lanes);
        let wanted = ceil_div(all, ceil_div(WANTED_TASKS, others));
        // Of the blocks that leave enough tasks the largest whose inputs stay in the cache for all tiles of channels.
        let stays = |size: &i64| {
            *size <= wanted
                && p.block_bytes(cut.pixels() * size) <= cpu.l2_bytes / 2
                && Cut { block: *size, ..cut }.ends_with_runs(&p)
        };
        let longest = Run::of(&p).iter().map(|run| run.extents(&p)[1]).max().unwrap_or(1);
        let block = worth_trying(even_tiles(longest, i64::MAX)).into_iter().filter(stays).max().unwrap_or(1);
        let config = Config::new().with("rows", cut.rows).with("down", cut.down).with("vectors", cut.vectors);
        Ok(config.with("block", block).with("run", cut.run.name()))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match problem(w, t).map(|(p, cpu)| (p, cpu, Cut::of(config, cpu))) {
            Ok((p, cpu, Ok(cut))) => cycles_to_us(cycles(&p, cpu, &cut), cpu),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (p, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        self.space(w, t)?.index_of(config)?;
        let cut = Cut::of(config, cpu)?;
        let weights = w.params()[1].name.to_string();
        let packs = vec![Pack { param: weights, kernel: super::kernel::pack(w, &p, cut.vectors * cut.lanes) }];
        Ok(Scheduled { schedule: Schedule::new(build(w, &p, cut)), packs })
    }
}

/// The kernel.
fn build(w: &Workload, p: &Problem, cut: Cut) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let tiles = cut.tiles();
    let in_place = p.reads_in_place();
    let x_shape = if in_place { p.flat_shape() } else { p.x_shape() };
    let params = operands(&mut b, w, p, &x_shape, &p.packed_weights(tiles.channels()));
    let input = Input { p, params: &params, lanes: cut.lanes };
    let x = if in_place { params.at(0) } else { input.pack(&mut b, true) };
    let build = Tiled { of: Build { w, p, tiles, params: &params, input }, cut, terms: Terms::of(p), x };
    build.tasks(&mut b);
    b.finish()
}

struct Tiled<'a> {
    of: Build<'a>,
    cut: Cut,
    terms: Terms,
    /// The words of the input, each image's in one run.
    x: BufferId,
}

impl Tiled<'_> {
    fn tasks(&self, b: &mut KernelBuilder) {
        let (p, cut) = (self.of.p, self.cut);
        let [runs, places] = cut.run.extents(p);
        let images = if p.batched { 1 } else { p.n };
        let (all, channel_tiles) = (ceil_div(places, cut.pixels()), ceil_div(p.co, cut.vectors * cut.lanes));
        let blocks = ceil_div(all, cut.block);
        let parts = images * runs * blocks;
        let shares_pixels = self.of.shares_pixels(parts, channel_tiles);
        b.loop_("task", p.sets() * channel_tiles * parts, LoopKind::Parallel, |b, task| {
            let (mut task, part) = self.of.task(b, task, self.x, [channel_tiles, parts], shares_pixels, runs * blocks);
            // Compilers do not read before a condition what is read behind it.
            let operands = self.of.w.epilogue.iter().flat_map(|step| step.operands());
            for operand in operands.filter(|operand| operand.per == Per::Tensor) {
                let from = self.of.params.get(operand.name);
                let number = b.alloc(operand.name, b.dtype(from).compute(), &[1], Scope::Register);
                b.store(number, [Expr::Int(0)], Expr::load(from, vec![Expr::Int(0)]));
                task.scalars.push((operand.name, Expr::load(number, vec![Expr::Int(0)])));
            }
            let run = match runs {
                1 => Expr::Int(0),
                _ => Expr::from(b.let_("run", part.clone().floor_mod(runs * blocks).floor_div(blocks))),
            };
            let first = Expr::from(b.let_("first", part.floor_mod(blocks) * cut.block));
            b.for_("of_block", cut.block.min(all), |b, of| {
                let tile = Expr::from(b.let_("tile", first.clone() + of));
                let place = Place { task: &task, run: run.clone(), first: tile.clone() * cut.pixels() };
                let (whole, rest) = (places / cut.pixels(), places % cut.pixels());
                let body = |b: &mut KernelBuilder| match (whole, rest) {
                    (0, rest) => self.tile(b, &place, rest),
                    (_, 0) => self.tile(b, &place, cut.pixels()),
                    _ => b.if_else(
                        tile.clone().lt(whole),
                        |b| self.tile(b, &place, cut.pixels()),
                        |b| self.tile(b, &place, rest),
                    ),
                };
                b.when((all % cut.block.min(all) != 0).then(|| tile.clone().lt(all)), body);
            });
        });
    }

    /// The outputs of neighbouring places and a tile of channels.
    fn tile(&self, b: &mut KernelBuilder, place: &Place, count: i64) {
        let (lanes, vectors) = (self.cut.lanes, self.cut.vectors);
        let tiles: Vec<[i64; 2]> = (0..ceil_div(count, self.cut.rows))
            .map(|i| [i * self.cut.rows, self.cut.rows.min(count - i * self.cut.rows)])
            .collect();
        let all = || tiles.iter().flat_map(|tile| (0..vectors).map(move |vector| (*tile, vector)));
        let sums: Vec<BufferId> =
            all().map(|([_, rows], _)| b.alloc("sums", DType::I32, &[rows, lanes], Scope::Register)).collect();
        for (([_, rows], _), sums) in all().zip(&sums) {
            self.each(b, rows, |b, r, c| b.store(*sums, vec![r, c], super::input::int(0)));
        }
        self.terms(b, place, &mut all().zip(sums.iter().copied()).collect::<Vec<_>>());
        let out = b.alloc("out", DType::I32, &[count, vectors * lanes], Scope::Local);
        for (([first, rows], vector), sums) in all().zip(&sums) {
            self.each(b, rows, |b, r, c| {
                let sum = Expr::load(*sums, vec![r.clone(), c.clone()]);
                b.store(out, vec![r + first, c + vector * lanes], sum);
            });
        }
        self.finish(b, place, count, out);
    }

    /// Visits the elements of a tile, all of which are one instruction.
    fn each(&self, b: &mut KernelBuilder, rows: i64, body: impl Fn(&mut KernelBuilder, Expr, Expr)) {
        b.loop_("pixel", rows, LoopKind::Unrolled, |b, r| {
            b.loop_("lane", self.cut.lanes, LoopKind::Vectorized, |b, c| body(b, r.into(), c.into()));
        });
    }

    /// Adds all products.
    fn terms(&self, b: &mut KernelBuilder, place: &Place, sums: &mut [(([i64; 2], i64), BufferId)]) {
        let (p, Terms { columns, words, step }) = (self.of.p, self.terms);
        let Task { set, channel_tile, image, .. } = place.task;
        let (pitch, all_words) = (p.padded()[1], p.all_words());
        b.nest(&[("kh", p.taps[0]), ("kw", columns), ("step", words / step)], |b, v| {
            let [kh, kw] = [v[0], v[1]];
            let first = Expr::from(v[2]) * step;
            let row = place.run.clone() * p.stride[0] + kh * p.dilation[0];
            let mut under = (row * pitch + kw * p.dilation[1]) * all_words + first.clone();
            if p.groups > 1 {
                under = set.clone() * p.words() + under;
            }
            let term = (kh * p.taps[1] + kw) * p.words() + first;
            for (([first, rows], vector), sums) in sums.iter() {
                b.for_("word", step, |b, q| {
                    self.each(b, *rows, |b, r, c| {
                        let column = (place.first.clone() + (r.clone() + *first)) * (p.stride[1] * all_words);
                        let pixel = Expr::load(self.x, vec![image.clone(), column + under.clone() + q]);
                        let channel = c.clone() + vector * self.cut.lanes;
                        let index = vec![set.clone(), channel_tile.clone(), term.clone() + q, channel];
                        let weight = Expr::load(self.of.params.at(1), index);
                        let at = vec![r, c];
                        b.store(*sums, at.clone(), Expr::load(*sums, at) + pixel.dot(weight));
                    });
                });
            }
        });
    }

    /// Makes outputs of whole sums.
    fn finish(&self, b: &mut KernelBuilder, place: &Place, count: i64, out: BufferId) {
        let (p, width) = (self.of.p, self.cut.vectors * self.cut.lanes);
        let pitch = p.padded()[1];
        let rows = |b: &mut KernelBuilder, channels: i64| {
            let start = b.alloc("start", DType::I32, &[width], Scope::Register);
            self.of.each_vector(b, channels, |b, c, _| b.store(start, vec![c.clone()], self.of.first(place.task, &c)));
            b.for_("row", count, |b, row| {
                let at = place.first.clone() + row;
                let (condition, pixel) = match self.cut.run {
                    Run::Image if pitch != p.ow => {
                        let at = Expr::from(b.let_("at", at));
                        let column = Expr::from(b.let_("column", at.clone().floor_mod(pitch)));
                        (Some(column.clone().lt(p.ow)), at.floor_div(pitch) * p.ow + column)
                    }
                    _ => (None, place.run.clone() * p.ow + at),
                };
                b.when(condition, |b| {
                    self.of.each_vector(b, channels, |b, c, _| {
                        let sum = Expr::load(out, vec![row.into(), c.clone()]) + Expr::load(start, vec![c.clone()]);
                        self.of.output(b, place.task, &pixel, &c, sum);
                    });
                });
            });
        };
        let (whole, rest) = (p.co / width, p.co % width);
        match (whole, rest) {
            (0, rest) => rows(b, rest),
            (_, 0) => rows(b, width),
            _ => b.if_else(place.task.channel_tile.clone().lt(whole), |b| rows(b, width), |b| rows(b, rest)),
        }
    }
}

/// Where the outputs that are summed up at once lie.
struct Place<'a> {
    task: &'a Task,
    /// Which run of the image.
    run: Expr,
    /// The first place of the run.
    first: Expr,
}
