//! Norms and softmax of rows, and what rows come to: a row stays in registers from its first read to the result, if it fits. A longer one
//! is read again for each number and for the result, from the caches mostly.
//!
//! Some warps take a row, whose elements their lanes hold side by side in vectors. For each number that the row's elements share, a
//! lane combines what it has, the lanes of a warp tell each other theirs in five steps of a butterfly, and warps meet in shared
//! memory; the order is always the same, and every lane ends with the same bits. So each element is read from memory once and written
//! once. The stages of the operator say what is computed; nothing here names one.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `warps` | 1 to 32 | warps of a row |
//! | `rows` | 1, 2, 4, 8 | rows of a block |
//! | `vector` | 1, 2, 4, 8 | neighbours that a lane reads at a time |
//!
//! Rows are those of a matrix, groups of channels, or the last dimensions of a tensor that is reduced over them; then one lane stores what
//! the row comes to. All lie in memory as a matrix does.
//!
//! Beyond the last column the last vector is read again; where terms are added, it counts as zero.

use super::family::{self, Case, Family, Needs, Plan as _, Search, built, knobs};
use super::guards::inside;
use super::instructions::tile;
use super::launch::{LANE, launch, unrolled};
use super::model::{Waves, ceil_div, memory_us};
use super::outputs::{each_element, finish};
use super::requires::device;
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, DType, Expr, Gpu, Kernel, LaneOp, LoopKind, ReduceOp, Scope, Stmt, VarId};
use crate::target::{Cuda, Target};
use crate::templates::rows::{matrix, matrix_channel, matrix_value};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::operands::Operands;
use crate::workload::stage::Stage;
use crate::workload::{Op, Role, Workload};

/// See the module's text.
pub struct Rows;

/// Most elements of a row that a lane holds.
const MOST_HELD: i64 = 64;
/// Bytes of the longest row that a block's registers hold.
const LONGEST_HELD: i64 = 128 << 10;
/// Threads that a block has at least where rows are longer than that.
const LONG_THREADS: i64 = 256;
/// Bytes of a thread's longest load.
const VECTOR_BYTES: i64 = 16;
/// Registers of a thread beside the elements that it holds.
const OTHER_REGISTERS: i64 = 32;

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Warps of a row.
        warps: i64 = "warps" in [1, 2, 4, 8, 16, 32];
        /// Rows of a block.
        rows: i64 = "rows" in [1, 2, 4, 8];
        /// Neighbours that a lane reads at a time.
        vector: i64 = "vector" in [1, 2, 4, 8];
    }
}

/// The rows of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    /// Rows, and the elements of each.
    rows: i64,
    columns: i64,
    /// Numbers that the elements of a row share and its lanes find together.
    shared: i64,
}

/// Rows cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    of: Problem,
    bytes: i64,
    sizes: Sizes,
}

impl Plan {
    /// Elements that the lanes of a row read side by side.
    fn step(&self) -> i64 {
        self.sizes.warps * Cuda::WARP * self.sizes.vector
    }

    /// Vectors of a lane.
    fn steps(&self) -> i64 {
        ceil_div(self.of.columns, self.step())
    }

    /// Whether a lane holds its elements from the first read on.
    fn holds(&self) -> bool {
        !self.is_long() && self.steps() * self.sizes.vector <= MOST_HELD
    }

    fn is_long(&self) -> bool {
        self.of.columns.saturating_mul(self.bytes) > LONGEST_HELD
    }

    fn threads(&self) -> i64 {
        self.sizes.rows * self.sizes.warps * Cuda::WARP
    }

