//! The kernel of attention with products of a warp.

use super::copies::Copies;
use super::plan::{PAD, PAIR, Plan, Sizes, TILE};
use super::rows::{Held, Place, Rows, State};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Gpu, Kernel, Scope, Unit, VarId};
use crate::target::Cuda;
use crate::templates::cuda::instructions::{clear, multiply, tile};
use crate::templates::cuda::launch::{LANE, launch};
use crate::workload::Workload;
use crate::workload::operands::Operands;

/// The kernel; `units` are the elements of keys and of values that are copied at a time.
pub(super) fn build(w: &Workload, plan: &Plan, units: [i64; 2]) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::declare(&mut b, w);
    let heads = plan.of.b * plan.of.heads;
    let blocks = [("head_of_batch", heads), ("tile", plan.tiles())];
    launch(&mut b, blocks, [("warp", plan.sizes.warps), LANE], |b, block, [warp, lane]| {
        let place = Place::of(b, &plan.of, plan.tiles(), block);
        let (dtype, fragment) = (w.dtype, Scope::Fragment(Unit::Warp));
        let Sizes { rows: count, keys, stages, .. } = plan.sizes;
        let [d, dv] = plan.widths();
        let rows = Rows {
            w,
            of: plan.of,
            params: &params,
            place,
            held: Held::Fragments { height: TILE },
            block_rows: plan.block_rows(),
            keys,
            width: dv,
            scores: b.alloc("scores", DType::F32, &[count, TILE, keys], fragment),
            mixed: b.alloc("mixed", DType::F32, &[count, TILE, dv], fragment),
            state: State::make(b, [count, 2]),
        };
        let copies = Copies {
            of: plan.of,
            params: &params,
            place,
            threads: plan.threads(),
            thread: warp * Cuda::WARP + lane,
            block_rows: plan.block_rows(),
            keys,
            stages,
            widths: plan.widths(),
            units,
            queries: b.alloc("queries", dtype, &[plan.block_rows(), d + PAD], Scope::Shared),
            ring: [("keys", d), ("values", dv)]
                .map(|(name, width)| b.alloc(name, dtype, &[stages, keys, width + PAD], Scope::Shared)),
        };
        let block = Block {
            plan,
            rows,
            copies,
            query: b.alloc("query", dtype, &[count, TILE, d], fragment),
            key: b.alloc("key", dtype, &[PAIR, keys, TILE], fragment),
            weight: b.alloc("weight", dtype, &[count, TILE, keys], fragment),
            value: b.alloc("value", dtype, &[PAIR, TILE, dv], fragment),
            warp,
        };
        block.run(b);
    });
    b.finish()
}

/// What a block and its threads hold and know.
struct Block<'a> {
    plan: &'a Plan,
    rows: Rows<'a>,
    copies: Copies<'a>,
    /// Operands of a warp.
    query: BufferId,
    key: BufferId,
    weight: BufferId,
    value: BufferId,
    warp: VarId,
}

impl Block<'_> {
    /// The first of the warp's queries with number `i`.
    fn first_row(&self, i: i64) -> Expr {
        self.copies.place.tile * self.plan.block_rows() + self.warp * (TILE * self.plan.sizes.rows) + i * TILE
    }

    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder) {
        let Sizes { rows, keys, .. } = self.plan.sizes;
        let begin = |b: &mut KernelBuilder| {
            for i in 0..rows {
                clear(b, self.rows.sums(self.rows.mixed, i, self.plan.widths()[1]));
                self.rows.begin(b, i);
            }
        };
        self.copies.run(b, begin, |b, step, slot| {
            self.bring_queries(b, step);
            self.multiply_keys(b, slot);
            let first_key = b.let_("first_key", step * keys).into();
            for i in 0..rows {
                self.rows.weigh(b, i, &self.first_row(i), &first_key);
                self.rows.rescale(b, i);
                let scores = self.rows.sums(self.rows.scores, i, keys);
                b.gpu(Gpu::Move { dst: self.rows.sums(self.weight, i, keys), src: scores });
            }
            self.multiply_values(b, slot);
        });
        (0..rows).for_each(|i| self.rows.store(b, i, &self.first_row(i)));
    }

    /// Takes the warp's queries to registers, in the first step.
    fn bring_queries(&self, b: &mut KernelBuilder, step: VarId) {
        b.if_(Expr::from(step).eq(0), |b| {
            let d = self.plan.widths()[0];
            for i in 0..self.plan.sizes.rows {
                let row = self.warp * (TILE * self.plan.sizes.rows) + i * TILE;
                let dst = self.rows.sums(self.query, i, d);
                b.gpu(Gpu::Move { dst, src: tile(self.copies.queries, [row, 0.into()], &[TILE, d]) });
            }
        });
    }

    /// Scores: products of queries and keys.
    fn multiply_keys(&self, b: &mut KernelBuilder, slot: VarId) {
        let Sizes { rows, keys, .. } = self.plan.sizes;
        (0..rows).for_each(|i| clear(b, self.rows.sums(self.rows.scores, i, keys)));
        for part in 0..self.plan.widths()[0] / TILE {
            let key = tile(self.key, [(part % PAIR).into(), 0.into(), 0.into()], &[keys, TILE]);
            let from = [slot.into(), 0.into(), (part * TILE).into()];
            b.gpu(Gpu::Move { dst: key.clone(), src: tile(self.copies.ring[0], from, &[keys, TILE]) });
            for i in 0..rows {
                let query = tile(self.query, [i.into(), 0.into(), (part * TILE).into()], &[TILE, TILE]);
                multiply(b, Unit::Warp, self.rows.sums(self.rows.scores, i, keys), (query, false), (key.clone(), true));
            }
        }
    }

    /// Adds the weighted values of a step.
    fn multiply_values(&self, b: &mut KernelBuilder, slot: VarId) {
        let Sizes { rows, keys, .. } = self.plan.sizes;
        let dv = self.plan.widths()[1];
        for part in 0..keys / TILE {
            let value = tile(self.value, [(part % PAIR).into(), 0.into(), 0.into()], &[TILE, dv]);
            let from = [slot.into(), (part * TILE).into(), 0.into()];
            b.gpu(Gpu::Move { dst: value.clone(), src: tile(self.copies.ring[1], from, &[TILE, dv]) });
            for i in 0..rows {
                let weight = tile(self.weight, [i.into(), 0.into(), (part * TILE).into()], &[TILE, TILE]);
                multiply(
                    b,
                    Unit::Warp,
                    self.rows.sums(self.rows.mixed, i, dv),
                    (weight, false),
                    (value.clone(), false),
                );
            }
        }
    }
}
