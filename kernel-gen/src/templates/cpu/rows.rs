//! Norms and softmax of rows, and what rows come to: lanes are neighbours of a row, several sums at a time.
//!
//! ```text
//! for row:
//!   for each number that the row's elements share:
//!     sums[u, lane]   u vectors of them, so that no addition waits for the one before; neutral beyond the last column
//!     number          the sums' halves added to each other, until one is left
//!   y[row, column]    from those numbers
//! ```
//! A term that the outputs need again and that is dear, which is the exponential of a softmax, stays in the first-level cache. A quotient
//! of it by a number of the row becomes a product with its reciprocal. The stages of the operator say what is computed; nothing here
//! names one.

use super::steps::each_piece;
use super::tile::{ceil_div, cycles_to_us};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BinOp, BufferId, DType, Expr, Kernel, LoopKind, ReduceOp, Scope, UnOp, VarId};
use crate::schedule::Schedule;
use crate::space::{Config, ConfigError, Space};
use crate::target::{Cpu, Target};
use crate::templates::rows::{element_cycles, matrix, matrix_channel, matrix_value};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::naive::epilogue;
use crate::workload::operands::Operands;
use crate::workload::pooled::Pooled;
use crate::workload::row_wise::RowFunction;
use crate::workload::stage::{Stage, result};
use crate::workload::{Op, Role, Workload};

/// See the module's text. Knobs: `sums` vectors of sums of a row, and rows that are computed `together`.
pub struct RowsCpu;

/// Most bytes of a row's terms: what a core's second-level cache holds beside the row.
const MOST_BYTES: i64 = 1 << 19;

/// How many elements ahead a row is asked for, if the input is no small one: processors look ahead within a page of memory only, and a
/// row is read fast.
const AHEAD: i64 = 512;

/// Vectors that are wanted at a time: so many that what rows share is not waited for.
const SHORT: i64 = 48;

/// The rows of a workload.
#[derive(Clone, Copy, Debug)]
struct Problem {
    rows: i64,
    columns: i64,
    /// Neighbours of a row that are of one channel, where channels follow one another within a row.
    segment: i64,
    lanes: i64,
}

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Problem, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let [rows, columns] = matrix(w)
        .or_else(|| planes(w))
        .ok_or("for norms and softmax of rows, and for reductions over the last dimensions")?;
    let segment = if let Op::GroupNorm(of) = w.op { of.pixels } else { columns };
    Ok((Problem { rows, columns, segment, lanes: cpu.f32_lanes() }, cpu))
}

/// The rows of a pooling whose windows are whole planes of pixels.
fn planes(w: &Workload) -> Option<[i64; 2]> {
    let of = Pooled::of(&w.op).filter(Pooled::is_global)?;
    Some([of.n * of.c, of.windows.pixels[0] * of.windows.pixels[1]])
}

/// The vectors of sums that a row has terms for.
fn vectors(of: &Problem) -> i64 {
    (of.columns / of.lanes).max(1)
}

const SUMS: [i64; 4] = [1, 2, 4, 8];
const TOGETHER: [i64; 3] = [1, 2, 4];

/// A config with a type.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    sums: i64,
    together: i64,
}

impl Sizes {
    fn of(config: &Config) -> Result<Sizes, ConfigError> {
        Ok(Sizes { sums: config.int("sums")?, together: config.int("together")? })
    }

    /// Whether no vector of sums is without terms, no row without others, and all sums fit the registers.
    fn fits(&self, of: &Problem, cpu: &Cpu) -> bool {
        let Sizes { sums, together } = *self;
        sums <= vectors(of) && of.rows % together == 0 && sums * together <= cpu.vector_registers / 2
    }
}

