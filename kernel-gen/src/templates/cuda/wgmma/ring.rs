//! The ring of tiles between the producer and the consumers.

use super::apart::{Apart, At, StepScales};
use super::block::{Behind, Block, Box, Feed, Product, UnderWay};
use super::plan::{Depth, FEWEST_COLUMNS, Sizes, depth};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, Expr, Gpu, Group, Tile, Unit, VarId};
use crate::templates::cuda::instructions::{multiply, tile};
use crate::templates::cuda::ring::{Place, Slots};
use crate::templates::cuda::warpgroups::WARPGROUP;
use crate::workload::operands::Operands;

/// How an operand lies in memory, and so in its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// The reduction is its fast dimension: a slot holds one matrix with a step's elements in a row.
    ReductionFast,
    /// The reduction is its slow dimension: a slot holds blocks of columns ([`block_of`]), which are multiplied transposed.
    ReductionSlow,
}

/// Columns of a block of an operand whose reduction is its slow dimension: rows of 128 bytes, or of a half or a quarter of
/// that, where a tile has no more.
pub(super) fn block_of(extent: i64) -> i64 {
    [64, 32].into_iter().find(|n| extent >= 64 || extent % n == 0).unwrap_or(FEWEST_COLUMNS)
}

/// Whether an operand whose reduction is its slow dimension is whole blocks.
pub(super) fn is_whole(extent: i64) -> bool {
    extent % block_of(extent) == 0
}

/// A part of what a step multiplies from one side: what one load brings.
pub(super) struct Part {
    /// Its first row of the tile (its first column, on the right), and how many it has.
    pub(super) first: Expr,
    pub(super) along: i64,
    /// Where in the step's reduction it starts, and how much of that it has.
    pub(super) deep: Expr,
    pub(super) depth: i64,
    /// Where it goes in its slot, which has a shape for each layout.
    to: Vec<Expr>,
    extents: Vec<i64>,
}

/// A product whose operands come step by step. Coordinates of a step are whatever the product makes of them.
pub(super) trait Steps: Product {
    /// How the left and the right operand lie in memory.
    fn layouts(&self) -> [Layout; 2];

    /// The steps of a tile's reduction: loops and conditions around `body`, which gets a step's coordinates and how
    /// deep it is. Producer and consumers go through the same ones, and so do the blocks of a cluster.
    fn steps(&self, b: &mut KernelBuilder, place: &[Expr], body: &mut dyn FnMut(&mut KernelBuilder, &[Expr], Depth));

    /// What a step multiplies from the left, or a part of it.
    fn left(&self, place: &[Expr], step: &[Expr], part: &Part) -> Box;

    /// What the sums of a step are multiplied by, if by anything.
    fn scales(&self) -> Option<&dyn StepScales> {
        None
    }

    /// What a step multiplies from the right, or a part of it.
    fn right(&self, place: &[Expr], step: &[Expr], part: &Part) -> Box;
}

/// The shared memory of a ring, and this thread's place in it.
pub(super) struct Ring<'p> {
    product: &'p dyn Steps,
    params: Operands,
    sizes: Sizes,
    /// Elements of the reduction in a step.
    depth: i64,
    layouts: [Layout; 2],
    operands: [BufferId; 2],
    /// What the short rows of the slots hold, if they have any.
    tails: Option<[BufferId; 2]>,
    /// Slots are free when all consumers are done with them: those of all blocks of the cluster, for what this block loads goes
    /// to all of them.
    slots: Slots,
    thread: VarId,
    rank: Expr,
}

