//! Pooling of planes of pixels: lanes are columns, and what a window combines is combined along its height first.
//!
//! ```text
//! for task (some planes):
//!   line[r, padding]   neutral, once
//!   for plane, some rows of the output:
//!     line[r, column]  the rows of the windows combined, for all columns of the input
//!     y[.., ow]        line[r, ow * stride + tap] combined, divided by how many count
//! ```
//! So each element is read as often as windows overlap in height, no vector reads padding, and a tap costs a load of the first-level cache.
//! Rows come several at a time, since a load that meets two stores waits until both have left the core.

use super::steps::{each_block, each_piece};
use super::tile::{ceil_div, cycles_to_us, even_tiles};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BinOp, BufferId, DType, Expr, Kernel, LoopKind, ReduceOp, Scope, Stmt, VarId};
use crate::schedule::Schedule;
use crate::space::{Config, ConfigError, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::epilogue::applied;
use crate::workload::operands::Operands;
use crate::workload::pooled::Pooled;
use crate::workload::{Role, Workload};

/// See the module's text. Knobs: `planes` of a task, `rows` at a time, and `vectors` of a step along a row.
pub struct WindowsCpu;

const PLANES: [i64; 4] = [1, 2, 4, 8];

/// Most rows at a time.
const ROWS: i64 = 32;

/// Bytes of the rows at a time of a default, a part of a core's first-level cache.
const LINE_BYTES: i64 = 8 << 10;

/// Tasks that are wanted, if there are so many planes: some for each of a few cores.
const TASKS: i64 = 16;

/// Taps along a direction up to which they are copied out.
const FEW_TAPS: i64 = 8;

/// Most bytes of a row.
const MOST_BYTES: i64 = 1 << 18;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Pooled, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let of = Pooled::of(&w.op).ok_or("for pooling over one and two dimensions, channels first")?;
    match 4 * of.windows.padded(1) <= MOST_BYTES {
        true => Ok((of, cpu)),
        false => Err("for rows of pixels that fit a core's cache".into()),
    }
}

/// A config with a type.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    planes: i64,
    rows: i64,
    vectors: i64,
}

impl Sizes {
    fn of(config: &Config) -> Result<Sizes, ConfigError> {
        Ok(Sizes { planes: config.int("planes")?, rows: config.int("rows")?, vectors: config.int("vectors")? })
    }
}