impl Template for RowsCpu {
    fn name(&self) -> &str {
        "rows_cpu"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (of, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let cpu = cpu.clone();
        Ok(Space::builder()
            .knob("sums", SUMS)
            .knob("together", TOGETHER)
            .filter("all sums have terms and fit the registers, and all rows have others", move |config| {
                Sizes::of(config).is_ok_and(|sizes| sizes.fits(&of, &cpu))
            })
            .build()?)
    }

    /// About as many vectors at a time as an addition takes cycles, of several rows where a row has few: what its elements share is
    /// waited for before they go on.
    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (of, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let largest =
            |all: &[i64], fits: &dyn Fn(i64) -> bool| all.iter().copied().filter(|n| fits(*n)).max().unwrap_or(1);
        let shares = w.op.get().stages(w.dtype, DType::F32).len() > 1;
        let together = if shares { ceil_div(SHORT, vectors(&of)) } else { 1 };
        let together = largest(&TOGETHER, &|n| n <= together && of.rows % n == 0);
        let sums = largest(&SUMS, &|sums| sums <= 4 / together && Sizes { sums, together }.fits(&of, cpu));
        Ok(Config::new().with("sums", sums).with("together", together))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        let (Ok((of, cpu)), Ok(Sizes { sums, together })) = (problem(w, t), Sizes::of(config)) else {
            return f64::INFINITY;
        };
        // Cycles of a number's halves, and of a loop.
        const NUMBER: f64 = 6.0;
        const LOOP: f64 = 2.0;
        let stages = w.op.get().stages(w.dtype, DType::F32);
        let kept = Kept::find(&of, &stages).is_some();
        let vectors = of.columns as f64 / of.lanes as f64;
        let mut row = 0.0;
        for (i, stage) in stages.iter().enumerate() {
            row += match (stage.reduce > 0, kept && i + 1 == stages.len()) {
                (true, _) => vectors * element_cycles(stage).max(4.0 / (sums * together) as f64) + NUMBER + sums as f64,
                (_, true) => vectors * 2.0 + LOOP,
                _ if stage.shape.len() == w.output_shape().len() => vectors * (element_cycles(stage) + 1.0) + LOOP,
                // Those of other rows are under way meanwhile.
                _ => LOOP,
            };
        }
        cycles_to_us(of.rows as f64 * row, cpu)
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (of, _) = problem(w, t).map_err(TemplateError::Limit)?;
        self.space(w, t)?.index_of(config)?;
        let kernel = build(w, of, Sizes::of(config)?);
        Ok(Scheduled { schedule: Schedule::new(kernel), packs: vec![] })
    }
}

fn build(w: &Workload, of: Problem, sizes: Sizes) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let pools = planes(w).is_some();
    let params = Operands::shaped(&mut b, w, |p| match (p.role, w.op) {
        (Role::Input, _) => vec![of.rows, of.columns],
        (Role::Residual | Role::Output, Op::Reduce(_)) => vec![of.rows],
        (Role::Residual | Role::Output, _) if !pools => vec![of.rows, of.columns],
        _ => p.shape.clone(),
    });
    b.loop_("rows", of.rows / sizes.together, LoopKind::Parallel, |b, rows| {
        Task { w, of, sizes, params: &params, first: rows * sizes.together }.run(b);
    });
    b.finish()
}

/// What a row's elements keep from the number that they were combined in to the output: the terms of that number.
struct Kept {
    /// The stage whose terms they are.
    stage: usize,
    /// The stage whose number divides them.
    divisor: usize,
}

impl Kept {
    /// The last stage is such a quotient, and its dividend the terms of an earlier one, which fit the cache. Their sum is at least as large as
    /// the largest of them, so its reciprocal is no infinity where they are.
    fn find(of: &Problem, stages: &[Stage]) -> Option<Kept> {
        let Expr::Binary(BinOp::Div, term, by) = &stages.last()?.value else { return None };
        let Expr::Load(by, _) = &**by else { return None };
        let divisor = (0..stages.len()).find(|i| result(*i) == *by)?;
        let stage = stages.iter().position(|stage| stage.reduce > 0 && stage.value == **term)?;
        let dear = matches!(**term, Expr::Unary(UnOp::Exp, _));
        (dear && 4 * of.columns <= MOST_BYTES).then_some(Kept { stage, divisor })
    }
}

/// Rows that are computed together.
struct Task<'a> {
    w: &'a Workload,
    of: Problem,
    sizes: Sizes,
    params: &'a Operands,
    /// The first of them.
    first: Expr,
}

