//! The kernel of attention on tensor cores.

use super::{PAD, PAIR, Plan, Sizes, TILE};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BinOp, BufferId, DType, Expr, Gpu, Group, Kernel, LaneOp, LoopKind, Scope, Stmt, UnOp, Unit, VarId};
use crate::target::Cuda;
use crate::templates::cuda::guards::below;
use crate::templates::cuda::instructions::{clear, copy_async, multiply, tile};
use crate::templates::cuda::launch::{LANE, launch, share};
use crate::templates::cuda::outputs::finish;
use crate::workload::Workload;
use crate::workload::attention::Mask;
use crate::workload::operands::Operands;

/// The kernel; `units` are the elements of keys and of values that are copied at a time.
pub(super) fn build(w: &Workload, plan: &Plan, units: [i64; 2]) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::declare(&mut b, w);
    let heads = plan.of.b * plan.of.heads;
    let blocks = [("head_of_batch", heads), ("tile", plan.tiles())];
    launch(&mut b, blocks, [("warp", plan.sizes.warps), LANE], |b, [head, number], [warp, lane]| {
        // Of queries that see the keys before them alone the last ones take the longest: they begin first.
        let number = if plan.of.causal { Expr::Int(plan.tiles() - 1) - Expr::from(number) } else { number.into() };
        let tile = b.let_("query_tile", number);
        let image = b.let_("image", Expr::from(head).floor_div(plan.of.heads));
        let query_head = b.let_("query_head", Expr::from(head).floor_mod(plan.of.heads));
        let memory = Memory::make(b, w, plan);
        Block { w, plan, params: &params, units, memory, image, head: query_head, tile, warp, lane }.run(b);
    });
    b.finish()
}

/// What a block and its warps hold.
struct Memory {
    /// In shared memory: the block's queries, and the rings of keys and values.
    queries: BufferId,
    ring: [BufferId; 2],
    /// Operands: queries, keys, weights, values.
    query: BufferId,
    key: BufferId,
    weight: BufferId,
    value: BufferId,
    /// Sums: scores, and weighted values.
    scores: BufferId,
    mixed: BufferId,
    /// For each row of a thread the largest score so far, in units of the exponent, and what sums so far are multiplied by.
    largest: BufferId,
    factor: BufferId,
    /// The largest score of a step and the sum of weights, of the even and of the odd columns that a thread has.
    partial: BufferId,
    total: BufferId,
    /// What another lane of the row has.
    other: BufferId,
}

impl Memory {
    fn make(b: &mut KernelBuilder, w: &Workload, plan: &Plan) -> Memory {
        let Sizes { rows, keys, stages, .. } = plan.sizes;
        let [d, dv] = plan.widths();
        let (dtype, warp) = (w.dtype, Scope::Fragment(Unit::Warp));
        let mut register = |name: &str, shape: &[i64]| b.alloc(name, DType::F32, shape, Scope::Register);
        let [largest, factor] = ["largest", "factor"].map(|name| register(name, &[rows, 2]));
        let [partial, total] = ["partial", "total"].map(|name| register(name, &[rows, 2, 2]));
        let other = register("other", &[1]);
        Memory {
            queries: b.alloc("queries", dtype, &[plan.block_rows(), d + PAD], Scope::Shared),
            ring: [("keys", d), ("values", dv)]
                .map(|(name, width)| b.alloc(name, dtype, &[stages, keys, width + PAD], Scope::Shared)),
            query: b.alloc("query", dtype, &[rows, TILE, d], warp),
            key: b.alloc("key", dtype, &[PAIR, keys, TILE], warp),
            weight: b.alloc("weight", dtype, &[rows, TILE, keys], warp),
            value: b.alloc("value", dtype, &[PAIR, TILE, dv], warp),
            scores: b.alloc("scores", DType::F32, &[rows, TILE, keys], warp),
            mixed: b.alloc("mixed", DType::F32, &[rows, TILE, dv], warp),
            largest,
            factor,
            partial,
            total,
            other,
        }
    }
}

