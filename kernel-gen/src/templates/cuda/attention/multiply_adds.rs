//! Attention in `f32` by multiply-adds, without tensor cores.
//!
//! A block has `4 * rows * warps` queries of one head, and goes through the keys in steps of `keys`, which `cp.async` brings with their
//! values into a ring of `stages` slots, as in [`attention`](super). Eight lanes have a row between them: a thread adds up the scores of
//! `rows` queries by every eighth key, and `rows` times vectors of weighted values. Weights go through shared memory, where a warp has its
//! own. All that is read from there comes in vectors of 16 bytes, a vector of operands for every four multiply-adds of a row.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `warps` | 1, 2, 4, 8 | warps of a block |
//! | `rows` | 2, 4, 8 | queries of a thread |
//! | `keys` | 32, 64 | keys of a step |
//! | `stages` | 1, 2, 3 | slots of the ring |

use super::copies::Copies;
use super::plan::{fits_grid, too_large};
use super::rows::{ACROSS, Held, Place, Rows, State};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, DType, Expr, Kernel, LoopKind, Scope, Stmt, VarId};
use crate::target::{Cuda, Target};
use crate::templates::cuda::family::{self, Case, Family, Needs, Search, built, knobs};
use crate::templates::cuda::launch::{LANE, launch, unrolled};
use crate::templates::cuda::model::{Waves, ceil_div, memory_us};
use crate::templates::cuda::outer::{LANES, VECTOR, lanes_of};
use crate::templates::cuda::product::widest;
use crate::templates::cuda::requires;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::operands::Operands;
use crate::workload::{Attention, Op, Workload};

/// See the module's text.
pub struct AttentionSimt;

/// Columns of values that the lanes of a row have in a vector each.
const CHUNK: i64 = ACROSS * VECTOR;
/// Elements by which rows of weights are longer than they need be: four rows of eight neighbours lie in different banks.
const WEIGHT_PAD: i64 = 8;
/// Most elements of a value: sums of a thread's rows have to fit its registers.
const WIDEST: i64 = 256;
/// Multiply-adds of a thread that are written out: a thousand are 16 kB of instructions.
const MOST_UNROLLED: i64 = 512;
/// Registers of a thread beside operands and sums.
const OTHER_REGISTERS: i64 = 40;

/// Microseconds to launch and to end; clocks until the first keys have come and after the last step; clocks of a step that hide below
/// nothing; instructions of a score beside its products.
const LAUNCH_US: f64 = 1.5;
const FILL_CLOCKS: f64 = 1500.0;
const STEP_CLOCKS: f64 = 300.0;
const SCORE_INSTRUCTIONS: f64 = 10.0;
/// The share of the rate of multiply-adds that warps reach together, and one that has its scheduler alone.
const RATE: f64 = 0.8;
const ALONE: f64 = 0.5;

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Warps of a block.
        warps: i64 = "warps" in [1, 2, 4, 8];
        /// Queries of a thread.
        rows: i64 = "rows" in [2, 4, 8];
        /// Keys of a step.
        keys: i64 = "keys" in [32, 64];
        /// Slots of the ring.
        stages: i64 = "stages" in [1, 2, 3];
    }
}

/// Attention cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    of: Attention,
    sizes: Sizes,
}

impl Plan {
    /// Elements of a key and of a value in shared memory, with the zeros that fill up vectors, and vectors of all lanes.
    fn widths(&self) -> [i64; 2] {
        [ceil_div(self.of.d, VECTOR) * VECTOR, ceil_div(self.of.dv, CHUNK) * CHUNK]
    }

    /// From a row to the next in shared memory: an odd number of vectors, so that neighbours lie in different banks.
    fn pitch(&self) -> i64 {
        let vectors = self.widths()[0] / VECTOR;
        (vectors + 1 - vectors % 2) * VECTOR
    }

    fn warp_rows(&self) -> i64 {
        LANES[0] * self.sizes.rows
    }

    fn block_rows(&self) -> i64 {
        self.warp_rows() * self.sizes.warps
    }

