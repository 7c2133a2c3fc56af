//! Direct convolution in NCHW with pixels of a row along the lanes.
//!
//! Where few input channels are summed up, a convolution writes more than it computes, and turning tiles of channels into
//! rows of pixels costs as much as the sums ([`super::conv2d_direct`]). Here nothing is turned: a step of the reduction
//! loads vectors of neighbouring input pixels and broadcasts weights, and sums are stored as they are.
//!
//! A task copies the input rows that it needs with their padding. With stride s along a row, columns whose places are equal
//! modulo s are copied beside each other, so that the inputs of neighbouring outputs are neighbours. The weights are
//! packed as `[co / mr][ci][kh][kw][mr]`.

use super::pack_weights;
use super::tile::{MAX_VECTORS, RegisterTile, WANTED_TASKS, ceil_div, cycles_to_us, even_tiles};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Kernel, LoopKind, Scope, VarId};
use crate::schedule::Schedule;
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Pack, Scheduled, Template, TemplateError};
use crate::workload::naive::epilogue;
use crate::workload::operands::Operands;
use crate::workload::{Conv2d, ConvLayout, Op, Param, Role, Workload};

/// See the module's text. Knobs: `mr` output channels and `nv` vectors of pixels of the register tile, `oh_tile` output
/// rows of a task.
pub struct Conv2dPixels;

/// Most input channels: beyond, the other templates are ahead.
const MAX_INPUTS: i64 = 16;
/// Most output channels of a register tile.
const MAX_CHANNELS: i64 = 24;
/// Cycles that a step of the reduction costs beside its multiply-adds, and of a vector that is copied or stored.
const STEP: f64 = 0.4;
/// Most steps of a row of taps that are copied out where vector registers are few, so that nothing is counted beside the sums. On a
/// Zen 3, 3x3 over three channels takes 0.7 to 0.94 of the time then, the less the busier the core's other thread; 7x7 over three
/// takes 1.0 to 1.2.
const MOST_COPIED: i64 = 9;
const COPY: f64 = 6.0;
const STORE: f64 = 3.0;

/// A config, read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Knobs {
    mr: i64,
    vectors: i64,
    oh_tile: i64,
}

/// Whether the steps of a row of taps are copied out.
fn copied_out(c: &Conv2d, cpu: &Cpu) -> bool {
    cpu.vector_registers < 32 && c.ci * c.kw <= MOST_COPIED
}

impl Knobs {
    fn read(config: &Config) -> Result<Knobs, TemplateError> {
        Ok(Knobs { mr: config.int("mr")?, vectors: config.int("nv")?, oh_tile: config.int("oh_tile")? })
    }

    fn fits(self, cpu: &Cpu) -> bool {
        RegisterTile { rows: self.mr, vectors: self.vectors }.fits(cpu)
    }
}

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Conv2d, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
    if c.layout != ConvLayout::Nchw || c.groups != 1 {
        return Err("for NCHW without groups".into());
    }
    if c.ci > MAX_INPUTS {
        return Err(format!("for at most {MAX_INPUTS} input channels"));
    }
    if c.ow() < cpu.f32_lanes() {
        return Err("for rows of at least one vector".into());
    }
    if w.dtype != DType::F32 || w.out_dtype != DType::F32 {
        return Err("for f32".into());
    }
    Ok((c, cpu))
}

fn oh_tiles(c: &Conv2d) -> Vec<i64> {
    even_tiles(c.oh(), 16)
}

fn vectors(c: &Conv2d, cpu: &Cpu) -> Vec<i64> {
    even_tiles(ceil_div(c.ow(), cpu.f32_lanes()), MAX_VECTORS)
}