    fn blocks(&self) -> i64 {
        ceil_div(self.of.rows, self.sizes.rows)
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        let steps = if self.holds() { self.steps() } else { 1 };
        let held = ceil_div(steps * self.sizes.vector * self.bytes, 4);
        let shared_bytes =
            if self.sizes.warps > 1 { 4 * self.of.shared * self.sizes.rows * self.sizes.warps } else { 0 };
        Needs { threads: self.threads(), registers: held + OTHER_REGISTERS, shared_bytes }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { warps, rows, vector } = self.sizes;
        self.of.columns % vector == 0
            && vector * self.bytes <= VECTOR_BYTES
            && (self.holds() || self.is_long() && self.threads() >= LONG_THREADS)
            && (warps == 1 || self.step() / 2 < self.of.columns)
            && (rows == 1 || rows / 2 < self.of.rows)
            && self.blocks() <= gpu.grid_dim[0]
    }

    /// What a block waits for, what all lanes of a multiprocessor compute, and what its blocks cost beside that; or the bytes. The
    /// constants are clocks, fitted to the times of 1592 configs on an H100, by which the best of 18 cases is missed by 5 % in the
    /// geometric mean.
    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        const LAUNCH_US: f64 = 0.8;
        /// Of each block that a multiprocessor holds.
        const BLOCK: f64 = 70.0;
        /// From a load until its bytes have come.
        const MEMORY: f64 = 200.0;
        /// For each number that a row shares: of its lanes, and of each of its warps.
        const LANES: f64 = 430.0;
        const WARP: f64 = 7.0;
        /// Of a warp, for each element that its lanes hold, and for each vector.
        const ELEMENT: f64 = 21.0;
        const VECTOR: f64 = 14.0;
        let Waves { count, together, .. } = match self.needs().resident(gpu) {
            0 => return f64::INFINITY,
            resident => Waves::of(self.blocks(), resident, gpu),
        };
        let shared = self.of.shared as f64;
        let warps = if self.sizes.warps > 1 { WARP * self.sizes.warps as f64 } else { 0.0 };
        let own = self.steps() as f64 * (VECTOR + ELEMENT * self.sizes.vector as f64);
        // What is not held waits for the caches each time.
        let own = if self.holds() { own } else { (shared + 1.0) * (own + self.steps() as f64 * MEMORY) };
        // Four schedulers issue for the warps of a multiprocessor.
        let issue = together * (self.threads() / Cuda::WARP) as f64 * own / 4.0;
        let clocks = count * (MEMORY + shared * (LANES + warps) + own.max(issue) + together * BLOCK);
        LAUNCH_US + (clocks / gpu.clock_mhz.max(1) as f64).max(memory_us(w.bytes() as f64, gpu))
    }
}

impl Family for Rows {
    const NAME: &'static str = "rows_cuda";
    const LIMITS: &'static str = "vectors divide a row, its elements fit registers, and all have something to do";
    type Problem = Problem;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Problem, String> {
        device(t)?;
        let stages = w.op.get().stages(w.dtype, DType::F32);
        let [rows, columns] = matrix(w)
            .filter(|_| !matches!(w.op, Op::Reduce(_)) || stages.len() == 1)
            .ok_or("for norms and softmax of rows, and for reductions over the last dimensions")?;
        Ok(Problem { rows, columns, shared: stages.iter().filter(|stage| stage.reduce > 0).count() as i64 })
    }

