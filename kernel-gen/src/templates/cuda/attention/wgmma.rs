//! Attention with products of a warpgroup, on Hopper.
//!
//! A block has 64 queries of one head for each of its `consumers` warpgroups. One more has the copy engine (TMA) bring keys and values
//! into two rings of `stages` slots. A consumer multiplies its queries by a step's keys while the values of the step before are
//! multiplied by their weights, and makes weights of the former meanwhile. With `order = turns` consumers issue their products one after
//! the other, so that the tensor cores have those of one while another makes weights. *(Shah et al., FlashAttention-3, arXiv:2407.08608,
//! sections 3.1 and 3.2.)*
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `consumers` | 1, 2, 3 | warpgroups that multiply, of 64 queries each |
//! | `keys` | 32 to 192 | keys of a step |
//! | `stages` | 2, 3, 4 | slots of each ring |
//! | `order` | `free`, `turns` | whether consumers take turns |

use super::model;
use super::plan::{WIDEST, fits_grid, too_large};
use super::rows::{Held, Place, Rows, State};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, DType, Expr, Gpu, Group, Kernel, MbarrierOp, Scope, Slot, Stmt, Tile, Unit, VarId};
use crate::target::{Cuda, Target};
use crate::templates::cuda::family::{self, Case, Family, Needs, Search, built, knobs, words};
use crate::templates::cuda::instructions::{clear, load_box, multiply, tile};
use crate::templates::cuda::launch::launch;
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::requires;
use crate::templates::cuda::ring::Slots;
use crate::templates::cuda::warpgroups::{self, Turns, WARPGROUP, roles};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::attention::OfHeads;
use crate::workload::operands::Operands;
use crate::workload::{Attention, Op, Workload};

/// See the module's text.
pub struct AttentionWgmma;

/// Queries of a warpgroup.
const ROWS: i64 = 64;
/// Elements of 16 bytes, the unit of the copy engine, of which rows in memory have whole numbers.
const UNIT: i64 = 8;
/// Registers of a thread beside operands and sums.
const OTHER_REGISTERS: i64 = 24;

words! {
    /// Whether consumers take turns.
    enum Order {
        /// Each issues its products when it has them.
        Free = "free",
        /// One after the other.
        Turns = "turns",
    }
}

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Warpgroups that multiply.
        consumers: i64 = "consumers" in [1, 2, 3];
        /// Keys of a step.
        keys: i64 = "keys" in [32, 64, 96, 128, 160, 192];
        /// Slots of each ring.
        stages: i64 = "stages" in [2, 3, 4];
        /// Whether consumers take turns.
        order: Order = "order" in Order::ALL;
    }
}

/// How rows of `width` elements lie in shared memory: the number of blocks of columns, and the columns of a block, whose bytes are a swizzle.
fn blocks_of(width: i64) -> [i64; 2] {
    let columns = [16, 32].into_iter().find(|n| width <= *n).unwrap_or(64);
    [ceil_div(width, columns), columns]
}

/// Attention cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    of: Attention,
    sizes: Sizes,
}

impl Plan {
    fn block_rows(&self) -> i64 {
        ROWS * self.sizes.consumers
    }

    fn tiles(&self) -> i64 {
        ceil_div(self.of.m, self.block_rows())
    }

    fn steps(&self) -> i64 {
        ceil_div(self.of.n, self.sizes.keys)
    }

    fn threads(&self) -> i64 {
        (self.sizes.consumers + 1) * WARPGROUP
    }

    /// Bytes of a row of queries or keys, and of values, in shared memory.
    fn row_bytes(&self) -> [i64; 2] {
        [self.of.d, self.of.dv].map(|width| 2 * blocks_of(width).iter().product::<i64>())
    }

    fn shared_bytes(&self) -> i64 {
        let [queries, values] = self.row_bytes();
        self.block_rows() * queries + self.sizes.stages * self.sizes.keys * (queries + values) + 1024
    }