impl Template for Conv2dPixels {
    fn name(&self) -> &str {
        "conv2d_pixels"
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
            .knob("mr", even_tiles(c.co, MAX_CHANNELS))
            .knob("nv", vectors(&c, cpu))
            .knob("oh_tile", oh_tiles(&c))
            .filter("accumulators fit in the vector registers", move |config| {
                Knobs::read(config).is_ok_and(|k| k.fits(&registers))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let mut best: Option<((bool, f64), Knobs)> = None;
        for mr in even_tiles(c.co, MAX_CHANNELS) {
            for vectors in vectors(&c, cpu) {
                for oh_tile in oh_tiles(&c) {
                    let k = Knobs { mr, vectors, oh_tile };
                    let rank = (c.n * ceil_div(c.oh(), oh_tile) < WANTED_TASKS, estimate(&c, cpu, k));
                    if k.fits(cpu) && best.is_none_or(|(least, _)| rank < least) {
                        best = Some((rank, k));
                    }
                }
            }
        }
        let k = best.ok_or_else(|| TemplateError::Limit("no register tile fits".into()))?.1;
        Ok(Config::new().with("mr", k.mr).with("nv", k.vectors).with("oh_tile", k.oh_tile))
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
        if !knobs.fits(cpu) {
            return Err(TemplateError::Limit(format!("the sums of `{config}` do not fit in the vector registers")));
        }
        let cut = Cut { conv: c, knobs, lanes: cpu.f32_lanes(), copied_out: copied_out(&c, cpu) };
        let kernel = kernel(w, cut);
        let packs = vec![Pack { param: "w".into(), kernel: pack_weights::pack(w, &c, knobs.mr) }];
        Ok(Scheduled { schedule: Schedule::new(kernel), packs })
    }
}

/// Predicted microseconds on one core.
fn estimate(c: &Conv2d, cpu: &Cpu, k: Knobs) -> f64 {
    let lanes = cpu.f32_lanes();
    let across = ceil_div(c.ow(), lanes);
    // Most loads of a vector lie across two cache lines and count twice.
    let step = |channels: i64, vectors: i64| {
        let sums = (channels * vectors) as f64;
        let loads = (channels + 2 * vectors) as f64 / 2.0;
        let least = (sums / cpu.fma_units.max(1) as f64).max(loads).max(cpu.fma_latency as f64);
        if copied_out(c, cpu) {
            return least;
        }
        let beside = if cpu.vector_registers < 32 { 0.4 * loads / sums } else { 0.0 };
        least * (1.0 + beside) + STEP
    };
    let (whole, rest) = (c.co / k.mr, c.co % k.mr);
    let channels = |vectors: i64| whole as f64 * step(k.mr, vectors) + if rest > 0 { step(rest, vectors) } else { 0.0 };
    let (tiles, last) = (across / k.vectors, across % k.vectors);
    let row = tiles as f64 * channels(k.vectors) + if last > 0 { channels(last) } else { 0.0 };
    let rows = (c.n * c.oh()) as f64;
    let sums = rows * row * (c.ci * c.kh * c.kw) as f64;
    let stores = rows * (c.co * across) as f64 * STORE;
    let read = ((k.oh_tile - 1) * c.stride[0] + (c.kh - 1) * c.dilation[0] + 1) as f64 / k.oh_tile as f64;
    let copies = rows * read * (c.ci * ceil_div(c.w, lanes)) as f64 * COPY;
    cycles_to_us(sums + stores + copies, cpu)
}

/// A convolution cut by a config.
#[derive(Clone, Copy, Debug)]
struct Cut {
    conv: Conv2d,
    knobs: Knobs,
    lanes: i64,
    copied_out: bool,
}

impl Cut {
    /// Input rows of a task.
    fn rows(&self) -> i64 {
        let c = &self.conv;
        (self.knobs.oh_tile - 1) * c.stride[0] + (c.kh - 1) * c.dilation[0] + 1
    }

    /// Columns of each remainder: as far as whole vectors of outputs look.
    fn columns(&self) -> i64 {
        let c = &self.conv;
        ceil_div(c.ow(), self.lanes) * self.lanes + (c.kw - 1) * c.dilation[1] / c.stride[1]
    }
}

/// The kernel, with weights as [`pack_weights::pack`] packs them.
fn kernel(workload: &Workload, cut: Cut) -> Kernel {
    let packed = pack_weights::shape(&cut.conv, cut.knobs.mr);
    let mut b = KernelBuilder::new(workload.kernel_name());
    let weights = |p: &Param| if p.role == Role::Weight { packed.to_vec() } else { p.shape.clone() };
    let params = Operands::shaped(&mut b, workload, weights);
    let parts = Parts { workload, cut, params };
    parts.tasks(&mut b);
    b.finish()
}

struct Parts<'a> {
    workload: &'a Workload,
    cut: Cut,
    params: Operands,
}

/// Where a task is: its image, its first output row, and the copied input.
struct Place {
    n: Expr,
    first: Expr,
    copy: BufferId,
}

/// A register tile: output channels, vectors, and the lanes of its last vector that lie in the row.
#[derive(Clone, Copy)]
struct Tile {
    channels: i64,
    vectors: i64,
    last: i64,
}

impl Parts<'_> {
    fn tasks(&self, b: &mut KernelBuilder) {
        let Cut { conv: c, knobs: k, .. } = self.cut;
        let blocks = ceil_div(c.oh(), k.oh_tile);
        b.loop_("task", c.n * blocks, LoopKind::Parallel, |b, task| {
            let first = Expr::from(task).floor_mod(blocks) * k.oh_tile;
            let copy = self.copied_rows(b, &Expr::from(task).floor_div(blocks), &first);
            let place = Place { n: Expr::from(task).floor_div(blocks), first, copy };
            b.for_("oh_i", k.oh_tile, |b, oh_i| {
                let oh = place.first.clone() + oh_i;
                let body = |b: &mut KernelBuilder| self.row(b, &place, oh_i);
                match c.oh() % k.oh_tile {
                    0 => body(b),
                    _ => b.if_(oh.lt(c.oh()), body),
                }
            });
        });
    }