    fn tiles(&self) -> i64 {
        ceil_div(self.of.m, self.block_rows())
    }

    fn steps(&self) -> i64 {
        ceil_div(self.of.n, self.sizes.keys)
    }

    fn threads(&self) -> i64 {
        self.sizes.warps * Cuda::WARP
    }

    /// Scores and weighted values that a thread has of a row.
    fn own(&self) -> [i64; 2] {
        [self.sizes.keys / ACROSS, self.widths()[1] / ACROSS]
    }

    /// Registers of a thread. Compilers hold all arrays at the same time: less was counted for eight rows of 128 values, which spilled.
    fn registers(&self) -> i64 {
        let rows = self.sizes.rows;
        let [scores, values] = self.own();
        rows * (scores + values + VECTOR) + VECTOR.max(values) + State::registers(rows) + OTHER_REGISTERS
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        let Sizes { keys, stages, .. } = self.sizes;
        let rows = self.block_rows();
        let elements =
            rows * self.pitch() + stages * keys * (self.pitch() + self.widths()[1]) + rows * (keys + WEIGHT_PAD);
        Needs { threads: self.threads(), registers: self.registers(), shared_bytes: 4 * elements }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { warps, rows, keys, stages } = self.sizes;
        let Attention { m, n, .. } = self.of;
        (warps * rows == 2 || self.block_rows() < 2 * m.max(8))
            && (keys == 32 || keys < 2 * n)
            && stages <= self.steps().max(2)
            && fits_grid(&self.of, self.tiles(), gpu)
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        let Sizes { warps, rows, keys, .. } = self.sizes;
        let resident = self.needs().resident(gpu);
        if resident == 0 {
            return f64::INFINITY;
        }
        let of = &self.of;
        let Waves { count, together, .. } = Waves::of(of.b * of.heads * self.tiles(), resident, gpu);
        let [d, dv] = self.widths().map(|n| n as f64);
        let scores = (self.block_rows() * keys) as f64;
        let products = 2.0 * scores * (d + dv) / gpu.f32_flops_per_sm_clock.max(1) as f64;
        let issue = scores * SCORE_INSTRUCTIONS / 128.0;
        // Half a warp's vectors are read in a clock: of queries and keys, and of weights and values.
        let [own, chunks] = self.own().map(|n| n as f64);
        let vectors = d / 4.0 * (rows as f64 + own) + keys as f64 / 4.0 * (rows as f64 + chunks);
        let shared = 2.0 * warps as f64 * vectors;
        let busy = (products / RATE + issue).max(shared) * together;
        let alone = (products / ALONE + issue) / (warps as f64 / 4.0).min(1.0);
        let steps = self.steps() as f64 * if of.causal { 0.6 } else { 1.0 };
        let clocks = count * (FILL_CLOCKS + steps * (busy.max(alone) + STEP_CLOCKS));
        LAUNCH_US + (clocks / gpu.clock_mhz.max(1) as f64).max(memory_us(w.bytes() as f64, gpu))
    }
}

impl Family for AttentionSimt {
    const NAME: &'static str = "attention_simt";
    const LIMITS: &'static str = "registers and shared memory suffice, and all have something to do";
    const SMALLEST: Option<Sizes> = Some(Sizes { warps: 1, rows: 2, keys: 32, stages: 1 });
    type Problem = Attention;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Attention, String> {
        let gpu = requires::device(t)?;
        let Op::Attention(of) = w.op else { return Err("for attention".into()) };
        requires::needs_f32(w)?;
        requires::needs_cp_async(gpu)?;
        if of.dv > WIDEST {
            return Err(format!("registers hold up to {WIDEST} elements of a value, not {}", of.dv));
        }
        Ok(of)
    }

    fn too_large(case: &Case<'_, Attention>) -> String {
        match fits_grid(&case.problem, 1, case.gpu) {
            true => format!("shared memory does not hold {} elements of a key", case.problem.d),
            false => too_large(&case.problem),
        }
    }