    /// Registers of a thread of a consumer, and how many it may have.
    fn registers(&self) -> [i64; 2] {
        let most = warpgroups::registers(self.sizes.consumers).map_or(255, |[_, consumer]| i64::from(consumer));
        [self.sizes.keys * 3 / 4 + self.of.dv / 2 + State::registers(2) + OTHER_REGISTERS, most]
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: self.threads(), registers: 0, shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { consumers, keys, stages, order } = self.sizes;
        let Attention { m, n, .. } = self.of;
        let [registers, most] = self.registers();
        registers <= most
            && (consumers == 1 || (consumers - 1) * ROWS < m)
            && (consumers > 1 || order == Order::Free)
            && (keys == 32 || keys < 2 * n)
            && stages <= self.steps().max(2)
            && fits_grid(&self.of, self.tiles(), gpu)
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        let Sizes { consumers, keys, .. } = self.sizes;
        let resident = self.needs().resident(gpu).min(65536 / (168 * self.threads())).max(1);
        let [d, dv] = self.row_bytes().map(|bytes| bytes as f64 / 2.0);
        let work = model::Work {
            blocks: self.of.b * self.of.heads * self.tiles(),
            resident,
            steps: self.steps(),
            rows: (ROWS * consumers) as f64,
            keys: keys as f64,
            width: d + dv,
            rate: 0.8,
            warps: 4.0 * consumers as f64,
            operand_rows: (ROWS * consumers) as f64,
            copies: false,
        };
        work.us(&self.of, w, gpu)
    }
}

impl Family for AttentionWgmma {
    const NAME: &'static str = "attention_wgmma";
    const LIMITS: &'static str = "registers and shared memory suffice, and all have something to do";
    const SMALLEST: Option<Sizes> = Some(Sizes { consumers: 1, keys: 32, stages: 2, order: Order::Free });
    type Problem = Attention;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Attention, String> {
        let gpu = requires::device(t)?;
        let Op::Attention(of) = w.op else { return Err("for attention".into()) };
        requires::needs_16_bits(w)?;
        requires::needs_wgmma(gpu)?;
        for (what, n) in [("key", of.d), ("value", of.dv)] {
            if n % UNIT != 0 || n > WIDEST {
                return Err(format!("copies pieces of 16 bytes, up to {WIDEST} elements, and a {what} has {n}"));
            }
        }
        Ok(of)
    }

    fn too_large(case: &Case<'_, Attention>) -> String {
        too_large(&case.problem)
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
    let heads = plan.of.b * plan.of.heads;
    let blocks = [("head_of_batch", heads), ("tile", plan.tiles())];
    launch(&mut b, blocks, [("t", plan.threads())], |b, block, [thread]| {
        let place = Place::of(b, &plan.of, plan.tiles(), block);
        let Sizes { consumers, keys, stages, order } = plan.sizes;
        let rings = [("keys", plan.of.d), ("values", plan.of.dv)].map(|(name, width)| {
            let [blocks, columns] = blocks_of(width);
            b.alloc_swizzled(name, w.dtype, &[stages, blocks, keys, columns], 2 * columns as u32)
        });
        let [blocks, columns] = blocks_of(plan.of.d);
        let queries = b.alloc_swizzled("queries", w.dtype, &[consumers, blocks, ROWS, columns], 2 * columns as u32);
        let come = b.alloc("queries_full", DType::I64, &[1], Scope::Mbarrier);
        let come = Slot { buffer: come, index: 0.into() };
        let init = |b: &mut KernelBuilder| b.gpu(Gpu::Mbarrier(come.clone(), MbarrierOp::Init(1)));
        let slots = [
            Slots::make(b, thread, stages, [1, consumers], init),
            Slots::make(b, thread, stages, [1, consumers], |_| {}),
        ];
        let turns = (order == Order::Turns).then(|| Turns::make(b, thread, consumers));
        let block = Block { w, plan, params: &params, rings, slots, turns, queries, come, place, thread };
        b.push(Stmt::Barrier(Barrier::Block));
        let produces = Expr::from(thread).lt(WARPGROUP);
        let registers = warpgroups::registers(consumers);
        roles(b, produces, registers, |b| block.produce(b), |b| block.consume(b));
    });
    b.finish()
}

/// What a block and its threads hold and know.
struct Block<'a> {
    w: &'a Workload,
    plan: &'a Plan,
    params: &'a Operands,
    /// Keys and values, and who has which of their slots.
    rings: [BufferId; 2],
    slots: [Slots; 2],
    turns: Option<Turns>,
    queries: BufferId,
    /// The barrier that tells that the queries have come.
    come: Slot,
    place: Place,
    thread: VarId,
}

