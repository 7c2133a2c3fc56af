//! The registers of warps: what `ldmatrix` brings and `mma.sync` multiplies, and the way of the sums.

use super::plan::{PAIR, Right, TILE, TensorCores};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, Expr, Gpu, Scope, Unit, VarId};
use crate::templates::cuda::cut::Layout;
use crate::templates::cuda::exchange::Exchange;
use crate::templates::cuda::family::Store;
use crate::templates::cuda::guards::below;
use crate::templates::cuda::instructions::{clear, multiply, tile};
use crate::templates::cuda::launch::unrolled;
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::pipeline::{Block, Copied, Fragments};
use crate::templates::cuda::warp_sums::{Rows, WarpSums};

/// The ring of tiles, and the registers of a warp.
pub(in crate::templates::cuda) struct Memory {
    ring: [BufferId; 2],
    operands: [BufferId; 2],
    sums: WarpSums,
    /// Where sums of a cluster's blocks meet.
    exchange: Option<Exchange>,
    zero: Option<Zero>,
}

/// What the zero point of the input adds to each sum: its product with all weights of the column, which is one more row of the product.
struct Zero {
    /// Rows that are the zero point everywhere.
    rows: BufferId,
    sums: BufferId,
}

impl TensorCores {
    /// The first row and column of a warp in the tile.
    fn corner(&self, block: &Block<'_>) -> [Expr; 2] {
        let (warps, [m, n], warp) = (self.sizes.warps, self.sizes.warp_tile(), Expr::from(block.warp));
        [warp.clone().floor_div(warps[1]) * m, warp.floor_mod(warps[1]) * n]
    }

    /// Rows and columns of a warp's operand, or of a part of it, in the order in which they lie.
    fn lying<T>(&self, side: usize, outer: T, depth: T) -> [T; 2] {
        match self.cut.whole.layouts[side] {
            Layout::ReductionFast => [outer, depth],
            Layout::ReductionSlow => [depth, outer],
        }
    }

    /// A piece of an operand's tile that a thread copies, by its number.
    fn piece(&self, side: usize, unit: i64, piece: Expr) -> [Expr; 2] {
        let [_, row] = self.lying(side, self.sizes.tile[side], self.cut.tile_k);
        [piece.clone().floor_div(row / unit), piece.floor_mod(row / unit) * unit]
    }

    /// What is known of a piece that goes to `at` in a slot.
    fn copied(&self, side: usize, at: [Expr; 2], within: Option<Expr>) -> Copied {
        let [line, column] = at.clone();
        let [outer, term] = self.lying(side, line, column);
        Copied { at, outer, term, named: vec![], within }
    }

    /// Puts the warp's sums into shared memory and visits them in pieces of `piece` neighbours ([`WarpSums::by_rows`]).
    fn by_rows(
        &self,
        b: &mut KernelBuilder,
        block: &Block<'_>,
        memory: &Memory,
        piece: i64,
        body: impl Fn(&mut KernelBuilder, [Expr; 2], &dyn Fn(&Expr) -> Expr),
    ) {
        let ([row, column], pitch) = (self.corner(block), self.row_pitch());
        let (warp, lane, sums) = (block.warp, block.lane, &memory.sums);
        let rows = Rows { warps: self.cut.warps, warp, lane, dtype: block.product.sums(), pitch, piece };
        sums.by_rows(
            b,
            &rows,
            |_, at, sum| memory.value(at, sum),
            |b, i, [r, c], load| {
                body(b, [row.clone() + i * TILE + r, column.clone() + c], load);
            },
        );
    }

    /// Visits the warp's sums: their place in the tile, and they.
    fn each(
        &self,
        b: &mut KernelBuilder,
        block: &Block<'_>,
        memory: &Memory,
        body: impl Fn(&mut KernelBuilder, [Expr; 2], Expr),
    ) {
        let [row, column] = self.corner(block);
        for i in 0..memory.sums.count {
            let (row, column) = (row.clone() + i * TILE, column.clone());
            memory.sums.each(b, i, |b, [r, c], sum| body(b, [row + r, column + c], memory.value([r, c], sum)));
        }
    }
}

