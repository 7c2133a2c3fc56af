//! Products with few rows (a matrix by a vector, a classifier's layer), where the right side is read once and nothing else
//! costs: lanes along the reduction.
//!
//! A lane reads vectors of 16 bytes of a few columns of the right side and of the rows of the left one; a warp's lanes stand
//! side by side along the reduction, its columns are one after the other. `unroll` such steps are read before the first is
//! multiplied, because what is under way is what memory's latency is hidden by. The reduction is split among the warps of a
//! block; lanes and warps add what they have in shared memory, in two rounds and always in the same order.
//!
//! Weights of few bits are read as bytes, and unpacked in registers; a lane's vector lies within a run of weights that share a scale, with
//! which its sum of products with integers is multiplied.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `columns` | 1, 2, 4, 8 | columns of a warp |
//! | `groups` | 1, 2, 4, 8 | warps of a block with different columns |
//! | `slices` | 1 to 16 | warps of a block with different parts of the reduction |
//! | `unroll` | 1, 2, 4, 8 | steps that are read at a time |
//!
//! Columns must be runs: with `trans_b` and for weights of few bits they are, so nothing is packed; otherwise the right side is
//! transposed ahead of time.

use super::family::{self, Case, Family, Needs, Search, built, knobs};
use super::guards::below;
use super::launch::{LANE, launch, share, unrolled};
use super::model::{Waves, ceil_div};
use super::outputs::finish;
use super::requires::device;
use super::schedules::BLOCK;
use crate::ir::builder::KernelBuilder;
use crate::ir::{Access, Axis, BufferId, DType, Expr, Kernel, LoopKind, Scope, VarId};
use crate::target::{Cuda, Target};
use crate::templates::{Pack, Scheduled, TemplateError};
use crate::workload::operands::Operands;
use crate::workload::{Matmul, MatmulNbits, Op, Param, Workload};

/// See the module's text.
pub struct Gemv;

/// Most rows of the result: beyond that a product is no longer bound by reading its right side.
const MOST_ROWS: i64 = 8;
/// Bytes of a thread's longest load.
const VECTOR_BYTES: i64 = 16;
/// Registers of a thread beside sums and operands.
const OTHER_REGISTERS: i64 = 32;

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Columns of a warp.
        columns: i64 = "columns" in [1, 2, 4, 8];
        /// Warps of a block with different columns.
        groups: i64 = "groups" in [1, 2, 4, 8];
        /// Warps of a block with different parts of the reduction.
        slices: i64 = "slices" in [1, 2, 4, 8, 16];
        /// Steps that are read at a time.
        unroll: i64 = "unroll" in [1, 2, 4, 8];
    }
}

/// A product, and what its right side is where that is weights of few bits.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    m: Matmul,
    few_bits: Option<MatmulNbits>,
}

/// A product cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    m: Matmul,
    few_bits: Option<MatmulNbits>,
    /// Bytes of the left operand's element.
    bytes: i64,
    sizes: Sizes,
}

/// Weights of few bits that a load brings: those of a run that fit.
fn weights_of_load(few: &MatmulNbits) -> i64 {
    few.group.min(VECTOR_BYTES * few.bits.in_byte())
}

impl Plan {
    /// Elements of a load of the right side: as many as divide the reduction.
    fn vector(&self) -> i64 {
        if let Some(few) = &self.few_bits {
            return weights_of_load(few);
        }
        let most = VECTOR_BYTES / self.bytes;
        (0..=3).map(|e| most >> e).find(|v| *v >= 1 && self.m.k % v == 0).unwrap_or(1)
    }

    /// Elements of the left side that are read at a time beside weights of few bits.
    fn piece(&self) -> i64 {
        self.vector().min(VECTOR_BYTES / self.bytes)
    }

    /// Bytes that a load of the right side brings.
    fn load_bytes(&self) -> i64 {
        self.few_bits.map_or(self.vector() * self.bytes, |few| self.vector() / few.bits.in_byte())
    }

    /// Bytes of a column of the right side, with its scales.
    fn column_bytes(&self) -> i64 {
        self.few_bits.map_or(self.m.k * self.bytes, |few| few.row_bytes() + few.groups() * self.bytes)
    }

