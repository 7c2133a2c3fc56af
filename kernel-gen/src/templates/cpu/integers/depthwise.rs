//! Depthwise convolutions of integers of eight bits with channels last.
//!
//! ```text
//! weights   as f32, [kh][kw][c], and behind them the sum of each channel's
//! x_padded  the input with its padding, which holds what stands for 0
//! for task (image, row of outputs):
//!   for channels of a tile, for pixels of a tile:
//!     sums[pixel, channel]  in registers: f32(x) * weight
//!     y[..]                 = epilogue(i32(sums) - zero point * sum of the weights)
//! ```
//! A channel has too few terms for words of four of them. Products of bytes and sums of some hundred are whole numbers below 2^24,
//! which an `f32` holds exactly, and multiply-adds of `f32` take half the time of those of `i32`.

use crate::integer::ceil_div;
use crate::ir::builder::KernelBuilder;
use crate::ir::{Access, BufferId, DType, Expr, Kernel, LoopKind, Scope, VarId};
use crate::schedule::Schedule;
use crate::space::{Config, ConfigError, Space};
use crate::target::{Cpu, Target};
use crate::templates::cpu::tile::{cycles_to_us, even_tiles};
use crate::templates::{Pack, Scheduled, Template, TemplateError};
use crate::workload::naive::epilogue;
use crate::workload::operands::Operands;
use crate::workload::{Conv2d, ConvLayout, Op, Role, WeightZero, Workload};

/// See the module's text. Knobs: `rows` pixels and `vectors` of channels of a tile.
pub struct DepthwiseIntegers;

/// Most pixels of a tile.
const MAX_ROWS: i64 = 14;

/// Sums below it are exact.
const EXACT: i64 = 1 << 24;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Conv2d, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
    if !w.is_quantised() || !c.is_depthwise() || c.multiplier() != Some(1) || c.layout != ConvLayout::Nhwc {
        return Err("for depthwise convolutions of integers of eight bits in NHWC".into());
    }
    if w.quant.weight_zero != WeightZero::None {
        return Err("for weights without zero points".into());
    }
    if c.kh * c.kw * 255 * 255 >= EXACT {
        return Err("for sums that an f32 holds exactly".into());
    }
    Ok((c, cpu))
}

/// A config with a type.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    rows: i64,
    vectors: i64,
    lanes: i64,
}

impl Tiles {
    fn of(config: &Config, cpu: &Cpu) -> Result<Tiles, ConfigError> {
        Ok(Tiles { rows: config.int("rows")?, vectors: config.int("vectors")?, lanes: cpu.f32_lanes() })
    }

    fn fits(&self, cpu: &Cpu) -> bool {
        self.rows * self.vectors + self.vectors + 2 <= cpu.vector_registers
    }

    /// Cycles of one core.
    fn cycles(&self, c: &Conv2d) -> f64 {
        let vectors = ceil_div(c.co, self.lanes) as f64 * (c.n * c.oh() * c.ow()) as f64;
        // A tap loads, widens and multiplies; the weights of a tile are loaded once for its pixels.
        let tap = 1.6 + 0.5 / self.rows as f64;
        let padded =
            if c.has_padding() { (c.n * c.padded_h() * c.padded_w() * c.ci) as f64 / self.lanes as f64 } else { 0.0 };
        vectors * ((c.kh * c.kw) as f64 * tap + 6.0) + padded
    }
}