impl<'p> Ring<'p> {
    pub(super) fn make(b: &mut KernelBuilder, block: &Block<'_>, product: &'p dyn Steps) -> Ring<'p> {
        let (sizes, layouts, thread) = (block.sizes, product.layouts(), block.thread);
        let (w, depth) = (product.workload(), depth(product.workload()));
        let bytes = w.dtype.bytes() as i64;
        let held = |b: &mut KernelBuilder, side: usize, name: &str, [rows, depth]: [i64; 2]| {
            let (dtype, layout) = (w.operand_types()[side], layouts[side]);
            let shape = match layout {
                Layout::ReductionFast => vec![sizes.stages, rows, depth],
                Layout::ReductionSlow => vec![sizes.stages, rows / block_of(rows), depth, block_of(rows)],
            };
            let row = shape[shape.len() - 1];
            b.alloc_swizzled(name, dtype, &shape, (row * bytes) as u32)
        };
        let both = |b: &mut KernelBuilder, names: [&str; 2], depth: i64| {
            [held(b, 0, names[0], [sizes.bm(), depth]), held(b, 1, names[1], [sizes.bn, depth])]
        };
        let operands = both(b, ["left_slots", "right_slots"], depth);
        let tail = sizes.tail / bytes;
        let tails = (tail > 0).then(|| both(b, ["left_tails", "right_tails"], tail));
        let users = sizes.consumers / sizes.tiles_at_once() * sizes.cluster.blocks();
        let slots = Slots::make(b, thread, sizes.stages, [1, users], |_| {});
        let rank = block.rank.clone();
        Ring { product, params: block.params.clone(), sizes, depth, layouts, operands, tails, slots, thread, rank }
    }

    /// What this block loads of an operand in a step, piece by piece: `depth` elements of the reduction, from the step's
    /// `start` on.
    ///
    /// Of an operand that the blocks of a cluster share, each loads its half, for all of them: rows of the tile where
    /// these are rows in memory, else blocks of columns, or half of the reduction where their number is odd.
    fn parts(&self, side: usize, [start, depth]: [i64; 2]) -> Vec<Part> {
        let extent = [self.sizes.bm(), self.sizes.bn][side];
        let n = if self.sizes.cluster.shares(side) { self.sizes.cluster.blocks() } else { 1 };
        let nth = |size: i64| if n == 1 { Expr::Int(0) } else { self.rank.clone() * size };
        match self.layouts[side] {
            Layout::ReductionFast => {
                let first = nth(extent / n);
                let to = vec![first.clone(), 0.into()];
                let along = extent / n;
                vec![Part { first, along, deep: start.into(), depth, to, extents: vec![along, depth] }]
            }
            Layout::ReductionSlow => {
                let columns = block_of(extent);
                let blocks = extent / columns;
                let whole = blocks % n == 0;
                let (count, depth) = if whole { (blocks / n, depth) } else { (blocks, depth / n) };
                let part = |i: i64| {
                    let (block, deep) = if whole { (nth(count) + i, 0.into()) } else { (i.into(), nth(depth)) };
                    let to = vec![block.clone(), deep.clone(), 0.into()];
                    let deep = deep + start;
                    Part { first: block * columns, along: columns, deep, depth, to, extents: vec![1, depth, columns] }
                };
                (0..count).map(part).collect()
            }
        }
    }

    /// One step of the producer: has the slot filled from `sources` when it is free.
    fn fill(&self, b: &mut KernelBuilder, sources: [BufferId; 2], deep: Depth, from: impl Fn(usize, &Part) -> Box) {
        let slot = self.slots.wait_empty(b);
        self.slots.expect(b, &slot, self.sizes.slot_bytes(deep.tail > 0));
        let tails = self.tails.filter(|_| deep.tail > 0).map(|tails| (tails, [self.depth, deep.tail]));
        for (operands, run) in [(self.operands, [0, self.depth])].into_iter().chain(tails) {
            for side in [0, 1] {
                // One bit a block.
                let all = (1 << self.sizes.cluster.blocks()) - 1;
                let multicast = self.sizes.cluster.shares(side).then_some(Expr::Int(all));
                for part in self.parts(side, run) {
                    let Box { origin, extents, steps } = from(side, &part);
                    let src = tile(sources[side], origin, &extents);
                    let (to, extents) = ([vec![slot.clone()], part.to].concat(), [vec![1], part.extents].concat());
                    let dst = tile(operands[side], to, &extents);
                    let (on, multicast) = (self.slots.full(&slot), multicast.clone());
                    b.gpu(Gpu::TensorLoad { dst, src, steps, on, multicast });
                }
            }
        }
        self.slots.place.advance(b);
    }

    /// One step of a consumer: multiplies what the slot holds by the tile's 64 rows from `first` on, and those of its
    /// further row blocks. The slot is given back at once, or in the next step, when this one's products are under way.
    fn step(&self, b: &mut KernelBuilder, acc: BufferId, (first, deep): (&Expr, Depth), start: Option<VarId>) {
        let slot = self.slots.wait_full(b);
        self.multiply(b, self.operands, deep.whole, [&slot, first], acc);
        if let Some(tails) = self.tails.filter(|_| deep.tail > 0) {
            self.multiply(b, tails, deep.tail, [&slot, first], acc);
        }
        b.gpu(Gpu::Commit(Group::Mma));
        match start {
            None => {
                b.gpu(Gpu::Wait(Group::Mma, 0));
                self.give_back(b, slot);
            }
            Some(start) => {
                b.gpu(Gpu::Wait(Group::Mma, 1));
                self.give_back_last(b, start);
            }
        }
        self.slots.place.advance(b);
    }

    /// Multiplies `depth` terms of what `operands` hold in a slot, for the row blocks from the row `first` on.
    fn multiply(
        &self,
        b: &mut KernelBuilder,
        operands: [BufferId; 2],
        depth: i64,
        [slot, first]: [&Expr; 2],
        acc: BufferId,
    ) {
        for h in 0..self.sizes.row_blocks {
            self.multiply_block(b, operands, depth, [slot, first], (h, 0, self.sizes.sums(acc, h)));
        }
    }

    /// The same for one row block, from a column on, into as many sums as there are.
    fn multiply_block(
        &self,
        b: &mut KernelBuilder,
        operands: [BufferId; 2],
        depth: i64,
        [slot, first]: [&Expr; 2],
        (h, column, sums): (i64, i64, Tile),
    ) {
        let columns = sums.extents[2];
        let right = match self.layouts[1] {
            Layout::ReductionFast => {
                tile(operands[1], vec![slot.clone(), column.into(), 0.into()], &[1, columns, depth])
            }
            Layout::ReductionSlow => {
                let of_block = block_of(self.sizes.bn);
                let origin = vec![slot.clone(), (column / of_block).into(), 0.into(), 0.into()];
                tile(operands[1], origin, &[1, columns / of_block, depth, of_block])
            }
        };
        let row = first.clone() + 64 * h;
        let left = match self.layouts[0] {
            Layout::ReductionFast => tile(operands[0], vec![slot.clone(), row, 0.into()], &[1, 64, depth]),
            Layout::ReductionSlow => {
                let origin = vec![slot.clone(), row.floor_div(64), 0.into(), 0.into()];
                tile(operands[0], origin, &[1, 1, depth, 64])
            }
        };
        let left = (left, self.layouts[0] == Layout::ReductionSlow);
        let right = (right, self.layouts[1] == Layout::ReductionFast);
        multiply(b, Unit::Warpgroup, sums, left, right);
    }

    /// The same, in sums of its own: [`Apart`] says why, and where they go.
    fn step_apart(
        &self,
        b: &mut KernelBuilder,
        acc: BufferId,
        at: At<'_>,
        deep: Depth,
        level: (&Apart, Option<VarId>),
    ) {
        let (apart, start) = level;
        let read = |b: &mut KernelBuilder, bank: usize, columns: i64| {
            if let Some(scales) = self.product.scales() {
                apart.read_scales(b, bank, (scales, columns), (&self.params, self.thread.into()), at);
            }
        };
        // Asked for before the slot is there.
        read(b, 0, 0);
        let slot = self.slots.wait_full(b);
        let tails = self.tails.filter(|_| deep.tail > 0).map(|tails| (tails, deep.tail));
        for (nth, (operands, depth)) in [(self.operands, deep.whole)].into_iter().chain(tails).enumerate() {
            for part in 0..apart.parts() {
                let columns = part as i64 * self.sizes.columns_apart();
                let bank = apart.bank(part);
                if part > 0 {
                    read(b, bank, columns);
                }
                apart.multiply(b, bank, |b, h, sums| {
                    self.multiply_block(b, operands, depth, [&slot, at.first], (h, columns, sums));
                });
                b.gpu(Gpu::Commit(Group::Mma));
                match start {
                    None => {
                        b.gpu(Gpu::Wait(Group::Mma, 0));
                        apart.add(b, acc, part);
                    }
                    Some(start) => {
                        b.gpu(Gpu::Wait(Group::Mma, 1));
                        apart.add(b, acc, apart.before(part));
                        if part == 0 && nth == 0 {
                            self.give_back_last(b, start);
                        }
                    }
                }
            }
        }
        if start.is_none() {
            self.give_back(b, slot);
        }
        self.slots.place.advance(b);
    }

    /// Gives the slot of the step before back, if that was one of this tile.
    fn give_back_last(&self, b: &mut KernelBuilder, start: VarId) {
        b.if_(Expr::from(start).lt(self.slots.place.steps()), |b| {
            self.give_back(b, self.slots.place.before(1));
        });
    }

    /// Tells the producers of all blocks of the cluster that this consumer is done with a slot: one thread each.
    fn give_back(&self, b: &mut KernelBuilder, slot: Expr) {
        let own = Expr::from(self.thread).floor_mod(WARPGROUP);
        match self.sizes.cluster.blocks() {
            1 => b.if_(own.eq(0), |b| self.slots.give_back(b, slot, None)),
            n => b.if_(own.clone().lt(n), |b| self.slots.give_back(b, slot, Some(own))),
        }
    }
}