    /// Vectors of one element hold the fewest and always divide; rows share a block where the grid is too short.
    fn check(case: &Case<'_, Problem>) -> Result<(), String> {
        let fits =
            |warps, rows| Self::plan(case, Sizes { warps, rows, vector: 1 }).is_ok_and(|plan| plan.fits(case.gpu));
        match [1, 2, 4, 8, 16, 32].into_iter().any(|warps| fits(warps, 1) || fits(warps, 8)) {
            true => Ok(()),
            false => Err("rows are too many, or too long for the registers of a block".into()),
        }
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

/// What a thread knows of its place.
struct Block<'a> {
    plan: &'a Plan,
    w: &'a Workload,
    params: Operands,
    /// The row, and the row that is read: beyond the last one it is that.
    row: VarId,
    read: VarId,
    group: VarId,
    warp: VarId,
    lane: VarId,
    /// The elements that the lane holds, all of them or those of a step.
    held: BufferId,
}

impl Block<'_> {
    fn kernel(plan: &Plan, w: &Workload) -> Kernel {
        let mut b = KernelBuilder::new(w.kernel_name());
        let matrix = vec![plan.of.rows, plan.of.columns];
        let params = Operands::shaped(&mut b, w, |p| match (p.role, w.op) {
            (Role::Residual | Role::Output, Op::Reduce(_)) => vec![plan.of.rows],
            (Role::Input | Role::Residual | Role::Output, _) => matrix.clone(),
            _ => p.shape.clone(),
        });
        let Sizes { warps, rows, vector } = plan.sizes;
        let threads = [("group", rows), ("warp", warps), LANE];
        launch(&mut b, [("tile", plan.blocks())], threads, |b, [tile], [group, warp, lane]| {
            let row = b.let_("row", tile * rows + group);
            let read = b.let_("read", Expr::from(row).min(plan.of.rows - 1));
            let steps = if plan.holds() { plan.steps() } else { 1 };
            let held = b.alloc("held", w.dtype, &[steps, vector], Scope::Register);
            Block { plan, w, params, row, read, group, warp, lane, held }.run(b);
        });
        b.finish()
    }

    /// The number of the lane's vector in a step.
    fn piece(&self, step: VarId) -> Expr {
        (step * self.plan.sizes.warps + self.warp) * Cuda::WARP + self.lane
    }

