//! Products with weights of few bits: lanes along the reduction, as [`matmul_dot`](super::matmul_dot) has them.
//!
//! ```text
//! ordered   a as f32, the terms of a load of weights in the order in which its bytes give them: of four bits the even ones first
//! for task (block of columns):
//!   for tile of columns, tile of rows:
//!     total[row, column, lane] = 0                                      in registers
//!     for run of weights with one scale:
//!       sums[row, column, lane] = 0
//!       for load: sums += ordered * (integers of the load - zero point)
//!       total += sums * scale
//!     c[..] = epilogue(the lanes of total, added up, and of the last run what there is)
//! ```
//! Weights stay where they are and as they are: nothing is packed.

use super::tile::{ceil_div, cycles_to_us, even_tiles};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, LoopKind, Scope, VarId};
use crate::schedule::Schedule;
use crate::space::{Config, ConfigError, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::naive::epilogue;
use crate::workload::operands::Operands;
use crate::workload::{MatmulNbits, Op, Workload};

/// See the module's text. Knobs: `rows` and `columns` of a tile of sums, `block` tiles of columns of a task.
pub struct MatmulNbitsCpu;

/// Most rows or columns of a tile.
const MOST: i64 = 8;
/// Tasks that a default has, if there are enough tiles.
const WANTED_TASKS: i64 = 16;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(MatmulNbits, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    match w.op {
        Op::MatmulNbits(m) => Ok((m, cpu)),
        _ => Err("for products with weights of few bits".into()),
    }
}

/// A config with a type.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    rows: i64,
    columns: i64,
    block: i64,
}

impl Tiles {
    fn of(config: &Config) -> Result<Tiles, ConfigError> {
        Ok(Tiles { rows: config.int("rows")?, columns: config.int("columns")?, block: config.int("block")? })
    }

    /// Whether sums, weights and inputs fit the vector registers.
    fn fits(self, m: &MatmulNbits, cpu: &Cpu) -> bool {
        let both = m.bits.in_byte();
        2 * self.rows * self.columns + both * self.columns.min(self.rows) + both <= cpu.vector_registers
    }
}

/// Lanes of a vector of weights: those of the target, or the bytes of a run.
fn lanes(m: &MatmulNbits, cpu: &Cpu) -> i64 {
    cpu.f32_lanes().min(m.group / m.bits.in_byte())
}

/// Cycles of one core.
fn cycles(m: &MatmulNbits, cpu: &Cpu, tiles: Tiles) -> f64 {
    /// Instructions that make numbers of a vector of weights: widened, cut, converted, less the zero point.
    const UNPACK: f64 = 3.5;
    /// Cycles that adding up the lanes of a sum takes.
    const LANES: f64 = 14.0;
    let (rows, columns) = (tiles.rows.min(m.m) as f64, tiles.columns.min(m.n) as f64);
    let vectors = (m.k / lanes(m, cpu)).max(1) as f64;
    let runs = m.groups() as f64 / vectors;
    let multiply_adds = rows * columns * (1.0 + runs) / cpu.fma_units.max(1) as f64 * if cpu.fma { 1.0 } else { 2.0 };
    let unpacked = (columns * UNPACK + rows + runs * columns) / 4.0 + multiply_adds / 2.0;
    // A sum that is added to waits for itself.
    let step = multiply_adds.max(unpacked).max(cpu.fma_latency as f64 * if rows * columns > 1.0 { 0.8 } else { 1.0 });
    let tiles = (ceil_div(m.m, tiles.rows) * ceil_div(m.n, tiles.columns)) as f64;
    tiles * vectors * step + (m.m * m.n) as f64 * LANES
}