    /// The input rows of a task: `[ci][row][remainder][column]`, zeros outside.
    fn copied_rows(&self, b: &mut KernelBuilder, n: &Expr, first: &Expr) -> BufferId {
        let Cut { conv: c, lanes, .. } = self.cut;
        let (rows, columns, s) = (self.cut.rows(), self.cut.columns(), c.stride[1]);
        let copy = b.alloc("rows", DType::F32, &[c.ci, rows, s, columns], Scope::Local);
        let x = self.params.at(0);
        b.nest(&[("ci", c.ci), ("r", rows), ("rest", s)], |b, v| {
            let h = first.clone() * c.stride[0] + v[1] - c.padding[0];
            let part = |b: &mut KernelBuilder, from: Expr, count: i64| {
                along_lanes(b, "column", count, |b, lane| {
                    let column = from.clone() + lane;
                    let w = column.clone() * s + v[2] - c.padding[1];
                    let inside = KernelBuilder::between(&h, 0, c.h).and(KernelBuilder::between(&w, 0, c.w));
                    let value = Expr::load(x, vec![n.clone(), v[0].into(), h.clone(), w]);
                    let at = vec![v[0].into(), v[1].into(), v[2].into(), column];
                    b.store(copy, at, inside.select(value, Expr::f32(0.0)));
                });
            };
            if columns >= lanes {
                b.for_("column_t", columns / lanes, |b, t| part(b, t * lanes, lanes));
            }
            if columns % lanes > 0 {
                part(b, Expr::Int(columns / lanes * lanes), columns % lanes);
            }
        });
        copy
    }