    /// Elements of the reduction that a block's warps read in a step.
    fn step(&self) -> i64 {
        self.sizes.slices * Cuda::WARP * self.vector()
    }

    fn threads(&self) -> i64 {
        Cuda::WARP * self.sizes.slices * self.sizes.groups
    }

    /// Columns of a block.
    fn block_columns(&self) -> i64 {
        self.sizes.groups * self.sizes.columns
    }

    /// Sums of a block.
    fn sums(&self) -> i64 {
        self.block_columns() * self.m.m
    }

    /// What is added for each of them in the end.
    fn partials(&self) -> i64 {
        self.sizes.slices * Cuda::WARP
    }

    /// What is left of that after the first round: about its square root.
    fn halfway(&self) -> i64 {
        match self.partials() {
            ..64 => 4,
            64..256 => 8,
            256.. => 16,
        }
    }

    /// Elements between the partial sums of two results: threads of a warp that add for different results read different
    /// banks.
    fn pitch(&self) -> i64 {
        self.partials() + self.halfway()
    }

    fn blocks(&self) -> i64 {
        self.m.batch * ceil_div(self.m.n, self.block_columns())
    }

    fn shared_bytes(&self) -> i64 {
        4 * self.sums() * (self.pitch() + self.halfway() + 1) + 32
    }

    fn registers(&self) -> i64 {
        let Sizes { columns, unroll, .. } = self.sizes;
        let (right, sums) = (unroll * columns * ceil_div(self.load_bytes(), 4), columns * self.m.m);
        match self.few_bits {
            // Scale and zero point of each column, its sums apart, and a piece of each row of the left side.
            Some(_) => right + columns * 2 * unroll + 2 * sums + 4 * self.m.m + OTHER_REGISTERS,
            None => right + unroll * self.m.m * ceil_div(self.vector() * self.bytes, 4) + sums + OTHER_REGISTERS,
        }
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: self.threads(), registers: self.registers(), shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { columns, groups, slices, unroll } = self.sizes;
        let steps = ceil_div(self.m.k, self.step());
        let useful = (slices == 1 || self.step() / 2 < self.m.k)
            && (unroll == 1 || unroll / 2 < steps)
            && (groups == 1 || columns * groups / 2 < self.m.n)
            && (columns == 1 || columns / 2 < self.m.n);
        useful && self.shared_bytes() <= gpu.shared_per_block && self.blocks() <= gpu.grid_dim[0]
    }

    fn us(&self, _: &Workload, gpu: &Cuda) -> f64 {
        estimate(self, gpu)
    }
}

impl Family for Gemv {
    const NAME: &'static str = "gemv_cuda";
    const LIMITS: &'static str = "threads, registers and shared memory suffice, and all have something to do";
    type Problem = Problem;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Problem, String> {
        let gpu = device(t)?;
        let (m, few_bits) = match w.op {
            Op::Matmul(m) => (m, None),
            Op::MatmulNbits(few) => (few.product(), Some(few)),
            _ => return Err("for products".into()),
        };
        if m.m > MOST_ROWS {
            return Err(format!("for products with at most {MOST_ROWS} rows"));
        }
        if m.trans_a && m.m > 1 {
            return Err("for products whose left side is stored row by row".into());
        }
        if m.batch > gpu.grid_dim[2] {
            return Err(format!("for batches of at most {}", gpu.grid_dim[2]));
        }
        match few_bits {
            Some(few) if few.k % weights_of_load(&few) != 0 => {
                Err(format!("for reductions of whole loads of weights, a multiple of {}", weights_of_load(&few)))
            }
            _ => Ok(Problem { m, few_bits }),
        }
    }

    fn plan(case: &Case<'_, Problem>, sizes: Sizes) -> Result<Plan, TemplateError> {
        let Problem { m, few_bits } = case.problem;
        Ok(Plan { m, few_bits, bytes: case.w.dtype.bytes() as i64, sizes })
    }

    fn search(_: &Case<'_, Problem>) -> Search<Sizes> {
        Search::from(Sizes { columns: 1, groups: 1, slices: 1, unroll: 1 })
    }

    fn kernel(case: &Case<'_, Problem>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let pack = (!plan.m.trans_b).then(|| pack(&plan.m, case.w.dtype));
        built(Block::kernel(plan, case.w), pack)
    }
}