impl Template for MatmulNbitsCpu {
    fn name(&self) -> &str {
        "matmul_nbits_dot"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let cpu = cpu.clone();
        Ok(Space::builder()
            .knob("rows", even_tiles(m.m, MOST))
            .knob("columns", even_tiles(m.n, MOST))
            .knob("block", even_tiles(m.n, i64::MAX))
            .filter("sums and operands fit the vector registers", move |c| {
                Tiles::of(c).is_ok_and(|tiles| tiles.fits(&m, &cpu))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let tiles = |rows: i64| even_tiles(m.n, MOST).into_iter().map(move |columns| Tiles { rows, columns, block: 1 });
        let best = even_tiles(m.m, MOST)
            .into_iter()
            .flat_map(tiles)
            .filter(|tiles| tiles.fits(&m, cpu))
            .min_by(|a, b| cycles(&m, cpu, *a).total_cmp(&cycles(&m, cpu, *b)))
            .ok_or_else(|| TemplateError::Limit("no tile fits the vector registers".into()))?;
        let wanted = ceil_div(ceil_div(m.n, best.columns), WANTED_TASKS);
        let block = even_tiles(m.n, i64::MAX).into_iter().filter(|block| *block <= wanted).max().unwrap_or(1);
        Ok(Config::new().with("rows", best.rows).with("columns", best.columns).with("block", block))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (problem(w, t), Tiles::of(config)) {
            (Ok((m, cpu)), Ok(tiles)) => cycles_to_us(cycles(&m, cpu, tiles), cpu),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        self.space(w, t)?.index_of(config)?;
        let mut b = KernelBuilder::new(w.kernel_name());
        let params = Operands::declare(&mut b, w);
        let build = Build { w, m: &m, tiles: Tiles::of(config)?, lanes: lanes(&m, cpu), params: &params };
        let ordered = (m.k >= m.group).then(|| build.order(&mut b));
        build.sums(&mut b, ordered);
        Ok(Scheduled { schedule: Schedule::new(b.finish()), packs: vec![] })
    }
}

struct Build<'a> {
    w: &'a Workload,
    m: &'a MatmulNbits,
    tiles: Tiles,
    lanes: i64,
    params: &'a Operands,
}

/// The registers of a tile.
struct Tile {
    rows: i64,
    columns: i64,
    /// The first row and the first column.
    first: [Expr; 2],
    /// Sums of whole runs: row, column, lane.
    total: BufferId,
    /// Sums of the last run, if `k` cuts it: row, column.
    rest: Option<BufferId>,
}

impl Build<'_> {
    /// Loads of a whole run.
    fn loads(&self) -> i64 {
        self.m.group / (self.lanes * self.m.bits.in_byte())
    }

    /// Runs that `k` does not cut.
    fn whole_runs(&self) -> i64 {
        self.m.k / self.m.group
    }

    /// Brings the left side into the order in which bytes give their weights: row, load, place in a byte, lane.
    fn order(&self, b: &mut KernelBuilder) -> BufferId {
        let (m, in_byte, lanes) = (self.m, self.m.bits.in_byte(), self.lanes);
        let loads = self.whole_runs() * self.loads();
        let to = b.alloc("ordered", DType::F32, &[m.m, loads, in_byte, lanes], Scope::Global);
        b.loop_("row", m.m, LoopKind::Parallel, |b, row| {
            b.for_("load", loads, |b, load| {
                b.loop_("part", in_byte, LoopKind::Unrolled, |b, part| {
                    b.loop_("lane", lanes, LoopKind::Vectorized, |b, lane| {
                        let k = (load * lanes + lane) * in_byte + part;
                        let value = Expr::load(self.params.get("a"), vec![row.into(), k]);
                        b.store(to, vec![row.into(), load.into(), part.into(), lane.into()], value);
                    });
                });
            });
        });
        to
    }

    /// All sums, and what becomes of them.
    fn sums(&self, b: &mut KernelBuilder, ordered: Option<BufferId>) {
        let (m, Tiles { rows, columns, block }) = (self.m, self.tiles);
        let (all, whole) = (ceil_div(m.n, columns), m.n / columns);
        let of_rows = |b: &mut KernelBuilder, column: &Expr, columns: i64| {
            if m.m / rows > 0 {
                b.for_("tile_of_rows", m.m / rows, |b, at| {
                    self.tile(b, ordered, [at * rows, column.clone()], [rows, columns])
                });
            }
            if m.m % rows > 0 {
                self.tile(b, ordered, [(m.m - m.m % rows).into(), column.clone()], [m.m % rows, columns]);
            }
        };
        b.loop_("task", ceil_div(all, block), LoopKind::Parallel, |b, task| {
            b.for_("of_block", block, |b, of| {
                let tile = Expr::from(b.let_("tile", task * block + of));
                let column = tile.clone() * columns;
                let body = |b: &mut KernelBuilder| match (whole, m.n % columns) {
                    (0, rest) => of_rows(b, &column, rest),
                    (_, 0) => of_rows(b, &column, columns),
                    (whole, rest) => b.if_else(
                        tile.clone().lt(whole),
                        |b| of_rows(b, &column, columns),
                        |b| of_rows(b, &column, rest),
                    ),
                };
                b.when((all % block != 0).then(|| tile.clone().lt(all)), body);
            });
        });
    }

    /// The sums of a tile.
    fn tile(&self, b: &mut KernelBuilder, ordered: Option<BufferId>, first: [Expr; 2], [rows, columns]: [i64; 2]) {
        let (lanes, cut) = (self.lanes, self.m.k % self.m.group);
        let tile = Tile {
            rows,
            columns,
            first,
            total: b.alloc("total", DType::F32, &[rows, columns, lanes], Scope::Register),
            rest: (cut > 0).then(|| b.alloc("rest", DType::F32, &[rows, columns], Scope::Register)),
        };
        let zero = |b: &mut KernelBuilder, sums: BufferId| {
            self.each_sum(b, &tile, |b, [row, column], lane| {
                b.store(sums, vec![row.into(), column.into(), lane.into()], Expr::f32(0.0));
            });
        };
        zero(b, tile.total);
        if let Some(ordered) = ordered {
            b.for_("run", self.whole_runs(), |b, run| {
                let sums = b.alloc("sums", DType::F32, &[rows, columns, lanes], Scope::Register);
                zero(b, sums);
                let zeros = self.zeros(b, &tile, &run.into());
                b.for_("of_run", self.loads(), |b, of| {
                    let load = Expr::from(b.let_("load", run * self.loads() + of));
                    self.multiply(b, &tile, (ordered, sums, zeros), &load);
                });
                self.each_sum(b, &tile, |b, [row, column], lane| {
                    let at = vec![row.into(), column.into(), lane.into()];
                    let scaled = Expr::load(sums, at.clone()) * self.scale(&tile, column, &run.into());
                    b.sum(tile.total, at, scaled, &[]);
                });
            });
        }
        if let Some(rest) = tile.rest {
            self.rest(b, &tile, rest, cut);
        }
        self.finish(b, &tile);
    }

    /// Visits the sums of a tile, lane by lane.
    fn each_sum(&self, b: &mut KernelBuilder, tile: &Tile, body: impl Fn(&mut KernelBuilder, [VarId; 2], VarId)) {
        b.loop_("row", tile.rows, LoopKind::Unrolled, |b, row| {
            b.loop_("column", tile.columns, LoopKind::Unrolled, |b, column| {
                b.loop_("lane", self.lanes, LoopKind::Vectorized, |b, lane| body(b, [row, column], lane));
            });
        });
    }

    /// The scale of a column's run.
    fn scale(&self, tile: &Tile, column: VarId, run: &Expr) -> Expr {
        Expr::load(self.params.get("b_scale"), vec![tile.first[1].clone() + column, run.clone()])
    }

    /// The zero points of the columns' runs, where they are a parameter.
    fn zeros(&self, b: &mut KernelBuilder, tile: &Tile, run: &Expr) -> Option<BufferId> {
        self.m.asymmetric.then(|| {
            let zeros = b.alloc("zeros", DType::F32, &[tile.columns], Scope::Register);
            b.loop_("column", tile.columns, LoopKind::Unrolled, |b, column| {
                let n = tile.first[1].clone() + column;
                let byte = |at: Expr| Expr::load(self.params.get("b_zero"), vec![n, at]);
                b.store(zeros, vec![column.into()], self.m.unpacked(run.clone(), byte).cast(DType::F32));
            });
            zeros
        })
    }

    /// The zero point of a column.
    fn zero(&self, zeros: Option<BufferId>, column: VarId) -> Expr {
        match zeros {
            Some(zeros) => Expr::load(zeros, vec![column.into()]),
            None => Expr::f32(self.m.bits.middle() as f64),
        }
    }

    /// Adds the products of a load of weights of each column.
    fn multiply(
        &self,
        b: &mut KernelBuilder,
        tile: &Tile,
        (ordered, sums, zeros): (BufferId, BufferId, Option<BufferId>),
        load: &Expr,
    ) {
        let (lanes, in_byte) = (self.lanes, self.m.bits.in_byte());
        let left = b.alloc("left", DType::F32, &[tile.rows, in_byte, lanes], Scope::Register);
        b.loop_("row", tile.rows, LoopKind::Unrolled, |b, row| {
            b.loop_("part", in_byte, LoopKind::Unrolled, |b, part| {
                b.loop_("lane", lanes, LoopKind::Vectorized, |b, lane| {
                    let from = vec![tile.first[0].clone() + row, load.clone(), part.into(), lane.into()];
                    b.store(left, vec![row.into(), part.into(), lane.into()], Expr::load(ordered, from));
                });
            });
        });
        let weights = b.alloc("weights", DType::F32, &[in_byte, lanes], Scope::Register);
        b.loop_("column", tile.columns, LoopKind::Unrolled, |b, column| {
            let n = tile.first[1].clone() + column;
            b.loop_("lane", lanes, LoopKind::Vectorized, |b, lane| {
                let byte = Expr::load(self.params.get("b"), vec![n, load.clone() * lanes + lane]);
                for (part, integer) in (0..).zip(self.m.parts(byte)) {
                    let weight = integer.cast(DType::F32) - self.zero(zeros, column);
                    b.store(weights, vec![Expr::Int(part), lane.into()], weight);
                }
            });
            b.loop_("row", tile.rows, LoopKind::Unrolled, |b, row| {
                b.loop_("part", in_byte, LoopKind::Unrolled, |b, part| {
                    b.loop_("lane", lanes, LoopKind::Vectorized, |b, lane| {
                        let left = Expr::load(left, vec![row.into(), part.into(), lane.into()]);
                        let weight = Expr::load(weights, vec![part.into(), lane.into()]);
                        b.sum(sums, vec![row.into(), column.into(), lane.into()], left * weight, &[]);
                    });
                });
            });
        });
    }

    /// The products of the last run, of which there are `cut` terms.
    fn rest(&self, b: &mut KernelBuilder, tile: &Tile, rest: BufferId, cut: i64) {
        let (m, run) = (self.m, Expr::Int(self.whole_runs()));
        let zeros = self.zeros(b, tile, &run);
        let each = |b: &mut KernelBuilder, body: &dyn Fn(&mut KernelBuilder, VarId, VarId)| {
            b.loop_("row", tile.rows, LoopKind::Unrolled, |b, row| {
                b.loop_("column", tile.columns, LoopKind::Unrolled, |b, column| body(b, row, column));
            });
        };
        each(b, &|b, row, column| b.store(rest, vec![row.into(), column.into()], Expr::f32(0.0)));
        b.for_("of_rest", cut, |b, of| {
            let k = Expr::from(b.let_("k", of + (m.k - cut)));
            each(b, &|b, row, column| {
                let n = tile.first[1].clone() + column;
                let byte = |at: Expr| Expr::load(self.params.get("b"), vec![n, at]);
                let weight = m.unpacked(k.clone(), byte).cast(DType::F32) - self.zero(zeros, column);
                let left = Expr::load(self.params.get("a"), vec![tile.first[0].clone() + row, k.clone()]);
                b.sum(rest, vec![row.into(), column.into()], left * weight, &[]);
            });
        });
    }

    /// Adds up the lanes of each sum, and stores what becomes of it.
    fn finish(&self, b: &mut KernelBuilder, tile: &Tile) {
        let last = Expr::Int(self.whole_runs());
        b.loop_("row", tile.rows, LoopKind::Unrolled, |b, row| {
            b.loop_("column", tile.columns, LoopKind::Unrolled, |b, column| {
                let at = |lane: i64| Expr::load(tile.total, vec![row.into(), column.into(), Expr::Int(lane)]);
                let mut sums: Vec<Expr> = (0..self.lanes).map(at).collect();
                while sums.len() > 1 {
                    let upper = sums.split_off(sums.len().div_ceil(2));
                    sums.iter_mut().zip(upper).for_each(|(sum, other)| *sum = sum.clone() + other);
                }
                let sum = sums.pop().expect("a vector has lanes");
                let sum = match tile.rest {
                    Some(rest) => {
                        sum + Expr::load(rest, vec![row.into(), column.into()]) * self.scale(tile, column, &last)
                    }
                    None => sum,
                };
                let index = [tile.first[0].clone() + row, tile.first[1].clone() + column];
                let value = epilogue(self.w, sum, &index[1], &index, self.params);
                b.store(self.params.output(), index.to_vec(), value);
            });
        });
    }
}
