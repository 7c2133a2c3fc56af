//! Reductions down the columns of matrices, as of all pixels of each channel where channels come last.
//!
//! A matrix lies row by row: lanes that stand side by side along a row read neighbouring columns, in vectors, so that memory is read in
//! whole sectors. Walkers take rows in turns, `unroll` of them at a time, because what is under way is what memory's latency is hidden
//! by. Each adds up its own in registers; then the walkers' sums are added in shared memory, in two rounds and always in the same order.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `lanes` | 4 to 32 | threads side by side along a row |
//! | `vector` | 1, 2, 4, 8 | neighbours that a thread reads at a time |
//! | `walkers` | 4 to 256 | threads that take the rows of a column in turns |
//! | `unroll` | 1, 2, 4, 8 | rows that a thread reads at a time |
//!
//! Behind the last row the last one is read again; where terms are added, it counts as zero.

use super::family::{self, Case, Family, Needs, Search, built, knobs};
use super::guards::below;
use super::launch::{launch, share, unrolled};
use super::model::{Waves, ceil_div, memory_us};
use super::outputs::{each_element, finish};
use super::requires::device;
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Kernel, ReduceOp, Scope, VarId};
use crate::target::{Cuda, Target};
use crate::templates::rows::{matrix_channel, matrix_value};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::operands::Operands;
use crate::workload::stage::Stage;
use crate::workload::{Op, Role, Workload};

/// See the module's text.
pub struct Columns;

/// Bytes of a thread's longest load.
const VECTOR_BYTES: i64 = 16;
/// Registers of a thread beside the elements that it holds and adds up.
const OTHER_REGISTERS: i64 = 32;

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Threads side by side along a row.
        lanes: i64 = "lanes" in [4, 8, 16, 32];
        /// Neighbours that a thread reads at a time.
        vector: i64 = "vector" in [1, 2, 4, 8];
        /// Threads that take the rows of a column in turns.
        walkers: i64 = "walkers" in [4, 8, 16, 32, 64, 128, 256];
        /// Rows that a thread reads at a time.
        unroll: i64 = "unroll" in [1, 2, 4, 8];
    }
}

/// Matrices whose columns are reduced.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    matrices: i64,
    rows: i64,
    columns: i64,
}

/// Columns cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    of: Problem,
    bytes: i64,
    sizes: Sizes,
}

impl Plan {
    /// Columns of a block.
    fn width(&self) -> i64 {
        self.sizes.lanes * self.sizes.vector
    }

    fn threads(&self) -> i64 {
        self.sizes.lanes * self.sizes.walkers
    }

    fn blocks(&self) -> i64 {
        self.of.matrices * ceil_div(self.of.columns, self.width())
    }

    /// Rows that a block reads before the first is added.
    fn step(&self) -> i64 {
        self.sizes.walkers * self.sizes.unroll
    }

    fn steps(&self) -> i64 {
        ceil_div(self.of.rows, self.step())
    }

    /// What is left of a column's sums after the first round: about the square root.
    fn halfway(&self) -> i64 {
        match self.sizes.walkers {
            ..16 => 2,
            16..64 => 4,
            64..256 => 8,
            256.. => 16,
        }
    }

    /// Elements between the sums of two walkers, so that threads that add for one column read different banks.
    fn pitch(&self) -> i64 {
        self.width() + 1
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        let Sizes { vector, walkers, unroll, .. } = self.sizes;
        let held = unroll * ceil_div(vector * self.bytes, 4) + vector;
        let shared_bytes = 4 * self.pitch() * (walkers + self.halfway());
        Needs { threads: self.threads(), registers: held + OTHER_REGISTERS, shared_bytes }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { lanes, vector, walkers, unroll } = self.sizes;
        let threads = self.threads();
        self.of.columns % vector == 0
            && vector * self.bytes <= VECTOR_BYTES
            && (Cuda::WARP..=gpu.threads_per_block).contains(&threads)
            && (lanes == 4 || self.width() / 2 < self.of.columns)
            && (walkers == 8 || walkers / 2 < self.of.rows)
            && (unroll == 1 || self.step() / 2 < self.of.rows)
            && self.blocks() <= gpu.grid_dim[0]
    }