impl Task<'_> {
    fn run(&self, b: &mut KernelBuilder) {
        let mut stages = self.w.op.get().stages(self.w.dtype, DType::F32);
        let kept = Kept::find(&self.of, &stages);
        let whole = ceil_div(self.of.columns, self.of.lanes) * self.of.lanes;
        let terms = kept.as_ref().map(|_| b.alloc("terms", DType::F32, &[self.sizes.together, whole], Scope::Local));
        let last = stages.pop().expect("every operator has a stage");
        let mut shared = vec![];
        for (i, stage) in stages.iter().enumerate() {
            let terms = terms.filter(|_| kept.as_ref().is_some_and(|kept| kept.stage == i));
            shared.push(self.number(b, stage, &shared, terms));
        }
        if matches!(self.w.op, Op::Reduce(_)) || planes(self.w).is_some() {
            let number = self.number(b, &last, &shared, None);
            return self.each_row(b, |b, r| self.store_number(b, &(self.first.clone() + r), value_of(number, r)));
        }
        let inverse = kept.map(|kept| {
            self.of_rows(b, "inverse_of_row", |at| {
                Expr::bin(BinOp::Div, Expr::f32(1.0), Expr::load(shared[kept.divisor], at.to_vec()))
            })
        });
        self.each_segment(b, |b, first| {
            each_piece(b, [self.of.segment, self.of.lanes, self.sizes.sums], None, |b, _, piece| {
                self.each_row(b, |b, r| {
                    b.loop_("lane", piece.lanes, LoopKind::Vectorized, |b, lane| {
                        let row = self.first.clone() + r;
                        let column = first.clone() + piece.first.clone() + lane;
                        let value = match (terms, inverse) {
                            (Some(terms), Some(inverse)) => {
                                Expr::load(terms, vec![r.into(), column.clone()]) * value_of(inverse, r)
                            }
                            _ => matrix_value(&last, Some(self.element(r, &column)), &|i| value_of(shared[i], r)),
                        };
                        // A segment is of one channel.
                        let of_channel = if self.of.segment < self.of.columns { &first } else { &column };
                        let channel = matrix_channel(self.w, &row, of_channel);
                        self.store(b, &channel, vec![row, column], value);
                    });
                });
            });
        });
    }

    /// Whether rows come from memory faster than a core would ask for them by itself: their number is large, and nothing dear is made of
    /// their elements.
    fn streams(&self) -> bool {
        let stages = self.w.op.get().stages(self.w.dtype, DType::F32);
        self.of.rows * self.of.columns * 4 > MOST_BYTES
            && stages.iter().all(|stage| stage.reduce == 0 || element_cycles(stage) < 8.0)
    }

    fn element(&self, r: VarId, column: &Expr) -> Expr {
        Expr::load(self.params.at(0), vec![self.first.clone() + r, column.clone()])
    }

    fn store_number(&self, b: &mut KernelBuilder, row: &Expr, number: Expr) {
        match &self.w.output_shape()[..] {
            [_, c, pixels @ ..] if planes(self.w).is_some() => {
                let channel = row.clone().floor_mod(*c);
                let mut index = vec![row.clone().floor_div(*c), channel.clone()];
                index.extend(pixels.iter().map(|_| Expr::Int(0)));
                self.store(b, &channel, index, number);
            }
            _ => self.store(b, &matrix_channel(self.w, row, &0.into()), vec![row.clone()], number),
        }
    }

    fn store(&self, b: &mut KernelBuilder, channel: &Expr, index: Vec<Expr>, value: Expr) {
        let value = epilogue(self.w, value, channel, &index, self.params);
        b.store(self.params.output(), index, value);
    }

    fn each_row(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, VarId)) {
        b.loop_("r", self.sizes.together, LoopKind::Unrolled, body);
    }

    /// Visits the pieces of a row that are of one channel each, with the first column.
    fn each_segment(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, Expr)) {
        match self.of.columns / self.of.segment {
            1 => body(b, 0.into()),
            n => b.for_("segment", n, |b, segment| {
                let first = b.let_("first_column", segment * self.of.segment);
                body(b, first.into());
            }),
        }
    }

    /// A number of each row, in the first lane of a vector: functions of vectors need no call, and no comparison of theirs becomes a
    /// branch that nobody can foresee. `value` says what is in a lane of a row.
    fn of_rows(&self, b: &mut KernelBuilder, name: &str, value: impl Fn(&[Expr; 2]) -> Expr) -> BufferId {
        let number = b.alloc(name, DType::F32, &[self.sizes.together, 2], Scope::Register);
        self.each_row(b, |b, r| {
            b.loop_("lane", 2, LoopKind::Vectorized, |b, lane| {
                let at = [r.into(), lane.into()];
                b.store(number, at.to_vec(), value(&at));
            });
        });
        number
    }

    /// The numbers that a stage has for the rows. Their terms are kept in `terms`, if that is there.
    fn number(&self, b: &mut KernelBuilder, stage: &Stage, shared: &[BufferId], terms: Option<BufferId>) -> BufferId {
        let Some((op, neutral)) = stage.combine.reduction() else {
            return self
                .of_rows(b, stage.name, |at| matrix_value(stage, None, &|i| Expr::load(shared[i], at.to_vec())));
        };
        let op = Combination::of(self.w, op);
        let (lanes, Sizes { sums: several, together }) = (self.of.lanes, self.sizes);
        let register = |b: &mut KernelBuilder, name: &str, shape: &[i64]| {
            b.alloc(&format!("{}_{name}", stage.name), DType::F32, shape, Scope::Register)
        };
        let vector = |b: &mut KernelBuilder, lanes: i64, body: &dyn Fn(&mut KernelBuilder, VarId, VarId)| {
            self.each_row(b, |b, r| b.loop_("lane", lanes, LoopKind::Vectorized, |b, lane| body(b, r, lane)));
        };
        let sums = register(b, "sums", &[several, together, lanes]);
        b.loop_("vector", several, LoopKind::Unrolled, |b, v| {
            vector(b, lanes, &|b, r, lane| b.store(sums, vec![v.into(), r.into(), lane.into()], Expr::f32(neutral)));
        });
        let ahead = (shared.is_empty() && self.streams()).then(|| ceil_div(AHEAD, several * lanes));
        each_piece(b, [self.of.columns, lanes, several], ahead, |b, v, piece| {
            vector(b, lanes, &|b, r, lane| {
                let column = piece.first.clone() + lane;
                let term = matrix_value(stage, Some(self.element(r, &column)), &|i| value_of(shared[i], r));
                let term = match piece.lanes == lanes {
                    true => term,
                    false => Expr::from(lane).lt(piece.lanes).select(term, Expr::f32(neutral)),
                };
                let term = match terms {
                    Some(terms) => {
                        b.store(terms, vec![r.into(), column.clone()], term);
                        Expr::load(terms, vec![r.into(), column])
                    }
                    None => term,
                };
                let at = vec![v.into(), r.into(), lane.into()];
                b.store(sums, at.clone(), op.of_two(Expr::load(sums, at), term));
            });
        });
        // In pairs, so that no addition waits for all before it.
        let (mut from, mut width) = (register(b, "lanes", &[together, lanes]), lanes);
        vector(b, lanes, &|b, r, lane| {
            let mut all: Vec<Expr> =
                (0..several).map(|v| Expr::load(sums, vec![v.into(), r.into(), lane.into()])).collect();
            while all.len() > 1 {
                let pairs = all.chunks(2).map(|pair| pair.iter().cloned().reduce(|a, b| op.of_two(a, b)));
                all = pairs.map(|both| both.expect("a pair has an element")).collect();
            }
            b.store(from, vec![r.into(), lane.into()], all.remove(0));
        });
        while width > 2 {
            width /= 2;
            let half = register(b, &format!("of_{width}"), &[together, width]);
            vector(b, width, &|b, r, lane| {
                let of = |lane: Expr| Expr::load(from, vec![r.into(), lane]);
                b.store(half, vec![r.into(), lane.into()], op.of_two(of(lane.into()), of(lane + width)));
            });
            from = half;
        }
        self.of_rows(b, stage.name, |[r, lane]| {
            let of = |lane: &Expr| Expr::load(from, vec![r.clone(), lane.clone()]);
            op.of_two(of(lane), of(&Expr::Int(1)))
        })
    }
}

