//! Bilinear resizing of planes of pixels: lanes are columns, and rows are interpolated before columns.
//!
//! ```text
//! for task (some planes):
//!   near[ow], far[ow]  the weights of the pixels on both sides, once
//!   for plane, some rows of the output:
//!     line[r, column]  the rows above and below by their weights, for all columns of the input
//!     y[.., ow]        line[r, left of ow] * near[ow] + line[r, right of ow] * far[ow]
//! ```
//! Where the output's columns that a vector holds are made of a whole number of the input's, which ones these are is the same for all
//! vectors: they are picked from one register of neighbours. Rows come several at a time, so that no load meets stores under way.

use super::steps::{each_block, each_piece};
use super::tile::{ceil_div, cycles_to_us, even_tiles};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Kernel, LoopKind, Scope, VarId};
use crate::schedule::Schedule;
use crate::space::{Config, ConfigError, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::epilogue::applied;
use crate::workload::operands::Operands;
use crate::workload::resize::{Interpolation, neighbours};
use crate::workload::{ConvLayout, Op, Resize, Role, Workload};

/// See the module's text. Knobs: `planes` of a task, and `rows` at a time.
pub struct ResizeCpu;

const PLANES: [i64; 4] = [1, 2, 4, 8];

/// Tasks that are wanted, if there are so many planes: some for each of a few cores.
const TASKS: i64 = 16;

/// Most rows at a time.
const ROWS: i64 = 16;

/// Most bytes of a row, of its weights, and of the rows at a time.
const MOST_BYTES: i64 = 1 << 17;

/// Vectors of a step along a row.
const VECTORS: i64 = 2;

/// A resizing, and how its columns lie.
#[derive(Clone, Copy, Debug)]
struct Problem {
    of: Resize,
    align_corners: bool,
    lanes: i64,
}

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Problem, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let Op::Resize(of) = w.op else { return Err("for bilinear resizing".into()) };
    let Interpolation::Bilinear { align_corners } = of.method else { return Err("for bilinear resizing".into()) };
    if of.layout != ConvLayout::Nchw || 4 * of.w.max(of.ow) > MOST_BYTES {
        return Err("for planes of pixels whose rows fit a core's cache".into());
    }
    Ok((Problem { of, align_corners, lanes: cpu.f32_lanes() }, cpu))
}

impl Problem {
    /// The numerator of a column's coordinate, and the denominator.
    fn coordinate(&self, ow: i64) -> (i64, i64) {
        let (numerator, denominator) = Resize::coordinate(self.align_corners, Expr::Int(ow), self.of.w, self.of.ow);
        (numerator.as_int().expect("a column is a number"), denominator)
    }

    /// Columns of the input that a vector of the output's goes on by, if that is a whole number.
    fn advance(&self) -> Option<i64> {
        let ((first, denominator), (second, _)) = (self.coordinate(0), self.coordinate(1));
        let way = (second - first) * self.lanes;
        (way % denominator == 0).then_some(way / denominator)
    }

    /// The columns of the output that lie between two of the input: from one to before another.
    fn between(&self) -> [i64; 2] {
        let inside = |ow: &i64| {
            let (numerator, denominator) = self.coordinate(*ow);
            numerator >= 0 && numerator / denominator + 1 < self.of.w
        };
        let first = (0..self.of.ow).find(inside).unwrap_or(0);
        [first, (first..self.of.ow).find(|ow| !inside(ow)).unwrap_or(self.of.ow)]
    }
}

/// A config with a type.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    planes: i64,
    rows: i64,
}

impl Sizes {
    fn of(config: &Config) -> Result<Sizes, ConfigError> {
        Ok(Sizes { planes: config.int("planes")?, rows: config.int("rows")? })
    }

    fn fits(&self, of: &Resize) -> bool {
        4 * of.w * self.rows <= MOST_BYTES
    }
}