    /// The first column of that vector.
    fn column(&self, step: VarId) -> Expr {
        self.piece(step) * self.plan.sizes.vector
    }

    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder) {
        let (columns, vector) = (self.plan.of.columns, self.plan.sizes.vector);
        if self.plan.holds() {
            unrolled(b, "step", self.plan.steps(), |b, step| self.fetch(b, step, step.into()));
        }
        let mut stages = self.w.op.get().stages(self.w.dtype, DType::F32);
        let last = stages.pop().expect("every operator has a stage");
        if last.reduce > 0 {
            return self.store_number(b, &last);
        }
        let mut shared = vec![];
        for stage in &stages {
            let number = b.alloc(stage.name, stage.dtype, &[1], Scope::Register);
            if stage.reduce > 0 {
                self.combine(b, stage, number, &shared);
            } else {
                b.store(number, vec![0.into()], self.value(stage, None, &shared));
            }
            shared.push(number);
        }
        self.each_step(b, |b, step, place| {
            let (row, first) = (Expr::from(self.row), self.column(step));
            let pieces = [self.plan.sizes.rows, self.plan.step()];
            let exists = inside(&[row.clone(), first.clone()], [self.plan.of.rows, columns], pieces);
            b.when(exists, |b| {
                each_element(b, vector, |b, v| {
                    let value = self.value(&last, Some([place, v.clone()]), &shared);
                    let column = first + v;
                    finish(b, (self.w, &self.params), &matrix_channel(self.w, &row, &column), [row, column], value);
                });
            });
        });
    }

    /// Reads the elements of a step to a place of those that are held. Beyond the last column it reads the last vector again.
    fn fetch(&self, b: &mut KernelBuilder, step: VarId, place: Expr) {
        let (columns, vector) = (self.plan.of.columns, self.plan.sizes.vector);
        let whole = columns % self.plan.step() == 0;
        let piece = if whole { self.piece(step) } else { self.piece(step).min(columns / vector - 1) };
        let first = piece * vector;
        each_element(b, vector, |b, v| {
            let value = Expr::load(self.params.at(0), vec![self.read.into(), first + v.clone()]);
            b.store(self.held, vec![place, v], value);
        });
    }

    /// Visits the steps, with the place where the elements of each are held.
    fn each_step(&self, b: &mut KernelBuilder, mut body: impl FnMut(&mut KernelBuilder, VarId, Expr)) {
        if self.plan.holds() {
            return unrolled(b, "step", self.plan.steps(), |b, step| body(b, step, step.into()));
        }
        b.loop_("step", self.plan.steps(), LoopKind::Serial, |b, step| {
            self.fetch(b, step, 0.into());
            body(b, step, 0.into());
        });
    }

    /// Stores what the row comes to.
    fn store_number(&self, b: &mut KernelBuilder, stage: &Stage) {
        let number = b.alloc(stage.name, stage.dtype, &[1], Scope::Register);
        self.combine(b, stage, number, &[]);
        let (row, rows) = (Expr::from(self.row), self.plan.of.rows);
        let one = Expr::from(self.lane).eq(0).and(Expr::from(self.warp).eq(0));
        let exists = if rows % self.plan.sizes.rows == 0 { one } else { one.and(row.clone().lt(rows)) };
        b.if_(exists, |b| {
            let value = Expr::load(number, vec![0.into()]);
            finish(b, (self.w, &self.params), &matrix_channel(self.w, &row, &Expr::Int(0)), [row], value);
        });
    }

    /// What a stage says of an element that the lane holds, given the numbers that the row's elements share.
    fn value(&self, stage: &Stage, held: Option<[Expr; 2]>, shared: &[BufferId]) -> Expr {
        let element = held.map(|place| Expr::load(self.held, place.to_vec()));
        matrix_value(stage, element, &|i| Expr::load(shared[i], vec![0.into()]))
    }

    /// Combines the terms of a row in `number`, for all of its lanes.
    fn combine(&self, b: &mut KernelBuilder, stage: &Stage, number: BufferId, shared: &[BufferId]) {
        let Sizes { warps, rows, vector } = self.plan.sizes;
        let place = || vec![Expr::Int(0)];
        let (op, neutral) = stage.combine.reduction().expect("a stage that reduces has several terms");
        let add = |b: &mut KernelBuilder, value: Expr| {
            let before = Expr::load(number, place());
            b.store(
                number,
                place(),
                match op {
                    ReduceOp::Add => before + value,
                    ReduceOp::Mul => before * value,
                    ReduceOp::Max => before.max(value),
                    ReduceOp::Min => before.min(value),
                },
            );
        };
        b.store(number, place(), Expr::f32(neutral));
        self.each_step(b, |b, step, place| {
            unrolled(b, "v", vector, |b, v| {
                let term = self.value(stage, Some([place.clone(), v.into()]), shared);
                // An element that is read again is no larger and no smaller than itself.
                let counts =
                    matches!(op, ReduceOp::Max | ReduceOp::Min) || self.plan.of.columns % self.plan.step() == 0;
                let exists = self.column(step).lt(self.plan.of.columns);
                add(b, if counts { term } else { exists.select(term, Expr::f32(neutral)) });
            });
        });
        let other = b.alloc(&format!("{}_of_lane", stage.name), DType::F32, &[1], Scope::Register);
        for name in ["shuffle_xor_16", "shuffle_xor_8", "shuffle_xor_4", "shuffle_xor_2", "shuffle_xor_1"] {
            let op = LaneOp::find(name).expect("an instruction of the table");
            b.gpu(Gpu::Lanes { op, dst: tile(other, place(), &[1]), value: Expr::load(number, place()) });
            add(b, Expr::load(other, place()));
        }
        if warps > 1 {
            let all = b.alloc(&format!("{}_of_warps", stage.name), DType::F32, &[rows, warps], Scope::Shared);
            b.if_(Expr::from(self.lane).eq(0), |b| {
                b.store(all, vec![self.group.into(), self.warp.into()], Expr::load(number, place()));
            });
            b.push(Stmt::Barrier(Barrier::Block));
            b.store(number, place(), Expr::f32(neutral));
            b.loop_("of", warps, LoopKind::Unrolled, |b, of| {
                add(b, Expr::load(all, vec![self.group.into(), of.into()]));
            });
        }
    }
}
