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

use super::tile::{ceil_div, cycles_to_us};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BinOp, BufferId, DType, Expr, Kernel, LoopKind, ReduceOp, Scope, UnOp, VarId};
use crate::schedule::Schedule;
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::rows::{element_cycles, matrix, matrix_channel, matrix_value};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::naive::epilogue;
use crate::workload::operands::Operands;
use crate::workload::stage::{Stage, result};
use crate::workload::{ConvLayout, Op, Role, Workload};

/// See the module's text. Knob: `sums` vectors of sums.
pub struct RowsCpu;

/// Most bytes of a row's terms: what a core's second-level cache holds beside the row.
const MOST_BYTES: i64 = 1 << 19;

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
    let window = match w.op {
        Op::MaxPool2d(of) => of.window,
        Op::AvgPool2d(of) => of.window,
        _ => return None,
    };
    let whole =
        window.layout == ConvLayout::Nchw && !window.has_padding() && [window.kh, window.kw] == [window.h, window.w];
    whole.then(|| [window.n * window.ci, window.h * window.w])
}

/// The vectors of sums that a row has terms for.
fn vectors(of: &Problem) -> i64 {
    (of.columns / of.lanes).max(1)
}

const SUMS: [i64; 4] = [1, 2, 4, 8];

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
        let (of, _) = problem(w, t).map_err(TemplateError::Limit)?;
        Ok(Space::builder().knob("sums", SUMS.into_iter().filter(move |sums| *sums <= vectors(&of))).build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (of, _) = problem(w, t).map_err(TemplateError::Limit)?;
        let sums = SUMS.into_iter().filter(|sums| *sums <= vectors(&of).min(4)).max();
        Ok(Config::new().with("sums", sums.unwrap_or(1)))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        let (Ok((of, cpu)), Ok(sums)) = (problem(w, t), config.int("sums")) else { return f64::INFINITY };
        // Cycles of a number's halves, and of a loop.
        const NUMBER: f64 = 20.0;
        const LOOP: f64 = 4.0;
        let stages = w.op.get().stages(w.dtype, DType::F32);
        let kept = Kept::find(&of, &stages).is_some();
        let vectors = of.columns as f64 / of.lanes as f64;
        let mut row = 0.0;
        for (i, stage) in stages.iter().enumerate() {
            row += match (stage.reduce > 0, kept && i + 1 == stages.len()) {
                (true, _) => vectors * element_cycles(stage).max(4.0 / sums as f64) + NUMBER + sums as f64,
                (_, true) => vectors * 2.0 + LOOP,
                _ if stage.shape.len() == w.output_shape().len() => vectors * (element_cycles(stage) + 1.0) + LOOP,
                _ => element_cycles(stage),
            };
        }
        cycles_to_us(of.rows as f64 * row, cpu)
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (of, _) = problem(w, t).map_err(TemplateError::Limit)?;
        self.space(w, t)?.index_of(config)?;
        let kernel = build(w, of, config.int("sums")?);
        Ok(Scheduled { schedule: Schedule::new(kernel), packs: vec![] })
    }
}

fn build(w: &Workload, of: Problem, sums: i64) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let pools = planes(w).is_some();
    let params = Operands::shaped(&mut b, w, |p| match (p.role, w.op) {
        (Role::Input, _) => vec![of.rows, of.columns],
        (Role::Residual | Role::Output, Op::Reduce(_)) => vec![of.rows],
        (Role::Residual | Role::Output, _) if !pools => vec![of.rows, of.columns],
        _ => p.shape.clone(),
    });
    b.loop_("row", of.rows, LoopKind::Parallel, |b, row| Row { w, of, sums, params: &params, row }.run(b));
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

/// Neighbouring columns that a vector holds.
struct Piece {
    /// The first.
    first: Expr,
    /// How many of the lanes there are columns for.
    lanes: i64,
}