impl Template for ResizeCpu {
    fn name(&self) -> &str {
        "resize_cpu"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (Problem { of, .. }, _) = problem(w, t).map_err(TemplateError::Limit)?;
        Ok(Space::builder()
            .knob("planes", PLANES.into_iter().filter(move |planes| of.n * of.c % planes == 0))
            .knob("rows", even_tiles(of.oh, ROWS))
            .filter("rows fit a core's cache", move |config| Sizes::of(config).is_ok_and(|sizes| sizes.fits(&of)))
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (Problem { of, .. }, _) = problem(w, t).map_err(TemplateError::Limit)?;
        let all = of.n * of.c;
        let planes = PLANES.into_iter().filter(|planes| all % planes == 0 && all / planes >= TASKS).max().unwrap_or(1);
        let rows = even_tiles(of.oh, 8).into_iter().filter(|rows| Sizes { planes, rows: *rows }.fits(&of)).max();
        Ok(Config::new().with("planes", planes).with("rows", rows.unwrap_or(1)))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        let (Ok((problem, cpu)), Ok(sizes)) = (problem(w, t), Sizes::of(config)) else { return f64::INFINITY };
        let Problem { of, lanes, .. } = problem;
        // Cycles of a vector, and of an element that is found by itself.
        let along = match problem.advance() {
            Some(_) => ceil_div(of.ow, lanes) as f64 * 4.0,
            None => of.ow as f64 * 3.0,
        };
        let row = ceil_div(of.w, lanes) as f64 * 2.5 + along + 20.0 / sizes.rows as f64 + 8.0;
        let weights = of.ow as f64 * 8.0 / sizes.planes as f64;
        cycles_to_us((of.n * of.c) as f64 * (of.oh as f64 * row + weights), cpu)
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (problem, _) = problem(w, t).map_err(TemplateError::Limit)?;
        self.space(w, t)?.index_of(config)?;
        let kernel = build(w, problem, Sizes::of(config)?);
        Ok(Scheduled { schedule: Schedule::new(kernel), packs: vec![] })
    }
}

fn build(w: &Workload, problem: Problem, sizes: Sizes) -> Kernel {
    let of = problem.of;
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::shaped(&mut b, w, |p| match p.role {
        Role::Input => vec![of.n * of.c, of.h, of.w],
        _ => p.shape.clone(),
    });
    b.loop_("task", of.n * of.c / sizes.planes, LoopKind::Parallel, |b, task| {
        let mut local = |name: &str, shape: &[i64]| b.alloc(name, DType::F32, shape, Scope::Local);
        let (line, near, far) = (local("line", &[sizes.rows, of.w]), local("near", &[of.ow]), local("far", &[of.ow]));
        Planes { w, problem, sizes, params: &params, first: task * sizes.planes, line, near, far }.run(b);
    });
    b.finish()
}

/// Planes that a task resizes, and what it has for them.
struct Planes<'a> {
    w: &'a Workload,
    problem: Problem,
    sizes: Sizes,
    params: &'a Operands,
    /// The first of them.
    first: Expr,
    line: BufferId,
    near: BufferId,
    far: BufferId,
}

