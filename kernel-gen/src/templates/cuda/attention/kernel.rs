//! The kernel of attention with products of a warp.

use super::plan::{PAD, PAIR, Plan, Sizes, TILE};
use super::rows::{Place, Rows, State};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, DType, Expr, Gpu, Group, Kernel, Scope, Stmt, Unit, VarId};
use crate::target::Cuda;
use crate::templates::cuda::guards::below;
use crate::templates::cuda::instructions::{clear, copy_async, multiply, tile};
use crate::templates::cuda::launch::{LANE, launch, share};
use crate::workload::Workload;
use crate::workload::operands::Operands;

/// The kernel; `units` are the elements of keys and of values that are copied at a time.
pub(super) fn build(w: &Workload, plan: &Plan, units: [i64; 2]) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::declare(&mut b, w);
    let heads = plan.of.b * plan.of.heads;
    let blocks = [("head_of_batch", heads), ("tile", plan.tiles())];
    launch(&mut b, blocks, [("warp", plan.sizes.warps), LANE], |b, block, [warp, lane]| {
        let Place { image, head, tile } = Place::of(b, &plan.of, plan.tiles(), block);
        let (dtype, fragment) = (w.dtype, Scope::Fragment(Unit::Warp));
        let Sizes { rows: count, keys, stages, .. } = plan.sizes;
        let [d, dv] = plan.widths();
        let rows = Rows {
            w,
            of: plan.of,
            params: &params,
            image,
            head,
            height: TILE,
            block_rows: plan.block_rows(),
            keys,
            width: dv,
            scores: b.alloc("scores", DType::F32, &[count, TILE, keys], fragment),
            mixed: b.alloc("mixed", DType::F32, &[count, TILE, dv], fragment),
            state: State::make(b, count),
        };
        let block = Block {
            plan,
            rows,
            units,
            queries: b.alloc("queries", dtype, &[plan.block_rows(), d + PAD], Scope::Shared),
            ring: [("keys", d), ("values", dv)]
                .map(|(name, width)| b.alloc(name, dtype, &[stages, keys, width + PAD], Scope::Shared)),
            query: b.alloc("query", dtype, &[count, TILE, d], fragment),
            key: b.alloc("key", dtype, &[PAIR, keys, TILE], fragment),
            weight: b.alloc("weight", dtype, &[count, TILE, keys], fragment),
            value: b.alloc("value", dtype, &[PAIR, TILE, dv], fragment),
            tile,
            warp,
            lane,
        };
        block.run(b);
    });
    b.finish()
}

/// What a block and its threads hold and know.
struct Block<'a> {
    plan: &'a Plan,
    rows: Rows<'a>,
    units: [i64; 2],
    /// In shared memory: the block's queries, and the rings of keys and values.
    queries: BufferId,
    ring: [BufferId; 2],
    /// Operands of a warp.
    query: BufferId,
    key: BufferId,
    weight: BufferId,
    value: BufferId,
    tile: VarId,
    warp: VarId,
    lane: VarId,
}

