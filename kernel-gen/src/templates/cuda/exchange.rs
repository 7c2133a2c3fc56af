//! How the blocks of a cluster add up what each has of a reduction.

use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Gpu, MbarrierOp, Scope, Slot};
use crate::templates::cuda::instructions::tile;
use crate::templates::cuda::launch::share;
use crate::templates::cuda::outputs::each_element;

/// A barrier whose first phase ends when the blocks of the cluster have stored `bytes` bytes in this block's memory; `thread` is this
/// thread's number in the block.
pub(super) fn arrival(b: &mut KernelBuilder, thread: Expr, bytes: i64) -> Slot {
    let barrier = b.alloc("arrived", DType::I64, &[1], Scope::Mbarrier);
    let arrived = Slot { buffer: barrier, index: 0.into() };
    b.if_(thread.eq(0), |b| {
        b.gpu(Gpu::Mbarrier(arrived.clone(), MbarrierOp::Init(1)));
        b.gpu(Gpu::FenceAsync);
        b.gpu(Gpu::Mbarrier(arrived.clone(), MbarrierOp::Expect(bytes)));
    });
    arrived
}

/// Where the sums of the other blocks of a cluster come to.
pub(super) struct Exchange {
    /// One tile of rows for each block: those of the outputs that this block owns.
    received: BufferId,
    arrived: Slot,
    split: i64,
    /// Rows and columns of the tile.
    tile: [i64; 2],
    /// The type of sums, of four bytes.
    sums: DType,
}

impl Exchange {
    /// The memory for what `split` blocks send of a tile of `sums`, and the barrier that counts its bytes; `thread` is this
    /// thread's number in the block.
    pub(super) fn make(b: &mut KernelBuilder, thread: Expr, split: i64, tile: [i64; 2], sums: DType) -> Exchange {
        let [rows, columns] = tile;
        let received = b.alloc("received", sums, &[split, rows / split, columns + 4], Scope::Shared);
        let arrived = arrival(b, thread, 4 * rows * columns);
        Exchange { received, arrived, split, tile, sums }
    }

    /// Rows that a block owns.
    pub(super) fn owned(&self) -> i64 {
        self.tile[0] / self.split
    }

    /// Sends `count` neighbouring sums of block `rank`, one, two or four, which `load` gives by their distance from the first,
    /// to the block that owns their row.
    pub(super) fn send(
        &self,
        b: &mut KernelBuilder,
        rank: &Expr,
        [row, column]: [Expr; 2],
        count: i64,
        load: &dyn Fn(&Expr) -> Expr,
    ) {
        let values = match count {
            1 => vec![load(&0.into())],
            n => {
                let piece = b.alloc("piece", self.sums, &[n], Scope::Register);
                each_element(b, n, |b, element| b.store(piece, vec![element.clone()], load(&element)));
                (0..n).map(|i| Expr::load(piece, vec![i.into()])).collect()
            }
        };
        let to = vec![rank.clone(), row.clone().floor_mod(self.owned()), column];
        b.gpu(Gpu::StoreAt {
            dst: tile(self.received, to, &[count]),
            values,
            rank: row.floor_div(self.owned()),
            on: self.arrived.clone(),
        });
    }

    /// Waits for all sums of the rows that block `rank` owns and adds them in the order of the blocks: `body` gets the first
    /// row and column in the tile of `piece` neighbours, and what the sum so far behind it is.
    pub(super) fn add_up(
        &self,
        b: &mut KernelBuilder,
        rank: &Expr,
        thread: Expr,
        threads: i64,
        piece: i64,
        body: impl FnOnce(&mut KernelBuilder, [Expr; 2], &dyn Fn(&Expr) -> Expr),
    ) {
        b.gpu(Gpu::Mbarrier(self.arrived.clone(), MbarrierOp::Wait(0.into())));
        let per_row = self.tile[1] / piece;
        share(b, threads, thread, self.owned() * per_row, |b, at| {
            let (r, c) = (at.clone().floor_div(per_row), at.floor_mod(per_row) * piece);
            let to = [rank.clone() * self.owned() + r.clone(), c.clone()];
            body(b, to, &|element| {
                let of =
                    |block: i64| Expr::load(self.received, vec![block.into(), r.clone(), c.clone() + element.clone()]);
                (1..self.split).fold(of(0), |sum, block| sum + of(block))
            });
        });
    }
}