impl Planes<'_> {
    fn run(&self, b: &mut KernelBuilder) {
        let of = &self.problem.of;
        b.for_("column", of.ow, |b, ow| {
            let [(_, near), (_, far)] = self.columns(ow.into());
            b.store(self.near, vec![ow.into()], near);
            b.store(self.far, vec![ow.into()], far);
        });
        b.for_("plane", self.sizes.planes, |b, plane| {
            let plane = b.let_("plane_of_all", self.first.clone() + plane);
            let (down, along) = (
                |b: &mut KernelBuilder, r: VarId, oh: VarId| self.down(b, plane, r, oh),
                |b: &mut KernelBuilder, r: VarId, oh: VarId| self.along(b, plane, r, oh),
            );
            each_block(b, [of.oh, self.sizes.rows], down, along);
        });
    }

    /// The columns on both sides of one of the output, and their weights.
    fn columns(&self, ow: Expr) -> [(Expr, Expr); 2] {
        neighbours(self.problem.align_corners, ow, [self.problem.of.w, self.problem.of.ow], DType::F32)
    }

    /// The rows above and below an output's row, by their weights.
    fn down(&self, b: &mut KernelBuilder, plane: VarId, r: VarId, oh: VarId) {
        let Problem { of, align_corners, lanes } = self.problem;
        let [(above, near), (below, far)] = neighbours(align_corners, oh.into(), [of.h, of.oh], DType::F32);
        let [above, below] = [("above", above), ("below", below)].map(|(name, row)| b.let_(name, row));
        let weights = b.alloc("weights", DType::F32, &[2], Scope::Register);
        b.store(weights, vec![0.into()], near);
        b.store(weights, vec![1.into()], far);
        each_piece(b, [of.w, lanes, VECTORS], None, |b, _, piece| {
            b.loop_("lane", piece.lanes, LoopKind::Vectorized, |b, lane| {
                let column = piece.first.clone() + lane;
                let pixel = |row: VarId, weight: i64| {
                    let index = vec![plane.into(), row.into(), column.clone()];
                    Expr::load(self.params.at(0), index) * Expr::load(weights, vec![weight.into()])
                };
                b.store(self.line, vec![r.into(), column.clone()], pixel(above, 0) + pixel(below, 1));
            });
        });
    }

    /// An output's row, from the line of it.
    fn along(&self, b: &mut KernelBuilder, plane: VarId, r: VarId, oh: VarId) {
        let Problem { of, lanes, .. } = self.problem;
        let Some(advance) = self.problem.advance() else {
            return each_piece(b, [of.ow, lanes, 1], None, |b, _, piece| {
                b.loop_("lane", piece.lanes, LoopKind::Vectorized, |b, lane| {
                    let ow = piece.first.clone() + lane;
                    let [(left, _), (right, _)] = self.columns(ow.clone());
                    self.store(b, plane, [r, oh], ow, [left, right]);
                });
            });
        };
        let [first, end] = self.problem.between();
        for (from, count) in [(0, first), (end, of.ow - end)] {
            if count > 0 {
                b.for_("edge", count, |b, edge| {
                    let ow = Expr::from(b.let_("column", edge + from));
                    let [(left, _), (right, _)] = self.columns(ow.clone());
                    self.store(b, plane, [r, oh], ow, [left, right]);
                });
            }
        }
        let ((begin, denominator), (next, _)) = (self.problem.coordinate(first), self.problem.coordinate(first + 1));
        each_piece(b, [end - first, lanes, VECTORS], None, |b, _, piece| {
            b.loop_("lane", piece.lanes, LoopKind::Vectorized, |b, lane| {
                let whole = piece.first.clone().floor_div(lanes) * advance;
                let left = whole + (lane * (next - begin) + begin).floor_div(denominator);
                self.store(b, plane, [r, oh], piece.first.clone() + lane + first, [left.clone(), left + 1]);
            });
        });
    }

    fn store(&self, b: &mut KernelBuilder, plane: VarId, [r, oh]: [VarId; 2], ow: Expr, sides: [Expr; 2]) {
        let [left, right] = sides.map(|column| Expr::load(self.line, vec![r.into(), column]));
        let [near, far] = [self.near, self.far].map(|weights| Expr::load(weights, vec![ow.clone()]));
        let channel = Expr::from(plane).floor_mod(self.problem.of.c);
        let index = vec![Expr::from(plane).floor_div(self.problem.of.c), channel.clone(), oh.into(), ow];
        let value = left * near + right * far;
        let value = applied(&self.w.epilogue, self.w.out_dtype, value, &|operand| {
            self.params.read(self.w, operand, &channel, &index)
        });
        b.store(self.params.output(), index, value);
    }
}