impl Block<'_> {
    fn thread(&self) -> Expr {
        self.warp * Cuda::WARP + self.lane
    }

    /// The first of the warp's queries with number `i`.
    fn first_row(&self, i: i64) -> Expr {
        self.tile * self.plan.block_rows() + self.warp * (TILE * self.plan.sizes.rows) + i * TILE
    }

    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder) {
        let Sizes { rows, keys, stages, .. } = self.plan.sizes;
        let (steps, ahead) = (self.plan.steps(), stages - 1);
        // A block of queries that see the keys before them alone is done behind its last one.
        let met: Expr = if self.plan.of.causal {
            let last = self.tile * self.plan.block_rows() + (self.plan.block_rows() - 1);
            b.let_("steps_met", (last.floor_div(keys) + 1).min(steps)).into()
        } else {
            steps.into()
        };
        self.fetch_queries(b);
        for step in 0..ahead {
            let more = (step >= steps || self.plan.of.causal).then(|| Expr::Int(step).lt(met.clone()));
            self.fetch(b, &step.into(), step.into(), more);
        }
        for i in 0..rows {
            clear(b, self.rows.sums(self.rows.mixed, i, self.plan.widths()[1]));
            self.rows.begin(b, i);
        }
        b.for_("step", steps, |b, step| {
            let all = |b: &mut KernelBuilder| {
                let slot = b.let_("slot", Expr::from(step).floor_mod(stages));
                if ahead == 0 {
                    // All have read what the next keys go over.
                    b.push(Stmt::Barrier(Barrier::Block));
                    self.fetch(b, &step.into(), 0.into(), None);
                }
                b.gpu(Gpu::Wait(Group::Copy, (ahead - 1).max(0) as u32));
                // What was copied is seen by all, and all have read what the next keys go over.
                b.push(Stmt::Barrier(Barrier::Block));
                if ahead > 0 {
                    let next = b.let_("next", step + ahead);
                    let more = Some(Expr::from(next).lt(met.clone()));
                    self.fetch(b, &next.into(), Expr::from(next).floor_mod(stages), more);
                }
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
            };
            match self.plan.of.causal {
                true => b.if_(Expr::from(step).lt(met.clone()), all),
                false => all(b),
            }
        });
        (0..rows).for_each(|i| self.rows.store(b, i, &self.first_row(i)));
    }

    /// Copies rows of a tensor, elements beyond its last ones being zeros.
    fn copy(
        &self,
        b: &mut KernelBuilder,
        (rows, width, unit): (i64, i64, i64),
        at: impl Fn(Expr) -> (BufferId, Vec<Expr>),
        from: impl Fn(Expr) -> (BufferId, Vec<Expr>, Option<Expr>),
        elements: i64,
    ) {
        let per_row = width / unit;
        share(b, self.plan.threads(), self.thread(), rows * per_row, |b, piece| {
            let (row, column) = (piece.clone().floor_div(per_row), piece.floor_mod(per_row) * unit);
            let (to, mut to_index) = at(row.clone());
            let (buffer, mut index, exists) = from(row);
            to_index.push(column.clone());
            index.push(column.clone());
            let guard = Expr::all(exists.into_iter().chain(below(column, elements, width)));
            copy_async(b, (to, to_index), (buffer, index), unit, guard);
        });
    }

    fn fetch_queries(&self, b: &mut KernelBuilder) {
        let (rows, of) = (self.plan.block_rows(), &self.plan.of);
        let place = |row: Expr| {
            let row = self.tile * rows + row;
            let exists = below(row.clone(), of.m, rows);
            (self.rows.params.get("q"), vec![self.rows.image.into(), self.rows.head.into(), row], exists)
        };
        let sizes = (rows, self.plan.widths()[0], self.units[0]);
        self.copy(b, sizes, |row| (self.queries, vec![row]), place, of.d);
    }

    /// Has a step's keys and values brought to a slot; none, where there is no such step.
    fn fetch(&self, b: &mut KernelBuilder, step: &Expr, slot: Expr, more: Option<Expr>) {
        let (keys, of, widths) = (self.plan.sizes.keys, &self.plan.of, self.plan.widths());
        let head = Expr::from(self.rows.head).floor_div(of.sharing());
        for (side, (name, elements)) in [("k", of.d), ("v", of.dv)].into_iter().enumerate() {
            let place = |row: Expr| {
                let row = step.clone() * keys + row;
                let exists = more.clone().into_iter().chain(below(row.clone(), of.n, keys));
                (self.rows.params.get(name), vec![self.rows.image.into(), head.clone(), row], Expr::all(exists))
            };
            let to = |row: Expr| (self.ring[side], vec![slot.clone(), row]);
            self.copy(b, (keys, widths[side], self.units[side]), to, place, elements);
        }
        b.gpu(Gpu::Commit(Group::Copy));
    }

    /// Takes the warp's queries to registers, in the first step.
    fn bring_queries(&self, b: &mut KernelBuilder, step: VarId) {
        b.if_(Expr::from(step).eq(0), |b| {
            let d = self.plan.widths()[0];
            for i in 0..self.plan.sizes.rows {
                let row = self.warp * (TILE * self.plan.sizes.rows) + i * TILE;
                let dst = self.rows.sums(self.query, i, d);
                b.gpu(Gpu::Move { dst, src: tile(self.queries, [row, 0.into()], &[TILE, d]) });
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
            b.gpu(Gpu::Move { dst: key.clone(), src: tile(self.ring[0], from, &[keys, TILE]) });
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
            b.gpu(Gpu::Move { dst: value.clone(), src: tile(self.ring[1], from, &[TILE, dv]) });
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