    /// One output row: all channels, all pixels.
    fn row(&self, b: &mut KernelBuilder, place: &Place, oh_i: VarId) {
        let Cut { conv: c, knobs: k, lanes, .. } = self.cut;
        let across = ceil_div(c.ow(), lanes);
        let last = c.ow() - (across - 1) * lanes;
        // The last vector of a row is a tile of its own where it is not whole: its stores are masked.
        let even = if last == lanes { across } else { across - across.min(k.vectors) };
        let (tiles, rest) = (even / k.vectors, across - even / k.vectors * k.vectors);
        let columns = |b: &mut KernelBuilder, co_t: Expr, channels: i64| {
            if tiles > 0 {
                let tile = Tile { channels, vectors: k.vectors, last: lanes };
                b.for_("ow_t", tiles, |b, t| self.tile(b, place, oh_i, [&co_t, &(t * (k.vectors * lanes))], tile));
            }
            let mut from = tiles * k.vectors;
            while from < tiles * k.vectors + rest {
                let vectors = k.vectors.min(across - from);
                let tile = Tile { channels, vectors, last: if from + vectors == across { last } else { lanes } };
                self.tile(b, place, oh_i, [&co_t, &Expr::Int(from * lanes)], tile);
                from += vectors;
            }
        };
        let (whole, rest) = (c.co / k.mr, c.co % k.mr);
        if whole > 0 {
            b.for_("co_t", whole, |b, t| columns(b, t.into(), k.mr));
        }
        if rest > 0 {
            columns(b, Expr::Int(whole), rest);
        }
    }

    fn tile(&self, b: &mut KernelBuilder, place: &Place, oh_i: VarId, [co_t, left]: [&Expr; 2], tile: Tile) {
        let Cut { conv: c, knobs: k, lanes, copied_out } = self.cut;
        let Tile { channels, vectors, last } = tile;
        let acc = b.alloc("acc", DType::F32, &[channels, vectors * lanes], Scope::Register);
        let w = self.params.at(1);
        let [_, s] = c.stride;
        let kind = if copied_out { LoopKind::Unrolled } else { LoopKind::Serial };
        b.for_("kh", c.kh, |b, kh| {
            b.loop_("ci", c.ci, kind, |b, ci| {
                b.loop_("kw", c.kw, kind, |b, kw| {
                    self.over_tile(b, tile, lanes, |b, channel, column| {
                        let tap = kw * c.dilation[1];
                        let row = oh_i * c.stride[0] + kh * c.dilation[0];
                        let (rest, ahead) = (tap.clone().floor_mod(s), tap.floor_div(s));
                        let value = vec![ci.into(), row, rest, left.clone() + column.clone() + ahead];
                        let weight = vec![co_t.clone(), ci.into(), kh.into(), kw.into(), channel.clone()];
                        let product = Expr::load(w, weight) * Expr::load(place.copy, value);
                        b.sum(acc, [channel, column], product, &[kh, ci, kw]);
                    });
                });
            });
        });
        let y = self.params.output();
        self.over_tile(b, tile, last, |b, channel, column| {
            let co = co_t.clone() * k.mr + channel.clone();
            let oh = place.first.clone() + oh_i;
            let index = vec![place.n.clone(), co.clone(), oh, left.clone() + column.clone()];
            let sum = Expr::load(acc, vec![channel, column]);
            let value = epilogue(self.workload, sum, &co, &index, &self.params);
            b.store(y, index, value);
        });
    }

    /// The places of a register tile, copied out, with so many lanes of the last vector.
    fn over_tile(&self, b: &mut KernelBuilder, tile: Tile, last: i64, body: impl Fn(&mut KernelBuilder, Expr, Expr)) {
        let lanes = self.cut.lanes;
        b.loop_("channel", tile.channels, LoopKind::Unrolled, |b, channel| {
            for vector in 0..tile.vectors {
                let count = if vector + 1 == tile.vectors { last } else { lanes };
                along_lanes(b, "pixel", count, |b, lane| body(b, channel.into(), Expr::from(lane) + vector * lanes));
            }
        });
    }
}

/// A loop over the lanes of a vector.
fn along_lanes(b: &mut KernelBuilder, name: &str, extent: i64, body: impl FnOnce(&mut KernelBuilder, VarId)) {
    b.loop_(name, extent, if extent > 1 { LoopKind::Vectorized } else { LoopKind::Serial }, body);
}