    fn plan(case: &Case<'_, Attention>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(Plan { of: case.problem, sizes })
    }

    fn search(_: &Case<'_, Attention>) -> Search<Sizes> {
        Search::All
    }

    fn kernel(case: &Case<'_, Attention>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        built(build(case.w, plan), [])
    }
}

fn build(w: &Workload, plan: &Plan) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::declare(&mut b, w);
    let blocks = [("head_of_batch", plan.of.b * plan.of.heads), ("tile", plan.tiles())];
    launch(&mut b, blocks, [("warp", plan.sizes.warps), LANE], |b, block, [warp, lane]| {
        let place = Place::of(b, &plan.of, plan.tiles(), block);
        let Sizes { rows: count, keys, stages, .. } = plan.sizes;
        let (block_rows, widths, pitch) = (plan.block_rows(), plan.widths(), plan.pitch());
        let [down, across] = lanes_of(lane);
        let first = b.let_("own_row", warp * plan.warp_rows() + down);
        let across = b.let_("own_column", across);
        let [scores, values] = plan.own();
        let mut register = |name: &str, shape: &[i64]| b.alloc(name, DType::F32, shape, Scope::Register);
        let [query, other] = [register("query", &[count, VECTOR]), register("other_operand", &[values.max(VECTOR)])];
        let (scores, mixed) = (register("scores", &[count, scores]), register("mixed", &[count, values]));
        let rows = Rows {
            w,
            of: plan.of,
            params: &params,
            place,
            held: Held::Registers { lane: across },
            block_rows,
            keys,
            width: widths[1],
            scores,
            mixed,
            state: State::make(b, [count, 1]),
        };
        let mut shared = |name: &str, shape: &[i64]| b.alloc(name, DType::F32, shape, Scope::Shared);
        let copies = Copies {
            of: plan.of,
            params: &params,
            place,
            threads: plan.threads(),
            thread: warp * Cuda::WARP + lane,
            block_rows,
            keys,
            stages,
            widths,
            units: [plan.of.d, plan.of.dv].map(|n| widest(n, VECTOR)),
            queries: shared("queries", &[block_rows, pitch]),
            ring: [shared("keys", &[stages, keys, pitch]), shared("values", &[stages, keys, widths[1]])],
        };
        let weights = shared("weights", &[block_rows, keys + WEIGHT_PAD]);
        Threads { plan, rows, copies, weights, query, other, first, across }.run(b);
    });
    b.finish()
}

/// What a block and its threads hold and know.
struct Threads<'a> {
    plan: &'a Plan,
    rows: Rows<'a>,
    copies: Copies<'a>,
    /// Weights in shared memory.
    weights: BufferId,
    /// Operands of a thread: a vector of each of its rows, and one of a key, or a value's.
    query: BufferId,
    other: BufferId,
    /// The first of the thread's rows in its block; the next ones are as many farther as lanes are above each other.
    first: VarId,
    /// The lane's number among those of a row.
    across: VarId,
}

