//! The kernel that products in parts share: blocks that stay for many tiles, a ring of slots between producers and consumers, who
//! is which, how weights come and how outputs go. What comes into the ring from the left, and what consumers make of it, a product
//! supplies ([`Supply`]).

use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, Expr, LoopKind, Stmt, VarId};
use crate::templates::cuda::guards::{below, inside, or_zero};
use crate::templates::cuda::instructions::{load_box, tile};
use crate::templates::cuda::launch::launch;
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::outputs::finish;
use crate::templates::cuda::ring::Slots;
use crate::templates::cuda::source::{Pixel, Source};
use crate::templates::cuda::warpgroups::{WARPGROUP, each_round, roles};
use crate::workload::Workload;
use crate::workload::operands::Operands;

/// A product cut into tiles of the output and steps of the reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) source: Source,
    /// Tiles above each other.
    pub(super) row_tiles: i64,
    /// Columns of a tile.
    pub(super) bn: i64,
    /// Terms of a step.
    pub(super) depth: i64,
    /// Parts of each element.
    pub(super) parts: i64,
    /// Consumer warpgroups of a block.
    pub(super) consumers: i64,
    /// Registers that a thread of the producers and of the consumers asks for; none where all have enough from the start.
    pub(super) registers: Option<[u32; 2]>,
}

impl Cut {
    /// Steps for one tap.
    pub(super) fn chunks(&self) -> i64 {
        ceil_div(self.source.depth(), self.depth)
    }

    /// Steps of a tile.
    pub(super) fn steps(&self) -> i64 {
        self.source.taps().iter().product::<i64>() * self.chunks()
    }

    /// Tiles side by side.
    pub(super) fn column_tiles(&self) -> i64 {
        ceil_div(self.source.columns(), self.bn)
    }

    /// Tiles of the output.
    pub(super) fn tiles(&self) -> i64 {
        self.row_tiles * self.column_tiles()
    }

    /// Threads of a block: a warpgroup of producers, and the consumers.
    pub(super) fn threads(&self) -> i64 {
        WARPGROUP * (1 + self.consumers)
    }

    /// The shape of the packed weights: for each tile of columns and each of `steps` steps the parts, each `bn x depth`.
    pub(super) fn packed_shape(&self, steps: i64) -> Vec<i64> {
        vec![self.column_tiles(), steps, self.parts, self.bn, self.depth]
    }

    /// Before they are packed: the weight of a column and of a place in a step; zero beyond the last column and the last term.
    pub(super) fn weight(&self, b: &mut KernelBuilder, from: BufferId, step: VarId, place: Expr, column: Expr) -> Expr {
        let (source, [_, kw]) = (&self.source, self.source.taps());
        let tap = b.let_("tap", Expr::from(step).floor_div(self.chunks()));
        let term = Expr::from(step).floor_mod(self.chunks()) * self.depth + place;
        let at = [column, term];
        let exists = inside(&at, [source.columns(), source.depth()], [self.bn, self.depth]);
        let ([column, term], taps) = (at, [Expr::from(tap).floor_div(kw), Expr::from(tap).floor_mod(kw)]);
        or_zero(exists, Expr::load(from, source.weight(taps, term, column)))
    }

    /// The steps of a tile: the taps along each dimension of which `meets` holds, and the chunk of the reduction. Producers and
    /// consumers go through the same.
    pub(super) fn each_step(
        &self,
        b: &mut KernelBuilder,
        meets: &dyn Fn(usize, VarId) -> Option<Expr>,
        body: &mut dyn FnMut(&mut KernelBuilder, [VarId; 2], VarId),
    ) {
        let [kh, kw] = self.source.taps();
        b.for_("kh", kh, |b, y| {
            b.when(meets(0, y), |b| {
                b.for_("kw", kw, |b, x| {
                    b.when(meets(1, x), |b| {
                        b.for_("chunk", self.chunks(), |b, chunk| body(b, [y, x], chunk));
                    });
                });
            });
        });
    }
}

/// The ring of slots between the producers and the consumers, and this thread's place in it.
pub(super) struct Ring {
    /// Elements or parts of the left operand.
    pub(super) left: BufferId,
    /// Parts of the weights: `[stages, parts, bn, depth]`.
    pub(super) right: BufferId,
    pub(super) slots: Slots,
}

/// What a product in parts supplies.
pub(super) trait Supply {
    /// The product.
    fn cut(&self) -> Cut;