impl Memory {
    /// A sum of a row and a column of sixteen rows, without what the zero point added.
    fn value(&self, [row, column]: [VarId; 2], sum: Expr) -> Expr {
        match &self.zero {
            Some(zero) => sum - Expr::load(zero.sums, vec![row.into(), column.into()]),
            None => sum,
        }
    }
}

impl Fragments for TensorCores {
    type Memory = Memory;

    fn parts(&self) -> i64 {
        self.cut.tile_k / self.deep()
    }

    fn lines(&self) -> [[i64; 2]; 2] {
        [self.slot(0), self.slot(1)]
    }

    fn memory(&self, b: &mut KernelBuilder, block: &Block<'_>, ring: [BufferId; 2]) -> Memory {
        let types = block.product.operand_types();
        let (warp, [m, n]) = (Scope::Fragment(Unit::Warp), self.sizes.warp_tile());
        let operand = |side: usize, length: i64| {
            let [rows, columns] = self.lying(side, length, self.deep());
            [PAIR, rows, columns]
        };
        let operands =
            [b.alloc("left", types[0], &operand(0, m), warp), b.alloc("right", types[1], &operand(1, n), warp)];
        let sums = b.alloc("sums", block.product.sums(), &[m / TILE, TILE, n], warp);
        let sums = WarpSums { buffer: sums, count: m / TILE, columns: n, names: ["row", "column"] };
        let (split, tile) = (self.sizes.split, self.sizes.tile);
        let exchange = self.cut.clustered.then(|| Exchange::make(b, block.thread(), split, tile, block.product.sums()));
        let zero = self.zero.then(|| Zero {
            rows: b.alloc("zero_rows", types[0], &[TILE, self.deep()], warp),
            sums: b.alloc("zero_sums", block.product.sums(), &[TILE, n], warp),
        });
        Memory { ring, operands, sums, exchange, zero }
    }

    /// Most products' right operands need no names: these are copied in a loop.
    fn copied(&self, b: &mut KernelBuilder, block: &Block<'_>, side: usize, at: VarId) -> Vec<Copied> {
        let (unit, turns) = match (side, self.right) {
            (0, _) => (self.unit, self.copied_rows()),
            (_, Right::Loop) => return vec![],
            (_, Right::Named { unit, .. }) => (unit, self.right_pieces(unit)),
        };
        let (threads, tile) = (self.cut.threads(), self.sizes.tile[side]);
        let count = tile * self.cut.tile_k / unit;
        let mut all: Vec<Copied> = vec![];
        for turn in 0..turns {
            let piece = block.thread() + turn * threads;
            let within = ((turn + 1) * threads > count).then(|| piece.clone().lt(count));
            let [row, column] = self.piece(side, unit, piece);
            let at_slot = [b.let_("copy_row", row).into(), b.let_("copy_column", column).into()];
            let copied = self.copied(side, at_slot, within);
            let outer = at * tile + copied.outer.clone();
            let named = match (side, all.first()) {
                (0, _) => block.product.left_row(b, outer),
                (_, Some(first)) if self.one_column(unit) => first.named.clone(),
                _ => block.product.right_column(b, outer),
            };
            all.push(Copied { named, ..copied });
        }
        all
    }

    fn copy_right(&self, b: &mut KernelBuilder, block: &Block<'_>, copy: &dyn Fn(&mut KernelBuilder, Copied)) {
        if self.right != Right::Loop {
            return;
        }
        let (threads, unit) = (self.cut.threads(), block.product.units()[1]);
        let count = self.sizes.tile[1] * self.cut.tile_k / unit;
        unrolled(b, "turn", ceil_div(count, threads), |b, turn| {
            let piece = turn * threads + block.thread();
            let within = below(piece.clone(), count, threads);
            copy(b, self.copied(1, self.piece(1, unit, piece), within));
        });
    }