impl Block<'_> {
    /// Steps of the block: those with a key that one of its queries sees.
    fn met(&self, b: &mut KernelBuilder) -> Option<Expr> {
        let (rows, keys) = (self.plan.block_rows(), self.plan.sizes.keys);
        self.plan.of.causal.then(|| {
            let last = self.place.tile * rows + (rows - 1);
            b.let_("steps_met", (last.floor_div(keys) + 1).min(self.plan.steps())).into()
        })
    }

    /// Visits the steps from `first` on.
    fn each_step(
        &self,
        b: &mut KernelBuilder,
        first: i64,
        met: &Option<Expr>,
        body: impl FnOnce(&mut KernelBuilder, &Expr),
    ) {
        if self.plan.steps() > first {
            b.for_("later", self.plan.steps() - first, |b, later| {
                let step: Expr = later + first;
                let exists = met.as_ref().map(|met| step.clone().lt(met.clone()));
                b.when(exists, |b| body(b, &step));
            });
        }
    }

    /// One thread has everything brought.
    fn produce(&self, b: &mut KernelBuilder) {
        let (of, Sizes { consumers, keys, .. }) = (&self.plan.of, self.plan.sizes);
        b.if_(Expr::from(self.thread).eq(0), |b| {
            let [queries, values] = self.plan.row_bytes();
            b.gpu(Gpu::Mbarrier(self.come.clone(), MbarrierOp::Expect(self.plan.block_rows() * queries)));
            for consumer in 0..consumers {
                let row = self.place.tile * self.plan.block_rows() + consumer * ROWS;
                let to = (self.queries, consumer.into());
                self.load(b, to, (OfHeads::Queries, self.place.head.into(), row), ROWS, of.d, &self.come);
            }
            let met = self.met(b);
            let head = Expr::from(self.place.head).floor_div(of.sharing());
            self.each_step(b, 0, &met, |b, step| {
                for (side, of_heads) in [OfHeads::Keys, OfHeads::Values].into_iter().enumerate() {
                    let slots = &self.slots[side];
                    let slot = slots.wait_empty(b);
                    slots.expect(b, &slot, keys * [queries, values][side]);
                    let to = (self.rings[side], slot.clone());
                    let from = (of_heads, head.clone(), step.clone() * keys);
                    self.load(b, to, from, keys, [of.d, of.dv][side], &slots.full(&slot));
                    slots.place.advance(b);
                }
            });
        });
    }

    /// Has rows of a head brought to a slot, block by block of columns; zeros, where there are none.
    fn load(
        &self,
        b: &mut KernelBuilder,
        (to, slot): (BufferId, Expr),
        (of_heads, head, row): (OfHeads, Expr, Expr),
        rows: i64,
        width: i64,
        on: &Slot,
    ) {
        let (of, [blocks, columns]) = (&self.plan.of, blocks_of(width));
        for block in 0..blocks {
            let dst = tile(to, [slot.clone(), block.into(), 0.into(), 0.into()], &[rows, columns]);
            let at = [self.place.image.into(), head.clone(), row.clone(), (block * columns).into()];
            let (from, origin) = (self.params.get(of.operand(of_heads)), of.index(of_heads, at));
            load_box(b, dst, tile(from, origin, &of.in_order([1, 1, rows, columns])), on.clone());
        }
    }

    /// A consumer: its queries by all keys.
    fn consume(&self, b: &mut KernelBuilder) {
        let (of, keys) = (&self.plan.of, self.plan.sizes.keys);
        let consumer = b.let_("consumer", Expr::from(self.thread).floor_div(WARPGROUP) - 1);
        let fragment = Scope::Fragment(Unit::Warpgroup);
        let rows = Rows {
            w: self.w,
            of: *of,
            params: self.params,
            place: self.place,
            held: Held::Fragments { height: ROWS },
            block_rows: self.plan.block_rows(),
            keys,
            width: of.dv,
            scores: b.alloc("scores", DType::F32, &[1, ROWS, keys], fragment),
            mixed: b.alloc("mixed", DType::F32, &[1, ROWS, of.dv], fragment),
            state: State::make(b, [1, 2]),
        };
        let weight = b.alloc("weight", self.w.dtype, &[1, ROWS, keys], fragment);
        let (scores, mixed) = (rows.sums(rows.scores, 0, keys), rows.sums(rows.mixed, 0, of.dv));
        let weights = rows.sums(weight, 0, keys);
        let first_row = self.place.tile * self.plan.block_rows() + consumer * ROWS;
        let first_row = b.let_("first_row", first_row).into();
        let met = self.met(b);
        rows.begin(b, 0);
        clear(b, mixed.clone());
        b.gpu(Gpu::Mbarrier(self.come.clone(), MbarrierOp::Wait(0.into())));
        let by_keys = |b: &mut KernelBuilder| {
            let slot = self.slots[0].wait_full(b);
            clear(b, scores.clone());
            multiply(
                b,
                Unit::Warpgroup,
                scores.clone(),
                (self.queries_of(consumer), false),
                (self.keys_in(&slot), true),
            );
            b.gpu(Gpu::Commit(Group::Mma));
            slot
        };
        let by_values = |b: &mut KernelBuilder| {
            let slot = self.slots[1].wait_full(b);
            multiply(b, Unit::Warpgroup, mixed.clone(), (weights.clone(), false), (self.values_in(&slot), false));
            b.gpu(Gpu::Commit(Group::Mma));
            slot
        };
        let done = |b: &mut KernelBuilder, side: usize, slot: Expr| {
            let one = Expr::from(self.thread).floor_mod(WARPGROUP).eq(0);
            b.if_(one, |b| self.slots[side].give_back(b, slot, None));
            self.slots[side].place.advance(b);
        };
        let slot = by_keys(b);
        b.gpu(Gpu::Wait(Group::Mma, 0));
        done(b, 0, slot);
        rows.weigh(b, 0, &first_row, &0.into());
        b.gpu(Gpu::Move { dst: weights.clone(), src: scores.clone() });
        self.each_step(b, 1, &met, |b, step| {
            self.turns.iter().for_each(|turns| turns.take(b, step.clone() - 1, consumer));
            let slot = by_keys(b);
            let before = by_values(b);
            self.turns.iter().for_each(|turns| turns.pass_on(b, self.thread, consumer));
            b.gpu(Gpu::Wait(Group::Mma, 1));
            done(b, 0, slot);
            let first_key = b.let_("first_key", step.clone() * keys).into();
            rows.weigh(b, 0, &first_row, &first_key);
            b.gpu(Gpu::Wait(Group::Mma, 0));
            done(b, 1, before);
            rows.rescale(b, 0);
            b.gpu(Gpu::Move { dst: weights.clone(), src: scores.clone() });
        });
        by_values(b);
        b.gpu(Gpu::Wait(Group::Mma, 0));
        rows.store(b, 0, &first_row);
    }

    /// The queries of a consumer, as the left operand.
    fn queries_of(&self, consumer: VarId) -> Tile {
        self.matrix(self.queries, consumer.into(), ROWS, self.plan.of.d)
    }

    /// The keys in a slot, as the right operand turned around.
    fn keys_in(&self, slot: &Expr) -> Tile {
        self.matrix(self.rings[0], slot.clone(), self.plan.sizes.keys, self.plan.of.d)
    }

    /// The values in a slot, as the right operand.
    fn values_in(&self, slot: &Expr) -> Tile {
        self.matrix(self.rings[1], slot.clone(), self.plan.sizes.keys, self.plan.of.dv)
    }

    fn matrix(&self, buffer: BufferId, slot: Expr, rows: i64, width: i64) -> Tile {
        let [blocks, columns] = blocks_of(width);
        tile(buffer, [slot, 0.into(), 0.into(), 0.into()], &[blocks, rows, columns])
    }
}