impl Template for WindowsCpu {
    fn name(&self) -> &str {
        "windows_cpu"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (of, _) = problem(w, t).map_err(TemplateError::Limit)?;
        Ok(Space::builder()
            .knob("planes", PLANES.into_iter().filter(move |planes| of.n * of.c % planes == 0))
            .knob("rows", even_tiles(of.windows.windows(0), ROWS))
            .knob("vectors", [1, 2, 4])
            .filter("rows fit a core's cache", move |config| {
                Sizes::of(config).is_ok_and(|sizes| 4 * of.windows.padded(1) * sizes.rows <= MOST_BYTES)
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (of, _) = problem(w, t).map_err(TemplateError::Limit)?;
        let all = of.n * of.c;
        let planes = PLANES.into_iter().filter(|planes| all % planes == 0 && all / planes >= TASKS).max();
        let fit = (LINE_BYTES / (4 * of.windows.padded(1))).clamp(1, ROWS);
        let rows = even_tiles(of.windows.windows(0), fit).into_iter().max().unwrap_or(1);
        Ok(Config::new().with("planes", planes.unwrap_or(1)).with("rows", rows).with("vectors", 2))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        let (Ok((of, cpu)), Ok(sizes)) = (problem(w, t), Sizes::of(config)) else { return f64::INFINITY };
        let lanes = cpu.f32_lanes();
        // Cycles of a vector that is loaded and combined, of a division, and of a step.
        let combined = if of.counted.is_some() { 0.5 } else { 1.0 };
        let divided = if of.counted.is_some() { 4.0 } else { 0.0 };
        let step = 1.0 / sizes.vectors as f64;
        let windows = &of.windows;
        let spread = match windows.stride[1] {
            1 => 0.5,
            2 => 1.5,
            _ => lanes as f64,
        };
        let down = ceil_div(windows.pixels[1], lanes) as f64 * (windows.taps[0] as f64 * combined + 1.0 + step);
        let along = windows.taps[1] as f64 * (spread + combined) + divided + 1.0 + step;
        let row = down + ceil_div(windows.windows(1), lanes) as f64 * along + 4.0;
        let plane = windows.windows(0) as f64 * row + (windows.padded(1) / sizes.planes) as f64;
        cycles_to_us((of.n * of.c) as f64 * plane, cpu)
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (of, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        self.space(w, t)?.index_of(config)?;
        let kernel = build(w, of, Sizes::of(config)?, cpu.f32_lanes());
        Ok(Scheduled { schedule: Schedule::new(kernel), packs: vec![] })
    }
}

fn build(w: &Workload, of: Pooled, sizes: Sizes, lanes: i64) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let [h, width, _] = of.windows.pixels;
    let params = Operands::shaped(&mut b, w, |p| match p.role {
        Role::Input => vec![of.n * of.c, h, width],
        _ => p.shape.clone(),
    });
    b.loop_("task", of.n * of.c / sizes.planes, LoopKind::Parallel, |b, task| {
        let line = b.alloc("line", DType::F32, &[sizes.rows, of.windows.padded(1)], Scope::Local);
        let counts = of.counted.filter(|counted| counted.inside(1, Expr::from(task)).as_int().is_none());
        let counts = counts.map(|counted| {
            let counts = b.alloc("counts", DType::F32, &[of.windows.windows(1)], Scope::Local);
            b.for_("column", of.windows.windows(1), |b, ow| {
                let count = Expr::Cast(DType::F32, Box::new(counted.inside(1, ow.into())));
                b.store(counts, vec![ow.into()], count);
            });
            counts
        });
        let task = Planes { w, of, sizes, lanes, params: &params, first: task * sizes.planes, line, counts };
        task.run(b);
    });
    b.finish()
}

/// Planes that a task pools, and what it has for them.
struct Planes<'a> {
    w: &'a Workload,
    of: Pooled,
    sizes: Sizes,
    lanes: i64,
    params: &'a Operands,
    /// The first of them.
    first: Expr,
    /// A row with its padding.
    line: BufferId,
    /// Of each window of a row how many columns of it count, where that differs.
    counts: Option<BufferId>,
}

impl Planes<'_> {
    fn run(&self, b: &mut KernelBuilder) {
        let windows = &self.of.windows;
        let behind = windows.before[1] + windows.pixels[1];
        for (first, count) in [(0, windows.before[1]), (behind, windows.after[1])] {
            if count > 0 {
                b.for_("line_of_padding", self.sizes.rows, |b, r| {
                    b.for_("padding", count, |b, at| b.store(self.line, vec![r.into(), at + first], self.neutral()));
                });
            }
        }
        b.for_("plane", self.sizes.planes, |b, plane| {
            let plane = b.let_("plane_of_all", self.first.clone() + plane);
            let (down, along) = (
                |b: &mut KernelBuilder, r: VarId, oh: VarId| self.down(b, plane, r, oh),
                |b: &mut KernelBuilder, r: VarId, oh: VarId| self.along(b, plane, r, oh),
            );
            each_block(b, [windows.windows(0), self.sizes.rows], down, along);
        });
    }

    fn op(&self) -> ReduceOp {
        if self.of.counted.is_some() { ReduceOp::Add } else { ReduceOp::Max }
    }

    fn neutral(&self) -> Expr {
        Expr::f32(if self.of.counted.is_some() { 0.0 } else { f64::NEG_INFINITY })
    }

    fn update(&self, b: &mut KernelBuilder, to: BufferId, lane: VarId, value: Expr) {
        let (op, init) = (self.op(), self.neutral());
        b.push(Stmt::Reduce { buffer: to, indices: vec![lane.into()], op, init, value, over: vec![] });
    }

    /// Combines the rows of the windows of an output's row.
    fn down(&self, b: &mut KernelBuilder, plane: VarId, r: VarId, oh: VarId) {
        let windows = &self.of.windows;
        let padded = windows.before[0] + windows.after[0] > 0;
        // A maximum may meet a row twice: the nearest one stands for those of the padding, if it is a row of the window.
        let repeats = self.of.counted.is_none() && windows.dilation[0] == 1;
        let row = |kh: Expr| {
            let row = oh * windows.stride[0] + kh * windows.dilation[0] - windows.before[0];
            if padded && repeats { row.max(Expr::Int(0)).min(Expr::Int(windows.pixels[0] - 1)) } else { row }
        };
        let guard = |row: &Expr| (padded && !repeats).then(|| KernelBuilder::between(row, 0, windows.pixels[0]));
        each_piece(b, [windows.pixels[1], self.lanes, self.sizes.vectors], None, |b, _, piece| {
            let sums = b.alloc("of_rows", DType::F32, &[piece.lanes], Scope::Register);
            let pixel = |row: VarId, lane: VarId| {
                Expr::load(self.params.at(0), vec![plane.into(), row.into(), piece.first.clone() + lane])
            };
            let vector = |b: &mut KernelBuilder, body: &dyn Fn(&mut KernelBuilder, VarId)| {
                b.loop_("lane", piece.lanes, LoopKind::Vectorized, |b, lane| body(b, lane));
            };
            let begun = i64::from(!padded || repeats);
            if begun > 0 {
                let top = b.let_("row", row(0.into()));
                vector(b, &|b, lane| b.store(sums, vec![lane.into()], pixel(top, lane)));
            } else {
                vector(b, &|b, lane| b.store(sums, vec![lane.into()], self.neutral()));
            }
            each_tap(b, "kh", windows.taps[0], begun, |b, kh| {
                let row = b.let_("row", row(kh));
                b.when(guard(&row.into()), |b| vector(b, &|b, lane| self.update(b, sums, lane, pixel(row, lane))));
            });
            vector(b, &|b, lane| {
                let at = piece.first.clone() + lane + windows.before[1];
                b.store(self.line, vec![r.into(), at], Expr::load(sums, vec![lane.into()]));
            });
        });
    }

    /// Combines those along the row and stores what they come to.
    fn along(&self, b: &mut KernelBuilder, plane: VarId, r: VarId, oh: VarId) {
        let windows = &self.of.windows;
        let rows = self.of.counted.map(|counted| counted.inside(0, oh.into()));
        let rows = rows.map(|rows| match rows.as_int() {
            Some(rows) => Expr::f32(rows as f64),
            None => {
                let count = b.alloc("rows", DType::F32, &[1], Scope::Register);
                b.store(count, vec![0.into()], Expr::Cast(DType::F32, Box::new(rows)));
                Expr::load(count, vec![0.into()])
            }
        });
        each_piece(b, [windows.windows(1), self.lanes, self.sizes.vectors], None, |b, _, piece| {
            let sums = b.alloc("of_window", DType::F32, &[piece.lanes], Scope::Register);
            let vector = |b: &mut KernelBuilder, body: &dyn Fn(&mut KernelBuilder, VarId)| {
                b.loop_("lane", piece.lanes, LoopKind::Vectorized, |b, lane| body(b, lane));
            };
            let tap = |lane: VarId, kw: Expr| {
                let column = (piece.first.clone() + lane) * windows.stride[1] + kw * windows.dilation[1];
                Expr::load(self.line, vec![r.into(), column])
            };
            vector(b, &|b, lane| b.store(sums, vec![lane.into()], tap(lane, 0.into())));
            each_tap(b, "kw", windows.taps[1], 1, |b, kw| {
                vector(b, &|b, lane| self.update(b, sums, lane, tap(lane, kw.clone())));
            });
            vector(b, &|b, lane| {
                let ow = piece.first.clone() + lane;
                let sum = Expr::load(sums, vec![lane.into()]);
                let value = match (&rows, self.counts, self.of.counted) {
                    (Some(rows), Some(counts), _) => {
                        Expr::bin(BinOp::Div, sum, Expr::load(counts, vec![ow.clone()]) * rows.clone())
                    }
                    (Some(rows), None, Some(counted)) => {
                        let columns = counted.inside(1, ow.clone()).as_int().expect("all windows of a row count alike");
                        Expr::bin(BinOp::Div, sum, times(rows.clone(), columns))
                    }
                    _ => sum,
                };
                let channel = Expr::from(plane).floor_mod(self.of.c);
                let mut index = vec![Expr::from(plane).floor_div(self.of.c), channel.clone()];
                if self.w.output_shape().len() == 4 {
                    index.push(oh.into());
                }
                index.push(ow);
                let value = applied(&self.w.epilogue, self.w.out_dtype, value, &|operand| {
                    self.params.read(self.w, operand, &channel, &index)
                });
                b.store(self.params.output(), index, value);
            });
        });
    }
}

/// A number of rows times one of columns.
fn times(rows: Expr, columns: i64) -> Expr {
    match rows {
        Expr::Float(rows, _) => Expr::f32(rows * columns as f64),
        rows => rows * Expr::f32(columns as f64),
    }
}

/// Visits taps from `first` on, copied out where they are few.
fn each_tap(b: &mut KernelBuilder, name: &str, taps: i64, first: i64, body: impl FnOnce(&mut KernelBuilder, Expr)) {
    let kind = if taps <= FEW_TAPS { LoopKind::Unrolled } else { LoopKind::Serial };
    if taps > first {
        b.loop_(name, taps - first, kind, |b, tap| body(b, tap + first));
    }
}