    fn clear(&self, b: &mut KernelBuilder, block: &Block<'_>, memory: &Memory) {
        if memory.exchange.is_some() {
            // Blocks may store in each other's memory once all have started; the first tiles are under way meanwhile.
            b.gpu(Gpu::ClusterBarrier);
        }
        memory.sums.clear(b);
        if let Some(zero) = &memory.zero {
            let dst = tile(zero.rows, [0.into(), 0.into()], &[TILE, self.deep()]);
            b.gpu(Gpu::Fill { dst, value: block.zero(0) });
            clear(b, tile(zero.sums, [0.into(), 0.into()], &[TILE, self.sizes.warp_tile()[1]]));
        }
    }

    fn bring(&self, b: &mut KernelBuilder, block: &Block<'_>, memory: &Memory, slot: &Expr, k: i64) {
        for (side, outer) in self.corner(block).into_iter().enumerate() {
            let [row, column] = self.lying(side, outer, (k * self.deep()).into());
            let extents = self.lying(side, self.sizes.warp_tile()[side], self.deep());
            let dst = tile(memory.operands[side], vec![(k % PAIR).into(), 0.into(), 0.into()], &extents);
            b.gpu(Gpu::Move { dst, src: tile(memory.ring[side], vec![slot.clone(), row, column], &extents) });
        }
    }

    fn multiply(&self, b: &mut KernelBuilder, _: &Block<'_>, memory: &Memory, k: i64) {
        let ([m, n], layouts) = (self.sizes.warp_tile(), self.cut.whole.layouts);
        let operand = |side: usize, at: [i64; 2], extents: [i64; 2]| {
            tile(memory.operands[side], [(k % PAIR).into(), at[0].into(), at[1].into()], &extents)
        };
        for i in 0..m / TILE {
            let sums = tile(memory.sums.buffer, [i.into(), 0.into(), 0.into()], &[TILE, n]);
            let left = operand(0, self.lying(0, i * TILE, 0), self.lying(0, TILE, self.deep()));
            let right = operand(1, [0, 0], self.lying(1, n, self.deep()));
            let transposed = [layouts[0] == Layout::ReductionSlow, layouts[1] == Layout::ReductionFast];
            multiply(b, Unit::Warp, sums, (left, transposed[0]), (right, transposed[1]));
        }
        if let Some(zero) = &memory.zero {
            let [left, sums] = [(zero.rows, self.deep()), (zero.sums, n)]
                .map(|(buffer, columns)| tile(buffer, [0.into(), 0.into()], &[TILE, columns]));
            let right = operand(1, [0, 0], self.lying(1, n, self.deep()));
            multiply(b, Unit::Warp, sums, (left, false), (right, true));
        }
    }

    /// As pairs from the registers, or by way of shared memory, sixteen rows at a time, so that a lane stores 16 bytes. In a
    /// cluster each block gets the sums of the rows that it owns, and adds them in the order of the blocks.
    fn store(&self, b: &mut KernelBuilder, block: &Block<'_>, memory: &Memory, place: [VarId; 2]) {
        let piece = self.stored();
        match (&memory.exchange, self.sizes.store) {
            (Some(exchange), _) => {
                // Four at a time took the 3 x 3 layers of 512 x 7 x 7 12 % longer.
                self.by_rows(b, block, memory, 1, |b, at, load| exchange.send(b, &block.rank, at, 1, load));
                let (threads, piece) = (self.cut.threads(), self.cut.stored);
                exchange.add_up(b, &block.rank, block.thread(), threads, piece, |b, at, sum| {
                    block.write(b, place, at, piece, sum);
                });
            }
            (None, Store::Direct) => {
                self.each(b, block, memory, |b, at, sum| block.write(b, place, at, 1, &|_| sum.clone()));
            }
            (None, Store::Rows) => {
                self.by_rows(b, block, memory, piece, |b, at, load| block.write(b, place, at, piece, load));
            }
        }
    }

    fn give(&self, b: &mut KernelBuilder, block: &Block<'_>, memory: &Memory, place: [VarId; 2]) {
        self.each(b, block, memory, |b, at, sum| {
            block.give(b, place, at, |b, partial, to| b.store(partial, to, sum));
        });
    }
}