/// Predicted microseconds: the right side at the rate that memory gives for what is under way, and the sums at the end.
/// The latencies are an H100's.
fn estimate(plan: &Plan, gpu: &Cuda) -> f64 {
    /// Microseconds to launch and to end.
    const LAUNCH_US: f64 = 1.4;
    /// Clocks from a load until its bytes have come, out of the L2 cache and out of memory.
    const L2_LATENCY: f64 = 600.0;
    const MEMORY_LATENCY: f64 = 1100.0;
    /// Bytes a clock that one multiprocessor gets from the L2 cache.
    const L2_BYTES_PER_CLOCK: f64 = 32.0;
    /// Clocks of both rounds of additions, and of what each result costs beside them.
    const REDUCE: f64 = 350.0;
    let Sizes { columns, unroll, .. } = plan.sizes;
    let resident = gpu.blocks_resident(plan.threads(), plan.registers().min(255), plan.shared_bytes());
    if resident == 0 {
        return f64::INFINITY;
    }
    let Waves { count: waves, together, .. } = Waves::of(plan.blocks(), resident, gpu);
    /// Instructions to make a number of a weight of few bits, and what a column's bytes need.
    const UNPACK: f64 = 3.5;
    let (m, bytes) = (&plan.m, plan.bytes as f64);
    // A block's columns, and the rows of the left side, which come from the first-level cache where blocks share them.
    let right = plan.block_columns() as f64 * plan.column_bytes() as f64;
    let left = m.m as f64 * m.k as f64 * bytes;
    let cached = ((m.batch * m.n * plan.column_bytes()) as f64) < 0.5 * gpu.l2_bytes as f64;
    let latency = if cached { L2_LATENCY } else { MEMORY_LATENCY };
    let under_way = together * plan.threads() as f64 * (unroll * columns * plan.load_bytes()) as f64;
    let share_of_memory = gpu.bandwidth_gb_s * 1e3 / gpu.clock_mhz as f64 / gpu.sm_count as f64;
    let most = if cached { L2_BYTES_PER_CLOCK } else { share_of_memory };
    let rate = most.min(under_way / latency);
    let steps = ceil_div(m.k, plan.step() * unroll) as f64;
    let instructions = together * plan.threads() as f64 / 128.0
        * (steps * (unroll * plan.vector()) as f64)
        * match plan.few_bits {
            Some(_) => (columns * m.m) as f64 + UNPACK * columns as f64 + if bytes < 4.0 { m.m as f64 } else { 0.0 },
            None => (columns * m.m) as f64 * if bytes < 4.0 { 2.0 } else { 1.1 },
        };
    let stream = (together * right / rate).max(together * (right + left) / L2_BYTES_PER_CLOCK).max(instructions);
    let reduce = REDUCE + together * (plan.sums() * plan.partials()) as f64 / 64.0;
    LAUNCH_US + waves * (latency + stream + reduce) / gpu.clock_mhz.max(1) as f64
}

/// Brings the right side into the order in which it is read: columns as runs.
fn pack(m: &Matmul, dtype: DType) -> Pack {
    const ROWS: i64 = 8;
    let mut b = KernelBuilder::new("pack_b");
    let original = b.param("b", dtype, &m.b_shape(), Access::Read);
    let packed = b.param("packed", dtype, &packed_shape(m), Access::Write);
    b.loop_("batch", m.batch, BLOCK(Axis::Z), |b, batch| {
        launch(b, [("tile", ceil_div(m.n, Cuda::WARP))], [("row", ROWS), LANE], |b, [tile], [row, lane]| {
            let n = b.let_("n", tile * Cuda::WARP + lane);
            b.for_("step", ceil_div(m.k, ROWS), |b, step| {
                let k = b.let_("at", step * ROWS + row);
                let inside = Expr::from(n).lt(m.n).and(Expr::from(k).lt(m.k));
                b.if_(inside, |b| {
                    let value = Expr::load(original, indices(m, batch, [k.into(), n.into()]));
                    b.store(packed, indices(m, batch, [n.into(), k.into()]), value);
                });
            });
        });
    });
    Pack { param: "b".into(), kernel: b.finish() }
}