/// A row, and what is known of it.
struct Row<'a> {
    w: &'a Workload,
    of: Problem,
    /// Vectors of sums.
    sums: i64,
    params: &'a Operands,
    row: VarId,
}

impl Row<'_> {
    fn run(&self, b: &mut KernelBuilder) {
        let mut stages = self.w.op.get().stages(self.w.dtype, DType::F32);
        let kept = Kept::find(&self.of, &stages);
        let whole = ceil_div(self.of.columns, self.of.lanes) * self.of.lanes;
        let terms = kept.as_ref().map(|_| b.alloc("terms", DType::F32, &[whole], Scope::Local));
        let last = stages.pop().expect("every operator has a stage");
        let mut shared = vec![];
        for (i, stage) in stages.iter().enumerate() {
            let terms = terms.filter(|_| kept.as_ref().is_some_and(|kept| kept.stage == i));
            shared.push(self.number(b, stage, &shared, terms));
        }
        if matches!(self.w.op, Op::Reduce(_)) || planes(self.w).is_some() {
            let number = self.number(b, &last, &shared, None);
            let row = Expr::from(self.row);
            let index = match self.w.output_shape()[..] {
                [_, c, 1, 1] if planes(self.w).is_some() => {
                    vec![row.clone().floor_div(c), row.clone().floor_mod(c), 0.into(), 0.into()]
                }
                _ => vec![row.clone()],
            };
            let channel = match &index[..] {
                [_, channel, ..] => channel.clone(),
                _ => matrix_channel(self.w, &row, &0.into()),
            };
            return self.store(b, &channel, index, Expr::load(number, vec![0.into()]));
        }
        let inverse = kept.map(|kept| {
            let inverse = b.alloc("inverse_of_row", DType::F32, &[1], Scope::Register);
            let quotient = Expr::bin(BinOp::Div, Expr::f32(1.0), Expr::load(shared[kept.divisor], vec![0.into()]));
            b.store(inverse, vec![0.into()], quotient);
            inverse
        });
        self.each_segment(b, |b, first| {
            self.each_piece(b, self.of.segment, self.sums, |b, _, piece| {
                b.loop_("lane", piece.lanes, LoopKind::Vectorized, |b, lane| {
                    let column = first.clone() + piece.first + lane;
                    let value = match (terms, inverse) {
                        (Some(terms), Some(inverse)) => {
                            Expr::load(terms, vec![column.clone()]) * Expr::load(inverse, vec![0.into()])
                        }
                        _ => matrix_value(&last, Some(self.element(&column)), &shared),
                    };
                    // A segment is of one channel.
                    let of_channel = if self.of.segment < self.of.columns { &first } else { &column };
                    let channel = matrix_channel(self.w, &self.row.into(), of_channel);
                    self.store(b, &channel, vec![self.row.into(), column], value);
                });
            });
        });
    }

    fn element(&self, column: &Expr) -> Expr {
        Expr::load(self.params.at(0), vec![self.row.into(), column.clone()])
    }

    fn store(&self, b: &mut KernelBuilder, channel: &Expr, index: Vec<Expr>, value: Expr) {
        let value = epilogue(self.w, value, channel, &index, &|name| self.params.get(name));
        b.store(self.params.output(), index, value);
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

    /// Visits `count` neighbours in vectors, `several` vectors in a step and those that are left one by one: `body` gets the number of the
    /// vector within its step.
    fn each_piece(
        &self,
        b: &mut KernelBuilder,
        count: i64,
        several: i64,
        body: impl Fn(&mut KernelBuilder, VarId, Piece),
    ) {
        let lanes = self.of.lanes;
        let (vectors, tail) = (count / lanes, count % lanes);
        let (steps, rest) = (vectors / several, vectors % several);
        if steps > 0 {
            b.for_("step", steps, |b, step| {
                b.loop_("vector", several, LoopKind::Unrolled, |b, v| {
                    body(b, v, Piece { first: (step * several + v) * lanes, lanes });
                });
            });
        }
        if rest > 0 {
            b.loop_("vector", rest, LoopKind::Unrolled, |b, v| {
                body(b, v, Piece { first: (v + steps * several) * lanes, lanes });
            });
        }
        if tail > 0 {
            b.loop_("vector", 1, LoopKind::Unrolled, |b, v| {
                body(b, v, Piece { first: Expr::Int(vectors * lanes), lanes: tail });
            });
        }
    }

    /// The number of a stage. Its terms are kept in `terms`, if that is there.
    fn number(&self, b: &mut KernelBuilder, stage: &Stage, shared: &[BufferId], terms: Option<BufferId>) -> BufferId {
        let zero = || vec![Expr::Int(0)];
        let number = b.alloc(stage.name, stage.dtype, &[1], Scope::Register);
        let Some((op, neutral)) = stage.combine.reduction() else {
            b.store(number, zero(), matrix_value(stage, None, shared));
            return number;
        };
        let lanes = self.of.lanes;
        let sums = b.alloc(&format!("{}_sums", stage.name), DType::F32, &[self.sums, lanes], Scope::Register);
        let vector = |b: &mut KernelBuilder, body: &dyn Fn(&mut KernelBuilder, VarId)| {
            b.loop_("lane", lanes, LoopKind::Vectorized, |b, lane| body(b, lane));
        };
        b.loop_("vector", self.sums, LoopKind::Unrolled, |b, v| {
            vector(b, &|b, lane| b.store(sums, vec![v.into(), lane.into()], Expr::f32(neutral)));
        });
        self.each_piece(b, self.of.columns, self.sums, |b, v, piece| {
            vector(b, &|b, lane| {
                let column = piece.first.clone() + lane;
                let term = matrix_value(stage, Some(self.element(&column)), shared);
                let term = match piece.lanes == lanes {
                    true => term,
                    false => Expr::from(lane).lt(piece.lanes).select(term, Expr::f32(neutral)),
                };
                let term = match terms {
                    Some(terms) => {
                        b.store(terms, vec![column.clone()], term);
                        Expr::load(terms, vec![column])
                    }
                    None => term,
                };
                let at = vec![v.into(), lane.into()];
                b.store(sums, at.clone(), combined(op, Expr::load(sums, at), term));
            });
        });
        // In pairs, so that no addition waits for all before it.
        let (mut from, mut width) =
            (b.alloc(&format!("{}_lanes", stage.name), DType::F32, &[lanes], Scope::Register), lanes);
        vector(b, &|b, lane| {
            let mut all: Vec<Expr> = (0..self.sums).map(|v| Expr::load(sums, vec![v.into(), lane.into()])).collect();
            while all.len() > 1 {
                let pairs = all.chunks(2).map(|pair| pair.iter().cloned().reduce(|a, b| combined(op, a, b)));
                all = pairs.map(|both| both.expect("a pair has an element")).collect();
            }
            b.store(from, vec![lane.into()], all.remove(0));
        });
        let of = |from: BufferId, lane: Expr| Expr::load(from, vec![lane]);
        while width > 2 {
            width /= 2;
            let half = b.alloc(&format!("{}_of_{width}", stage.name), DType::F32, &[width], Scope::Register);
            b.loop_("lane", width, LoopKind::Vectorized, |b, lane| {
                let both = combined(op, of(from, lane.into()), of(from, lane + width));
                b.store(half, vec![lane.into()], both);
            });
            from = half;
        }
        b.store(number, zero(), combined(op, of(from, 0.into()), of(from, 1.into())));
        number
    }
}

fn combined(op: ReduceOp, a: Expr, b: Expr) -> Expr {
    match op {
        ReduceOp::Add => a + b,
        ReduceOp::Max => a.max(b),
        ReduceOp::Min => a.min(b),
    }
}
