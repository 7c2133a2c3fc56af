//! What becomes of a warp's sums: stored, added to those of a cluster's other blocks, or left to another launch.

use super::TILE;
use super::kernel::Block;
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, VarId};
use crate::templates::cuda::exchange::Exchange;
use crate::templates::cuda::family::Store;
use crate::templates::cuda::warp_sums::{Rows, WarpSums};

impl Block<'_> {
    /// Writes neighbours of a row: `count` sums that `value` gives, by their distance from the first.
    fn write(
        &self,
        b: &mut KernelBuilder,
        place: [VarId; 2],
        at: [Expr; 2],
        count: i64,
        value: &dyn Fn(&Expr) -> Expr,
    ) {
        self.plan.outputs(self.product, self.params).write(b, &self.batch, place, at, count, value);
    }

    /// Stores the warp's sums: as pairs from the registers, or by way of shared memory, sixteen rows at a time, so that a
    /// lane stores 16 bytes.
    pub(super) fn store(&self, b: &mut KernelBuilder, sums: &WarpSums, place: [VarId; 2]) {
        let sizes = self.plan.sizes;
        let [row, column] = self.corner();
        if sizes.store == Store::Direct {
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
        let (warps, pitch) = (self.plan.sizes.warp_count(), self.plan.row_pitch());
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
                let [row, column] = [place[0] * sizes.tile[0] + (row + r), place[1] * sizes.tile[1] + (column + c)];
                let pitch = self.plan.partial_pitch();
                let beyond = [(&row, self.plan.m, sizes.tile[0]), (&column, pitch, sizes.tile[1])];
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
        let [row, column] = self.corner();
        self.by_rows(b, sums, 1, |b, i, [r, c], load| {
            let at = [row.clone() + i * TILE + r, column.clone() + c];
            // Four at a time took the 3 x 3 layers of 512 x 7 x 7 12 % longer.
            exchange.send(b, &self.rank, at, 1, load);
        });
        let piece = self.plan.piece().min(4);
        exchange.add_up(b, &self.rank, self.thread(), self.plan.sizes.threads(), piece, |b, at, sum| {
            self.write(b, place, at, piece, sum);
        });
    }
}