impl Threads<'_> {
    /// The thread's row with number `i` in its block.
    fn row(&self, i: i64) -> Expr {
        self.first + i * LANES[0]
    }

    fn run(&self, b: &mut KernelBuilder) {
        let (count, tile) = (self.plan.sizes.rows, self.copies.place.tile);
        let query = |i: i64| tile * self.plan.block_rows() + self.row(i);
        let begin = |b: &mut KernelBuilder| {
            for i in 0..count {
                self.clear(b, self.rows.mixed, i, self.plan.own()[1]);
                self.rows.begin(b, i);
            }
        };
        self.copies.run(b, begin, |b, step, slot| {
            self.multiply_keys(b, slot);
            let first_key = b.let_("first_key", step * self.plan.sizes.keys).into();
            for i in 0..count {
                self.rows.weigh(b, i, &query(i), &first_key);
                self.rows.rescale(b, i);
                unrolled(b, "score", self.plan.own()[0], |b, j| {
                    let weight = Expr::load(self.rows.scores, vec![i.into(), j.into()]);
                    b.store(self.weights, [self.row(i), j * ACROSS + self.across], weight);
                });
            }
            // The lanes of a row have its weights between them.
            b.push(Stmt::Barrier(Barrier::Warp));
            self.multiply_values(b, slot);
        });
        (0..count).for_each(|i| self.rows.store(b, i, &query(i)));
    }

    fn clear(&self, b: &mut KernelBuilder, sums: BufferId, i: i64, count: i64) {
        unrolled(b, "j", count, |b, j| b.store(sums, [i.into(), j.into()], Expr::f32(0.0)));
    }

    /// Brings a vector from shared memory to registers.
    fn bring(b: &mut KernelBuilder, to: (BufferId, &[Expr]), from: (BufferId, &[Expr])) {
        let at = |index: &[Expr], element: VarId| {
            let (last, before) = index.split_last().expect("an index");
            [before, &[last.clone() + element]].concat()
        };
        b.loop_("element", VECTOR, LoopKind::Vectorized, |b, element| {
            b.store(to.0, at(to.1, element), Expr::load(from.0, at(from.1, element)));
        });
    }

    /// Brings the vectors at `column` of the thread's rows.
    fn bring_rows(&self, b: &mut KernelBuilder, from: BufferId, column: &Expr) {
        for i in 0..self.plan.sizes.rows {
            Self::bring(b, (self.query, &[i.into(), 0.into()]), (from, &[self.row(i), column.clone()]));
        }
    }

    /// Visits `count` vectors of a row. Some at a time are written out, so that a thread's loads need not wait for the products in
    /// front of them; each has `products` multiply-adds.
    fn each_vector(b: &mut KernelBuilder, count: i64, products: i64, one: impl Fn(&mut KernelBuilder, &Expr)) {
        let together = [4, 2].into_iter().find(|n| count % n == 0 && n * products <= MOST_UNROLLED).unwrap_or(1);
        b.for_("part", count / together, |b, part| {
            (0..together).for_each(|i| one(b, &((part * together + i) * VECTOR)));
        });
    }

    /// Scores: products of queries and keys.
    fn multiply_keys(&self, b: &mut KernelBuilder, slot: VarId) {
        let (count, [scores, _]) = (self.plan.sizes.rows, self.plan.own());
        (0..count).for_each(|i| self.clear(b, self.rows.scores, i, scores));
        Self::each_vector(b, self.plan.widths()[0] / VECTOR, count * scores * VECTOR, |b, column| {
            self.bring_rows(b, self.copies.queries, column);
            for j in 0..scores {
                let key = [slot.into(), self.across + j * ACROSS, column.clone()];
                Self::bring(b, (self.other, &[0.into()]), (self.copies.ring[0], &key));
                for element in 0..VECTOR {
                    for i in 0..count {
                        let query = Expr::load(self.query, vec![i.into(), element.into()]);
                        let product = query * Expr::load(self.other, vec![element.into()]);
                        b.sum(self.rows.scores, [i.into(), j.into()], product, &[]);
                    }
                }
            }
        });
    }

    /// Adds the weighted values of a step.
    fn multiply_values(&self, b: &mut KernelBuilder, slot: VarId) {
        let (count, [_, values]) = (self.plan.sizes.rows, self.plan.own());
        Self::each_vector(b, self.plan.sizes.keys / VECTOR, count * values * VECTOR, |b, first| {
            self.bring_rows(b, self.weights, first);
            for element in 0..VECTOR {
                for vector in 0..values / VECTOR {
                    let value = [slot.into(), first.clone() + element, self.across * VECTOR + vector * CHUNK];
                    Self::bring(b, (self.other, &[(vector * VECTOR).into()]), (self.copies.ring[1], &value));
                }
                for i in 0..count {
                    for j in 0..values {
                        let weight = Expr::load(self.query, vec![i.into(), element.into()]);
                        b.sum(
                            self.rows.mixed,
                            [i.into(), j.into()],
                            weight * Expr::load(self.other, vec![j.into()]),
                            &[],
                        );
                    }
                }
            }
        });
    }
}