impl Feed for Ring<'_> {
    fn place(&self) -> Place {
        self.slots.place
    }

    fn produce(&self, b: &mut KernelBuilder, block: &Block<'_>, tile: &[Expr]) {
        self.product.steps(b, tile, &mut |b, step, deep| {
            self.fill(b, [block.params.at(0), block.params.at(1)], deep, |side, part| match side {
                0 => self.product.left(tile, step, part),
                _ => self.product.right(tile, step, part),
            });
        });
    }

    fn consume(
        &self,
        b: &mut KernelBuilder,
        acc: BufferId,
        tile: &[Expr],
        first: &Expr,
        behind: &Behind<'_>,
    ) -> Option<UnderWay> {
        let start = (self.sizes.pending > 0).then(|| b.let_("start", self.slots.place.steps()));
        let apart = Apart::make(b, self.product.workload(), self.sizes, self.product.scales().is_some());
        self.product.steps(b, tile, &mut |b, step, deep| {
            match &apart {
                None => self.step(b, acc, (first, deep), start),
                Some(apart) => self.step_apart(b, acc, At { place: tile, first, step }, deep, (apart, start)),
            }
            behind(b, 1);
        });
        start.map(|start| UnderWay { start, apart })
    }

    fn finish(&self, b: &mut KernelBuilder, acc: BufferId, last: Option<UnderWay>) {
        if let Some(UnderWay { start, apart }) = last {
            b.gpu(Gpu::Wait(Group::Mma, 0));
            if let Some(apart) = apart {
                apart.add(b, acc, apart.before(0));
            }
            self.give_back_last(b, start);
        }
    }

    fn pass(&self, b: &mut KernelBuilder, tile: &[Expr]) {
        self.product.steps(b, tile, &mut |b, _, _| self.slots.place.advance(b));
    }
}