/// The number of a row.
fn value_of(number: BufferId, r: VarId) -> Expr {
    Expr::load(number, vec![r.into(), 0.into()])
}

/// How terms are combined.
#[derive(Clone, Copy)]
enum Combination {
    Sum,
    Product,
    /// The largest; NaN if there is one.
    Max,
    /// The largest, or anything else that is no larger if there is a NaN.
    Larger,
    Min,
}

impl Combination {
    /// The largest element of a softmax's row is what its exponentials are taken relative to: with a NaN among them their sum is NaN, and so is
    /// each output, whatever the largest is.
    fn of(w: &Workload, op: ReduceOp) -> Combination {
        let softmax =
            matches!(w.op, Op::RowWise(of) if matches!(of.function, RowFunction::Softmax | RowFunction::LogSoftmax));
        match op {
            ReduceOp::Add => Combination::Sum,
            ReduceOp::Mul => Combination::Product,
            ReduceOp::Max if softmax => Combination::Larger,
            ReduceOp::Max => Combination::Max,
            ReduceOp::Min => Combination::Min,
        }
    }

    fn of_two(self, a: Expr, b: Expr) -> Expr {
        match self {
            Combination::Sum => a + b,
            Combination::Product => a * b,
            Combination::Max => a.max(b),
            Combination::Larger => b.clone().lt(a.clone()).select(a, b),
            Combination::Min => a.min(b),
        }
    }
}