    /// The shared memory and the barriers of the ring.
    fn ring(&self, b: &mut KernelBuilder, thread: VarId) -> Ring;

    /// What the threads of the producers' warpgroup do.
    fn produce(&self, b: &mut KernelBuilder, block: &Block);

    /// What the consumer warpgroup of this number does.
    fn consume(&self, b: &mut KernelBuilder, block: &Block, consumer: VarId);
}

/// The launch of a product for a device with `multiprocessors` multiprocessors. Consumers are the first warpgroups of a block,
/// producers the last one.
pub(super) fn product(b: &mut KernelBuilder, multiprocessors: i64, supply: &dyn Supply) {
    let cut = supply.cut();
    let blocks = multiprocessors.min(cut.tiles());
    launch(b, [("block", blocks)], [("t", cut.threads())], |b, [first], [thread]| {
        let ring = supply.ring(b, thread);
        let block = Block { cut, ring, thread, first, blocks };
        b.push(Stmt::Barrier(Barrier::Block));
        let consumes = Expr::from(thread).lt(cut.consumers * WARPGROUP);
        let consume = |b: &mut KernelBuilder| {
            let consumer = b.let_("consumer", Expr::from(thread).floor_div(WARPGROUP));
            supply.consume(b, &block, consumer);
        };
        let registers = cut.registers.map(|[producer, consumer]| [consumer, producer]);
        roles(b, consumes, registers, consume, |b| supply.produce(b, &block));
    });
}

/// A thread of a block, and what it shares with the others.
pub(super) struct Block {
    cut: Cut,
    pub(super) ring: Ring,
    pub(super) thread: VarId,
    /// This block, and how many there are.
    first: VarId,
    blocks: i64,
}

impl Block {
    /// Visits the tiles of the block: the numbers of its row tile and its column tile. Columns go fastest, so that blocks which run
    /// at the same time share pixels.
    pub(super) fn each_tile(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, [VarId; 2])) {
        let (tiles, columns) = (self.cut.tiles(), self.cut.column_tiles());
        each_round(b, tiles, (self.first, self.blocks), |b, _, item| {
            // The remainder changes nothing, and says that there are no more tiles than these.
            let row = b.let_("row_tile", Expr::from(item).floor_div(columns).floor_mod(tiles / columns));
            let column = b.let_("column_tile", Expr::from(item).floor_mod(columns));
            body(b, [row, column]);
        });
    }

    /// Whether this thread is the first of the producers.
    pub(super) fn leads(&self) -> Expr {
        Expr::from(self.thread).eq(self.cut.consumers * WARPGROUP)
    }

    /// Has the copy engine bring a step's packed weights for a tile of columns to a slot.
    pub(super) fn fetch_weights(
        &self,
        b: &mut KernelBuilder,
        (packed, slot): (BufferId, &Expr),
        column: VarId,
        ([y, x], chunk): ([VarId; 2], VarId),
    ) {
        let Cut { source, parts, bn, depth, .. } = self.cut;
        let step = (y * source.taps()[1] + x) * self.cut.chunks() + chunk;
        let to = tile(self.ring.right, [slot.clone(), 0.into(), 0.into(), 0.into()], &[parts, bn, depth]);
        let from = tile(packed, [column.into(), step, 0.into(), 0.into(), 0.into()], &[parts, bn, depth]);
        load_box(b, to, from, self.ring.slots.full(slot));
    }
}

/// Stores 64 rows of sums for a tile of `bn` columns: `pixel` gives a row's pixel and the condition that it exists, `sum` what
/// belongs to a row, a column and its channel.
pub(super) fn store(
    b: &mut KernelBuilder,
    (w, params, source): (&Workload, &Operands, &Source),
    (column_tile, bn): (VarId, i64),
    pixel: impl FnOnce(&mut KernelBuilder, VarId) -> (Pixel, Option<Expr>),
    sum: impl FnOnce([VarId; 2], &Expr) -> Expr,
) {
    b.loop_("row", 64, LoopKind::FragmentRow, |b, row| {
        let (pixel, exists) = pixel(b, row);
        b.when(exists, |b| {
            b.loop_("column", bn, LoopKind::FragmentCol, |b, column| {
                let channel = column_tile * bn + column;
                let index = source.output(&pixel, channel.clone());
                let sum = sum([row, column], &channel);
                b.when(below(channel.clone(), source.columns(), bn), |b| finish(b, (w, params), &channel, index, sum));
            });
        });
    });
}
