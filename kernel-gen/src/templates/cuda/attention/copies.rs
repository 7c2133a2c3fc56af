//! The copies of a block by `cp.async`: its queries, and its keys and values step by step.

use super::rows::Place;
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, Expr, Gpu, Group, Stmt, VarId};
use crate::templates::cuda::guards::below;
use crate::templates::cuda::instructions::copy_async;
use crate::templates::cuda::launch::share;
use crate::templates::cuda::model::ceil_div;
use crate::workload::Attention;
use crate::workload::attention::OfHeads;
use crate::workload::operands::Operands;

/// What a block copies, and where to.
pub(super) struct Copies<'a> {
    pub(super) of: Attention,
    pub(super) params: &'a Operands,
    pub(super) place: Place,
    pub(super) threads: i64,
    pub(super) thread: Expr,
    /// Queries of the block.
    pub(super) block_rows: i64,
    /// Keys of a step, and slots of the ring.
    pub(super) keys: i64,
    pub(super) stages: i64,
    /// Elements of a key and of a value in shared memory, with the zeros that fill them up.
    pub(super) widths: [i64; 2],
    /// Elements of each that are copied at a time.
    pub(super) units: [i64; 2],
    /// In shared memory: the queries, and the rings of keys and values.
    pub(super) queries: BufferId,
    pub(super) ring: [BufferId; 2],
}

impl Copies<'_> {
    /// Copies the queries; goes through the keys with `step`, which gets the step and its slot, when `begin` has said what is to be
    /// done before the first one.
    pub(super) fn run(
        &self,
        b: &mut KernelBuilder,
        begin: impl FnOnce(&mut KernelBuilder),
        each: impl FnOnce(&mut KernelBuilder, VarId, VarId),
    ) {
        let (steps, ahead) = (ceil_div(self.of.n, self.keys), self.stages - 1);
        // A block of queries that see the keys before them alone is done behind its last one.
        let met: Expr = if self.of.causal {
            let last = self.place.tile * self.block_rows + (self.block_rows - 1);
            b.let_("steps_met", (last.floor_div(self.keys) + 1).min(steps)).into()
        } else {
            steps.into()
        };
        self.fetch_queries(b);
        for step in 0..ahead {
            let more = (step >= steps || self.of.causal).then(|| Expr::Int(step).lt(met.clone()));
            self.fetch(b, &step.into(), step.into(), more);
        }
        begin(b);
        b.for_("step", steps, |b, step| {
            let all = |b: &mut KernelBuilder| {
                let slot = b.let_("slot", Expr::from(step).floor_mod(self.stages));
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
                    self.fetch(b, &next.into(), Expr::from(next).floor_mod(self.stages), more);
                }
                each(b, step, slot);
            };
            match self.of.causal {
                true => b.if_(Expr::from(step).lt(met.clone()), all),
                false => all(b),
            }
        });
    }

    /// Copies rows of a head, elements beyond its last ones being zeros. `from` gives a row's number in the tensor, and whether it is there.
    fn copy(
        &self,
        b: &mut KernelBuilder,
        (rows, width, unit): (i64, i64, i64),
        at: impl Fn(Expr) -> (BufferId, Vec<Expr>),
        (of_heads, head, elements): (OfHeads, Expr, i64),
        from: impl Fn(Expr) -> (Expr, Option<Expr>),
    ) {
        let tensor = self.params.get(self.of.operand(of_heads));
        let per_row = width / unit;
        share(b, self.threads, self.thread.clone(), rows * per_row, |b, piece| {
            let (row, column) = (piece.clone().floor_div(per_row), piece.floor_mod(per_row) * unit);
            let (to, mut to_index) = at(row.clone());
            let (row, exists) = from(row);
            to_index.push(column.clone());
            let index = self.of.index(of_heads, [self.place.image.into(), head.clone(), row, column.clone()]);
            let guard = Expr::all(exists.into_iter().chain(below(column, elements, width)));
            copy_async(b, (to, to_index), (tensor, index), unit, guard);
        });
    }

    fn fetch_queries(&self, b: &mut KernelBuilder) {
        let (rows, of) = (self.block_rows, &self.of);
        let place = |row: Expr| {
            let row = self.place.tile * rows + row;
            (row.clone(), below(row, of.m, rows))
        };
        let sizes = (rows, self.widths[0], self.units[0]);
        let from = (OfHeads::Queries, self.place.head.into(), of.d);
        self.copy(b, sizes, |row| (self.queries, vec![row]), from, place);
    }

    /// Has a step's keys and values brought to a slot; none, where there is no such step.
    fn fetch(&self, b: &mut KernelBuilder, step: &Expr, slot: Expr, more: Option<Expr>) {
        let (keys, of, widths) = (self.keys, &self.of, self.widths);
        let head = Expr::from(self.place.head).floor_div(of.sharing());
        for (side, (of_heads, elements)) in [(OfHeads::Keys, of.d), (OfHeads::Values, of.dv)].into_iter().enumerate() {
            let place = |row: Expr| {
                let row = step.clone() * keys + row;
                let exists = more.clone().into_iter().chain(below(row.clone(), of.n, keys));
                (row, Expr::all(exists))
            };
            let to = |row: Expr| (self.ring[side], vec![slot.clone(), row]);
            let sizes = (keys, widths[side], self.units[side]);
            self.copy(b, sizes, to, (of_heads, head.clone(), elements), place);
        }
        b.gpu(Gpu::Commit(Group::Copy));
    }
}