    /// What a block waits for, or what a multiprocessor reads in that time, and both rounds of additions. The latencies are an
    /// H100's.
    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        const LAUNCH_US: f64 = 0.8;
        /// Clocks from a load until its bytes have come, and those of both rounds of additions beside what these add.
        const LATENCY: f64 = 700.0;
        const ROUNDS: f64 = 250.0;
        /// Bytes a clock that a multiprocessor gets from the L2 cache; memory is read in sectors of 32.
        const BYTES_PER_CLOCK: f64 = 40.0;
        const SECTOR: i64 = 32;
        let Sizes { vector, walkers, unroll, .. } = self.sizes;
        let Waves { count, together, .. } = match self.needs().resident(gpu) {
            0 => return f64::INFINITY,
            resident => Waves::of(self.blocks(), resident, gpu),
        };
        let row = ceil_div(self.width().min(self.of.columns) * self.bytes, SECTOR) * SECTOR;
        let read = together * (self.of.rows * row) as f64 / BYTES_PER_CLOCK;
        // Four schedulers issue for the warps of a multiprocessor: a load of a vector, and the additions of its elements.
        let own = self.steps() as f64 * (unroll * (4 + 3 * vector)) as f64;
        let issue = together * (self.threads() / Cuda::WARP) as f64 * own / 4.0;
        let waits = self.steps() as f64 * LATENCY + own;
        let (first, second) = (walkers / self.halfway(), self.halfway());
        let adds = (self.halfway() * self.width()) as f64 / self.threads() as f64;
        let rounds = ROUNDS + 30.0 * (adds.ceil() * first as f64 + second as f64);
        let clocks = count * (waits.max(read).max(issue) + together.max(1.0) * rounds);
        LAUNCH_US + (clocks / gpu.clock_mhz.max(1) as f64).max(memory_us(w.bytes() as f64, gpu))
    }
}

impl Family for Columns {
    const NAME: &'static str = "columns_cuda";
    const LIMITS: &'static str = "vectors divide a row, a block has a warp, and all have something to do";
    type Problem = Problem;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Problem, String> {
        let gpu = device(t)?;
        let problem = columns(w).ok_or("for reductions over dimensions before the last")?;
        let blocks = problem.matrices.saturating_mul(problem.columns);
        if blocks > gpu.grid_dim[0] {
            return Err(format!("for at most {} columns", gpu.grid_dim[0]));
        }
        Ok(problem)
    }

    fn plan(case: &Case<'_, Problem>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(Plan { of: case.problem, bytes: case.w.dtype.bytes() as i64, sizes })
    }

    fn search(_: &Case<'_, Problem>) -> Search<Sizes> {
        Search::All
    }

    fn kernel(case: &Case<'_, Problem>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        built(Block::kernel(plan, case.w), [])
    }
}

/// The matrices of a reduction over neighbouring dimensions that are not the last, by one stage.
fn columns(w: &Workload) -> Option<Problem> {
    let Op::Reduce(of) = w.op else { return None };
    let extents = |range: std::ops::Range<usize>| of.input[range].iter().product::<i64>();
    let first = of.combined.iter().position(|mark| *mark == 1)?;
    let last = of.combined.iter().rposition(|mark| *mark == 1)? + 1;
    let is_run = of.combined[first..last].iter().all(|mark| *mark == 1);
    let is_one_stage = w.op.get().stages(w.dtype, DType::F32).len() == 1;
    (is_run && is_one_stage && last < of.input.len()).then(|| Problem {
        matrices: extents(0..first),
        rows: extents(first..last),
        columns: extents(last..of.input.len()),
    })
}

/// What a thread knows of its place.
struct Block<'a> {
    plan: &'a Plan,
    w: &'a Workload,
    stage: Stage,
    params: Operands,
    matrix: VarId,
    /// The block's first vector of columns.
    first: VarId,
    walker: VarId,
    lane: VarId,
    held: BufferId,
    sums: BufferId,
}

