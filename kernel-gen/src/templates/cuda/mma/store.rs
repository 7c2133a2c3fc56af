//! What becomes of a warp's sums: stored, added to those of a cluster's other blocks, or left to another launch.

use super::kernel::{Block, Element, Product};
use super::{Plan, TILE};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Axis, BufferId, DType, Expr, Gpu, LoopKind, MbarrierOp, Scope, Slot, VarId};
use crate::templates::cuda::warp_sums::{Rows, WarpSums, each_element};
use crate::templates::cuda::{ceil_div, share, tile};
use crate::workload::naive::epilogue;
use crate::workload::operands::Operands;

/// Threads of a block that adds up what the parts of the reduction have.
const ADDERS: i64 = 128;

/// The launch that adds up what the parts of the reduction have, in their order.
pub(super) fn add_parts(
    b: &mut KernelBuilder,
    product: &dyn Product,
    plan: &Plan,
    params: &Operands,
    partial: BufferId,
) {
    let piece = plan.piece().min(4);
    let count = plan.m * plan.n / piece;
    b.loop_("sum_batch", plan.batch, LoopKind::Grid(Axis::Y), |b, batch| {
        let batch = if plan.batch > 1 { batch.into() } else { Expr::Int(0) };
        b.loop_("sum_block", ceil_div(count, ADDERS), LoopKind::Grid(Axis::X), |b, block| {
            b.loop_("adder", ADDERS, LoopKind::Thread(Axis::X), |b, adder| {
                let at = block * ADDERS + adder;
                let add = |b: &mut KernelBuilder| {
                    let row = b.let_("sum_row", (at.clone() * piece).floor_div(plan.n));
                    let column = b.let_("sum_column", at.clone().floor_mod(plan.n / piece) * piece);
                    let one = |b: &mut KernelBuilder, element: Expr| {
                        let column = column + element;
                        let of = |part: i64| {
                            Expr::load(partial, vec![part.into(), batch.clone(), row.into(), column.clone()])
                        };
                        let sum = (1..plan.sizes.split).fold(of(0), |sum, part| sum + of(part));
                        let Element { index, channel } = product.element(&batch, row.into(), column.clone());
                        let value = epilogue(product.workload(), sum, &channel, &index, &|name| params.get(name));
                        b.store(params.output(), index, value);
                    };
                    each_element(b, piece, one);
                };
                if count % ADDERS == 0 { add(b) } else { b.if_(at.clone().lt(count), add) }
            });
        });
    });
}

/// Where the sums of the other blocks of a cluster come to.
pub(super) struct Exchange {
    /// One tile of rows for each block: those of the outputs that this block owns.
    received: BufferId,
    arrived: Slot,
}

impl Exchange {
    /// The memory for what other blocks send, and the barrier that counts its bytes.
    pub(super) fn make(b: &mut KernelBuilder, block: &Block<'_>) -> Exchange {
        let sizes = block.plan.sizes;
        let owned = sizes.tile_m / sizes.split;
        let received = b.alloc("received", DType::F32, &[sizes.split, owned, sizes.tile_n + 4], Scope::Shared);
        let barrier = b.alloc("arrived", DType::I64, &[1], Scope::Mbarrier);
        let arrived = Slot { buffer: barrier, index: 0.into() };
        b.if_(block.thread().eq(0), |b| {
            b.gpu(Gpu::Mbarrier(arrived.clone(), MbarrierOp::Init(1)));
            b.gpu(Gpu::FenceAsync);
            let bytes = 4 * sizes.tile_m * sizes.tile_n;
            b.gpu(Gpu::Mbarrier(arrived.clone(), MbarrierOp::Expect(bytes)));
        });
        Exchange { received, arrived }
    }
}