/// What a thread knows of its place.
struct Block<'a> {
    w: &'a Workload,
    plan: &'a Plan,
    params: &'a Operands,
    units: [i64; 2],
    memory: Memory,
    image: VarId,
    head: VarId,
    tile: VarId,
    warp: VarId,
    lane: VarId,
}

/// The half of a thread's rows that a row is of: it has two of sixteen, eight apart.
fn half(row: VarId) -> Expr {
    Expr::from(row).floor_div(8)
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
            self.fetch(b, &step.into(), step.into(), (step >= steps || self.plan.of.causal).then(|| Expr::Int(step).lt(met.clone())));
        }
        for i in 0..rows {
            clear(b, self.sums(self.memory.mixed, i, self.plan.widths()[1]));
            for half in 0..2 {
                b.store(self.memory.largest, vec![i.into(), half.into()], Expr::f32(f64::NEG_INFINITY));
                for pair in 0..2 {
                    b.store(self.memory.total, vec![i.into(), half.into(), pair.into()], Expr::f32(0.0));
                }
            }
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
                let first_key = b.let_("first_key", step * keys);
                (0..rows).for_each(|i| self.weigh(b, i, first_key));
                self.multiply_values(b, slot);
            };
            match self.plan.of.causal {
                true => b.if_(Expr::from(step).lt(met.clone()), all),
                false => all(b),
            }
        });
        (0..rows).for_each(|i| self.store(b, i));
    }

    /// Sixteen rows of sums.
    fn sums(&self, buffer: BufferId, i: i64, columns: i64) -> crate::ir::Tile {
        tile(buffer, [i.into(), 0.into(), 0.into()], &[TILE, columns])
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
            (self.params.get("q"), vec![self.image.into(), self.head.into(), row], exists)
        };
        let sizes = (rows, self.plan.widths()[0], self.units[0]);
        self.copy(b, sizes, |row| (self.memory.queries, vec![row]), place, of.d);
    }

    /// Has a step's keys and values brought to a slot; none, where there is no such step.
    fn fetch(&self, b: &mut KernelBuilder, step: &Expr, slot: Expr, more: Option<Expr>) {
        let (keys, of, widths) = (self.plan.sizes.keys, &self.plan.of, self.plan.widths());
        let head = Expr::from(self.head).floor_div(of.sharing());
        for (side, (name, elements)) in [("k", of.d), ("v", of.dv)].into_iter().enumerate() {
            let place = |row: Expr| {
                let row = step.clone() * keys + row;
                let exists = more.clone().into_iter().chain(below(row.clone(), of.n, keys));
                (self.params.get(name), vec![self.image.into(), head.clone(), row], Expr::all(exists))
            };
            let to = |row: Expr| (self.memory.ring[side], vec![slot.clone(), row]);
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
                let dst = self.sums(self.memory.query, i, d);
                b.gpu(Gpu::Move { dst, src: tile(self.memory.queries, [row, 0.into()], &[TILE, d]) });
            }
        });
    }

    /// Scores: products of queries and keys.
    fn multiply_keys(&self, b: &mut KernelBuilder, slot: VarId) {
        let Sizes { rows, keys, .. } = self.plan.sizes;
        (0..rows).for_each(|i| clear(b, self.sums(self.memory.scores, i, keys)));
        for part in 0..self.plan.widths()[0] / TILE {
            let key = tile(self.memory.key, [(part % PAIR).into(), 0.into(), 0.into()], &[keys, TILE]);
            let from = [slot.into(), 0.into(), (part * TILE).into()];
            b.gpu(Gpu::Move { dst: key.clone(), src: tile(self.memory.ring[0], from, &[keys, TILE]) });
            for i in 0..rows {
                let query = tile(self.memory.query, [i.into(), 0.into(), (part * TILE).into()], &[TILE, TILE]);
                multiply(b, Unit::Warp, self.sums(self.memory.scores, i, keys), (query, false), (key.clone(), true));
            }
        }
    }

    /// Adds the weighted values of a step.
    fn multiply_values(&self, b: &mut KernelBuilder, slot: VarId) {
        let Sizes { rows, keys, .. } = self.plan.sizes;
        let dv = self.plan.widths()[1];
        for part in 0..keys / TILE {
            let value = tile(self.memory.value, [(part % PAIR).into(), 0.into(), 0.into()], &[TILE, dv]);
            let from = [slot.into(), (part * TILE).into(), 0.into()];
            b.gpu(Gpu::Move { dst: value.clone(), src: tile(self.memory.ring[1], from, &[TILE, dv]) });
            for i in 0..rows {
                let weight = tile(self.memory.weight, [i.into(), 0.into(), (part * TILE).into()], &[TILE, TILE]);
                multiply(b, Unit::Warp, self.sums(self.memory.mixed, i, dv), (weight, false), (value.clone(), false));
            }
        }
    }

    /// Visits elements of sums, each in the lane that has it.
    fn each(&self, b: &mut KernelBuilder, columns: i64, body: impl FnOnce(&mut KernelBuilder, VarId, VarId)) {
        b.loop_("row", TILE, LoopKind::FragmentRow, |b, row| {
            b.loop_("column", columns, LoopKind::FragmentCol, |b, column| body(b, row, column));
        });
    }

    /// What the four lanes of a row have, combined into what each of them has.
    fn combine(&self, b: &mut KernelBuilder, at: (BufferId, Vec<Expr>), with: impl Fn(Expr, Expr) -> Expr) {
        let (buffer, index) = at;
        for name in ["shuffle_xor_1", "shuffle_xor_2"] {
            let op = LaneOp::find(name).expect("an instruction of the table");
            let own = Expr::load(buffer, index.clone());
            b.gpu(Gpu::Lanes { op, dst: tile(self.memory.other, [0.into()], &[1]), value: own.clone() });
            b.store(buffer, index.clone(), with(own, Expr::load(self.memory.other, vec![0.into()])));
        }
    }

    /// Scores that are masked, scaled where a mask is added to them.
    fn mask(&self, b: &mut KernelBuilder, i: i64, first_key: VarId) {
        let (of, keys) = (&self.plan.of, self.plan.sizes.keys);
        self.each(b, keys, |b, row, column| {
            let at = vec![i.into(), row.into(), column.into()];
            let (query, key) = (self.first_row(i) + row, first_key + column);
            let score = Expr::load(self.memory.scores, at.clone());
            let (last_query, last_key) = (query.clone().min(of.m - 1), key.clone().min(of.n - 1));
            let score = match of.mask {
                Mask::None => score,
                Mask::Shared => self.scaled(score) + self.mask_at(vec![last_query, last_key]),
                Mask::Each => {
                    self.scaled(score) + self.mask_at(vec![self.image.into(), self.head.into(), last_query, last_key])
                }
            };
            let seen = of.causal.then(|| key.clone().le(query));
            let seen = Expr::all(below(key, of.n, keys).into_iter().chain(seen));
            let score = match seen {
                Some(seen) => seen.select(score, Expr::f32(f64::NEG_INFINITY)),
                None => score,
            };
            b.store(self.memory.scores, at, score);
        });
    }

    fn mask_at(&self, index: Vec<Expr>) -> Expr {
        Expr::load(self.params.get("mask"), index)
    }

    fn scaled(&self, score: Expr) -> Expr {
        score * Expr::f32(self.plan.of.scale())
    }

    /// Makes weights of the scores of sixteen rows, and scales down what they have so far.
    fn weigh(&self, b: &mut KernelBuilder, i: i64, first_key: VarId) {
        let (of, keys, m) = (&self.plan.of, self.plan.sizes.keys, &self.memory);
        let ragged = of.n % keys != 0;
        if of.mask != Mask::None {
            self.mask(b, i, first_key);
        } else if ragged || of.causal {
            // Most steps have keys that all queries of the warp see.
            let last = first_key + (keys - 1);
            let beyond = ragged.then(|| Expr::Int(of.n).le(last.clone()));
            let ahead = of.causal.then(|| self.first_row(i).lt(last));
            let some = beyond.into_iter().chain(ahead).reduce(|a, b| a.or(b)).expect("there is a reason");
            b.if_(some, |b| self.mask(b, i, first_key));
        }
        let scaled = |score: Expr| if of.mask == Mask::None { self.scaled(score) } else { score };
        for (half, pair) in (0..2).flat_map(|half| (0..2).map(move |pair| (half, pair))) {
            b.store(m.partial, vec![i.into(), half.into(), pair.into()], Expr::f32(f64::NEG_INFINITY));
        }
        let of_pair = |row: VarId, column: VarId| vec![i.into(), half(row), Expr::from(column).floor_mod(2)];
        self.each(b, keys, |b, row, column| {
            let (score, at) = (Expr::load(m.scores, vec![i.into(), row.into(), column.into()]), of_pair(row, column));
            b.store(m.partial, at.clone(), Expr::load(m.partial, at).max(score));
        });
        for half in 0..2 {
            let at = |pair: i64| vec![i.into(), half.into(), pair.into()];
            let place = vec![i.into(), half.into()];
            b.store(m.partial, at(0), Expr::load(m.partial, at(0)).max(Expr::load(m.partial, at(1))));
            self.combine(b, (m.partial, at(0)), |own, other| own.max(other));
            let (before, step) = (Expr::load(m.largest, place.clone()), scaled(Expr::load(m.partial, at(0))));
            // Where no key was seen yet, nothing is subtracted from scores of minus infinity, whose weights are zeros.
            let now = before.clone().max(step);
            let least = Expr::f32(f64::NEG_INFINITY);
            b.store(m.partial, at(1), now.clone());
            let now = Expr::load(m.partial, at(1));
            b.store(m.partial, at(0), now.clone().eq(least).select(Expr::f32(0.0), now.clone()));
            b.store(m.factor, place.clone(), Expr::un(UnOp::Exp, before - Expr::load(m.partial, at(0))));
            b.store(m.largest, place.clone(), now);
            for pair in 0..2 {
                b.store(m.total, at(pair), Expr::load(m.total, at(pair)) * Expr::load(m.factor, place.clone()));
            }
        }
        self.each(b, keys, |b, row, column| {
            let at = vec![i.into(), row.into(), column.into()];
            let largest = Expr::load(m.partial, vec![i.into(), half(row), 0.into()]);
            b.store(m.scores, at.clone(), Expr::un(UnOp::Exp, scaled(Expr::load(m.scores, at)) - largest));
        });
        self.each(b, keys, |b, row, column| {
            let (weight, at) = (Expr::load(m.scores, vec![i.into(), row.into(), column.into()]), of_pair(row, column));
            b.store(m.total, at.clone(), Expr::load(m.total, at) + weight);
        });
        self.each(b, self.plan.widths()[1], |b, row, column| {
            let at = vec![i.into(), row.into(), column.into()];
            let factor = Expr::load(m.factor, vec![i.into(), half(row)]);
            b.store(m.mixed, at.clone(), Expr::load(m.mixed, at) * factor);
        });
        b.gpu(Gpu::Move { dst: self.sums(m.weight, i, keys), src: self.sums(m.scores, i, keys) });
    }

    /// Stores the outputs of sixteen rows.
    fn store(&self, b: &mut KernelBuilder, i: i64) {
        let (of, m) = (&self.plan.of, &self.memory);
        for half in 0..2 {
            let at = |pair: i64| vec![i.into(), half.into(), pair.into()];
            b.store(m.total, at(0), Expr::load(m.total, at(0)) + Expr::load(m.total, at(1)));
            self.combine(b, (m.total, at(0)), |own, other| own + other);
        }
        let width = self.plan.widths()[1];
        self.each(b, width, |b, row, column| {
            let query = self.first_row(i) + row;
            let exists = below(query.clone(), of.m, self.plan.block_rows()).into_iter();
            let exists = Expr::all(exists.chain(below(column, of.dv, width)));
            let total = Expr::load(m.total, vec![i.into(), half(row), 0.into()]);
            let value = Expr::load(m.mixed, vec![i.into(), row.into(), column.into()]);
            let index = [self.image.into(), self.head.into(), query, column.into()];
            b.when(exists, |b| {
                finish(b, (self.w, self.params), &column.into(), index, Expr::bin(BinOp::Div, value, total));
            });
        });
    }
}