impl Block<'_> {
    fn kernel(plan: &Plan, w: &Workload) -> Kernel {
        let mut b = KernelBuilder::new(w.kernel_name());
        let Problem { matrices, rows, columns } = plan.of;
        let params = Operands::shaped(&mut b, w, |p| match p.role {
            Role::Input => vec![matrices, rows, columns],
            Role::Residual | Role::Output => vec![matrices * columns],
            _ => p.shape.clone(),
        });
        let Sizes { lanes, vector, walkers, unroll } = plan.sizes;
        let tiles = ceil_div(columns, plan.width());
        let threads = [("walker", walkers), ("lane", lanes)];
        launch(&mut b, [("tile", plan.blocks())], threads, |b, [tile], [walker, lane]| {
            let matrix = b.let_("matrix", Expr::from(tile).floor_div(tiles));
            let first = b.let_("first", Expr::from(tile).floor_mod(tiles) * lanes);
            let held = b.alloc("held", w.dtype, &[unroll, vector], Scope::Register);
            let sums = b.alloc("acc", DType::F32, &[vector], Scope::Register);
            let stage = w.op.get().stages(w.dtype, DType::F32).pop().expect("a reduction has a stage");
            Block { plan, w, stage, params, matrix, first, walker, lane, held, sums }.run(b);
        });
        b.finish()
    }

    /// Adds to an accumulator, or whatever the reduction does.
    fn combine(&self, b: &mut KernelBuilder, sums: BufferId, place: &[Expr], value: Expr) {
        let (op, _) = self.stage.combine.reduction().expect("a reduction has several terms");
        let before = Expr::load(sums, place.to_vec());
        let value = match op {
            ReduceOp::Add => before + value,
            ReduceOp::Mul => before * value,
            ReduceOp::Max => before.max(value),
            ReduceOp::Min => before.min(value),
        };
        b.store(sums, place.to_vec(), value);
    }

    fn neutral(&self) -> Expr {
        Expr::f32(self.stage.combine.reduction().expect("a reduction has several terms").1)
    }

    /// The thread's row of a step's reads.
    fn row(&self, step: &Expr, ahead: VarId) -> Expr {
        (step.clone() * self.plan.sizes.unroll + ahead) * self.plan.sizes.walkers + self.walker
    }

    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder) {
        let (plan, rows) = (self.plan, self.plan.of.rows);
        let vector = plan.sizes.vector;
        unrolled(b, "column", vector, |b, v| b.store(self.sums, vec![v.into()], self.neutral()));
        let whole = rows / plan.step();
        if whole > 0 {
            b.for_("step", whole, |b, step| self.add(b, &step.into(), true));
        }
        if rows % plan.step() > 0 {
            self.add(b, &whole.into(), false);
        }
        self.reduce(b);
    }

    /// Reads the rows of a step and adds them up.
    fn add(&self, b: &mut KernelBuilder, step: &Expr, whole: bool) {
        let Problem { rows, columns, .. } = self.plan.of;
        let Sizes { lanes, vector, unroll, .. } = self.plan.sizes;
        unrolled(b, "ahead", unroll, |b, ahead| {
            let row = self.row(step, ahead);
            let row = if whole { row } else { row.min(rows - 1) };
            let piece = self.first + self.lane;
            let piece = if columns % (lanes * vector) == 0 { piece } else { piece.min(columns / vector - 1) };
            let column = piece * vector;
            each_element(b, vector, |b, v| {
                let value = Expr::load(self.params.at(0), vec![self.matrix.into(), row, column + v.clone()]);
                b.store(self.held, vec![ahead.into(), v], value);
            });
        });
        unrolled(b, "now", unroll, |b, now| {
            unrolled(b, "column", vector, |b, v| {
                let element = Expr::load(self.held, vec![now.into(), v.into()]);
                let term = matrix_value(&self.stage, Some(element), &|_| unreachable!("there is one stage"));
                let exists = self.row(step, now).lt(rows);
                let term = if whole { term } else { exists.select(term, self.neutral()) };
                self.combine(b, self.sums, &[v.into()], term);
            });
        });
    }

    /// Adds what the walkers have, and stores it.
    fn reduce(&self, b: &mut KernelBuilder) {
        let plan = self.plan;
        let Sizes { lanes, vector, walkers, .. } = plan.sizes;
        let (width, halfway) = (plan.width(), plan.halfway());
        let partial = b.alloc("partial", DType::F32, &[walkers, plan.pitch()], Scope::Shared);
        unrolled(b, "column", vector, |b, v| {
            let place = vec![self.walker.into(), Expr::from(self.lane) * vector + v];
            b.store(partial, place, Expr::load(self.sums, vec![v.into()]));
        });
        let thread = Expr::from(self.walker) * lanes + self.lane;
        let total = |b: &mut KernelBuilder, name: &str, count: i64, from: &dyn Fn(VarId) -> Expr| {
            let sum = b.alloc(name, DType::F32, &[1], Scope::Register);
            b.store(sum, vec![0.into()], self.neutral());
            unrolled(b, "other", count, |b, other| self.combine(b, sum, &[0.into()], from(other)));
            Expr::load(sum, vec![0.into()])
        };
        let half = b.alloc("half", DType::F32, &[halfway, plan.pitch()], Scope::Shared);
        share(b, plan.threads(), thread.clone(), width * halfway, |b, element| {
            let (part, column) = (element.clone().floor_div(width), element.floor_mod(width));
            let value = total(b, "some", walkers / halfway, &|other| {
                Expr::load(partial, vec![part.clone() + other * halfway, column.clone()])
            });
            b.store(half, vec![part, column], value);
        });
        share(b, plan.threads(), thread, width, |b, column| {
            let value = total(b, "all", halfway, &|other| Expr::load(half, vec![other.into(), column.clone()]));
            let at = self.first * vector + column;
            let exists = below(at.clone(), plan.of.columns, width);
            b.when(exists, |b| {
                let index = self.matrix * plan.of.columns + at;
                let channel = matrix_channel(self.w, &index, &Expr::Int(0));
                finish(b, (self.w, &self.params), &channel, [index], value);
            });
        });
    }
}