impl Block<'_> {
    /// The row and column of the whole product, and whether they exist.
    fn output(&self, place: [VarId; 2], row: Expr, column: Expr) -> ([Expr; 2], Option<Expr>) {
        let (plan, sizes) = (self.plan, self.plan.sizes);
        let at = [place[0] * sizes.tile_m + row, place[1] * sizes.tile_n + column];
        let beyond = [(plan.m, sizes.tile_m), (plan.n, sizes.tile_n)];
        let beyond = at.iter().zip(beyond).filter(|(_, (size, tile))| size % tile != 0);
        let exists = Expr::all(beyond.map(|(at, (size, _))| at.clone().lt(size)));
        (at, exists)
    }

    /// Writes neighbours of a row: `count` sums that `value` gives, by their distance from the first.
    fn write(
        &self,
        b: &mut KernelBuilder,
        place: [VarId; 2],
        [row, column]: [Expr; 2],
        count: i64,
        value: &dyn Fn(&Expr) -> Expr,
    ) {
        let ([row, column], exists) = self.output(place, row, column);
        let one = |b: &mut KernelBuilder, element: Expr| {
            let sum = value(&element);
            self.put(b, row.clone(), column.clone() + element, sum);
        };
        let all = |b: &mut KernelBuilder| each_element(b, count, one);
        match exists {
            Some(exists) => b.if_(exists, all),
            None => all(b),
        }
    }

    /// Stores one output.
    fn put(&self, b: &mut KernelBuilder, row: Expr, column: Expr, sum: Expr) {
        let Element { index, channel } = self.product.element(&self.batch, row, column);
        let value = epilogue(self.product.workload(), sum, &channel, &index, &|name| self.params.get(name));
        b.store(self.params.output(), index, value);
    }

    /// Stores the warp's sums: as pairs from the registers, or by way of shared memory, sixteen rows at a time, so that a
    /// lane stores 16 bytes.
    pub(super) fn store(&self, b: &mut KernelBuilder, sums: &WarpSums, place: [VarId; 2]) {
        let sizes = self.plan.sizes;
        let [row, column] = self.corner();
        if !sizes.staged {
            for i in 0..sums.count {
                let (row, column) = (row.clone() + i * TILE, column.clone());
                sums.each(b, i, |b, [r, c], sum| {
                    self.write(b, place, [row + r, column + c], 1, &|_| sum.clone());
                });
            }
            return;
        }
        let piece = self.plan.piece();
        self.by_rows(b, sums, piece, |b, i, [r, c], load| {
            let to = [row.clone() + i * TILE + r, column.clone() + c];
            self.write(b, place, to, piece, load);
        });
    }

    /// Puts the warp's sums into shared memory and visits them in pieces of `piece` neighbours ([`WarpSums::by_rows`]).
    fn by_rows(
        &self,
        b: &mut KernelBuilder,
        sums: &WarpSums,
        piece: i64,
        body: impl Fn(&mut KernelBuilder, i64, [Expr; 2], &dyn Fn(&Expr) -> Expr),
    ) {
        let (warps, pitch) = (self.plan.sizes.warps(), self.plan.row_pitch());
        let rows = Rows { warps, warp: self.warp, lane: self.lane, dtype: DType::F32, pitch, piece };
        sums.by_rows(b, &rows, |_, _, sum| sum, body);
    }

    /// Gives the warp's sums to the launch behind.
    pub(super) fn store_partial(&self, b: &mut KernelBuilder, sums: &WarpSums, place: [VarId; 2], partial: BufferId) {
        let (sizes, [row, column]) = (self.plan.sizes, self.corner());
        for i in 0..sums.count {
            let (row, column) = (row.clone() + i * TILE, column.clone());
            sums.each(b, i, |b, [r, c], sum| {
                // Rows are padded, so that pairs exist as a whole.
                let [row, column] = [place[0] * sizes.tile_m + (row + r), place[1] * sizes.tile_n + (column + c)];
                let pitch = self.plan.partial_pitch();
                let beyond = [(&row, self.plan.m, sizes.tile_m), (&column, pitch, sizes.tile_n)];
                let beyond = beyond.into_iter().filter(|(_, size, tile)| size % tile != 0);
                let exists = Expr::all(beyond.map(|(at, size, _)| at.clone().lt(size)));
                let store = |b: &mut KernelBuilder| {
                    b.store(partial, vec![self.rank.clone(), self.batch.clone(), row, column], sum);
                };
                match exists {
                    Some(exists) => b.if_(exists, store),
                    None => store(b),
                }
            });
        }
    }

    /// Adds what the blocks of the cluster have: each gets the sums of the rows that it owns, and adds them in the order
    /// of the blocks.
    pub(super) fn add_up(&self, b: &mut KernelBuilder, sums: &WarpSums, place: [VarId; 2], exchange: &Exchange) {
        let sizes = self.plan.sizes;
        let owned = sizes.tile_m / sizes.split;
        let [row, column] = self.corner();
        self.by_rows(b, sums, 1, |b, i, [r, c], load| {
            let row = row.clone() + i * TILE + r;
            let to = vec![self.rank.clone(), row.clone().floor_mod(owned), column.clone() + c];
            b.gpu(Gpu::StoreAt {
                dst: tile(exchange.received, to, &[1]),
                value: load(&0.into()),
                rank: row.floor_div(owned),
                on: exchange.arrived.clone(),
            });
        });
        b.gpu(Gpu::Mbarrier(exchange.arrived.clone(), MbarrierOp::Wait(0.into())));
        let piece = self.plan.piece().min(4);
        let per_row = sizes.tile_n / piece;
        share(b, sizes.threads(), self.thread(), owned * per_row, |b, at| {
            let (r, c) = (at.clone().floor_div(per_row), at.floor_mod(per_row) * piece);
            let to = [self.rank.clone() * owned + r.clone(), c.clone()];
            self.write(b, place, to, piece, &|element| {
                let of = |block: i64| {
                    Expr::load(exchange.received, vec![block.into(), r.clone(), c.clone() + element.clone()])
                };
                (1..sizes.split).fold(of(0), |sum, block| sum + of(block))
            });
        });
    }
}