impl Template for DepthwiseIntegers {
    fn name(&self) -> &str {
        "depthwise_integers"
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
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let cpu = cpu.clone();
        Ok(Space::builder()
            .knob("rows", even_tiles(c.ow(), MAX_ROWS))
            .knob("vectors", [1, 2, 4])
            .filter("sums and operands fit the vector registers", move |config| {
                Tiles::of(config, &cpu).is_ok_and(|tiles| tiles.fits(&cpu))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let lanes = cpu.f32_lanes();
        let fits = |rows: &i64| Tiles { rows: *rows, vectors: 1, lanes }.fits(cpu);
        let rows = even_tiles(c.ow(), MAX_ROWS).into_iter().filter(fits).max().unwrap_or(1);
        Ok(Config::new().with("rows", rows).with("vectors", 1))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match problem(w, t) {
            Ok((c, cpu)) => Tiles::of(config, cpu).map_or(f64::INFINITY, |tiles| cycles_to_us(tiles.cycles(&c), cpu)),
            Err(_) => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        self.space(w, t)?.index_of(config)?;
        let tiles = Tiles::of(config, cpu)?;
        let packs = vec![Pack { param: "w".into(), kernel: pack(w, &c) }];
        Ok(Scheduled { schedule: Schedule::new(build(w, &c, tiles)), packs })
    }
}

/// Shape of the packed weights.
fn packed_shape(c: &Conv2d) -> [i64; 2] {
    [c.kh * c.kw + 1, c.co]
}

/// The kernel that packs weights.
fn pack(w: &Workload, c: &Conv2d) -> Kernel {
    let mut b = KernelBuilder::new(format!("{}_pack_w", w.kernel_name()));
    let from = b.param("w", w.quant.weight, &[c.kh, c.kw, 1, c.co], Access::Read);
    let to = b.param("packed", DType::F32, &packed_shape(c), Access::Write);
    b.loop_("channel", c.co, LoopKind::Parallel, |b, channel| {
        let total = b.alloc("total", DType::F32, &[1], Scope::Register);
        b.store(total, [Expr::Int(0)], Expr::f32(0.0));
        b.nest(&[("kh", c.kh), ("kw", c.kw)], |b, v| {
            let weight =
                Expr::load(from, vec![v[0].into(), v[1].into(), Expr::Int(0), channel.into()]).cast(DType::F32);
            b.store(to, vec![v[0] * c.kw + v[1], channel.into()], weight.clone());
            b.store(total, [Expr::Int(0)], Expr::load(total, vec![Expr::Int(0)]) + weight);
        });
        b.store(to, vec![Expr::Int(c.kh * c.kw), channel.into()], Expr::load(total, vec![Expr::Int(0)]));
    });
    b.finish()
}

fn build(w: &Workload, c: &Conv2d, tiles: Tiles) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::typed(&mut b, w, |param| match param.role {
        Role::Weight => (DType::F32, packed_shape(c).to_vec()),
        _ => (param.dtype, param.shape.clone()),
    });
    let build = Build { w, c, tiles, params: &params };
    let x = if c.has_padding() { build.pad(&mut b) } else { params.at(0) };
    build.sums(&mut b, x);
    b.finish()
}

struct Build<'a> {
    w: &'a Workload,
    c: &'a Conv2d,
    tiles: Tiles,
    params: &'a Operands,
}

impl Build<'_> {
    /// The zero point of the input, if it has one.
    fn zero(&self) -> Option<Expr> {
        self.w.quant.input_zero.then(|| Expr::load(self.params.get("input_zero"), vec![Expr::Int(0)]))
    }

    /// Visits `count` neighbours in vectors, the last of which may have fewer lanes.
    fn each_vector(&self, b: &mut KernelBuilder, count: i64, kind: LoopKind, body: impl Fn(&mut KernelBuilder, Expr)) {
        let lanes = self.tiles.lanes;
        let (whole, rest) = (count / lanes, count % lanes);
        if whole > 0 {
            b.loop_("vector", whole, kind, |b, vector| {
                b.loop_("lane", lanes, LoopKind::Vectorized, |b, lane| body(b, vector * lanes + lane));
            });
        }
        match rest {
            0 => {}
            1 => body(b, Expr::Int(whole * lanes)),
            rest => b.loop_("rest", rest, LoopKind::Vectorized, |b, lane| body(b, Expr::Int(whole * lanes) + lane)),
        }
    }

    /// The input with its padding.
    fn pad(&self, b: &mut KernelBuilder) -> BufferId {
        let c = self.c;
        let [top, left, bottom, right] = c.padding;
        let (rows, columns) = (c.padded_h(), c.padded_w());
        let padded = b.alloc("x_padded", self.w.dtype, &[c.n, rows, columns, c.ci], Scope::Global);
        let outside = self.zero().unwrap_or(Expr::Int(0).cast(DType::I32));
        b.loop_("padded_row", c.n * rows, LoopKind::Parallel, |b, row| {
            let image = Expr::from(b.let_("image", Expr::from(row).floor_div(rows)));
            let ih = Expr::from(b.let_("ih", Expr::from(row).floor_mod(rows)));
            let fill = |b: &mut KernelBuilder, first: i64, count: i64| {
                b.for_("column", count, |b, column| {
                    self.each_vector(b, c.ci, LoopKind::Serial, |b, channel| {
                        b.store(padded, vec![image.clone(), ih.clone(), column + first, channel], outside.clone());
                    });
                });
            };
            let inside = |b: &mut KernelBuilder| {
                for (first, count) in [(0, left), (columns - right, right)].into_iter().filter(|(_, count)| *count > 0)
                {
                    fill(b, first, count);
                }
                b.for_("column", c.w, |b, column| {
                    self.each_vector(b, c.ci, LoopKind::Serial, |b, channel| {
                        let from = vec![image.clone(), ih.clone() - top, column.into(), channel.clone()];
                        let to = vec![image.clone(), ih.clone(), column + left, channel];
                        b.store(padded, to, Expr::load(self.params.at(0), from));
                    });
                });
            };
            let above = (top > 0).then(|| Expr::Int(top).le(ih.clone()));
            let below = (bottom > 0).then(|| ih.clone().lt(rows - bottom));
            match Expr::all(above.into_iter().chain(below)) {
                Some(condition) => b.if_else(condition, inside, |b| fill(b, 0, columns)),
                None => inside(b),
            }
        });
        padded
    }

    fn sums(&self, b: &mut KernelBuilder, x: BufferId) {
        let (c, tiles) = (self.c, self.tiles);
        let width = tiles.vectors * tiles.lanes;
        b.loop_("task", c.n * c.oh(), LoopKind::Parallel, |b, task| {
            let image = b.let_("image", Expr::from(task).floor_div(c.oh()));
            let oh = b.let_("oh", Expr::from(task).floor_mod(c.oh()));
            let (blocks, rest) = (c.co / width, c.co % width);
            let pixels = |b: &mut KernelBuilder, first: Expr, count: i64| {
                let (whole, last) = (c.ow() / tiles.rows, c.ow() % tiles.rows);
                if whole > 0 {
                    b.for_("pixels", whole, |b, at| {
                        self.tile(b, x, [image, oh], (at * tiles.rows, tiles.rows), (&first, count))
                    });
                }
                if last > 0 {
                    self.tile(b, x, [image, oh], (Expr::Int(whole * tiles.rows), last), (&first, count));
                }
            };
            if blocks > 0 {
                b.for_("channels", blocks, |b, block| pixels(b, block * width, width));
            }
            if rest > 0 {
                pixels(b, Expr::Int(blocks * width), rest);
            }
        });
    }

    /// The sums of `rows` pixels from `ow` on by `count` channels from `first` on.
    fn tile(
        &self,
        b: &mut KernelBuilder,
        x: BufferId,
        [image, oh]: [VarId; 2],
        (ow, rows): (Expr, i64),
        (first, count): (&Expr, i64),
    ) {
        let (c, weights) = (self.c, self.params.at(1));
        let sums = b.alloc("sums", DType::F32, &[rows, count], Scope::Register);
        let each = |b: &mut KernelBuilder, body: &dyn Fn(&mut KernelBuilder, VarId, Expr)| {
            b.loop_("pixel", rows, LoopKind::Unrolled, |b, r| {
                self.each_vector(b, count, LoopKind::Unrolled, |b, channel| body(b, r, channel));
            });
        };
        let last = c.kh * c.kw;
        each(b, &|b, r, channel| {
            let none = match self.zero() {
                Some(zero) => {
                    let of_weights = Expr::load(weights, vec![Expr::Int(last), first.clone() + channel.clone()]);
                    Expr::f32(0.0) - of_weights * zero.cast(DType::F32)
                }
                None => Expr::f32(0.0),
            };
            b.store(sums, vec![r.into(), channel], none);
        });
        b.for_("kh", c.kh, |b, kh| {
            b.loop_("kw", c.kw, LoopKind::Unrolled, |b, kw| {
                each(b, &|b, r, channel| {
                    let of = first.clone() + channel.clone();
                    let ih = oh * c.stride[0] + kh * c.dilation[0];
                    let iw = (ow.clone() + r) * c.stride[1] + kw * c.dilation[1];
                    let pixel = Expr::load(x, vec![image.into(), ih, iw, of.clone()]).cast(DType::F32);
                    let weight = Expr::load(weights, vec![kh * c.kw + kw, of]);
                    let at = vec![r.into(), channel];
                    b.store(sums, at.clone(), Expr::load(sums, at) + pixel * weight);
                });
            });
        });
        each(b, &|b, r, channel| {
            let value = Expr::load(sums, vec![r.into(), channel.clone()]).cast(DType::I32);
            let channel = first.clone() + channel;
            let index = vec![image.into(), oh.into(), ow.clone() + r, channel.clone()];
            let result = epilogue(self.w, value, &channel, &index, self.params);
            b.store(self.params.output(), index, result);
        });
    }
}