fn packed_shape(m: &Matmul) -> Vec<i64> {
    let batch = (m.batch > 1).then_some(m.batch);
    batch.into_iter().chain([m.n, m.k]).collect()
}

/// A place in a matrix, of a batch where there is one.
fn indices(m: &Matmul, batch: VarId, [row, column]: [Expr; 2]) -> Vec<Expr> {
    let batch = (m.batch > 1).then(|| batch.into());
    batch.into_iter().chain([row, column]).collect()
}

/// What a thread knows of its place.
struct Block<'a> {
    plan: &'a Plan,
    w: &'a Workload,
    params: Operands,
    batch: VarId,
    tile: VarId,
    group: VarId,
    slice: VarId,
    lane: VarId,
}

/// What a thread reads at a time, and its sums.
struct Registers {
    left: BufferId,
    right: BufferId,
    acc: BufferId,
    few_bits: Option<OfRuns>,
}

/// What weights of few bits have beside them.
struct OfRuns {
    few: MatmulNbits,
    scale: BufferId,
    /// Zero points, where they are a parameter.
    zero: Option<BufferId>,
    /// Sums of products with integers.
    sums: BufferId,
}

impl Block<'_> {
    fn kernel(plan: &Plan, w: &Workload) -> Kernel {
        let mut b = KernelBuilder::new(w.kernel_name());
        let m = &plan.m;
        let packed = |p: &Param| p.name == "b" && plan.few_bits.is_none();
        let right = |p: &Param| if packed(p) { packed_shape(m) } else { p.shape.clone() };
        let params = Operands::shaped(&mut b, w, right);
        let Sizes { groups, slices, .. } = plan.sizes;
        b.loop_("batch", m.batch, BLOCK(Axis::Z), |b, batch| {
            let columns = [("tile", ceil_div(m.n, plan.block_columns()))];
            launch(b, columns, [("group", groups), ("slice", slices), LANE], |b, [tile], [group, slice, lane]| {
                Block { plan, w, params, batch, tile, group, slice, lane }.run(b);
            });
        });
        b.finish()
    }

    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder) {
        let (plan, m) = (self.plan, &self.plan.m);
        let Sizes { columns, unroll, .. } = plan.sizes;
        let few_bits = plan.few_bits.map(|few| OfRuns {
            few,
            scale: b.alloc("scale", DType::F32, &[unroll, columns], Scope::Register),
            zero: few.asymmetric.then(|| b.alloc("zero", DType::F32, &[unroll, columns], Scope::Register)),
            sums: b.alloc("sums", DType::F32, &[columns, m.m], Scope::Register),
        });
        let (right, elements, left) = match &few_bits {
            Some(_) => (DType::U8, plan.load_bytes(), [1, m.m, plan.piece()]),
            None => (self.w.dtype, plan.vector(), [unroll, m.m, plan.vector()]),
        };
        let registers = Registers {
            left: b.alloc("left", self.w.dtype, &left, Scope::Register),
            right: b.alloc("right", right, &[unroll, columns, elements], Scope::Register),
            acc: b.alloc("acc", DType::F32, &[columns, m.m], Scope::Register),
            few_bits,
        };
        self.each_sum(b, |b, index| b.store(registers.acc, index, Expr::f32(0.0)));
        // Steps in which all lanes have something to read; of the last one some may have none.
        let whole = m.k / plan.step();
        let rounds = whole / unroll;
        let several = |b: &mut KernelBuilder, first: Expr, count: i64| {
            unrolled(b, "ahead", count, |b, u| self.read(b, &registers, u.into(), self.at(first.clone() + u)));
            unrolled(b, "now", count, |b, u| self.multiply(b, &registers, u.into(), &self.at(first + u)));
        };
        if rounds > 0 {
            b.for_("round", rounds, |b, round| several(b, round * unroll, unroll));
        }
        if whole % unroll > 0 {
            several(b, (rounds * unroll).into(), whole % unroll);
        }
        if m.k % plan.step() > 0 {
            let k = b.let_("k", self.at(whole.into()));
            b.if_(Expr::from(k).lt(m.k), |b| {
                self.read(b, &registers, 0.into(), k.into());
                self.multiply(b, &registers, 0.into(), &k.into());
            });
        }
        self.reduce(b, &registers);
    }

    /// Where the thread's vector of a step begins.
    fn at(&self, step: Expr) -> Expr {
        let Sizes { slices, .. } = self.plan.sizes;
        ((step * slices + self.slice) * Cuda::WARP + self.lane) * self.plan.vector()
    }

    fn column(&self, within: Expr) -> Expr {
        let Sizes { columns, .. } = self.plan.sizes;
        self.tile * self.plan.block_columns() + self.group * columns + within
    }

    /// Reads the vectors at `k`, of each row and column.
    fn read(&self, b: &mut KernelBuilder, registers: &Registers, u: Expr, k: Expr) {
        let (plan, m) = (self.plan, &self.plan.m);
        unrolled(b, "column", plan.sizes.columns, |b, column| {
            let n = self.column(column.into());
            // Beyond the last column the last one is read; what becomes of it is dropped.
            let n = if m.n % plan.block_columns() == 0 { n } else { n.min(m.n - 1) };
            if let Some(of) = &registers.few_bits {
                return self.read_weights(b, (registers, of), [u.clone(), column.into()], (&n, &k));
            }
            b.loop_("v", plan.vector(), LoopKind::Vectorized, |b, v| {
                let value = Expr::load(self.params.get("b"), indices(m, self.batch, [n, k.clone() + v]));
                b.store(registers.right, vec![u.clone(), column.into(), v.into()], value);
            });
        });
        if registers.few_bits.is_none() {
            self.read_left(b, registers, (u, plan.vector()), &k);
        }
    }

    /// Reads `count` elements of each row of the left side from the `k`th on.
    fn read_left(&self, b: &mut KernelBuilder, registers: &Registers, (u, count): (Expr, i64), k: &Expr) {
        let m = &self.plan.m;
        unrolled(b, "row", m.m, |b, row| {
            b.loop_("v", count, LoopKind::Vectorized, |b, v| {
                let k = k.clone() + v;
                let place = if m.trans_a { [k, row.into()] } else { [row.into(), k] };
                let value = Expr::load(self.params.get("a"), indices(m, self.batch, place));
                b.store(registers.left, vec![u, row.into(), v.into()], value);
            });
        });
    }

    /// Reads the bytes of a column's weights from the `k`th on, with their scale and their zero point.
    fn read_weights(
        &self,
        b: &mut KernelBuilder,
        (registers, of): (&Registers, &OfRuns),
        place: [Expr; 2],
        (n, k): (&Expr, &Expr),
    ) {
        let [u, column] = place.clone();
        let first = k.clone().floor_div(of.few.bits.in_byte());
        b.loop_("v", self.plan.load_bytes(), LoopKind::Vectorized, |b, v| {
            let value = Expr::load(self.params.get("b"), vec![n.clone(), first + v]);
            b.store(registers.right, vec![u, column, v.into()], value);
        });
        let run = k.clone().floor_div(of.few.group);
        let scale = Expr::load(self.params.get("b_scale"), vec![n.clone(), run.clone()]);
        b.store(of.scale, place.to_vec(), scale);
        if let Some(zero) = of.zero {
            let byte = |at: Expr| Expr::load(self.params.get("b_zero"), vec![n.clone(), at]);
            b.store(zero, place.to_vec(), of.few.unpacked(run, byte).cast(DType::F32));
        }
    }

    /// Adds the products with weights of few bits from the `k`th on: first of integers, then of these sums with their scale. The left side
    /// comes from near caches, and is read when it is needed, piece by piece.
    fn multiply_weights(&self, b: &mut KernelBuilder, (registers, of): (&Registers, &OfRuns), u: &Expr, k: &Expr) {
        let (in_byte, middle, piece) = (of.few.bits.in_byte(), of.few.bits.middle(), self.plan.piece());
        self.each_sum(b, |b, index| b.store(of.sums, index, Expr::f32(0.0)));
        unrolled(b, "piece", self.plan.vector() / piece, |b, at| {
            self.read_left(b, registers, (0.into(), piece), &(k.clone() + at * piece));
            unrolled(b, "byte", piece / in_byte, |b, byte| {
                unrolled(b, "column", self.plan.sizes.columns, |b, column| {
                    let index = vec![u.clone(), column.into(), at * (piece / in_byte) + byte];
                    let integers = of.few.parts(Expr::load(registers.right, index));
                    let zero = match of.zero {
                        Some(zero) => Expr::load(zero, vec![u.clone(), column.into()]),
                        None => Expr::f32(middle as f64),
                    };
                    for (part, integer) in (0..).zip(integers) {
                        let weight = integer.cast(DType::F32) - zero.clone();
                        unrolled(b, "row", self.plan.m.m, |b, row| {
                            let left = Expr::load(registers.left, vec![0.into(), row.into(), byte * in_byte + part]);
                            b.sum(of.sums, vec![column.into(), row.into()], weight.clone() * left, &[]);
                        });
                    }
                });
            });
        });
        self.each_sum(b, |b, index| {
            let scale = Expr::load(of.scale, vec![u.clone(), index[0].clone()]);
            b.sum(registers.acc, index.clone(), Expr::load(of.sums, index) * scale, &[]);
        });
    }

    /// Multiplies what was read from the `k`th on.
    fn multiply(&self, b: &mut KernelBuilder, registers: &Registers, u: Expr, k: &Expr) {
        if let Some(of) = &registers.few_bits {
            return self.multiply_weights(b, (registers, of), &u, k);
        }
        unrolled(b, "v", self.plan.vector(), |b, v| {
            self.each_sum(b, |b, index| {
                let right = Expr::load(registers.right, vec![u.clone(), index[0].clone(), v.into()]);
                let left = Expr::load(registers.left, vec![u, index[1].clone(), v.into()]);
                b.sum(registers.acc, index, right * left, &[]);
            });
        });
    }

    /// Visits the thread's sums: column, row.
    fn each_sum(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, Vec<Expr>)) {
        unrolled(b, "column", self.plan.sizes.columns, |b, column| {
            unrolled(b, "row", self.plan.m.m, |b, row| body(b, vec![column.into(), row.into()]));
        });
    }

    /// Adds what lanes and slices have, and stores it.
    fn reduce(&self, b: &mut KernelBuilder, registers: &Registers) {
        let (plan, m) = (self.plan, &self.plan.m);
        let (sums, partials, halfway) = (plan.sums(), plan.partials(), plan.halfway());
        let Sizes { columns, slices, .. } = plan.sizes;
        let partial = b.alloc("partial", DType::F32, &[sums, plan.pitch()], Scope::Shared);
        self.each_sum(b, |b, index| {
            let sum = (self.group * columns + index[0].clone()) * m.m + index[1].clone();
            let place = vec![sum, self.slice * Cuda::WARP + self.lane];
            b.store(partial, place, Expr::load(registers.acc, index));
        });
        let thread = (self.group * slices + self.slice) * Cuda::WARP + self.lane;
        let add = |b: &mut KernelBuilder, count: i64, from: &dyn Fn(VarId) -> Expr| {
            let sum = b.alloc("sum", DType::F32, &[1], Scope::Register);
            b.store(sum, vec![0.into()], Expr::f32(0.0));
            unrolled(b, "other", count, |b, other| b.sum(sum, vec![0.into()], from(other), &[]));
            Expr::load(sum, vec![0.into()])
        };
        let half = b.alloc("half", DType::F32, &[sums, halfway + 1], Scope::Shared);
        share(b, plan.threads(), thread.clone(), sums * halfway, |b, element| {
            let (sum, part) = (element.clone().floor_div(halfway), element.floor_mod(halfway));
            let value = add(b, partials / halfway, &|other| {
                Expr::load(partial, vec![sum.clone(), part.clone() + other * halfway])
            });
            b.store(half, vec![sum.clone(), part.clone()], value);
        });
        share(b, plan.threads(), thread, sums, |b, element| {
            let value = add(b, halfway, &|other| Expr::load(half, vec![element.clone(), other.into()]));
            let n = self.tile * plan.block_columns() + element.clone().floor_div(m.m);
            let index = indices(m, self.batch, [element.floor_mod(m.m), n.clone()]);
            let exists = below(n.clone(), m.n, plan.block_columns());
            b.when(exists, |b| finish(b, (self.w, &self.params), &n, index, value));
        });
    }
}
